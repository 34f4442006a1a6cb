/* What a cell gives a recurrent network on a GPU: for each real type a table of launchers, and the arrays that they take.
 * recurrent/cell_launch.cuh makes the table from what a unit of the cell computes, in rnn/rnn_cuda.cu and gru/gru_cuda.cu. All work
 * is queued on the stream. */
#ifndef BPPSA_RECURRENT_CELL_CUDA_CUH
#define BPPSA_RECURRENT_CELL_CUDA_CUH

#include <stdint.h>

#include "core/check.cuh"
#include "recurrent/cell.h"
#include "scan/algorithm.h"

enum { CHUNK_HIDDEN = BPPSA_SCAN_FUSED_DIM }; /* the largest H of the fused kernels */

/* One layer's arrays, in GPU memory. NULL: the array does not exist or is not wanted. There are b samples in each step. */
template <typename real> struct layer_arrays {
  int64_t steps, batch, hidden, input; /* T, b, H, I */
  bool relu;                           /* the nonlinearity is ReLU */
  const int64_t *pause;                /* passes left that are sequential: at 0 a sequential pass does nothing; NULL: it runs */
  const real *w_ih, *b_ih, *w_hh, *b_hh;
  const real *x;             /* [T][b][I] */
  real *pre;                 /* [T][b][G·H]: x W_ihᵀ + b_ih; NULL: computed within the kernels from an input of size 1 */
  real *h;                   /* [T+1][b][H] */
  real *saved;               /* [T][b][SAVED][H] */
  const real *last;          /* [b][H]: g_T */
  real *g;                   /* [T+1][b][H]: u_t on entry; g_t on return */
  bool injected, want_input; /* u_t is given; g_0 is wanted */
  bool store_g;              /* g_1 .. g_{T-1} are wanted */
  real *delta_x, *delta_h;   /* [T][b][G·H] */
  real *columns[BPPSA_CELL_MATRICES], *diagonal; /* [T][b][H]: d_k and e */
};

/* The addresses of a unit's numbers of step t; its h_{t-1} is h[past]. */
template <typename real, template <typename> class cell> struct unit_place {
  const real *h;         /* h_t, where cell::EARLIER; otherwise h_{t-1} */
  const real *saved;     /* vectors `hidden` apart */
  int64_t state, hidden; /* reals between two steps of h; H */
  unit_place() = default;
  __device__ unit_place(const layer_arrays<real> &c, int64_t past, int64_t unit)
      : h(c.h + past + (cell<real>::EARLIER ? c.batch * c.hidden : 0)),
        saved(cell<real>::SAVED > 0 ? c.saved + cell<real>::SAVED * (past - unit) + unit : NULL), state(c.batch * c.hidden),
        hidden(c.hidden) {}
  /* To step t - 1. */
  __device__ void back() {
    h -= state;
    if (cell<real>::SAVED > 0) {
      saved -= cell<real>::SAVED * state;
    }
  }
};

/* Chunks of a layer's steps (chunk_kernels.cuh). */
template <typename real> struct chunk_arrays {
  int64_t chunks;      /* P, cut by bppsa_cut */
  int64_t links;       /* the products, of the first chunks: P - 1; P where g_0 is to be known before the walk */
  int multiprocessors; /* of the GPU */
  int shared_most;     /* bytes of shared memory that a block of it can have */
  real *products;      /* [links][b][HP][HP], stored by columns: row r is the image of basis vector r, times 2^exponents[r] */
  int32_t *exponents;  /* [links][b][H] */
  real *norms;         /* likewise: the largest entry of each row */
  real *offsets;       /* [links][b][H]: the results of walks from 0; NULL unless gradients are injected */
  real *carried;       /* [links + 1][b][H]: g at the beginning of chunk p; of chunk P it is g_0 */
  bool from_zero;      /* walk: from 0 to `offsets`, and writes nothing else */
  /* [blocks][G·H·H + 2 G·H + (I = 1 ? G·H : 0)]: sums of dW_hh, db_hh, db_ih, dW_ih over the warps of each block; NULL: not
   * wanted. */
  real *partials;
  unsigned long long *redone;
};

template <typename real> struct speculate_arrays; /* of the parallel forward pass: recurrent/speculate.cuh */

/* All functions: ERR_CUDA: the launch failed. */
template <typename real> struct cell_launchers {
  /* Asks for more shared memory than 48 KiB, once for each device. wide: H > CHUNK_HIDDEN, and forward and walk run on this device
   * all the same (wide_kernels.cuh). */
  bppsa_status (*prepare)(int64_t hidden, int device, int shared_most, bool *wide);
  /* Compute h_1 .. h_T and what is saved: forward for H <= CHUNK_HIDDEN or `wide`, forward_wide for any H with w_t [H][G·H], the
   * transpose of W_hh. */
  bppsa_status (*forward)(cudaStream_t stream, const layer_arrays<real> &c);
  bppsa_status (*forward_wide)(cudaStream_t stream, const layer_arrays<real> &c, const real *w_t, int shared_most);
  /* The same in parallel, or, during a pause, sequentially; w_t NULL where forward computes the layer. first and last: of the
   * pass's layers. */
  bppsa_status (*speculate)(cudaStream_t stream, const layer_arrays<real> &c, const speculate_arrays<real> &s, const real *w_t,
                            int shared_most, int64_t rounds, bool first, bool last);
  /* For a scan: coefficients computes d_k and e; deltas computes delta_x and delta_h from g. */
  bppsa_status (*coefficients)(cudaStream_t stream, const layer_arrays<real> &c);
  bppsa_status (*deltas)(cudaStream_t stream, const layer_arrays<real> &c);
  /* The fused backward pass, H <= CHUNK_HIDDEN. With more than one chunk: products computes transitions, and what injected
   * gradients give from the beginning of a chunk to its end; then carry the gradients at the beginnings of chunks, to s.carried,
   * from g_T, which products does not read. walk: goes through all chunks, or through one chunk as sequential
   * BP; where layers are `wide`, through one chunk only, and without sums. */
  bppsa_status (*products)(cudaStream_t stream, const layer_arrays<real> &c, const chunk_arrays<real> &s);
  bppsa_status (*carry)(cudaStream_t stream, const layer_arrays<real> &c, const chunk_arrays<real> &s);
  bppsa_status (*walk)(cudaStream_t stream, const layer_arrays<real> &c, const chunk_arrays<real> &s);
  bool (*sums)(int64_t hidden);                     /* can a walk sum weight gradients, because they fit into registers? */
  int64_t (*padded_hidden)(int64_t hidden);         /* HP */
  int64_t (*blocks)(int64_t chunks, int64_t batch); /* blocks of a walk; each has its own partial sums */
};

/* The properties for which the kernels were made; they must agree with the cell's table. */
struct cell_unit {
  int matrices, saved;
  bool diagonal, split;
};

struct bppsa_cell_cuda {
  cell_unit unit;
  cell_launchers<float> f32;
  cell_launchers<double> f64;
};

#endif
