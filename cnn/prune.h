/* Pruning by magnitude (See et al. 2016; BPPSA §4.3): chooses the weights of a network that are kept.
 *
 *   class-blind         one threshold for all layers
 *   class-uniform       the same fraction of every layer
 *   class-distribution  a threshold λσ for each layer, σ the standard deviation of its weights, λ chosen to give the fraction
 *
 * Exactly round(fraction · weights) weights are pruned, of all layers together or of each layer; of equal ones the first.
 *
 * A structure prunes whole units of a layer's weights [Co][Ci][kh][kw] or [Co][Ci] by their root mean square; then fractions are of
 * units:
 *
 *   element    a weight, the default
 *   channel    an output channel: the weights [Ci][kh][kw]
 *   block:RxC  R output channels by C of the Ci · kh · kw weights of each; at the edges fewer
 *   N:M        no threshold: of every M adjacent input channels at one tap the N largest weights stay, as sparse tensor cores take
 *              them (2:4). Of a remainder of fewer than M channels at most N stay
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

typedef enum {
  BPPSA_STRUCTURE_ELEMENT = 0,
  BPPSA_STRUCTURE_CHANNEL,
  BPPSA_STRUCTURE_BLOCK,
  BPPSA_STRUCTURE_N_OF_M,
  BPPSA_STRUCTURES
} bppsa_structure_kind;

#define BPPSA_STRUCTURE_TEXT 48
typedef struct {
  bppsa_structure_kind kind;
  int64_t size[2]; /* block: R and C; N:M: N and M */
} bppsa_prune_structure;

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

/* The same by a structure; of N:M the fraction is 1 - N / M and counts for nothing. ERR_ARGUMENT too: an unknown structure, sizes
 * below 1, N above M. */
bppsa_status bppsa_prune_structured(bppsa_prune_method method, bppsa_prune_structure structure, double fraction, int64_t count,
                                    const bppsa_named_view *weights, uint8_t *const *masks, bppsa_prune_layer *layers);
/* Reads "element", "channel", "block:4x4" or "2:4". ERR_ARGUMENT: another text. */
bppsa_status bppsa_prune_structure_parse(const char *text, bppsa_prune_structure *structure);
/* The text that is read so. */
const char *bppsa_prune_structure_text(bppsa_prune_structure structure, char text[BPPSA_STRUCTURE_TEXT]);

#ifdef __cplusplus
}
#endif
#endif
