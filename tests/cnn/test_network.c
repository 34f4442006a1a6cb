/* Networks: the built-in ones, and files, good and bad. */
#include "cnn/cnn.h"
#include "tests/core/helpers.h"

#define LAYERS(...) "{\"input\": [3, 8, 6], \"layers\": [" __VA_ARGS__ "]}"
#define HEAD "{\"name\": \"head\", \"op\": \"linear\", \"out\": 10}"

static void assert_shape(const int64_t shape[3], int64_t c, int64_t h, int64_t w) {
  assert_int_equal(shape[0], c);
  assert_int_equal(shape[1], h);
  assert_int_equal(shape[2], w);
}

static void test_builtins(void **state) {
  (void)state;
  bppsa_cnn_network network;
  assert_int_equal(bppsa_cnn_network_builtin("vgg11", &network), BPPSA_OK);
  assert_int_equal(network.count, 22);
  assert_string_equal(network.layers[0].prefix, "features.0");
  assert_string_equal(network.layers[3].name, "conv2");
  static const int convs[] = {0, 3, 6, 8, 11, 13, 16, 18}; /* torchvision's */
  for (size_t i = 0; i < sizeof convs / sizeof convs[0]; ++i) {
    char expected[32];
    snprintf(expected, sizeof expected, "features.%d", convs[i]);
    assert_int_equal(network.layers[convs[i]].op.kind, BPPSA_OPERATOR_CONV2D);
    assert_string_equal(network.layers[convs[i]].prefix, expected);
  }
  assert_string_equal(network.layers[21].prefix, "classifier");
  assert_shape(network.layers[20].out, 512, 1, 1);
  assert_int_equal(bppsa_cnn_size(&network, 22), 10);
  int64_t shape[4];
  assert_int_equal(bppsa_cnn_weight_shape(&network.layers[3], shape), 4);
  assert_int_equal(shape[0] * 1000 + shape[1], 128064);
  bppsa_cnn_network_free(&network);
  assert_int_equal(bppsa_cnn_network_builtin("lenet5", &network), BPPSA_OK);
  assert_int_equal(network.count, 11);
  assert_string_equal(network.layers[10].name, "fc3");
  assert_int_equal(bppsa_cnn_weight_shape(&network.layers[6], shape), 2);
  assert_int_equal(shape[0] * 1000 + shape[1], 120400);
  bppsa_cnn_network_free(&network);
  bppsa_cnn_network_free(&network);
  assert_int_equal(bppsa_cnn_network_builtin("alexnet", &network), BPPSA_ERR_ARGUMENT);
  assert_message("network 'alexnet' is unknown, expected lenet5, vgg11, resnet18, resnet50, mobilenetv2, vgg16, resnet20 "
                 "or resnet152");
}

static bppsa_status parse(const char *text, bppsa_cnn_network *network) {
  return bppsa_cnn_network_parse("N.json", text, (int64_t)strlen(text), network);
}

static void test_every_member(void **state) {
  (void)state;
  bppsa_cnn_network n;
  assert_int_equal(
      parse(LAYERS("{\"name\": \"c\", \"op\": \"conv2d\", \"out\": 6, \"kernel\": [3, 2], \"stride\": [2, 1],"
                   " \"padding\": [1, 0, 2, 1], \"dilation\": [1, 2], \"groups\": 3, \"bias\": false},"
                   "{\"name\": \"a\", \"op\": \"avgpool2d\", \"kernel\": [2, 2], \"stride\": [1, 1], \"padding\": [1, 1, 0, 0],"
                   " \"ceil_mode\": true, \"exclude_pad\": true},"
                   "{\"name\": \"m\", \"op\": \"maxpool2d\", \"kernel\": [2, 3]},"
                   "{\"name\": \"l\", \"op\": \"leaky_relu\", \"slope\": 0.25},"
                   "{\"name\": \"f\", \"op\": \"flatten\"}, {\"name\": \"t\", \"op\": \"tanh\"}, {\"name\": \"s.1-_\", \"op\": "
                   "\"sigmoid\"}," HEAD),
            &n),
      BPPSA_OK);
  assert_int_equal(n.count, 8);
  assert_string_equal(n.name, "network");
  assert_shape(n.in, 3, 8, 6);
  assert_shape(n.layers[0].out, 6, 4, 7);
  assert_false(n.layers[0].bias);
  assert_true(n.layers[7].bias);
  assert_int_equal(n.layers[0].op.groups, 3);
  assert_int_equal(n.layers[0].op.padding[2], 2);
  assert_int_equal(n.layers[0].op.dilation[1], 2);
  assert_true(n.layers[1].op.ceil_mode && n.layers[1].op.exclude_pad);
  assert_int_equal(n.layers[1].op.stride[0], 1);
  assert_int_equal(n.layers[2].op.stride[0], 2); /* the kernel's */
  assert_int_equal(n.layers[2].op.stride[1], 3);
  assert_true(n.layers[3].op.slope == 0.25);
  assert_shape(n.layers[4].out, bppsa_cnn_size(&n, 4), 1, 1);
  assert_string_equal(n.layers[6].prefix, "s.1-_");
  bppsa_cnn_network_free(&n);
}

/* One number stands for height and width, and for all four sides of a padding; two for the sides above and below, and beside. */
static void test_short_members(void **state) {
  (void)state;
  bppsa_cnn_network n, m;
  assert_int_equal(parse(LAYERS("{\"name\": \"c\", \"op\": \"conv2d\", \"out\": 6, \"kernel\": 3, \"stride\": 2, \"padding\": 1, "
                                "\"dilation\": 1}, {\"name\": \"d\", \"op\": \"conv2d\", \"out\": 4, \"kernel\": 2, "
                                "\"padding\": [2, 1], \"dilation\": 2}, {\"name\": \"m\", \"op\": \"maxpool2d\", \"kernel\": 2},"
                                "{\"name\": \"a\", \"op\": \"avgpool2d\", \"kernel\": [2, 1], \"stride\": 1}," HEAD),
                         &n),
                   BPPSA_OK);
  assert_int_equal(parse(LAYERS("{\"name\": \"c\", \"op\": \"conv2d\", \"out\": 6, \"kernel\": [3, 3], \"stride\": [2, 2], "
                                "\"padding\": [1, 1, 1, 1], \"dilation\": [1, 1]}, {\"name\": \"d\", \"op\": \"conv2d\", "
                                "\"out\": 4, \"kernel\": [2, 2], \"padding\": [2, 2, 1, 1], \"dilation\": [2, 2]}, "
                                "{\"name\": \"m\", \"op\": \"maxpool2d\", \"kernel\": [2, 2]},"
                                "{\"name\": \"a\", \"op\": \"avgpool2d\", \"kernel\": [2, 1], \"stride\": [1, 1]}," HEAD),
                         &m),
                   BPPSA_OK);
  assert_int_equal(n.count, m.count);
  for (int64_t i = 0; i < n.count; ++i) {
    assert_memory_equal(n.layers[i].op.kernel, m.layers[i].op.kernel, sizeof n.layers[i].op.kernel);
    assert_memory_equal(n.layers[i].op.stride, m.layers[i].op.stride, sizeof n.layers[i].op.stride);
    assert_memory_equal(n.layers[i].op.padding, m.layers[i].op.padding, sizeof n.layers[i].op.padding);
    assert_memory_equal(n.layers[i].op.dilation, m.layers[i].op.dilation, sizeof n.layers[i].op.dilation);
    assert_memory_equal(n.layers[i].out, m.layers[i].out, sizeof n.layers[i].out);
  }
  assert_int_equal(n.layers[2].op.stride[1], 2); /* the kernel's */
  assert_int_equal(n.layers[1].op.padding[0] * 1000 + n.layers[1].op.padding[1] * 100 + n.layers[1].op.padding[2] * 10 +
                       n.layers[1].op.padding[3],
                   2211);
  bppsa_cnn_network_free(&n);
  bppsa_cnn_network_free(&m);
}

#define L(name, op, inputs) "{\"name\": \"" name "\", \"op\": \"" op "\", \"inputs\": [" inputs "]},"
#define SLICE(first, out) "{\"name\": \"s\", \"op\": \"slice\", \"first\": " first ", \"out\": " out "},"

/* A file in any order is put in the first order in which every layer follows those that it reads. */
static void test_graph(void **state) {
  (void)state;
  static const char *const order[] = {"b", "a", "m", "c", "s", "sum", "head"};
  static const int64_t inputs[][3] = {{-1}, {0}, {1, 0}, {2, -1, 2}, {3}, {4, 1}, {5}}, channels[] = {3, 3, 3, 9, 3, 3, 10};
  bppsa_cnn_network n, copy;
  assert_int_equal(
      parse(LAYERS(L("sum", "add", "\"s\", \"a\"") L("c", "concat", "\"m\", \"input\", \"m\"") SLICE("2", "3")
                       L("b", "tanh", "\"input\"") L("a", "relu", "\"b\"")
                           L("m", "mul",
                             "\"a\", \"b\"") "{\"name\": \"head\", \"op\": \"linear\", \"out\": 10, \"inputs\": [\"sum\"]}"),
            &n),
      BPPSA_OK);
  assert_true(bppsa_cnn_is_graph(&n));
  assert_int_equal(bppsa_cnn_network_copy(&n, &copy), BPPSA_OK);
  bppsa_cnn_network_free(&n);
  assert_int_equal(copy.count, 7);
  for (int64_t i = 0; i < 7; ++i) {
    assert_string_equal(copy.layers[i].name, order[i]);
    assert_int_equal(copy.layers[i].out[0], channels[i]);
    const int64_t count = bppsa_cnn_input_count(&copy, i);
    assert_int_equal(count, i == 3 ? 3 : i == 2 || i == 5 ? 2 : 1);
    for (int64_t k = 0; k < count; ++k) {
      assert_int_equal(bppsa_cnn_input_of(&copy, i, k), inputs[i][k]);
    }
  }
  assert_string_equal(bppsa_cnn_layer_word(&copy.layers[4]), "slice");
  assert_int_equal(copy.layers[4].first, 2);
  bppsa_cnn_network_free(&copy);
}

/* A normalisation becomes two layers; a convolution in a line has the kernel's one extent; extents of 1 are repeated by mul, and
 * count for nothing in a layer norm's shape. */
static void test_normalisations(void **state) {
  (void)state;
  bppsa_cnn_network n;
  int64_t shape[4];
  char name[BPPSA_CNN_PARAMETER];
  assert_int_equal(
      parse("{\"input\": [4, 1, 6], \"layers\": [{\"name\": \"c\", \"op\": \"conv1d\", \"out\": 6, \"kernel\": 3, \"stride\": 2, "
            "\"padding\": [1, 2], \"groups\": 2, \"dilation\": 2}, {\"name\": \"n\", \"op\": \"layernorm\", \"shape\": [6, 3]}, "
            "{\"name\": \"g\", \"op\": \"groupnorm\", \"groups\": 3, \"affine\": false}, {\"name\": \"p\", \"op\": \"permute\", "
            "\"order\": [2, 0, 1]}, {\"name\": \"s\", \"op\": \"softmax\", \"axis\": 1}, {\"name\": \"q\", \"op\": "
            "\"global_avgpool\"}, {\"name\": \"m\", \"op\": \"mul\", \"inputs\": [\"q\", \"s\"]}, {\"name\": \"r\", \"op\": "
            "\"reshape\", \"shape\": [2, 3, 3]}, " HEAD "]}",
            &n),
      BPPSA_OK);
  static const char *const words[] = {"conv1d", "sums",    "layernorm",      "sums", "groupnorm", "permute",
                                      "sums",   "softmax", "global_avgpool", "mul",  "reshape",   "linear"};
  static const int64_t shapes[][3] = {{6, 1, 3}, {2, 1, 1}, {6, 1, 3}, {2, 3, 1}, {6, 1, 3}, {3, 6, 1},
                                      {2, 3, 1}, {3, 6, 1}, {3, 1, 1}, {3, 6, 1}, {2, 3, 3}, {10, 1, 1}};
  assert_int_equal(n.count, 12);
  for (int64_t i = 0; i < 12; ++i) {
    assert_string_equal(bppsa_cnn_layer_word(&n.layers[i]), words[i]);
    assert_memory_equal(n.layers[i].out, shapes[i], sizeof shapes[i]);
  }
  assert_string_equal(n.layers[3].name, "g.sums");
  assert_int_equal(bppsa_cnn_input_count(&n, 4), 2);
  assert_int_equal(bppsa_cnn_input_of(&n, 4, 0), 2);
  assert_int_equal(bppsa_cnn_input_of(&n, 4, 1), 3);
  assert_int_equal(bppsa_cnn_input_of(&n, 3, 0), 2);
  assert_int_equal(bppsa_cnn_weight_shape(&n.layers[0], shape), 3);
  assert_int_equal(shape[0] * 100 + shape[1] * 10 + shape[2], 6 * 100 + 2 * 10 + 3);
  assert_int_equal(bppsa_cnn_parameters(&n.layers[1]), 0);
  assert_int_equal(bppsa_cnn_parameters(&n.layers[2]), 2);
  assert_int_equal(bppsa_cnn_parameters(&n.layers[4]), 0);
  const bppsa_parameter bias = bppsa_cnn_parameter(&n.layers[2], 1, BPPSA_F32, name);
  assert_string_equal(name, "n.bias");
  assert_true(bias.value.ndim == 2 && bias.value.shape[0] == 6 && bias.value.shape[1] == 3 && !bias.statistic);
  bppsa_cnn_network_free(&n);
}

/* What is wrong, the line's end, and the status. */
static const struct {
  const char *text, *message;
  bppsa_status status;
} bad[] = {
    {"[", "N.json: ", BPPSA_ERR_FORMAT},
    {"[]", "N.json: a list of 0, expected {\"input\": [C, H, W]", BPPSA_ERR_FORMAT},
    {"{\"input\": [1, 2, 3], \"layers\": [" HEAD "], \"batch\": 3}", "member \"batch\" is unknown", BPPSA_ERR_FORMAT},
    {"{\"layers\": [" HEAD "]}", "\"input\": missing, expected three whole numbers, [C, H, W]", BPPSA_ERR_FORMAT},
    {"{\"input\": [1, 2], \"layers\": [" HEAD "]}", "\"input\": a list of 2, expected three whole numbers, [C, H, W]",
     BPPSA_ERR_FORMAT},
    {"{\"input\": [1, 2, 3.5], \"layers\": [" HEAD "]}", "\"input\": a list of 3, expected three whole numbers, [C, H, W]",
     BPPSA_ERR_FORMAT},
    {"{\"input\": [0, 2, 3], \"layers\": [" HEAD "]}", "layer 'head': linear: input [0, 2, 3]", BPPSA_ERR_SHAPE},
    {"{\"input\": [1, 2, 3]}", "\"layers\": missing, expected a list of 1 to 4096", BPPSA_ERR_FORMAT},
    {"{\"input\": [1, 2, 3], \"layers\": []}", "\"layers\": a list of 0, expected a list of 1 to 4096", BPPSA_ERR_FORMAT},
    {"{\"input\": [1, 2, 3], \"layers\": {}}", "\"layers\": an object, expected a list of 1 to 4096", BPPSA_ERR_FORMAT},
    {LAYERS("3"), "layer 0: 3, expected an object", BPPSA_ERR_FORMAT},
    {LAYERS("{\"op\": \"relu\"}"), "layer 0: \"name\": missing, expected 1 to 47", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"a b\", \"op\": \"relu\"}"), "layer 0: \"name\": 'a b', expected 1 to 47", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz\", \"op\": \"relu\"}"),
     "layer 0: \"name\": 'abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz', expected 1 to 47", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"r\", \"op\": \"relu\"}, {\"name\": \"r\", \"op\": \"tanh\"}"),
     "layer 'r': the name of layer 0 too, expected different names", BPPSA_ERR_FORMAT},
    {LAYERS(L("r", "relu", "\"x\"") HEAD), "N.json: layer 'r': input 'x': no such layer, expected \"input\" or a layer's name",
     BPPSA_ERR_FORMAT},
    {LAYERS(L("relu1", "relu", "\"input\"") L("t", "tanh", "\"relu2\"") HEAD),
     "input 'relu2': no such layer, expected \"input\" or", BPPSA_ERR_FORMAT},
    {LAYERS(L("r", "relu", "") HEAD), "layer 'r': relu: \"inputs\": a list of 0, expected a list of layers' names",
     BPPSA_ERR_FORMAT},
    {LAYERS(L("r", "relu", "3") HEAD), "layer 'r': relu: \"inputs\": a list of 1, expected a list of layers' names",
     BPPSA_ERR_FORMAT},
    {LAYERS(L("r", "relu", "\"input\", \"input\"") HEAD), "layer 'r': relu: \"inputs\": 2 of them, expected one",
     BPPSA_ERR_FORMAT},
    {LAYERS(L("a", "add", "\"input\"") HEAD), "layer 'a': add: \"inputs\": 1 of them, expected two or more", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"a\", \"op\": \"add\"}," HEAD), "layer 'a': add: \"inputs\": missing, expected a list of layers' names",
     BPPSA_ERR_FORMAT},
    {LAYERS(L("r", "relu", "\"t\"") L("t", "tanh", "\"r\"") "{\"name\": \"head\", \"op\": \"linear\", \"out\": 10, \"inputs\": "
                                                            "[\"t\"]}"),
     "N.json: no layer reads \"input\", expected one at least", BPPSA_ERR_FORMAT},
    {LAYERS(L("a", "add", "\"input\", \"t\"") L("r", "relu", "\"a\"") L("t", "tanh", "\"r\"") HEAD),
     "N.json: layer 't': its inputs lead back to it by 'r', expected layers without a circle", BPPSA_ERR_FORMAT},
    {LAYERS(L("r", "relu", "\"r\"") L("t", "tanh", "\"input\"") L("a", "add", "\"r\", \"t\"") HEAD),
     "layer 'r': its inputs lead back to it by 'r', expected", BPPSA_ERR_FORMAT},
    {LAYERS(L("r", "relu", "\"input\"") L("t", "tanh", "\"input\"") HEAD),
     "N.json: layer 'r': no layer reads it, expected one at least", BPPSA_ERR_FORMAT},
    {LAYERS(L("r", "relu", "\"input\"") L("t", "add", "\"r\", \"head\"") HEAD),
     "layer 't': reads 'head', the last layer of the file, expected none to read this head", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"input\", \"op\": \"relu\"}," HEAD),
     "layer 0: \"name\": 'input', the network's own input, expected another name", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"c\", \"op\": \"conv2d\", \"out\": 4, \"kernel\": 1}," L("a", "add", "\"c\", \"input\"") HEAD),
     "layer 'a': add: inputs 'c' of [4, 8, 6] and 'input' of [3, 8, 6], expected equal shapes", BPPSA_ERR_SHAPE},
    {LAYERS("{\"name\": \"c\", \"op\": \"maxpool2d\", \"kernel\": 2}," L("a", "concat", "\"c\", \"input\"") HEAD),
     "layer 'a': concat: inputs 'c' of [3, 4, 3] and 'input' of [3, 8, 6], expected images of equal height and width",
     BPPSA_ERR_SHAPE},
    {LAYERS(L("a", "mul", "\"input\", \"input\"") HEAD), "layer 'a': mul: input 'input' twice, expected different ones",
     BPPSA_ERR_FORMAT},
    {LAYERS(SLICE("1", "3") HEAD), "layer 's': slice: 3 channels from channel 1 on, expected some of the input's 3",
     BPPSA_ERR_ARGUMENT},
    {LAYERS(SLICE("-1", "1") HEAD), "slice: 1 channels from channel -1 on", BPPSA_ERR_ARGUMENT},
    {LAYERS(SLICE("0", "0") HEAD), "slice: 0 channels from channel 0 on", BPPSA_ERR_ARGUMENT},
    {LAYERS("{\"name\": \"s\", \"op\": \"slice\", \"first\": 1}," HEAD), "layer 's': slice: \"out\": missing", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"r\", \"op\": \"relu\", \"first\": 1}," HEAD), "layer 'r': member \"first\" is unknown of relu",
     BPPSA_ERR_FORMAT},
    {LAYERS(SLICE("0", "1") "{\"name\": \"a\", \"op\": \"concat\", \"inputs\": [\"s\", \"input\"]}"),
     "layer 'a': the last operator is concat, expected linear, the head", BPPSA_ERR_ARGUMENT},
    {LAYERS("{\"name\": \"r\"}"), "layer 'r': \"op\": missing, expected an operator's name", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"r\", \"op\": \"attention\"}"), "layer 'r': unknown operator 'attention', expected one of conv2d",
     BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"r\", \"op\": \"sums\"}"), "layer 'r': unknown operator 'sums', expected one of conv2d",
     BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"r\", \"op\": \"softmax\"}"), "layer 'r': softmax: \"axis\": missing, expected a whole number",
     BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"r\", \"op\": \"softmax\", \"axis\": 3}," HEAD), "layer 'r': softmax: axis 3, expected 0, 1 or 2",
     BPPSA_ERR_ARGUMENT},
    {LAYERS("{\"name\": \"n\", \"op\": \"layernorm\", \"shape\": [8]}," HEAD),
     "layer 'n': layernorm: shape [8] of an input [3, 8, 6], expected the extents of its last axes", BPPSA_ERR_SHAPE},
    {LAYERS("{\"name\": \"n\", \"op\": \"layernorm\", \"shape\": []}," HEAD),
     "layer 'n': layernorm: \"shape\": a list of 0, expected a list of one to three whole numbers", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"n\", \"op\": \"layernorm\", \"shape\": [2, 3, 8, 6]}," HEAD),
     "\"shape\": a list of 4, expected a list of one", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"n\", \"op\": \"layernorm\", \"shape\": [6], \"eps\": -1}," HEAD),
     "layer 'n': layernorm: eps -1, expected a finite", BPPSA_ERR_ARGUMENT},
    {LAYERS("{\"name\": \"n\", \"op\": \"groupnorm\", \"groups\": 2}," HEAD),
     "layer 'n': groupnorm: 2 groups of 3 channels, expected a divisor", BPPSA_ERR_ARGUMENT},
    {LAYERS("{\"name\": \"n\", \"op\": \"groupnorm\", \"groups\": 0}," HEAD), "layer 'n': groupnorm: 0 groups of 3 channels",
     BPPSA_ERR_ARGUMENT},
    {LAYERS("{\"name\": \"n\", \"op\": \"groupnorm\"}," HEAD), "layer 'n': groupnorm: \"groups\": missing", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"n.sums\", \"op\": \"relu\"}, {\"name\": \"n\", \"op\": \"groupnorm\", \"groups\": 1}," HEAD),
     "layer 'n': groupnorm: another layer is called 'n.sums', expected this name to be left to its sums", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"a23456789b123456789c123456789d123456789e123\", \"op\": \"softmax\", \"axis\": 0}," HEAD),
     "softmax: a name of 43 letters, expected at most 42, because its sums are called NAME.sums", BPPSA_ERR_FORMAT},
    {LAYERS(L("s", "softmax", "\"input\"") HEAD), "layer 's': softmax: \"axis\": missing", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"s\", \"op\": \"softmax\", \"axis\": 0, \"inputs\": [\"t\"]}, {\"name\": \"t\", \"op\": \"add\", "
            "\"inputs\": "
            "[\"s\", \"input\"]}," HEAD),
     "layer 's': its inputs lead back to it by 't', expected layers without a circle", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"p\", \"op\": \"permute\", \"order\": [0, 1, 1]}," HEAD),
     "layer 'p': permute: order [0, 1, 1], expected 0, 1 and 2 in some order", BPPSA_ERR_ARGUMENT},
    {LAYERS("{\"name\": \"p\", \"op\": \"permute\", \"order\": [0, 1]}," HEAD),
     "layer 'p': permute: \"order\": a list of 2, expected three whole numbers, the input's axes in their new order",
     BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"p\", \"op\": \"reshape\", \"shape\": [12, 12, 2]}," HEAD),
     "layer 'p': reshape: [12, 12, 2] from an input of [3, 8, 6], expected a shape of 144 values", BPPSA_ERR_SHAPE},
    {LAYERS("{\"name\": \"p\", \"op\": \"reshape\", \"shape\": [9223372036854775807, 4, 36]}," HEAD),
     "expected a shape of 144 values", BPPSA_ERR_SHAPE},
    {LAYERS("{\"name\": \"p\", \"op\": \"reshape\", \"shape\": [-12, -12, 1]}," HEAD), "expected a shape of 144 values",
     BPPSA_ERR_SHAPE},
    {LAYERS("{\"name\": \"c\", \"op\": \"conv1d\", \"out\": 2, \"kernel\": 3}," HEAD),
     "layer 'c': conv1d: input [3, 8, 6], expected [C, 1, L]", BPPSA_ERR_SHAPE},
    {LAYERS("{\"name\": \"c\", \"op\": \"conv1d\", \"out\": 2, \"kernel\": [1, 3]}," HEAD),
     "layer 'c': conv1d: \"kernel\": a list of 2, expected a whole number", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"c\", \"op\": \"conv1d\", \"out\": 2, \"kernel\": 3, \"padding\": [1, 1, 1, 1]}," HEAD),
     "conv1d: \"padding\": a list of 4, expected a whole number, or two, [left, right]", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"c\", \"op\": \"maxpool2d\", \"kernel\": 2}," L("a", "mul", "\"c\", \"input\"") HEAD),
     "layer 'a': mul: inputs 'c' of [3, 4, 3] and 'input' of [3, 8, 6], expected equal extents, or 1", BPPSA_ERR_SHAPE},
    {LAYERS("{\"name\": \"r\", \"op\": \"gru\"}"), "layer 'r': unknown operator 'gru', expected one of conv2d", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"r\", \"op\": \"relu\", \"kernel\": [1, 1]}"), "layer 'r': member \"kernel\" is unknown of relu",
     BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"r\", \"op\": \"relu\", \"colour\": 1}"), "layer 'r': member \"colour\" is unknown of relu",
     BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"c\", \"op\": \"conv2d\", \"kernel\": [1, 1]}"), "layer 'c': conv2d: \"out\": missing",
     BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"c\", \"op\": \"conv2d\", \"out\": \"6\", \"kernel\": [1, 1]}"),
     "layer 'c': conv2d: \"out\": a text, expected a whole number", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"c\", \"op\": \"conv2d\", \"out\": 6, \"kernel\": 3.5}"),
     "layer 'c': conv2d: \"kernel\": 3.5, expected a whole number, or two, [height, width]", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"c\", \"op\": \"conv2d\", \"out\": 6, \"kernel\": [3]}"),
     "layer 'c': conv2d: \"kernel\": a list of 1, expected a whole number, or two, [height, width]", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"c\", \"op\": \"conv2d\", \"out\": 6, \"kernel\": 3, \"stride\": [1, 1, 1]}"),
     "layer 'c': conv2d: \"stride\": a list of 3, expected a whole number, or two", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"c\", \"op\": \"conv2d\", \"out\": 6, \"kernel\": 3, \"padding\": [1, 1, 1]}"),
     "layer 'c': conv2d: \"padding\": a list of 3, expected a whole number, two, [height, width], or four, [top, bottom, "
     "left, right]",
     BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"c\", \"op\": \"conv2d\", \"out\": 6, \"kernel\": 3, \"padding\": \"same\"}"),
     "layer 'c': conv2d: \"padding\": a text", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"c\", \"op\": \"conv2d\", \"out\": 6, \"kernel\": 3, \"stride\": 0}"),
     "layer 'c': conv2d: stride 0, expected 1 ..", BPPSA_ERR_ARGUMENT},
    {LAYERS("{\"name\": \"c\", \"op\": \"conv2d\", \"out\": 6, \"kernel\": 3, \"padding\": -1}"),
     "layer 'c': conv2d: padding -1, expected 0 ..", BPPSA_ERR_ARGUMENT},
    {LAYERS("{\"name\": \"c\", \"op\": \"conv2d\", \"out\": 6, \"kernal\": 3}"),
     "layer 'c': member \"kernal\" is unknown of conv2d, expected name, op, inputs, out, kernel, stride, padding, dilation, "
     "groups and "
     "bias; did you mean kernel?",
     BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"r\", \"op\": \"leaky_relu\", \"negative_slope\": 3}"),
     "member \"negative_slope\" is unknown of leaky_relu, expected name, op, inputs and slope", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"g\", \"op\": \"gelu\", \"approximate\": true}"),
     "layer 'g': gelu: \"approximate\": true, expected \"none\" or \"tanh\"", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"g\", \"op\": \"gelu\", \"approximate\": \"erf\"}"),
     "layer 'g': gelu: \"approximate\": a text, expected \"none\" or \"tanh\"", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"g\", \"op\": \"silu\", \"approximate\": \"none\"}"),
     "member \"approximate\" is unknown of silu, expected name, op and inputs", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"a\", \"op\": \"adaptive_avgpool2d\"}"),
     "layer 'a': adaptive_avgpool2d: \"size\": missing, expected a whole number, or two, [height, width]", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"a\", \"op\": \"adaptive_avgpool2d\", \"size\": [3, 0]}"),
     "layer 'a': adaptive_avgpool2d: output size 0, expected 1 ..", BPPSA_ERR_ARGUMENT},
    {LAYERS("{\"name\": \"a\", \"op\": \"global_avgpool\", \"size\": 1}"),
     "member \"size\" is unknown of global_avgpool, expected name, op and inputs", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"b\", \"op\": \"batchnorm2d\", \"eps\": -1}"),
     "layer 'b': batchnorm2d: eps -1, expected a finite number of 0 or more", BPPSA_ERR_ARGUMENT},
    {LAYERS("{\"name\": \"b\", \"op\": \"batchnorm2d\", \"momentum\": null}"),
     "layer 'b': batchnorm2d: \"momentum\": null, expected a number", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"b\", \"op\": \"batchnorm2d\", \"momentum\": 1.5}"),
     "layer 'b': batchnorm2d: momentum 1.5, expected a number from 0 to 1", BPPSA_ERR_ARGUMENT},
    {LAYERS("{\"name\": \"b\", \"op\": \"batchnorm2d\", \"bias\": false}"),
     "member \"bias\" is unknown of batchnorm2d, expected name, op, inputs, eps, momentum and affine", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"d\", \"op\": \"dropout\", \"p\": 1}"), "layer 'd': dropout: p 1, expected a number from 0 to below 1",
     BPPSA_ERR_ARGUMENT},
    {LAYERS("{\"name\": \"d\", \"op\": \"dropout\", \"p\": \"half\"}"), "layer 'd': dropout: \"p\": a text, expected a number",
     BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"r\", \"op\": \"conv2\"}"),
     "unknown operator 'conv2', expected one of conv2d, linear, relu, leaky_relu, tanh, sigmoid, maxpool2d, avgpool2d, "
     "flatten, relu6, hardsigmoid, hardswish, silu, gelu, adaptive_avgpool2d, global_avgpool, batchnorm2d, dropout, add, mul, "
     "concat, slice, reshape, permute, softmax, layernorm, groupnorm and conv1d; did you mean conv2d?",
     BPPSA_ERR_FORMAT},
    {"{\"input\": [1, 2, 3], \"layer\": [" HEAD "]}",
     "member \"layer\" is unknown, expected input and layers; did you mean layers?", BPPSA_ERR_FORMAT},
    {LAYERS("{\"name\": \"c\", \"op\": \"conv2d\", \"out\": 6, \"kernel\": [3, 9]}"),
     "layer 'c': conv2d: kernel 9 with dilation 1 covers more than the 6 positions", BPPSA_ERR_SHAPE},
    {LAYERS("{\"name\": \"c\", \"op\": \"conv2d\", \"out\": 6, \"kernel\": [3, 3], \"stride\": [0, 1]}"),
     "layer 'c': conv2d: stride 0, expected 1 ..", BPPSA_ERR_ARGUMENT},
    {LAYERS("{\"name\": \"c\", \"op\": \"conv2d\", \"out\": 6, \"kernel\": [3, 3], \"groups\": 2}"),
     "layer 'c': conv2d: 2 groups of 3 input and 6 output channels", BPPSA_ERR_ARGUMENT},
    {LAYERS("{\"name\": \"p\", \"op\": \"maxpool2d\", \"kernel\": [4, 4]}, {\"name\": \"p2\", \"op\": \"maxpool2d\", \"kernel\": "
            "[4, 4]}," HEAD),
     "layer 'p2': maxpool2d: kernel 4 with dilation 1 covers more than the 2 positions", BPPSA_ERR_SHAPE},
    {LAYERS(HEAD ", {\"name\": \"r\", \"op\": \"relu\"}"), "layer 'r': the last operator is relu, expected linear, the head",
     BPPSA_ERR_ARGUMENT},
    {LAYERS("{\"name\": \"x\", \"op\": \"linear\", \"out\": 0}"), "layer 'x': linear: output channels 0", BPPSA_ERR_ARGUMENT},
};

static void test_bad_files(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    bppsa_cnn_network network = {.count = 77};
    const int64_t live = bppsa_alloc_live();
    const bppsa_status status = parse(bad[i].text, &network);
    if (status != bad[i].status || strchr(bppsa_last_error(), '\n') != NULL) {
      fail_msg("case %d: status %d, message '%s'", (int)i, (int)status, bppsa_last_error());
    }
    assert_message(bad[i].message);
    assert_message("N.json: ");
    assert_int_equal(network.count, 77); /* untouched */
    assert_int_equal(bppsa_alloc_live(), live);
  }
  bppsa_cnn_network network;
  assert_int_equal(bppsa_cnn_network_load("absent.json", &network), BPPSA_ERR_IO);
  assert_message("absent.json");
}

static bppsa_status load_file(void *argument) {
  bppsa_cnn_network network;
  BPPSA_TRY(bppsa_cnn_network_load(argument, &network));
  bppsa_cnn_network_free(&network);
  return BPPSA_OK;
}

static bppsa_status make_builtin(void *argument) {
  bppsa_cnn_network network;
  BPPSA_TRY(bppsa_cnn_network_builtin(argument, &network));
  bppsa_cnn_network_free(&network);
  return BPPSA_OK;
}

static void test_memory(void **state) {
  (void)state;
  static const char text[] = LAYERS("{\"name\": \"c\", \"op\": \"conv2d\", \"out\": 6, \"kernel\": [3, 2]}, " HEAD);
  char path[] = "cnn_network.json", name[] = "vgg11";
  put_file(path, text, sizeof text - 1);
  assert_true(walk_allocations(load_file, path) > 1);
  assert_int_equal(walk_allocations(make_builtin, name), 1);
  remove(path);
}

static void test_infer(void **state) {
  (void)state;
  bppsa_cnn_network n;
  bppsa_dtype dtype = BPPSA_I8;
  assert_int_equal(
      parse(LAYERS("{\"name\": \"c\", \"op\": \"conv2d\", \"out\": 6, \"kernel\": [3, 2], \"bias\": false}, " HEAD), &n),
      BPPSA_OK);
  const int64_t shape[4] = {1, 1, 1, 1};
  double numbers[1] = {0};
  bppsa_named_view tensors[3] = {{"head.weight", bppsa_view_make(numbers, BPPSA_F64, 2, shape)},
                                 {"c.weight", bppsa_view_make(numbers, BPPSA_F64, 4, shape)},
                                 {"head.bias", bppsa_view_make(numbers, BPPSA_F64, 1, shape)}};
  assert_int_equal(bppsa_cnn_infer("W", &n, 3, tensors, &dtype), BPPSA_OK);
  assert_int_equal(dtype, BPPSA_F64);
  assert_int_equal(bppsa_cnn_infer("W", &n, 2, tensors, &dtype), BPPSA_ERR_FORMAT);
  assert_message("W: tensor 'head.bias' is missing");
  tensors[2].view.dtype = BPPSA_F32;
  assert_int_equal(bppsa_cnn_infer("W", &n, 3, tensors, &dtype), BPPSA_ERR_UNSUPPORTED);
  assert_message("W: tensor 'head.bias' is f32, expected f64");
  tensors[1].view.dtype = BPPSA_I64;
  assert_int_equal(bppsa_cnn_infer("W", &n, 3, tensors, &dtype), BPPSA_ERR_UNSUPPORTED);
  assert_message("W: tensor 'c.weight' is i64, expected f32 or f64");
  bppsa_cnn_network_free(&n);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_builtins),       cmocka_unit_test(test_graph),
                                     cmocka_unit_test(test_normalisations), cmocka_unit_test(test_every_member),
                                     cmocka_unit_test(test_short_members),  cmocka_unit_test(test_bad_files),
                                     cmocka_unit_test(test_memory),         cmocka_unit_test(test_infer)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
