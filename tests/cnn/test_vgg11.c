/* VGG-11 on 3 x 32 x 32, B = 1, two up-levels (BPPSA §4.3, 5.3): 97 % of every layer's weights pruned, one backward pass through
 * the planned scan; and the memory that the unpruned network would need. */
#include <math.h>

#include "cnn/cnn.h"
#include "cnn/prune.h"
#include "tests/core/helpers.h"
#include "tests/support/support.h"

enum { WEIGHTS = 9 };

typedef struct {
  bppsa_cnn_network network;
  bppsa_device *device;
  bppsa_model *bp;
  bppsa_named_view masks[WEIGHTS];
  uint8_t *bytes[WEIGHTS];
  double *x, *seed;
  float *typed_x, *typed_seed;
} vgg;

static bppsa_cnn_config config_of(const vgg *v, bppsa_backward backward) {
  bppsa_cnn_config config = bppsa_cnn_config_default();
  config.batch = 1;
  config.method.backward = backward;
  config.method.scan.algorithm = BPPSA_SCAN_BLELLOCH;
  config.method.scan.up_levels = 2;
  config.memory_limit = (int64_t)8 << 30;
  config.masks = v->bytes[0] != NULL ? v->masks : NULL;
  config.mask_count = v->bytes[0] != NULL ? WEIGHTS : 0;
  return config;
}

static void backward_pass(const vgg *v, bppsa_model *model) {
  bppsa_view logits;
  const bppsa_view x = bppsa_view_make(v->typed_x, BPPSA_F32, 4, (int64_t[]){1, 3, 32, 32});
  const bppsa_view seed = bppsa_view_make(v->typed_seed, BPPSA_F32, 2, (int64_t[]){1, 10});
  assert_int_equal(model->ops->forward(model, &x, NULL, &logits), BPPSA_OK);
  assert_int_equal(model->ops->backward(model, &seed), BPPSA_OK);
}

/* PyTorch's initial weights, and masks that leave 3 % of every layer. */
static void make_vgg(vgg *v) {
  *v = (vgg){.device = cpu_device(2)};
  assert_int_equal(bppsa_cnn_network_builtin("vgg11", &v->network), BPPSA_OK);
  bppsa_cnn_config config = config_of(v, BPPSA_BACKWARD_BP);
  bppsa_model *dense = NULL;
  assert_int_equal(bppsa_cnn_create(&v->network, &config, v->device, &dense), BPPSA_OK);
  bppsa_cnn_init(dense, 0);
  bppsa_named_view weights[WEIGHTS];
  for (int i = 0; i < WEIGHTS; ++i) {
    const bppsa_parameter *p = &dense->parameters[2 * i];
    v->bytes[i] = bppsa_alloc((size_t)bppsa_view_count(&p->value));
    weights[i] = (bppsa_named_view){p->name, p->value};
    v->masks[i] = (bppsa_named_view){p->name, bppsa_view_make(v->bytes[i], BPPSA_BOOL, p->value.ndim, p->value.shape)};
  }
  assert_int_equal(bppsa_prune(BPPSA_PRUNE_CLASS_UNIFORM, 0.97, WEIGHTS, weights, v->bytes, NULL), BPPSA_OK);
  v->x = uniform(1, 3072, 2);
  v->seed = uniform(2, 10, 1);
  v->typed_x = rounded(BPPSA_F32, v->x, 3072);
  v->typed_seed = rounded(BPPSA_F32, v->seed, 10);
  config = config_of(v, BPPSA_BACKWARD_BP);
  assert_int_equal(bppsa_cnn_create(&v->network, &config, v->device, &v->bp), BPPSA_OK);
  for (int64_t p = 0; p < dense->parameter_count; ++p) {
    v->masks[p / 2].name = v->bp->parameters[p / 2 * 2].name; /* the dense model is destroyed */
    assert_int_equal(bppsa_view_convert(&dense->parameters[p].value, &v->bp->parameters[p].value), BPPSA_OK);
  }
  bppsa_model_destroy(dense);
  backward_pass(v, v->bp);
}

static void free_vgg(vgg *v) {
  for (int i = 0; i < WEIGHTS; ++i) {
    bppsa_free(v->bytes[i]);
  }
  bppsa_free(v->x);
  bppsa_free(v->seed);
  bppsa_free(v->typed_x);
  bppsa_free(v->typed_seed);
  bppsa_model_destroy(v->bp);
  bppsa_cnn_network_free(&v->network);
  bppsa_device_destroy(v->device);
}

/* Every weight's gradient of the scan against BP's: equal within the residual, not all 0. */
static void test_pruned(void **state) {
  (void)state;
  vgg v;
  make_vgg(&v);
  const bppsa_cnn_config config = config_of(&v, BPPSA_BACKWARD_SCAN);
  bppsa_model *scan = NULL;
  assert_int_equal(bppsa_cnn_create(&v.network, &config, v.device, &scan), BPPSA_OK);
  const bppsa_scan_totals *totals = bppsa_scan_plan_totals(bppsa_cnn_plan(scan));
  assert_int_equal(totals->mm, 14);
  assert_int_equal(totals->dead, 1);
  assert_int_equal(totals->mv, 20);
  assert_true(bppsa_alloc_live_bytes() < (int64_t)8 << 30);
  for (int64_t p = 0; p < scan->parameter_count; ++p) {
    assert_int_equal(bppsa_view_convert(&v.bp->parameters[p].value, &scan->parameters[p].value), BPPSA_OK);
  }
  backward_pass(&v, scan);
  for (int64_t p = 0; p < scan->parameter_count; ++p) {
    const bppsa_view *got = &scan->parameters[p].gradient, *expected = &v.bp->parameters[p].gradient;
    const int64_t count = bppsa_view_count(got);
    double *reference = bppsa_alloc((size_t)count * sizeof *reference), largest = 0;
    for (int64_t i = 0; i < count; ++i) {
      reference[i] = bppsa_view_get(expected, i);
      largest = fmax(largest, fabs(reference[i]));
    }
    assert_true(largest > 0);
    assert_true(residual(BPPSA_F32, got->data, reference, count, sqrt(21)) < 30);
    bppsa_free(reference);
  }
  bppsa_model_destroy(scan);
  free_vgg(&v);
}

/* The unpruned network with less memory than it needs is refused, with the bytes, before they are allocated. */
static void test_unpruned(void **state) {
  (void)state;
  vgg v = {.device = cpu_device(2)};
  assert_int_equal(bppsa_cnn_network_builtin("vgg11", &v.network), BPPSA_OK);
  bppsa_cnn_config config = config_of(&v, BPPSA_BACKWARD_SCAN);
  bppsa_model *model = NULL;
  config.memory_limit = (int64_t)500 << 20;
  const int64_t live = bppsa_alloc_live_bytes();
  assert_int_equal(bppsa_cnn_create(&v.network, &config, v.device, &model), BPPSA_ERR_ARGUMENT);
  assert_message("vgg11: needs at least ");
  assert_message("expected fewer than 524288000");
  assert_int_equal(bppsa_alloc_live_bytes(), live);
  bppsa_cnn_network_free(&v.network);
  bppsa_device_destroy(v.device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_pruned), cmocka_unit_test(test_unpruned)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
