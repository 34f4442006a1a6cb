/* CBLAS, with one thread inside every call; the project's own threads call it side by side.
 *
 * OpenBLAS is loaded when it is first needed, not with the program, because it starts threads and maps buffers when it is loaded.
 * The way it is loaded here starts none. Debian's flavours share one SONAME, so the flavour is known only at run time.
 */
#ifndef BPPSA_CORE_BLAS_H
#define BPPSA_CORE_BLAS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Loads OpenBLAS. ERR_UNSUPPORTED: it is not found, or is the OpenMP flavour, which cannot be held to one thread, or the serial
 * one, which does not guarantee that several threads may call it; ERR_MEMORY: no address space for its first work buffer (129
 * MiB). May be called often, and by several threads. */
bppsa_status bppsa_blas_start(void);

/* Starts OpenBLAS and holds it to one thread until as many calls of bppsa_blas_release; every device holds it as long as it
 * exists. OpenBLAS has one number of threads for the whole process: a program that also uses OpenBLAS itself gets one thread in
 * that time, and the number that it had chosen when the last device is destroyed. ERR_UNSUPPORTED,
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

/* The number of samples to compute at once when `threads` share a batch and each sample is a row of A in a product with B [k,n].
 * Blocks are large, because a step's samples are neighbours in memory. The project's kernels give a row the same bits whatever
 * other rows are computed with it; CBLAS does not guarantee that, so sizes that go to CBLAS have a fixed block. */
int64_t bppsa_sample_block(int64_t batch, int32_t threads, int64_t n, int64_t k);

/* C[m,n] = init + A B. init (row length init_row) is NULL for 0, c itself to accumulate, or a bias with init_row = 0. A(i, p) =
 * a[i a_row + p a_step] with a_row = 1 or a_step = 1; B(p, j) = b[p ldb + j]. The project's kernels (core/simd.h), whose order is
 * fixed, compute small B, and CBLAS large B; the choice depends on n and k alone. */
void bppsa_matmul_f32(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_step, const float *b, int64_t ldb,
                      const float *init, int64_t init_row, float *c, int64_t ldc);
void bppsa_matmul_f64(int64_t m, int64_t n, int64_t k, const double *a, int64_t a_row, int64_t a_step, const double *b,
                      int64_t ldb, const double *init, int64_t init_row, double *c, int64_t ldc);

#ifdef __cplusplus
}
#endif
#endif
