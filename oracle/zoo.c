/* Built-in models, made layer by layer from their definitions, and models from files. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cnn/network.h"
#include "core/base/alloc.h"
#include "core/base/text.h"
#include "oracle/layer_model.h"
#include "oracle/members.h"

/* ---- building a chain ---- */

typedef struct {
  bppsa_oracle_model *model;
  int64_t at[1 + BPPSA_ORACLE_AXES]; /* shape after the last layer */
  int axes;
  bool failed;
  bppsa_oracle_layer lost; /* written to instead of a layer for which there was no memory */
} chain;

static bppsa_oracle_layer *append(chain *c, bppsa_layer_kind kind, const char *name) {
  bppsa_oracle_model *model = c->model;
  if ((model->count & (model->count - 1)) == 0) { /* the array is full at every power of two */
    bppsa_oracle_layer *grown = bppsa_realloc(model->layers, (size_t)(2 * model->count + 1) * sizeof *grown);
    c->failed = c->failed || grown == NULL;
    model->layers = grown != NULL ? grown : model->layers;
  }
  bppsa_oracle_layer *layer = c->failed ? &c->lost : &model->layers[model->count++];
  *layer = (bppsa_oracle_layer){.kind = kind, .forward_s = -1, .backward_s = -1, .update_s = -1, .product_s = -1, .scan_s = -1};
  snprintf(layer->name, sizeof layer->name, "%s", name);
  memcpy(layer->in, c->at, sizeof layer->in);
  memcpy(layer->out, c->at, sizeof layer->out);
  for (int a = 0; a < BPPSA_ORACLE_AXES; ++a) {
    layer->kernel[a] = layer->stride[a] = 1;
  }
  return layer;
}

/* Sets the layer's sizes; `flops`: for one output element. The next layer begins with this one's output. */
static void finish(chain *c, bppsa_oracle_layer *layer, double w, double bias, double flops) {
  layer->x = bppsa_oracle_elements(layer->in);
  layer->y = bppsa_oracle_elements(layer->out);
  layer->w = w;
  layer->bias = bias;
  layer->flops = flops * layer->y;
  memcpy(c->at, layer->out, sizeof c->at);
}

/* Slides a window of k positions with stride s and padding p over every axis. */
static double slide(const chain *c, bppsa_oracle_layer *layer, int64_t k, int64_t s, int64_t p) {
  double taps = 1;
  for (int a = 0; a < c->axes; ++a) {
    layer->kernel[a] = k;
    layer->stride[a] = s;
    layer->padding[a] = 2 * p;
    layer->out[1 + a] = (layer->in[1 + a] + 2 * p - k) / s + 1;
    taps *= (double)k;
  }
  return taps;
}

static void conv(chain *c, const char *name, int64_t out, int64_t k) {
  bppsa_oracle_layer *layer = append(c, BPPSA_LAYER_CONV, name);
  const double fan = slide(c, layer, k, 1, k / 2) * (double)layer->in[0];
  layer->out[0] = out;
  finish(c, layer, fan * (double)out, (double)out, 2 * fan);
}

static void pool(chain *c, const char *name, int64_t k) {
  bppsa_oracle_layer *layer = append(c, BPPSA_LAYER_POOL, name);
  const double taps = slide(c, layer, k, k, 0);
  finish(c, layer, 0, 0, taps);
}

static void elementwise(chain *c, const char *name) {
  finish(c, append(c, BPPSA_LAYER_ELEMENTWISE, name), 0, 0, 1);
}

static void linear(chain *c, const char *name, int64_t out) {
  if (c->model->gather < 0) {
    c->model->gather = c->model->count;
  }
  bppsa_oracle_layer *layer = append(c, BPPSA_LAYER_LINEAR, name);
  layer->in[0] = (int64_t)bppsa_oracle_elements(layer->in);
  layer->out[0] = out;
  for (int a = 1; a <= BPPSA_ORACLE_AXES; ++a) {
    layer->in[a] = layer->out[a] = 1;
  }
  finish(c, layer, (double)layer->in[0] * (double)out, (double)out, 2 * (double)layer->in[0]);
}

static chain begin(bppsa_oracle_model *model, int axes, int64_t channels, int64_t extent, int64_t samples) {
  model->samples = samples;
  model->gather = -1;
  chain c = {.model = model, .at = {channels, 1, 1, 1}, .axes = axes};
  for (int a = 0; a < axes; ++a) {
    c.at[1 + a] = extent;
  }
  return c;
}

static bppsa_status end(const chain *c) {
  return c->failed ? BPPSA_ERR_MEMORY : BPPSA_OK;
}

/* ---- CosmoFlow ---- */

enum { COSMOFLOW_SAMPLES = 1584 };

/* CosmoFlow (Mathuriya et al. 2018) in ParaDL's size: 20 layers, about 2 M parameters, 4 channels. The paper gives no more; this
 * chain has six blocks of convolution, leaky ReLU and average pool, and two linear layers. At 512^3 the last pool shrinks by
 * another factor of 2, so both sizes have the same parameters, as the paper's computation "times 8" assumes. Spatial strategies
 * split the first two blocks (section 4.5.1). */
static bppsa_status cosmoflow_of(bppsa_oracle_model *model, int64_t extent) {
  static const int64_t channels[] = {16, 32, 64, 128, 128, 128};
  enum { BLOCKS = sizeof channels / sizeof channels[0], SPLIT_BLOCKS = 2 };
  chain c = begin(model, 3, 4, extent, COSMOFLOW_SAMPLES);
  char name[BPPSA_ORACLE_NAME];
  for (int i = 0; i < BLOCKS; ++i) {
    const int64_t window = i + 1 < BLOCKS ? 2 : c.at[1] / 4;
    snprintf(name, sizeof name, "conv%d", i + 1);
    conv(&c, name, channels[i], 3);
    snprintf(name, sizeof name, "relu%d", i + 1);
    elementwise(&c, name);
    snprintf(name, sizeof name, "pool%d", i + 1);
    pool(&c, name, window);
    if (i + 1 == SPLIT_BLOCKS) {
      model->gather = model->count;
    }
  }
  linear(&c, "fc1", 128);
  linear(&c, "fc2", 4);
  return end(&c);
}

static bppsa_status cosmoflow256(bppsa_oracle_model *model) {
  return cosmoflow_of(model, 256);
}

static bppsa_status cosmoflow512(bppsa_oracle_model *model) {
  return cosmoflow_of(model, 512);
}

/* ---- networks of the library (cnn/zoo.c), and of files ---- */

static bppsa_layer_kind kind_of(const bppsa_cnn_layer *from) {
  return from->node == BPPSA_CNN_ADD                   ? BPPSA_LAYER_ADD
         : from->op.kind == BPPSA_OPERATOR_CONV2D      ? BPPSA_LAYER_CONV
         : from->op.kind == BPPSA_OPERATOR_BATCHNORM2D ? BPPSA_LAYER_NORM
         : bppsa_op_is_pool(&from->op)                 ? BPPSA_LAYER_POOL
                                                       : BPPSA_LAYER_ELEMENTWISE;
}

/* The window of a convolution or a pool along an axis. One that adapts has as large a window as its input has for an output. */
static int64_t window_of(const bppsa_cnn_layer *from, int a, bppsa_oracle_layer *layer) {
  const bppsa_op *op = &from->op;
  const bool adapts = op->kind == BPPSA_OPERATOR_ADAPTIVE_AVGPOOL2D || op->kind == BPPSA_OPERATOR_GLOBAL_AVGPOOL;
  const int64_t even = from->op.in[1 + a] / from->out[1 + a];
  layer->kernel[a] = adapts ? even : op->dilation[a] * (op->kernel[a] - 1) + 1;
  layer->stride[a] = adapts ? even : op->stride[a];
  layer->padding[a] = op->padding[2 * a] + op->padding[2 * a + 1];
  return adapts ? even : op->kernel[a];
}

/* Is the layer flatten, which computes nothing? */
static bool moves(const bppsa_cnn_layer *from) {
  return from->node == BPPSA_CNN_OPERATOR && from->op.kind == BPPSA_OPERATOR_FLATTEN;
}

static void add_layer(chain *c, const bppsa_cnn_layer *from) {
  memcpy(c->at, from->op.in, sizeof from->op.in); /* the first layer of a shortcut takes its block's input */
  if (from->op.kind == BPPSA_OPERATOR_LINEAR) {
    linear(c, from->name, from->op.out_channels);
    return;
  }
  bppsa_oracle_layer *layer = append(c, kind_of(from), from->name);
  double taps = 1;
  for (int a = 0; a < 2; ++a) {
    taps *= (double)window_of(from, a, layer);
  }
  memcpy(layer->out, from->out, sizeof from->out);
  const double channels = (double)from->out[0];
  switch (layer->kind) {
  case BPPSA_LAYER_CONV: {
    const double fan = taps * (double)(from->op.in[0] / from->op.groups);
    finish(c, layer, fan * channels, from->bias ? channels : 0, 2 * fan);
    break;
  }
  case BPPSA_LAYER_NORM:
    finish(c, layer, channels, channels, 4);
    break;
  default:
    finish(c, layer, 0, 0, layer->kind == BPPSA_LAYER_POOL ? taps : moves(from) ? 0 : 1);
  }
}

static bppsa_status of_network(const bppsa_cnn_network *network, int64_t samples, bppsa_oracle_model *model) {
  chain c = begin(model, 2, network->in[0], 1, samples);
  for (int64_t l = 0; l < network->count; ++l) {
    add_layer(&c, &network->layers[l]);
  }
  return end(&c);
}

/* Does the layer of a built-in network leave all values as they are? Flatten does, and a pool whose windows have one value. */
static bool does_nothing(const bppsa_cnn_layer *layer) {
  const bool adapts = layer->op.kind == BPPSA_OPERATOR_ADAPTIVE_AVGPOOL2D;
  return moves(layer) || (adapts && memcmp(layer->op.in, layer->out, sizeof layer->out) == 0);
}

/* Gives the network images of ParaDL's size. `up`: its pools end beyond their input where that is odd, so that more positions are
 * left for the first linear layer. */
static bppsa_status enlarge(bppsa_cnn_network *network, int64_t extent, bool up) {
  int64_t left = extent;
  for (int64_t l = 0; up && l < network->count; ++l) {
    bppsa_op *op = &network->layers[l].op;
    const bool pools = op->kind == BPPSA_OPERATOR_MAXPOOL2D;
    op->ceil_mode = op->ceil_mode || pools;
    left = pools ? (left + 1) / 2 : left;
    if (op->kind == BPPSA_OPERATOR_ADAPTIVE_AVGPOOL2D) {
      op->size[0] = op->size[1] = left;
    }
  }
  return bppsa_cnn_network_reshape(network, (const int64_t[]){network->in[0], extent, extent});
}

/* A network of cnn/zoo.c; extent: of its images, 0: its own. */
static bppsa_status builtin_network(const char *name, int64_t extent, bool up, int64_t samples, bppsa_oracle_model *model) {
  bppsa_cnn_network network;
  BPPSA_TRY(bppsa_cnn_network_builtin(name, &network));
  bppsa_status status = extent > 0 ? enlarge(&network, extent, up) : BPPSA_OK;
  chain c = begin(model, 2, network.in[0], 1, samples);
  for (int64_t l = 0; status == BPPSA_OK && l < network.count; ++l) {
    if (!does_nothing(&network.layers[l])) {
      add_layer(&c, &network.layers[l]);
    }
  }
  bppsa_cnn_network_free(&network);
  return status == BPPSA_OK ? end(&c) : status;
}

enum { CIFAR_SAMPLES = 50000, IMAGENET_SAMPLES = 1281167, PARADL_EXTENT = 226 };

static bppsa_status vgg11(bppsa_oracle_model *model) {
  return builtin_network("vgg11", 0, false, CIFAR_SAMPLES, model);
}

static bppsa_status lenet5(bppsa_oracle_model *model) {
  return builtin_network("lenet5", 0, false, CIFAR_SAMPLES, model);
}

static bppsa_status resnet20(bppsa_oracle_model *model) {
  return builtin_network("resnet20", 0, false, CIFAR_SAMPLES, model);
}

static bppsa_status resnet18(bppsa_oracle_model *model) {
  return builtin_network("resnet18", 0, false, IMAGENET_SAMPLES, model);
}

static bppsa_status mobilenetv2(bppsa_oracle_model *model) {
  return builtin_network("mobilenetv2", 0, false, IMAGENET_SAMPLES, model);
}

static bppsa_status resnet50(bppsa_oracle_model *model) {
  return builtin_network("resnet50", PARADL_EXTENT, false, IMAGENET_SAMPLES, model);
}

static bppsa_status resnet152(bppsa_oracle_model *model) {
  return builtin_network("resnet152", PARADL_EXTENT, false, IMAGENET_SAMPLES, model);
}

/* 226 x 226 images and pools that end beyond their input leave 8 x 8 positions for the first linear layer, as ParaDL counts;
 * 224 x 224 leave 7 x 7. */
static bppsa_status vgg16(bppsa_oracle_model *model) {
  return builtin_network("vgg16", PARADL_EXTENT, true, IMAGENET_SAMPLES, model);
}

static bppsa_status vgg16_224(bppsa_oracle_model *model) {
  return builtin_network("vgg16", 0, false, IMAGENET_SAMPLES, model);
}

/* The recurrent benchmarks: T = 1000 bits, H = 20, one layer and a head of 10 classes on its last state. A step of K gates takes
 * 2 K H (I + H) FLOP; the product of two steps' Jacobians, sum_k W_k^T diag(d_k) times a matrix, 2 K H^3. */
static bppsa_status recurrent(bppsa_oracle_model *model, int64_t gates) {
  enum { STEPS = 1000, INPUT = 1, HIDDEN = 20, CLASSES = 10 };
  chain c = begin(model, 1, INPUT, STEPS, 32000);
  bppsa_oracle_layer *layer = append(&c, BPPSA_LAYER_RECURRENT, "layer 0");
  layer->out[0] = HIDDEN;
  layer->product_flops = 2.0 * (double)gates * HIDDEN * HIDDEN * HIDDEN;
  finish(&c, layer, (double)(gates * HIDDEN * (INPUT + HIDDEN)), (double)(2 * gates * HIDDEN),
         2.0 * (double)gates * (INPUT + HIDDEN));
  model->gather = 0;
  c.at[1] = 1; /* the head sees the last state */
  linear(&c, "linear", CLASSES);
  return end(&c);
}

static bppsa_status rnn(bppsa_oracle_model *model) {
  return recurrent(model, 1);
}

static bppsa_status gru(bppsa_oracle_model *model) {
  return recurrent(model, 3);
}

/* ---- names ---- */

static const struct {
  const char *name, *summary;
  bppsa_status (*make)(bppsa_oracle_model *model);
} models[] = {
    {"resnet50", "ResNet-50, ImageNet, 3 x 226 x 226", resnet50},
    {"resnet152", "ResNet-152, ImageNet, 3 x 226 x 226", resnet152},
    {"vgg16", "VGG-16, ImageNet, 3 x 226 x 226, pools rounded up", vgg16},
    {"vgg16-224", "VGG-16, ImageNet, 3 x 224 x 224", vgg16_224},
    {"cosmoflow256", "CosmoFlow, 4 x 256 x 256 x 256", cosmoflow256},
    {"cosmoflow512", "CosmoFlow, 4 x 512 x 512 x 512", cosmoflow512},
    {"vgg11", "VGG-11 of bppsa train vgg11, CIFAR-10", vgg11},
    {"lenet5", "LeNet-5 of bppsa train lenet5, CIFAR-10", lenet5},
    {"resnet18", "ResNet-18, ImageNet, 3 x 224 x 224", resnet18},
    {"mobilenetv2", "MobileNetV2, ImageNet, 3 x 224 x 224", mobilenetv2},
    {"resnet20", "ResNet-20, CIFAR-10", resnet20},
    {"rnn", "the RNN benchmark: T 1000, H 20", rnn},
    {"gru", "the GRU benchmark: T 1000, H 20", gru},
};
enum { MODELS = sizeof models / sizeof models[0] };

const char *bppsa_oracle_model_name(int64_t i) {
  return i < MODELS ? models[i].name : NULL;
}

const char *bppsa_oracle_model_summary(int64_t i) {
  return i < MODELS ? models[i].summary : NULL;
}

/* Opens a file: a network file has "input", a model file does not. */
static bppsa_status open_file(const char *path, bppsa_oracle_model *model) {
  json_t *document = NULL;
  BPPSA_TRY(bppsa_input_status(bppsa_json_load(path, &document)));
  const bool is_network = json_object_get(document, "input") != NULL;
  bppsa_cnn_network network = {.count = 0};
  bppsa_status status = is_network ? bppsa_input_status(bppsa_cnn_network_read(path, document, &network))
                                   : bppsa_oracle_model_parse(path, document, model);
  json_decref(document);
  if (is_network && status == BPPSA_OK) {
    status = bppsa_cnn_require_chain(&network, "the oracle");
    status = status == BPPSA_OK ? of_network(&network, 1, model) : bppsa_input_status(status);
    snprintf(model->name, sizeof model->name, "%s", network.name);
    bppsa_cnn_network_free(&network);
  }
  return status;
}

bppsa_status bppsa_oracle_model_open(const char *name, bppsa_oracle_model *model) {
  bppsa_oracle_model made = {.count = 0};
  bppsa_status status = BPPSA_ERR_ARGUMENT;
  const char *names[MODELS + 1] = {NULL};
  if (bppsa_oracle_is_file(name)) {
    status = open_file(name, &made);
  } else {
    int64_t found = 0;
    for (int64_t i = 0; i < MODELS; ++i) {
      names[i] = models[i].name;
    }
    while (found < MODELS && strcmp(names[found], name) != 0) {
      ++found;
    }
    if (found == MODELS) {
      char hint[96];
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "'%s': unknown model, expected one that bppsa oracle --list names, or a file .json%s",
                        name, bppsa_suggestion(name, names, hint, sizeof hint));
    }
    snprintf(made.name, sizeof made.name, "%s", name);
    status = models[found].make(&made);
  }
  if (status != BPPSA_OK) {
    bppsa_oracle_model_free(&made);
    return status;
  }
  *model = made;
  return BPPSA_OK;
}
