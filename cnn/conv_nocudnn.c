/* Stands in for conv_cudnn.c in a build without cuDNN, which has no convolutions on a GPU. */
#include "cnn/conv_cudnn.h"

static bppsa_status without(void) {
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                    "convolutions on a GPU: this build has no cuDNN; install it (package cudnn9-cuda-13 of NVIDIA's repository) "
                    "beside the CUDA toolkit and configure with -DBPPSA_WITH_CUDNN=ON, or use device cpu");
}

bppsa_status bppsa_cudnn_queue_create(const bppsa_device *device, void *stream, bppsa_cudnn_queue **queue) {
  (void)device, (void)stream, (void)queue;
  return without();
}

void bppsa_cudnn_queue_destroy(bppsa_cudnn_queue *queue) {
  (void)queue;
}

bppsa_status bppsa_cudnn_conv_create(const bppsa_cudnn_queue *queue, bppsa_dtype dtype, bppsa_cudnn_conv **conv) {
  (void)queue, (void)dtype, (void)conv;
  return without();
}

void bppsa_cudnn_conv_destroy(bppsa_cudnn_conv *conv) {
  (void)conv;
}

bppsa_status bppsa_cudnn_conv_describe(bppsa_cudnn_conv *conv, const bppsa_op *op, int64_t batch, bool chain,
                                       bppsa_cudnn_bytes most, bppsa_cudnn_bytes *used) {
  (void)conv, (void)op, (void)batch, (void)chain, (void)most, (void)used;
  return without();
}

int64_t bppsa_cudnn_conv_batch(const bppsa_cudnn_conv *conv) {
  (void)conv;
  return 0;
}

bppsa_status bppsa_cudnn_conv_forward(const bppsa_cudnn_conv *conv, const bppsa_cudnn_queue *queue, const void *x,
                                      const void *weights, const void *bias, void *workspace, void *y) {
  (void)conv, (void)queue, (void)x, (void)weights, (void)bias, (void)workspace, (void)y;
  return without();
}

bppsa_status bppsa_cudnn_conv_input_gradient(const bppsa_cudnn_conv *conv, const bppsa_cudnn_queue *queue, const void *dy,
                                             const void *weights, void *workspace, void *dx) {
  (void)conv, (void)queue, (void)dy, (void)weights, (void)workspace, (void)dx;
  return without();
}

bppsa_status bppsa_cudnn_conv_weight_gradient(const bppsa_cudnn_conv *conv, const bppsa_cudnn_queue *queue, const void *dy,
                                              const void *x, void *workspace, void *dw, void *db) {
  (void)conv, (void)queue, (void)dy, (void)x, (void)workspace, (void)dw, (void)db;
  return without();
}
