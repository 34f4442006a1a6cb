/* cuDNN's recurrent layers, the baseline of benchmarks on a GPU: RNN (tanh, relu) and GRU, the layers without a head, of
 * equal-length sequences.
 *
 * cuDNN's equations are PyTorch's, and so are the layouts of its weights, gate by gate: r, z (cuDNN's i), n, two biases, reset
 * after the product. It has several algorithms and says on request which shapes each accepts. The library is loaded when it is
 * first needed, so that a program built with it also runs without.
 */
#ifndef BPPSA_BENCH_RIVALS_RNN_CUDNN_H
#define BPPSA_BENCH_RIVALS_RNN_CUDNN_H

#include "recurrent/recurrent.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Every algorithm with two descriptions of x and y: padded, in which sequences may be shorter than T, and packed. Sequences of
 * equal length lie alike in memory by both; cuDNN's kernels need not be the same. */
typedef enum {
  BPPSA_CUDNN_STANDARD = 0,
  BPPSA_CUDNN_PERSIST_STATIC,
  BPPSA_CUDNN_PERSIST_DYNAMIC,
  BPPSA_CUDNN_PERSIST_STATIC_SMALL_H,
  /* With cuDNN's default mathematics, which may round f32 operands to TF32. */
  BPPSA_CUDNN_STANDARD_TF32,
  BPPSA_CUDNN_PERSIST_STATIC_SMALL_H_TF32,
  /* With inputs, weights, states and gradients in bf16, and sums in f32; beside models in f32. */
  BPPSA_CUDNN_STANDARD_BF16,
  BPPSA_CUDNN_PERSIST_STATIC_BF16,
  BPPSA_CUDNN_PERSIST_DYNAMIC_BF16,
  BPPSA_CUDNN_PERSIST_STATIC_SMALL_H_BF16,
  BPPSA_CUDNN_PACKED, /* + one of the above; these are padded */
  BPPSA_CUDNN_ALGORITHMS = 2 * BPPSA_CUDNN_PACKED
} bppsa_cudnn_algorithm;

/* "persist_static", "persist_static_packed" */
const char *bppsa_cudnn_algorithm_name(bppsa_cudnn_algorithm algorithm);
/* Neither in TF32 nor in bf16? */
bool bppsa_cudnn_exact(bppsa_cudnn_algorithm algorithm);
bool bppsa_cudnn_bf16(bppsa_cudnn_algorithm algorithm);
/* How large an algorithm's rounding errors are, in rounding errors of the dtype: 1 of the standard algorithm; 8192 of TF32, which
 * keeps 10 bits of a number; 65536 of bf16, which keeps 7; 32 of the persistent algorithms in f32, whose tanh is off
 * by some 2^-18 (cuDNN 9.19 on an H200: states
 * and gradients up to 60 times as far from float64's as the standard algorithm's). */
double bppsa_cudnn_rounding(bppsa_cudnn_algorithm algorithm, bppsa_dtype dtype);

typedef struct bppsa_cudnn_network bppsa_cudnn_network;

/* Makes layers of the cell with the configuration's sizes, dtype and nonlinearity, and allocates all memory. The cell and the
 * device must outlive the network. ERR_UNSUPPORTED: cuDNN does not have the cell, cuDNN is missing, the device is no GPU, or
 * cuDNN refuses the algorithm for this shape (the message quotes it). ERR_ARGUMENT, ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_cudnn_create(const bppsa_recurrent_config *config, const bppsa_cell *cell, bppsa_cudnn_algorithm algorithm,
                                const bppsa_device *device, bppsa_cudnn_network **network);
void bppsa_cudnn_destroy(bppsa_cudnn_network *network); /* NULL is legal */

/* set copies the values of a model's parameters, found by PyTorch's names (PREFIX.weight_ih_lK and so on, without the head's);
 * pull copies the gradients to the model. The model is in host memory and of the configuration's dtype; a network in bf16 rounds.
 * Both wait. ERR_SHAPE: a parameter is missing or has another size. ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_cudnn_set(bppsa_cudnn_network *network, const char *prefix, const bppsa_model *model);
bppsa_status bppsa_cudnn_pull(const bppsa_cudnn_network *network, const char *prefix, const bppsa_model *model);

/* A network in bf16 has inputs of its own, and its passes take nothing but the shapes of their views: rounds x and the seed, in
 * host memory and of the configuration's dtype, and copies them there; NULL: zeros. Other networks do nothing. Waits. ERR_MEMORY,
 * ERR_CUDA. */
bppsa_status bppsa_cudnn_take(bppsa_cudnn_network *network, const void *x, const void *seed);

/* Like bppsa_recurrent_forward_layers and _backward_layers of a GPU's model, for the whole batch and zero initial states; queued
 * on the device's stream. x is [T,B,I]; the seed is [B,H], or [T,B,H] with loss_all. Both borrow their views until the work is
 * done; the backward pass also borrows the x of the forward pass. cuDNN also computes the gradient of x. ERR_SHAPE; ERR_ARGUMENT:
 * backward without forward; ERR_UNSUPPORTED, ERR_CUDA: cuDNN's errors. */
bppsa_status bppsa_cudnn_forward(bppsa_cudnn_network *network, const bppsa_view *x);
bppsa_status bppsa_cudnn_backward(bppsa_cudnn_network *network, const bppsa_view *seed);

/* The launches that a pass queues at least: the standard algorithm multiplies by W_hh and applies the cell at every step, layer by
 * layer, 2·T·L launches; a persistent one runs all steps of a layer in one. */
int64_t bppsa_cudnn_launches(const bppsa_cudnn_network *network);

/* Copy the top layer's last states [B,H] of the latest forward pass, and the gradient of x [T,B,I] of the latest backward pass, to
 * host memory, in the configuration's dtype. Both wait. ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_cudnn_last_states(const bppsa_cudnn_network *network, void *states);
bppsa_status bppsa_cudnn_input_gradient(const bppsa_cudnn_network *network, void *dx);

#ifdef __cplusplus
}
#endif
#endif
