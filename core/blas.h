/* CBLAS, one thread inside every call: the project's own threads run on top.
 *
 * OpenBLAS is loaded when it is first needed, not with the program, because it starts threads and maps buffers while it is
 * loaded. Here it starts none. Debian's flavours share one SONAME, so the flavour is only known at run time.
 */
#ifndef BPPSA_CORE_BLAS_H
#define BPPSA_CORE_BLAS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Loads OpenBLAS. ERR_UNSUPPORTED when it is not found, is the OpenMP flavour, which cannot be held to one thread, or the
 * serial one, which does not say that several threads may call it; ERR_MEMORY when there is no address space for its first work
 * buffer (129 MiB). Idempotent and thread-safe. */
bppsa_status bppsa_blas_start(void);

/* Starts OpenBLAS and holds it to one thread until as many calls of bppsa_blas_release; every device holds it as long as it
 * lives. The number of threads is OpenBLAS's own and one for the whole process: a program that uses OpenBLAS besides computes
 * there with one thread meanwhile, and has the number that it had chosen when the last device is destroyed. ERR_UNSUPPORTED,
 * ERR_MEMORY: as above. */
bppsa_status bppsa_blas_hold(void);
void bppsa_blas_release(void);

/* Name and core type, e.g. "OpenBLAS 0.3.21 ... SkylakeX"; "no OpenBLAS" where it cannot be loaded. Starts it. */
const char *bppsa_blas_description(void);

/* C[m,n] = alpha op(A)[m,k] op(B)[k,n] + beta C, row-major; lda, ldb, ldc are row lengths in elements. Extents must fit in 31
 * bits (plans check this); m, n or k of 0 is legal. beta = 0 does not read C. Starts OpenBLAS; where that fails, which no
 * program with a device meets, C is filled with NaN. OpenBLAS takes 129 MiB of address space for every call that runs beside
 * others, 64 at most: where there is none left, calls wait for each other. */
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
