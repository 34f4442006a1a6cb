/* The GRU cell: its table. */
#include "gru/gru.h"

#include "core/base/alloc.h"
#include "gru/gru_internal.h"
#include "gru/kernels.h"

#define EACH_REAL "gru/gru.inc"
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
