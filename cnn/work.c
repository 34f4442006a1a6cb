#include "cnn/work.h"

#include "cnn/live.h"
#include "core/base/alloc.h"
#include "jacobian/jacobian.h"

double bppsa_cnn_flops_besides(const bppsa_cnn_network *network, const bppsa_csr *const *own) {
  double flops = 0;
  for (int64_t i = 0; i + 1 < network->count; ++i) {
    const bppsa_cnn_layer *layer = &network->layers[i];
    const bool weights = layer->op.kind != BPPSA_OPERATOR_BATCHNORM2D || layer->bias;
    flops += weights && own[i] != NULL ? (double)bppsa_op_weight_flops(&layer->op, own[i]->nnz) : 0;
  }
  return flops;
}

/* Counts BP as the linear plan of the elements. */
static bppsa_status count_linear(const bppsa_cnn_network *network, const bppsa_csr *const *patterns, bool input,
                                 const bppsa_device *device, double besides, bppsa_cnn_bp_work *bp) {
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
  status = status == BPPSA_OK ? count_linear(network, elements.patterns, input, device, bppsa_cnn_flops_besides(network, own), bp)
                              : status;
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
