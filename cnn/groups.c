#include "cnn/groups.h"

#include <float.h>
#include <string.h>

static bppsa_cnn_node kind_of(const bppsa_cnn_layer *layer) {
  return layer->node == BPPSA_CNN_SUMS ? layer->of : layer->node;
}

bppsa_cnn_groups bppsa_cnn_groups_of(const bppsa_cnn_layer *layer) {
  const int64_t *in = layer->op.in, values = in[0] * in[1] * in[2];
  bppsa_cnn_groups g = {.size = 1, .inner = 1};
  switch (kind_of(layer)) {
  case BPPSA_CNN_SOFTMAX:
    g.size = in[layer->axis];
    for (int64_t axis = layer->axis + 1; axis < 3; ++axis) {
      g.inner *= in[axis];
    }
    break;
  case BPPSA_CNN_LAYERNORM:
    for (int64_t k = 0; k < layer->extents; ++k) {
      g.size *= layer->shape[k];
    }
    break;
  default: /* group norm */
    g.size = values / layer->op.groups;
  }
  g.count = values / g.size;
  return g;
}

/* Does the layer's shape end the input's shape? Extents of 1 do not count on either side. */
static bool is_ending(const bppsa_cnn_layer *layer) {
  int64_t k = layer->extents - 1;
  for (int axis = 2; axis >= 0; --axis) {
    while (k >= 0 && layer->shape[k] == 1) {
      --k;
    }
    if (layer->op.in[axis] == 1) {
      continue;
    }
    if (k < 0) {
      return true; /* the axes before these are not normalised over */
    }
    if (layer->shape[k--] != layer->op.in[axis]) {
      return false;
    }
  }
  while (k >= 0 && layer->shape[k] == 1) {
    --k;
  }
  return k < 0;
}

bppsa_status bppsa_cnn_groups_check(const bppsa_cnn_layer *layer) {
  const bppsa_cnn_node kind = kind_of(layer);
  const bppsa_op *op = &layer->op;
  if (kind == BPPSA_CNN_SOFTMAX) {
    return layer->axis >= 0 && layer->axis < 3
               ? BPPSA_OK
               : bppsa_fail(BPPSA_ERR_ARGUMENT, "softmax: axis %lld, expected 0, 1 or 2", (long long)layer->axis);
  }
  if (!(op->epsilon >= 0 && op->epsilon <= DBL_MAX)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: eps %g, expected a finite number of 0 or more",
                      kind == BPPSA_CNN_LAYERNORM ? "layernorm" : "groupnorm", op->epsilon);
  }
  if (kind == BPPSA_CNN_GROUPNORM) {
    return op->groups >= 1 && op->in[0] % op->groups == 0
               ? BPPSA_OK
               : bppsa_fail(BPPSA_ERR_ARGUMENT, "groupnorm: %lld groups of %lld channels, expected a divisor",
                            (long long)op->groups, (long long)op->in[0]);
  }
  if (!is_ending(layer)) {
    char shapes[2][BPPSA_SHAPE_TEXT];
    return bppsa_fail(BPPSA_ERR_SHAPE, "layernorm: shape %s of an input %s, expected the extents of its last axes",
                      bppsa_shape_text((int32_t)layer->extents, layer->shape, shapes[0], sizeof shapes[0]),
                      bppsa_shape_text(3, op->in, shapes[1], sizeof shapes[1]));
  }
  return BPPSA_OK;
}
