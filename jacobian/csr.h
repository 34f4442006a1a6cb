/* Sparse matrices in compressed rows. A bppsa_csr is a pattern without values, so that the samples of a batch can share it.
 *
 * Values are reals in the pattern's order: [nnz] where all samples share them (convolutions), otherwise [B][nnz] (ReLUs).
 *
 * The Jacobian of an operator on images has more structure: row (r, x) of channel r and position x holds the columns (c, z) of
 * every channel c of r's group and of every position z in row x of a small pattern S of positions. Such a matrix is written
 * K ⊗ S, where K is block diagonal with `groups` dense blocks: a convolution without a mask, a ReLU (as many groups as channels,
 * S = I), a pool, a linear operator (S has one column). Products of such matrices have this structure too, and their patterns and
 * FLOPs follow from it without looking at single entries.
 *
 * Between the layers of a graph, tensors that a layer only passes on give blocks of identities. Such ones are a second
 * pattern beside the first: they have no values, a mat-vec adds them, and a product never multiplies by them. A position may be in
 * both patterns; the matrix has the sum there.
 */
#ifndef BPPSA_JACOBIAN_CSR_H
#define BPPSA_JACOBIAN_CSR_H

#include "core/base/view.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bppsa_csr_blocks bppsa_csr_blocks; /* the channel structure K ⊗ S of a pattern */

typedef struct bppsa_csr {
  int64_t rows, cols, nnz;
  int64_t *row_ptr;         /* first entry of each row, size rows + 1; NULL: the pattern is known by its blocks alone */
  int32_t *col;             /* columns, increasing within a row, size nnz; NULL likewise */
  bool identity;            /* the identity matrix with values 1: products with it are not computed */
  bppsa_csr_blocks *blocks; /* its channel structure K ⊗ S; NULL: unknown */
  struct bppsa_csr *ones;   /* further entries, all of them 1: a pattern with columns, owned; NULL: none. nnz leaves them out */
} bppsa_csr;

struct bppsa_csr_blocks {
  int64_t groups;                     /* number of groups; it divides both channel counts */
  int64_t row_channels, col_channels; /* K ⊗ S has row_channels * S.rows rows and col_channels * S.cols columns */
  bppsa_csr positions;                /* S, owned; without blocks of its own */
  int64_t first_row, first_col;       /* where K ⊗ S begins; it is the whole matrix unless there are ones beside it */
};

/* Values of a batch: sample b begins at data + b * stride reals; stride 0: all samples share them. Borrowed. */
typedef struct {
  const void *data;
  int64_t stride;
} bppsa_csr_values;

/* Allocates a pattern: row_ptr is zeroed, columns are not set. The caller frees it with bppsa_csr_free. ERR_SHAPE: a negative
 * extent, or more columns than 2^31 - 1; ERR_MEMORY. */
bppsa_status bppsa_csr_create(int64_t rows, int64_t cols, int64_t nnz, bppsa_csr *csr);
/* Frees the arrays and zeroes the struct. A zeroed struct is legal. */
void bppsa_csr_free(bppsa_csr *csr);
bppsa_status bppsa_csr_copy(const bppsa_csr *from, bppsa_csr *to);

/* Makes the pattern K ⊗ S from its structure, without arrays for the single entries. Takes over *positions in every case.
 * ERR_SHAPE, ERR_ARGUMENT: groups do not divide the channels, counts exceed 64 bits, more columns than 2^31 - 1. */
bppsa_status bppsa_csr_from_blocks(int64_t groups, int64_t row_channels, int64_t col_channels, bppsa_csr *positions,
                                   bppsa_csr *csr);
/* Adds row_ptr and columns to a pattern that is known by its structure alone. */
bppsa_status bppsa_csr_expand(bppsa_csr *csr, int32_t threads);

/* ERR_FORMAT, naming the row, where the arrays are no pattern: offsets decrease or leave the array, columns are out of range or
 * do not increase. */
bppsa_status bppsa_csr_check(const bppsa_csr *csr);
bool bppsa_csr_same(const bppsa_csr *a, const bppsa_csr *b); /* shape, pattern and ones */
bool bppsa_csr_is_full(const bppsa_csr *csr);                /* every entry is in the pattern, and there is at least one */

/* Bytes of pattern and values of one sample in the form of CSR files and other libraries: int32 offsets and columns. */
int64_t bppsa_csr_bytes(const bppsa_csr *csr, bppsa_dtype dtype);
/* Fraction of entries that are not in the pattern: 1 - nnz / (rows cols); 0 for an empty matrix. */
double bppsa_csr_sparsity(const bppsa_csr *csr);

/* Drops the entries whose values are zero: makes the pattern of one sample from a pattern without ones known ahead of time. The
 * caller frees *compact_values with bppsa_free. dtype f32 or f64. ERR_MEMORY. */
bppsa_status bppsa_csr_compact(const bppsa_csr *csr, bppsa_dtype dtype, const void *values, bppsa_csr *compact,
                               void **compact_values);

/* Makes room for ones beside the entries of a pattern that has none yet. ERR_MEMORY. */
bppsa_status bppsa_csr_add_ones(bppsa_csr *csr, int64_t count);
/* Has the pattern no entries but ones, or is it the identity? Then nothing is multiplied by it. */
bool bppsa_csr_only_ones(const bppsa_csr *csr);

/* y_b = A_b x_b for b < batch: x [batch][cols], y [batch][rows]. A row is summed in the order of its entries, then of its ones. */
void bppsa_csr_apply(const bppsa_csr *csr, bppsa_dtype dtype, int32_t threads, int64_t batch, bppsa_csr_values values,
                     const void *x, void *y);

#ifdef __cplusplus
}
#endif
#endif
