/* Products of matrices by the project's own kernels, on the calling thread. Internal. */
#ifndef BPPSA_CORE_COMPUTE_MATMUL_H
#define BPPSA_CORE_COMPUTE_MATMUL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The number of samples to compute at once when `threads` share a batch and each sample is a row of A in a product with B [k,n].
 * Blocks are large, because a step's samples are neighbours in memory. */
int64_t bppsa_sample_block(int64_t batch, int32_t threads, int64_t n, int64_t k);

/* C[m,n] = init + A B. init (row length init_row) is NULL for 0, c itself to accumulate, or a bias with init_row = 0. A(i, p) =
 * a[i a_row + p a_step] with a_row = 1 or a_step = 1; B(p, j) = b[p ldb + j]. The project's kernels (core/compute/simd.h) compute
 * it, whose order of sums is fixed: a row has the same bits whatever other rows are beside it. Large B are read in blocks. */
void bppsa_matmul_f32(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_step, const float *b, int64_t ldb,
                      const float *init, int64_t init_row, float *c, int64_t ldc);
void bppsa_matmul_f64(int64_t m, int64_t n, int64_t k, const double *a, int64_t a_row, int64_t a_step, const double *b,
                      int64_t ldb, const double *init, int64_t init_row, double *c, int64_t ldc);

#ifdef __cplusplus
}
#endif
#endif
