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
    return bits_of(at[0], at[1], (int)(first % 32));
  }
  /* The same backward: bit i says whether step end - 1 - i resets sample b. end: more than -32. */
  __device__ __forceinline__ uint32_t back(int64_t b, int64_t end) const {
    const int64_t word = (end + 31) / 32 - 1; /* the word of the last of these steps, if there is one */
    const uint32_t *at = words + b * row + (word > 0 ? word : 0);
    return __brev(bits_of(word > 0 ? at[-1] : 0, end > 0 ? at[0] : 0, (int)((end + 31) % 32 + 1)));
  }

  /* 32 bits of two words, from bit `by` of the first one on; by: 0 .. 32. */
  __device__ static __forceinline__ uint32_t bits_of(uint32_t low, uint32_t high, int by) {
    return (uint32_t)(((uint64_t)high << 32 | low) >> by);
  }
};

enum { RESET_STEPS = 32 }; /* a call of resets_ahead::next() gives the resets of so many steps */

/* Goes forward through the resets of sample b: each call of next() returns the next 32 steps' resets, as layer_resets::from. A
 * word is read 32 steps before its bits are needed. */
struct resets_ahead {
  const uint32_t *at, *last;
  uint32_t low, high;
  int by;

  __device__ __forceinline__ resets_ahead(const layer_resets &r, int64_t b, int64_t first)
      : at(r.words + b * r.row + first / 32), last(r.words + (b + 1) * r.row - 1), low(*at), by((int)(first % 32)) {
    at += at < last;
    high = *at;
  }
  __device__ __forceinline__ uint32_t next() {
    const uint32_t bits = layer_resets::bits_of(low, high, by);
    low = high;
    at += at < last;
    high = *at;
    return bits;
  }
};

/* Calls round(bits) for so many rounds of STEPS steps: bit i of `bits` says whether step i of the round resets the sample. */
template <int STEPS, typename F>
__device__ __forceinline__ void rounds_with_resets(resets_ahead resets, int64_t rounds, const F &round) {
  while (rounds > 0) {
    uint32_t bits = resets.next();
    const int now = rounds < RESET_STEPS / STEPS ? (int)rounds : RESET_STEPS / STEPS;
    BPPSA_UNROLL_BY(1)
    for (int left = now; left > 0; --left) {
      round(bits);
      bits >>= STEPS;
    }
    rounds -= now;
  }
}

/* Goes with one warp through the resets of a sample, in rounds of STEPS steps. Each lane reads the byte of one of a round's steps,
 * and a vote gives all of them: bit i of `bits` says whether step i of the present round resets the sample (bits i +
 * STEPS, .. say the same). Bytes are read one round ahead or, where rounds are short, two, so that nobody waits for them. */
template <int STEPS> struct resets_of_rounds {
  enum { EARLY = STEPS >= 8 ? 1 : 2 };
  const uint8_t *at; /* the lane's byte of the next round to read */
  int64_t row;       /* bytes from one round to the next; negative: backward */
  uint32_t bits;
  uint8_t coming, later; /* of the next round and, EARLY = 2, of the one behind it */

  /* first: the row of the first round's first step; back: the next step is the one in front of it. steps: how many there are. */
  __device__ __forceinline__ void begin(const layer_resets &r, int64_t batch, int lane, int64_t first, bool back, int64_t steps) {
    const int64_t step = back ? -batch : batch;
    at = r.mask + first + step_of(lane) * step;
    row = STEPS * step;
    fetch_if(step_of(lane) < steps);
    coming = later;
    vote();
    if (EARLY == 2) {
      fetch_if(STEPS + step_of(lane) < steps);
    }
  }
  /* A round begins, of `left` steps that are left: reads bytes of a later round. whole: this round and the next have all steps. */
  __device__ __forceinline__ void fetch(bool whole, int64_t left, int lane) {
    if (EARLY == 2) {
      coming = later;
    }
    fetch_if((whole && EARLY == 1) || EARLY * STEPS + step_of(lane) < left);
    if (EARLY == 1) {
      coming = later;
    }
  }
  /* Finds the bits of the next round. */
  __device__ __forceinline__ void vote() {
    bits = __ballot_sync(0xffffffffu, coming != 0);
  }

private:
  /* Returns the lane's step in a round. */
  __device__ static __forceinline__ int step_of(int lane) {
    return lane % STEPS;
  }
  __device__ __forceinline__ void fetch_if(bool exists) {
    later = 0;
    if (exists) {
      later = *at;
      at += row;
    }
  }
};

/* For walks whose rounds of so many steps are faster (WHOLE) where no sample begins anew in them and they have all their steps, as
 * the next round has. Returns how many steps are left when the walk cannot go on in this form, of `left` steps whose first `plain`
 * reset no sample. */
__device__ __forceinline__ int64_t rounds_stop(int64_t left, int64_t plain, int steps) {
  const int64_t least = 2 * steps - 1, stop = left - plain / steps * steps;
  return stop > least ? stop : least;
}

#endif
