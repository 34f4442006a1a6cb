/* Passes over a network that is a graph. */
#include "cnn/cnn_internal.h"

#include <string.h>

#include "cnn/move.h"

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

void bppsa_cnn_graph_forward(const cnn *n, int64_t i) {
  const cnn_layer *layer = &n->layers[i];
  const bppsa_cnn_node node = layer->about->node;
  for (int64_t k = 0; k < bppsa_cnn_input_count(&n->network, i); ++k) {
    const bppsa_cnn_part part = bppsa_cnn_part_of(&n->network, i, k);
    const bppsa_move_how how = k == 0 || node == BPPSA_CNN_CONCAT ? BPPSA_MOVE_SET
                               : node == BPPSA_CNN_ADD            ? BPPSA_MOVE_ADD
                                                                  : BPPSA_MOVE_MULTIPLY;
    move(n, how, part.count, part_view(n, tensor_of(n, part.tensor), bppsa_cnn_size(&n->network, part.tensor), part.from),
         part_view(n, layer->y, layer->out, part.to));
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
      const void *x = tensor_of(n, bppsa_cnn_input_of(&n->network, i, k) + 1);
      move(n, first ? BPPSA_MOVE_SET : BPPSA_MOVE_MULTIPLY, size, part_view(n, x, size, 0), to);
      first = false;
    }
  }
}

/* ---- BP ---- */

void bppsa_cnn_graph_begin(const cnn *n) {
  memset(n->written, 0, (size_t)n->network.count * sizeof *n->written);
  n->written[n->elements] = true;
}

/* Adds to a tensor's gradient, or sets it if nothing has reached it yet. */
static void give(const cnn *n, int64_t tensor, const bppsa_cnn_part *part, const void *from, int64_t stride, int64_t offset) {
  const int64_t size = bppsa_cnn_size(&n->network, tensor);
  void *g = bppsa_cnn_gradient(n, tensor);
  if (!n->written[tensor] && part->count < size) {
    memset(g, 0, (size_t)(n->batch * size) * bppsa_dtype_size(n->config.dtype));
  }
  move(n, n->written[tensor] ? BPPSA_MOVE_ADD : BPPSA_MOVE_SET, part->count, part_view(n, from, stride, offset),
       part_view(n, g, size, part->from));
  n->written[tensor] = true;
}

static void backward_node(const cnn *n, int64_t t, int64_t k) {
  const cnn_layer *layer = &n->layers[t - 1];
  const bppsa_cnn_part part = bppsa_cnn_part_of(&n->network, t - 1, k);
  const void *dy = bppsa_cnn_gradient(n, t);
  if (layer->about->node == BPPSA_CNN_MUL) {
    multiply_others(n, t - 1, k, dy, part_view(n, n->gathered, layer->out, 0));
    dy = n->gathered;
  }
  give(n, part.tensor, &part, dy, layer->out, part.to);
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

void bppsa_cnn_graph_fill_mul(const cnn *n, int64_t t) {
  const int64_t size = n->layers[t - 1].out, stride = n->patterns[t - 1]->nnz;
  const bppsa_cnn_live *live = &n->elements_made.live;
  int64_t at = 0;
  for (int64_t place = live->ptr[t - 1]; place < live->ptr[t]; ++place) { /* the diagonals are in the order of the live set */
    for (int64_t k = 0; k < bppsa_cnn_input_count(&n->network, t - 1); ++k) {
      if (bppsa_cnn_input_of(&n->network, t - 1, k) + 1 == live->tensors[place]) {
        multiply_others(n, t - 1, k, NULL, part_view(n, n->layers[t - 1].values, stride, at));
        at += size;
      }
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
