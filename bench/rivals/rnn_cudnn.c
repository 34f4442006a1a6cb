#include "bench/rivals/rnn_cudnn.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/number.h"
#include "core/compute/library_cudnn.h"
#include "core/compute/memory.h"
#include "gru/gru.h"
#include "lstm/lstm.h"
#include "rnn/rnn.h"

/* One allocation of GPU memory (ALIGNED parts, in this order), with the sizes that cuDNN gives:
 *
 *   weights, gradients   cuDNN's own layout, which is asked for matrix by matrix
 *   work, reserve        cuDNN's; reserve carries data from the forward to the backward pass
 *   y, dy [T][B][H]      the top layer's states and their gradients. dy is zero except at the last step; with loss_all it is
 *                        absent.
 *   dx [T][B][I]         the input's gradient, which cuDNN always computes
 *   lengths [B]          T, int32
 *   x, seed              the rounded inputs of a network in bf16; absent in others
 */
enum { ALIGNED = 256, PARTS = 10 };
enum { WEIGHTS, GRADIENTS, WORK, RESERVE, Y, DY, DX, LENGTHS, X, SEED };

struct bppsa_cudnn_network {
  const cudnn_library *library;
  const bppsa_device *device;
  bppsa_recurrent_config config;
  const bppsa_cell *cell;
  cudnnRNNMode_t mode; /* cuDNN's name for the cell's equations */
  bppsa_cudnn_algorithm algorithm;
  cudnnHandle_t handle;
  cudnnDropoutDescriptor_t dropout;
  cudnnRNNDescriptor_t rnn;
  cudnnRNNDataDescriptor_t x_shape, y_shape;
  cudnnTensorDescriptor_t h_shape, matrix, bias; /* matrix, bias: receive the answers to questions about the layout */
  size_t bytes[PARTS];
  void *memory, *parts[PARTS];
  const void *x; /* of the latest forward pass, borrowed; NULL before it */
};

/* Returns early if cuDNN fails; n: the network. */
#define TRY_CUDNN(call, what) BPPSA_TRY(bppsa_cudnn_check(n->library, n->library->call, what))

static bppsa_status check_cuda(cudaError_t error, const char *what) {
  return error == cudaSuccess ? BPPSA_OK
                              : bppsa_fail(BPPSA_ERR_CUDA, "cuDNN: %s: %s, expected success", what, cudaGetErrorString(error));
}

static bppsa_status use_device(const bppsa_cudnn_network *n) {
  return check_cuda(cudaSetDevice(bppsa_device_get_index(n->device)), "device");
}

/* ---- creation ---- */

static bool is_bf16(const bppsa_cudnn_network *n) {
  return bppsa_cudnn_bf16(n->algorithm);
}

/* The type of sums. */
static cudnnDataType_t precision_of(const bppsa_cudnn_network *n) {
  return n->config.dtype == BPPSA_F32 ? CUDNN_DATA_FLOAT : CUDNN_DATA_DOUBLE;
}

/* The type of inputs, weights, states and gradients. */
static cudnnDataType_t type_of(const bppsa_cudnn_network *n) {
  return is_bf16(n) ? CUDNN_DATA_BFLOAT16 : precision_of(n);
}

static int64_t size_of(const bppsa_cudnn_network *n) {
  return is_bf16(n) ? (int64_t)sizeof(uint16_t) : (int64_t)bppsa_dtype_size(n->config.dtype);
}

static bppsa_status make_objects(bppsa_cudnn_network *n) {
  TRY_CUDNN(cudnnCreate(&n->handle), "handle");
  TRY_CUDNN(cudnnSetStream(n->handle, (cudaStream_t)bppsa_device_get_stream(n->device)), "stream");
  TRY_CUDNN(cudnnCreateDropoutDescriptor(&n->dropout), "dropout");
  TRY_CUDNN(cudnnCreateRNNDescriptor(&n->rnn), "layers");
  TRY_CUDNN(cudnnCreateRNNDataDescriptor(&n->x_shape), "x");
  TRY_CUDNN(cudnnCreateRNNDataDescriptor(&n->y_shape), "y");
  TRY_CUDNN(cudnnCreateTensorDescriptor(&n->h_shape), "h0");
  TRY_CUDNN(cudnnCreateTensorDescriptor(&n->matrix), "matrix");
  TRY_CUDNN(cudnnCreateTensorDescriptor(&n->bias), "bias");
  TRY_CUDNN(cudnnSetDropoutDescriptor(n->dropout, n->handle, 0, NULL, 0, 0), "dropout");
  return BPPSA_OK;
}

static bool is_packed(const bppsa_cudnn_network *n) {
  return n->algorithm >= BPPSA_CUDNN_PACKED;
}

static bppsa_status describe_layers(const bppsa_cudnn_network *n) {
  static const cudnnRNNAlgo_t algorithms[BPPSA_CUDNN_PACKED] = {
      CUDNN_RNN_ALGO_STANDARD,        CUDNN_RNN_ALGO_PERSIST_STATIC,
      CUDNN_RNN_ALGO_PERSIST_DYNAMIC, CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H,
      CUDNN_RNN_ALGO_STANDARD,        CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H,
      CUDNN_RNN_ALGO_STANDARD,        CUDNN_RNN_ALGO_PERSIST_STATIC,
      CUDNN_RNN_ALGO_PERSIST_DYNAMIC, CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H};
  const bppsa_recurrent_config *c = &n->config;
  const cudnnMathType_t math = bppsa_cudnn_exact(n->algorithm) ? CUDNN_FMA_MATH : CUDNN_DEFAULT_MATH;
  const cudnnRNNAlgo_t algorithm = algorithms[n->algorithm % BPPSA_CUDNN_PACKED];
  TRY_CUDNN(cudnnSetRNNDescriptor_v8(n->rnn, algorithm, n->mode, CUDNN_RNN_DOUBLE_BIAS, CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT,
                                     type_of(n), precision_of(n), math, (int32_t)c->input, (int32_t)c->hidden, (int32_t)c->hidden,
                                     (int32_t)c->layers, n->dropout,
                                     is_packed(n) ? CUDNN_RNN_PADDED_IO_DISABLED : CUDNN_RNN_PADDED_IO_ENABLED),
            "layers");
  if (algorithm == CUDNN_RNN_ALGO_PERSIST_DYNAMIC) {
    TRY_CUDNN(cudnnBuildRNNDynamic(n->handle, n->rnn, (int)c->batch), "kernels for this batch");
  }
  return BPPSA_OK;
}

/* Sequences of T steps each: x [T][B][I], y [T][B][H], h0 [L][B][H]. lengths: size B, all T. */
static bppsa_status describe_arrays(const bppsa_cudnn_network *n, const int32_t *lengths) {
  const bppsa_recurrent_config *c = &n->config;
  const int layers = (int)c->layers, steps = (int)c->seq_len, batch = (int)c->batch, input = (int)c->input,
            hidden = (int)c->hidden;
  const cudnnRNNDataLayout_t layout =
      is_packed(n) ? CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED : CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED;
  double nothing = 0; /* the value of padding, of the type or shorter; there is no padding */
  TRY_CUDNN(cudnnSetRNNDataDescriptor(n->x_shape, type_of(n), layout, steps, batch, input, lengths, &nothing), "x");
  TRY_CUDNN(cudnnSetRNNDataDescriptor(n->y_shape, type_of(n), layout, steps, batch, hidden, lengths, &nothing), "y");
  TRY_CUDNN(cudnnSetTensorNdDescriptor(n->h_shape, type_of(n), 3, (const int[]){layers, batch, hidden},
                                       (const int[]){batch * hidden, hidden, 1}),
            "h0");
  return BPPSA_OK;
}

static bppsa_status count_bytes(bppsa_cudnn_network *n) {
  const bppsa_recurrent_config *c = &n->config;
  const int64_t states[] = {c->seq_len, c->batch, c->hidden}, inputs[] = {c->seq_len, c->batch, c->input};
  int64_t count;
  BPPSA_TRY(bppsa_shape_bytes(c->dtype, 3, states, &count, &n->bytes[Y]));
  BPPSA_TRY(bppsa_shape_bytes(c->dtype, 3, inputs, &count, &n->bytes[DX]));
  n->bytes[DY] = c->loss_all ? 0 : n->bytes[Y];
  n->bytes[LENGTHS] = (size_t)c->batch * sizeof(int32_t);
  if (is_bf16(n)) {
    n->bytes[Y] /= sizeof(float) / sizeof(uint16_t);
    n->bytes[DX] /= sizeof(float) / sizeof(uint16_t);
    n->bytes[DY] = c->loss_all ? 0 : n->bytes[Y];
    n->bytes[X] = n->bytes[DX];
    n->bytes[SEED] = c->loss_all ? n->bytes[Y] : (size_t)(c->batch * c->hidden) * sizeof(uint16_t);
  }
  TRY_CUDNN(cudnnGetRNNWeightSpaceSize(n->handle, n->rnn, &n->bytes[WEIGHTS]), "weights");
  n->bytes[GRADIENTS] = n->bytes[WEIGHTS];
  TRY_CUDNN(
      cudnnGetRNNTempSpaceSizes(n->handle, n->rnn, CUDNN_FWD_MODE_TRAINING, n->x_shape, &n->bytes[WORK], &n->bytes[RESERVE]),
      "workspace");
  return BPPSA_OK;
}

static bppsa_status place_parts(bppsa_cudnn_network *n, const int32_t *lengths) {
  int64_t total = 0;
  for (int i = 0; i < PARTS; ++i) {
    if (__builtin_add_overflow(total, (int64_t)((n->bytes[i] + ALIGNED - 1) / ALIGNED * ALIGNED), &total)) {
      return bppsa_fail(BPPSA_ERR_MEMORY, "cuDNN: its arrays do not fit in 64 bits");
    }
  }
  BPPSA_TRY(bppsa_memory_alloc(n->device, total, &n->memory));
  char *next = n->memory;
  for (int i = 0; i < PARTS; ++i) {
    n->parts[i] = next;
    next += (n->bytes[i] + ALIGNED - 1) / ALIGNED * ALIGNED;
  }
  BPPSA_TRY(bppsa_memory_clear(n->device, n->memory, total));
  return bppsa_memory_put(n->device, n->parts[LENGTHS], lengths, (int64_t)n->bytes[LENGTHS]);
}

static bppsa_status build(bppsa_cudnn_network *n) {
  BPPSA_TRY(use_device(n));
  BPPSA_TRY(make_objects(n));
  BPPSA_TRY(describe_layers(n));
  int32_t *lengths = bppsa_calloc(n->config.batch, sizeof *lengths);
  if (lengths == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t b = 0; b < n->config.batch; ++b) {
    lengths[b] = (int32_t)n->config.seq_len;
  }
  bppsa_status status = describe_arrays(n, lengths);
  status = status == BPPSA_OK ? count_bytes(n) : status;
  status = status == BPPSA_OK ? place_parts(n, lengths) : status;
  bppsa_free(lengths);
  return status;
}

/* ERR_UNSUPPORTED: cuDNN does not have the cell with this nonlinearity. */
static bppsa_status find_mode(const bppsa_cell *cell, bppsa_nonlinearity nonlinearity, cudnnRNNMode_t *mode) {
  static const struct {
    const bppsa_cell *cell;
    bppsa_nonlinearity nonlinearity;
    cudnnRNNMode_t mode;
  } modes[] = {{&bppsa_rnn_cell, BPPSA_NONLINEARITY_TANH, CUDNN_RNN_TANH},
               {&bppsa_rnn_cell, BPPSA_NONLINEARITY_RELU, CUDNN_RNN_RELU},
               {&bppsa_gru_cell, BPPSA_NONLINEARITY_TANH, CUDNN_GRU},
               {&bppsa_lstm_cell, BPPSA_NONLINEARITY_TANH, CUDNN_LSTM}};
  for (size_t i = 0; i < sizeof modes / sizeof modes[0]; ++i) {
    if (modes[i].cell == cell && modes[i].nonlinearity == nonlinearity) {
      *mode = modes[i].mode;
      return BPPSA_OK;
    }
  }
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                    "cuDNN: it has no layers of the cell '%s' with nonlinearity %d, expected rnn, gru or lstm", cell->name,
                    (int)nonlinearity);
}

static bppsa_status check_request(const bppsa_recurrent_config *c, const bppsa_cell *cell, bppsa_cudnn_algorithm algorithm,
                                  const bppsa_device *device, cudnnRNNMode_t *mode) {
  const int64_t sizes[] = {c->seq_len, c->batch, c->input, c->hidden, c->layers};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    if (sizes[i] < 1 || sizes[i] > INT32_MAX) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "cuDNN: a size of %lld, expected 1 .. %d", (long long)sizes[i], INT32_MAX);
    }
  }
  if ((c->dtype != BPPSA_F32 && c->dtype != BPPSA_F64) || (unsigned)c->nonlinearity > BPPSA_NONLINEARITY_RELU ||
      (unsigned)algorithm >= BPPSA_CUDNN_ALGORITHMS) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "cuDNN: dtype %s, nonlinearity %d, algorithm %d, expected f32 or f64, 0 or 1, 0 .. %d",
                      bppsa_dtype_name(c->dtype), (int)c->nonlinearity, (int)algorithm, BPPSA_CUDNN_ALGORITHMS - 1);
  }
  BPPSA_TRY(find_mode(cell, c->nonlinearity, mode));
  if (c->dtype == BPPSA_F64 && !bppsa_cudnn_exact(algorithm)) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "cuDNN: %s with dtype f64, expected f32",
                      bppsa_cudnn_bf16(algorithm) ? "bf16" : "TF32");
  }
  if (bppsa_device_get_kind(device) != BPPSA_CUDA) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "cuDNN: device %s, expected a GPU", bppsa_device_get_name(device));
  }
  return BPPSA_OK;
}

bppsa_status bppsa_cudnn_create(const bppsa_recurrent_config *config, const bppsa_cell *cell, bppsa_cudnn_algorithm algorithm,
                                const bppsa_device *device, bppsa_cudnn_network **network) {
  const cudnn_library *library;
  cudnnRNNMode_t mode = CUDNN_RNN_TANH;
  BPPSA_TRY(check_request(config, cell, algorithm, device, &mode));
  BPPSA_TRY(bppsa_cudnn_load(&library));
  bppsa_cudnn_network *n = bppsa_calloc(1, sizeof *n);
  if (n == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  n->library = library;
  n->device = device;
  n->config = *config;
  n->cell = cell;
  n->mode = mode;
  n->algorithm = algorithm;
  const bppsa_status status = build(n);
  if (status != BPPSA_OK) {
    bppsa_cudnn_destroy(n);
    return status;
  }
  *network = n;
  return BPPSA_OK;
}

void bppsa_cudnn_destroy(bppsa_cudnn_network *n) {
  if (n == NULL) {
    return;
  }
  (void)use_device(n);
  bppsa_memory_free(n->device, n->memory);
  cudnnTensorDescriptor_t const tensors[] = {n->h_shape, n->matrix, n->bias};
  for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; ++i) {
    if (tensors[i] != NULL) {
      (void)n->library->cudnnDestroyTensorDescriptor(tensors[i]);
    }
  }
  if (n->x_shape != NULL) {
    (void)n->library->cudnnDestroyRNNDataDescriptor(n->x_shape);
  }
  if (n->y_shape != NULL) {
    (void)n->library->cudnnDestroyRNNDataDescriptor(n->y_shape);
  }
  if (n->rnn != NULL) {
    (void)n->library->cudnnDestroyRNNDescriptor(n->rnn);
  }
  if (n->dropout != NULL) {
    (void)n->library->cudnnDestroyDropoutDescriptor(n->dropout);
  }
  if (n->handle != NULL) {
    (void)n->library->cudnnDestroy(n->handle);
  }
  bppsa_free(n);
}

/* ---- numbers that travel ---- */

/* To the nearest number of bf16, of two to the even one; infinite where f32's is too large for it. NaN stays NaN. */
static uint16_t rounded(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (isnan(value)) {
    return (uint16_t)(bits >> 16 | 0x40);
  }
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Copies `count` numbers of the configuration's dtype in host memory to numbers of the network on the GPU. */
static bppsa_status put_numbers(const bppsa_cudnn_network *n, void *to, const void *from, int64_t count) {
  if (!is_bf16(n)) {
    return bppsa_memory_put(n->device, to, from, count * size_of(n));
  }
  uint16_t *half = bppsa_calloc(count, sizeof *half);
  if (half == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < count; ++i) {
    half[i] = rounded(((const float *)from)[i]);
  }
  const bppsa_status status = bppsa_memory_put(n->device, to, half, count * size_of(n));
  bppsa_free(half);
  return status;
}

/* Copies numbers back to the host. */
static bppsa_status get_numbers(const bppsa_cudnn_network *n, void *to, const void *from, int64_t count) {
  if (!is_bf16(n)) {
    return bppsa_memory_get(n->device, to, from, count * size_of(n));
  }
  uint16_t *half = bppsa_calloc(count, sizeof *half);
  if (half == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const bppsa_view received = bppsa_view_make(half, BPPSA_BF16, 1, &count);
  const bppsa_status status = bppsa_memory_get(n->device, half, from, count * size_of(n));
  for (int64_t i = 0; status == BPPSA_OK && i < count; ++i) {
    double value;
    (void)bppsa_number_real(&received, i, &value);
    ((float *)to)[i] = (float)value;
  }
  bppsa_free(half);
  return status;
}

static bppsa_status take_part(const bppsa_cudnn_network *n, int part, const void *from) {
  return from == NULL ? bppsa_memory_clear(n->device, n->parts[part], (int64_t)n->bytes[part])
                      : put_numbers(n, n->parts[part], from, (int64_t)n->bytes[part] / size_of(n));
}

bppsa_status bppsa_cudnn_take(bppsa_cudnn_network *n, const void *x, const void *seed) {
  if (!is_bf16(n)) {
    return BPPSA_OK;
  }
  BPPSA_TRY(use_device(n));
  BPPSA_TRY(take_part(n, X, x));
  return take_part(n, SEED, seed);
}

/* ---- parameters ---- */

/* The number of elements in the tensor that an answer describes. */
static bppsa_status count_tensor(const bppsa_cudnn_network *n, cudnnTensorDescriptor_t tensor, int64_t *count) {
  cudnnDataType_t type;
  int dims, extents[CUDNN_DIM_MAX], strides[CUDNN_DIM_MAX];
  TRY_CUDNN(cudnnGetTensorNdDescriptor(tensor, CUDNN_DIM_MAX, &type, &dims, extents, strides), "weights");
  *count = dims > 0 ? 1 : 0;
  for (int i = 0; i < dims; ++i) {
    *count *= extents[i];
  }
  return BPPSA_OK;
}

/* Finds rows gate·H .. gate·H + H - 1 of a parameter [G·H, ...] in host memory. ERR_SHAPE: the model has no such parameter of
 * that size. */
static bppsa_status find_rows(const bppsa_cudnn_network *n, const char *prefix, const char *kind, int64_t layer, int64_t gate,
                              const bppsa_model *model, bool gradient, void **rows, int64_t *count) {
  char name[64];
  snprintf(name, sizeof name, "%s.%s_l%lld", prefix, kind, (long long)layer);
  for (int64_t p = 0; p < model->parameter_count; ++p) {
    const bppsa_parameter *parameter = &model->parameters[p];
    const bppsa_view *view = gradient ? &parameter->gradient : &parameter->value;
    if (strcmp(parameter->name, name) == 0 && view->shape[0] == n->cell->gates * n->config.hidden &&
        view->dtype == n->config.dtype) {
      *count = bppsa_view_count(view) / n->cell->gates;
      *rows = (char *)view->data + (size_t)(gate * *count) * bppsa_dtype_size(view->dtype);
      return BPPSA_OK;
    }
  }
  return bppsa_fail(BPPSA_ERR_SHAPE, "cuDNN: the model has no %s of %lld rows and dtype %s", name,
                    (long long)(n->cell->gates * n->config.hidden), bppsa_dtype_name(n->config.dtype));
}

/* Copies one gate's rows of a matrix or bias: values to the GPU, or gradients from it. */
static bppsa_status copy_rows(const bppsa_cudnn_network *n, cudnnTensorDescriptor_t tensor, void *at, bool gradient, void *rows,
                              int64_t count) {
  int64_t theirs;
  BPPSA_TRY(count_tensor(n, tensor, &theirs));
  if (at == NULL || theirs != count) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "cuDNN: a weight of %lld numbers, expected %lld", (long long)theirs, (long long)count);
  }
  return gradient ? get_numbers(n, rows, at, count) : put_numbers(n, at, rows, count);
}

/* Copies one gate of one layer, from its input (side 0) or its states (side 1): the matrix and the bias. cuDNN numbers them r, z,
 * n of the input, then r, z, n of the states; of an LSTM likewise i, f, g, o. */
static bppsa_status copy_gate(const bppsa_cudnn_network *n, const char *prefix, int64_t layer, int64_t side, int64_t gate,
                              const bppsa_model *model, bool gradient) {
  static const char *const matrices[] = {"weight_ih", "weight_hh"}, *const biases[] = {"bias_ih", "bias_hh"};
  void *matrix = NULL, *bias = NULL, *rows;
  int64_t count;
  TRY_CUDNN(cudnnGetRNNWeightParams(n->handle, n->rnn, (int32_t)layer, n->bytes[WEIGHTS],
                                    n->parts[gradient ? GRADIENTS : WEIGHTS], (int32_t)(side * n->cell->gates + gate), n->matrix,
                                    &matrix, n->bias, &bias),
            "weights");
  BPPSA_TRY(find_rows(n, prefix, matrices[side], layer, gate, model, gradient, &rows, &count));
  BPPSA_TRY(copy_rows(n, n->matrix, matrix, gradient, rows, count));
  BPPSA_TRY(find_rows(n, prefix, biases[side], layer, gate, model, gradient, &rows, &count));
  return copy_rows(n, n->bias, bias, gradient, rows, count);
}

static bppsa_status copy_parameters(const bppsa_cudnn_network *n, const char *prefix, const bppsa_model *model, bool gradient) {
  BPPSA_TRY(use_device(n));
  for (int64_t l = 0; l < n->config.layers; ++l) {
    for (int64_t i = 0; i < 2 * n->cell->gates; ++i) {
      BPPSA_TRY(copy_gate(n, prefix, l, i / n->cell->gates, i % n->cell->gates, model, gradient));
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_cudnn_set(bppsa_cudnn_network *network, const char *prefix, const bppsa_model *model) {
  return copy_parameters(network, prefix, model, false);
}

bppsa_status bppsa_cudnn_pull(const bppsa_cudnn_network *network, const char *prefix, const bppsa_model *model) {
  return copy_parameters(network, prefix, model, true);
}

/* ---- passes ---- */

static bppsa_status check_view(const bppsa_cudnn_network *n, const char *what, const bppsa_view *view, int64_t steps,
                               int64_t width) {
  const int64_t count = steps * n->config.batch * width;
  if (view->device != BPPSA_CUDA || view->dtype != n->config.dtype || bppsa_view_count(view) != count ||
      !bppsa_view_contiguous(view)) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "cuDNN: %s: expected a contiguous array of %lld x %lld x %lld %s in GPU memory", what,
                      (long long)steps, (long long)n->config.batch, (long long)width, bppsa_dtype_name(n->config.dtype));
  }
  return BPPSA_OK;
}

/* c, of cells that have one, has the shape of h. */
static cudnnTensorDescriptor_t c_shape(const bppsa_cudnn_network *n) {
  return n->cell->pair ? n->h_shape : NULL;
}

bppsa_status bppsa_cudnn_forward(bppsa_cudnn_network *n, const bppsa_view *x) {
  const void *data = is_bf16(n) ? n->parts[X] : x->data;
  BPPSA_TRY(check_view(n, "x", x, n->config.seq_len, n->config.input));
  BPPSA_TRY(use_device(n));
  n->x = NULL;
  TRY_CUDNN(cudnnRNNForward(n->handle, n->rnn, CUDNN_FWD_MODE_TRAINING, n->parts[LENGTHS], n->x_shape, data, n->y_shape,
                            n->parts[Y], n->h_shape, NULL, NULL, c_shape(n), NULL, NULL, n->bytes[WEIGHTS], n->parts[WEIGHTS],
                            n->bytes[WORK], n->parts[WORK], n->bytes[RESERVE], n->parts[RESERVE]),
            "forward");
  n->x = data;
  return BPPSA_OK;
}

/* The first byte of the last step in an array [T][B][H]. */
static char *last_step(const bppsa_cudnn_network *n, void *array, int64_t *bytes) {
  *bytes = n->config.batch * n->config.hidden * size_of(n);
  return (char *)array + (n->config.seq_len - 1) * *bytes;
}

/* cuDNN adds to the weights' gradients, so they are set to 0 first. */
bppsa_status bppsa_cudnn_backward(bppsa_cudnn_network *n, const bppsa_view *seed) {
  const bool all = n->config.loss_all;
  cudaStream_t stream = (cudaStream_t)bppsa_device_get_stream(n->device);
  const void *data = is_bf16(n) ? n->parts[SEED] : seed->data;
  BPPSA_TRY(check_view(n, "seed", seed, all ? n->config.seq_len : 1, n->config.hidden));
  if (n->x == NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "cuDNN: backward: expected a forward pass before it");
  }
  BPPSA_TRY(use_device(n));
  BPPSA_TRY(check_cuda(cudaMemsetAsync(n->parts[GRADIENTS], 0, n->bytes[GRADIENTS], stream), "gradients"));
  if (!all) {
    int64_t bytes;
    char *last = last_step(n, n->parts[DY], &bytes);
    BPPSA_TRY(check_cuda(cudaMemcpyAsync(last, data, (size_t)bytes, cudaMemcpyDeviceToDevice, stream), "seed"));
  }
  TRY_CUDNN(cudnnRNNBackwardData_v8(n->handle, n->rnn, n->parts[LENGTHS], n->y_shape, n->parts[Y], all ? data : n->parts[DY],
                                    n->x_shape, n->parts[DX], n->h_shape, NULL, NULL, NULL, c_shape(n), NULL, NULL, NULL,
                                    n->bytes[WEIGHTS], n->parts[WEIGHTS], n->bytes[WORK], n->parts[WORK], n->bytes[RESERVE],
                                    n->parts[RESERVE]),
            "backward");
  TRY_CUDNN(cudnnRNNBackwardWeights_v8(n->handle, n->rnn, CUDNN_WGRAD_MODE_ADD, n->parts[LENGTHS], n->x_shape, n->x, n->h_shape,
                                       NULL, n->y_shape, n->parts[Y], n->bytes[WEIGHTS], n->parts[GRADIENTS], n->bytes[WORK],
                                       n->parts[WORK], n->bytes[RESERVE], n->parts[RESERVE]),
            "weight gradients");
  return BPPSA_OK;
}

int64_t bppsa_cudnn_launches(const bppsa_cudnn_network *network) {
  const int algorithm = (int)network->algorithm % BPPSA_CUDNN_PACKED;
  const bool standard =
      algorithm == BPPSA_CUDNN_STANDARD || algorithm == BPPSA_CUDNN_STANDARD_TF32 || algorithm == BPPSA_CUDNN_STANDARD_BF16;
  return network->config.layers * (standard ? 2 * network->config.seq_len : 1);
}

bppsa_status bppsa_cudnn_last_states(const bppsa_cudnn_network *network, void *states) {
  int64_t bytes;
  const char *last = last_step(network, network->parts[Y], &bytes);
  return get_numbers(network, states, last, bytes / size_of(network));
}

bppsa_status bppsa_cudnn_input_gradient(const bppsa_cudnn_network *network, void *dx) {
  return get_numbers(network, dx, network->parts[DX], (int64_t)network->bytes[DX] / size_of(network));
}
