/* Random numbers of one case; they depend on its seed alone. */
#ifndef BPPSA_TESTS_SUPPORT_DICE_H
#define BPPSA_TESTS_SUPPORT_DICE_H

#include "core/base/philox.h"

typedef struct {
  uint64_t seed, drawn;
} dice;

static inline int64_t roll(dice *d, int64_t least, int64_t most) {
  return least + (int64_t)(bppsa_random_u32(d->seed, BPPSA_STREAM_TEST, d->drawn++) % (uint64_t)(most - least + 1));
}

#endif
