/* Masks of a network's weights: a byte for each weight. */
#include <string.h>

#include "cnn/cnn_internal.h"
#include "core/base/alloc.h"
#include "core/base/number.h"

/* Writes the name of the layer's weight, and describes the weight. */
static bppsa_view weight_of(const bppsa_cnn_layer *layer, char name[BPPSA_CNN_PARAMETER]) {
  return bppsa_cnn_parameter(layer, 0, BPPSA_F32, name).value;
}

bppsa_status bppsa_cnn_mask_bytes(const bppsa_cnn_layer *layer, int64_t count, const bppsa_named_view *masks, uint8_t **bytes) {
  BPPSA_REQUIRE(layer != NULL && (masks != NULL || count == 0) && bytes != NULL);
  char name[BPPSA_CNN_PARAMETER], found[BPPSA_SHAPE_TEXT], expected[BPPSA_SHAPE_TEXT];
  const bppsa_view weight = bppsa_cnn_has_weights(layer) ? weight_of(layer, name) : (bppsa_view){.ndim = 0};
  int64_t m = 0;
  while (m < count && (!bppsa_cnn_has_weights(layer) || strcmp(masks[m].name, name) != 0)) {
    ++m;
  }
  if (m == count) {
    *bytes = NULL;
    return BPPSA_OK;
  }
  const bppsa_view *mask = &masks[m].view;
  if (!bppsa_view_same_shape(mask, &weight)) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "mask '%s': shape %s, expected %s", name,
                      bppsa_shape_text(mask->ndim, mask->shape, found, sizeof found),
                      bppsa_shape_text(weight.ndim, weight.shape, expected, sizeof expected));
  }
  if (bppsa_dtype_size(mask->dtype) == 0 || !bppsa_view_contiguous(mask)) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "mask '%s': dtype %s, expected a contiguous array of bool, integers or reals", name,
                      bppsa_view_dtype_name(mask));
  }
  const int64_t weights = bppsa_view_count(&weight);
  uint8_t *made = bppsa_alloc((size_t)weights);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < weights; ++i) {
    made[i] = bppsa_number_set(mask, i);
  }
  *bytes = made;
  return BPPSA_OK;
}

bppsa_status bppsa_cnn_check_masks(const bppsa_cnn_network *network, int64_t count, const bppsa_named_view *masks) {
  BPPSA_REQUIRE(network != NULL && network->layers != NULL && (masks != NULL || count == 0));
  char name[BPPSA_CNN_PARAMETER];
  for (int64_t m = 0; m < count; ++m) {
    bool known = false;
    for (int64_t i = 0; !known && i < network->count; ++i) {
      if (bppsa_cnn_has_weights(&network->layers[i])) {
        weight_of(&network->layers[i], name);
        known = strcmp(name, masks[m].name) == 0;
      }
    }
    if (!known) { /* the last name is the head's */
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "mask '%s': no weight of the network, expected one such as '%s'", masks[m].name,
                        name);
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_cnn_take_masks(cnn *n) {
  for (int64_t i = 0; i < n->network.count; ++i) {
    BPPSA_TRY(bppsa_cnn_mask_bytes(n->layers[i].about, n->config.mask_count, n->config.masks, &n->layers[i].mask));
  }
  return bppsa_cnn_check_masks(&n->network, n->config.mask_count, n->config.masks);
}
