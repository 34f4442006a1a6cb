/* The random numbers of the bitstream task, for CPU and GPU.
 *
 * Sample s has class c = number s of the label stream, uniform in 0..9, or in 0..C-1 where a data set has C < 10 classes. Its bit t
 * compares lane t % 4 of block (s, t / 4) of the bit stream with (0.05 + 0.1 c) 2^32, rounded down. If a step has several features,
 * each has its own stream and all have the same class: the stream of feature i is number i << 8 behind the first.
 */
#ifndef BPPSA_TRAIN_DATA_BITSTREAM_H
#define BPPSA_TRAIN_DATA_BITSTREAM_H

#include "core/base/philox.h"

enum { BPPSA_BITSTREAM_CLASSES = 10 /* at most */ };

static inline BPPSA_HOST_DEVICE int64_t bppsa_bitstream_class(uint64_t seed, int64_t classes, int64_t sample) {
  return (int64_t)bppsa_random_below(seed, BPPSA_STREAM_LABELS, (uint64_t)sample, (uint64_t)classes);
}

/* A bit is set if its random number is below this threshold. */
static inline BPPSA_HOST_DEVICE uint32_t bppsa_bitstream_threshold(int64_t c) {
  return (uint32_t)((uint64_t)(1 + 2 * c) * (UINT64_C(1) << 32) / 20);
}

/* The four random numbers of steps t .. t+3 of a feature; t is a multiple of 4. */
static inline BPPSA_HOST_DEVICE void bppsa_bitstream_random(uint64_t seed, int64_t sample, int64_t feature, int64_t t,
                                                            uint32_t random[4]) {
  bppsa_random_block(seed, BPPSA_STREAM_BITS + ((uint64_t)feature << 8), (uint64_t)sample << 32 | (uint64_t)t >> 2, random);
}

#endif
