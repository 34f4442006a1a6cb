/* Stands in for cnn_cuda.cu in a build without CUDA, in which no network is on a GPU. */
#include "cnn/cnn_internal.h"

static bppsa_status without(void) {
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "network on a GPU: this build has no CUDA; use device cpu");
}

bppsa_status bppsa_cnn_cuda_create(cnn *n) {
  (void)n;
  return without();
}

bppsa_status bppsa_cnn_cuda_choose(cnn *n, int64_t most) {
  (void)n, (void)most;
  return without();
}

bppsa_status bppsa_cnn_cuda_visit(cnn *n, bppsa_cnn_visit visit, int64_t *sum) {
  (void)n, (void)visit, (void)sum;
  return without();
}

bppsa_status bppsa_cnn_cuda_start(cnn *n) {
  (void)n;
  return without();
}

void bppsa_cnn_cuda_destroy(cnn *n) {
  (void)n;
}

bppsa_status bppsa_cnn_cuda_forward(cnn *n) {
  (void)n;
  return without();
}

bppsa_status bppsa_cnn_cuda_backward(cnn *n) {
  (void)n;
  return without();
}

bppsa_status bppsa_cnn_cuda_layer_forward(const cnn *n, int64_t i, const void *x) {
  (void)n, (void)i, (void)x;
  return without();
}

bppsa_status bppsa_cnn_cuda_layer_input(const cnn *n, int64_t i, const void *x, const void *dy, void *dx) {
  (void)n, (void)i, (void)x, (void)dy, (void)dx;
  return without();
}

bppsa_status bppsa_cnn_cuda_layer_weights(cnn *n, int64_t i, const void *x, const void *dy) {
  (void)n, (void)i, (void)x, (void)dy;
  return without();
}

void bppsa_cnn_cuda_tell_step(cnn *n, int64_t step) {
  (void)n, (void)step;
}

bppsa_status bppsa_cnn_cuda_drop_factors(const cnn *n, const cnn_layer *layer, void *factors) {
  (void)n, (void)layer, (void)factors;
  return without();
}
