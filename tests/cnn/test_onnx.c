/* Networks from ONNX models: each is the network of a file with the same layers, the parameters are the model's, and what cannot be
 * read is refused in one line. (The file is long because every test writes models with the same few
 * helpers, operator by operator.) */
#include "cnn/onnx.h"
#include "tests/cnn/onnx_model.h"
#include "tests/core/helpers.h"
#include "tests/support/io_fault.h"
#include "tests/support/json_memory.h"

#include <errno.h>

#define PATH "model.onnx"
#define DIMS(...) ((const int64_t[]){__VA_ARGS__})

/* ---- files ---- */

static onnx_model begin(int axes, const int64_t *dims) {
  onnx_model m = {.random = 7};
  onnx_value_info(&m, 11, "x", axes, dims);
  return m;
}

static void save(onnx_model *m, int64_t opset, const char *output) {
  if (output != NULL) {
    onnx_value_info(m, 12, output, 2, DIMS(0, 3));
  }
  wire file = onnx_finish(m, opset);
  put_file(PATH, file.data, file.size);
  free(file.data);
}

/* The head: three classes from `in` values. */
static void add_head(onnx_model *m, const char *from, int64_t in) {
  onnx_weight(m, "fc.weight", 2, DIMS(3, in));
  onnx_weight(m, "fc.bias", 1, DIMS(3));
  onnx_open(m, "/fc/Gemm", "Gemm", "", "");
  wire_text(&m->node, 1, from);
  wire_text(&m->node, 1, "fc.weight");
  wire_text(&m->node, 1, "fc.bias");
  wire_text(&m->node, 2, "logits");
  onnx_attribute_int(m, "transB", 1);
  onnx_close(m);
}

static void add_conv(onnx_model *m, const char *name, const char *from, const char *to, int64_t out, int64_t in, int64_t kernel) {
  char weight[40], inputs[120], path[40];
  snprintf(weight, sizeof weight, "%s.weight", name);
  snprintf(inputs, sizeof inputs, "%s %s", from, weight);
  snprintf(path, sizeof path, "/%s/Conv", name);
  onnx_weight(m, weight, 4, DIMS(out, in, kernel, kernel));
  onnx_open(m, path, "Conv", inputs, to);
  onnx_attribute_ints(m, "pads", 4, DIMS(kernel / 2, kernel / 2, kernel / 2, kernel / 2));
  onnx_close(m);
}

/* ---- comparisons ---- */

static void assert_same_layer(const bppsa_cnn_layer *a, const bppsa_cnn_layer *b) {
  assert_string_equal(a->name, b->name);
  assert_string_equal(a->prefix, b->prefix);
  assert_string_equal(bppsa_cnn_layer_word(a), bppsa_cnn_layer_word(b));
  assert_memory_equal(a->op.in, b->op.in, sizeof a->op.in);
  assert_memory_equal(a->out, b->out, sizeof a->out);
  assert_int_equal(a->op.out_channels, b->op.out_channels);
  assert_memory_equal(a->op.kernel, b->op.kernel, sizeof a->op.kernel);
  assert_memory_equal(a->op.stride, b->op.stride, sizeof a->op.stride);
  assert_memory_equal(a->op.dilation, b->op.dilation, sizeof a->op.dilation);
  assert_memory_equal(a->op.padding, b->op.padding, sizeof a->op.padding);
  assert_int_equal(a->op.groups, b->op.groups);
  assert_int_equal(a->op.ceil_mode, b->op.ceil_mode);
  assert_int_equal(a->op.exclude_pad, b->op.exclude_pad);
  assert_int_equal(a->op.approximate, b->op.approximate);
  assert_true(a->op.slope == b->op.slope && a->op.epsilon == b->op.epsilon && a->op.p == b->op.p);
  assert_true(a->op.momentum == b->op.momentum);
  assert_true(a->bias == b->bias && a->line == b->line && a->node == b->node && a->of == b->of);
  assert_int_equal(a->first, b->first);
  assert_int_equal(a->axis, b->axis);
  assert_int_equal(a->extents, b->extents);
  assert_memory_equal(a->order, b->order, sizeof a->order);
  assert_memory_equal(a->shape, b->shape, sizeof a->shape);
}

/* The model at PATH is the network of this text. */
static void assert_network(const char *text) {
  bppsa_cnn_network found, expected;
  if (bppsa_cnn_onnx_load(PATH, &found, NULL) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
  if (bppsa_cnn_network_parse("N.json", text, (int64_t)strlen(text), &expected) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
  assert_int_equal(found.count, expected.count);
  assert_memory_equal(found.in, expected.in, sizeof found.in);
  assert_true(bppsa_cnn_is_graph(&found) == bppsa_cnn_is_graph(&expected));
  for (int64_t i = 0; i < found.count; ++i) {
    assert_same_layer(&found.layers[i], &expected.layers[i]);
    assert_int_equal(bppsa_cnn_input_count(&found, i), bppsa_cnn_input_count(&expected, i));
    for (int64_t k = 0; k < bppsa_cnn_input_count(&found, i); ++k) {
      assert_int_equal(bppsa_cnn_input_of(&found, i, k), bppsa_cnn_input_of(&expected, i, k));
    }
  }
  bppsa_cnn_network_free(&found);
  bppsa_cnn_network_free(&expected);
}

#define NET(in, ...) "{\"input\": " in ", \"layers\": [" __VA_ARGS__ "{\"name\": \"fc\", \"op\": \"linear\", \"out\": 3}]}"
#define LAYER(name, op, ...) "{\"name\": \"" name "\", \"op\": \"" op "\"" __VA_ARGS__ "}, "
#define READS(...) ", \"inputs\": [" __VA_ARGS__ "]"

/* ---- networks ---- */

/* Windows of all kinds, with everything that may be said of them. */
static void test_windows(void **state) {
  (void)state;
  onnx_model m = begin(4, DIMS(0, 4, 12, 12));
  onnx_weight(&m, "a.weight", 4, DIMS(6, 2, 3, 2));
  onnx_weight(&m, "a.bias", 1, DIMS(6));
  onnx_open(&m, "/a/Conv", "Conv", "x a.weight a.bias", "y1");
  onnx_attribute_ints(&m, "kernel_shape", 2, DIMS(3, 2));
  onnx_attribute_ints(&m, "strides", 2, DIMS(2, 1));
  onnx_attribute_ints(&m, "dilations", 2, DIMS(1, 2));
  onnx_attribute_ints(&m, "pads", 4, DIMS(1, 2, 0, 1)); /* top, left, bottom, right */
  onnx_attribute_int(&m, "group", 2);
  onnx_close(&m);
  onnx_open(&m, "/p/MaxPool", "MaxPool", "y1", "y2");
  onnx_attribute_ints(&m, "kernel_shape", 2, DIMS(2, 3));
  onnx_attribute_ints(&m, "strides", 2, DIMS(1, 2));
  onnx_attribute_int(&m, "ceil_mode", 1);
  onnx_close(&m);
  onnx_open(&m, "/q/AveragePool", "AveragePool", "y2", "y3");
  onnx_attribute_ints(&m, "kernel_shape", 2, DIMS(2, 2));
  onnx_attribute_ints(&m, "pads", 4, DIMS(1, 0, 0, 1));
  onnx_close(&m);
  onnx_weight(&m, "c.weight", 4, DIMS(2, 6, 3, 3));
  onnx_open(&m, "/c/Conv", "Conv", "y3 c.weight", "y4");
  onnx_attribute_text(&m, "auto_pad", "SAME_UPPER");
  onnx_attribute_ints(&m, "strides", 2, DIMS(2, 2));
  onnx_close(&m);
  onnx_node_of(&m, "/flatten/Flatten", "Flatten", "y4", "y5");
  add_head(&m, "y5", 2 * 3 * 3);
  save(&m, 13, "logits");
  assert_network(
      NET("[4, 12, 12]",
          LAYER("a", "conv2d",
                ", \"out\": 6, \"kernel\": [3, 2], \"stride\": [2, 1], \"dilation\": [1, 2], \"padding\": [1, 0, 2, 1],"
                "\"groups\": 2") LAYER("p", "maxpool2d", ", \"kernel\": [2, 3], \"stride\": [1, 2], \"ceil_mode\": true")
              LAYER("q", "avgpool2d", ", \"kernel\": 2, \"stride\": 1, \"padding\": [1, 0, 0, 1], \"exclude_pad\": true")
                  LAYER("c", "conv2d", ", \"out\": 2, \"kernel\": 3, \"stride\": 2, \"padding\": [1, 1, 0, 1], \"bias\": false")
                      LAYER("flatten", "flatten")));
}

/* Every function of single numbers, and what exporters write for three of them. */
static void test_functions(void **state) {
  (void)state;
  onnx_model m = begin(4, DIMS(0, 2, 2, 2));
  onnx_real(&m, "zero", 0);
  onnx_real(&m, "six", 6);
  onnx_real(&m, "root", 1.41421356f);
  onnx_real(&m, "one", 1);
  onnx_real(&m, "half", 0.5f);
  onnx_node_of(&m, "relu", "Relu", "x", "y1");
  onnx_open(&m, "leaky", "LeakyRelu", "y1", "y2");
  onnx_attribute_real(&m, "alpha", 0.2f);
  onnx_close(&m);
  onnx_node_of(&m, "tanh", "Tanh", "y2", "y3");
  onnx_node_of(&m, "sigmoid", "Sigmoid", "y3", "y4");
  onnx_node_of(&m, "relu6", "Clip", "y4 zero six", "y5");
  onnx_open(&m, "hardsigmoid", "HardSigmoid", "y5", "y6");
  onnx_attribute_real(&m, "alpha", 1.0f / 6);
  onnx_close(&m);
  onnx_node_of(&m, "hardswish", "HardSwish", "y6", "y7");
  onnx_open(&m, "gelu", "Gelu", "y7", "y8");
  onnx_attribute_text(&m, "approximate", "tanh");
  onnx_close(&m);
  onnx_node_of(&m, "silu", "Sigmoid", "y8", "s");
  onnx_node_of(&m, "times", "Mul", "y8 s", "y9");
  onnx_open(&m, "swish", "HardSigmoid", "y9", "h");
  onnx_attribute_real(&m, "alpha", 1.0f / 6);
  onnx_close(&m);
  onnx_node_of(&m, "times2", "Mul", "h y9", "y10");
  onnx_node_of(&m, "div", "Div", "y10 root", "d");
  onnx_node_of(&m, "erf", "Erf", "d", "e");
  onnx_node_of(&m, "plus", "Add", "e one", "f");
  onnx_node_of(&m, "times3", "Mul", "y10 f", "g");
  onnx_node_of(&m, "exact", "Mul", "g half", "y11");
  onnx_node_of(&m, "positive", "Clip", "y11 zero", "y12");
  onnx_node_of(&m, "same", "Identity", "y12", "y13");
  onnx_real(&m, "p", 0.25f);
  onnx_node_of(&m, "dropout", "Dropout", "y13 p", "y14");
  onnx_node_of(&m, "flatten", "Flatten", "y14", "y15");
  add_head(&m, "y15", 8);
  save(&m, 20, "logits");
  assert_network(NET("[2, 2, 2]", LAYER("relu", "relu") LAYER("leaky", "leaky_relu", ", \"slope\": 0.2") LAYER("tanh", "tanh")
                                      LAYER("sigmoid", "sigmoid") LAYER("relu6", "relu6") LAYER("hardsigmoid", "hardsigmoid")
                                          LAYER("hardswish", "hardswish") LAYER("gelu", "gelu", ", \"approximate\": \"tanh\"")
                                              LAYER("silu", "silu") LAYER("swish", "hardswish") LAYER("exact", "gelu")
                                                  LAYER("positive", "relu") LAYER("dropout", "dropout", ", \"p\": 0.25")
                                                      LAYER("flatten", "flatten")));
}

/* A product with a gate that another node reads too stays a product: also where the other one has another name for it. */
static void test_gates_that_stay(void **state) {
  (void)state;
  for (int alias = 0; alias < 2; ++alias) {
    onnx_model m = begin(4, DIMS(0, 2, 1, 1));
    onnx_node_of(&m, "t", "Tanh", "x", "t");
    onnx_node_of(&m, "s", "Sigmoid", "t", "s");
    if (alias) {
      onnx_node_of(&m, "i", "Identity", "s", "i");
    }
    onnx_node_of(&m, "m", "Mul", alias ? "t i" : "t s", "m");
    onnx_node_of(&m, "a", "Add", "m s", "a");
    onnx_node_of(&m, "f", "Flatten", "a", "f");
    add_head(&m, "f", 2);
    save(&m, 17, "logits");
    assert_network(NET("[2, 1, 1]", LAYER("t", "tanh") LAYER("s", "sigmoid") LAYER("m", "mul", READS("\"t\", \"s\""))
                                        LAYER("a", "add", READS("\"m\", \"s\""))));
  }
}

/* A residual block, squeeze and excitation, channels that part and meet. */
static void test_graph(void **state) {
  (void)state;
  onnx_model m = begin(4, DIMS(2, 4, 5, 5));
  add_conv(&m, "stem", "x", "y1", 6, 4, 3);
  onnx_weight(&m, "bn.weight", 1, DIMS(6));
  onnx_weight(&m, "bn.bias", 1, DIMS(6));
  onnx_weight(&m, "bn.running_mean", 1, DIMS(6));
  onnx_weight(&m, "bn.running_var", 1, DIMS(6));
  onnx_open(&m, "/bn/BatchNormalization", "BatchNormalization", "y1 bn.weight bn.bias bn.running_mean bn.running_var", "y2");
  onnx_attribute_real(&m, "epsilon", 1e-3f);
  onnx_attribute_real(&m, "momentum", 0.8f);
  onnx_close(&m);
  add_conv(&m, "block.conv", "y2", "y3", 6, 6, 3);
  onnx_node_of(&m, "/block/Add", "Add", "y3 y2", "y4");
  onnx_node_of(&m, "/se/pool/GlobalAveragePool", "GlobalAveragePool", "y4", "y5");
  add_conv(&m, "se.fc", "y5", "y6", 6, 6, 1);
  onnx_node_of(&m, "/se/gate/Sigmoid", "Sigmoid", "y6", "y7");
  onnx_node_of(&m, "/se/Mul", "Mul", "y7 y4", "y8");
  onnx_wholes(&m, "sizes", 2, DIMS(2, 4));
  onnx_open(&m, "/Split", "Split", "y8 sizes", "y9 y10");
  onnx_attribute_int(&m, "axis", 1);
  onnx_close(&m);
  onnx_node_of(&m, "/left/Relu", "Relu", "y9", "y11");
  onnx_open(&m, "/Concat", "Concat", "y10 y11 y2", "y12");
  onnx_attribute_int(&m, "axis", -3);
  onnx_close(&m);
  onnx_wholes(&m, "starts", 1, DIMS(-1));
  onnx_wholes(&m, "ends", 1, DIMS(INT64_MAX));
  onnx_wholes(&m, "axes", 1, DIMS(1));
  onnx_node_of(&m, "shape", "Shape", "y12", "dims"); /* the first of the channels is computed, as of torch.chunk */
  onnx_wholes(&m, "index", 1, DIMS(1));
  onnx_node_of(&m, "gather", "Gather", "dims index", "all");
  onnx_wholes(&m, "parts", 1, DIMS(-2));
  onnx_node_of(&m, "div", "Div", "all parts", "begin");
  onnx_node_of(&m, "ones", "Mul", "index index", "ones");
  onnx_node_of(&m, "minus", "Add", "begin starts", "sum");
  onnx_node_of(&m, "/Slice", "Slice", "y12 sum ends axes ones", "y13");
  onnx_open(&m, "/ReduceMean", "ReduceMean", "y13", "y14");
  onnx_attribute_ints(&m, "axes", 2, DIMS(2, -1));
  onnx_attribute_int(&m, "keepdims", 0);
  onnx_close(&m);
  add_head(&m, "y14", 7);
  save(&m, 17, "logits");
  assert_network(NET("[4, 5, 5]",
                     LAYER("stem", "conv2d", ", \"out\": 6, \"kernel\": 3, \"padding\": 1, \"bias\": false")
                         LAYER("bn", "batchnorm2d", ", \"eps\": 0.001, \"momentum\": 0.2")
                             LAYER("block.conv", "conv2d", ", \"out\": 6, \"kernel\": 3, \"padding\": 1, \"bias\": false")
                                 LAYER("block", "add", READS("\"block.conv\", \"bn\"")) LAYER("se.pool", "global_avgpool")
                                     LAYER("se.fc", "conv2d", ", \"out\": 6, \"kernel\": 1, \"bias\": false")
                                         LAYER("se.gate", "sigmoid") LAYER("se", "mul", READS("\"se.gate\", \"block\""))
                                             LAYER("_Split", "slice", ", \"out\": 2" READS("\"se\""))
                                                 LAYER("_Split_1", "slice", ", \"first\": 2, \"out\": 4" READS("\"se\""))
                                                     LAYER("left", "relu", READS("\"_Split\""))
                                                         LAYER("_Concat", "concat", READS("\"_Split_1\", \"left\", \"bn\""))
                                                             LAYER("_Slice", "slice", ", \"first\": 5, \"out\": 7")
                                                                 LAYER("_ReduceMean", "global_avgpool")));
}

/* Axes that move, shapes that exporters compute, and norms. */
static void test_moves_and_norms(void **state) {
  (void)state;
  onnx_model m = begin(4, DIMS(0, 4, 2, 3));
  onnx_weight(&m, "n.weight", 1, DIMS(3));
  onnx_weight(&m, "n.bias", 1, DIMS(3));
  onnx_node_of(&m, "/n/LayerNormalization", "LayerNormalization", "x n.weight n.bias", "y1");
  onnx_open(&m, "/t/Transpose", "Transpose", "y1", "y2");
  onnx_attribute_ints(&m, "perm", 4, DIMS(0, 3, 1, 2));
  onnx_close(&m);
  onnx_weight(&m, "g.weight", 1, DIMS(3));
  onnx_weight(&m, "g.bias", 1, DIMS(3));
  onnx_open(&m, "/g/GroupNormalization", "GroupNormalization", "y2 g.weight g.bias", "y3");
  onnx_attribute_int(&m, "num_groups", 3);
  onnx_close(&m);
  onnx_weight(&m, "i.weight", 1, DIMS(3));
  onnx_node_of(&m, "/i/InstanceNormalization", "InstanceNormalization", "y3 i.weight", "y4");
  onnx_open(&m, "/s/Softmax", "Softmax", "y4", "y5");
  onnx_attribute_int(&m, "axis", 1);
  onnx_close(&m);
  onnx_node_of(&m, "shape", "Shape", "y5", "shape"); /* x.view(x.size(0), 3, -1) */
  onnx_open(&m, "index", "Constant", "", "index");
  onnx_attribute_int(&m, "value_int", 0);
  onnx_close(&m);
  onnx_node_of(&m, "gather", "Gather", "shape index", "batch");
  onnx_wholes(&m, "axes", 1, DIMS(0));
  onnx_node_of(&m, "unsqueeze", "Unsqueeze", "batch axes", "first");
  onnx_open(&m, "rest", "Constant", "", "rest");
  onnx_attribute_ints(&m, "value_ints", 2, DIMS(3, -1));
  onnx_close(&m);
  onnx_open(&m, "cat", "Concat", "first rest", "dims");
  onnx_attribute_int(&m, "axis", 0);
  onnx_close(&m);
  onnx_node_of(&m, "/view/Reshape", "Reshape", "y5 dims", "y6");
  onnx_open(&m, "/swap/Transpose", "Transpose", "y6", "y7");
  onnx_attribute_ints(&m, "perm", 3, DIMS(0, 2, 1));
  onnx_close(&m);
  onnx_weight(&m, "k.weight", 3, DIMS(2, 8, 2));
  onnx_open(&m, "/k/Conv", "Conv", "y7 k.weight", "y8");
  onnx_attribute_ints(&m, "pads", 2, DIMS(1, 0));
  onnx_close(&m);
  onnx_wholes(&m, "all", 2, DIMS(0, -1));
  onnx_node_of(&m, "/flat/Reshape", "Reshape", "y8 all", "y9");
  onnx_weight(&m, "m", 2, DIMS(6, 4));
  onnx_weight(&m, "m_bias", 1, DIMS(4));
  onnx_node_of(&m, "/mm/MatMul", "MatMul", "y9 m", "y10");
  onnx_node_of(&m, "/mm/Add", "Add", "m_bias y10", "y11");
  add_head(&m, "y11", 4);
  save(&m, 21, "logits");
  assert_network(NET("[4, 2, 3]",
                     LAYER("n", "layernorm", ", \"shape\": [3]") LAYER("t", "permute", ", \"order\": [2, 0, 1]")
                         LAYER("g", "groupnorm", ", \"groups\": 3") LAYER("i", "groupnorm", ", \"groups\": 3")
                             LAYER("s", "softmax", ", \"axis\": 0") LAYER("view", "reshape", ", \"shape\": [3, 1, 8]")
                                 LAYER("swap", "permute", ", \"order\": [2, 1, 0]")
                                     LAYER("k", "conv1d", ", \"out\": 2, \"kernel\": 2, \"padding\": [1, 0], \"bias\": false")
                                         LAYER("flat", "flatten") LAYER("mm", "linear", ", \"out\": 4")));
}

/* An axis of one position needs no layer to come or go. */
static void test_axes_of_one(void **state) {
  (void)state;
  onnx_model m = begin(2, DIMS(0, 5));
  onnx_wholes(&m, "axes", 2, DIMS(2, 3));
  onnx_node_of(&m, "u", "Unsqueeze", "x axes", "y1");
  onnx_node_of(&m, "r", "Relu", "y1", "y2");
  onnx_node_of(&m, "s", "Squeeze", "y2 axes", "y3");
  add_head(&m, "y3", 5);
  save(&m, 13, "logits");
  assert_network(NET("[5, 1, 1]", LAYER("r", "relu")));
}

static void test_names(void **state) {
  (void)state;
  onnx_model m = begin(4, DIMS(0, 2, 2, 2));
  onnx_node_of(&m, "/layer1/layer1.0/relu/Relu", "Relu", "x", "y1");
  onnx_node_of(&m, "/layer1/layer1.0/relu/Relu_1", "Relu", "y1", "y2");
  onnx_node_of(&m, "", "Tanh", "y2", "y3");
  onnx_node_of(&m, "input", "Tanh", "y3", "y4");
  onnx_node_of(&m, "a name: of spaces, much longer than the names of layers may be", "Tanh", "y4", "y5");
  onnx_weight(&m, "features.0.weight", 4, DIMS(2, 2, 1, 1));
  onnx_node_of(&m, "Conv_7", "Conv", "y5 features.0.weight", "y6");
  onnx_node_of(&m, "/Flatten", "Flatten", "y6", "y7");
  add_head(&m, "y7", 8);
  save(&m, 13, "logits");
  assert_network(NET("[2, 2, 2]", LAYER("layer1.0.relu", "relu") LAYER("layer1.0.relu_1", "relu") LAYER("tanh", "tanh")
                                      LAYER("input_1", "tanh") LAYER("ch_longer_than_the_names_of_layers_may_be", "tanh")
                                          LAYER("features.0", "conv2d", ", \"out\": 2, \"kernel\": 1, \"bias\": false")
                                              LAYER("_Flatten", "flatten")));
}

/* ---- parameters ---- */

static const bppsa_view *tensor(const bppsa_safetensors *file, const char *name) {
  const bppsa_view *view = bppsa_safetensors_find(file, name);
  if (view == NULL) {
    fail_msg("no tensor %s", name);
  }
  return view;
}

/* Elements of every kind of field, a product's weight the other way round, and a bias that two layers share. */
static void test_parameters(void **state) {
  (void)state;
  static const float w[6] = {1, 2, 3, 4, 5, 6};
  static const double b[3] = {0.5, -0.5, 7};
  onnx_model m = begin(2, DIMS(0, 2));
  for (int raw = 0; raw < 2; ++raw) {
    wire t = onnx_tensor_of(raw ? "w1" : "w2", ONNX_F32, 2, raw ? DIMS(2, 3) : DIMS(3, 2), w, raw);
    wire_message(&m.graph, 5, &t);
  }
  wire t = onnx_tensor_of("b", ONNX_F64, 1, DIMS(3), b, 0);
  wire_message(&m.graph, 5, &t);
  onnx_node_of(&m, "/one/Gemm", "Gemm", "x w1 b", "y1"); /* [in][out] */
  onnx_weight(&m, "two", 2, DIMS(2, 3));
  onnx_open(&m, "/two/Gemm", "Gemm", "y1 two", "y2"); /* without a bias */
  onnx_attribute_int(&m, "transB", 1);
  onnx_close(&m);
  onnx_open(&m, "/fc/Gemm", "Gemm", "y2 w2 b", "logits");
  onnx_attribute_int(&m, "transB", 1);
  onnx_close(&m);
  save(&m, 13, "logits");
  bppsa_safetensors *file = NULL;
  bppsa_cnn_network network;
  assert_int_equal(bppsa_cnn_onnx_load(PATH, &network, &file), BPPSA_OK);
  assert_true(network.layers[0].bias && !network.layers[1].bias && network.layers[2].bias);
  assert_int_equal(bppsa_safetensors_count(file), 5);
  const bppsa_view *one = tensor(file, "one.weight"), *last = tensor(file, "fc.weight"), *bias = tensor(file, "fc.bias");
  static const float turned[6] = {1, 4, 2, 5, 3, 6};
  assert_true(one->ndim == 2 && one->shape[0] == 3 && one->shape[1] == 2);
  assert_memory_equal(one->data, turned, sizeof turned);
  assert_memory_equal(last->data, w, sizeof w);
  assert_int_equal(bias->dtype, BPPSA_F64);
  assert_memory_equal(bias->data, b, sizeof b);
  assert_memory_equal(tensor(file, "one.bias")->data, b, sizeof b);
  bppsa_safetensors_destroy(file);
  bppsa_cnn_network_free(&network);
}

/* A tensor whose elements stand in a file beside the model. */
static void put_external(const char *location, const char *offset, const char *length) {
  onnx_model m = begin(2, DIMS(0, 2));
  wire t = {NULL, 0, 0};
  const char *const pairs[3][2] = {{"location", location}, {"offset", offset}, {"length", length}};
  wire_whole(&t, 1, 3);
  wire_whole(&t, 1, 2);
  wire_whole(&t, 2, ONNX_F32);
  wire_text(&t, 8, "w");
  for (int i = 0; i < 3; ++i) {
    wire entry = {NULL, 0, 0};
    wire_text(&entry, 1, pairs[i][0]);
    wire_text(&entry, 2, pairs[i][1]);
    wire_message(&t, 13, &entry);
  }
  wire_whole(&t, 14, 1);
  wire_message(&m.graph, 5, &t);
  onnx_open(&m, "/fc/Gemm", "Gemm", "x w", "logits");
  onnx_attribute_int(&m, "transB", 1);
  onnx_close(&m);
  save(&m, 13, "logits");
}

static void test_external(void **state) {
  (void)state;
  static const float data[8] = {9, 1, 2, 3, 4, 5, 6, 9};
  static const struct {
    const char *location, *offset, *length, *message;
  } bad[] = {{"/etc/passwd", "0", "24", PATH ": tensor 'w': its data are in '/etc/passwd', expected a file beside the model"},
             {"a/../../b", "0", "24", "its data are in 'a/../../b', expected a file beside the model"},
             {"", "0", "24", "its data are in '', expected"},
             {"none.data", "0", "24", "none.data"},
             {"model.data", "9", "24", "model.data: 32 bytes, expected 24 behind byte 9"},
             {"model.data", "9999999999", "24", "32 bytes, expected 24 behind byte 9999999999"},
             {"model.data", "-4", "24", "offset of its external data is '-4', expected a whole number"},
             {"model.data", "4", "20", "20 bytes of data in model.data, expected 24"}};
  bppsa_safetensors *file = NULL;
  put_file("model.data", data, sizeof data);
  put_external("model.data", "4", "24");
  assert_int_equal(bppsa_cnn_onnx_load(PATH, NULL, &file), BPPSA_OK);
  assert_memory_equal(tensor(file, "fc.weight")->data, data + 1, 24);
  bppsa_safetensors_destroy(file);
  file = NULL;
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    put_external(bad[i].location, bad[i].offset, bad[i].length);
    const bppsa_status status = bppsa_cnn_onnx_load(PATH, NULL, &file);
    assert_true(status == BPPSA_ERR_FORMAT || status == BPPSA_ERR_ARGUMENT);
    assert_message(bad[i].message);
    assert_null(file);
  }
}

/* ---- what is refused ---- */

static void expect(bppsa_status status, const char *message) {
  bppsa_cnn_network network = {.count = 77};
  assert_error(bppsa_cnn_onnx_load(PATH, &network, NULL), status, message);
  assert_int_equal(network.count, 77);
}

/* A model whose one node before the head has these inputs, with constants to choose from; `ints`: its attribute of that name. */
static onnx_model one_node(const char *op, const char *inputs, const char *ints, int count, const int64_t *numbers) {
  onnx_model m = begin(4, DIMS(0, 2, 3, 4));
  onnx_weight(&m, "w", 4, DIMS(2, 2, 1, 1));
  onnx_weight(&m, "v", 1, DIMS(2));
  onnx_real(&m, "r", 0.3f);
  onnx_wholes(&m, "n", 3, DIMS(0, 5, 5));
  onnx_open(&m, "here", op, inputs, "y");
  if (ints != NULL) {
    onnx_attribute_ints(&m, ints, count, numbers);
  }
  onnx_close(&m);
  onnx_node_of(&m, "flat", "Flatten", "y", "z");
  add_head(&m, "z", 24);
  return m;
}

static void test_refused_nodes(void **state) {
  (void)state;
  static const struct {
    const char *op, *inputs, *ints;
    int count;
    int64_t numbers[4];
    const char *message;
  } bad[] = {
      {"LSTM", "x", NULL, 0, {0}, PATH ": node 0, 'here' (LSTM): operator 'LSTM' is not read, expected those of convolutional"},
      {"Convo", "x w", NULL, 0, {0}, "did you mean Conv?"},
      {"Conv", "x", NULL, 0, {0}, "1 inputs, expected input 1 too"},
      {"Conv", "x x", NULL, 0, {0}, "input 'x' depends on the network's input, expected a constant"},
      {"Conv", "w w", NULL, 0, {0}, "input 'w' is a constant, expected what depends on the network's input"},
      {"Conv", "nobody w", NULL, 0, {0}, "input 'nobody': no node before gives it, expected one"},
      {"Conv", "x v", NULL, 0, {0}, "a weight of 1 axes, expected 4"},
      {"Conv", "x w r", NULL, 0, {0}, "input 'r' is [] of f32, expected reals [2]"},
      {"Conv", "x w", "strides", 1, {2}, "strides: 1 numbers, expected 2"},
      {"Conv", "x w", "strides", 2, {2, 0}, "stride 0, expected 1 .. 2147483647"},
      {"Conv", "x w", "pads", 4, {1, 1, -1, 1}, "padding -1, expected 0"},
      {"MaxPool", "x", NULL, 0, {0}, "no kernel_shape, expected one"},
      {"MaxPool", "x", "kernel_shape", 2, {9, 9}, "expected an output position at least"},
      {"AveragePool", "x", "kernel_shape", 3, {1, 1, 1}, "kernel_shape: 3 numbers, expected 2"},
      {"Gemm", "x w", NULL, 0, {0}, "an input of 4 axes and a weight of 4, expected [N, C] and two axes"},
      {"Add", "x v", NULL, 0, {0}, "input 'v' is a constant, expected two activations, or the bias of a linear operator"},
      {"Add", "x x", NULL, 0, {0}, "add: input 'input' twice, expected different ones"},
      {"Mul", "x r", NULL, 0, {0}, "input 'r' is a constant, expected two activations"},
      {"Mul", "x", NULL, 0, {0}, "1 inputs, expected two"},
      {"Div", "x r", NULL, 0, {0}, "a quotient, expected x / sqrt(2)"},
      {"Erf", "x", NULL, 0, {0}, "erf, expected that of x (1 + erf(x / sqrt(2))) / 2 (gelu)"},
      {"Clip", "x r", NULL, 0, {0}, "expected 0 to 6, or above 0"},
      {"HardSigmoid", "x", NULL, 0, {0}, "alpha 0.2 and beta 0.5, expected 1/6 and 1/2"},
      {"BatchNormalization", "x v v v", NULL, 0, {0}, "4 inputs, expected input 4 too"},
      {"BatchNormalization", "x v v v n", NULL, 0, {0}, "input 'n' is [3] of i64, expected reals [2]"},
      {"GroupNormalization", "x v v", NULL, 0, {0}, "weights of groups, as up to opset 20, expected opset 21"},
      {"LayerNormalization", "x v", NULL, 0, {0}, "input 'v' is [2] of f32, expected reals [4]"},
      {"ReduceMean", "x", "axes", 1, {1}, "a mean over other axes, expected one over height and width"},
      {"ReduceMean", "x", "axes", 1, {0}, "axis 0, expected one of 1 .. 3"},
      {"Transpose", "x", "perm", 4, {1, 0, 2, 3}, "the batch moves, expected it to stay in front"},
      {"Transpose", "x", "perm", 4, {0, 1, 1, 3}, "permute: order [0, 0, 2], expected 0, 1 and 2 in some order"},
      {"Reshape", "x n", NULL, 0, {0}, "another number of values of a sample, or of axes"},
      {"Reshape", "x r", NULL, 0, {0}, "input 'r' has 1 elements of f32, expected at most 8 whole numbers"},
      {"Concat", "x x", NULL, 0, {0}, NULL},
      {"Split", "x", NULL, 0, {0}, "axis 0, expected one of 1 .. 3"},
      {"Slice", "x n n", NULL, 0, {0}, "axis 0, step 1, expected channels with step 1"},
      {"Squeeze", "x n", NULL, 0, {0}, "axis 0, expected one of 1 .. 3"},
      {"Div", "n n", NULL, 0, {0}, "constants that are no shapes, expected as many whole numbers up to 2^31"},
      {"Gather", "n n", NULL, 0, {0}, "index 5, expected one of a list of 3"},
      {"Constant", "", NULL, 0, {0}, "no value that is read"}};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    onnx_model m = one_node(bad[i].op, bad[i].inputs, bad[i].ints, bad[i].count, bad[i].numbers);
    save(&m, 20, "logits");
    bppsa_cnn_network network = {.count = 77};
    const bppsa_status status = bppsa_cnn_onnx_load(PATH, &network, NULL);
    if (bad[i].message == NULL) { /* of twice the channels, so that the head does not fit */
      assert_int_equal(status, BPPSA_ERR_SHAPE);
      continue;
    }
    if (status == BPPSA_OK || strstr(bppsa_last_error(), bad[i].message) == NULL ||
        strstr(bppsa_last_error(), "node 0, 'here' (") == NULL) {
      fail_msg("%s %s: %s, expected \"%s\"", bad[i].op, bad[i].inputs, status == BPPSA_OK ? "read" : bppsa_last_error(),
               bad[i].message);
    }
    assert_int_equal(network.count, 77);
  }
}

static void test_refused_models(void **state) {
  (void)state;
  onnx_model m = one_node("Relu", "x", NULL, 0, NULL);
  save(&m, 12, "logits");
  expect(BPPSA_ERR_UNSUPPORTED, PATH ": opset 12, expected 13 to 21");
  m = one_node("Relu", "x", NULL, 0, NULL);
  save(&m, 22, "logits");
  expect(BPPSA_ERR_UNSUPPORTED, PATH ": opset 22, expected 13 to 21");
  m = one_node("Relu", "x", NULL, 0, NULL);
  save(&m, 13, NULL);
  expect(BPPSA_ERR_UNSUPPORTED, PATH ": 0 outputs, expected one");
  m = one_node("Relu", "x", NULL, 0, NULL);
  save(&m, 13, "z");
  expect(BPPSA_ERR_UNSUPPORTED, PATH ": output 'z' is not what the last layer gives, expected that");
  m = one_node("Relu", "x", NULL, 0, NULL);
  onnx_value_info(&m, 11, "second", 4, DIMS(0, 1, 1, 1));
  save(&m, 13, "logits");
  expect(BPPSA_ERR_UNSUPPORTED, PATH ": inputs 'x' and 'second', expected one");
  m = one_node("Relu", "x", NULL, 0, NULL);
  onnx_node_of(&m, "again", "Tanh", "x", "y");
  save(&m, 13, "logits");
  expect(BPPSA_ERR_FORMAT, "node 3, 'again' (Tanh): 'y' is given twice, expected once");
  m = one_node("Relu", "x", NULL, 0, NULL);
  onnx_node_of(&m, "/s/Softmax", "Softmax", "logits", "p");
  save(&m, 13, "p");
  expect(BPPSA_ERR_ARGUMENT, "layer 's': the last operator is softmax, expected linear, the head");
  m = begin(4, DIMS(0, 2, 0, 4));
  save(&m, 13, NULL);
  expect(BPPSA_ERR_UNSUPPORTED, PATH ": input 'x': axis 2 is 'N', expected a number");
  m = begin(1, DIMS(4));
  save(&m, 13, NULL);
  expect(BPPSA_ERR_UNSUPPORTED, PATH ": input 'x': 1 axes, expected [N, C], [N, C, L] or [N, C, H, W]");
  m = (onnx_model){.random = 1};
  save(&m, 13, NULL);
  expect(BPPSA_ERR_FORMAT, PATH ": no input, expected one");
  put_file(PATH, "", 0);
  expect(BPPSA_ERR_UNSUPPORTED, PATH ": opset 0, expected 13 to 21");
  put_file(PATH, "{\"input\": [3, 8, 8]}", 20);
  expect(BPPSA_ERR_FORMAT, PATH ": 20 bytes that are no ONNX model, expected one");
  remove(PATH);
  expect(BPPSA_ERR_IO, PATH);
}

/* Two layers with one weight would part when they are trained. */
static void test_shared_weight(void **state) {
  (void)state;
  onnx_model m = begin(4, DIMS(0, 2, 2, 2));
  onnx_weight(&m, "w", 4, DIMS(2, 2, 1, 1));
  onnx_node_of(&m, "/a/Conv", "Conv", "x w", "y1");
  onnx_node_of(&m, "/b/Conv", "Conv", "y1 w", "y2");
  onnx_node_of(&m, "/f/Flatten", "Flatten", "y2", "y3");
  add_head(&m, "y3", 8);
  save(&m, 13, "logits");
  expect(BPPSA_ERR_UNSUPPORTED, "node 1, '/b/Conv' (Conv): input 'w' is another layer's parameter too, expected one of its own");
}

/* ---- files that lie, and a system that refuses ---- */

static void put_block(void) {
  onnx_model m = begin(4, DIMS(1, 2, 4, 4));
  add_conv(&m, "one", "x", "y1", 2, 2, 3);
  onnx_node_of(&m, "/Add", "Add", "y1 x", "y2");
  onnx_wholes(&m, "sizes", 2, DIMS(1, 1));
  onnx_open(&m, "/Split", "Split", "y2 sizes", "y3 y4");
  onnx_attribute_int(&m, "axis", 1);
  onnx_close(&m);
  onnx_node_of(&m, "/Mul", "Mul", "y3 y4", "y5");
  onnx_wholes(&m, "shape", 2, DIMS(1, -1));
  onnx_node_of(&m, "/Reshape", "Reshape", "y5 shape", "y6");
  add_head(&m, "y6", 16);
  save(&m, 17, "logits");
}

/* Every beginning of a file is refused, and a file with any byte changed is read or refused. */
static void test_damaged(void **state) {
  (void)state;
  static uint8_t bytes[8192];
  put_block();
  const long size = get_file(PATH, bytes, sizeof bytes);
  assert_true(size > 500 && size < (long)sizeof bytes);
  for (long cut = 0; cut < size; ++cut) {
    put_file(PATH, bytes, (size_t)cut);
    bppsa_cnn_network network;
    assert_int_not_equal(bppsa_cnn_onnx_load(PATH, &network, NULL), BPPSA_OK);
    assert_true(bppsa_last_error()[0] != '\0');
  }
  for (long at = 0; at < size; ++at) {
    const uint8_t was = bytes[at];
    bytes[at] = (uint8_t)(was + 1 + 37 * (at % 6));
    put_file(PATH, bytes, (size_t)size);
    bytes[at] = was;
    bppsa_cnn_network network;
    bppsa_safetensors *file = NULL;
    const int64_t before = bppsa_alloc_live();
    if (bppsa_cnn_onnx_load(PATH, &network, &file) == BPPSA_OK) {
      bppsa_cnn_network_free(&network);
      bppsa_safetensors_destroy(file);
    }
    assert_int_equal(bppsa_alloc_live(), before);
  }
}

static bppsa_status load(void *argument) {
  (void)argument;
  bppsa_cnn_network network;
  bppsa_safetensors *file = NULL;
  const bppsa_status status = bppsa_cnn_onnx_load(PATH, &network, &file);
  if (status == BPPSA_OK) {
    bppsa_cnn_network_free(&network);
    bppsa_safetensors_destroy(file);
  }
  return status;
}

static void test_out_of_memory(void **state) {
  (void)state;
  put_block();
  count_json_memory();
  assert_true(walk_allocations(load, NULL) > 100);
}

static void test_failing_reads(void **state) {
  (void)state;
  static const float data[8] = {9, 1, 2, 3, 4, 5, 6, 9};
  put_file("model.data", data, sizeof data);
  put_external("model.data", "4", "24");
  io_fault fault;
  int64_t call = 0;
  bppsa_status status;
  do {
    io_fault_set(&fault, ++call, false, EIO);
    status = load(NULL);
    io_fault_clear();
    assert_true(status == BPPSA_OK || (status == BPPSA_ERR_IO || status == BPPSA_ERR_ARGUMENT));
    assert_true(!fault.read_failed || status != BPPSA_OK);
  } while (fault.failed > 0);
  assert_true(call > 6);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_windows),       cmocka_unit_test(test_functions),       cmocka_unit_test(test_gates_that_stay),
      cmocka_unit_test(test_graph),         cmocka_unit_test(test_moves_and_norms), cmocka_unit_test(test_axes_of_one),
      cmocka_unit_test(test_names),         cmocka_unit_test(test_parameters),      cmocka_unit_test(test_external),
      cmocka_unit_test(test_refused_nodes), cmocka_unit_test(test_refused_models),  cmocka_unit_test(test_shared_weight),
      cmocka_unit_test(test_damaged),       cmocka_unit_test(test_out_of_memory),   cmocka_unit_test(test_failing_reads),
  };
  bppsa_cnn_network network;
  const bppsa_status status = bppsa_cnn_onnx_load("there_is_none.onnx", &network, NULL);
  if (status == BPPSA_ERR_UNSUPPORTED || status == BPPSA_ERR_LIBRARY) { /* built without ONNX */
    return 77;
  }
  return cmocka_run_group_tests(tests, NULL, NULL);
}
