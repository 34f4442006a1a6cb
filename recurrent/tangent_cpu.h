/* Derivatives along a direction of a layer's passes on a CPU: what tangent_cpu.c, tangent_walk_cpu.c and tangent_twice_cpu.c share.
 * Internal. */
#ifndef BPPSA_RECURRENT_TANGENT_CPU_H
#define BPPSA_RECURRENT_TANGENT_CPU_H

#include "recurrent/layers_cpu.h"
#include "recurrent/tangent_internal.h"

/* Computes a->h and c, the derivative in direction e of the tangents in direction d (tangent_twice_cpu.c). */
bppsa_status bppsa_tangent_twice(recurrent_network *n, tangent_arrays *a);

/* Prepares W_hh for a walk with time, and W_ih for products. */
void bppsa_tangent_prepare_own(recurrent_network *n, const tangent_arrays *a);
/* Prepares a direction's weights and biases. */
void bppsa_tangent_prepare(recurrent_network *n, tangent_direction *d);
/* Computes the products of some rows of steps in a direction, without what comes from the tangents of the states in front of them.
 * before: h in front of the steps. */
void bppsa_tangent_products(const recurrent_network *n, const tangent_direction *d, const recurrent_stretch *s,
                            const void *before, void *product_x, void *product_h);
/* The products of all steps, whole; before as above. Returns the tangents of the states h in front of the steps. */
const void *bppsa_tangent_whole_products(const recurrent_network *n, const tangent_arrays *a, tangent_direction *d,
                                         const void *before);
/* y += x wtᵀ of so many rows, if neither is NULL. */
void bppsa_tangent_add_product(const recurrent_network *n, int64_t rows, int64_t in, const void *x, const void *wt, void *y);
/* All rows of the states h in front of steps, or of their tangents: a copy in `room` where the rows of a stretch do not follow
 * those of the one in front of it, or samples begin anew, with the state `by` (NULL: 0). */
const void *bppsa_tangent_before_all(const recurrent_network *n, const void *states, const void *by, void *room);
/* Where a direction's products and tangents of a window are, which begins at the packed row; states: n and what is walked. */
layers_tangent bppsa_tangent_window(const recurrent_network *n, const tangent_arrays *a, const tangent_direction *d, int64_t row);
/* The cell's tangent_backward over all steps: from the products of d and the gradients in n->g, to the derivatives of the deltas in
 * the place of the products, and the rows `carried`. */
void bppsa_tangent_of_deltas(const recurrent_network *n, const tangent_arrays *a, const tangent_direction *d, void *carried);
/* Walks with time, step by step or by a->scan: d->h and c from row 0, the products of all steps, and, if `added`, a->g, which is
 * added to the tangents of every step (tangent_walk_cpu.c). */
bppsa_status bppsa_tangent_walk(recurrent_network *n, tangent_arrays *a, const tangent_direction *d, bool added);
/* Writes 1 to half of every row of n->g and 0 to the other half: h, or c of a pair. */
void bppsa_tangent_unit(const recurrent_network *n, int64_t half);
/* sum[row t][half] += Σ over gates of x ∘ y (and of x_h ∘ y_h where the cell splits), of all rows of steps. */
void bppsa_tangent_dot(const recurrent_network *n, const void *x, const void *y, const void *x_h, const void *y_h, int64_t half,
                       void *sum);
/* sum[row t][half] += front[row t-1][part] ∘ tangents[row t], of all rows of steps: what does not go through W_hh. */
void bppsa_tangent_add_carried(const recurrent_network *n, const void *front, int64_t part, const void *tangents, int64_t half,
                               void *sum);

static inline int64_t tangent_gates(const recurrent_network *n) {
  return n->cell->gates * n->config.hidden;
}

#endif
