/* Convolutional networks on a device against the processor's: logits, gradients of every parameter and of the input, masks,
 * captured passes, two streams.
 * BPPSA_TEST_DEVICE names the device. On the SIMT machine cuDNN is the stand-in of tests/simt/cudnn. */
#include "core/compute/graph.h"
#include "tests/cnn/problems.h"

static bppsa_device *device, *host;

/* How a device computes gradients. */
typedef struct {
  bppsa_backward backward;
  int64_t levels; /* as of config_of */
  bppsa_weight_gradients order;
} way;

static const way ways[] = {
    {BPPSA_BACKWARD_BP, 0, BPPSA_WEIGHT_GRADIENTS_IN_ORDER},   {BPPSA_BACKWARD_BP, 0, BPPSA_WEIGHT_GRADIENTS_SECOND_STREAM},
    {BPPSA_BACKWARD_SCAN, 0, BPPSA_WEIGHT_GRADIENTS_IN_ORDER}, {BPPSA_BACKWARD_SCAN, -1, BPPSA_WEIGHT_GRADIENTS_IN_ORDER},
    {BPPSA_BACKWARD_SCAN, 1, BPPSA_WEIGHT_GRADIENTS_IN_ORDER}, {BPPSA_BACKWARD_SCAN, -2, BPPSA_WEIGHT_GRADIENTS_IN_ORDER}};
enum { WAYS = sizeof ways / sizeof ways[0], BP_WAYS = 2 };

static bppsa_cnn_config config_for(const problem *p, bppsa_dtype dtype, const way *w) {
  bppsa_cnn_config config = config_of(p, dtype, w->backward, w->levels);
  config.weight_gradients = bppsa_device_get_kind(device) == BPPSA_CUDA ? w->order : BPPSA_WEIGHT_GRADIENTS_IN_ORDER;
  return config;
}

static void check_logits(const problem *p, bppsa_dtype dtype, const result *a, const result *b, int number) {
  const int64_t count = p->batch * bppsa_cnn_size(&p->network, p->network.count);
  double *copy = bppsa_alloc((size_t)count * sizeof *copy);
  memcpy(copy, a->logits, (size_t)count * sizeof *copy);
  void *typed = rounded(dtype, copy, count);
  const double r = residual(dtype, typed, b->logits, count, sqrt((double)p->network.count));
  if (!(r < 30)) {
    fail_msg("chain %d, logits: residual %g", number, r);
  }
  bppsa_free(typed);
  bppsa_free(copy);
}

static void assert_same_bits(const problem *p, const result *a, const result *b) {
  for (int64_t i = 0; i <= p->count; ++i) {
    assert_memory_equal(a->values[i], b->values[i], (size_t)a->count[i] * sizeof(double));
  }
}

/* ---- random networks ---- */

static void check_way(problem *p, bppsa_dtype dtype, const way *w, const result *reference, result *in_order, int number) {
  bppsa_cnn_config config = config_for(p, dtype, w);
  config.batch += number % 3; /* planned for more samples than are used */
  result r = compute(p, &config, device);
  check_logits(p, dtype, &r, reference, number);
  if (dtype == BPPSA_F32) {
    (void)compare_conditioned(p, dtype, &r, reference, host, number);
  } else {
    compare(p, dtype, &r, reference, number);
  }
  if (w->order == BPPSA_WEIGHT_GRADIENTS_SECOND_STREAM) {
    assert_same_bits(p, &r, in_order);
    free_result(in_order);
    free_result(&r);
  } else if (w->backward == BPPSA_BACKWARD_BP) {
    *in_order = r;
  } else {
    free_result(&r);
  }
}

/* A GPU, real or emulated, gets fewer: each network makes a handle of cuDNN or two, and bench/gpu.sh gives this test 25 seconds. */
static void test_chains(void **state) {
  (void)state;
  const int chains = bppsa_device_get_kind(device) == BPPSA_CUDA ? 80 : 300;
  uint64_t counter = 5000;
  chain_plain = bppsa_device_get_kind(device) == BPPSA_CUDA;
  for (int number = 0; number < chains; ++number) {
    problem p;
    result in_order = {0};
    const bppsa_dtype dtype = number % 2 == 0 ? BPPSA_F64 : BPPSA_F32;
    make_problem(chain_network(&counter), 1 + chain_below(&counter, 3), dtype, 1000 * (uint64_t)number, &p);
    const bppsa_cnn_config wide = config_of(&p, BPPSA_F64, BPPSA_BACKWARD_BP, 0);
    result reference = compute(&p, &wide, host);
    for (int w = 0; w < WAYS; ++w) {
      check_way(&p, dtype, &ways[w], &reference, &in_order, number);
    }
    free_result(&reference);
    free_problem(&p);
  }
}

/* ---- LeNet-5 ---- */

static void test_lenet(void **state) {
  (void)state;
  for (bppsa_dtype dtype = BPPSA_F32; dtype <= (is_emulated(device) ? BPPSA_F32 : BPPSA_F64); ++dtype) {
    problem p;
    lenet_problem(is_emulated(device) ? 2 : 64, dtype, &p);
    const bppsa_cnn_config wide = config_of(&p, BPPSA_F64, BPPSA_BACKWARD_BP, 0);
    result reference = compute(&p, &wide, host);
    for (int w = 0; w < (is_emulated(device) ? BP_WAYS + 1 : WAYS); ++w) {
      const bppsa_cnn_config config = config_for(&p, dtype, &ways[w]);
      result r = compute(&p, &config, device);
      check_logits(&p, dtype, &r, &reference, w);
      compare(&p, dtype, &r, &reference, w);
      free_result(&r);
    }
    free_result(&reference);
    free_problem(&p);
  }
}

/* ---- captured passes ---- */

/* A network with everything that a GPU does: padding on one side, groups, both pools, functions, two linear operators. */
static const char mixed[] =
    "{\"input\": [2, 7, 6], \"layers\": ["
    "{\"name\": \"c1\", \"op\": \"conv2d\", \"out\": 4, \"kernel\": [3, 2], \"padding\": [1, 0, 2, 0], \"groups\": 2},"
    "{\"name\": \"r\", \"op\": \"relu\"}, {\"name\": \"p\", \"op\": \"maxpool2d\", \"kernel\": [2, 2], \"stride\": [1, 1]},"
    "{\"name\": \"c2\", \"op\": \"conv2d\", \"out\": 3, \"kernel\": [2, 2], \"dilation\": [2, 1], \"bias\": false},"
    "{\"name\": \"s\", \"op\": \"sigmoid\"}, {\"name\": \"a\", \"op\": \"avgpool2d\", \"kernel\": [2, 2]},"
    "{\"name\": \"f\", \"op\": \"flatten\"}, {\"name\": \"l\", \"op\": \"linear\", \"out\": 5, \"bias\": false},"
    "{\"name\": \"t\", \"op\": \"tanh\"}, {\"name\": \"h\", \"op\": \"linear\", \"out\": 3}]}";

static void mixed_problem(int64_t batch, bppsa_dtype dtype, problem *p) {
  bppsa_cnn_network network;
  assert_int_equal(bppsa_cnn_network_parse("mixed", mixed, (int64_t)sizeof mixed - 1, &network), BPPSA_OK);
  make_problem(network, batch, dtype, 77, p);
}

typedef struct {
  bppsa_model *model;
  const inputs *in;
  bppsa_view logits;
} passes;

static bppsa_status queue_passes(void *context) {
  passes *q = context;
  BPPSA_TRY(q->model->ops->forward(q->model, &q->in->x, NULL, &q->logits));
  return q->model->ops->backward(q->model, &q->in->seed);
}

/* Captured passes have the bits of the plain ones, every time, also for other images at the same address. */
static void check_capture(const problem *p, const way *w) {
  const bppsa_cnn_config config = config_for(p, BPPSA_F32, w);
  bppsa_model *model = make_model(p, &config, device);
  inputs in = put_inputs(p, BPPSA_F32, device);
  passes q = {.model = model, .in = &in};
  bppsa_graph *graph = NULL;
  assert_int_equal(queue_passes(&q), BPPSA_OK);
  result plain = take_result(p, model, device, &q.logits, true);
  if (bppsa_graph_capture(device, queue_passes, &q, &graph) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
  const int64_t bytes = (int64_t)bppsa_view_bytes(&in.x), gradients = model->reals * (int64_t)sizeof(float);
  void *x = bppsa_calloc(bytes, 1), *zeros = bppsa_calloc(bytes, 1);
  assert_int_equal(bppsa_memory_get(device, x, in.x.data, bytes), BPPSA_OK);
  for (int replay = 0; replay < 6; ++replay) {
    assert_int_equal(bppsa_memory_put(device, in.x.data, replay % 3 == 1 ? zeros : x, bytes), BPPSA_OK);
    assert_int_equal(bppsa_memory_clear(device, model->device_gradients, gradients), BPPSA_OK);
    assert_int_equal(bppsa_graph_launch(device, graph), BPPSA_OK);
    result again = take_result(p, model, device, &q.logits, true);
    if (replay % 3 != 1) {
      assert_same_bits(p, &plain, &again);
    } else {
      assert_true(again.values[0][0] == 0 && plain.values[0][0] != 0); /* a weight's gradient of black images */
    }
    free_result(&again);
  }
  bppsa_graph_destroy(device, graph);
  free_result(&plain);
  drop_inputs(&in);
  bppsa_model_destroy(model);
  bppsa_free(x);
  bppsa_free(zeros);
}

static void test_captures(void **state) {
  (void)state;
  if (bppsa_device_get_kind(device) != BPPSA_CUDA) {
    skip();
  }
  problem p;
  mixed_problem(3, BPPSA_F32, &p);
  for (int w = 0; w < WAYS; ++w) {
    check_capture(&p, &ways[w]);
  }
  free_problem(&p);
}

/* Batches of several sizes one after the other; each has the results of a model of its own. */
static void test_sizes(void **state) {
  (void)state;
  static const int64_t sizes[] = {6, 1, 6, 3, 1, 2, 4, 5, 1, 3, 6}; /* more sizes than a network keeps */
  for (int w = 0; w < BP_WAYS; ++w) {
    problem whole;
    mixed_problem(6, BPPSA_F64, &whole);
    const bppsa_cnn_config config = config_for(&whole, BPPSA_F64, &ways[w]);
    bppsa_model *model = make_model(&whole, &config, device);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
      problem part = whole;
      bppsa_view logits;
      part.batch = sizes[i];
      inputs in = put_inputs(&part, BPPSA_F64, device);
      run_model(model, &in, &logits);
      assert_int_equal(logits.shape[0], sizes[i]);
      result r = take_result(&part, model, device, &logits, true);
      const bppsa_cnn_config wide = config_of(&part, BPPSA_F64, BPPSA_BACKWARD_BP, 0);
      result reference = compute(&part, &wide, host);
      compare(&part, BPPSA_F64, &r, &reference, (int)i);
      free_result(&r);
      free_result(&reference);
      drop_inputs(&in);
    }
    bppsa_model_destroy(model);
    free_problem(&whole);
  }
}

/* ---- masks ---- */

/* Every third weight goes, of every other layer with weights. */
static void test_masks(void **state) {
  (void)state;
  uint8_t bytes[4096];
  problem p;
  mixed_problem(3, BPPSA_F64, &p);
  for (size_t i = 0; i < sizeof bytes; ++i) {
    bytes[i] = i % 3 != 1;
  }
  bppsa_cnn_config wide = config_of(&p, BPPSA_F64, BPPSA_BACKWARD_BP, 0);
  bppsa_model *shapes = make_model(&p, &wide, host);
  const bppsa_view *first = &shapes->parameters[0].value, *last = &shapes->parameters[4].value;
  const bppsa_named_view masks[] = {{"c1.weight", bppsa_view_make(bytes, BPPSA_BOOL, first->ndim, first->shape)},
                                    {"h.weight", bppsa_view_make(bytes, BPPSA_BOOL, last->ndim, last->shape)}};
  bppsa_model_destroy(shapes);
  wide.masks = masks;
  wide.mask_count = 2;
  result reference = compute(&p, &wide, host);
  for (int w = 0; w < WAYS; ++w) {
    bppsa_cnn_config config = config_for(&p, BPPSA_F64, &ways[w]);
    config.masks = masks;
    config.mask_count = 2;
    result r = compute(&p, &config, device);
    compare(&p, BPPSA_F64, &r, &reference, w);
    for (int64_t i = 0; i < 5; i += 4) {
      for (int64_t k = 0; k < r.count[i]; ++k) {
        assert_true(bytes[k] != 0 || r.values[i][k] == 0);
      }
      assert_true(r.values[i][0] != 0);
    }
    free_result(&r);
  }
  free_result(&reference);
  free_problem(&p);
}

/* ---- errors and memory ---- */

static void test_refusals(void **state) {
  (void)state;
  problem p;
  bppsa_model *model = NULL;
  bppsa_view logits;
  mixed_problem(2, BPPSA_F32, &p);
  bppsa_cnn_config config = config_of(&p, BPPSA_F32, BPPSA_BACKWARD_BP, 0);
  config.weight_gradients = BPPSA_WEIGHT_GRADIENTS_SECOND_STREAM;
  assert_int_equal(bppsa_cnn_create(&p.network, &config, host, &model), BPPSA_ERR_UNSUPPORTED);
  assert_message("weight gradients on a second stream: device cpu has no streams");
  config.method.backward = BPPSA_BACKWARD_SCAN;
  assert_int_equal(bppsa_cnn_create(&p.network, &config, device, &model), BPPSA_ERR_ARGUMENT);
  assert_message("beside a scan, expected sequential BP");
  config.weight_gradients = (bppsa_weight_gradients)7;
  assert_int_equal(bppsa_cnn_create(&p.network, &config, device, &model), BPPSA_ERR_ARGUMENT);
  config = config_of(&p, BPPSA_F32, BPPSA_BACKWARD_SCAN, 0);
  config.method.scan.algorithm = (bppsa_scan_algorithm)77;
  assert_int_equal(bppsa_cnn_create(&p.network, &config, device, &model), BPPSA_ERR_UNSUPPORTED);
  assert_message("unknown algorithm 77, expected auto, linear, blelloch or chunked");
  config = config_of(&p, BPPSA_F32, BPPSA_BACKWARD_BP, 0);
  config.memory_limit = 1000;
  const int64_t live = bppsa_alloc_live();
  assert_int_equal(bppsa_cnn_create(&p.network, &config, device, &model), BPPSA_ERR_ARGUMENT);
  assert_message("needs at least ");
  assert_int_equal(bppsa_alloc_live(), live);
  config.memory_limit = 0;
  if (bppsa_device_get_kind(device) == BPPSA_CUDA) {
    model = make_model(&p, &config, device);
    inputs in = put_inputs(&p, BPPSA_F32, host);
    assert_int_equal(model->ops->forward(model, &in.x, NULL, &logits), BPPSA_ERR_SHAPE);
    assert_message("elsewhere, expected contiguous f32 [2, 2, 7, 6] in the GPU's memory");
    drop_inputs(&in);
    bppsa_model_destroy(model);
  }
  free_problem(&p);
}

/* A NaN in an image is the first value found; without it the layers behind it are searched. */
static void test_nonfinite(void **state) {
  (void)state;
  problem p;
  bppsa_nonfinite where;
  bppsa_view logits;
  mixed_problem(2, BPPSA_F64, &p);
  const bppsa_cnn_config config = config_for(&p, BPPSA_F64, &ways[1]);
  bppsa_model *model = make_model(&p, &config, device);
  inputs in = put_inputs(&p, BPPSA_F64, device);
  run_model(model, &in, &logits);
  assert_false(model->ops->find_nonfinite(model, &where));
  bppsa_view_set(&model->parameters[2].value, 3, INFINITY); /* c2.weight */
  assert_int_equal(bppsa_model_push(model), BPPSA_OK);
  run_model(model, &in, &logits);
  assert_true(model->ops->find_nonfinite(model, &where));
  assert_string_equal(where.what, "output of");
  assert_string_equal(where.name, "c2");
  drop_inputs(&in);
  p.x[bppsa_cnn_size(&p.network, 0) + 5] = (double)NAN;
  in = put_inputs(&p, BPPSA_F64, device);
  run_model(model, &in, &logits);
  assert_true(model->ops->find_nonfinite(model, &where));
  assert_string_equal(where.what, "input");
  assert_int_equal(where.sample, 1);
  drop_inputs(&in);
  bppsa_model_destroy(model);
  free_problem(&p);
}

typedef struct {
  const bppsa_cnn_network *network;
  bppsa_cnn_config config;
} creation;

static bppsa_status create_and_destroy(void *argument) {
  const creation *c = argument;
  bppsa_model *model = NULL;
  BPPSA_TRY(bppsa_cnn_create(c->network, &c->config, device, &model));
  bppsa_model_destroy(model);
  return BPPSA_OK;
}

static void test_memory(void **state) {
  (void)state;
  uint8_t bytes[4096] = {1};
  problem p;
  mixed_problem(2, BPPSA_F32, &p);
  const bppsa_named_view mask = {"h.weight", bppsa_view_make(bytes, BPPSA_BOOL, 2, (int64_t[]){3, 5})};
  for (int w = 0; w < WAYS; ++w) {
    creation c = {&p.network, config_for(&p, BPPSA_F32, &ways[w])};
    c.config.masks = &mask;
    c.config.mask_count = 1;
    assert_true(walk_allocations(create_and_destroy, &c) > 10);
  }
  free_problem(&p);
}

int main(void) {
  device = test_device(2);
  host = cpu_device(2);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_chains),    cmocka_unit_test(test_lenet),
                                     cmocka_unit_test(test_captures),  cmocka_unit_test(test_sizes),
                                     cmocka_unit_test(test_masks),     cmocka_unit_test(test_refusals),
                                     cmocka_unit_test(test_nonfinite), cmocka_unit_test(test_memory)};
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  bppsa_device_destroy(device);
  bppsa_device_destroy(host);
  return failed;
}
