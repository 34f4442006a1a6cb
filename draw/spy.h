/* Draws a picture of a sparse matrix (BPPSA figure 5). */
#ifndef BPPSA_DRAW_SPY_H
#define BPPSA_DRAW_SPY_H

#include "core/base/view.h"

/* Writes a PNG of at most 1024 x 1024 pixels of the matrix whose row r has the entries row_ptr[r] .. row_ptr[r + 1] - 1; entry k
 * is in column col[k] and has the real values[k]. A pixel stands for a rectangle of the matrix: yellow if it has an entry that is
 * not 0, cyan if all its entries are 0 for this input (possible zeros), purple if it has no entries (guaranteed zeros). ERR_IO,
 * ERR_MEMORY. */
bppsa_status bppsa_spy_save(const char *path, int64_t rows, int64_t cols, const int64_t *row_ptr, const int32_t *col,
                            bppsa_dtype dtype, const void *values);

#endif
