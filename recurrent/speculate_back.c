/* The parallel backward pass of a recurrent layer on a CPU: its phases, and its memory (recurrent/parallel_backward.h). Lanes walk
 * in recurrent/walk_back.c. The results are the deltas, from which the weight gradients follow, and g_0. */
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/philox.h"
#include "recurrent/pause.h"
#include "recurrent/walk_back.h"

/* Independent standard normal numbers, two from each pair of uniform ones (Box and Muller). */
static void draw(const recurrent_network *n, uint64_t stream, int64_t count, void *to) {
  for (int64_t i = 0; i < count; ++i) {
    const double u = bppsa_random_double(0, stream, (uint64_t)(2 * i)), v = bppsa_random_double(0, stream, (uint64_t)(2 * i + 1)),
                 drawn = sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v);
    if (n->config.dtype == BPPSA_F32) {
      ((float *)to)[i] = (float)drawn;
    } else {
      ((double *)to)[i] = drawn;
    }
  }
}

/* ---- the phases ---- */

/* Is u_t 0 in so many states from `first` on? */
static bool is_silent(const bppsa_back_walk *w, int64_t sample, int64_t first, int64_t end) {
  for (int64_t t = first; w->injected && t <= end; ++t) {
    if (bppsa_back_largest(w->n, w->state, bppsa_back_at_row(w, w->n->g, bppsa_back_row_of(w->n, t, sample), w->state)) !=
        0) { /* NaN is not 0 */
      return false;
    }
  }
  return true;
}

static void list_guess(bppsa_back_walk *w, int64_t sample, int64_t index) {
  const recurrent_network *n = w->n;
  const int64_t chunks = bppsa_back_chunks_of(n, sample), steps = bppsa_back_length_of(n, sample),
                top = bppsa_back_begin_of(n, sample, index + 1);
  const int64_t early = steps - top < n->back.plan.warm_up ? steps - top : n->back.plan.warm_up;
  bppsa_back_chunk *c = bppsa_back_chunk_of(n, sample, index);
  bppsa_back_lane *l = &w->lanes[w->count];
  void *gradient = bppsa_back_lane_gradient(w, w->count++);
  *l = (bppsa_back_lane){
      .sample = sample, .chunk = index, .at = top + early, .top = top, .bottom = bppsa_back_begin_of(n, sample, index)};
  *c = (bppsa_back_chunk){.exact = top + early == steps};
  c->silent = !c->exact && is_silent(w, sample, l->bottom, l->at);
  w->measures = w->measures || c->silent;
  c->doubtful = !c->exact && index + 1 < chunks;
  l->kind = c->exact ? BPPSA_BACK_SEED : c->silent ? BPPSA_BACK_PROBE : BPPSA_BACK_ZEROS;
  const size_t bytes = (size_t)w->state * w->real;
  if (l->kind == BPPSA_BACK_PROBE) {
    const uint64_t stream = BPPSA_STREAM_PROBE + ((uint64_t)index << 8);
    l->at = top;
    draw(n, stream, w->state, gradient);
    return;
  }
  if (l->kind == BPPSA_BACK_SEED || w->injected) {
    memcpy(gradient, bppsa_back_at_row(w, n->g, bppsa_back_row_of(n, l->at, sample), w->state), bytes);
  } else {
    memset(gradient, 0, bytes);
  }
  memcpy(bppsa_back_start_of(w, sample, index), gradient, bytes); /* where it has no warm-up */
}

/* False: a number is not finite. */
static bool speculate(bppsa_back_walk *w) {
  const recurrent_network *n = w->n;
  w->count = 0;
  for (int64_t index = n->back.plan.chunks - 1; index >= 0; --index) {
    for (int64_t b = 0; b < n->batch; ++b) {
      if (index < bppsa_back_chunks_of(n, b)) {
        list_guess(w, b, index);
      }
    }
  }
  bppsa_back_walk_lanes(w);
  bool finite = true;
  for (int64_t b = 0; b < n->batch; ++b) {
    const int64_t chunks = bppsa_back_chunks_of(n, b);
    double behind = 0, reach = 0;
    for (int64_t index = chunks - 1; index >= 0; --index) {
      bppsa_back_chunk *c = bppsa_back_chunk_of(n, b, index);
      const double mean = c->sum / (double)(bppsa_back_begin_of(n, b, index + 1) - bppsa_back_begin_of(n, b, index));
      const double share = behind / (double)bppsa_back_length_of(n, b);
      c->scale = mean > share ? mean : share;
      behind += c->sum;
      finite = finite && isfinite(c->sum) && isfinite(bppsa_back_largest(w->n, w->state, bppsa_back_end_of(w, b, index)));
      if (c->silent) {
        memset(bppsa_back_start_of(w, b, index), 0, (size_t)w->state * w->real);
        memset(bppsa_back_end_of(w, b, index), 0, (size_t)w->state * w->real);
      }
    }
    for (int64_t index = 0; index < chunks; ++index) {
      bppsa_back_chunk *c = bppsa_back_chunk_of(n, b, index);
      reach = c->silent ? c->reach + c->probe * reach : 0;
      c->reach = reach;
    }
  }
  return finite;
}

/* Is the difference at a chunk's boundary small enough to be dropped? deltas: Σ |δ_t|_2 behind it. */
static bool accepts(const bppsa_back_walk *w, bppsa_back_chunk *c, const void *difference, double deltas) {
  const bppsa_backward_plan *plan = &w->n->back.plan;
  const double size = bppsa_back_largest(w->n, w->state, difference);
  c->dropped = size;
  return c->silent ? bppsa_backward_silent(plan, bppsa_back_length(w->n, w->state, difference), c->reach, deltas)
                   : size <= plan->accept * c->scale;
}

/* Lists the lanes of a round: the doubtful chunks of every sample whose differences are too large; in the tail the last one
 * alone. */
static void list_differences(bppsa_back_walk *w, bool tail) {
  const recurrent_network *n = w->n;
  w->count = 0;
  for (int64_t b = 0; b < n->batch; ++b) {
    bool last = true;
    double deltas = 0;
    for (int64_t index = bppsa_back_chunks_of(n, b) - 1; index >= 0; --index) {
      bppsa_back_chunk *c = bppsa_back_chunk_of(n, b, index);
      c->walks = false;
      if (c->doubtful && (last || !tail)) {
        void *difference = bppsa_back_lane_gradient(w, w->count), *end = bppsa_back_end_of(w, b, index + 1),
             *start = bppsa_back_start_of(w, b, index);
        bppsa_back_subtract(n, w->state, end, start, difference);
        c->doubtful = false;
        if (!accepts(w, c, difference, deltas)) {
          const int64_t top = bppsa_back_begin_of(n, b, index + 1);
          w->lanes[w->count++] = (bppsa_back_lane){.sample = b,
                                                   .chunk = index,
                                                   .at = top,
                                                   .top = top,
                                                   .bottom = bppsa_back_begin_of(n, b, index),
                                                   .kind = BPPSA_BACK_DIFFERENCE,
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
static bool hopeless(const bppsa_back_walk *w) {
  const recurrent_network *n = w->n;
  const int64_t chunks = n->back.plan.chunks;
  double rounds = 0;
  for (int64_t i = 0; i < w->count; ++i) {
    const bppsa_back_lane *l = &w->lanes[i];
    const bppsa_back_chunk *c = bppsa_back_chunk_of(n, l->sample, l->chunk);
    if (l->at > l->bottom || c->silent || l->chunk == 0) {
      continue;
    }
    const double begun = bppsa_back_largest(w->n, w->state, bppsa_back_lane_gradient(w, i)), shrinks = log(begun / c->moved),
                 left = log(c->moved / (n->back.plan.accept * bppsa_back_chunk_of(n, l->sample, l->chunk - 1)->scale));
    const double needed = left <= 0 ? 0 : shrinks > 0 ? left / shrinks : (double)l->chunk;
    rounds = fmax(rounds, fmin(needed, (double)l->chunk));
  }
  return 2 * (2 + rounds) > (double)chunks + 2;
}

static void count_dropped(const bppsa_back_walk *w) {
  recurrent_network *n = w->n;
  bppsa_backward_stats *s = &n->back.stats;
  for (int64_t b = 0; b < n->batch; ++b) {
    double dropped = 0, all = 0;
    for (int64_t index = 0; index < bppsa_back_chunks_of(n, b); ++index) {
      const bppsa_back_chunk *c = bppsa_back_chunk_of(n, b, index);
      dropped += c->dropped + c->stopped;
      all += c->sum;
      s->gap = c->dropped > 0 ? fmax(s->gap, c->dropped / c->scale) : s->gap;
    }
    s->perturbation = dropped > 0 ? fmax(s->perturbation, dropped / all) : s->perturbation;
  }
}

bool bppsa_back_layer(recurrent_network *n, int64_t l, const void *x, int64_t parts) {
  recurrent_backward *b = &n->back;
  bppsa_back_walk w = {.n = n,
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
    bppsa_back_walk_lanes(&w);
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
    memcpy(bppsa_back_at_row(&w, n->g, s, w.state), bppsa_back_end_of(&w, s, 0), (size_t)w.state * w.real);
  }
  return true;
}

/* ---- a pass, and its memory ---- */

/* Does the loss have a gradient at every step of every sample? */
static bool reaches_all(const recurrent_network *n) {
  const bppsa_recurrent_config *c = &n->config;
  const int64_t width = n->seeds_states ? bppsa_recurrent_outputs(c) : c->classes;
  for (int64_t b = 0; c->loss_all && b < n->batch; ++b) {
    const int64_t place = bppsa_ragged_sample(n, b);
    for (int64_t t = 0; t < bppsa_back_length_of(n, b); ++t) {
      if (bppsa_back_largest(n, width, bppsa_recurrent_offset(n, n->seed, (t * n->batch + place) * width)) == 0) {
        return false;
      }
    }
  }
  return c->loss_all;
}

bool bppsa_back_begin(recurrent_network *n) {
  recurrent_backward *b = &n->back;
  const int64_t steps = n->config.seq_len * bppsa_recurrent_layers(&n->config);
  const bool exact = n->config.speculation.exact_inputs && n->config.input_gradients,
             may = b->plan.speculative && (!exact || reaches_all(n)), speculates = may && b->state.pause.left == 0;
  b->state.pause.left -= may && !speculates;
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

void bppsa_back_given_up(recurrent_network *n) {
  n->back.stats.given_up = true;
  n->back.stats.work += (double)bppsa_ragged_rows(n);
  for (int64_t b = 0; b < n->batch; ++b) {
    n->back.paths[b] += bppsa_back_length_of(n, b);
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
  b->state.pause = bppsa_forward_pause_end(bppsa_backward_fails(&b->plan, &b->stats), b->state.pause);
}

bppsa_status bppsa_back_visit(recurrent_network *n, bppsa_recurrent_visit visit, int64_t *bytes) {
  enum { BYTES = 1 << 17, LEAST_WINDOW = 4 };
  recurrent_backward *b = &n->back;
  const int64_t batch = n->config.batch, state = bppsa_recurrent_state_size(n);
  int64_t lanes, size;
  if (!b->plan.speculative) {
    return BPPSA_OK;
  }
  if (!bppsa_mul(b->plan.chunks, batch, &lanes) ||
      !bppsa_mul(lanes, (int64_t)(sizeof(bppsa_back_lane) + sizeof(bppsa_back_chunk)), &size)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "backward pass: %lld chunks of %lld samples do not fit in 64 bits",
                      (long long)b->plan.chunks, (long long)batch);
  }
  const int64_t fitting = BYTES / (BPPSA_BACK_GROUP * bppsa_back_lane_reals(n) * (int64_t)bppsa_dtype_size(n->config.dtype)),
                groups = (lanes + BPPSA_BACK_GROUP - 1) / BPPSA_BACK_GROUP;
  b->window = fitting > BPPSA_BACK_MOST_WINDOW ? BPPSA_BACK_MOST_WINDOW : fitting < LEAST_WINDOW ? LEAST_WINDOW : fitting;
  b->workers = groups < n->threads ? groups : n->threads;
  BPPSA_TRY(visit(&b->lanes, lanes * (int64_t)sizeof(bppsa_back_lane), bytes));
  BPPSA_TRY(visit(&b->chunks, lanes * (int64_t)sizeof(bppsa_back_chunk), bytes));
  BPPSA_TRY(visit((void **)&b->paths, batch * (int64_t)sizeof *b->paths, bytes));
  BPPSA_TRY(visit((void **)&b->longest, batch * (int64_t)sizeof *b->longest, bytes));
  BPPSA_TRY(visit((void **)&b->rows, (n->config.seq_len + 1) * (int64_t)sizeof *b->rows, bytes));
  BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, b->plan.chunks, batch, state, &b->starts, bytes));
  BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, b->plan.chunks, batch, state, &b->ends, bytes));
  BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, b->plan.chunks, batch, state, &b->lane_gradients, bytes));
  return bppsa_recurrent_visit_array(n, visit, b->workers, 1, bppsa_back_scratch_reals(n), &b->scratch, bytes);
}

void bppsa_back_free(recurrent_network *n) {
  recurrent_backward *b = &n->back;
  void *const arrays[] = {b->sums, b->hidden_sums, b->lanes, b->chunks,         b->paths,  b->longest,
                          b->rows, b->starts,      b->ends,  b->lane_gradients, b->scratch};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; ++i) {
    bppsa_free(arrays[i]);
  }
}
