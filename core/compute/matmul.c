#include "core/compute/matmul.h"

#include <stdbool.h>
#include <stddef.h>

/* Does B exceed the second-level cache? Then it is read block by block, each of which serves all rows of A. */
static bool is_large(int64_t n, int64_t k) {
  return n * k > (int64_t)1 << 18;
}

int64_t bppsa_sample_block(int64_t batch, int32_t threads, int64_t n, int64_t k) {
  enum { LEAST = 16, MOST = 64, MOST_LARGE = 256 };
  const int64_t share = (batch + threads - 1) / threads, block = (share + LEAST - 1) / LEAST * LEAST,
                most = is_large(n, k) ? MOST_LARGE : MOST;
  return block < LEAST ? LEAST : block > most ? most : block;
}

#define EACH_REAL "core/compute/matmul.inc"
#include "core/base/each_real.inc"
