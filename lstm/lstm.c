/* The LSTM cell: its table. */
#include "lstm/lstm.h"

#include "core/base/alloc.h"
#include "lstm/kernels.h"
#include "lstm/lstm_internal.h"

#define EACH_REAL "lstm/lstm.inc"
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
    .cuda = bppsa_lstm_cuda,
    .step = &bppsa_lstm_step,
};
