#include "cnn/row_counts.h"

#include <math.h>

#include "cnn/blocks.h"
#include "cnn/rows.h"
#include "cnn/work.h"
#include "core/base/alloc.h"
#include "core/base/philox.h"

enum {
  PILOTS = 12,      /* rows that show how much work a product is */
  DRAWS = 4,        /* entries of a drawn row whose rows of B are counted */
  LEAST_DRAWN = 512 /* rows of a product that are drawn at least */
};

/* The rows of one tensor of a span's first live set. */
typedef struct {
  bppsa_rows_classes classes[2];
  int64_t channels;
  int32_t *entries; /* [class of height][class of width][channel]: entries of the row, -1: not counted yet */
} span_part;

/* J_fromᵀ ⋯ J_toᵀ. */
typedef struct {
  int64_t from, to;
  int64_t first, parts; /* the places of x_{from-1} */
  span_part *part;
  int64_t rows;    /* of the matrix */
  double distinct; /* rows that differ */
  bool identity;
  /* a product that has been counted: where it was cut; 0: none has */
  int64_t cut;
  bppsa_scan_counted counted;
} span;

struct bppsa_cnn_counter {
  bppsa_cnn_counter_config config; /* without masks */
  bppsa_cnn_rows rows;
  bppsa_csr *elements, *ones; /* size n, without arrays */
  const bppsa_csr **patterns; /* size n */
  bppsa_rows_set sets[4];     /* two for a row of the product, two for rows of its second factor */
  span **spans;
  int64_t span_count, span_room;
  int64_t bytes;
  uint64_t drawn, stream; /* random numbers so far, of this stream */
};

/* ---- elements ---- */

/* Is J_tᵀ, which has nothing but ones, the identity? Every piece of it must stay where it is. */
static bool is_identity(const bppsa_cnn_counter *c, int64_t t, const bppsa_csr *element) {
  const bppsa_cnn_rows *rows = &c->rows;
  const bppsa_cnn_live *live = &rows->live;
  bool same = element->nnz == 0 && element->ones != NULL && element->rows == element->cols && element->ones->nnz == element->rows;
  for (int64_t at = live->ptr[t - 1]; same && at < live->ptr[t]; ++at) {
    same = rows->stays[at] < 0 || live->offsets[rows->stays[at]] == live->offsets[at];
  }
  for (int64_t k = rows->reader_ptr[t - 1]; same && k < rows->reader_ptr[t]; ++k) {
    const bppsa_cnn_part part = bppsa_cnn_part_of(rows->network, t - 1, rows->readers[k].input);
    const int64_t row = bppsa_cnn_live_offset(live, t - 1, part.tensor), output = bppsa_cnn_live_offset(live, t, t);
    const int64_t *in = bppsa_cnn_input_shape(rows->network, t - 1, rows->readers[k].input), *strides = rows->readers[k].strides;
    const bool ordered = strides[0] == in[1] * in[2] && strides[1] == in[2] && strides[2] == 1;
    same = row < 0 || (ordered && output >= 0 && row + part.from == output + part.to);
  }
  return same;
}

/* Counts the entries of layer t - 1 whose rows are in x_{t-1}. */
static bppsa_status count_own(const bppsa_cnn_counter *c, int64_t t, const uint8_t *mask, int64_t *entries) {
  const bppsa_cnn_network *network = c->rows.network;
  const bppsa_cnn_layer *layer = &network->layers[t - 1];
  bppsa_cnn_layer_work work;
  *entries = 0;
  if (bppsa_rows_output(&c->rows, t - 1) < 0) {
    return BPPSA_OK;
  }
  for (int64_t k = 0; k < bppsa_cnn_input_count(network, t - 1); ++k) {
    const bool live = bppsa_cnn_live_offset(&c->rows.live, t - 1, bppsa_cnn_input_of(network, t - 1, k) + 1) >= 0;
    if (live && bppsa_cnn_has_blocks(layer)) {
      *entries += bppsa_cnn_block_entries(network, t - 1, k);
    } else if (live && layer->node == BPPSA_CNN_OPERATOR) {
      BPPSA_TRY(bppsa_cnn_count_layer(network, t - 1, mask, true, &work));
      *entries += (int64_t)(work.flops[BPPSA_CNN_TO_INPUT][BPPSA_CNN_PRUNED] / 2);
    }
  }
  return BPPSA_OK;
}

static bppsa_status make_elements(bppsa_cnn_counter *c) {
  const bppsa_cnn_live *live = &c->rows.live;
  c->elements = bppsa_calloc(live->elements, sizeof *c->elements);
  c->ones = bppsa_calloc(live->elements, sizeof *c->ones);
  c->patterns = bppsa_calloc(live->elements, sizeof *c->patterns);
  if (c->elements == NULL || c->ones == NULL || c->patterns == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t t = 1; t <= live->elements; ++t) {
    bppsa_csr *element = &c->elements[t - 1], *ones = &c->ones[t - 1];
    bool own;
    *element = (bppsa_csr){.rows = live->sizes[t - 1], .cols = live->sizes[t]};
    *ones = *element;
    c->patterns[t - 1] = element;
    BPPSA_TRY(count_own(c, t, c->config.masks != NULL ? c->config.masks[t - 1] : NULL, &element->nnz));
    ones->nnz = bppsa_cnn_live_ones(live, c->rows.network, t, &own);
    element->ones = ones->nnz > 0 ? ones : NULL;
    if (is_identity(c, t, element)) {
      element->identity = true;
      element->nnz = element->rows;
      element->ones = NULL;
    }
  }
  return BPPSA_OK;
}

/* ---- spans ---- */

static void free_span(span *s) {
  for (int64_t p = 0; s != NULL && s->part != NULL && p < s->parts; ++p) {
    bppsa_rows_classes_free(&s->part[p].classes[0]);
    bppsa_rows_classes_free(&s->part[p].classes[1]);
    bppsa_free(s->part[p].entries);
  }
  if (s != NULL) {
    bppsa_free(s->part);
  }
  bppsa_free(s);
}

static bppsa_status make_part(bppsa_cnn_counter *c, span *s, int64_t p) {
  span_part *part = &s->part[p];
  const int64_t *shape = bppsa_rows_shape(&c->rows, s->first + p);
  part->channels = shape[0];
  for (int axis = 0; axis < 2; ++axis) {
    BPPSA_TRY(bppsa_rows_classes_create(&c->rows, s->from, s->to, s->first + p, axis, &part->classes[axis]));
  }
  const int64_t rows = part->classes[0].count * part->classes[1].count * part->channels;
  const int64_t bytes = rows * (int64_t)sizeof *part->entries, limit = c->config.memory_limit;
  s->distinct += (double)rows;
  c->bytes += bytes;
  if (limit > 0 && c->bytes > limit) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "counting the products up to layers '%s' to '%s' needs %lld bytes, the memory limit is %lld",
                      c->rows.network->layers[s->from - 1].name, c->rows.network->layers[s->to - 1].name, (long long)c->bytes,
                      (long long)limit);
  }
  part->entries = bppsa_alloc((size_t)bytes);
  if (part->entries == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < rows; ++i) {
    part->entries[i] = -1;
  }
  return BPPSA_OK;
}

static bppsa_status make_span(bppsa_cnn_counter *c, int64_t from, int64_t to, span *s) {
  const bppsa_cnn_live *live = &c->rows.live;
  *s = (span){.from = from,
              .to = to,
              .first = live->ptr[from - 1],
              .parts = live->ptr[from] - live->ptr[from - 1],
              .rows = live->sizes[from - 1],
              .identity = true};
  for (int64_t t = from; t <= to; ++t) {
    s->identity = s->identity && c->elements[t - 1].identity;
  }
  s->part = bppsa_calloc(s->parts, sizeof *s->part);
  if (s->part == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t p = 0; p < s->parts; ++p) {
    BPPSA_TRY(make_part(c, s, p));
  }
  return BPPSA_OK;
}

/* Finds a span, or makes it. */
static bppsa_status get_span(bppsa_cnn_counter *c, int64_t from, int64_t to, span **found) {
  for (int64_t i = 0; i < c->span_count; ++i) {
    if (c->spans[i]->from == from && c->spans[i]->to == to) {
      *found = c->spans[i];
      return BPPSA_OK;
    }
  }
  BPPSA_TRY(bppsa_grow(&c->spans, c->span_count, &c->span_room, sizeof *c->spans));
  span *made = bppsa_calloc(1, sizeof *made);
  const bppsa_status status = made == NULL ? BPPSA_ERR_MEMORY : make_span(c, from, to, made);
  if (status != BPPSA_OK) {
    free_span(made);
    return status;
  }
  c->spans[c->span_count++] = made;
  *found = made;
  return BPPSA_OK;
}

/* ---- rows ---- */

/* Walks from a set through layers; sets[0] is where it begins and where it ends. */
static void walk(bppsa_cnn_counter *c, bppsa_rows_set *sets, int64_t from, int64_t to) {
  for (int64_t t = from; t <= to; ++t) {
    bppsa_rows_step(&c->rows, t, &sets[0], &sets[1]);
    const bppsa_rows_set reached = sets[1];
    sets[1] = sets[0];
    sets[0] = reached;
  }
}

/* Where the count of a row is kept. */
static int32_t *kept_count(const bppsa_cnn_counter *c, const span *s, bppsa_rows_spot spot, int64_t channel) {
  const span_part *part = &s->part[spot.place - s->first];
  const int64_t width = bppsa_rows_shape(&c->rows, spot.place)[2];
  const int64_t y = part->classes[0].of[spot.position / width], x = part->classes[1].of[spot.position % width];
  return &part->entries[(y * part->classes[1].count + x) * part->channels + channel];
}

/* The entries of one row of a span. */
static int32_t entries_of(bppsa_cnn_counter *c, const span *s, bppsa_rows_spot spot, int64_t channel) {
  int32_t *kept = kept_count(c, s, spot, channel);
  int64_t ones;
  if (*kept < 0) {
    bppsa_rows_begin(&c->rows, spot, channel, &c->sets[2]);
    walk(c, &c->sets[2], s->from, s->to);
    *kept = (int32_t)bppsa_rows_entries(&c->rows, &c->sets[2], &ones);
    bppsa_rows_set_clear(&c->rows, &c->sets[2]);
  }
  return *kept;
}

/* The pairs of a row of A, which is in sets[0], with the rows of B. */
static double all_pairs(bppsa_cnn_counter *c, const span *b) {
  const bppsa_rows_set *row = &c->sets[0];
  double pairs = 0;
  for (int64_t i = 0; i < row->count; ++i) {
    const bppsa_rows_spot spot = row->spots[i];
    const int64_t word = bppsa_rows_word(&c->rows, spot);
    for (int64_t w = 0; w < c->rows.words[spot.place]; ++w) {
      for (uint64_t bits = row->entries[word + w]; bits != 0; bits &= bits - 1) {
        pairs += entries_of(c, b, spot, 64 * w + __builtin_ctzll(bits));
      }
    }
  }
  return pairs;
}

/* A whole random number below `bound`. */
static int64_t draw(bppsa_cnn_counter *c, int64_t bound) {
  return (int64_t)bppsa_random_below(c->config.seed, c->stream, c->drawn++, (uint64_t)bound);
}

/* The pairs of entry number `number` of sets[0]. */
static double pairs_of_entry(bppsa_cnn_counter *c, const span *b, int64_t number) {
  const bppsa_rows_set *row = &c->sets[0];
  for (int64_t i = 0; i < row->count; ++i) {
    const bppsa_rows_spot spot = row->spots[i];
    const int64_t word = bppsa_rows_word(&c->rows, spot);
    for (int64_t w = 0; w < c->rows.words[spot.place]; ++w) {
      uint64_t bits = row->entries[word + w];
      const int64_t here = __builtin_popcountll(bits);
      if (number >= here) {
        number -= here;
        continue;
      }
      for (; number > 0; --number) {
        bits &= bits - 1;
      }
      return entries_of(c, b, spot, 64 * w + __builtin_ctzll(bits));
    }
  }
  return 0;
}

/* The same as all_pairs, estimated from entries drawn at random, if there are more than that. */
static double drawn_pairs(bppsa_cnn_counter *c, const span *b, int64_t entries) {
  if (entries <= DRAWS) {
    return all_pairs(c, b);
  }
  double sum = 0;
  for (int k = 0; k < DRAWS; ++k) {
    sum += pairs_of_entry(c, b, draw(c, entries));
  }
  return sum * (double)entries / DRAWS;
}

/* What is counted of a row, or the sum of many; work: of the walks through A, of each row of B, and through B. */
typedef struct {
  double flops, entries, ones;
  double entries_of_a, through_a, of_b, through_b;
} row_count;

/* Counts a row of A B. all: all pairs, not only some of them. */
static row_count count_row(bppsa_cnn_counter *c, const span *a, const span *b, bppsa_rows_spot spot, int64_t channel, bool all) {
  row_count r = {.flops = 0};
  int64_t ones;
  c->rows.work = 0;
  bppsa_rows_begin(&c->rows, spot, channel, &c->sets[0]);
  walk(c, &c->sets[0], a->from, a->to);
  const int64_t entries = bppsa_rows_entries(&c->rows, &c->sets[0], &ones);
  r.entries_of_a = (double)entries;
  r.through_a = c->rows.work;
  r.flops = b->identity ? 0 : 2 * (all ? all_pairs(c, b) : drawn_pairs(c, b, entries));
  r.of_b = (c->rows.work - r.through_a) / (double)(entries < DRAWS ? entries + (entries == 0) : DRAWS);
  const double before = c->rows.work;
  walk(c, &c->sets[0], b->from, b->to);
  r.entries = (double)bppsa_rows_entries(&c->rows, &c->sets[0], &ones);
  r.ones = (double)ones;
  r.through_b = c->rows.work - before;
  bppsa_rows_set_clear(&c->rows, &c->sets[0]);
  return r;
}

/* ---- products ---- */

static void count_exactly(bppsa_cnn_counter *c, const span *a, const span *b, span *product, bppsa_scan_counted *counted) {
  for (int64_t p = 0; p < product->parts; ++p) {
    const span_part *part = &product->part[p];
    const int64_t place = product->first + p, width = bppsa_rows_shape(&c->rows, place)[2];
    for (int64_t y = 0; y < part->classes[0].count; ++y) {
      for (int64_t x = 0; x < part->classes[1].count; ++x) {
        const double times = (double)part->classes[0].times[y] * (double)part->classes[1].times[x];
        const bppsa_rows_spot spot = {(int32_t)place, (int32_t)(part->classes[0].member[y] * width + part->classes[1].member[x])};
        for (int64_t channel = 0; channel < part->channels; ++channel) {
          const row_count r = count_row(c, a, b, spot, channel, true);
          counted->flops += times * r.flops;
          counted->nnz += times * r.entries;
          counted->ones += times * r.ones;
          *kept_count(c, product, spot, channel) = (int32_t)r.entries;
        }
      }
    }
  }
}

/* Draws a row of part p: each has the same chance. */
static row_count draw_row(bppsa_cnn_counter *c, const span *a, const span *b, const span *product, int64_t p) {
  const int64_t *shape = bppsa_rows_shape(&c->rows, product->first + p);
  const bppsa_rows_spot spot = {(int32_t)(product->first + p), (int32_t)draw(c, shape[1] * shape[2])};
  return count_row(c, a, b, spot, draw(c, shape[0]), false);
}

/* The mean of some rows, and the work of all rows that differ. */
static double predict(bppsa_cnn_counter *c, const span *a, const span *b, const span *product, row_count *mean) {
  *mean = (row_count){.flops = 0};
  for (int k = 0; k < PILOTS; ++k) {
    const row_count r = draw_row(c, a, b, product, k % product->parts);
    mean->entries_of_a += r.entries_of_a / PILOTS;
    mean->through_a += r.through_a / PILOTS;
    mean->of_b += r.of_b / PILOTS;
    mean->through_b += r.through_b / PILOTS;
  }
  return product->distinct * (mean->through_a + mean->through_b + 2 * mean->entries_of_a) + b->distinct * mean->of_b;
}

/* Sums, and sums of squares, of what is drawn. */
typedef struct {
  double sum, squares;
} moments;

static void add_moment(double value, moments *m) {
  m->sum += value;
  m->squares += value * value;
}

/* Adds the estimate of the sum over `rows` rows of which `drawn` were drawn, and the square of its standard error. */
static void add_estimate(const moments *m, double rows, double drawn, double *sum, double *square) {
  const double mean = m->sum / drawn, variance = fmax(0, (m->squares - drawn * mean * mean) / (drawn - 1));
  *sum += rows * mean;
  *square += rows * rows * variance / drawn;
}

static void estimate(bppsa_cnn_counter *c, const span *a, const span *b, const span *product, double rows_to_draw,
                     bppsa_scan_counted *counted) {
  double ones_error = 0;
  for (int64_t p = 0; p < product->parts; ++p) {
    const int64_t *shape = bppsa_rows_shape(&c->rows, product->first + p);
    const double rows = (double)(shape[0] * shape[1] * shape[2]);
    const double share = round(rows_to_draw * rows / (double)product->rows);
    const int64_t drawn = share > LEAST_DRAWN / 8 ? (int64_t)share : LEAST_DRAWN / 8;
    moments flops = {0}, entries = {0}, ones = {0};
    for (int64_t k = 0; k < drawn; ++k) {
      const row_count r = draw_row(c, a, b, product, p);
      add_moment(r.flops, &flops);
      add_moment(r.entries, &entries);
      add_moment(r.ones, &ones);
    }
    add_estimate(&flops, rows, (double)drawn, &counted->flops, &counted->flops_error);
    add_estimate(&entries, rows, (double)drawn, &counted->nnz, &counted->nnz_error);
    add_estimate(&ones, rows, (double)drawn, &counted->ones, &ones_error);
  }
  counted->flops_error = sqrt(counted->flops_error);
  counted->nnz_error = sqrt(counted->nnz_error);
}

static bppsa_status count_product(void *context, int64_t from, int64_t cut, int64_t to, bppsa_scan_counted *counted) {
  bppsa_cnn_counter *c = context;
  span *a, *b, *product;
  BPPSA_TRY(get_span(c, from, cut, &a));
  BPPSA_TRY(get_span(c, cut + 1, to, &b));
  BPPSA_TRY(get_span(c, from, to, &product));
  if (product->cut != cut) {
    bppsa_scan_counted made = {.identity = product->identity};
    c->stream = BPPSA_STREAM_ROWS + (((uint64_t)from << 24 | (uint64_t)cut << 12 | (uint64_t)to) << 8);
    c->drawn = 0;
    row_count mean;
    const double work = made.identity ? 0 : predict(c, a, b, product, &mean);
    if (made.identity) {
      made.nnz = (double)product->rows;
    } else if (work <= c->config.work) {
      count_exactly(c, a, b, product, &made);
    } else {
      const double each = mean.through_a + mean.through_b + DRAWS * mean.of_b;
      estimate(c, a, b, product, fmax(LEAST_DRAWN, c->config.work / (4 * each)), &made);
    }
    product->cut = cut;
    product->counted = made;
  }
  *counted = product->counted;
  return BPPSA_OK;
}

/* ---- the counter ---- */

static bppsa_status make_counter(bppsa_cnn_counter *c) {
  BPPSA_TRY(bppsa_cnn_rows_create(c->config.network, c->config.masks, c->config.input, c->config.memory_limit, &c->rows));
  c->bytes = c->rows.bytes;
  for (int k = 0; k < 4; ++k) {
    BPPSA_TRY(bppsa_rows_set_create(&c->rows, &c->sets[k]));
  }
  BPPSA_TRY(make_elements(c));
  c->config.masks = NULL;
  return BPPSA_OK;
}

bppsa_status bppsa_cnn_counter_create(const bppsa_cnn_counter_config *config, bppsa_cnn_counter **counter) {
  BPPSA_REQUIRE(config != NULL && config->network != NULL && counter != NULL);
  bppsa_cnn_counter *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  made->config = *config;
  const bppsa_status status = make_counter(made);
  if (status != BPPSA_OK) {
    bppsa_cnn_counter_destroy(made);
    return status;
  }
  *counter = made;
  return BPPSA_OK;
}

void bppsa_cnn_counter_destroy(bppsa_cnn_counter *c) {
  if (c == NULL) {
    return;
  }
  for (int64_t i = 0; i < c->span_count; ++i) {
    free_span(c->spans[i]);
  }
  for (int k = 0; k < 4; ++k) {
    bppsa_rows_set_free(&c->sets[k]);
  }
  bppsa_free((void *)c->spans);
  bppsa_free(c->elements);
  bppsa_free(c->ones);
  bppsa_free((void *)c->patterns);
  bppsa_cnn_rows_free(&c->rows);
  bppsa_free(c);
}

const bppsa_csr *const *bppsa_cnn_counter_patterns(const bppsa_cnn_counter *counter) {
  return counter->patterns;
}

bppsa_scan_counter bppsa_cnn_counter_of(bppsa_cnn_counter *counter) {
  return (bppsa_scan_counter){.count = count_product, .context = counter};
}
