/* The activations relu6, hardsigmoid, hardswish, silu and gelu of one number and their derivatives, with the same bits on every
 * processor and GPU (core/compute/squash.h says how, and what files that include this need). Derivatives are computed from x.
 *
 *     silu(x) = x s(x)             silu'(x) = s + x s'               s the logistic function
 *     gelu(x) = x Φ(x)             gelu'(x) = Φ + x φ(x)             Φ, φ the standard normal distribution and its density
 *     approximated  x s(2u)        s(2u) + 2 x u' s'(2u)             u = √(2/π) (x + 0.044715 x³)
 *
 * Where a derivative does not exist the value is PyTorch's: 0 at 0 and 6 for relu6 and at NaN for relu6 and hardsigmoid, 0 at
 * -3 and 3 for hardsigmoid, -1/2 at -3 and 1 at 3 for hardswish. Internal.
 */
#ifndef BPPSA_JACOBIAN_ACTIVATION_H
#define BPPSA_JACOBIAN_ACTIVATION_H

#include "core/compute/squash.h"
#include "jacobian/op.h"

/* The activations by number, a gelu with its approximation beside it; the derivative of each has the same number. */
typedef enum {
  BPPSA_ACTIVATION_NONE = 0, /* the operator is none of these */
  BPPSA_ACTIVATION_RELU6,
  BPPSA_ACTIVATION_HARDSIGMOID,
  BPPSA_ACTIVATION_HARDSWISH,
  BPPSA_ACTIVATION_SILU,
  BPPSA_ACTIVATION_GELU,
  BPPSA_ACTIVATION_GELU_TANH
} bppsa_activation;

static inline bppsa_activation bppsa_activation_of(const bppsa_op *op) {
  switch (op->kind) {
  case BPPSA_OPERATOR_RELU6:
    return BPPSA_ACTIVATION_RELU6;
  case BPPSA_OPERATOR_HARDSIGMOID:
    return BPPSA_ACTIVATION_HARDSIGMOID;
  case BPPSA_OPERATOR_HARDSWISH:
    return BPPSA_ACTIVATION_HARDSWISH;
  case BPPSA_OPERATOR_SILU:
    return BPPSA_ACTIVATION_SILU;
  case BPPSA_OPERATOR_GELU:
    return op->approximate ? BPPSA_ACTIVATION_GELU_TANH : BPPSA_ACTIVATION_GELU;
  default:
    return BPPSA_ACTIVATION_NONE;
  }
}

#define EACH_REAL "jacobian/activation.inc"
#include "core/base/each_real.inc"

#undef ERFC_TERMS
#undef NORMAL_VANISHES

#endif
