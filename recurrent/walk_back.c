/* How lanes of a parallel backward pass walk (recurrent/walk_back.h). */
#include "recurrent/walk_back.h"

#include <math.h>
#include <string.h>

#include "core/compute/flush.h"
#include "core/compute/pool.h"

#define EACH_REAL "recurrent/walk_back.inc"
#include "core/base/each_real.inc"

/* What a group of lanes does next. */
typedef enum { WARM_UP, GUESS, MEND } group_work;

/* The arrays of a group: rows of a step lie one behind the other. g and h have a row more in front. */
typedef struct {
  char *top, *g, *h, *c, *saved, *x, *delta_x, *delta_h; /* top: the lanes' gradients */
  void *largest;                                         /* of each row of g */
  void *kept;                                            /* with resets [count][2 S]: states and u where lanes begin anew */
  void *carried; /* with a reset state: what u was added to in front of such steps, in rows as g */
  void *sums;    /* of the weight gradients of one window */
  int64_t members[BPPSA_BACK_GROUP], count;
  int64_t first_part, parts; /* of the weight gradients, to which it adds one after the other: long sums lose digits */
  int64_t steps, walked;     /* in all, of the lane that walks the longest, and up to now */
} group;

/* ---- rows of reals ---- */

double bppsa_back_largest(const recurrent_network *n, int64_t count, const void *row) {
  return n->config.dtype == BPPSA_F32 ? largest_f32(count, row) : largest_f64(count, row);
}

double bppsa_back_length(const recurrent_network *n, int64_t count, const void *row) {
  return n->config.dtype == BPPSA_F32 ? length_f32(count, row) : length_f64(count, row);
}

void bppsa_back_add(const recurrent_network *n, int64_t count, const void *from, void *to) {
  (n->config.dtype == BPPSA_F32 ? add_f32 : add_f64)(count, from, to);
}

void bppsa_back_subtract(const recurrent_network *n, int64_t count, const void *row, const void *other, void *to) {
  (n->config.dtype == BPPSA_F32 ? subtract_f32 : subtract_f64)(count, row, other, to);
}

/* ---- a lane after a window ---- */

/* Rows of step s of the window, of a lane; those of g and h in front of the step. */
static void *window_row(const bppsa_back_walk *w, const group *g, const void *base, int64_t s, int64_t index, int64_t width) {
  return bppsa_back_at_row(w, base, s * g->count + index, width);
}

/* max |g| of a row. */
static double largest_of(const bppsa_back_walk *w, const group *g, int64_t s, int64_t index) {
  const int64_t row = s * g->count + index;
  return w->n->config.dtype == BPPSA_F32 ? (double)((const float *)g->largest)[row] : ((const double *)g->largest)[row];
}

/* Takes the deltas of a step, whose rows are those of step s of the window. */
static void keep_deltas(const bppsa_back_walk *w, const group *g, const bppsa_back_lane *l, int64_t s, int64_t index,
                        bppsa_back_chunk *c) {
  const int64_t row = bppsa_back_row_of(w->n, l->at, l->sample) - w->n->batch;
  const size_t bytes = (size_t)w->width * w->real;
  void *const from[] = {window_row(w, g, g->delta_x, s, index, w->width), window_row(w, g, g->delta_h, s, index, w->width)},
              *const to[] = {w->delta_x, w->delta_h};
  const int count = w->n->cell->split ? 2 : 1;
  if (w->measures) {
    *(l->kind == BPPSA_BACK_PROBE ? &c->reach : &c->deltas) += bppsa_back_length(w->n, w->width, from[1]);
  }
  for (int k = 0; l->kind == BPPSA_BACK_PROBE && k < count; ++k) {
    memset(from[k], 0, bytes);
  }
  for (int k = 0; k < count; ++k) {
    if (to[k] != NULL && l->kind == BPPSA_BACK_DIFFERENCE) {
      bppsa_back_add(w->n, w->width, from[k], bppsa_back_at_row(w, to[k], row, w->width));
    } else if (to[k] != NULL) {
      memcpy(bppsa_back_at_row(w, to[k], row, w->width), from[k], bytes);
    }
  }
}

/* Does the lane's sample begin anew in front of its step `back` steps in front of its latest one? */
static bool at_reset(const bppsa_back_walk *w, const bppsa_back_lane *l, int64_t back) {
  const int64_t step = l->at - 1 - back;
  return step > 0 && bppsa_resets_at(w->n, w->layer, step, l->sample);
}

/* The gradient of the reset state gets that of the state in front of the lane's latest step, step s of the window. */
static void add_to_reset_state(const bppsa_back_walk *w, const group *g, const bppsa_back_lane *l, int64_t s, int64_t index) {
  if (w->n->config.reset_state && l->kind != BPPSA_BACK_PROBE && at_reset(w, l, 0)) {
    bppsa_reset_state_add(w->n, l->at - 1, l->sample, l->chunk, window_row(w, g, g->carried, s, index, w->state));
  }
}

/* Steps 1 .. s of the window are none of the lane's. */
static void clear_deltas(const bppsa_back_walk *w, const group *g, int64_t s, int64_t index) {
  for (; s > 0; --s) {
    memset(window_row(w, g, g->delta_x, s - 1, index, w->width), 0, (size_t)w->width * w->real);
    memset(window_row(w, g, g->delta_h, s - 1, index, w->width), 0, (size_t)w->width * w->real);
  }
}

/* The lane has walked to w->first, with the gradient `next`. It must go on elsewhere. */
static bool leave(const bppsa_back_walk *w, const bppsa_back_lane *l, const void *next) {
  memcpy(bppsa_back_lane_gradient(w, l - w->lanes), next, (size_t)w->state * w->real);
  return false;
}

/* Takes what a lane without a difference has found in its chunk. True: it goes on. */
static bool settle_guess(const bppsa_back_walk *w, const group *g, int64_t index, int64_t steps, bppsa_back_lane *l) {
  bppsa_back_chunk *c = bppsa_back_chunk_of(w->n, l->sample, l->chunk);
  const bool kept = w->measures || w->delta_x != NULL || w->delta_h != NULL;
  for (int64_t s = steps; s > 0; --s) {
    const double largest = l->kind == BPPSA_BACK_PROBE ? 0 : largest_of(w, g, s, index);
    c->sum += largest;
    c->block += largest;
    c->start = l->at == l->top ? largest : c->start;
    if (kept) {
      keep_deltas(w, g, l, s - 1, index, c);
    }
    add_to_reset_state(w, g, l, s - 1, index);
    ++l->steps;
    --l->at;
    if ((l->top - l->at) % BPPSA_BACK_HEAD == 0 || (l->at == l->bottom && l->top - l->at < BPPSA_BACK_HEAD)) {
      c->head = l->top - l->at <= BPPSA_BACK_HEAD ? c->block : c->head;
      c->least = l->top - l->at <= BPPSA_BACK_HEAD || c->block < c->least ? c->block : c->least;
      c->block = 0;
    }
    if (l->at == l->bottom) {
      const void *end = window_row(w, g, g->g, s - 1, index, w->state);
      c->probe = l->kind == BPPSA_BACK_PROBE ? bppsa_back_length(w->n, w->state, end) : bppsa_back_largest(w->n, w->state, end);
      memcpy(bppsa_back_end_of(w, l->sample, l->chunk), end, (size_t)w->state * w->real);
      clear_deltas(w, g, s - 1, index);
      return false;
    }
    if (bppsa_back_leaves(w, l)) {
      return leave(w, l, window_row(w, g, g->g, s - 1, index, w->state));
    }
  }
  return true;
}

/* Likewise in the warm-up in front of it. */
static bool settle_warm_up(const bppsa_back_walk *w, const group *g, int64_t index, int64_t steps, bppsa_back_lane *l) {
  l->steps += steps;
  l->at -= steps;
  if (l->at == l->top) {
    memcpy(bppsa_back_start_of(w, l->sample, l->chunk), window_row(w, g, g->g, 0, index, w->state), (size_t)w->state * w->real);
  }
  if (bppsa_back_leaves(w, l)) {
    return leave(w, l, window_row(w, g, g->g, 0, index, w->state));
  }
  return l->at > l->top;
}

/* A final difference leaves a silent chunk for another one, in which nothing else walks. True: it must go on. */
static bool enters_next(const bppsa_back_walk *w, bppsa_back_lane *l, const void *difference) {
  const recurrent_network *n = w->n;
  if (!l->final || l->chunk == 0 || w->passes_on) {
    return false;
  }
  bppsa_back_chunk *next = bppsa_back_chunk_of(n, l->sample, l->chunk - 1);
  if (!next->silent || next->exact || next->walks) {
    return false;
  }
  double deltas = 0;
  for (const bppsa_back_chunk *behind = next + 1; behind < bppsa_back_chunk_of(n, l->sample, bppsa_back_chunks_of(n, l->sample));
       ++behind) {
    deltas += behind->deltas;
  }
  if (bppsa_backward_silent(&n->back.plan, bppsa_back_length(w->n, w->state, difference), next->reach, deltas)) {
    return false; /* the next round finds the same, and drops it */
  }
  memcpy(bppsa_back_start_of(w, l->sample, l->chunk - 1), difference, (size_t)w->state * w->real);
  --l->chunk;
  ++l->chunks;
  l->top = l->bottom;
  l->bottom = bppsa_back_begin_of(n, l->sample, l->chunk);
  next->doubtful = false;
  (next + 1)->moved = -1;
  return true;
}

/* Takes what a lane that walks a difference has found. True: it goes on. */
static bool settle_difference(const bppsa_back_walk *w, const group *g, int64_t index, int64_t steps, bppsa_back_lane *l) {
  for (int64_t s = steps; s > 0; --s) {
    bppsa_back_chunk *c = bppsa_back_chunk_of(w->n, l->sample, l->chunk);
    const void *next = window_row(w, g, g->g, s - 1, index, w->state);
    const double size = largest_of(w, g, s - 1, index);
    c->sum += c->silent ? largest_of(w, g, s, index) : 0;
    keep_deltas(w, g, l, s - 1, index, c);
    add_to_reset_state(w, g, l, s - 1, index);
    ++l->steps;
    if (at_reset(w, l, 0)) { /* the difference ends here */
      --l->at;
      l->stopped = true;
      clear_deltas(w, g, s - 1, index);
      return false;
    }
    if (--l->at == l->bottom) {
      bppsa_back_add(w->n, w->state, next, bppsa_back_end_of(w, l->sample, l->chunk));
      c->moved = size;
      if (l->chunk > 0) {
        bppsa_back_chunk_of(w->n, l->sample, l->chunk - 1)->doubtful = true;
      }
    }
    const bool stops = l->at > l->bottom && !c->silent && !c->quiet && size <= w->n->back.plan.stop * c->least;
    c->stopped += stops ? size : 0;
    l->stopped = stops;
    if (stops || (l->at == l->bottom && !enters_next(w, l, next))) {
      clear_deltas(w, g, s - 1, index);
      return false;
    }
    if (bppsa_back_leaves(w, l)) {
      return leave(w, l, next);
    }
  }
  return true;
}

/* ---- a group ---- */

/* Copies rows of an array to steps first .. first + count - 1 of a lane's window, and has the rows that the next window needs
 * brought to the cache meanwhile. */
static void gather_rows(const bppsa_back_walk *w, const group *g, int64_t index, int64_t first, int64_t count, const void *from,
                        const int64_t *rows, int64_t width, void *to) {
  enum { LINE = 64, VECTOR = 16, SHORT = 160 };
  const size_t bytes = (size_t)width * w->real, ahead = (size_t)(w->n->back.window * w->n->batch) * bytes;
  for (int64_t s = first; s < first + count; ++s) {
    const char *row = bppsa_back_at_row(w, from, rows[s], width);
    char *place = window_row(w, g, to, s, index, width);
    for (size_t i = 0; i < bytes; i += LINE) {
      __builtin_prefetch((const void *)((uintptr_t)row - ahead + i)); /* may lie in front of the array: nothing is read */
    }
    size_t i = 0;
    for (; bytes <= SHORT && i + VECTOR <= bytes; i += VECTOR) { /* a call of memcpy takes longer than this */
      memcpy(place + i, row + i, VECTOR);
    }
    if (i < bytes) {
      memcpy(place + i, row + i, bytes - i);
    }
  }
}

/* Copies what the cell reads of the steps of a lane: h and c in front of them and behind each, what it saved, and u in front of
 * each. Steps in front of the first one are computed for nothing where other lanes have steps left. */
static void gather_lane(const bppsa_back_walk *w, const group *g, const bppsa_back_lane *l, int64_t steps, int64_t index) {
  const recurrent_network *n = w->n;
  const recurrent_layer *layer = &n->layers[w->layer];
  int64_t states[BPPSA_BACK_MOST_WINDOW + 1], made[BPPSA_BACK_MOST_WINDOW];
  for (int64_t s = 0; s <= steps; ++s) {
    const int64_t step = l->at - (steps - s);
    states[s] = bppsa_back_row_of(n, step > w->first ? step : w->first, l->sample);
    if (s > 0) {
      made[s - 1] = states[s] - n->batch;
    }
  }
  const int64_t hidden = n->config.hidden, here = l->at - w->first;
  const int64_t none = here < steps ? steps - here : 0; /* steps in front of the first */
  gather_rows(w, g, index, 0, steps + 1, layer->h, states, hidden, g->h);
  if (g->c != NULL) {
    gather_rows(w, g, index, 0, steps + 1, layer->c, states, hidden, g->c);
  }
  if (n->cell->saved > 0) {
    gather_rows(w, g, index, none, steps - none, layer->saved, made, n->cell->saved * hidden, g->saved);
  }
  if (w->sums) {
    gather_rows(w, g, index, none, steps - none, w->x, made, w->input, g->x);
    for (int64_t s = 0; s < none; ++s) { /* what the memory holds may be NaN, which times a delta of 0 is NaN */
      memset(window_row(w, g, g->x, s, index, w->input), 0, (size_t)w->input * w->real);
    }
  }
  if (w->injected && !w->adds && l->kind != BPPSA_BACK_PROBE) {
    gather_rows(w, g, index, 0, steps, n->g, states, w->state, g->g);
  } else if (w->injected && !w->adds) {
    for (int64_t s = 0; s < steps; ++s) {
      memset(window_row(w, g, g->g, s, index, w->state), 0, (size_t)w->state * w->real);
    }
  }
}

/* What is done to the states and u in front of a step of the window, of lanes that begin anew there. */
typedef enum {
  HIDE /* the states, which are kept with u, are 0 or the reset state */,
  SHOW /* states and u as they were */,
  CLEAR /* h alone is 0 or the reset state */
} reset_work;

static void treat_resets(const bppsa_back_walk *w, const group *g, int64_t s, int64_t steps, reset_work work) {
  const recurrent_network *n = w->n;
  const int64_t hidden = n->config.hidden;
  const size_t row = (size_t)hidden * w->real, state = (size_t)w->state * w->real;
  for (int64_t i = 0; i < g->count; ++i) {
    const bppsa_back_lane *l = &w->lanes[g->members[i]];
    void *const halves[] = {window_row(w, g, g->h, s, i, hidden), g->c != NULL ? window_row(w, g, g->c, s, i, hidden) : NULL},
                *u = window_row(w, g, g->g, s, i, w->state);
    char *kept = bppsa_back_at_row(w, g->kept, 2 * i, w->state);
    if (!at_reset(w, l, steps - 1 - s)) {
      continue;
    }
    for (int half = 0; half < (n->cell->pair ? 2 : 1) && work != CLEAR; ++half) {
      char *here = kept + (size_t)half * row;
      memcpy(work == HIDE ? here : halves[half], work == HIDE ? halves[half] : here, row);
    }
    if (work == SHOW && n->config.reset_state) {
      memcpy(window_row(w, g, g->carried, s, i, w->state), u, state);
    }
    if (work == HIDE) {
      memcpy(kept + state, u, state);
    } else if (work == SHOW && w->injected && !w->adds) {
      memcpy(u, kept + state, state);
    } else if (work == SHOW) {
      memset(u, 0, state);
    }
    if (work == HIDE && n->config.reset_state) { /* the step then leaves its own part of the gradient, without u */
      memset(u, 0, state);
    }
    for (int half = 0; half < (n->cell->pair && work == HIDE ? 2 : 1) && work != SHOW; ++half) {
      bppsa_reset_state_write(n, w->layer, half == 1, halves[half]);
    }
  }
}

/* The last of the steps 0 .. end - 1 of the window in front of which a lane begins anew; 0: none, or the first. */
static int64_t last_reset(const bppsa_back_walk *w, const group *g, int64_t end, int64_t steps) {
  for (int64_t s = end - 1; s > 0; --s) {
    for (int64_t i = 0; i < g->count; ++i) {
      if (at_reset(w, &w->lanes[g->members[i]], steps - 1 - s)) {
        return s;
      }
    }
  }
  return 0;
}

/* Calls the cell's function for all steps of a window, from its end and from one reset to the next. Then h has 0 in front of the
 * steps at which lanes begin anew, as the weight gradients need it. */
static void call_cell(const bppsa_back_walk *w, const group *g, const bppsa_cell_block *window) {
  const recurrent_network *n = w->n;
  const int64_t hidden = n->config.hidden, steps = window->steps;
  const bppsa_cell_fn backward = n->cell->backward[n->config.dtype == BPPSA_F64];
  if (!n->resets.active) {
    backward(window);
    return;
  }
  for (int64_t end = steps, s; end > 0; end = s) {
    bppsa_cell_block block = *window;
    s = last_reset(w, g, end, steps);
    block.steps = end - s;
    block.h = window_row(w, g, g->h, s, 0, hidden);
    block.c = g->c != NULL ? window_row(w, g, g->c, s, 0, hidden) : NULL;
    block.saved = window_row(w, g, g->saved, s, 0, n->cell->saved * hidden);
    block.g = window_row(w, g, g->g, s, 0, w->state);
    block.delta_x = window_row(w, g, g->delta_x, s, 0, w->width);
    block.delta_h = window_row(w, g, g->delta_h, s, 0, w->width);
    treat_resets(w, g, s, steps, HIDE);
    backward(&block);
    treat_resets(w, g, s, steps, SHOW);
  }
  for (int64_t s = 0; s < steps; ++s) {
    treat_resets(w, g, s, steps, CLEAR);
  }
}

static void compute_window(const bppsa_back_walk *w, group *g, int64_t steps) {
  const recurrent_network *n = w->n;
  const int64_t hidden = n->config.hidden;
  for (int64_t i = 0; i < g->count; ++i) {
    gather_lane(w, g, &w->lanes[g->members[i]], steps, i);
  }
  memcpy(window_row(w, g, g->g, steps, 0, w->state), g->top, (size_t)(g->count * w->state) * w->real);
  const bppsa_cell_block block = {.steps = steps,
                                  .batch = g->count,
                                  .hidden = hidden,
                                  .samples = g->count,
                                  .nonlinearity = n->config.nonlinearity,
                                  .w_hh = n->w_hh,
                                  .w_row = bppsa_dtype_padded(n->config.dtype, hidden),
                                  .h = g->h,
                                  .c = g->c,
                                  .saved = g->saved,
                                  .g = g->g,
                                  .injected = w->injected && !w->adds,
                                  .input = true,
                                  .delta_x = g->delta_x,
                                  .delta_h = g->delta_h};
  const unsigned mode = bppsa_flush_begin();
  call_cell(w, g, &block);
  bppsa_flush_end(mode);
}

typedef bool (*settle_lane)(const bppsa_back_walk *w, const group *g, int64_t index, int64_t steps, bppsa_back_lane *l);

/* Settles every lane, and moves the gradients of those that go on together. Then what is left of the deltas is added to the weight
 * gradients. */
static void settle(const bppsa_back_walk *w, group *g, int64_t steps, group_work work) {
  static const settle_lane settles[] = {[WARM_UP] = settle_warm_up, [GUESS] = settle_guess, [MEND] = settle_difference};
  const int64_t count = g->count;
  bool goes_on[BPPSA_BACK_GROUP];
  if (work != WARM_UP) {
    const bool single = w->n->config.dtype == BPPSA_F32;
    (single ? largest_rows_f32 : largest_rows_f64)((steps + 1) * count, w->state, g->g, g->largest);
  }
  for (int64_t i = 0; i < count; ++i) {
    goes_on[i] = settles[work](w, g, i, steps, &w->lanes[g->members[i]]);
  }
  if (w->sums && work != WARM_UP) {
    const int64_t part = g->first_part + g->walked * g->parts / g->steps;
    bppsa_recurrent_sum_rows(w->n, w->layer, w->adds, part, steps * count, g->delta_x, g->x, g->delta_h, g->h,
                             w->adds ? NULL : g->sums);
  }
  g->count = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (goes_on[i]) {
      memcpy(bppsa_back_at_row(w, g->top, g->count, w->state), bppsa_back_at_row(w, g->g, i, w->state),
             (size_t)w->state * w->real);
      g->members[g->count++] = g->members[i];
    }
  }
}

/* Numbers in a step's input: at most so many in any layer. */
static int64_t widest_input(const recurrent_network *n) {
  const int64_t outputs = bppsa_recurrent_outputs(&n->config);
  return n->config.layers > 1 && outputs > n->config.input ? outputs : n->config.input;
}

/* In the order of struct group. */
int64_t bppsa_back_lane_reals(const recurrent_network *n) {
  const bppsa_cell *cell = n->cell;
  return 2 * bppsa_recurrent_state_size(n) + (cell->saved + (cell->split ? 2 : 1) * cell->gates) * n->config.hidden +
         widest_input(n);
}

/* Reals of the larger of the two products behind a layer's weight gradients, and of the biases. */
static int64_t sums_reals(const recurrent_network *n) {
  const int64_t hidden = n->config.hidden, input = widest_input(n);
  return n->cell->gates * hidden * ((input > hidden ? input : hidden) + 1);
}

int64_t bppsa_back_scratch_reals(const recurrent_network *n) {
  const int64_t rows = (n->config.resets ? 5 : 3) + (n->config.reset_state ? n->back.window : 0);
  return BPPSA_BACK_GROUP * (n->back.window * (bppsa_back_lane_reals(n) + 1) + rows * bppsa_recurrent_state_size(n) + 1) +
         sums_reals(n);
}

static group group_of(const bppsa_back_walk *w, int32_t worker) {
  const recurrent_network *n = w->n;
  const int64_t hidden = n->config.hidden, rows = n->back.window * BPPSA_BACK_GROUP;
  group g = {.top = bppsa_back_at_row(w, n->back.scratch, worker * bppsa_back_scratch_reals(n), 1)};
  g.g = bppsa_back_at_row(w, g.top, BPPSA_BACK_GROUP, w->state);
  g.h = bppsa_back_at_row(w, g.g, rows + BPPSA_BACK_GROUP, w->state);
  g.c = n->cell->pair ? bppsa_back_at_row(w, g.h, rows + BPPSA_BACK_GROUP, hidden) : NULL;
  g.saved = bppsa_back_at_row(w, g.h, rows + BPPSA_BACK_GROUP, w->state);
  g.x = bppsa_back_at_row(w, g.saved, rows, n->cell->saved * hidden);
  g.delta_x = bppsa_back_at_row(w, g.x, rows, widest_input(n));
  g.delta_h = n->cell->split ? bppsa_back_at_row(w, g.delta_x, rows, w->width) : g.delta_x;
  g.largest = bppsa_back_at_row(w, g.delta_h, rows, w->width);
  g.kept = bppsa_back_at_row(w, g.largest, rows + BPPSA_BACK_GROUP, 1);
  g.carried = bppsa_back_at_row(w, g.kept, n->config.resets ? 2 * BPPSA_BACK_GROUP : 0, w->state);
  g.sums = bppsa_back_at_row(w, g.carried, n->config.reset_state ? rows : 0, w->state);
  return g;
}

/* Steps until a lane comes to the end of what it does here; a warm-up may have none. */
static int64_t steps_left(const bppsa_back_walk *w, const bppsa_back_lane *l, group_work work) {
  const int64_t end = work == WARM_UP ? l->top : l->bottom;
  return l->at - (end > w->first ? end : w->first);
}

/* Steps of the next window: a warm-up ends with it for all lanes or none. */
static int64_t window_steps(const bppsa_back_walk *w, const group *g, group_work work) {
  int64_t shortest = INT64_MAX, longest = 0;
  for (int64_t i = 0; i < g->count; ++i) {
    const int64_t left = steps_left(w, &w->lanes[g->members[i]], work);
    shortest = left < shortest ? left : shortest;
    longest = left > longest ? left : longest;
  }
  const int64_t steps = work == WARM_UP ? shortest : longest;
  return steps < w->n->back.window ? steps : w->n->back.window;
}

/* Takes the lanes first .. end - 1, with the gradients that they have, to the end of what they do. */
static void walk_group(const bppsa_back_walk *w, group *g, int64_t first, int64_t end, group_work work) {
  g->count = 0;
  for (int64_t i = first; i < end; ++i) {
    const bppsa_back_lane *l = &w->lanes[i];
    if (steps_left(w, l, work) > 0) {
      const void *from = work == GUESS && l->kind != BPPSA_BACK_PROBE ? bppsa_back_start_of(w, l->sample, l->chunk)
                                                                      : bppsa_back_lane_gradient(w, i);
      memcpy(bppsa_back_at_row(w, g->top, g->count, w->state), from, (size_t)w->state * w->real);
      g->members[g->count++] = i;
    }
  }
  g->walked = 0;
  while (g->count > 0) {
    const int64_t steps = window_steps(w, g, work);
    compute_window(w, g, steps);
    settle(w, g, steps, work);
    g->walked = g->walked + steps < g->steps ? g->walked + steps : g->steps - 1;
  }
}

/* Walks every `turns`th group, in order: no others add to its parts of the weight gradients. */
static void walk_groups(const void *context, int32_t worker, int64_t first, int64_t end) {
  const bppsa_back_walk *w = context;
  group g = group_of(w, worker);
  g.parts = w->parts / w->turns;
  g.steps = w->n->forward.seq_len / w->n->back.plan.chunks + 1;
  for (int64_t turn = first; turn < end; ++turn) {
    g.first_part = turn * g.parts;
    for (int64_t from = turn * BPPSA_BACK_GROUP; from < w->count; from += w->turns * BPPSA_BACK_GROUP) {
      const int64_t to = w->count - from < BPPSA_BACK_GROUP ? w->count : from + BPPSA_BACK_GROUP;
      if (!w->adds) {
        walk_group(w, &g, from, to, WARM_UP);
      }
      walk_group(w, &g, from, to, w->adds ? MEND : GUESS);
    }
  }
}

void bppsa_back_walk_lanes(bppsa_back_walk *w) {
  recurrent_network *n = w->n;
  recurrent_backward *b = &n->back;
  double steps = 0;
  for (int64_t i = 0; i < w->count; ++i) {
    steps += (double)(w->lanes[i].at - w->lanes[i].bottom);
  }
  const int64_t groups = (w->count + BPPSA_BACK_GROUP - 1) / BPPSA_BACK_GROUP;
  w->turns = groups < w->parts ? groups : w->parts;
  bppsa_parallel_for((int32_t)b->workers, w->turns, bppsa_loop_work(2 * steps * (double)w->width * (double)n->config.hidden, 0),
                     walk_groups, w);
}

void bppsa_back_count_lanes(const bppsa_back_walk *w) {
  const recurrent_network *n = w->n;
  recurrent_backward *b = &w->n->back;
  memset(b->longest, 0, (size_t)n->batch * sizeof *b->longest);
  for (int64_t i = 0; i < w->count; ++i) {
    const bppsa_back_lane *l = &w->lanes[i];
    b->longest[l->sample] = l->steps > b->longest[l->sample] ? l->steps : b->longest[l->sample];
    b->stats.work += (double)l->steps; /* in steps until the pass ends */
    b->stats.mended += l->chunks;
  }
  for (int64_t s = 0; s < n->batch; ++s) {
    b->paths[s] += b->longest[s];
  }
}
