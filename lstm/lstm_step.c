/* The LSTM's step as an operator: its table. It has no kernels on a GPU. */
#include "lstm/lstm_step.h"

#include "lstm/lstm.h"

const bppsa_step bppsa_lstm_step = {
    .name = "lstm",
    .gates = BPPSA_LSTM_GATES,
    .diagonal = true,
    .pair = true,
    .factors_f32 = lstm_step_factors_f32,
    .factors_f64 = lstm_step_factors_f64,
};
