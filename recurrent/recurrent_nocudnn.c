/* A build without cuDNN. */
#include <stdio.h>

#include "recurrent/recurrent_cudnn.h"

static const char why[] = "install it (package cudnn9-cuda-13 of NVIDIA's repository) beside the CUDA toolkit and configure "
                          "with -DBPPSA_WITH_CUDNN=ON";

static bppsa_status without(void) {
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "cuDNN: this build has none; %s", why);
}

void bppsa_cudnn_probe(bppsa_cudnn_report *report) {
  *report = (bppsa_cudnn_report){.built = false};
  snprintf(report->detail, sizeof report->detail, "%s", why);
}

bppsa_status bppsa_cudnn_create(const bppsa_recurrent_config *config, const bppsa_cell *cell, bppsa_cudnn_algorithm algorithm,
                                const bppsa_device *device, bppsa_cudnn_network **network) {
  (void)config, (void)cell, (void)algorithm, (void)device, (void)network;
  return without();
}

void bppsa_cudnn_destroy(bppsa_cudnn_network *network) {
  (void)network;
}

bppsa_status bppsa_cudnn_set(bppsa_cudnn_network *network, const char *prefix, const bppsa_model *model) {
  (void)network, (void)prefix, (void)model;
  return without();
}

bppsa_status bppsa_cudnn_pull(const bppsa_cudnn_network *network, const char *prefix, const bppsa_model *model) {
  (void)network, (void)prefix, (void)model;
  return without();
}

bppsa_status bppsa_cudnn_forward(bppsa_cudnn_network *network, const bppsa_view *x) {
  (void)network, (void)x;
  return without();
}

bppsa_status bppsa_cudnn_backward(bppsa_cudnn_network *network, const bppsa_view *seed) {
  (void)network, (void)seed;
  return without();
}

bppsa_status bppsa_cudnn_last_states(const bppsa_cudnn_network *network, void *states) {
  (void)network, (void)states;
  return without();
}
