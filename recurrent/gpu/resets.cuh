/* Where samples begin anew (recurrent/resets.c), as the kernels of a layer see it. Steps count from 0, in the order in which the
 * layer walks through time. The state in front of a step that resets a sample is 0, or a learned one (layer_arrays::begin), and its
 * gradient has no part from behind. */
#ifndef BPPSA_RECURRENT_GPU_RESETS_CUH
#define BPPSA_RECURRENT_GPU_RESETS_CUH

#include <stdint.h>

#include "core/compute/launch.cuh"

/* The resets of a layer's direction, twice: as bytes for kernels with a thread for each number of a step, as bits for kernels that
 * take a sample through time. All is 0 where no sample of the batch begins anew: kernels then run as if there were no resets. */
struct layer_resets {
  const uint8_t *mask; /* [T][b], not 0: the sample begins anew in front of the step; NULL: none does */
  const uint32_t
      *words; /* [b][row], bit t % 32 of word t / 32: the same of step t; there is a word of zeros behind the last step */
  int64_t row;

  /* Does row t b + sample of an array [T][b] belong to a step that resets its sample? */
  __device__ __forceinline__ bool at(int64_t row_of_step) const {
    return mask != nullptr && mask[row_of_step] != 0;
  }
  /* Returns the first of the steps first .. end - 1 that resets sample b, or `end`. There are resets. */
  __device__ inline int64_t next(int64_t b, int64_t first, int64_t end) const {
    for (int64_t word = first / 32; word * 32 < end; ++word) {
      const uint32_t bits = words[b * row + word] & (word > first / 32 ? ~0u : ~0u << first % 32);
      if (bits != 0) {
        const int64_t step = word * 32 + __ffs((int)bits) - 1;
        return step < end ? step : end;
      }
    }
    return end;
  }
  /* Returns the last of the steps first .. end - 1 that resets sample b, or first - 1. There are resets. */
  __device__ inline int64_t last(int64_t b, int64_t first, int64_t end) const {
    for (int64_t word = (end - 1) / 32; end > first && word >= first / 32; --word) {
      const uint32_t bits = words[b * row + word] & (word < (end - 1) / 32 ? ~0u : ~0u >> (31 - (end - 1) % 32));
      if (bits != 0) {
        const int64_t step = word * 32 + 31 - __clz((int)bits);
        return step >= first ? step : first - 1;
      }
    }
    return first - 1;
  }
  /* Returns a bit for each of the steps first .. first + 31, as far as they exist: bit i says whether step first + i resets sample
   * b. There are resets. */
  __device__ __forceinline__ uint32_t from(int64_t b, int64_t first) const {
    const uint32_t *at = words + b * row + first / 32;
    const int by = (int)(first % 32);
    return by == 0 ? at[0] : at[0] >> by | at[1] << (32 - by);
  }
  /* The same backward: bit i says whether step end - 1 - i resets sample b. */
  __device__ __forceinline__ uint32_t back(int64_t b, int64_t end) const {
    return end < 32 ? __brev(words[b * row] << (32 - end)) : __brev(from(b, end - 32));
  }
};

/* A walk takes rounds of so many steps; it also has a form of them that is faster (WHOLE), for rounds in which no sample begins
 * anew and that have all their steps, as the next round has. Returns how many steps are left when the walk cannot go on in this
 * form, of `left` steps whose first `plain` reset no sample. */
__device__ __forceinline__ int64_t rounds_stop(int64_t left, int64_t plain, int steps) {
  const int64_t least = 2 * steps - 1, stop = left - plain / steps * steps;
  return stop > least ? stop : least;
}

#endif
