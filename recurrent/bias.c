/* Prepares the biases of a layer for its forward pass on a CPU: the whole biases, or, for cells that add far parts themselves,
 * near and far parts (core/compute/far_bias.h). n->bias [4][G·H]:
 *
 * 0   b_ih (+ b_hh unless separate_bias)    of the near parts 1   b_hh                                  likewise 2   far parts of
 * b_ih + b_hh; from the gate split_from on, of a cell that splits, of b_ih alone 3   far parts of b_hh from the gate split_from
 * on */
#include "core/compute/far_bias.h"
#include "recurrent/recurrent_internal.h"

enum { IN, HIDDEN, FAR, FAR_H };

/* The i-th number of a part. */
static int64_t place(const recurrent_network *n, int part, int64_t i) {
  return part * n->cell->gates * n->config.hidden + i;
}

void bppsa_recurrent_cut_biases(recurrent_network *n, int64_t l) {
  const bppsa_cell *cell = n->cell;
  const int64_t out = cell->gates * n->config.hidden, all = 4 * out,
                split = cell->split ? cell->split_from * n->config.hidden : out;
  const bppsa_view *b_ih = &bppsa_recurrent_parameter(n, l, B_IH)->value, *b_hh = &bppsa_recurrent_parameter(n, l, B_HH)->value;
  const bppsa_view bias = bppsa_view_make(n->bias, n->config.dtype, 1, &all);
  const bool cut = cell->far_biases;
  n->has_far = n->has_far_h = false;
  for (int64_t i = 0; i < out; ++i) {
    const double in = bppsa_view_get(b_ih, i), hidden = bppsa_view_get(b_hh, i);
    const double far_in = cut ? bppsa_far_bias(in) : 0, far_hidden = cut ? bppsa_far_bias(hidden) : 0;
    bppsa_view_set(&bias, place(n, IN, i), (in - far_in) + (cell->separate_bias ? 0 : hidden - far_hidden));
    bppsa_view_set(&bias, place(n, HIDDEN, i), hidden - far_hidden);
    bppsa_view_set(&bias, place(n, FAR, i), far_in + (i < split ? far_hidden : 0));
    if (i >= split) {
      bppsa_view_set(&bias, place(n, FAR_H, i - split), far_hidden);
      n->has_far_h |= far_hidden != 0;
    }
    n->has_far |= far_in != 0 || far_hidden != 0;
  }
}

void bppsa_recurrent_give_biases(const recurrent_network *n, int64_t l, bppsa_cell_block *block) {
  const bool cut = n->cell->far_biases;
  block->b_hh = cut ? bppsa_recurrent_offset(n, n->bias, place(n, HIDDEN, 0)) : bppsa_recurrent_parameter(n, l, B_HH)->value.data;
  block->far = n->has_far ? bppsa_recurrent_offset(n, n->bias, place(n, FAR, 0)) : NULL;
  block->far_h = n->has_far_h ? bppsa_recurrent_offset(n, n->bias, place(n, FAR_H, 0)) : NULL;
}
