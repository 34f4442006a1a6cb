/* The claims of the main job: BP and every scan algorithm train the same network. T = 1000, B = 16, H = 20, as in BPPSA §4.1,
 * and a shorter GRU; fewer iterations on every push. */
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "gru/gru.h"
#include "recurrent/recurrent.h"
#include "rnn/rnn.h"
#include "tests/support/length.h"
#include "tests/support/support.h"
#include "train/data/dataset.h"
#include "train/loss.h"
#include "train/optimizer.h"

enum { SEQ_LEN = 1000, BATCH = 16, CLASSES = 10 };

static int iterations(void) {
  return at_full_length() ? 300 : 12;
}

typedef struct {
  bppsa_backward backward;
  bppsa_scan_algorithm algorithm;
  int64_t up_levels;
} method;

static const method methods[] = {{BPPSA_BACKWARD_BP, BPPSA_SCAN_AUTO, -1},
                                 {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_LINEAR, -1},
                                 {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_BLELLOCH, -1},
                                 {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_BLELLOCH, 3},
                                 {BPPSA_BACKWARD_SCAN, BPPSA_SCAN_CHUNKED, -1}};
enum { METHODS = sizeof methods / sizeof *methods };

typedef struct {
  bppsa_model *model;
  bppsa_optimizer *optimizer;
} trainee;

static trainee make(const bppsa_cell *cell, const method *m, bppsa_dtype dtype, int64_t seq_len, double lr,
                    const bppsa_device *device) {
  bppsa_recurrent_config config = bppsa_recurrent_config_default();
  config.seq_len = seq_len;
  config.batch = BATCH;
  config.dtype = dtype;
  config.method.backward = m->backward;
  config.method.scan.algorithm = m->algorithm;
  config.method.scan.up_levels = m->up_levels;
  bppsa_optimizer_config adam = bppsa_optimizer_config_default();
  adam.lr = lr;
  trainee t;
  assert_int_equal(bppsa_recurrent_create(&config, cell, device, &t.model), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_init(t.model, BPPSA_INIT_DEFAULT, 0), BPPSA_OK);
  assert_int_equal(bppsa_optimizer_create(&adam, t.model, &t.optimizer), BPPSA_OK);
  return t;
}

static void destroy(trainee *t) {
  bppsa_optimizer_destroy(t->optimizer);
  bppsa_model_destroy(t->model);
}

/* The batches of a run, in the training loop's order. */
typedef struct {
  bppsa_dataset *dataset;
  int64_t *order, labels[BATCH];
  double x[SEQ_LEN * BATCH], seed[BATCH * CLASSES]; /* room for either dtype */
} batches;

static batches *open_batches(int64_t seq_len) {
  batches *b = bppsa_calloc(1, sizeof *b);
  assert_non_null(b);
  bppsa_dataset_options options = bppsa_dataset_options_default();
  options.seq_len = seq_len;
  assert_int_equal(bppsa_dataset_create("bitstream", &options, &b->dataset), BPPSA_OK);
  b->order = bppsa_calloc(b->dataset->samples, sizeof *b->order);
  assert_non_null(b->order);
  bppsa_shuffle(0, 1, b->dataset->samples, b->order);
  return b;
}

static void close_batches(batches *b) {
  bppsa_dataset_destroy(b->dataset);
  bppsa_free(b->order);
  bppsa_free(b);
}

/* Forward, loss, backward on batch `iteration`; gradients are left in the model. */
static double gradients(trainee *t, batches *b, int64_t iteration, const bppsa_device *device) {
  const bppsa_dtype dtype = t->model->dtype;
  const bppsa_view x = bppsa_view_make(b->x, dtype, 3, (int64_t[]){b->dataset->seq_len, BATCH, 1});
  const bppsa_view seed = bppsa_view_make(b->seed, dtype, 2, (int64_t[]){BATCH, CLASSES});
  bppsa_view logits;
  bppsa_loss_result loss;
  assert_int_equal(bppsa_dataset_fill(b->dataset, device, BATCH, b->order + iteration * BATCH, &x, b->labels), BPPSA_OK);
  assert_int_equal(t->model->ops->forward(t->model, &x, NULL, &logits), BPPSA_OK);
  assert_int_equal(bppsa_cross_entropy(device, &logits, b->labels, &seed, &loss), BPPSA_OK);
  assert_int_equal(t->model->ops->backward(t->model, &seed), BPPSA_OK);
  return loss.loss;
}

/* Iterations at 3e-4: every loss of every method within `bound` of BP's, and in 300 the mean of 20 falls by `learnt`. */
static void check_curves(const bppsa_cell *cell, int64_t seq_len, bppsa_dtype dtype, double bound, double learnt) {
  bppsa_device *device = cpu_device(2);
  batches *b = open_batches(seq_len);
  trainee t[METHODS];
  for (int m = 0; m < METHODS; ++m) {
    t[m] = make(cell, &methods[m], dtype, seq_len, 3e-4, device);
  }
  double first = 0, last = 0;
  for (int i = 0; i < iterations(); ++i) {
    double bp = 0;
    for (int m = 0; m < METHODS; ++m) {
      const double loss = gradients(&t[m], b, i, device);
      bp = m == 0 ? loss : bp;
      if (!(fabs(loss - bp) < bound)) {
        fail_msg("iteration %d, method %d: loss %.17g, BP's %.17g", i + 1, m, loss, bp);
      }
      bppsa_optimizer_step(t[m].optimizer, device);
    }
    first += i < 20 ? bp / 20 : 0;
    last += i >= iterations() - 20 ? bp / 20 : 0;
  }
  assert_true(!at_full_length() || last < first - learnt); /* curves of a network that learns */
  for (int m = 0; m < METHODS; ++m) {
    destroy(&t[m]);
  }
  close_batches(b);
  bppsa_device_destroy(device);
}

static void test_curves_f32(void **state) {
  (void)state;
  check_curves(&bppsa_rnn_cell, SEQ_LEN, BPPSA_F32, 1e-3, 0.2);
}

static void test_curves_f64(void **state) {
  (void)state;
  check_curves(&bppsa_rnn_cell, SEQ_LEN, BPPSA_F64, 1e-9, 0.2);
}

static void test_gru_curves(void **state) {
  (void)state;
  check_curves(&bppsa_gru_cell, 100, BPPSA_F32, 1e-3, 0.05);
  check_curves(&bppsa_gru_cell, 100, BPPSA_F64, 1e-9, 0.05);
}

/* At 1e-3 trajectories are chaotic, so the scan's gradients are compared at each of BP's iterates, and BP's own with float64. */
static void test_gradients_along_a_trajectory(void **state) {
  (void)state;
  bppsa_device *device = cpu_device(2);
  batches *b = open_batches(SEQ_LEN);
  trainee t[METHODS], exact = make(&bppsa_rnn_cell, &methods[0], BPPSA_F64, SEQ_LEN, 1e-3, device);
  double recent[20] = {0}, lowest = INFINITY;
  for (int m = 0; m < METHODS; ++m) {
    t[m] = make(&bppsa_rnn_cell, &methods[m], BPPSA_F32, SEQ_LEN, 1e-3, device);
  }
  const bppsa_model *bp = t[0].model;
  for (int i = 0; i < iterations(); ++i) {
    for (int64_t p = 0; p < bp->parameter_count; ++p) {
      assert_int_equal(bppsa_view_convert(&bp->parameters[p].value, &exact.model->parameters[p].value), BPPSA_OK);
      for (int m = 1; m < METHODS; ++m) {
        assert_int_equal(bppsa_view_convert(&bp->parameters[p].value, &t[m].model->parameters[p].value), BPPSA_OK);
      }
    }
    (void)gradients(&exact, b, i, device);
    for (int m = METHODS - 1; m >= 0; --m) {
      recent[i % 20] = gradients(&t[m], b, i, device);
      for (int64_t p = 0; p < bp->parameter_count; ++p) {
        const bppsa_view *got = &t[m].model->parameters[p].gradient;
        const double r =
            residual(BPPSA_F32, got->data, exact.model->parameters[p].gradient.data, bppsa_view_count(got), sqrt(SEQ_LEN));
        if (!(r < 30)) {
          fail_msg("iteration %d, method %d, %s: residual %g", i + 1, m, bp->parameters[p].name, r);
        }
      }
    }
    double mean = 0;
    for (int k = 0; k < 20; ++k) {
      mean += recent[k] / 20;
    }
    lowest = i >= 19 && mean < lowest ? mean : lowest;
    bppsa_optimizer_step(t[0].optimizer, device);
  }
  assert_true(!at_full_length() || lowest < 2.0);
  for (int m = 0; m < METHODS; ++m) {
    destroy(&t[m]);
  }
  destroy(&exact);
  close_batches(b);
  bppsa_device_destroy(device);
}

/* All steps end with the same bits on 1, 2 and 7 threads. */
static void test_threads(void **state) {
  (void)state;
  static const int64_t threads[] = {1, 2, 7};
  for (int m = 0; m < METHODS; ++m) {
    trainee first = {0};
    bppsa_device *devices[3];
    for (int k = 0; k < 3; ++k) {
      devices[k] = cpu_device(threads[k]);
      batches *b = open_batches(250);
      trainee t = make(&bppsa_rnn_cell, &methods[m], BPPSA_F32, 250, 1e-3, devices[k]);
      for (int i = 0; i < (at_full_length() ? 100 : 5); ++i) {
        (void)gradients(&t, b, i, devices[k]);
        bppsa_optimizer_step(t.optimizer, devices[k]);
      }
      for (int64_t p = 0; k > 0 && p < t.model->parameter_count; ++p) {
        const bppsa_view *value = &t.model->parameters[p].value;
        assert_memory_equal(value->data, first.model->parameters[p].value.data, bppsa_view_bytes(value));
      }
      if (k == 0) {
        first = t;
      } else {
        destroy(&t);
      }
      close_batches(b);
    }
    destroy(&first);
    for (int k = 0; k < 3; ++k) {
      bppsa_device_destroy(devices[k]);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_curves_f32), cmocka_unit_test(test_curves_f64),
      cmocka_unit_test(test_gru_curves), cmocka_unit_test(test_gradients_along_a_trajectory),
      cmocka_unit_test(test_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
