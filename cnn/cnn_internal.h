/* The inside of a convolutional network. */
#ifndef BPPSA_CNN_CNN_INTERNAL_H
#define BPPSA_CNN_CNN_INTERNAL_H

#include "cnn/blocks.h"
#include "cnn/cnn.h"
#include "cnn/conv.h"
#include "cnn/live.h"
#include "cnn/pass.h"
#include "jacobian/jacobian.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One operator. Arrays have room for the planned batch; a smaller batch packs its samples more tightly. */
typedef struct {
  const bppsa_cnn_layer *about;
  int64_t in, out; /* values of one sample; in: of its first input */
  int64_t weight;  /* index of its weight among the parameters; -1: none. A bias follows its weight */
  bppsa_conv conv; /* conv2d */
  void *y;         /* [B][out] */
  int32_t *places; /* maxpool2d: [B][out] */
  void *kept;      /* batchnorm2d: mean and 1/σ of the batch's channels [2][C] */
  uint8_t *mask;   /* of its weights, a byte each; NULL: no mask */
  void *const *lent_values, *const *lent_gradients; /* of its weight and bias, where a pass lends them (below) */
  bppsa_jacobian *jt;                               /* with a scan, for elements */
  void *values; /* with a scan: values of its transposed Jacobian, [nnz] or [B][nnz]; NULL: they are not used */
  /* in a graph's scan on a GPU, where ones are stored as entries: where each of the layer's own entries is among all of them, in
   * the GPU's memory, and their number; places NULL: all entries are the layer's own, or all are constant */
  int64_t *entry_places, own_entries;
  bool constant;
} cnn_layer;

typedef struct cnn_gpu cnn_gpu; /* cnn_cuda.cu */

typedef struct {
  bppsa_model base;
  bppsa_cnn_config config;
  bppsa_cnn_network network;
  const bppsa_device *device;
  cnn_gpu *gpu; /* NULL: the network runs on a CPU */
  /* on a GPU: one allocation for y, places, g, parameters and scratch; the other pointers point into it */
  void *memory;
  bool lent; /* on a GPU: layers' results, parameters and their gradients are lent by the caller of each layer's pass */
  int32_t threads;
  int64_t batch;               /* b of the latest forward pass; 0 before it */
  bppsa_cnn_training training; /* of the next passes (bppsa_model_drop); samples borrowed */
  const void *x, *seed;        /* borrowed; seed NULL before a backward pass */
  bool backward_done;
  int64_t delayed;                   /* the weight gradients of layers before this one come last (bppsa_model_delay) */
  cnn_layer *layers;                 /* size network.count; the last is the head, the others are t = 1 .. n */
  int64_t elements;                  /* n */
  int64_t *offsets;                  /* of g_t for one sample, size n + 2; the last one is the size of all (gradients.c) */
  int64_t room;                      /* reals of g for one sample */
  void *g;                           /* g_t at offsets[t] * b, each [b][size] */
  void *scratch, *sums, *transposed; /* of the present layer; transposed: a linear operator's weights */
  char (*names)[BPPSA_CNN_PARAMETER];
  void *parameter_values, *parameter_gradients; /* all parameters, one behind the other, in host memory */
  bppsa_scan_plan *plan;
  bppsa_scan_executor *scan;
  const bppsa_csr **patterns;   /* of J_1ᵀ .. J_nᵀ, size n; a graph's are in elements_made */
  bppsa_csr_values *csr_values; /* their values, size n */
  /* of a graph; otherwise zero. g_t is the gradient of tensor t in BP, and that of the live set x_t in a scan */
  bppsa_cnn_elements elements_made; /* its live sets, and with a scan its patterns */
  void *gathered;                   /* [B][size of the largest tensor]: one tensor's gradient, or a part of it */
  bool *written;                    /* BP: has anything reached the gradient of tensor 0 .. n? In host memory */
  void *entries;                    /* on a GPU, with a scan: the own entries of one layer, before they go to their places */
  int64_t bytes;                    /* that the network holds, as bppsa_cnn_count says */
} cnn;

extern const bppsa_model_ops bppsa_cnn_ops;
void bppsa_cnn_destroy(bppsa_model *model);
/* Makes a network on a GPU whose passes are called layer by layer, with lent arrays. Errors of bppsa_cnn_create. */
bppsa_status bppsa_cnn_create_lent(const bppsa_cnn_network *network, const bppsa_cnn_config *config, const bppsa_device *device,
                                   cnn **made);
/* Takes the masks of the configuration. ERR_ARGUMENT: one that names no weight; ERR_SHAPE; ERR_UNSUPPORTED; ERR_MEMORY. */
bppsa_status bppsa_cnn_take_masks(cnn *n);
/* A layer's weight or bias, or its gradient, where the passes use it; bias: NULL if the layer has none. */
void *bppsa_cnn_weight(const cnn *n, const cnn_layer *layer, bool gradient);
void *bppsa_cnn_bias(const cnn *n, const cnn_layer *layer, bool gradient);
const void *bppsa_cnn_input(const cnn *n, int64_t i);  /* of layer i, its first one */
const void *bppsa_cnn_output(const cnn *n, int64_t i); /* of layer i; i = -1: the network's input */
void *bppsa_cnn_gradient(const cnn *n, int64_t t);     /* g_t for the present batch */
/* The gradient of the output of layer t - 1 (bppsa_cnn_graph_gradient). */
bppsa_status bppsa_cnn_output_gradient(const cnn *n, int64_t t, const void **gradient);
/* Computes g_{n-1} .. g_1, and g_0 if it is wanted, from g_n by the scan. */
bppsa_status bppsa_cnn_run_scan(cnn *n);
/* For gradients.c, which says where each g_t is. bppsa_cnn_reuses: are g_t kept only as long as they are needed? */
bool bppsa_cnn_reuses(const cnn *n);
/* Places g_0 .. g_n and sets the room that they take. ERR_MEMORY: they do not fit in 64 bits. */
bppsa_status bppsa_cnn_place_gradients(cnn *n);
/* Adds the room for weight gradients that are put off, for as many layers as the configuration wants and its limit admits. bytes:
 * those of the network without that room. */
void bppsa_cnn_reserve_delay(cnn *n, int64_t bytes);
bppsa_status bppsa_cnn_delay(bppsa_model *model, int64_t k, bppsa_delayed *delayed);
/* The passes of a layer on `batch` samples, on a CPU. */
bppsa_cnn_pass bppsa_cnn_pass_of(const cnn *n, const cnn_layer *layer, int64_t batch);

/* Counts entries of a layer's J_tᵀ: *all by its structure; *kept at most those that the mask keeps, the kept weights times the
 * output's positions. Errors of bppsa_op_count. */
bppsa_status bppsa_cnn_count_entries(const bppsa_cnn_layer *layer, const uint8_t *mask, int64_t *all, int64_t *kept);

/* ---- a graph (graph.c): passes layer by layer; on a GPU they are queued, and may fail with ERR_CUDA ---- */

/* The output of a layer that is no operator. */
bppsa_status bppsa_cnn_graph_forward(const cnn *n, int64_t i);
/* BP: begins a pass, in which g_n, the gradient of the last tensor, is set already. */
void bppsa_cnn_graph_begin(const cnn *n);
/* BP: adds to the gradients of the tensors that layer t - 1 reads what comes from its output, tensor t. The gradient of the
 * network's input is left out unless it is wanted. */
bppsa_status bppsa_cnn_graph_backward(const cnn *n, int64_t t);
/* The gradients of weight and bias of layer i, a layer norm or a group norm, from dy, its output's. stream: of a GPU. */
bppsa_status bppsa_cnn_graph_weight_gradient(const cnn *n, int64_t i, const void *dy, void *stream);
/* A scan: the entries of J_tᵀ of a layer with blocks (cnn/blocks.h), `stride` reals from sample to sample. */
bppsa_status bppsa_cnn_graph_fill(const cnn *n, int64_t t, int64_t stride, void *values);
/* The gradient of tensor t, [b][size] without gaps. After a scan it may be a copy, which the next call overwrites. */
bppsa_status bppsa_cnn_graph_gradient(const cnn *n, int64_t t, const void **gradient);

/* ---- on a GPU (cnn_cuda.cu) ---- */

/* What to do with every array of a device: count it, or place it. `array` points to the pointer; *sum: the bytes of all, or the
 * next address. */
typedef bppsa_status (*bppsa_cnn_visit)(void *array, int64_t bytes, int64_t *sum);

/* Makes streams, events and convolutions from the finished description of layers, parameters and masks. ERR_UNSUPPORTED: a
 * network with convolutions, without cuDNN. */
bppsa_status bppsa_cnn_cuda_create(cnn *n);
/* Chooses algorithms whose workspaces take at most `most` bytes each. ERR_UNSUPPORTED: there is none. */
bppsa_status bppsa_cnn_cuda_choose(cnn *n, int64_t most);
bppsa_status bppsa_cnn_cuda_visit(cnn *n, bppsa_cnn_visit visit, int64_t *sum); /* arrays that only a GPU has */
/* sets parameters to 0 and copies masks, once memory is allocated */
bppsa_status bppsa_cnn_cuda_start(cnn *n);
void bppsa_cnn_cuda_destroy(cnn *n);
bppsa_status bppsa_cnn_cuda_forward(cnn *n);
/* The step of training of the next passes, for dropout. */
void bppsa_cnn_cuda_tell_step(cnn *n, int64_t step);
/* The factors of a dropout in the present pass [b][in]. */
bppsa_status bppsa_cnn_cuda_drop_factors(const cnn *n, const cnn_layer *layer, void *factors);
bppsa_status bppsa_cnn_cuda_backward(cnn *n);
/* Passes of layer i alone, on n->batch samples: y, or dx, or the gradients of the weights. The layer has y, places and lent
 * arrays. */
bppsa_status bppsa_cnn_cuda_layer_forward(const cnn *n, int64_t i, const void *x);
bppsa_status bppsa_cnn_cuda_layer_input(const cnn *n, int64_t i, const void *x, const void *dy, void *dx);
bppsa_status bppsa_cnn_cuda_layer_weights(cnn *n, int64_t i, const void *x, const void *dy);

#ifdef __cplusplus
}
#endif

#endif
