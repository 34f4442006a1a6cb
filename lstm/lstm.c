/* The LSTM: the tables of its cell and of its step as an operator. */
#include "lstm/lstm.h"

#include "core/compute/squash.h"
#include "lstm/kernels.h"
#include "lstm/lstm_internal.h"

BPPSA_SIMD_DEFINE_TABLES(bppsa_lstm)

#define CELL_GATES BPPSA_LSTM_GATES
#define CELL_STATES 2
#define CELL_CARRIES 0
#define EACH_REAL "lstm/lstm.inc"
#include "core/base/each_real.inc"

#define EACH_REAL "lstm/lstm_factors.inc"
#include "core/base/each_real.inc"

const bppsa_cell bppsa_lstm_cell = {
    .name = "lstm",
    .gates = BPPSA_LSTM_GATES,
    .matrices = BPPSA_LSTM_MATRICES,
    .diagonal = true,
    .pair = true,
    .far_biases = true,
    .saved = 5,
    .forward = {forward_f32, forward_f64},
    .backward = {backward_f32, backward_f64},
    .coefficients = {coefficients_f32, coefficients_f64},
    .deltas = {deltas_f32, deltas_f64},
    .tangent = {tangent_f32, tangent_f64},
    .tangent_backward = {tangent_backward_f32, tangent_backward_f64},
    .cuda = bppsa_lstm_cuda,
    .step = &bppsa_lstm_step,
    .takes_panels = true,
};

const bppsa_step bppsa_lstm_step = {
    .name = "lstm",
    .gates = BPPSA_LSTM_GATES,
    .diagonal = true,
    .pair = true,
    .factors_f32 = lstm_step_factors_f32,
    .factors_f64 = lstm_step_factors_f64,
};
