/* The choice of `auto` for the backward pass of a network of operators: it follows the times measured on a CPU (docs/methods.md),
 * within the memory limit. */
#include "cnn/choose.h"

#include "cnn/work.h"
#include "core/base/alloc.h"
#include "tests/cnn/problems.h"

/* A fraction of every weight but the head's, spread evenly. */
static uint8_t **make_masks(const bppsa_cnn_network *network, double kept) {
  uint8_t **masks = bppsa_calloc(network->count, sizeof *masks);
  assert_non_null(masks);
  for (int64_t i = 0; kept < 1 && i + 1 < network->count; ++i) {
    const int64_t weights = bppsa_cnn_has_weights(&network->layers[i]) ? bppsa_op_weights(&network->layers[i].op) : 0;
    masks[i] = weights > 0 ? bppsa_calloc(weights, 1) : NULL;
    for (int64_t k = 0; k < weights; ++k) {
      masks[i][k] = (int64_t)((double)(k + 1) * kept) > (int64_t)((double)k * kept);
    }
  }
  return masks;
}

static void free_masks(const bppsa_cnn_network *network, uint8_t **masks) {
  for (int64_t i = 0; i < network->count; ++i) {
    bppsa_free(masks[i]);
  }
  bppsa_free((void *)masks);
}

/* Scan's seconds over BP's. */
static double ratio_of(const char *name, int64_t batch, bppsa_dtype dtype, double kept) {
  bppsa_device *device = NULL;
  bppsa_cnn_network network;
  bppsa_cnn_config config = bppsa_cnn_config_default();
  bppsa_cnn_seconds seconds = {0};
  config.batch = batch;
  config.dtype = dtype;
  assert_int_equal(bppsa_device_create("cpu", 2, &device), BPPSA_OK);
  assert_int_equal(bppsa_cnn_network_builtin(name, &network), BPPSA_OK);
  uint8_t **masks = make_masks(&network, kept);
  assert_int_equal(bppsa_cnn_predict(&network, (const uint8_t *const *)masks, &config, device, &seconds), BPPSA_OK);
  assert_true(seconds.bp > 0 && seconds.scan > 0);
  assert_int_equal(bppsa_cnn_choose(&seconds).backward, seconds.scan < seconds.bp ? BPPSA_BACKWARD_SCAN : BPPSA_BACKWARD_BP);
  free_masks(&network, masks);
  bppsa_cnn_network_free(&network);
  bppsa_device_destroy(device);
  return seconds.scan / seconds.bp;
}

/* Measured on one thread, time of the gradients between layers alone: LeNet-5 9.5, 2.3 and 1.9 times BP's with 0, 90 and 97 %
 * pruned; VGG-11 25 times unpruned, and less than BP's with 99 %. */
static void test_choices(void **state) {
  (void)state;
  static const struct {
    const char *name;
    double kept, least, most;
  } cases[] = {{"lenet5", 1, 4, 12}, {"lenet5", 0.1, 1.2, 3}, {"lenet5", 0.03, 1, 2.5},
               {"vgg11", 1, 10, 40}, {"vgg11", 0.3, 2, 20},   {"vgg11", 0.01, 0.1, 0.9}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    const double ratio = ratio_of(cases[i].name, 64, BPPSA_F32, cases[i].kept),
                 wide = ratio_of(cases[i].name, 64, BPPSA_F64, cases[i].kept);
    if (!(ratio > cases[i].least && ratio < cases[i].most)) {
      fail_msg("%s with %g of its weights: %g times BP, expected %g .. %g", cases[i].name, cases[i].kept, ratio, cases[i].least,
               cases[i].most);
    }
    assert_true(wide > 0.5 * ratio && wide < 2.5 * ratio); /* entries of 12 bytes leave a cache earlier */
    const double one = ratio_of(cases[i].name, 1, BPPSA_F32, cases[i].kept);
    assert_true(one > 0.99 * ratio && one < 1.01 * ratio); /* on a CPU nothing in the model depends on the batch */
  }
}

static bppsa_model *make(const bppsa_cnn_network *network, const bppsa_cnn_config *config, const bppsa_device *device) {
  bppsa_model *model = NULL;
  assert_int_equal(bppsa_cnn_create(network, config, device, &model), BPPSA_OK);
  return model;
}

/* BP of LeNet-5 besides the gradients between layers: 2 FLOPs for each weight at each position of its output, without the head. */
static void test_besides(void **state) {
  (void)state;
  bppsa_device *device = NULL;
  bppsa_cnn_network network;
  bppsa_cnn_bp_work bp;
  assert_int_equal(bppsa_device_create("cpu", 1, &device), BPPSA_OK);
  assert_int_equal(bppsa_cnn_network_builtin("lenet5", &network), BPPSA_OK);
  bp.largest = INT64_MAX; /* counted from 0 */
  const int64_t live = bppsa_alloc_live();
  assert_int_equal(bppsa_cnn_count_bp(&network, NULL, true, device, &bp), BPPSA_OK);
  assert_int_equal(bppsa_alloc_live(), live);
  const int64_t conv1 = 6 * 3 * 25 * 28 * 28, conv2 = 16 * 6 * 25 * 10 * 10, fc1 = 400 * 120, fc2 = 120 * 84;
  assert_true(bp.work.besides == (double)(2 * (conv1 + conv2 + fc1 + fc2)));
  assert_int_equal(bp.largest, 2 * conv2);
  bppsa_cnn_network_free(&network);
  bppsa_device_destroy(device);
}

static bppsa_status no_executor(void *context, const bppsa_scan_plan *plan, const bppsa_device *device,
                                bppsa_scan_executor **executor) {
  *(int *)context += 1;
  return bppsa_scan_executor_create(plan, device, executor);
}

/* A network whose masked convolution leaves almost nothing for a scan to do: auto chooses the scan, unless it does not fit. With
 * a factory it always chooses a scan. */
static void test_models(void **state) {
  (void)state;
  bppsa_device *device = NULL;
  bppsa_cnn_network network;
  bppsa_cnn_config config = bppsa_cnn_config_default();
  assert_int_equal(bppsa_device_create("cpu", 2, &device), BPPSA_OK);
  assert_int_equal(bppsa_cnn_network_builtin("vgg11", &network), BPPSA_OK);
  config.batch = 2;
  bppsa_model *model = make(&network, &config, device);
  assert_null(bppsa_cnn_plan(model));
  bppsa_named_view masks[20];
  uint8_t *bytes[20] = {NULL};
  for (int64_t p = 0; p < model->parameter_count; ++p) {
    const bppsa_view *value = &model->parameters[p].value;
    const int64_t weights = bppsa_view_count(value);
    if (value->ndim == 4) {
      bytes[config.mask_count] = bppsa_calloc(weights, 1);
      for (int64_t k = 0; k < weights; k += 200) {
        bytes[config.mask_count][k] = 1;
      }
      masks[config.mask_count] =
          (bppsa_named_view){model->parameters[p].name, bppsa_view_make(bytes[config.mask_count], BPPSA_U8, 4, value->shape)};
      ++config.mask_count;
    }
  }
  config.masks = masks;
  bppsa_model *masked = make(&network, &config, device);
  assert_non_null(bppsa_cnn_plan(masked));
  assert_int_equal(bppsa_scan_plan_config(bppsa_cnn_plan(masked))->method.algorithm, BPPSA_SCAN_LINEAR);
  bppsa_model_destroy(masked);
  bppsa_cnn_config tight = config, bp = config;
  bp.method.backward = BPPSA_BACKWARD_BP;
  for (tight.memory_limit = bp.memory_limit = (int64_t)1 << 20;; tight.memory_limit = bp.memory_limit += (int64_t)1 << 20) {
    bppsa_model *small = NULL; /* the memory that BP needs is too little for a scan */
    if (bppsa_cnn_create(&network, &bp, device, &small) == BPPSA_OK) {
      bppsa_model_destroy(small);
      small = make(&network, &tight, device);
      assert_null(bppsa_cnn_plan(small));
      bppsa_model_destroy(small);
      break;
    }
  }
  bppsa_model_destroy(model);
  int asked = 0;
  config.mask_count = 0;
  config.masks = NULL;
  config.factory = (bppsa_scan_factory){no_executor, &asked};
  bppsa_cnn_network_free(&network);
  assert_int_equal(bppsa_cnn_network_builtin("lenet5", &network), BPPSA_OK);
  model = make(&network, &config, device);
  assert_non_null(bppsa_cnn_plan(model));
  assert_int_equal(asked, 1);
  bppsa_model_destroy(model);
  for (int i = 0; i < 20; ++i) {
    bppsa_free(bytes[i]);
  }
  bppsa_cnn_network_free(&network);
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_choices), cmocka_unit_test(test_besides),
                                     cmocka_unit_test(test_models)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
