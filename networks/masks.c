#include "networks/masks.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/decimal.h"

enum { ENDING = sizeof ".weight" - 1 };

/* Does NAME.weight join inputs and outputs by name and extents? It belongs to no optimiser's state. */
static bool may_join(const bppsa_named_view *tensor) {
  static const char optimizer[] = "optimizer.";
  const size_t length = strlen(tensor->name);
  return tensor->view.ndim >= 2 && length > ENDING && strcmp(tensor->name + length - ENDING, ".weight") == 0 &&
         strncmp(tensor->name, optimizer, sizeof optimizer - 1) != 0;
}

/* Is there a NAME.bias of the weight's own shape? Then the weight scales number by number, as a layer norm's does. */
static bool scales(int64_t count, const bppsa_named_view *tensors, const bppsa_named_view *weight) {
  const size_t stem = strlen(weight->name) - ENDING;
  for (int64_t i = 0; i < count; ++i) {
    if (strncmp(tensors[i].name, weight->name, stem) == 0 && strcmp(tensors[i].name + stem, ".bias") == 0) {
      return bppsa_view_same_shape(&tensors[i].view, &weight->view);
    }
  }
  return false;
}

static bppsa_status take_weights(int64_t count, const bppsa_named_view *tensors, bppsa_masks *masks) {
  masks->weights = bppsa_calloc(count, sizeof *masks->weights);
  masks->masks = bppsa_calloc(count, sizeof *masks->masks);
  masks->layers = bppsa_calloc(count, sizeof *masks->layers);
  masks->bytes = bppsa_calloc(count, sizeof *masks->bytes);
  if (masks->weights == NULL || masks->masks == NULL || masks->layers == NULL || masks->bytes == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < count; ++i) {
    if (!may_join(&tensors[i]) || scales(count, tensors, &tensors[i])) {
      continue;
    }
    const bppsa_view *v = &tensors[i].view;
    uint8_t *bytes = bppsa_alloc((size_t)bppsa_view_count(v));
    if (bytes == NULL) {
      return BPPSA_ERR_MEMORY;
    }
    masks->bytes[masks->count] = bytes;
    masks->weights[masks->count] = tensors[i];
    masks->masks[masks->count++] = (bppsa_named_view){tensors[i].name, bppsa_view_make(bytes, BPPSA_BOOL, v->ndim, v->shape)};
  }
  return masks->count > 0 ? BPPSA_OK
                          : bppsa_fail(BPPSA_ERR_FORMAT, "no tensor NAME.weight with two extents or more, expected one to prune");
}

bppsa_status bppsa_masks_make(bppsa_prune_method method, bppsa_prune_structure structure, double fraction, int64_t count,
                              const bppsa_named_view *tensors, bppsa_masks *masks) {
  bppsa_masks made = {0};
  bppsa_status status = take_weights(count, tensors, &made);
  if (status == BPPSA_OK) {
    status = bppsa_prune_structured(method, structure, fraction, made.count, made.weights, made.bytes, made.layers);
  }
  if (status != BPPSA_OK) {
    bppsa_masks_free(&made);
    return status;
  }
  *masks = made;
  return BPPSA_OK;
}

void bppsa_masks_free(bppsa_masks *masks) {
  for (int64_t i = 0; i < masks->count; ++i) {
    bppsa_free(masks->bytes[i]);
  }
  bppsa_free(masks->bytes);
  bppsa_free(masks->weights);
  bppsa_free(masks->masks);
  bppsa_free(masks->layers);
  *masks = (bppsa_masks){0};
}

/* ---- numbers ---- */

static bppsa_prune_layer total_of(const bppsa_masks *masks) {
  bppsa_prune_layer total = {0};
  for (int64_t i = 0; i < masks->count; ++i) {
    total.weights += masks->layers[i].weights;
    total.kept += masks->layers[i].kept;
    total.rows += masks->layers[i].rows;
    total.empty += masks->layers[i].empty;
  }
  return total;
}

static bool put_layer(json_t *object, const bppsa_prune_layer *layer) {
  return bppsa_json_put_integer(object, "weights", layer->weights) && bppsa_json_put_integer(object, "kept", layer->kept) &&
         bppsa_json_put_integer(object, "channels", layer->rows) &&
         bppsa_json_put_integer(object, "empty_channels", layer->empty);
}

json_t *bppsa_masks_json(const bppsa_masks *masks) {
  json_t *layers = json_array();
  bool filled = layers != NULL;
  for (int64_t i = 0; filled && i < masks->count; ++i) {
    json_t *layer = json_object();
    bool ok = layer != NULL && bppsa_json_put_text(layer, "name", masks->weights[i].name);
    ok = ok && put_layer(layer, &masks->layers[i]) && bppsa_json_put_real(layer, "threshold", masks->layers[i].threshold);
    filled = json_array_append_new(layers, bppsa_json_finish(layer, ok)) == 0;
  }
  return bppsa_json_finish(layers, filled);
}

bool bppsa_masks_put_total(json_t *object, const bppsa_masks *masks) {
  const bppsa_prune_layer total = total_of(masks);
  return put_layer(object, &total);
}

static void add_line(const char *name, const bppsa_prune_layer *layer, const char *threshold, bppsa_text *text) {
  const double gone = layer->weights > 0 ? 100 - 100 * (double)layer->kept / (double)layer->weights : 0;
  bppsa_text_add(text, "%-28s %10" PRId64 " %10" PRId64 " %8.2f %%  %-11s %7" PRId64 " of %" PRId64 "\n", name, layer->weights,
                 layer->kept, gone, threshold, layer->empty, layer->rows);
}

void bppsa_masks_text(const bppsa_masks *masks, bppsa_text *text) {
  const bppsa_prune_layer total = total_of(masks);
  bppsa_text_add(text, "%-28s %10s %10s %10s  %-11s %s\n", "layer", "weights", "kept", "pruned", "threshold", "empty channels");
  for (int64_t i = 0; i < masks->count; ++i) {
    char threshold[32];
    bppsa_print(threshold, sizeof threshold, "%.4g", masks->layers[i].threshold);
    add_line(masks->weights[i].name, &masks->layers[i], threshold, text);
  }
  add_line("all", &total, "", text);
}
