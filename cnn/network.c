#include "cnn/network.h"

#include <stdio.h>
#include <string.h>

#include "cnn/network_internal.h"
#include "core/base/alloc.h"

int64_t bppsa_cnn_size(const bppsa_cnn_network *network, int64_t i) {
  const int64_t *shape = i == 0 ? network->in : network->layers[i - 1].out;
  return shape[0] * shape[1] * shape[2];
}

const char *bppsa_cnn_layer_word(const bppsa_cnn_layer *layer) {
  static const char *const words[BPPSA_CNN_NODES] = {[BPPSA_CNN_ADD] = "add",
                                                     [BPPSA_CNN_MUL] = "mul",
                                                     [BPPSA_CNN_CONCAT] = "concat",
                                                     [BPPSA_CNN_SLICE] = "slice",
                                                     [BPPSA_CNN_RESHAPE] = "reshape",
                                                     [BPPSA_CNN_PERMUTE] = "permute",
                                                     [BPPSA_CNN_SUMS] = "sums",
                                                     [BPPSA_CNN_SOFTMAX] = "softmax",
                                                     [BPPSA_CNN_LAYERNORM] = "layernorm",
                                                     [BPPSA_CNN_GROUPNORM] = "groupnorm"};
  return layer->node != BPPSA_CNN_OPERATOR ? words[layer->node] : layer->line ? "conv1d" : bppsa_operator_name(layer->op.kind);
}

bppsa_status bppsa_cnn_require_chain(const bppsa_cnn_network *network, const char *what) {
  BPPSA_REQUIRE(network != NULL && what != NULL);
  return bppsa_cnn_is_graph(network)
             ? bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: a graph of layers for %s, expected a chain", network->name, what)
             : BPPSA_OK;
}

const bppsa_cnn_layer *bppsa_cnn_network_norm(const bppsa_cnn_network *network) {
  for (int64_t i = 0; i < network->count; ++i) {
    if (network->layers[i].op.kind == BPPSA_OPERATOR_BATCHNORM2D) {
      return &network->layers[i];
    }
  }
  return NULL;
}

int32_t bppsa_cnn_weight_shape(const bppsa_cnn_layer *layer, int64_t shape[4]) {
  const bppsa_op *op = &layer->op;
  shape[0] = op->out_channels;
  if (op->kind == BPPSA_OPERATOR_LINEAR) {
    shape[1] = op->in[0] * op->in[1] * op->in[2];
    return 2;
  }
  shape[1] = op->in[0] / op->groups;
  shape[2] = op->kernel[layer->line ? 1 : 0];
  shape[3] = op->kernel[1];
  return layer->line ? 3 : 4;
}

bppsa_status bppsa_cnn_network_reserve(int64_t layers, bppsa_cnn_network *network) {
  network->layers = bppsa_calloc(layers, sizeof *network->layers);
  return network->layers == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
}

bppsa_status bppsa_cnn_operator_shape(bppsa_cnn_layer *layer) {
  if (layer->line && layer->op.in[1] != 1) {
    char text[BPPSA_SHAPE_TEXT];
    return bppsa_fail(BPPSA_ERR_SHAPE, "conv1d: input %s, expected [C, 1, L]",
                      bppsa_shape_text(3, layer->op.in, text, sizeof text));
  }
  return bppsa_op_shape(&layer->op, layer->out);
}

bppsa_status bppsa_cnn_network_add(bppsa_cnn_network *network, bppsa_cnn_layer *layer) {
  const int64_t *in = network->count == 0 ? network->in : network->layers[network->count - 1].out;
  memcpy(layer->op.in, in, sizeof layer->op.in);
  BPPSA_TRY(bppsa_cnn_operator_shape(layer));
  network->layers[network->count++] = *layer;
  return BPPSA_OK;
}

void bppsa_cnn_network_free(bppsa_cnn_network *network) {
  if (network == NULL) {
    return;
  }
  bppsa_free(network->layers);
  bppsa_free(network->input_ptr);
  bppsa_free(network->inputs);
  *network = (bppsa_cnn_network){0};
}

int64_t bppsa_cnn_parameters(const bppsa_cnn_layer *layer) {
  if (layer->op.kind == BPPSA_OPERATOR_BATCHNORM2D) {
    return layer->bias ? 4 : 2;
  }
  if (bppsa_cnn_is_affine(layer)) {
    return 2;
  }
  return bppsa_cnn_has_weights(layer) ? 1 + layer->bias : 0;
}

bppsa_parameter bppsa_cnn_parameter(const bppsa_cnn_layer *layer, int64_t which, bppsa_dtype dtype,
                                    char name[BPPSA_CNN_PARAMETER]) {
  static const char *const names[BPPSA_CNN_PARAMETERS] = {"weight", "bias", "running_mean", "running_var"};
  const bool norm = layer->op.kind == BPPSA_OPERATOR_BATCHNORM2D;
  const int64_t part = which + (norm && !layer->bias ? 2 : 0);
  int64_t shape[4] = {norm ? layer->op.in[0] : layer->op.out_channels};
  int32_t ndim = norm || part > 0 ? 1 : bppsa_cnn_weight_shape(layer, shape);
  if (bppsa_cnn_is_affine(layer)) {
    memcpy(shape, layer->shape, sizeof layer->shape);
    ndim = (int32_t)layer->extents;
  }
  bppsa_parameter parameter = {.name = name, .statistic = part > 1};
  snprintf(name, BPPSA_CNN_PARAMETER, "%s.%s", layer->prefix, names[part]);
  parameter.value = parameter.gradient = bppsa_view_make(NULL, dtype, ndim, shape);
  return parameter;
}

bppsa_status bppsa_cnn_network_copy(const bppsa_cnn_network *from, bppsa_cnn_network *to) {
  BPPSA_REQUIRE(from != NULL && to != NULL && from->layers != NULL);
  bppsa_cnn_network copy = *from;
  copy.input_ptr = NULL;
  copy.inputs = NULL;
  BPPSA_TRY(bppsa_cnn_network_reserve(from->count, &copy));
  memcpy(copy.layers, from->layers, (size_t)from->count * sizeof *copy.layers);
  if (bppsa_cnn_is_graph(from)) {
    const int64_t edges = from->input_ptr[from->count];
    copy.input_ptr = bppsa_calloc(from->count + 1, sizeof *copy.input_ptr);
    copy.inputs = bppsa_calloc(edges, sizeof *copy.inputs);
    if (copy.input_ptr == NULL || copy.inputs == NULL) {
      bppsa_cnn_network_free(&copy);
      return BPPSA_ERR_MEMORY;
    }
    memcpy(copy.input_ptr, from->input_ptr, (size_t)(from->count + 1) * sizeof *copy.input_ptr);
    memcpy(copy.inputs, from->inputs, (size_t)edges * sizeof *copy.inputs);
  }
  *to = copy;
  return BPPSA_OK;
}
