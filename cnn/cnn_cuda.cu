/* Convolutional networks on a GPU: streams, memory, and the order of launches. Convolutions run in cuDNN (conv_cudnn.h), linear
 * operators in core/compute/linear_kernels.cuh, the others in layer_kernels.cuh.
 *
 * Out-of-order weight gradients (ooo-backprop §4.1): the gradients of weights need g_t, and the rest of the backward pass does not
 * need them. On a second stream of lower priority they use what the chain of input gradients, the critical path, leaves idle. An
 * event tells that stream when g_t is ready, and another tells the first stream when the gradients are done. (The file is long
 * because every kind of layer has its launches here, forward and backward, on the streams that this file alone knows.) */
#include "cnn/cnn_internal.h"
#include "cnn/conv_cudnn.h"
#include "cnn/graph_gpu.h"
#include "cnn/layer_kernels.cuh"
#include "core/base/alloc.h"
#include "core/compute/check.cuh"
#include "core/compute/linear_kernels.cuh"
#include "core/compute/memory.h"

/* The samples of a linear operator's weight gradient are summed in parts: so many that they fill a GPU of about 130
 * multiprocessors twice, with at least LEAST_SAMPLES samples each. */
enum { FULL_BLOCKS = 264, LEAST_SAMPLES = 32, MOST_BLOCKS_Y = 65535 };
/* The smallest workspace: batches of another size than the planned one may need algorithms with larger workspaces. */
enum { LEAST_WORK = 1 << 20 };

namespace {

/* A stream, and cuDNN on it. */
struct work_queue {
  cudaStream_t stream;
  bppsa_cudnn_queue *cudnn; /* NULL in a network without convolutions */
};

/* The number of batch sizes for which a convolution is described: the planned one, and the latest others. Training and validation
 * each have a smaller last batch. */
enum { BATCHES = 4 };

/* A convolution in cuDNN's form: if padding differs from side to side, the input is copied into a padded frame. */
struct gpu_conv {
  bppsa_op op;
  bool framed;
  cnn_frame frame;
  bppsa_cudnn_conv *of[BATCHES]; /* the first is for the planned batch */
  int next;                      /* which of the others is described anew next */
};

} // namespace

struct cnn_gpu {
  int32_t index;
  work_queue main, side; /* side: the same as main if weight gradients are computed in order */
  cudaEvent_t ready, done;
  gpu_conv *convs;             /* size: layers; empty for other operators */
  bppsa_cudnn_bytes work_size; /* of the workspaces */
  int64_t framed_reals;        /* for one sample */
  void *work, *weight_work, *framed_x, *framed_dx, *partials;
  void *aligned_dy; /* of a convolution, for a scan */
  uint8_t *kept;    /* a byte for each real of the parameters, 0 where it is masked; NULL: no masks */
  int64_t *drawn;   /* with dropout: the step of training, and the number of each sample */
  int64_t *step;    /* the same step, in pinned memory, from which a recorded pass copies it */
};

namespace {

int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* Bytes to allocate for a workspace of which the planned batch uses `used`: twice as many, within the limit. */
int64_t roomy(int64_t used, int64_t most) {
  const int64_t wanted = larger(2 * used, LEAST_WORK);
  return wanted < most ? wanted : most;
}

bool is_conv(const cnn_layer *layer) {
  return layer->about->op.kind == BPPSA_OPERATOR_CONV2D;
}

/* Calls f<real>(..) for the network's dtype. */
#define OF_TYPE(n, f, ...) ((n)->config.dtype == BPPSA_F32 ? f<float>(__VA_ARGS__) : f<double>(__VA_ARGS__))

bppsa_status launched(const char *what) {
  return bppsa_cuda_check(cudaGetLastError(), what);
}

unsigned blocks_of(int64_t count, int rounds) {
  return (unsigned)divide_up(count, CNN_THREADS * rounds);
}

/* ---- linear operators ---- */

template <typename real> bppsa_status product(cudaStream_t stream, product_operands<real> p, int64_t parts) {
  const int64_t rows = divide_up(p.m, PRODUCT_TILE), columns = divide_up(p.n + p.ones, PRODUCT_TILE);
  if (columns * parts > MOST_BLOCKS_Y) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "linear operator on a GPU: %lld inputs or outputs, expected at most %lld",
                      (long long)p.n, (long long)MOST_BLOCKS_Y / parts * PRODUCT_TILE);
  }
  p.k_part = divide_up(p.k, parts);
  BPPSA_LAUNCH(bppsa_linear_product<real>, dim3((unsigned)rows, (unsigned)(columns * parts)), PRODUCT_THREADS,
               2 * PRODUCT_DEPTH * (PRODUCT_TILE + 1) * sizeof(real), stream, p, (int)columns);
  return launched("linear operator: launch");
}

/* y [b][out] = x [b][in] Wᵀ + bias, W [out][in] */
template <typename real> bppsa_status linear_forward(const cnn *n, const cnn_layer *layer, const void *x) {
  product_operands<real> p = {};
  p.m = n->batch;
  p.n = layer->out;
  p.k = p.b_column = p.a_row = layer->in;
  p.a = (const real *)x;
  p.b = (const real *)bppsa_cnn_weight(n, layer, false);
  p.a_column = p.b_row = 1;
  p.bias = (const real *)bppsa_cnn_bias(n, layer, false);
  p.c = (real *)layer->y;
  return product(n->gpu->main.stream, p, 1);
}

/* dx [b][in] = dy [b][out] W */
template <typename real> bppsa_status linear_input_gradient(const cnn *n, const cnn_layer *layer, const void *dy, void *dx) {
  product_operands<real> p = {};
  p.m = n->batch;
  p.n = p.b_row = layer->in;
  p.k = p.a_row = layer->out;
  p.a = (const real *)dy;
  p.b = (const real *)bppsa_cnn_weight(n, layer, false);
  p.a_column = p.b_column = 1;
  p.c = (real *)dx;
  return product(n->gpu->main.stream, p, 1);
}

int64_t parts_of(const cnn_layer *layer, int64_t batch) {
  const int64_t tiles = divide_up(layer->out, PRODUCT_TILE) * divide_up(layer->in + 1, PRODUCT_TILE),
                wanted = divide_up(FULL_BLOCKS, tiles), most = divide_up(batch, LEAST_SAMPLES);
  return wanted < most ? wanted : most;
}

/* dW [out][in] = dyᵀ x and db [out] = Σ dy over the samples */
template <typename real>
bppsa_status linear_weight_gradient(const cnn *n, const cnn_layer *layer, const work_queue *to, const void *dy, const void *x) {
  const int64_t parts = parts_of(layer, n->batch), in = layer->in, out = layer->out, row = in + layer->about->bias;
  product_operands<real> p = {};
  p.m = p.a_column = out;
  p.n = p.b_row = in;
  p.k = n->batch;
  p.a = (const real *)dy;
  p.b = (const real *)x;
  p.a_row = p.b_column = 1;
  p.ones = layer->about->bias;
  p.c = (real *)n->gpu->partials;
  BPPSA_TRY(product(to->stream, p, parts));
  sum_targets<real> sums = {};
  sums.targets = 1 + layer->about->bias;
  sums.target[0] = {0, out * row, row, 0, in, (real *)bppsa_cnn_weight(n, layer, true)};
  sums.target[1] = {0, out * row, row, in, 1, (real *)bppsa_cnn_bias(n, layer, true)};
  BPPSA_LAUNCH(bppsa_linear_sum<real>, (unsigned)divide_up(out * row, sum_lanes(parts)), SUM_THREADS, SUM_THREADS * sizeof(real),
               to->stream, (const real *)n->gpu->partials, parts, out * row, sums);
  return launched("linear operator's weights: launch");
}

/* ---- convolutions ---- */

/* Does cuDNN compute the gradient of the layer's input? */
bool layer_chain(const cnn *n, const cnn_layer *layer) {
  return n->config.method.backward == BPPSA_BACKWARD_BP && (layer != n->layers || n->config.input_gradients);
}

/* The description of a layer's convolution for the present batch; makes one for a batch of a new size. */
bppsa_status conv_for(const cnn *n, const cnn_layer *layer, const bppsa_cudnn_conv **conv) {
  gpu_conv *c = &n->gpu->convs[layer - n->layers];
  for (const bppsa_cudnn_conv *known : c->of) {
    if (bppsa_cudnn_conv_batch(known) == n->batch) {
      *conv = known;
      return BPPSA_OK;
    }
  }
  bppsa_cudnn_conv *other = c->of[1 + c->next];
  bppsa_cudnn_bytes used;
  const bppsa_status status = bppsa_cudnn_conv_describe(other, &c->op, n->batch, layer_chain(n, layer), n->gpu->work_size, &used);
  if (status != BPPSA_OK) {
    return status == BPPSA_ERR_MEMORY ? status
                                      : bppsa_fail_prefix(status, "%s, %lld samples", layer->about->name, (long long)n->batch);
  }
  c->next = (c->next + 1) % (BATCHES - 1);
  *conv = other;
  return BPPSA_OK;
}

/* Returns x in cuDNN's form. */
template <typename real>
bppsa_status frame_input(const cnn *n, const cnn_layer *layer, cudaStream_t stream, const void *x, const void **framed) {
  const gpu_conv *c = &n->gpu->convs[layer - n->layers];
  *framed = x;
  if (!c->framed) {
    return BPPSA_OK;
  }
  const int64_t count = n->batch * c->op.in[0] * c->op.in[1] * c->op.in[2];
  BPPSA_LAUNCH(bppsa_cnn_pad<real>, blocks_of(count, 1), CNN_THREADS, 0, stream, c->frame, count, (const real *)x,
               (real *)n->gpu->framed_x);
  *framed = n->gpu->framed_x;
  return launched("padding: launch");
}

template <typename real> bppsa_status conv_forward(const cnn *n, const cnn_layer *layer, const void *x) {
  const cnn_gpu *gpu = n->gpu;
  const bppsa_cudnn_conv *conv;
  BPPSA_TRY(conv_for(n, layer, &conv));
  BPPSA_TRY(frame_input<real>(n, layer, gpu->main.stream, x, &x));
  return bppsa_cudnn_conv_forward(conv, gpu->main.cudnn, x, bppsa_cnn_weight(n, layer, false), bppsa_cnn_bias(n, layer, false),
                                  gpu->work, layer->y);
}

template <typename real> bppsa_status conv_input_gradient(const cnn *n, const cnn_layer *layer, const void *dy, void *dx) {
  const cnn_gpu *gpu = n->gpu;
  const gpu_conv *c = &gpu->convs[layer - n->layers];
  const bppsa_cudnn_conv *conv;
  BPPSA_TRY(conv_for(n, layer, &conv));
  BPPSA_TRY(bppsa_cudnn_conv_input_gradient(conv, gpu->main.cudnn, dy, bppsa_cnn_weight(n, layer, false), gpu->work,
                                            c->framed ? gpu->framed_dx : dx));
  if (!c->framed) {
    return BPPSA_OK;
  }
  const int64_t count = n->batch * layer->in;
  BPPSA_LAUNCH(bppsa_cnn_crop<real>, blocks_of(count, 1), CNN_THREADS, 0, gpu->main.stream, c->frame, count,
               (const real *)gpu->framed_dx, (real *)dx);
  return launched("padding: launch");
}

/* Returns dy at an address that cuDNN can read from: some of its kernels read 16 bytes at a time, and a scan's gradients lie one
 * behind the other. */
bppsa_status align_gradient(const cnn *n, const cnn_layer *layer, cudaStream_t stream, const void *dy, const void **aligned) {
  enum { CUDNN_ALIGNMENT = 16 };
  *aligned = dy;
  if ((uintptr_t)dy % CUDNN_ALIGNMENT == 0) {
    return BPPSA_OK;
  }
  *aligned = n->gpu->aligned_dy;
  return bppsa_cuda_check(cudaMemcpyAsync(n->gpu->aligned_dy, dy,
                                          (size_t)(n->batch * layer->out) * bppsa_dtype_size(n->config.dtype),
                                          cudaMemcpyDeviceToDevice, stream),
                          "gradient of the output");
}

template <typename real>
bppsa_status conv_weight_gradient(const cnn *n, const cnn_layer *layer, const work_queue *to, const void *dy, const void *x) {
  const bppsa_cudnn_conv *conv;
  BPPSA_TRY(conv_for(n, layer, &conv));
  BPPSA_TRY(frame_input<real>(n, layer, to->stream, x, &x));
  BPPSA_TRY(align_gradient(n, layer, to->stream, dy, &dy));
  return bppsa_cudnn_conv_weight_gradient(conv, to->cudnn, dy, x, n->gpu->weight_work, bppsa_cnn_weight(n, layer, true),
                                          bppsa_cnn_bias(n, layer, true));
}

/* ---- operators without weights ---- */

cnn_pool pool_of(const cnn_layer *layer) {
  const bppsa_op *op = &layer->about->op;
  cnn_pool p = {};
  for (int i = 0; i < 2; ++i) {
    p.axis[i] = {(int)op->in[i + 1],   (int)layer->about->out[i + 1], (int)op->kernel[i],         (int)op->stride[i],
                 (int)op->dilation[i], (int)op->padding[2 * i],       (int)op->padding[2 * i + 1]};
  }
  for (int i = 0; i < 2 && bppsa_op_is_mean(op) && op->kind != BPPSA_OPERATOR_AVGPOOL2D; ++i) {
    p.axis[i].stride = 0;
  }
  p.exclude_pad = op->exclude_pad;
  return p;
}

bppsa_status copy(const cnn *n, int64_t reals, const void *from, void *to) {
  return bppsa_cuda_check(
      cudaMemcpyAsync(to, from, (size_t)reals * bppsa_dtype_size(n->config.dtype), cudaMemcpyDeviceToDevice, n->gpu->main.stream),
      "flatten");
}

/* Is the operator the identity in this pass? Dropout is, where it leaves nothing out. */
bool copies(const bppsa_op *op) {
  return bppsa_op_is_identity(op) || op->kind == BPPSA_OPERATOR_DROPOUT;
}

/* What the kernels of elementwise operators switch by. */
int kind_of(const bppsa_op *op) {
  const bppsa_activation activation = bppsa_activation_of(op);
  return activation == BPPSA_ACTIVATION_NONE ? (int)op->kind : CNN_ACTIVATION + (int)activation;
}

template <typename real> bppsa_status function_forward(const cnn *n, const cnn_layer *layer, const void *x) {
  const bppsa_op *op = &layer->about->op;
  const int64_t count = n->batch * layer->out;
  if (copies(op)) {
    return copy(n, count, x, layer->y);
  }
  if (bppsa_op_is_pool(&layer->about->op)) {
    BPPSA_LAUNCH(bppsa_cnn_pool<real>, blocks_of(count, 1), CNN_THREADS, 0, n->gpu->main.stream, pool_of(layer), count,
                 (const real *)x, layer->places, (real *)layer->y);
  } else {
    BPPSA_LAUNCH(bppsa_cnn_function<real>, blocks_of(count, CNN_ROUNDS), CNN_THREADS, 0, n->gpu->main.stream, kind_of(op),
                 (real)op->slope, count, (const real *)x, (real *)layer->y);
  }
  return launched("operator: launch");
}

template <typename real>
bppsa_status function_gradient(const cnn *n, const cnn_layer *layer, const void *x, const void *dy, void *dx) {
  const bppsa_op *op = &layer->about->op;
  const int64_t count = n->batch * layer->in;
  if (copies(op)) {
    return copy(n, count, dy, dx);
  }
  if (bppsa_op_is_pool(&layer->about->op)) {
    BPPSA_LAUNCH(bppsa_cnn_pool_gradient<real>, blocks_of(count, 1), CNN_THREADS, 0, n->gpu->main.stream, pool_of(layer), count,
                 (const int32_t *)layer->places, (const real *)dy, (real *)dx);
  } else {
    BPPSA_LAUNCH(bppsa_cnn_slope<real>, blocks_of(count, CNN_ROUNDS), CNN_THREADS, 0, n->gpu->main.stream, kind_of(op),
                 (real)op->slope, count, (const real *)x, (const real *)layer->y, (const real *)dy, (real *)dx);
  }
  return launched("operator's gradient: launch");
}

/* ---- passes ---- */

template <typename real> bppsa_status apply_masks(const cnn *n, bool gradients) {
  if (n->gpu->kept == NULL) {
    return BPPSA_OK;
  }
  BPPSA_LAUNCH(bppsa_cnn_mask<real>, blocks_of(n->base.reals, CNN_ROUNDS), CNN_THREADS, 0, n->gpu->main.stream, n->base.reals,
               (const uint8_t *)n->gpu->kept, (real *)(gradients ? n->base.device_gradients : n->base.device_values));
  return launched("masks: launch");
}

bool is_norm(const cnn_layer *layer) {
  return layer->about->op.kind == BPPSA_OPERATOR_BATCHNORM2D;
}

/* Does the operator leave numbers out in this pass? */
bool drops(const cnn *n, const cnn_layer *layer) {
  return layer->about->op.kind == BPPSA_OPERATOR_DROPOUT && layer->about->op.dropping && n->training.samples != NULL;
}

/* to = factors · from, the same factors in both directions. */
bppsa_status drop(const cnn *n, const cnn_layer *layer, const void *from, void *to) {
  const bppsa_cnn_pass pass = bppsa_cnn_pass_of(n, layer, n->batch);
  return bppsa_dropout_queue(n->gpu->main.stream, &pass, n->gpu->drawn, from, to);
}

bppsa_status norm_forward(const cnn *n, const cnn_layer *layer, const void *x) {
  const bppsa_cnn_pass pass = bppsa_cnn_pass_of(n, layer, n->batch);
  return bppsa_norm_queue_forward(n->gpu->main.stream, &pass, x, layer->y);
}

template <typename real> bppsa_status layer_forward(const cnn *n, const cnn_layer *layer, const void *x) {
  return is_conv(layer)       ? conv_forward<real>(n, layer, x)
         : is_norm(layer)     ? norm_forward(n, layer, x)
         : drops(n, layer)    ? drop(n, layer, x, layer->y)
         : layer->weight >= 0 ? linear_forward<real>(n, layer, x)
                              : function_forward<real>(n, layer, x);
}

/* Tells dropouts the step of training and the samples. */
bppsa_status put_drawn(const cnn *n) {
  const int64_t size = (int64_t)sizeof *n->gpu->drawn;
  if (n->gpu->drawn == NULL || n->training.samples == NULL) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_memory_queue_put(n->device, n->gpu->drawn, n->gpu->step, size));
  return bppsa_memory_queue_put(n->device, n->gpu->drawn + 1, n->training.samples, n->batch * size);
}

template <typename real> bppsa_status forward(const cnn *n) {
  BPPSA_TRY(put_drawn(n));
  BPPSA_TRY(apply_masks<real>(n, false));
  for (int64_t i = 0; i < n->network.count; ++i) {
    BPPSA_TRY(n->network.layers[i].node != BPPSA_CNN_OPERATOR ? bppsa_cnn_graph_forward(n, i)
                                                              : layer_forward<real>(n, &n->layers[i], bppsa_cnn_input(n, i)));
  }
  return BPPSA_OK;
}

/* Makes work that is queued on the side stream from here on wait for the work queued on the main stream so far; main_follows does
 * the opposite. */
bppsa_status side_follows(const cnn_gpu *gpu) {
  if (gpu->side.stream == gpu->main.stream) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_cuda_check(cudaEventRecord(gpu->ready, gpu->main.stream), "gradients: event"));
  return bppsa_cuda_check(cudaStreamWaitEvent(gpu->side.stream, gpu->ready, 0), "gradients: event");
}

bppsa_status main_follows(const cnn_gpu *gpu) {
  if (gpu->side.stream == gpu->main.stream) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_cuda_check(cudaEventRecord(gpu->done, gpu->side.stream), "gradients of weights: event"));
  return bppsa_cuda_check(cudaStreamWaitEvent(gpu->main.stream, gpu->done, 0), "gradients of weights: event");
}

bppsa_status norm_weights(const cnn *n, const cnn_layer *layer, const void *x, const void *dy) {
  const bppsa_cnn_pass pass = bppsa_cnn_pass_of(n, layer, n->batch);
  return bppsa_norm_queue_weights(n->gpu->side.stream, &pass, dy, x);
}

bppsa_status norm_input(const cnn *n, const cnn_layer *layer, const void *x, const void *dy, void *dx) {
  const bppsa_cnn_pass pass = bppsa_cnn_pass_of(n, layer, n->batch);
  return bppsa_norm_queue_input(n->gpu->main.stream, &pass, dy, x, dx);
}

template <typename real> bppsa_status weight_gradient(const cnn *n, int64_t i, const void *x, const void *dy) {
  const cnn_layer *layer = &n->layers[i];
  return is_conv(layer)                      ? conv_weight_gradient<real>(n, layer, &n->gpu->side, dy, x)
         : is_norm(layer)                    ? norm_weights(n, layer, x, dy)
         : bppsa_cnn_is_affine(layer->about) ? bppsa_cnn_graph_weight_gradient(n, i, dy, n->gpu->side.stream)
         : layer->weight >= 0                ? linear_weight_gradient<real>(n, layer, &n->gpu->side, dy, x)
                                             : BPPSA_OK;
}

/* dx = Jᵀ dy by the operator itself. */
template <typename real>
bppsa_status input_gradient(const cnn *n, const cnn_layer *layer, const void *x, const void *dy, void *dx) {
  return is_conv(layer)       ? conv_input_gradient<real>(n, layer, dy, dx)
         : is_norm(layer)     ? norm_input(n, layer, x, dy, dx)
         : drops(n, layer)    ? drop(n, layer, dy, dx)
         : layer->weight >= 0 ? linear_input_gradient<real>(n, layer, dy, dx)
                              : function_gradient<real>(n, layer, x, dy, dx);
}

/* Queues the work of the critical path before the weight gradients that may run beside it. */
template <typename real> bppsa_status backward(cnn *n) {
  const cnn_gpu *gpu = n->gpu;
  BPPSA_TRY(side_follows(gpu));
  if (n->elements > 0 || n->config.input_gradients) {
    BPPSA_TRY(linear_input_gradient<real>(n, &n->layers[n->elements], n->seed, bppsa_cnn_gradient(n, n->elements)));
  }
  BPPSA_TRY(weight_gradient<real>(n, n->elements, bppsa_cnn_input(n, n->elements), n->seed));
  const bool graph = bppsa_cnn_is_graph(&n->network);
  if (n->scan != NULL) {
    BPPSA_TRY(bppsa_cnn_run_scan(n));
  } else if (graph) {
    bppsa_cnn_graph_begin(n);
  }
  for (int64_t t = n->elements; t >= 1; --t) {
    const cnn_layer *layer = &n->layers[t - 1];
    const void *x = bppsa_cnn_input(n, t - 1), *dy;
    if (layer->weight >= 0) {
      BPPSA_TRY(side_follows(gpu));
    }
    BPPSA_TRY(bppsa_cnn_output_gradient(n, t, &dy));
    if (n->scan == NULL && (t > 1 || n->config.input_gradients)) { /* in a graph, layer 0 reads the network's input too */
      BPPSA_TRY(graph ? bppsa_cnn_graph_backward(n, t) : input_gradient<real>(n, layer, x, dy, bppsa_cnn_gradient(n, t - 1)));
    }
    BPPSA_TRY(weight_gradient<real>(n, t - 1, x, dy));
  }
  BPPSA_TRY(main_follows(gpu));
  return apply_masks<real>(n, true);
}

/* ---- creation ---- */

void describe_conv(const cnn_layer *layer, gpu_conv *c) {
  const int64_t *pad = layer->about->op.padding, *in = layer->about->op.in;
  c->op = layer->about->op;
  c->framed = pad[0] != pad[1] || pad[2] != pad[3];
  if (c->framed) {
    c->op.in[1] += pad[0] + pad[1];
    c->op.in[2] += pad[2] + pad[3];
    c->frame = {(int)in[1], (int)in[2], (int)pad[0], (int)pad[2], (int)c->op.in[1], (int)c->op.in[2]};
    for (int64_t &side : c->op.padding) {
      side = 0;
    }
  }
}

bppsa_status make_convs(cnn *n) {
  cnn_gpu *gpu = n->gpu;
  for (int64_t i = 0; i < n->network.count; ++i) {
    if (!is_conv(&n->layers[i])) {
      continue;
    }
    gpu_conv *c = &gpu->convs[i];
    describe_conv(&n->layers[i], c);
    if (gpu->main.cudnn == NULL) {
      BPPSA_TRY(bppsa_cudnn_queue_create(n->device, gpu->main.stream, &gpu->main.cudnn));
    }
    for (bppsa_cudnn_conv *&conv : c->of) {
      BPPSA_TRY(bppsa_cudnn_conv_create(gpu->main.cudnn, n->config.dtype, &conv));
    }
    gpu->framed_reals = c->framed ? larger(gpu->framed_reals, c->op.in[0] * c->op.in[1] * c->op.in[2]) : gpu->framed_reals;
  }
  return BPPSA_OK;
}

/* Makes the side stream with the lowest priority, so that the chain of input gradients comes first where both have work. */
bppsa_status make_side(cnn *n) {
  cnn_gpu *gpu = n->gpu;
  int least = 0, greatest = 0;
  gpu->side = gpu->main;
  if (n->config.weight_gradients == BPPSA_WEIGHT_GRADIENTS_IN_ORDER) {
    return BPPSA_OK;
  }
  gpu->side.cudnn = NULL;
  BPPSA_TRY(bppsa_cuda_check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "second stream"));
  BPPSA_TRY(bppsa_cuda_check(cudaStreamCreateWithPriority(&gpu->side.stream, cudaStreamNonBlocking, least), "second stream"));
  BPPSA_TRY(bppsa_cuda_check(cudaEventCreateWithFlags(&gpu->ready, cudaEventDisableTiming), "second stream"));
  BPPSA_TRY(bppsa_cuda_check(cudaEventCreateWithFlags(&gpu->done, cudaEventDisableTiming), "second stream"));
  return gpu->main.cudnn == NULL ? BPPSA_OK : bppsa_cudnn_queue_create(n->device, gpu->side.stream, &gpu->side.cudnn);
}

bppsa_status put_masks(cnn *n) {
  if (n->gpu->kept == NULL) {
    return BPPSA_OK;
  }
  uint8_t *kept = (uint8_t *)bppsa_alloc((size_t)n->base.reals);
  if (kept == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  memset(kept, 1, (size_t)n->base.reals);
  const char *first = (const char *)n->base.parameters[0].value.data;
  for (int64_t i = 0; i < n->network.count; ++i) {
    if (n->layers[i].mask != NULL) {
      const bppsa_view *value = &n->base.parameters[n->layers[i].weight].value;
      const int64_t at = ((const char *)value->data - first) / (int64_t)bppsa_dtype_size(n->config.dtype);
      memcpy(kept + at, n->layers[i].mask, (size_t)bppsa_view_count(value));
    }
  }
  const bppsa_status status = bppsa_memory_put(n->device, n->gpu->kept, kept, n->base.reals);
  bppsa_free(kept);
  return status;
}

} // namespace

extern "C" bppsa_status bppsa_cnn_cuda_create(cnn *n) {
  cnn_gpu *gpu = (cnn_gpu *)bppsa_calloc(1, sizeof *gpu);
  if (gpu == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  n->gpu = gpu;
  n->base.device = n->device;
  gpu->index = bppsa_device_get_index(n->device);
  gpu->main.stream = gpu->side.stream = (cudaStream_t)bppsa_device_get_stream(n->device);
  gpu->convs = (gpu_conv *)bppsa_calloc(n->network.count, sizeof *gpu->convs);
  if (gpu->convs == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(gpu->index), "network"));
  BPPSA_TRY(make_convs(n));
  BPPSA_TRY(bppsa_memory_alloc_staging(n->device, sizeof *gpu->step, (void **)&gpu->step));
  return make_side(n);
}

extern "C" bppsa_status bppsa_cnn_cuda_choose(cnn *n, int64_t most) {
  const bppsa_cudnn_bytes each = {most, most};
  for (int64_t i = 0; i < n->network.count; ++i) {
    const gpu_conv *c = &n->gpu->convs[i];
    if (c->of[0] != NULL) {
      bppsa_cudnn_bytes used;
      const bppsa_status status =
          bppsa_cudnn_conv_describe(c->of[0], &c->op, n->config.batch, layer_chain(n, &n->layers[i]), each, &used);
      if (status != BPPSA_OK) {
        return status == BPPSA_ERR_MEMORY ? status : bppsa_fail_prefix(status, "%s", n->layers[i].about->name);
      }
      n->gpu->work_size.passes = larger(n->gpu->work_size.passes, roomy(used.passes, most));
      n->gpu->work_size.weights = larger(n->gpu->work_size.weights, roomy(used.weights, most));
    }
  }
  return BPPSA_OK;
}

extern "C" bppsa_status bppsa_cnn_cuda_visit(cnn *n, bppsa_cnn_visit visit, int64_t *sum) {
  cnn_gpu *gpu = n->gpu;
  const int64_t size = (int64_t)bppsa_dtype_size(n->config.dtype), parameters = n->base.reals * size;
  int64_t partials = 0, unaligned = 0, framed;
  int64_t largest = 0, gathered;
  bool masked = false, drops = false;
  for (int64_t i = 0; i < n->network.count; ++i) {
    const cnn_layer *layer = &n->layers[i];
    const int64_t tensor = bppsa_cnn_size(&n->network, i);
    largest = bppsa_cnn_is_graph(&n->network) ? larger(largest, tensor) : 0;
    drops = drops || layer->about->op.dropping;
    masked = masked || layer->mask != NULL;
    unaligned = is_conv(layer) && n->config.method.backward == BPPSA_BACKWARD_SCAN ? larger(unaligned, layer->out) : unaligned;
    if (layer->about->op.kind == BPPSA_OPERATOR_LINEAR) {
      partials = larger(partials, parts_of(layer, n->config.batch) * layer->out * (layer->in + 1) * size);
    }
  }
  gathered = bppsa_mul(largest * size, n->config.batch, &gathered) ? gathered : -1;
  framed = bppsa_mul(gpu->framed_reals * size, n->config.batch, &framed) ? framed : -1;
  const int64_t unaligned_bytes = bppsa_mul(unaligned * size, n->config.batch, &unaligned) ? unaligned : -1;
  const struct {
    bool wanted;
    void *array;
    int64_t bytes;
  } arrays[] = {{!n->lent, &n->base.device_values, parameters},
                {!n->lent, &n->base.device_gradients, parameters},
                {partials > 0, &gpu->partials, partials},
                {gpu->work_size.passes > 0, &gpu->work, gpu->work_size.passes},
                {gpu->work_size.weights > 0, &gpu->weight_work, gpu->work_size.weights},
                {framed != 0, &gpu->framed_x, framed},
                {framed != 0, &gpu->framed_dx, framed},
                {unaligned_bytes != 0, &gpu->aligned_dy, unaligned_bytes},
                {masked, &gpu->kept, n->base.reals},
                {largest > 0, &n->gathered, gathered},
                {drops, &gpu->drawn, (n->config.batch + 1) * (int64_t)sizeof *gpu->drawn}};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; ++i) {
    if (arrays[i].wanted) {
      BPPSA_TRY(visit(arrays[i].array, arrays[i].bytes, sum));
    }
  }
  return BPPSA_OK;
}

extern "C" bppsa_status bppsa_cnn_cuda_start(cnn *n) {
  const int64_t bytes = n->base.reals * (int64_t)bppsa_dtype_size(n->config.dtype);
  if (n->lent) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_memory_clear(n->device, n->base.device_values, bytes));
  BPPSA_TRY(bppsa_memory_clear(n->device, n->base.device_gradients, bytes));
  return put_masks(n);
}

extern "C" void bppsa_cnn_cuda_destroy(cnn *n) {
  cnn_gpu *gpu = n->gpu;
  if (gpu == NULL) {
    return;
  }
  (void)cudaSetDevice(gpu->index);
  for (int64_t i = 0; gpu->convs != NULL && i < n->network.count; ++i) {
    for (bppsa_cudnn_conv *conv : gpu->convs[i].of) {
      bppsa_cudnn_conv_destroy(conv);
    }
  }
  if (gpu->side.stream != gpu->main.stream) {
    bppsa_cudnn_queue_destroy(gpu->side.cudnn);
    (void)cudaStreamDestroy(gpu->side.stream);
  }
  bppsa_cudnn_queue_destroy(gpu->main.cudnn);
  for (const cudaEvent_t event : {gpu->ready, gpu->done}) {
    (void)(event != NULL ? cudaEventDestroy(event) : cudaSuccess);
  }
  bppsa_memory_free_staging(n->device, gpu->step);
  bppsa_free(gpu->convs);
  bppsa_free(gpu);
}

extern "C" void bppsa_cnn_cuda_tell_step(cnn *n, int64_t step) {
  *n->gpu->step = step;
}

extern "C" bppsa_status bppsa_cnn_cuda_drop_factors(const cnn *n, const cnn_layer *layer, void *factors) {
  return drop(n, layer, NULL, factors);
}

extern "C" bppsa_status bppsa_cnn_cuda_forward(cnn *n) {
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(n->gpu->index), "forward pass"));
  return OF_TYPE(n, forward, n);
}

extern "C" bppsa_status bppsa_cnn_cuda_backward(cnn *n) {
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(n->gpu->index), "backward pass"));
  return OF_TYPE(n, backward, n);
}

extern "C" bppsa_status bppsa_cnn_cuda_layer_forward(const cnn *n, int64_t i, const void *x) {
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(n->gpu->index), "forward pass"));
  return OF_TYPE(n, layer_forward, n, &n->layers[i], x);
}

extern "C" bppsa_status bppsa_cnn_cuda_layer_input(const cnn *n, int64_t i, const void *x, const void *dy, void *dx) {
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(n->gpu->index), "backward pass"));
  return OF_TYPE(n, input_gradient, n, &n->layers[i], x, dy, dx);
}

extern "C" bppsa_status bppsa_cnn_cuda_layer_weights(cnn *n, int64_t i, const void *x, const void *dy) {
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(n->gpu->index), "backward pass"));
  return OF_TYPE(n, weight_gradient, n, i, x, dy);
}
