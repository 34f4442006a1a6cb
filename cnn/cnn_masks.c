/* Takes the masks of a configuration into a convolutional network: a byte for each weight. */
#include <string.h>

#include "cnn/cnn_internal.h"
#include "core/base/alloc.h"
#include "core/base/number.h"

static const bppsa_named_view *mask_named(const bppsa_cnn_config *c, const char *name) {
  for (int64_t i = 0; i < c->mask_count; ++i) {
    if (strcmp(c->masks[i].name, name) == 0) {
      return &c->masks[i];
    }
  }
  return NULL;
}

static bppsa_status take_mask(cnn_layer *layer, const bppsa_view *weight, const bppsa_named_view *mask) {
  char found[BPPSA_SHAPE_TEXT], expected[BPPSA_SHAPE_TEXT];
  if (!bppsa_view_same_shape(&mask->view, weight)) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "mask '%s': shape %s, expected %s", mask->name,
                      bppsa_shape_text(mask->view.ndim, mask->view.shape, found, sizeof found),
                      bppsa_shape_text(weight->ndim, weight->shape, expected, sizeof expected));
  }
  if (bppsa_dtype_size(mask->view.dtype) == 0 || !bppsa_view_contiguous(&mask->view)) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "mask '%s': dtype %s, expected a contiguous array of bool, integers or reals",
                      mask->name, bppsa_view_dtype_name(&mask->view));
  }
  const int64_t count = bppsa_view_count(weight);
  layer->mask = bppsa_alloc((size_t)count);
  if (layer->mask == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < count; ++i) {
    layer->mask[i] = bppsa_number_set(&mask->view, i);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_cnn_take_masks(cnn *n) {
  int64_t taken = 0;
  for (int64_t i = 0; i < n->network.count; ++i) {
    cnn_layer *layer = &n->layers[i];
    const bppsa_named_view *mask = !bppsa_cnn_has_weights(layer->about) ? NULL : mask_named(&n->config, n->names[layer->weight]);
    if (mask != NULL) {
      BPPSA_TRY(take_mask(layer, &n->base.parameters[layer->weight].value, mask));
      ++taken;
    }
  }
  for (int64_t m = 0; taken < n->config.mask_count && m < n->config.mask_count; ++m) {
    bool known = false;
    for (int64_t i = 0; !known && i < n->network.count; ++i) {
      known = bppsa_cnn_has_weights(n->layers[i].about) && strcmp(n->names[n->layers[i].weight], n->config.masks[m].name) == 0;
    }
    if (!known) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "mask '%s': no weight of the network, expected one such as '%s'",
                        n->config.masks[m].name, n->names[n->layers[n->elements].weight]);
    }
  }
  return BPPSA_OK;
}
