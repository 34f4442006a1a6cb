#include "cnn/conv_cudnn.h"

#include <cuda_runtime_api.h>

#include "core/base/alloc.h"
#include "core/compute/library_cudnn.h"

struct bppsa_cudnn_queue {
  const cudnn_library *library;
  const bppsa_device *device;
  cudnnHandle_t handle;
};

struct bppsa_cudnn_conv {
  const bppsa_cudnn_queue *queue; /* the queue with which it was made */
  cudnnDataType_t type;
  int64_t batch;
  cudnnTensorDescriptor_t x, y, bias;
  cudnnFilterDescriptor_t weights;
  cudnnConvolutionDescriptor_t operation;
  cudnnConvolutionFwdAlgo_t forward;
  cudnnConvolutionBwdDataAlgo_t input_gradient;
  cudnnConvolutionBwdFilterAlgo_t weight_gradient;
  size_t bytes[3]; /* of their workspaces, in this order */
};

/* Returns early if cuDNN fails; q: the queue. */
#define TRY_CUDNN(call, what) BPPSA_TRY(bppsa_cudnn_check(q->library, q->library->call, what))

/* ---- queues ---- */

static bppsa_status use_device(const bppsa_cudnn_queue *q) {
  const cudaError_t error = cudaSetDevice(bppsa_device_get_index(q->device));
  return error == cudaSuccess ? BPPSA_OK : bppsa_fail(BPPSA_ERR_CUDA, "cuDNN: %s, expected success", cudaGetErrorString(error));
}

bppsa_status bppsa_cudnn_queue_create(const bppsa_device *device, void *stream, bppsa_cudnn_queue **queue) {
  const cudnn_library *library;
  BPPSA_TRY(bppsa_cudnn_load(&library));
  bppsa_cudnn_queue *q = bppsa_calloc(1, sizeof *q);
  if (q == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  q->library = library;
  q->device = device;
  bppsa_status status = use_device(q);
  status = status == BPPSA_OK ? bppsa_cudnn_check(library, library->cudnnCreate(&q->handle), "handle") : status;
  if (status == BPPSA_OK) {
    status = bppsa_cudnn_check(library, library->cudnnSetStream(q->handle, (cudaStream_t)stream), "stream");
  }
  if (status != BPPSA_OK) {
    bppsa_cudnn_queue_destroy(q);
    return status;
  }
  *queue = q;
  return BPPSA_OK;
}

void bppsa_cudnn_queue_destroy(bppsa_cudnn_queue *q) {
  if (q != NULL && q->handle != NULL && use_device(q) == BPPSA_OK) {
    (void)q->library->cudnnDestroy(q->handle);
  }
  bppsa_free(q);
}

/* ---- a convolution ---- */

static bppsa_status make_descriptors(const bppsa_cudnn_queue *q, bppsa_cudnn_conv *c) {
  TRY_CUDNN(cudnnCreateTensorDescriptor(&c->x), "x");
  TRY_CUDNN(cudnnCreateTensorDescriptor(&c->y), "y");
  TRY_CUDNN(cudnnCreateTensorDescriptor(&c->bias), "bias");
  TRY_CUDNN(cudnnCreateFilterDescriptor(&c->weights), "weights");
  TRY_CUDNN(cudnnCreateConvolutionDescriptor(&c->operation), "convolution");
  return BPPSA_OK;
}

bppsa_status bppsa_cudnn_conv_create(const bppsa_cudnn_queue *queue, bppsa_dtype dtype, bppsa_cudnn_conv **conv) {
  bppsa_cudnn_conv *c = bppsa_calloc(1, sizeof *c);
  if (c == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  c->queue = queue;
  c->type = dtype == BPPSA_F32 ? CUDNN_DATA_FLOAT : CUDNN_DATA_DOUBLE;
  const bppsa_status status = make_descriptors(queue, c);
  if (status != BPPSA_OK) {
    bppsa_cudnn_conv_destroy(c);
    return status;
  }
  *conv = c;
  return BPPSA_OK;
}

void bppsa_cudnn_conv_destroy(bppsa_cudnn_conv *c) {
  if (c == NULL) {
    return;
  }
  const cudnn_library *library = c->queue->library;
  cudnnTensorDescriptor_t const tensors[] = {c->x, c->y, c->bias};
  for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; ++i) {
    if (tensors[i] != NULL) {
      (void)library->cudnnDestroyTensorDescriptor(tensors[i]);
    }
  }
  if (c->weights != NULL) {
    (void)library->cudnnDestroyFilterDescriptor(c->weights);
  }
  if (c->operation != NULL) {
    (void)library->cudnnDestroyConvolutionDescriptor(c->operation);
  }
  bppsa_free(c);
}

int64_t bppsa_cudnn_conv_batch(const bppsa_cudnn_conv *conv) {
  return conv->batch;
}

/* Checks that sizes fit: cuDNN counts in int32, also the values of a tensor. */
static bppsa_status check_sizes(const bppsa_op *op, const int64_t out[3], int64_t batch) {
  const int64_t shapes[][4] = {{batch, op->in[0], op->in[1], op->in[2]},
                               {batch, out[0], out[1], out[2]},
                               {op->out_channels, op->in[0] / op->groups, op->kernel[0], op->kernel[1]},
                               {op->stride[0], op->stride[1], op->dilation[0], op->dilation[1]}};
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; ++i) {
    int64_t count = 1;
    for (int k = 0; k < 4; ++k) {
      if (!bppsa_mul(count, shapes[i][k], &count) || count > INT32_MAX) {
        char text[BPPSA_SHAPE_TEXT];
        return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "cuDNN: convolution: %s, expected a product of at most %d",
                          bppsa_shape_text(4, shapes[i], text, sizeof text), INT32_MAX);
      }
    }
  }
  return BPPSA_OK;
}

static bppsa_status describe_shapes(const bppsa_cudnn_queue *q, const bppsa_cudnn_conv *c, const bppsa_op *op,
                                    const int64_t out[3], int64_t batch) {
  const cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW;
  const int b = (int)batch, channels = (int)op->out_channels;
  TRY_CUDNN(cudnnSetTensor4dDescriptor(c->x, format, c->type, b, (int)op->in[0], (int)op->in[1], (int)op->in[2]), "x");
  TRY_CUDNN(cudnnSetTensor4dDescriptor(c->y, format, c->type, b, channels, (int)out[1], (int)out[2]), "y");
  TRY_CUDNN(cudnnSetTensor4dDescriptor(c->bias, format, c->type, 1, channels, 1, 1), "bias");
  TRY_CUDNN(cudnnSetFilter4dDescriptor(c->weights, c->type, format, channels, (int)(op->in[0] / op->groups), (int)op->kernel[0],
                                       (int)op->kernel[1]),
            "weights");
  TRY_CUDNN(cudnnSetConvolution2dDescriptor(c->operation, (int)op->padding[0], (int)op->padding[2], (int)op->stride[0],
                                            (int)op->stride[1], (int)op->dilation[0], (int)op->dilation[1],
                                            CUDNN_CROSS_CORRELATION, c->type),
            "convolution");
  TRY_CUDNN(cudnnSetConvolutionGroupCount(c->operation, (int)op->groups), "groups");
  TRY_CUDNN(cudnnSetConvolutionMathType(c->operation, CUDNN_FMA_MATH), "mathematics");
  return BPPSA_OK;
}

/* ---- algorithms ---- */

/* The kinds of mathematics that compute in the dtype itself, in the order in which they are looked for. Algorithms that have no
 * other kind say DEFAULT, but so do some that use TF32. */
static const cudnnMathType_t own_math[] = {CUDNN_FMA_MATH, CUDNN_DEFAULT_MATH};
enum { OWN_MATH = sizeof own_math / sizeof own_math[0] };

static bppsa_status none(const char *pass, int64_t most) {
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                    "cuDNN: %s: no deterministic algorithm for this shape with at most %lld bytes of workspace, expected one",
                    pass, (long long)most);
}

/* Takes the first choice that is allowed. Each kind of pass has its own types and functions; size(algorithm) asks for the
 * workspace, which may be larger than the choice says. */
#define TAKE_FIRST(list, count, size_of, most, algorithm, bytes, pass)                                                           \
  do {                                                                                                                           \
    bool found = false;                                                                                                          \
    for (int choice = 0; !found && choice < OWN_MATH * (count); ++choice) {                                                      \
      const int i = choice % (count);                                                                                            \
      if ((list)[i].status == CUDNN_STATUS_SUCCESS && (list)[i].determinism == CUDNN_DETERMINISTIC &&                            \
          (list)[i].mathType == own_math[choice / (count)] && (size_of) == CUDNN_STATUS_SUCCESS && *(bytes) <= (size_t)(most)) { \
        *(algorithm) = (list)[i].algo;                                                                                           \
        found = true;                                                                                                            \
      }                                                                                                                          \
    }                                                                                                                            \
    if (!found) {                                                                                                                \
      return none(pass, most);                                                                                                   \
    }                                                                                                                            \
  } while (false)

static bppsa_status choose_forward(const bppsa_cudnn_queue *q, bppsa_cudnn_conv *c, int64_t most) {
  cudnnConvolutionFwdAlgoPerf_t list[2 * CUDNN_CONVOLUTION_FWD_ALGO_COUNT];
  int count = 0;
  TRY_CUDNN(cudnnGetConvolutionForwardAlgorithm_v7(q->handle, c->x, c->weights, c->operation, c->y,
                                                   2 * CUDNN_CONVOLUTION_FWD_ALGO_COUNT, &count, list),
            "forward: algorithms");
  TAKE_FIRST(list, count,
             q->library->cudnnGetConvolutionForwardWorkspaceSize(q->handle, c->x, c->weights, c->operation, c->y, list[i].algo,
                                                                 &c->bytes[0]),
             most, &c->forward, &c->bytes[0], "forward");
  return BPPSA_OK;
}

static bppsa_status choose_input_gradient(const bppsa_cudnn_queue *q, bppsa_cudnn_conv *c, int64_t most) {
  cudnnConvolutionBwdDataAlgoPerf_t list[2 * CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT];
  int count = 0;
  TRY_CUDNN(cudnnGetConvolutionBackwardDataAlgorithm_v7(q->handle, c->weights, c->y, c->operation, c->x,
                                                        2 * CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT, &count, list),
            "gradient of the input: algorithms");
  TAKE_FIRST(list, count,
             q->library->cudnnGetConvolutionBackwardDataWorkspaceSize(q->handle, c->weights, c->y, c->operation, c->x,
                                                                      list[i].algo, &c->bytes[1]),
             most, &c->input_gradient, &c->bytes[1], "gradient of the input");
  return BPPSA_OK;
}

static bppsa_status choose_weight_gradient(const bppsa_cudnn_queue *q, bppsa_cudnn_conv *c, int64_t most) {
  cudnnConvolutionBwdFilterAlgoPerf_t list[2 * CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT];
  int count = 0;
  TRY_CUDNN(cudnnGetConvolutionBackwardFilterAlgorithm_v7(q->handle, c->x, c->y, c->operation, c->weights,
                                                          2 * CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT, &count, list),
            "gradient of the weights: algorithms");
  TAKE_FIRST(list, count,
             q->library->cudnnGetConvolutionBackwardFilterWorkspaceSize(q->handle, c->x, c->y, c->operation, c->weights,
                                                                        list[i].algo, &c->bytes[2]),
             most, &c->weight_gradient, &c->bytes[2], "gradient of the weights");
  return BPPSA_OK;
}

bppsa_status bppsa_cudnn_conv_describe(bppsa_cudnn_conv *c, const bppsa_op *op, int64_t batch, bool chain, bppsa_cudnn_bytes most,
                                       bppsa_cudnn_bytes *used) {
  const bppsa_cudnn_queue *q = c->queue;
  int64_t out[3];
  BPPSA_TRY(bppsa_op_shape(op, out));
  if (op->padding[0] != op->padding[1] || op->padding[2] != op->padding[3]) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "cuDNN: convolution: padding that differs from side to side, expected none");
  }
  BPPSA_TRY(check_sizes(op, out, batch));
  BPPSA_TRY(use_device(q));
  c->batch = 0;
  BPPSA_TRY(describe_shapes(q, c, op, out, batch));
  BPPSA_TRY(choose_forward(q, c, most.passes));
  c->bytes[1] = 0;
  BPPSA_TRY(chain ? choose_input_gradient(q, c, most.passes) : BPPSA_OK);
  BPPSA_TRY(choose_weight_gradient(q, c, most.weights));
  c->batch = batch;
  used->passes = (int64_t)(c->bytes[0] > c->bytes[1] ? c->bytes[0] : c->bytes[1]);
  used->weights = (int64_t)c->bytes[2];
  return BPPSA_OK;
}

/* ---- passes ---- */

/* The factors of a result (1) and of the values it replaces (0), in the data's type. */
static const float f32_numbers[] = {0, 1};
static const double f64_numbers[] = {0, 1};

static const void *number(const bppsa_cudnn_conv *c, int value) {
  return c->type == CUDNN_DATA_FLOAT ? (const void *)&f32_numbers[value] : (const void *)&f64_numbers[value];
}

bppsa_status bppsa_cudnn_conv_forward(const bppsa_cudnn_conv *c, const bppsa_cudnn_queue *q, const void *x, const void *weights,
                                      const void *bias, void *workspace, void *y) {
  TRY_CUDNN(cudnnConvolutionForward(q->handle, number(c, 1), c->x, x, c->weights, weights, c->operation, c->forward, workspace,
                                    c->bytes[0], number(c, 0), c->y, y),
            "forward");
  if (bias != NULL) {
    TRY_CUDNN(cudnnAddTensor(q->handle, number(c, 1), c->bias, bias, number(c, 1), c->y, y), "bias");
  }
  return BPPSA_OK;
}

bppsa_status bppsa_cudnn_conv_input_gradient(const bppsa_cudnn_conv *c, const bppsa_cudnn_queue *q, const void *dy,
                                             const void *weights, void *workspace, void *dx) {
  TRY_CUDNN(cudnnConvolutionBackwardData(q->handle, number(c, 1), c->weights, weights, c->y, dy, c->operation, c->input_gradient,
                                         workspace, c->bytes[1], number(c, 0), c->x, dx),
            "gradient of the input");
  return BPPSA_OK;
}

bppsa_status bppsa_cudnn_conv_weight_gradient(const bppsa_cudnn_conv *c, const bppsa_cudnn_queue *q, const void *dy,
                                              const void *x, void *workspace, void *dw, void *db) {
  TRY_CUDNN(cudnnConvolutionBackwardFilter(q->handle, number(c, 1), c->x, x, c->y, dy, c->operation, c->weight_gradient,
                                           workspace, c->bytes[2], number(c, 0), c->weights, dw),
            "gradient of the weights");
  if (db != NULL) {
    TRY_CUDNN(cudnnConvolutionBackwardBias(q->handle, number(c, 1), c->y, dy, number(c, 0), c->bias, db), "gradient of the bias");
  }
  return BPPSA_OK;
}
