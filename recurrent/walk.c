/* How the lanes of a parallel forward pass walk, in groups, on a CPU (recurrent/walk.h). */
#include "recurrent/walk.h"

#include <math.h>
#include <string.h>

#include "core/compute/flush.h"
#include "core/compute/pool.h"
#include "core/compute/stream.h"

#define EACH_REAL "recurrent/walk.inc"
#include "core/base/each_real.inc"

enum { GROUP = BPPSA_WALK_GROUP };

typedef bppsa_walk walk;
typedef bppsa_walk_lane lane;

/* The arrays of one group: for `count` lanes rows of a step lie one behind the other. */
typedef struct {
  char *x, *pre, *saved;
  bppsa_walk_place states; /* [steps + 1][count][H] each */
  char *kept;              /* [count][S], states that a reset hides for a while */
  int64_t members[GROUP];  /* numbers of the lanes */
  int64_t count;
} group;

/* ---- rows ---- */

/* Copies rows that lie so many bytes apart; with `stream` those that are long enough past the caches. Most are short, so that a
 * call for each would take as long as the copy: they go in pieces of a size that the compiler knows, of which the last two may
 * overlap. */
static void copy_rows(char *to, size_t to_apart, const char *from, size_t from_apart, size_t bytes, int64_t rows, bool stream) {
  enum { PIECE = 32, LONG = 128, STREAMED = 256 };
  const bool call = bytes < PIECE || bytes > LONG || (stream && bytes >= STREAMED);
  if (bytes == sizeof(float)) { /* an input of one number */
    for (int64_t r = 0; r < rows; ++r) {
      memcpy(to + (size_t)r * to_apart, from + (size_t)r * from_apart, sizeof(float));
    }
    return;
  }
  for (; rows > 0; --rows, to += to_apart, from += from_apart) {
    if (call) {
      bppsa_stream_copy(to, from, bytes, stream);
      continue;
    }
    for (size_t at = 0; at + PIECE < bytes; at += PIECE) {
      memcpy(to + at, from + at, PIECE);
    }
    memcpy(to + bytes - PIECE, from + bytes - PIECE, PIECE);
  }
}

/* Counts the lanes from lane i on that are at the same step of neighbouring samples: their rows lie side by side, here and in the
 * layer. */
static int64_t side_by_side(const walk *w, const group *g, int64_t i) {
  const lane *first = &w->lanes[g->members[i]];
  int64_t count = 1;
  for (; i + count < g->count; ++count) {
    const lane *l = &w->lanes[g->members[i + count]];
    if (l->at != first->at || l->chunk != first->chunk || l->sample != first->sample + count) {
      break;
    }
  }
  return count;
}

/* ---- a lane after a window ---- */

static char *saved_of(const walk *w, const lane *l, int64_t step) {
  return w->saved + (size_t)((step - w->first) * w->n->batch + l->sample) * w->saved_row;
}

static void copy_saved(const walk *w, const lane *l, int64_t step, const void *saved) {
  if (w->saved_row > 0) {
    memcpy(saved_of(w, l, step), saved, w->saved_row);
  }
}

static void keep(const walk *w, const lane *l, int64_t step, bppsa_walk_place state, const void *saved) {
  bppsa_walk_copy(w, bppsa_walk_state(w, step + 1, l->sample), state);
  copy_saved(w, l, step, saved);
}

/* Returns the largest difference between two states; that of c is relative. *largest: the largest number of h. */
static double distance_of(const recurrent_network *n, bppsa_walk_place a, bppsa_walk_place b, double *largest) {
  const int64_t hidden = n->config.hidden;
  const void *c[] = {a.c, b.c}, *h[] = {a.h, b.h};
  double of_h, of_c = 0;
  if (n->config.dtype == BPPSA_F32) {
    float most;
    of_h = (double)distance_f32(hidden, h[0], h[1], &most);
    of_c = a.c != NULL ? (double)relative_distance_f32(hidden, c[0], c[1]) : 0;
    *largest = (double)most;
  } else {
    of_h = distance_f64(hidden, h[0], h[1], largest);
    of_c = a.c != NULL ? relative_distance_f64(hidden, c[0], c[1]) : 0;
  }
  return of_h > of_c || isnan(of_h) ? of_h : of_c;
}

static bool same_bits(const walk *w, bppsa_walk_place a, bppsa_walk_place b) {
  return memcmp(a.h, b.h, w->row) == 0 && (a.c == NULL || memcmp(a.c, b.c, w->row) == 0);
}

/* A state that a lane has reached, the stored one, and how far they are apart. */
typedef struct {
  bppsa_walk_place state, stored;
  double distance, unit; /* unit: what a tolerance is relative to */
} comparison;

/* With tolerance 0 the states must agree in every bit, and so must a state that has overflowed. */
static bool is_within(const walk *w, const comparison *c, double tolerance) {
  const double most = tolerance * c->unit;
  return tolerance > 0 && isfinite(most) ? c->distance <= most : same_bits(w, c->state, c->stored);
}

/* Compares the state that the lane has reached with the stored one. first: of the chunk. True: the lane stops. */
static bool agrees(const walk *w, lane *l, bool first, bppsa_walk_place state, comparison *c) {
  const bppsa_forward_plan *plan = &w->n->forward.plan;
  double largest;
  *c = (comparison){.state = state, .stored = bppsa_walk_state(w, l->at + 1, l->sample)};
  c->distance = distance_of(w->n, state, c->stored, &largest);
  c->unit = w->n->config.nonlinearity == BPPSA_NONLINEARITY_RELU ? fmax(largest, 1) : 1;
  if (first) {
    l->since = BPPSA_SETTLE_NEVER;
    return is_within(w, c, plan->accept);
  }
  return bppsa_walk_settles(is_within(w, c, plan->settled), is_within(w, c, plan->stop),
                            is_within(w, c, BPPSA_SETTLE_GROWTH * plan->stop), l->at, &l->since);
}

/* A walk through a chunk has changed the distance between new and stored states from `begun` to `moved`. The next round begins in
 * the next chunk with this distance. Is it still too large behind all rounds to come, if each changes it as this one did? No
 * distance becomes smaller than the rounding of the states. */
static bool lasts(const walk *w, double begun, double moved) {
  const double rounding = w->n->config.dtype == BPPSA_F32 ? 0x1p-24 : 0x1p-53;
  const double stop = fmax(w->n->forward.plan.stop, rounding), change = moved / begun;
  for (int64_t round = 0; round < w->rounds && moved > stop; ++round) {
    moved *= change;
  }
  return !(moved <= stop);
}

bool bppsa_walk_next_doubt(const walk *w, lane *l) {
  const int64_t chunks = w->n->forward.plan.chunks;
  unsigned char *doubts = bppsa_walk_doubts(w->n, l->sample);
  int64_t chunk = l->chunk + 1;
  while (chunk < chunks && !doubts[chunk]) {
    ++chunk;
  }
  if (chunk == chunks) {
    return false;
  }
  doubts[chunk] = 0;
  l->chunk = chunk;
  l->at = bppsa_walk_chunk_begin(w->n, chunk);
  l->end = bppsa_walk_chunk_begin(w->n, chunk + 1);
  return true;
}

/* The place of a lane's rows of step s of the window in its group. */
static bppsa_walk_place walked(const walk *w, const group *g, int64_t s, int64_t row) {
  return bppsa_walk_behind(w, g->states, (s + 1) * g->count + row);
}

static const char *walked_saved(const walk *w, const group *g, int64_t s, int64_t row) {
  return g->saved + (size_t)(s * g->count + row) * w->saved_row;
}

/* A lane comes to the end of this part, and goes on in the next one. */
static void cross(const walk *w, const lane *l, bppsa_walk_place state) {
  bppsa_walk_cross(w, l);
  bppsa_walk_copy(w, bppsa_walk_packed(w, w->n->forward.states_out, bppsa_walk_slot(w, l)), state);
}

/* Stores what `count` lanes side by side have guessed: the steps of the chunk, without its warm-up. */
static void store_guesses(const walk *w, const group *g, int64_t row, int64_t count, int64_t steps) {
  const lane *l = &w->lanes[g->members[row]];
  const int64_t begin = bppsa_walk_chunk_begin(w->n, l->chunk), stop = bppsa_walk_stop(w, l);
  const int64_t from = begin > l->at ? begin : l->at, end = l->at + steps < stop ? l->at + steps : stop, rows = end - from;
  if (rows <= 0) {
    return;
  }
  const bppsa_walk_place state = walked(w, g, from - l->at, row), to = bppsa_walk_state(w, from + 1, l->sample);
  const size_t here = (size_t)g->count, there = (size_t)w->n->batch, wide = (size_t)count;
  const int64_t all = w->n->config.seq_len * w->n->batch; /* rows of an array */
  const bool states = all * (int64_t)w->row > BPPSA_STREAM_BYTES, values = all * (int64_t)w->saved_row > BPPSA_STREAM_BYTES;
  copy_rows(to.h, there * w->row, state.h, here * w->row, wide * w->row, rows, states);
  if (to.c != NULL) {
    copy_rows(to.c, there * w->row, state.c, here * w->row, wide * w->row, rows, states);
  }
  if (w->saved_row > 0) {
    copy_rows(saved_of(w, l, from), there * w->saved_row, walked_saved(w, g, from - l->at, row), here * w->saved_row,
              wide * w->saved_row, rows, values);
  }
}

/* Settles a lane that has guessed so many steps. Returns true if it goes on. */
static bool settle_guess(const walk *w, const group *g, int64_t row, int64_t steps, lane *l) {
  const int64_t stop = bppsa_walk_stop(w, l), end = l->at + steps < stop ? l->at + steps : stop;
  const bppsa_walk_place last = walked(w, g, end - 1 - l->at, row);
  l->steps += end - l->at;
  l->at = end;
  if (end == w->border && end < l->end) {
    cross(w, l, last);
  }
  return end < stop;
}

bool bppsa_walk_end(const walk *w, lane *l) {
  l->reached = true;
  if (w->phase == BPPSA_WALK_MEND || l->chunk + 1 == w->n->forward.plan.chunks) {
    return false;
  }
  ++l->chunk; /* the tail verifies the next chunk by walking on */
  bppsa_walk_doubts(w->n, l->sample)[l->chunk] = 0;
  l->end = bppsa_walk_chunk_begin(w->n, l->chunk + 1);
  return true;
}

/* Does a walk compare step `at` with the stored one? Always the chunk's first and last step, and one of each LOOK in between: a
 * comparison takes about as long as a step. */
static bool looks(const walk *w, const lane *l) {
  enum { LOOK = 4 };
  const int64_t step = l->at - bppsa_walk_chunk_begin(w->n, l->chunk);
  return !w->given_up && (step == 0 || (step + 1) % LOOK == 0 || l->at + 1 == l->end);
}

/* Stores steps until one at which the walk looks agrees with the stored state, which then stays. The values saved with that step
 * do not stay: they belong to the state in front of it. In front of a reset the walk ends too, since the stored states behind it
 * began from 0. *jumped: the lane goes on elsewhere, so that it needs the state there. Returns true if the lane goes on. */
static bool settle_mend(const walk *w, const group *g, int64_t row, int64_t steps, lane *l, bool *jumped) {
  const recurrent_network *n = w->n;
  const bppsa_forward_plan *plan = &n->forward.plan;
  for (int64_t s = 0; s < steps; ++s) {
    const bppsa_walk_place state = walked(w, g, s, row);
    const void *saved = walked_saved(w, g, s, row);
    const bool first = l->at == bppsa_walk_chunk_begin(n, l->chunk);
    comparison c = {.unit = 1};
    ++l->steps;
    if (looks(w, l) && agrees(w, l, first, state, &c)) {
      l->gap = fmax(l->gap, c.distance);
      copy_saved(w, l, l->at, saved);
      *jumped = w->phase == BPPSA_WALK_TAIL && bppsa_walk_next_doubt(w, l);
      return *jumped;
    }
    l->mended += first;
    l->begun = first ? c.distance / c.unit : l->begun;
    keep(w, l, l->at, state, saved);
    ++l->at;
    if (bppsa_walk_at_reset(w, l)) {
      *jumped = w->phase == BPPSA_WALK_TAIL && bppsa_walk_next_doubt(w, l);
      return *jumped;
    }
    if (l->at == l->end) {
      l->far = c.distance > plan->far;
      l->lasts = lasts(w, l->begun, c.distance / c.unit);
      if (!bppsa_walk_end(w, l)) {
        return false;
      }
    }
    if (l->at == w->border) {
      cross(w, l, state);
      return false;
    }
  }
  return true;
}

/* ---- a group ---- */

/* Gathers the inputs of `steps` steps of all lanes; steps behind the part's last one get the last one's input. */
static void gather(const walk *w, group *g, int64_t steps) {
  const size_t here = (size_t)g->count * w->input_row, there = (size_t)w->n->batch * w->input_row;
  for (int64_t i = 0, count; i < g->count; i += count) {
    const lane *l = &w->lanes[g->members[i]];
    const int64_t left = w->border - l->at, rows = steps < left ? steps : left;
    const char *from = w->x + (size_t)((l->at - w->first) * w->n->batch + l->sample) * w->input_row;
    char *to = g->x + (size_t)i * w->input_row;
    count = side_by_side(w, g, i);
    copy_rows(to, here, from, there, (size_t)count * w->input_row, rows, false);
    copy_rows(to + (size_t)rows * here, here, from + (size_t)(rows - 1) * there, 0, (size_t)count * w->input_row, steps - rows,
              false);
  }
}

/* Lanes that begin anew in front of step s of the window have 0 or the reset state there, `kept` what was there. back: they get it
 * back. */
static void hide_states(const walk *w, const group *g, int64_t s, bool back) {
  for (int64_t i = 0; i < g->count; ++i) {
    lane at = w->lanes[g->members[i]];
    at.at += s;
    const bppsa_walk_place state = bppsa_walk_behind(w, g->states, s * g->count + i), kept = bppsa_walk_packed(w, g->kept, i);
    if (!bppsa_walk_at_reset(w, &at)) {
      continue;
    }
    bppsa_walk_copy(w, back ? state : kept, back ? kept : state);
    if (!back) {
      bppsa_reset_state_write(w->n, w->layer, false, state.h);
    }
    if (!back && state.c != NULL) {
      bppsa_reset_state_write(w->n, w->layer, true, state.c);
    }
  }
}

/* The first of the steps s .. steps - 1 of the window in front of which a lane begins anew; `steps`: none. */
static int64_t next_reset(const walk *w, const group *g, int64_t s, int64_t steps) {
  for (; s < steps; ++s) {
    for (int64_t i = 0; i < g->count; ++i) {
      lane at = w->lanes[g->members[i]];
      at.at += s;
      if (bppsa_walk_at_reset(w, &at)) {
        return s;
      }
    }
  }
  return steps;
}

/* Calls the cell's function for all steps of a window, from one reset to the next. */
static void call_cell(const walk *w, const group *g, const bppsa_cell_block *window) {
  const recurrent_network *n = w->n;
  const bppsa_cell_fn forward = n->cell->forward[n->config.dtype == BPPSA_F64];
  for (int64_t s = 0, next; s < window->steps; s = next) {
    bppsa_cell_block block = *window;
    const int64_t rows = s * g->count;
    next = n->resets.active ? next_reset(w, g, s + 1, window->steps) : window->steps;
    block.steps = next - s;
    block.pre = bppsa_recurrent_offset(n, window->pre, rows * n->cell->gates * n->config.hidden);
    block.h = bppsa_walk_behind(w, g->states, rows).h;
    block.c = bppsa_walk_behind(w, g->states, rows).c;
    block.saved = g->saved + (size_t)rows * w->saved_row;
    if (n->resets.active) {
      hide_states(w, g, s, false);
    }
    forward(&block);
    if (n->resets.active) {
      hide_states(w, g, s, true);
    }
  }
}

/* Computes `steps` steps of all lanes from the states in row 0. */
static void compute_window(const walk *w, group *g, int64_t steps) {
  const recurrent_network *n = w->n;
  const int64_t hidden = n->config.hidden, out = n->cell->gates * hidden;
  gather(w, g, steps);
  const bppsa_linear from_x = {n->config.dtype, 1, steps * g->count, w->input, out, .unit = g->count};
  bppsa_linear_forward(&from_x, g->x, n->w_t, n->bias, g->pre);
  bppsa_cell_block block = {.steps = steps,
                            .batch = g->count,
                            .hidden = hidden,
                            .samples = g->count,
                            .nonlinearity = n->config.nonlinearity,
                            .w_hh = n->w_hh,
                            .w_hh_t = n->w_hh_t,
                            .w_row = bppsa_dtype_padded(n->config.dtype, hidden),
                            .w_row_t = bppsa_dtype_padded(n->config.dtype, out),
                            .pre = g->pre,
                            .h = g->states.h,
                            .c = g->states.c,
                            .saved = g->saved};
  bppsa_recurrent_give_biases(n, w->layer, &block);
  const unsigned mode = bppsa_flush_begin();
  call_cell(w, g, &block);
  bppsa_flush_end(mode);
}

/* Settles every lane and moves those that go on together, their states to row 0. */
static void settle(const walk *w, group *g, int64_t steps) {
  int64_t left = 0;
  for (int64_t i = 0, count; w->phase == BPPSA_WALK_SPECULATE && i < g->count; i += count) {
    count = side_by_side(w, g, i);
    store_guesses(w, g, i, count, steps);
  }
  for (int64_t i = 0; i < g->count; ++i) {
    lane *l = &w->lanes[g->members[i]];
    bool jumped = false;
    if (w->phase == BPPSA_WALK_SPECULATE ? settle_guess(w, g, i, steps, l) : settle_mend(w, g, i, steps, l, &jumped)) {
      bppsa_walk_copy(w, bppsa_walk_behind(w, g->states, left),
                      jumped ? bppsa_walk_state(w, l->at, l->sample) : walked(w, g, steps - 1, i));
      g->members[left++] = g->members[i];
    }
  }
  g->count = left;
}

/* The number of steps of the next window: most mends end after a few. */
static int64_t window_steps(const walk *w, const group *g, int64_t before) {
  const int64_t most = w->n->forward.window, grown = w->phase == BPPSA_WALK_SPECULATE || 2 * before > most ? most : 2 * before;
  int64_t longest = 1;
  for (int64_t i = 0; w->phase != BPPSA_WALK_TAIL && i < g->count; ++i) {
    const lane *l = &w->lanes[g->members[i]];
    longest = bppsa_walk_stop(w, l) - l->at > longest ? bppsa_walk_stop(w, l) - l->at : longest;
  }
  return before == 0 && w->phase != BPPSA_WALK_SPECULATE ? 1 : w->phase != BPPSA_WALK_TAIL && longest < grown ? longest : grown;
}

/* The largest number of inputs of a step in any layer. */
static int64_t widest_input(const recurrent_network *n) {
  const int64_t outputs = bppsa_recurrent_outputs(&n->config);
  return outputs > n->config.input ? outputs : n->config.input;
}

/* A worker's part of the scratch memory: reals for one lane and one step of a window, in the order of struct group. */
int64_t bppsa_walk_lane_reals(const recurrent_network *n, int64_t input) {
  return input + (n->cell->gates + n->cell->saved) * n->config.hidden + bppsa_recurrent_state_size(n);
}

/* All of a worker's part, in reals: a window of a group, the states in front of it, and those that resets hide. */
int64_t bppsa_walk_scratch(const recurrent_network *n) {
  return n->forward.window * GROUP * bppsa_walk_lane_reals(n, widest_input(n)) +
         (n->config.resets ? 2 : 1) * GROUP * bppsa_recurrent_state_size(n);
}

static group group_of(const walk *w, int32_t worker) {
  const recurrent_network *n = w->n;
  const int64_t hidden = n->config.hidden, rows = n->forward.window * GROUP;
  group g = {.x = bppsa_recurrent_offset(n, n->forward.scratch, worker * bppsa_walk_scratch(n))};
  g.pre = bppsa_recurrent_offset(n, g.x, rows * widest_input(n));
  g.saved = bppsa_recurrent_offset(n, g.pre, rows * n->cell->gates * hidden);
  g.states.h = bppsa_recurrent_offset(n, g.saved, rows * n->cell->saved * hidden);
  g.states.c = n->cell->pair ? bppsa_recurrent_offset(n, g.states.h, (rows + GROUP) * hidden) : NULL;
  g.kept = bppsa_recurrent_offset(n, g.states.h, (rows + GROUP) * bppsa_recurrent_state_size(n));
  return g;
}

static void walk_groups(const void *context, int32_t worker, int64_t first, int64_t end) {
  const walk *w = context;
  group g = group_of(w, worker);
  for (int64_t index = first; index < end; ++index) {
    const int64_t from = index * GROUP;
    g.count = w->count - from < GROUP ? w->count - from : GROUP;
    for (int64_t i = 0; i < g.count; ++i) {
      g.members[i] = from + i;
      bppsa_walk_copy(w, bppsa_walk_behind(w, g.states, i), bppsa_walk_packed(w, w->n->forward.starts, from + i));
    }
    for (int64_t steps = 0; g.count > 0;) {
      steps = window_steps(w, &g, steps);
      compute_window(w, &g, steps);
      settle(w, &g, steps);
    }
  }
  bppsa_stream_end();
}

bppsa_status bppsa_walk_run(const walk *w) {
  const recurrent_network *n = w->n;
  if (n->gpu != NULL) {
    return bppsa_walk_run_gpu(w);
  }
  const double flops = 2 * (double)n->cell->gates * (double)n->config.hidden * (double)n->config.hidden;
  double steps = 0;
  for (int64_t i = 0; i < w->count; ++i) {
    steps += (double)(bppsa_walk_stop(w, &w->lanes[i]) - w->lanes[i].at);
  }
  bppsa_parallel_for((int32_t)n->forward.workers, (w->count + GROUP - 1) / GROUP, bppsa_loop_work(flops * steps, 0), walk_groups,
                     w);
  return BPPSA_OK;
}
