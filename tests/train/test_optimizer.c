/* Adam, SGD and clipping against PyTorch's trajectories, on test_device(). */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/alloc.h"
#include "core/compute/memory.h"
#include "tests/support/support.h"
#include "train/optimizer_internal.h"

static bppsa_device *device;

static bool on_gpu(void) {
  return bppsa_device_get_kind(device) == BPPSA_CUDA;
}

/* Parameters a [2,3] and b [4] without a network. */
typedef struct {
  bppsa_model model;
  bppsa_parameter parameters[2];
  double storage[4][8]; /* a, b, their gradients; as f32 or f64. What is beyond them is a gap */
} parameters;

/* Moves a model's tensors from host memory to the test's GPU; they cover `reals` reals with their gaps. */
static void to_gpu(bppsa_model *model, int64_t reals) {
  if (!on_gpu()) {
    return;
  }
  const int64_t bytes = reals * (int64_t)bppsa_dtype_size(model->dtype);
  model->device = device;
  model->reals = reals;
  assert_int_equal(bppsa_memory_alloc(device, bytes, &model->device_values), BPPSA_OK);
  assert_int_equal(bppsa_memory_alloc(device, bytes, &model->device_gradients), BPPSA_OK);
  assert_int_equal(bppsa_model_push(model), BPPSA_OK);
}

static void from_gpu(bppsa_model *model) {
  bppsa_memory_free(model->device, model->device_values);
  bppsa_memory_free(model->device, model->device_gradients);
}

static void push_gradients(const bppsa_model *model) {
  if (model->device != NULL) {
    assert_int_equal(bppsa_memory_put(device, model->device_gradients, model->parameters[0].gradient.data,
                                      model->reals * (int64_t)bppsa_dtype_size(model->dtype)),
                     BPPSA_OK);
  }
}

static void parameters_init(parameters *p, bppsa_dtype dtype) {
  static const int64_t a_shape[2] = {2, 3}, b_shape[1] = {4};
  memset(p, 0, sizeof *p);
  p->parameters[0] = (bppsa_parameter){"a", bppsa_view_make(p->storage[0], dtype, 2, a_shape),
                                       bppsa_view_make(p->storage[2], dtype, 2, a_shape), false};
  p->parameters[1] = (bppsa_parameter){"b", bppsa_view_make(p->storage[1], dtype, 1, b_shape),
                                       bppsa_view_make(p->storage[3], dtype, 1, b_shape), false};
  p->model = (bppsa_model){.dtype = dtype, .parameter_count = 2, .parameters = p->parameters, .classes = 1};
  for (int64_t i = 0; i < 6; ++i) {
    bppsa_view_set(&p->parameters[0].value, i, (double)i * 0.25 - 0.6);
  }
  for (int64_t i = 0; i < 4; ++i) {
    bppsa_view_set(&p->parameters[1].value, i, (double)i * -0.4 + 0.7);
  }
  to_gpu(&p->model, 8 * (int64_t)(sizeof(double) / bppsa_dtype_size(dtype)) + 4);
}

/* Gradients of step k: multiples of 1/8. */
static void set_gradients(parameters *p, int64_t k) {
  for (int64_t j = 0; j < 2; ++j) {
    for (int64_t i = 0; i < bppsa_view_count(&p->parameters[j].value); ++i) {
      bppsa_view_set(&p->parameters[j].gradient, i, (double)((i * 7 + k * 5 + j * 3) % 23 - 11) / 8.0);
    }
  }
  push_gradients(&p->model);
}

typedef struct {
  bppsa_optimizer_config config;
  double clip;
  double norms[5];   /* of the gradients, before clipping */
  double values[10]; /* a and b after five steps */
} trajectory;

/* torch.optim.Adam, AdamW and SGD and torch.nn.utils.clip_grad_norm_ of PyTorch 1.13 in float64,
 * five steps with the gradients above. */
static const trajectory trajectories[] = {
    {{BPPSA_ADAM, 0.01, 0.0, 0.9, 0.999, 1e-8, 0.0},
     0.0,
     {0},
     {-0.583480326082037, -0.38273913284983524, -0.10160473675783661, 0.17749285036228898, 0.39709312163644916,
      0.6220400404487509, 0.7125008443292099, 0.2804248313969365, -0.11736830492798787, -0.489970604998297}},
    {{BPPSA_SGD, 0.01, 0.0, 0.9, 0.999, 1e-8, 0.0},
     0.0,
     {0},
     {-0.5962500000000001, -0.36124999999999996, -0.09749999999999998, 0.16625000000000004, 0.40125, 0.63625, 0.71375,
      0.29874999999999996, -0.11625000000000009, -0.5025000000000002}},
    {{BPPSA_SGD, 0.01, 0.9, 0.9, 0.999, 1e-8, 0.0},
     0.0,
     {0},
     {-0.588663, -0.39904887499999997, -0.08727599999999996, 0.19419725000000007, 0.383811375, 0.5967130000000002,
      0.7166716249999999, 0.27957324999999994, -0.1365663750000001, -0.5050931250000003}},
    {{BPPSA_ADAM, 0.05, 0.0, 0.8, 0.95, 1e-3, 0.0},
     1.5,
     {2.414150989478496, 2.5525722320827673, 2.666341125962693, 2.822897447659054, 2.564785566085399},
     {-0.5226894568656872, -0.5119990871377755, -0.10740438076649603, 0.28154977780260937, 0.385779970760347, 0.5156162123566026,
      0.7631097597649892, 0.20733597755707914, -0.1842584537230581, -0.45508046908243527}},
    /* with weight decay: an L2 term, or AdamW's own */
    {{BPPSA_ADAM, 0.01, 0.0, 0.9, 0.999, 1e-8, 0.3},
     0.0,
     {0},
     {-0.5754453081965667, -0.37910403244382196, -0.10034190137681559, 0.17557034634661922, 0.3917310873704033,
      0.6168940525240761, 0.6991633398521231, 0.27739437550160867, -0.11605130687941115, -0.48242520887850887}},
    {{BPPSA_ADAMW, 0.01, 0.0, 0.9, 0.999, 1e-8, 0.3},
     0.0,
     {0},
     {-0.5747219980623998, -0.3772626368942009, -0.10003838991383285, 0.17502659403338358, 0.39110744122569996,
      0.6125819345082252, 0.7019554039209298, 0.27616098405871253, -0.11573660939292504, -0.4826744545561578}},
    {{BPPSA_SGD, 0.01, 0.0, 0.9, 0.999, 1e-8, 0.3},
     0.0,
     {0},
     {-0.5873409453359967, -0.3558930490542661, -0.09603911854878569, 0.1639015771302736, 0.39534947341200405, 0.6267113784437346,
      0.7033016171961337, 0.294355197464772, -0.11467695554283953, -0.4950445846268725}},
    {{BPPSA_SGD, 0.01, 0.9, 0.9, 0.999, 1e-8, 0.3},
     0.0,
     {0},
     {-0.5654989122729568, -0.38494763299782614, -0.08325620837394569, 0.18776391590401356, 0.3683151951791441,
      0.5719127332042746, 0.6891972955117538, 0.268244893317252, -0.13219863102849952, -0.48572844697017253}},
    {{BPPSA_ADAMW, 0.05, 0.0, 0.8, 0.95, 1e-3, 0.3},
     1.5,
     {2.414150989478496, 2.5525722320827673, 2.666341125962693, 2.822897447659054, 2.564785566085399},
     {-0.4834237662747845, -0.48010282328980386, -0.0984061536106691, 0.2651758031338422, 0.35631237184888453, 0.4739839856478098,
      0.7096443798391681, 0.19057799674595524, -0.17365974812994692, -0.4223732479444078}},
    {{BPPSA_ADAM, 0.05, 0.0, 0.8, 0.95, 1e-3, 0.3},
     1.5,
     {2.414150989478496, 2.5525722320827673, 2.666341125962693, 2.822897447659054, 2.564785566085399},
     {-0.46405515811650333, -0.3823183875459136, -0.09526312570634352, 0.25858260620132356, 0.2511612654219961,
      0.47881445937366135, 0.6603035273840483, 0.18672350281901604, -0.1698354159818416, -0.3989088437524149}}};

/* Step k; the processor's, piece by piece. */
static void step(parameters *p, bppsa_optimizer *optimizer, const trajectory *expected, int64_t k) {
  double norm = 0.0;
  set_gradients(p, k);
  if (on_gpu()) {
    assert_int_equal(bppsa_optimizer_update(optimizer, device, expected->clip, &norm), BPPSA_OK);
  } else if (expected->clip > 0.0) {
    norm = bppsa_gradient_norm(&p->model, NULL);
    bppsa_gradient_clip(&p->model, NULL, norm, expected->clip);
    assert_true(fabs(bppsa_gradient_norm(&p->model, NULL) - expected->clip) < 2e-6);
  }
  if (!on_gpu()) {
    bppsa_optimizer_step(optimizer, NULL);
  }
  if (expected->clip > 0.0) {
    assert_true(fabs(norm - expected->norms[k - 1]) < 1e-15 * 8);
  }
}

static void follow(const trajectory *expected, bppsa_dtype dtype, double tolerance) {
  parameters p;
  bppsa_optimizer *optimizer = NULL;
  parameters_init(&p, dtype);
  assert_int_equal(bppsa_optimizer_create(&expected->config, &p.model, &optimizer), BPPSA_OK);
  for (int64_t k = 1; k <= 5; ++k) {
    step(&p, optimizer, expected, k);
  }
  assert_int_equal(bppsa_model_pull(&p.model, false), BPPSA_OK);
  for (int64_t i = 0; i < 10; ++i) {
    const double value = i < 6 ? bppsa_view_get(&p.parameters[0].value, i) : bppsa_view_get(&p.parameters[1].value, i - 6);
    assert_true(fabs(value - expected->values[i]) < tolerance);
  }
  bppsa_optimizer_destroy(optimizer);
  from_gpu(&p.model);
}

static void trajectories_are_pytorchs(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof trajectories / sizeof *trajectories; ++i) {
    follow(&trajectories[i], BPPSA_F64, 4e-16);
    follow(&trajectories[i], BPPSA_F32, 2.5e-7);
  }
}

/* The state has PyTorch's names, counts the steps, and continues a run when it is copied. */
static void state_continues_a_run(void **state) {
  (void)state;
  parameters p, q;
  bppsa_optimizer *first = NULL, *second = NULL;
  const bppsa_optimizer_config config = bppsa_optimizer_config_default();
  parameters_init(&p, BPPSA_F64);
  parameters_init(&q, BPPSA_F64);
  assert_int_equal(bppsa_optimizer_create(&config, &p.model, &first), BPPSA_OK);
  assert_int_equal(bppsa_optimizer_create(&config, &q.model, &second), BPPSA_OK);
  double norm;
  for (int64_t k = 1; k <= 3; ++k) {
    set_gradients(&p, k);
    assert_int_equal(bppsa_optimizer_update(first, device, 0.0, &norm), BPPSA_OK);
  }
  assert_int_equal(bppsa_optimizer_pull(first), BPPSA_OK);
  assert_int_equal(bppsa_model_pull(&p.model, false), BPPSA_OK);
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
  assert_int_equal(bppsa_optimizer_push(second), BPPSA_OK);
  assert_int_equal(bppsa_model_push(&q.model), BPPSA_OK);
  for (int64_t k = 4; k <= 6; ++k) {
    set_gradients(&p, k);
    set_gradients(&q, k);
    assert_int_equal(bppsa_optimizer_update(first, device, 0.0, &norm), BPPSA_OK);
    assert_int_equal(bppsa_optimizer_update(second, device, 0.0, &norm), BPPSA_OK);
  }
  assert_int_equal(bppsa_model_pull(&p.model, false), BPPSA_OK);
  assert_int_equal(bppsa_model_pull(&q.model, false), BPPSA_OK);
  assert_memory_equal(p.storage, q.storage, sizeof p.storage);
  bppsa_optimizer_destroy(first);
  bppsa_optimizer_destroy(second);
  from_gpu(&p.model);
  from_gpu(&q.model);
}

/* Of a GPU: what its update finds. */
static double norm_of(parameters *p) {
  const bppsa_optimizer_config config = {BPPSA_SGD, 1e-3, 0.0, 0.0, 0.0, 0.0, 0.0};
  bppsa_optimizer *optimizer = NULL;
  double norm;
  if (!on_gpu()) {
    return bppsa_gradient_norm(&p->model, NULL);
  }
  push_gradients(&p->model);
  assert_int_equal(bppsa_optimizer_create(&config, &p->model, &optimizer), BPPSA_OK);
  assert_int_equal(bppsa_optimizer_update(optimizer, device, 0.0, &norm), BPPSA_OK);
  assert_int_equal(bppsa_optimizer_get_state(optimizer)->step, isfinite(norm) ? 1 : 0);
  bppsa_optimizer_destroy(optimizer);
  return norm;
}

static void norm_neither_over_nor_underflows(void **state) {
  (void)state;
  parameters p;
  parameters_init(&p, BPPSA_F64);
  assert_true(norm_of(&p) == 0.0);
  bppsa_view_set(&p.parameters[0].gradient, 2, 3e200);
  bppsa_view_set(&p.parameters[1].gradient, 1, -4e200);
  assert_true(fabs(norm_of(&p) / 5e200 - 1.0) < 1e-15);
  bppsa_view_set(&p.parameters[0].gradient, 2, 3e-200);
  bppsa_view_set(&p.parameters[1].gradient, 1, -4e-200);
  assert_true(fabs(norm_of(&p) / 5e-200 - 1.0) < 1e-15);
  bppsa_view_set(&p.parameters[0].gradient, 2, 3 * 0x1p-1070);
  bppsa_view_set(&p.parameters[1].gradient, 1, 0x1p-1068);
  assert_true(norm_of(&p) == 5 * 0x1p-1070);
  bppsa_view_set(&p.parameters[0].gradient, 2, DBL_MAX / 2);
  bppsa_view_set(&p.parameters[1].gradient, 1, DBL_MAX / 2);
  assert_true(fabs(norm_of(&p) / (sqrt(0.5) * DBL_MAX) - 1.0) < 1e-15);
  bppsa_view_set(&p.parameters[1].gradient, 1, DBL_MAX);
  assert_true(isinf(norm_of(&p)));
  bppsa_view_set(&p.parameters[1].gradient, 1, (double)NAN);
  assert_true(isnan(norm_of(&p)));
  bppsa_view_set(&p.parameters[1].gradient, 1, -(double)INFINITY);
  assert_true(isinf(norm_of(&p)));
  from_gpu(&p.model);
}

static void small_gradients_are_not_clipped(void **state) {
  (void)state;
  parameters p, q;
  double norm;
  bppsa_optimizer *plain = NULL, *clipped = NULL;
  const bppsa_optimizer_config config = bppsa_optimizer_config_default();
  parameters_init(&p, BPPSA_F32);
  parameters_init(&q, BPPSA_F32);
  set_gradients(&p, 1);
  set_gradients(&q, 1);
  assert_int_equal(bppsa_optimizer_create(&config, &p.model, &plain), BPPSA_OK);
  assert_int_equal(bppsa_optimizer_create(&config, &q.model, &clipped), BPPSA_OK);
  assert_int_equal(bppsa_optimizer_update(plain, device, 0.0, &norm), BPPSA_OK);
  assert_int_equal(bppsa_optimizer_update(clipped, device, 100.0, &norm), BPPSA_OK);
  assert_int_equal(bppsa_model_pull(&p.model, false), BPPSA_OK);
  assert_int_equal(bppsa_model_pull(&q.model, false), BPPSA_OK);
  assert_memory_equal(p.storage, q.storage, sizeof p.storage);
  bppsa_optimizer_destroy(plain);
  bppsa_optimizer_destroy(clipped);
  from_gpu(&p.model);
  from_gpu(&q.model);
}

/* ---- the test's device and the processor ---- */

enum { GAP = 5 };

/* A tensor of two thirds of n, a gap, and one of the rest. */
typedef struct {
  bppsa_model model;
  bppsa_parameter parameters[2];
  char *values, *gradients;
  bppsa_optimizer *optimizer;
} pair;

static void pair_make(pair *p, const bppsa_optimizer_config *config, bppsa_dtype dtype, int64_t n, bool gpu) {
  const int64_t second = n / 3, first = n - second, size = (int64_t)bppsa_dtype_size(dtype), at = (first + GAP) * size;
  memset(p, 0, sizeof *p);
  p->values = calloc((size_t)(n + GAP), (size_t)size);
  p->gradients = calloc((size_t)(n + GAP), (size_t)size);
  p->parameters[0] = (bppsa_parameter){"a", bppsa_view_make(p->values, dtype, 1, &first),
                                       bppsa_view_make(p->gradients, dtype, 1, &first), false};
  p->parameters[1] = (bppsa_parameter){"b", bppsa_view_make(p->values + at, dtype, 1, &second),
                                       bppsa_view_make(p->gradients + at, dtype, 1, &second), false};
  p->model = (bppsa_model){.dtype = dtype, .parameter_count = second > 0 ? 2 : 1, .parameters = p->parameters, .classes = 1};
  for (int64_t i = 0; i < n; ++i) {
    bppsa_view_set(&p->parameters[i < first ? 0 : 1].value, i < first ? i : i - first, sin((double)i));
  }
  if (gpu) {
    to_gpu(&p->model, second > 0 ? n + GAP : n);
  }
  assert_int_equal(bppsa_optimizer_create(config, &p->model, &p->optimizer), BPPSA_OK);
}

static void pair_step(pair *p, int64_t k, double scale, double clip, double *norm) {
  for (int64_t j = 0; j < p->model.parameter_count; ++j) {
    for (int64_t i = 0; i < bppsa_view_count(&p->parameters[j].gradient); ++i) {
      bppsa_view_set(&p->parameters[j].gradient, i, scale * cos((double)(i * 3 + j + 7 * k)));
    }
  }
  push_gradients(&p->model);
  assert_int_equal(bppsa_optimizer_update(p->optimizer, device, clip, norm), BPPSA_OK);
  assert_int_equal(bppsa_model_pull(&p->model, false), BPPSA_OK);
  assert_int_equal(bppsa_optimizer_pull(p->optimizer), BPPSA_OK);
}

static void pair_free(pair *p) {
  bppsa_optimizer_destroy(p->optimizer);
  from_gpu(&p->model);
  free(p->values);
  free(p->gradients);
}

static void assert_same_tensors(const pair *a, const pair *b) {
  const bppsa_optimizer_state *left = bppsa_optimizer_get_state(a->optimizer), *right = bppsa_optimizer_get_state(b->optimizer);
  for (int64_t j = 0; j < a->model.parameter_count; ++j) {
    assert_memory_equal(a->parameters[j].value.data, b->parameters[j].value.data, bppsa_view_bytes(&a->parameters[j].value));
  }
  for (int64_t t = 0; t < left->count; ++t) {
    assert_memory_equal(left->tensors[t].view.data, right->tensors[t].view.data, bppsa_view_bytes(&left->tensors[t].view));
  }
  assert_int_equal(left->step, right->step);
}

/* Unclipped, equal gradients give the CPU's bits; clipped, they depend on the last digit of the norm; both repeat bit for bit. */
static void devices_agree(void **state) {
  (void)state;
  static const struct {
    bppsa_optimizer_config config;
    double clip;
  } cases[] = {{{BPPSA_ADAM, 0.01, 0.0, 0.9, 0.999, 1e-8, 0.0}, 0.0},  {{BPPSA_ADAM, 0.01, 0.0, 0.9, 0.999, 0.0, 0.0}, 0.25},
               {{BPPSA_SGD, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0}, 0.0},       {{BPPSA_SGD, 0.1, 0.9, 0.0, 0.0, 0.0, 0.0}, 0.5},
               {{BPPSA_ADAMW, 0.01, 0.0, 0.9, 0.999, 1e-8, 0.2}, 0.0}, {{BPPSA_SGD, 0.1, 0.9, 0.0, 0.0, 0.0, 0.2}, 0.0}};
  enum { CASES = sizeof cases / sizeof cases[0], KINDS = 2 * CASES };
  static const int64_t sizes[] = {1, 31, 2048 - GAP, 2049, 7000, 131073};
  for (size_t k = 0; k < sizeof sizes / sizeof sizes[0] * KINDS; ++k) {
    const int64_t n = sizes[k / KINDS];
    const bppsa_dtype dtype = k % 2 == 0 ? BPPSA_F32 : BPPSA_F64;
    const bppsa_optimizer_config *config = &cases[k / 2 % CASES].config;
    const double clip = cases[k / 2 % CASES].clip, scale = dtype == BPPSA_F64 && k % 3 == 0 ? 0x1p-490 : 1.0;
    pair host, here, again;
    double norms[3];
    if (is_emulated(device) && ((n > 2048 && k % KINDS != 0 && k % KINDS != 7) || (n > 10000 && k % KINDS == 7))) {
      continue;
    }
    pair_make(&host, config, dtype, n, false);
    pair_make(&here, config, dtype, n, true);
    pair_make(&again, config, dtype, n, true);
    for (int64_t s = 1; s <= 2; ++s) {
      pair_step(&host, s, scale, clip, &norms[0]);
      pair_step(&here, s, scale, clip, &norms[1]);
      pair_step(&again, s, scale, clip, &norms[2]);
      assert_true(fabs(norms[1] / norms[0] - 1.0) < 1e-13);
      assert_memory_equal(&norms[1], &norms[2], sizeof norms[1]);
      assert_same_tensors(&here, &again);
      if (clip == 0.0) {
        assert_same_tensors(&host, &here);
      }
      for (int64_t i = 0; i < GAP && here.model.parameter_count == 2; ++i) { /* gaps stay 0 */
        assert_true(bppsa_view_get(&(bppsa_view){.data = here.values, .dtype = dtype}, n - n / 3 + i) == 0.0);
      }
      for (int64_t i = 0; i < bppsa_view_count(&host.parameters[0].value); ++i) {
        const double error = bppsa_view_get(&host.parameters[0].value, i) - bppsa_view_get(&here.parameters[0].value, i);
        assert_true(fabs(error) < (dtype == BPPSA_F32 ? 3e-7 : 3e-15));
      }
    }
    pair_free(&host);
    pair_free(&here);
    pair_free(&again);
  }
}

/* A queued update changes nothing if the loss is not finite, and reports values that are not finite. */
static void queued_updates_look_at_loss_and_values(void **state) {
  (void)state;
  if (!on_gpu()) {
    return;
  }
  for (int64_t n = 40; n <= 4000; n *= 100) {
    for (int what = 0; what < 3; ++what) { /* a good step, a bad loss, a step too long */
      bppsa_optimizer_config config = {BPPSA_SGD, what == 2 ? 1e39 : 0.1, 0.0, 0.0, 0.0, 0.0, 0.0};
      const bppsa_gpu_result before = {.loss = what == 1 ? (double)NAN : 1.0, .nonfinite = 7};
      bppsa_gpu_result after = {0};
      bppsa_step_factors factors;
      pair p, untouched;
      double norm;
      pair_make(&p, &config, BPPSA_F32, n, true);
      config.lr = 0.1;
      pair_make(&untouched, &config, BPPSA_F32, n, true);
      pair_step(&untouched, 1, 1.0, 0.0, &norm); /* fills its gradients */
      memcpy(p.gradients, untouched.gradients, sizeof(float) * (size_t)(n + GAP));
      push_gradients(&p.model);
      void *result = on_device(device, &before, sizeof before);
      factors = bppsa_optimizer_begin(p.optimizer);
      void *device_factors = on_device(device, &factors, sizeof factors);
      assert_int_equal(bppsa_optimizer_queue(p.optimizer, 0.0, device_factors, result), BPPSA_OK);
      assert_int_equal(bppsa_memory_get(device, &after, result, sizeof after), BPPSA_OK);
      assert_int_equal(bppsa_model_pull(&p.model, false), BPPSA_OK);
      assert_true(after.norm == norm);
      assert_int_equal(after.nonfinite, what == 2 ? 1 : 0);
      assert_true((bppsa_view_get(&p.parameters[0].value, 5) == (double)sinf(5.0f)) == (what == 1));
      bppsa_memory_free(device, result);
      bppsa_memory_free(device, device_factors);
      pair_free(&p);
      pair_free(&untouched);
    }
  }
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
                                   bppsa_view_make(gradient, BPPSA_F32, 1, shape), false};
      bppsa_model model = {.dtype = BPPSA_F32, .parameter_count = 1, .parameters = &parameter, .classes = 1};
      bppsa_optimizer *optimizer = NULL;
      bppsa_device *cpu = cpu_device(threads[k]);
      config.kind = (bppsa_optimizer_kind)kind;
      config.momentum = 0.5;
      for (int i = 0; i < N; ++i) {
        value[i] = sinf((float)i);
        gradient[i] = cosf((float)i * 0.7f);
      }
      assert_int_equal(bppsa_optimizer_create(&config, &model, &optimizer), BPPSA_OK);
      const double norm = bppsa_gradient_norm(&model, cpu);
      bppsa_gradient_clip(&model, cpu, norm, 1.0);
      bppsa_optimizer_step(optimizer, cpu);
      if (k == 0) {
        first_norm = norm;
        memcpy(first, value, sizeof(float) * N);
      }
      assert_memory_equal(&norm, &first_norm, sizeof norm);
      assert_memory_equal(value, first, sizeof(float) * N);
      bppsa_optimizer_destroy(optimizer);
      bppsa_device_destroy(cpu);
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
  } cases[] = {{{BPPSA_ADAM, 0.0, 0.0, 0.9, 0.999, 1e-8, 0.0}, "learning rate 0"},
               {{BPPSA_ADAM, (double)NAN, 0.0, 0.9, 0.999, 1e-8, 0.0}, "learning rate nan"},
               {{BPPSA_SGD, 0.1, 1.0, 0.9, 0.999, 1e-8, 0.0}, "momentum 1, expected 0 <= momentum < 1"},
               {{BPPSA_ADAM, 0.1, 0.0, -0.5, 0.999, 1e-8, 0.0}, "beta1 -0.5"},
               {{BPPSA_ADAM, 0.1, 0.0, 0.9, 1.0, 1e-8, 0.0}, "beta2 1"},
               {{BPPSA_ADAM, 0.1, 0.0, 0.9, 0.999, -1.0, 0.0}, "epsilon -1"},
               {{BPPSA_OPTIMIZER_COUNT, 0.1, 0.0, 0.9, 0.999, 1e-8, 0.0}, "expected adam, sgd or adamw"},
               {{BPPSA_SGD, 0.1, 0.0, 0.9, 0.999, 1e-8, -0.1}, "weight decay -0.1"},
               {{BPPSA_ADAMW, 0.1, 0.0, 0.9, 0.999, 1e-8, (double)INFINITY}, "weight decay inf"}};
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
  assert_int_equal(bppsa_optimizer_parse("adamw", &kind), BPPSA_OK);
  assert_int_equal(kind, BPPSA_ADAMW);
  assert_int_equal(bppsa_optimizer_parse("lion", &kind), BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "'lion': unknown, expected adam, sgd or adamw"));
  from_gpu(&p.model);
}

static void out_of_memory_leaks_nothing(void **state) {
  (void)state;
  parameters p;
  parameters_init(&p, BPPSA_F64);
  set_gradients(&p, 1);
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
  double norm;
  bppsa_alloc_fail_at(1);
  assert_int_equal(bppsa_optimizer_update(optimizer, device, 1.0, &norm), BPPSA_OK); /* needs no memory */
  assert_int_equal(bppsa_alloc_calls(), 0);
  bppsa_alloc_fail_at(0);
  bppsa_optimizer_destroy(optimizer);
  bppsa_optimizer_destroy(NULL);
  assert_int_equal(bppsa_alloc_live(), live);
  from_gpu(&p.model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(trajectories_are_pytorchs),
      cmocka_unit_test(state_continues_a_run),
      cmocka_unit_test(norm_neither_over_nor_underflows),
      cmocka_unit_test(small_gradients_are_not_clipped),
      cmocka_unit_test(devices_agree),
      cmocka_unit_test(queued_updates_look_at_loss_and_values),
      cmocka_unit_test(bits_do_not_depend_on_threads),
      cmocka_unit_test(bad_settings_are_named),
      cmocka_unit_test(out_of_memory_leaks_nothing),
  };
  device = test_device(1);
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  bppsa_device_destroy(device);
  return failed;
}
