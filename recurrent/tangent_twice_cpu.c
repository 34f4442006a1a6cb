/* The derivative in direction e of the tangents in direction d, on a CPU (forward over forward). With a dot for direction d and a
 * prime for direction e, the products that enter a step are linear in the state, the input and the weights together, so that of
 * their second derivative
 *
 *     product_x: ẋ W'_ihᵀ + x' Ẇ_ihᵀ          product_h: ḣ_{t-1} W'_hhᵀ + h'_{t-1} Ẇ_hhᵀ + ḣ'_{t-1} W_hhᵀ
 *
 * the last term alone belongs to the recurrence, which is that of the tangents. A unit is curved in its own gates and in its own
 * state in front of the step. What that adds to ḣ'_t is Σ_a (∂²h/∂a∂b) ȧ b'. The cell's tangent_backward knows the
 * derivative of ∂h/∂b in direction d: it is that of the deltas of a gradient of ones. The same again for c of a pair.
 *
 * The state from which samples begin anew, h_0 and c_0 have no second derivative. */
#include "recurrent/tangent_cpu.h"

static void *at(const recurrent_network *n, const void *base, int64_t reals) {
  return bppsa_recurrent_offset(n, base, reals);
}

/* What the curvature of the cell adds to the rows of all steps, in a->g; before: the tangents of h in front of all steps, in
 * direction e. Overwrites the products of direction d. */
static void add_curvature(const recurrent_network *n, const tangent_arrays *a, const void *before) {
  const tangent_direction *d = &a->d, *e = &a->e;
  const int64_t size = bppsa_recurrent_state_size(n);
  const bool pair = n->cell->pair, split = n->cell->split;
  const size_t bytes = (size_t)(bppsa_ragged_rows(n) * tangent_gates(n) * layers_size_of(n));
  const void *reset_c = at(n, e->along.reset_state, n->config.hidden);
  const void *before_c = pair ? bppsa_tangent_before_all(n, e->c, reset_c, a->before_cells) : NULL;
  memset(a->g, 0, (size_t)((n->batch + bppsa_ragged_rows(n)) * size * layers_size_of(n)));
  if (pair) {
    memcpy(a->spare, d->product_x, bytes);
  }
  for (int64_t half = 0; half < (pair ? 2 : 1); ++half) {
    if (half == 1) {
      memcpy(d->product_x, a->spare, bytes);
    }
    bppsa_tangent_unit(n, half);
    bppsa_tangent_of_deltas(n, a, d, a->carried);
    bppsa_tangent_dot(n, d->product_x, e->product_x, split ? d->product_h : NULL, split ? e->product_h : NULL, half, a->g);
    if (n->cell->diagonal) {
      bppsa_tangent_add_carried(n, a->carried, 0, before, half, a->g);
    }
    if (pair) {
      bppsa_tangent_add_carried(n, a->carried, 1, before_c, half, a->g);
    }
  }
}

/* The products of the two directions with each other. They overwrite the products of direction d. */
static void cross_products(const recurrent_network *n, const tangent_arrays *a, const void *of_d, const void *of_e) {
  const tangent_direction *d = &a->d, *e = &a->e;
  const int64_t rows = bppsa_ragged_rows(n), input = n->config.input, hidden = n->config.hidden;
  const size_t bytes = (size_t)(rows * tangent_gates(n) * layers_size_of(n));
  void *product_h = n->cell->split ? d->product_h : d->product_x;
  memset(d->product_x, 0, bytes);
  memset(product_h, 0, bytes);
  bppsa_tangent_add_product(n, rows, input, d->along.x, e->along.w_ih != NULL ? e->w_ih : NULL, d->product_x);
  bppsa_tangent_add_product(n, rows, input, e->along.x, d->along.w_ih != NULL ? d->w_ih : NULL, d->product_x);
  bppsa_tangent_add_product(n, rows, hidden, of_d, e->along.w_hh != NULL ? e->w_hh : NULL, product_h);
  bppsa_tangent_add_product(n, rows, hidden, of_e, d->along.w_hh != NULL ? d->w_hh : NULL, product_h);
}

bppsa_status bppsa_tangent_twice(recurrent_network *n, tangent_arrays *a) {
  const size_t first = (size_t)(n->batch * n->config.hidden * layers_size_of(n));
  const void *before = bppsa_tangent_before_all(n, n->layers[0].h, bppsa_reset_state_of(n, 0), n->before);
  bppsa_tangent_prepare_own(n, a);
  bppsa_tangent_prepare(n, &a->d);
  bppsa_tangent_prepare(n, &a->e);
  const void *of_d = bppsa_tangent_whole_products(n, a, &a->d, before);
  const void *of_e = bppsa_tangent_whole_products(n, a, &a->e, before);
  add_curvature(n, a, of_e);
  cross_products(n, a, of_d, of_e);
  const tangent_direction both = {.h = a->h, .c = a->c, .product_x = a->d.product_x, .product_h = a->d.product_h};
  memset(a->h, 0, first);
  if (n->cell->pair) {
    memset(a->c, 0, first);
  }
  return bppsa_tangent_walk(n, a, &both, true);
}
