/* The parallel backward pass of a recurrent layer on a CPU: its phases, and its memory (recurrent/parallel_backward.h). Lanes walk
 * in recurrent/walk_back.c. The results are the deltas, from which the weight gradients follow, and g_0. */
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/philox.h"
#include "recurrent/pause.h"
#include "recurrent/walk_back.h"

/* Independent standard normal numbers, two from each pair of uniform ones (Box and Muller). */
void bppsa_back_draw(const recurrent_network *n, int64_t chunk, void *to) {
  const uint64_t stream = BPPSA_STREAM_PROBE + ((uint64_t)chunk << 8);
  for (int64_t i = 0; i < bppsa_recurrent_state_size(n); ++i) {
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

/* Is u_t 0 in the states first .. end that are here? */
static bool is_silent(const bppsa_back_walk *w, int64_t sample, int64_t first, int64_t end) {
  const int64_t begin = first > w->first ? first : w->first + 1, last = end < w->border ? end : w->border;
  for (int64_t t = begin; w->injected && t <= last; ++t) {
    if (bppsa_back_largest(w->n, w->state, bppsa_back_at_row(w, w->n->g, bppsa_back_row_of(w->n, t, sample), w->state)) !=
        0) { /* NaN is not 0 */
      return false;
    }
  }
  return true;
}

/* The state from which a chunk's lane walks, behind the chunk. *anew: its sample begins anew behind this state, whose gradient is
 * therefore u alone. */
static int64_t start_of_guess(const bppsa_back_walk *w, int64_t sample, int64_t index, bool *anew) {
  const recurrent_network *n = w->n;
  const int64_t steps = bppsa_back_length_of(n, sample), top = bppsa_back_begin_of(n, sample, index + 1),
                ahead = top + n->back.warm_up, start = ahead < steps ? ahead : steps;
  const int64_t reset = n->resets.active ? bppsa_resets_find(n, w->layer, top, start, sample, 1, false) : -1;
  *anew = reset >= 0;
  return *anew ? reset : start;
}

void bppsa_back_look(bppsa_back_walk *w) {
  const recurrent_network *n = w->n;
  for (int64_t b = 0; b < n->batch; ++b) {
    const int64_t chunks = bppsa_back_chunks_of(n, b);
    for (int64_t index = 0; index < chunks; ++index) {
      bool anew;
      const int64_t start = start_of_guess(w, b, index, &anew), bottom = bppsa_back_begin_of(n, b, index);
      bppsa_back_chunk *c = bppsa_back_chunk_of(n, b, index);
      *c = (bppsa_back_chunk){.exact = anew || start == bppsa_back_length_of(n, b)};
      c->cut = n->resets.active && bppsa_resets_find(n, w->layer, bottom, bppsa_back_begin_of(n, b, index + 1), b, 1, false) >= 0;
      c->silent = !c->exact && is_silent(w, b, bppsa_back_begin_of(n, b, index), start);
      c->doubtful = !c->exact && index + 1 < chunks;
      w->measures = w->measures || c->silent;
    }
  }
}

static void list_guess(bppsa_back_walk *w, int64_t sample, int64_t index) {
  const recurrent_network *n = w->n;
  const bppsa_back_chunk *c = bppsa_back_chunk_of(n, sample, index);
  bool anew;
  const int64_t top = bppsa_back_begin_of(n, sample, index + 1), start = start_of_guess(w, sample, index, &anew),
                at = c->silent ? top : start;
  if (!bppsa_back_is_here(w, at)) {
    return;
  }
  const bppsa_back_kind kind = anew        ? BPPSA_BACK_ZEROS
                               : c->exact  ? BPPSA_BACK_SEED
                               : c->silent ? BPPSA_BACK_PROBE
                                           : BPPSA_BACK_ZEROS;
  void *gradient = bppsa_back_lane_gradient(w, w->count);
  w->lanes[w->count++] = (bppsa_back_lane){
      .sample = sample, .chunk = index, .at = at, .top = top, .bottom = bppsa_back_begin_of(n, sample, index), .kind = kind};
  const size_t bytes = (size_t)w->state * w->real;
  if (kind == BPPSA_BACK_PROBE) {
    bppsa_back_draw(n, index, gradient);
    return;
  }
  if (kind == BPPSA_BACK_SEED || w->injected) {
    memcpy(gradient, bppsa_back_at_row(w, n->g, bppsa_back_row_of(n, at, sample), w->state), bytes);
  } else {
    memset(gradient, 0, bytes);
  }
  memcpy(bppsa_back_start_of(w, sample, index), gradient, bytes); /* where it has no warm-up */
}

void bppsa_back_list_guesses(bppsa_back_walk *w) {
  const recurrent_network *n = w->n;
  w->count = 0;
  for (int64_t index = n->back.plan.chunks - 1; index >= 0; --index) {
    for (int64_t b = 0; b < n->batch; ++b) {
      if (index < bppsa_back_chunks_of(n, b)) {
        list_guess(w, b, index);
      }
    }
  }
}

bool bppsa_back_is_finite(const bppsa_back_walk *w, int64_t sample, int64_t index) {
  return isfinite(bppsa_back_chunk_of(w->n, sample, index)->sum) &&
         isfinite(bppsa_back_largest(w->n, w->state, bppsa_back_end_of(w, sample, index)));
}

/* What may be dropped at each chunk of a sample. A lane shows how much a difference may grow on its way to the first step: as much
 * as its own gradient, or in a silent chunk as the random vector. */
static void find_scales(const bppsa_back_walk *w, int64_t sample) {
  enum { GROWS = 1000 /* times more than the lane's */ };
  const recurrent_network *n = w->n;
  double reach = 0, behind = 0;
  for (int64_t index = 0; index < bppsa_back_chunks_of(n, sample); ++index) {
    bppsa_back_chunk *c = bppsa_back_chunk_of(n, sample, index);
    const double through = c->cut ? 0 : c->silent ? c->probe : c->probe / c->start, onwards = through > 0 ? through * reach : 0;
    reach = (c->silent ? c->reach : c->sum / c->start) + onwards;
    c->reach = reach;
  }
  for (int64_t index = bppsa_back_chunks_of(n, sample) - 1; index >= 0; --index) {
    bppsa_back_chunk *c = bppsa_back_chunk_of(n, sample, index);
    const int64_t steps = bppsa_back_begin_of(n, sample, index + 1) - bppsa_back_begin_of(n, sample, index);
    const double block = steps < BPPSA_BACK_HEAD ? (double)steps : BPPSA_BACK_HEAD;
    const double local = fmin(c->sum / (double)steps, c->head / block), later = behind / (GROWS * c->reach);
    c->quiet = later > local && (c->silent || !w->passes_on); /* not where later is NaN */
    c->scale = c->quiet ? later : local;
    c->least = fmin(c->least / block, c->scale);
    behind += c->sum;
  }
}

void bppsa_back_weigh(const bppsa_back_walk *w) {
  recurrent_network *n = w->n;
  for (int64_t b = 0; b < n->batch; ++b) {
    for (int64_t index = 0; index < bppsa_back_chunks_of(n, b); ++index) {
      const bppsa_back_chunk *c = bppsa_back_chunk_of(n, b, index);
      n->back.need.compared += c->doubtful && !c->silent;
      if (c->silent) {
        memset(bppsa_back_start_of(w, b, index), 0, (size_t)w->state * w->real);
        memset(bppsa_back_end_of(w, b, index), 0, (size_t)w->state * w->real);
      }
    }
    find_scales(w, b);
  }
}

/* False: a number is not finite. */
static bool speculate(bppsa_back_walk *w) {
  const recurrent_network *n = w->n;
  bppsa_back_look(w);
  bppsa_back_list_guesses(w);
  bppsa_back_walk_lanes(w);
  bppsa_back_count_lanes(w);
  for (int64_t b = 0; b < n->batch; ++b) {
    for (int64_t index = 0; index < bppsa_back_chunks_of(n, b); ++index) {
      if (!bppsa_back_is_finite(w, b, index)) {
        return false;
      }
    }
  }
  bppsa_back_weigh(w);
  return true;
}

/* Writes the difference at the later end of a chunk. */
static void subtract(const bppsa_back_walk *w, int64_t sample, int64_t index, void *difference) {
  bppsa_back_subtract(w->n, w->state, bppsa_back_end_of(w, sample, index + 1), bppsa_back_start_of(w, sample, index), difference);
}

void bppsa_back_compare(const bppsa_back_walk *w) {
  const recurrent_network *n = w->n;
  const bppsa_backward_plan *plan = &n->back.plan;
  void *difference = bppsa_back_lane_gradient(w, 0);
  for (int64_t b = 0; b < n->batch; ++b) {
    double deltas = 0; /* Σ |δ_t|_2 behind the chunk */
    for (int64_t index = bppsa_back_chunks_of(n, b) - 1; index >= 0; --index) {
      bppsa_back_chunk *c = bppsa_back_chunk_of(n, b, index);
      if (c->doubtful && bppsa_back_is_here(w, bppsa_back_begin_of(n, b, index + 1))) {
        subtract(w, b, index, difference);
        c->size = bppsa_back_largest(n, w->state, difference);
        c->fits = !c->silent     ? c->size <= plan->accept * c->scale
                  : w->passes_on ? c->size == 0
                                 : bppsa_backward_silent(plan, bppsa_back_length(n, w->state, difference), c->reach, deltas);
      }
      deltas += c->deltas;
    }
  }
}

/* Lists a lane that begins here with the difference at a chunk's later end. last: nothing behind it walks. */
static void list_difference(bppsa_back_walk *w, int64_t sample, int64_t index, bool last) {
  const int64_t top = bppsa_back_begin_of(w->n, sample, index + 1);
  if (bppsa_back_is_here(w, top)) {
    subtract(w, sample, index, bppsa_back_lane_gradient(w, w->count));
    w->lanes[w->count++] = (bppsa_back_lane){.sample = sample,
                                             .chunk = index,
                                             .at = top,
                                             .top = top,
                                             .bottom = bppsa_back_begin_of(w->n, sample, index),
                                             .kind = BPPSA_BACK_DIFFERENCE,
                                             .final = last,
                                             .chunks = 1};
    memcpy(bppsa_back_start_of(w, sample, index), bppsa_back_end_of(w, sample, index + 1), (size_t)w->state * w->real);
  }
}

void bppsa_back_list_differences(bppsa_back_walk *w, bool tail) {
  const recurrent_network *n = w->n;
  w->count = w->mends = 0;
  for (int64_t b = 0; b < n->batch; ++b) {
    bool last = true;
    for (int64_t index = bppsa_back_chunks_of(n, b) - 1; index >= 0; --index) {
      bppsa_back_chunk *c = bppsa_back_chunk_of(n, b, index);
      c->walks = false;
      if (c->doubtful && (last || !tail)) {
        c->doubtful = false;
        c->dropped = c->fits ? c->size : 0;
        if (!c->fits) {
          list_difference(w, b, index, last);
          ++w->mends;
          c->begun = c->size;
          c->moved = -1;
          c->walks = true;
          last = false;
        }
      }
    }
  }
}

void bppsa_back_note_need(const bppsa_back_walk *w) {
  bppsa_backward_need *need = &w->n->back.need;
  for (int64_t i = 0; i < w->count; ++i) {
    const bppsa_back_lane *l = &w->lanes[i];
    if (!bppsa_back_leaves(w, l) && !bppsa_back_chunk_of(w->n, l->sample, l->chunk)->silent) {
      ++need->mended;
      need->longest = l->steps > need->longest ? l->steps : need->longest;
    }
  }
}

bool bppsa_back_leaks(const bppsa_back_walk *w) {
  const recurrent_network *n = w->n;
  for (int64_t b = 0; w->passes_on && w->measures && b < n->batch; ++b) {
    for (int64_t index = 0; index < bppsa_back_chunks_of(n, b); ++index) {
      const bppsa_back_chunk *c = bppsa_back_chunk_of(n, b, index);
      if (c->silent && c->walks) {
        return true;
      }
    }
  }
  return false;
}

bool bppsa_back_hopeless(const bppsa_back_walk *w) {
  const recurrent_network *n = w->n;
  const int64_t chunks = n->back.plan.chunks;
  double rounds = 0;
  for (int64_t b = 0; b < n->batch; ++b) {
    for (int64_t index = 1; index < bppsa_back_chunks_of(n, b); ++index) {
      const bppsa_back_chunk *c = bppsa_back_chunk_of(n, b, index);
      if (!c->walks || c->silent || c->moved < 0) {
        continue;
      }
      const double shrinks = log(c->begun / c->moved), left = log(c->moved / (n->back.plan.accept * (c - 1)->scale));
      const double needed = left <= 0 ? 0 : shrinks > 0 ? left / shrinks : (double)index;
      rounds = fmax(rounds, fmin(needed, (double)index));
    }
  }
  return 2 * (2 + rounds) > (double)chunks + 2;
}

void bppsa_back_count_dropped(const bppsa_back_walk *w) {
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

bppsa_back_walk bppsa_back_walk_of(recurrent_network *n, int64_t l, const void *x) {
  const int64_t first = n->config.part.first;
  return (bppsa_back_walk){.n = n,
                           .layer = l,
                           .injected = bppsa_recurrent_injected(n, l),
                           .state = bppsa_recurrent_state_size(n),
                           .width = n->cell->gates * n->config.hidden,
                           .real = bppsa_dtype_size(n->config.dtype),
                           .x = x,
                           .input = n->layers[l].input,
                           .parts = INT64_MAX,
                           .passes_on = bppsa_recurrent_level(n, l) > 0,
                           .first = first,
                           .border = first + n->config.seq_len,
                           .lanes = n->back.lanes};
}

bool bppsa_back_layer(recurrent_network *n, int64_t l, const void *x, int64_t parts) {
  recurrent_backward *b = &n->back;
  bppsa_back_walk w = bppsa_back_walk_of(n, l, x);
  w.sums = parts > 0;
  w.parts = parts > 0 ? parts : w.parts;
  w.delta_x = parts == 0 || n->config.input_gradients || bppsa_recurrent_level(n, l) > 0 ? n->pre : NULL;
  w.delta_h = parts == 0 && n->cell->split ? n->delta_h : NULL;
  if (!speculate(&w)) {
    return false;
  }
  w.adds = true;
  bppsa_back_compare(&w);
  bppsa_back_list_differences(&w, false);
  if (w.count > 0 && parts > 0) {
    bppsa_recurrent_clear_sums(n, l, true);
  }
  int64_t rounds = 0;
  while (w.mends > 0) {
    if (bppsa_back_leaks(&w)) {
      return false;
    }
    bppsa_back_walk_lanes(&w);
    bppsa_back_count_lanes(&w);
    if (++rounds == 1) {
      if (bppsa_back_hopeless(&w)) {
        return false;
      }
      bppsa_back_note_need(&w);
    }
    bppsa_back_compare(&w);
    bppsa_back_list_differences(&w, rounds >= b->plan.rounds);
  }
  if (rounds > 0 && parts > 0) {
    bppsa_recurrent_join_sums(n, l);
  }
  b->stats.rounds = rounds > b->stats.rounds ? rounds : b->stats.rounds;
  bppsa_back_count_dropped(&w);
  for (int64_t s = 0; s < n->batch; ++s) {
    memcpy(bppsa_back_at_row(&w, n->g, s, w.state), bppsa_back_end_of(&w, s, 0), (size_t)w.state * w.real);
  }
  return true;
}

/* ---- a pass, and its memory ---- */

/* Does the loss have a gradient at every step of every sample that is here? */
static bool reaches_all(const recurrent_network *n) {
  const bppsa_recurrent_config *c = &n->config;
  const int64_t width = n->seeds_states ? bppsa_recurrent_outputs(c) : c->classes;
  for (int64_t b = 0; c->loss_all && n->seed != NULL && b < n->batch; ++b) {
    const int64_t place = bppsa_ragged_sample(n, b), steps = n->ragged.active ? bppsa_back_length_of(n, b) : c->seq_len;
    for (int64_t t = 0; t < steps; ++t) {
      if (bppsa_back_largest(n, width, bppsa_recurrent_offset(n, n->seed, (t * n->batch + place) * width)) == 0) {
        return false;
      }
    }
  }
  return c->loss_all && n->seed != NULL;
}

bppsa_status bppsa_back_begin(recurrent_network *n) {
  recurrent_backward *b = &n->back;
  const int64_t steps = n->forward.seq_len * bppsa_recurrent_layers(&n->config);
  b->stats = (bppsa_backward_stats){.passes = 1, .path = steps, .possible = steps, .work = 1};
  if (n->gpu != NULL) {
    return BPPSA_OK;
  }
  bool may = b->plan.speculative;
  if (may && n->config.speculation.exact_inputs && n->config.input_gradients) {
    may = reaches_all(n);
    BPPSA_TRY(bppsa_back_is_part(n) ? bppsa_back_part_agree(n, &may) : BPPSA_OK);
  }
  const bool speculates = may && b->state.pause.left == 0;
  b->state.pause.left -= may && !speculates;
  b->stats.speculated = speculates;
  if (!speculates) {
    return BPPSA_OK;
  }
  b->stats.work = 0;
  b->warm_up = b->state.warm_up > 0 ? b->state.warm_up : b->plan.warm_up;
  b->need = (bppsa_backward_need){0};
  memset(b->paths, 0, (size_t)n->batch * sizeof *b->paths);
  b->rows[0] = 0;
  for (int64_t k = 0, step = 1; k < bppsa_ragged_stretches(n); ++k) {
    const recurrent_stretch s = bppsa_ragged_stretch(n, k);
    for (int64_t t = 0; t < s.steps; ++t, ++step) { /* the samples that run are the last ones */
      b->rows[step] = n->batch + s.row + t * s.samples - (n->batch - s.samples);
    }
  }
  return BPPSA_OK;
}

/* Rows of all steps of all samples, also of those that other parts of the sequence have. */
static double all_rows(const recurrent_network *n) {
  return bppsa_back_is_part(n) ? (double)n->forward.seq_len * (double)n->batch : (double)bppsa_ragged_rows(n);
}

void bppsa_back_given_up(recurrent_network *n) {
  n->back.stats.given_up = true;
  n->back.stats.work += all_rows(n);
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
  b->stats.work /= all_rows(n) * (double)bppsa_recurrent_layers(&n->config);
  if (!b->stats.given_up) {
    b->state.warm_up = bppsa_backward_next_warm_up(&b->plan, n->forward.seq_len, b->warm_up, &b->need);
  }
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
  BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, b->workers, 1, bppsa_back_scratch_reals(n), &b->scratch, bytes));
  return bppsa_back_part_visit(n, visit, bytes);
}

void bppsa_back_free(recurrent_network *n) {
  recurrent_backward *b = &n->back;
  void *const arrays[] = {b->sums,
                          b->hidden_sums,
                          b->lanes,
                          b->chunks,
                          b->paths,
                          b->longest,
                          b->rows,
                          b->starts,
                          b->ends,
                          b->scratch,
                          b->lane_gradients,
                          b->part.numbers,
                          b->part.chunks,
                          b->part.in,
                          b->part.out,
                          b->part.sums,
                          b->part.gradients_in,
                          b->part.gradients_out,
                          b->part.carried};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; ++i) {
    bppsa_free(arrays[i]);
  }
}
