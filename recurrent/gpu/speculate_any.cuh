/* The parallel forward pass (recurrent/parallel_forward.h) of a layer whose W_hh neither a warp nor a cluster holds in registers: H
 * > 512, and H > 32 where the GPU has no room for the kernels of wide_kernels.cuh. The phases are those of speculate_kernels.cuh,
 * with a block for each chunk and sample. A step is computed as in bppsa_recurrent_forward_wide, so that it has the bits of the
 * sequential pass. */
#ifndef BPPSA_RECURRENT_GPU_SPECULATE_ANY_CUH
#define BPPSA_RECURRENT_GPU_SPECULATE_ANY_CUH

#include "recurrent/gpu/speculate_kernels.cuh"

enum { ANY_WARPS = 8 }; /* of a block, at most */

/* A block's chunk and sample, and its shared memory: in [H], out [H], and a number for each warp; then W_hhᵀ, if it fits. */
template <typename real> struct any_block {
  int64_t slot, p, b, hidden;
  real *in, *out, *room, *copy;
  const real *w;

  __device__ __forceinline__ any_block(const layer_arrays<real> &c, real *shared)
      : slot(blockIdx.x), p(slot / c.batch), b(slot % c.batch), hidden(c.hidden), in(shared), out(shared + hidden),
        room(shared + 2 * hidden), copy(room + ANY_WARPS), w(NULL) {}
  __device__ __forceinline__ void swap() {
    real *other = in;
    in = out;
    out = other;
  }
  /* Loads the state from which the block goes on. A barrier follows. */
  __device__ __forceinline__ void load(const real *state) {
    load(state, in);
  }
  /* Loads c of a pair likewise, to numbers of which each thread reads only its own. */
  __device__ __forceinline__ void load(const real *state, real *to) const {
    for (int64_t j = threadIdx.x; j < hidden; j += blockDim.x) {
      to[j] = state != NULL ? state[j] : 0;
    }
  }
  __device__ __forceinline__ void store(const real *from, real *state) const {
    load(from, state);
  }
  /* The largest number of all threads; NaN is passed over. */
  __device__ __forceinline__ real largest(real number) const {
    const int warp = (int)threadIdx.x / WARP_LANES, warps = (int)blockDim.x / WARP_LANES;
    number = warp_largest(number);
    if ((int)threadIdx.x % WARP_LANES == 0) {
      room[warp] = number;
    }
    __syncthreads();
    for (int i = 0; i < warps; ++i) {
      number = room[i] > number ? room[i] : number;
    }
    __syncthreads();
    return number;
  }
};

/* The block's place in `aside`; c of a pair comes first. */
template <typename real, template <typename> class cell>
__device__ __forceinline__ real *any_aside(const speculate_arrays<real> &s, const any_block<real> &k) {
  return s.aside + k.slot * (1 + cell<real>::PAIR + cell<real>::SAVED) * k.hidden;
}

/* ANEW: see speculate_chunk. */
template <typename real, template <typename> class cell, bool ANEW>
__global__ void bppsa_recurrent_any_speculate(layer_arrays<real> c, speculate_arrays<real> s, const real *w_t, bool fits) {
  enum { K = cell<real>::MATRICES, SAVED = cell<real>::SAVED, PAIR = cell<real>::PAIR };
  BPPSA_SHARED(real, shared);
  if (s.report->pause.left > 0) {
    return;
  }
  any_block<real> k(c, shared);
  const int64_t from = ANEW ? first_far(c, s, (int)threadIdx.x % WARP_LANES, k.b) + 1 : 0,
                item = (ANEW ? SPECULATE_ANEW : 0) * s.chunks * c.batch + k.slot;
  const speculate_range r = speculate_range_of<ANEW>(c, s, k.p, k.b, from);
  const int64_t begin = r.begin, end = r.end, at = r.at;
  const bool walks = k.p >= from && !r.stays;
  if (threadIdx.x == 0) {
    s.found[item] = 0;
    s.steps[item] = walks ? (int)(end - at) : 0;
    if (walks) {
      s.doubtful[ANEW][k.slot] = r.doubtful;
    }
    if (!ANEW) {
      s.gaps[k.slot] = 0;
      clear_tail(s, k.slot, c.batch);
    }
  }
  if (!walks) {
    return;
  }
  k.w = held_weights(k.hidden * K * k.hidden, w_t, fits, k.copy);
  const real *ends = s.ends[1] + ((from - 1) * c.batch + k.b) * (1 + PAIR) * k.hidden;
  real *aside_c = any_aside<real, cell>(s, k), *aside = aside_c + PAIR * k.hidden, *cells = aside_c;
  k.load(ANEW ? ends : at == 0 ? c.h + k.b * k.hidden : NULL);
  if constexpr (PAIR) {
    k.load(ANEW ? ends + k.hidden : at == 0 ? c.cells + k.b * k.hidden : NULL, aside_c);
  }
  __syncthreads();
  for (int64_t t = at; t < end; ++t) { /* all steps of the warm-up write to one place */
    const int64_t row = t * c.batch + k.b;
    const bool anew = c.resets.at(row);
    real *cells_to = PAIR && t >= begin ? c.cells + (row + c.batch) * k.hidden : aside_c;
    if (anew) {
      k.load(c.begin);
      __syncthreads();
    }
    forward_units<real, cell>(c, k.w, row, k.in, k.out, anew ? begin_cells(c) : cells, cells_to,
                              t < begin ? aside : c.saved + row * SAVED * k.hidden);
    cells = cells_to;
    if (t >= begin) {
      k.store(k.out, c.h + (row + c.batch) * k.hidden);
    }
    __syncthreads();
    k.swap();
  }
  k.store(k.in, s.ends[ANEW] + k.slot * (1 + PAIR) * k.hidden);
  if constexpr (PAIR) {
    k.store(cells, s.ends[ANEW] + (2 * k.slot + 1) * k.hidden);
  }
}

/* Does the walk stop at step t, whose state is in k->out and `cells`? *distance: the largest difference between this thread's units
 * and the stored ones. */
template <typename real, template <typename> class cell>
__device__ bool any_stops(const layer_arrays<real> &c, const speculate_arrays<real> &s, bool first, int64_t t, const real *place,
                          const real *cells, const real *place_c, any_block<real> *k, real *distance, int64_t *since) {
  enum { PAIR = cell<real>::PAIR };
  real size = 0;
  for (int64_t j = threadIdx.x; c.relu && j < k->hidden; j += blockDim.x) {
    const real number = k->out[j] < 0 ? -k->out[j] : k->out[j];
    size = number > size ? number : size;
  }
  const double largest = c.relu ? (double)k->largest(size) : 1;
  const auto is_within = [&](double tolerance) {
    const double most = tolerance * (largest > 1 ? largest : 1); /* infinite where a state has overflowed: then only bits count */
    const bool near = tolerance > 0 && isfinite(most);
    bool differs = false;
    for (int64_t j = threadIdx.x; j < k->hidden; j += blockDim.x) {
      bool same;
      const real apart = unit_distance<PAIR>(k->out[j], place[j], PAIR ? cells[j] : 0, PAIR ? place_c[j] : 0, &same);
      differs |= !(same || (near && (double)apart <= most));
      *distance = apart > *distance ? apart : *distance;
    }
    return __syncthreads_or(differs) == 0;
  };
  return walk_stops(s, first, t, is_within, since);
}

/* Walks from k->in, and of a pair from `cells`, through a chunk until new and stored states agree where the walk looks
 * (recurrent/settle.h), or to its end, whose state is then in k->in and `cells`. */
template <typename real, template <typename> class cell>
__device__ walked<real> any_walk_chunk(const layer_arrays<real> &c, const speculate_arrays<real> &s, int64_t begin, int64_t end,
                                       real *cells, any_block<real> *k) {
  enum { PAIR = cell<real>::PAIR };
  walked<real> w = {};
  int64_t since = BPPSA_SETTLE_NEVER;
  for (int64_t t = begin; t < end; ++t) {
    const int64_t row = t * c.batch + k->b;
    real *place = c.h + (row + c.batch) * k->hidden, *place_c = PAIR ? c.cells + (row + c.batch) * k->hidden : NULL, distance = 0;
    forward_units<real, cell>(c, k->w, row, k->in, k->out, cells, cells, c.saved + row * cell<real>::SAVED * k->hidden);
    ++w.steps;
    if (!bppsa_walk_looks_on_gpu(t - begin, t + 1 == end)) {
      __syncthreads(); /* as a look ends: all have read k->in */
    } else if (any_stops<real, cell>(c, s, t == begin, t, place, cells, place_c, k, &distance, &since)) {
      w.gap = (double)k->largest(distance); /* the stored state stays; what was saved belongs to the state in front of it */
      return w;
    }
    w.found |= SPECULATE_CHANGED;
    k->store(k->out, place);
    if constexpr (PAIR) {
      k->store(cells, place_c);
    }
    if (t + 1 == end) {
      w.found |= SPECULATE_REACHED | ((double)k->largest(distance) > s.far ? SPECULATE_FAR : 0);
    }
    k->swap();
  }
  return w;
}

/* Does what bppsa_recurrent_mend does. Most walks take a few steps, for which no copy of W_hhᵀ pays. */
template <typename real, template <typename> class cell>
__global__ void bppsa_recurrent_any_mend(layer_arrays<real> c, speculate_arrays<real> s, const real *w_t, int phase, int in) {
  enum { PAIR = cell<real>::PAIR };
  BPPSA_SHARED(real, shared);
  if (s.report->pause.left > 0) {
    return;
  }
  any_block<real> k(c, shared);
  const int64_t item = phase * s.chunks * c.batch + k.slot;
  walked<real> w = {};
  k.w = w_t;
  const int64_t state = (1 + PAIR) * k.hidden;
  real *cells = any_aside<real, cell>(s, k);
  if (place_of_round(s.doubtful, in)[k.slot] != 0) { /* chunk 0 is never doubtful */
    const real *before = place_of_round(s.ends, in) + (k.slot - c.batch) * state;
    k.load(before);
    if constexpr (PAIR) {
      k.load(before + k.hidden, cells);
    }
    __syncthreads();
    const walk_range r = walk_range_of(c, s, k.p, k.b);
    w = any_walk_chunk<real, cell>(c, s, r.begin, r.end, cells, &k);
    w.found = walk_found(r, w.found);
  }
  const bool reached = (w.found & SPECULATE_REACHED) != 0;
  const real *kept = place_of_round(s.ends, in) + k.slot * state;
  real *end = place_of_round(s.ends, 1 - in) + k.slot * state;
  k.store(reached ? k.in : kept, end);
  if constexpr (PAIR) {
    k.store(reached ? cells : kept + k.hidden, end + k.hidden);
  }
  if (threadIdx.x == 0) {
    if (k.p + 1 < s.chunks) {
      place_of_round(s.doubtful, 1 - in)[k.slot + c.batch] = (w.found & SPECULATE_REACHED) != 0;
    }
    if (k.p == 0) {
      place_of_round(s.doubtful, 1 - in)[k.slot] = 0;
    }
    s.steps[item] = w.steps;
    s.found[item] = w.found;
    s.gaps[k.slot] = w.gap > s.gaps[k.slot] ? w.gap : s.gaps[k.slot];
  }
}

/* Does what tail_sample does; a block for each sample. */
template <typename real, template <typename> class cell>
__global__ void bppsa_recurrent_any_tail(layer_arrays<real> c, speculate_arrays<real> s, const real *w_t, bool fits, int in) {
  enum { K = cell<real>::MATRICES, PHASE = SPECULATE_PHASES - 1 };
  BPPSA_SHARED(real, shared);
  if (s.report->pause.left > 0) {
    return;
  }
  any_block<real> k(c, shared); /* slot = b */
  const int lane = (int)threadIdx.x % WARP_LANES;
  bool goes_on = false;
  for (int64_t p = next_doubtful(s, in, 0, lane, c.batch, k.b); p < s.chunks;
       p = goes_on ? p + 1 : next_doubtful(s, in, p + 1, lane, c.batch, k.b)) {
    const int64_t slot = p * c.batch + k.b, item = PHASE * s.chunks * c.batch + slot;
    const walk_range r = walk_range_of(c, s, p, k.b);
    k.w = k.w == NULL ? held_weights(k.hidden * K * k.hidden, w_t, fits, k.copy) : k.w;
    real *cells = any_aside<real, cell>(s, k);
    if (!goes_on) {
      k.load(c.h + (r.begin * c.batch + k.b) * k.hidden);
      if constexpr (cell<real>::PAIR) {
        k.load(c.cells + (r.begin * c.batch + k.b) * k.hidden, cells);
      }
    }
    __syncthreads();
    walked<real> w = any_walk_chunk<real, cell>(c, s, r.begin, r.end, cells, &k);
    w.found = walk_found(r, w.found);
    goes_on = (w.found & SPECULATE_REACHED) != 0;
    if (threadIdx.x == 0) {
      s.steps[item] = w.steps;
      s.found[item] = w.found;
      s.gaps[slot] = w.gap > s.gaps[slot] ? w.gap : s.gaps[slot];
    }
  }
}

#endif
