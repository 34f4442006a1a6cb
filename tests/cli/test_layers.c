/* train on ranks that share the layers of a network (--split spatial, filter, channel, data+spatial, data+filter): the weights of
 * one rank, checkpoints, documents, refusals, ranks that die. */
#include <math.h>

#include "comm/comm.h"
#include "tests/cli/batch_files.h"
#include "tests/cli/cnn_files.h"

static const char network[] =
    "{\"input\": [2, 8, 7], \"layers\": ["
    "{\"name\": \"conv1\", \"op\": \"conv2d\", \"out\": 4, \"kernel\": [3, 3], \"padding\": [1, 1, 1, 1]}, "
    "{\"name\": \"relu1\", \"op\": \"relu\"}, "
    "{\"name\": \"pool1\", \"op\": \"maxpool2d\", \"kernel\": [3, 3], \"stride\": [2, 2], \"ceil_mode\": true}, "
    "{\"name\": \"conv2\", \"op\": \"conv2d\", \"out\": 8, \"kernel\": [2, 2], \"groups\": 4}, "
    "{\"name\": \"tanh2\", \"op\": \"tanh\"}, {\"name\": \"flatten\", \"op\": \"flatten\"}, "
    "{\"name\": \"fc\", \"op\": \"linear\", \"out\": 5}]}";

#define TRAIN "train net.json --data npy:IX.npy,IY.npy --batch 12 --threads 1 --lr 0.1 --dtype f64"

static const char *const splits[] = {"--ranks 3 --split spatial",
                                     "--ranks 4 --split spatial --reduction library",
                                     "--ranks 4 --split filter",
                                     "--ranks 2 --split filter --reduction library",
                                     "--ranks 4 --split channel",
                                     "--ranks 1 --split channel",
                                     "--ranks 4 --split data+spatial",
                                     "--ranks 6 --split data+spatial --group 2",
                                     "--ranks 4 --split data+filter --group 1",
                                     "--ranks 6 --split data+filter --group 1", /* one has no sample of the last batch */
                                     "--ranks 4 --split data+filter"};

enum { SPLITS = sizeof splits / sizeof *splits };

static void write_files(void) {
  put_text("net.json", network);
  put_images("IX.npy", "IY.npy", (int64_t[]){41, 2, 8, 7}, 5); /* the last batch is smaller */
}

static void check_training(const char *options) {
  assert_runs(TRAIN " %s --epochs 3 --save-weights alone.safetensors", options);
  json_t *alone = run_json(TRAIN " %s --epochs 3 --json", options);
  for (int i = 0; i < SPLITS; ++i) {
    json_t *cut = run_json(TRAIN " %s --epochs 3 --json %s --save-weights cut.safetensors", options, splits[i]);
    const json_t *final = json_object_get(cut, "final"), *expected = json_object_get(alone, "final");
    const json_t *row = json_array_get(json_object_get(cut, "rows"), 2),
                 *expected_row = json_array_get(json_object_get(alone, "rows"), 2);
    const double difference = file_difference("cut.safetensors", "alone.safetensors");
    if (!(difference < 1e-13)) {
      fail_msg("%s %s: weights differ by %g", options, splits[i], difference);
    }
    assert_true(fabs(get_real(final, "validation_loss") - get_real(expected, "validation_loss")) < 1e-13);
    assert_true(get_real(final, "accuracy") == get_real(expected, "accuracy"));
    assert_true(fabs(get_real(row, "loss") - get_real(expected_row, "loss")) < 1e-13);
    assert_true(fabs(get_real(row, "grad_norm") - get_real(expected_row, "grad_norm")) < 1e-12);
    json_decref(cut);
  }
  json_decref(alone);
}

static void test_trains_as_one_rank(void **state) {
  (void)state;
  write_files();
  check_training("--validation 0.2 --momentum 0.9 --clip-norm 0.3 --lr-schedule cosine");
  check_training("--validation 0.2 --optimizer adam --weight-decay 0.01 --ignore-label 3");
}

/* A checkpoint has whole weights and the whole state of the optimiser; a run goes on with the bits of an uninterrupted one. */
static void test_resumes(void **state) {
  (void)state;
  write_files();
  for (int i = 0; i < SPLITS; ++i) {
    char folder[16];
    snprintf(folder, sizeof folder, "ck%d", i);
    const char *options = i % 2 == 0 ? "--momentum 0.9" : "--optimizer adam";
    assert_runs(TRAIN " %s %s --iterations 9 --save-weights whole.safetensors", options, splits[i]);
    assert_runs(TRAIN " %s %s --iterations 4 --checkpoint %s", options, splits[i], folder);
    assert_runs(TRAIN " %s %s --iterations 9 --checkpoint %s --resume --save-weights parts.safetensors", options, splits[i],
                folder);
    assert_equal_files("whole.safetensors", "parts.safetensors");
  }
  assert_fails(2,
               "gradients added up by a tree over the 3 ranks of spatial parallelism, in this run by a tree over the 2 ranks of "
               "filter parallelism",
               TRAIN " --momentum 0.9 --iterations 10 --checkpoint ck0 --resume --ranks 2 --split filter");
  run_result allowed =
      run(TRAIN " --momentum 0.9 --iterations 10 --checkpoint ck0 --resume --ranks 2 --split filter --allow-other-ranks");
  assert_int_equal(allowed.code, 0);
  release(&allowed);
}

static void test_documents(void **state) {
  (void)state;
  write_files();
  json_t *document = run_json(TRAIN " --iterations 2 --ranks 4 --split data+spatial --json");
  const json_t *ranks = json_object_get(document, "ranks"), *grid = json_object_get(ranks, "grid"),
               *phases = json_object_get(ranks, "phases");
  assert_string_equal(get_text(ranks, "split"), "data+spatial");
  assert_string_equal(get_text(ranks, "reduction"), "a tree over 2 groups of 2 ranks of spatial parallelism");
  assert_int_equal(get_integer(ranks, "group"), 2);
  assert_int_equal(json_integer_value(json_array_get(grid, 0)), 2);
  assert_int_equal(json_integer_value(json_array_get(grid, 1)), 1);
  assert_true(get_real(phases, "compute_s") > 0 && get_real(phases, "halo_s") > 0 && get_real(phases, "gather_s") > 0);
  assert_true(get_real(phases, "reduce_s") == 0 && get_real(phases, "exchange_s") > 0);
  json_decref(document);
  document = run_json(TRAIN " --iterations 2 --ranks 2 --split filter --json");
  ranks = json_object_get(document, "ranks");
  phases = json_object_get(ranks, "phases");
  assert_true(json_is_null(json_object_get(ranks, "grid")));
  assert_true(get_real(phases, "gather_s") > 0 && get_real(phases, "reduce_s") > 0);
  json_decref(document);
  run_result text = run(TRAIN " --iterations 2 --ranks 4 --split data+filter --reduction library");
  assert_int_equal(text.code, 0);
  assert_non_null(strstr(text.out,
                         "\nranks      4, threads, split data+filter, 2 groups of 2, gradients added up by the allreduce "
                         "of threads over 2 groups of 2 ranks of filter parallelism: the bits depend on the number "
                         "of ranks\n"));
  release(&text);
}

static void test_refuses(void **state) {
  (void)state;
  write_files();
  assert_fails(2, "--split: filter: 5 ranks, more than the 4 filters of conv1, expected at most 4",
               TRAIN " --ranks 5 --split filter");
  assert_fails(2, "--split: channel: 5 ranks, more than the 4 channels of relu1, expected at most 4",
               TRAIN " --ranks 5 --split channel");
  assert_fails(2, "--split: spatial: 7 ranks, more than the 6 positions in the images of tanh2, expected at most 6",
               TRAIN " --ranks 7 --split spatial");
  assert_fails(2, "--split: filter: 8 ranks, more than the 4 filters of conv1",
               TRAIN " --ranks 16 --split data+filter --group 8");
  assert_fails(2, "--group: 3 ranks, expected a divisor of the 4 ranks", TRAIN " --ranks 4 --split data+filter --group 3");
  assert_fails(2, "--group: given beside --split filter, expected --split data+spatial or data+filter",
               TRAIN " --ranks 4 --split filter --group 2");
  assert_fails(2, "--group: given without ranks, expected --ranks P too", TRAIN " --group 2");
  assert_fails(2, "--ranks: 13 groups of 1, more than the 12 samples of a batch",
               TRAIN " --ranks 13 --split data+filter --group 1");
  assert_fails(2, "--micro-batches: given beside ranks that share layers, expected --split batch, not channel",
               TRAIN " --ranks 2 --split channel --micro-batches 2");
  assert_fails(2, "--reverse-first: given beside ranks that share layers, expected --split batch, not channel",
               TRAIN " --ranks 2 --split channel --reverse-first 1");
  assert_fails(2, "--width: given without a schedule", TRAIN " --ranks 2 --split channel --width 2");
  assert_fails(2, "--backward scan: given beside --split channel, whose ranks propagate back layer by layer",
               TRAIN " --ranks 2 --split channel --backward scan");
  assert_fails(2, "--split: filter for rnn, which has no images, expected batch or time",
               "train rnn --seq-len 4 --samples 20 --ranks 2 --split filter");
  assert_fails(2, "a schedule's F.csv; did you mean spatial?", TRAIN " --ranks 2 --split spatia");
  assert_runs(TRAIN " --iterations 1 --save-weights W.safetensors");
  assert_fails(2, "--split: split \"filter\": expected batch, time, or time:P,batch:Q",
               "eval net.json --weights W.safetensors --data npy:IX.npy,IY.npy --ranks 2 --split filter");
}

/* Rank 1 dies at one operation after the other, until there are no more: one line, and no weights. */
static void test_a_rank_dies(void **state) {
  (void)state;
  write_files();
  for (size_t i = 0; i < 5; ++i) {
    static const char *const cut[] = {"spatial", "filter", "channel", "data+spatial", "data+filter"};
    int64_t operation = 1;
    for (;; operation += operation < 10 ? 1 : 7) {
      const bppsa_comm_fault fault = {.die_at = operation};
      remove("dead.safetensors");
      bppsa_comm_set_run_fault(1, &fault);
      run_result died = run(TRAIN " --iterations 1 --ranks 4 --split %s --save-weights dead.safetensors", cut[i]);
      bppsa_comm_set_run_fault(1, NULL);
      const int code = died.code;
      if (code != 0) {
        assert_int_equal(code, 1);
        assert_one_error(&died, "rank 1 died at operation");
      }
      assert_int_equal(file_exists("dead.safetensors"), code == 0);
      release(&died);
      if (code == 0) {
        break;
      }
    }
    assert_true(operation > 20);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_trains_as_one_rank, enter_directory, leave_directory),
                                     cmocka_unit_test_setup_teardown(test_resumes, enter_directory, leave_directory),
                                     cmocka_unit_test_setup_teardown(test_documents, enter_directory, leave_directory),
                                     cmocka_unit_test_setup_teardown(test_refuses, enter_directory, leave_directory),
                                     cmocka_unit_test_setup_teardown(test_a_rank_dies, enter_directory, leave_directory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
