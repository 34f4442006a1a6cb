/* Samples that begin anew within a batch (bppsa_spans.resets): checks, and what a CPU does. Internal.
 *
 * In front of a step that resets a sample its state is 0, or the reset state (reset_state.c). The arrays keep the states that the
 * steps have made, since these are outputs. The rows of samples that begin anew hold that state while the step is computed, and get
 * their own back; a backward pass over a tape, which is the caller's memory, reads copies of the states around the step instead.
 * Backward such a sample's gradient in front of the step is u alone. A scan takes the Jacobians of such steps as 0.
 *
 * The masks are bytes [T][b] for each direction, in the order in which it walks, and of places (ragged.c). A cut between the steps
 * t - 1 and t of time is in front of step t for the forward direction, and in front of step t - 1 for the reverse one. A reset in
 * front of the first step is none of a pass: begin_layer writes the state there, and its gradient is 0. A part of a sequence
 * is another matter: its first step is one of many. */
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/device_buffer.h"
#include "recurrent/recurrent_internal.h"

static size_t bytes_of(const recurrent_network *n, int64_t reals) {
  return (size_t)reals * (n->config.dtype == BPPSA_F64 ? sizeof(double) : sizeof(float));
}

/* ---- the resets of a batch ---- */

static bppsa_status check_values(const bppsa_view *resets) {
  const uint8_t *mask = resets->data;
  const int64_t count = bppsa_view_count(resets), batch = resets->shape[1];
  uint8_t all = 0;
  for (int64_t i = 0; i < count; ++i) { /* a loop without branches looks at many at once */
    all |= mask[i];
  }
  for (int64_t i = 0; all > 1 && i < count; ++i) {
    if (mask[i] > 1) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "resets: %d at step %lld of sample %lld of the batch, expected 0 or 1", (int)mask[i],
                        (long long)(i / batch), (long long)(i % batch));
    }
  }
  return BPPSA_OK;
}

/* The same of resets in the memory of a GPU, which are copied for it. */
static bppsa_status check_far_values(const recurrent_network *n, const bppsa_view *resets) {
  bppsa_buffer copy;
  BPPSA_TRY(bppsa_buffer_fetch(n->base.device, resets, &copy));
  const bppsa_status status = check_values(&copy.view);
  bppsa_buffer_free(&copy);
  return status;
}

bppsa_status bppsa_resets_check(const recurrent_network *n, int64_t batch, const bppsa_view *resets) {
  const int64_t shape[] = {bppsa_resets_steps(n), batch};
  char found[BPPSA_SHAPE_TEXT], expected[BPPSA_SHAPE_TEXT], guess[BPPSA_SHAPE_TEXT];
  if (resets == NULL) {
    return BPPSA_OK;
  }
  if (!n->config.resets) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: resets of samples for a model that was created without them", n->cell->name);
  }
  if ((resets->dtype != BPPSA_BOOL && resets->dtype != BPPSA_U8) || resets->ndim != 2 ||
      memcmp(resets->shape, shape, sizeof shape) != 0) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "resets: %s %s, expected bool or u8 %s%s", bppsa_dtype_name(resets->dtype),
                      bppsa_shape_text(resets->ndim, resets->shape, found, sizeof found),
                      bppsa_shape_text(2, shape, expected, sizeof expected), bppsa_view_guess("[T, B]", resets, 2, shape, guess));
  }
  if (!bppsa_view_contiguous(resets)) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "resets: not contiguous, expected row-major without gaps");
  }
  if (resets->device != BPPSA_CPU && (n->gpu == NULL || n->config.part.seq_len > 0)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "resets: in the memory of a GPU, expected that of the host");
  }
  BPPSA_TRY(bppsa_view_check_data("resets", resets));
  return resets->device == BPPSA_CPU ? check_values(resets) : resets->dtype == BPPSA_U8 ? check_far_values(n, resets) : BPPSA_OK;
}

static void mark(recurrent_resets *r, const recurrent_network *n, int64_t side, int64_t batch, int64_t step, int64_t place) {
  r->mask[(side * bppsa_resets_steps(n) + step) * batch + place] = 1;
  r->any[side * bppsa_resets_steps(n) + step] = 1;
  r->active = true;
}

void bppsa_resets_take(recurrent_network *n, int64_t batch, const bppsa_view *resets) {
  const int64_t steps = bppsa_resets_steps(n), sides = bppsa_recurrent_directions(&n->config);
  const uint8_t *given = resets != NULL ? resets->data : NULL;
  recurrent_resets *r = &n->resets;
  r->active = n->gpu != NULL && given != NULL; /* a GPU may record the pass, for batches of other resets */
  r->given = given;
  r->on_gpu = given != NULL && resets->device != BPPSA_CPU;
  if (given == NULL || (n->gpu != NULL ? n->config.part.seq_len == 0 : memchr(given, 1, (size_t)(steps * batch)) == NULL)) {
    return;
  }
  if (sides == 1 && !n->ragged.active) { /* places are samples */
    memcpy(r->mask, given, (size_t)(steps * batch));
    for (int64_t t = 0; t < steps; ++t) {
      r->any[t] = memchr(given + t * batch, 1, (size_t)batch) != NULL;
    }
    r->active = true;
    return;
  }
  memset(r->mask, 0, (size_t)(sides * steps * batch));
  memset(r->any, 0, (size_t)(sides * steps));
  for (int64_t place = 0; place < batch; ++place) {
    const int64_t sample = bppsa_ragged_sample(n, place), length = n->ragged.active ? n->ragged.place[place].length : steps;
    for (int64_t t = 0; t < length; ++t) {
      if (given[t * batch + sample]) {
        mark(r, n, 0, batch, t, place);
        if (sides > 1 && t > 0) {
          mark(r, n, 1, batch, length - t, place);
        }
      }
    }
  }
}

int64_t bppsa_resets_find(const recurrent_network *n, int64_t l, int64_t first, int64_t end, int64_t place, int64_t count,
                          bool last) {
  const int64_t steps = bppsa_resets_steps(n), side = l % bppsa_recurrent_directions(&n->config);
  const uint8_t *any = n->resets.any + side * steps, *mask = n->resets.mask + side * steps * n->batch + place;
  const int64_t least = first > 1 ? first : 1, by = last ? -1 : 1;
  for (int64_t t = last ? end - 1 : least; t >= least && t < end; t += by) {
    if (any[t] && (count == n->batch || memchr(mask + t * n->batch, 1, (size_t)count) != NULL)) {
      return t;
    }
  }
  return -1;
}

/* ---- memory ---- */

bppsa_status bppsa_resets_visit(recurrent_network *n, bppsa_recurrent_visit visit, int64_t *bytes) {
  const bppsa_recurrent_config *c = &n->config;
  recurrent_resets *r = &n->resets;
  const int64_t steps = bppsa_recurrent_directions(c) * bppsa_resets_steps(n);
  if (!c->resets) {
    return BPPSA_OK;
  }
  BPPSA_TRY(visit((void **)&r->mask, steps * c->batch, bytes));
  BPPSA_TRY(visit((void **)&r->any, steps, bytes));
  BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, 2, c->batch, c->hidden, &r->h, bytes));
  BPPSA_TRY(n->cell->pair ? bppsa_recurrent_visit_array(n, visit, 2, c->batch, c->hidden, &r->c, bytes) : BPPSA_OK);
  return bppsa_recurrent_visit_array(n, visit, 1, c->batch, bppsa_recurrent_state_size(n), &r->injected, bytes);
}

void bppsa_resets_free(recurrent_network *n) {
  void *const own[] = {n->resets.mask,     n->resets.any,  n->resets.h,     n->resets.c,
                       n->resets.injected, n->resets.sums, n->resets.terms, n->resets.scratch};
  for (size_t i = 0; i < sizeof own / sizeof *own; ++i) {
    bppsa_free(own[i]);
  }
}

/* ---- a step that resets some samples of a block ---- */

/* Which samples of the block begin anew in front of the step: a byte for each. */
static const uint8_t *block_mask(const recurrent_network *n, const recurrent_reset_step *s) {
  return bppsa_resets_mask(n, s->layer, s->step) + n->batch - s->samples + s->first;
}

enum { BITS = 64 /* samples that are looked at together */ };

/* Bit i says whether sample i of `count` ones begins anew, of the first BITS. */
static uint64_t bits_of(const uint8_t *mask, int64_t count) {
  uint64_t bits = 0;
  int64_t i = 0;
  count = count < BITS ? count : BITS;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  for (; count - i >= 8; i += 8) {
    const uint64_t gather = 0x0102040810204080u; /* brings byte k to bit 56 + k */
    uint64_t eight;
    memcpy(&eight, mask + i, sizeof eight);
    bits |= (eight * gather >> 56) << i;
  }
#endif
  for (; i < count; ++i) {
    bits |= (uint64_t)mask[i] << i;
  }
  return bits;
}

/* Writes 0 to rows of so many bytes, of samples that begin anew; or copies the rows of `from`, unless it is NULL. */
static void replace_rows(const uint8_t *mask, int64_t count, size_t bytes, const char *from, char *to) {
  for (int64_t first = 0; first < count; first += BITS) {
    for (uint64_t bits = bits_of(mask + first, count - first); bits != 0; bits &= bits - 1) {
      const size_t at = (size_t)(first + __builtin_ctzll(bits)) * bytes;
      if (from != NULL) {
        memcpy(to + at, from + at, bytes);
      } else {
        memset(to + at, 0, bytes);
      }
    }
  }
}

/* Writes h (or c) of the state from which samples begin anew to their rows, whose own go to the rows of `kept` (NULL: nowhere). */
static void begin_rows(const recurrent_network *n, int64_t l, const uint8_t *mask, int64_t count, bool cells, char *rows,
                       char *kept) {
  const size_t bytes = bytes_of(n, n->config.hidden);
  const void *state = bppsa_recurrent_offset(n, bppsa_reset_state_of(n, l), cells ? n->config.hidden : 0); /* NULL: 0 */
  for (int64_t first = 0; first < count; first += BITS) {
    for (uint64_t bits = bits_of(mask + first, count - first); bits != 0; bits &= bits - 1) {
      const size_t at = (size_t)(first + __builtin_ctzll(bits)) * bytes;
      if (kept != NULL) {
        memcpy(kept + at, rows + at, bytes);
      }
      if (state != NULL) {
        memcpy(rows + at, state, bytes);
      } else {
        memset(rows + at, 0, bytes);
      }
    }
  }
}

/* Puts the state from which samples begin anew in the place of their rows in front of the step, or back. */
static void exchange_rows(const recurrent_network *n, const recurrent_reset_step *s, bool back) {
  const int64_t hidden = n->config.hidden, row = s->row + n->batch - s->samples + s->first;
  const recurrent_layer *layer = &n->layers[s->layer];
  void *const arrays[] = {layer->h, layer->c}, *const kept[] = {n->resets.h, n->resets.c};
  const uint8_t *mask = block_mask(n, s);
  for (int half = 0; half < (n->cell->pair ? 2 : 1); ++half) {
    void *rows = bppsa_recurrent_offset(n, arrays[half], row * hidden),
         *own = bppsa_recurrent_offset(n, kept[half], s->first * hidden);
    if (back) {
      replace_rows(mask, s->count, bytes_of(n, hidden), own, rows);
    } else {
      begin_rows(n, s->layer, mask, s->count, half == 1, rows, own);
    }
  }
}

void bppsa_resets_begin(const recurrent_network *n, const recurrent_reset_step *s) {
  const int64_t hidden = n->config.hidden, row = s->row + n->batch - s->samples + s->first;
  const recurrent_layer *layer = &n->layers[s->layer];
  const void *const from[] = {layer->h, layer->c};
  void *const to[] = {n->resets.h, n->resets.c};
  const size_t bytes = bytes_of(n, hidden), state = bytes_of(n, bppsa_recurrent_state_size(n));
  if (s->in_place) {
    exchange_rows(n, s, false);
  }
  for (int half = 0; !s->in_place && half < (n->cell->pair ? 2 : 1); ++half) {
    for (int64_t t = 0; t < 2; ++t) {
      memcpy(bppsa_recurrent_offset(n, to[half], (t * s->samples + s->first) * hidden),
             bppsa_recurrent_offset(n, from[half], (row + t * s->samples) * hidden), (size_t)s->count * bytes);
    }
    begin_rows(n, s->layer, block_mask(n, s), s->count, half == 1, bppsa_recurrent_offset(n, to[half], s->first * hidden), NULL);
  }
  if (s->g != NULL && s->injected) {
    const size_t at = (size_t)s->first * state;
    replace_rows(block_mask(n, s), s->count, state, (const char *)s->g + at, (char *)n->resets.injected + at);
    if (n->config.reset_state) { /* the step then leaves its own part of the gradient, without u */
      replace_rows(block_mask(n, s), s->count, state, NULL, (char *)s->g + at);
    }
  }
}

void bppsa_resets_end(const recurrent_network *n, const recurrent_reset_step *s) {
  if (s->in_place) {
    exchange_rows(n, s, true);
  }
  if (s->g != NULL) {
    const size_t state = bytes_of(n, bppsa_recurrent_state_size(n)), at = (size_t)s->first * state;
    for (int64_t i = 0; n->config.reset_state && i < s->count; ++i) {
      if (block_mask(n, s)[i]) {
        bppsa_reset_state_add(n, s->step, n->batch - s->samples + s->first + i, 0, (const char *)s->g + at + (size_t)i * state);
      }
    }
    replace_rows(block_mask(n, s), s->count, state, s->injected ? (const char *)n->resets.injected + at : NULL,
                 (char *)s->g + at);
  }
}

/* ---- rows of many steps ---- */

void bppsa_resets_exchange_rows(const recurrent_network *n, int64_t l, const recurrent_stretch *s, void *rows, void *kept,
                                bool back) {
  const int64_t ended = n->batch - s->samples, first = n->config.part.first + s->first, end = first + s->steps;
  int64_t t = first;
  while (n->resets.active && (t = bppsa_resets_find(n, l, t, end, ended, s->samples, false)) >= 0) {
    const int64_t at = (t - first) * s->samples * n->config.hidden;
    const uint8_t *mask = bppsa_resets_mask(n, l, t) + ended;
    void *own = bppsa_recurrent_offset(n, rows, at), *other = bppsa_recurrent_offset(n, kept, at);
    if (back) {
      replace_rows(mask, s->samples, bytes_of(n, n->config.hidden), other, own);
    } else {
      begin_rows(n, l, mask, s->samples, false, own, other);
    }
    ++t;
  }
}

void bppsa_resets_begin_rows(const recurrent_network *n, int64_t l, const recurrent_stretch *s, void *rows) {
  bppsa_resets_exchange_rows(n, l, s, rows, NULL, false);
}
