/* CBLAS. Every call uses one thread; the project's own threads call it in parallel.
 *
 * OpenBLAS is loaded when it is first needed, not with the program, because it starts threads and maps buffers when it is loaded.
 * The library loads it in a way that starts no threads. Debian's flavours share one SONAME, so the flavour is known only at
 * run time.
 */
#ifndef BPPSA_CORE_COMPUTE_BLAS_H
#define BPPSA_CORE_COMPUTE_BLAS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Loads OpenBLAS. ERR_LIBRARY: it is not found, or is the OpenMP flavour, which cannot be held to one thread, or the serial
 * one, which does not guarantee that several threads may call it; ERR_MEMORY: no address space for its first work buffer (129
 * MiB). May be called often, and by several threads. */
bppsa_status bppsa_blas_start(void);

/* Names a file that is loaded where the system has no OpenBLAS that the library can use: that of the package scipy-openblas32 of
 * PyPI, whose functions have names that begin with scipy_. It counts until OpenBLAS has started, with the first device.
 * ERR_ARGUMENT: NULL, or a path of more than 4095 bytes. */
bppsa_status bppsa_blas_set_fallback(const char *path);

/* Starts OpenBLAS and holds it to one thread until bppsa_blas_release has been called as often; every device holds it as long as
 * the device exists. OpenBLAS has one number of threads for the whole process: a program that uses OpenBLAS itself gets one thread
 * during that time, and its own number again when the last device is destroyed. ERR_LIBRARY, ERR_MEMORY: as above. */
bppsa_status bppsa_blas_hold(void);
void bppsa_blas_release(void);

/* Starts OpenBLAS and returns its name and core type, e.g. "OpenBLAS 0.3.21 ... SkylakeX"; "no OpenBLAS" if it cannot be loaded. */
const char *bppsa_blas_description(void);

/* C[m,n] = alpha op(A)[m,k] op(B)[k,n] + beta C, row-major; lda, ldb, ldc are row lengths in elements. Extents must fit in 31
 * bits (plans check this); m, n or k of 0 is legal. beta = 0 does not read C. Starts OpenBLAS; if that fails, C is filled with
 * NaN, which cannot happen in a program that has a device. At most 64 calls run at the same time, and each takes 129 MiB of
 * address space; if none is left, calls wait for each other. */
void bppsa_gemm_f32(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                    const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
void bppsa_gemm_f64(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, double alpha, const double *a, int64_t lda,
                    const double *b, int64_t ldb, double beta, double *c, int64_t ldc);

#ifdef __cplusplus
}
#endif
#endif
