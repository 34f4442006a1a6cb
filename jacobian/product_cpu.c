/* Numeric products on the CPU. */
#include <string.h>

#include "core/compute/flush.h"
#include "core/compute/pool.h"
#include "jacobian/kernels.h"
#include "jacobian/product_internal.h"

enum { BAND_ROWS = 64, BAND_COLS = 512 }; /* of a task: fixed, so that the bits are fixed */

static int64_t tiles_of(const product_band *band) {
  return (band->rows + BAND_ROWS - 1) / BAND_ROWS * ((band->n + BAND_COLS - 1) / BAND_COLS);
}

/* Tiles of all bands of one sample. */
static int64_t all_tiles(const bppsa_product *p) {
  int64_t tiles = 0;
  for (int64_t i = 0; i < p->band_count; ++i) {
    tiles += tiles_of(&p->bands[i]);
  }
  return tiles;
}

#define EACH_REAL "jacobian/product.inc"
#include "core/base/each_real.inc"
