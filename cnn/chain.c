#include "cnn/chain.h"

#include <string.h>

#include "cnn/cnn_internal.h"
#include "cnn/pass.h"
#include "cnn/work.h"
#include "core/base/alloc.h"

typedef struct {
  bppsa_chain base;
  bppsa_cnn_network network;
  cnn *gpu; /* computes the passes, with arrays that it borrows for each; NULL: this file computes them */
  int32_t threads;
  bppsa_chain_layer *layers;   /* size L */
  bppsa_conv *convs;           /* size L; planned for convolutions */
  bppsa_parameter *parameters; /* size BPPSA_CNN_PARAMETERS · L at most */
  char (*names)[BPPSA_CNN_PARAMETER];
  void *scratch, *sums, *transposed;
} cnn_chain;

static bppsa_cnn_pass pass_of(const cnn_chain *c, int64_t layer, int64_t samples) {
  return (bppsa_cnn_pass){.about = &c->network.layers[layer],
                          .conv = &c->convs[layer],
                          .dtype = c->base.dtype,
                          .threads = c->threads,
                          .batch = samples,
                          .in = c->layers[layer].in,
                          .out = c->layers[layer].out,
                          .scratch = c->scratch,
                          .sums = c->sums,
                          .transposed = c->transposed};
}

/* A pass with the parameters of a batch norm, and their gradients. */
static bppsa_cnn_pass pass_with(const cnn_chain *c, int64_t layer, int64_t samples, void *const *weights,
                                void *const *gradients) {
  bppsa_cnn_pass pass = pass_of(c, layer, samples);
  for (int64_t p = 0; pass.about->op.kind == BPPSA_OPERATOR_BATCHNORM2D && p < c->layers[layer].parameters; ++p) {
    pass.parameters[p] = weights[p];
    pass.gradients[p] = gradients != NULL ? gradients[p] : NULL;
  }
  return pass;
}

/* The layer's weight or bias among `arrays`, or NULL. */
static void *array_of(const cnn_chain *c, int64_t layer, void *const *arrays, int64_t which) {
  return which < c->layers[layer].parameters ? arrays[which] : NULL;
}

static bppsa_status forward(bppsa_chain *chain, int64_t layer, int64_t samples, void *const *weights, const void *x, void *kept,
                            void *y) {
  const cnn_chain *c = (const cnn_chain *)chain;
  const bppsa_cnn_pass pass = pass_with(c, layer, samples, weights, NULL);
  bppsa_cnn_pass_forward(&pass, x, array_of(c, layer, weights, 0), array_of(c, layer, weights, 1), kept, y);
  return BPPSA_OK;
}

static bppsa_status input_gradient(bppsa_chain *chain, int64_t layer, int64_t samples, void *const *weights, const void *dy,
                                   const void *x, const void *y, const void *kept, void *dx) {
  const cnn_chain *c = (const cnn_chain *)chain;
  const bppsa_cnn_pass pass = pass_with(c, layer, samples, weights, NULL);
  bppsa_cnn_pass_input_gradient(&pass, dy, array_of(c, layer, weights, 0), x, y, kept, dx);
  return BPPSA_OK;
}

static bppsa_status weight_gradient(bppsa_chain *chain, int64_t layer, int64_t samples, void *const *weights, const void *dy,
                                    const void *x, const void *y, const void *kept, void *const *gradients) {
  const cnn_chain *c = (const cnn_chain *)chain;
  const bppsa_cnn_pass pass = pass_with(c, layer, samples, weights, gradients);
  (void)y;
  (void)kept;
  bppsa_cnn_pass_weight_gradient(&pass, dy, x, gradients[0], array_of(c, layer, gradients, 1));
  return BPPSA_OK;
}

/* ---- on a GPU ---- */

/* Lends the layer the arrays of a pass. */
static cnn *lend(const bppsa_chain *chain, int64_t layer, int64_t samples, void *const *weights, void *const *gradients,
                 const void *kept, const void *y) {
  cnn *n = ((const cnn_chain *)chain)->gpu;
  cnn_layer *to = &n->layers[layer];
  n->batch = samples;
  to->y = (void *)(uintptr_t)y;
  to->places = to->about->op.kind == BPPSA_OPERATOR_MAXPOOL2D ? (void *)(uintptr_t)kept : NULL;
  to->lent_values = weights;
  to->lent_gradients = gradients;
  return n;
}

static bppsa_status gpu_forward(bppsa_chain *chain, int64_t layer, int64_t samples, void *const *weights, const void *x,
                                void *kept, void *y) {
  return bppsa_cnn_cuda_layer_forward(lend(chain, layer, samples, weights, NULL, kept, y), layer, x);
}

static bppsa_status gpu_input_gradient(bppsa_chain *chain, int64_t layer, int64_t samples, void *const *weights, const void *dy,
                                       const void *x, const void *y, const void *kept, void *dx) {
  return bppsa_cnn_cuda_layer_input(lend(chain, layer, samples, weights, NULL, kept, y), layer, x, dy, dx);
}

static bppsa_status gpu_weight_gradient(bppsa_chain *chain, int64_t layer, int64_t samples, void *const *weights, const void *dy,
                                        const void *x, const void *y, const void *kept, void *const *gradients) {
  return bppsa_cnn_cuda_layer_weights(lend(chain, layer, samples, weights, gradients, kept, y), layer, x, dy);
}

static bppsa_status twin(const bppsa_chain *chain, const bppsa_device *device, bppsa_chain **made) {
  const cnn_chain *c = (const cnn_chain *)chain;
  return bppsa_cnn_chain_create(&c->network, c->base.batch, c->base.dtype, device, made);
}

/* ---- creation ---- */

static void destroy(bppsa_chain *chain) {
  cnn_chain *c = (cnn_chain *)chain;
  if (c->gpu != NULL) {
    bppsa_model_destroy(&c->gpu->base);
  }
  void *const blocks[] = {c->layers, c->convs, c->parameters, c->names, c->scratch, c->sums, c->transposed};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
    bppsa_free(blocks[i]);
  }
  bppsa_cnn_network_free(&c->network);
  bppsa_free(c);
}

static const bppsa_chain_ops chain_ops = {
    .forward = forward, .input_gradient = input_gradient, .weight_gradient = weight_gradient, .destroy = destroy};
static const bppsa_chain_ops gpu_ops = {.forward = gpu_forward,
                                        .input_gradient = gpu_input_gradient,
                                        .weight_gradient = gpu_weight_gradient,
                                        .twin = twin,
                                        .destroy = destroy};

/* Weighs an identity as if it read its input: a worker passes it on. */
static double flops_of(const bppsa_cnn_network *network, int64_t i) {
  return bppsa_op_is_identity(&network->layers[i].op) ? (double)bppsa_cnn_size(network, i + 1)
                                                      : bppsa_cnn_forward_flops(network, i);
}

static bppsa_status describe_layer(cnn_chain *c, int64_t i) {
  const bppsa_cnn_layer *about = &c->network.layers[i];
  if (about->op.kind == BPPSA_OPERATOR_DROPOUT && about->op.p > 0) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "layer '%s': dropout in a chain whose layers are called one by one, expected p 0",
                      about->name);
  }
  const int64_t first = c->base.parameter_count, parameters = bppsa_cnn_parameters(about);
  for (int64_t p = first; p < first + parameters; ++p) {
    c->parameters[p] = bppsa_cnn_parameter(about, p - first, c->base.dtype, c->names[p]);
  }
  c->base.parameter_count += parameters;
  c->layers[i] = (bppsa_chain_layer){
      .name = about->name,
      .in = bppsa_cnn_size(&c->network, i),
      .out = bppsa_cnn_size(&c->network, i + 1),
      .kept = about->op.kind == BPPSA_OPERATOR_MAXPOOL2D ? bppsa_cnn_size(&c->network, i + 1) * (int64_t)sizeof(int32_t) : 0,
      .first_parameter = first,
      .parameters = parameters};
  c->layers[i].flops = flops_of(&c->network, i);
  return about->op.kind == BPPSA_OPERATOR_CONV2D && c->base.device == NULL
             ? bppsa_conv_plan(&about->op, c->base.dtype, c->threads, c->base.batch, &c->convs[i])
             : BPPSA_OK;
}

static bppsa_status make_scratch(cnn_chain *c) {
  int64_t scratch = 0, sums = 0, transposed = 0;
  for (int64_t i = 0; i < c->network.count; ++i) {
    const bppsa_cnn_pass pass = pass_of(c, i, c->base.batch);
    BPPSA_TRY(bppsa_cnn_pass_room(&pass, &scratch, &sums, &transposed));
  }
  c->scratch = bppsa_calloc(scratch + 1, 1);
  c->sums = bppsa_calloc(sums + 1, 1);
  c->transposed = bppsa_calloc(transposed + 1, 1);
  return c->scratch == NULL || c->sums == NULL || c->transposed == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
}

static bppsa_status make_gpu(cnn_chain *c) {
  bppsa_cnn_config config = bppsa_cnn_config_default();
  config.batch = c->base.batch;
  config.dtype = c->base.dtype;
  config.method.backward = BPPSA_BACKWARD_BP;
  config.input_gradients = true;
  return bppsa_cnn_create_lent(&c->network, &config, c->base.device, &c->gpu);
}

static bppsa_status build(cnn_chain *c) {
  const int64_t count = c->network.count;
  c->layers = bppsa_calloc(count, sizeof *c->layers);
  c->convs = bppsa_calloc(count, sizeof *c->convs);
  c->parameters = bppsa_calloc(BPPSA_CNN_PARAMETERS * count, sizeof *c->parameters);
  c->names = bppsa_calloc(BPPSA_CNN_PARAMETERS * count, sizeof *c->names);
  if (c->layers == NULL || c->convs == NULL || c->parameters == NULL || c->names == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < count; ++i) {
    BPPSA_TRY(describe_layer(c, i));
  }
  return c->base.device != NULL ? make_gpu(c) : make_scratch(c);
}

bppsa_status bppsa_cnn_chain_create(const bppsa_cnn_network *network, int64_t batch, bppsa_dtype dtype,
                                    const bppsa_device *device, bppsa_chain **chain) {
  BPPSA_REQUIRE(network != NULL && device != NULL && chain != NULL);
  if (network->count < 1 || network->layers[network->count - 1].op.kind != BPPSA_OPERATOR_LINEAR) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "network: no linear operator at its end, expected one");
  }
  if (batch < 1 || batch > INT32_MAX) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "batch is %lld, expected 1 .. 2147483647", (long long)batch);
  }
  if (dtype != BPPSA_F32 && dtype != BPPSA_F64) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "chain: dtype %s, expected f32 or f64", bppsa_dtype_name(dtype));
  }
  BPPSA_TRY(bppsa_cnn_require_chain(network, "ranks that share its layers"));
  cnn_chain *c = bppsa_calloc(1, sizeof *c);
  if (c == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  c->threads = bppsa_device_get_threads(device);
  const bool gpu = bppsa_device_get_kind(device) == BPPSA_CUDA;
  c->base = (bppsa_chain){.ops = gpu ? &gpu_ops : &chain_ops,
                          .dtype = dtype,
                          .device = gpu ? device : NULL,
                          .batch = batch,
                          .layers = network->count};
  bppsa_status status = bppsa_cnn_network_copy(network, &c->network);
  status = status == BPPSA_OK ? build(c) : status;
  if (status != BPPSA_OK) {
    destroy(&c->base);
    return status;
  }
  c->base.layer = c->layers;
  c->base.parameters = c->parameters;
  *chain = &c->base;
  return BPPSA_OK;
}
