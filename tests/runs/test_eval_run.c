/* An evaluation without a command line: which samples, what is written, what is refused. */
#include "core/files/npz.h"
#include "runs/eval_run.h"
#include "tests/core/helpers.h"
#include "tests/support/support.h"

enum { SAMPLES = 12, STEPS = 6 };

static bppsa_status open_run(double validation, bppsa_eval_run *run) {
  const bppsa_dataset_options options = {.samples = SAMPLES, .seq_len = STEPS};
  *run = (bppsa_eval_run){0};
  BPPSA_TRY(bppsa_network_open("rnn", NULL, &run->network));
  run->config = bppsa_network_config_default(&run->network);
  run->config.steps.hidden = 3;
  BPPSA_TRY(bppsa_device_create("cpu", 1, &run->device));
  BPPSA_TRY(bppsa_dataset_create("bitstream", &options, &run->dataset));
  BPPSA_TRY(bppsa_eval_run_fit(run, NULL, validation));
  BPPSA_TRY(bppsa_rank_network_create(&run->network, &run->config, run->device, &run->on, &run->model));
  return bppsa_network_init(&run->network, run->model, BPPSA_INIT_DEFAULT, 3);
}

/* The samples held out, or all of them; the batch is no larger, and there is no backward pass. */
static void test_samples(void **state) {
  (void)state;
  for (int held_out = 0; held_out < 2; ++held_out) {
    bppsa_eval_run run;
    bppsa_evaluation result;
    assert_int_equal(open_run(held_out * 0.25, &run), BPPSA_OK);
    assert_int_equal(run.first, held_out ? 9 : 0);
    assert_int_equal(run.count, held_out ? 3 : SAMPLES);
    assert_int_equal(run.config.batch, run.count);
    assert_int_equal(run.config.method.backward, BPPSA_BACKWARD_BP);
    assert_int_equal(bppsa_eval_run_compute(&run, NULL, false, &result), BPPSA_OK);
    assert_int_equal(result.samples, run.count);
    assert_true(result.loss > 0);
    assert_null(run.out);
    bppsa_eval_run_free(&run);
    bppsa_eval_run_free(&run);
  }
}

/* Outputs appear when they are committed, and not if the run is freed before. */
static void test_outputs(void **state) {
  (void)state;
  char byte;
  for (int committed = 0; committed < 2; ++committed) {
    bppsa_eval_run run;
    bppsa_evaluation result;
    (void)remove("eval_run.npz");
    assert_int_equal(open_run(0, &run), BPPSA_OK);
    assert_int_equal(bppsa_eval_run_compute(&run, "eval_run.npz", true, &result), BPPSA_OK);
    assert_non_null(run.out);
    if (committed) {
      assert_int_equal(bppsa_outputs_commit(run.out), BPPSA_OK);
      run.out = NULL;
    }
    bppsa_eval_run_free(&run);
    assert_int_equal(get_file("eval_run.npz", &byte, 1), committed ? 1 : -1);
  }
}

static void test_refusals(void **state) {
  (void)state;
  assert_int_equal(bppsa_eval_run_check_out(NULL, false), BPPSA_OK);
  assert_int_equal(bppsa_eval_run_check_out("a.npz", true), BPPSA_OK);
  assert_error(bppsa_eval_run_check_out(NULL, true), BPPSA_ERR_ARGUMENT,
               "--states: given without --out, expected --out P.npz too");
  assert_error(bppsa_eval_run_check_out("a.npy", false), BPPSA_ERR_ARGUMENT, "--out: 'a.npy', expected a name that ends in .npz");
  assert_error(bppsa_eval_run_check_out("npz", false), BPPSA_ERR_ARGUMENT, "expected a name that ends in .npz");
}

static bppsa_status evaluate(void *argument) {
  bppsa_eval_run run;
  bppsa_evaluation result;
  (void)argument;
  bppsa_status status = open_run(0, &run);
  status = status == BPPSA_OK ? bppsa_eval_run_compute(&run, "eval_run.npz", true, &result) : status;
  bppsa_eval_run_free(&run);
  return status;
}

static void test_memory(void **state) {
  (void)state;
  assert_true(walk_allocations(evaluate, NULL) > 30);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_samples), cmocka_unit_test(test_outputs),
                                     cmocka_unit_test(test_refusals), cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
