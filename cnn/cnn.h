/* Convolutional networks as a bppsa_model: forward, sequential BP or BP through the CSR scan, gradients of all parameters (BPPSA
 * §3.5, 4.3).
 *
 *     x_0 = x [b][C][H][W],  x_t = f_t(x_{t-1}; θ_t)  for the operators t = 1 .. n,  logits [b][classes] = head(x_n)
 *
 * Backward: g_n = W_headᵀ seed, then g_{t-1} = J_tᵀ g_t, by the operators' own backward passes (BP) or by a scan over the
 * transposed Jacobians in CSR; then every weight's gradient from g_t and x_{t-1}. On a CPU convolutions run as matrix products over
 * columns (im2col), on a GPU by cuDNN's deterministic algorithms, f32 without TF32: two runs on a GPU give the same bits, but
 * not those of a CPU.
 *
 * A graph runs in the order of its layers, on a CPU. BP adds up what the readers of a tensor give it; a scan goes over live sets,
 * so that g_t is the gradient of all tensors that live behind layer t.
 *
 * Parameters have PyTorch's names and layouts, NAME.weight [Co][Ci/G][kh][kw] or [Co][Ci] and NAME.bias [Co], in the order of
 * the layers.
 *
 * A mask keeps some of a layer's weights at 0 (static sparsity): they are 0 in every pass, their gradient is 0, and the scan's
 * patterns do not contain them. Values that a ReLU or a pool sets to 0 (dynamic sparsity) stay in the patterns as explicit zeros.
 */
#ifndef BPPSA_CNN_CNN_H
#define BPPSA_CNN_CNN_H

#include "cnn/network.h"
#include "core/compute/device.h"
#include "core/compute/model.h"
#include "scan/scan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* When BP computes the gradients of weights. On a second stream of a GPU they run beside the chain of input gradients, which does
 * not need them (out-of-order back-propagation, ooo-backprop §4.1). The gradients are the same, bit for bit. */
typedef enum { BPPSA_WEIGHT_GRADIENTS_IN_ORDER = 0, BPPSA_WEIGHT_GRADIENTS_SECOND_STREAM } bppsa_weight_gradients;

typedef struct {
  int64_t batch;     /* B >= 1, the largest batch */
  bppsa_dtype dtype; /* f32, f64 */
  /* BP, a scan (auto, linear or blelloch), or auto: of BP and the linear scan, the one that a cost model predicts to be faster on
   * the device. With a factory, auto is a scan. */
  bppsa_gradient_method method;
  bppsa_weight_gradients weight_gradients; /* second stream: only with backward = BP on a GPU */
  bool input_gradients;                    /* computes the gradient of x too */
  int64_t memory_limit;                    /* bytes the network may hold; 0: no limit */
  int64_t optimizer_slots; /* arrays as large as the parameters that an optimiser will hold; counted as the network's */
  /* The weight gradients of so many first layers may be put off, or of as many of them as fit memory_limit.
   * On a CPU BP then keeps these layers' output gradients; every other one only until the layer below has used it. */
  int64_t delayed;
  int64_t mask_count;
  /* named like the weights and of their shapes, 0 where a weight is kept at 0. Any dtype but f16 and bf16 */
  const bppsa_named_view *masks;
  bppsa_scan_factory factory; /* zero: the local executor */
  /* In steps of training (bppsa_model_drop with samples): dropout leaves numbers out, by this seed; batch norms normalise by the
   * batch's statistics, which BP alone can differentiate, and update the running ones, by which they normalise otherwise. */
  bool dropping, batch_statistics;
  uint64_t dropout_seed;
} bppsa_cnn_config;

/* B 256, f32, backward by auto, weight gradients in order, no limit, no masks. */
bppsa_cnn_config bppsa_cnn_config_default(void);

/* Makes a model of the network (copied). Parameters are 0 until set or initialised. The device must outlive the model; destroy it
 * with bppsa_model_destroy. ERR_ARGUMENT: a size out of range, a mask of a weight that the network does not have, more bytes than
 * the limit (the message says how many), chunks; ERR_SHAPE: a mask's shape; ERR_UNSUPPORTED: a dtype, a chunked scan, a graph on a
 * GPU or with a factory, convolutions on a GPU without cuDNN or that cuDNN refuses, a second stream on a CPU, a batch norm or a
 * dropping dropout on a GPU, a scan of a batch norm by the batch's statistics; ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_cnn_create(const bppsa_cnn_network *network, const bppsa_cnn_config *config, const bppsa_device *device,
                              bppsa_model **model);
/* Counts the bytes of the model that bppsa_cnn_create would make, without the products that a scan holds, and allocates nothing
 * large. On a GPU also without cuDNN's workspaces. Errors as bppsa_cnn_create has them. */
bppsa_status bppsa_cnn_count(const bppsa_cnn_network *network, const bppsa_cnn_config *config, const bppsa_device *device,
                             int64_t *bytes);
/* Initialises weights and biases with PyTorch's defaults for conv2d and linear: U(-1/√k, 1/√k), k the number of inputs of an
 * output value; of a batch norm weight and variance 1, bias and mean 0. Deterministic in seed; the same numbers in f32 (rounded)
 * and f64. ERR_CUDA on a GPU. */
bppsa_status bppsa_cnn_init(bppsa_model *model, uint64_t seed);
/* The scan's plan (borrowed), or NULL where the model runs sequential BP. */
const bppsa_scan_plan *bppsa_cnn_plan(const bppsa_model *model);
/* A byte for each weight of layer i, 0 where its mask keeps the weight at 0 (borrowed); NULL: the layer has no mask. */
const uint8_t *bppsa_cnn_mask(const bppsa_model *model, int64_t i);
/* Writes w / σ of each channel [C] of layer i, a batch norm, by its running statistics, in host memory and of the model's dtype:
 * the values of its Jacobian. ERR_ARGUMENT: the layer is no batch norm. */
bppsa_status bppsa_cnn_scale(const bppsa_model *model, int64_t i, void *scale);
/* The output of layer i in the latest forward pass, [b][C][H][W], on the model's device (borrowed, until the next pass); i = -1:
 * the input. ERR_ARGUMENT: no such layer, or no pass yet. */
bppsa_status bppsa_cnn_activation(const bppsa_model *model, int64_t i, bppsa_view *activation);
/* Masks of a network's weights without a model. mask_bytes: makes a byte for each weight of the layer, 0 where the mask of its name
 * has a 0 (the caller frees it); NULL: none of the masks is the layer's. ERR_SHAPE; ERR_UNSUPPORTED: a mask that has no whole
 * numbers, reals or truth values; ERR_MEMORY. check_masks: ERR_ARGUMENT: a mask of no weight of the network. */
bppsa_status bppsa_cnn_mask_bytes(const bppsa_cnn_layer *layer, int64_t count, const bppsa_named_view *masks, uint8_t **bytes);
bppsa_status bppsa_cnn_check_masks(const bppsa_cnn_network *network, int64_t count, const bppsa_named_view *masks);
/* Finds the dtype of the network's weights among named tensors. ERR_FORMAT: one is missing; ERR_UNSUPPORTED: a dtype other than
 * f32 or f64, or different ones. `where` names the source. */
bppsa_status bppsa_cnn_infer(const char *where, const bppsa_cnn_network *network, int64_t count, const bppsa_named_view *tensors,
                             bppsa_dtype *dtype);

#ifdef __cplusplus
}
#endif
#endif
