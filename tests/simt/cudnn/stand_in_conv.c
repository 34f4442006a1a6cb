/* Convolutions of the stand-in for cuDNN: cross-correlation by its documented equation, one number at a time in float64. With c =
 * g·C/G + k of group g
 *
 *     y[n][k][i][j] = Σ_c,a,b w[k][c][a][b] x[n][g C/G + c][i u + a d - p][j v + b d' - p']     (0 outside x)
 *
 * and the gradients that follow from it. Of the algorithms that it offers the first is not deterministic, the second needs more
 * memory than exists, the third needs tensor cores; only the fourth may be used by the library. It writes to its whole workspace.
 */
#include <string.h>

#include "core/base/alloc.h"
#include "tests/simt/cudnn/stand_in.h"

#define CHOSEN 1 /* the algorithm, of three types */
enum { OFFERED = 4, WORK_BYTES = 200 };

/* The workspace for a batch: smaller batches need more. */
static size_t work_of(const struct stand_in *x) {
  return WORK_BYTES + (size_t)(1 << 16) / (size_t)x->extents[0];
}

/* ---- descriptors ---- */

static cudnnStatus_t describe(struct stand_in *shape, cudnnDataType_t type, int a, int b, int c, int d) {
  *shape = (struct stand_in){.type = type, .dims = 4, .extents = {a, b, c, d}};
  return stand_in_check(a > 0 && b > 0 && c > 0 && d > 0, "an extent");
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format, cudnnDataType_t type, int n,
                                         int c, int h, int w) {
  (void)format;
  return describe(tensor, type, n, c, h, w);
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type, cudnnTensorFormat_t format, int k,
                                         int c, int h, int w) {
  (void)format;
  return describe(filter, type, k, c, h, w);
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t convolution, int pad_h, int pad_w, int u, int v,
                                              int dilation_h, int dilation_w, cudnnConvolutionMode_t mode, cudnnDataType_t type) {
  *convolution =
      (struct stand_in){.type = type, .pad = {pad_h, pad_w}, .stride = {u, v}, .dilation = {dilation_h, dilation_w}, .groups = 1};
  return stand_in_check(mode == CUDNN_CROSS_CORRELATION && pad_h >= 0 && pad_w >= 0 && u > 0 && v > 0, "convolution");
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convolution, int groups) {
  convolution->groups = groups;
  return stand_in_check(groups > 0, "groups");
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution, cudnnMathType_t math) {
  convolution->math = math;
  return CUDNN_STATUS_SUCCESS;
}

/* Do shapes, types and mathematics agree, and does y have the size that follows? */
static int agrees(const struct stand_in *x, const struct stand_in *w, const struct stand_in *conv, const struct stand_in *y) {
  int fine = x->type == w->type && x->type == y->type && x->type == conv->type && conv->math == CUDNN_FMA_MATH;
  fine = fine && x->extents[0] == y->extents[0] && w->extents[0] == y->extents[1] &&
         w->extents[1] * conv->groups == x->extents[1] && w->extents[0] % conv->groups == 0;
  for (int axis = 0; axis < 2; ++axis) {
    const int window = (w->extents[2 + axis] - 1) * conv->dilation[axis] + 1;
    fine = fine && (x->extents[2 + axis] + 2 * conv->pad[axis] - window) / conv->stride[axis] + 1 == y->extents[2 + axis];
  }
  return fine;
}

/* ---- algorithms ---- */

#define OFFER(type, list, x)                                                                                                     \
  const type all[OFFERED] = {                                                                                                    \
      {.algo = 0, .determinism = CUDNN_NON_DETERMINISTIC, .mathType = CUDNN_FMA_MATH},                                           \
      {.algo = 2, .memory = (size_t)1 << 50, .determinism = CUDNN_DETERMINISTIC, .mathType = CUDNN_FMA_MATH},                    \
      {.algo = 3, .determinism = CUDNN_DETERMINISTIC, .mathType = CUDNN_TENSOR_OP_MATH},                                         \
      {.algo = CHOSEN, .memory = work_of(x), .determinism = CUDNN_DETERMINISTIC, .mathType = CUDNN_FMA_MATH}};                   \
  *count = most < OFFERED ? most : OFFERED;                                                                                      \
  memcpy(list, all, (size_t)*count * sizeof *(list))

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                     const cudnnFilterDescriptor_t w, const cudnnConvolutionDescriptor_t conv,
                                                     const cudnnTensorDescriptor_t y, const int most, int *count,
                                                     cudnnConvolutionFwdAlgoPerf_t *choices) {
  (void)handle;
  OFFER(cudnnConvolutionFwdAlgoPerf_t, choices, x);
  return stand_in_check(agrees(x, w, conv, y), "shapes");
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t handle, const cudnnFilterDescriptor_t w,
                                                          const cudnnTensorDescriptor_t dy,
                                                          const cudnnConvolutionDescriptor_t conv,
                                                          const cudnnTensorDescriptor_t dx, const int most, int *count,
                                                          cudnnConvolutionBwdDataAlgoPerf_t *choices) {
  (void)handle;
  OFFER(cudnnConvolutionBwdDataAlgoPerf_t, choices, dx);
  return stand_in_check(agrees(dx, w, conv, dy), "shapes");
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                            const cudnnTensorDescriptor_t dy,
                                                            const cudnnConvolutionDescriptor_t conv,
                                                            const cudnnFilterDescriptor_t dw, const int most, int *count,
                                                            cudnnConvolutionBwdFilterAlgoPerf_t *choices) {
  (void)handle;
  OFFER(cudnnConvolutionBwdFilterAlgoPerf_t, choices, x);
  return stand_in_check(agrees(x, dw, conv, dy), "shapes");
}

static cudnnStatus_t work_bytes_of(int algorithm, const struct stand_in *x, size_t *bytes) {
  *bytes = algorithm == CHOSEN ? work_of(x) : (size_t)1 << 50;
  return stand_in_check(algorithm != 0, "not deterministic");
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                      const cudnnFilterDescriptor_t w, const cudnnConvolutionDescriptor_t conv,
                                                      const cudnnTensorDescriptor_t y, cudnnConvolutionFwdAlgo_t algo,
                                                      size_t *bytes) {
  (void)handle, (void)w, (void)conv, (void)y;
  return work_bytes_of((int)algo, x, bytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t handle, const cudnnFilterDescriptor_t w,
                                                           const cudnnTensorDescriptor_t dy,
                                                           const cudnnConvolutionDescriptor_t conv,
                                                           const cudnnTensorDescriptor_t dx, cudnnConvolutionBwdDataAlgo_t algo,
                                                           size_t *bytes) {
  (void)handle, (void)w, (void)dy, (void)conv;
  return work_bytes_of((int)algo, dx, bytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                             const cudnnTensorDescriptor_t dy,
                                                             const cudnnConvolutionDescriptor_t conv,
                                                             const cudnnFilterDescriptor_t dw,
                                                             cudnnConvolutionBwdFilterAlgo_t algo, size_t *bytes) {
  (void)handle, (void)dy, (void)conv, (void)dw;
  return work_bytes_of((int)algo, x, bytes);
}

/* ---- passes ---- */

typedef enum { FORWARD, DATA, FILTER, BIAS, ADD } kind;

/* The arguments of a pass, copied when it is queued. It reads `from` and `with`, and writes `to`. */
typedef struct {
  kind kind;
  struct stand_in x, w, conv, y;
  const void *from, *with;
  void *to, *work;
} pass;

static double get(const pass *p, const void *array, int64_t i) {
  return p->y.type == CUDNN_DATA_FLOAT ? (double)((const float *)array)[i] : ((const double *)array)[i];
}

static void set(const pass *p, void *array, int64_t i, double value) {
  if (p->y.type == CUDNN_DATA_FLOAT) {
    ((float *)array)[i] = (float)value;
  } else {
    ((double *)array)[i] = value;
  }
}

static int64_t volume(const struct stand_in *shape) {
  return (int64_t)shape->extents[0] * shape->extents[1] * shape->extents[2] * shape->extents[3];
}

/* Every product of the sum: adds factor(from) · factor(with) to one of `sums`. */
static void add_products(const pass *p, double *sums) {
  const int *x = p->x.extents, *w = p->w.extents, *y = p->y.extents;
  for (int64_t at = 0; at < volume(&p->y); ++at) {
    const int j = (int)(at % y[3]), i = (int)(at / y[3] % y[2]), k = (int)(at / y[3] / y[2] % y[1]);
    const int64_t n = at / y[3] / y[2] / y[1], group = k / (w[0] / p->conv.groups);
    for (int tap = 0; tap < w[1] * w[2] * w[3]; ++tap) {
      const int c = tap / w[3] / w[2], row = i * p->conv.stride[0] + tap / w[3] % w[2] * p->conv.dilation[0] - p->conv.pad[0],
                column = j * p->conv.stride[1] + tap % w[3] * p->conv.dilation[1] - p->conv.pad[1];
      if (row < 0 || row >= x[2] || column < 0 || column >= x[3]) {
        continue;
      }
      const int64_t in = ((n * x[1] + group * w[1] + c) * x[2] + row) * x[3] + column,
                    weight = (int64_t)k * w[1] * w[2] * w[3] + tap;
      switch (p->kind) {
      case FORWARD:
        sums[at] += get(p, p->from, in) * get(p, p->with, weight);
        break;
      case DATA:
        sums[in] += get(p, p->from, at) * get(p, p->with, weight);
        break;
      default:
        sums[weight] += get(p, p->from, in) * get(p, p->with, at);
      }
    }
  }
}

static void multiply(const void *context) {
  const pass *p = context;
  const int64_t count = volume(p->kind == FORWARD ? &p->y : p->kind == DATA ? &p->x : &p->w);
  double *sums = bppsa_calloc(count, sizeof *sums);
  memset(p->work, 0xab, work_of(&p->x));
  add_products(p, sums);
  for (int64_t i = 0; i < count; ++i) {
    set(p, p->to, i, sums[i]);
  }
  bppsa_free(sums);
}

/* Of a channel k: db[k] = Σ dy, or y += b[k]. */
static void bias(const void *context) {
  const pass *p = context;
  const int64_t plane = (int64_t)p->y.extents[2] * p->y.extents[3], channels = p->y.extents[1];
  for (int64_t k = 0; k < channels; ++k) {
    double sum = 0;
    for (int64_t i = 0; i < p->y.extents[0] * plane; ++i) {
      const int64_t at = (i / plane * channels + k) * plane + i % plane;
      if (p->kind == ADD) {
        set(p, p->to, at, get(p, p->to, at) + get(p, p->from, k));
      } else {
        sum += get(p, p->from, at);
      }
    }
    if (p->kind == BIAS) {
      set(p, p->to, k, sum);
    }
  }
}

/* Checks a scaling factor, which has the type of the data: results overwrite what is there, or are added to it for ADD. */
static int is_scale(const struct stand_in *shape, const void *factor, double expected) {
  return (shape->type == CUDNN_DATA_FLOAT ? (double)*(const float *)factor : *(const double *)factor) == expected;
}

/* cuDNN has kernels that read 16 bytes at a time, and then fault. */
static int is_aligned(const void *array) {
  return (uintptr_t)array % 16 == 0;
}

static cudnnStatus_t run_conv(cudnnHandle_t handle, const pass *p, const void *alpha, const void *beta, int algorithm,
                              size_t work_bytes) {
  if (!agrees(&p->x, &p->w, &p->conv, &p->y) || algorithm != CHOSEN || work_bytes < work_of(&p->x) || p->work == NULL ||
      !is_scale(&p->y, alpha, 1) || !is_scale(&p->y, beta, 0) || !is_aligned(p->from) || !is_aligned(p->with) ||
      !is_aligned(p->to)) {
    return stand_in_answer(CUDNN_STATUS_BAD_PARAM, "convolution");
  }
  simt_host_function(handle->stream, multiply, p, sizeof *p);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha, const cudnnTensorDescriptor_t x_shape,
                                      const void *x, const cudnnFilterDescriptor_t w_shape, const void *w,
                                      const cudnnConvolutionDescriptor_t conv, cudnnConvolutionFwdAlgo_t algo, void *work,
                                      size_t work_bytes, const void *beta, const cudnnTensorDescriptor_t y_shape, void *y) {
  const pass p = {FORWARD, *x_shape, *w_shape, *conv, *y_shape, x, w, y, work};
  return run_conv(handle, &p, alpha, beta, (int)algo, work_bytes);
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void *alpha, const cudnnFilterDescriptor_t w_shape,
                                           const void *w, const cudnnTensorDescriptor_t dy_shape, const void *dy,
                                           const cudnnConvolutionDescriptor_t conv, cudnnConvolutionBwdDataAlgo_t algo,
                                           void *work, size_t work_bytes, const void *beta,
                                           const cudnnTensorDescriptor_t dx_shape, void *dx) {
  const pass p = {DATA, *dx_shape, *w_shape, *conv, *dy_shape, dy, w, dx, work};
  return run_conv(handle, &p, alpha, beta, (int)algo, work_bytes);
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void *alpha, const cudnnTensorDescriptor_t x_shape,
                                             const void *x, const cudnnTensorDescriptor_t dy_shape, const void *dy,
                                             const cudnnConvolutionDescriptor_t conv, cudnnConvolutionBwdFilterAlgo_t algo,
                                             void *work, size_t work_bytes, const void *beta,
                                             const cudnnFilterDescriptor_t dw_shape, void *dw) {
  const pass p = {FILTER, *x_shape, *dw_shape, *conv, *dy_shape, x, dy, dw, work};
  return run_conv(handle, &p, alpha, beta, (int)algo, work_bytes);
}

static cudnnStatus_t run_bias(cudnnHandle_t handle, const pass *p, const struct stand_in *b, int fine) {
  if (!fine || !is_aligned(p->from) || !is_aligned(p->to) || b->extents[0] != 1 || b->extents[1] != p->y.extents[1] ||
      b->extents[2] != 1 || b->extents[3] != 1) {
    return stand_in_answer(CUDNN_STATUS_BAD_PARAM, "bias");
  }
  simt_host_function(handle->stream, bias, p, sizeof *p);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionBackwardBias(cudnnHandle_t handle, const void *alpha, const cudnnTensorDescriptor_t dy_shape,
                                           const void *dy, const void *beta, const cudnnTensorDescriptor_t db_shape, void *db) {
  const pass p = {.kind = BIAS, .y = *dy_shape, .from = dy, .to = db};
  return run_bias(handle, &p, db_shape, is_scale(dy_shape, alpha, 1) && is_scale(dy_shape, beta, 0));
}

cudnnStatus_t cudnnAddTensor(cudnnHandle_t handle, const void *alpha, const cudnnTensorDescriptor_t b_shape, const void *b,
                             const void *beta, const cudnnTensorDescriptor_t y_shape, void *y) {
  const pass p = {.kind = ADD, .y = *y_shape, .from = b, .to = y};
  return run_bias(handle, &p, b_shape, is_scale(y_shape, alpha, 1) && is_scale(y_shape, beta, 1));
}
