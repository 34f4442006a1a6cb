/* Chunks that lanes of the parallel forward pass on a GPU look for, and the steps that they walk (speculate_kernels.cuh). */
#ifndef BPPSA_RECURRENT_GPU_SPECULATE_RANGE_CUH
#define BPPSA_RECURRENT_GPU_SPECULATE_RANGE_CUH

#include "core/base/cut.h"
#include "recurrent/gpu/cell_cuda.cuh"
#include "recurrent/gpu/lanes.cuh"
#include "recurrent/gpu/speculate_arrays.cuh"

/* Returns one of the two places of ends and doubts. A variable index would put all of the kernel's parameters on the stack. */
template <typename T> __device__ __forceinline__ T *place_of_round(T *const places[2], int place) {
  return place == 0 ? places[0] : places[1];
}

/* Finds the first chunk from `from` on for which `is` holds; C: none. A warp asks for 32 chunks at once. The result is the same in
 * all its lanes. */
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

/* Finds the first chunk of sample b that moved far in the first round; C: none. */
template <typename real>
__device__ int64_t first_far(const layer_arrays<real> &c, const speculate_arrays<real> &s, int lane, int64_t b) {
  const int *found = s.found + s.chunks * c.batch;
  return first_chunk(0, s.chunks, lane,
                     [&](int64_t chunk) { return chunk > 0 && (found[chunk * c.batch + b] & SPECULATE_FAR) != 0; });
}

/* Finds the next chunk of sample b, from `from` on, that the rounds left doubtful; C: none. */
template <typename real>
__device__ __forceinline__ int64_t next_doubtful(const speculate_arrays<real> &s, int in, int64_t from, int lane, int64_t batch,
                                                 int64_t b) {
  const int *doubtful = place_of_round(s.doubtful, in);
  return first_chunk(from, s.chunks, lane, [&](int64_t chunk) { return doubtful[chunk * batch + b] != 0; });
}

/* The steps at .. end - 1 of a lane that speculates the chunk begin .. end - 1. */
struct speculate_range {
  int64_t begin, end, at;
  bool doubtful; /* the chunk must be verified */
  bool stays;    /* of speculation anew: the chunk's first guess was exact */
};

/* Returns where chunk p of sample b is, and where its lane starts: W steps early, or at the last reset of these steps, where the
 * state is 0 for certain. ANEW: as of speculate_chunk. */
template <bool ANEW, typename real>
__device__ __forceinline__ speculate_range speculate_range_of(const layer_arrays<real> &c, const speculate_arrays<real> &s,
                                                              int64_t p, int64_t b, int64_t from) {
  speculate_range r = {};
  r.begin = bppsa_cut(c.steps, s.chunks, p);
  r.end = bppsa_cut(c.steps, s.chunks, p + 1);
  const int64_t early = r.begin - s.warm_up, least = ANEW && from < s.chunks ? bppsa_cut(c.steps, s.chunks, from) : 0;
  r.at = early > least ? early : least;
  r.doubtful = r.at > least;
  if (c.resets.mask != NULL) {
    const int64_t first = early > 1 ? early : 1, reset = c.resets.last(b, first, r.begin + 1);
    r.stays = ANEW && reset >= first;
    r.at = !ANEW && reset >= first ? reset : r.at;
    r.doubtful = r.doubtful && reset < first;
  }
  return r;
}

/* The steps begin .. end - 1 that the walk which mends chunk p of sample b takes at most. */
struct walk_range {
  int64_t begin, end;
  bool cut; /* the sample begins anew in front of step `end`: what is stored from there on stays */
};

template <typename real>
__device__ __forceinline__ walk_range walk_range_of(const layer_arrays<real> &c, const speculate_arrays<real> &s, int64_t p,
                                                    int64_t b) {
  walk_range r = {bppsa_cut(c.steps, s.chunks, p), bppsa_cut(c.steps, s.chunks, p + 1), false};
  if (c.resets.mask != NULL) {
    const int64_t reset = c.resets.next(b, r.begin + 1, r.end + 1);
    r.cut = reset <= r.end;
    r.end = r.cut ? reset : r.end;
  }
  return r;
}

/* What a walk found of its range: in front of a reset it has not reached the chunk's end. */
__device__ __forceinline__ int walk_found(const walk_range &r, int found) {
  return r.cut ? found & SPECULATE_CHANGED : found;
}

#endif
