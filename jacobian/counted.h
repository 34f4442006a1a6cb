/* Counting builds: with BPPSA_COUNT_MULTIPLY_ADDS defined, the numeric passes of this folder run through plain loops that count
 * every multiply-add, or multiplication, of the innermost loop; otherwise they call the kernels. tests/jacobian/counted links such
 * a build. Internal.
 *
 * Include after core/compute/real.h. A counting build defines bppsa_multiply_adds in one place.
 */
#ifndef BPPSA_JACOBIAN_COUNTED_H
#define BPPSA_JACOBIAN_COUNTED_H

#ifdef BPPSA_COUNT_MULTIPLY_ADDS
#include <stdatomic.h>
#include <stdint.h>

extern _Atomic int64_t bppsa_multiply_adds;
#define COUNT_MULTIPLY_ADD() ((void)atomic_fetch_add_explicit(&bppsa_multiply_adds, 1, memory_order_relaxed))

#define BPPSA_COUNTED_LOOPS(real, suffix)                                                                                        \
  static inline void counted_gemm_##suffix(int64_t m, int64_t n, int64_t k, const real *a, int64_t a_row, int64_t a_step,        \
                                           const real *b, int64_t ldb, const real *init, int64_t init_row, real *c,              \
                                           int64_t ldc) {                                                                        \
    for (int64_t i = 0; i < m; ++i) {                                                                                            \
      for (int64_t j = 0; j < n; ++j) {                                                                                          \
        real sum = init != NULL ? init[i * init_row + j] : 0;                                                                    \
        for (int64_t p = 0; p < k; ++p) {                                                                                        \
          sum += a[i * a_row + p * a_step] * b[p * ldb + j];                                                                     \
          COUNT_MULTIPLY_ADD();                                                                                                  \
        }                                                                                                                        \
        c[i * ldc + j] = sum;                                                                                                    \
      }                                                                                                                          \
    }                                                                                                                            \
  }                                                                                                                              \
  static inline void counted_scatter16_##suffix(int64_t n, real a, const real *b, const uint16_t *slot, real *sum) {             \
    for (int64_t j = 0; j < n; ++j) {                                                                                            \
      sum[slot[j]] += a * b[j];                                                                                                  \
      COUNT_MULTIPLY_ADD();                                                                                                      \
    }                                                                                                                            \
  }                                                                                                                              \
  static inline void counted_scatter32_##suffix(int64_t n, real a, const real *b, const int32_t *slot, real *sum) {              \
    for (int64_t j = 0; j < n; ++j) {                                                                                            \
      sum[slot[j]] += a * b[j];                                                                                                  \
      COUNT_MULTIPLY_ADD();                                                                                                      \
    }                                                                                                                            \
  }
BPPSA_COUNTED_LOOPS(float, f32)
BPPSA_COUNTED_LOOPS(double, f64)

#define SMALL_GEMM R(counted_gemm)
#define LARGE_GEMM(m, n, k, a, lda, b, ldb, c, ldc) R(counted_gemm)(m, n, k, a, lda, 1, b, ldb, NULL, 0, c, ldc)
#define SCATTER16 R(counted_scatter16)
#define SCATTER32 R(counted_scatter32)
#else
#include "core/compute/blas.h"

#define COUNT_MULTIPLY_ADD() ((void)0)
#define SMALL_GEMM KERNELS->gemm
#define LARGE_GEMM(m, n, k, a, lda, b, ldb, c, ldc) R(bppsa_gemm)(false, false, m, n, k, 1, a, lda, b, ldb, 0, c, ldc)
#define SCATTER16 JACOBIAN_KERNELS->scatter16
#define SCATTER32 JACOBIAN_KERNELS->scatter32
#endif

#endif
