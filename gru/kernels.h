/* The elementwise part of a GRU's step (gru/gru.h) in one pass over memory, compiled for every instruction set and chosen like the
 * kernels of core/compute/simd.h. Internal.
 *
 * pre, delta_x and delta_h are [rows][3][n]. saved is [rows][4][n]: on entry to forward the recurrent products of r, z and m, then
 * the signed halves of r and z, m, and the code of n (core/compute/simd_vectors.inc). far [3][n] and far_h [n] are those of
 * recurrent/cell.h, where far_h is NULL if far is. product_x and product_h [rows][3][n] are tangents of the two products. The
 * other arrays are [rows][n]. */
#ifndef BPPSA_GRU_KERNELS_H
#define BPPSA_GRU_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/compute/simd.h"

#define BPPSA_GRU_KERNELS(real, suffix)                                                                                          \
  typedef struct {                                                                                                               \
    void (*forward)(int64_t rows, int64_t n, const real *pre, const real *before, const real *far, const real *far_h,            \
                    real *saved, real *h);                                                                                       \
    /* delta_x, delta_h from g; and unless carried is NULL z g into it, or added to it */                                        \
    void (*backward)(int64_t rows, int64_t n, const real *saved, const real *before, const real *g, real *delta_x,               \
                     real *delta_h, bool add, real *carried);                                                                    \
    void (*coefficients)(int64_t rows, int64_t n, const real *saved, const real *before, real *a, real *c, real *b, real *z);    \
    /* the tangent of h; before_tangent is that of h of the step before */                                                       \
    void (*tangent)(int64_t rows, int64_t n, const real *product_x, const real *product_h, const real *saved,                    \
                    const real *before, const real *before_tangent, real *tangent);                                              \
    /* from the tangents of the products, in place, the derivatives of delta_x and delta_h for the same g; ż g into carried */  \
    void (*tangent_backward)(int64_t rows, int64_t n, real *product_x, real *product_h, const real *saved, const real *before,   \
                             const real *before_tangent, const real *g, real *carried);                                          \
  } bppsa_gru_##suffix;

BPPSA_GRU_KERNELS(float, f32)
BPPSA_GRU_KERNELS(double, f64)

BPPSA_SIMD_DECLARE_TABLES(bppsa_gru)

/* The kernels of one real type, for a file that includes core/compute/real.h. */
#define GRU_KERNELS (&bppsa_gru_kernels_get()->REAL_FIELD)

#endif
