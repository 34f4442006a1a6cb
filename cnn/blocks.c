#include "cnn/blocks.h"

bool bppsa_cnn_has_blocks(const bppsa_cnn_layer *layer) {
  return layer->node == BPPSA_CNN_MUL || layer->node >= BPPSA_CNN_SUMS;
}

const int64_t *bppsa_cnn_input_shape(const bppsa_cnn_network *network, int64_t i, int64_t k) {
  const int64_t input = bppsa_cnn_input_of(network, i, k);
  return input < 0 ? network->in : network->layers[input].out;
}

void bppsa_cnn_strides(const int64_t in[3], const int64_t out[3], int64_t strides[3]) {
  const int64_t all[3] = {in[1] * in[2], in[2], 1};
  for (int axis = 0; axis < 3; ++axis) {
    strides[axis] = in[axis] == out[axis] ? all[axis] : 0;
  }
}

void bppsa_cnn_permuted(const bppsa_cnn_layer *layer, int64_t strides[3]) {
  const int64_t *out = layer->out, all[3] = {out[1] * out[2], out[2], 1};
  for (int axis = 0; axis < 3; ++axis) {
    strides[layer->order[axis]] = all[axis];
  }
}

/* Which of the two sums of each group have a derivative: softmax is the same for every m. */
static int64_t first_sum(const bppsa_cnn_layer *layer) {
  return (layer->node == BPPSA_CNN_SUMS ? layer->of : layer->node) == BPPSA_CNN_SOFTMAX ? 1 : 0;
}

int64_t bppsa_cnn_block_entries(const bppsa_cnn_network *network, int64_t i, int64_t k) {
  const bppsa_cnn_layer *layer = &network->layers[i];
  const int64_t in = bppsa_cnn_size(network, bppsa_cnn_input_of(network, i, 0) + 1);
  const int64_t sums = BPPSA_CNN_GROUP_SUMS - first_sum(layer);
  return layer->node == BPPSA_CNN_MUL ? bppsa_cnn_size(network, i + 1) : layer->node == BPPSA_CNN_SUMS || k == 1 ? sums * in : in;
}

/* Writes columns first + step · k, k < count. */
static int64_t put_columns(int64_t first, int64_t step, int64_t count, int32_t *col) {
  for (int64_t k = 0; col != NULL && k < count; ++k) {
    col[k] = (int32_t)(first + step * k);
  }
  return count;
}

/* The positions of the output that read value `row` of an input of mul. */
static int64_t product_row(const int64_t *in, const int64_t *out, int64_t row, int64_t first, int32_t *col) {
  const int64_t at[3] = {row / (in[1] * in[2]), row / in[2] % in[1], row % in[2]};
  int64_t from[3], to[3], count = 0;
  for (int axis = 0; axis < 3; ++axis) {
    from[axis] = in[axis] == out[axis] ? at[axis] : 0;
    to[axis] = in[axis] == out[axis] ? at[axis] + 1 : out[axis];
  }
  for (int64_t c = from[0]; c < to[0]; ++c) {
    for (int64_t h = from[1]; h < to[1]; ++h) {
      count += put_columns(first + (c * out[1] + h) * out[2] + from[2], 1, to[2] - from[2], col != NULL ? col + count : NULL);
    }
  }
  return count;
}

int64_t bppsa_cnn_block_row(const bppsa_cnn_network *network, int64_t i, int64_t k, int64_t row, int64_t first, int32_t *col) {
  const bppsa_cnn_layer *layer = &network->layers[i];
  if (layer->node == BPPSA_CNN_MUL) {
    return product_row(bppsa_cnn_input_shape(network, i, k), layer->out, row, first, col);
  }
  const bppsa_cnn_groups g = bppsa_cnn_groups_of(layer);
  const int64_t sum = first_sum(layer);
  if (layer->node == BPPSA_CNN_SUMS) {
    return put_columns(first + sum * g.count + bppsa_cnn_group_of(&g, row), g.count, BPPSA_CNN_GROUP_SUMS - sum, col);
  }
  if (k == 0) {
    return put_columns(first + row, 1, 1, col);
  }
  return row / g.count < sum ? 0 : put_columns(first + bppsa_cnn_group_first(&g, row % g.count), g.inner, g.size, col);
}
