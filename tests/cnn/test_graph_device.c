/* Graphs, batch norms and dropouts on a device against the processor's float64: BP and scans, steps of training, masks, sequences
 * of passes, memory that is missing. BPPSA_TEST_DEVICE names the device. On the SIMT machine cuDNN is the stand-in. */
#include "core/compute/graph.h"
#include "tests/cnn/graph_checks.h"

enum { GRAPHS = 40, BATCH = GRAPH_BATCH };

static bppsa_device *device, *host;

static bool is_gpu(void) {
  return bppsa_device_get_kind(device) == BPPSA_CUDA;
}

static void compare_with(problem *p, bppsa_dtype dtype, const result *got, const result *reference, int number) {
  if (dtype == BPPSA_F32) {
    (void)compare_conditioned(p, dtype, got, reference, host, number);
  } else {
    compare(p, dtype, got, reference, number);
  }
}

/* BP in both orders of weight gradients and scans of 0 up-levels to all, with the input's gradient and without, in networks that
 * are planned for as many samples or more. */
static void test_ways(void **state) {
  (void)state;
  int drawn[BPPSA_CNN_NODES] = {0};
  for (int number = 0; number < GRAPHS; ++number) {
    const bppsa_dtype dtype = number % 2 == 0 ? BPPSA_F64 : BPPSA_F32;
    problem p;
    make_problem(graph_network((uint64_t)number, number % 3 == 0), BATCH, dtype, 2000 + (uint64_t)number, &p);
    const bppsa_cnn_config wide = config_of(&p, BPPSA_F64, BPPSA_BACKWARD_BP, 0);
    result reference = compute(&p, &wide, host);
    for (int64_t levels = -3; levels <= 3; ++levels) { /* -3 and -1: BP, with a second stream and without; -2: auto */
      const bool bp = levels == -3 || levels == -1;
      bppsa_cnn_config config = config_of(&p, dtype, bp ? BPPSA_BACKWARD_BP : BPPSA_BACKWARD_SCAN, bp ? 0 : levels);
      config.weight_gradients = levels == -3 && is_gpu() ? BPPSA_WEIGHT_GRADIENTS_SECOND_STREAM : BPPSA_WEIGHT_GRADIENTS_IN_ORDER;
      config.input_gradients = (number + levels) % 3 != 0;
      config.batch += number % 3;
      result got = compute(&p, &config, device);
      compare_with(&p, dtype, &got, &reference, number);
      free_result(&got);
    }
    for (int64_t i = 0; i < p.network.count; ++i) {
      ++drawn[p.network.layers[i].node];
    }
    free_result(&reference);
    free_problem(&p);
  }
  for (int node = 0; node < BPPSA_CNN_NODES; ++node) {
    assert_true(drawn[node] > 0);
  }
}

/* ---- steps of training ---- */

/* Biases in front of a norm by the batch's statistics would have gradients that are nothing but rounding. */
static const char *const block =
    "{\"input\": [2, 4, 5], \"layers\": [{\"name\": \"c\", \"op\": \"conv2d\", \"out\": 3, \"kernel\": 3, \"padding\": 1, "
    "\"bias\": false}, "
    "{\"name\": \"n\", \"op\": \"batchnorm2d\", \"momentum\": 0.3}, {\"name\": \"r\", \"op\": \"silu\"}, "
    "{\"name\": \"d\", \"op\": \"dropout\", \"p\": 0.4}, {\"name\": \"k\", \"op\": \"conv2d\", \"out\": 3, \"kernel\": 1, "
    "\"bias\": false}, "
    "{\"name\": \"m\", \"op\": \"batchnorm2d\", \"affine\": false}, {\"name\": \"s\", \"op\": \"add\", \"inputs\": [\"m\", "
    "\"r\"]}, {\"name\": \"f\", \"op\": \"flatten\"}, {\"name\": \"e\", \"op\": \"dropout\", \"p\": 0.25}, "
    "{\"name\": \"h\", \"op\": \"linear\", \"out\": 3}]}";

static problem block_problem(bppsa_dtype dtype) {
  bppsa_cnn_network network;
  problem p;
  if (bppsa_cnn_network_parse("block", block, (int64_t)strlen(block), &network) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
  make_problem(network, BATCH, dtype, 77, &p);
  return p;
}

static bppsa_cnn_config training_config(const problem *p, bppsa_dtype dtype, bool statistics, int64_t levels) {
  bppsa_cnn_config config = config_of(p, dtype, levels < 0 ? BPPSA_BACKWARD_BP : BPPSA_BACKWARD_SCAN, levels < 0 ? 0 : levels);
  config.dropping = true;
  config.batch_statistics = statistics;
  config.dropout_seed = 5;
  return config;
}

/* Steps of training and evaluations in turns: gradients, and the running statistics, are the processor's. */
static void check_training(bppsa_dtype dtype, bool statistics, int64_t levels) {
  static const int64_t samples[][BATCH] = {{4, 0, 7}, {1, 2, 3}, {9, 8, 4}};
  problem p = block_problem(dtype);
  const bppsa_cnn_config config = training_config(&p, dtype, statistics, levels),
                         wide = training_config(&p, BPPSA_F64, statistics, -1);
  bppsa_model *model = make_model(&p, &config, device), *reference = make_model(&p, &wide, host);
  inputs in = put_inputs(&p, dtype, device), here = put_inputs(&p, BPPSA_F64, host);
  for (int64_t pass = 0; pass < 5; ++pass) {
    const int64_t step = 1 + pass / 2, *named = pass % 2 == 0 ? samples[pass / 2] : NULL;
    bppsa_view logits, expected;
    bppsa_model_drop(model, step, named);
    bppsa_model_drop(reference, step, named);
    run_model(model, &in, &logits);
    run_model(reference, &here, &expected);
    result got = take_result(&p, model, device, &logits, true), wanted = take_result(&p, reference, host, &expected, true);
    compare(&p, dtype, &got, &wanted, (int)pass);
    free_result(&got);
    free_result(&wanted);
  }
  assert_int_equal(bppsa_model_pull(model, false), BPPSA_OK);
  for (int64_t i = 0; i < p.count; ++i) { /* the statistics among them */
    const bppsa_view *a = &model->parameters[i].value, *b = &reference->parameters[i].value;
    for (int64_t k = 0; k < bppsa_view_count(a); ++k) {
      const double value = bppsa_view_get(b, k);
      assert_true(fabs(bppsa_view_get(a, k) - value) <= (dtype == BPPSA_F32 ? 1e-6 : 1e-14) * (1 + fabs(value)));
    }
  }
  bppsa_model_destroy(model);
  bppsa_model_destroy(reference);
  drop_inputs(&in);
  drop_inputs(&here);
  free_problem(&p);
}

static void test_training(void **state) {
  (void)state;
  for (bppsa_dtype dtype = BPPSA_F32; dtype <= BPPSA_F64; ++dtype) {
    check_training(dtype, true, -1);
    check_training(dtype, false, -1);
    check_training(dtype, false, 0);
    check_training(dtype, false, 2);
  }
}

/* ---- recorded passes ---- */

typedef struct {
  bppsa_model *model;
  inputs *in;
  bppsa_view logits;
} passes;

static bppsa_status queue_passes(void *context) {
  passes *p = context;
  BPPSA_TRY(p->model->ops->forward(p->model, &p->in->x, NULL, &p->logits));
  return p->model->ops->backward(p->model, &p->in->seed);
}

/* A recorded step draws other numbers in every step of training, as a step that is queued anew does. */
static void test_recorded(void **state) {
  (void)state;
  if (!is_gpu()) {
    skip();
  }
  int64_t samples[BATCH] = {3, 1, 2};
  problem p = block_problem(BPPSA_F64);
  const bppsa_cnn_config config = training_config(&p, BPPSA_F64, true, -1);
  bppsa_model *model = make_model(&p, &config, device), *plain = make_model(&p, &config, device);
  inputs in = put_inputs(&p, BPPSA_F64, device);
  passes recorded = {.model = model, .in = &in};
  bppsa_graph *graph = NULL;
  bppsa_model_drop(model, 1, samples);
  assert_int_equal(bppsa_graph_capture(device, queue_passes, &recorded, &graph), BPPSA_OK);
  for (int64_t step = 1; step <= 3; ++step) {
    bppsa_view logits;
    samples[0] = 10 * step;
    bppsa_model_drop(model, step, samples);
    bppsa_model_drop(plain, step, samples);
    assert_int_equal(bppsa_graph_launch(device, graph), BPPSA_OK);
    assert_int_equal(bppsa_device_wait(device), BPPSA_OK);
    run_model(plain, &in, &logits);
    result got = take_result(&p, model, device, &recorded.logits, true), wanted = take_result(&p, plain, device, &logits, true);
    for (int64_t i = 0; i <= p.count; ++i) {
      assert_memory_equal(got.values[i], wanted.values[i], (size_t)got.count[i] * sizeof(double));
    }
    free_result(&got);
    free_result(&wanted);
  }
  bppsa_graph_destroy(device, graph);
  bppsa_model_destroy(model);
  bppsa_model_destroy(plain);
  drop_inputs(&in);
  free_problem(&p);
}

/* ---- masks, sequences, memory ---- */

static void test_masks(void **state) {
  (void)state;
  check_graph_masks(device, host);
}

static void test_passes_again(void **state) {
  (void)state;
  check_graph_passes_again(device, 3);
}

/* Host memory that is missing at any point leaves nothing behind, here or on the device; the limit counts all of it. */
static void test_memory(void **state) {
  (void)state;
  enum { WORKSPACES = 4 << 20 /* of cuDNN, which are chosen later */ };
  for (int number = 0; number < 4; ++number) {
    problem p;
    make_problem(graph_network((uint64_t)number, false), BATCH, BPPSA_F32, 5000, &p);
    bppsa_cnn_config config = config_of(&p, BPPSA_F32, number % 2 == 0 ? BPPSA_BACKWARD_BP : BPPSA_BACKWARD_SCAN, 0);
    int64_t bytes = 0;
    bppsa_model *model = NULL;
    assert_int_equal(bppsa_cnn_count(&p.network, &config, device, &bytes), BPPSA_OK);
    config.memory_limit = bytes;
    assert_int_equal(bppsa_cnn_create(&p.network, &config, device, &model), BPPSA_ERR_ARGUMENT);
    assert_non_null(strstr(bppsa_last_error(), "expected fewer than"));
    config.memory_limit = 0;
    const int64_t blocks = bppsa_alloc_live(), held = is_gpu() ? bppsa_memory_held(device) : 0;
    bppsa_alloc_fail_at(0);
    model = make_model(&p, &config, device);
    const int64_t calls = bppsa_alloc_calls();
    assert_true(!is_gpu() || number % 2 == 1 || bppsa_memory_held(device) - held <= bytes + WORKSPACES);
    bppsa_model_destroy(model);
    for (int64_t call = 1; call <= calls; call += 1 + calls / 40) {
      bppsa_alloc_fail_at(call);
      const bppsa_status status = bppsa_cnn_create(&p.network, &config, device, &model);
      bppsa_alloc_fail_at(0);
      assert_int_equal(status, BPPSA_ERR_MEMORY);
      assert_int_equal(bppsa_alloc_live(), blocks);
      assert_int_equal(is_gpu() ? bppsa_memory_held(device) : 0, held);
    }
    free_problem(&p);
  }
}

int main(void) {
  const struct CMUnitTest unit_tests[] = {cmocka_unit_test(test_ways),         cmocka_unit_test(test_training),
                                          cmocka_unit_test(test_recorded),     cmocka_unit_test(test_masks),
                                          cmocka_unit_test(test_passes_again), cmocka_unit_test(test_memory)};
  host = cpu_device(2);
  device = test_device(2);
  const int failed = cmocka_run_group_tests(unit_tests, NULL, NULL);
  bppsa_device_destroy(device);
  bppsa_device_destroy(host);
  return failed;
}
