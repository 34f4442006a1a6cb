/* The built-in networks: LeNet-5 and VGG-11 from the tables of jacobian/network_ops.h, and with torchvision's names
 *
 *   resnet18 resnet50 resnet152   He et al. 2016, table 1, on 3 x 224 x 224; the stride of a bottleneck is in its 3 x 3 convolution
 *   resnet20            the same paper's section 4.2, on 3 x 32 x 32; shortcuts between stages are 1 x 1 convolutions (option B)
 *   mobilenetv2         Sandler et al. 2018, table 2, width 1, on 3 x 224 x 224
 *   vgg16               Simonyan and Zisserman 2015, configuration D, on 3 x 224 x 224, without batch norms
 *
 * A layer is called as PyTorch calls its module, with _1, _2 .. where a module is used again: "layer1.0.relu_1". An operation that
 * is no module is called by its word, behind the name of the module that computes it: "layer1.0.add", "flatten". */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cnn/network_internal.h"
#include "core/base/alloc.h"
#include "core/base/text.h"
#include "jacobian/network_ops.h"

enum { MOST = 768 }; /* the layers of ResNet-152, which has most of them, are 515 */

/* A layer that reads one or two others. */
typedef struct {
  bppsa_cnn_layer layer;
  int32_t inputs[2];
  int64_t input_count;
} node;

/* A network while it is made. */
typedef struct {
  node *nodes;
  int32_t count;
  char module[BPPSA_CNN_NAME]; /* what the names of layers begin with: "layer1.0." */
} maker;

/* Appends a layer called MODULE and the word. Returns its place. */
static int32_t append(maker *m, bppsa_cnn_layer layer, int32_t input, const char *word) {
  node *n = &m->nodes[m->count];
  n->layer = layer;
  n->inputs[0] = input;
  n->input_count = 1;
  snprintf(n->layer.name, sizeof n->layer.name, "%.27s%.20s", m->module, word); /* at most 47 letters */
  memcpy(n->layer.prefix, n->layer.name, sizeof n->layer.prefix);
  return m->count++;
}

static void enter(maker *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void enter(maker *m, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(m->module, sizeof m->module, format, arguments);
  va_end(arguments);
}

static int32_t plain(maker *m, bppsa_operator kind, int32_t input, const char *word) {
  bppsa_cnn_layer layer = {.op = bppsa_op_default(kind), .bias = kind == BPPSA_OPERATOR_BATCHNORM2D};
  return append(m, layer, input, word);
}

static int32_t linear(maker *m, int64_t out, int32_t input, const char *word) {
  bppsa_cnn_layer layer = {.op = bppsa_op_default(BPPSA_OPERATOR_LINEAR), .bias = true};
  layer.op.out_channels = out;
  return append(m, layer, input, word);
}

/* A square window of a convolution or a pool. */
typedef struct {
  int64_t kernel, stride, padding;
} window;

static void slide(window w, bppsa_op *op) {
  for (int i = 0; i < 4; ++i) {
    op->kernel[i % 2] = w.kernel;
    op->stride[i % 2] = w.stride;
    op->padding[i] = w.padding;
  }
}

static int32_t conv(maker *m, int64_t out, window w, int64_t groups, bool bias, int32_t input, const char *word) {
  bppsa_cnn_layer layer = {.op = bppsa_op_default(BPPSA_OPERATOR_CONV2D), .bias = bias};
  layer.op.out_channels = out;
  layer.op.groups = groups;
  slide(w, &layer.op);
  return append(m, layer, input, word);
}

static int32_t max_pool(maker *m, window w, int32_t input, const char *word) {
  bppsa_cnn_layer layer = {.op = bppsa_op_default(BPPSA_OPERATOR_MAXPOOL2D)};
  slide(w, &layer.op);
  return append(m, layer, input, word);
}

static int32_t mean_pool(maker *m, int64_t size, int32_t input, const char *word) {
  bppsa_cnn_layer layer = {.op = bppsa_op_default(BPPSA_OPERATOR_ADAPTIVE_AVGPOOL2D)};
  layer.op.size[0] = layer.op.size[1] = size;
  return append(m, layer, input, word);
}

static int32_t add(maker *m, int32_t one, int32_t other) {
  bppsa_cnn_layer layer = {.op = bppsa_op_default(BPPSA_OPERATOR_FLATTEN), .node = BPPSA_CNN_ADD};
  const int32_t place = append(m, layer, one, "add");
  m->nodes[place].inputs[1] = other;
  m->nodes[place].input_count = 2;
  return place;
}

/* ---- ResNets ---- */

/* A convolution without a bias and its batch norm. */
static int32_t conv_norm(maker *m, int64_t out, window w, int32_t input, int number) {
  char words[2][16];
  snprintf(words[0], sizeof words[0], "conv%d", number);
  snprintf(words[1], sizeof words[1], "bn%d", number);
  return plain(m, BPPSA_OPERATOR_BATCHNORM2D, conv(m, out, w, 1, false, input, words[0]), words[1]);
}

/* A block with two convolutions of 3 x 3, or a bottleneck of 1 x 1, 3 x 3 and 1 x 1 with four times as many channels. `project`:
 * the shortcut is a convolution of 1 x 1. */
static int32_t block(maker *m, bool bottleneck, int64_t width, int64_t stride, bool project, int32_t input) {
  const int64_t out = bottleneck ? 4 * width : width;
  int32_t at = conv_norm(m, width, bottleneck ? (window){1, 1, 0} : (window){3, stride, 1}, input, 1), shortcut = input;
  at = plain(m, BPPSA_OPERATOR_RELU, at, "relu");
  at = conv_norm(m, width, (window){3, bottleneck ? stride : 1, 1}, at, 2);
  if (bottleneck) {
    at = plain(m, BPPSA_OPERATOR_RELU, at, "relu_1");
    at = conv_norm(m, out, (window){1, 1, 0}, at, 3);
  }
  if (project) {
    shortcut = conv(m, out, (window){1, stride, 0}, 1, false, input, "downsample.0");
    shortcut = plain(m, BPPSA_OPERATOR_BATCHNORM2D, shortcut, "downsample.1");
  }
  return plain(m, BPPSA_OPERATOR_RELU, add(m, at, shortcut), bottleneck ? "relu_2" : "relu_1");
}

typedef struct {
  bool bottleneck, images; /* images: of ImageNet's size, on which a convolution of 7 x 7 and a pool come first */
  int64_t width, classes;
  int stages, blocks[4];
} resnet;

static void make_resnet(maker *m, const resnet *r) {
  int32_t at = conv_norm(m, r->width, r->images ? (window){7, 2, 3} : (window){3, 1, 1}, -1, 1);
  at = plain(m, BPPSA_OPERATOR_RELU, at, "relu");
  at = r->images ? max_pool(m, (window){3, 2, 1}, at, "maxpool") : at;
  for (int stage = 0; stage < r->stages; ++stage) {
    for (int b = 0; b < r->blocks[stage]; ++b) {
      const bool shrinks = stage > 0 && b == 0, widens = r->bottleneck && b == 0;
      enter(m, "layer%d.%d.", stage + 1, b);
      at = block(m, r->bottleneck, r->width << stage, shrinks ? 2 : 1, shrinks || widens, at);
    }
  }
  enter(m, "%s", "");
  linear(m, r->classes, plain(m, BPPSA_OPERATOR_FLATTEN, mean_pool(m, 1, at, "avgpool"), "flatten"), "fc");
}

static void resnet18(maker *m) {
  make_resnet(m, &(resnet){false, true, 64, 1000, 4, {2, 2, 2, 2}});
}

static void resnet50(maker *m) {
  make_resnet(m, &(resnet){true, true, 64, 1000, 4, {3, 4, 6, 3}});
}

static void resnet152(maker *m) {
  make_resnet(m, &(resnet){true, true, 64, 1000, 4, {3, 8, 36, 3}});
}

static void resnet20(maker *m) {
  make_resnet(m, &(resnet){false, false, 16, 10, 3, {3, 3, 3, 0}});
}

/* ---- MobileNetV2 ---- */

/* A convolution, its batch norm and ReLU6: layers 0, 1 and 2 of the module that is entered. */
static int32_t conv_relu6(maker *m, int64_t out, window w, int64_t groups, int32_t input) {
  int32_t at = conv(m, out, w, groups, false, input, "0");
  at = plain(m, BPPSA_OPERATOR_BATCHNORM2D, at, "1");
  return plain(m, BPPSA_OPERATOR_RELU6, at, "2");
}

/* An inverted residual: expands its channels by a factor, convolves each by itself, and projects to `out` channels. */
static int32_t inverted(maker *m, int number, int64_t in, int64_t out, int64_t factor, int64_t stride, int32_t input) {
  const int64_t wide = factor * in;
  int32_t at = input;
  int part = 0;
  char words[2][16];
  if (factor > 1) {
    enter(m, "features.%d.conv.%d.", number, part++);
    at = conv_relu6(m, wide, (window){1, 1, 0}, 1, at);
  }
  enter(m, "features.%d.conv.%d.", number, part++);
  at = conv_relu6(m, wide, (window){3, stride, 1}, wide, at);
  snprintf(words[0], sizeof words[0], "conv.%d", part);
  snprintf(words[1], sizeof words[1], "conv.%d", part + 1);
  enter(m, "features.%d.", number);
  at = conv(m, out, (window){1, 1, 0}, 1, false, at, words[0]);
  at = plain(m, BPPSA_OPERATOR_BATCHNORM2D, at, words[1]);
  return stride == 1 && in == out ? add(m, input, at) : at;
}

static void mobilenetv2(maker *m) {
  static const int64_t stages[][4] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                      {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}}; /* factor, channels, blocks, stride */
  int64_t channels = 32;
  int number = 1;
  enter(m, "features.0.");
  int32_t at = conv_relu6(m, channels, (window){3, 2, 1}, 1, -1);
  for (size_t s = 0; s < sizeof stages / sizeof stages[0]; ++s) {
    for (int64_t b = 0; b < stages[s][2]; ++b) {
      at = inverted(m, number++, channels, stages[s][1], stages[s][0], b == 0 ? stages[s][3] : 1, at);
      channels = stages[s][1];
    }
  }
  enter(m, "features.%d.", number);
  at = conv_relu6(m, 1280, (window){1, 1, 0}, 1, at);
  enter(m, "%s", "");
  at = plain(m, BPPSA_OPERATOR_FLATTEN, mean_pool(m, 1, at, "adaptive_avg_pool2d"), "flatten");
  at = plain(m, BPPSA_OPERATOR_DROPOUT, at, "classifier.0");
  m->nodes[at].layer.op.p = 0.2;
  linear(m, 1000, at, "classifier.1");
}

/* ---- VGG-16 ---- */

static void vgg16(maker *m) {
  static const int64_t channels[] = {64, 64,  0,   128, 128, 0,   256, 256, 256,
                                     0,  512, 512, 512, 0,   512, 512, 512, 0}; /* 0: a pool */
  int32_t at = -1;
  char word[16];
  enter(m, "features.");
  for (size_t i = 0; i < sizeof channels / sizeof channels[0]; ++i) {
    snprintf(word, sizeof word, "%d", (int)m->count);
    if (channels[i] == 0) {
      at = max_pool(m, (window){2, 2, 0}, at, word);
      continue;
    }
    at = conv(m, channels[i], (window){3, 1, 1}, 1, true, at, word);
    snprintf(word, sizeof word, "%d", (int)m->count);
    at = plain(m, BPPSA_OPERATOR_RELU, at, word);
  }
  enter(m, "%s", "");
  at = plain(m, BPPSA_OPERATOR_FLATTEN, mean_pool(m, 7, at, "avgpool"), "flatten");
  static const char *const words[] = {"classifier.0", "classifier.1", "classifier.2",
                                      "classifier.3", "classifier.4", "classifier.5"};
  for (int i = 0; i < 6; i += 3) {
    at = linear(m, 4096, at, words[i]);
    at = plain(m, BPPSA_OPERATOR_RELU, at, words[i + 1]);
    at = plain(m, BPPSA_OPERATOR_DROPOUT, at, words[i + 2]);
  }
  linear(m, 1000, at, "classifier.6");
}

/* ---- names ---- */

static const struct {
  const char *name;
  int64_t extent; /* height and width of the input */
  void (*make)(maker *m);
} zoo[] = {{"resnet18", 224, resnet18}, {"resnet50", 224, resnet50}, {"mobilenetv2", 224, mobilenetv2},
           {"vgg16", 224, vgg16},       {"resnet20", 32, resnet20},  {"resnet152", 224, resnet152}};
enum { NETWORKS = sizeof zoo / sizeof zoo[0] };

/* Hands the layers over, as the reader of network files does. */
static bppsa_status order(const char *name, const maker *m, bppsa_cnn_network *network) {
  bppsa_cnn_entry *entries = bppsa_calloc(m->count, sizeof *entries);
  bppsa_status status = entries == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  for (int32_t i = 0; status == BPPSA_OK && i < m->count; ++i) {
    entries[i] = (bppsa_cnn_entry){m->nodes[i].layer, m->nodes[i].inputs, m->nodes[i].input_count};
  }
  status = status == BPPSA_OK ? bppsa_cnn_network_order(name, m->count, entries, network) : status;
  bppsa_free(entries);
  return status;
}

/* Makes one of the table above in an empty network. *found: whether there is one of that name. */
static bppsa_status make_graph(const char *name, bppsa_cnn_network *network, bool *found) {
  int32_t i = 0;
  while (i < NETWORKS && strcmp(zoo[i].name, name) != 0) {
    ++i;
  }
  *found = i < NETWORKS;
  if (!*found) {
    return BPPSA_OK;
  }
  maker m = {.nodes = bppsa_calloc(MOST, sizeof *m.nodes)};
  if (m.nodes == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_cnn_network made = {.in = {3, zoo[i].extent, zoo[i].extent}};
  snprintf(made.name, sizeof made.name, "%s", name);
  zoo[i].make(&m);
  const bppsa_status status = order(name, &m, &made);
  bppsa_free(m.nodes);
  if (status != BPPSA_OK) {
    bppsa_cnn_network_free(&made);
    return status;
  }
  *network = made;
  return BPPSA_OK;
}

/* ---- LeNet-5, VGG-11, and names ---- */

static const struct {
  const char *name;
  const char *head, *prefix; /* names of the head and of its parameters */
  int64_t classes;
  bool numbered; /* parameters are called features.K, K the operator's position */
} builtins[] = {{"lenet5", "fc3", "fc3", 10, false}, {"vgg11", "classifier", "classifier", 10, true}};

enum { BUILTINS = sizeof builtins / sizeof builtins[0], NAMES = 140 };

static const char *builtin_name(const void *context, int32_t i) {
  (void)context;
  return i < BUILTINS ? builtins[i].name : i - BUILTINS < NETWORKS ? zoo[i - BUILTINS].name : NULL;
}

/* Adds the operators of the table, then the head. */
static bppsa_status add_builtin(size_t which, const bppsa_named_op *ops, int64_t count, bppsa_cnn_network *made) {
  for (int64_t i = 0; i < count; ++i) {
    bppsa_cnn_layer layer = {.op = ops[i].op};
    layer.bias = bppsa_cnn_has_weights(&layer);
    memcpy(layer.name, ops[i].name, sizeof ops[i].name);
    memcpy(layer.prefix, ops[i].name, sizeof ops[i].name);
    if (builtins[which].numbered) {
      snprintf(layer.prefix, sizeof layer.prefix, "features.%lld", (long long)i);
    }
    BPPSA_TRY(bppsa_cnn_network_add(made, &layer));
  }
  bppsa_cnn_layer head = {.op = bppsa_op_default(BPPSA_OPERATOR_LINEAR), .bias = true};
  head.op.out_channels = builtins[which].classes;
  snprintf(head.name, sizeof head.name, "%s", builtins[which].head);
  snprintf(head.prefix, sizeof head.prefix, "%s", builtins[which].prefix);
  return bppsa_cnn_network_add(made, &head);
}

bppsa_status bppsa_cnn_network_builtin(const char *name, bppsa_cnn_network *network) {
  BPPSA_REQUIRE(name != NULL && network != NULL);
  for (size_t i = 0; i < BUILTINS; ++i) {
    if (strcmp(builtins[i].name, name) != 0) {
      continue;
    }
    bppsa_named_op ops[BPPSA_NETWORK_OPS];
    int64_t count;
    bppsa_cnn_network made = {0};
    BPPSA_TRY(bppsa_network_table(name, ops, &count));
    snprintf(made.name, sizeof made.name, "%s", name);
    memcpy(made.in, ops[0].op.in, sizeof made.in);
    bppsa_status status = bppsa_cnn_network_reserve(count + 1, &made);
    status = status == BPPSA_OK ? add_builtin(i, ops, count, &made) : status;
    if (status != BPPSA_OK) {
      bppsa_cnn_network_free(&made);
      return status;
    }
    *network = made;
    return BPPSA_OK;
  }
  bool found;
  char names[NAMES];
  BPPSA_TRY(make_graph(name, network, &found));
  return found ? BPPSA_OK
               : bppsa_fail(BPPSA_ERR_ARGUMENT, "network '%s' is unknown, expected %s", name,
                            bppsa_text_choices(builtin_name, NULL, names, sizeof names));
}
