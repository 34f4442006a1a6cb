/* The cost model of a convolutional network's backward pass.
 *
 *     BP    = Σ_t  launch + B · FLOPs_t · gemm              for convolutions and linear operators
 *             Σ_t  launch + B · values_t · element          for the others
 *     scan  = Σ_t  2 launch + B · (entries_t · (near or far) + filled_t · fill)
 *
 * FLOPs_t is 2 for each entry of J_tᵀ with all weights, because BP also multiplies weights that a mask sets to 0. entries_t
 * counts the entries that the mask keeps; an entry costs `near` if such a matrix stays in the second-level cache, `far` if it is
 * read from memory for every sample. filled_t: values of ReLUs and pools differ from sample to sample and are filled in, one for
 * each entry; samples share the values of convolutions and linear operators.
 *
 * On a CPU the model is for one thread, as in scan/cost.c. Products of Jacobians come on top of the mat-vecs, so no scan is faster
 * than the linear one (in `bppsa bench lenet5|vgg11 --threads 1` every other takes 1.3 to 50 times as long). On a GPU levels may
 * save time; only measurement can tell (--plan measure).
 */
#include "cnn/choose.h"

#include "cnn/cnn_internal.h"

typedef struct {
  double launch;  /* seconds of a layer's kernel, whatever its size */
  double gemm;    /* seconds of a FLOP of a convolution or a linear operator */
  double element; /* seconds of a value of the other operators */
  double near, far, fill;
  double cache; /* bytes of a matrix that counts as near */
} rates;

static const rates table[] = {
    /* Fitted to the backward passes by BP and by the linear scan on one thread of a Xeon with AVX-512 (2 MiB of second-level
     * cache): LeNet-5 at B 64 with 0, 90 and 97 % of its weights pruned, VGG-11 at B 8 and 16 with 0, 97 and 99 %.
     * docs/methods.md shows model and measurement. */
    [BPPSA_CPU] =
        {.launch = 0, .gemm = 2.3e-11, .element = 1e-9, .near = 5.1e-10, .far = 1.1e-9, .fill = 1.8e-9, .cache = 0x1p21},
    /* Calculated, not measured: launches of 4 µs, a third of 60 TFLOP/s in plain f32, 4.3 TB/s (H200). */
    [BPPSA_CUDA] = {.launch = 4e-6, .gemm = 5e-14, .element = 3e-12, .near = 2e-12, .far = 2e-12, .fill = 2e-12, .cache = 0},
};

bppsa_status bppsa_cnn_count_entries(const bppsa_cnn_layer *layer, const uint8_t *mask, int64_t *all, int64_t *kept) {
  bppsa_op_size size;
  BPPSA_TRY(bppsa_op_count(&layer->op, &size));
  *kept = *all = size.entries;
  if (mask != NULL) {
    int64_t weights = 0;
    for (int64_t i = 0; i < bppsa_op_weights(&layer->op); ++i) {
      weights += mask[i] != 0;
    }
    weights *= layer->out[1] * layer->out[2];
    *kept = weights < *kept ? weights : *kept;
  }
  return BPPSA_OK;
}

bppsa_status bppsa_cnn_predict(const bppsa_cnn_network *network, const uint8_t *const *masks, const bppsa_cnn_config *config,
                               const bppsa_device *device, bppsa_cnn_seconds *seconds) {
  const rates *r = &table[bppsa_device_get_kind(device)];
  const double batch = (double)config->batch, size = (double)bppsa_dtype_size(config->dtype), wide = size / 4;
  bppsa_cnn_seconds sum = {0};
  for (int64_t t = config->input_gradients ? 1 : 2; t < network->count; ++t) {
    const bppsa_cnn_layer *layer = &network->layers[t - 1];
    int64_t all, kept;
    if (bppsa_op_is_identity(&layer->op)) { /* and the joins and slices of a graph: what they add is left out */
      continue;
    }
    BPPSA_TRY(bppsa_cnn_count_entries(layer, masks != NULL ? masks[t - 1] : NULL, &all, &kept));
    const bool weights = bppsa_cnn_has_weights(layer);
    const double values = (double)bppsa_cnn_size(network, t - 1),
                 entry = (double)kept * (size + 4) <= r->cache ? r->near : r->far;
    sum.bp += r->launch + batch * wide * (weights ? 2 * (double)all * r->gemm : values * r->element);
    sum.scan += 2 * r->launch + batch * wide * (double)kept * (entry + (weights ? 0 : r->fill));
  }
  *seconds = sum;
  return BPPSA_OK;
}

bppsa_gradient_method bppsa_cnn_choose(const bppsa_cnn_seconds *seconds) {
  return (bppsa_gradient_method){.backward = seconds->scan < seconds->bp ? BPPSA_BACKWARD_SCAN : BPPSA_BACKWARD_BP,
                                 .scan = bppsa_scan_method_of(BPPSA_SCAN_LINEAR)};
}
