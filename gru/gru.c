/* The GRU: the tables of its cell and of its step as an operator. */
#include "gru/gru.h"

#include <math.h>

#include "core/base/alloc.h"
#include "core/compute/squash.h"
#include "gru/gru_internal.h"
#include "gru/kernels.h"

BPPSA_SIMD_DEFINE_TABLES(bppsa_gru)

#define CELL_GATES BPPSA_GRU_GATES
#define CELL_STATES 1
#define CELL_CARRIES 1
#define EACH_REAL "gru/gru.inc"
#include "core/base/each_real.inc"

#define EACH_REAL "gru/gru_factors.inc"
#include "core/base/each_real.inc"

/* The code of n has a bit of its type in it (core/compute/simd_vectors.inc). It makes of w < 1 the f32 number w 2^128, or
 * 2 + w 2^127 where w is below the least normal number. */
static double widen_code(double code) {
  const double size = fabs(code), w = size < 4 ? (size - 2) * 0x1p-127 : size * 0x1p-128;
  return size > 1 ? copysign(w > 0 ? w * 0x1p1023 * 2 : 2, code) : code;
}

static void widen(int64_t rows, int64_t hidden, double *saved) {
  for (int64_t row = 0; row < rows; ++row) {
    double *codes = saved + (4 * row + 3) * hidden;
    for (int64_t j = 0; j < hidden; ++j) {
      codes[j] = widen_code(codes[j]);
    }
  }
}

const bppsa_cell bppsa_gru_cell = {
    .name = "gru",
    .gates = BPPSA_GRU_GATES,
    .matrices = BPPSA_GRU_MATRICES,
    .diagonal = true,
    .split = true,
    .split_from = 2, /* n */
    .separate_bias = true,
    .far_biases = true,
    .saved = 4,
    .forward = {forward_f32, forward_f64},
    .backward = {backward_f32, backward_f64},
    .coefficients = {coefficients_f32, coefficients_f64},
    .deltas = {deltas_f32, deltas_f64},
    .tangent = {tangent_f32, tangent_f64},
    .tangent_backward = {tangent_backward_f32, tangent_backward_f64},
    .widen = widen,
    .cuda = bppsa_gru_cuda,
    .step = &bppsa_gru_step,
    .takes_panels = true,
};

const bppsa_step bppsa_gru_step = {
    .name = "gru",
    .gates = BPPSA_GRU_GATES,
    .diagonal = true,
    .factors_f32 = gru_step_factors_f32,
    .factors_f64 = gru_step_factors_f64,
    .cuda = bppsa_gru_step_cuda,
};
