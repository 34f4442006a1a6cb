/* Stands in for graph_cuda.cu in a build without CUDA, in which no network is on a GPU. */
#include "cnn/graph_gpu.h"

static bppsa_status without(void) {
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "network on a GPU: this build has no CUDA; use device cpu");
}

bppsa_status bppsa_move_queue(void *stream, bppsa_move_how how, bppsa_dtype dtype, int64_t batch, int64_t count,
                              bppsa_cnn_part_view from, bppsa_cnn_part_view to) {
  (void)stream, (void)how, (void)dtype, (void)batch, (void)count, (void)from, (void)to;
  return without();
}

bppsa_status bppsa_move_queue_strided(void *stream, bppsa_move_how how, bppsa_dtype dtype, int64_t batch, const int64_t shape[3],
                                      bppsa_cnn_part_view from, const int64_t from_strides[3], bppsa_cnn_part_view to,
                                      const int64_t to_strides[3]) {
  (void)stream, (void)how, (void)dtype, (void)batch, (void)shape, (void)from, (void)from_strides, (void)to, (void)to_strides;
  return without();
}

bppsa_status bppsa_move_queue_scattered(void *stream, bppsa_dtype dtype, int64_t batch, int64_t count, const int64_t *places,
                                        bppsa_cnn_part_view from, bppsa_cnn_part_view to) {
  (void)stream, (void)dtype, (void)batch, (void)count, (void)places, (void)from, (void)to;
  return without();
}

bppsa_status bppsa_move_queue_ones(void *stream, bppsa_dtype dtype, int64_t count, void *to) {
  (void)stream, (void)dtype, (void)count, (void)to;
  return without();
}

bppsa_status bppsa_normalise_queue_forward(void *stream, const bppsa_normalise_call *call, void *y) {
  (void)stream, (void)call, (void)y;
  return without();
}

bppsa_status bppsa_normalise_queue_backward(void *stream, const bppsa_normalise_call *call, const void *dy, void *dx,
                                            void *dsums) {
  (void)stream, (void)call, (void)dy, (void)dx, (void)dsums;
  return without();
}

bppsa_status bppsa_normalise_queue_weights(void *stream, const bppsa_normalise_call *call, const void *dy, void *dw, void *db) {
  (void)stream, (void)call, (void)dy, (void)dw, (void)db;
  return without();
}

bppsa_status bppsa_normalise_queue_block(void *stream, const bppsa_normalise_call *call, int64_t k, int64_t stride,
                                         void *values) {
  (void)stream, (void)call, (void)k, (void)stride, (void)values;
  return without();
}

bppsa_status bppsa_norm_queue_forward(void *stream, const bppsa_cnn_pass *pass, const void *x, void *y) {
  (void)stream, (void)pass, (void)x, (void)y;
  return without();
}

bppsa_status bppsa_norm_queue_input(void *stream, const bppsa_cnn_pass *pass, const void *dy, const void *x, void *dx) {
  (void)stream, (void)pass, (void)dy, (void)x, (void)dx;
  return without();
}

bppsa_status bppsa_norm_queue_weights(void *stream, const bppsa_cnn_pass *pass, const void *dy, const void *x) {
  (void)stream, (void)pass, (void)dy, (void)x;
  return without();
}

bppsa_status bppsa_norm_queue_scale(void *stream, const bppsa_cnn_pass *pass, void *scale) {
  (void)stream, (void)pass, (void)scale;
  return without();
}

bppsa_status bppsa_dropout_queue(void *stream, const bppsa_cnn_pass *pass, const int64_t *drawn, const void *from, void *to) {
  (void)stream, (void)pass, (void)drawn, (void)from, (void)to;
  return without();
}
