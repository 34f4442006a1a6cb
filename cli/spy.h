/* A picture of a sparse matrix (BPPSA figure 5). */
#ifndef BPPSA_CLI_SPY_H
#define BPPSA_CLI_SPY_H

#include "jacobian/csr.h"

/* Writes a PNG of at most 1024 x 1024 pixels, a pixel a cell of entries: yellow where one is not 0, cyan where there are only entries that are 0 for
 * this input (possible zeros), purple where there are none (guaranteed zeros). ERR_IO, ERR_MEMORY. */
bppsa_status bppsa_spy_save(const char *path, const bppsa_csr *csr, bppsa_dtype dtype, const void *values);

#endif
