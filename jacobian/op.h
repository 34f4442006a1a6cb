/* Operators of networks, their attributes and shapes: the one description that all networks use.
 *
 * Images are [C][H][W]. An output position X of an axis sees the input positions x = s X + d t - p of its taps t = 0 .. k-1,
 * where s is the stride, d the dilation and p the padding in front (BPPSA appendix D has k = 3, p = s = d = 1).
 */
#ifndef BPPSA_JACOBIAN_OP_H
#define BPPSA_JACOBIAN_OP_H

#include "core/base/view.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  BPPSA_OPERATOR_CONV2D = 0, /* weights [Co][Ci / groups][kh][kw] */
  BPPSA_OPERATOR_LINEAR,     /* weights [Co][C H W] */
  BPPSA_OPERATOR_RELU,
  BPPSA_OPERATOR_LEAKY_RELU,
  BPPSA_OPERATOR_TANH,
  BPPSA_OPERATOR_SIGMOID,
  BPPSA_OPERATOR_MAXPOOL2D,
  BPPSA_OPERATOR_AVGPOOL2D,
  BPPSA_OPERATOR_FLATTEN,
  BPPSA_OPERATOR_RELU6,       /* min(max(x, 0), 6) */
  BPPSA_OPERATOR_HARDSIGMOID, /* relu6(x + 3) / 6 */
  BPPSA_OPERATOR_HARDSWISH,   /* x relu6(x + 3) / 6 */
  BPPSA_OPERATOR_SILU,        /* x / (1 + e^-x) */
  BPPSA_OPERATOR_GELU,
  /* x Φ(x), Φ the standard normal distribution, or its approximation by tanh */
  BPPSA_OPERATOR_ADAPTIVE_AVGPOOL2D, /* output X is the mean of the inputs floor(X in / out) .. ceil((X + 1) in / out) - 1 */
  BPPSA_OPERATOR_GLOBAL_AVGPOOL,     /* the same with an output of 1 x 1 */
  BPPSA_OPERATOR_BATCHNORM2D, /* y = w (x - m) / sqrt(v + epsilon) + b with numbers w, b and given statistics m, v of a channel */
  BPPSA_OPERATOR_DROPOUT,     /* while it drops, 0 with probability p and otherwise x / (1 - p); else the identity */
  BPPSA_OPERATOR_STEP,        /* one step of a recurrent cell, from a state of size C to the next; op.step is the cell's table */
  BPPSA_OPERATOR_COUNT
} bppsa_operator;

enum { BPPSA_STEP_GATES = 8 }; /* the most gates of a step */

/* A recurrent cell's step h = f(W_ih x + b_ih, W_hh h_{-1} + b_hh, h_{-1}) as an operator; each cell of the library has such
 * a table. Jᵀ = Σ_k W_kᵀ diag(d_k) + diag(e), W_k the k-th H x H block of W_hh. A cell whose state
 * is a pair (h, c), as an LSTM's, has, with b = d_K,
 *
 *     Jᵀ = | (Σ_{k < K-1} W_kᵀ diag(d_k)) diag(b) + W_{K-1}ᵀ diag(d_{K-1})    Σ_{k < K-1} W_kᵀ diag(d_k) |
 *          | diag(e) diag(b)                                                 diag(e)                    | */
typedef struct {
  const char *name; /* "rnn" */
  int64_t gates;    /* number of blocks, 1 .. BPPSA_STEP_GATES */
  bool diagonal;    /* e is present */
  bool pair;        /* the state is a pair (h, c), C = 2H numbers; e must be present */
  /* Computes d [gates] of one unit, then e if it is present, then b of a pair, from x = W_ih x + b_ih [gates], h = W_hh h_{-1} +
   * b_hh [gates], and h_{-1}, or c_{-1} of a pair. x and h are float64 for both types: a product that is rounded next to a large
   * bias loses digits that the factors need. NULL: the step has no factors of this type. */
  void (*factors_f32)(bool relu, const double *x, const double *h, float before, float *d);
  void (*factors_f64)(bool relu, const double *x, const double *h, double before, double *d);
  /* Returns the table of kernels that compute the same factors on a GPU. The table's members are private to the library, so a
   * step outside it has NULL. The step has no kernels if this is NULL or returns NULL. */
  const struct bppsa_step_cuda *(*cuda)(void);
} bppsa_step;

typedef struct {
  bppsa_operator kind;
  const bppsa_step *step;                    /* step: borrowed */
  int64_t in[3];                             /* C, H, W; step: H, 1, 1, of a pair 2H, 1, 1 */
  int64_t out_channels;                      /* conv2d, linear */
  int64_t kernel[2], stride[2], dilation[2]; /* along height and width: conv2d, pools */
  int64_t padding[4];                        /* top, bottom, left, right */
  int64_t groups;                            /* conv2d */
  int64_t size[2];                           /* adaptive_avgpool2d: height and width of the output; global_avgpool: 1 x 1 */
  bool ceil_mode;                            /* pools: a window that begins inside counts even if it ends outside */
  bool exclude_pad;                          /* avgpool2d: padding does not count in the divisor */
  bool relu;                                 /* step: the cell's nonlinearity is ReLU */
  double slope;                              /* leaky_relu, for inputs below 0 */
  double epsilon, momentum;                  /* batchnorm2d: added to the variance; the weight of a batch in running statistics */
  double p;                                  /* dropout */
  bool dropping;                             /* dropout: numbers are left out, so that Jᵀ has values */
  bool approximate; /* gelu: x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2, PyTorch's approximate="tanh" */
} bppsa_op;

/* An operator with kernel, stride, dilation and groups 1, no padding, slope 0.01, output size, epsilon 1e-5, momentum 0.1, p 0.5,
 * shape 1 x 1 x 1. A pool's stride is not taken
 * from its kernel. */
bppsa_op bppsa_op_default(bppsa_operator kind);

/* "conv2d": the operator's name on the command line. */
const char *bppsa_operator_name(bppsa_operator kind);
/* The same, but for a step its cell's name: "rnn". */
const char *bppsa_op_name(const bppsa_op *op);
bppsa_status bppsa_operator_parse(const char *name, bppsa_operator *kind); /* ERR_ARGUMENT */

/* Checks every attribute and infers the output's shape [C][H][W]. ERR_ARGUMENT: a step without a cell, a stride, kernel, dilation
 * or group count of 0 or less, a negative padding, groups that do not divide the channels; ERR_SHAPE: an extent below 1, an
 * output without positions, inputs or outputs beyond 2^31 - 1 values. */
bppsa_status bppsa_op_shape(const bppsa_op *op, int64_t out[3]);

/* Pools of any kind, and those that take means. */
bool bppsa_op_is_pool(const bppsa_op *op);
bool bppsa_op_is_mean(const bppsa_op *op);
/* Is Jᵀ the identity, whose values are never stored? */
bool bppsa_op_is_identity(const bppsa_op *op);
/* Do all samples share the values of Jᵀ, since these depend on no activation? */
bool bppsa_op_shares_values(const bppsa_op *op);

/* Are the values of a diagonal Jᵀ factors that the caller computes: batchnorm2d, and dropout that drops? */
bool bppsa_op_is_scaled(const bppsa_op *op);

/* The position of tap 0 of output X along an axis, in front of the input where it is negative. */
int64_t bppsa_op_window(const bppsa_op *op, int axis, int64_t X);
/* The first and the last tap of output X along an axis (0: height, 1: width) that lie inside the input, for conv2d and pools;
 * first > last: none does. */
void bppsa_op_taps(const bppsa_op *op, int axis, int64_t X, int64_t *first, int64_t *last);
/* The number of outputs of `out` along an axis whose tap t lies inside the input, for conv2d and pools with a kernel. */
int64_t bppsa_op_tap_positions(const bppsa_op *op, int axis, int64_t t, int64_t out);
/* The number of input positions that a pool's window X covers along an axis, which divides an average: padding counts unless
 * exclude_pad. */
int64_t bppsa_op_pool_extent(const bppsa_op *op, int axis, int64_t X);

/* Counts the entries of the operator's Jacobian, and of the pattern S of positions that all its channels share (one column for a
 * linear operator, 1 x 1 for a step), without making them. The operator must have passed bppsa_op_shape. ERR_SHAPE: beyond 64
 * bits. */
typedef struct {
  int64_t entries;
  int64_t position_rows, position_entries; /* of S */
} bppsa_op_size;
bppsa_status bppsa_op_count(const bppsa_op *op, bppsa_op_size *size);

/* H of a step's cell, C of other operators. */
int64_t bppsa_op_units(const bppsa_op *op);
/* Number of weights on which the Jacobian depends: conv2d, linear, step; 0 for the others. */
int64_t bppsa_op_weights(const bppsa_op *op);
/* FLOPs of the gradient of the operator's weights for one sample: 2 for each pair of an input and an output that a weight joins.
 * conv2d, linear and batchnorm2d, which is taken to have weights, have as many pairs as their Jacobian has entries (nnz), so a
 * pruned weight costs none; 0 for operators without weights. */
int64_t bppsa_op_weight_flops(const bppsa_op *op, int64_t nnz);

#ifdef __cplusplus
}
#endif
#endif
