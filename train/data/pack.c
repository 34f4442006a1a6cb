#include "train/data/pack.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "core/base/alloc.h"
#include "core/base/decimal.h"
#include "core/compute/pool.h"
#include "train/blocks.h"
#include "train/data/dataset_internal.h"

/* ---- which sample goes where ---- */

enum { BITS = 64 };

/* Open rows by their room, 0 .. steps: a list for each room, the latest row first, and a bit that says whether there is any. */
typedef struct {
  int64_t *latest, *next; /* [steps + 1], [samples]: rows, -1: none */
  uint64_t *any;          /* [steps / BITS + 1] */
  int64_t *begin;         /* [steps + 2]: samples by length */
} packing_work;

static void free_work(packing_work *w) {
  bppsa_free(w->latest);
  bppsa_free(w->next);
  bppsa_free(w->any);
  bppsa_free(w->begin);
}

static bppsa_status allocate_work(int64_t samples, int64_t steps, packing_work *w) {
  w->latest = bppsa_calloc(steps + 1, sizeof *w->latest);
  w->next = bppsa_calloc(samples, sizeof *w->next);
  w->any = bppsa_calloc(steps / BITS + 1, sizeof *w->any);
  w->begin = bppsa_calloc(steps + 2, sizeof *w->begin);
  return w->latest != NULL && w->next != NULL && w->any != NULL && w->begin != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY;
}

/* Sorts the samples by length, the longest first, stably. */
static void sort(int64_t samples, const int64_t *lengths, int64_t steps, packing_work *w, int64_t *order) {
  for (int64_t i = 0; i < samples; ++i) {
    w->begin[steps - lengths[i] + 1] += 1;
  }
  for (int64_t k = 1; k <= steps + 1; ++k) {
    w->begin[k] += w->begin[k - 1];
  }
  for (int64_t i = 0; i < samples; ++i) {
    order[w->begin[steps - lengths[i]]++] = i;
  }
}

/* The smallest room of at least `length` that a row has; -1: none. */
static int64_t find_room(const packing_work *w, int64_t length, int64_t steps) {
  uint64_t word = w->any[length / BITS] & (UINT64_MAX << (length % BITS));
  int64_t at = length / BITS;
  while (word == 0 && at < steps / BITS) {
    word = w->any[++at];
  }
  int64_t bit = 0;
  while (word != 0 && (word >> bit & 1) == 0) {
    ++bit;
  }
  return word != 0 ? at * BITS + bit : -1;
}

static void put_row(packing_work *w, int64_t row, int64_t room) {
  w->next[row] = w->latest[room];
  w->latest[room] = row;
  w->any[room / BITS] |= UINT64_C(1) << (room % BITS);
}

static int64_t take_row(packing_work *w, int64_t room) {
  const int64_t row = w->latest[room];
  w->latest[room] = w->next[row];
  if (w->latest[room] < 0) {
    w->any[room / BITS] &= ~(UINT64_C(1) << (room % BITS));
  }
  return row;
}

bppsa_status bppsa_pack_rows(int64_t samples, const int64_t *lengths, int64_t steps, int64_t *row, int64_t *first, int64_t *order,
                             int64_t *rows) {
  BPPSA_REQUIRE(lengths != NULL && row != NULL && first != NULL && order != NULL && rows != NULL);
  packing_work w = {0};
  int64_t count = 0;
  if (samples < 1 || steps < 1 || steps > BPPSA_MAX_SAMPLES) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "packing: %lld samples in rows of %lld steps, expected 1 or more samples, 1 .. %lld steps",
                      (long long)samples, (long long)steps, (long long)BPPSA_MAX_SAMPLES);
  }
  for (int64_t i = 0; i < samples; ++i) {
    if (lengths[i] < 1 || lengths[i] > steps) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "packing: sample %lld has %lld steps, expected 1 .. %lld, the steps of a row",
                        (long long)i, (long long)lengths[i], (long long)steps);
    }
  }
  const bppsa_status status = allocate_work(samples, steps, &w);
  if (status != BPPSA_OK) {
    free_work(&w);
    return status;
  }
  for (int64_t room = 0; room <= steps; ++room) {
    w.latest[room] = -1;
  }
  sort(samples, lengths, steps, &w, order);
  for (int64_t k = 0; k < samples; ++k) {
    const int64_t i = order[k], found = find_room(&w, lengths[i], steps), room = found < 0 ? steps : found;
    row[i] = found < 0 ? count++ : take_row(&w, found);
    first[i] = steps - room;
    put_row(&w, row[i], room - lengths[i]);
  }
  free_work(&w);
  *rows = count;
  return BPPSA_OK;
}

/* ---- the rows as a data set ---- */

typedef struct {
  int64_t sample, first, steps;
} segment;

typedef struct {
  bppsa_dataset base;
  bppsa_dataset_ops ops; /* with the name of the samples' kind */
  bppsa_packing packing;
  bppsa_dataset *samples; /* owned */
  segment *segments;      /* of row 0, of row 1, ..; each in the order of its steps */
  int64_t *begin;         /* [R + 1]: where each row's segments begin */
} packed_dataset;

typedef struct {
  const packed_dataset *self;
  int64_t count;
  const int64_t *indices;
  bppsa_dtype dtype;
  char *x, *targets;
  int64_t *labels;
} batch_rows;

/* Writes rows first .. end - 1 of a batch: zeros, and the samples over them. */
static void fill_rows(const void *context, int32_t worker, int64_t first, int64_t end) {
  const batch_rows *b = context;
  const bppsa_dataset *d = &b->self->base;
  const size_t size = bppsa_dtype_size(b->dtype), x_row = (size_t)d->input * size, y_row = (size_t)d->classes * size;
  (void)worker;
  for (int64_t s = first; s < end; ++s) {
    for (int64_t t = 0; t < d->seq_len; ++t) {
      const int64_t at = t * b->count + s;
      if (b->x != NULL) {
        memset(b->x + (size_t)at * x_row, 0, x_row);
      }
      if (b->targets != NULL) {
        memset(b->targets + (size_t)at * y_row, 0, y_row);
      }
      if (b->labels != NULL) {
        b->labels[at] = 0;
      }
    }
    for (int64_t k = b->self->begin[b->indices[s]]; k < b->self->begin[b->indices[s] + 1]; ++k) {
      const segment *g = &b->self->segments[k];
      const int64_t at = g->first * b->count + s, judged = b->self->packing.ends ? at + (g->steps - 1) * b->count : at;
      const bppsa_dataset_part part = {.sample = g->sample,
                                       .steps = g->steps,
                                       .apart = b->count,
                                       .dtype = b->dtype,
                                       .x = b->x != NULL ? b->x + (size_t)at * x_row : NULL,
                                       .labels = b->labels != NULL ? b->labels + judged : NULL,
                                       .targets = b->targets != NULL ? b->targets + (size_t)judged * y_row : NULL};
      b->self->samples->ops->part(b->self->samples, &part);
    }
  }
}

static void packed_fill(const bppsa_dataset *dataset, int32_t threads, int64_t count, const int64_t *indices, const bppsa_view *x,
                        int64_t *labels) {
  enum { STEP_FLOPS = 8 }; /* a step's value takes as long as this many FLOP of a kernel */
  const batch_rows rows = {.self = (const packed_dataset *)dataset,
                           .count = count,
                           .indices = indices,
                           .dtype = x != NULL ? x->dtype : BPPSA_F32,
                           .x = x != NULL ? x->data : NULL,
                           .labels = labels};
  const double values = (double)dataset->seq_len * (double)count * (double)dataset->input;
  bppsa_parallel_for(threads, count, bppsa_loop_work(STEP_FLOPS * values, 0), fill_rows, &rows);
}

static void packed_targets(const bppsa_dataset *dataset, int64_t count, const int64_t *indices, const bppsa_view *targets) {
  const batch_rows rows = {.self = (const packed_dataset *)dataset,
                           .count = count,
                           .indices = indices,
                           .dtype = targets->dtype,
                           .targets = targets->data};
  fill_rows(&rows, 0, 0, count);
}

static bppsa_status packed_check(const bppsa_dataset *dataset, bppsa_dtype dtype) {
  return bppsa_dataset_check(((const packed_dataset *)dataset)->samples, dtype);
}

static void packed_destroy(bppsa_dataset *dataset) {
  packed_dataset *self = (packed_dataset *)dataset;
  bppsa_dataset_destroy(self->samples);
  bppsa_free(self->segments);
  bppsa_free(self->begin);
  bppsa_free(self);
}

/* Where a packed range of samples goes: its samples from `from` on, which make rows from `rows_before` on. */
typedef struct {
  int64_t from, count, rows_before, rows;
  int64_t *row, *first, *order; /* [count] */
} packed_range;

/* Packs samples of the range; messages number them as the data set does. */
static bppsa_status pack_range(const int64_t *lengths, int64_t steps, packed_range *r) {
  for (int64_t i = r->from; i < r->from + r->count; ++i) {
    if (lengths[i] > steps) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "packing: sample %lld has %lld steps, expected at most %lld, the steps of a row",
                        (long long)i, (long long)lengths[i], (long long)steps);
    }
  }
  r->row = bppsa_calloc(r->count, sizeof *r->row);
  r->first = bppsa_calloc(r->count, sizeof *r->first);
  r->order = bppsa_calloc(r->count, sizeof *r->order);
  if (r->row == NULL || r->first == NULL || r->order == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  return r->count > 0 ? bppsa_pack_rows(r->count, lengths + r->from, steps, r->row, r->first, r->order, &r->rows) : BPPSA_OK;
}

/* Lists the segments of all rows; begin[r] is where the next one of row r goes, and becomes where they begin. */
static bppsa_status list_segments(packed_dataset *self, const int64_t *lengths, const packed_range ranges[2]) {
  const int64_t rows = ranges[0].rows + ranges[1].rows, all = ranges[0].count + ranges[1].count;
  self->segments = bppsa_calloc(all, sizeof *self->segments);
  self->begin = bppsa_calloc(rows + 1, sizeof *self->begin);
  if (self->segments == NULL || self->begin == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int k = 0; k < 2; ++k) {
    for (int64_t i = 0; i < ranges[k].count; ++i) {
      self->begin[ranges[k].rows_before + ranges[k].row[i]] += 1;
    }
  }
  for (int64_t r = 0, before = 0; r <= rows; ++r) {
    const int64_t here = self->begin[r];
    self->begin[r] = before;
    before += here;
  }
  for (int k = 0; k < 2; ++k) {
    for (int64_t j = 0; j < ranges[k].count; ++j) {
      const int64_t i = ranges[k].order[j], sample = ranges[k].from + i;
      self->segments[self->begin[ranges[k].rows_before + ranges[k].row[i]]++] =
          (segment){sample, ranges[k].first[i], lengths[sample]};
    }
  }
  memmove(self->begin + 1, self->begin, (size_t)rows * sizeof *self->begin); /* each is now where the row ends */
  self->begin[0] = 0;
  return BPPSA_OK;
}

/* Writes resets and weights of all rows. Behind the last sample a row begins anew too, so that nothing goes on there. */
static bppsa_status mark_rows(packed_dataset *self) {
  const bppsa_dataset *from = self->samples;
  const int64_t steps = self->base.seq_len, rows = self->base.samples;
  int64_t cells;
  if (!bppsa_mul(rows, steps, &cells)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "packing: %lld rows of %lld steps are too many", (long long)rows, (long long)steps);
  }
  uint8_t *resets = self->base.resets = bppsa_calloc(cells, 1);
  double *weights = self->base.loss_weights = bppsa_calloc(cells, sizeof *weights);
  if (resets == NULL || weights == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t r = 0; r < rows; ++r) {
    int64_t end = 0;
    for (int64_t k = self->begin[r]; k < self->begin[r + 1]; ++k) {
      const segment *g = &self->segments[k];
      const int64_t at = r * steps + g->first, sample = g->sample;
      for (int64_t t = 0; t < g->steps; ++t) {
        const bool judged = !self->packing.ends || t == g->steps - 1;
        const int64_t weight = self->packing.ends ? sample : sample * from->seq_len + t;
        resets[at + t] = t == 0 || (from->resets != NULL && from->resets[sample * from->seq_len + t]);
        weights[at + t] = !judged ? 0 : from->loss_weights != NULL ? from->loss_weights[weight] : 1;
      }
      end = g->first + g->steps;
    }
    if (end < steps) {
      resets[r * steps + end] = 1;
    }
  }
  return BPPSA_OK;
}

static void describe(packed_dataset *self, const packed_range ranges[2]) {
  bppsa_dataset *base = &self->base;
  const bppsa_dataset *from = self->samples;
  bppsa_packing *p = &self->packing;
  const int64_t all = ranges[0].count + ranges[1].count;
  *p = (bppsa_packing){.rows = base->samples, .steps = base->seq_len, .samples = all, .shortest = base->seq_len};
  p->ends = !from->labels_per_step;
  uLong sum = crc32_z(0, NULL, 0);
  for (int64_t k = 0; k < all; ++k) {
    const int64_t steps = self->segments[k].steps;
    p->shortest = steps < p->shortest ? steps : p->shortest;
    p->longest = steps > p->longest ? steps : p->longest;
    p->used += steps;
    sum = crc32_z(sum, (const Bytef *)&self->segments[k], sizeof self->segments[k]);
  }
  sum = crc32_z(sum, (const Bytef *)self->begin, (size_t)(base->samples + 1) * sizeof *self->begin);
  base->identity = from->identity ^ ((uint64_t)sum << 12 | 8);
  base->packing = p;
}

static bppsa_status make_rows(packed_dataset *self, const int64_t *lengths, int64_t steps, packed_range ranges[2]) {
  const bppsa_dataset *from = self->samples;
  BPPSA_TRY(pack_range(lengths, steps, &ranges[0]));
  BPPSA_TRY(pack_range(lengths, steps, &ranges[1]));
  ranges[1].rows_before = ranges[0].rows;
  BPPSA_TRY(list_segments(self, lengths, ranges));
  self->ops = (bppsa_dataset_ops){.name = from->ops->name,
                                  .fill = packed_fill,
                                  .destroy = packed_destroy,
                                  .targets = from->ops->targets != NULL ? packed_targets : NULL,
                                  .check = packed_check};
  self->base.ops = &self->ops;
  self->base.samples = ranges[0].rows + ranges[1].rows;
  self->base.seq_len = steps;
  self->base.input = from->input;
  self->base.held_out = ranges[1].rows;
  self->base.classes = from->classes;
  self->base.objective = from->objective;
  self->base.labels_per_step = true;
  describe(self, ranges);
  return mark_rows(self);
}

/* The lengths of all samples; NULL: out of memory. */
static int64_t *lengths_of(const bppsa_dataset *samples) {
  int64_t *lengths = bppsa_calloc(samples->samples, sizeof *lengths);
  for (int64_t i = 0; lengths != NULL && i < samples->samples; ++i) {
    lengths[i] = samples->lengths != NULL ? samples->lengths[i] : samples->seq_len;
  }
  return lengths;
}

bppsa_status bppsa_dataset_pack(bppsa_dataset *samples, const bppsa_split *split, int64_t steps, bppsa_dataset **rows) {
  BPPSA_REQUIRE(samples != NULL && split != NULL && rows != NULL);
  if (samples->ops->part == NULL || samples->image[0] > 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "packing: %s, expected sequences",
                      samples->packing != NULL ? "rows of samples that are packed already" : "images");
  }
  if (steps < 1 || steps > BPPSA_MAX_SAMPLES) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "packing: rows of %lld steps, expected 1 .. %lld", (long long)steps,
                      (long long)BPPSA_MAX_SAMPLES);
  }
  if (split->train < 1 || split->validation < 0 || split->train > samples->samples - split->validation) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "packing: %lld samples and %lld held out, expected at most %lld, at least one to train on",
                      (long long)split->train, (long long)split->validation, (long long)samples->samples);
  }
  packed_range ranges[2] = {{.from = 0, .count = split->train}, {.from = split->train, .count = split->validation}};
  packed_dataset *made = bppsa_calloc(1, sizeof *made);
  int64_t *lengths = lengths_of(samples);
  bppsa_status status = made != NULL && lengths != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY;
  if (status == BPPSA_OK) {
    made->samples = samples;
    status = make_rows(made, lengths, steps, ranges);
  }
  for (int k = 0; k < 2; ++k) {
    bppsa_free(ranges[k].row);
    bppsa_free(ranges[k].first);
    bppsa_free(ranges[k].order);
  }
  bppsa_free(lengths);
  if (status != BPPSA_OK && made != NULL) {
    bppsa_free(made->base.resets);
    bppsa_free(made->base.loss_weights);
    made->samples = NULL; /* the caller's */
    packed_destroy(&made->base);
  }
  BPPSA_TRY(status);
  *rows = &made->base;
  return BPPSA_OK;
}

void bppsa_dataset_unpack(bppsa_dataset **rows) {
  if (rows == NULL || *rows == NULL || (*rows)->packing == NULL) {
    return;
  }
  packed_dataset *self = (packed_dataset *)*rows;
  *rows = self->samples;
  self->samples = NULL;
  bppsa_dataset_destroy(&self->base);
}

/* ---- in words ---- */

static double full(const bppsa_packing *p) {
  return (double)p->used / ((double)p->rows * (double)p->steps);
}

const char *bppsa_packing_text(const bppsa_packing *p, char *text, size_t size) {
  (void)bppsa_print(text, size,
                    "%" PRId64 " samples of %" PRId64 " .. %" PRId64 " steps in %" PRId64 " row%s of %" PRId64
                    " steps, %.1f %% full",
                    p->samples, p->shortest, p->longest, p->rows, p->rows == 1 ? "" : "s", p->steps, 100 * full(p));
  return text;
}

json_t *bppsa_packing_json(const bppsa_packing *p) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_integer(object, "rows", p->rows);
  ok = ok && bppsa_json_put_integer(object, "steps", p->steps) && bppsa_json_put_integer(object, "samples", p->samples);
  ok = ok && bppsa_json_put_integer(object, "shortest", p->shortest) && bppsa_json_put_integer(object, "longest", p->longest);
  ok = ok && bppsa_json_put_integer(object, "used", p->used) && bppsa_json_put_real(object, "full", full(p));
  return bppsa_json_finish(object, ok);
}
