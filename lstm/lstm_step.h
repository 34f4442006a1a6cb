/* The factors of the LSTM's Jacobian from the pre-activations of one step: they are computed in float64, and rounded to the
 * values' type at the end. Compiled without contraction of a·b + c. */
#ifndef BPPSA_LSTM_LSTM_STEP_H
#define BPPSA_LSTM_LSTM_STEP_H

#include <stdbool.h>

#include "core/compute/squash.h"

#define EACH_REAL "lstm/lstm_step.inc"
#include "core/base/each_real.inc"

#endif
