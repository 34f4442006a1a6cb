/* Philox4x32-10, a counter-based random number generator (Salmon et al., SC'11).
 *
 * A random number is a pure function of (seed, stream, index). Nothing is stored, any thread can make any number at any time, and
 * the numbers are the same on every device.
 */
#ifndef BPPSA_CORE_BASE_PHILOX_H
#define BPPSA_CORE_BASE_PHILOX_H

#include <stdint.h>

#include "core/base/host_device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Streams: one for each use, so that no two uses share numbers. */
enum {
  BPPSA_STREAM_WEIGHTS = 1, /* + the parameter's position, shifted by 8 */
  BPPSA_STREAM_LABELS = 2,
  BPPSA_STREAM_BITS = 3, /* + the feature, shifted by 8 */
  BPPSA_STREAM_SHUFFLE = 4,
  BPPSA_STREAM_TEST = 5,
  BPPSA_STREAM_INSTRUMENTS = 6, /* + the file's number, shifted by 8 */
  BPPSA_STREAM_SOUND = 7,       /* likewise, for its noise */
  BPPSA_STREAM_IMAGES = 8,      /* + the image's number, shifted by 8 */
  BPPSA_STREAM_DROPOUT = 9,     /* + the layer, shifted by 8, and the step of training, by 32 */
  BPPSA_STREAM_PROBE = 10,      /* + the chunk, shifted by 8 */
  BPPSA_STREAM_ROWS = 11        /* + the layers of the product, shifted by 8 */
};

/* One block of four 32-bit numbers: 10 rounds on counter (c[0..3]) with key (k0, k1). */
static inline BPPSA_HOST_DEVICE void bppsa_philox_block(uint32_t k0, uint32_t k1, const uint32_t c[4], uint32_t out[4]) {
  uint32_t x0 = c[0], x1 = c[1], x2 = c[2], x3 = c[3];
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = (uint64_t)0xD2511F53u * x0;
    const uint64_t p1 = (uint64_t)0xCD9E8D57u * x2;
    const uint32_t y0 = (uint32_t)(p1 >> 32) ^ x1 ^ k0;
    const uint32_t y2 = (uint32_t)(p0 >> 32) ^ x3 ^ k1;
    x1 = (uint32_t)p1;
    x3 = (uint32_t)p0;
    x0 = y0;
    x2 = y2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = x0;
  out[1] = x1;
  out[2] = x2;
  out[3] = x3;
}

/* Block `index` of a stream: key = seed, counter = (index, stream). */
static inline BPPSA_HOST_DEVICE void bppsa_random_block(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4]) {
  const uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)};
  bppsa_philox_block((uint32_t)seed, (uint32_t)(seed >> 32), counter, out);
}

/* Number `index` of a stream: 32 random bits (lane index % 4 of block index / 4). */
static inline BPPSA_HOST_DEVICE uint32_t bppsa_random_u32(uint64_t seed, uint64_t stream, uint64_t index) {
  uint32_t out[4];
  bppsa_random_block(seed, stream, index >> 2, out);
  return out[index & 3];
}

/* 64 random bits: lanes 0 and 1 of block `index`. Do not mix with bppsa_random_u32 on one stream. */
static inline BPPSA_HOST_DEVICE uint64_t bppsa_random_u64(uint64_t seed, uint64_t stream, uint64_t index) {
  uint32_t out[4];
  bppsa_random_block(seed, stream, index, out);
  return (uint64_t)out[1] << 32 | out[0];
}

/* Uniform in [0, 1) with 53 random bits. Do not mix with bppsa_random_u32 on one stream. */
static inline BPPSA_HOST_DEVICE double bppsa_random_double(uint64_t seed, uint64_t stream, uint64_t index) {
  return (double)(bppsa_random_u64(seed, stream, index) >> 11) * 0x1p-53;
}

/* Uniform in 0 .. bound-1 for bound >= 1, by multiply-shift: the bias is below bound / 2^64. */
static inline BPPSA_HOST_DEVICE uint64_t bppsa_random_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t bound) {
  const uint64_t bits = bppsa_random_u64(seed, stream, index);
  const uint64_t low = (bits & 0xFFFFFFFFu) * bound; /* bound < 2^32 */
  return ((bits >> 32) * bound + (low >> 32)) >> 32;
}

#ifdef __cplusplus
}
#endif
#endif
