/* The built-in graphs against what is published about them, networks with another input, and the counts of single layers. */
#include "cnn/work.h"
#include "tests/core/helpers.h"
#include "tests/support/dice.h"

static const bppsa_cnn_layer *find(const bppsa_cnn_network *network, const char *name) {
  for (int64_t i = 0; i < network->count; ++i) {
    if (strcmp(network->layers[i].name, name) == 0) {
      return &network->layers[i];
    }
  }
  fail_msg("no layer '%s'", name);
  return NULL;
}

static bppsa_cnn_layer_work sum_layers(const bppsa_cnn_network *network) {
  bppsa_cnn_layer_work sum = {.parameters = 0}, one;
  for (int64_t i = 0; i < network->count; ++i) {
    assert_int_equal(bppsa_cnn_count_layer(network, i, NULL, false, &one), BPPSA_OK);
    sum.parameters += one.parameters;
    sum.weights += one.weights;
    sum.flops[0][0] += bppsa_cnn_has_weights(&network->layers[i]) ? one.flops[BPPSA_CNN_FORWARD][BPPSA_CNN_DENSE] : 0;
  }
  return sum;
}

/* torchvision's numbers of parameters and multiply-adds. ResNet-20: He et al. 2016 count 0.27 M parameters; the two projections
 * add 2 560 weights and 192 numbers of batch norms to the 269 722 without them. */
static void test_published(void **state) {
  (void)state;
  static const struct {
    const char *name;
    int64_t layers, parameters, macs, extent, classes;
  } cases[] = {{"resnet18", 69, 11689512, 1814073344, 224, 1000},
               {"resnet50", 175, 25557032, 4089184256, 224, 1000},
               {"mobilenetv2", 153, 3504872, 300774272, 224, 1000},
               {"vgg16", 40, 138357544, 15470264320, 224, 1000},
               {"resnet20", 73, 272474, 40813184, 32, 10}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    bppsa_cnn_network network;
    assert_int_equal(bppsa_cnn_network_builtin(cases[i].name, &network), BPPSA_OK);
    const bppsa_cnn_layer_work sum = sum_layers(&network);
    assert_string_equal(network.name, cases[i].name);
    assert_int_equal(network.count, cases[i].layers);
    assert_int_equal(network.in[0], 3);
    assert_int_equal(network.in[1], cases[i].extent);
    assert_int_equal(bppsa_cnn_size(&network, network.count), cases[i].classes);
    assert_int_equal(sum.parameters, cases[i].parameters);
    assert_int_equal((int64_t)sum.flops[0][0], 2 * cases[i].macs);
    bppsa_cnn_network_free(&network);
  }
}

static void test_layers(void **state) {
  (void)state;
  bppsa_cnn_network network;
  assert_int_equal(bppsa_cnn_network_builtin("resnet50", &network), BPPSA_OK);
  const bppsa_cnn_layer *conv = find(&network, "layer2.0.conv2");
  assert_int_equal(conv->op.stride[0], 2); /* torchvision's, not the paper's first convolution */
  assert_false(conv->bias);
  assert_string_equal(conv->prefix, conv->name);
  assert_int_equal(find(&network, "layer4.0.downsample.0")->out[0], 2048);
  assert_int_equal(find(&network, "layer1.2.add")->node, BPPSA_CNN_ADD);
  assert_int_equal(find(&network, "layer1.2.relu_2")->op.kind, BPPSA_OPERATOR_RELU);
  bppsa_cnn_network_free(&network);
  assert_int_equal(bppsa_cnn_network_builtin("mobilenetv2", &network), BPPSA_OK);
  assert_int_equal(find(&network, "features.4.conv.1.0")->op.groups, 144);
  assert_int_equal(find(&network, "features.17.conv.2")->out[0], 320);
  assert_int_equal(find(&network, "features.16.add")->node, BPPSA_CNN_ADD);
  assert_true(find(&network, "classifier.0")->op.p == 0.2);
  bppsa_cnn_network_free(&network);
  assert_int_equal(bppsa_cnn_network_builtin("vgg16", &network), BPPSA_OK);
  assert_false(bppsa_cnn_is_graph(&network));
  assert_int_equal(find(&network, "features.28")->out[1], 14); /* the last convolution, in front of ReLU and pool */
  assert_int_equal(find(&network, "avgpool")->out[1], 7);
  bppsa_cnn_network_free(&network);
}

static void test_reshape(void **state) {
  (void)state;
  static const char *const names[] = {"lenet5", "vgg11", "resnet18", "resnet50", "mobilenetv2", "vgg16", "resnet20"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    bppsa_cnn_network network, same;
    assert_int_equal(bppsa_cnn_network_builtin(names[i], &network), BPPSA_OK);
    assert_int_equal(bppsa_cnn_network_copy(&network, &same), BPPSA_OK);
    const int64_t classes = bppsa_cnn_size(&network, network.count);
    /* there and back, with a refusal in between */
    assert_int_equal(bppsa_cnn_network_reshape(&network, (int64_t[]){6, 64, 40}), BPPSA_OK);
    assert_int_equal(network.layers[0].op.in[0], 6);
    assert_int_equal(bppsa_cnn_size(&network, network.count), classes);
    assert_int_equal(bppsa_cnn_network_reshape(&network, (int64_t[]){3, 0, 32}), BPPSA_ERR_SHAPE);
    assert_message(": layer '");
    assert_int_equal(network.in[2], 40);
    assert_int_equal(bppsa_cnn_network_reshape(&network, same.in), BPPSA_OK);
    assert_int_equal(network.count, same.count);
    assert_memory_equal(network.layers, same.layers, (size_t)same.count * sizeof *same.layers);
    bppsa_cnn_network_free(&same);
    bppsa_cnn_network_free(&network);
  }
}

/* Pairs of an input and an output that a kept weight joins, one by one. */
static void count_pairs(const bppsa_op *op, const int64_t out[3], const uint8_t *mask, int64_t *kept, int64_t *pairs) {
  const int64_t fan = op->in[0] / op->groups, weights = bppsa_op_weights(op);
  *kept = *pairs = 0;
  for (int64_t w = 0; w < weights; ++w) {
    const int64_t t = w / op->kernel[1] % op->kernel[0], u = w % op->kernel[1];
    if (mask != NULL && mask[w] == 0) {
      continue;
    }
    ++*kept;
    for (int64_t y = 0; y < out[1]; ++y) {
      for (int64_t x = 0; x < out[2]; ++x) {
        const int64_t v = op->stride[0] * y + op->dilation[0] * t - op->padding[0];
        const int64_t h = op->stride[1] * x + op->dilation[1] * u - op->padding[2];
        *pairs += v >= 0 && v < op->in[1] && h >= 0 && h < op->in[2];
      }
    }
  }
  assert_int_equal(weights, op->out_channels * fan * op->kernel[0] * op->kernel[1]);
}

static bppsa_op random_conv(dice *d) {
  bppsa_op op = bppsa_op_default(BPPSA_OPERATOR_CONV2D);
  op.groups = roll(d, 1, 3);
  op.in[0] = op.groups * roll(d, 1, 3);
  op.out_channels = op.groups * roll(d, 1, 3);
  for (int i = 0; i < 4; ++i) {
    op.in[1 + i % 2] = roll(d, 3, 9);
    op.kernel[i % 2] = roll(d, 1, 4);
    op.stride[i % 2] = roll(d, 1, 3);
    op.dilation[i % 2] = roll(d, 1, 2);
    op.padding[i] = roll(d, 2, 5); /* up to whole taps outside */
  }
  return op;
}

static void test_pairs(void **state) {
  (void)state;
  dice d = {.seed = 7};
  for (int i = 0; i < 300; ++i) {
    bppsa_cnn_layer layers[2] = {{.name = "conv", .op = random_conv(&d)}, {.name = "head"}};
    bppsa_cnn_network network = {.name = "net", .count = 2, .layers = layers};
    memcpy(network.in, layers[0].op.in, sizeof network.in);
    assert_int_equal(bppsa_op_shape(&layers[0].op, layers[0].out), BPPSA_OK);
    uint8_t mask[9 * 9 * 16];
    const int64_t weights = bppsa_op_weights(&layers[0].op);
    for (int64_t w = 0; w < weights; ++w) {
      mask[w] = roll(&d, 0, 2) == 0;
    }
    bppsa_cnn_layer_work work;
    int64_t kept, pairs, all;
    const int64_t *out = layers[0].out, dense = weights * out[1] * out[2];
    assert_int_equal(bppsa_cnn_count_layer(&network, 0, mask, true, &work), BPPSA_OK);
    count_pairs(&layers[0].op, out, NULL, &kept, &all);
    assert_int_equal(work.weights, kept);
    count_pairs(&layers[0].op, out, mask, &kept, &pairs);
    assert_int_equal(work.kept, kept);
    for (int pass = 0; pass < BPPSA_CNN_PASSES; ++pass) {
      assert_int_equal((int64_t)work.flops[pass][BPPSA_CNN_DENSE], 2 * dense);
      assert_int_equal((int64_t)work.flops[pass][BPPSA_CNN_UNPRUNED], 2 * all);
      assert_int_equal((int64_t)work.flops[pass][BPPSA_CNN_PRUNED], 2 * pairs);
    }
    assert_int_equal(bppsa_cnn_count_layer(&network, 0, mask, false, &work), BPPSA_OK);
    assert_true(work.flops[BPPSA_CNN_TO_INPUT][BPPSA_CNN_PRUNED] == 0 && work.flops[BPPSA_CNN_TO_WEIGHTS][0] > 0);
  }
}

static void test_refusals(void **state) {
  (void)state;
  bppsa_cnn_network network;
  bppsa_cnn_layer_work work = {.parameters = 5};
  assert_int_equal(bppsa_cnn_network_builtin("resnet20", &network), BPPSA_OK);
  assert_int_equal(bppsa_cnn_count_layer(&network, network.count, NULL, false, &work), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_cnn_count_layer(&network, -1, NULL, false, &work), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_cnn_count_layer(NULL, 0, NULL, false, &work), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_cnn_network_reshape(NULL, network.in), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_cnn_network_reshape(&network, NULL), BPPSA_ERR_ARGUMENT);
  assert_int_equal(work.parameters, 5);
  bppsa_cnn_network_free(&network);
}

static bppsa_status make_and_reshape(void *name) {
  bppsa_cnn_network network;
  BPPSA_TRY(bppsa_cnn_network_builtin(name, &network));
  const bppsa_status status = bppsa_cnn_network_reshape(&network, (int64_t[]){3, 48, 48});
  bppsa_cnn_network_free(&network);
  return status;
}

static void test_memory(void **state) {
  (void)state;
  char graph[] = "mobilenetv2", chain[] = "vgg16";
  assert_true(walk_allocations(make_and_reshape, graph) > 5);
  assert_true(walk_allocations(make_and_reshape, chain) > 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_published), cmocka_unit_test(test_layers),
                                     cmocka_unit_test(test_reshape),   cmocka_unit_test(test_pairs),
                                     cmocka_unit_test(test_refusals),  cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
