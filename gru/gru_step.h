/* The factors of the GRU's Jacobian from the pre-activations of one step, with the same bits on CPU and GPU: they are
 * computed in float64, and rounded to the values' type at the end. Compiled without contraction of a·b + c. */
#ifndef BPPSA_GRU_GRU_STEP_H
#define BPPSA_GRU_GRU_STEP_H

#include <stdbool.h>

#include "core/compute/squash.h"

#define EACH_REAL "gru/gru_step.inc"
#include "core/base/each_real.inc"

#endif
