/* The RNN's step as an operator: its table. */
#include "rnn/rnn_step.h"

#include "rnn/rnn.h"
#include "rnn/rnn_internal.h"

const bppsa_step bppsa_rnn_step = {
    .name = "rnn",
    .gates = 1,
    .diagonal = false,
    .factors_f32 = rnn_step_factors_f32,
    .factors_f64 = rnn_step_factors_f64,
    .cuda = bppsa_rnn_step_cuda,
};
