/* A stand-in for cuDNN on the SIMT machine: its documented equations, one number at a time in float64, with a layout of the weight
 * space that no real library has. This file has recurrent layers, stand_in_conv.c has convolutions. It shows that
 * bench/rivals/rnn_cudnn.c makes the right requests and puts everything in its place; it does not show what the real library
 * does.
 *
 *   RNN   h_t = f(W_0 x_t + R_1 h_{t-1} + b_W0 + b_R1)                                linear 0: input, 1: recurrent
 *   GRU   i = σ(W_1 x + R_4 h + b_W1 + b_R4)    r = σ(W_0 x + R_3 h + b_W0 + b_R3)    linear 0 .. 2: input, 3 .. 5: recurrent
 *         n = tanh(W_2 x + r ∘ (R_5 h + b_R5) + b_W2)    h_t = (1 - i) ∘ n + i ∘ h_{t-1}
 *   LSTM  i = σ(W_0 x + R_4 h + b_W0 + b_R4)    f, o = σ(..) of linear 1, 5 and 3, 7    g = tanh(..) of linear 2, 6
 *         c_t = f ∘ c_{t-1} + i ∘ g    h_t = o ∘ tanh(c_t)
 *
 * The persistent static algorithm refuses every shape when it is described, the dynamic one those of batch 1. The one for small H
 * accepts every description, and refuses H = 5 at the forward pass and H = 6 at the backward pass: the real library decides there
 * too. Layers take the layout that their flag allows: padded data with CUDNN_RNN_PADDED_IO_ENABLED, packed data without. The
 * dynamic algorithm refuses packed data at the forward pass. Layers in bf16 sum in f32: what they read and write is rounded, the
 * states between steps are not. The dynamic algorithm refuses them when they are described.
 *
 * It asserts nothing itself: what it refuses, and the numbers it gives, are what the tests that link it assert.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/rivals/rnn_cudnn.h"
#include "core/base/alloc.h"
#include "core/compute/cudnn.h"
#include "core/compute/library_cudnn.h"
#include "tests/simt/cudnn/stand_in.h"

enum { GAP = 3, GATES = 4, SLOPES = 2 * GATES + 2 };

static const char *last_words = "";

cudnnStatus_t stand_in_answer(cudnnStatus_t status, const char *words) {
  last_words = words;
  return status;
}

cudnnStatus_t stand_in_check(int fine, const char *words) {
  return fine ? CUDNN_STATUS_SUCCESS : stand_in_answer(CUDNN_STATUS_BAD_PARAM, words);
}

/* ---- objects ---- */

static cudnnStatus_t make(struct stand_in **made) {
  *made = bppsa_calloc(1, sizeof **made);
  return *made != NULL ? CUDNN_STATUS_SUCCESS
                       : stand_in_answer(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "out of memory");
}

static cudnnStatus_t destroy(struct stand_in *object) {
  bppsa_free(object);
  return CUDNN_STATUS_SUCCESS;
}

#define OBJECT(name)                                                                                                             \
  cudnnStatus_t cudnnCreate##name(struct stand_in **made) {                                                                      \
    return make(made);                                                                                                           \
  }                                                                                                                              \
  cudnnStatus_t cudnnDestroy##name(struct stand_in *object) {                                                                    \
    return destroy(object);                                                                                                      \
  }
OBJECT()
OBJECT(DropoutDescriptor)
OBJECT(TensorDescriptor)
OBJECT(FilterDescriptor)
OBJECT(ConvolutionDescriptor)
OBJECT(RNNDescriptor)
OBJECT(RNNDataDescriptor)

size_t cudnnGetVersion(void) {
  return 90000;
}

const char *cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED"
         : status == CUDNN_STATUS_BAD_PARAM   ? "CUDNN_STATUS_BAD_PARAM"
                                              : "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED";
}

void cudnnGetLastErrorString(char *message, size_t size) {
  strncpy(message, last_words, size - 1);
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return stand_in_check(stream != NULL, "no stream");
}

cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t dropout, cudnnHandle_t handle, float rate, void *states,
                                        size_t bytes, unsigned long long seed) {
  (void)dropout, (void)handle, (void)states, (void)bytes, (void)seed;
  return stand_in_check(rate == 0, "dropout is not wanted");
}

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t tensor, cudnnDataType_t type, int dims, const int extents[],
                                         const int strides[]) {
  tensor->type = type;
  tensor->dims = dims;
  memcpy(tensor->extents, extents, (size_t)dims * sizeof(int));
  return stand_in_check(dims == 3 && strides[2] == 1 && strides[1] == extents[2] && strides[0] == extents[1] * extents[2],
                        "strides");
}

cudnnStatus_t cudnnGetTensorNdDescriptor(const cudnnTensorDescriptor_t tensor, int most, cudnnDataType_t *type, int *dims,
                                         int extents[], int strides[]) {
  (void)strides;
  *type = tensor->type;
  *dims = tensor->dims;
  memcpy(extents, tensor->extents, (size_t)tensor->dims * sizeof(int));
  return stand_in_check(most >= tensor->dims, "room");
}

cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t rnn, cudnnRNNAlgo_t algorithm, cudnnRNNMode_t mode,
                                       cudnnRNNBiasMode_t bias, cudnnDirectionMode_t direction, cudnnRNNInputMode_t input_mode,
                                       cudnnDataType_t type, cudnnDataType_t precision, cudnnMathType_t math, int32_t input,
                                       int32_t hidden, int32_t projection, int32_t layers, cudnnDropoutDescriptor_t dropout,
                                       uint32_t flags) {
  *rnn =
      (struct stand_in){.type = type, .algorithm = algorithm, .mode = mode, .input = input, .hidden = hidden, .layers = layers};
  rnn->padded = flags == CUDNN_RNN_PADDED_IO_ENABLED;
  rnn->gates = mode == CUDNN_LSTM ? GATES : mode == CUDNN_GRU ? 3 : 1;
  if (algorithm == CUDNN_RNN_ALGO_PERSIST_STATIC) {
    return stand_in_answer(CUDNN_STATUS_NOT_SUPPORTED, "no shape is static enough");
  }
  if (algorithm == CUDNN_RNN_ALGO_PERSIST_DYNAMIC && type == CUDNN_DATA_BFLOAT16) {
    return stand_in_answer(CUDNN_STATUS_NOT_SUPPORTED, "bf16 is not dynamic");
  }
  return stand_in_check(bias == CUDNN_RNN_DOUBLE_BIAS && direction == CUDNN_UNIDIRECTIONAL && input_mode == CUDNN_LINEAR_INPUT &&
                            precision == (type == CUDNN_DATA_BFLOAT16 ? CUDNN_DATA_FLOAT : type) && projection == hidden &&
                            dropout != NULL && (rnn->padded || flags == CUDNN_RNN_PADDED_IO_DISABLED) &&
                            (math == CUDNN_FMA_MATH || math == CUDNN_DEFAULT_MATH),
                        "layers");
}

cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t data, cudnnDataType_t type, cudnnRNNDataLayout_t layout,
                                        int steps, int batch, int width, const int lengths[], void *fill) {
  *data = (struct stand_in){.type = type, .steps = steps, .batch = batch, .width = width};
  data->padded = layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED;
  int equal = fill != NULL && (data->padded || layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED);
  for (int b = 0; b < batch; ++b) {
    equal = equal && lengths[b] == steps;
  }
  return stand_in_check(equal, "lengths");
}

cudnnStatus_t cudnnBuildRNNDynamic(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, int batch) {
  (void)handle, (void)rnn;
  return batch > 1 ? CUDNN_STATUS_SUCCESS : stand_in_answer(CUDNN_STATUS_NOT_SUPPORTED, "one sample is not dynamic");
}

/* ---- the weight space ---- */

static int64_t columns(const struct stand_in *r, int layer, int linear) {
  return linear < r->gates && layer == 0 ? r->input : r->hidden;
}

/* Numbers in front of a matrix, or, for a bias, behind all matrices: layers and linear maps come backwards, with gaps. */
static int64_t place(const struct stand_in *r, int layer, int linear, int bias) {
  int64_t at = GAP;
  for (int l = r->layers - 1; l >= 0; --l) {
    for (int k = 2 * r->gates - 1; k >= 0; --k) {
      if (!bias && l == layer && k == linear) {
        return at;
      }
      at += r->hidden * columns(r, l, k) + GAP;
    }
  }
  return at + (layer * 2 * r->gates + linear) * (r->hidden + GAP);
}

static int64_t weights_in_all(const struct stand_in *r) {
  return place(r, r->layers, 0, 1);
}

static int64_t size_of(const struct stand_in *r) {
  return r->type == CUDNN_DATA_BFLOAT16 ? 2 : r->type == CUDNN_DATA_FLOAT ? 4 : 8;
}

cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, size_t *bytes) {
  (void)handle;
  *bytes = (size_t)(weights_in_all(rnn) * size_of(rnn));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, int32_t layer, size_t bytes,
                                      const void *weights, int32_t linear, cudnnTensorDescriptor_t matrix, void **matrix_at,
                                      cudnnTensorDescriptor_t bias, void **bias_at) {
  (void)handle;
  *matrix = (struct stand_in){.type = rnn->type, .dims = 3, .extents = {1, rnn->hidden, (int)columns(rnn, layer, linear)}};
  *bias = (struct stand_in){.type = rnn->type, .dims = 3, .extents = {1, rnn->hidden, 1}};
  *matrix_at = (char *)(uintptr_t)weights + place(rnn, layer, linear, 0) * size_of(rnn);
  *bias_at = (char *)(uintptr_t)weights + place(rnn, layer, linear, 1) * size_of(rnn);
  return stand_in_check((int64_t)bytes == weights_in_all(rnn) * size_of(rnn) && linear < 2 * rnn->gates && layer < rnn->layers,
                        "weights");
}

/* ---- passes ---- */

/* The arguments of a pass, copied when it is queued. reserve: x, then h [L][T+1][B][H] and c likewise, then gradients as large as
 * the weights. */
typedef struct {
  struct stand_in r;
  int steps, batch;
  const void **kept_x;
  const void *x, *weights, *dy;
  void *y, *dx, *gradients;
  double *h, *sums;
} pass;

cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnForwardMode_t mode,
                                        cudnnRNNDataDescriptor_t x, size_t *work, size_t *reserve) {
  (void)handle;
  const int64_t states = (int64_t)rnn->layers * (x->steps + 1) * x->batch * rnn->hidden;
  *work = 0;
  *reserve = (size_t)(1 + 2 * states + weights_in_all(rnn)) * sizeof(double);
  return stand_in_check(mode == CUDNN_FWD_MODE_TRAINING && x->width == rnn->input, "sizes");
}

/* bf16: the upper half of a float. */
static double get_bf16(const void *array, int64_t i) {
  const uint32_t bits = (uint32_t)((const uint16_t *)array)[i] << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Rounds towards zero where the two neighbours are as near, which the library need not do. */
static void set_bf16(void *array, int64_t i, double value) {
  const float wide = (float)value;
  uint32_t bits;
  memcpy(&bits, &wide, sizeof bits);
  ((uint16_t *)array)[i] = (uint16_t)((bits + 0x7fff) >> 16);
}

static double get(const struct stand_in *r, const void *array, int64_t i) {
  if (r->type == CUDNN_DATA_BFLOAT16) {
    return get_bf16(array, i);
  }
  return r->type == CUDNN_DATA_FLOAT ? (double)((const float *)array)[i] : ((const double *)array)[i];
}

static void set(const struct stand_in *r, void *array, int64_t i, double value) {
  if (r->type == CUDNN_DATA_BFLOAT16) {
    set_bf16(array, i, value);
  } else if (r->type == CUDNN_DATA_FLOAT) {
    ((float *)array)[i] = (float)value;
  } else {
    ((double *)array)[i] = value;
  }
}

/* h_t of a layer and sample, [H]; t = 0 .. T */
static double *state(const pass *p, int layer, int t, int b) {
  return p->h + (((int64_t)layer * (p->steps + 1) + t) * p->batch + b) * p->r.hidden;
}

/* c_t of an LSTM, likewise. */
static double *cell(const pass *p, int layer, int t, int b) {
  return state(p, p->r.layers + layer, t, b);
}

static double input_of(const pass *p, int layer, int t, int b, int64_t i) {
  return layer > 0 ? state(p, layer - 1, t, b)[i] : get(&p->r, p->x, ((int64_t)(t - 1) * p->batch + b) * p->r.input + i);
}

/* Row j of a linear map, applied to its input at step t, with the bias. */
static double linear_of(const pass *p, int layer, int t, int b, int linear, int j) {
  const int64_t n = columns(&p->r, layer, linear), at = place(&p->r, layer, linear, 0) + j * n;
  double sum = get(&p->r, p->weights, place(&p->r, layer, linear, 1) + j);
  for (int64_t i = 0; i < n; ++i) {
    sum += get(&p->r, p->weights, at + i) * (linear < p->r.gates ? input_of(p, layer, t, b, i) : state(p, layer, t - 1, b)[i]);
  }
  return sum;
}

static double sigmoid(double x) {
  return 1 / (1 + exp(-x));
}

/* Unit j of an LSTM's step, which also writes c_t[j]. slopes: the derivatives of c_t by the rows of linear 0 .. 2 and 4 .. 6, of
 * h_t by those of 3 and 7, of c_t by c_{t-1}[j], and of h_t by c_t[j]. */
static double lstm_unit(const pass *p, int layer, int t, int b, int j, const double a[8], double slopes[SLOPES]) {
  const double i = sigmoid(a[0] + a[4]), f = sigmoid(a[1] + a[5]), g = tanh(a[2] + a[6]), o = sigmoid(a[3] + a[7]);
  const double before = cell(p, layer, t - 1, b)[j], c = f * before + i * g, out = tanh(c);
  cell(p, layer, t, b)[j] = c;
  slopes[0] = slopes[4] = g * i * (1 - i);
  slopes[1] = slopes[5] = before * f * (1 - f);
  slopes[2] = slopes[6] = i * (1 - g * g);
  slopes[3] = slopes[7] = out * o * (1 - o);
  slopes[8] = f;
  slopes[9] = o * (1 - out * out);
  return o * out;
}

/* Unit j of a step. slopes: the derivatives of h_t by the row of every linear map, and by h_{t-1}[j] directly. */
static double unit(const pass *p, int layer, int t, int b, int j, double slopes[SLOPES]) {
  double a[2 * GATES];
  for (int k = 0; k < 2 * p->r.gates; ++k) {
    a[k] = linear_of(p, layer, t, b, k, j);
  }
  if (p->r.mode == CUDNN_LSTM) {
    return lstm_unit(p, layer, t, b, j, a, slopes);
  }
  if (p->r.mode != CUDNN_GRU) {
    const double h = p->r.mode == CUDNN_RNN_TANH ? tanh(a[0] + a[1]) : fmax(0, a[0] + a[1]);
    slopes[0] = slopes[1] = p->r.mode == CUDNN_RNN_TANH ? 1 - h * h : h > 0;
    slopes[2] = 0;
    return h;
  }
  const double r = sigmoid(a[0] + a[3]), i = sigmoid(a[1] + a[4]), n = tanh(a[2] + r * a[5]),
               before = state(p, layer, t - 1, b)[j];
  const double by_n = (1 - i) * (1 - n * n);
  slopes[2] = by_n;
  slopes[5] = by_n * r;
  slopes[0] = slopes[3] = by_n * a[5] * r * (1 - r);
  slopes[1] = slopes[4] = (before - n) * i * (1 - i);
  slopes[6] = i;
  return (1 - i) * n + i * before;
}

static void forward(const void *context) {
  const pass *p = context;
  double slopes[SLOPES];
  *p->kept_x = p->x;
  for (int l = 0; l < p->r.layers; ++l) {
    for (int b = 0; b < p->batch; ++b) {
      memset(state(p, l, 0, b), 0, (size_t)p->r.hidden * sizeof(double));
      memset(cell(p, l, 0, b), 0, (size_t)p->r.hidden * sizeof(double));
      for (int t = 1; t <= p->steps; ++t) {
        for (int j = 0; j < p->r.hidden; ++j) {
          const double h = unit(p, l, t, b, j, slopes);
          state(p, l, t, b)[j] = h;
          if (l + 1 == p->r.layers) {
            set(&p->r, p->y, ((int64_t)(t - 1) * p->batch + b) * p->r.hidden + j, h);
          }
        }
      }
    }
  }
}

/* Adds g times the slopes of unit j: to the weights' sums, to the gradients of h_{t-1} (carry) and of the input (below). *g_c: the
 * gradient of an LSTM's c_t[j], which becomes that of c_{t-1}[j]. */
static void spread(const pass *p, int layer, int t, int b, int j, double g, double *g_c, double *carry, double *below) {
  const int lstm = p->r.mode == CUDNN_LSTM;
  double slopes[SLOPES];
  (void)unit(p, layer, t, b, j, slopes);
  const double through_c = lstm ? *g_c + g * slopes[9] : 0;
  *g_c = lstm ? through_c * slopes[8] : 0;
  carry[j] += lstm ? 0 : g * slopes[2 * p->r.gates];
  for (int k = 0; k < 2 * p->r.gates; ++k) {
    const int64_t n = columns(&p->r, layer, k), at = place(&p->r, layer, k, 0) + j * n;
    const double by = slopes[k] * (lstm && k % GATES != 3 ? through_c : g);
    p->sums[place(&p->r, layer, k, 1) + j] += by;
    for (int64_t i = 0; i < n; ++i) {
      const int of_input = k < p->r.gates;
      p->sums[at + i] += by * (of_input ? input_of(p, layer, t, b, i) : state(p, layer, t - 1, b)[i]);
      (of_input ? below : carry)[i] += by * get(&p->r, p->weights, at + i);
    }
  }
}

/* One sample through one layer, backwards. gradients: [T][widest], of the layer's outputs on entry and of its inputs on return. */
static void layer_back(const pass *p, int layer, int b, int64_t widest, double *gradients) {
  double *carry = bppsa_calloc(3 * p->r.hidden, sizeof(double)), *next = carry + p->r.hidden, *carry_c = next + p->r.hidden,
         *below = bppsa_calloc(widest, sizeof(double));
  for (int t = p->steps; t >= 1; --t) {
    double *at = gradients + (t - 1) * widest;
    memset(next, 0, (size_t)p->r.hidden * sizeof(double));
    memset(below, 0, (size_t)widest * sizeof(double));
    for (int j = 0; j < p->r.hidden; ++j) {
      spread(p, layer, t, b, j, at[j] + carry[j], &carry_c[j], next, below);
    }
    memcpy(carry, next, (size_t)p->r.hidden * sizeof(double));
    memcpy(at, below, (size_t)widest * sizeof(double));
  }
  bppsa_free(carry);
  bppsa_free(below);
}

static void backward_data(const void *context) {
  pass all = *(const pass *)context, *p = &all;
  p->x = *p->kept_x;
  const int64_t widest = p->r.input > p->r.hidden ? p->r.input : p->r.hidden;
  double *gradients = bppsa_calloc(p->steps * widest, sizeof(double));
  memset(p->sums, 0, (size_t)weights_in_all(&p->r) * sizeof(double));
  for (int b = 0; b < p->batch; ++b) {
    for (int64_t i = 0; i < p->steps * p->r.hidden; ++i) {
      gradients[i / p->r.hidden * widest + i % p->r.hidden] =
          get(&p->r, p->dy, (i / p->r.hidden * p->batch + b) * p->r.hidden + i % p->r.hidden);
    }
    for (int l = p->r.layers - 1; l >= 0; --l) {
      layer_back(p, l, b, widest, gradients);
    }
    for (int64_t i = 0; i < (int64_t)p->steps * p->r.input; ++i) {
      set(&p->r, p->dx, (i / p->r.input * p->batch + b) * p->r.input + i % p->r.input,
          gradients[i / p->r.input * widest + i % p->r.input]);
    }
  }
  bppsa_free(gradients);
}

static void backward_weights(const void *context) {
  const pass *p = context;
  for (int64_t i = 0; i < weights_in_all(&p->r); ++i) {
    set(&p->r, p->gradients, i, get(&p->r, p->gradients, i) + p->sums[i]);
  }
}

static cudnnStatus_t run(cudnnHandle_t handle, void (*function)(const void *context), const pass *p) {
  simt_host_function(handle->stream, function, p, sizeof *p);
  return CUDNN_STATUS_SUCCESS;
}

static pass pass_of(cudnnRNNDescriptor_t rnn, cudnnRNNDataDescriptor_t x, const void *weights, void *reserve) {
  pass p = {.r = *rnn, .steps = x->steps, .batch = x->batch, .weights = weights, .kept_x = reserve, .h = (double *)reserve + 1};
  p.sums = p.h + 2 * (int64_t)rnn->layers * (x->steps + 1) * x->batch * rnn->hidden;
  return p;
}

/* Checks what every pass must be given: lengths, sizes as described, and no initial or final states. */
static int is_complete(cudnnRNNDescriptor_t rnn, const int32_t *lengths, cudnnRNNDataDescriptor_t x, cudnnRNNDataDescriptor_t y,
                       cudnnTensorDescriptor_t h, size_t reserve_bytes, const void *hx) {
  size_t work, reserve;
  return cudnnGetRNNTempSpaceSizes(NULL, rnn, CUDNN_FWD_MODE_TRAINING, x, &work, &reserve) == CUDNN_STATUS_SUCCESS &&
         reserve == reserve_bytes && lengths != NULL && y->width == rnn->hidden && y->steps == x->steps &&
         x->padded == rnn->padded && y->padded == rnn->padded && h->extents[0] == rnn->layers && h->extents[1] == x->batch &&
         h->extents[2] == rnn->hidden && hx == NULL;
}

/* An LSTM is told the shape of c, and no other layer is. */
static int has_cells(cudnnRNNDescriptor_t rnn, cudnnTensorDescriptor_t h, cudnnTensorDescriptor_t c) {
  return rnn->mode != CUDNN_LSTM ? c == NULL : c != NULL && memcmp(c->extents, h->extents, sizeof c->extents) == 0;
}

cudnnStatus_t cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnForwardMode_t mode, const int32_t lengths[],
                              cudnnRNNDataDescriptor_t x_shape, const void *x, cudnnRNNDataDescriptor_t y_shape, void *y,
                              cudnnTensorDescriptor_t h_shape, const void *hx, void *hy, cudnnTensorDescriptor_t c_shape,
                              const void *cx, void *cy, size_t weight_bytes, const void *weights, size_t work_bytes, void *work,
                              size_t reserve_bytes, void *reserve) {
  pass p = pass_of(rnn, x_shape, weights, reserve);
  (void)hy, (void)cy, (void)weight_bytes, (void)work_bytes, (void)work;
  p.x = x;
  p.y = y;
  if (mode != CUDNN_FWD_MODE_TRAINING || cx != NULL || !has_cells(rnn, h_shape, c_shape) ||
      !is_complete(rnn, lengths, x_shape, y_shape, h_shape, reserve_bytes, hx)) {
    return stand_in_answer(CUDNN_STATUS_BAD_PARAM, "forward");
  }
  if (rnn->algorithm == CUDNN_RNN_ALGO_PERSIST_DYNAMIC && !rnn->padded) {
    return stand_in_answer(CUDNN_STATUS_NOT_SUPPORTED, "packed data are not dynamic");
  }
  if (rnn->algorithm == CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H && rnn->hidden == 5) {
    return stand_in_answer(CUDNN_STATUS_NOT_SUPPORTED, "five is not small enough");
  }
  return run(handle, forward, &p);
}

cudnnStatus_t cudnnRNNBackwardData_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, const int32_t lengths[],
                                      cudnnRNNDataDescriptor_t y_shape, const void *y, const void *dy,
                                      cudnnRNNDataDescriptor_t x_shape, void *dx, cudnnTensorDescriptor_t h_shape, const void *hx,
                                      const void *dhy, void *dhx, cudnnTensorDescriptor_t c_shape, const void *cx,
                                      const void *dcy, void *dcx, size_t weight_bytes, const void *weights, size_t work_bytes,
                                      void *work, size_t reserve_bytes, void *reserve) {
  pass p = pass_of(rnn, x_shape, weights, reserve);
  (void)dhx, (void)dcx, (void)weight_bytes, (void)work_bytes, (void)work;
  p.dy = dy;
  p.dx = dx;
  if (dhy != NULL || dcy != NULL || cx != NULL || y == NULL || dy == NULL || dx == NULL || !has_cells(rnn, h_shape, c_shape) ||
      !is_complete(rnn, lengths, x_shape, y_shape, h_shape, reserve_bytes, hx)) {
    return stand_in_answer(CUDNN_STATUS_BAD_PARAM, "backward");
  }
  if (rnn->algorithm == CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H && rnn->hidden == 6) {
    return stand_in_answer(CUDNN_STATUS_NOT_SUPPORTED, "six is not small enough");
  }
  return run(handle, backward_data, &p);
}

cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnWgradMode_t mode,
                                         const int32_t lengths[], cudnnRNNDataDescriptor_t x_shape, const void *x,
                                         cudnnTensorDescriptor_t h_shape, const void *hx, cudnnRNNDataDescriptor_t y_shape,
                                         const void *y, size_t weight_bytes, void *gradients, size_t work_bytes, void *work,
                                         size_t reserve_bytes, void *reserve) {
  pass p = pass_of(rnn, x_shape, NULL, reserve);
  (void)weight_bytes, (void)work_bytes, (void)work;
  p.gradients = gradients;
  if (mode != CUDNN_WGRAD_MODE_ADD || x == NULL || y == NULL ||
      !is_complete(rnn, lengths, x_shape, y_shape, h_shape, reserve_bytes, hx)) {
    return stand_in_answer(CUDNN_STATUS_BAD_PARAM, "weight gradients");
  }
  return run(handle, backward_weights, &p);
}

/* ---- instead of core/compute/library_cudnn.c ---- */

#define ADDRESS(function) .function = function,

bppsa_status bppsa_cudnn_load(const cudnn_library **library) {
  static const cudnn_library table = {CUDNN_FUNCTIONS(ADDRESS)};
  *library = &table;
  return BPPSA_OK;
}

void bppsa_cudnn_probe(bppsa_cudnn_report *report) {
  *report = (bppsa_cudnn_report){.built = true, .version = (int64_t)cudnnGetVersion()};
}

bppsa_status bppsa_cudnn_check(const cudnn_library *library, cudnnStatus_t status, const char *what) {
  char words[64] = "";
  library->cudnnGetLastErrorString(words, sizeof words);
  return status == CUDNN_STATUS_SUCCESS
             ? BPPSA_OK
             : bppsa_fail(status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ? BPPSA_ERR_MEMORY : BPPSA_ERR_UNSUPPORTED,
                          "cuDNN: %s: %s: %s", what, cudnnGetErrorString(status), words);
}
