/* Samples of their own lengths: every sample of a batch against a network that has that sample and its steps alone, by BP and by
 * every scan, for every cell of the library. */
#include "gru/gru.h"
#include "lstm/lstm.h"
#include "recurrent/chain.h"
#include "rnn/rnn.h"
#include "tests/recurrent/passes.h"

enum { STEPS = 11, BATCH = 6, INPUT = 3, HIDDEN = 4, LAYERS = 2, CLASSES = 5 };

static const bppsa_cell *const cells[] = {&bppsa_rnn_cell, &bppsa_gru_cell, &bppsa_lstm_cell};
enum { CELLS = sizeof cells / sizeof *cells };

/* Two samples of one length, one of a single step, one of all steps, not sorted; none of all steps; all of as many. */
static const int64_t mixed[BATCH] = {4, 11, 1, 7, 4, 10}, short_ones[BATCH] = {3, 9, 9, 2, 5, 6},
                     whole[BATCH] = {11, 11, 11, 11, 11, 11}, equal[BATCH] = {7, 7, 7, 7, 7, 7};

static bppsa_recurrent_config config_of(bppsa_dtype dtype, const bppsa_gradient_method *method, bool all) {
  bppsa_recurrent_config c = bppsa_recurrent_config_default();
  c.seq_len = STEPS;
  c.batch = BATCH;
  c.input = INPUT;
  c.hidden = HIDDEN;
  c.layers = LAYERS;
  c.classes = CLASSES;
  c.dtype = dtype;
  c.method = *method;
  c.loss_all = all;
  c.input_gradients = true;
  c.lengths = true;
  return c;
}

/* Sample b of an array [outer][B][width] beside the array [rows][1][width] of a run of that sample alone; behind its rows there are
 * zeros. tolerance 0: the same bits. */
static void check_sample(const bppsa_view *whole_batch, int64_t b, const bppsa_view *alone, int64_t rows, double tolerance) {
  const int64_t width = whole_batch->shape[whole_batch->ndim - 1], batch = whole_batch->shape[whole_batch->ndim - 2];
  const int64_t outer = whole_batch->ndim == 3 ? whole_batch->shape[0] : 1;
  for (int64_t i = 0; i < outer * width; ++i) {
    const double found = bppsa_view_get(whole_batch, (i / width * batch + b) * width + i % width);
    const double expected = i / width < rows ? bppsa_view_get(alone, i) : 0;
    if (!(fabs(found - expected) <= tolerance)) {
      fail_msg("sample %lld, row %lld: %.17g, expected %.17g", (long long)b, (long long)(i / width), found, expected);
    }
  }
}

/* Copies the rows of sample b to a run that has it alone. */
static void take_sample(const run *r, int64_t b, run *one) {
  const bppsa_view *from[] = {&r->x, &r->h0, &r->seed}, *to[] = {&one->x, &one->h0, &one->seed};
  for (int k = 0; k < 3; ++k) {
    const int64_t width = to[k]->shape[to[k]->ndim - 1], batch = from[k]->shape[from[k]->ndim - 2];
    for (int64_t i = 0; i < bppsa_view_count(to[k]); ++i) {
      bppsa_view_set(to[k], i, bppsa_view_get(from[k], (i / width * batch + b) * width + i % width));
    }
  }
}

/* Logits, states, gradients of inputs and initial states of every sample; the sum of the samples' weight gradients. */
static void check_run(const bppsa_cell *cell, const bppsa_recurrent_config *config, const int64_t *lengths) {
  const double tolerance = config->dtype == BPPSA_F32 ? 2e-5 : 1e-13;
  run r = open_run(cell, config, BATCH, 2);
  double *sums[4 * LAYERS + 2] = {NULL};
  spoil(&r, lengths);
  compute(&r, lengths);
  for (int64_t b = 0; b < BATCH; ++b) {
    bppsa_recurrent_config alone = *config;
    alone.batch = 1;
    alone.seq_len = lengths[b];
    alone.lengths = false;
    alone.method = methods[0];
    run one = open_run(cell, &alone, alone.batch, 1);
    take_sample(&r, b, &one);
    compute(&one, NULL);
    check_sample(&r.logits, b, &one.logits, config->loss_all ? lengths[b] : 1, 0);
    check_sample(&r.dx, b, &one.dx, lengths[b], tolerance);
    check_sample(&r.dh0, b, &one.dh0, LAYERS, tolerance);
    for (int64_t l = 0; l < LAYERS; ++l) {
      bppsa_view states, others;
      assert_int_equal(bppsa_recurrent_states(r.model, l, &states), BPPSA_OK);
      assert_int_equal(bppsa_recurrent_states(one.model, l, &others), BPPSA_OK);
      check_sample(&states, b, &others, lengths[b], 0);
      if (cell->pair) {
        assert_int_equal(bppsa_recurrent_cell_states(r.model, l, &states), BPPSA_OK);
        assert_int_equal(bppsa_recurrent_cell_states(one.model, l, &others), BPPSA_OK);
        check_sample(&states, b, &others, lengths[b], 0);
      }
    }
    for (int64_t i = 0; i < one.model->parameter_count; ++i) {
      const bppsa_view *gradient = &one.model->parameters[i].gradient;
      sums[i] = sums[i] != NULL ? sums[i] : bppsa_calloc(bppsa_view_count(gradient), sizeof **sums);
      for (int64_t e = 0; e < bppsa_view_count(gradient); ++e) {
        sums[i][e] += bppsa_view_get(gradient, e);
      }
    }
    close_run(&one);
  }
  for (int64_t i = 0; i < r.model->parameter_count; ++i) {
    const bppsa_view *gradient = &r.model->parameters[i].gradient;
    for (int64_t e = 0; e < bppsa_view_count(gradient); ++e) {
      assert_true(fabs(bppsa_view_get(gradient, e) - sums[i][e]) <= 10 * tolerance);
    }
    bppsa_free(sums[i]);
  }
  bppsa_nonfinite where;
  assert_false(r.model->ops->find_nonfinite(r.model, &where));
  close_run(&r);
}

static void test_samples(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * METHODS * 4; ++k) {
    const bppsa_recurrent_config config =
        config_of(k / CELLS % 2 == 0 ? BPPSA_F64 : BPPSA_F32, &methods[k / CELLS / 4], k / CELLS % 4 >= 2);
    check_run(cells[k % CELLS], &config, mixed);
    check_run(cells[k % CELLS], &config, short_ones);
  }
}

/* Without a head the outputs are the states at every step, or each sample's last ones; without biases too. */
static void test_outputs(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * METHODS * 2; ++k) {
    bppsa_recurrent_config config = config_of(BPPSA_F64, &methods[k / CELLS / 2], k / CELLS % 2 == 1);
    config.no_head = true;
    config.no_bias = k % 2 == 1;
    check_run(cells[k % CELLS], &config, mixed);
  }
}

/* Any number of threads gives the same bits; lengths that are all T give those of a pass, and of a network, without lengths. */
static void test_bits(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * METHODS * 2; ++k) {
    const bppsa_recurrent_config config = config_of(BPPSA_F32, &methods[k / CELLS / 2], k / CELLS % 2 == 1);
    bppsa_recurrent_config plain = config;
    plain.lengths = false;
    run one = open_run(cells[k % CELLS], &config, config.batch, 1), three = open_run(cells[k % CELLS], &config, config.batch, 3);
    run without = open_run(cells[k % CELLS], &plain, plain.batch, 1);
    compute(&one, mixed);
    compute(&three, mixed);
    assert_same_runs(&one, &three);
    compute(&one, whole); /* what the shorter samples left is not read */
    compute(&three, NULL);
    compute(&without, NULL);
    assert_same_runs(&one, &three);
    assert_same_runs(&one, &without);
    close_run(&one);
    close_run(&three);
    close_run(&without);
  }
}

/* The order of the samples is of no consequence to any of them, and samples of one length are a shorter batch. */
static void test_order(void **state) {
  (void)state;
  for (int k = 0; k < CELLS * 2; ++k) {
    const bppsa_recurrent_config config = config_of(BPPSA_F64, &methods[k < CELLS ? 0 : METHODS - 1], true);
    run r = open_run(cells[k % CELLS], &config, config.batch, 1), turned = open_run(cells[k % CELLS], &config, config.batch, 1);
    int64_t lengths[BATCH];
    for (int64_t b = 0; b < BATCH; ++b) {
      lengths[b] = mixed[(b + 2) % BATCH];
    }
    const bppsa_view *from[] = {&r.x, &r.h0, &r.seed}, *to[] = {&turned.x, &turned.h0, &turned.seed};
    for (int a = 0; a < 3; ++a) {
      const int64_t width = from[a]->shape[2];
      for (int64_t i = 0; i < bppsa_view_count(from[a]); ++i) {
        const int64_t row = i / width, moved = row / BATCH * BATCH + (row % BATCH + 2) % BATCH;
        bppsa_view_set(to[a], i, bppsa_view_get(from[a], moved * width + i % width));
      }
    }
    compute(&r, mixed);
    compute(&turned, lengths);
    const bppsa_view *results[] = {&r.logits, &r.dx, &r.dh0}, *others[] = {&turned.logits, &turned.dx, &turned.dh0};
    for (int a = 0; a < 3; ++a) {
      const int64_t width = results[a]->shape[2];
      for (int64_t i = 0; i < bppsa_view_count(results[a]); ++i) {
        const int64_t row = i / width, moved = row / BATCH * BATCH + (row % BATCH + 2) % BATCH;
        assert_true(bppsa_view_get(others[a], i) == bppsa_view_get(results[a], moved * width + i % width));
      }
    }
    close_run(&turned);
    compute(&r, equal);
    bppsa_recurrent_config fewer = config;
    fewer.seq_len = equal[0];
    fewer.lengths = false;
    run s = open_run(cells[k % CELLS], &fewer, fewer.batch, 1);
    memcpy(s.x.data, r.x.data, bppsa_view_bytes(&s.x)); /* the first steps */
    memcpy(s.h0.data, r.h0.data, bppsa_view_bytes(&s.h0));
    memcpy(s.seed.data, r.seed.data, bppsa_view_bytes(&s.seed));
    compute(&s, NULL);
    for (int64_t i = 0; i < s.model->parameter_count; ++i) {
      const bppsa_view *a = &s.model->parameters[i].gradient, *b = &r.model->parameters[i].gradient;
      for (int64_t e = 0; e < bppsa_view_count(a); ++e) {
        assert_true(fabs(bppsa_view_get(a, e) - bppsa_view_get(b, e)) <= 1e-13);
      }
    }
    close_run(&s);
    close_run(&r);
  }
}

/* A value that is not finite is found at its step and the caller's sample: in x of sample 3, then in a seed of sample 5. */
static void test_nonfinite(void **state) {
  (void)state;
  for (int k = 0; k < 4; ++k) {
    const bppsa_recurrent_config config = config_of(BPPSA_F64, &methods[k < 2 ? 0 : METHODS - 1], true);
    run r = open_run(&bppsa_gru_cell, &config, config.batch, 1);
    const bool seed = k % 2 == 1;
    bppsa_nonfinite where;
    if (seed) {
      bppsa_view_set(&r.seed, (8 * BATCH + 5) * CLASSES, (double)NAN);
    } else {
      bppsa_view_set(&r.x, (5 * BATCH + 3) * INPUT, (double)NAN);
    }
    compute(&r, mixed);
    assert_true(r.model->ops->find_nonfinite(r.model, &where));
    assert_string_equal(where.what, seed ? "gradient of the hidden state" : "hidden state");
    assert_int_equal(where.layer, seed ? LAYERS - 1 : 0);
    assert_int_equal(where.step, seed ? 9 : 6);
    assert_int_equal(where.sample, seed ? 5 : 3);
    close_run(&r);
  }
}

static void test_refusals(void **state) {
  (void)state;
  bppsa_recurrent_config config = config_of(BPPSA_F64, &methods[0], false);
  run r = open_run(&bppsa_rnn_cell, &config, config.batch, 1);
  int64_t lengths[BATCH] = {1, 2, 3, 4, 5, STEPS + 1};
  bppsa_chain *chain;
  bppsa_view view;
  compute(&r, mixed);
  assert_error(bppsa_model_forward(r.model, &r.x, NULL, &(bppsa_spans){.lengths = lengths}, &r.logits), BPPSA_ERR_ARGUMENT,
               "length 12 of sample 5 of the batch, expected 1 .. 11");
  lengths[5] = 0;
  assert_error(bppsa_model_forward(r.model, &r.x, NULL, &(bppsa_spans){.lengths = lengths}, &r.logits), BPPSA_ERR_ARGUMENT,
               "length 0 of sample 5");
  assert_error(bppsa_recurrent_hidden_gradients(r.model, &(bppsa_view){0}, &view), BPPSA_ERR_UNSUPPORTED,
               "samples that have lengths");
  assert_int_equal(r.model->ops->backward(r.model, &r.seed), BPPSA_OK); /* of the pass before those that were refused */
  close_run(&r);
  config.lengths = false;
  r = open_run(&bppsa_rnn_cell, &config, config.batch, 1);
  assert_error(bppsa_model_forward(r.model, &r.x, NULL, &(bppsa_spans){.lengths = mixed}, &r.logits), BPPSA_ERR_ARGUMENT,
               "rnn: lengths of samples for a model that was created without them");
  config.lengths = true;
  assert_error(bppsa_recurrent_chain_create(&config, &bppsa_rnn_cell, r.device, &chain), BPPSA_ERR_UNSUPPORTED,
               "chain: lengths of samples");
  config.forward.kind = BPPSA_FORWARD_SPECULATIVE;
  assert_error(bppsa_recurrent_create(&config, &bppsa_rnn_cell, r.device, &r.model), BPPSA_ERR_UNSUPPORTED,
               "lengths of samples in a speculative forward pass, expected a sequential one");
  close_run(&r);
}

/* Passes allocate nothing, and every failing allocation of a creation is reported. */
static bppsa_status create(void *argument) {
  bppsa_model *model = NULL;
  bppsa_device *device = NULL;
  BPPSA_TRY(bppsa_device_create("cpu", 1, &device));
  const bppsa_status status = bppsa_recurrent_create(argument, &bppsa_lstm_cell, device, &model);
  bppsa_model_destroy(model);
  bppsa_device_destroy(device);
  return status;
}

static void test_memory(void **state) {
  (void)state;
  bppsa_recurrent_config config = config_of(BPPSA_F32, &methods[METHODS - 1], false);
  run r = open_run(&bppsa_lstm_cell, &config, config.batch, 2);
  compute(&r, mixed);
  bppsa_alloc_fail_at(1);
  compute(&r, short_ones);
  assert_int_equal(bppsa_alloc_calls(), 0);
  bppsa_alloc_fail_at(0);
  close_run(&r);
  assert_true(walk_allocations(create, &config) > 10);
  config.memory_limit = 1000;
  assert_int_equal(create(&config), BPPSA_ERR_ARGUMENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_samples),   cmocka_unit_test(test_outputs),
                                     cmocka_unit_test(test_bits),      cmocka_unit_test(test_order),
                                     cmocka_unit_test(test_nonfinite), cmocka_unit_test(test_refusals),
                                     cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
