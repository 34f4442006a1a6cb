/* Stands in for rnn_cudnn.c in a build without cuDNN. */
#include "bench/rivals/rnn_cudnn.h"
#include "core/compute/cudnn.h"

static bppsa_status without(void) {
  bppsa_cudnn_report report;
  bppsa_cudnn_probe(&report);
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "cuDNN: this build has none; %s", report.detail);
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

bppsa_status bppsa_cudnn_take(bppsa_cudnn_network *network, const void *x, const void *seed) {
  (void)network, (void)x, (void)seed;
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

int64_t bppsa_cudnn_launches(const bppsa_cudnn_network *network) {
  (void)network;
  return 0;
}

bppsa_status bppsa_cudnn_last_states(const bppsa_cudnn_network *network, void *states) {
  (void)network, (void)states;
  return without();
}

bppsa_status bppsa_cudnn_input_gradient(const bppsa_cudnn_network *network, void *dx) {
  (void)network, (void)dx;
  return without();
}
