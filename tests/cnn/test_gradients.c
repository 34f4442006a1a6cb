/* The gradients between operators: memory that they share in BP, weight gradients that are put off and the memory these take,
 * counted by the allocator, and a memory limit that admits fewer of them (ooo-backprop, Algorithm 2). */
#include <stdlib.h>

#include "tests/cnn/problems.h"

enum { CHAINS = 60 };

/* Layers with weights in front of the head. */
static int64_t weighted(const bppsa_cnn_network *network) {
  int64_t layers = 0;
  for (int64_t i = 0; i + 1 < network->count; ++i) {
    layers += bppsa_cnn_parameters(&network->layers[i]) > 0;
  }
  return layers;
}

/* The most reals of gradients, for one sample, that a pass needs at a time if it puts off k layers: an independent count of what
 * gradients.c promises. */
static int64_t needed(const bppsa_cnn_network *network, int64_t k, bool input) {
  const int64_t n = network->count - 1;
  int64_t most = n == 0 && input ? bppsa_cnn_size(network, 0) : 0;
  for (int64_t t = n - 1; t >= (input ? 0 : 1); --t) { /* g_t is computed from g_{t+1} */
    int64_t sum = bppsa_cnn_size(network, t) + bppsa_cnn_size(network, t + 1), before = 0;
    for (int64_t s = 1; s <= n; ++s) {
      const bool weights = bppsa_cnn_parameters(&network->layers[s - 1]) > 0;
      sum += weights && before < k && s > t + 1 ? bppsa_cnn_size(network, s) : 0;
      before += weights ? 1 : 0;
    }
    most = sum > most ? sum : most;
  }
  return n == 1 && !input ? bppsa_cnn_size(network, 1) : most;
}

/* What a model holds. */
static int64_t held_by(const problem *p, const bppsa_cnn_config *config, const bppsa_device *device, bppsa_model **model) {
  const int64_t before = bppsa_alloc_live_bytes();
  *model = make_model(p, config, device);
  return bppsa_alloc_live_bytes() - before;
}

/* The number in "needs at least N bytes". */
static int64_t refused_bytes(const problem *p, bppsa_cnn_config config, const bppsa_device *device) {
  bppsa_model *model = NULL;
  config.memory_limit = 1;
  assert_int_equal(bppsa_cnn_create(&p->network, &config, device, &model), BPPSA_ERR_ARGUMENT);
  const char *found = strstr(bppsa_last_error(), "needs at least ");
  assert_non_null(found);
  return strtoll(found + strlen("needs at least "), NULL, 10);
}

/* The passes of a model that puts off k layers, of as many as it was made for. */
static result compute_delayed(const problem *p, bppsa_model *model, int64_t k, const bppsa_cnn_config *config,
                              const bppsa_device *device, bppsa_delayed *delayed) {
  bppsa_view logits;
  inputs in = put_inputs(p, config->dtype, device);
  assert_int_equal(bppsa_model_delay(model, k, delayed), BPPSA_OK);
  run_model(model, &in, &logits);
  const result r = take_result(p, model, device, &logits, config->input_gradients);
  drop_inputs(&in);
  return r;
}

static void assert_same_bits(const problem *p, const result *a, const result *b) {
  for (int64_t i = 0; i <= p->count; ++i) {
    assert_int_equal(a->count[i], b->count[i]);
    assert_true(a->count[i] == 0 || memcmp(a->values[i], b->values[i], (size_t)a->count[i] * sizeof(double)) == 0);
  }
}

/* One network: every k has the bits of none, and the memory of the formula. Returns the bytes by which most k exceed k = 0. */
static int64_t check_network(const problem *p, bppsa_dtype dtype, bool input, const bppsa_device *device) {
  bppsa_cnn_config config = config_of(p, dtype, BPPSA_BACKWARD_BP, 0);
  bppsa_model *model;
  bppsa_delayed delayed;
  config.input_gradients = input;
  const int64_t layers = weighted(&p->network), sample = p->batch * (int64_t)bppsa_dtype_size(dtype);
  const int64_t least = held_by(p, &config, device, &model);
  assert_int_equal(least, refused_bytes(p, config, device));
  result in_order = compute_delayed(p, model, layers, &config, device, &delayed); /* it was made for none */
  assert_int_equal(delayed.layers, 0);
  assert_int_equal(delayed.parameters, 0);
  bppsa_model_destroy(model);
  int64_t held = least;
  for (int64_t k = 1; k <= layers; ++k) {
    config.delayed = k;
    config.memory_limit = 0;
    const int64_t before = held;
    held = held_by(p, &config, device, &model);
    assert_int_equal(held - least, (needed(&p->network, k, input) - needed(&p->network, 0, input)) * sample);
    for (int64_t wanted = k + 1; wanted >= 0; --wanted) {
      result r = compute_delayed(p, model, wanted, &config, device, &delayed);
      assert_int_equal(delayed.layers, wanted < k ? wanted : k);
      assert_int_equal(delayed.possible, layers);
      assert_same_bits(p, &in_order, &r);
      free_result(&r);
    }
    bppsa_model_destroy(model);
    config.delayed = INT64_MAX;
    config.memory_limit = held; /* fewer than that */
    if (held > before) {
      const int64_t less = held_by(p, &config, device, &model);
      result r = compute_delayed(p, model, INT64_MAX, &config, device, &delayed);
      assert_true(less < held && delayed.layers == k - 1);
      assert_same_bits(p, &in_order, &r);
      free_result(&r);
      bppsa_model_destroy(model);
    }
  }
  free_result(&in_order);
  return held - least;
}

static void chains_keep_what_they_need(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(2);
  uint64_t counter = 4000;
  int64_t larger = 0;
  for (int number = 0; number < CHAINS; ++number) {
    problem p;
    make_problem(chain_network(&counter), 1 + chain_below(&counter, 3), BPPSA_F32, 100 * (uint64_t)number, &p);
    for (int input = 0; input < 2; ++input) {
      larger += check_network(&p, number % 2 == 0 ? BPPSA_F32 : BPPSA_F64, input == 1, device) > 0 ? 1 : 0;
    }
    free_problem(&p);
  }
  assert_true(larger > CHAINS / 4); /* networks in which putting off takes memory */
  bppsa_device_destroy(device);
}

/* LeNet-5, and what the page about ranks says of it. */
static void lenet_keeps_what_it_needs(void **state) {
  (void)state;
  static const int64_t expected[] = {9408, 9408, 11008, 11128, 11212}; /* reals a sample for k = 0 .. 4 */
  bppsa_device *device = cpu_device(1);
  problem p;
  lenet_problem(16, BPPSA_F32, &p);
  for (int64_t k = 0; k <= 4; ++k) {
    assert_int_equal(needed(&p.network, k, false), expected[k]);
  }
  (void)check_network(&p, BPPSA_F32, false, device);
  free_problem(&p);
  bppsa_device_destroy(device);
}

/* A scan keeps all gradients anyway. */
static void scans_put_off_what_they_are_asked_to(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  bppsa_model *model;
  bppsa_delayed delayed;
  problem p;
  lenet_problem(2, BPPSA_F64, &p);
  bppsa_cnn_config config = config_of(&p, BPPSA_F64, BPPSA_BACKWARD_SCAN, 0);
  const int64_t least = held_by(&p, &config, device, &model);
  result in_order = compute_delayed(&p, model, 0, &config, device, &delayed);
  bppsa_model_destroy(model);
  config.delayed = 3;
  assert_int_equal(held_by(&p, &config, device, &model), least);
  result r = compute_delayed(&p, model, 9, &config, device, &delayed);
  assert_int_equal(delayed.layers, 3);
  assert_same_bits(&p, &in_order, &r);
  free_result(&r);
  free_result(&in_order);
  bppsa_model_destroy(model);
  config.delayed = -1;
  assert_int_equal(bppsa_cnn_create(&p.network, &config, device, &model), BPPSA_ERR_ARGUMENT);
  free_problem(&p);
  bppsa_device_destroy(device);
}

/* ---- values that are not finite ---- */

static const char *const deep =
    "{\"input\": [1, 4, 4], \"layers\": [{\"name\": \"conv1\", \"op\": \"conv2d\", \"out\": 2, \"kernel\": [3, 3]}, "
    "{\"name\": \"tanh1\", \"op\": \"tanh\"}, {\"name\": \"conv2\", \"op\": \"conv2d\", \"out\": 3, \"kernel\": [1, 1]}, "
    "{\"name\": \"tanh2\", \"op\": \"tanh\"}, {\"name\": \"fc\", \"op\": \"linear\", \"out\": 2}]}";

/* A gradient that overflows half-way is found where it appears, although later ones have taken its memory. */
static void finds_gradients_that_are_gone(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(1);
  bppsa_cnn_network network;
  problem p;
  assert_int_equal(bppsa_cnn_network_parse("deep", deep, (int64_t)strlen(deep), &network), BPPSA_OK);
  make_problem(network, 2, BPPSA_F64, 3, &p);
  for (int64_t i = 0; i < p.count; ++i) {
    for (int64_t k = 0; k < size_of_parameter(&p.network, i); ++k) {
      p.parameters[i][k] = i == 2 || i == 4 ? 1e200 : 0; /* conv2.weight and fc.weight */
    }
  }
  memset(p.x, 0, (size_t)(p.batch * bppsa_cnn_size(&p.network, 0)) * sizeof *p.x); /* every activation is 0 */
  for (int k = 0; k <= 2; ++k) {
    bppsa_cnn_config config = config_of(&p, BPPSA_F64, BPPSA_BACKWARD_BP, 0);
    bppsa_nonfinite where = {0};
    bppsa_delayed delayed;
    config.delayed = k;
    bppsa_model *model = make_model(&p, &config, device);
    inputs in = put_inputs(&p, BPPSA_F64, device);
    bppsa_view logits;
    assert_int_equal(bppsa_model_delay(model, k, &delayed), BPPSA_OK);
    run_model(model, &in, &logits);
    assert_true(model->ops->find_nonfinite(model, &where));
    assert_string_equal(where.what, "gradient of the output of");
    assert_string_equal(where.name, "tanh1");
    for (int64_t i = 0; i < 6; ++i) {
      bppsa_view_set(&model->parameters[2].value, i, 1);
    }
    run_model(model, &in, &logits);
    assert_false(model->ops->find_nonfinite(model, &where));
    drop_inputs(&in);
    bppsa_model_destroy(model);
  }
  free_problem(&p);
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(chains_keep_what_they_need), cmocka_unit_test(lenet_keeps_what_it_needs),
                                     cmocka_unit_test(scans_put_off_what_they_are_asked_to),
                                     cmocka_unit_test(finds_gradients_that_are_gone)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
