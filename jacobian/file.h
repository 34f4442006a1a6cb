/* Sparse matrices in files: NPZ in the layout of SciPy's sparse.save_npz, and the coordinate format of Matrix Market.
 *
 * Readers do not trust a file: its sizes are checked against the file's size before memory is allocated, patterns are checked
 * entry by entry, and messages name the byte or the line.
 */
#ifndef BPPSA_JACOBIAN_FILE_H
#define BPPSA_JACOBIAN_FILE_H

#include "jacobian/csr.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most bytes, and the most rows, of a Matrix Market file that is read, so that the worst file takes less than 1 GiB and 5 s. */
#define BPPSA_MTX_LIMIT ((int64_t)64 << 20)
#define BPPSA_MTX_ROWS ((int64_t)16 << 20)

/* A matrix with its values, both owned; free with bppsa_csr_matrix_free. */
typedef struct {
  bppsa_csr csr;
  bppsa_dtype dtype; /* f32, f64 */
  void *values;      /* [nnz] */
} bppsa_csr_matrix;

void bppsa_csr_matrix_free(bppsa_csr_matrix *matrix); /* a zeroed one is legal */

/* Writes an uncompressed archive of indices, indptr, format, shape and data, atomically. ERR_IO; ERR_UNSUPPORTED: an array of 4
 * GiB or more. */
bppsa_status bppsa_csr_save_npz(const char *path, const bppsa_csr *csr, bppsa_dtype dtype, const void *values);
/* Reads such an archive, compressed or not. ERR_UNSUPPORTED: values other than f32 and f64, a format other than csr. ERR_IO,
 * ERR_FORMAT, ERR_MEMORY. */
bppsa_status bppsa_csr_load_npz(const char *path, bppsa_csr_matrix *matrix);

/* Writes "%%MatrixMarket matrix coordinate real general" with enough digits to restore every value. */
bppsa_status bppsa_csr_save_mtx(const char *path, const bppsa_csr *csr, bppsa_dtype dtype, const void *values);
/* Reads a file of kind coordinate, real, (unsigned-)integer or pattern (values 1), general, symmetric or skew-symmetric (of a pair
 * of entries one is in the file), in small letters or capitals; entries in any order, none twice. Values are f64: decimal numbers
 * in its range, inf and nan. ERR_IO; ERR_FORMAT, with the line; ERR_UNSUPPORTED: another kind; ERR_MEMORY. */
bppsa_status bppsa_csr_load_mtx(const char *path, bppsa_csr_matrix *matrix);

/* Chooses the format by the ending of the path, .npz or .mtx. ERR_ARGUMENT: another ending. */
bppsa_status bppsa_csr_save(const char *path, const bppsa_csr *csr, bppsa_dtype dtype, const void *values);
bppsa_status bppsa_csr_check_path(const char *path);
/* Recognises the format by the file's content, whatever its name. */
bppsa_status bppsa_csr_load(const char *path, bppsa_csr_matrix *matrix);

#ifdef __cplusplus
}
#endif
#endif
