/* Derivatives along a direction of a layer's passes on a CPU: what the files tangent_*_cpu.c share. Internal. */
#ifndef BPPSA_RECURRENT_TANGENT_CPU_H
#define BPPSA_RECURRENT_TANGENT_CPU_H

#include "recurrent/layers_cpu.h"
#include "recurrent/tangent_internal.h"

/* Which parts of the derivatives of weight gradients are computed: from the complete δ̇ with x, with h, with ones; `first`: from
 * the first deltas with the tangents of x and h. */
typedef struct {
  bool x, h, bias, own_bias, first_x, first_h;
} tangent_wanted;

/* Does the derivative of the backward pass go run by run through both walks (tangent_runs_cpu.c)? scans: the walks are scans. */
bool bppsa_tangent_goes_by_runs(const recurrent_network *n, bool scans);
/* Goes through both walks, from the gradients of the states a->g and their tangents n->g, and writes all results except the
 * gradients of the first states. */
void bppsa_tangent_runs(recurrent_network *n, tangent_arrays *a, const bppsa_layer_gradients *to);

/* Computes a->h and c, the derivative in direction e of the tangents in direction d (tangent_twice_cpu.c). */
bppsa_status bppsa_tangent_twice(recurrent_network *n, tangent_arrays *a);

/* Prepares W_hh for a walk with time, and W_ih for products. */
void bppsa_tangent_prepare_own(recurrent_network *n, const tangent_arrays *a);
/* Prepares a direction's weights and biases. */
void bppsa_tangent_prepare(recurrent_network *n, tangent_direction *d);
/* Both of the same for the products of direction d alone, with W_hh transposed as rows. */
void bppsa_tangent_prepare_products(recurrent_network *n, tangent_arrays *a);
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
/* The states [H] in front of the steps of a stretch: rows of `states`, or a copy in `room` where samples begin anew. by: the state
 * from which they do. */
const void *bppsa_tangent_before_steps(const recurrent_network *n, const recurrent_stretch *s, const void *states, const void *by,
                                       void *room);
/* Where a direction's products and tangents of a window are, which begins at the packed row; states: n and what is walked. */
layers_tangent bppsa_tangent_window(const recurrent_network *n, const tangent_arrays *a, const tangent_direction *d, int64_t row);
/* The cell's tangent_backward over all steps: from the products of d and the gradients in n->g, to the derivatives of the deltas in
 * the place of the products, and the rows `carried`. */
void bppsa_tangent_of_deltas(const recurrent_network *n, const tangent_arrays *a, const tangent_direction *d, void *carried);
/* The same of some steps: from the products of t and the rows of g, all [T+1][B][S], to the rows t->carried in front of the steps,
 * which are 0 at first. */
void bppsa_tangent_of_steps(const recurrent_network *n, const layers_tangent *t, const recurrent_stretch *s, const void *g);
/* Adds δ_h Ẇ_hh of some steps to the rows of q in front of them, and takes out those that go nowhere, which are summed. */
void bppsa_tangent_carry(const recurrent_network *n, const tangent_arrays *a, const recurrent_stretch *s, const void *delta_h,
                         void *rows);
/* The products behind the derivatives of weight gradients, with x (in: I) or with h (in: H). */
bppsa_linear bppsa_tangent_sums(const recurrent_network *n, int64_t in);
tangent_wanted bppsa_tangent_wants(const recurrent_network *n, const tangent_arrays *a, const bppsa_layer_gradients *to);
/* Adds the parts up: those from the first deltas to a->of_w_ih and of_w_hh, and those from the complete δ̇, in n->sums and
 * n->hidden_sums, to the results, to which it adds the former. */
void bppsa_tangent_finish_first(const recurrent_network *n, const tangent_arrays *a, const tangent_wanted *wanted, void *sums,
                                void *hidden_sums);
void bppsa_tangent_finish_weights(const recurrent_network *n, const tangent_arrays *a, const tangent_wanted *wanted,
                                  const bppsa_layer_gradients *to);
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

/* Does b_hh have its own sum? Otherwise it enters that of x W_ihᵀ. */
static inline bool tangent_bias_apart(const recurrent_network *n) {
  return n->cell->split && n->cell->separate_bias;
}

/* The row of the states in front of a stretch's first step. */
static inline int64_t tangent_front_row(const recurrent_network *n, const recurrent_stretch *s) {
  return n->batch - s->samples + s->row;
}

/* Calls `visit` for each sample that begins anew in front of a step of the stretch, step 0 too if `zeroth`. row: the number of the
 * step's row of the sample among the stretch's rows. */
typedef void (*tangent_reset_visit)(const recurrent_network *n, void *context, int64_t row);
void bppsa_tangent_each_reset(const recurrent_network *n, const recurrent_stretch *s, bool zeroth, tangent_reset_visit visit,
                              void *context);

/* The two walks of the derivative of the backward pass (recurrent_tangents). */
bppsa_status bppsa_tangent_first_walk(recurrent_network *n, tangent_arrays *a, const bppsa_layer_gradients *to);
bppsa_status bppsa_tangent_second_walk(recurrent_network *n, tangent_arrays *a, const bppsa_layer_gradients *to);

#endif
