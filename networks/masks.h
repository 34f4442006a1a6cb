/* Masks of a network's weights: they say which weights pruning keeps. */
#ifndef BPPSA_NETWORKS_MASKS_H
#define BPPSA_NETWORKS_MASKS_H

#include "cnn/prune.h"
#include "core/base/text.h"
#include "core/base/view.h"
#include "core/files/json.h"

typedef struct {
  int64_t count;
  bppsa_named_view *weights; /* borrowed tensors that are pruned, size count */
  bppsa_named_view *masks;   /* bool, under the weights' names */
  uint8_t **bytes;           /* the masks' data */
  bppsa_prune_layer *layers;
} bppsa_masks;

/* Prunes every tensor NAME.weight that has two extents or more, unless a tensor NAME.bias has its shape: such a weight scales, as a
 * layer norm's. ERR_FORMAT: there is no such tensor; ERR_* of
 * bppsa_prune_structured. */
bppsa_status bppsa_masks_make(bppsa_prune_method method, bppsa_prune_structure structure, double fraction, int64_t count,
                              const bppsa_named_view *tensors, bppsa_masks *masks);
void bppsa_masks_free(bppsa_masks *masks); /* a zeroed one is legal */

/* Makes a list with a row for every tensor: weights, kept, channels, empty_channels, threshold. NULL when out of memory. */
json_t *bppsa_masks_json(const bppsa_masks *masks);
/* Adds the sums of the rows as fields of a JSON object. */
bool bppsa_masks_put_total(json_t *object, const bppsa_masks *masks);
/* Writes the rows and their sums as a table for people. */
void bppsa_masks_text(const bppsa_masks *masks, bppsa_text *text);

#endif
