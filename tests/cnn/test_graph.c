/* Networks that are graphs: BP against differences of an independent forward pass, every scan against BP, live sets and their
 * counts by hand, long-lived models, memory, and what refuses a graph. bench/rivals/grad_graph_pytorch.py compares 300 more with
 * PyTorch. */
#include "cnn/chain.h"
#include "cnn/live.h"
#include "cnn/work.h"
#include "jacobian/jacobian.h"
#include "tests/cnn/graph_checks.h"

enum { GRAPHS = 24, BATCH = GRAPH_BATCH };

/* ---- gradients ---- */

/* The derivative of the loss by *value, by central differences. */
static double difference(const problem *p, double *value) {
  const double at = *value, step = 1e-5;
  *value = at + step;
  const double more = graph_loss(p);
  *value = at - step;
  const double less = graph_loss(p);
  *value = at;
  return (more - less) / (2 * step);
}

/* Some values of every tensor of BP's gradients. */
static void check_differences(problem *p, const result *bp, int number) {
  enum { VALUES = 6 };
  for (int64_t i = 0; i <= p->count; ++i) {
    double *values = i < p->count ? p->parameters[i] : p->x;
    for (int64_t k = 0; k < VALUES; ++k) {
      const int64_t at = k * (bp->count[i] - 1) / (VALUES - 1);
      const double expected = difference(p, &values[at]);
      if (!(fabs(bp->values[i][at] - expected) <= 1e-7 * (1 + fabs(expected)))) {
        fail_msg("graph %d, tensor %d, value %d: %g, by differences %g", number, (int)i, (int)at, bp->values[i][at], expected);
      }
    }
  }
}

static void test_bp_against_differences(void **state) {
  (void)state;
  int drawn[BPPSA_CNN_NODES] = {0}, repeated = 0;
  bppsa_device *device = cpu_device(2);
  for (int number = 0; number < GRAPHS; ++number) {
    problem p;
    make_problem(graph_network((uint64_t)number, true), BATCH, BPPSA_F64, 1000 + (uint64_t)number, &p);
    const bppsa_cnn_config config = config_of(&p, BPPSA_F64, BPPSA_BACKWARD_BP, 0);
    result bp = compute(&p, &config, device);
    check_differences(&p, &bp, number);
    free_result(&bp);
    for (int64_t i = 0; i < p.network.count; ++i) {
      const bppsa_cnn_layer *layer = &p.network.layers[i];
      ++drawn[layer->node];
      for (int64_t k = 0; layer->node == BPPSA_CNN_MUL && k < bppsa_cnn_input_count(&p.network, i); ++k) {
        repeated += bppsa_cnn_size(&p.network, bppsa_cnn_input_of(&p.network, i, k) + 1) < bppsa_cnn_size(&p.network, i + 1);
      }
    }
    free_problem(&p);
  }
  for (int node = 0; node < BPPSA_CNN_NODES; ++node) { /* each is drawn, and so are extents that mul repeats */
    assert_true(drawn[node] > 0 && repeated > 0);
  }
  bppsa_device_destroy(device);
}

/* The scan computes BP's gradients, by 0 up-levels to all, with the input's gradient and without; on the CPU the bits do not depend
 * on the number of threads. */
static void test_scans_against_bp(void **state) {
  (void)state;
  bppsa_device *one = cpu_device(1), *three = cpu_device(3);
  for (int number = 0; number < GRAPHS; ++number) {
    const bppsa_dtype dtype = number % 2 == 0 ? BPPSA_F32 : BPPSA_F64;
    problem p;
    make_problem(graph_network((uint64_t)number, number % 3 == 0), BATCH, dtype, 2000 + (uint64_t)number, &p);
    const bppsa_cnn_config wide = config_of(&p, BPPSA_F64, BPPSA_BACKWARD_BP, 0);
    result reference = compute(&p, &wide, one);
    for (int64_t levels = -2; levels <= 4; ++levels) { /* -2: auto, -1: BP in this dtype */
      bppsa_cnn_config config =
          config_of(&p, dtype, levels == -1 ? BPPSA_BACKWARD_BP : BPPSA_BACKWARD_SCAN, levels == -1 ? 0 : levels);
      config.input_gradients = (number + levels) % 3 != 0;
      result got = compute(&p, &config, one), again = compute(&p, &config, three);
      compare(&p, dtype, &got, &reference, number);
      for (int64_t i = 0; i < p.count + config.input_gradients; ++i) {
        assert_memory_equal(got.values[i], again.values[i], (size_t)got.count[i] * sizeof(double));
      }
      free_result(&got);
      free_result(&again);
    }
    free_result(&reference);
    free_problem(&p);
  }
  bppsa_device_destroy(one);
  bppsa_device_destroy(three);
}

static void test_passes_again(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(2);
  check_graph_passes_again(device, 4);
  bppsa_device_destroy(device);
}

static void test_masks(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(2);
  check_graph_masks(device, device);
  bppsa_device_destroy(device);
}

/* ---- live sets ---- */

#define CONV(name, inputs) "{\"name\": \"" name "\", \"op\": \"conv2d\", \"out\": 1, \"kernel\": 1, \"inputs\": [" inputs "]}, "
#define LAYER(name, op, inputs) "{\"name\": \"" name "\", \"op\": \"" op "\", \"inputs\": [" inputs "]}, "
#define HEAD "{\"name\": \"head\", \"op\": \"linear\", \"out\": 2}"

static bppsa_cnn_network parse(const char *layers) {
  char text[2048];
  bppsa_cnn_network network;
  snprintf(text, sizeof text, "{\"input\": [1, 2, 2], \"layers\": [%s]}", layers);
  if (bppsa_cnn_network_parse("N.json", text, (int64_t)strlen(text), &network) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
  return network;
}

/* A residual block, by hand: x -> a = conv(x) -> b = tanh(a) -> s = a + b -> r = relu(s) -> head. */
static void test_counts_by_hand(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  bppsa_cnn_network network = parse(CONV("a", "\"input\"") LAYER("b", "tanh", "\"a\"") LAYER("s", "add", "\"b\", \"a\"")
                                        LAYER("r", "relu", "\"s\"") HEAD);
  bppsa_jacobian *own[4] = {NULL};
  bppsa_cnn_elements elements;
  assert_int_equal(bppsa_cnn_elements_create(&network, false, &elements), BPPSA_OK);
  for (int64_t t = 1; t <= 4; ++t) {
    const bool joins = network.layers[t - 1].node != BPPSA_CNN_OPERATOR;
    if (!joins) {
      assert_int_equal(bppsa_jacobian_create(&network.layers[t - 1].op, NULL, false, device, &own[t - 1]), BPPSA_OK);
    }
    assert_int_equal(bppsa_cnn_elements_set(&network, t, joins ? NULL : bppsa_jacobian_pattern(own[t - 1]), &elements), BPPSA_OK);
  }
  static const int64_t sizes[] = {4, 4, 8, 4, 4}, entries[] = {4, 4, 0, 4}, ones[] = {0, 4, 8, 0};
  for (int t = 0; t <= 4; ++t) {
    assert_int_equal(elements.live.sizes[t], sizes[t]);
  }
  for (int t = 0; t < 4; ++t) {
    const bppsa_csr *csr = elements.patterns[t];
    assert_int_equal(csr->rows, sizes[t]);
    assert_int_equal(csr->cols, sizes[t + 1]);
    assert_int_equal(csr->nnz, entries[t]);
    assert_int_equal(csr->ones != NULL ? csr->ones->nnz : 0, ones[t]);
    assert_true((elements.made[t].rows == 0) == (t == 0 || t == 3)); /* elsewhere the operator's own */
  }
  bppsa_scan_config config = bppsa_scan_config_default();
  config.element = BPPSA_ELEMENT_CSR;
  config.jacobians = 4;
  config.patterns = elements.patterns;
  config.planner = device;
  bppsa_scan_plan *plan = NULL;
  assert_int_equal(bppsa_scan_plan_create(&config, &plan), BPPSA_OK);
  const bppsa_scan_totals *t = bppsa_scan_plan_totals(plan);
  assert_int_equal(t->bp_flops, 2 * (4 + 0 + 4)); /* J_2, J_3, J_4: tanh and relu; the sum has ones alone */
  bppsa_scan_iterator it = {0};
  bppsa_scan_step step;
  int64_t seen = 0;
  while (bppsa_scan_plan_next(plan, &it, &step)) {
    if (step.level->op == BPPSA_OP_MM && step.first == 2 && step.last == 3) { /* a[2:3] = J_2ᵀ J_3ᵀ = tanh' + I */
      assert_true(step.copy);
      assert_int_equal(step.flops, 0);
      assert_int_equal(step.nnz, 4);
      assert_int_equal(bppsa_product_pattern(step.product)->ones->nnz, 4);
      ++seen;
    }
  }
  assert_int_equal(seen, 1);
  bppsa_cnn_bp_work work;
  assert_int_equal(bppsa_cnn_count_bp(&network, NULL, false, device, &work), BPPSA_OK);
  assert_true(work.work.gradients == 16 && work.work.besides == 2 * 4 && work.largest == 8);
  assert_int_equal(bppsa_cnn_count_bp(&network, NULL, true, device, &work), BPPSA_OK);
  assert_true(work.work.gradients == 24);
  bppsa_scan_plan_destroy(plan);
  bppsa_cnn_elements_free(&elements);
  for (int i = 0; i < 4; ++i) {
    bppsa_jacobian_destroy(own[i]);
  }
  bppsa_cnn_network_free(&network);
  bppsa_device_destroy(device);
}

/* A pattern that is known by its structure alone has the same columns in an element once it is spelled out. */
static void test_structure_alone(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(2);
  for (int number = 0; number < GRAPHS; ++number) {
    bppsa_cnn_network network = graph_network((uint64_t)number, false);
    bppsa_cnn_elements elements[2];
    assert_int_equal(bppsa_cnn_elements_create(&network, number % 2 == 0, &elements[0]), BPPSA_OK);
    assert_int_equal(bppsa_cnn_elements_create(&network, number % 2 == 0, &elements[1]), BPPSA_OK);
    for (int64_t t = 1; t < network.count; ++t) {
      bppsa_jacobian *j[2] = {NULL, NULL};
      for (int symbolic = 0; symbolic < 2; ++symbolic) {
        if (network.layers[t - 1].node == BPPSA_CNN_OPERATOR) {
          assert_int_equal(bppsa_jacobian_create(&network.layers[t - 1].op, NULL, symbolic == 1, device, &j[symbolic]), BPPSA_OK);
        }
        const bppsa_csr *own = j[symbolic] != NULL ? bppsa_jacobian_pattern(j[symbolic]) : NULL;
        assert_int_equal(bppsa_cnn_elements_set(&network, t, own, &elements[symbolic]), BPPSA_OK);
      }
      bppsa_csr spelled;
      assert_int_equal(bppsa_csr_copy(elements[1].patterns[t - 1], &spelled), BPPSA_OK);
      assert_int_equal(bppsa_csr_expand(&spelled, 2), BPPSA_OK);
      assert_int_equal(bppsa_csr_check(&spelled), BPPSA_OK);
      assert_true(spelled.ones == NULL || bppsa_csr_check(spelled.ones) == BPPSA_OK);
      assert_true(bppsa_csr_same(&spelled, elements[0].patterns[t - 1]));
      bppsa_csr_free(&spelled);
      bppsa_jacobian_destroy(j[0]);
      bppsa_jacobian_destroy(j[1]);
    }
    bppsa_cnn_elements_free(&elements[0]);
    bppsa_cnn_elements_free(&elements[1]);
    bppsa_cnn_network_free(&network);
  }
  bppsa_device_destroy(device);
}

/* In a chain every live set is one tensor, and every element the operator's own, also where a file names the inputs. */
static void test_chain_stays_a_chain(void **state) {
  (void)state;
  bppsa_cnn_network network = parse(CONV("a", "\"input\"") LAYER("b", "tanh", "\"a\"") LAYER("r", "relu", "\"b\"") HEAD);
  bppsa_cnn_live live;
  assert_false(bppsa_cnn_is_graph(&network));
  assert_int_equal(bppsa_cnn_require_chain(&network, "a test"), BPPSA_OK);
  assert_int_equal(bppsa_cnn_live_create(&network, true, &live), BPPSA_OK);
  for (int64_t t = 1; t <= 3; ++t) {
    assert_true(bppsa_cnn_live_is_own(&live, &network, t));
    assert_int_equal(bppsa_cnn_live_offset(&live, t, t), 0);
    assert_int_equal(bppsa_cnn_live_offset(&live, t, t - 1), -1);
  }
  bppsa_cnn_live_free(&live);
  bppsa_cnn_network_free(&network);
}

/* ---- memory and refusals ---- */

static void test_memory(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(2);
  for (int number = 0; number < 8; ++number) {
    problem p;
    make_problem(graph_network((uint64_t)number, false), BATCH, BPPSA_F32, 5000, &p);
    bppsa_cnn_config config = config_of(&p, BPPSA_F32, number % 2 == 0 ? BPPSA_BACKWARD_BP : BPPSA_BACKWARD_SCAN, 0);
    int64_t bytes = 0, calls;
    const int64_t before = bppsa_alloc_live_bytes(), blocks = bppsa_alloc_live();
    bppsa_model *model = make_model(&p, &config, device);
    assert_int_equal(bppsa_cnn_count(&p.network, &config, device, &bytes), BPPSA_OK);
    const int64_t held = bppsa_alloc_live_bytes() - before;
    bppsa_model_destroy(model);
    assert_true(number % 2 == 1 || (held <= bytes && bytes < held + 64 * 1024));
    config.memory_limit = bytes;
    assert_int_equal(bppsa_cnn_create(&p.network, &config, device, &model), BPPSA_ERR_ARGUMENT);
    assert_message("expected fewer than");
    config.memory_limit = 0;
    bppsa_alloc_fail_at(0);
    model = make_model(&p, &config, device);
    calls = bppsa_alloc_calls();
    bppsa_model_destroy(model);
    for (int64_t call = 1; call <= calls; call += 1 + calls / 60) {
      bppsa_alloc_fail_at(call);
      assert_int_equal(bppsa_cnn_create(&p.network, &config, device, &model), BPPSA_ERR_MEMORY);
      bppsa_alloc_fail_at(0);
      assert_int_equal(bppsa_alloc_live(), blocks);
    }
    free_problem(&p);
  }
  bppsa_device_destroy(device);
}

static bppsa_status no_factory(void *context, const bppsa_scan_plan *plan, const bppsa_device *device,
                               bppsa_scan_executor **executor) {
  (void)context;
  return bppsa_scan_executor_create(plan, device, executor);
}

static void test_refused(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  bppsa_cnn_network network = graph_network(0, true);
  bppsa_cnn_config config = bppsa_cnn_config_default();
  bppsa_chain *chain = NULL;
  bppsa_model *model = NULL;
  assert_int_equal(bppsa_cnn_chain_create(&network, 2, BPPSA_F32, device, &chain), BPPSA_ERR_UNSUPPORTED);
  assert_message("network: a graph of layers for ranks that share its layers, expected a chain");
  config.method.backward = BPPSA_BACKWARD_SCAN;
  config.factory.create = no_factory;
  assert_int_equal(bppsa_cnn_create(&network, &config, device, &model), BPPSA_ERR_UNSUPPORTED);
  assert_message("network: a graph of layers for a scan shared by ranks, expected a chain");
  bppsa_cnn_network_free(&network);
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bp_against_differences),
      cmocka_unit_test(test_scans_against_bp),
      cmocka_unit_test(test_passes_again),
      cmocka_unit_test(test_masks),
      cmocka_unit_test(test_counts_by_hand),
      cmocka_unit_test(test_structure_alone),
      cmocka_unit_test(test_chain_stays_a_chain),
      cmocka_unit_test(test_memory),
      cmocka_unit_test(test_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
