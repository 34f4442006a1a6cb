/* A step of training in one call: the bits of the four calls behind it, step after step, and what it refuses. */
#include <math.h>

#include "gru/gru.h"
#include "recurrent/recurrent.h"
#include "tests/core/helpers.h"
#include "train/model_step.h"

enum { T = 7, B = 3, I = 2, H = 4, C = 3, STEPS = 5 };

static bppsa_device *device;

typedef struct {
  bppsa_model *model;
  bppsa_optimizer *optimizer;
} learner;

static learner make(void) {
  learner made = {NULL, NULL};
  bppsa_recurrent_config config = bppsa_recurrent_config_default();
  const bppsa_optimizer_config adam = bppsa_optimizer_config_default();
  config.seq_len = T;
  config.batch = B;
  config.input = I;
  config.hidden = H;
  config.classes = C;
  config.dtype = BPPSA_F64;
  assert_int_equal(bppsa_recurrent_create(&config, &bppsa_gru_cell, device, &made.model), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_init(made.model, BPPSA_INIT_DEFAULT, 1), BPPSA_OK);
  assert_int_equal(bppsa_optimizer_create(&adam, made.model, &made.optimizer), BPPSA_OK);
  return made;
}

static void discard(learner *l) {
  bppsa_optimizer_destroy(l->optimizer);
  bppsa_model_destroy(l->model);
}

static void assert_same_weights(const learner *a, const learner *b) {
  for (int64_t i = 0; i < a->model->parameter_count; ++i) {
    const bppsa_view *value = &a->model->parameters[i].value;
    assert_memory_equal(value->data, b->model->parameters[i].value.data, bppsa_view_bytes(value));
  }
}

static bppsa_view fill(double x[T * B * I], int64_t labels[B], int step) {
  for (int i = 0; i < T * B * I; ++i) {
    x[i] = sin(i + 10 * step);
  }
  for (int b = 0; b < B; ++b) {
    labels[b] = (b + step) % C;
  }
  return bppsa_view_make(x, BPPSA_F64, 3, (int64_t[]){T, B, I});
}

static bppsa_status four_calls(const learner *l, const bppsa_view *x, const int64_t *labels, bppsa_loss_result *result) {
  double data[B * C], norm;
  const bppsa_view seed = bppsa_view_make(data, BPPSA_F64, 2, (int64_t[]){B, C});
  bppsa_view logits;
  BPPSA_TRY(bppsa_model_forward(l->model, x, NULL, NULL, &logits));
  BPPSA_TRY(bppsa_cross_entropy(device, &logits, labels, &seed, result));
  BPPSA_TRY(bppsa_model_backward(l->model, &seed));
  return bppsa_optimizer_update(l->optimizer, device, 0, &norm);
}

static void test_bits(void **state) {
  (void)state;
  learner one = make(), four = make();
  double x[T * B * I], first = 0;
  int64_t labels[B];
  for (int step = 0; step < STEPS; ++step) {
    const bppsa_view input = fill(x, labels, 0);
    bppsa_loss_result found, expected;
    assert_int_equal(bppsa_model_step(one.model, one.optimizer, device, &input, labels, &found), BPPSA_OK);
    assert_int_equal(four_calls(&four, &input, labels, &expected), BPPSA_OK);
    assert_memory_equal(&found.loss, &expected.loss, sizeof found.loss);
    assert_int_equal(found.correct, expected.correct);
    assert_int_equal(found.rows, B);
    assert_same_weights(&one, &four);
    first = step == 0 ? found.loss : first;
    assert_true(step == 0 || found.loss < first); /* it learns */
  }
  discard(&one);
  discard(&four);
}

/* A step that is refused changes no weight, and the next one goes on. */
static void test_refused(void **state) {
  (void)state;
  learner one = make(), four = make();
  double x[T * B * I];
  int64_t labels[B];
  const bppsa_view input = fill(x, labels, 0);
  const bppsa_view narrow = bppsa_view_make(x, BPPSA_F64, 3, (int64_t[]){T, B, I - 1});
  bppsa_loss_result result = {.loss = -1};
  assert_int_equal(bppsa_model_step(one.model, one.optimizer, device, &narrow, labels, &result), BPPSA_ERR_SHAPE);
  labels[1] = C;
  assert_error(bppsa_model_step(one.model, one.optimizer, device, &input, labels, &result), BPPSA_ERR_ARGUMENT, "label");
  labels[1] = 0;
  x[3] = NAN;
  assert_error(bppsa_model_step(one.model, one.optimizer, device, &input, labels, &result), BPPSA_ERR_NUMERIC, "not finite");
  assert_error(bppsa_model_step(one.model, NULL, device, &input, labels, &result), BPPSA_ERR_ARGUMENT, "optimizer != NULL");
  assert_true(result.loss == -1);
  assert_same_weights(&one, &four);
  (void)fill(x, labels, 1);
  bppsa_loss_result expected;
  assert_int_equal(bppsa_model_step(one.model, one.optimizer, device, &input, labels, &result), BPPSA_OK);
  assert_int_equal(four_calls(&four, &input, labels, &expected), BPPSA_OK);
  assert_same_weights(&one, &four);
  discard(&one);
  discard(&four);
}

static bppsa_status step_once(void *context) {
  const learner *l = context;
  double x[T * B * I];
  int64_t labels[B];
  bppsa_loss_result result;
  const bppsa_view input = fill(x, labels, 2);
  return bppsa_model_step(l->model, l->optimizer, device, &input, labels, &result);
}

static void test_memory(void **state) {
  (void)state;
  learner one = make();
  assert_true(walk_allocations(step_once, &one) > 0);
  discard(&one);
}

int main(void) {
  if (bppsa_device_create("cpu", 1, &device) != BPPSA_OK) {
    return 1;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits), cmocka_unit_test(test_refused), cmocka_unit_test(test_memory)};
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  bppsa_device_destroy(device);
  return failed;
}
