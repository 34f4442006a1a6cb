/* The transposed Jacobian of one operator as a matrix with values, in host memory: for files and pictures. */
#ifndef BPPSA_RUNS_JACOBIAN_MATRIX_H
#define BPPSA_RUNS_JACOBIAN_MATRIX_H

#include "core/base/text.h"
#include "core/files/json.h"
#include "jacobian/jacobian.h"

typedef struct {
  bppsa_op op;
  bppsa_dtype dtype;
  const uint8_t *mask;              /* which of the operator's weights stay, one byte for each; NULL: all */
  bppsa_jacobian_operands operands; /* of one sample, in host memory */
  bool filled;                      /* compute the values at the operands; otherwise all values are 1 */
  bool compact;                     /* leave out entries whose value is 0 */
  int64_t memory;                   /* bytes available: the matrix may take three quarters of them */
} bppsa_jacobian_request;

typedef struct {
  bppsa_op op;
  bppsa_dtype dtype;
  bool filled;
  bppsa_jacobian *generator;
  const bppsa_csr *csr; /* the generator's pattern, or `compact` */
  bppsa_csr compact;
  void *values;          /* size csr->nnz */
  double plan_s, fill_s; /* seconds for pattern and values; on a GPU without the transfers */
} bppsa_jacobian_matrix;

/* Makes pattern and values; the values are computed on the device. ERR_ARGUMENT: more bytes than there is memory for; ERR_* of
 * bppsa_jacobian_create and bppsa_jacobian_fill, ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_jacobian_matrix_create(const bppsa_jacobian_request *request, const bppsa_device *device,
                                          bppsa_jacobian_matrix *matrix);
void bppsa_jacobian_matrix_free(bppsa_jacobian_matrix *matrix); /* a zeroed one is legal */

/* Writes the matrix (J.npz: SciPy's sparse layout; J.mtx: Matrix Market) and its spy picture (a PNG). Either path may be NULL.
 * ERR_ARGUMENT, ERR_IO, ERR_MEMORY. */
bppsa_status bppsa_jacobian_picture(const bppsa_jacobian_matrix *matrix, const char *path, const char *spy);

/* The document of `bppsa jacobian`, NULL when out of memory, and the same for people. */
json_t *bppsa_jacobian_matrix_json(const bppsa_jacobian_matrix *matrix);
void bppsa_jacobian_matrix_text(const bppsa_jacobian_matrix *matrix, bppsa_text *text);

#endif
