/* Twice the multiply-adds counted in the inner loops of a pass are the executed FLOPs of the plan: for chains of LeNet-5, masked
 * and not, of random networks, and of a pruned VGG-11; with every kind of product. */
#include <stdatomic.h>

#include "cnn/prune.h"
#include "jacobian/jacobian.h"
#include "tests/cnn/chains.h"

_Atomic int64_t bppsa_multiply_adds;

/* One scan by a plan over `batch` samples: products of operands that all samples share are computed once. */
static int64_t expected_flops(const bppsa_scan_plan *plan, const bool *shared, int64_t batch) {
  const int64_t n = bppsa_scan_plan_config(plan)->jacobians;
  bppsa_scan_iterator it = {0};
  bppsa_scan_step step;
  int64_t flops = 0;
  while (bppsa_scan_plan_next(plan, &it, &step)) {
    bool once = step.level->op == BPPSA_OP_MM;
    for (int64_t e = step.first; e <= step.last; ++e) {
      once = once && shared[n - e];
    }
    const int64_t one = step.product != NULL            ? bppsa_product_get_info(step.product)->executed_flops
                        : step.level->op == BPPSA_OP_MM ? 0
                                                        : step.flops;
    flops += step.level->dead ? 0 : one * (once ? 1 : batch);
  }
  return flops;
}

static void count_network(const bppsa_cnn_network *network, int64_t batch, int64_t levels, double fraction, bppsa_dtype dtype,
                          const bppsa_device *device) {
  bppsa_cnn_config config = bppsa_cnn_config_default();
  config.batch = batch;
  config.dtype = dtype;
  config.method.backward = BPPSA_BACKWARD_BP;
  bppsa_model *weights = NULL, *model = NULL;
  assert_int_equal(bppsa_cnn_create(network, &config, device, &weights), BPPSA_OK);
  bppsa_cnn_init(weights, 1);
  bppsa_named_view masks[64], pruned[64];
  uint8_t *bytes[64];
  int64_t count = 0;
  for (int64_t p = 0; fraction > 0 && p < weights->parameter_count; ++p) {
    const bppsa_view *v = &weights->parameters[p].value;
    if (v->ndim >= 2) {
      bytes[count] = bppsa_alloc((size_t)bppsa_view_count(v));
      pruned[count] = (bppsa_named_view){weights->parameters[p].name, *v};
      masks[count] =
          (bppsa_named_view){weights->parameters[p].name, bppsa_view_make(bytes[count], BPPSA_BOOL, v->ndim, v->shape)};
      ++count;
    }
  }
  assert_int_equal(bppsa_prune(BPPSA_PRUNE_CLASS_UNIFORM, fraction, count, pruned, bytes, NULL), BPPSA_OK);
  config.method.backward = BPPSA_BACKWARD_SCAN;
  config.method.scan.algorithm = levels == 0 ? BPPSA_SCAN_LINEAR : BPPSA_SCAN_BLELLOCH;
  config.method.scan.up_levels = levels;
  config.masks = masks;
  config.mask_count = count;
  config.input_gradients = levels % 2 == 0;
  assert_int_equal(bppsa_cnn_create(network, &config, device, &model), BPPSA_OK);
  bppsa_cnn_init(model, 1);
  const int64_t *in = network->in, x_shape[] = {batch, in[0], in[1], in[2]}, seed_shape[] = {batch, model->classes};
  double *x = uniform(3, batch * in[0] * in[1] * in[2], 1), *seed = uniform(4, batch * model->classes, 1);
  void *typed_x = rounded(dtype, x, batch * in[0] * in[1] * in[2]), *typed_seed = rounded(dtype, seed, batch * model->classes);
  const bppsa_view x_view = bppsa_view_make(typed_x, dtype, 4, x_shape);
  const bppsa_view seed_view = bppsa_view_make(typed_seed, dtype, 2, seed_shape);
  bppsa_view logits;
  bool shared[64];
  for (int64_t i = 0; i + 1 < network->count; ++i) {
    bppsa_jacobian *j = NULL;
    assert_int_equal(bppsa_jacobian_create(&network->layers[i].op, NULL, true, device, &j), BPPSA_OK);
    shared[i] = bppsa_jacobian_shared(j);
    bppsa_jacobian_destroy(j);
  }
  assert_int_equal(model->ops->forward(model, &x_view, NULL, &logits), BPPSA_OK);
  atomic_store(&bppsa_multiply_adds, 0);
  assert_int_equal(model->ops->backward(model, &seed_view), BPPSA_OK);
  const bppsa_scan_plan *plan = bppsa_cnn_plan(model);
  assert_int_equal(2 * atomic_load(&bppsa_multiply_adds), expected_flops(plan, shared, batch));
  if (batch == 1) {
    assert_int_equal(2 * atomic_load(&bppsa_multiply_adds), bppsa_scan_plan_totals(plan)->executed_flops);
  }
  for (int64_t i = 0; i < count; ++i) {
    bppsa_free(bytes[i]);
  }
  bppsa_free(x);
  bppsa_free(seed);
  bppsa_free(typed_x);
  bppsa_free(typed_seed);
  bppsa_model_destroy(weights);
  bppsa_model_destroy(model);
}

static void test_lenet(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(2);
  bppsa_cnn_network network;
  assert_int_equal(bppsa_cnn_network_builtin("lenet5", &network), BPPSA_OK);
  for (int64_t levels = 0; levels <= 3; ++levels) {
    count_network(&network, 1, levels, 0, BPPSA_F32, device);
    count_network(&network, 1, levels, 0.9, BPPSA_F64, device);
    count_network(&network, 3, levels, 0.5, BPPSA_F32, device);
  }
  bppsa_cnn_network_free(&network);
  bppsa_device_destroy(device);
}

static void test_chains(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(2);
  uint64_t counter = 4242;
  for (int number = 0; number < 200; ++number) {
    bppsa_cnn_network network = chain_network(&counter);
    count_network(&network, 1 + number % 3, number % 5, number % 2 == 0 ? 0 : 0.4, number % 3 == 0 ? BPPSA_F64 : BPPSA_F32,
                  device);
    bppsa_cnn_network_free(&network);
  }
  bppsa_device_destroy(device);
}

static void test_vgg11(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(2);
  bppsa_cnn_network network;
  assert_int_equal(bppsa_cnn_network_builtin("vgg11", &network), BPPSA_OK);
  count_network(&network, 1, 2, 0.97, BPPSA_F32, device);
  bppsa_cnn_network_free(&network);
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_lenet), cmocka_unit_test(test_chains), cmocka_unit_test(test_vgg11)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
