/* Adam, SGD and clipping against PyTorch's trajectories. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/alloc.h"
#include "train/optimizer.h"

/* Parameters a [2,3] and b [4] without a network. */
typedef struct {
  bppsa_model model;
  bppsa_parameter parameters[2];
  double storage[4][6]; /* a, its gradient, b, its gradient; as f32 or f64 */
} parameters;

static void parameters_init(parameters *p, bppsa_dtype dtype) {
  static const int64_t a_shape[2] = {2, 3}, b_shape[1] = {4};
  memset(p, 0, sizeof *p);
  p->parameters[0] = (bppsa_parameter){"a", bppsa_view_make(p->storage[0], dtype, 2, a_shape),
                                       bppsa_view_make(p->storage[1], dtype, 2, a_shape)};
  p->parameters[1] = (bppsa_parameter){"b", bppsa_view_make(p->storage[2], dtype, 1, b_shape),
                                       bppsa_view_make(p->storage[3], dtype, 1, b_shape)};
  p->model = (bppsa_model){.dtype = dtype, .parameter_count = 2, .parameters = p->parameters, .classes = 1};
  for (int64_t i = 0; i < 6; ++i) {
    bppsa_view_set(&p->parameters[0].value, i, (double)i * 0.25 - 0.6);
  }
  for (int64_t i = 0; i < 4; ++i) {
    bppsa_view_set(&p->parameters[1].value, i, (double)i * -0.4 + 0.7);
  }
}

/* Gradients of step k: multiples of 1/8. */
static void set_gradients(parameters *p, int64_t k) {
  for (int64_t j = 0; j < 2; ++j) {
    for (int64_t i = 0; i < bppsa_view_count(&p->parameters[j].value); ++i) {
      bppsa_view_set(&p->parameters[j].gradient, i, (double)((i * 7 + k * 5 + j * 3) % 23 - 11) / 8.0);
    }
  }
}

typedef struct {
  bppsa_optimizer_config config;
  double clip;
  double norms[5];   /* of the gradients, before clipping */
  double values[10]; /* a and b after five steps */
} trajectory;

/* torch.optim.Adam, torch.optim.SGD and torch.nn.utils.clip_grad_norm_ of PyTorch 1.13 in float64,
 * five steps with the gradients above. */
static const trajectory trajectories[] = {
    {{BPPSA_ADAM, 0.01, 0.0, 0.9, 0.999, 1e-8},
     0.0,
     {0},
     {-0.583480326082037, -0.38273913284983524, -0.10160473675783661, 0.17749285036228898, 0.39709312163644916,
      0.6220400404487509, 0.7125008443292099, 0.2804248313969365, -0.11736830492798787, -0.489970604998297}},
    {{BPPSA_SGD, 0.01, 0.0, 0.9, 0.999, 1e-8},
     0.0,
     {0},
     {-0.5962500000000001, -0.36124999999999996, -0.09749999999999998, 0.16625000000000004, 0.40125, 0.63625, 0.71375,
      0.29874999999999996, -0.11625000000000009, -0.5025000000000002}},
    {{BPPSA_SGD, 0.01, 0.9, 0.9, 0.999, 1e-8},
     0.0,
     {0},
     {-0.588663, -0.39904887499999997, -0.08727599999999996, 0.19419725000000007, 0.383811375, 0.5967130000000002,
      0.7166716249999999, 0.27957324999999994, -0.1365663750000001, -0.5050931250000003}},
    {{BPPSA_ADAM, 0.05, 0.0, 0.8, 0.95, 1e-3},
     1.5,
     {2.414150989478496, 2.5525722320827673, 2.666341125962693, 2.822897447659054, 2.564785566085399},
     {-0.5226894568656872, -0.5119990871377755, -0.10740438076649603, 0.28154977780260937, 0.385779970760347, 0.5156162123566026,
      0.7631097597649892, 0.20733597755707914, -0.1842584537230581, -0.45508046908243527}}};

static void follow(const trajectory *expected, bppsa_dtype dtype, double tolerance) {
  parameters p;
  bppsa_optimizer *optimizer = NULL;
  parameters_init(&p, dtype);
  assert_int_equal(bppsa_optimizer_create(&expected->config, &p.model, &optimizer), BPPSA_OK);
  for (int64_t k = 1; k <= 5; ++k) {
    set_gradients(&p, k);
    if (expected->clip > 0.0) {
      const double norm = bppsa_gradient_norm(&p.model, NULL);
      assert_true(fabs(norm - expected->norms[k - 1]) < 1e-15 * 8);
      bppsa_gradient_clip(&p.model, NULL, norm, expected->clip);
      assert_true(fabs(bppsa_gradient_norm(&p.model, NULL) - expected->clip) < 2e-6);
    }
    bppsa_optimizer_step(optimizer, NULL);
  }
  for (int64_t i = 0; i < 10; ++i) {
    const double value = i < 6 ? bppsa_view_get(&p.parameters[0].value, i) : bppsa_view_get(&p.parameters[1].value, i - 6);
    assert_true(fabs(value - expected->values[i]) < tolerance);
  }
  bppsa_optimizer_destroy(optimizer);
}

static void trajectories_are_pytorchs(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof trajectories / sizeof *trajectories; ++i) {
    follow(&trajectories[i], BPPSA_F64, 4e-16);
    follow(&trajectories[i], BPPSA_F32, 2.5e-7);
  }
}

/* The state has PyTorch's names, counts the steps, and carries a run on when it is copied. */
static void state_continues_a_run(void **state) {
  (void)state;
  parameters p, q;
  bppsa_optimizer *first = NULL, *second = NULL;
  const bppsa_optimizer_config config = bppsa_optimizer_config_default();
  parameters_init(&p, BPPSA_F64);
  parameters_init(&q, BPPSA_F64);
  assert_int_equal(bppsa_optimizer_create(&config, &p.model, &first), BPPSA_OK);
  assert_int_equal(bppsa_optimizer_create(&config, &q.model, &second), BPPSA_OK);
  for (int64_t k = 1; k <= 3; ++k) {
    set_gradients(&p, k);
    bppsa_optimizer_step(first, NULL);
  }
  bppsa_optimizer_state *from = bppsa_optimizer_get_state(first), *to = bppsa_optimizer_get_state(second);
  assert_int_equal(from->step, 3);
  assert_int_equal(from->count, 4);
  assert_string_equal(from->tensors[0].name, "a.exp_avg");
  assert_string_equal(from->tensors[3].name, "b.exp_avg_sq");
  assert_true(bppsa_view_same_shape(&from->tensors[1].view, &p.parameters[0].value));
  for (int64_t i = 0; i < from->count; ++i) {
    assert_int_equal(bppsa_view_convert(&from->tensors[i].view, &to->tensors[i].view), BPPSA_OK);
  }
  to->step = from->step;
  memcpy(q.storage, p.storage, sizeof q.storage);
  for (int64_t k = 4; k <= 6; ++k) {
    set_gradients(&p, k);
    set_gradients(&q, k);
    bppsa_optimizer_step(first, NULL);
    bppsa_optimizer_step(second, NULL);
  }
  assert_memory_equal(p.storage, q.storage, sizeof p.storage);
  bppsa_optimizer_destroy(first);
  bppsa_optimizer_destroy(second);
}

static void norm_neither_over_nor_underflows(void **state) {
  (void)state;
  parameters p;
  parameters_init(&p, BPPSA_F64);
  assert_true(bppsa_gradient_norm(&p.model, NULL) == 0.0);
  bppsa_view_set(&p.parameters[0].gradient, 2, 3e200);
  bppsa_view_set(&p.parameters[1].gradient, 1, -4e200);
  assert_true(fabs(bppsa_gradient_norm(&p.model, NULL) / 5e200 - 1.0) < 1e-15);
  bppsa_view_set(&p.parameters[0].gradient, 2, 3e-200);
  bppsa_view_set(&p.parameters[1].gradient, 1, -4e-200);
  assert_true(fabs(bppsa_gradient_norm(&p.model, NULL) / 5e-200 - 1.0) < 1e-15);
  bppsa_view_set(&p.parameters[1].gradient, 1, (double)NAN);
  assert_true(isnan(bppsa_gradient_norm(&p.model, NULL)));
  bppsa_view_set(&p.parameters[1].gradient, 1, -(double)INFINITY);
  assert_true(isinf(bppsa_gradient_norm(&p.model, NULL)));
}

static void small_gradients_are_not_clipped(void **state) {
  (void)state;
  parameters p, q;
  parameters_init(&p, BPPSA_F32);
  set_gradients(&p, 1);
  q = p;
  bppsa_gradient_clip(&p.model, NULL, bppsa_gradient_norm(&p.model, NULL), 100.0);
  assert_memory_equal(p.storage, q.storage, sizeof p.storage);
}

/* A large tensor, so that threads share it: norm, clip and both optimisers give the same bits. */
static void bits_do_not_depend_on_threads(void **state) {
  (void)state;
  enum { N = 70001 };
  static const int64_t threads[] = {1, 2, 7}, shape[1] = {N};
  float *value = malloc(sizeof(float) * N), *gradient = malloc(sizeof(float) * N), *first = malloc(sizeof(float) * N);
  double first_norm = 0.0;
  for (int kind = 0; kind < BPPSA_OPTIMIZER_COUNT; ++kind) {
    for (int k = 0; k < 3; ++k) {
      bppsa_optimizer_config config = bppsa_optimizer_config_default();
      bppsa_parameter parameter = {"w", bppsa_view_make(value, BPPSA_F32, 1, shape),
                                   bppsa_view_make(gradient, BPPSA_F32, 1, shape)};
      bppsa_model model = {.dtype = BPPSA_F32, .parameter_count = 1, .parameters = &parameter, .classes = 1};
      bppsa_optimizer *optimizer = NULL;
      bppsa_device *device = NULL;
      config.kind = (bppsa_optimizer_kind)kind;
      config.momentum = 0.5;
      for (int i = 0; i < N; ++i) {
        value[i] = sinf((float)i);
        gradient[i] = cosf((float)i * 0.7f);
      }
      assert_int_equal(bppsa_device_create("cpu", threads[k], &device), BPPSA_OK);
      assert_int_equal(bppsa_optimizer_create(&config, &model, &optimizer), BPPSA_OK);
      const double norm = bppsa_gradient_norm(&model, device);
      bppsa_gradient_clip(&model, device, norm, 1.0);
      bppsa_optimizer_step(optimizer, device);
      if (k == 0) {
        first_norm = norm;
        memcpy(first, value, sizeof(float) * N);
      }
      assert_memory_equal(&norm, &first_norm, sizeof norm);
      assert_memory_equal(value, first, sizeof(float) * N);
      bppsa_optimizer_destroy(optimizer);
      bppsa_device_destroy(device);
    }
  }
  free(value);
  free(gradient);
  free(first);
}

static void bad_settings_are_named(void **state) {
  (void)state;
  static const struct {
    bppsa_optimizer_config config;
    const char *says;
  } cases[] = {{{BPPSA_ADAM, 0.0, 0.0, 0.9, 0.999, 1e-8}, "learning rate 0"},
               {{BPPSA_ADAM, (double)NAN, 0.0, 0.9, 0.999, 1e-8}, "learning rate nan"},
               {{BPPSA_SGD, 0.1, 1.0, 0.9, 0.999, 1e-8}, "momentum 1, expected 0 <= momentum < 1"},
               {{BPPSA_ADAM, 0.1, 0.0, -0.5, 0.999, 1e-8}, "beta1 -0.5"},
               {{BPPSA_ADAM, 0.1, 0.0, 0.9, 1.0, 1e-8}, "beta2 1"},
               {{BPPSA_ADAM, 0.1, 0.0, 0.9, 0.999, -1.0}, "epsilon -1"},
               {{BPPSA_OPTIMIZER_COUNT, 0.1, 0.0, 0.9, 0.999, 1e-8}, "expected adam or sgd"}};
  parameters p;
  parameters_init(&p, BPPSA_F32);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    bppsa_optimizer *optimizer = NULL;
    assert_int_equal(bppsa_optimizer_create(&cases[i].config, &p.model, &optimizer), BPPSA_ERR_ARGUMENT);
    assert_null(optimizer);
    assert_non_null(strstr(bppsa_last_error(), cases[i].says));
  }
  bppsa_optimizer_kind kind = BPPSA_ADAM;
  assert_int_equal(bppsa_optimizer_parse("sgd", &kind), BPPSA_OK);
  assert_int_equal(kind, BPPSA_SGD);
  assert_string_equal(bppsa_optimizer_name(kind), "sgd");
  assert_int_equal(bppsa_optimizer_parse("adamw", &kind), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "'adamw': unknown, expected adam or sgd"));
}

static void out_of_memory_leaks_nothing(void **state) {
  (void)state;
  parameters p;
  parameters_init(&p, BPPSA_F64);
  const int64_t live = bppsa_alloc_live();
  const bppsa_optimizer_config config = bppsa_optimizer_config_default();
  bppsa_optimizer *optimizer = NULL;
  bppsa_status status = BPPSA_ERR_MEMORY;
  int64_t failures = 0;
  for (int64_t call = 1; status != BPPSA_OK; ++call) {
    bppsa_alloc_fail_at(call);
    status = bppsa_optimizer_create(&config, &p.model, &optimizer);
    bppsa_alloc_fail_at(0);
    if (status != BPPSA_OK) {
      assert_int_equal(status, BPPSA_ERR_MEMORY);
      assert_null(optimizer);
      assert_int_equal(bppsa_alloc_live(), live);
      ++failures;
    }
    assert_true(call < 100);
  }
  assert_true(failures >= 4 + 2 * 4); /* the object, three tables, and a buffer and a name per tensor */
  bppsa_alloc_fail_at(1);
  bppsa_optimizer_step(optimizer, NULL); /* needs no memory */
  assert_int_equal(bppsa_alloc_calls(), 0);
  bppsa_alloc_fail_at(0);
  bppsa_optimizer_destroy(optimizer);
  bppsa_optimizer_destroy(NULL);
  assert_int_equal(bppsa_alloc_live(), live);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(trajectories_are_pytorchs),        cmocka_unit_test(state_continues_a_run),
      cmocka_unit_test(norm_neither_over_nor_underflows), cmocka_unit_test(small_gradients_are_not_clipped),
      cmocka_unit_test(bits_do_not_depend_on_threads),    cmocka_unit_test(bad_settings_are_named),
      cmocka_unit_test(out_of_memory_leaks_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
