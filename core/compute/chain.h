/* A network as a chain of layers whose passes are separate calls on arrays of the caller: what a pipeline needs, which cuts the
 * chain between layers, holds several micro-batches at once, and may give each pass another version of the weights.
 *
 *     y_l = f_l(y_{l-1}; θ_l)         l = 0 .. L - 1; y_{-1} is the input, y_{L-1} the logits
 *     g_{l-1} = J_lᵀ g_l              input gradient (I, the papers' δO)
 *     ∇θ_l from g_l and y_{l-1}       weight gradient (W, the papers' δW)
 *
 * All arrays are in the chain's dtype, with room for BPPSA_ALIGNMENT more bytes behind them, because kernels may read a cache line
 * beyond the end; and in the memory of the chain's device, on whose stream a pass may still be under way when its function
 * returns. The caller hands arrays from layer to layer as they are; the layers of a chain agree on the order of the numbers in
 * them. A chain has scratch memory: one thread at a time uses it.
 */
#ifndef BPPSA_CORE_COMPUTE_CHAIN_H
#define BPPSA_CORE_COMPUTE_CHAIN_H

#include "core/compute/device.h"
#include "core/compute/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  const char *name;        /* "conv1" */
  int64_t in, out;         /* values of one sample in front of the layer and behind it */
  int64_t kept;            /* bytes that the layer keeps of a sample's forward pass, besides its output */
  int64_t first_parameter; /* its parameters are first_parameter .. first_parameter + parameters - 1 of the chain */
  int64_t parameters;      /* 0: none */
  double flops;            /* of a sample's forward pass, roughly; each gradient takes as many. Cuts by cost use it */
} bppsa_chain_layer;

typedef struct bppsa_chain bppsa_chain; /* a network as a list of layers */

typedef struct {
  /* y [b][out] from x [b][in], and what the layer keeps, kept [b]. */
  bppsa_status (*forward)(bppsa_chain *chain, int64_t layer, int64_t samples, void *const *weights, const void *x, void *kept,
                          void *y);
  /* dx [b][in] from dy [b][out] and the arrays of the forward pass. */
  bppsa_status (*input_gradient)(bppsa_chain *chain, int64_t layer, int64_t samples, void *const *weights, const void *dy,
                                 const void *x, const void *y, const void *kept, void *dx);
  /* The gradients of the layer's parameters from dy [b][out] and the arrays of the forward pass. Called for layers with parameters
   * only. */
  bppsa_status (*weight_gradient)(bppsa_chain *chain, int64_t layer, int64_t samples, void *const *weights, const void *dy,
                                  const void *x, const void *y, const void *kept, void *const *gradients);
  /* For layers with parameters: both gradients in one call, with the same bits, where that is less work; dx may be NULL (not
   * wanted). A NULL entry means that it is not less work. */
  bppsa_status (*backward)(bppsa_chain *chain, int64_t layer, int64_t samples, void *const *weights, const void *dy,
                           const void *x, const void *y, const void *kept, void *const *gradients, void *dx);
  /* Makes a chain of the same layers, with its own scratch memory, on another stream of the same GPU. Passes
   * of a chain with this entry are only queued and take no memory, so that they may be recorded. NULL: a pass may wait for the
   * GPU. */
  bppsa_status (*twin)(const bppsa_chain *chain, const bppsa_device *device, bppsa_chain **twin);
  void (*destroy)(bppsa_chain *chain);
} bppsa_chain_ops;

/* weights, gradients: an array for each parameter of the layer, in their order. */
struct bppsa_chain {
  const bppsa_chain_ops *ops;
  bppsa_dtype dtype;              /* f32, f64 */
  const bppsa_device *device;     /* a GPU, borrowed; NULL: the host */
  int64_t batch;                  /* the most samples of a call */
  int64_t layers;                 /* L */
  const bppsa_chain_layer *layer; /* size layers */
  int64_t parameter_count;
  const bppsa_parameter *parameters; /* names and shapes; the views have no data */
};

static inline void bppsa_chain_destroy(bppsa_chain *chain) { /* NULL is legal */
  if (chain != NULL) {
    chain->ops->destroy(chain);
  }
}

#ifdef __cplusplus
}
#endif
#endif
