/* The inside of recurrent networks on a CPU: what the files of their passes share. */
#ifndef BPPSA_RECURRENT_LAYERS_CPU_H
#define BPPSA_RECURRENT_LAYERS_CPU_H

#include <string.h>

#include "recurrent/recurrent_internal.h"

static inline int64_t layers_size_of(const recurrent_network *n) {
  return (int64_t)bppsa_dtype_size(n->config.dtype);
}

/* Copies a row of so many reals; NULL: zeros. */
static inline void layers_put_row(const recurrent_network *n, const void *from, int64_t width, void *to) {
  const size_t bytes = (size_t)(width * layers_size_of(n));
  if (from != NULL) {
    memcpy(to, from, bytes);
  } else {
    memset(to, 0, bytes);
  }
}

static inline bppsa_linear layers_linear(const recurrent_network *n, int64_t rows, int64_t in, int64_t out) {
  return (bppsa_linear){n->config.dtype, n->threads, rows, in, out, .unit = n->batch};
}

static inline bool layers_have_sides(const recurrent_network *n) {
  return n->config.bidirectional;
}

/* Do passes step by step read W_hh and W_ih in panels (core/compute/matmul.h)? Yes, where W_hh exceeds the first-level cache. */
static inline bool layers_in_panels(const recurrent_network *n) {
  enum { CACHE = 1 << 15 };
  return n->cell->takes_panels && n->cell->gates * n->config.hidden > CACHE / layers_size_of(n) / n->config.hidden;
}

/* Is the layer so wide that threads share single steps? */
static inline bool layers_wide(const recurrent_network *n) {
  enum { WIDE = 129 };
  return n->cell->takes_panels && n->config.hidden >= WIDE;
}

/* ---- windows of time (sweep_cpu.c) ---- */

/* What a pass along a direction (tangent_cpu.c) reads and writes besides. */
typedef struct {
  void *product_x, *product_h; /* at the window's first step */
  void *h, *c;                 /* the tangents of the states of all steps; c of a pair */
  void *carried;               /* in front of the first step, as g */
  const void *reset_state;     /* the tangent [S] of the state from which samples begin anew; NULL: 0 */
  void *copies[2];             /* [2][B][H]: room for the tangents of h and c in front of and behind a step that resets some */
  bool copied;                 /* the states in front of the first step are in `copies` */
} layers_tangent;

/* Some steps of the samples that run (ragged.c). */
typedef struct {
  int64_t first, row, steps, samples; /* first: step of the layer's walk, from 0; row: its, among those of all steps */
  void *pre, *delta_h;                /* at the first step */
  void *g;                            /* in front of the first step */
  bool input;                         /* the gradient of the states in front of the first step is wanted */
  void *h, *c;                        /* the states in front of the first step, if they are not the layer's */
  const layers_tangent *tangent;      /* of a pass along a direction; otherwise NULL */
} layers_window;

/* Is g_0 wanted? */
bool bppsa_layers_want_first(const recurrent_network *n);
layers_window bppsa_layers_whole(const recurrent_network *n);
/* Rows of a run, in whole steps: so many that deltas, states and gradients fit, and enough for the products. */
int64_t bppsa_layers_run_rows(const recurrent_network *n);
int64_t bppsa_layers_most_run_rows(const recurrent_network *n); /* of any batch */
/* Room for the rows that a run's weight gradients multiply, behind W_hh in n->panels; NULL: of a layer without panels. */
void *bppsa_layers_run_panels(const recurrent_network *n);
/* Steps of a window: one run, or 256 KiB of pre-activations and enough rows to share among threads. */
int64_t bppsa_layers_window_steps(const recurrent_network *n);
/* Calls a cell's function for all samples on the calling thread; columns and diagonal begin at the first step. */
void bppsa_layers_cell_block(const recurrent_network *n, bppsa_cell_fn function, int64_t l, const layers_window *w,
                             void *const *columns, void *diagonal);
/* Where a pass stops for samples that begin anew (resets.c). The factors of Jacobians need no stop, because a scan does not read
 * those of such steps; deltas need one for the states, but go on with the gradients that a scan has found. */
typedef enum { LAYERS_NO_STOP, LAYERS_FORWARD, LAYERS_BACKWARD, LAYERS_DELTAS, LAYERS_TANGENT } layers_stops;
layers_stops bppsa_layers_stops_of(const recurrent_network *n, bppsa_cell_fn const functions[2]);
/* Calls a cell's function for all samples. Forward, backward and tangent of a layer in panels read n->panels. */
void bppsa_layers_sweep(const recurrent_network *n, bppsa_cell_fn const functions[2], int64_t l, const layers_window *w,
                        bool injected);

/* ---- inputs and gradients of layers (layers_cpu.c) ---- */

/* The layer's input in the present batch: its rows without gaps. */
const void *bppsa_layers_input_of(const recurrent_network *n, int64_t l);
/* The end of g, `rows` rows of so many numbers each. */
void *bppsa_layers_end_of_g(const recurrent_network *n, int64_t rows, int64_t width);
/* Prepares W_hhᵀ and the biases of the layer for its forward pass, and W_ihᵀ in n->w_t. panels: for a pass step by step;
 * otherwise as rows. */
void bppsa_layers_prepare_forward(recurrent_network *n, int64_t l, bool panels);
void bppsa_layers_prepare_input(const recurrent_network *n, int64_t l, bool panels);
/* Copies W_hh of the layer with padded rows for its backward pass, which is a scan or in chunks. */
void bppsa_layers_pad_weights(const recurrent_network *n, int64_t l);
/* Prepares W_hh of the layer for BP: such a copy, or panels. */
void bppsa_layers_prepare_back(const recurrent_network *n, int64_t l);
/* Writes the gradient of the last states to the end of g: rows [b][H], or NULL for 0. */
void bppsa_layers_seed_last(recurrent_network *n, const void *rows);
/* rows = deltas W_ih, of all steps, or of some rows at a time once the weights are prepared in n->w_t. */
bppsa_status bppsa_layers_input_gradient(recurrent_network *n, int64_t l, void *rows);
void bppsa_layers_prepare_input_gradient(const recurrent_network *n, int64_t l);
void bppsa_layers_multiply_deltas(const recurrent_network *n, int64_t l, int64_t rows, const void *deltas, void *to);

/* ---- backward passes (backward_cpu.c) ---- */

/* The factors of the layer's Jacobians for a scan, in n->columns and n->diagonal, [T][b] with 0 behind a sample's end. */
void bppsa_layers_scan_factors(recurrent_network *n, int64_t l);
/* BP or a scan of layer l through a segment of n's steps, v, whose last state has the gradient `behind`; NULL: that of the last
 * step, in v->g. Otherwise the segment's last step belongs to the next segment as well, which has summed its weight gradients.
 * *end: the gradient of the states behind the segment's first step, [b][S] in v->g. */
bppsa_status bppsa_layers_segment(const recurrent_network *n, recurrent_network *v, int64_t l, const void *behind,
                                  const void **end);
/* The step behind the first run of the weight gradients, which are summed run by run, that ends `steps` steps behind the step
 * `first` or later; at most T. */
int64_t bppsa_layers_run_end(const recurrent_network *n, int64_t first, int64_t steps);
/* Adds up layer l's weight gradients when all of its steps have been summed, and what follows from g_0 in n->g. */
void bppsa_layers_finish(const recurrent_network *n, int64_t l);
bppsa_status bppsa_layers_give_inputs(recurrent_network *n, int64_t l);
/* Computes the states of all layers. */
bppsa_status bppsa_layers_forward(recurrent_network *n, const void *h0);
/* The layer's deltas and the gradients of its states, without weight gradients. */
bppsa_status bppsa_layers_sweep_back(recurrent_network *n, int64_t l);
bppsa_status bppsa_layers_backward(recurrent_network *n, int64_t l);
/* The gradient of the state in front of the first step, of samples that begin anew there, goes nowhere: writes 0 to its row. */
void bppsa_layers_clear_cuts(recurrent_network *n, int64_t l);

/* ---- memory (arrays_cpu.c) ---- */

/* Bytes of the weight gradients' parts: of W_hh (`hidden`), or of W_ih and W_lin, which share them. -1: they do not fit in 64
 * bits. */
int64_t bppsa_layers_sums_bytes(const recurrent_network *n, bool hidden);
bppsa_status bppsa_layers_visit(recurrent_network *n, bool scans, bppsa_recurrent_visit visit, int64_t *bytes);
bppsa_status bppsa_layers_allocate(recurrent_network *n, bool scans);
void bppsa_layers_destroy(recurrent_network *n);

#endif
