/* Networks whose layers are shared by ranks: every tensor of every layer against one device, over random networks, strategies,
 * numbers of ranks and groups; limits; what is sent; memory that runs out. */
#include "cnn/network_internal.h"
#include "core/base/philox.h"
#include "tests/core/helpers.h"
#include "tests/distributed/layer_problem.h"

/* ---- random networks ---- */

static int64_t below(uint64_t *counter, int64_t bound) {
  return (int64_t)bppsa_random_below(5, 41, (*counter)++, (uint64_t)bound);
}

/* A random operator on images. */
static bppsa_op random_op(uint64_t *counter, const int64_t in[3]) {
  static const bppsa_operator kinds[] = {BPPSA_OPERATOR_CONV2D, BPPSA_OPERATOR_CONV2D,    BPPSA_OPERATOR_CONV2D,
                                         BPPSA_OPERATOR_RELU,   BPPSA_OPERATOR_MAXPOOL2D, BPPSA_OPERATOR_AVGPOOL2D,
                                         BPPSA_OPERATOR_SIGMOID};
  bppsa_op op = bppsa_op_default(kinds[below(counter, (int64_t)(sizeof kinds / sizeof *kinds))]);
  const bool conv = op.kind == BPPSA_OPERATOR_CONV2D;
  memcpy(op.in, in, sizeof op.in);
  op.groups = conv && below(counter, 4) == 0 ? (in[0] % 4 == 0 && below(counter, 2) == 0 ? 4 : in[0]) : 1;
  op.out_channels = op.groups * (op.groups > 1 ? 1 + below(counter, 2) : 3 + below(counter, 4));
  for (int axis = 0; axis < 2; ++axis) {
    op.kernel[axis] = 1 + below(counter, 5);
    op.stride[axis] = below(counter, 2) == 0 ? 1 : 1 + below(counter, 3);
    op.dilation[axis] = op.kind != BPPSA_OPERATOR_AVGPOOL2D && below(counter, 3) == 0 ? 2 : 1;
  }
  for (int i = 0; i < 4; ++i) {
    op.padding[i] = below(counter, conv ? 4 : op.kernel[i / 2] / 2 + 1);
  }
  op.ceil_mode = !conv && below(counter, 2) == 0;
  op.exclude_pad = op.kind == BPPSA_OPERATOR_AVGPOOL2D && below(counter, 2) == 0;
  return op;
}

static void add(bppsa_cnn_network *network, bppsa_op op, bool bias) {
  bppsa_cnn_layer layer = {.op = op, .bias = bias};
  snprintf(layer.name, sizeof layer.name, "layer%d", (int)network->count);
  snprintf(layer.prefix, sizeof layer.prefix, "%s", layer.name);
  assert_int_equal(bppsa_cnn_network_add(network, &layer), BPPSA_OK);
}

/* A network of up to 9 layers on images of up to 4 x 14 x 14. */
static bppsa_cnn_network random_network(uint64_t *counter) {
  bppsa_cnn_network network = {.name = "random", .in = {1 + below(counter, 4), 5 + below(counter, 10), 5 + below(counter, 10)}};
  const int64_t images = 1 + below(counter, 6);
  assert_int_equal(bppsa_cnn_network_reserve(12, &network), BPPSA_OK);
  for (int64_t i = 0; i < images; ++i) {
    const int64_t *in = network.count == 0 ? network.in : network.layers[network.count - 1].out;
    int64_t out[3];
    bppsa_op op;
    do {
      op = random_op(counter, in);
    } while (bppsa_op_shape(&op, out) != BPPSA_OK);
    add(&network, op, op.kind == BPPSA_OPERATOR_CONV2D && below(counter, 4) > 0);
  }
  if (below(counter, 2) == 0) {
    add(&network, bppsa_op_default(BPPSA_OPERATOR_FLATTEN), false);
  }
  bppsa_op linear = bppsa_op_default(BPPSA_OPERATOR_LINEAR);
  if (below(counter, 2) == 0) {
    linear.out_channels = 4 + below(counter, 5);
    add(&network, linear, below(counter, 2) == 0);
    add(&network, bppsa_op_default(BPPSA_OPERATOR_TANH), false);
  }
  linear.out_channels = 4 + below(counter, 3);
  add(&network, linear, true);
  return network;
}

/* Runs all strategies; counts[s]: how often a strategy ran on several ranks, refused[s]: how often it was refused. */
static void check_network(layer_problem *p, int number, int64_t counts[BPPSA_LAYERS_COUNT], int64_t refused[BPPSA_LAYERS_COUNT]) {
  for (int s = 0; s < BPPSA_LAYERS_COUNT; ++s) {
    for (int64_t ranks = 1; ranks <= 4; ++ranks) {
      layer_ranks r = {.problem = p,
                       .config = {.strategy = (bppsa_layer_strategy)s,
                                  .reduction = ranks == 3 ? BPPSA_REDUCTION_LIBRARY : BPPSA_REDUCTION_ORDERED}};
      const bppsa_status status = run_layers(ranks, 1, &r);
      if (status == BPPSA_ERR_ARGUMENT && ranks > 1) {
        assert_message(bppsa_layer_strategy_name((bppsa_layer_strategy)s));
        assert_message(", expected ");
        refused[s]++;
      } else if (status != BPPSA_OK) {
        fail_msg("network %d, %s on %d ranks: %s", number, bppsa_layer_strategy_name((bppsa_layer_strategy)s), (int)ranks,
                 bppsa_last_error());
      }
      counts[s] += status == BPPSA_OK && ranks > 1;
    }
  }
}

static void equals_one_device(void **state) {
  (void)state;
  enum { NETWORKS = 60 };
  uint64_t counter = 0;
  int64_t counts[BPPSA_LAYERS_COUNT] = {0}, refused[BPPSA_LAYERS_COUNT] = {0};
  for (int i = 0; i < NETWORKS; ++i) {
    bppsa_cnn_network network = random_network(&counter);
    layer_problem p = {.network = &network, .dtype = i % 2 == 0 ? BPPSA_F64 : BPPSA_F32, .batch = 1 + i % 3};
    layer_reference(&p);
    check_network(&p, i, counts, refused);
    layer_problem_free(&p);
    bppsa_cnn_network_free(&network);
  }
  for (int s = 0; s < BPPSA_LAYERS_COUNT; ++s) {
    assert_true(counts[s] > NETWORKS / 2);
    assert_true(refused[s] > 0);
  }
}

/* ---- the networks that the program trains ---- */

static void equals_one_device_on(const char *name, int64_t batch, int64_t ranks, int64_t groups, bool all) {
  bppsa_cnn_network network;
  assert_int_equal(bppsa_cnn_network_builtin(name, &network), BPPSA_OK);
  layer_problem p = {.network = &network, .dtype = BPPSA_F32, .batch = batch};
  layer_reference(&p);
  for (int s = 0; s < (all ? BPPSA_LAYERS_COUNT : 1); ++s) {
    layer_ranks r = {.problem = &p, .config = {.strategy = (bppsa_layer_strategy)s}};
    if (run_layers(ranks, groups, &r) != BPPSA_OK) {
      fail_msg("%s, %s on %d ranks: %s", name, bppsa_layer_strategy_name(r.config.strategy), (int)ranks, bppsa_last_error());
    }
    for (int64_t i = 0; r.worst == 0 && i < ranks; ++i) { /* sums in another order differ in some bit */
      fail_msg("%s, %s: nothing was compared", name, bppsa_layer_strategy_name(r.config.strategy));
    }
  }
  layer_problem_free(&p);
  bppsa_cnn_network_free(&network);
}

static void lenet5_equals_one_device(void **state) {
  (void)state;
  equals_one_device_on("lenet5", 3, 2, 1, true);
  equals_one_device_on("lenet5", 3, 3, 1, true);
  equals_one_device_on("lenet5", 5, 4, 1, true);
}

/* Groups of ranks; with 3 groups and 2 samples one group has none. */
static void groups_equal_one_device(void **state) {
  (void)state;
  equals_one_device_on("lenet5", 5, 4, 2, true);
  equals_one_device_on("lenet5", 2, 6, 3, true);
  equals_one_device_on("lenet5", 4, 4, 4, true);
}

static void vgg11_equals_one_device(void **state) {
  (void)state;
  equals_one_device_on("vgg11", 1, 4, 1, true); /* tiles of 2 x 2: the last pool leaves one position, on rank 0 */
}

/* ---- limits ---- */

static void assert_limit(const char *name, bppsa_layer_strategy strategy, int64_t ranks, const char *words) {
  bppsa_cnn_network network;
  bppsa_layer_plan *plan = NULL;
  assert_int_equal(bppsa_cnn_network_builtin(name, &network), BPPSA_OK);
  const bppsa_status status = bppsa_layer_plan_create(&network, strategy, ranks, &plan);
  if (words == NULL) {
    assert_int_equal(status, BPPSA_OK);
  } else {
    assert_error(status, BPPSA_ERR_ARGUMENT, words);
    assert_null(plan);
  }
  bppsa_layer_plan_destroy(plan);
  bppsa_cnn_network_free(&network);
}

/* LeNet-5 has 6 filters in conv1, 6 channels in front of conv2 and 10 x 10 positions in front of relu2; VGG-11 ends with 2 x 2, and
 * has 10 classes. */
static void names_the_limit(void **state) {
  (void)state;
  assert_limit("lenet5", BPPSA_LAYERS_FILTER, 6, NULL);
  assert_limit("lenet5", BPPSA_LAYERS_FILTER, 7, "filter: 7 ranks, more than the 6 filters of conv1, expected at most 6");
  assert_limit("lenet5", BPPSA_LAYERS_CHANNEL, 6, NULL);
  assert_limit("lenet5", BPPSA_LAYERS_CHANNEL, 7, "channel: 7 ranks, more than the 6 channels of relu1, expected at most 6");
  assert_limit("lenet5", BPPSA_LAYERS_SPATIAL, 100, NULL);
  assert_limit("lenet5", BPPSA_LAYERS_SPATIAL, 101,
               "spatial: 101 ranks, more than the 100 positions in the images of relu2, expected at most 100");
  assert_limit("vgg11", BPPSA_LAYERS_SPATIAL, 4, NULL);
  assert_limit("vgg11", BPPSA_LAYERS_SPATIAL, 3, "spatial: no grid of 3 tiles fits into the images of conv7");
  assert_limit("vgg11", BPPSA_LAYERS_SPATIAL, 5, "more than the 4 positions in the images of conv7, expected at most 4");
  assert_limit("vgg11", BPPSA_LAYERS_FILTER, 11, "more than the 10 filters of classifier, expected at most 10");
}

static void refuses_what_has_no_images(void **state) {
  (void)state;
  bppsa_cnn_network network = {.name = "flat", .in = {4, 3, 1}};
  bppsa_layer_plan *plan = NULL;
  bppsa_op conv = bppsa_op_default(BPPSA_OPERATOR_CONV2D), linear = bppsa_op_default(BPPSA_OPERATOR_LINEAR);
  assert_int_equal(bppsa_cnn_network_reserve(2, &network), BPPSA_OK);
  linear.out_channels = 4;
  add(&network, linear, true);
  assert_error(bppsa_layer_plan_create(&network, BPPSA_LAYERS_SPATIAL, 2, &plan), BPPSA_ERR_ARGUMENT,
               "spatial: flat begins with linear, expected images to split");
  network.count = 0;
  conv.padding[0] = conv.padding[1] = 3; /* the first and the last of 9 rows of outputs see padding alone */
  conv.out_channels = 4;
  add(&network, conv, true);
  add(&network, linear, true);
  assert_error(bppsa_layer_plan_create(&network, BPPSA_LAYERS_SPATIAL, 3, &plan), BPPSA_ERR_ARGUMENT,
               "spatial: with 3 ranks a tile of layer0 lies in the padding alone, expected fewer ranks");
  bppsa_cnn_network_free(&network);
}

/* ---- what is sent ---- */

/* One convolution 3 x 3 with padding 1 on 8 x 6 images of 2 channels, to 4 channels, and a linear operator to 5 classes. On two
 * ranks a tile is 4 x 6. 3 samples in float64. */
static void sends_what_the_formulas_say(void **state) {
  (void)state;
  enum { B = 3, REAL = 8, WEIGHTS = 4 * 2 * 9 + 4, LINE = 8 };
  bppsa_cnn_network network = {.name = "one", .in = {2, 8, 6}};
  bppsa_op conv = bppsa_op_default(BPPSA_OPERATOR_CONV2D), linear = bppsa_op_default(BPPSA_OPERATOR_LINEAR);
  assert_int_equal(bppsa_cnn_network_reserve(2, &network), BPPSA_OK);
  conv.kernel[0] = conv.kernel[1] = 3;
  for (int i = 0; i < 4; ++i) {
    conv.padding[i] = 1;
  }
  conv.out_channels = 4;
  linear.out_channels = 5;
  add(&network, conv, true);
  add(&network, linear, true);
  layer_problem p = {.network = &network, .dtype = BPPSA_F64, .batch = B};
  layer_reference(&p);
  layer_ranks r = {.problem = &p, .config = {.strategy = BPPSA_LAYERS_SPATIAL, .reduction = BPPSA_REDUCTION_LIBRARY}};
  /* spatial: a row of 2 channels to the neighbour, its gradient back; an allgather of half of conv's output; an allreduce of the
   * weights' gradients, each padded to whole cache lines */
  assert_int_equal(run_layers(2, 1, &r), BPPSA_OK);
  assert_int_equal(r.counters.bytes_sent, 2 * B * 2 * 6 * REAL);
  assert_int_equal(r.counters.collectives, 2);
  assert_int_equal(r.counters.collective_bytes, (B * 4 * 4 * 6 + (WEIGHTS - 4 + LINE)) * REAL);
  /* filter: an allgather of half of conv's channels, and of 3 of the 5 logits; an allreduce of the linear operator's input
   * gradient, and, because the input's gradient is wanted, of the convolution's, for the 4 samples that there is room for */
  r.config.strategy = BPPSA_LAYERS_FILTER;
  assert_int_equal(run_layers(2, 1, &r), BPPSA_OK);
  assert_int_equal(r.counters.bytes_sent, 0);
  assert_int_equal(r.counters.collectives, 4);
  assert_int_equal(r.counters.collective_bytes, (B * 2 * 48 + B * 3 + (B + 1) * (4 * 48 + 2 * 48)) * REAL);
  /* channel: the convolution is whole; an allreduce of the logits; an allgather of half of the linear operator's input gradient */
  r.config.strategy = BPPSA_LAYERS_CHANNEL;
  assert_int_equal(run_layers(2, 1, &r), BPPSA_OK);
  assert_int_equal(r.counters.bytes_sent, 0);
  assert_int_equal(r.counters.collectives, 2);
  assert_int_equal(r.counters.collective_bytes, ((B + 1) * 5 + B * 2 * 48) * REAL);
  layer_problem_free(&p);
  bppsa_cnn_network_free(&network);
}

/* ---- what goes wrong ---- */

typedef struct {
  const bppsa_cnn_network *network;
  bppsa_comm *comm;
  bppsa_device *device;
  bppsa_layer_strategy strategy;
  int64_t alone; /* 0, or the ranks of which this one stands for the first: it has arrays for what moves between them */
} creation;

static bppsa_status create(void *argument) {
  const creation *c = argument;
  const bppsa_layer_split_config config = {
      .strategy = c->strategy, .group = c->alone > 0 ? NULL : c->comm, .batch = 2, .input_gradients = true, .alone = c->alone};
  bppsa_model *model = NULL;
  bppsa_layer_plan *plan = NULL;
  BPPSA_TRY(bppsa_layer_plan_create(c->network, c->strategy, 4, &plan));
  bppsa_layer_plan_destroy(plan);
  BPPSA_TRY(bppsa_layer_split_create(c->network, &config, c->device, &model));
  bppsa_model_destroy(model);
  return BPPSA_OK;
}

static bppsa_status walk(bppsa_comm *comm, void *context) {
  creation *c = context;
  c->comm = comm;
  c->device = cpu_device(1);
  for (int s = 0; s < BPPSA_LAYERS_COUNT; ++s) {
    c->strategy = (bppsa_layer_strategy)s;
    for (c->alone = 0; c->alone <= 2; c->alone += 2) {
      assert_true(walk_allocations(create, c) > 20);
    }
  }
  const bppsa_layer_split_config wrong[] = {{.group = comm, .batch = 0},
                                            {.group = comm, .batch = 1, .tag = BPPSA_COMM_MAX_TAG},
                                            {.group = comm, .batch = 1, .dtype = BPPSA_I64}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    bppsa_model *model = NULL;
    assert_int_equal(bppsa_layer_split_create(c->network, &wrong[i], c->device, &model),
                     i < 2 ? BPPSA_ERR_ARGUMENT : BPPSA_ERR_UNSUPPORTED);
    assert_null(model);
  }
  bppsa_device_destroy(c->device);
  return BPPSA_OK;
}

static void memory_runs_out(void **state) {
  (void)state;
  bppsa_cnn_network network;
  assert_int_equal(bppsa_cnn_network_builtin("lenet5", &network), BPPSA_OK);
  creation c = {.network = &network};
  const bppsa_comm_config config = bppsa_comm_config_default();
  assert_int_equal(bppsa_comm_run(&config, walk, &c, NULL), BPPSA_OK);
  bppsa_cnn_network_free(&network);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(equals_one_device),
      cmocka_unit_test(lenet5_equals_one_device),
      cmocka_unit_test(groups_equal_one_device),
      cmocka_unit_test(vgg11_equals_one_device),
      cmocka_unit_test(names_the_limit),
      cmocka_unit_test(refuses_what_has_no_images),
      cmocka_unit_test(sends_what_the_formulas_say),
      cmocka_unit_test(memory_runs_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
