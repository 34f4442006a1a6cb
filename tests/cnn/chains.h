/* Random network files, and a float64 forward pass over a network that shares no code with the library. */
#ifndef BPPSA_TESTS_CNN_CHAINS_H
#define BPPSA_TESTS_CNN_CHAINS_H

#include <stdio.h>
#include <string.h>

#include "cnn/cnn.h"
#include "core/base/philox.h"
#include "tests/core/helpers.h"
#include "tests/jacobian/forward.h"
#include "tests/support/support.h"

enum { CHAIN_TEXT = 8192, CHAIN_SEED = 17, CHAIN_STREAM = 77 };

/* Whether chains have neither batch norms nor dropout, as chains on a GPU must. */
static bool chain_plain;

/* The next number of a sequence that `counter` counts. */
static inline int64_t chain_below(uint64_t *counter, int64_t bound) {
  return (int64_t)bppsa_random_below(CHAIN_SEED, CHAIN_STREAM, (*counter)++, (uint64_t)bound);
}

/* A random operator that fits its input, as members of a network file; its output's shape. */
static inline void chain_layer(uint64_t *counter, bool flat, const int64_t in[3], int number, char *text, int64_t out[3]) {
  static const bppsa_operator images[] = {
      BPPSA_OPERATOR_CONV2D,         BPPSA_OPERATOR_CONV2D,      BPPSA_OPERATOR_CONV2D,     BPPSA_OPERATOR_RELU,
      BPPSA_OPERATOR_MAXPOOL2D,      BPPSA_OPERATOR_AVGPOOL2D,   BPPSA_OPERATOR_LEAKY_RELU, BPPSA_OPERATOR_TANH,
      BPPSA_OPERATOR_SIGMOID,        BPPSA_OPERATOR_FLATTEN,     BPPSA_OPERATOR_RELU6,      BPPSA_OPERATOR_HARDSIGMOID,
      BPPSA_OPERATOR_HARDSWISH,      BPPSA_OPERATOR_SILU,        BPPSA_OPERATOR_GELU,       BPPSA_OPERATOR_ADAPTIVE_AVGPOOL2D,
      BPPSA_OPERATOR_GLOBAL_AVGPOOL, BPPSA_OPERATOR_BATCHNORM2D, BPPSA_OPERATOR_DROPOUT,    BPPSA_OPERATOR_BATCHNORM2D};
  static const bppsa_operator vectors[] = {BPPSA_OPERATOR_LINEAR, BPPSA_OPERATOR_RELU, BPPSA_OPERATOR_TANH};
  bppsa_op op;
  do {
    op = bppsa_op_default(flat ? vectors[chain_below(counter, 3)]
                               : images[chain_below(counter, (int64_t)(sizeof images / sizeof *images))]);
    memcpy(op.in, in, sizeof op.in);
    op.groups = op.kind == BPPSA_OPERATOR_CONV2D && chain_below(counter, 3) == 0 ? in[0] : 1;
    op.out_channels = op.groups * (1 + chain_below(counter, op.groups > 1 ? 2 : 5));
    const bool conv = op.kind == BPPSA_OPERATOR_CONV2D, most = op.kind == BPPSA_OPERATOR_MAXPOOL2D;
    for (int axis = 0; axis < 2; ++axis) {
      op.kernel[axis] = 1 + chain_below(counter, 3);
      op.stride[axis] = 1 + chain_below(counter, 3);
      op.dilation[axis] = conv || most ? 1 + chain_below(counter, 2) : 1;
    }
    for (int i = 0; i < 4; ++i) {
      const bool seen = conv || (op.kernel[i / 2] > 1 && op.dilation[i / 2] == 1); /* every window sees a value */
      op.padding[i] = seen ? chain_below(counter, conv ? 3 : 2) : 0;
    }
    op.ceil_mode = !conv && chain_below(counter, 2) == 0;
    op.exclude_pad = chain_below(counter, 2) == 0;
    op.approximate = chain_below(counter, 2) == 0;
    op.size[0] = 1 + chain_below(counter, op.kind == BPPSA_OPERATOR_ADAPTIVE_AVGPOOL2D ? 5 : 1);
    op.size[1] = 1 + chain_below(counter, op.kind == BPPSA_OPERATOR_ADAPTIVE_AVGPOOL2D ? 5 : 1);
  } while (bppsa_op_shape(&op, out) != BPPSA_OK ||
           (chain_plain && (op.kind == BPPSA_OPERATOR_BATCHNORM2D || op.kind == BPPSA_OPERATOR_DROPOUT)));
  int used = snprintf(text, CHAIN_TEXT, "{\"name\": \"layer%d\", \"op\": \"%s\"", number, bppsa_operator_name(op.kind));
  const bool conv = op.kind == BPPSA_OPERATOR_CONV2D;
  const bool pool = op.kind == BPPSA_OPERATOR_MAXPOOL2D || op.kind == BPPSA_OPERATOR_AVGPOOL2D;
  if (conv || op.kind == BPPSA_OPERATOR_LINEAR) {
    used += snprintf(text + used, CHAIN_TEXT, ", \"out\": %d, \"bias\": %s", (int)op.out_channels,
                     chain_below(counter, 3) == 0 ? "false" : "true");
  }
  if (conv || pool) {
    used += snprintf(text + used, CHAIN_TEXT, ", \"kernel\": [%d, %d], \"stride\": [%d, %d], \"padding\": [%d, %d, %d, %d]",
                     (int)op.kernel[0], (int)op.kernel[1], (int)op.stride[0], (int)op.stride[1], (int)op.padding[0],
                     (int)op.padding[1], (int)op.padding[2], (int)op.padding[3]);
  }
  if (conv || op.kind == BPPSA_OPERATOR_MAXPOOL2D) {
    used += snprintf(text + used, CHAIN_TEXT, ", \"dilation\": [%d, %d]", (int)op.dilation[0], (int)op.dilation[1]);
  }
  if (conv) {
    used += snprintf(text + used, CHAIN_TEXT, ", \"groups\": %d", (int)op.groups);
  }
  if (pool) {
    used += snprintf(text + used, CHAIN_TEXT, ", \"ceil_mode\": %s", op.ceil_mode ? "true" : "false");
  }
  if (op.kind == BPPSA_OPERATOR_AVGPOOL2D) {
    used += snprintf(text + used, CHAIN_TEXT, ", \"exclude_pad\": %s", op.exclude_pad ? "true" : "false");
  }
  if (op.kind == BPPSA_OPERATOR_ADAPTIVE_AVGPOOL2D) {
    used += snprintf(text + used, CHAIN_TEXT, ", \"size\": [%d, %d]", (int)op.size[0], (int)op.size[1]);
  }
  if (op.kind == BPPSA_OPERATOR_BATCHNORM2D) {
    used += snprintf(text + used, CHAIN_TEXT, ", \"affine\": %s, \"eps\": 0.01", chain_below(counter, 3) == 0 ? "false" : "true");
  }
  if (op.kind == BPPSA_OPERATOR_GELU) {
    used += snprintf(text + used, CHAIN_TEXT, ", \"approximate\": \"%s\"", op.approximate ? "tanh" : "none");
  }
  snprintf(text + used, CHAIN_TEXT, "}");
}

/* A network file of 1 .. 9 layers. */
static inline void chain_text(uint64_t *counter, char *text) {
  int64_t shape[3] = {1 + chain_below(counter, 4), 1 + chain_below(counter, 9), 1 + chain_below(counter, 9)}, out[3];
  const int64_t layers = chain_below(counter, 9);
  char layer[2 * CHAIN_TEXT];
  int used = snprintf(text, CHAIN_TEXT, "{\"input\": [%d, %d, %d], \"layers\": [", (int)shape[0], (int)shape[1], (int)shape[2]);
  for (int64_t i = 0; i < layers; ++i) {
    chain_layer(counter, i + 3 >= layers && chain_below(counter, 2) == 0, shape, (int)i, layer, out);
    memcpy(shape, out, sizeof shape);
    used += snprintf(text + used, CHAIN_TEXT, "%s, ", layer);
    assert_true(used < CHAIN_TEXT / 2);
  }
  snprintf(text + used, CHAIN_TEXT, "{\"name\": \"head\", \"op\": \"linear\", \"out\": %d}]}",
           (int)(2 + chain_below(counter, 4)));
}

static inline bppsa_cnn_network chain_network(uint64_t *counter) {
  char text[CHAIN_TEXT + 256];
  bppsa_cnn_network network;
  chain_text(counter, text);
  assert_int_equal(bppsa_cnn_network_parse("chain", text, (int64_t)strlen(text), &network), BPPSA_OK);
  return network;
}

/* y = w (x - m) / sqrt(v + eps) + b by the given statistics. Returns the number of parameters. */
static inline int64_t chain_norm(const bppsa_cnn_layer *layer, double *const *parameters, const double *in, double *out) {
  const int64_t plane = layer->out[1] * layer->out[2];
  double *const *statistics = parameters + (layer->bias ? 2 : 0);
  for (int64_t i = 0; i < layer->out[0] * plane; ++i) {
    const double z = (in[i] - statistics[0][i / plane]) / sqrt(statistics[1][i / plane] + layer->op.epsilon);
    out[i] = layer->bias ? parameters[0][i / plane] * z + parameters[1][i / plane] : z;
  }
  return layer->bias ? 4 : 2;
}

/* Logits of one sample in float64: x [C][H][W]; parameters in the model's order, each a float64 array. Returns the logits,
 * bppsa_free. */
static inline double *chain_forward(const bppsa_cnn_network *network, double *const *parameters, const double *x) {
  double *in = bppsa_alloc((size_t)bppsa_cnn_size(network, 0) * sizeof *in);
  memcpy(in, x, (size_t)bppsa_cnn_size(network, 0) * sizeof *in);
  for (int64_t i = 0; i < network->count; ++i) {
    const bppsa_cnn_layer *layer = &network->layers[i];
    const int64_t size = bppsa_cnn_size(network, i + 1), plane = layer->out[1] * layer->out[2];
    double *out = bppsa_alloc((size_t)size * sizeof *out);
    if (layer->op.kind == BPPSA_OPERATOR_BATCHNORM2D) {
      parameters += chain_norm(layer, parameters, in, out);
      bppsa_free(in);
      in = out;
      continue;
    }
    forward_op f = {.op = layer->op, .weights = bppsa_cnn_has_weights(layer) ? *parameters++ : NULL};
    memcpy(f.out, layer->out, sizeof f.out);
    forward_run(&f, in, out);
    for (int64_t k = 0; layer->bias && k < size; ++k) {
      out[k] += (*parameters)[k / plane];
    }
    parameters += layer->bias;
    bppsa_free(in);
    in = out;
  }
  return in;
}

#endif
