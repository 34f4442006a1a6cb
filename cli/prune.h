/* Masks of a network's weights, for `prune` and `flops`. */
#ifndef BPPSA_CLI_PRUNE_H
#define BPPSA_CLI_PRUNE_H

#include "cli/setup.h"
#include "cnn/prune.h"

typedef struct {
  int64_t count;
  bppsa_named_view *weights; /* borrowed tensors that are pruned, size count */
  bppsa_named_view *masks;   /* bool, under the weights' names */
  uint8_t **bytes;           /* the masks' data */
  bppsa_prune_layer *layers;
} bppsa_masks;

/* Prunes every tensor NAME.weight of two extents or more. ERR_FORMAT: there is none; as bppsa_prune. */
bppsa_status bppsa_masks_make(bppsa_prune_method method, double fraction, int64_t count, const bppsa_named_view *tensors,
                              bppsa_masks *masks);
void bppsa_masks_free(bppsa_masks *masks); /* a zeroed one is legal */

#endif
