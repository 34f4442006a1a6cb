/* The factors of the GRU's Jacobian from the pre-activations of one step, with the same bits on CPU and GPU: σ and tanh are
 * computed in float64 and rounded to the values' type. Compiled without contraction of a·b + c. */
#ifndef BPPSA_GRU_GRU_STEP_H
#define BPPSA_GRU_GRU_STEP_H

#include <stdbool.h>

#include "core/squash.h"

#define real float
#define R(name) name##_f32
#include "gru/gru_step.inc"
#undef real
#undef R
#define real double
#define R(name) name##_f64
#include "gru/gru_step.inc"
#undef real
#undef R

#endif
