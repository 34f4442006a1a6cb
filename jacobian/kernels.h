/* Loops of this folder that gain from wide vectors, compiled for every instruction set and chosen as in core/compute/simd.h. They
 * compare, select, multiply and add, and round after each multiplication and addition, so the bits are the same on all processors
 * and GPUs. Internal.
 */
#ifndef BPPSA_JACOBIAN_KERNELS_H
#define BPPSA_JACOBIAN_KERNELS_H

#include <stdint.h>

#include "core/compute/simd.h"
#include "jacobian/activation.h"

#define BPPSA_JACOBIAN_KERNELS(real, suffix)                                                                                     \
  typedef struct {                                                                                                               \
    /* y[i] = 0 where x[i] <= 0, else 1: NaN gives 1 */                                                                          \
    void (*relu)(int64_t count, const real *x, real *y);                                                                         \
    /* y[i] = 1 - tanh(x[i])², and s (1 - s) of the logistic function s (core/compute/squash.h) */                              \
    void (*tanh_slope)(int64_t count, const real *x, real *y);                                                                   \
    void (*sigmoid_slope)(int64_t count, const real *x, real *y);                                                                \
    /* y[i] = f(x[i]), and f'(x[i]), of an activation (jacobian/activation.h) */                                                 \
    void (*activation)(bppsa_activation f, int64_t count, const real *x, real *y);                                               \
    void (*activation_slope)(bppsa_activation f, int64_t count, const real *x, real *y);                                         \
    /* Two input rows a, b of windows of 2 x 2: 1 at each window's largest value, else 0 (jacobian.h says which of equals) */    \
    void (*pairs)(int64_t windows, const real *a, const real *b, real *ya, real *yb);                                            \
    /* sum[slot[j]] += a b[j], j < n; no slot appears twice */                                                                   \
    void (*scatter16)(int64_t n, real a, const real *b, const uint16_t *slot, real *sum);                                        \
    void (*scatter32)(int64_t n, real a, const real *b, const int32_t *slot, real *sum);                                         \
    /* y[i] = x[from[i]], i < n */                                                                                               \
    void (*gather)(int64_t n, const real *x, const int32_t *from, real *y);                                                      \
  } bppsa_jacobian_##suffix;

BPPSA_JACOBIAN_KERNELS(float, f32)
BPPSA_JACOBIAN_KERNELS(double, f64)

BPPSA_SIMD_DECLARE_TABLES(bppsa_jacobian)

/* The kernels of one real type, for a file that includes core/compute/real.h. */
#define JACOBIAN_KERNELS (&bppsa_jacobian_kernels_get()->REAL_FIELD)

#endif
