/* Dropout between layers: what is left out, on what that depends, and the gradients of what is left; and what else a pass does not
 * keep of the one before. */
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "gru/gru.h"
#include "lstm/lstm.h"
#include "recurrent/chain.h"
#include "recurrent/recurrent.h"
#include "rnn/rnn.h"
#include "tests/core/helpers.h"
#include "tests/support/support.h"
#include "train/trainer.h"

enum { STEPS = 12, BATCH = 4, INPUT = 2, HIDDEN = 5, LAYERS = 3, CLASSES = 3 };

static const bppsa_cell *const cells[] = {&bppsa_rnn_cell, &bppsa_gru_cell, &bppsa_lstm_cell};
enum { CELLS = sizeof cells / sizeof *cells };

static const int64_t samples[BATCH] = {70, 3, 41, 12}, turned[BATCH] = {41, 12, 70, 3}, lengths[BATCH] = {12, 5, 9, 5};

static bppsa_recurrent_config config_of(double dropout) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  c.seq_len = STEPS;
  c.batch = BATCH;
  c.input = INPUT;
  c.hidden = HIDDEN;
  c.layers = LAYERS;
  c.classes = CLASSES;
  c.dtype = BPPSA_F64;
  c.loss_all = true;
  c.input_gradients = true;
  c.lengths = true;
  c.dropout = dropout;
  c.dropout_seed = 9;
  return c;
}

static bppsa_view random_view(uint64_t seed, int32_t ndim, const int64_t *shape) {
  bppsa_view view = bppsa_view_make(NULL, BPPSA_F64, ndim, shape);
  view.data = uniform(seed, bppsa_view_count(&view), 1);
  return view;
}

typedef struct {
  bppsa_device *device;
  bppsa_model *model;
  bppsa_view x, h0, seed, logits;
} run;

static run open_run(const bppsa_cell *cell, const bppsa_recurrent_config *config, int64_t threads) {
  run r = {.device = cpu_device(threads)};
  r.x = random_view(1, 3, (int64_t[]){config->seq_len, config->batch, INPUT});
  const int64_t layers = config->layers * (config->bidirectional ? 2 : 1);
  r.h0 = random_view(2, 3, (int64_t[]){layers, config->batch, (cell->pair ? 2 : 1) * config->hidden});
  r.seed = random_view(3, 3, (int64_t[]){config->seq_len, config->batch, CLASSES});
  assert_int_equal(bppsa_recurrent_create(config, cell, r.device, &r.model), BPPSA_OK);
  assert_int_equal(bppsa_recurrent_init(r.model, BPPSA_INIT_ORTHOGONAL, 5), BPPSA_OK);
  return r;
}

static void close_run(run *r) {
  bppsa_model_destroy(r->model);
  bppsa_device_destroy(r->device);
  bppsa_free(r->x.data);
  bppsa_free(r->h0.data);
  bppsa_free(r->seed.data);
}

static double forward(run *r, int64_t step, const int64_t *which, const int64_t *steps) {
  double sum = 0;
  bppsa_model_drop(r->model, step, which);
  assert_int_equal(bppsa_model_forward(r->model, &r->x, &r->h0, &(bppsa_spans){.lengths = steps}, &r->logits), BPPSA_OK);
  for (int64_t i = 0; i < bppsa_view_count(&r->logits); ++i) {
    sum += bppsa_view_get(&r->logits, i) * bppsa_view_get(&r->seed, i);
  }
  return sum;
}

/* The gradients of weights, inputs and initial states are the difference quotients of Σ seed · logits, in which the same numbers
 * are left out; by BP and by a scan, of whole samples and of samples with lengths. */
static void test_gradients(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * 4; ++k) {
    bppsa_recurrent_config config = config_of(0.4);
    config.method = k / CELLS % 2 == 0 ? (bppsa_gradient_method){BPPSA_BACKWARD_BP, {BPPSA_SCAN_AUTO, -1, 0}}
                                       : (bppsa_gradient_method){BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_BLELLOCH, -1, 0}};
    const int64_t *steps = k / CELLS >= 2 ? lengths : NULL;
    run r = open_run(cells[k % CELLS], &config, 1);
    bppsa_view dx, dh0;
    (void)forward(&r, 7, samples, steps);
    assert_int_equal(r.model->ops->backward(r.model, &r.seed), BPPSA_OK);
    assert_int_equal(r.model->ops->input_gradients(r.model, &dx, &dh0), BPPSA_OK);
    for (int64_t p = -2; p < r.model->parameter_count; ++p) {
      const bppsa_view *value = p == -2 ? &r.h0 : p == -1 ? &r.x : &r.model->parameters[p].value;
      const bppsa_view *found = p == -2 ? &dh0 : p == -1 ? &dx : &r.model->parameters[p].gradient;
      const int64_t count = bppsa_view_count(value), stride = count > 12 ? count / 12 : 1;
      double *gradient = bppsa_calloc(count, sizeof *gradient);
      memcpy(gradient, found->data, (size_t)count * sizeof *gradient);
      for (int64_t i = 0; i < count; i += stride) {
        const double kept = bppsa_view_get(value, i), h = 1e-5;
        bppsa_view_set(value, i, kept + h);
        const double up = forward(&r, 7, samples, steps);
        bppsa_view_set(value, i, kept - h);
        const double down = forward(&r, 7, samples, steps);
        bppsa_view_set(value, i, kept);
        assert_true(fabs((up - down) / (2 * h) - gradient[i]) < 1e-8);
      }
      bppsa_free(gradient);
    }
    close_run(&r);
  }
}

/* A second layer that hardly does more than multiply its input shows what it is given: 0, or the state below over 1 - P; as many of
 * each as P says, and others for another step, layer or sample. */
static void test_shares(void **state) {
  (void)state;
  enum { T = 50, B = 20, H = 16, N = T * B * H };
  static unsigned char left_out[4][N];
  for (int k = 0; k < 4; ++k) {
    const double dropout = k == 3 ? 0.8 : 0.3, tiny = 1e-3;
    bppsa_recurrent_config config = config_of(dropout);
    config.seq_len = T;
    config.batch = B;
    config.hidden = H;
    config.layers = 2;
    config.no_bias = true;
    run r = open_run(&bppsa_rnn_cell, &config, 2);
    bppsa_view below, above;
    const bppsa_view *ih = &r.model->parameters[2].value, *hh = &r.model->parameters[3].value;
    int64_t which[B], zeros = 0;
    for (int64_t i = 0; i < H * H; ++i) {
      bppsa_view_set(ih, i, i / H == i % H ? tiny : 0);
      bppsa_view_set(hh, i, 0);
    }
    for (int64_t b = 0; b < B; ++b) {
      which[b] = b + (k == 2 ? 1 : 0); /* others, one place further */
    }
    (void)forward(&r, k == 1 ? 8 : 7, which, NULL);
    assert_int_equal(bppsa_recurrent_states(r.model, 0, &below), BPPSA_OK);
    assert_int_equal(bppsa_recurrent_states(r.model, 1, &above), BPPSA_OK);
    for (int64_t i = 0; i < N; ++i) {
      const double expected = tiny * bppsa_view_get(&below, i) / (1 - dropout), found = bppsa_view_get(&above, i);
      left_out[k][i] = found == 0;
      zeros += left_out[k][i];
      assert_true(found == 0 || fabs(found / expected - 1) < 1e-4);
    }
    assert_true(fabs((double)zeros / N - dropout) < 5 * sqrt(dropout * (1 - dropout) / N));
    close_run(&r);
  }
  int64_t same = 0, moved = 0;
  for (int64_t i = 0; i < N; ++i) {
    same += left_out[0][i] == left_out[1][i];
    moved += i / H % B + 1 < B && left_out[2][i] != left_out[0][i + H];
  }
  assert_true(fabs((double)same / N - (0.3 * 0.3 + 0.7 * 0.7)) < 0.02); /* steps are independent */
  assert_int_equal(moved, 0);                                           /* a sample takes its numbers with it */
}

static void assert_same_bits(const bppsa_view *a, const bppsa_view *b) {
  assert_memory_equal(a->data, b->data, bppsa_view_bytes(a));
}

/* Copies rows [..][BATCH][size]; samples 2 and 3 come first. */
static void turn(const bppsa_view *from, bppsa_view *to) {
  const int64_t size = from->shape[2];
  for (int64_t i = 0; i < bppsa_view_count(from); ++i) {
    const int64_t row = i / size, source = row / BATCH * BATCH + (row % BATCH + 2) % BATCH;
    bppsa_view_set(to, i, bppsa_view_get(from, source * size + i % size));
  }
}

/* The bits do not depend on threads; not on the place of a sample; without samples, and where P is 0, nothing is left out. */
static void test_bits(void **state) {
  (void)state;
  for (int k = 0; k < CELLS; ++k) {
    const bppsa_recurrent_config config = config_of(0.4), none = config_of(0);
    run one = open_run(cells[k], &config, 1), three = open_run(cells[k], &config, 3), plain = open_run(cells[k], &none, 1);
    (void)forward(&one, 7, samples, lengths);
    (void)forward(&three, 7, samples, lengths);
    assert_int_equal(one.model->ops->backward(one.model, &one.seed), BPPSA_OK);
    assert_int_equal(three.model->ops->backward(three.model, &three.seed), BPPSA_OK);
    assert_same_bits(&one.logits, &three.logits);
    for (int64_t p = 0; p < one.model->parameter_count; ++p) {
      assert_same_bits(&one.model->parameters[p].gradient, &three.model->parameters[p].gradient);
    }
    (void)forward(&one, 7, samples, NULL);
    turn(&one.x, &three.x);
    turn(&one.h0, &three.h0);
    (void)forward(&three, 7, turned, NULL);
    for (int64_t i = 0; i < bppsa_view_count(&one.logits); ++i) {
      const int64_t row = i / CLASSES, from = row / BATCH * BATCH + (row % BATCH + 2) % BATCH;
      assert_true(bppsa_view_get(&three.logits, i) == bppsa_view_get(&one.logits, from * CLASSES + i % CLASSES));
    }
    const double with = forward(&one, 7, samples, NULL), without = forward(&one, 7, NULL, NULL);
    assert_true(with != without);
    assert_true(forward(&plain, 7, samples, NULL) == without);
    assert_same_bits(&one.logits, &plain.logits);
    close_run(&one);
    close_run(&three);
    close_run(&plain);
  }
}

static bppsa_status create(void *argument) {
  bppsa_model *model = NULL;
  bppsa_device *device = NULL;
  BPPSA_TRY(bppsa_device_create("cpu", 1, &device));
  const bppsa_status status = bppsa_recurrent_create(argument, &bppsa_gru_cell, device, &model);
  bppsa_model_destroy(model);
  bppsa_device_destroy(device);
  return status;
}

static void test_refusals(void **state) {
  (void)state;
  static const double bad[] = {-0.1, 1, (double)NAN};
  bppsa_recurrent_config config = config_of(0.5);
  bppsa_device *cpu = cpu_device(1);
  bppsa_chain *chain;
  assert_true(walk_allocations(create, &config) > 10);
  config.lengths = false;
  assert_error(bppsa_recurrent_chain_create(&config, &bppsa_gru_cell, cpu, &chain), BPPSA_ERR_UNSUPPORTED, "chain: dropout");
  config.part = (bppsa_forward_part){.seq_len = 2 * STEPS};
  assert_error(create(&config), BPPSA_ERR_UNSUPPORTED, "dropout in a part of a sequence, expected a network with all steps");
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    config.dropout = bad[i];
    assert_error(create(&config), BPPSA_ERR_ARGUMENT, "expected 0 or more and below 1");
  }
  bppsa_device_destroy(cpu);
}

/* ---- what is called between the passes ---- */

/* A call between a forward pass and its backward pass is of the next forward pass: the gradients have the same bits as without it,
 * where it ends dropout, begins it (the layers' inputs were never written then), or names another step and other samples. */
static void test_between_passes(void **state) {
  (void)state;
  const struct {
    const int64_t *forward, *between;
    int64_t step, other;
  } cases[] = {{samples, NULL, 3, 0}, {NULL, samples, 0, 3}, {samples, turned, 3, 4}};
  for (int k = 0; k < CELLS * 3 * 2; ++k) {
    bppsa_recurrent_config config = config_of(0.5);
    config.bidirectional = k >= CELLS * 3;
    const int64_t *first = cases[k / CELLS % 3].forward, *second = cases[k / CELLS % 3].between;
    const int64_t step = cases[k / CELLS % 3].step, other = cases[k / CELLS % 3].other;
    run plain = open_run(cells[k % CELLS], &config, 1), r = open_run(cells[k % CELLS], &config, 1);
    (void)forward(&plain, step, first, NULL);
    assert_int_equal(plain.model->ops->backward(plain.model, &plain.seed), BPPSA_OK);
    (void)forward(&r, 9, turned, NULL); /* an earlier pass, whose numbers must not be read again */
    (void)forward(&r, step, first, NULL);
    bppsa_model_drop(r.model, other, second);
    assert_int_equal(r.model->ops->backward(r.model, &r.seed), BPPSA_OK);
    for (int64_t p = 0; p < r.model->parameter_count; ++p) {
      const bppsa_view *gradient = &r.model->parameters[p].gradient;
      assert_memory_equal(gradient->data, plain.model->parameters[p].gradient.data, bppsa_view_bytes(gradient));
    }
    close_run(&plain);
    close_run(&r);
  }
}

/* Only the latest forward pass is searched for numbers that are not finite: a pass of the layers alone has no logits to report. */
static void test_earlier_logits(void **state) {
  (void)state;
  const bppsa_recurrent_config config = config_of(0);
  run r = open_run(&bppsa_gru_cell, &config, 1);
  bppsa_nonfinite where;
  const double kept = bppsa_view_get(&r.x, 5);
  bppsa_view_set(&r.x, 5, (double)NAN);
  (void)forward(&r, 0, NULL, NULL);
  assert_true(r.model->ops->find_nonfinite(r.model, &where));
  bppsa_view_set(&r.x, 5, kept);
  assert_int_equal(bppsa_recurrent_forward_layers(r.model, &r.x, &r.h0), BPPSA_OK);
  assert_false(bppsa_recurrent_forward_nonfinite(r.model, &where));
  assert_false(r.model->ops->find_nonfinite(r.model, &where));
  close_run(&r);
}

/* Nor has the pass of a tape. */
static void test_logits_of_tapes(void **state) {
  (void)state;
  bppsa_recurrent_config config = config_of(0);
  config.layers = 1;
  config.lengths = false;
  config.tape = true;
  run r = open_run(&bppsa_gru_cell, &config, 1);
  bppsa_nonfinite where;
  bppsa_view tapes[2];
  int64_t size;
  assert_int_equal(bppsa_recurrent_tape_size(r.model, &size), BPPSA_OK);
  for (int k = 0; k < 2; ++k) { /* the second one's states are finite, but not its logits */
    tapes[k] = random_view(4, 1, &size);
    bppsa_view_set(&r.model->parameters[5].value, 0, k == 0 ? 0 : (double)NAN);
    assert_int_equal(bppsa_recurrent_use_tape(r.model, &r.x, &tapes[k], NULL), BPPSA_OK);
    (void)forward(&r, 0, NULL, NULL);
    assert_int_equal(r.model->ops->find_nonfinite(r.model, &where), k == 1);
  }
  bppsa_view_set(&r.model->parameters[5].value, 0, 0);
  assert_int_equal(bppsa_recurrent_use_tape(r.model, &r.x, &tapes[0], NULL), BPPSA_OK);
  assert_int_equal(r.model->ops->backward(r.model, &r.seed), BPPSA_OK);
  assert_false(r.model->ops->find_nonfinite(r.model, &where));
  bppsa_free(tapes[0].data);
  bppsa_free(tapes[1].data);
  close_run(&r);
}

/* Only the latest backward pass is searched, whichever function made it. */
static void test_earlier_seed(void **state) {
  (void)state;
  bppsa_recurrent_config config = config_of(0);
  config.no_head = true;
  config.hidden = CLASSES;
  run r = open_run(&bppsa_lstm_cell, &config, 1);
  bppsa_view seed = random_view(6, 3, r.seed.shape);
  bppsa_nonfinite where;
  bppsa_view_set(&seed, 7, (double)NAN);
  (void)forward(&r, 0, NULL, NULL);
  assert_int_equal(r.model->ops->backward(r.model, &seed), BPPSA_OK);
  assert_true(r.model->ops->find_nonfinite(r.model, &where));
  assert_int_equal(bppsa_recurrent_backward_layers(r.model, &r.seed), BPPSA_OK);
  assert_false(r.model->ops->find_nonfinite(r.model, &where));
  assert_int_equal(bppsa_recurrent_backward_layers(r.model, &seed), BPPSA_OK);
  assert_true(r.model->ops->find_nonfinite(r.model, &where));
  bppsa_free(seed.data);
  close_run(&r);
}

/* The loop names samples in memory of its own: a pass behind it is one without dropout. */
static void test_after_training(void **state) {
  (void)state;
  bppsa_recurrent_config config = config_of(0.5);
  const bppsa_dataset_options options = {.samples = 20, .seq_len = STEPS, .input = INPUT, .labels_per_step = true};
  bppsa_train_config training = bppsa_train_config_default();
  bppsa_dataset *data;
  bppsa_train_result result;
  config.classes = 10;
  run r = open_run(&bppsa_rnn_cell, &config, 1);
  assert_int_equal(bppsa_dataset_create("bitstream", &options, &data), BPPSA_OK);
  training.iterations = 2;
  training.batch = BATCH;
  assert_int_equal(bppsa_train(&training, r.model, data, r.device, NULL, &result), BPPSA_OK);
  assert_int_equal(bppsa_model_forward(r.model, &r.x, &r.h0, NULL, &r.logits), BPPSA_OK);
  double found[STEPS * BATCH * 10];
  memcpy(found, r.logits.data, sizeof found);
  bppsa_model_drop(r.model, 0, NULL);
  assert_int_equal(bppsa_model_forward(r.model, &r.x, &r.h0, NULL, &r.logits), BPPSA_OK);
  assert_memory_equal(found, r.logits.data, sizeof found);
  bppsa_dataset_destroy(data);
  close_run(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gradients),       cmocka_unit_test(test_shares),         cmocka_unit_test(test_bits),
      cmocka_unit_test(test_refusals),        cmocka_unit_test(test_between_passes), cmocka_unit_test(test_earlier_logits),
      cmocka_unit_test(test_logits_of_tapes), cmocka_unit_test(test_earlier_seed),   cmocka_unit_test(test_after_training)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
