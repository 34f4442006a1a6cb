/* Outputs of a data set: the arrays of the archive, their order, what stays when they cannot be written. */
#include <unistd.h>

#include "core/files/npy.h"
#include "runs/outputs.h"
#include "tests/core/helpers.h"
#include "tests/support/folder.h"
#include "tests/support/support.h"

#define FOLDER "outputs"
#define PATH FOLDER "/P.npz"

enum { STEPS = 5, SAMPLES = 7, BATCH = 3, HIDDEN = 2, CLASSES = 10, MOST = 1 << 16 };

typedef struct {
  bppsa_network network;
  bppsa_network_config config;
  bppsa_device *device;
  bppsa_dataset *dataset;
  bppsa_model *model;
} setting;

static void open_setting(bool every, setting *s) {
  const bppsa_dataset_options options = {.samples = SAMPLES, .seq_len = STEPS, .labels_per_step = every};
  *s = (setting){.device = cpu_device(1)};
  assert_int_equal(bppsa_network_open("rnn", NULL, &s->network), BPPSA_OK);
  assert_int_equal(bppsa_dataset_create("bitstream", &options, &s->dataset), BPPSA_OK);
  s->config = bppsa_network_config_default(&s->network);
  s->config.batch = BATCH;
  s->config.steps.hidden = HIDDEN;
  s->config.loss_all = every;
  assert_int_equal(bppsa_network_fit(&s->network, NULL, s->dataset, &s->config), BPPSA_OK);
  assert_int_equal(bppsa_network_create(&s->network, &s->config, s->device, &s->model), BPPSA_OK);
  assert_int_equal(bppsa_network_init(&s->network, s->model, BPPSA_INIT_DEFAULT, 1), BPPSA_OK);
}

static void close_setting(setting *s) {
  bppsa_model_destroy(s->model);
  bppsa_dataset_destroy(s->dataset);
  bppsa_device_destroy(s->device);
  bppsa_network_close(&s->network);
}

static bppsa_status write_outputs(setting *s, bool states) {
  bppsa_outputs *out = NULL;
  bppsa_evaluation result;
  BPPSA_TRY(bppsa_outputs_open(PATH, states, &s->network, &s->config, s->dataset, s->device, s->model, SAMPLES, &out));
  const bppsa_evaluation_sink sink = {bppsa_outputs_add, out};
  const bppsa_status status = bppsa_evaluate_each(s->model, s->dataset, s->device, 0, SAMPLES, BATCH, &sink, &result);
  if (status != BPPSA_OK) {
    bppsa_outputs_abort(out);
    return status;
  }
  return bppsa_outputs_commit(out);
}

/* The archive's members are stored, each beginning with NPY's first bytes, in the order in which they were announced. A member is
 * copied to where its numbers are aligned. */
enum { MEMBERS = 4 };
static char archive[MOST];
static _Alignas(BPPSA_ALIGNMENT) char copies[MEMBERS][MOST];
static bppsa_view member(int64_t index) {
  char *copy = copies[index];
  bppsa_view view = {.data = NULL};
  const long size = get_file(PATH, archive, sizeof archive);
  assert_true(size > 0 && size < (long)sizeof archive);
  for (long at = 0; at + 6 < size; ++at) {
    if (memcmp(archive + at, "\x93NUMPY", 6) == 0 && index-- == 0) {
      long end = at; /* the next member, or the directory */
      while (end + 4 < size && memcmp(archive + end, "PK\x03\x04", 4) != 0 && memcmp(archive + end, "PK\x01\x02", 4) != 0) {
        ++end;
      }
      memcpy(copy, archive + at, (size_t)(end - at));
      assert_int_equal(bppsa_npy_parse(PATH, copy, end - at, &view), BPPSA_OK);
      return view;
    }
  }
  return view;
}

static void assert_shape(const bppsa_view *view, int32_t ndim, const int64_t *shape) {
  assert_non_null(view->data);
  assert_int_equal(view->ndim, ndim);
  assert_memory_equal(view->shape, shape, (size_t)ndim * sizeof *shape);
}

/* Predictions are the classes of the largest logits; the head of the last state is the logits. */
static void check(setting *s, bool every) {
  const bppsa_view logits = member(0), predictions = member(1), states = member(2);
  const int64_t rows = every ? SAMPLES * STEPS : SAMPLES;
  if (every) {
    assert_shape(&logits, 3, (int64_t[]){SAMPLES, STEPS, CLASSES});
    assert_shape(&predictions, 2, (int64_t[]){SAMPLES, STEPS});
  } else {
    assert_shape(&logits, 2, (int64_t[]){SAMPLES, CLASSES});
    assert_shape(&predictions, 1, (int64_t[]){SAMPLES});
  }
  assert_shape(&states, 3, (int64_t[]){SAMPLES, STEPS, HIDDEN});
  const bppsa_view *weight = &s->model->parameters[s->model->parameter_count - 2].value,
                   *bias = &s->model->parameters[s->model->parameter_count - 1].value;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t state = every ? r : r * STEPS + STEPS - 1;
    int64_t best = 0;
    for (int64_t c = 0; c < CLASSES; ++c) {
      double expected = bppsa_view_get(bias, c);
      for (int64_t h = 0; h < HIDDEN; ++h) {
        expected += bppsa_view_get(weight, c * HIDDEN + h) * bppsa_view_get(&states, state * HIDDEN + h);
      }
      const double found = bppsa_view_get(&logits, r * CLASSES + c);
      assert_true(found - expected < 1e-5 && expected - found < 1e-5);
      best = found > bppsa_view_get(&logits, r * CLASSES + best) ? c : best;
    }
    assert_int_equal(((const int64_t *)predictions.data)[r], best);
  }
}

static void test_arrays(void **state) {
  (void)state;
  for (int every = 0; every < 2; ++every) {
    setting s;
    fresh_folder(FOLDER);
    open_setting(every == 1, &s);
    assert_int_equal(write_outputs(&s, true), BPPSA_OK);
    check(&s, every == 1);
    assert_null(member(3).data);
    assert_int_equal(write_outputs(&s, false), BPPSA_OK); /* without states there are two */
    assert_non_null(member(1).data);
    assert_null(member(2).data);
    close_setting(&s);
  }
}

/* An archive that is given up leaves nothing, and the path does not exist before it is complete. */
static void test_abort(void **state) {
  (void)state;
  setting s;
  bppsa_outputs *out = NULL;
  fresh_folder(FOLDER);
  open_setting(false, &s);
  assert_int_equal(bppsa_outputs_open(PATH, true, &s.network, &s.config, s.dataset, s.device, s.model, SAMPLES, &out), BPPSA_OK);
  assert_int_not_equal(access(PATH, F_OK), 0);
  bppsa_outputs_abort(out);
  assert_int_equal(entries(FOLDER), 0);
  out = NULL;
  assert_int_equal(bppsa_outputs_open("no/such/P.npz", true, &s.network, &s.config, s.dataset, s.device, s.model, SAMPLES, &out),
                   BPPSA_ERR_IO);
  assert_null(out);
  assert_int_equal(bppsa_outputs_commit(NULL), BPPSA_OK);
  bppsa_outputs_abort(NULL);
  close_setting(&s);
}

static bppsa_status write_all(void *s) {
  return write_outputs(s, true);
}

static void test_memory(void **state) {
  (void)state;
  setting s;
  fresh_folder(FOLDER);
  open_setting(true, &s);
  assert_true(walk_allocations(write_all, &s) > 5);
  assert_int_equal(entries(FOLDER), 1);
  close_setting(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_arrays), cmocka_unit_test(test_abort), cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
