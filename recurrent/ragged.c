/* Samples of their own lengths, packed. Internal.
 *
 * The samples of a batch are sorted by their lengths, the shortest first. Step t keeps rows of the b_t samples that are still
 * running, and the rows of all steps lie one behind the other. The samples that have ended are the first ones, so the rows of a
 * step continue the last rows of the step in front of it: a stretch of time in which no sample ends is an ordinary batch of b_t
 * samples, whose state lies right in front of its first step. There are no masks, and products run over the Σ b_t rows alone.
 *
 * Arrays of states begin with the b rows of the initial states. A scan takes whole arrays [T][b] instead, in which the elements
 * behind a sample's end are 0; the samples stay sorted. A batch without lengths is one stretch, and both forms are the same.
 */
#include "recurrent/recurrent_internal.h"

#include <string.h>

#include "core/base/alloc.h"

typedef recurrent_stretch stretch;

/* ---- the lengths of a batch ---- */

static bool comes_first(const recurrent_place *a, const recurrent_place *b) {
  return a->length < b->length || (a->length == b->length && a->sample < b->sample);
}

/* Shell's sort, in place. */
static void sort(int64_t count, recurrent_place *place) {
  int64_t gap = 1;
  while (gap < count / 3) {
    gap = 3 * gap + 1;
  }
  for (; gap > 0; gap /= 3) {
    for (int64_t i = gap; i < count; ++i) {
      const recurrent_place moved = place[i];
      int64_t at = i;
      for (; at >= gap && comes_first(&moved, &place[at - gap]); at -= gap) {
        place[at] = place[at - gap];
      }
      place[at] = moved;
    }
  }
}

static void find_stretches(int64_t batch, recurrent_ragged *r) {
  int64_t first = 0;
  r->rows = r->stretches = 0;
  for (int64_t ended = 0; ended < batch; ++ended) {
    const int64_t end = r->place[ended].length;
    if (end > first) {
      const stretch s = {.first = first, .steps = end - first, .samples = batch - ended, .row = r->rows};
      r->stretch[r->stretches++] = s;
      r->rows += s.steps * s.samples;
      first = end;
    }
  }
}

static bppsa_status check_lengths(const recurrent_network *n, const void *lengths) {
  return lengths == NULL || n->config.lengths
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: lengths of samples for a model that was created without them", n->cell->name);
}

bppsa_status bppsa_ragged_take_far(recurrent_network *n, const void *lengths, bool small) {
  BPPSA_TRY(check_lengths(n, lengths));
  n->ragged.active = lengths != NULL;
  n->ragged.lengths = lengths;
  n->ragged.far = true;
  n->ragged.small = small;
  return BPPSA_OK;
}

bppsa_status bppsa_ragged_take(recurrent_network *n, int64_t batch, const int64_t *lengths) {
  const int64_t steps = n->config.seq_len;
  recurrent_ragged *r = &n->ragged;
  bool whole = true;
  BPPSA_TRY(check_lengths(n, lengths));
  for (int64_t b = 0; lengths != NULL && b < batch; ++b) {
    if (lengths[b] < 1 || lengths[b] > steps) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "length %lld of sample %lld of the batch, expected 1 .. %lld", (long long)lengths[b],
                        (long long)b, (long long)steps);
    }
    whole = whole && lengths[b] == steps;
  }
  /* a GPU may record the pass, for batches of other lengths */
  r->active = n->gpu != NULL ? lengths != NULL : !whole;
  r->lengths = lengths;
  for (int64_t b = 0; r->active && r->place != NULL && b < batch; ++b) {
    r->place[b] = (recurrent_place){.length = lengths[b], .sample = b};
  }
  if (r->active && n->gpu == NULL) {
    sort(batch, r->place);
    find_stretches(batch, r);
  }
  return BPPSA_OK;
}

recurrent_stretch bppsa_ragged_stretch(const recurrent_network *n, int64_t index) {
  return bppsa_ragged_packed(n) ? n->ragged.stretch[index] : (stretch){.steps = n->config.seq_len, .samples = n->batch};
}

int64_t bppsa_ragged_length(const recurrent_network *n, int64_t sample) {
  int64_t length = n->config.seq_len;
  for (int64_t place = 0; n->ragged.active && place < n->batch; ++place) {
    length = n->ragged.place[place].sample == sample ? n->ragged.place[place].length : length;
  }
  return length;
}

/* ---- memory ---- */

bppsa_status bppsa_ragged_visit(recurrent_network *n, bppsa_recurrent_visit visit, int64_t *bytes) {
  const bppsa_recurrent_config *c = &n->config;
  recurrent_ragged *r = &n->ragged;
  const int64_t outputs = n->base.classes > bppsa_recurrent_outputs(c) ? n->base.classes : bppsa_recurrent_outputs(c);
  const bool head = bppsa_recurrent_serves(n, RECURRENT_HEAD);
  const struct {
    bool wanted;
    int64_t steps, width;
    void **array;
  } arrays[] = {{true, c->seq_len, c->input, &r->x},
                {bppsa_recurrent_serves(n, RECURRENT_BACKWARD | RECURRENT_HEAD), c->seq_len,
                 outputs > c->input ? outputs : c->input, &r->packed},
                {head, c->seq_len, bppsa_recurrent_outputs(c), &r->states},
                {bppsa_recurrent_serves(n, RECURRENT_FORWARD), 1, c->hidden, &r->ends}};
  if (!c->lengths) {
    return BPPSA_OK;
  }
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; ++i) {
    if (arrays[i].wanted) {
      BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, arrays[i].steps, c->batch, arrays[i].width, arrays[i].array, bytes));
    }
  }
  BPPSA_TRY(visit((void **)&r->stretch, c->batch * (int64_t)sizeof *r->stretch, bytes));
  return visit((void **)&r->place, c->batch * (int64_t)sizeof *r->place, bytes);
}

void bppsa_ragged_free(recurrent_network *n) {
  recurrent_ragged *r = &n->ragged;
  void *const own[] = {r->x, r->packed, r->states, r->ends, r->stretch, r->place};
  for (size_t i = 0; i < sizeof own / sizeof *own; ++i) {
    bppsa_free(own[i]);
  }
}

/* ---- rows ---- */

static size_t bytes_of(const recurrent_network *n, int64_t reals) {
  return (size_t)reals * bppsa_dtype_size(n->config.dtype);
}

static void *at(const recurrent_network *n, const void *base, int64_t reals) {
  return bppsa_recurrent_offset(n, base, reals);
}

/* The number of samples that have ended before a stretch; they have the first places. */
static int64_t ended(const recurrent_network *n, const stretch *s) {
  return n->batch - s->samples;
}

static void copy_rows(const recurrent_network *n, const void *whole, int64_t width, const void *packed, int64_t stride,
                      bool back) {
  for (int64_t k = 0; k < bppsa_ragged_stretches(n); ++k) {
    const stretch s = bppsa_ragged_stretch(n, k);
    for (int64_t i = 0; i < s.steps * s.samples; ++i) {
      const int64_t sample = bppsa_ragged_sample(n, ended(n, &s) + i % s.samples);
      void *outside = at(n, whole, ((s.first + i / s.samples) * n->batch + sample) * width);
      void *inside = at(n, packed, (s.row + i) * stride);
      memcpy(back ? outside : inside, back ? inside : outside, bytes_of(n, width));
    }
  }
}

void bppsa_ragged_pack(const recurrent_network *n, const void *whole, int64_t width, void *packed) {
  copy_rows(n, whole, width, packed, width, false);
}

void bppsa_ragged_pack_rows(const recurrent_network *n, const void *whole, int64_t width, void *packed, int64_t stride) {
  copy_rows(n, whole, width, packed, stride, false);
}

void bppsa_ragged_unpack(const recurrent_network *n, const void *packed, int64_t width, void *whole) {
  memset(whole, 0, bytes_of(n, n->config.seq_len * n->batch * width));
  copy_rows(n, whole, width, packed, width, true);
}

void bppsa_ragged_move_states(const recurrent_network *n, const void *whole, int64_t width, const void *packed, bool back) {
  const int64_t first = n->batch * width;
  for (int64_t place = 0; place < n->batch; ++place) {
    void *outside = at(n, whole, bppsa_ragged_sample(n, place) * width), *inside = at(n, packed, place * width);
    memcpy(back ? outside : inside, back ? inside : outside, bytes_of(n, width));
  }
  if (back) {
    bppsa_ragged_unpack(n, at(n, packed, first), width, at(n, whole, first));
  } else {
    bppsa_ragged_pack(n, at(n, whole, first), width, at(n, packed, first));
  }
}

/* The last packed row of the sample at a place; k: the stretch at whose end it ends. */
static int64_t last_row(const recurrent_network *n, int64_t place, int64_t *k) {
  while (*k + 1 < bppsa_ragged_stretches(n) && place >= ended(n, &n->ragged.stretch[*k + 1])) {
    ++*k;
  }
  const stretch s = bppsa_ragged_stretch(n, *k);
  return s.row + (s.steps - 1) * s.samples + place - ended(n, &s);
}

typedef enum { GATHER, SCATTER, ADD } ends_move; /* to the ends, from them, and added to what the packed rows hold */

static void move_ends(const recurrent_network *n, const void *packed, int64_t stride, int64_t width, const void *ends,
                      int64_t end_stride, ends_move how) {
  int64_t k = 0;
  for (int64_t place = 0; place < n->batch; ++place) {
    void *inside = at(n, packed, last_row(n, place, &k) * stride),
         *outside = at(n, ends, bppsa_ragged_sample(n, place) * end_stride);
    if (how == ADD) {
      bppsa_back_add(n, width, outside, inside);
    } else {
      memcpy(how == SCATTER ? inside : outside, how == SCATTER ? outside : inside, bytes_of(n, width));
    }
  }
}

bppsa_status bppsa_ragged_gather_ends(const recurrent_network *n, const void *packed, int64_t stride, int64_t width, void *ends,
                                      int64_t end_stride) {
  move_ends(n, packed, stride, width, ends, end_stride, GATHER);
  return BPPSA_OK;
}

void bppsa_ragged_scatter_ends(const recurrent_network *n, const void *ends, int64_t end_stride, int64_t stride, int64_t width,
                               void *packed) {
  move_ends(n, packed, stride, width, ends, end_stride, SCATTER);
}

void bppsa_ragged_add_ends(const recurrent_network *n, const void *ends, int64_t end_stride, int64_t stride, int64_t width,
                           void *packed) {
  move_ends(n, packed, stride, width, ends, end_stride, ADD);
}

void bppsa_ragged_shift(const recurrent_network *n, const void *states, int64_t width, void *before) {
  for (int64_t k = 0; k < bppsa_ragged_stretches(n); ++k) {
    const stretch s = bppsa_ragged_stretch(n, k);
    memcpy(at(n, before, s.row * width), at(n, states, (ended(n, &s) + s.row) * width), bytes_of(n, s.steps * s.samples * width));
  }
}

/* Goes from the last step to the first, so that no row is overwritten before it has moved. */
void bppsa_ragged_spread(const recurrent_network *n, int64_t width, void *states) {
  const int64_t steps = n->config.seq_len;
  int64_t end = steps + 1; /* rows of the steps from `end` on are done */
  for (int64_t k = bppsa_ragged_stretches(n) - 1; k >= 0; --k) {
    const stretch s = bppsa_ragged_stretch(n, k);
    const int64_t last = s.first + s.steps;
    memset(at(n, states, (last + 1) * n->batch * width), 0, bytes_of(n, (end - last - 1) * n->batch * width));
    for (int64_t t = s.steps - 1; t >= 0; --t) {
      char *to = at(n, states, (s.first + t + 1) * n->batch * width);
      memmove(to + bytes_of(n, ended(n, &s) * width), at(n, states, (n->batch + s.row + t * s.samples) * width),
              bytes_of(n, s.samples * width));
      memset(to, 0, bytes_of(n, ended(n, &s) * width));
    }
    end = s.first + 1;
  }
}

void bppsa_ragged_gather(const recurrent_network *n, int64_t width, void *states) {
  for (int64_t k = 0; k < bppsa_ragged_stretches(n); ++k) {
    const stretch s = bppsa_ragged_stretch(n, k);
    for (int64_t t = 0; t < s.steps; ++t) {
      memmove(at(n, states, (n->batch + s.row + t * s.samples) * width),
              at(n, states, ((s.first + t + 1) * n->batch + ended(n, &s)) * width), bytes_of(n, s.samples * width));
    }
  }
}

void bppsa_ragged_clear(const recurrent_network *n, int64_t width, void *array) {
  int64_t last = 0;
  for (int64_t k = 0; k < bppsa_ragged_stretches(n); ++k) {
    const stretch s = bppsa_ragged_stretch(n, k);
    last = s.first + s.steps;
    for (int64_t t = s.first; t < last; ++t) {
      memset(at(n, array, t * n->batch * width), 0, bytes_of(n, ended(n, &s) * width));
    }
  }
  memset(at(n, array, last * n->batch * width), 0, bytes_of(n, (n->config.seq_len - last) * n->batch * width));
}

/* Finds the stretch that contains a row, or else a step, from 0. */
static stretch stretch_of(const recurrent_network *n, bool row, int64_t at) {
  int64_t low = 0, high = bppsa_ragged_stretches(n); /* it is one of low .. high - 1 */
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    const stretch s = bppsa_ragged_stretch(n, middle);
    *(at >= (row ? s.row : s.first) ? &low : &high) = middle;
  }
  return bppsa_ragged_stretch(n, low);
}

int64_t bppsa_ragged_mirror(const recurrent_network *n, int64_t row) {
  const stretch s = stretch_of(n, true, row);
  const int64_t place = ended(n, &s) + (row - s.row) % s.samples, step = s.first + (row - s.row) / s.samples;
  const int64_t other = (n->ragged.active ? n->ragged.place[place].length : n->config.seq_len) - 1 - step;
  const stretch to = stretch_of(n, false, other);
  return to.row + (other - to.first) * to.samples + place - ended(n, &to);
}

void bppsa_ragged_find(const recurrent_network *n, int64_t row, int64_t *step, int64_t *sample) {
  const stretch s = stretch_of(n, true, row);
  *step = s.first + 1 + (row - s.row) / s.samples;
  *sample = bppsa_ragged_sample(n, ended(n, &s) + (row - s.row) % s.samples);
}
