/* y = x Wᵀ + b over many rows, and its gradients, for recurrent layers, linear operators and heads.
 *
 * Rows are cut into blocks of a fixed size, so that bits do not depend on the number of threads.
 */
#ifndef BPPSA_CORE_COMPUTE_LINEAR_H
#define BPPSA_CORE_COMPUTE_LINEAR_H

#include "core/base/view.h"

typedef struct {
  bppsa_dtype dtype;
  int32_t threads;
  int64_t rows, in, out;
  int64_t unit; /* rows that stay together when rows are cut: those of a time step */
  /* rows of a run, whose dy and x stay in the first-level cache together, a multiple of the unit; 0: as many as fit */
  int64_t run;
  int64_t block; /* rows in a task of the forward pass and of the input's gradient; 0: 256 */
  void *panels;  /* room for x of a run in panels, which bppsa_linear_sum_run then multiplies in wide layers; NULL: none */
  void *dw;      /* where a weight gradient that is one part, and not narrow, is summed; NULL: in the workspace, as all others */
} bppsa_linear;

/* Writes wᵀ to the first `out` columns of wt [in][row]; w [out][in]. */
void bppsa_linear_transpose(const bppsa_linear *l, const void *w, void *wt, int64_t row);

/* y [rows, out] = x [rows, in] wt + bias; wt [in, out], bias [out] or NULL. */
void bppsa_linear_forward(const bppsa_linear *l, const void *x, const void *wt, const void *bias, void *y);

/* y += x wt, where a row of y has y_row numbers, of which the first `out` are changed. */
void bppsa_linear_add(const bppsa_linear *l, const void *x, const void *wt, void *y, int64_t y_row);

/* dx [rows, in] = dy [rows, out] w */
void bppsa_linear_input_gradient(const bppsa_linear *l, const void *dy, const void *w, void *dx);

/* dw [out, in] = dyᵀ x and db [out] = Σ rows dy. The rows are cut into parts. Each part is summed by itself, and a fixed
 * binary tree adds the parts up. So a caller that computes dy in pieces can have parts summed while they are in the cache, with
 * the same bits. workspace holds bppsa_linear_workspace(l) bytes. */
typedef struct {
  int64_t parts, length; /* part p: rows p·length .. min((p + 1)·length, rows) - 1; length is a multiple of the unit */
} bppsa_linear_cut;
bppsa_linear_cut bppsa_linear_cut_rows(const bppsa_linear *l);
/* Sums parts first .. first + count - 1. dy and x point to row first·length. db is summed for outputs bias_from .. out - 1
 * only. */
void bppsa_linear_sum_parts(const bppsa_linear *l, int64_t first, int64_t count, const void *dy, const void *x, int64_t bias_from,
                            void *workspace);
/* Sums one run: rows first .. first + rows - 1 of a part of `part_rows` rows. The runs of a part must be
 * summed from its last to its first, as bppsa_linear_sum_parts does. dy and x point to the run. */
void bppsa_linear_sum_run(const bppsa_linear *l, int64_t part, int64_t part_rows, int64_t first, int64_t rows, const void *dy,
                          const void *x, int64_t bias_from, void *workspace);
/* Adds all parts up into dw and, unless NULL, into db, whose elements before bias_from stay undefined. */
void bppsa_linear_finish(const bppsa_linear *l, void *dw, void *db, void *workspace);
/* Computes all of dw and db in one call. db NULL: not wanted. */
void bppsa_linear_weight_gradient(const bppsa_linear *l, const void *dy, const void *x, void *dw, void *db, void *workspace);

/* Bytes of workspace; -1 if they do not fit in 64 bits. At most about 64 partial sums of 64 rows of dw, or one of all rows. */
int64_t bppsa_linear_workspace(const bppsa_linear *l);

#endif
