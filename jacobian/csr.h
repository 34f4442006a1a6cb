/* Compressed sparse rows. A bppsa_csr is a pattern; values lie apart from it, so that a batch shares one pattern.
 *
 * Values are reals in the pattern's order: [nnz] where all samples share them (a convolution's), [B][nnz] otherwise (a ReLU's).
 *
 * Jacobians of images know more than their pattern: row (r, x) of channel r and position x holds the columns (c, z) of every
 * channel c of r's group and of every position z in row x of a small pattern S of positions. Such a matrix is written K ⊗ S
 * here, K block diagonal with `groups` dense blocks: a convolution without a mask, a ReLU (as many groups as channels, S = I), a
 * pool, a linear operator (S has one column). The structure is closed under products, and tells their patterns and FLOPs without
 * looking at single entries.
 */
#ifndef BPPSA_JACOBIAN_CSR_H
#define BPPSA_JACOBIAN_CSR_H

#include "core/view.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bppsa_csr_blocks bppsa_csr_blocks;

typedef struct {
  int64_t rows, cols, nnz;
  int64_t *row_ptr;         /* first entry of each row, size rows + 1; NULL: known by its blocks alone */
  int32_t *col;             /* columns, increasing within a row, size nnz; NULL likewise */
  bool identity;            /* the identity matrix with values 1: products with it are not computed */
  bppsa_csr_blocks *blocks; /* its channel structure, or NULL: none is known */
} bppsa_csr;

struct bppsa_csr_blocks {
  int64_t groups;                     /* divides both: */
  int64_t row_channels, col_channels; /* rows = row_channels * S.rows, cols = col_channels * S.cols */
  bppsa_csr positions;                /* S, owned; without blocks of its own */
};

/* Values of a batch: sample b's begin at data + b * stride reals; stride 0: all samples share them. Borrowed. */
typedef struct {
  const void *data;
  int64_t stride;
} bppsa_csr_values;

/* Room for a pattern: row_ptr zeroed, columns not set. The caller frees it with bppsa_csr_free. ERR_SHAPE: a negative extent, or
 * more columns than 2^31 - 1; ERR_MEMORY. */
bppsa_status bppsa_csr_create(int64_t rows, int64_t cols, int64_t nnz, bppsa_csr *csr);
/* Releases and empties it. A zeroed one is legal. */
void bppsa_csr_free(bppsa_csr *csr);
bppsa_status bppsa_csr_copy(const bppsa_csr *from, bppsa_csr *to);

/* The pattern K ⊗ S known by its structure alone; takes over *positions in every case. ERR_SHAPE, ERR_ARGUMENT: groups do not
 * divide the channels, counts beyond 64 bits, more columns than 2^31 - 1. */
bppsa_status bppsa_csr_from_blocks(int64_t groups, int64_t row_channels, int64_t col_channels, bppsa_csr *positions,
                                   bppsa_csr *csr);
/* Gives a pattern that is known by its structure alone its row_ptr and columns. */
bppsa_status bppsa_csr_expand(bppsa_csr *csr, int32_t threads);

/* ERR_FORMAT, naming the row, where the pattern is not one: offsets that fall or leave the array, columns out of range or not
 * increasing. */
bppsa_status bppsa_csr_check(const bppsa_csr *csr);
bool bppsa_csr_same(const bppsa_csr *a, const bppsa_csr *b); /* shape and pattern */
bool bppsa_csr_is_full(const bppsa_csr *csr);                /* an entry everywhere, and one at least */

/* Bytes of pattern and values of one sample as CSR files and other libraries hold them: int32 offsets and columns. */
int64_t bppsa_csr_bytes(const bppsa_csr *csr, bppsa_dtype dtype);
/* Fraction of entries that are not there: 1 - nnz / (rows cols); 0 for an empty matrix. */
double bppsa_csr_sparsity(const bppsa_csr *csr);

/* The pattern without the entries whose values are zero, with its values (owned, bppsa_free): from a pattern known ahead of time
 * to that of one sample. dtype f32 or f64. ERR_MEMORY. */
bppsa_status bppsa_csr_compact(const bppsa_csr *csr, bppsa_dtype dtype, const void *values, bppsa_csr *compact,
                               void **compact_values);

/* y_b = A_b x_b for b < batch: x [batch][cols], y [batch][rows]. A row is summed in the order of its entries. */
void bppsa_csr_apply(const bppsa_csr *csr, bppsa_dtype dtype, int32_t threads, int64_t batch, bppsa_csr_values values,
                     const void *x, void *y);

#ifdef __cplusplus
}
#endif
#endif
