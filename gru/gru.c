/* The GRU: the tables of its cell and of its step as an operator. */
#include "gru/gru.h"

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
    .cuda = bppsa_gru_cuda,
    .step = &bppsa_gru_step,
};

const bppsa_step bppsa_gru_step = {
    .name = "gru",
    .gates = BPPSA_GRU_GATES,
    .diagonal = true,
    .factors_f32 = gru_step_factors_f32,
    .factors_f64 = gru_step_factors_f64,
    .cuda = bppsa_gru_step_cuda,
};
