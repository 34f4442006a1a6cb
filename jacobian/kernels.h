/* The loops of this folder that gain from wide vectors, compiled per instruction set and chosen like those of core/simd.h. They
 * compare, select, and multiply and add with two roundings: the bits are the same everywhere, on a GPU too. Internal.
 */
#ifndef BPPSA_JACOBIAN_KERNELS_H
#define BPPSA_JACOBIAN_KERNELS_H

#include <stdint.h>

#define BPPSA_JACOBIAN_KERNELS(real, suffix)                                                                                     \
  typedef struct {                                                                                                               \
    /* y[i] = 0 where x[i] <= 0, else 1: NaN gives 1 */                                                                          \
    void (*relu)(int64_t count, const real *x, real *y);                                                                         \
    /* y[i] = 1 - tanh(x[i])², and s (1 - s) of the logistic function s (core/squash.h) */                                      \
    void (*tanh_slope)(int64_t count, const real *x, real *y);                                                                   \
    void (*sigmoid_slope)(int64_t count, const real *x, real *y);                                                                \
    /* Two input rows a, b of windows of 2 x 2: 1 at each window's largest value, 0 beside it (jacobian.h has the ties) */       \
    void (*pairs)(int64_t windows, const real *a, const real *b, real *ya, real *yb);                                            \
    /* sum[slot[j]] += a b[j], j < n; the slots differ */                                                                        \
    void (*scatter16)(int64_t n, real a, const real *b, const uint16_t *slot, real *sum);                                        \
    void (*scatter32)(int64_t n, real a, const real *b, const int32_t *slot, real *sum);                                         \
    /* y[i] = x[from[i]], i < n */                                                                                               \
    void (*gather)(int64_t n, const real *x, const int32_t *from, real *y);                                                      \
  } bppsa_jacobian_##suffix;

BPPSA_JACOBIAN_KERNELS(float, f32)
BPPSA_JACOBIAN_KERNELS(double, f64)

typedef struct {
  bppsa_jacobian_f32 f32;
  bppsa_jacobian_f64 f64;
} bppsa_jacobian_kernels;

/* For the instruction set that core/simd.h has chosen. */
const bppsa_jacobian_kernels *bppsa_jacobian_kernels_get(void);

extern const bppsa_jacobian_kernels bppsa_jacobian_portable, bppsa_jacobian_avx2, bppsa_jacobian_avx512;

#endif
