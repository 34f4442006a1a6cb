/* The RNN: the tables of its cell and of its step as an operator. */
#include "rnn/rnn.h"

#include "core/compute/squash.h"
#include "rnn/rnn_internal.h"

#define CELL_GATES 1
#define CELL_STATES 1
#define CELL_CARRIES 0
#define EACH_REAL "rnn/rnn.inc"
#include "core/base/each_real.inc"

#define EACH_REAL "rnn/rnn_factors.inc"
#include "core/base/each_real.inc"

const bppsa_cell bppsa_rnn_cell = {
    .name = "rnn",
    .gates = 1,
    .matrices = 1,
    .relu = true,
    .forward = {forward_f32, forward_f64},
    .backward = {backward_f32, backward_f64},
    .coefficients = {coefficients_f32, coefficients_f64},
    .deltas = {deltas_f32, deltas_f64},
    .tangent = {tangent_f32, tangent_f64},
    .tangent_backward = {tangent_backward_f32, tangent_backward_f64},
    .tangents_suffice = true,
    .cuda = bppsa_rnn_cuda,
    .step = &bppsa_rnn_step,
    .takes_panels = true,
};

const bppsa_step bppsa_rnn_step = {
    .name = "rnn",
    .gates = 1,
    .diagonal = false,
    .factors_f32 = rnn_step_factors_f32,
    .factors_f64 = rnn_step_factors_f64,
    .cuda = bppsa_rnn_step_cuda,
};
