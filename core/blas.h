/* CBLAS, one thread inside every call: the project's own threads run on top.
 *
 * bppsa_blas_start() sets OpenBLAS to one thread and asserts it (Debian's flavours share one SONAME, so the flavour
 * is only known at run time); bppsa_device_create calls it.
 */
#ifndef BPPSA_CORE_BLAS_H
#define BPPSA_CORE_BLAS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ERR_UNSUPPORTED when the library insists on more than one thread (its OpenMP flavour) or does not say that several threads
 * may call it (its serial flavour). Idempotent and thread-safe. */
bppsa_status bppsa_blas_start(void);

/* Announces `threads` more threads that may call gemm at the same time (negative: that many fewer). Devices do this. OpenBLAS
 * has room for a fixed number; beyond it gemm lets only that many threads in at once. */
void bppsa_blas_register(int32_t threads);

/* Name and core type, e.g. "OpenBLAS 0.3.21 ... SkylakeX". */
const char *bppsa_blas_description(void);

/* C[m,n] = alpha op(A)[m,k] op(B)[k,n] + beta C, row-major; lda, ldb, ldc are row lengths in elements.
 * Extents must fit in 31 bits (plans check this); m, n or k of 0 is legal. beta = 0 does not read C. */
void bppsa_gemm_f32(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                    const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
void bppsa_gemm_f64(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, double alpha, const double *a, int64_t lda,
                    const double *b, int64_t ldb, double beta, double *c, int64_t ldc);

/* Samples to compute at once when `batch` of them are shared by `threads` and each is a row of A in a product with B [k,n]: large
 * blocks, because a step's samples lie together in memory. The kernels give every row the same bits whatever stands beside it; for
 * sizes that go to CBLAS, which promises no such thing, the block is fixed. */
int64_t bppsa_sample_block(int64_t batch, int32_t threads, int64_t n, int64_t k);

/* C[m,n] = init + A B, where init (row length init_row) is NULL for 0, c itself to accumulate, or a bias with init_row = 0, and
 * A(i, p) = a[i a_row + p a_step] has a_row = 1 or a_step = 1, and B(p, j) = b[p ldb + j]. Small B by the project's own
 * fixed-order kernels (core/simd.h), large ones by CBLAS; which of the two depends on n and k alone. */
void bppsa_matmul_f32(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_step, const float *b, int64_t ldb,
                      const float *init, int64_t init_row, float *c, int64_t ldc);
void bppsa_matmul_f64(int64_t m, int64_t n, int64_t k, const double *a, int64_t a_row, int64_t a_step, const double *b,
                      int64_t ldb, const double *init, int64_t init_row, double *c, int64_t ldc);

#ifdef __cplusplus
}
#endif
#endif
