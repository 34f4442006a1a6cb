#include "cnn/work.h"

#include "cnn/blocks.h"
#include "cnn/live.h"
#include "core/base/alloc.h"
#include "jacobian/jacobian.h"

double bppsa_cnn_flops_besides(const bppsa_cnn_network *network, const bppsa_csr *const *own) {
  double flops = 0;
  for (int64_t i = 0; i + 1 < network->count; ++i) {
    const bppsa_cnn_layer *layer = &network->layers[i];
    const bool weights = layer->op.kind != BPPSA_OPERATOR_BATCHNORM2D || layer->bias;
    flops += weights && own[i] != NULL ? (double)bppsa_op_weight_flops(&layer->op, own[i]->nnz) : 0;
    flops += bppsa_cnn_is_affine(layer) ? 2 * (double)bppsa_cnn_size(network, i + 1) : 0;
  }
  return flops;
}

/* Counts BP as the linear plan of the elements. */
bppsa_status bppsa_cnn_count_elements(const bppsa_cnn_network *network, const bppsa_csr *const *patterns, bool input,
                                      const bppsa_device *device, double besides, bppsa_cnn_bp_work *bp) {
  BPPSA_REQUIRE(network != NULL && patterns != NULL && bp != NULL);
  const int64_t n = network->count - 1;
  bppsa_scan_config config = bppsa_scan_config_default();
  bppsa_scan_plan *plan = NULL;
  config.element = BPPSA_ELEMENT_CSR;
  config.method.algorithm = BPPSA_SCAN_LINEAR;
  config.jacobians = n;
  config.dim = bppsa_cnn_size(network, n);
  config.patterns = patterns;
  config.planner = device;
  config.symbolic = true;
  config.input = input;
  BPPSA_TRY(bppsa_scan_plan_create(&config, &plan));
  bp->work = bppsa_work_of_bp(bppsa_scan_plan_totals(plan), besides);
  bp->largest = 0;
  for (int64_t i = 1; i < n; ++i) {
    const int64_t flops = bppsa_scan_plan_bp_flops(plan, i);
    bp->largest = flops > bp->largest ? flops : bp->largest;
  }
  bppsa_scan_plan_destroy(plan);
  return BPPSA_OK;
}

bppsa_status bppsa_cnn_count_chain(const bppsa_cnn_network *network, const bppsa_csr *const *own, bool input,
                                   const bppsa_device *device, bppsa_cnn_bp_work *bp) {
  BPPSA_REQUIRE(network != NULL && own != NULL && bp != NULL);
  bppsa_cnn_elements elements = {0};
  bppsa_status status = bppsa_cnn_elements_create(network, input, &elements);
  for (int64_t t = 1; status == BPPSA_OK && t < network->count; ++t) {
    status = bppsa_cnn_elements_set(network, t, own[t - 1], &elements);
  }
  const double besides = status == BPPSA_OK ? bppsa_cnn_flops_besides(network, own) : 0;
  status = status == BPPSA_OK ? bppsa_cnn_count_elements(network, elements.patterns, input, device, besides, bp) : status;
  bppsa_cnn_elements_free(&elements);
  return status;
}

bppsa_status bppsa_cnn_count_bp(const bppsa_cnn_network *network, const uint8_t *const *masks, bool input,
                                const bppsa_device *device, bppsa_cnn_bp_work *bp) {
  BPPSA_REQUIRE(network != NULL && bp != NULL);
  const int64_t n = network->count - 1;
  bppsa_jacobian **jacobians = bppsa_calloc(n + 1, sizeof(bppsa_jacobian *));
  const bppsa_csr **own = bppsa_calloc(n + 1, sizeof *own);
  bppsa_status status = jacobians == NULL || own == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  for (int64_t i = 0; status == BPPSA_OK && i < n; ++i) {
    const uint8_t *mask = masks != NULL ? masks[i] : NULL;
    if (network->layers[i].node == BPPSA_CNN_OPERATOR) {
      status = bppsa_jacobian_create(&network->layers[i].op, mask, mask == NULL, device, &jacobians[i]);
      own[i] = status == BPPSA_OK ? bppsa_jacobian_pattern(jacobians[i]) : NULL;
    }
  }
  status = status == BPPSA_OK ? bppsa_cnn_count_chain(network, own, input, device, bp) : status;
  for (int64_t i = 0; jacobians != NULL && i < n; ++i) {
    bppsa_jacobian_destroy(jacobians[i]);
  }
  bppsa_free((void *)jacobians);
  bppsa_free((void *)own);
  return status;
}

/* ---- layers one by one ---- */

double bppsa_cnn_forward_flops(const bppsa_cnn_network *network, int64_t i) {
  const bppsa_cnn_layer *layer = &network->layers[i];
  const bppsa_op *op = &layer->op;
  const double out = (double)bppsa_cnn_size(network, i + 1), taps = (double)op->kernel[0] * (double)op->kernel[1];
  const double in = (double)op->in[0] * (double)op->in[1] * (double)op->in[2];
  switch (layer->node) {
  case BPPSA_CNN_OPERATOR:
    break;
  case BPPSA_CNN_ADD:
  case BPPSA_CNN_MUL:
    return (double)(bppsa_cnn_input_count(network, i) - 1) * out;
  case BPPSA_CNN_SUMS:
    return (layer->of == BPPSA_CNN_SOFTMAX ? 2 : 4) * in;
  case BPPSA_CNN_SOFTMAX:
    return 2 * out;
  case BPPSA_CNN_LAYERNORM:
  case BPPSA_CNN_GROUPNORM:
    return (layer->bias ? 4 : 2) * out;
  default: /* values that only move */
    return 0;
  }
  switch (op->kind) {
  case BPPSA_OPERATOR_CONV2D:
    return 2 * out * taps * (double)(op->in[0] / op->groups);
  case BPPSA_OPERATOR_LINEAR:
    return 2 * out * in;
  case BPPSA_OPERATOR_MAXPOOL2D:
  case BPPSA_OPERATOR_AVGPOOL2D:
    return out * taps;
  case BPPSA_OPERATOR_ADAPTIVE_AVGPOOL2D:
  case BPPSA_OPERATOR_GLOBAL_AVGPOOL:
    return in;
  case BPPSA_OPERATOR_BATCHNORM2D:
    return 2 * out;
  default:
    return bppsa_op_is_identity(op) ? 0 : out;
  }
}

/* Counts the weights that the mask keeps, and the pairs of an input and an output that they join: a weight of a linear operator
 * joins one, a weight of a convolution one at every position of the output at which its tap lies inside the input. */
static void count_kept(const bppsa_cnn_layer *layer, const uint8_t *mask, int64_t *kept, double *pairs) {
  const bppsa_op *op = &layer->op;
  const bool conv = op->kind == BPPSA_OPERATOR_CONV2D;
  const int64_t width = conv ? op->kernel[1] : 1, taps = conv ? op->kernel[0] * width : 1, weights = bppsa_op_weights(op);
  *kept = 0;
  *pairs = 0;
  for (int64_t tap = 0; tap < taps; ++tap) {
    int64_t here = mask == NULL ? weights / taps : 0;
    for (int64_t k = tap; mask != NULL && k < weights; k += taps) {
      here += mask[k] != 0;
    }
    const int64_t rows = conv ? bppsa_op_tap_positions(op, 0, tap / width, layer->out[1]) : 1;
    const int64_t columns = conv ? bppsa_op_tap_positions(op, 1, tap % width, layer->out[2]) : 1;
    *kept += here;
    *pairs += (double)here * (double)(rows * columns);
  }
}

/* Entries of the layer's own transposed Jacobian: without those that lead to the network's input where its gradient is not wanted,
 * and without ones. */
static double backward_entries(const bppsa_cnn_network *network, int64_t i, bool input, double entries) {
  const bppsa_cnn_layer *layer = &network->layers[i];
  if (layer->node == BPPSA_CNN_OPERATOR) {
    return bppsa_op_is_identity(&layer->op) || (bppsa_cnn_input_of(network, i, 0) < 0 && !input) ? 0 : entries;
  }
  double sum = 0;
  for (int64_t k = 0; bppsa_cnn_has_blocks(layer) && k < bppsa_cnn_input_count(network, i); ++k) {
    sum += bppsa_cnn_input_of(network, i, k) >= 0 || input ? (double)bppsa_cnn_block_entries(network, i, k) : 0;
  }
  return sum;
}

bppsa_status bppsa_cnn_count_layer(const bppsa_cnn_network *network, int64_t i, const uint8_t *mask, bool input,
                                   bppsa_cnn_layer_work *work) {
  BPPSA_REQUIRE(network != NULL && work != NULL && i >= 0 && i < network->count);
  const bppsa_cnn_layer *layer = &network->layers[i];
  bppsa_cnn_layer_work made = {.parameters = 0};
  bppsa_op_size size = {0};
  BPPSA_TRY(layer->node == BPPSA_CNN_OPERATOR ? bppsa_op_count(&layer->op, &size) : BPPSA_OK);
  for (int64_t p = 0; p < bppsa_cnn_parameters(layer); ++p) {
    char name[BPPSA_CNN_PARAMETER];
    const bppsa_parameter parameter = bppsa_cnn_parameter(layer, p, BPPSA_F32, name);
    made.parameters += parameter.statistic ? 0 : bppsa_view_count(&parameter.value);
  }
  const bool weights = bppsa_cnn_has_weights(layer);
  const double forward = bppsa_cnn_forward_flops(network, i);
  double kept = (double)size.entries;
  if (weights) {
    made.weights = bppsa_op_weights(&layer->op);
    count_kept(layer, mask, &made.kept, &kept);
  }
  const double dense = weights ? forward / 2 : (double)size.entries;
  const double entries[BPPSA_CNN_COUNTS] = {dense, (double)size.entries, kept, dense};
  for (int k = 0; k < BPPSA_CNN_COUNTS; ++k) {
    made.flops[BPPSA_CNN_FORWARD][k] = weights ? 2 * entries[k] : forward;
    made.flops[BPPSA_CNN_TO_INPUT][k] = 2 * backward_entries(network, i, input, entries[k]);
    const bool trained = weights || (layer->op.kind == BPPSA_OPERATOR_BATCHNORM2D && layer->bias);
    made.flops[BPPSA_CNN_TO_WEIGHTS][k] = bppsa_cnn_is_affine(layer) ? 2 * (double)bppsa_cnn_size(network, i + 1)
                                          : trained                  ? 2 * entries[k]
                                                                     : 0;
  }
  *work = made;
  return BPPSA_OK;
}
