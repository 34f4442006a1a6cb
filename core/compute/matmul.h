/* Products of matrices by the project's own kernels (core/compute/simd.h), whose order of sums is fixed: a row of a product has the
 * same bits whatever other rows are beside it, and on however many threads. Internal. */
#ifndef BPPSA_CORE_COMPUTE_MATMUL_H
#define BPPSA_CORE_COMPUTE_MATMUL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The number of samples to compute at once when `threads` share a batch and each sample is a row of A in a product with B [k,n].
 * Blocks are large, because a step's samples are neighbours in memory. */
int64_t bppsa_sample_block(int64_t batch, int32_t threads, int64_t n, int64_t k);

/* C[m,n] = init + A B, on the calling thread. init (row length init_row) is NULL for 0, c itself to accumulate, or a bias with
 * init_row = 0. A(i, p) = a[i a_row + p a_step] with a_row = 1 or a_step = 1; B(p, j) = b[p ldb + j]. */
void bppsa_matmul_f32(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_step, const float *b, int64_t ldb,
                      const float *init, int64_t init_row, float *c, int64_t ldc);
void bppsa_matmul_f64(int64_t m, int64_t n, int64_t k, const double *a, int64_t a_row, int64_t a_step, const double *b,
                      int64_t ldb, const double *init, int64_t init_row, double *c, int64_t ldc);

/* ---- products with one B many times ----
 *
 * B [k,n] is packed once: cut along k into slices, and each slice into panels of two vectors' columns that fill half a first-level
 * cache. A product reads all of it in the order in which it lies in memory; every panel serves all rows of A while it is in the
 * first-level cache, and meanwhile the next one is fetched. */

/* The most rows of A that a product takes through one panel. */
enum { BPPSA_PANEL_ROWS = 128 };

/* Bytes of B's panels in reals of `size` bytes, for every instruction set. */
int64_t bppsa_panels_bytes(int64_t k, int64_t n, int64_t size);

/* Packs B(p, j) = b[p b_row + j b_step], with b_row = 1 or b_step = 1. */
void bppsa_panels_pack_f32(int32_t threads, int64_t k, int64_t n, const float *b, int64_t b_row, int64_t b_step, float *panels);
void bppsa_panels_pack_f64(int32_t threads, int64_t k, int64_t n, const double *b, int64_t b_row, int64_t b_step, double *panels);

/* C[m,n] = init + A B with A and init as above: the bits of bppsa_matmul. Threads share columns and rows. bppsa_simd_select must
 * not have been called since B was packed. */
void bppsa_panels_multiply_f32(int32_t threads, int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_step,
                               const float *panels, const float *init, int64_t init_row, float *c, int64_t ldc);
void bppsa_panels_multiply_f64(int32_t threads, int64_t m, int64_t n, int64_t k, const double *a, int64_t a_row, int64_t a_step,
                               const double *panels, const double *init, int64_t init_row, double *c, int64_t ldc);

#ifdef __cplusplus
}
#endif
#endif
