/* A recurrent cell: a table of what it is and what it can do. Networks, training, scans and the cost model know no more about a
 * cell than this table.
 *
 * A cell is h_t = f(x W_ihᵀ + b_ih, h_{t-1} W_hhᵀ + b_hh, h_{t-1}), element by element, with G gates stacked in W_ih [G·H][I],
 * W_hh [G·H][H] and the biases [G·H]. Its transposed Jacobian has the form (BPPSA eq. 9 and appendix E)
 *
 *     Jᵀ_t = Σ_k W_kᵀ diag(d_{k,t}) + diag(e_t)        k = 0 .. K - 1
 *
 * where W_k is the k-th H x H block of W_hh. A cell whose state is a pair (h_t, c_t), H numbers each, has the Jacobian of a pair
 * (BPPSA_ELEMENT_PAIR in scan/plan.h) instead, f is given c_{t-1} as well, and h alone is its output. S is the size of a state: H,
 * or 2H of a pair, h in front of c. The network handles biases, products with x, weight gradients, windows, threads and
 * the scan; the cell computes what is between the products. A program may define a cell of its own: the sources of bppsa have one
 * as an example, a minimal gated unit with its gradients checked.
 *
 * An entry that is empty is something the cell cannot do: a caller that needs it gets BPPSA_ERR_UNSUPPORTED and a sentence, and
 * nothing else runs in its place.
 */
#ifndef BPPSA_RECURRENT_CELL_H
#define BPPSA_RECURRENT_CELL_H

#include "core/base/view.h"
#include "jacobian/op.h"
#include "recurrent/cells.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BPPSA_CELL_MATRICES = 8 }; /* the largest K */

/* The arguments of a cell's function: one block of samples of one layer, all steps of a window. Arrays are row-major and hold b
 * samples for each step; sample `first` of step t begins at (t·b + first)·width. Reals are of the function's type. */
typedef struct {
  int64_t steps, batch, hidden; /* steps of the window, b, H */
  int64_t first, samples;       /* the block: samples first .. first + samples - 1 */
  bppsa_nonlinearity nonlinearity;
  const void *w_hh;       /* [G·H][w_row] */
  const void *w_hh_t;     /* [H][w_row_t], its transpose */
  int64_t w_row, w_row_t; /* H and G·H, padded to whole cache lines */
  const void *b_hh;       /* [G·H]; forward of a cell with far_biases: their near parts */
  const void *far;   /* forward of a cell with far_biases: [G·H], added to the sums of both products; NULL: all of it is 0 */
  const void *far_h; /* likewise [(G - split_from)·H], added to h_{t-1} W_hhᵀ where the cell splits; NULL where far is */
  void *pre;         /* forward: [steps][b][G·H], x W_ihᵀ + b_ih (+ b_hh unless separate_bias); the cell may overwrite it */
  void *h;           /* [steps + 1][b][H]: row t is h after step t of the window, row 0 the state before it */
  void *c;           /* likewise c of a pair; otherwise NULL */
  void *saved;       /* [steps][b][saved·H]: row t - 1 is what forward keeps of step t for backward; NULL if `saved` is 0 */
  void *g;           /* [steps + 1][b][S]: row t is the gradient of state t; the last row is given */
  /* backward: the other rows of g hold u_t, to which the carried gradient is added; otherwise they are undefined */
  bool injected;
  bool input;           /* backward: row 0 of g is wanted too */
  void *delta_x;        /* [steps][b][G·H]: row t - 1 is the gradient of x_t W_ihᵀ + b_ih */
  void *delta_h;        /* likewise of h_{t-1} W_hhᵀ (+ b_hh if separate_bias); the same memory as delta_x unless `split` */
  void *const *columns; /* coefficients: d_k, K pointers (of a pair K + 1) to [steps][b][H]; row t - 1 belongs to step t */
  void *diagonal;       /* coefficients: e [steps][b][H] if `diagonal` */
  const void *panels;   /* of a cell with takes_panels, or NULL: forward reads this instead of w_hh_t, backward instead of w_hh */
  int32_t threads;      /* with panels: at most so many threads share a step of the block */
  /* tangent and tangent_backward: derivatives along a direction. product_x [steps][b][G·H]: row t - 1 is that of x_t W_ihᵀ +
   * b_ih; product_h: that of h_{t-1} W_hhᵀ (+ b_hh if separate_bias), for `tangent` without the part that comes from h_{t-1}.
   * Unless `split` they are the same memory, which holds the sum of both. backward, of a cell that has tangents: NULL, or what the
   * deltas are added to, and the sums then stand in the deltas' places: g_{t-1} = (product_h_t + delta_h_t) W_hh + .. */
  void *product_x, *product_h;
  void *h_tangent, *c_tangent; /* [steps + 1][b][H], of h and of c */
  void *carried; /* [steps + 1][b][S]: row t - 1 is the derivative of the part of g_{t-1} that does not go through W_hh */
} bppsa_cell_block;

/* Several threads run blocks at the same time. A function writes only to the arrays above, allocates nothing and cannot fail. A
 * sample's bits must not depend on the block or the window that it is in. */
typedef void (*bppsa_cell_fn)(const bppsa_cell_block *block);

struct bppsa_cell {
  const char *name;   /* "rnn": also the prefix of its parameters' names; at most 15 characters */
  int64_t gates;      /* G >= 1 */
  int64_t matrices;   /* K: 1 .. G, at most BPPSA_CELL_MATRICES */
  bool diagonal;      /* e is present */
  bool pair;          /* the state is a pair (h, c); `diagonal` must be set */
  bool relu;          /* the nonlinearity can be ReLU; otherwise it must be BPPSA_NONLINEARITY_TANH, the cell's own */
  bool split;         /* delta_h differs from delta_x */
  int64_t split_from; /* only in the gates from this one on */
  bool separate_bias; /* b_hh is not added to pre: the cell adds it to h_{t-1} W_hhᵀ */
  /* A large bias is cut in two: a whole number, its far part, and what is left. pre and b_hh have what is left alone, and the
   * cell adds the far parts. Its gates then keep their digits however far the biases open or close them. */
  bool far_biases;
  int64_t saved; /* H-vectors kept for each step and sample */
  /* On a CPU, for BPPSA_F32 and BPPSA_F64. forward is always needed; backward for sequential BP and linear scans; coefficients
   * and deltas for the other scans. */
  bppsa_cell_fn forward[2]; /* pre, h_0 -> h_1 .. h_T, saved; of a pair also c_0 -> c_1 .. c_T */
  /* g_T, u -> g_{T-1} .. g_1 (g_0 if `input`), deltas: g_{t-1} = delta_h_t W_hh + e_t ∘ g_t + u_{t-1}, where
   * e_t ∘ stands for the part of the Jacobian that does not go through W_hh */
  bppsa_cell_fn backward[2];
  bppsa_cell_fn coefficients[2]; /* h, saved -> columns, diagonal */
  bppsa_cell_fn deltas[2];       /* g_1 .. g_T, h, saved -> deltas */
  /* Derivatives in one direction (recurrent/tangent.c), on a CPU. Empty: not supported.
   *
   * product_x, product_h, row 0 of the tangents, h, c, saved -> the other rows of the tangents: the linearised recurrence. It
   * adds to product_h what comes from h_{t-1}. */
  bppsa_cell_fn tangent[2];
  /* product_x, product_h (whole), tangents, h, c, saved, g_1 .. g_T -> in the place of product_x and product_h the derivatives of
   * delta_x and delta_h, where g does not change; of a cell with a diagonal also rows 0 .. steps - 1 of `carried`. */
  bppsa_cell_fn tangent_backward[2];
  bool tangents_suffice; /* tangent_backward reads the tangents of the states, and not the products, which need not be computed */
  /* Rows [rows][saved·H] of what forward keeps in f32, as f64 numbers of the same values: makes of them what the functions for f64
   * would keep. NULL: they are that already. */
  void (*widen)(int64_t rows, int64_t hidden, double *saved);
  /* Returns the table of the cell's kernels on a GPU. The table's members are private to the library, so a cell outside it has
   * NULL. The cell has no kernels if this is NULL or returns NULL. */
  const struct bppsa_cell_cuda *(*cuda)(void);
  const bppsa_step *step; /* one step as an operator (jacobian/op.h), for its sparse Jacobian; NULL: none */
  /* forward and backward take W_hh as the library packs it for wide layers. The layout is private to the library, so a cell
   * outside it leaves this false. */
  bool takes_panels;
};

#ifdef __cplusplus
}
#endif
#endif
