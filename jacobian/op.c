#include "jacobian/op.h"

#include <float.h>
#include <string.h>

#include "core/base/alloc.h"

static const char *const names[BPPSA_OPERATOR_COUNT] = {
    [BPPSA_OPERATOR_CONV2D] = "conv2d",
    [BPPSA_OPERATOR_LINEAR] = "linear",
    [BPPSA_OPERATOR_RELU] = "relu",
    [BPPSA_OPERATOR_LEAKY_RELU] = "leaky_relu",
    [BPPSA_OPERATOR_TANH] = "tanh",
    [BPPSA_OPERATOR_SIGMOID] = "sigmoid",
    [BPPSA_OPERATOR_MAXPOOL2D] = "maxpool2d",
    [BPPSA_OPERATOR_AVGPOOL2D] = "avgpool2d",
    [BPPSA_OPERATOR_FLATTEN] = "flatten",
    [BPPSA_OPERATOR_RELU6] = "relu6",
    [BPPSA_OPERATOR_HARDSIGMOID] = "hardsigmoid",
    [BPPSA_OPERATOR_HARDSWISH] = "hardswish",
    [BPPSA_OPERATOR_SILU] = "silu",
    [BPPSA_OPERATOR_GELU] = "gelu",
    [BPPSA_OPERATOR_ADAPTIVE_AVGPOOL2D] = "adaptive_avgpool2d",
    [BPPSA_OPERATOR_GLOBAL_AVGPOOL] = "global_avgpool",
    [BPPSA_OPERATOR_BATCHNORM2D] = "batchnorm2d",
    [BPPSA_OPERATOR_DROPOUT] = "dropout",
    [BPPSA_OPERATOR_STEP] = "step",
};

bppsa_op bppsa_op_default(bppsa_operator kind) {
  return (bppsa_op){.kind = kind,
                    .in = {1, 1, 1},
                    .out_channels = 1,
                    .kernel = {1, 1},
                    .stride = {1, 1},
                    .dilation = {1, 1},
                    .groups = 1,
                    .slope = 0.01,
                    .size = {1, 1},
                    .epsilon = 1e-5,
                    .momentum = 0.1,
                    .p = 0.5};
}

const char *bppsa_operator_name(bppsa_operator kind) {
  return names[kind];
}

const char *bppsa_op_name(const bppsa_op *op) {
  return op->kind == BPPSA_OPERATOR_STEP && op->step != NULL ? op->step->name : names[op->kind];
}

bppsa_status bppsa_operator_parse(const char *name, bppsa_operator *kind) {
  BPPSA_REQUIRE(name != NULL && kind != NULL);
  for (int i = 0; i < BPPSA_OPERATOR_COUNT; ++i) {
    if (strcmp(name, names[i]) == 0) {
      *kind = (bppsa_operator)i;
      return BPPSA_OK;
    }
  }
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "operator '%s' is unknown, expected one such as conv2d, relu or maxpool2d", name);
}

/* Pools whose windows a kernel, a stride and padding describe. */
static bool has_kernel(bppsa_operator kind) {
  return kind == BPPSA_OPERATOR_MAXPOOL2D || kind == BPPSA_OPERATOR_AVGPOOL2D;
}

static bool is_adaptive(const bppsa_op *op) {
  return op->kind == BPPSA_OPERATOR_ADAPTIVE_AVGPOOL2D || op->kind == BPPSA_OPERATOR_GLOBAL_AVGPOOL;
}

bool bppsa_op_is_mean(const bppsa_op *op) {
  return op->kind == BPPSA_OPERATOR_AVGPOOL2D || is_adaptive(op);
}

bool bppsa_op_is_pool(const bppsa_op *op) {
  return op->kind == BPPSA_OPERATOR_MAXPOOL2D || bppsa_op_is_mean(op);
}

bool bppsa_op_is_identity(const bppsa_op *op) {
  return op->kind == BPPSA_OPERATOR_FLATTEN || (op->kind == BPPSA_OPERATOR_DROPOUT && !op->dropping);
}

bool bppsa_op_is_scaled(const bppsa_op *op) {
  return op->kind == BPPSA_OPERATOR_BATCHNORM2D || (op->kind == BPPSA_OPERATOR_DROPOUT && op->dropping);
}

bool bppsa_op_shares_values(const bppsa_op *op) {
  return op->kind == BPPSA_OPERATOR_CONV2D || op->kind == BPPSA_OPERATOR_LINEAR || op->kind == BPPSA_OPERATOR_BATCHNORM2D ||
         bppsa_op_is_mean(op) || bppsa_op_is_identity(op);
}

/* Checks the number of values: an int32 column must be able to name each. */
static bppsa_status check_count(const bppsa_op *op, const char *what, const int64_t shape[3]) {
  int64_t plane, count;
  if (!bppsa_mul(shape[1], shape[2], &plane) || !bppsa_mul(shape[0], plane, &count) || count > INT32_MAX) {
    char text[BPPSA_SHAPE_TEXT];
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: %s %s, expected at most 2147483647 values", bppsa_op_name(op), what,
                      bppsa_shape_text(3, shape, text, sizeof text));
  }
  return BPPSA_OK;
}

static bppsa_status check_attribute(const bppsa_op *op, const char *what, int64_t value, int64_t least) {
  if (value < least || value > INT32_MAX) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: %s %lld, expected %lld .. 2147483647", bppsa_op_name(op), what, (long long)value,
                      (long long)least);
  }
  return BPPSA_OK;
}

static bppsa_status check_window(const bppsa_op *op) {
  if (op->kind == BPPSA_OPERATOR_AVGPOOL2D && (op->dilation[0] != 1 || op->dilation[1] != 1)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "avgpool2d: dilation %lld x %lld, expected 1 x 1", (long long)op->dilation[0],
                      (long long)op->dilation[1]);
  }
  for (int axis = 0; axis < 2; ++axis) {
    BPPSA_TRY(check_attribute(op, "kernel", op->kernel[axis], 1));
    BPPSA_TRY(check_attribute(op, "stride", op->stride[axis], 1));
    BPPSA_TRY(check_attribute(op, "dilation", op->dilation[axis], 1));
    BPPSA_TRY(check_attribute(op, "padding", op->padding[2 * axis], 0));
    BPPSA_TRY(check_attribute(op, "padding", op->padding[2 * axis + 1], 0));
    for (int end = 0; end < 2 && has_kernel(op->kind); ++end) {
      if (op->padding[2 * axis + end] > op->kernel[axis] / 2) { /* a window could see nothing but padding */
        return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: padding %lld, expected at most half the kernel of %lld", bppsa_op_name(op),
                          (long long)op->padding[2 * axis + end], (long long)op->kernel[axis]);
      }
    }
  }
  return BPPSA_OK;
}

/* floor((in + p + p' - d (k - 1) - 1) / s) + 1 positions. A pool with ceil_mode rounds up instead, without a window that would
 * begin behind the input and its padding in front. */
static bppsa_status window_shape(const bppsa_op *op, int64_t out[3]) {
  BPPSA_TRY(check_window(op));
  const bool ceil_mode = op->ceil_mode && has_kernel(op->kind);
  for (int axis = 0; axis < 2; ++axis) {
    const int64_t in = op->in[axis + 1], front = op->padding[2 * axis], s = op->stride[axis];
    const int64_t room = in + front + op->padding[2 * axis + 1] - op->dilation[axis] * (op->kernel[axis] - 1) - 1;
    const int64_t last = room + (ceil_mode ? s - 1 : 0); /* where the last window begins, at most */
    int64_t count = last < 0 ? 0 : last / s + 1;
    if (ceil_mode && count > 0 && (count - 1) * s >= in + front) {
      --count;
    }
    if (count < 1) {
      return bppsa_fail(BPPSA_ERR_SHAPE,
                        "%s: kernel %lld with dilation %lld covers more than the %lld positions and %lld of padding, "
                        "expected an output position at least",
                        bppsa_op_name(op), (long long)op->kernel[axis], (long long)op->dilation[axis], (long long)in,
                        (long long)(front + op->padding[2 * axis + 1]));
    }
    out[axis + 1] = count;
  }
  return BPPSA_OK;
}

static bppsa_status adaptive_shape(const bppsa_op *op, int64_t out[3]) {
  for (int axis = 0; axis < 2; ++axis) {
    BPPSA_TRY(check_attribute(op, "output size", op->size[axis], 1));
    if (op->kind == BPPSA_OPERATOR_GLOBAL_AVGPOOL && op->size[axis] != 1) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "global_avgpool: output size %lld x %lld, expected 1 x 1", (long long)op->size[0],
                        (long long)op->size[1]);
    }
    out[axis + 1] = op->size[axis];
  }
  return BPPSA_OK;
}

static bppsa_status check_reals(const bppsa_op *op) {
  if (op->kind == BPPSA_OPERATOR_DROPOUT && !(op->p >= 0 && op->p < 1)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "dropout: p %g, expected a number from 0 to below 1", op->p);
  }
  if (!(op->epsilon >= 0 && op->epsilon <= DBL_MAX)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: eps %g, expected a finite number of 0 or more", bppsa_op_name(op), op->epsilon);
  }
  return op->momentum >= 0 && op->momentum <= 1
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: momentum %g, expected a number from 0 to 1", bppsa_op_name(op), op->momentum);
}

/* Checks that the number of weights fits into 64 bits. */
static bppsa_status check_weights(const bppsa_op *op) {
  int64_t taps, channels = op->in[0], weights;
  if (op->kind == BPPSA_OPERATOR_CONV2D &&
      (!bppsa_mul(op->kernel[0], op->kernel[1], &taps) || !bppsa_mul(taps, op->in[0] / op->groups, &channels) ||
       !bppsa_mul(channels, op->out_channels, &weights) || weights > INT64_MAX / 16)) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "conv2d: kernels of %lld x %lld for %lld x %lld channels, expected at most 2^59 weights",
                      (long long)op->kernel[0], (long long)op->kernel[1], (long long)op->in[0], (long long)op->out_channels);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_op_shape(const bppsa_op *op, int64_t out[3]) {
  BPPSA_REQUIRE(op != NULL && out != NULL);
  int64_t shape[3] = {op->in[0], op->in[1], op->in[2]};
  if (shape[0] < 1 || shape[1] < 1 || shape[2] < 1) {
    char text[BPPSA_SHAPE_TEXT];
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: input %s, expected extents of 1 or more", bppsa_op_name(op),
                      bppsa_shape_text(3, op->in, text, sizeof text));
  }
  BPPSA_TRY(check_count(op, "input", op->in));
  switch (op->kind) {
  case BPPSA_OPERATOR_CONV2D:
    BPPSA_TRY(check_attribute(op, "output channels", op->out_channels, 1));
    BPPSA_TRY(check_attribute(op, "groups", op->groups, 1));
    if (op->in[0] % op->groups != 0 || op->out_channels % op->groups != 0) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT,
                        "conv2d: %lld groups of %lld input and %lld output channels, expected a divisor of both",
                        (long long)op->groups, (long long)op->in[0], (long long)op->out_channels);
    }
    shape[0] = op->out_channels;
    BPPSA_TRY(window_shape(op, shape));
    break;
  case BPPSA_OPERATOR_MAXPOOL2D:
  case BPPSA_OPERATOR_AVGPOOL2D:
    BPPSA_TRY(window_shape(op, shape));
    break;
  case BPPSA_OPERATOR_LINEAR:
    BPPSA_TRY(check_attribute(op, "output channels", op->out_channels, 1));
    shape[0] = op->out_channels;
    shape[1] = shape[2] = 1;
    break;
  case BPPSA_OPERATOR_STEP:
    if (op->step == NULL || op->step->gates < 1 || op->step->gates > BPPSA_STEP_GATES) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: %s, expected a cell's step of 1 .. %d gates", bppsa_op_name(op),
                        op->step == NULL ? "no cell" : "a number of gates out of range", BPPSA_STEP_GATES);
    }
    if (op->step->pair && (op->in[0] % 2 != 0 || !op->step->diagonal)) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: a state of %lld numbers%s, expected pairs (h, c) and a diagonal",
                        bppsa_op_name(op), (long long)op->in[0], op->step->diagonal ? "" : ", without a diagonal");
    }
    break;
  case BPPSA_OPERATOR_GLOBAL_AVGPOOL:
  case BPPSA_OPERATOR_ADAPTIVE_AVGPOOL2D:
    BPPSA_TRY(adaptive_shape(op, shape));
    break;
  case BPPSA_OPERATOR_BATCHNORM2D:
  case BPPSA_OPERATOR_DROPOUT:
    BPPSA_TRY(check_reals(op));
    break;
  case BPPSA_OPERATOR_FLATTEN:
    shape[0] *= shape[1] * shape[2];
    shape[1] = shape[2] = 1;
    break;
  default:
    break;
  }
  BPPSA_TRY(check_count(op, "output", shape));
  BPPSA_TRY(check_weights(op));
  memcpy(out, shape, sizeof shape);
  return BPPSA_OK;
}

int64_t bppsa_op_window(const bppsa_op *op, int axis, int64_t X) {
  return is_adaptive(op) ? X * op->in[axis + 1] / op->size[axis] : X * op->stride[axis] - op->padding[2 * axis];
}

void bppsa_op_taps(const bppsa_op *op, int axis, int64_t X, int64_t *first, int64_t *last) {
  if (is_adaptive(op)) {
    *first = 0;
    *last = ((X + 1) * op->in[axis + 1] + op->size[axis] - 1) / op->size[axis] - 1 - bppsa_op_window(op, axis, X);
    return;
  }
  const int64_t start = X * op->stride[axis] - op->padding[2 * axis], d = op->dilation[axis];
  *first = start < 0 ? (-start + d - 1) / d : 0;
  *last = op->in[axis + 1] - 1 < start ? -1 : (op->in[axis + 1] - 1 - start) / d;
  *last = *last < op->kernel[axis] - 1 ? *last : op->kernel[axis] - 1;
}

int64_t bppsa_op_pool_extent(const bppsa_op *op, int axis, int64_t X) {
  const int64_t in = op->in[axis + 1], start = bppsa_op_window(op, axis, X);
  if (is_adaptive(op)) {
    int64_t first, last;
    bppsa_op_taps(op, axis, X, &first, &last);
    return last + 1;
  }
  const int64_t end = start + op->kernel[axis], most = in + op->padding[2 * axis + 1];
  const int64_t stop = end < most ? end : most;
  if (!op->exclude_pad) {
    return stop - start;
  }
  return (stop < in ? stop : in) - (start > 0 ? start : 0);
}

int64_t bppsa_op_tap_positions(const bppsa_op *op, int axis, int64_t t, int64_t out) {
  const int64_t s = op->stride[axis], in = op->in[axis + 1];
  const int64_t before = op->padding[2 * axis] - op->dilation[axis] * t, behind = in - 1 + before; /* before <= s X <= behind */
  const int64_t first = before > 0 ? (before + s - 1) / s : 0, last = behind < 0 ? -1 : behind / s < out ? behind / s : out - 1;
  return last >= first ? last - first + 1 : 0;
}

/* Counts pairs of an input position and an output position along an axis: for every tap the outputs, or for every output the taps
 * inside the input, whichever loop is shorter. */
static int64_t axis_entries(const bppsa_op *op, int axis, int64_t out) {
  int64_t sum = 0;
  if (is_adaptive(op) || op->kernel[axis] > out) {
    for (int64_t X = 0; X < out; ++X) {
      int64_t first, last;
      bppsa_op_taps(op, axis, X, &first, &last);
      sum += last >= first ? last - first + 1 : 0;
    }
    return sum;
  }
  for (int64_t t = 0; t < op->kernel[axis]; ++t) {
    sum += bppsa_op_tap_positions(op, axis, t, out);
  }
  return sum;
}

bppsa_status bppsa_op_count(const bppsa_op *op, bppsa_op_size *size) {
  BPPSA_REQUIRE(op != NULL && size != NULL);
  int64_t out[3];
  BPPSA_TRY(bppsa_op_shape(op, out));
  const int64_t plane = op->in[1] * op->in[2];
  bppsa_op_size s = {.position_rows = plane, .position_entries = plane};
  int64_t blocks = op->in[0]; /* blocks of S in the Jacobian; elementwise operators and pools have one for each channel */
  switch (op->kind) {
  case BPPSA_OPERATOR_CONV2D:
    blocks = op->in[0] / op->groups * op->out_channels; /* pairs of channels of a group: at most the number of weights */
    /* fall through */
  case BPPSA_OPERATOR_MAXPOOL2D:
  case BPPSA_OPERATOR_AVGPOOL2D:
  case BPPSA_OPERATOR_ADAPTIVE_AVGPOOL2D:
  case BPPSA_OPERATOR_GLOBAL_AVGPOOL:
    s.position_entries = axis_entries(op, 0, out[1]);
    if (!bppsa_mul(s.position_entries, axis_entries(op, 1, out[2]), &s.position_entries)) {
      return bppsa_fail(BPPSA_ERR_SHAPE, "%s: the entries of positions do not fit in 64 bits", bppsa_op_name(op));
    }
    break;
  case BPPSA_OPERATOR_LINEAR: /* S has one column */
    blocks = op->in[0] * op->out_channels;
    break;
  case BPPSA_OPERATOR_STEP: /* a block of 1 x 1 */
    blocks = op->step->pair ? (op->in[0] + 2) * bppsa_op_units(op) : op->in[0] * op->in[0];
    break;
  default:
    break;
  }
  if (!bppsa_mul(blocks, s.position_entries, &s.entries)) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: the Jacobian's entries do not fit in 64 bits", bppsa_op_name(op));
  }
  *size = s;
  return BPPSA_OK;
}

int64_t bppsa_op_units(const bppsa_op *op) {
  return op->in[0] / (op->kind == BPPSA_OPERATOR_STEP && op->step->pair ? 2 : 1);
}

int64_t bppsa_op_weights(const bppsa_op *op) {
  switch (op->kind) {
  case BPPSA_OPERATOR_CONV2D:
    return op->out_channels * (op->in[0] / op->groups) * op->kernel[0] * op->kernel[1];
  case BPPSA_OPERATOR_LINEAR:
    return op->out_channels * op->in[0] * op->in[1] * op->in[2];
  case BPPSA_OPERATOR_STEP:
    return op->step->gates * bppsa_op_units(op) * bppsa_op_units(op);
  default:
    return 0;
  }
}

int64_t bppsa_op_weight_flops(const bppsa_op *op, int64_t nnz) {
  const bool entries =
      op->kind == BPPSA_OPERATOR_CONV2D || op->kind == BPPSA_OPERATOR_LINEAR || op->kind == BPPSA_OPERATOR_BATCHNORM2D;
  return 2 * (entries ? nnz : bppsa_op_weights(op));
}
