/* The elementwise part of an LSTM's step (lstm/lstm.h) in one pass over memory, compiled for every instruction set and chosen like
 * the kernels of core/compute/simd.h. Internal.
 *
 * pre and delta are [rows][4][n], pre with the recurrent products. saved is [rows][5][n]: the signed halves
 * (core/compute/simd_vectors.inc) of i and f, then g, the signed half of o, and tanh(c). g and carried are gradients of states,
 * [rows][2][n]: of h, then of c. far [4][n] or NULL: recurrent/cell.h. product [rows][4][n] is the tangent of pre. The other
 * arrays are [rows][n]; `before` is c of the step before. */
#ifndef BPPSA_LSTM_KERNELS_H
#define BPPSA_LSTM_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/compute/simd.h"

enum { LSTM_FACTORS = 6 }; /* d_i, d_f, d_g, d_o, o (1 - tanh²(c)), f */

#define BPPSA_LSTM_KERNELS(real, suffix)                                                                                         \
  typedef struct {                                                                                                               \
    void (*forward)(int64_t rows, int64_t n, const real *pre, const real *before, const real *far, real *saved, real *h,         \
                    real *c);                                                                                                    \
    /* delta from g; and unless carried is NULL, f ∘ δ into its second half, or added to it */                                \
    void (*backward)(int64_t rows, int64_t n, const real *saved, const real *before, const real *g, real *delta, bool add,       \
                     real *carried);                                                                                             \
    void (*coefficients)(int64_t rows, int64_t n, const real *saved, const real *before, real *const d[LSTM_FACTORS]);           \
    /* the tangents of h and c; before_tangent is that of c of the step before */                                                \
    void (*tangent)(int64_t rows, int64_t n, const real *product, const real *saved, const real *before,                         \
                    const real *before_tangent, real *h_tangent, real *c_tangent);                                               \
    /* from the tangent of pre, in place, the derivative of delta for the same g; carried: the derivatives of 0 and f ∘ δ */  \
    void (*tangent_backward)(int64_t rows, int64_t n, real *product, const real *saved, const real *before,                      \
                             const real *before_tangent, const real *g, real *carried);                                          \
  } bppsa_lstm_##suffix;

BPPSA_LSTM_KERNELS(float, f32)
BPPSA_LSTM_KERNELS(double, f64)

BPPSA_SIMD_DECLARE_TABLES(bppsa_lstm)

/* The kernels of one real type, for a file that includes core/compute/real.h. */
#define LSTM_KERNELS (&bppsa_lstm_kernels_get()->REAL_FIELD)

#endif
