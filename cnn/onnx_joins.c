/* Sums and products of an ONNX model: of activations, or parts of what exporters write with them: the bias behind a product with
 * weights, x sigmoid(x) (silu), x hardsigmoid(x) (hardswish), and x (1 + erf(x / sqrt(2))) / 2 (gelu). */
#include <math.h>
#include <string.h>

#include "cnn/onnx_internal.h"
#include "core/base/alloc.h"

bppsa_status bppsa_onnx_join(onnx_reader *r, bppsa_cnn_node node, onnx_check *check) {
  bppsa_cnn_layer layer = {.op = bppsa_op_default(BPPSA_OPERATOR_FLATTEN), .node = node};
  const size_t count = r->node->n_input;
  onnx_value **inputs = bppsa_calloc((int64_t)count, sizeof *inputs);
  bppsa_status status = inputs == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  for (size_t k = 0; status == BPPSA_OK && k < count; ++k) {
    status = bppsa_onnx_activation(r, k, &inputs[k]);
    status = status == BPPSA_OK && check != NULL ? check(r, inputs[k]) : status;
  }
  if (status == BPPSA_OK && count < 2) {
    status = bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%zu inputs, expected two or more", count);
  }
  status = status == BPPSA_OK ? bppsa_onnx_give(r, &layer, (int64_t)count, inputs, NULL) : status;
  bppsa_free((void *)inputs);
  return status;
}

/* The two inputs of a node, the constant one second. */
static bppsa_status read_two(const onnx_reader *r, onnx_value **one, onnx_value **other) {
  onnx_value *inputs[2] = {NULL};
  for (size_t k = 0; k < 2; ++k) {
    BPPSA_TRY(bppsa_onnx_input(r, k, &inputs[k]));
    if (inputs[k] == NULL || r->node->n_input > 2) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%zu inputs, expected two", r->node->n_input);
    }
  }
  const int swapped = inputs[0]->constant ? 1 : 0;
  *one = inputs[swapped];
  *other = inputs[1 - swapped];
  return BPPSA_OK;
}

static bool is_number(const onnx_value *value, double wanted) {
  double number;
  return value->constant && bppsa_onnx_scalar(value, &number) == BPPSA_OK && fabs(number - wanted) < 1e-6;
}

/* Hands an activation on as a further step of x Φ(x). */
static bppsa_status give_step(onnx_reader *r, const onnx_value *value, onnx_gelu step) {
  onnx_value given = *value;
  given.step = step;
  return bppsa_onnx_define(r, 0, given);
}

bppsa_status bppsa_onnx_div(onnx_reader *r) {
  onnx_value *value = NULL, *divisor = NULL;
  BPPSA_TRY(bppsa_onnx_input(r, 0, &value));
  if (value != NULL && value->constant) {
    return bppsa_onnx_compute(r, '/');
  }
  BPPSA_TRY(bppsa_onnx_activation(r, 0, &value));
  BPPSA_TRY(bppsa_onnx_input(r, 1, &divisor));
  return divisor != NULL && is_number(divisor, sqrt(2))
             ? give_step(r, value, ONNX_ROOT)
             : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "a quotient, expected x / sqrt(2) of x (1 + erf(x / sqrt(2))) / 2 (gelu)");
}

bppsa_status bppsa_onnx_erf(onnx_reader *r) {
  onnx_value *value = NULL;
  BPPSA_TRY(bppsa_onnx_input(r, 0, &value));
  return value != NULL && !value->constant && value->step == ONNX_ROOT
             ? give_step(r, value, ONNX_ERF)
             : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "erf, expected that of x (1 + erf(x / sqrt(2))) / 2 (gelu)");
}

/* Is the activation W x, which no other node reads, and the constant a bias of it? */
static bool takes_bias(const onnx_reader *r, const onnx_value *value, const onnx_value *bias) {
  const bppsa_cnn_layer *layer = value->layer >= 0 ? &r->network.layers[value->layer] : NULL;
  return layer != NULL && layer->node == BPPSA_CNN_OPERATOR && layer->op.kind == BPPSA_OPERATOR_LINEAR && !layer->bias &&
         value->step == ONNX_PLAIN && value->own && bppsa_onnx_readers(r, value->name) == 1 && bias->view.ndim == 1;
}

bppsa_status bppsa_onnx_add(onnx_reader *r) {
  onnx_value *one = NULL, *other = NULL;
  if (r->node->n_input != 2) {
    return bppsa_onnx_join(r, BPPSA_CNN_ADD, NULL);
  }
  BPPSA_TRY(read_two(r, &one, &other));
  if (!other->constant) {
    return bppsa_onnx_join(r, BPPSA_CNN_ADD, NULL);
  }
  if (one->constant) {
    return bppsa_onnx_compute(r, '+');
  }
  if (one->step == ONNX_ERF && is_number(other, 1)) {
    return give_step(r, one, ONNX_ERF_1);
  }
  if (!takes_bias(r, one, other)) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                      "input '%.60s' is a constant, expected two activations, or the bias of a linear operator", other->name);
  }
  bppsa_cnn_layer *layer = &r->network.layers[one->layer];
  layer->bias = true;
  BPPSA_TRY(bppsa_onnx_parameter(r, one->layer, "bias", other, 1, layer->out));
  return bppsa_onnx_define(r, 0, *one);
}

/* Is `gate` sigmoid(x) or hardsigmoid(x) of this x, which no other node reads? */
static bool gates(const onnx_reader *r, const onnx_value *x, const onnx_value *gate) {
  if (gate->constant || x->constant || gate->step != ONNX_PLAIN || x->step != ONNX_PLAIN || gate->layer < 0) {
    return false;
  }
  const bppsa_cnn_layer *layer = &r->network.layers[gate->layer];
  const bool kind = layer->op.kind == BPPSA_OPERATOR_SIGMOID || layer->op.kind == BPPSA_OPERATOR_HARDSIGMOID;
  return layer->node == BPPSA_CNN_OPERATOR && kind && gate->own && bppsa_onnx_readers(r, gate->name) == 1 &&
         gate->axes == x->axes && bppsa_cnn_input_of(&r->network, gate->layer, 0) == x->layer;
}

/* Makes x gate(x) one layer, the gate's. */
static bppsa_status give_gated(onnx_reader *r, const onnx_value *gate) {
  bppsa_op *op = &r->network.layers[gate->layer].op;
  op->kind = op->kind == BPPSA_OPERATOR_SIGMOID ? BPPSA_OPERATOR_SILU : BPPSA_OPERATOR_HARDSWISH;
  return bppsa_onnx_define(r, 0, *gate);
}

static bppsa_status give_gelu(onnx_reader *r, const onnx_value *value) {
  onnx_value plain = *value, *input = &plain;
  bppsa_cnn_layer layer = {.op = bppsa_op_default(BPPSA_OPERATOR_GELU)};
  plain.step = ONNX_PLAIN;
  return bppsa_onnx_give(r, &layer, 1, &input, NULL);
}

bppsa_status bppsa_onnx_mul(onnx_reader *r) {
  onnx_value *one = NULL, *other = NULL;
  BPPSA_TRY(read_two(r, &one, &other));
  if (one->constant) {
    return bppsa_onnx_compute(r, '*');
  }
  if (one->step == ONNX_TIMES && is_number(other, 0.5)) {
    return give_gelu(r, one);
  }
  if (other->constant) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "input '%.60s' is a constant, expected two activations", other->name);
  }
  for (int swap = 0; swap < 2; ++swap) {
    const onnx_value *x = swap ? other : one, *gate = swap ? one : other;
    if (gate->step == ONNX_ERF_1 && x->step == ONNX_PLAIN && x->layer == gate->layer && x->axes == gate->axes) {
      return give_step(r, gate, ONNX_TIMES);
    }
    if (gates(r, x, gate)) {
      return give_gated(r, gate);
    }
  }
  return bppsa_onnx_join(r, BPPSA_CNN_MUL, NULL);
}
