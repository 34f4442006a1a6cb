/* Without CUDA there is no GPU, and no network on one. */
#include "recurrent/network_internal.h"

static bppsa_status without(void) {
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "network on a GPU: this build has no CUDA; use device cpu");
}

bool bppsa_recurrent_cuda_fused(const recurrent_network *n) {
  (void)n;
  return false;
}

bppsa_status bppsa_recurrent_cuda_create(recurrent_network *n, const bppsa_device *device) {
  (void)n, (void)device;
  return without();
}

void bppsa_recurrent_cuda_choose(recurrent_network *n) {
  (void)n;
}

bppsa_status bppsa_recurrent_cuda_visit(recurrent_network *n, bppsa_recurrent_visit visit, int64_t *bytes) {
  (void)n, (void)visit, (void)bytes;
  return without();
}

bppsa_status bppsa_recurrent_cuda_reserve(recurrent_network *n, int64_t bytes, int64_t *address) {
  (void)n, (void)bytes, (void)address;
  return without();
}

bppsa_status bppsa_recurrent_cuda_clear(recurrent_network *n) {
  (void)n;
  return without();
}

void bppsa_recurrent_cuda_destroy(recurrent_network *n) {
  (void)n;
}

bppsa_status bppsa_recurrent_cuda_forward(recurrent_network *n, const void *h0) {
  (void)n, (void)h0;
  return without();
}

bppsa_status bppsa_recurrent_cuda_logits(recurrent_network *n) {
  (void)n;
  return without();
}

bppsa_status bppsa_recurrent_cuda_head_gradients(recurrent_network *n) {
  (void)n;
  return without();
}

bppsa_status bppsa_recurrent_cuda_backward(recurrent_network *n) {
  (void)n;
  return without();
}

bppsa_status bppsa_recurrent_cuda_seed(recurrent_network *n) {
  (void)n;
  return without();
}

bppsa_status bppsa_recurrent_cuda_seed_layers(recurrent_network *n, const void *seed) {
  (void)n, (void)seed;
  return without();
}

bppsa_status bppsa_recurrent_cuda_layer_backward(recurrent_network *n, int64_t l) {
  (void)n, (void)l;
  return without();
}

bppsa_status bppsa_recurrent_cuda_pass_down(recurrent_network *n, int64_t l) {
  (void)n, (void)l;
  return without();
}

bppsa_status bppsa_recurrent_cuda_count(recurrent_network *n, int64_t *redone) {
  (void)n, (void)redone;
  return without();
}
