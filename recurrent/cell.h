/* What one kind of recurrent cell adds to the shared layer: a small table.
 *
 * A cell's Jacobian has the form Jᵀ_t = Σ_k W_kᵀ diag(d_{k,t}) + diag(e_t), where W_k is the k-th H x H block of W_hh.
 * Its functions work on one block of samples for all time steps (a block is one thread's task) and allocate nothing.
 */
#ifndef BPPSA_RECURRENT_CELL_H
#define BPPSA_RECURRENT_CELL_H

#include "recurrent/recurrent.h"

/* One layer's arrays, contiguous, b samples a step; h_t is at h + t·b·H. */
typedef struct {
  int64_t steps, batch, hidden; /* T, b, H */
  int64_t first, samples;       /* the block: samples first .. first + samples - 1 */
  bppsa_nonlinearity nonlinearity;
  const void *w_hh;       /* [G·H][w_row] */
  const void *w_hh_t;     /* [H][w_row_t], its transpose */
  int64_t w_row, w_row_t; /* H and G·H, padded to whole cache lines: the kernels then need no masks */
  const void *b_hh;       /* [G·H] */
  void *pre;              /* [T][b][G·H] in forward: x W_ihᵀ + b_ih (+ b_hh) on entry, the cell's to overwrite */
  void *h;                /* [T+1][b][H], h_0 given */
  void *saved;            /* [T][b][saved·H] what backward needs beside h; NULL when saved is 0 */
  void *g;                /* [T+1][b][H] gradients; backward: g_T is the seed, and g_t holds u_t when injected */
  bool injected;
  bool input;    /* g_0 is wanted */
  void *delta_x; /* [T][b][G·H] gradient of x W_ihᵀ + b_ih */
  void *delta_h; /* [T][b][G·H] gradient of h_{t-1} W_hhᵀ + b_hh; the same memory as delta_x unless the cell splits them */
  void *const *columns; /* d_k: K pointers to [T][b][H] */
  void *diagonal;       /* e: [T][b][H] or NULL */
} bppsa_cell_block;

typedef void (*bppsa_cell_fn)(const bppsa_cell_block *block);

typedef struct {
  const char *name;   /* also the prefix of parameter names: "rnn" */
  int64_t gates;      /* G */
  int64_t matrices;   /* K */
  bool diagonal;      /* e is present */
  bool split;         /* delta_h differs from delta_x */
  int64_t split_from; /* in the gates from this one on */
  bool separate_bias; /* b_hh is not simply added to pre */
  int64_t saved;      /* H-vectors kept per step and sample */
  /* [dtype]: f32, f64 */
  bppsa_cell_fn forward[2];      /* pre, h_0 -> h_1 .. h_T, saved */
  bppsa_cell_fn backward[2];     /* sequential BP: g_T, u -> g_{T-1} .. g_1 (g_0 when wanted), deltas */
  bppsa_cell_fn coefficients[2]; /* h, saved -> columns, diagonal */
  bppsa_cell_fn deltas[2];       /* g, h, saved -> deltas */
} bppsa_cell;

/* Checks the configuration, allocates everything (backward included: later passes allocate nothing) and hands out the model.
 * The device must outlive it. */
bppsa_status bppsa_recurrent_create(const bppsa_recurrent_config *config, const bppsa_cell *cell, const bppsa_device *device,
                                    bppsa_model **model);

#endif
