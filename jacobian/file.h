/* Sparse matrices in files: NPZ as SciPy's sparse.save_npz writes it, and Matrix Market's coordinate format.
 *
 * Readers trust nothing: what a file claims is checked against its size before room is made for it, patterns are checked entry by
 * entry, and messages name the byte or the line.
 */
#ifndef BPPSA_JACOBIAN_FILE_H
#define BPPSA_JACOBIAN_FILE_H

#include "jacobian/csr.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A matrix with its values, both owned; free with bppsa_csr_matrix_free. */
typedef struct {
  bppsa_csr csr;
  bppsa_dtype dtype; /* f32, f64 */
  void *values;      /* [nnz] */
} bppsa_csr_matrix;

void bppsa_csr_matrix_free(bppsa_csr_matrix *matrix); /* a zeroed one is legal */

/* Writes the archive of indices, indptr, format, shape and data, uncompressed, atomically. ERR_IO; ERR_UNSUPPORTED: an array of 4
 * GiB or more. */
bppsa_status bppsa_csr_save_npz(const char *path, const bppsa_csr *csr, bppsa_dtype dtype, const void *values);
/* Reads one, compressed or not; values other than f32 and f64, and other formats than csr, are refused. ERR_IO, ERR_FORMAT,
 * ERR_UNSUPPORTED, ERR_MEMORY. */
bppsa_status bppsa_csr_load_npz(const char *path, bppsa_csr_matrix *matrix);

/* "%%MatrixMarket matrix coordinate real general", enough digits that nothing is lost. */
bppsa_status bppsa_csr_save_mtx(const char *path, const bppsa_csr *csr, bppsa_dtype dtype, const void *values);
/* Reads one: coordinate, real, integer or pattern (all 1), general; entries in any order, none twice. Values are f64. */
bppsa_status bppsa_csr_load_mtx(const char *path, bppsa_csr_matrix *matrix);

/* By the ending of the path, .npz or .mtx. ERR_ARGUMENT: another one. */
bppsa_status bppsa_csr_save(const char *path, const bppsa_csr *csr, bppsa_dtype dtype, const void *values);
bppsa_status bppsa_csr_load(const char *path, bppsa_csr_matrix *matrix);
bppsa_status bppsa_csr_check_path(const char *path);

#ifdef __cplusplus
}
#endif
#endif
