/* Gradients of a batch of files without a command line: their values against differences, their names, wrong batches. */
#include <math.h>

#include "core/files/npy.h"
#include "runs/gradients.h"
#include "tests/core/helpers.h"
#include "tests/support/json_memory.h"
#include "tests/support/support.h"

enum { STEPS = 6, BATCH = 3, INPUT = 2, HIDDEN = 4, CLASSES = 5 };

#define X "grad_x.npy"
#define Y "grad_y.npy"
#define H0 "grad_h0.npy"
#define GRAD_OUTPUT "grad_output.npy"

static const bppsa_gradients_files files = {.input = X, .labels = Y, .grad_output = GRAD_OUTPUT, .h0 = H0};

static void put_reals(const char *path, int32_t ndim, const int64_t *shape, uint64_t seed) {
  int64_t count = 1;
  for (int32_t i = 0; i < ndim; ++i) {
    count *= shape[i];
  }
  double *values = uniform(seed, count, 1);
  const bppsa_view view = bppsa_view_make(values, BPPSA_F64, ndim, shape);
  assert_int_equal(bppsa_npy_save(path, &view), BPPSA_OK);
  bppsa_free(values);
}

static void put_labels(int32_t ndim, const int64_t *shape, int64_t bad) {
  int64_t labels[STEPS * BATCH], count = 1;
  for (int32_t i = 0; i < ndim; ++i) {
    count *= shape[i];
  }
  for (int64_t i = 0; i < count; ++i) {
    labels[i] = i == 1 && bad != 0 ? bad : i % CLASSES;
  }
  const bppsa_view view = bppsa_view_make(labels, BPPSA_I64, ndim, shape);
  assert_int_equal(bppsa_npy_save(Y, &view), BPPSA_OK);
}

static void put_batch(void) {
  put_reals(X, 3, (int64_t[]){STEPS, BATCH, INPUT}, 3);
  put_reals(H0, 3, (int64_t[]){1, BATCH, HIDDEN}, 4);
  put_labels(1, (int64_t[]){BATCH}, 0);
}

static void begin(bppsa_backward backward, bppsa_gradients *g) {
  *g = (bppsa_gradients){.device = cpu_device(1)};
  assert_int_equal(bppsa_network_open("gru", NULL, &g->network), BPPSA_OK);
  g->config = bppsa_network_config_default(&g->network);
  g->config.input = INPUT;
  g->config.classes = CLASSES;
  g->config.steps.hidden = HIDDEN;
  g->config.dtype = BPPSA_F64;
  g->config.input_gradients = true;
  g->config.method = (bppsa_gradient_method){backward, bppsa_scan_method_of(BPPSA_SCAN_CHUNKED)};
  assert_int_equal(bppsa_objective_make("last", NULL, &g->objective), BPPSA_OK);
}

static bppsa_status compute(bppsa_gradients *g) {
  BPPSA_TRY(bppsa_gradients_load(&files, g));
  BPPSA_TRY(bppsa_network_create(&g->network, &g->config, g->device, &g->model));
  BPPSA_TRY(bppsa_network_init(&g->network, g->model, BPPSA_INIT_DEFAULT, 7));
  return bppsa_gradients_compute(g);
}

/* The loss of the batch where one element of a file is moved. */
static double moved_loss(const char *path, int64_t element, double step) {
  bppsa_buffer array;
  bppsa_gradients g;
  put_batch();
  assert_int_equal(bppsa_npy_load(path, &array), BPPSA_OK);
  ((double *)array.view.data)[element] += step;
  assert_int_equal(bppsa_npy_save(path, &array.view), BPPSA_OK);
  bppsa_buffer_free(&array);
  begin(BPPSA_BACKWARD_BP, &g);
  assert_int_equal(compute(&g), BPPSA_OK);
  const double loss = g.loss;
  bppsa_gradients_free(&g);
  return loss;
}

static const bppsa_view *find(const bppsa_gradients *g, const char *name) {
  for (int64_t i = 0; i < g->count; ++i) {
    if (strcmp(g->tensors[i].name, name) == 0) {
      return &g->tensors[i].view;
    }
  }
  fail_msg("no gradient of %s", name);
  return NULL;
}

/* By BP and by a scan: every parameter, input, h0 and loss; input and h0 against differences of the loss. */
static void test_values(void **state) {
  (void)state;
  const double step = 1e-5;
  for (int scan = 0; scan < 2; ++scan) {
    bppsa_gradients g;
    put_batch();
    begin(scan == 1 ? BPPSA_BACKWARD_SCAN : BPPSA_BACKWARD_BP, &g);
    assert_int_equal(compute(&g), BPPSA_OK);
    assert_int_equal(g.count, g.model->parameter_count + 3);
    assert_int_equal(find(&g, "gru.weight_hh_l0")->shape[0], 3 * HIDDEN);
    assert_true(bppsa_view_get(find(&g, "loss"), 0) == g.loss);
    const struct {
      const char *name, *path;
      int64_t element;
    } moved[] = {{"input", X, 0}, {"input", X, STEPS * BATCH * INPUT - 1}, {"h0", H0, 5}};
    for (int i = 0; i < 3; ++i) {
      const double slope =
          (moved_loss(moved[i].path, moved[i].element, step) - moved_loss(moved[i].path, moved[i].element, -step)) / (2 * step);
      assert_true(fabs(bppsa_view_get(find(&g, moved[i].name), moved[i].element) - slope) < 1e-8);
    }
    bppsa_safetensors *file = NULL;
    assert_int_equal(bppsa_gradients_save(&g, "grad.safetensors"), BPPSA_OK);
    assert_int_equal(bppsa_safetensors_load("grad.safetensors", &file), BPPSA_OK);
    assert_int_equal(bppsa_safetensors_count(file), g.count);
    assert_non_null(bppsa_safetensors_find(file, "h0"));
    bppsa_safetensors_destroy(file);
    json_t *document = bppsa_gradients_json(&g);
    assert_int_equal(json_array_size(json_object_get(document, "tensors")), g.count);
    assert_string_equal(json_string_value(json_object_get(document, "model")), "gru");
    assert_true(json_real_value(json_object_get(document, "loss")) == g.loss);
    json_decref(document);
    bppsa_text text = {0};
    bppsa_gradients_text(&g, "G.safetensors", &text);
    assert_non_null(strstr(text.text, scan == 1 ? "scan, chunked" : "sequential BP"));
    assert_non_null(strstr(text.text, "gru.bias_hh_l0"));
    assert_non_null(strstr(text.text, ", written to G.safetensors\n"));
    bppsa_text_free(&text);
    bppsa_gradients_free(&g);
  }
}

static void refuse(bppsa_status expected, const char *message) {
  bppsa_gradients g;
  begin(BPPSA_BACKWARD_BP, &g);
  assert_error(bppsa_gradients_load(&files, &g), expected, message);
  bppsa_gradients_free(&g);
}

static void test_refusals(void **state) {
  (void)state;
  put_batch();
  put_reals(X, 3, (int64_t[]){BATCH, INPUT, STEPS}, 3);
  refuse(BPPSA_ERR_SHAPE,
         X ": shape [3, 2, 6], expected [T, B, I] with T and B at least 1 and I = 2 as in the weights; its middle");
  put_reals(X, 2, (int64_t[]){STEPS, INPUT}, 3);
  refuse(BPPSA_ERR_SHAPE, "expected [T, B, I]");
  put_batch();
  put_labels(1, (int64_t[]){BATCH}, CLASSES);
  refuse(BPPSA_ERR_ARGUMENT, Y ": label 5 at [1], expected 0 .. 4");
  put_labels(1, (int64_t[]){STEPS}, 0); /* one a step: the batch looks as if samples came first */
  refuse(BPPSA_ERR_SHAPE, "expected 3: --input is [T, B, I] = [6, 3, 2], but looks like [B, T, I]");
  put_reals(Y, 1, (int64_t[]){BATCH}, 1);
  refuse(BPPSA_ERR_FORMAT, Y ": dtype f64, expected i64");
  put_batch();
  put_reals(H0, 3, (int64_t[]){2, BATCH, HIDDEN}, 4);
  refuse(BPPSA_ERR_SHAPE, H0);
  assert_int_equal(remove(H0), 0);
  refuse(BPPSA_ERR_ARGUMENT, H0 ": cannot open");
}

static void test_not_finite(void **state) {
  (void)state;
  bppsa_gradients g;
  put_batch();
  begin(BPPSA_BACKWARD_BP, &g);
  assert_int_equal(bppsa_gradients_load(&files, &g), BPPSA_OK);
  bppsa_view_set(&g.x.view, 0, (double)NAN);
  assert_int_equal(bppsa_network_create(&g.network, &g.config, g.device, &g.model), BPPSA_OK);
  assert_int_equal(bppsa_network_init(&g.network, g.model, BPPSA_INIT_DEFAULT, 7), BPPSA_OK);
  assert_int_equal(bppsa_gradients_compute(&g), BPPSA_ERR_NUMERIC);
  bppsa_gradients_free(&g);
}

static bppsa_status compute_all(void *argument) {
  bppsa_gradients g = {0};
  char *document = NULL;
  (void)argument;
  BPPSA_TRY(bppsa_device_create("cpu", 1, &g.device));
  bppsa_status status = bppsa_network_open("gru", NULL, &g.network);
  g.config = bppsa_network_config_default(&g.network);
  g.config.input = INPUT;
  g.config.classes = CLASSES;
  g.config.steps.hidden = HIDDEN;
  g.config.input_gradients = true;
  status = status == BPPSA_OK ? compute(&g) : status;
  status = status == BPPSA_OK ? bppsa_json_render(bppsa_gradients_json(&g), &document) : status;
  bppsa_free(document);
  bppsa_gradients_free(&g);
  return status;
}

static void test_memory(void **state) {
  (void)state;
  put_batch();
  assert_true(walk_allocations(compute_all, NULL) > 30);
}

int main(void) {
  count_json_memory();
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_refusals),
                                     cmocka_unit_test(test_not_finite), cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
