/* The parallel backward pass of a recurrent layer on a CPU (recurrent/parallel_backward.h).
 *
 * A lane is a sample in a chunk, and walks towards earlier steps. Groups of lanes are batches for the cell's own backward function:
 * what it reads is gathered, a window of steps is computed at once, and deltas are written to their places, or added there. A
 * lane leaves its group where it ends. Which lanes are a group depends on the plan and on values alone.
 *
 * u_t and g_T stay in n->g as they are, because lanes of two chunks read them. The results are the deltas, from which the
 * weight gradients follow, and g_0.
 *
 * (The file is long because all phases share lanes, chunks and groups, which nothing else knows.) */
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/cut.h"
#include "core/base/philox.h"
#include "core/compute/flush.h"
#include "core/compute/pool.h"
#include "recurrent/pause.h"
#include "recurrent/recurrent_internal.h"

#define EACH_REAL "recurrent/speculate_back.inc"
#include "core/base/each_real.inc"

enum { GROUP = 16 /* lanes */, MOST_WINDOW = 16 /* steps */ };

typedef enum { ZEROS, SEED, PROBE, DIFFERENCE } lane_kind; /* what a lane starts from; ZEROS: from u_t */

typedef struct {
  int64_t sample, chunk;
  int64_t at;          /* it has the gradient of state `at` */
  int64_t top, bottom; /* of the chunk: the states at its later and at its earlier end */
  lane_kind kind;
  bool final;            /* of a DIFFERENCE: nothing will change what it started from */
  int64_t steps, chunks; /* walked; chunks that it went through or entered */
} lane;

/* A chunk of a sample. */
typedef struct {
  double sum;     /* Σ |g_t|_inf */
  double deltas;  /* Σ |δ_t|_2 */
  double reach;   /* of a silent chunk: Σ |δ_t(r)|_2, at last with the chunks in front of it; otherwise 0 */
  double probe;   /* likewise the length of r at its end */
  double scale;   /* s */
  double dropped; /* |d|_inf at its boundary, where it was accepted */
  double stopped; /* Σ of those at which mends stopped within */
  double moved;   /* |d|_inf that the latest mend arrived with at its earlier end */
  bool exact;     /* it started from the true gradient */
  bool silent;    /* nothing is injected into it and its warm-up */
  bool doubtful;  /* its boundary must be compared */
  bool walks;     /* a lane mends it in the present round */
} chunk;

typedef struct {
  recurrent_network *n;
  int64_t layer, count;    /* count: lanes */
  bool injected, adds;     /* adds: the present lanes walk differences */
  bool measures;           /* some chunk is silent, so that lengths of deltas count */
  int64_t state, width;    /* S; G·H */
  size_t real;             /* bytes */
  const void *x;           /* the layer's input, [rows][input] */
  void *delta_x, *delta_h; /* where they go beside the sums of weight gradients; NULL: nowhere */
  bool sums;               /* lanes add to the weight gradients */
  int64_t input, parts;    /* parts: of the weight gradients */
  int64_t turns;           /* groups that add to parts of their own */
  lane *lanes;
} walk;

/* What a group of lanes does next. */
typedef enum { WARM_UP, GUESS, MEND } group_work;

/* The arrays of a group: rows of a step lie one behind the other. g and h have a row more in front. */
typedef struct {
  char *top, *g, *h, *c, *saved, *x, *delta_x, *delta_h; /* top: the lanes' gradients */
  int64_t members[GROUP], count;
  int64_t first_part, parts; /* of the weight gradients, to which it adds one after the other: long sums lose digits */
  int64_t steps, walked;     /* in all, of the lane that walks the longest, and up to now */
} group;

/* ---- places ---- */

static int64_t length_of(const recurrent_network *n, int64_t sample) {
  return n->ragged.active ? n->ragged.place[sample].length : n->config.seq_len;
}

/* The row of a state, among those of all samples: 0 is the initial one's. */
static int64_t row_of(const recurrent_network *n, int64_t step, int64_t sample) {
  return n->back.rows[step] + sample;
}

static void *at_row(const walk *w, const void *base, int64_t row, int64_t width) {
  return (char *)base + (size_t)(row * width) * w->real;
}

/* Chunks of a sample: those of a short one are about as long as a long one's. */
static int64_t chunks_of(const recurrent_network *n, int64_t sample) {
  const int64_t chunks = n->back.plan.chunks, usual = n->config.seq_len / chunks, fitting = length_of(n, sample) / usual;
  return fitting < 1 ? 1 : fitting < chunks ? fitting : chunks;
}

static int64_t begin_of(const recurrent_network *n, int64_t sample, int64_t index) {
  return bppsa_cut(length_of(n, sample), chunks_of(n, sample), index);
}

static chunk *chunk_of(const recurrent_network *n, int64_t sample, int64_t index) {
  return (chunk *)n->back.chunks + sample * n->back.plan.chunks + index;
}

/* The gradient from which a chunk was computed, at its later end, and the one at its earlier end. */
static void *start_of(const walk *w, int64_t sample, int64_t index) {
  return at_row(w, w->n->back.starts, sample * w->n->back.plan.chunks + index, w->state);
}

static void *end_of(const walk *w, int64_t sample, int64_t index) {
  return at_row(w, w->n->back.ends, sample * w->n->back.plan.chunks + index, w->state);
}

static void *lane_gradient(const walk *w, int64_t index) {
  return at_row(w, w->n->back.lane_gradients, index, w->state);
}

static double largest(const walk *w, int64_t count, const void *row) {
  return w->n->config.dtype == BPPSA_F32 ? largest_f32(count, row) : largest_f64(count, row);
}

static double length(const walk *w, int64_t count, const void *row) {
  return w->n->config.dtype == BPPSA_F32 ? length_f32(count, row) : length_f64(count, row);
}

static void add(const walk *w, int64_t count, const void *row, void *to) {
  (w->n->config.dtype == BPPSA_F32 ? add_f32 : add_f64)(count, row, to);
}

/* ---- a lane after a window ---- */

/* Rows of step s of the window, of a lane; those of g and h in front of the step. */
static void *window_row(const walk *w, const group *g, const void *base, int64_t s, int64_t index, int64_t width) {
  return at_row(w, base, s * g->count + index, width);
}

/* Takes the deltas of a step, whose rows are those of step s of the window. */
static void keep_deltas(const walk *w, const group *g, const lane *l, int64_t s, int64_t index, chunk *c) {
  const int64_t row = row_of(w->n, l->at, l->sample) - w->n->batch;
  const size_t bytes = (size_t)w->width * w->real;
  void *const from[] = {window_row(w, g, g->delta_x, s, index, w->width), window_row(w, g, g->delta_h, s, index, w->width)},
              *const to[] = {w->delta_x, w->delta_h};
  const int count = w->n->cell->split ? 2 : 1;
  if (w->measures) {
    *(l->kind == PROBE ? &c->reach : &c->deltas) += length(w, w->width, from[1]);
  }
  for (int k = 0; l->kind == PROBE && k < count; ++k) {
    memset(from[k], 0, bytes);
  }
  for (int k = 0; k < count; ++k) {
    if (to[k] != NULL && l->kind == DIFFERENCE) {
      add(w, w->width, from[k], at_row(w, to[k], row, w->width));
    } else if (to[k] != NULL) {
      memcpy(at_row(w, to[k], row, w->width), from[k], bytes);
    }
  }
}

/* Steps 1 .. s of the window are none of the lane's. */
static void clear_deltas(const walk *w, const group *g, int64_t s, int64_t index) {
  for (; s > 0; --s) {
    memset(window_row(w, g, g->delta_x, s - 1, index, w->width), 0, (size_t)w->width * w->real);
    memset(window_row(w, g, g->delta_h, s - 1, index, w->width), 0, (size_t)w->width * w->real);
  }
}

/* Takes what a lane without a difference has found in its chunk. True: it goes on. */
static bool settle_guess(const walk *w, const group *g, int64_t index, int64_t steps, lane *l) {
  chunk *c = chunk_of(w->n, l->sample, l->chunk);
  for (int64_t s = steps; s > 0; --s) {
    c->sum += l->kind == PROBE ? 0 : largest(w, w->state, window_row(w, g, g->g, s, index, w->state));
    keep_deltas(w, g, l, s - 1, index, c);
    ++l->steps;
    if (--l->at == l->bottom) {
      const void *end = window_row(w, g, g->g, s - 1, index, w->state);
      c->probe = l->kind == PROBE ? length(w, w->state, end) : 0;
      memcpy(end_of(w, l->sample, l->chunk), end, (size_t)w->state * w->real);
      clear_deltas(w, g, s - 1, index);
      return false;
    }
  }
  return true;
}

/* Likewise in the warm-up in front of it. */
static bool settle_warm_up(const walk *w, const group *g, int64_t index, int64_t steps, lane *l) {
  l->steps += steps;
  l->at -= steps;
  if (l->at == l->top) {
    memcpy(start_of(w, l->sample, l->chunk), window_row(w, g, g->g, 0, index, w->state), (size_t)w->state * w->real);
  }
  return l->at > l->top;
}

/* A final difference leaves a silent chunk for another one, in which nothing else walks. True: it must go on. */
static bool enters_next(const walk *w, lane *l, const void *difference) {
  const recurrent_network *n = w->n;
  if (!l->final || l->chunk == 0) {
    return false;
  }
  chunk *next = chunk_of(n, l->sample, l->chunk - 1);
  if (!next->silent || next->exact || next->walks) {
    return false;
  }
  double deltas = 0;
  for (const chunk *behind = next + 1; behind < chunk_of(n, l->sample, chunks_of(n, l->sample)); ++behind) {
    deltas += behind->deltas;
  }
  if (bppsa_backward_silent(&n->back.plan, length(w, w->state, difference), next->reach, deltas)) {
    return false; /* the next round finds the same, and drops it */
  }
  memcpy(start_of(w, l->sample, l->chunk - 1), difference, (size_t)w->state * w->real);
  --l->chunk;
  ++l->chunks;
  l->top = l->bottom;
  l->bottom = begin_of(n, l->sample, l->chunk);
  next->doubtful = false;
  return true;
}

/* Takes what a lane that walks a difference has found. True: it goes on. */
static bool settle_difference(const walk *w, const group *g, int64_t index, int64_t steps, lane *l) {
  for (int64_t s = steps; s > 0; --s) {
    chunk *c = chunk_of(w->n, l->sample, l->chunk);
    const void *next = window_row(w, g, g->g, s - 1, index, w->state);
    const double size = largest(w, w->state, next);
    c->sum += c->silent ? largest(w, w->state, window_row(w, g, g->g, s, index, w->state)) : 0;
    keep_deltas(w, g, l, s - 1, index, c);
    ++l->steps;
    if (--l->at == l->bottom) {
      add(w, w->state, next, end_of(w, l->sample, l->chunk));
      c->moved = size;
      if (l->chunk > 0) {
        chunk_of(w->n, l->sample, l->chunk - 1)->doubtful = true;
      }
    }
    const bool stops = l->at > l->bottom && !c->silent && size <= w->n->back.plan.stop * c->scale;
    c->stopped += stops ? size : 0;
    if (stops || (l->at == l->bottom && !enters_next(w, l, next))) {
      clear_deltas(w, g, s - 1, index);
      return false;
    }
  }
  return true;
}

/* ---- a group ---- */

/* Copies what the cell reads of a step of a lane: h and c in front of it if `first`, those behind it, what it saved, and u in front
 * of it. Steps in front of the first one are computed for nothing where other lanes have steps left. */
static void gather_step(const walk *w, const group *g, const lane *l, int64_t step, int64_t s, int64_t index, bool first) {
  const recurrent_network *n = w->n;
  const recurrent_layer *layer = &n->layers[w->layer];
  const int64_t hidden = n->config.hidden, saved = n->cell->saved * hidden;
  const int64_t row = row_of(n, step > 0 ? step : 0, l->sample), before = row_of(n, step > 1 ? step - 1 : 0, l->sample);
  const size_t bytes = (size_t)hidden * w->real;
  memcpy(window_row(w, g, g->h, s, index, hidden), at_row(w, layer->h, row, hidden), bytes);
  if (first) {
    memcpy(window_row(w, g, g->h, s - 1, index, hidden), at_row(w, layer->h, before, hidden), bytes);
  }
  if (g->c != NULL) {
    memcpy(window_row(w, g, g->c, s, index, hidden), at_row(w, layer->c, row, hidden), bytes);
    if (first) {
      memcpy(window_row(w, g, g->c, s - 1, index, hidden), at_row(w, layer->c, before, hidden), bytes);
    }
  }
  if (saved > 0 && step > 0) {
    memcpy(window_row(w, g, g->saved, s - 1, index, saved), at_row(w, layer->saved, row - n->batch, saved),
           (size_t)saved * w->real);
  }
  if (w->sums && step > 0) {
    memcpy(window_row(w, g, g->x, s - 1, index, w->input), at_row(w, w->x, row - n->batch, w->input), (size_t)w->input * w->real);
  }
  if (!w->injected || w->adds) {
    return;
  }
  void *u = window_row(w, g, g->g, s - 1, index, w->state);
  if (l->kind == PROBE) {
    memset(u, 0, (size_t)w->state * w->real);
  } else {
    memcpy(u, at_row(w, n->g, before, w->state), (size_t)w->state * w->real);
  }
}

static void compute_window(const walk *w, group *g, int64_t steps) {
  const recurrent_network *n = w->n;
  const int64_t hidden = n->config.hidden;
  for (int64_t i = 0; i < g->count; ++i) {
    const lane *l = &w->lanes[g->members[i]];
    for (int64_t s = steps; s > 0; --s) {
      gather_step(w, g, l, l->at - (steps - s), s, i, s == 1);
    }
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
  n->cell->backward[n->config.dtype == BPPSA_F64](&block);
  bppsa_flush_end(mode);
}

typedef bool (*settle_lane)(const walk *w, const group *g, int64_t index, int64_t steps, lane *l);

/* Settles every lane, and moves the gradients of those that go on together. Then what is left of the deltas is added to the weight
 * gradients. */
static void settle(const walk *w, group *g, int64_t steps, group_work work) {
  static const settle_lane settles[] = {[WARM_UP] = settle_warm_up, [GUESS] = settle_guess, [MEND] = settle_difference};
  const int64_t count = g->count;
  bool goes_on[GROUP];
  for (int64_t i = 0; i < count; ++i) {
    goes_on[i] = settles[work](w, g, i, steps, &w->lanes[g->members[i]]);
  }
  if (w->sums && work != WARM_UP) {
    const int64_t part = g->first_part + g->walked * g->parts / g->steps;
    bppsa_recurrent_sum_rows(w->n, w->layer, w->adds, part, steps * count, g->delta_x, g->x, g->delta_h, g->h);
  }
  g->count = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (goes_on[i]) {
      memcpy(at_row(w, g->top, g->count, w->state), at_row(w, g->g, i, w->state), (size_t)w->state * w->real);
      g->members[g->count++] = g->members[i];
    }
  }
}

/* Numbers in a step's input: at most so many in any layer. */
static int64_t widest_input(const recurrent_network *n) {
  const int64_t outputs = bppsa_recurrent_outputs(&n->config);
  return n->config.layers > 1 && outputs > n->config.input ? outputs : n->config.input;
}

/* Reals of a lane and one step of a window, and all of a worker's scratch memory, in the order of struct group. */
static int64_t lane_reals(const recurrent_network *n) {
  const bppsa_cell *cell = n->cell;
  return 2 * bppsa_recurrent_state_size(n) + (cell->saved + (cell->split ? 2 : 1) * cell->gates) * n->config.hidden +
         widest_input(n);
}

static int64_t scratch_reals(const recurrent_network *n) {
  return GROUP * (n->back.window * lane_reals(n) + 3 * bppsa_recurrent_state_size(n));
}

static group group_of(const walk *w, int32_t worker) {
  const recurrent_network *n = w->n;
  const int64_t hidden = n->config.hidden, rows = n->back.window * GROUP;
  group g = {.top = at_row(w, n->back.scratch, worker * scratch_reals(n), 1)};
  g.g = at_row(w, g.top, GROUP, w->state);
  g.h = at_row(w, g.g, rows + GROUP, w->state);
  g.c = n->cell->pair ? at_row(w, g.h, rows + GROUP, hidden) : NULL;
  g.saved = at_row(w, g.h, rows + GROUP, w->state);
  g.x = at_row(w, g.saved, rows, n->cell->saved * hidden);
  g.delta_x = at_row(w, g.x, rows, widest_input(n));
  g.delta_h = n->cell->split ? at_row(w, g.delta_x, rows, w->width) : g.delta_x;
  return g;
}

/* Steps until a lane comes to the end of what it does. */
static int64_t steps_left(const lane *l, group_work work) {
  return l->at - (work == WARM_UP ? l->top : l->bottom);
}

/* Steps of the next window: a warm-up ends with it for all lanes or none. */
static int64_t window_steps(const walk *w, const group *g, group_work work) {
  int64_t shortest = INT64_MAX, longest = 0;
  for (int64_t i = 0; i < g->count; ++i) {
    const int64_t left = steps_left(&w->lanes[g->members[i]], work);
    shortest = left < shortest ? left : shortest;
    longest = left > longest ? left : longest;
  }
  const int64_t steps = work == WARM_UP ? shortest : longest;
  return steps < w->n->back.window ? steps : w->n->back.window;
}

/* Takes the lanes first .. end - 1, with the gradients that they have, to the end of what they do. */
static void walk_group(const walk *w, group *g, int64_t first, int64_t end, group_work work) {
  g->count = 0;
  for (int64_t i = first; i < end; ++i) {
    if (work != WARM_UP || w->lanes[i].at > w->lanes[i].top) {
      const lane *l = &w->lanes[i];
      const void *from = work == GUESS && l->kind != PROBE ? start_of(w, l->sample, l->chunk) : lane_gradient(w, i);
      memcpy(at_row(w, g->top, g->count, w->state), from, (size_t)w->state * w->real);
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
  const walk *w = context;
  group g = group_of(w, worker);
  g.parts = w->parts / w->turns;
  g.steps = w->n->config.seq_len / w->n->back.plan.chunks + 1;
  for (int64_t turn = first; turn < end; ++turn) {
    g.first_part = turn * g.parts;
    for (int64_t from = turn * GROUP; from < w->count; from += w->turns * GROUP) {
      const int64_t to = w->count - from < GROUP ? w->count : from + GROUP;
      if (!w->adds) {
        walk_group(w, &g, from, to, WARM_UP);
      }
      walk_group(w, &g, from, to, w->adds ? MEND : GUESS);
    }
  }
}

/* Walks the lanes, and adds their steps to paths and work: those of a sample walk side by side. */
static void walk_lanes(walk *w) {
  recurrent_network *n = w->n;
  recurrent_backward *b = &n->back;
  double steps = 0;
  for (int64_t i = 0; i < w->count; ++i) {
    steps += (double)(w->lanes[i].at - w->lanes[i].bottom);
  }
  const int64_t groups = (w->count + GROUP - 1) / GROUP;
  w->turns = groups < w->parts ? groups : w->parts;
  bppsa_parallel_for((int32_t)b->workers, w->turns, bppsa_loop_work(2 * steps * (double)w->width * (double)n->config.hidden, 0),
                     walk_groups, w);
  memset(b->longest, 0, (size_t)n->batch * sizeof *b->longest);
  for (int64_t i = 0; i < w->count; ++i) {
    const lane *l = &w->lanes[i];
    b->longest[l->sample] = l->steps > b->longest[l->sample] ? l->steps : b->longest[l->sample];
    b->stats.work += (double)l->steps; /* in steps until the pass ends */
    b->stats.mended += l->chunks;
  }
  for (int64_t s = 0; s < n->batch; ++s) {
    b->paths[s] += b->longest[s];
  }
}

/* ---- the phases ---- */

/* Is u_t 0 in so many states from `first` on? */
static bool is_silent(const walk *w, int64_t sample, int64_t first, int64_t end) {
  for (int64_t t = first; w->injected && t <= end; ++t) {
    if (largest(w, w->state, at_row(w, w->n->g, row_of(w->n, t, sample), w->state)) != 0) { /* NaN is not 0 */
      return false;
    }
  }
  return true;
}

static void list_guess(walk *w, int64_t sample, int64_t index) {
  const recurrent_network *n = w->n;
  const int64_t chunks = chunks_of(n, sample), steps = length_of(n, sample), top = begin_of(n, sample, index + 1);
  const int64_t early = steps - top < n->back.plan.warm_up ? steps - top : n->back.plan.warm_up;
  chunk *c = chunk_of(n, sample, index);
  lane *l = &w->lanes[w->count];
  void *gradient = lane_gradient(w, w->count++);
  *l = (lane){.sample = sample, .chunk = index, .at = top + early, .top = top, .bottom = begin_of(n, sample, index)};
  *c = (chunk){.exact = top + early == steps};
  c->silent = !c->exact && is_silent(w, sample, l->bottom, l->at);
  w->measures = w->measures || c->silent;
  c->doubtful = !c->exact && index + 1 < chunks;
  l->kind = c->exact ? SEED : c->silent ? PROBE : ZEROS;
  const size_t bytes = (size_t)w->state * w->real;
  if (l->kind == PROBE) {
    const uint64_t stream = BPPSA_STREAM_PROBE + ((uint64_t)index << 8);
    l->at = top;
    (n->config.dtype == BPPSA_F32 ? draw_f32 : draw_f64)(stream, w->state, gradient);
    return;
  }
  if (l->kind == SEED || w->injected) {
    memcpy(gradient, at_row(w, n->g, row_of(n, l->at, sample), w->state), bytes);
  } else {
    memset(gradient, 0, bytes);
  }
  memcpy(start_of(w, sample, index), gradient, bytes); /* where it has no warm-up */
}

/* False: a number is not finite. */
static bool speculate(walk *w) {
  const recurrent_network *n = w->n;
  w->count = 0;
  for (int64_t index = n->back.plan.chunks - 1; index >= 0; --index) {
    for (int64_t b = 0; b < n->batch; ++b) {
      if (index < chunks_of(n, b)) {
        list_guess(w, b, index);
      }
    }
  }
  walk_lanes(w);
  bool finite = true;
  for (int64_t b = 0; b < n->batch; ++b) {
    const int64_t chunks = chunks_of(n, b);
    double behind = 0, reach = 0;
    for (int64_t index = chunks - 1; index >= 0; --index) {
      chunk *c = chunk_of(n, b, index);
      const double mean = c->sum / (double)(begin_of(n, b, index + 1) - begin_of(n, b, index));
      const double share = behind / (double)length_of(n, b);
      c->scale = mean > share ? mean : share;
      behind += c->sum;
      finite = finite && isfinite(c->sum) && isfinite(largest(w, w->state, end_of(w, b, index)));
      if (c->silent) {
        memset(start_of(w, b, index), 0, (size_t)w->state * w->real);
        memset(end_of(w, b, index), 0, (size_t)w->state * w->real);
      }
    }
    for (int64_t index = 0; index < chunks; ++index) {
      chunk *c = chunk_of(n, b, index);
      reach = c->silent ? c->reach + c->probe * reach : 0;
      c->reach = reach;
    }
  }
  return finite;
}

/* Is the difference at a chunk's boundary small enough to be dropped? deltas: Σ |δ_t|_2 behind it. */
static bool accepts(const walk *w, chunk *c, const void *difference, double deltas) {
  const bppsa_backward_plan *plan = &w->n->back.plan;
  const double size = largest(w, w->state, difference);
  c->dropped = size;
  return c->silent ? bppsa_backward_silent(plan, length(w, w->state, difference), c->reach, deltas)
                   : size <= plan->accept * c->scale;
}

/* Lists the lanes of a round: the doubtful chunks of every sample whose differences are too large; in the tail the last one
 * alone. */
static void list_differences(walk *w, bool tail) {
  const recurrent_network *n = w->n;
  w->count = 0;
  for (int64_t b = 0; b < n->batch; ++b) {
    bool last = true;
    double deltas = 0;
    for (int64_t index = chunks_of(n, b) - 1; index >= 0; --index) {
      chunk *c = chunk_of(n, b, index);
      c->walks = false;
      if (c->doubtful && (last || !tail)) {
        void *difference = lane_gradient(w, w->count), *end = end_of(w, b, index + 1), *start = start_of(w, b, index);
        (n->config.dtype == BPPSA_F32 ? subtract_f32 : subtract_f64)(w->state, end, start, difference);
        c->doubtful = false;
        if (!accepts(w, c, difference, deltas)) {
          const int64_t top = begin_of(n, b, index + 1);
          w->lanes[w->count++] = (lane){.sample = b,
                                        .chunk = index,
                                        .at = top,
                                        .top = top,
                                        .bottom = begin_of(n, b, index),
                                        .kind = DIFFERENCE,
                                        .final = last,
                                        .chunks = 1};
          memcpy(start, end, (size_t)w->state * w->real);
          c->dropped = 0;
          c->walks = true;
          last = false;
        }
      }
      deltas += c->deltas;
    }
  }
}

/* Will rounds of mending take longer than half of BP? As far as the first of them tells: differences shrink by the same factor in
 * every chunk. */
static bool hopeless(const walk *w) {
  const recurrent_network *n = w->n;
  const int64_t chunks = n->back.plan.chunks;
  double rounds = 0;
  for (int64_t i = 0; i < w->count; ++i) {
    const lane *l = &w->lanes[i];
    const chunk *c = chunk_of(n, l->sample, l->chunk);
    if (l->at > l->bottom || c->silent || l->chunk == 0) {
      continue;
    }
    const double begun = largest(w, w->state, lane_gradient(w, i)), shrinks = log(begun / c->moved),
                 left = log(c->moved / (n->back.plan.accept * chunk_of(n, l->sample, l->chunk - 1)->scale));
    const double needed = left <= 0 ? 0 : shrinks > 0 ? left / shrinks : (double)l->chunk;
    rounds = fmax(rounds, fmin(needed, (double)l->chunk));
  }
  return 2 * (2 + rounds) > (double)chunks + 2;
}

static void count_dropped(const walk *w) {
  recurrent_network *n = w->n;
  bppsa_backward_stats *s = &n->back.stats;
  for (int64_t b = 0; b < n->batch; ++b) {
    double dropped = 0, all = 0;
    for (int64_t index = 0; index < chunks_of(n, b); ++index) {
      const chunk *c = chunk_of(n, b, index);
      dropped += c->dropped + c->stopped;
      all += c->sum;
      s->gap = c->dropped > 0 ? fmax(s->gap, c->dropped / c->scale) : s->gap;
    }
    s->perturbation = dropped > 0 ? fmax(s->perturbation, dropped / all) : s->perturbation;
  }
}

bool bppsa_back_layer(recurrent_network *n, int64_t l, const void *x, int64_t parts) {
  recurrent_backward *b = &n->back;
  walk w = {.n = n,
            .layer = l,
            .injected = bppsa_recurrent_injected(n, l),
            .state = bppsa_recurrent_state_size(n),
            .width = n->cell->gates * n->config.hidden,
            .real = bppsa_dtype_size(n->config.dtype),
            .x = x,
            .input = n->layers[l].input,
            .sums = parts > 0,
            .parts = parts > 0 ? parts : INT64_MAX,
            .delta_x = parts == 0 || n->config.input_gradients || bppsa_recurrent_level(n, l) > 0 ? n->pre : NULL,
            .delta_h = parts == 0 && n->cell->split ? n->delta_h : NULL,
            .lanes = b->lanes};
  if (!speculate(&w)) {
    return false;
  }
  w.adds = true;
  list_differences(&w, false);
  if (w.count > 0 && parts > 0) {
    bppsa_recurrent_clear_sums(n, l, true);
  }
  int64_t rounds = 0;
  for (; w.count > 0; list_differences(&w, rounds >= b->plan.rounds)) {
    walk_lanes(&w);
    if (++rounds == 1 && hopeless(&w)) {
      return false;
    }
  }
  if (rounds > 0 && parts > 0) {
    bppsa_recurrent_join_sums(n, l);
  }
  b->stats.rounds = rounds > b->stats.rounds ? rounds : b->stats.rounds;
  count_dropped(&w);
  for (int64_t s = 0; s < n->batch; ++s) {
    memcpy(at_row(&w, n->g, s, w.state), end_of(&w, s, 0), (size_t)w.state * w.real);
  }
  return true;
}

/* ---- a pass, and its memory ---- */

bool bppsa_back_begin(recurrent_network *n) {
  recurrent_backward *b = &n->back;
  const int64_t steps = n->config.seq_len * bppsa_recurrent_layers(&n->config);
  const bool speculates = b->plan.speculative && b->pause.left == 0;
  b->pause.left -= b->plan.speculative && !speculates;
  b->stats = (bppsa_backward_stats){.speculated = speculates, .passes = 1, .path = steps, .possible = steps, .work = 1};
  if (!speculates) {
    return false;
  }
  b->stats.work = 0;
  memset(b->paths, 0, (size_t)n->batch * sizeof *b->paths);
  for (int64_t k = 0, step = 1; k < bppsa_ragged_stretches(n); ++k) {
    const recurrent_stretch s = bppsa_ragged_stretch(n, k);
    for (int64_t t = 0; t < s.steps; ++t, ++step) { /* the samples that run are the last ones */
      b->rows[step] = n->batch + s.row + t * s.samples - (n->batch - s.samples);
    }
  }
  return true;
}

void bppsa_back_add(const recurrent_network *n, int64_t count, const void *from, void *to) {
  (n->config.dtype == BPPSA_F32 ? add_f32 : add_f64)(count, from, to);
}

void bppsa_back_given_up(recurrent_network *n) {
  n->back.stats.given_up = true;
  n->back.stats.work += (double)bppsa_ragged_rows(n);
  for (int64_t b = 0; b < n->batch; ++b) {
    n->back.paths[b] += length_of(n, b);
  }
}

void bppsa_back_end(recurrent_network *n) {
  recurrent_backward *b = &n->back;
  if (!b->stats.speculated) {
    return;
  }
  b->stats.path = 0;
  for (int64_t s = 0; s < n->batch; ++s) {
    b->stats.path = b->paths[s] > b->stats.path ? b->paths[s] : b->stats.path;
  }
  b->stats.work /= (double)bppsa_ragged_rows(n) * (double)bppsa_recurrent_layers(&n->config);
  b->pause = bppsa_forward_pause_end(b->stats.given_up || bppsa_forward_pause_fails(b->stats.path, b->stats.possible), b->pause);
}

bppsa_status bppsa_back_visit(recurrent_network *n, bppsa_recurrent_visit visit, int64_t *bytes) {
  enum { BYTES = 1 << 17, LEAST_WINDOW = 4 };
  recurrent_backward *b = &n->back;
  const int64_t batch = n->config.batch, state = bppsa_recurrent_state_size(n);
  int64_t lanes, size;
  if (!b->plan.speculative) {
    return BPPSA_OK;
  }
  if (!bppsa_mul(b->plan.chunks, batch, &lanes) || !bppsa_mul(lanes, (int64_t)(sizeof(lane) + sizeof(chunk)), &size)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "backward pass: %lld chunks of %lld samples do not fit in 64 bits",
                      (long long)b->plan.chunks, (long long)batch);
  }
  const int64_t fitting = BYTES / (GROUP * lane_reals(n) * (int64_t)bppsa_dtype_size(n->config.dtype)),
                groups = (lanes + GROUP - 1) / GROUP;
  b->window = fitting > MOST_WINDOW ? MOST_WINDOW : fitting < LEAST_WINDOW ? LEAST_WINDOW : fitting;
  b->workers = groups < n->threads ? groups : n->threads;
  BPPSA_TRY(visit(&b->lanes, lanes * (int64_t)sizeof(lane), bytes));
  BPPSA_TRY(visit(&b->chunks, lanes * (int64_t)sizeof(chunk), bytes));
  BPPSA_TRY(visit((void **)&b->paths, batch * (int64_t)sizeof *b->paths, bytes));
  BPPSA_TRY(visit((void **)&b->longest, batch * (int64_t)sizeof *b->longest, bytes));
  BPPSA_TRY(visit((void **)&b->rows, (n->config.seq_len + 1) * (int64_t)sizeof *b->rows, bytes));
  BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, b->plan.chunks, batch, state, &b->starts, bytes));
  BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, b->plan.chunks, batch, state, &b->ends, bytes));
  BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, b->plan.chunks, batch, state, &b->lane_gradients, bytes));
  return bppsa_recurrent_visit_array(n, visit, b->workers, 1, scratch_reals(n), &b->scratch, bytes);
}

void bppsa_back_free(recurrent_network *n) {
  recurrent_backward *b = &n->back;
  void *const arrays[] = {b->sums, b->hidden_sums, b->lanes, b->chunks,         b->paths,  b->longest,
                          b->rows, b->starts,      b->ends,  b->lane_gradients, b->scratch};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; ++i) {
    bppsa_free(arrays[i]);
  }
}
