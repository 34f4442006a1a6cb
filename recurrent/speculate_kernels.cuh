/* The forward pass in parallel over time (recurrent/forward.h), for H <= 32: a warp for each chunk and sample, with W_hh in
 * registers as in forward_kernels.cuh. The host never waits: every kernel finds in memory what those before it left to do.
 *
 *     speculate     every chunk from W steps early
 *     mend          a round: verifies the chunks that are doubtful and walks through those that do not fit
 *     speculate     after the first round, the chunks behind the first one that moved far begin anew from its end
 *     tail          a warp for each sample: what is still doubtful, one chunk after the other
 *     (sequential)  bppsa_recurrent_forward, during a pause instead of all others
 *     collect       sums up what was done, and decides about pauses
 *
 * A round reads the ends and doubts of the round before it and writes those of its own, for every chunk. */
#ifndef BPPSA_RECURRENT_SPECULATE_KERNELS_CUH
#define BPPSA_RECURRENT_SPECULATE_KERNELS_CUH

#include <string.h>

#include "core/cut.h"
#include "recurrent/forward_kernels.cuh"
#include "recurrent/pause.h"
#include "recurrent/settle.h"
#include "recurrent/speculate.cuh"

template <typename real> __device__ __forceinline__ real distance_of(real a, real b) {
  return a > b ? a - b : b - a;
}

__device__ __forceinline__ bool same_bits(float a, float b) {
  return __float_as_int(a) == __float_as_int(b);
}
__device__ __forceinline__ bool same_bits(double a, double b) {
  return __double_as_longlong(a) == __double_as_longlong(b);
}

/* How far the new state of a unit is from the stored one: h, and of a pair c, which has no bound, relative to max(1, |c|). 0 where
 * both have the same bits; NaN where they cannot be compared. */
template <bool PAIR, typename real>
__device__ __forceinline__ real unit_distance(real h, real stored, real c, real stored_c, bool *same) {
  *same = same_bits(h, stored) && (!PAIR || same_bits(c, stored_c));
  real distance = *same ? 0 : distance_of(h, stored);
  if (PAIR && !*same) {
    const real size = c < 0 ? -c : c, of_c = distance_of(c, stored_c) / (size > 1 ? size : 1);
    distance = of_c > distance || of_c != of_c ? of_c : distance;
  }
  return distance;
}

/* One of the two places of ends and doubts. An index that is no constant would put all of the kernel's parameters on the stack. */
template <typename T> __device__ __forceinline__ T *place_of_round(T *const places[2], int place) {
  return place == 0 ? places[0] : places[1];
}

/* The first chunk from `from` on for which `is` holds; C: none. A warp asks for 32 chunks at once. The same in all its lanes. */
template <typename predicate>
__device__ __forceinline__ int64_t first_chunk(int64_t from, int64_t chunks, int lane, const predicate &is) {
  for (; from < chunks; from += WARP_LANES) {
    const int64_t chunk = from + lane;
    const unsigned found = __ballot_sync(0xffffffffu, chunk < chunks && is(chunk));
    int64_t first = from;
    for (unsigned left = found; found != 0 && (left & 1) == 0; left >>= 1) {
      ++first;
    }
    if (found != 0) {
      return first;
    }
  }
  return chunks;
}

/* The first chunk of sample b that moved far in the first round; C: none. */
template <typename real>
__device__ int64_t first_far(const layer_arrays<real> &c, const speculate_arrays<real> &s, int lane, int64_t b) {
  const int *found = s.found + s.chunks * c.batch;
  return first_chunk(0, s.chunks, lane,
                     [&](int64_t chunk) { return chunk > 0 && (found[chunk * c.batch + b] & SPECULATE_FAR) != 0; });
}

/* The next chunk of sample b, from `from` on, that the rounds left doubtful; C: none. */
template <typename real>
__device__ __forceinline__ int64_t next_doubtful(const speculate_arrays<real> &s, int in, int64_t from, int lane, int64_t batch,
                                                 int64_t b) {
  const int *doubtful = place_of_round(s.doubtful, in);
  return first_chunk(from, s.chunks, lane, [&](int64_t chunk) { return doubtful[chunk * batch + b] != 0; });
}

/* The tail writes what it did with the chunks that it walks through. This clears a chunk's numbers beforehand. */
template <typename real>
__device__ __forceinline__ void clear_tail(const speculate_arrays<real> &s, int64_t slot, int64_t batch) {
  const int64_t item = (SPECULATE_PHASES - 1) * s.chunks * batch + slot;
  s.steps[item] = s.found[item] = 0;
}

/* ANEW: chunks behind the first one that moved far in the first round; the others are left as they are. */
template <typename real, template <typename> class cell, int HP, bool ONE, bool ANEW>
__global__ void __launch_bounds__(WARP_LANES) bppsa_recurrent_speculate(layer_arrays<real> c, speculate_arrays<real> s) {
  enum { K = cell<real>::MATRICES, AHEAD = cell<real>::AHEAD, PAIR = cell<real>::PAIR };
  BPPSA_SHARED(real, memory);
  const int lane = (int)threadIdx.x;
  const int64_t p = blockIdx.x / c.batch, b = blockIdx.x % c.batch, hidden = c.hidden, j = lane < hidden ? lane : 0;
  real *shared = launch_held(memory);
  forward_lane<real, K, HP, AHEAD, ONE> l = {};
  if (s.report->pause.left > 0) {
    return;
  }
  const int64_t from = ANEW ? first_far(c, s, lane, b) + 1 : 0,
                least = ANEW && from < s.chunks ? bppsa_cut(c.steps, s.chunks, from) : 0;
  const int64_t slot = p * c.batch + b, item = (ANEW ? SPECULATE_ANEW : 0) * s.chunks * c.batch + slot;
  s.steps[item] = s.found[item] = 0;
  if (p < from) {
    return;
  }
  const int64_t begin = bppsa_cut(c.steps, s.chunks, p), end = bppsa_cut(c.steps, s.chunks, p + 1);
  const int64_t at = begin - s.warm_up > least ? begin - s.warm_up : least;
  forward_prepare<real, cell>(c, lane, shared, &l);
  const int64_t from_end = ((from - 1) * c.batch + b) * (1 + PAIR) * hidden + j;
  l.h = ANEW ? s.ends[1][from_end] : at == 0 ? c.h[b * hidden + j] : 0;
  if constexpr (PAIR) {
    l.c = ANEW ? s.ends[1][from_end + hidden] : at == 0 ? c.cells[b * hidden + j] : 0;
  }
  const int64_t state = l.state, saved_row = l.saved_row;
  forward_seek<real, cell>(c, lane, b, at, &l);
  l.h_to = s.aside + slot * (1 + PAIR + cell<real>::SAVED) * hidden + j; /* all steps of the warm-up write to one place */
  l.c_to = l.h_to + hidden;
  l.saved_to = l.h_to + (1 + PAIR) * hidden;
  l.state = l.saved_row = 0;
  forward_run<real, cell>(c, lane, begin - at, shared, &l);
  __syncwarp();
  l.state = state;
  l.saved_row = saved_row;
  forward_seek<real, cell>(c, lane, b, begin, &l);
  forward_run<real, cell>(c, lane, end - begin, shared, &l);
  s.ends[ANEW][slot * (1 + PAIR) * hidden + j] = l.h;
  if constexpr (PAIR) {
    s.ends[ANEW][(2 * slot + 1) * hidden + j] = l.c;
  }
  s.doubtful[ANEW][slot] = at > least;
  s.steps[item] = (int)(end - at);
  if (!ANEW) {
    s.gaps[slot] = 0;
    clear_tail(s, slot, c.batch);
  }
}

/* Is every unit of a warp the same as the stored one, or at most as far away as a tolerance relative to `size`? */
template <typename real> __device__ __forceinline__ bool warp_within(bool same, real distance, double size, double tolerance) {
  const double most = tolerance * size; /* infinite where a state has overflowed: then only bits count */
  return !__any_sync(0xffffffffu, !(same || (tolerance > 0 && isfinite(most) && (double)distance <= most)));
}

/* Does a walk stop at step t? is_within(tolerance): is the new state as close to the stored one, for all threads alike? It is asked
 * twice at most, in a loop, so that its code and registers are there once. since: as of bppsa_walk_settles. */
template <typename real, typename test>
__device__ __forceinline__ bool walk_stops(const speculate_arrays<real> &s, bool first, int64_t t, const test &is_within,
                                           int64_t *since) {
  double tolerance = first ? s.accept : s.stop;
  bool within = false, other = true; /* other: within one rounding, or near */
  BPPSA_UNROLL_BY(1)
  for (int asked = 0; asked < 2; ++asked) {
    const bool answer = is_within(tolerance);
    within = asked == 0 ? answer : within;
    other = asked == 0 ? other : answer;
    if (first || (!within && *since == BPPSA_SETTLE_NEVER)) {
      break;
    }
    tolerance = within ? s.settled : BPPSA_SETTLE_GROWTH * s.stop;
  }
  return first ? within : bppsa_walk_settles(within && other, within, within || other, t, since);
}

/* What a walk through a chunk found. */
template <typename real> struct walked {
  int steps, found;
  double gap;
};

/* Walks from h_begin in l until new and stored states agree, or to the end of the chunk. */
template <typename real, template <typename> class cell, int HP, int AHEAD, bool ONE, int K>
__device__ __forceinline__ walked<real> walk_chunk(const layer_arrays<real> &c, const speculate_arrays<real> &s, int lane,
                                                   int64_t b, int64_t begin, int64_t end, real *shared,
                                                   forward_lane<real, K, HP, AHEAD, ONE> *l) {
  enum { PAIR = cell<real>::PAIR };
  walked<real> w = {};
  const int64_t hidden = c.hidden, j = lane < hidden ? lane : 0;
  int64_t since = BPPSA_SETTLE_NEVER;
  for (int64_t t = begin; t < end; ++t) {
    const int64_t row = t * c.batch + b;
    real x[K];
    forward_seek<real, cell>(c, lane, b, t, l);
    real *place = l->h_to, *place_c = l->c_to;
    const real stored = *place, stored_c = PAIR ? *place_c : 0;
    BPPSA_UNROLL
    for (int k = 0; k < (ONE ? 1 : K); ++k) {
      x[k] = ONE ? c.x[row] : c.pre[(row * K + k) * hidden + j];
    }
    forward_step<real, cell, HP, AHEAD, ONE, K>(c, lane, x, shared + (t - begin) % 2 * HP, l);
    bool same;
    const real distance = unit_distance<PAIR>(l->h, stored, l->c, stored_c, &same), size = l->h < 0 ? -l->h : l->h;
    const double largest = c.relu ? (double)warp_largest(size) : 1, unit = largest > 1 ? largest : 1;
    const auto is_within = [=](double tolerance) { return warp_within(same, distance, unit, tolerance); };
    ++w.steps;
    if (walk_stops(s, t == begin, t, is_within, &since)) {
      *place = stored; /* and what was saved with this step belongs to the state in front of it */
      if constexpr (PAIR) {
        *place_c = stored_c;
      }
      w.gap = (double)warp_largest(distance);
      return w;
    }
    w.found |= SPECULATE_CHANGED;
    if (t + 1 == end) {
      w.found |= SPECULATE_REACHED | ((double)warp_largest(distance) > s.far ? SPECULATE_FAR : 0);
    }
  }
  return w;
}

/* Round `round`, from 1, in phase `phase`. `in`: where the ends and doubts before it are. */
template <typename real, template <typename> class cell, int HP, bool ONE>
__global__ void __launch_bounds__(WARP_LANES)
    bppsa_recurrent_mend(layer_arrays<real> c, speculate_arrays<real> s, int phase, int in) {
  enum { K = cell<real>::MATRICES, AHEAD = cell<real>::AHEAD, PAIR = cell<real>::PAIR };
  BPPSA_SHARED(real, memory);
  const int lane = (int)threadIdx.x;
  const int64_t p = blockIdx.x / c.batch, b = blockIdx.x % c.batch, hidden = c.hidden, j = lane < hidden ? lane : 0;
  const int64_t slot = p * c.batch + b, item = phase * s.chunks * c.batch + slot;
  const int64_t end = slot * (1 + PAIR) * hidden + j, before = (slot - c.batch) * (1 + PAIR) * hidden + j;
  real *shared = launch_held(memory);
  forward_lane<real, K, HP, AHEAD, ONE> l = {};
  if (s.report->pause.left > 0) {
    return;
  }
  walked<real> w = {};
  real last = place_of_round(s.ends, in)[end], last_c = PAIR ? place_of_round(s.ends, in)[end + PAIR * hidden] : 0;
  if (place_of_round(s.doubtful, in)[slot] != 0) { /* never of chunk 0 */
    forward_prepare<real, cell>(c, lane, shared, &l);
    l.h = place_of_round(s.ends, in)[before];
    l.c = PAIR ? place_of_round(s.ends, in)[before + PAIR * hidden] : 0;
    w = walk_chunk<real, cell>(c, s, lane, b, bppsa_cut(c.steps, s.chunks, p), bppsa_cut(c.steps, s.chunks, p + 1), shared, &l);
    last = (w.found & SPECULATE_REACHED) != 0 ? l.h : last;
    last_c = (w.found & SPECULATE_REACHED) != 0 ? l.c : last_c;
  }
  place_of_round(s.ends, 1 - in)[end] = last;
  if constexpr (PAIR) {
    place_of_round(s.ends, 1 - in)[end + hidden] = last_c;
  }
  if (p + 1 < s.chunks) {
    place_of_round(s.doubtful, 1 - in)[slot + c.batch] = (w.found & SPECULATE_REACHED) != 0;
  }
  if (p == 0) {
    place_of_round(s.doubtful, 1 - in)[slot] = 0;
  }
  s.steps[item] = w.steps;
  s.found[item] = w.found;
  s.gaps[slot] = w.gap > s.gaps[slot] ? w.gap : s.gaps[slot];
}

/* What is still doubtful, sample by sample. */
template <typename real, template <typename> class cell, int HP, bool ONE>
__global__ void __launch_bounds__(WARP_LANES) bppsa_recurrent_tail(layer_arrays<real> c, speculate_arrays<real> s, int in) {
  enum { K = cell<real>::MATRICES, AHEAD = cell<real>::AHEAD, PHASE = SPECULATE_PHASES - 1 };
  BPPSA_SHARED(real, memory);
  const int lane = (int)threadIdx.x;
  const int64_t b = blockIdx.x, hidden = c.hidden, j = lane < hidden ? lane : 0;
  real *shared = launch_held(memory);
  forward_lane<real, K, HP, AHEAD, ONE> l = {};
  if (s.report->pause.left > 0) {
    return;
  }
  bool goes_on = false, prepared = false;
  for (int64_t p = next_doubtful(s, in, 0, lane, c.batch, b); p < s.chunks;
       p = goes_on ? p + 1 : next_doubtful(s, in, p + 1, lane, c.batch, b)) {
    const int64_t slot = p * c.batch + b, item = PHASE * s.chunks * c.batch + slot, begin = bppsa_cut(c.steps, s.chunks, p);
    if (!prepared) {
      forward_prepare<real, cell>(c, lane, shared, &l);
      prepared = true;
    }
    if (!goes_on) {
      __syncwarp(); /* states that other lanes wrote are not read, but the buffer is written again */
      l.h = c.h[(begin * c.batch + b) * hidden + j];
      l.c = cell<real>::PAIR ? c.cells[(begin * c.batch + b) * hidden + j] : 0;
    }
    const walked<real> w = walk_chunk<real, cell>(c, s, lane, b, begin, bppsa_cut(c.steps, s.chunks, p + 1), shared, &l);
    __syncwarp();
    goes_on = (w.found & SPECULATE_REACHED) != 0;
    s.steps[item] = w.steps;
    s.found[item] = w.found;
    s.gaps[slot] = w.gap > s.gaps[slot] ? w.gap : s.gaps[slot];
  }
}

/* What collect knows of samples, of a thread's and then of all: STEPS .. TAILS are sums, ROUND and PATH the largest. */
enum { COLLECT_STEPS, COLLECT_CHANGED, COLLECT_ANEW, COLLECT_TAILS, COLLECT_ROUND, COLLECT_PATH, COLLECT_NUMBERS };

/* Brings the numbers of a warp's lanes together, in all lanes. */
__device__ __forceinline__ void collect_lanes(int64_t *numbers, double *gap) {
  BPPSA_UNROLL
  for (int i = 0; i < COLLECT_NUMBERS; ++i) {
    numbers[i] = i < COLLECT_ROUND ? warp_sum(numbers[i]) : warp_largest(numbers[i]);
  }
  *gap = warp_largest(*gap);
}

/* Was this phase launched? One that was not has left nothing to read. A round's number belongs to its phase. */
__device__ __forceinline__ int round_of(int phase) {
  return phase == 1 ? 1 : phase - SPECULATE_ANEW + 1;
}
__device__ __forceinline__ bool was_launched(int phase, int64_t rounds) {
  return phase == 0 || phase == SPECULATE_PHASES - 1 || (phase == SPECULATE_ANEW ? rounds >= 1 : round_of(phase) <= rounds);
}

/* Sums up sample b, a warp together: a lane has every 32nd chunk, and reads what all phases did with it at once. */
template <typename real>
__device__ void collect_sample(const layer_arrays<real> &c, const speculate_arrays<real> &s, int lane, int64_t b, int64_t rounds,
                               bool first, int64_t *mine, double *gap) {
  int longest[SPECULATE_PHASES] = {}, all[SPECULATE_PHASES] = {};
  for (int64_t p = lane; p < s.chunks; p += WARP_LANES) {
    BPPSA_UNROLL
    for (int phase = 0; phase < SPECULATE_PHASES; ++phase) {
      const int64_t item = (phase * s.chunks + p) * c.batch + b;
      const bool launched = was_launched(phase, rounds);
      const int steps = launched ? s.steps[item] : 0, found = launched ? s.found[item] : 0;
      longest[phase] = steps > longest[phase] ? steps : longest[phase];
      all[phase] += steps;
      if ((found & SPECULATE_CHANGED) != 0) {
        ++mine[COLLECT_CHANGED];
        const int64_t round = phase < SPECULATE_PHASES - 1 ? round_of(phase) : 0;
        mine[COLLECT_ROUND] = round > mine[COLLECT_ROUND] ? round : mine[COLLECT_ROUND];
      }
    }
    *gap = s.gaps[p * c.batch + b] > *gap ? s.gaps[p * c.batch + b] : *gap;
  }
  int64_t path = first ? 0 : s.paths[b];
  BPPSA_UNROLL
  for (int phase = 0; phase < SPECULATE_PHASES; ++phase) {
    mine[COLLECT_STEPS] += all[phase];
    path += phase < SPECULATE_PHASES - 1 ? warp_largest(longest[phase]) : warp_sum(all[phase]);
  }
  const bool anew = __any_sync(0xffffffffu, all[SPECULATE_ANEW] > 0) != 0,
             tail = __any_sync(0xffffffffu, all[SPECULATE_PHASES - 1] > 0) != 0;
  __syncwarp();
  if (lane == 0) {
    mine[COLLECT_ANEW] += anew;
    mine[COLLECT_TAILS] += tail;
    mine[COLLECT_PATH] = path > mine[COLLECT_PATH] ? path : mine[COLLECT_PATH];
    s.paths[b] = path;
  }
}

enum { COLLECT_THREADS = 512, COLLECT_WARPS = COLLECT_THREADS / WARP_LANES };

/* Sums up what the phases of a layer did, into the report of the pass; one block, a warp for each sample. last: of the layers; then
 * the pauses are decided about. */
template <typename real>
__global__ void __launch_bounds__(COLLECT_THREADS)
    bppsa_recurrent_collect(layer_arrays<real> c, speculate_arrays<real> s, int64_t rounds, bool first, bool last) {
  typedef struct {
    int64_t numbers[COLLECT_WARPS][COLLECT_NUMBERS];
    double gaps[COLLECT_WARPS];
  } of_warps;
  BPPSA_SHARED(of_warps, shared);
  const int me = (int)threadIdx.x, lane = me % WARP_LANES, warp = me / WARP_LANES;
  speculate_report *r = s.report;
  bppsa_forward_pause pause = r->pause;
  int64_t mine[COLLECT_NUMBERS] = {};
  double gap = 0;
  if (pause.left > 0) { /* all threads have read this before the first changes it */
    __syncthreads();
    if (me == 0 && last) {
      *r = {};
      --pause.left;
      r->pause = pause;
    }
    return;
  }
  for (int64_t b = warp; b < c.batch; b += COLLECT_WARPS) {
    collect_sample(c, s, lane, b, rounds, first, mine, &gap);
  }
  collect_lanes(mine, &gap);
  BPPSA_UNROLL
  for (int i = 0; lane == 0 && i < COLLECT_NUMBERS; ++i) {
    shared->numbers[warp][i] = mine[i];
  }
  if (lane == 0) {
    shared->gaps[warp] = gap;
  }
  __syncthreads();
  if (warp != 0) {
    return;
  }
  BPPSA_UNROLL
  for (int i = 0; i < COLLECT_NUMBERS; ++i) {
    mine[i] = lane < COLLECT_WARPS ? shared->numbers[lane][i] : 0;
  }
  gap = lane < COLLECT_WARPS ? shared->gaps[lane] : 0;
  collect_lanes(mine, &gap);
  if (lane != 0) {
    return;
  }
  if (first) {
    *r = {};
    r->pause = pause;
    r->speculated = 1;
  }
  r->path = mine[COLLECT_PATH];
  r->steps += mine[COLLECT_STEPS];
  r->mended += mine[COLLECT_CHANGED];
  r->reseeded += mine[COLLECT_ANEW];
  r->tails += mine[COLLECT_TAILS];
  r->rounds = mine[COLLECT_ROUND] > r->rounds ? mine[COLLECT_ROUND] : r->rounds;
  r->gap = gap > r->gap ? gap : r->gap;
  if (last) {
    r->pause = bppsa_forward_pause_end(bppsa_forward_pause_fails(r->path, s.possible), pause);
  }
}

#endif
