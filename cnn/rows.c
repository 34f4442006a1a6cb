#include "cnn/rows.h"

#include <string.h>

#include "cnn/blocks.h"
#include "core/base/alloc.h"

const int64_t *bppsa_rows_shape(const bppsa_cnn_rows *rows, int64_t place) {
  const int64_t tensor = rows->live.tensors[place];
  return tensor == 0 ? rows->network->in : rows->network->layers[tensor - 1].out;
}

static int64_t words_of(int64_t channels) {
  return (channels + 63) / 64;
}

/* ---- what layers do ---- */

/* Has the layer all positions of its input in one, which it multiplies by a weight each? */
static bool is_linear(const bppsa_op *op) {
  return op->kind == BPPSA_OPERATOR_LINEAR;
}

/* The positions of an axis that output X reads: from + step · tap for the taps first .. last. */
typedef struct {
  int64_t from, step, first, last;
} window;

static window window_of(const bppsa_cnn_layer *layer, int axis, const int64_t *in, int64_t X) {
  const bppsa_op *op = &layer->op;
  window w = {.from = 0, .step = 1};
  if (layer->node != BPPSA_CNN_OPERATOR) { /* mul: itself, or the only value, which is repeated */
    w.from = in[axis + 1] == layer->out[axis + 1] ? X : 0;
    return w;
  }
  if (is_linear(op)) {
    w.last = in[axis + 1] - 1;
    return w;
  }
  w.from = bppsa_op_window(op, axis, X);
  w.step = op->dilation[axis];
  bppsa_op_taps(op, axis, X, &w.first, &w.last);
  return w;
}

/* Counts the outputs of each position in ptr[x + 1], or lists them; then ptr[x] moves on to where the next position begins. */
static void visit_axis(const bppsa_cnn_layer *layer, int axis, const int64_t *in, bool lists, bppsa_rows_axis *made) {
  const int64_t outputs = is_linear(&layer->op) ? 1 : layer->out[axis + 1];
  for (int64_t X = 0; X < outputs; ++X) {
    const window w = window_of(layer, axis, in, X);
    for (int64_t tap = w.first; tap <= w.last; ++tap) {
      int64_t *at = &made->ptr[w.from + w.step * tap + !lists];
      if (lists) {
        made->output[*at] = (int32_t)X;
        made->tap[*at] = (int32_t)tap;
      }
      ++*at;
    }
  }
}

static bppsa_status make_axis(const bppsa_cnn_layer *layer, int axis, const int64_t *in, bppsa_rows_axis *made) {
  const int64_t extent = in[axis + 1];
  made->ptr = bppsa_calloc(extent + 1, sizeof *made->ptr);
  if (made->ptr == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  visit_axis(layer, axis, in, false, made);
  for (int64_t x = 0; x < extent; ++x) {
    made->ptr[x + 1] += made->ptr[x];
  }
  made->output = bppsa_calloc(made->ptr[extent], sizeof *made->output);
  made->tap = bppsa_calloc(made->ptr[extent], sizeof *made->tap);
  if (made->output == NULL || made->tap == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  visit_axis(layer, axis, in, true, made);
  memmove(made->ptr + 1, made->ptr, (size_t)extent * sizeof *made->ptr);
  made->ptr[0] = 0;
  return BPPSA_OK;
}

static int64_t kept_words(const bppsa_rows_reader *r, const int64_t *in, int64_t taps) {
  return taps * in[0] * r->words;
}

static bppsa_status make_kept(const uint8_t *mask, int64_t taps, bppsa_rows_reader *r) {
  const int64_t groups = r->in_channels / r->in_group;
  r->kept = bppsa_calloc(taps * r->in_channels * r->words, sizeof *r->kept);
  if (r->kept == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t o = 0; o < groups * r->out_group; ++o) {
    const int64_t group = o / r->out_group, start = group * r->out_group / 64;
    for (int64_t c = 0; c < r->in_group; ++c) {
      for (int64_t tap = 0; tap < taps; ++tap) {
        uint64_t *row = r->kept + (tap * r->in_channels + group * r->in_group + c) * r->words;
        row[o / 64 - start] |= (uint64_t)(mask[(o * r->in_group + c) * taps + tap] != 0) << (o % 64);
      }
    }
  }
  return BPPSA_OK;
}

/* Fills what a convolution or a linear operator has besides its axes. */
static void describe_weights(const bppsa_cnn_layer *layer, const int64_t *in, bppsa_rows_reader *r) {
  const int64_t groups = is_linear(&layer->op) ? 1 : layer->op.groups;
  r->in_channels = in[0];
  r->in_group = in[0] / groups;
  r->out_group = layer->out[0] / groups;
  r->taps_across = is_linear(&layer->op) ? in[2] : layer->op.kernel[1];
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t words = ((g + 1) * r->out_group - 1) / 64 - g * r->out_group / 64 + 1;
    r->words = words > r->words ? words : r->words;
  }
}

static int64_t taps_of(const bppsa_cnn_layer *layer, const int64_t *in) {
  return is_linear(&layer->op) ? in[1] * in[2] : layer->op.kernel[0] * layer->op.kernel[1];
}

static bool same_shape(const int64_t a[3], const int64_t b[3]) {
  return memcmp(a, b, 3 * sizeof *a) == 0;
}

/* Is input k of a mul read at the same channels? */
static bppsa_rows_kind kind_of_factor(const int64_t *in, const int64_t *out) {
  return same_shape(in, out) ? BPPSA_ROWS_POINT : in[0] == out[0] ? BPPSA_ROWS_WINDOWS : BPPSA_ROWS_BLOCK;
}

static bppsa_rows_kind kind_of(const bppsa_cnn_layer *layer, const int64_t *in) {
  const bppsa_op *op = &layer->op;
  if (layer->node == BPPSA_CNN_OPERATOR) {
    return bppsa_op_is_identity(op)       ? same_shape(in, layer->out) ? BPPSA_ROWS_SAME : BPPSA_ROWS_MOVED
           : bppsa_cnn_has_weights(layer) ? BPPSA_ROWS_WEIGHTS
           : bppsa_op_is_pool(op)         ? BPPSA_ROWS_WINDOWS
                                          : BPPSA_ROWS_POINT;
  }
  if (layer->node == BPPSA_CNN_MUL) {
    return kind_of_factor(in, layer->out);
  }
  return bppsa_cnn_has_blocks(layer)                                       ? BPPSA_ROWS_BLOCK
         : layer->node == BPPSA_CNN_PERMUTE                                ? BPPSA_ROWS_MOVED
         : layer->node == BPPSA_CNN_RESHAPE && !same_shape(in, layer->out) ? BPPSA_ROWS_MOVED
                                                                           : BPPSA_ROWS_SAME;
}

static bppsa_status make_reader(const bppsa_cnn_network *network, int64_t i, int64_t k, const uint8_t *mask,
                                bppsa_rows_reader *r) {
  const bppsa_cnn_layer *layer = &network->layers[i];
  const int64_t *in = bppsa_cnn_input_shape(network, i, k), plane = in[1] * in[2];
  *r = (bppsa_rows_reader){.kind = kind_of(layer, in), .layer = i, .input = k, .strides = {plane, in[2], 1}};
  if (layer->node == BPPSA_CNN_PERMUTE) {
    bppsa_cnn_permuted(layer, r->strides);
  }
  const bppsa_cnn_part part = bppsa_cnn_part_of(network, i, k);
  r->first = part.from / plane;
  r->count = part.count / plane;
  r->shift = part.to / plane - r->first;
  if (r->kind == BPPSA_ROWS_WEIGHTS) {
    describe_weights(layer, in, r);
    BPPSA_TRY(mask != NULL ? make_kept(mask, taps_of(layer, in), r) : BPPSA_OK);
  }
  const bool windows = r->kind == BPPSA_ROWS_WEIGHTS || r->kind == BPPSA_ROWS_WINDOWS;
  for (int axis = 0; windows && axis < 2; ++axis) {
    BPPSA_TRY(make_axis(layer, axis, in, &r->axes[axis]));
  }
  return BPPSA_OK;
}

/* ---- creation ---- */

/* Places the tensors of each live set in the arrays of a set. */
static bppsa_status place_tensors(bppsa_cnn_rows *rows) {
  const bppsa_cnn_live *live = &rows->live;
  const int64_t places = live->ptr[live->elements + 1];
  int64_t **const arrays[] = {&rows->words, &rows->word_base, &rows->position_base, &rows->stays};
  for (size_t k = 0; k < sizeof arrays / sizeof *arrays; ++k) {
    *arrays[k] = bppsa_calloc(places + 1, sizeof(int64_t));
    BPPSA_TRY(*arrays[k] == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK);
  }
  for (int64_t t = 0; t <= live->elements; ++t) {
    int64_t words = 0, positions = 0, next = t < live->elements ? live->ptr[t + 1] : 0;
    for (int64_t at = live->ptr[t]; at < live->ptr[t + 1]; ++at) {
      const int64_t *shape = bppsa_rows_shape(rows, at), plane = shape[1] * shape[2];
      rows->words[at] = words_of(shape[0]);
      rows->word_base[at] = words;
      rows->position_base[at] = positions;
      words += plane * rows->words[at];
      positions += plane;
      while (t < live->elements && next < live->ptr[t + 2] && live->tensors[next] < live->tensors[at]) {
        ++next;
      }
      rows->stays[at] = t < live->elements && next < live->ptr[t + 2] && live->tensors[next] == live->tensors[at] ? next : -1;
    }
    rows->largest = words > rows->set_words ? t : rows->largest;
    rows->set_words = words > rows->set_words ? words : rows->set_words;
    rows->set_positions = positions > rows->set_positions ? positions : rows->set_positions;
  }
  return BPPSA_OK;
}

/* Bytes of readers, of the bits of kept weights, and of buffers for a row. */
static double bytes_of(const bppsa_cnn_rows *rows, const uint8_t *const *masks) {
  const bppsa_cnn_network *network = rows->network;
  double bytes = 0;
  for (int64_t i = 0; i + 1 < network->count; ++i) {
    const bppsa_cnn_layer *layer = &network->layers[i];
    bytes += (double)(bppsa_cnn_input_count(network, i) * (int64_t)sizeof(bppsa_rows_reader));
    if (masks != NULL && masks[i] != NULL && bppsa_cnn_has_weights(layer)) {
      bppsa_rows_reader r = {.kind = BPPSA_ROWS_WEIGHTS};
      const int64_t *in = bppsa_cnn_input_shape(network, i, 0);
      describe_weights(layer, in, &r);
      bytes += 8 * (double)kept_words(&r, in, taps_of(layer, in));
    }
  }
  return bytes + 4 * (double)bppsa_rows_set_bytes(rows);
}

static bppsa_status make_buffers(bppsa_cnn_rows *rows) {
  int64_t columns = 1, channels = 1;
  for (int64_t i = 0; i < rows->network->count; ++i) {
    const bppsa_cnn_layer *layer = &rows->network->layers[i];
    const int64_t size = bppsa_cnn_size(rows->network, i + 1);
    columns = bppsa_cnn_has_blocks(layer) && size > columns ? size : columns;
    channels = layer->op.in[0] > channels ? layer->op.in[0] : channels;
    channels = layer->out[0] > channels ? layer->out[0] : channels;
  }
  rows->columns = bppsa_calloc(columns, sizeof *rows->columns);
  rows->channels = bppsa_calloc(channels, sizeof *rows->channels);
  return rows->columns == NULL || rows->channels == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
}

static bppsa_status make_readers(const uint8_t *const *masks, bppsa_cnn_rows *rows) {
  const bppsa_cnn_network *network = rows->network;
  int64_t count = 0;
  rows->reader_ptr = bppsa_calloc(network->count + 1, sizeof *rows->reader_ptr);
  if (rows->reader_ptr == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < network->count; ++i) {
    rows->reader_ptr[i + 1] = rows->reader_ptr[i] + (i + 1 < network->count ? bppsa_cnn_input_count(network, i) : 0);
  }
  rows->readers = bppsa_calloc(rows->reader_ptr[network->count], sizeof *rows->readers);
  if (rows->readers == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  rows->reader_count = rows->reader_ptr[network->count];
  for (int64_t i = 0; i + 1 < network->count; ++i) {
    for (int64_t k = 0; k < bppsa_cnn_input_count(network, i); ++k) {
      BPPSA_TRY(make_reader(network, i, k, masks != NULL ? masks[i] : NULL, &rows->readers[count++]));
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_cnn_rows_create(const bppsa_cnn_network *network, const uint8_t *const *masks, bool input, int64_t limit,
                                   bppsa_cnn_rows *rows) {
  bppsa_cnn_rows made = {.network = network};
  bppsa_status status = bppsa_cnn_live_create(network, input, &made.live);
  status = status == BPPSA_OK ? place_tensors(&made) : status;
  const double bytes = status == BPPSA_OK ? bytes_of(&made, masks) : 0;
  if (limit > 0 && bytes > (double)limit) {
    status =
        bppsa_fail(BPPSA_ERR_ARGUMENT,
                   "counting the rows of the Jacobians needs %.0f bytes, %.0f of them for sets of the values in front of layer "
                   "'%s', the memory limit is %lld",
                   bytes, 4 * (double)bppsa_rows_set_bytes(&made), network->layers[made.largest].name, (long long)limit);
  }
  made.bytes = (int64_t)bytes;
  status = status == BPPSA_OK ? make_buffers(&made) : status;
  status = status == BPPSA_OK ? make_readers(masks, &made) : status;
  if (status != BPPSA_OK) {
    bppsa_cnn_rows_free(&made);
    return status;
  }
  *rows = made;
  return BPPSA_OK;
}

void bppsa_cnn_rows_free(bppsa_cnn_rows *rows) {
  for (int64_t i = 0; i < rows->reader_count; ++i) {
    for (int axis = 0; axis < 2; ++axis) {
      bppsa_free(rows->readers[i].axes[axis].ptr);
      bppsa_free(rows->readers[i].axes[axis].output);
      bppsa_free(rows->readers[i].axes[axis].tap);
    }
    bppsa_free(rows->readers[i].kept);
  }
  bppsa_free(rows->readers);
  bppsa_free(rows->reader_ptr);
  bppsa_free(rows->words);
  bppsa_free(rows->word_base);
  bppsa_free(rows->position_base);
  bppsa_free(rows->stays);
  bppsa_free(rows->columns);
  bppsa_free(rows->channels);
  bppsa_cnn_live_free(&rows->live);
  *rows = (bppsa_cnn_rows){.network = NULL};
}

/* ---- sets ---- */

int64_t bppsa_rows_set_bytes(const bppsa_cnn_rows *rows) {
  return 3 * 8 * rows->set_words + (int64_t)(sizeof(bppsa_rows_spot) + sizeof(bool)) * rows->set_positions;
}

bppsa_status bppsa_rows_set_create(const bppsa_cnn_rows *rows, bppsa_rows_set *set) {
  const int64_t words = rows->set_words + 1; /* reach_kept may write zeros to one word behind a position */
  *set = (bppsa_rows_set){.entries = bppsa_calloc(words, sizeof *set->entries),
                          .once = bppsa_calloc(words, sizeof *set->once),
                          .twice = bppsa_calloc(words, sizeof *set->twice),
                          .touched = bppsa_calloc(rows->set_positions, sizeof *set->touched),
                          .spots = bppsa_calloc(rows->set_positions, sizeof *set->spots)};
  const bool got = set->entries != NULL && set->once != NULL && set->twice != NULL && set->touched != NULL && set->spots != NULL;
  return got ? BPPSA_OK : BPPSA_ERR_MEMORY; /* the caller frees it in any case */
}

void bppsa_rows_set_free(bppsa_rows_set *set) {
  bppsa_free(set->entries);
  bppsa_free(set->once);
  bppsa_free(set->twice);
  bppsa_free(set->touched);
  bppsa_free(set->spots);
  *set = (bppsa_rows_set){.count = 0};
}

/* Notes that a position has bits. Returns its first word. */
static int64_t touch(const bppsa_cnn_rows *rows, bppsa_rows_set *set, int64_t place, int64_t position) {
  const bppsa_rows_spot spot = {(int32_t)place, (int32_t)position};
  bool *touched = &set->touched[rows->position_base[place] + position];
  if (!*touched) {
    *touched = true;
    set->spots[set->count++] = spot;
  }
  return bppsa_rows_word(rows, spot);
}

void bppsa_rows_set_clear(const bppsa_cnn_rows *rows, bppsa_rows_set *set) {
  for (int64_t i = 0; i < set->count; ++i) {
    const bppsa_rows_spot spot = set->spots[i];
    const int64_t word = bppsa_rows_word(rows, spot);
    const size_t bytes = (size_t)rows->words[spot.place] * sizeof(uint64_t);
    memset(set->entries + word, 0, bytes);
    memset(set->once + word, 0, bytes);
    set->touched[rows->position_base[spot.place] + spot.position] = false;
  }
  set->count = 0;
}

void bppsa_rows_begin(const bppsa_cnn_rows *rows, bppsa_rows_spot spot, int64_t channel, bppsa_rows_set *set) {
  set->once[touch(rows, set, spot.place, spot.position) + channel / 64] = (uint64_t)1 << (channel % 64);
}

int64_t bppsa_rows_entries(const bppsa_cnn_rows *rows, const bppsa_rows_set *set, int64_t *ones) {
  int64_t entries = 0;
  *ones = 0;
  for (int64_t i = 0; i < set->count; ++i) {
    const int64_t word = bppsa_rows_word(rows, set->spots[i]);
    for (int64_t w = word; w < word + rows->words[set->spots[i].place]; ++w) {
      entries += __builtin_popcountll(set->entries[w]);
      *ones += __builtin_popcountll(set->once[w]);
    }
  }
  return entries;
}

/* ---- a step ---- */

/* A position of a set on its way to the next set. */
typedef struct {
  bppsa_cnn_rows *rows;
  const bppsa_rows_set *from;
  bppsa_rows_set *to;
  bppsa_rows_spot spot;
  int64_t word, words;   /* of the position */
  int64_t output, plane; /* place of the layer's output, and its positions */
} carrier;

static void put_one(bppsa_rows_set *to, int64_t word, uint64_t bits) {
  to->twice[word] |= to->once[word] & bits;
  to->once[word] |= bits;
}

/* The tensor lives on. */
static void carry_same(const carrier *c, int64_t place) {
  const int64_t word = touch(c->rows, c->to, place, c->spot.position);
  for (int64_t w = 0; w < c->words; ++w) {
    c->to->entries[word + w] |= c->from->entries[c->word + w];
    put_one(c->to, word + w, c->from->once[c->word + w]);
  }
}

/* Lists the channels that have a bit in both, or in `bits` alone. */
static int64_t list_channels(const carrier *c, const uint64_t *bits, const uint64_t *more) {
  int64_t count = 0;
  for (int64_t w = 0; w < c->words; ++w) {
    for (uint64_t left = bits[c->word + w] | (more != NULL ? more[c->word + w] : 0); left != 0; left &= left - 1) {
      c->rows->channels[count++] = (int32_t)(64 * w + __builtin_ctzll(left));
    }
  }
  return count;
}

/* Where a value goes: the first word of its new position, and the channel there. */
static int64_t destination(const carrier *c, const bppsa_rows_reader *r, int64_t channel, int64_t *to) {
  const int64_t *in = bppsa_rows_shape(c->rows, c->spot.place), *out = c->rows->network->layers[r->layer].out;
  if (r->kind == BPPSA_ROWS_SAME) {
    *to = channel + r->shift;
    return touch(c->rows, c->to, c->output, c->spot.position);
  }
  const int64_t y = c->spot.position / in[2], x = c->spot.position % in[2], plane = out[1] * out[2];
  const int64_t flat = channel * r->strides[0] + y * r->strides[1] + x * r->strides[2];
  *to = flat / plane;
  return touch(c->rows, c->to, c->output, flat % plane);
}

/* Ones: a value goes to one place of the output, if to any. */
static void carry_ones(const carrier *c, const bppsa_rows_reader *r) {
  if (r->kind == BPPSA_ROWS_SAME && r->shift == 0 && r->first == 0 && r->count >= bppsa_rows_shape(c->rows, c->spot.place)[0]) {
    carry_same(c, c->output);
    return;
  }
  for (int ones = 0; ones < 2; ++ones) {
    const int64_t count = list_channels(c, ones ? c->from->once : c->from->entries, NULL);
    for (int64_t k = 0; k < count; ++k) {
      const int64_t channel = c->rows->channels[k];
      int64_t at;
      if (r->kind == BPPSA_ROWS_SAME && (channel < r->first || channel >= r->first + r->count)) {
        continue;
      }
      const int64_t word = destination(c, r, channel, &at) + at / 64;
      const uint64_t bit = (uint64_t)1 << (at % 64);
      if (ones) {
        put_one(c->to, word, bit);
      } else {
        c->to->entries[word] |= bit;
      }
    }
  }
}

/* Sets the bits of all output channels of the groups that have one of these channels. */
static void reach_groups(const bppsa_rows_reader *r, const int32_t *channels, int64_t count, uint64_t *to) {
  int64_t last = -1;
  for (int64_t k = 0; k < count; ++k) {
    const int64_t group = channels[k] / r->in_group, first = group * r->out_group, end = first + r->out_group;
    for (int64_t w = first / 64; group != last && 64 * w < end; ++w) {
      const uint64_t above = 64 * w < first ? ~(uint64_t)0 << (first % 64) : ~(uint64_t)0;
      const uint64_t below = 64 * (w + 1) > end ? ~(uint64_t)0 >> (64 - end % 64) : ~(uint64_t)0;
      to[w] |= above & below;
    }
    last = group;
  }
}

static void reach_kept(const bppsa_rows_reader *r, int64_t tap, const int32_t *channels, int64_t count, uint64_t *to) {
  for (int64_t k = 0; k < count; ++k) {
    const uint64_t *row = r->kept + (tap * r->in_channels + channels[k]) * r->words;
    uint64_t *target = to + channels[k] / r->in_group * r->out_group / 64;
    for (int64_t w = 0; w < r->words; ++w) {
      target[w] |= row[w]; /* where a group has fewer words, zeros are behind them */
    }
  }
}

/* Entries at the positions of windows: of the same channels, or of those that kept weights lead to. */
static void carry_windows(const carrier *c, const bppsa_rows_reader *r) {
  const int64_t *in = bppsa_rows_shape(c->rows, c->spot.place), across = c->rows->network->layers[r->layer].out[2];
  const int64_t y = c->spot.position / in[2], x = c->spot.position % in[2];
  const bool weights = r->kind == BPPSA_ROWS_WEIGHTS;
  const int64_t count = weights ? list_channels(c, c->from->entries, c->from->once) : 0;
  const double work = (double)(!weights ? c->words : r->kept != NULL ? count * r->words : count + c->rows->words[c->output]);
  for (int64_t i = r->axes[0].ptr[y]; i < r->axes[0].ptr[y + 1]; ++i) {
    for (int64_t j = r->axes[1].ptr[x]; j < r->axes[1].ptr[x + 1]; ++j) {
      const int64_t position = r->axes[0].output[i] * across + r->axes[1].output[j];
      uint64_t *to = c->to->entries + touch(c->rows, c->to, c->output, position);
      c->rows->work += work;
      if (!weights) {
        for (int64_t w = 0; w < c->words; ++w) {
          to[w] |= c->from->entries[c->word + w] | c->from->once[c->word + w];
        }
      } else if (r->kept != NULL) {
        reach_kept(r, (int64_t)r->axes[0].tap[i] * r->taps_across + r->axes[1].tap[j], c->rows->channels, count, to);
      } else {
        reach_groups(r, c->rows->channels, count, to);
      }
    }
  }
}

static void carry_point(const carrier *c) {
  const int64_t word = touch(c->rows, c->to, c->output, c->spot.position);
  for (int64_t w = 0; w < c->words; ++w) {
    c->to->entries[word + w] |= c->from->entries[c->word + w] | c->from->once[c->word + w];
  }
}

static void carry_block(const carrier *c, const bppsa_rows_reader *r) {
  const int64_t *in = bppsa_rows_shape(c->rows, c->spot.place);
  const int64_t count = list_channels(c, c->from->entries, c->from->once);
  for (int64_t k = 0; k < count; ++k) {
    const int64_t row = c->rows->channels[k] * in[1] * in[2] + c->spot.position;
    const int64_t columns = bppsa_cnn_block_row(c->rows->network, r->layer, r->input, row, 0, c->rows->columns);
    c->rows->work += (double)columns;
    for (int64_t p = 0; p < columns; ++p) {
      const int64_t channel = c->rows->columns[p] / c->plane, position = c->rows->columns[p] % c->plane;
      c->to->entries[touch(c->rows, c->to, c->output, position) + channel / 64] |= (uint64_t)1 << (channel % 64);
    }
  }
}

static void carry(const carrier *c, const bppsa_rows_reader *r) {
  switch (r->kind) {
  case BPPSA_ROWS_SAME:
  case BPPSA_ROWS_MOVED:
    carry_ones(c, r);
    break;
  case BPPSA_ROWS_POINT:
    carry_point(c);
    break;
  case BPPSA_ROWS_WINDOWS:
  case BPPSA_ROWS_WEIGHTS:
    carry_windows(c, r);
    break;
  case BPPSA_ROWS_BLOCK:
    carry_block(c, r);
    break;
  }
}

/* What several ones reach is an entry. */
static void settle(const bppsa_cnn_rows *rows, bppsa_rows_set *set) {
  for (int64_t i = 0; i < set->count; ++i) {
    const int64_t word = bppsa_rows_word(rows, set->spots[i]);
    for (int64_t w = word; w < word + rows->words[set->spots[i].place]; ++w) {
      set->entries[w] |= set->twice[w];
      set->once[w] &= ~set->twice[w];
      set->twice[w] = 0;
    }
  }
}

void bppsa_rows_step(bppsa_cnn_rows *rows, int64_t t, bppsa_rows_set *from, bppsa_rows_set *to) {
  const int64_t output = bppsa_rows_output(rows, t - 1), *out = rows->network->layers[t - 1].out;
  for (int64_t i = 0; i < from->count; ++i) {
    const bppsa_rows_spot spot = from->spots[i];
    const carrier c = {.rows = rows,
                       .from = from,
                       .to = to,
                       .spot = spot,
                       .word = bppsa_rows_word(rows, spot),
                       .words = rows->words[spot.place],
                       .output = output,
                       .plane = out[1] * out[2]};
    rows->work += 2 * (double)c.words;
    if (rows->stays[spot.place] >= 0) {
      carry_same(&c, rows->stays[spot.place]);
    }
    for (int64_t k = rows->reader_ptr[t - 1]; k < rows->reader_ptr[t]; ++k) {
      const bool reads =
          bppsa_cnn_input_of(rows->network, t - 1, k - rows->reader_ptr[t - 1]) + 1 == rows->live.tensors[spot.place];
      if (reads && output >= 0) {
        carry(&c, &rows->readers[k]);
      }
    }
  }
  settle(rows, to);
  bppsa_rows_set_clear(rows, from);
}
