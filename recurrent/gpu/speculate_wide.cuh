/* The parallel forward pass (recurrent/parallel_forward.h) of a wide layer, 32 < H <= 512: the phases of speculate_kernels.cuh,
 * with a block or a cluster of blocks for each chunk and sample, as wide_kernels.cuh has one for each sample. A step is computed
 * as there, so that it has the bits of the sequential pass.
 *
 * A walk that mends needs to know of all units whether their new states agree with the stored ones. Each unit sends its new state
 * and how far it is from the stored one. So every warp of every block decides by the same numbers, one step later, when it has
 * received them. By then the step is stored already: if it turns out to agree, its units put the stored state back. */
#ifndef BPPSA_RECURRENT_GPU_SPECULATE_WIDE_CUH
#define BPPSA_RECURRENT_GPU_SPECULATE_WIDE_CUH

#include "recurrent/gpu/speculate_kernels.cuh"
#include "recurrent/gpu/wide_kernels.cuh"

/* The shape of a walk: each unit sends two numbers, its state and a distance. */
template <typename real, int K, int SIZE> struct wide_walk_shape : wide_shape<real, K, SIZE, false> {
  typedef wide_shape<real, K, SIZE, false> base;
  static constexpr int COUNT = 2 * base::HP, GATES = WIDE_AHEAD * COUNT * (int)sizeof(real),
                       WEIGHTS = GATES + WIDE_AHEAD * (int)sizeof(cluster_gate),
                       SHARED = WEIGHTS + K * base::LENT * base::UNITS * base::THREADS * (int)sizeof(real);
};

/* A thread's place among the chunks and samples. `first`: it writes what there is once for a chunk and sample. */
template <typename real, typename shape> struct wide_item {
  int64_t slot, p, b, j;
  bool exists, writes, first;

  __device__ __forceinline__ wide_item(const layer_arrays<real> &c, const wide_lane<real, shape> &l) {
    slot = l.b;
    p = slot / c.batch;
    b = slot % c.batch;
    exists = l.unit < c.hidden;
    writes = exists && l.same == 0;
    j = exists ? l.unit : 0;
    first = threadIdx.x == 0 && blockIdx.x % shape::CLUSTER == 0;
  }
};

/* ANEW: see speculate_chunk. */
template <typename real, template <typename> class cell, typename shape, bool ANEW>
__global__ void __launch_bounds__(shape::THREADS) bppsa_recurrent_wide_speculate(layer_arrays<real> c, speculate_arrays<real> s) {
  enum { K = cell<real>::MATRICES, PAIR = cell<real>::PAIR };
  BPPSA_SHARED(real, shared);
  if (s.report->pause.left > 0) {
    return;
  }
  const wide_lane<real, shape> l(shared);
  const wide_item<real, shape> i(c, l);
  wide_forward_lane<real, K, shape> f;
  const int64_t from = ANEW ? first_far(c, s, (int)threadIdx.x % WARP_LANES, i.b) + 1 : 0,
                item = (ANEW ? SPECULATE_ANEW : 0) * s.chunks * c.batch + i.slot;
  const speculate_range r = speculate_range_of<ANEW>(c, s, i.p, i.b, from);
  const int64_t begin = r.begin, end = r.end, at = r.at;
  const bool walks = i.p >= from && !r.stays;
  if (i.first) {
    s.found[item] = 0;
    s.steps[item] = walks ? (int)(end - at) : 0;
    if (walks) {
      s.doubtful[ANEW][i.slot] = r.doubtful;
    }
    if (!ANEW) {
      s.gaps[i.slot] = 0;
      clear_tail(s, i.slot, c.batch);
    }
  }
  if (walks) {
    wide_forward_prepare(c, l, i.b, at, cell<real>::SAVED, cell<real>::FAR, &f);
    const int64_t from_end = ((from - 1) * c.batch + i.b) * (1 + PAIR) * c.hidden + i.j;
    f.h = ANEW ? s.ends[1][from_end] : at == 0 ? c.h[i.b * c.hidden + i.j] : 0;
    if constexpr (PAIR) {
      f.c = ANEW ? s.ends[1][from_end + c.hidden] : at == 0 ? c.cells[i.b * c.hidden + i.j] : 0;
      f.c_to = c.cells + ((at + 1) * c.batch + i.b) * c.hidden + i.j;
    }
    f.quiet = begin - at;
    wide_forward_run<true, real, cell>(c, i.b, end, end - at, l, &f);
    if (i.writes) {
      s.ends[ANEW][i.slot * (1 + PAIR) * c.hidden + i.j] = f.h;
      if constexpr (PAIR) {
        s.ends[ANEW][(2 * i.slot + 1) * c.hidden + i.j] = f.c;
      }
    }
  }
  l.finish();
}

/* Returns the largest of HP numbers, or 0; NaN is passed over. It is the same in all threads. SIZE: of their absolute values. */
template <bool SIZE, int HP, typename real> __device__ __forceinline__ real wide_largest(const real *numbers) {
  real largest = 0;
  BPPSA_UNROLL
  for (int at = 0; at < HP / WARP_LANES; ++at) {
    const real given = numbers[at * WARP_LANES + (int)threadIdx.x % WARP_LANES];
    const real number = SIZE && given < 0 ? -given : given;
    largest = number > largest ? number : largest;
  }
  return warp_largest(largest);
}

/* Do all units agree to a tolerance? in: their states, and HP behind them how far each is from the stored one; negative: the bits
 * are the same, as they are where there is no unit. */
template <typename real, typename shape>
__device__ __forceinline__ bool wide_agrees(const layer_arrays<real> &c, const real *in, double tolerance) {
  const real *distances = in + shape::HP;
  const double size = c.relu ? (double)wide_largest<true, shape::HP>(in) : 1;
  const double most = tolerance * (size > 1 ? size : 1); /* infinite where a state has overflowed: then only bits count */
  const bool near = tolerance > 0 && isfinite(most);
  bool differs = false;
  BPPSA_UNROLL
  for (int at = 0; at < shape::HP / WARP_LANES; ++at) {
    const real distance = distances[at * WARP_LANES + (int)threadIdx.x % WARP_LANES];
    differs |= !(distance < 0 || (near && (double)distance <= most));
  }
  return !__any_sync(0xffffffffu, differs);
}

/* Goes to the step behind h_t. */
template <typename real, template <typename> class cell, typename shape, int K>
__device__ __forceinline__ void wide_walk_seek(const layer_arrays<real> &c, const wide_item<real, shape> &i, int64_t t,
                                               wide_forward_lane<real, K, shape> *f) {
  const int64_t row = t * c.batch + i.b;
  f->pre_at = c.pre + row * K * c.hidden + i.j;
  f->h_to = c.h + f->state + row * c.hidden + i.j;
  f->c_to = cell<real>::PAIR ? c.cells + f->state + row * c.hidden + i.j : NULL;
  f->saved_to = cell<real>::SAVED > 0 ? c.saved + row * cell<real>::SAVED * c.hidden + i.j : NULL;
}

/* Reads the inputs of the next step. */
template <typename real, typename shape, int K>
__device__ __forceinline__ void wide_walk_read(wide_forward_lane<real, K, shape> *f, real (&pre)[K]) {
  BPPSA_UNROLL
  for (int k = 0; k < K; ++k) {
    pre[k] = f->pre_at[k * f->hidden];
  }
  f->pre_at += K * f->state;
}

/* Walks from f->h through a chunk until new and stored states agree where the walk looks (recurrent/settle.h), or to its end.
 * exchanges: how often numbers have been handed out in this launch. Distances of units with the same bits are -1, which counts as
 * 0. The inputs of a step are read one step ahead, and its stored state before the walk waits for the numbers of the state in front
 * of it: so both have come when they are needed, and all threads of a unit have read before one of them writes there. */
template <typename real, template <typename> class cell, typename shape, int K>
__device__ walked<real> wide_walk_chunk(const layer_arrays<real> &c, const speculate_arrays<real> &s,
                                        const wide_lane<real, shape> &l, const wide_item<real, shape> &i, int64_t begin,
                                        int64_t end, unsigned *exchanges, wide_forward_lane<real, K, shape> *f) {
  enum { SAVED = cell<real>::SAVED, PAIR = cell<real>::PAIR };
  walked<real> w = {};
  real stored = 0, stored_c = 0, distance = -1, coming[K];
  int64_t since = BPPSA_SETTLE_NEVER;
  wide_walk_seek<real, cell>(c, i, begin, f);
  wide_walk_read(f, coming);
  for (int step = 0, count = (int)(end - begin);; ++step) { /* hands out the state in front of this step */
    const int buffer = (int)(*exchanges % WIDE_AHEAD);
    const real *in = l.in + buffer * shape::COUNT;
    const bool last = step == count;
    const real next = !last && i.exists ? *f->h_to : 0, next_c = PAIR && !last && i.exists ? *f->c_to : 0;
    l.hand_out(buffer, 0, i.exists ? f->h : 0);
    l.hand_out(buffer, 1, i.exists ? distance : -1);
    l.await(buffer, *exchanges / WIDE_AHEAD);
    ++*exchanges;
    if (step > 0 && bppsa_walk_looks_on_gpu(step - 1, last)) {
      const auto is_within = [&](double tolerance) { return wide_agrees<real, shape>(c, in, tolerance); };
      const bool agrees = walk_stops(s, step == 1, begin + step, is_within, &since);
      w.gap = agrees || last ? (double)wide_largest<false, shape::HP>(in + shape::HP) : 0;
      if (agrees && i.writes) {
        *(f->h_to - f->state) = stored; /* what was saved with this step belongs to the state in front of it */
        if constexpr (PAIR) {
          *(f->c_to - f->state) = stored_c;
        }
      }
      w.found |= agrees ? 0 : SPECULATE_CHANGED;
      if (agrees || last) {
        w.found |= agrees ? 0 : SPECULATE_REACHED | (w.gap > s.far ? SPECULATE_FAR : 0);
        w.gap = agrees ? w.gap : 0;
        w.steps = step;
        return w;
      }
    }
    stored = next;
    stored_c = next_c;
    real sums[K][shape::UNITS] = {}, product[K], pre[K], saved[SAVED > 0 ? SAVED : 1];
    memcpy(pre, coming, sizeof pre);
    if (step + 1 < count) {
      wide_walk_read(f, coming);
    }
    wide_multiply<false, real, K, shape>(in, l.part, f->w, sums);
    BPPSA_UNROLL
    for (int k = 0; k < K; ++k) {
      product[k] = wide_sum<real, shape>(sums[k], l.part) + f->bias[k];
    }
    f->h = unit_forward<real, cell>(c, i.j, f->is_far, pre, product, f->h, &f->c, saved);
    bool same;
    distance = unit_distance<(bool)PAIR>(f->h, stored, f->c, stored_c, &same);
    distance = same ? -1 : distance;
    wide_store<real, cell>(i.writes, saved, f);
  }
}

/* Does what bppsa_recurrent_mend does. */
template <typename real, template <typename> class cell, typename shape>
__global__ void __launch_bounds__(shape::THREADS)
    bppsa_recurrent_wide_mend(layer_arrays<real> c, speculate_arrays<real> s, int phase, int in) {
  enum { K = cell<real>::MATRICES, PAIR = cell<real>::PAIR };
  BPPSA_SHARED(real, shared);
  if (s.report->pause.left > 0) {
    return;
  }
  const wide_lane<real, shape> l(shared);
  const wide_item<real, shape> i(c, l);
  const int64_t item = phase * s.chunks * c.batch + i.slot;
  wide_forward_lane<real, K, shape> f;
  walked<real> w = {};
  const int64_t end = i.slot * (1 + PAIR) * c.hidden + i.j, before = (i.slot - c.batch) * (1 + PAIR) * c.hidden + i.j;
  real last = place_of_round(s.ends, in)[end], last_c = PAIR ? place_of_round(s.ends, in)[end + PAIR * c.hidden] : 0;
  if (place_of_round(s.doubtful, in)[i.slot] != 0) { /* chunk 0 is never doubtful */
    unsigned exchanges = 0;
    wide_forward_prepare(c, l, i.b, 0, cell<real>::SAVED, cell<real>::FAR, &f);
    f.h = place_of_round(s.ends, in)[before];
    f.c = PAIR ? place_of_round(s.ends, in)[before + PAIR * c.hidden] : 0;
    const walk_range r = walk_range_of(c, s, i.p, i.b);
    w = wide_walk_chunk<real, cell>(c, s, l, i, r.begin, r.end, &exchanges, &f);
    w.found = walk_found(r, w.found);
    last = (w.found & SPECULATE_REACHED) != 0 ? f.h : last;
    last_c = (w.found & SPECULATE_REACHED) != 0 ? f.c : last_c;
  }
  if (i.writes) {
    place_of_round(s.ends, 1 - in)[end] = last;
    if constexpr (PAIR) {
      place_of_round(s.ends, 1 - in)[end + c.hidden] = last_c;
    }
  }
  if (i.first) {
    if (i.p + 1 < s.chunks) {
      place_of_round(s.doubtful, 1 - in)[i.slot + c.batch] = (w.found & SPECULATE_REACHED) != 0;
    }
    if (i.p == 0) {
      place_of_round(s.doubtful, 1 - in)[i.slot] = 0;
    }
    s.steps[item] = w.steps;
    s.found[item] = w.found;
    s.gaps[i.slot] = w.gap > s.gaps[i.slot] ? w.gap : s.gaps[i.slot];
  }
  l.finish();
}

/* Does what tail_sample does. */
template <typename real, template <typename> class cell, typename shape>
__global__ void __launch_bounds__(shape::THREADS)
    bppsa_recurrent_wide_tail(layer_arrays<real> c, speculate_arrays<real> s, int in) {
  enum { K = cell<real>::MATRICES, PHASE = SPECULATE_PHASES - 1 };
  BPPSA_SHARED(real, shared);
  if (s.report->pause.left > 0) {
    return;
  }
  const wide_lane<real, shape> l(shared);
  const wide_item<real, shape> i(c, l); /* slot = b: one for each sample */
  wide_forward_lane<real, K, shape> f;
  const int lane = (int)threadIdx.x % WARP_LANES;
  bool goes_on = false, prepared = false;
  unsigned exchanges = 0;
  for (int64_t p = next_doubtful(s, in, 0, lane, c.batch, i.b); p < s.chunks;
       p = goes_on ? p + 1 : next_doubtful(s, in, p + 1, lane, c.batch, i.b)) {
    const int64_t slot = p * c.batch + i.b, item = PHASE * s.chunks * c.batch + slot;
    const walk_range r = walk_range_of(c, s, p, i.b);
    if (!prepared) {
      wide_forward_prepare(c, l, i.b, 0, cell<real>::SAVED, cell<real>::FAR, &f);
      prepared = true;
    }
    __syncwarp(); /* a unit's state was written by one of its threads */
    f.h = goes_on ? f.h : c.h[(r.begin * c.batch + i.b) * c.hidden + i.j];
    if constexpr (cell<real>::PAIR) {
      f.c = goes_on ? f.c : c.cells[(r.begin * c.batch + i.b) * c.hidden + i.j];
    }
    walked<real> w = wide_walk_chunk<real, cell>(c, s, l, i, r.begin, r.end, &exchanges, &f);
    w.found = walk_found(r, w.found);
    goes_on = (w.found & SPECULATE_REACHED) != 0;
    if (i.first) {
      s.steps[item] = w.steps;
      s.found[item] = w.found;
      s.gaps[slot] = w.gap > s.gaps[slot] ? w.gap : s.gaps[slot];
    }
  }
  l.finish();
}

#endif
