/* Layers that are no operators: their shapes, and the two layers that a normalisation becomes. */
#include <stdio.h>
#include <string.h>

#include "cnn/groups.h"
#include "cnn/network_internal.h"
#include "core/base/alloc.h"

/* ---- inputs ---- */

static const char *name_of(const bppsa_cnn_network *network, int64_t layer) {
  return layer < 0 ? "input" : network->layers[layer].name;
}

static const int64_t *shape_of(const bppsa_cnn_network *network, int64_t layer) {
  return layer < 0 ? network->in : network->layers[layer].out;
}

/* Do two extents along an axis fit? Those of mul may be repeated. */
static bool fits(const bppsa_cnn_layer *layer, int axis, int64_t one, int64_t other) {
  return one == other || (axis == 0 && layer->node == BPPSA_CNN_CONCAT) ||
         (layer->node == BPPSA_CNN_MUL && (one == 1 || other == 1));
}

static bppsa_status fail_inputs(const bppsa_cnn_network *network, const bppsa_cnn_layer *layer, int64_t one, int64_t other) {
  char shapes[2][BPPSA_SHAPE_TEXT];
  return bppsa_fail(BPPSA_ERR_SHAPE, "%s: inputs '%s' of %s and '%s' of %s, expected %s", bppsa_cnn_layer_word(layer),
                    name_of(network, one), bppsa_shape_text(3, shape_of(network, one), shapes[0], sizeof shapes[0]),
                    name_of(network, other), bppsa_shape_text(3, shape_of(network, other), shapes[1], sizeof shapes[1]),
                    layer->node == BPPSA_CNN_CONCAT ? "images of equal height and width"
                    : layer->node == BPPSA_CNN_MUL  ? "equal extents, or 1"
                                                    : "equal shapes");
}

/* Do the inputs of layer i agree? Each is compared with all before it, since extents of 1 fit to any. */
static bppsa_status check_inputs(const bppsa_cnn_network *network, int64_t i, const bppsa_cnn_layer *layer) {
  for (int64_t k = 1; k < bppsa_cnn_input_count(network, i); ++k) {
    const int64_t input = bppsa_cnn_input_of(network, i, k), *shape = shape_of(network, input);
    for (int64_t before = 0; before < k; ++before) {
      const int64_t other = bppsa_cnn_input_of(network, i, before), *expected = shape_of(network, other);
      for (int axis = 0; axis < 3; ++axis) {
        BPPSA_TRY(fits(layer, axis, shape[axis], expected[axis]) ? BPPSA_OK : fail_inputs(network, layer, other, input));
      }
      if (layer->node != BPPSA_CNN_CONCAT && other == input) {
        return bppsa_fail(BPPSA_ERR_FORMAT, "%s: input '%s' twice, expected different ones", bppsa_cnn_layer_word(layer),
                          name_of(network, input));
      }
    }
  }
  return BPPSA_OK;
}

/* ---- shapes ---- */

static bppsa_status slice_shape(bppsa_cnn_layer *layer) {
  layer->out[0] = layer->op.out_channels;
  if (layer->first < 0 || layer->out[0] < 1 || layer->first > layer->op.in[0] || layer->out[0] > layer->op.in[0] - layer->first) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "slice: %lld channels from channel %lld on, expected some of the input's %lld",
                      (long long)layer->out[0], (long long)layer->first, (long long)layer->op.in[0]);
  }
  return BPPSA_OK;
}

static int64_t count_of(const int64_t shape[3]) {
  return shape[0] * shape[1] * shape[2]; /* of a tensor of the network: at most 2^31 - 1 */
}

static bppsa_status reshape_shape(bppsa_cnn_layer *layer) {
  const int64_t values = count_of(layer->op.in);
  int64_t left = values;
  for (int axis = 0; axis < 3 && left > 0; ++axis) {
    left = layer->shape[axis] >= 1 && left % layer->shape[axis] == 0 ? left / layer->shape[axis] : 0;
  }
  if (left != 1) {
    char shapes[2][BPPSA_SHAPE_TEXT];
    return bppsa_fail(BPPSA_ERR_SHAPE, "reshape: %s from an input of %s, expected a shape of %lld values",
                      bppsa_shape_text(3, layer->shape, shapes[0], sizeof shapes[0]),
                      bppsa_shape_text(3, layer->op.in, shapes[1], sizeof shapes[1]), (long long)values);
  }
  memcpy(layer->out, layer->shape, sizeof layer->out);
  return BPPSA_OK;
}

static bppsa_status permute_shape(bppsa_cnn_layer *layer) {
  const int64_t *order = layer->order;
  unsigned seen = 0;
  for (int axis = 0; axis < 3; ++axis) {
    seen |= order[axis] >= 0 && order[axis] < 3 ? 1u << order[axis] : 0;
  }
  if (seen != 7) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "permute: order [%lld, %lld, %lld], expected 0, 1 and 2 in some order",
                      (long long)order[0], (long long)order[1], (long long)order[2]);
  }
  for (int axis = 0; axis < 3; ++axis) {
    layer->out[axis] = layer->op.in[order[axis]];
  }
  return BPPSA_OK;
}

/* The output of sums: two numbers for each group. */
static bppsa_status sums_shape(bppsa_cnn_layer *layer) {
  BPPSA_TRY(bppsa_cnn_groups_check(layer));
  const bppsa_cnn_groups g = bppsa_cnn_groups_of(layer);
  layer->out[0] = BPPSA_CNN_GROUP_SUMS;
  layer->out[1] = g.count;
  layer->out[2] = 1;
  return BPPSA_OK;
}

static void repeat_shape(const bppsa_cnn_network *network, int64_t i, bppsa_cnn_layer *layer) {
  for (int64_t k = 0; k < bppsa_cnn_input_count(network, i); ++k) {
    const int64_t *shape = shape_of(network, bppsa_cnn_input_of(network, i, k));
    for (int axis = 0; axis < 3; ++axis) {
      layer->out[axis] = shape[axis] > layer->out[axis] ? shape[axis] : layer->out[axis];
    }
  }
}

/* Sets the shape of the output, which is that of the first input unless the layer changes it. */
static bppsa_status set_shape(const bppsa_cnn_network *network, int64_t i, bppsa_cnn_layer *layer) {
  memcpy(layer->out, layer->op.in, sizeof layer->out);
  switch (layer->node) {
  case BPPSA_CNN_CONCAT:
    layer->out[0] = 0;
    for (int64_t k = 0; k < bppsa_cnn_input_count(network, i); ++k) { /* at most 2^31 inputs of 2^31 channels */
      layer->out[0] += shape_of(network, bppsa_cnn_input_of(network, i, k))[0];
    }
    return BPPSA_OK;
  case BPPSA_CNN_MUL:
    repeat_shape(network, i, layer);
    return BPPSA_OK;
  case BPPSA_CNN_SLICE:
    return slice_shape(layer);
  case BPPSA_CNN_RESHAPE:
    return reshape_shape(layer);
  case BPPSA_CNN_PERMUTE:
    return permute_shape(layer);
  case BPPSA_CNN_SUMS:
    return sums_shape(layer);
  case BPPSA_CNN_GROUPNORM:
    layer->extents = 1;
    layer->shape[0] = layer->op.in[0];
    return BPPSA_OK;
  default:
    return BPPSA_OK;
  }
}

bppsa_status bppsa_cnn_node_shape(const bppsa_cnn_network *network, int64_t i, bppsa_cnn_layer *layer) {
  const bool joins = layer->node == BPPSA_CNN_ADD || layer->node == BPPSA_CNN_MUL || layer->node == BPPSA_CNN_CONCAT;
  BPPSA_TRY(joins ? check_inputs(network, i, layer) : BPPSA_OK);
  BPPSA_TRY(set_shape(network, i, layer));
  bppsa_op whole = bppsa_op_default(BPPSA_OPERATOR_RELU); /* checks the number of values */
  int64_t shape[3];
  memcpy(whole.in, layer->out, sizeof whole.in);
  return bppsa_op_shape(&whole, shape) == BPPSA_OK
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_SHAPE, "%s: more than 2147483647 values", bppsa_cnn_layer_word(layer));
}

/* ---- normalisations ---- */

static bool is_normalisation(const bppsa_cnn_layer *layer) {
  return layer->node >= BPPSA_CNN_SOFTMAX && layer->node < BPPSA_CNN_NODES;
}

/* Names the sums of a normalisation. */
static bppsa_status name_sums(int64_t count, const bppsa_cnn_entry *entries, const bppsa_cnn_layer *layer,
                              char name[BPPSA_CNN_NAME]) {
  static const char ending[] = ".sums";
  const size_t length = strlen(layer->name), most = BPPSA_CNN_NAME - sizeof ending;
  if (length > most) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: a name of %d letters, expected at most %d, because its sums are called NAME%s",
                      bppsa_cnn_layer_word(layer), (int)length, (int)most, ending);
  }
  memcpy(name, layer->name, length);
  memcpy(name + length, ending, sizeof ending);
  for (int64_t i = 0; i < count; ++i) {
    if (strcmp(entries[i].layer.name, name) == 0) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: another layer is called '%s', expected this name to be left to its sums",
                        bppsa_cnn_layer_word(layer), name);
    }
  }
  return BPPSA_OK;
}

/* Copies an entry; its inputs are the places of layers in the file, which go to places[..]. behind: -1, or one more input. */
static bppsa_status copy_entry(const bppsa_cnn_entry *from, const int32_t *places, int32_t behind, bppsa_cnn_entry *to) {
  *to = (bppsa_cnn_entry){.layer = from->layer, .input_count = from->input_count + (behind >= 0 ? 1 : 0)};
  to->inputs = bppsa_calloc(to->input_count, sizeof *to->inputs);
  if (to->inputs == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t k = 0; k < from->input_count; ++k) {
    to->inputs[k] = from->inputs[k] < 0 ? -1 : places[from->inputs[k]];
  }
  if (behind >= 0) {
    to->inputs[from->input_count] = behind;
  }
  return BPPSA_OK;
}

static bppsa_status expand(const char *where, int64_t count, const bppsa_cnn_entry *entries, const int32_t *places,
                           bppsa_cnn_entry *made) {
  for (int64_t i = 0; i < count; ++i) {
    const bppsa_cnn_entry *entry = &entries[i];
    const int32_t at = places[i];
    if (!is_normalisation(&entry->layer)) {
      BPPSA_TRY(copy_entry(entry, places, -1, &made[at]));
      continue;
    }
    bppsa_cnn_layer *sums = &made[at - 1].layer;
    BPPSA_TRY(copy_entry(entry, places, -1, &made[at - 1]));
    const bppsa_status status = name_sums(count, entries, &entry->layer, sums->name);
    BPPSA_TRY(status == BPPSA_OK ? status : bppsa_fail_prefix(status, "%s: layer '%s'", where, entry->layer.name));
    memcpy(sums->prefix, sums->name, sizeof sums->prefix);
    sums->of = sums->node;
    sums->node = BPPSA_CNN_SUMS;
    BPPSA_TRY(copy_entry(entry, places, at - 1, &made[at]));
  }
  return BPPSA_OK;
}

bppsa_status bppsa_cnn_entries_expand(const char *where, int64_t count, const bppsa_cnn_entry *entries, int64_t *total,
                                      bppsa_cnn_entry **made) {
  int32_t *places = bppsa_calloc(count, sizeof *places); /* where each entry goes */
  int64_t all = 0;
  if (places == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < count; ++i) {
    all += is_normalisation(&entries[i].layer) ? 2 : 1;
    places[i] = (int32_t)all - 1;
  }
  bppsa_status status = BPPSA_OK;
  bppsa_cnn_entry *expanded = NULL;
  if (all > BPPSA_CNN_MOST_LAYERS) {
    status = bppsa_fail(BPPSA_ERR_FORMAT, "%s: %lld layers with the sums of its normalisations, expected at most %d", where,
                        (long long)all, BPPSA_CNN_MOST_LAYERS);
  } else if (all > count) {
    expanded = bppsa_calloc(all, sizeof *expanded);
    status = expanded == NULL ? BPPSA_ERR_MEMORY : expand(where, count, entries, places, expanded);
  }
  bppsa_free(places);
  if (status != BPPSA_OK) {
    bppsa_cnn_entries_free(all, expanded);
    return status;
  }
  *total = all;
  *made = expanded;
  return BPPSA_OK;
}

void bppsa_cnn_entries_free(int64_t count, bppsa_cnn_entry *entries) {
  for (int64_t i = 0; entries != NULL && i < count; ++i) {
    bppsa_free(entries[i].inputs);
  }
  bppsa_free(entries);
}
