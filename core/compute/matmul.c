#include "core/compute/matmul.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "core/compute/flush.h"
#include "core/compute/pool.h"

enum {
  PANEL_BYTES = 1 << 14, /* half a first-level cache */
  MOST_PANEL_ROW = 128,  /* bytes of a panel's row with the widest vectors */
  COPY_DEPTH = 256,      /* the most rows of a panel, and numbers in a row of A, that are copied together */
  FEW_ROWS = 3,          /* in a product, or fewer: several panels are read at once */
  ROWS_IN_PLACE = 256,   /* rows of A that one copy of a panel serves where A's rows are in one piece */
  /* for so many rows of A, and numbers of B, B is copied panel by panel */
  ROWS_WORTH_PACKING = 64,
  NUMBERS_WORTH_PACKING = 1 << 14
};

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

int64_t bppsa_panels_bytes(int64_t k, int64_t n, int64_t size) {
  return k * ((n * size + MOST_PANEL_ROW - 1) / MOST_PANEL_ROW * MOST_PANEL_ROW);
}

#define EACH_REAL "core/compute/matmul.inc"
#include "core/base/each_real.inc"
