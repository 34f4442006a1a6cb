/* The forward pass in parallel over time (recurrent/parallel_forward.h), for H <= 32: a warp for each chunk and sample, with W_hh
 * in registers as in forward_kernels.cuh. The host never waits: every kernel finds in memory what those before it left to do.
 *
 *     speculate     every chunk from W steps early
 *     mend          the first round: verifies the chunks that are doubtful and walks through those that do not fit
 *     rest          one launch for all that follows, the warps of a cluster of blocks for each sample:
 *                     the chunks behind the first one that moved far begin anew from its end
 *                     further rounds, while there is something doubtful
 *                     the tail, by one warp: what is still doubtful, one chunk after the other
 *                     during a pause instead of all others, by one warp: the sequential pass
 *                     it sums up what was done, and decides about pauses
 *
 * Every round reads the last states and the doubts that the round before it left of each chunk, and writes new ones to another
 * place. Wider layers (speculate_any.cuh, speculate_wide.cuh) have a launch for each of these phases. */
#ifndef BPPSA_RECURRENT_GPU_SPECULATE_KERNELS_CUH
#define BPPSA_RECURRENT_GPU_SPECULATE_KERNELS_CUH

#include <string.h>

#include "core/base/cut.h"
#include "core/compute/cluster.cuh"
#include "recurrent/gpu/forward_kernels.cuh"
#include "recurrent/gpu/speculate_range.cuh"
#include "recurrent/pause.h"
#include "recurrent/settle.h"

template <typename real> __device__ __forceinline__ real distance_of(real a, real b) {
  return fabs(a - b);
}

__device__ __forceinline__ bool same_bits(float a, float b) {
  return __float_as_int(a) == __float_as_int(b);
}
__device__ __forceinline__ bool same_bits(double a, double b) {
  return __double_as_longlong(a) == __double_as_longlong(b);
}

/* Returns how far the new state of a unit is from the stored one: h, and of a pair c, which is not bounded, relative to max(1,
 * |c|). *same: both have the same bits. NaN where they cannot be compared, which may have the same bits. */
template <bool PAIR, typename real>
__device__ __forceinline__ real unit_apart(real h, real stored, real c, real stored_c, bool *same) {
  *same = same_bits(h, stored) && (!PAIR || same_bits(c, stored_c));
  real distance = distance_of(h, stored);
  if (PAIR && !*same) {
    const real size = c < 0 ? -c : c, of_c = distance_of(c, stored_c) / (size > 1 ? size : 1);
    distance = of_c > distance || of_c != of_c ? of_c : distance;
  }
  return distance;
}

/* The same, but 0 where both have the same bits. */
template <bool PAIR, typename real>
__device__ __forceinline__ real unit_distance(real h, real stored, real c, real stored_c, bool *same) {
  const real distance = unit_apart<PAIR>(h, stored, c, stored_c, same);
  return *same ? 0 : distance;
}

/* Clears a chunk's numbers before the tail writes what it did with the chunks that it walks through. */
template <typename real>
__device__ __forceinline__ void clear_tail(const speculate_arrays<real> &s, int64_t slot, int64_t batch) {
  const int64_t item = (SPECULATE_PHASES - 1) * s.chunks * batch + slot;
  s.steps[item] = s.found[item] = 0;
}

/* Speculates chunk p of sample b, from W steps early. ANEW: only for the chunks from `from` on, and none begins in front of chunk
 * `from`, whose first state follows from the end of the chunk in front of it; the chunks before it stay as they are. */
template <bool ANEW, typename real, template <typename> class cell, int HP, int AHEAD, bool ONE, int K>
__device__ __forceinline__ void speculate_chunk(const layer_arrays<real> &c, const speculate_arrays<real> &s, int lane, int64_t p,
                                                int64_t b, int64_t from, real *shared, forward_lane<real, K, HP, AHEAD, ONE> *l) {
  enum { PAIR = cell<real>::PAIR };
  const int64_t hidden = c.hidden, j = lane < hidden ? lane : 0, slot = p * c.batch + b;
  const int64_t item = (ANEW ? SPECULATE_ANEW : 0) * s.chunks * c.batch + slot,
                from_end = ((from - 1) * c.batch + b) * (1 + PAIR) * hidden + j;
  const speculate_range r = speculate_range_of<ANEW>(c, s, p, b, from);
  if (r.stays) {
    s.steps[item] = s.found[item] = 0;
    return;
  }
  l->h = ANEW ? s.ends[1][from_end] : r.at == 0 ? c.h[b * hidden + j] : 0;
  if constexpr (PAIR) {
    l->c = ANEW ? s.ends[1][from_end + hidden] : r.at == 0 ? c.cells[b * hidden + j] : 0;
  }
  const int64_t state = l->state, saved_row = l->saved_row;
  BPPSA_UNROLL_BY(1)
  for (int part = 0; part < 2; ++part) { /* the warm-up, all of whose steps write to one place, and the chunk */
    const bool warms_up = part == 0;
    const int64_t first = warms_up ? r.at : r.begin, behind = warms_up ? r.begin : r.end;
    forward_seek<real, cell>(c, lane, b, first, l);
    if (warms_up) {
      l->h_to = s.aside + slot * (1 + PAIR + cell<real>::SAVED) * hidden + j;
      l->c_to = l->h_to + hidden;
      l->saved_to = l->h_to + (1 + PAIR) * hidden;
    }
    l->state = warms_up ? 0 : state;
    l->saved_row = warms_up ? 0 : saved_row;
    forward_run<real, cell>(c, lane, b, behind, behind - first, shared, l);
    __syncwarp();
  }
  s.ends[ANEW][slot * (1 + PAIR) * hidden + j] = l->h;
  if constexpr (PAIR) {
    s.ends[ANEW][(2 * slot + 1) * hidden + j] = l->c;
  }
  s.doubtful[ANEW][slot] = r.doubtful;
  s.steps[item] = (int)(r.end - r.at);
  s.found[item] = 0;
}

template <typename real, template <typename> class cell, int HP, bool ONE>
__global__ void __launch_bounds__(WARP_LANES) bppsa_recurrent_speculate(layer_arrays<real> c, speculate_arrays<real> s) {
  enum { K = cell<real>::MATRICES, AHEAD = cell<real>::AHEAD };
  BPPSA_SHARED(real, memory);
  const int lane = (int)threadIdx.x;
  const int64_t slot = blockIdx.x;
  real *shared = launch_held(memory);
  forward_lane<real, K, HP, AHEAD, ONE> l = {};
  const bool idle = s.report->pause.left > 0;
  launch_next();
  if (slot == 0 && lane == 0) {
    s.report->idle = idle;
  }
  if (idle) {
    return;
  }
  s.gaps[slot] = 0;
  clear_tail(s, slot, c.batch);
  forward_prepare<real, cell>(c, lane, shared, &l);
  speculate_chunk<false, real, cell>(c, s, lane, slot / c.batch, slot % c.batch, 0, shared, &l);
}

/* The largest number of the type that is at most `most` > 0. */
__device__ __forceinline__ void largest_within(double most, float *bound) {
  const float nearest = (float)most;
  *bound = (double)nearest > most ? __int_as_float(__float_as_int(nearest) - 1) : nearest;
}
__device__ __forceinline__ void largest_within(double most, double *bound) {
  *bound = most;
}

/* Returns the largest distance that is within a tolerance relative to `size`; -1: none is, and only equal bits agree. */
template <typename real> __device__ __forceinline__ real distance_within(double tolerance, double size) {
  const double most = tolerance * size; /* infinite where a state has overflowed */
  real bound = -1;
  if (tolerance > 0 && isfinite(most)) {
    largest_within(most, &bound);
  }
  return bound;
}

/* Does a walk stop at step t? is_within(tolerance) says, alike for all threads, whether the new state is as close to the stored
 * one. It is called at most twice, in a loop, so that its code and registers exist once. since: see bppsa_walk_settles. */
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

/* Goes to the step behind h_t of sample b, and reads the inputs of that step to x, and those of the round behind it. left: the
 * steps of the chunk from there on. */
template <typename real, template <typename> class cell, int HP, int AHEAD, bool ONE, int K>
__device__ __forceinline__ void walk_begin(const layer_arrays<real> &c, int lane, int64_t b, int64_t t, int64_t left, real x[],
                                           forward_lane<real, K, HP, AHEAD, ONE> *l) {
  forward_seek<real, cell>(c, lane, b, t, l);
  BPPSA_UNROLL
  for (int k = 0; k < l->GIVEN; ++k) {
    x[k] = ONE ? c.x[t * c.batch + b] : l->input[k * c.hidden];
  }
  l->input += ONE ? c.batch : l->input_row;
  forward_fill<real>(lane, left - 1, c.hidden, l);
}

/* The largest distances at which a walk of one warp may stop, of states of one size. */
template <typename real> struct walk_bounds {
  real accept, near, stop, settled;
  __device__ __forceinline__ walk_bounds(const speculate_arrays<real> &s, double size)
      : accept(distance_within<real>(s.accept, size)), near(distance_within<real>(s.near, size)),
        stop(distance_within<real>(s.stop, size)), settled(distance_within<real>(s.settled, size)) {}
};

/* What a walk of one warp finds when it looks at a state: how far the lane's unit is from the stored one. */
template <typename real> struct lanes_look {
  real apart;
  bool same;

  __device__ __forceinline__ bool within(real most) const {
    return !__any_sync(0xffffffffu, !(same || apart <= most));
  }
  /* The largest distance of the warp. What is no number is passed over: otherwise lanes would have different results. */
  __device__ __forceinline__ double distance() const {
    return (double)warp_largest(apart > 0 ? apart : 0);
  }
  /* The bounds of the warp's new state, of which the lane's unit is h. common: those of size 1. */
  __device__ __forceinline__ walk_bounds<real> bounds(const speculate_arrays<real> &s, bool relu, real h,
                                                      const walk_bounds<real> &common) const {
    if (relu) {
      const double largest = (double)warp_largest(h < 0 ? -h : h);
      return walk_bounds<real>(s, largest > 1 ? largest : 1);
    }
    return common;
  }
  /* Does the walk stop at step t, which is not the first? As walk_stops. since: see bppsa_walk_settles. */
  __device__ __forceinline__ bool settles(const walk_bounds<real> &here, int64_t t, int64_t *since) const {
    const bool close = within(here.stop), near = close || within(here.near);
    return bppsa_walk_settles(within(here.settled), close, near, t, since);
  }
};

/* Walks from h_begin in l until new and stored states agree, or to the end of the chunk. It looks at the first step, and then
 * behind every BPPSA_SETTLE_GPU_LOOK steps or at the end: the stored state of that step is read while they are computed. Most looks
 * find a state that is far away, by one vote; of ReLU, whose bounds follow the state's size, that vote finds NaN alone. */
template <typename real, template <typename> class cell, int HP, int AHEAD, bool ONE, int K>
__device__ __forceinline__ walked<real> walk_chunk(const layer_arrays<real> &c, const speculate_arrays<real> &s, int lane,
                                                   int64_t b, int64_t begin, int64_t end, real *shared,
                                                   forward_lane<real, K, HP, AHEAD, ONE> *l) {
  enum { PAIR = cell<real>::PAIR, LOOK = BPPSA_SETTLE_GPU_LOOK };
  static_assert(LOOK % AHEAD == 0 && AHEAD % 2 == 0, "whole rounds, whose steps take two buffers in turn");
  walked<real> w = {};
  int64_t since = BPPSA_SETTLE_NEVER;
  int left = (int)(end - begin) - 1;
  real x[K];
  walk_begin<real, cell>(c, lane, b, begin, left + 1, x, l);
  real stored = *l->h_to, stored_c = PAIR ? *l->c_to : 0, next = 0, next_c = 0;
  const auto read_next = [&](int steps) { /* the stored state so many steps behind the one that is written next */
                                          next = l->h_to[steps * l->state];
                                          next_c = PAIR ? l->c_to[steps * l->state] : 0;
  };
  const walk_bounds<real> bounds(s, 1);
  const real not_far = c.relu ? (real)INFINITY : bounds.near;
  lanes_look<real> look;
  if (left > 0) {
    read_next(left < LOOK ? left : (int)LOOK);
  }
  real *in = shared + HP; /* rounds begin with the other buffer */
  forward_step<real, cell, HP, AHEAD, ONE, K>(c, lane, l->is_far, x, in, in, l);
  look.apart = unit_apart<(bool)PAIR>(l->h, stored, l->c, stored_c, &look.same);
  bool stops = look.within(look.bounds(s, c.relu, l->h, bounds).accept);
  w.found = stops ? 0 : SPECULATE_CHANGED;
  for (bool goes_on = !stops && left > 0; goes_on; goes_on = left > 0) {
    const int now = left < LOOK ? left : (int)LOOK; /* steps up to the next look */
    stored = next;
    stored_c = next_c;
    BPPSA_UNROLL_BY(1)
    for (int done = 0; done < (LOOK > AHEAD ? now : 1); done += AHEAD) {
      forward_next<real, cell>(c, lane, left - done, shared, l,
                               [&](bool whole) { /* in every round the same */
                                                 if (whole && LOOK == AHEAD) {
                                                   read_next(2 * LOOK - 1);
                                                 } else if (left > now) {
                                                   read_next((left < now + LOOK ? left : now + LOOK) - 1 - done);
                                                 }
                               });
    }
    left -= now;
    look.apart = unit_apart<(bool)PAIR>(l->h, stored, l->c, stored_c, &look.same);
    if (!look.within(not_far)) {
      since = BPPSA_SETTLE_NEVER;
      continue;
    }
    stops = look.settles(look.bounds(s, c.relu, l->h, bounds), end - left - 1, &since);
    if (stops) {
      break;
    }
  }
  if (stops) {    /* the stored state stays: what was saved with this step belongs to the state in front of it */
    __syncwarp(); /* lanes beyond H have written lane 0's new state before the stored one is put back */
    *(l->h_to - l->state) = stored;
    if constexpr (PAIR) {
      *(l->c_to - l->state) = stored_c;
    }
    w.gap = look.distance();
  } else {
    w.found |= SPECULATE_REACHED | (look.distance() > s.far ? SPECULATE_FAR : 0);
  }
  w.steps = (int)(end - begin) - left;
  return w;
}

template <typename real, template <typename> class cell, int HP, int AHEAD, bool ONE, int K>
__device__ __forceinline__ void prepare_once(const layer_arrays<real> &c, int lane, real *shared, bool *prepared,
                                             forward_lane<real, K, HP, AHEAD, ONE> *l) {
  if (!*prepared) {
    forward_prepare<real, cell>(c, lane, shared, l);
    *prepared = true;
  }
}

/* Computes a round, in phase `phase`, for chunk p of sample b. `in`: the place of the ends and doubts before it. *prepared: the
 * lane has its weights. */
template <typename real, template <typename> class cell, int HP, int AHEAD, bool ONE, int K>
__device__ __forceinline__ void mend_chunk(const layer_arrays<real> &c, const speculate_arrays<real> &s, int lane, int64_t p,
                                           int64_t b, int phase, int in, real *shared, bool *prepared,
                                           forward_lane<real, K, HP, AHEAD, ONE> *l) {
  enum { PAIR = cell<real>::PAIR };
  const int64_t hidden = c.hidden, j = lane < hidden ? lane : 0, slot = p * c.batch + b, item = phase * s.chunks * c.batch + slot;
  const int64_t end = slot * (1 + PAIR) * hidden + j, before = (slot - c.batch) * (1 + PAIR) * hidden + j;
  walked<real> w = {};
  real last = place_of_round(s.ends, in)[end], last_c = PAIR ? place_of_round(s.ends, in)[end + PAIR * hidden] : 0;
  if (place_of_round(s.doubtful, in)[slot] != 0) { /* chunk 0 is never doubtful */
    prepare_once<real, cell>(c, lane, shared, prepared, l);
    l->h = place_of_round(s.ends, in)[before];
    l->c = PAIR ? place_of_round(s.ends, in)[before + PAIR * hidden] : 0;
    const walk_range r = walk_range_of(c, s, p, b);
    w = walk_chunk<real, cell>(c, s, lane, b, r.begin, r.end, shared, l);
    w.found = walk_found(r, w.found);
    last = (w.found & SPECULATE_REACHED) != 0 ? l->h : last;
    last_c = (w.found & SPECULATE_REACHED) != 0 ? l->c : last_c;
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

/* The first round; for most chunks it is the only one. Most chunks are doubtful: the weights are read while speculation ends. */
template <typename real, template <typename> class cell, int HP, bool ONE>
__global__ void __launch_bounds__(WARP_LANES, 8) bppsa_recurrent_mend(layer_arrays<real> c, speculate_arrays<real> s) {
  enum { K = cell<real>::MATRICES, AHEAD = cell<real>::AHEAD };
  BPPSA_SHARED(real, memory);
  const int64_t slot = blockIdx.x;
  real *shared = launch_held(memory);
  forward_lane<real, K, HP, AHEAD, ONE> l = {};
  bool prepared = true;
  forward_prepare<real, cell>(c, (int)threadIdx.x, shared, &l);
  launch_wait();
  launch_next();
  if (s.report->pause.left > 0) {
    return;
  }
  mend_chunk<real, cell>(c, s, (int)threadIdx.x, slot / c.batch, slot % c.batch, 1, 0, shared, &prepared, &l);
}

/* Walks through what is still doubtful of sample b, one chunk after the other. */
template <typename real, template <typename> class cell, int HP, int AHEAD, bool ONE, int K>
__device__ __forceinline__ void tail_sample(const layer_arrays<real> &c, const speculate_arrays<real> &s, int lane, int64_t b,
                                            int in, real *shared, forward_lane<real, K, HP, AHEAD, ONE> *l) {
  const int64_t hidden = c.hidden, j = lane < hidden ? lane : 0;
  bool goes_on = false;
  forward_prepare<real, cell>(c, lane, shared, l);
  for (int64_t p = next_doubtful(s, in, 0, lane, c.batch, b); p < s.chunks;
       p = goes_on ? p + 1 : next_doubtful(s, in, p + 1, lane, c.batch, b)) {
    const int64_t slot = p * c.batch + b, item = (SPECULATE_PHASES - 1) * s.chunks * c.batch + slot;
    const walk_range r = walk_range_of(c, s, p, b);
    if (!goes_on) {
      __syncwarp(); /* states that other lanes wrote are not read, but the buffer is written again */
      l->h = c.h[(r.begin * c.batch + b) * hidden + j];
      l->c = cell<real>::PAIR ? c.cells[(r.begin * c.batch + b) * hidden + j] : 0;
    }
    walked<real> w = walk_chunk<real, cell>(c, s, lane, b, r.begin, r.end, shared, l);
    w.found = walk_found(r, w.found);
    __syncwarp();
    goes_on = (w.found & SPECULATE_REACHED) != 0;
    s.steps[item] = w.steps;
    s.found[item] = w.found;
    s.gaps[slot] = w.gap > s.gaps[slot] ? w.gap : s.gaps[slot];
  }
}

/* Returns the number of the round that a phase is. */
__device__ __forceinline__ int round_of(int phase) {
  return phase == 1 ? 1 : phase - SPECULATE_ANEW + 1;
}

/* Adds what the phases in `ran` did with sample b to the sums of the pass, a warp together: a lane has every 32nd chunk. */
template <typename real>
__device__ __forceinline__ void sum_sample(const layer_arrays<real> &c, const speculate_arrays<real> &s, int lane, int64_t b,
                                           unsigned ran, bool first) {
  speculate_sums *sums = &s.report->sums;
  int64_t path = first ? 0 : s.paths[b], all = 0;
  int changed = 0, round = 0;
  bool anew = false, tail = false;
  double gap = 0;
  BPPSA_UNROLL_BY(4)
  for (int64_t p = lane; p < s.chunks; p += WARP_LANES) {
    const double accepted = s.gaps[p * c.batch + b];
    gap = accepted > gap ? accepted : gap;
  }
  BPPSA_UNROLL_BY(1)
  for (int phase = 0; phase < SPECULATE_PHASES; ++phase) {
    const bool is_tail = phase == SPECULATE_PHASES - 1;
    int longest = 0, steps = 0, here = 0;
    if ((ran >> phase & 1) == 0) {
      continue;
    }
    BPPSA_UNROLL_BY(4)
    for (int64_t p = lane; p < s.chunks; p += WARP_LANES) {
      const int64_t item = (phase * s.chunks + p) * c.batch + b;
      const int taken = s.steps[item], found = s.found[item];
      longest = taken > longest ? taken : longest;
      steps += taken;
      here += (found & SPECULATE_CHANGED) != 0;
    }
    const int64_t sum = warp_sum((int64_t)steps);
    path += is_tail ? sum : (int64_t)warp_largest(longest);
    all += sum;
    round = here > 0 && !is_tail ? round_of(phase) : round;
    changed += here;
    anew = phase == SPECULATE_ANEW ? sum > 0 : anew;
    tail = is_tail ? sum > 0 : tail;
  }
  changed = warp_sum(changed);
  round = warp_largest(round);
  gap = warp_largest(gap);
  if (lane == 0) {
    s.paths[b] = path;
    (void)atomicAdd(&sums->steps, (unsigned long long)all);
    (void)atomicAdd(&sums->mended, (unsigned long long)changed);
    (void)atomicAdd(&sums->reseeded, anew ? 1ull : 0ull);
    (void)atomicAdd(&sums->tails, tail ? 1ull : 0ull);
    (void)atomicMax(&sums->path, (long long)path);
    (void)atomicMax(&sums->rounds, (long long)round);
    (void)atomicMax(&sums->gap, (long long)__double_as_longlong(gap));
  }
}

/* A warp adds what it knows of sample b to the report. ran: a bit for each phase that ran, none during a pause. The last warp of
 * the last layer completes the report, and decides about pauses. */
template <typename real>
__device__ __forceinline__ void report_sample(const layer_arrays<real> &c, const speculate_arrays<real> &s, int lane, int64_t b,
                                              unsigned ran, bool first, bool last) {
  speculate_report *r = s.report;
  if (ran != 0) {
    sum_sample(c, s, lane, b, ran, first);
  }
  __syncwarp(); /* all lanes know whether there is a pause, which may be about to end */
  if (lane != 0) {
    return;
  }
  __threadfence(); /* others see this sample's numbers in the sums before they see that it is counted */
  if (atomicAdd(&r->sums.samples, 1ull) + 1 < (unsigned long long)c.batch) {
    return;
  }
  __threadfence(); /* this warp sees the numbers of all samples that are counted */
  r->sums.samples = 0;
  if (!last) {
    return;
  }
  const volatile speculate_sums *sums = &r->sums;
  speculate_report report = {};
  report.pause = r->pause;
  report.idle = r->idle;
  if (ran == 0) {
    --report.pause.left;
  } else {
    report.path = sums->path;
    report.rounds = sums->rounds;
    report.mended = (int64_t)sums->mended;
    report.reseeded = (int64_t)sums->reseeded;
    report.tails = (int64_t)sums->tails;
    report.steps = (int64_t)sums->steps;
    report.speculated = 1;
    report.gap = __longlong_as_double(sums->gap);
    report.pause = bppsa_forward_pause_end(bppsa_forward_path_fails(report.path, s.possible, s.most_path), report.pause);
  }
  *r = report; /* with sums of 0 */
}

/* Reports what the phases in `ran` did with each sample, a warp for each. */
template <typename real>
__global__ void __launch_bounds__(CHUNK_THREADS)
    bppsa_recurrent_collect(layer_arrays<real> c, speculate_arrays<real> s, unsigned ran, bool first, bool last) {
  const int me = (int)threadIdx.x;
  const int64_t b = (int64_t)blockIdx.x * (CHUNK_THREADS / WARP_LANES) + me / WARP_LANES;
  const bool paused = s.report->pause.left > 0;
  if (b < c.batch) {
    report_sample(c, s, me % WARP_LANES, b, paused ? 0 : ran, first, last);
  }
}

/* Is a chunk of sample b doubtful? The same in all lanes of a warp, which read at once. */
template <typename real>
__device__ __forceinline__ bool any_doubtful(const speculate_arrays<real> &s, int in, int lane, int64_t batch, int64_t b) {
  const int *doubtful = place_of_round(s.doubtful, in);
  int any = 0;
  BPPSA_UNROLL_BY(4)
  for (int64_t p = lane; p < s.chunks; p += WARP_LANES) {
    any |= doubtful[p * batch + b];
  }
  return __any_sync(0xffffffffu, any) != 0;
}

/* The most warps and threads of a block, and the most blocks of a sample. */
enum { REST_WARPS = 8, REST_THREADS = REST_WARPS * WARP_LANES, REST_CLUSTER = 8 };

/* A barrier of a sample's warps, behind which each sees what all have written. */
__device__ __forceinline__ void rest_meet(int cluster) {
  if (cluster > 1) {
    cluster_meet();
  } else {
    __syncthreads();
  }
}

/* Does all that the first round left to do, with `cluster` blocks for each sample, whose warps take its chunks in turn. Most
 * samples have nothing left, so this is one launch, whose phases end at barriers of a sample's own warps: speculation anew,
 * further rounds, the tail by one of the warps, and the report. During a pause that warp takes the sample through all steps. Every
 * phase reads the weights again, so that registers hold them only during a phase. */
template <typename real, template <typename> class cell, int HP, bool ONE>
__global__ void __launch_bounds__(REST_THREADS, 1)
    bppsa_recurrent_rest(layer_arrays<real> c, speculate_arrays<real> s, int cluster, int rounds, bool first, bool last) {
  enum { K = cell<real>::MATRICES, AHEAD = cell<real>::AHEAD };
  typedef forward_lane<real, K, HP, AHEAD, ONE> lane_of;
  BPPSA_SHARED(real, memory);
  const int lane = (int)threadIdx.x % WARP_LANES;
  const int of_block = __shfl_sync(0xffffffffu, (int)threadIdx.x / WARP_LANES, 0); /* the compiler sees that all lanes agree */
  const int64_t each = blockDim.x / WARP_LANES, warps = cluster * each;
  const int64_t b = blockIdx.x / cluster, warp = blockIdx.x % cluster * each + of_block;
  real *shared = launch_held(memory + of_block * FORWARD_BUFFERS * HP);
  launch_wait();
  const bool idle = s.report->idle != 0; /* the last warp may change pause.left while others have not read it */
  int in = rounds > 0;                   /* where the latest ends and doubts are */
  bool doubtful = any_doubtful(s, in, lane, c.batch, b);
  unsigned ran = 0;
  if (idle && warp == 0) {
    lane_of l = {};
    forward_sample<real, cell>(c, lane, b, shared, &l);
  } else if (!idle) {
    ran = rounds > 0 ? 3 : 1;
    const int64_t from = doubtful && rounds > 0 ? first_far(c, s, lane, b) + 1 : s.chunks;
    if (from < s.chunks) {
      lane_of l = {};
      bool prepared = false;
      rest_meet(cluster); /* all have looked for doubts before they change */
      for (int64_t p = warp; p < s.chunks; p += warps) {
        if (p < from) {
          const int64_t item = (SPECULATE_ANEW * s.chunks + p) * c.batch + b;
          s.steps[item] = s.found[item] = 0;
        } else {
          prepare_once<real, cell>(c, lane, shared, &prepared, &l);
          speculate_chunk<true, real, cell>(c, s, lane, p, b, from, shared, &l);
          __syncwarp();
        }
      }
      ran |= 1u << SPECULATE_ANEW;
      rest_meet(cluster);
      doubtful = any_doubtful(s, in, lane, c.batch, b);
    }
    for (int phase = SPECULATE_ANEW + 1; doubtful && round_of(phase) <= rounds; ++phase) {
      lane_of l = {};
      bool prepared = false;
      for (int64_t p = warp; p < s.chunks; p += warps) {
        mend_chunk<real, cell>(c, s, lane, p, b, phase, in, shared, &prepared, &l);
        __syncwarp();
      }
      in = 1 - in;
      ran |= 1u << phase;
      rest_meet(cluster);
      doubtful = any_doubtful(s, in, lane, c.batch, b);
    }
    if (warp == 0 && doubtful) {
      lane_of l = {};
      tail_sample<real, cell>(c, s, lane, b, in, shared, &l);
      ran |= 1u << (SPECULATE_PHASES - 1);
    }
  }
  if (warp == 0) {
    report_sample(c, s, lane, b, ran, first, last);
  }
}

#endif
