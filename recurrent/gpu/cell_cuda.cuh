/* What a cell gives a recurrent network on a GPU: for each real type a table of launchers, and the arrays that they take.
 * recurrent/gpu/cell_launch.cuh makes the table from what a unit of the cell computes, in rnn/rnn_cuda.cu, gru/gru_cuda.cu and
 * lstm/lstm_cuda.cu. All work is queued on the stream. */
#ifndef BPPSA_RECURRENT_GPU_CELL_CUDA_CUH
#define BPPSA_RECURRENT_GPU_CELL_CUDA_CUH

#include <stdint.h>

#include "core/compute/check.cuh"
#include "core/compute/cluster.cuh"
#include "core/compute/far_bias.h"
#include "core/compute/launch.cuh"
#include "recurrent/cell.h"
#include "recurrent/gpu/resets.cuh"
#include "recurrent/gpu/walk_sums.cuh"
#include "scan/algorithm.h"

enum { CHUNK_HIDDEN = BPPSA_SCAN_FUSED_DIM }; /* the largest H of the fused kernels */

/* One layer's arrays, in GPU memory. NULL: the array does not exist or is not wanted. There are b samples in each step. */
template <typename real> struct layer_arrays {
  int64_t steps, batch, hidden, input; /* T, b, H, I */
  bool relu;                           /* the nonlinearity is ReLU */
  layer_resets resets;                 /* of the present batch, in the order of the layer's walk */
  const real *begin;                   /* [S]: the learned state from which samples begin anew; NULL: it is 0 */
  real *begun; /* [T][b][S]: receives Jᵀ_t g_t of the steps that reset their sample; NULL: no gradient of `begin` is wanted */
  const int64_t *pause; /* passes left that are sequential: at 0 a sequential pass does nothing; NULL: it runs */
  const real *w_ih, *b_ih, *w_hh, *b_hh;
  const real *x;             /* [T][b][I] */
  real *pre;                 /* [T][b][G·H]: x W_ihᵀ + b_ih, as of sum_bias; NULL: computed within the kernels if I = 1 */
  real *h;                   /* [T+1][b][H] */
  real *cells;               /* likewise c of a pair */
  real *saved;               /* [T][b][SAVED][H] */
  const real *last;          /* [b][S]: g_T, where S is H, of a pair 2H: the gradient of h in front of that of c */
  real *g;                   /* [T+1][b][S]: u_t on entry; g_t on return */
  bool injected, want_input; /* u_t is given; g_0 is wanted */
  bool store_g;              /* g_1 .. g_{T-1} are wanted */
  real *delta_x, *delta_h;   /* [T][b][G·H] */
  real *columns[BPPSA_CELL_MATRICES + 1], *diagonal; /* [T][b][H]: d_k, of a pair one more, and e */
};

/* The addresses of a unit's numbers of step t; its h_{t-1} is h[past]. */
template <typename real, template <typename> class cell> struct unit_place {
  const real *h;         /* h_t, where cell::EARLIER; otherwise h_{t-1} */
  const real *cells;     /* c_{t-1} of a pair */
  const real *saved;     /* vectors `hidden` apart */
  int64_t state, hidden; /* reals between two steps of h; H */
  unit_place() = default;
  __device__ unit_place(const layer_arrays<real> &c, int64_t past, int64_t unit)
      : h(c.h + past + (cell<real>::EARLIER ? c.batch * c.hidden : 0)), cells(cell<real>::PAIR ? c.cells + past : NULL),
        saved(cell<real>::SAVED > 0 ? c.saved + cell<real>::SAVED * (past - unit) + unit : NULL), state(c.batch * c.hidden),
        hidden(c.hidden) {}
  /* Moves to step t - 1. */
  __device__ void back() {
    h -= state;
    if (cell<real>::PAIR) {
      cells -= state;
    }
    if (cell<real>::SAVED > 0) {
      saved -= cell<real>::SAVED * state;
    }
  }
};

/* Number i of the state [S] from which samples begin anew. */
template <typename real> __device__ __forceinline__ real begin_number(const layer_arrays<real> &c, int64_t i) {
  return c.begin != NULL ? c.begin[i] : 0;
}

/* Puts the state from which samples begin anew in front of unit j's step. */
template <typename real, template <typename> class cell>
__device__ __forceinline__ void begin_unit(const layer_arrays<real> &c, int64_t j, cell<real> *unit) {
  unit->begin(begin_number(c, j), cell<real>::PAIR ? begin_number(c, c.hidden + j) : 0);
}

/* Where unit j's number of the gradient of that state goes; row: t b + sample of the step, t from 0. */
template <typename real, template <typename> class cell>
__device__ __forceinline__ real *begun_at(const layer_arrays<real> &c, int64_t row, int64_t j) {
  return c.begun + row * (1 + cell<real>::PAIR) * c.hidden + j;
}

/* Writes it; g_c: of c of a pair. */
template <typename real, template <typename> class cell>
__device__ __forceinline__ void put_begun(const layer_arrays<real> &c, int64_t row, int64_t j, real g, real g_c) {
  if (c.begun != NULL) {
    real *to = begun_at<real, cell>(c, row, j);
    to[0] = g;
    if constexpr (cell<real>::PAIR) {
      to[c.hidden] = g_c;
    }
  }
}

/* What a pass along a direction (recurrent/gpu/tangent_kernels.cuh) reads and writes besides. */
template <typename real> struct tangent_steps {
  real *product_x,
      *product_h;     /* [T][b][G·H]: tangents of x W_ihᵀ and of h_{t-1} W_hhᵀ; unless the cell splits product_x is both */
  real *h, *c;        /* [T+1][b][H]: tangents of the states; c of a pair */
  const real *before; /* [T][b][H]: the tangents of h in front of all steps */
  const real *begin;  /* [S]: the tangent of the state from which samples begin anew; NULL: 0 */
  real *own;          /* [T][b][S]: row t - 1 is a part of the derivative of g_{t-1} */
  __device__ __forceinline__ real begin_number(int64_t i) const {
    return begin != NULL ? begin[i] : 0;
  }
};

/* Returns the part of a bias with which sums of products begin: the near part (core/compute/far_bias.h) if it `cuts` (cell::FAR),
 * otherwise the whole bias. */
template <typename real> __device__ __forceinline__ real sum_bias(bool cuts, real bias) {
  return cuts ? bppsa_near_bias(bias) : bias;
}

/* May unit j have biases with far parts? Most have none. */
template <typename real> __device__ __forceinline__ bool unit_is_far(int gates, const layer_arrays<real> &c, int64_t j) {
  bool far = false;
  BPPSA_UNROLL
  for (int k = 0; k < gates; ++k) {
    far |= fabs(c.b_ih[k * c.hidden + j]) >= (real)BPPSA_LEAST_FAR || fabs(c.b_hh[k * c.hidden + j]) >= (real)BPPSA_LEAST_FAR;
  }
  return far;
}

/* A sum with a far part, rounded, and its rounding error. */
template <typename real> struct far_sum {
  real sum, rest;
  __device__ __forceinline__ far_sum(real near, real far) : sum(near + far), rest(near - (sum - far)) {}
};

/* Computes h_t of unit j from pre [K], h_{t-1} W_hhᵀ + b_hh [K] and h_{t-1}; *c_of, of a pair, is c_{t-1} on entry and c_t on
 * return. is_far: the unit may have far parts, which are then read again. Most layers have none, so the loops that run most steps
 * pass the constant false, and layers with far parts go through the loops for the last steps. */
template <typename real, template <typename> class cell>
__device__ __forceinline__ real unit_forward(const layer_arrays<real> &c, int64_t j, bool is_far, const real *pre,
                                             const real *product, real h, real *c_of, real *saved) {
  enum { K = cell<real>::MATRICES, SPLIT = cell<real>::SPLIT };
  if constexpr (cell<real>::FAR) {
    if (is_far) {
      real far[K], far_h = 0;
      BPPSA_UNROLL
      for (int k = 0; k < K; ++k) {
        const real of_h = (real)bppsa_far_bias(c.b_hh[k * c.hidden + j]);
        far_h = of_h;
        far[k] = (real)bppsa_far_bias(c.b_ih[k * c.hidden + j]) + (SPLIT && k + 1 == K ? 0 : of_h);
      }
      if constexpr (cell<real>::PAIR) {
        return cell<real>::forward_far(pre, product, far, c_of, saved);
      } else {
        return cell<real>::forward_far(pre, product, far, far_h, h, saved);
      }
    }
  }
  if constexpr (cell<real>::PAIR) {
    return cell<real>::forward(c.relu, pre, product, c_of, saved);
  } else {
    return cell<real>::forward(c.relu, pre, product, h, saved);
  }
}

/* What a unit computes from its gradients in a step backward: g of h and, of a pair, g_c of c. */
template <typename real, template <typename> class cell> struct unit_back {
  enum { K = cell<real>::MATRICES, PAIR = cell<real>::PAIR };
  real to_h[K]; /* gradients of h_{t-1} W_hhᵀ, and of x W_ihᵀ except in the last gate: there it is to_x */
  real to_x;
  real own, own_c; /* the part of the gradients of step t - 1 that does not go through W_hh */

  __device__ __forceinline__ unit_back(const cell<real> &unit, bool relu, real g, real g_c) {
    real d[K + PAIR], e, d_x, through = g; /* of a pair δ, and the last gate is between h and h */
    unit.factors(relu, d, &e, &d_x);
    if constexpr (PAIR) {
      through = g_c + d[K] * g;
    }
    BPPSA_UNROLL
    for (int k = 0; k < K; ++k) {
      to_h[k] = d[k] * (PAIR && k + 1 == K ? g : through);
    }
    to_x = d_x * g;
    own = PAIR ? 0 : unit.carried(through);
    own_c = PAIR ? unit.carried(through) : 0;
  }
};

/* Chunks of a layer's steps (chunk_kernels.cuh). */
template <typename real> struct chunk_arrays {
  int64_t chunks;      /* P, cut by bppsa_cut */
  int64_t links;       /* number of products, those of the first chunks: P - 1, or P where g_0 must be known before the walk */
  int multiprocessors; /* of the GPU */
  int shared_most;     /* bytes of shared memory that a block of it can have */
  /* [links][b][HP][HP], stored by columns: row r is the image of basis vector r, times 2^exponents[r]. Of a pair
   * [links][b][2 HP][2 HP], stored by rows: those of h in front of those of c. */
  real *products;
  int32_t *exponents; /* [links][b][S], S = H, of a pair 2H */
  real *norms;        /* likewise: the largest entry of each row; CUT_NORM if a reset cuts the product, which then is 0 */
  real *offsets;      /* [links][b][S]: the results of walks from 0; NULL unless gradients are injected */
  real *carried;      /* [links + 1][b][S]: g at the beginning of chunk p; of chunk P it is g_0 */
  bool from_zero;     /* walk: it goes from 0 to `offsets` and writes nothing else */
  /* [blocks][G·H·H + 2 G·H + (I = 1 ? G·H : 0)]: sums of dW_hh, db_hh, db_ih, dW_ih over the warps of each block; NULL: not
   * wanted. */
  real *partials;
  walk_targets<real> to;
  unsigned long long *redone;
  /* [1 + b]: how many samples, and which ones, a parallel backward pass in front has left to these kernels; NULL: all */
  const int *fallen;
  bool early; /* the launches begin early (core/compute/cluster.cuh) */
};

/* Called first by every thread of a kernel of chunks: is there nothing to do? */
template <typename real> __device__ __forceinline__ bool chunks_rest(const chunk_arrays<real> &s) {
  launch_wait();
  return s.fallen != NULL && s.fallen[0] == 0;
}

/* Is sample b one of those whose chunks are wanted? */
template <typename real> __device__ __forceinline__ bool chunks_want(const chunk_arrays<real> &s, int64_t b) {
  return s.fallen == NULL || s.fallen[1 + b] != 0;
}

template <typename real> struct speculate_arrays; /* of the parallel forward pass: recurrent/gpu/speculate_arrays.cuh */
template <typename real> struct back_arrays;      /* of the parallel backward pass: recurrent/gpu/speculate_back.cuh */
struct back_shape;

/* All functions: ERR_CUDA: the launch failed. */
template <typename real> struct cell_launchers {
  /* Asks for more shared memory than 48 KiB, once for each device. wide: H > CHUNK_HIDDEN, and forward and walk run on this device
   * all the same (wide_kernels.cuh). most_cluster: as of speculate_arrays. */
  bppsa_status (*prepare)(int64_t hidden, int device, int shared_most, bool *wide, int *most_cluster);
  /* Compute h_1 .. h_T and what is saved: forward for H <= CHUNK_HIDDEN or `wide`, forward_wide for any H with w_t [H][G·H], the
   * transpose of W_hh. */
  bppsa_status (*forward)(cudaStream_t stream, const layer_arrays<real> &c);
  bppsa_status (*forward_wide)(cudaStream_t stream, const layer_arrays<real> &c, const real *w_t, int shared_most);
  /* Computes the same in parallel, or sequentially during a pause; w_t is NULL where `forward` computes the layer. first, last: is
   * it the first, the last layer of the pass? */
  bppsa_status (*speculate)(cudaStream_t stream, const layer_arrays<real> &c, const speculate_arrays<real> &s, const real *w_t,
                            int shared_most, int64_t rounds, bool first, bool last);
  /* For a scan: coefficients computes d_k and e; deltas computes delta_x and delta_h from g. */
  bppsa_status (*coefficients)(cudaStream_t stream, const layer_arrays<real> &c);
  bppsa_status (*deltas)(cudaStream_t stream, const layer_arrays<real> &c);
  /* The fused backward pass, H <= CHUNK_HIDDEN. With more than one chunk: products computes transitions, and for injected
   * gradients what they add from the beginning of a chunk to its end. It does not read g_T. carry then computes s.carried, the
   * gradients at the beginnings of chunks, from g_T. walk goes through all chunks, or through one chunk as sequential BP; where
   * layers are `wide`, through one chunk only, and without sums. */
  bppsa_status (*products)(cudaStream_t stream, const layer_arrays<real> &c, const chunk_arrays<real> &s);
  bppsa_status (*carry)(cudaStream_t stream, const layer_arrays<real> &c, const chunk_arrays<real> &s);
  bppsa_status (*walk)(cudaStream_t stream, const layer_arrays<real> &c, const chunk_arrays<real> &s);
  /* The same as walk through one chunk, in parallel; H <= CHUNK_HIDDEN or `wide`. back_prepare finds, once for each device, the
   * most blocks of a sample that form a cluster and the most teams of a block; of a wide layer
   * (recurrent/gpu/speculate_back_wide.cuh) the most teams of a cluster, and 0 of a block. *most_cluster is 0 where the GPU has
   * no room. first, last: is it the first, the last layer of the pass? */
  bppsa_status (*back_prepare)(int64_t hidden, int device, int *most_cluster, int *most_teams);
  bppsa_status (*back)(cudaStream_t stream, const layer_arrays<real> &c, const back_arrays<real> &s, const back_shape &shape,
                       bool first, bool last);
  /* Along a direction. tangent: rows 1 .. T of the tangents of the states, from row 0 and the products without what comes from the
   * states in front of the steps; w_t as of forward_wide. curve: from the whole products and c.g the derivatives of the deltas, in
   * the place of the products, and s.own. */
  bppsa_status (*tangent)(cudaStream_t stream, const layer_arrays<real> &c, const tangent_steps<real> &s, const real *w_t,
                          int shared_most);
  bppsa_status (*curve)(cudaStream_t stream, const layer_arrays<real> &c, const tangent_steps<real> &s);
  bool (*scans)(int64_t hidden, int shared_most);   /* has a block room for products of chunks? H <= CHUNK_HIDDEN */
  bool (*sums)(int64_t hidden);                     /* can a walk sum weight gradients, because they fit into registers? */
  int64_t (*padded_hidden)(int64_t hidden);         /* HP */
  int64_t (*blocks)(int64_t chunks, int64_t batch); /* blocks of a walk; each has its own partial sums */
};

/* The properties for which the kernels were made; they must agree with the cell's table. */
struct cell_unit {
  int matrices, saved;
  bool diagonal, split, pair, far_biases;
};

struct bppsa_cell_cuda {
  cell_unit unit;
  cell_launchers<float> f32;
  cell_launchers<double> f64;
};

#endif
