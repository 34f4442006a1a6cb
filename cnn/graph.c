/* Passes over a network that is a graph. */
#include "cnn/cnn_internal.h"

#include <string.h>

#include "cnn/graph_gpu.h"
#include "core/compute/memory.h"

/* A tensor's values or its gradient, from `offset` on. */
static bppsa_cnn_part_view part_view(const cnn *n, const void *data, int64_t stride, int64_t offset) {
  return (bppsa_cnn_part_view){(char *)(uintptr_t)data + offset * (int64_t)bppsa_dtype_size(n->config.dtype), stride};
}

static void *stream_of(const cnn *n) {
  return bppsa_device_get_stream(n->device);
}

static bppsa_status move(const cnn *n, bppsa_move_how how, int64_t count, bppsa_cnn_part_view from, bppsa_cnn_part_view to) {
  if (n->gpu != NULL) {
    return bppsa_move_queue(stream_of(n), how, n->config.dtype, n->batch, count, from, to);
  }
  bppsa_cnn_move(how, n->config.dtype, n->threads, n->batch, count, from, to);
  return BPPSA_OK;
}

static bppsa_status move_strided(const cnn *n, bppsa_move_how how, const int64_t shape[3], bppsa_cnn_part_view from,
                                 const int64_t from_strides[3], bppsa_cnn_part_view to, const int64_t to_strides[3]) {
  if (n->gpu != NULL) {
    return bppsa_move_queue_strided(stream_of(n), how, n->config.dtype, n->batch, shape, from, from_strides, to, to_strides);
  }
  bppsa_cnn_move_strided(how, n->config.dtype, n->threads, n->batch, shape, from, from_strides, to, to_strides);
  return BPPSA_OK;
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
static bppsa_status move_repeated(const cnn *n, int64_t i, int64_t k, bppsa_move_how how, bppsa_cnn_part_view to) {
  const int64_t tensor = bppsa_cnn_input_of(&n->network, i, k) + 1, size = bppsa_cnn_size(&n->network, tensor);
  const int64_t *in = shape_of(n, tensor), *out = n->network.layers[i].out;
  const bppsa_cnn_part_view from = part_view(n, tensor_of(n, tensor), size, 0);
  int64_t from_strides[3], to_strides[3];
  if (size == n->layers[i].out) {
    return move(n, how, size, from, to);
  }
  bppsa_cnn_strides(in, out, from_strides);
  strides_of(out, to_strides);
  return move_strided(n, how, out, from, from_strides, to, to_strides);
}

/* Moves what permute reorders: from its input to its output, or back. */
static bppsa_status move_permuted(const cnn *n, int64_t i, bool back, bppsa_move_how how, bppsa_cnn_part_view from,
                                  bppsa_cnn_part_view to) {
  const bppsa_cnn_layer *layer = &n->network.layers[i];
  int64_t in[3], out[3];
  strides_of(layer->op.in, in);
  bppsa_cnn_permuted(layer, out);
  return move_strided(n, how, layer->op.in, from, back ? out : in, to, back ? in : out);
}

bppsa_status bppsa_cnn_graph_forward(const cnn *n, int64_t i) {
  const cnn_layer *layer = &n->layers[i];
  const bppsa_cnn_node node = layer->about->node;
  if (normalises(layer)) {
    bppsa_normalise_call call = call_of(n, i);
    call.sums = node == BPPSA_CNN_SUMS ? NULL : call.sums;
    if (n->gpu != NULL) {
      return bppsa_normalise_queue_forward(stream_of(n), &call, layer->y);
    }
    bppsa_normalise_forward(&call, layer->y);
    return BPPSA_OK;
  }
  for (int64_t k = 0; k < bppsa_cnn_input_count(&n->network, i); ++k) {
    const bppsa_cnn_part part = bppsa_cnn_part_of(&n->network, i, k);
    const bppsa_cnn_part_view from = part_view(n, tensor_of(n, part.tensor), bppsa_cnn_size(&n->network, part.tensor), part.from),
                              to = part_view(n, layer->y, layer->out, part.to);
    if (node == BPPSA_CNN_MUL) {
      BPPSA_TRY(move_repeated(n, i, k, k == 0 ? BPPSA_MOVE_SET : BPPSA_MOVE_MULTIPLY, to));
    } else if (node == BPPSA_CNN_PERMUTE) {
      BPPSA_TRY(move_permuted(n, i, false, BPPSA_MOVE_SET, from, to));
    } else {
      BPPSA_TRY(move(n, k > 0 && node == BPPSA_CNN_ADD ? BPPSA_MOVE_ADD : BPPSA_MOVE_SET, part.count, from, to));
    }
  }
  return BPPSA_OK;
}

/* to = from · Π x_j over the inputs j of a mul other than `skipped`; from NULL: without it. */
static bppsa_status multiply_others(const cnn *n, int64_t i, int64_t skipped, const void *from, bppsa_cnn_part_view to) {
  const int64_t size = n->layers[i].out;
  bool first = from == NULL;
  if (from != NULL) {
    BPPSA_TRY(move(n, BPPSA_MOVE_SET, size, part_view(n, from, size, 0), to));
  }
  for (int64_t k = 0; k < bppsa_cnn_input_count(&n->network, i); ++k) {
    if (k != skipped) {
      BPPSA_TRY(move_repeated(n, i, k, first ? BPPSA_MOVE_SET : BPPSA_MOVE_MULTIPLY, to));
      first = false;
    }
  }
  return BPPSA_OK;
}

/* ---- BP ---- */

void bppsa_cnn_graph_begin(const cnn *n) {
  memset(n->written, 0, (size_t)n->network.count * sizeof *n->written);
  n->written[n->elements] = true;
}

/* A tensor's gradient, set to 0 if nothing has reached it yet, so that parts of it can be added. */
static bppsa_status zeroed(const cnn *n, int64_t tensor, bppsa_cnn_part_view *made) {
  const int64_t size = bppsa_cnn_size(&n->network, tensor);
  void *g = bppsa_cnn_gradient(n, tensor);
  if (!n->written[tensor]) {
    BPPSA_TRY(bppsa_memory_queue_clear(n->device, g, n->batch * size * (int64_t)bppsa_dtype_size(n->config.dtype)));
  }
  n->written[tensor] = true;
  *made = part_view(n, g, size, 0);
  return BPPSA_OK;
}

/* Adds to a tensor's gradient, or sets it if nothing has reached it yet. */
static bppsa_status give(const cnn *n, int64_t tensor, const bppsa_cnn_part *part, const void *from, int64_t stride,
                         int64_t offset) {
  const int64_t size = bppsa_cnn_size(&n->network, tensor);
  const bool sets = !n->written[tensor] && part->count == size;
  bppsa_cnn_part_view g = part_view(n, bppsa_cnn_gradient(n, tensor), size, 0);
  BPPSA_TRY(sets ? BPPSA_OK : zeroed(n, tensor, &g));
  n->written[tensor] = true;
  return move(n, sets ? BPPSA_MOVE_SET : BPPSA_MOVE_ADD, part->count, part_view(n, from, stride, offset),
              part_view(n, g.data, size, part->from));
}

/* Adds up what reached the positions of a mul's output that read the same value of a repeated input. */
static bppsa_status give_repeated(const cnn *n, int64_t i, int64_t tensor, const void *from) {
  const int64_t *out = n->network.layers[i].out;
  int64_t from_strides[3], to_strides[3];
  bppsa_cnn_part_view to;
  strides_of(out, from_strides);
  bppsa_cnn_strides(shape_of(n, tensor), out, to_strides);
  BPPSA_TRY(zeroed(n, tensor, &to));
  return move_strided(n, BPPSA_MOVE_ADD, out, part_view(n, from, n->layers[i].out, 0), from_strides, to, to_strides);
}

static bppsa_status backward_node(const cnn *n, int64_t t, int64_t k) {
  const cnn_layer *layer = &n->layers[t - 1];
  const bppsa_cnn_part part = bppsa_cnn_part_of(&n->network, t - 1, k);
  const void *dy = bppsa_cnn_gradient(n, t);
  if (layer->about->node == BPPSA_CNN_PERMUTE) {
    bppsa_cnn_part_view to;
    BPPSA_TRY(zeroed(n, part.tensor, &to));
    return move_permuted(n, t - 1, true, BPPSA_MOVE_ADD, part_view(n, dy, layer->out, 0), to);
  }
  if (layer->about->node == BPPSA_CNN_MUL) {
    BPPSA_TRY(multiply_others(n, t - 1, k, dy, part_view(n, n->gathered, layer->out, 0)));
    dy = n->gathered;
    if (part.count != layer->out) {
      return give_repeated(n, t - 1, part.tensor, dy);
    }
  }
  return give(n, part.tensor, &part, dy, layer->out, part.to);
}

/* Adds a gradient [b][size] that was computed apart from what has reached the tensor already. */
static bppsa_status add_whole(const cnn *n, int64_t tensor, const void *dx, int64_t size) {
  return give(n, tensor, &(bppsa_cnn_part){.tensor = tensor, .count = size}, dx, size, 0);
}

static bppsa_status normalise_backward(const cnn *n, int64_t i, const void *dy, void *dx, void *dsums) {
  const bppsa_normalise_call call = call_of(n, i);
  if (n->gpu != NULL) {
    return bppsa_normalise_queue_backward(stream_of(n), &call, dy, dx, dsums);
  }
  bppsa_normalise_backward(&call, dy, dx, dsums);
  return BPPSA_OK;
}

/* Both inputs at once. Nothing but the second half reads the sums, so that their gradient is set. */
static bppsa_status backward_normalise(const cnn *n, int64_t t, bool wanted) {
  const cnn_layer *layer = &n->layers[t - 1];
  const int64_t tensor = bppsa_cnn_input_of(&n->network, t - 1, 0) + 1;
  void *dx = !wanted ? NULL : n->written[tensor] ? n->gathered : bppsa_cnn_gradient(n, tensor), *dsums = NULL;
  if (layer->about->node != BPPSA_CNN_SUMS) {
    const int64_t sums = bppsa_cnn_input_of(&n->network, t - 1, 1) + 1;
    dsums = bppsa_cnn_gradient(n, sums);
    n->written[sums] = true;
  }
  if (dx != NULL || dsums != NULL) {
    BPPSA_TRY(normalise_backward(n, t - 1, bppsa_cnn_gradient(n, t), dx, dsums));
  }
  if (wanted && n->written[tensor]) {
    BPPSA_TRY(add_whole(n, tensor, dx, layer->in));
  }
  n->written[tensor] = n->written[tensor] || wanted;
  return BPPSA_OK;
}

bppsa_status bppsa_cnn_graph_weight_gradient(const cnn *n, int64_t i, const void *dy, void *stream) {
  const bppsa_normalise_call call = call_of(n, i);
  void *dw = bppsa_cnn_weight(n, &n->layers[i], true), *db = bppsa_cnn_bias(n, &n->layers[i], true);
  if (n->gpu != NULL) {
    return bppsa_normalise_queue_weights(stream, &call, dy, dw, db);
  }
  bppsa_normalise_weights(&call, dy, dw, db);
  return BPPSA_OK;
}

static bppsa_status input_gradient(const cnn *n, int64_t i, const void *dy, void *dx) {
  const cnn_layer *layer = &n->layers[i];
  const void *weight = layer->weight < 0 ? NULL : bppsa_cnn_weight(n, layer, false);
  if (n->gpu != NULL) {
    return bppsa_cnn_cuda_layer_input(n, i, bppsa_cnn_input(n, i), dy, dx);
  }
  const bppsa_cnn_pass pass = bppsa_cnn_pass_of(n, layer, n->batch);
  bppsa_cnn_pass_input_gradient(&pass, dy, weight, bppsa_cnn_input(n, i), layer->y, layer->places, dx);
  return BPPSA_OK;
}

static bppsa_status backward_operator(const cnn *n, int64_t t, int64_t tensor) {
  void *dx = n->written[tensor] ? n->gathered : bppsa_cnn_gradient(n, tensor);
  BPPSA_TRY(input_gradient(n, t - 1, bppsa_cnn_gradient(n, t), dx));
  if (n->written[tensor]) {
    BPPSA_TRY(add_whole(n, tensor, dx, n->layers[t - 1].in));
  }
  n->written[tensor] = true;
  return BPPSA_OK;
}

bppsa_status bppsa_cnn_graph_backward(const cnn *n, int64_t t) {
  if (normalises(&n->layers[t - 1])) {
    return backward_normalise(n, t, bppsa_cnn_input_of(&n->network, t - 1, 0) >= 0 || n->config.input_gradients);
  }
  for (int64_t k = 0; k < bppsa_cnn_input_count(&n->network, t - 1); ++k) {
    const int64_t tensor = bppsa_cnn_input_of(&n->network, t - 1, k) + 1;
    if (tensor == 0 && !n->config.input_gradients) {
      continue;
    }
    if (n->layers[t - 1].about->node != BPPSA_CNN_OPERATOR) {
      BPPSA_TRY(backward_node(n, t, k));
    } else {
      BPPSA_TRY(backward_operator(n, t, tensor));
    }
  }
  return BPPSA_OK;
}

/* ---- scans ---- */

/* The Jacobian's entries for input k of a mul. A value that the mul repeats has one entry for each position that reads it. */
static bppsa_status fill_product(const cnn *n, int64_t i, int64_t k, bppsa_cnn_part_view values) {
  const cnn_layer *layer = &n->layers[i];
  const int64_t *in = bppsa_cnn_input_shape(&n->network, i, k), *out = layer->about->out;
  const bppsa_cnn_part_view whole = part_view(n, n->gathered, layer->out, 0);
  int64_t from[3], to[3], repeated = 1;
  if (in[0] * in[1] * in[2] == layer->out) {
    return multiply_others(n, i, k, NULL, values);
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
  BPPSA_TRY(multiply_others(n, i, k, NULL, whole));
  return move_strided(n, BPPSA_MOVE_SET, out, whole, from, values, to);
}

static bppsa_status fill_normalise(const cnn *n, int64_t i, int64_t k, int64_t stride, void *values) {
  const bppsa_normalise_call call = call_of(n, i);
  if (n->gpu != NULL) {
    return bppsa_normalise_queue_block(stream_of(n), &call, k, stride, values);
  }
  bppsa_normalise_block(&call, k, stride, values);
  return BPPSA_OK;
}

bppsa_status bppsa_cnn_graph_fill(const cnn *n, int64_t t, int64_t stride, void *values) {
  const bppsa_cnn_live *live = &n->elements_made.live;
  int64_t at = 0;
  for (int64_t place = live->ptr[t - 1]; place < live->ptr[t]; ++place) { /* the blocks are in the order of the live set */
    for (int64_t k = 0; k < bppsa_cnn_input_count(&n->network, t - 1); ++k) {
      if (bppsa_cnn_input_of(&n->network, t - 1, k) + 1 != live->tensors[place]) {
        continue;
      }
      const bppsa_cnn_part_view block = part_view(n, values, stride, at);
      BPPSA_TRY(normalises(&n->layers[t - 1]) ? fill_normalise(n, t - 1, k, stride, block.data)
                                              : fill_product(n, t - 1, k, block));
      at += bppsa_cnn_block_entries(&n->network, t - 1, k);
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_cnn_graph_gradient(const cnn *n, int64_t t, const void **gradient) {
  const bppsa_cnn_live *live = &n->elements_made.live;
  const int64_t size = bppsa_cnn_size(&n->network, t);
  *gradient = bppsa_cnn_gradient(n, t);
  if (n->scan == NULL || live->sizes[t] == size) {
    return BPPSA_OK;
  }
  const int64_t offset = bppsa_cnn_live_offset(live, t, t);
  const void *all = *gradient;
  *gradient = n->gathered;
  return move(n, BPPSA_MOVE_SET, size, part_view(n, all, live->sizes[t], offset), part_view(n, n->gathered, size, 0));
}
