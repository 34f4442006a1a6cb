/* What the layers of graphs, batch norms and dropouts do on a GPU, by the equations of their CPU counterparts, which the headers
 * named here describe. Work is queued on `stream` (cudaStream_t). All arrays are in GPU memory. Every function may fail with
 * ERR_CUDA. Internal. */
#ifndef BPPSA_CNN_GRAPH_GPU_H
#define BPPSA_CNN_GRAPH_GPU_H

#include "cnn/given.h"
#include "cnn/move.h"
#include "cnn/normalise.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- cnn/move.h ---- */

bppsa_status bppsa_move_queue(void *stream, bppsa_move_how how, bppsa_dtype dtype, int64_t batch, int64_t count,
                              bppsa_cnn_part_view from, bppsa_cnn_part_view to);
bppsa_status bppsa_move_queue_strided(void *stream, bppsa_move_how how, bppsa_dtype dtype, int64_t batch, const int64_t shape[3],
                                      bppsa_cnn_part_view from, const int64_t from_strides[3], bppsa_cnn_part_view to,
                                      const int64_t to_strides[3]);
/* For every sample b and i < count: to[b][places[i]] = from[b][i]. */
bppsa_status bppsa_move_queue_scattered(void *stream, bppsa_dtype dtype, int64_t batch, int64_t count, const int64_t *places,
                                        bppsa_cnn_part_view from, bppsa_cnn_part_view to);
/* Sets `count` reals to 1. */
bppsa_status bppsa_move_queue_ones(void *stream, bppsa_dtype dtype, int64_t count, void *to);

/* ---- cnn/normalise.h; sums are of double, in an order that the sizes alone decide ---- */

bppsa_status bppsa_normalise_queue_forward(void *stream, const bppsa_normalise_call *call, void *y);
bppsa_status bppsa_normalise_queue_backward(void *stream, const bppsa_normalise_call *call, const void *dy, void *dx,
                                            void *dsums);
bppsa_status bppsa_normalise_queue_weights(void *stream, const bppsa_normalise_call *call, const void *dy, void *dw, void *db);
bppsa_status bppsa_normalise_queue_block(void *stream, const bppsa_normalise_call *call, int64_t k, int64_t stride, void *values);

/* ---- cnn/norm.h ---- */

bppsa_status bppsa_norm_queue_forward(void *stream, const bppsa_cnn_pass *pass, const void *x, void *y);
bppsa_status bppsa_norm_queue_input(void *stream, const bppsa_cnn_pass *pass, const void *dy, const void *x, void *dx);
bppsa_status bppsa_norm_queue_weights(void *stream, const bppsa_cnn_pass *pass, const void *dy, const void *x);
bppsa_status bppsa_norm_queue_scale(void *stream, const bppsa_cnn_pass *pass, void *scale);
/* drawn: the step of training, and then the number of each sample of the batch. The factors are the CPU's. */
bppsa_status bppsa_dropout_queue(void *stream, const bppsa_cnn_pass *pass, const int64_t *drawn, const void *from, void *to);

#ifdef __cplusplus
}
#endif
#endif
