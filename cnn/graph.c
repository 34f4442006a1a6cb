/* Passes over a network that is a graph. */
#include "cnn/cnn_internal.h"

#include <string.h>

#include "cnn/move.h"
#include "cnn/normalise.h"

/* A tensor's values or its gradient, from `offset` on. */
static bppsa_cnn_part_view part_view(const cnn *n, const void *data, int64_t stride, int64_t offset) {
  return (bppsa_cnn_part_view){(char *)(uintptr_t)data + offset * (int64_t)bppsa_dtype_size(n->config.dtype), stride};
}

static void move(const cnn *n, bppsa_move_how how, int64_t count, bppsa_cnn_part_view from, bppsa_cnn_part_view to) {
  bppsa_cnn_move(how, n->config.dtype, n->threads, n->batch, count, from, to);
}

static const void *tensor_of(const cnn *n, int64_t tensor) {
  return bppsa_cnn_output(n, tensor - 1);
}

static const int64_t *shape_of(const cnn *n, int64_t tensor) {
  return tensor == 0 ? n->network.in : n->network.layers[tensor - 1].out;
}

/* How far apart adjacent values of an image lie along each axis. */
static void strides_of(const int64_t shape[3], int64_t strides[3]) {
  bppsa_cnn_strides(shape, shape, strides);
}

/* ---- forward ---- */

/* One half of a normalisation. */
static bppsa_normalise_call call_of(const cnn *n, int64_t i) {
  const cnn_layer *layer = &n->layers[i];
  const bppsa_cnn_node node = layer->about->node;
  const bool affine = bppsa_cnn_is_affine(layer->about);
  return (bppsa_normalise_call){.layer = layer->about,
                                .dtype = n->config.dtype,
                                .threads = n->threads,
                                .batch = n->batch,
                                .x = bppsa_cnn_input(n, i),
                                .sums = node == BPPSA_CNN_SUMS ? layer->y
                                                               : bppsa_cnn_output(n, bppsa_cnn_input_of(&n->network, i, 1)),
                                .weight = affine ? bppsa_cnn_weight(n, layer, false) : NULL,
                                .bias = affine ? bppsa_cnn_bias(n, layer, false) : NULL};
}

static bool normalises(const cnn_layer *layer) {
  return layer->about->node >= BPPSA_CNN_SUMS;
}

/* Goes through the positions of a mul's output: sets or multiplies them by input k, which may be repeated. */
static void move_repeated(const cnn *n, int64_t i, int64_t k, bppsa_move_how how, bppsa_cnn_part_view to) {
  const int64_t tensor = bppsa_cnn_input_of(&n->network, i, k) + 1, size = bppsa_cnn_size(&n->network, tensor);
  const int64_t *in = shape_of(n, tensor), *out = n->network.layers[i].out;
  const bppsa_cnn_part_view from = part_view(n, tensor_of(n, tensor), size, 0);
  int64_t from_strides[3], to_strides[3];
  if (size == n->layers[i].out) {
    move(n, how, size, from, to);
    return;
  }
  bppsa_cnn_strides(in, out, from_strides);
  strides_of(out, to_strides);
  bppsa_cnn_move_strided(how, n->config.dtype, n->threads, n->batch, out, from, from_strides, to, to_strides);
}

/* Moves what permute reorders: from its input to its output, or back. */
static void move_permuted(const cnn *n, int64_t i, bool back, bppsa_move_how how, bppsa_cnn_part_view from,
                          bppsa_cnn_part_view to) {
  const bppsa_cnn_layer *layer = &n->network.layers[i];
  int64_t in[3], out[3];
  strides_of(layer->op.in, in);
  bppsa_cnn_permuted(layer, out);
  bppsa_cnn_move_strided(how, n->config.dtype, n->threads, n->batch, layer->op.in, from, back ? out : in, to, back ? in : out);
}

void bppsa_cnn_graph_forward(const cnn *n, int64_t i) {
  const cnn_layer *layer = &n->layers[i];
  const bppsa_cnn_node node = layer->about->node;
  if (normalises(layer)) {
    bppsa_normalise_call call = call_of(n, i);
    call.sums = node == BPPSA_CNN_SUMS ? NULL : call.sums;
    bppsa_normalise_forward(&call, layer->y);
    return;
  }
  for (int64_t k = 0; k < bppsa_cnn_input_count(&n->network, i); ++k) {
    const bppsa_cnn_part part = bppsa_cnn_part_of(&n->network, i, k);
    const bppsa_cnn_part_view from = part_view(n, tensor_of(n, part.tensor), bppsa_cnn_size(&n->network, part.tensor), part.from),
                              to = part_view(n, layer->y, layer->out, part.to);
    if (node == BPPSA_CNN_MUL) {
      move_repeated(n, i, k, k == 0 ? BPPSA_MOVE_SET : BPPSA_MOVE_MULTIPLY, to);
    } else if (node == BPPSA_CNN_PERMUTE) {
      move_permuted(n, i, false, BPPSA_MOVE_SET, from, to);
    } else {
      move(n, k > 0 && node == BPPSA_CNN_ADD ? BPPSA_MOVE_ADD : BPPSA_MOVE_SET, part.count, from, to);
    }
  }
}

/* to = from · Π x_j over the inputs j of a mul other than `skipped`; from NULL: without it. */
static void multiply_others(const cnn *n, int64_t i, int64_t skipped, const void *from, bppsa_cnn_part_view to) {
  const int64_t size = n->layers[i].out;
  bool first = from == NULL;
  if (from != NULL) {
    move(n, BPPSA_MOVE_SET, size, part_view(n, from, size, 0), to);
  }
  for (int64_t k = 0; k < bppsa_cnn_input_count(&n->network, i); ++k) {
    if (k != skipped) {
      move_repeated(n, i, k, first ? BPPSA_MOVE_SET : BPPSA_MOVE_MULTIPLY, to);
      first = false;
    }
  }
}

/* ---- BP ---- */

void bppsa_cnn_graph_begin(const cnn *n) {
  memset(n->written, 0, (size_t)n->network.count * sizeof *n->written);
  n->written[n->elements] = true;
}

/* A tensor's gradient, set to 0 if nothing has reached it yet, so that parts of it can be added. */
static bppsa_cnn_part_view zeroed(const cnn *n, int64_t tensor) {
  const int64_t size = bppsa_cnn_size(&n->network, tensor);
  void *g = bppsa_cnn_gradient(n, tensor);
  if (!n->written[tensor]) {
    memset(g, 0, (size_t)(n->batch * size) * bppsa_dtype_size(n->config.dtype));
  }
  n->written[tensor] = true;
  return part_view(n, g, size, 0);
}

/* Adds to a tensor's gradient, or sets it if nothing has reached it yet. */
static void give(const cnn *n, int64_t tensor, const bppsa_cnn_part *part, const void *from, int64_t stride, int64_t offset) {
  const int64_t size = bppsa_cnn_size(&n->network, tensor);
  const bool sets = !n->written[tensor] && part->count == size;
  void *g = sets ? bppsa_cnn_gradient(n, tensor) : zeroed(n, tensor).data;
  move(n, sets ? BPPSA_MOVE_SET : BPPSA_MOVE_ADD, part->count, part_view(n, from, stride, offset),
       part_view(n, g, size, part->from));
  n->written[tensor] = true;
}

/* Adds up what reached the positions of a mul's output that read the same value of a repeated input. */
static void give_repeated(const cnn *n, int64_t i, int64_t tensor, const void *from) {
  const int64_t *out = n->network.layers[i].out;
  int64_t from_strides[3], to_strides[3];
  strides_of(out, from_strides);
  bppsa_cnn_strides(shape_of(n, tensor), out, to_strides);
  bppsa_cnn_move_strided(BPPSA_MOVE_ADD, n->config.dtype, n->threads, n->batch, out, part_view(n, from, n->layers[i].out, 0),
                         from_strides, zeroed(n, tensor), to_strides);
}

static void backward_node(const cnn *n, int64_t t, int64_t k) {
  const cnn_layer *layer = &n->layers[t - 1];
  const bppsa_cnn_part part = bppsa_cnn_part_of(&n->network, t - 1, k);
  const void *dy = bppsa_cnn_gradient(n, t);
  if (layer->about->node == BPPSA_CNN_PERMUTE) {
    move_permuted(n, t - 1, true, BPPSA_MOVE_ADD, part_view(n, dy, layer->out, 0), zeroed(n, part.tensor));
    return;
  }
  if (layer->about->node == BPPSA_CNN_MUL) {
    multiply_others(n, t - 1, k, dy, part_view(n, n->gathered, layer->out, 0));
    dy = n->gathered;
    if (part.count != layer->out) {
      give_repeated(n, t - 1, part.tensor, dy);
      return;
    }
  }
  give(n, part.tensor, &part, dy, layer->out, part.to);
}

/* Both inputs at once. Nothing but the second half reads the sums, so that their gradient is set. */
static void backward_normalise(const cnn *n, int64_t t, bool wanted) {
  const cnn_layer *layer = &n->layers[t - 1];
  const bppsa_normalise_call call = call_of(n, t - 1);
  const int64_t tensor = bppsa_cnn_input_of(&n->network, t - 1, 0) + 1;
  void *dx = !wanted ? NULL : n->written[tensor] ? n->gathered : bppsa_cnn_gradient(n, tensor), *dsums = NULL;
  if (layer->about->node != BPPSA_CNN_SUMS) {
    const int64_t sums = bppsa_cnn_input_of(&n->network, t - 1, 1) + 1;
    dsums = bppsa_cnn_gradient(n, sums);
    n->written[sums] = true;
  }
  if (dx != NULL || dsums != NULL) {
    bppsa_normalise_backward(&call, bppsa_cnn_gradient(n, t), dx, dsums);
  }
  if (wanted && n->written[tensor]) {
    give(n, tensor, &(bppsa_cnn_part){.tensor = tensor, .count = layer->in}, dx, layer->in, 0);
  }
  n->written[tensor] = n->written[tensor] || wanted;
}

void bppsa_cnn_graph_weight_gradient(const cnn *n, int64_t i, const void *dy) {
  const bppsa_normalise_call call = call_of(n, i);
  bppsa_normalise_weights(&call, dy, bppsa_cnn_weight(n, &n->layers[i], true), bppsa_cnn_bias(n, &n->layers[i], true));
}

static void backward_operator(const cnn *n, int64_t t, int64_t tensor) {
  const cnn_layer *layer = &n->layers[t - 1];
  const bppsa_cnn_pass pass = bppsa_cnn_pass_of(n, layer, n->batch);
  void *dx = n->written[tensor] ? n->gathered : bppsa_cnn_gradient(n, tensor);
  const void *weight = layer->weight < 0 ? NULL : bppsa_cnn_weight(n, layer, false);
  bppsa_cnn_pass_input_gradient(&pass, bppsa_cnn_gradient(n, t), weight, bppsa_cnn_input(n, t - 1), layer->y, layer->places, dx);
  if (n->written[tensor]) {
    give(n, tensor, &(bppsa_cnn_part){.tensor = tensor, .count = layer->in}, dx, layer->in, 0);
  }
  n->written[tensor] = true;
}

void bppsa_cnn_graph_backward(const cnn *n, int64_t t) {
  if (normalises(&n->layers[t - 1])) {
    backward_normalise(n, t, bppsa_cnn_input_of(&n->network, t - 1, 0) >= 0 || n->config.input_gradients);
    return;
  }
  for (int64_t k = 0; k < bppsa_cnn_input_count(&n->network, t - 1); ++k) {
    const int64_t tensor = bppsa_cnn_input_of(&n->network, t - 1, k) + 1;
    if (tensor == 0 && !n->config.input_gradients) {
      continue;
    }
    if (n->layers[t - 1].about->node != BPPSA_CNN_OPERATOR) {
      backward_node(n, t, k);
    } else {
      backward_operator(n, t, tensor);
    }
  }
}

/* ---- scans ---- */

/* The Jacobian's entries for input k of a mul. A value that the mul repeats has one entry for each position that reads it. */
static void fill_product(const cnn *n, int64_t i, int64_t k, int64_t stride, int64_t at) {
  const cnn_layer *layer = &n->layers[i];
  const int64_t *in = bppsa_cnn_input_shape(&n->network, i, k), *out = layer->about->out;
  const bppsa_cnn_part_view values = part_view(n, layer->values, stride, at), whole = part_view(n, n->gathered, layer->out, 0);
  int64_t from[3], to[3], repeated = 1;
  if (in[0] * in[1] * in[2] == layer->out) {
    multiply_others(n, i, k, NULL, values);
    return;
  }
  for (int axis = 2; axis >= 0; --axis) {
    to[axis] = repeated;
    repeated *= in[axis] == out[axis] ? 1 : out[axis];
  }
  const int64_t value[3] = {in[1] * in[2], in[2], 1};
  for (int axis = 0; axis < 3; ++axis) {
    to[axis] = in[axis] == out[axis] ? value[axis] * repeated : to[axis];
  }
  strides_of(out, from);
  multiply_others(n, i, k, NULL, whole);
  bppsa_cnn_move_strided(BPPSA_MOVE_SET, n->config.dtype, n->threads, n->batch, out, whole, from, values, to);
}

void bppsa_cnn_graph_fill(const cnn *n, int64_t t) {
  const int64_t stride = n->patterns[t - 1]->nnz;
  const bppsa_cnn_live *live = &n->elements_made.live;
  int64_t at = 0;
  for (int64_t place = live->ptr[t - 1]; place < live->ptr[t]; ++place) { /* the blocks are in the order of the live set */
    for (int64_t k = 0; k < bppsa_cnn_input_count(&n->network, t - 1); ++k) {
      if (bppsa_cnn_input_of(&n->network, t - 1, k) + 1 != live->tensors[place]) {
        continue;
      }
      if (normalises(&n->layers[t - 1])) {
        const bppsa_normalise_call call = call_of(n, t - 1);
        bppsa_normalise_block(&call, k, stride, part_view(n, n->layers[t - 1].values, stride, at).data);
      } else {
        fill_product(n, t - 1, k, stride, at);
      }
      at += bppsa_cnn_block_entries(&n->network, t - 1, k);
    }
  }
}

const void *bppsa_cnn_graph_gradient(const cnn *n, int64_t t) {
  const bppsa_cnn_live *live = &n->elements_made.live;
  const int64_t size = bppsa_cnn_size(&n->network, t);
  if (n->scan == NULL || live->sizes[t] == size) {
    return bppsa_cnn_gradient(n, t);
  }
  const int64_t offset = bppsa_cnn_live_offset(live, t, t);
  move(n, BPPSA_MOVE_SET, size, part_view(n, bppsa_cnn_gradient(n, t), live->sizes[t], offset),
       part_view(n, n->gathered, size, 0));
  return n->gathered;
}
