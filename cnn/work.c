#include "cnn/work.h"

#include "core/base/alloc.h"
#include "jacobian/jacobian.h"

double bppsa_cnn_flops_besides(const bppsa_cnn_network *network, const bppsa_csr *const *patterns) {
  double flops = 0;
  for (int64_t i = 0; i + 1 < network->count; ++i) {
    const bppsa_cnn_layer *layer = &network->layers[i];
    const bool weights = layer->op.kind != BPPSA_OPERATOR_BATCHNORM2D || layer->bias;
    flops += weights ? (double)bppsa_op_weight_flops(&layer->op, patterns[i]->nnz) : 0;
  }
  return flops;
}

/* Counts BP as the linear plan of the chain. */
bppsa_status bppsa_cnn_count_chain(const bppsa_cnn_network *network, const bppsa_csr *const *patterns, bool input,
                                   const bppsa_device *device, bppsa_cnn_bp_work *bp) {
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
  bp->work = bppsa_work_of_bp(bppsa_scan_plan_totals(plan), bppsa_cnn_flops_besides(network, patterns));
  bp->largest = 0;
  for (int64_t i = 1; i < n; ++i) {
    const int64_t flops = bppsa_scan_plan_bp_flops(plan, i);
    bp->largest = flops > bp->largest ? flops : bp->largest;
  }
  bppsa_scan_plan_destroy(plan);
  return BPPSA_OK;
}

bppsa_status bppsa_cnn_count_bp(const bppsa_cnn_network *network, const uint8_t *const *masks, bool input,
                                const bppsa_device *device, bppsa_cnn_bp_work *bp) {
  BPPSA_REQUIRE(network != NULL && bp != NULL);
  const int64_t n = network->count - 1;
  bppsa_jacobian **jacobians = bppsa_calloc(n + 1, sizeof(bppsa_jacobian *));
  const bppsa_csr **patterns = bppsa_calloc(n + 1, sizeof *patterns);
  bppsa_status status = jacobians == NULL || patterns == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  for (int64_t i = 0; status == BPPSA_OK && i < n; ++i) {
    const uint8_t *mask = masks != NULL ? masks[i] : NULL;
    status = bppsa_jacobian_create(&network->layers[i].op, mask, mask == NULL, device, &jacobians[i]);
    patterns[i] = status == BPPSA_OK ? bppsa_jacobian_pattern(jacobians[i]) : NULL;
  }
  status = status == BPPSA_OK ? bppsa_cnn_count_chain(network, patterns, input, device, bp) : status;
  for (int64_t i = 0; jacobians != NULL && i < n; ++i) {
    bppsa_jacobian_destroy(jacobians[i]);
  }
  bppsa_free((void *)jacobians);
  bppsa_free((void *)patterns);
  return status;
}
