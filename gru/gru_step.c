/* The GRU's step as an operator: its table. */
#include "gru/gru_step.h"

#include "gru/gru.h"
#include "gru/gru_internal.h"

const bppsa_step bppsa_gru_step = {
    .name = "gru",
    .gates = BPPSA_GRU_GATES,
    .diagonal = true,
    .factors_f32 = gru_step_factors_f32,
    .factors_f64 = gru_step_factors_f64,
    .cuda = bppsa_gru_step_cuda,
};
