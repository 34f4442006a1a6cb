/* Pruning by magnitude (See et al. 2016; BPPSA §4.3): chooses the weights of a network that are kept.
 *
 *   class-blind         one threshold for all layers
 *   class-uniform       the same fraction of every layer
 *   class-distribution  a threshold λσ for each layer, σ the standard deviation of its weights, λ chosen to give the fraction
 *
 * Exactly round(fraction · weights) weights are pruned, of all layers together or of each layer; of equal ones the first.
 */
#ifndef BPPSA_CNN_PRUNE_H
#define BPPSA_CNN_PRUNE_H

#include "core/base/view.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  BPPSA_PRUNE_CLASS_BLIND = 0,
  BPPSA_PRUNE_CLASS_UNIFORM,
  BPPSA_PRUNE_CLASS_DISTRIBUTION,
  BPPSA_PRUNE_METHODS
} bppsa_prune_method; /* which weights go */

typedef struct {
  int64_t weights, kept;
  int64_t rows, empty; /* output channels, and those of them that keep no weight */
  double threshold;    /* the largest magnitude that was pruned; 0 if none was */
} bppsa_prune_layer;

const char *bppsa_prune_method_name(bppsa_prune_method method); /* "class-blind" */

/* masks[i], size of weights[i]: 1 where a weight is kept, else 0. weights: contiguous f32 or f64 in host memory, [rows, ..].
 * layers [count] may be NULL. ERR_ARGUMENT: a fraction outside [0, 1], an unknown method, a weight that is not finite (the
 * message gives tensor and element); ERR_UNSUPPORTED: a dtype; ERR_MEMORY. Masks are written only on success. */
bppsa_status bppsa_prune(bppsa_prune_method method, double fraction, int64_t count, const bppsa_named_view *weights,
                         uint8_t *const *masks, bppsa_prune_layer *layers);

#ifdef __cplusplus
}
#endif
#endif
