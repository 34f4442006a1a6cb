/* Sums over blocks whose size depends on the number of terms alone, so that the bits are the same with any number of threads. The
 * partial sums fit on the stack. Internal. */
#ifndef BPPSA_TRAIN_BLOCKS_H
#define BPPSA_TRAIN_BLOCKS_H

#include <stdint.h>

#include "core/compute/device.h"

enum { BPPSA_BLOCKS = 64 };

/* Returns the number of terms in a block: at least `least`, and enough that there are at most BPPSA_BLOCKS blocks. */
static inline int64_t bppsa_block_terms(int64_t count, int64_t least) {
  const int64_t terms = (count - 1) / BPPSA_BLOCKS + 1;
  return terms < least ? least : terms;
}

static inline int64_t bppsa_min(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* Host threads of a device; 1 for NULL. */
static inline int32_t bppsa_threads(const bppsa_device *device) {
  return device == NULL ? 1 : bppsa_device_get_threads(device);
}

#endif
