/* The RNN cell: its table. */
#include "rnn/rnn.h"

#include "rnn/rnn_internal.h"

#define EACH_REAL "rnn/rnn.inc"
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
    .cuda = bppsa_rnn_cuda,
    .step = &bppsa_rnn_step,
};
