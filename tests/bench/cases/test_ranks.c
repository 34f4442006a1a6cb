/* `bench ranks`: its document, with the messages that docs/time-ranks.md counts, its table, wrong requests, out of memory; and the
 * model that it prints beside the times. No time is asserted. */
#include "tests/cli/memory_walk.h"

#include <math.h>

#include "bench/cases/ranks_model.h"

/* ---- the document ---- */

enum { RANKS = 3, LAYERS = 2, GROUPS = 2 };
#define SMALL                                                                                                                    \
  "bench ranks --ranks 3 --seq-len 150 --batch 6 --hidden 5 --input 3 --layers 2 --loss all --micro-batches 2 --repeats 3"

static const json_t *find_row(const json_t *document, const char *network, const char *share, const char *method, int64_t ranks) {
  const json_t *row;
  size_t i;
  json_array_foreach(json_object_get(document, "rows"), i, row) {
    if (strcmp(get_text(row, "network"), network) == 0 && strcmp(get_text(row, "share"), share) == 0 &&
        strcmp(get_text(row, "method"), method) == 0 && get_integer(row, "ranks") == ranks) {
      return row;
    }
  }
  fail_msg("no row of %s, %s, %s, %d ranks", network, share, method, (int)ranks);
  return NULL;
}

static void check_row(const json_t *row, bool predicted) {
  assert_true(get_real(row, "residual") < 30);
  assert_string_equal(get_text(row, "phase"), "gradients");
  assert_int_equal(get_integer(row, "repeats"), 3);
  assert_int_equal(get_integer(row, "batch"), 6);
  assert_true(get_real(row, "min_s") > 0 && get_real(row, "min_s") <= get_real(row, "median_s"));
  assert_true(get_real(row, "times_alone") > 0);
  assert_true(get_integer(row, "held_bytes") > 0);
  assert_true(json_is_number(json_object_get(row, "model_s")) == predicted);
  assert_true(!predicted || get_real(row, "model_s") > 0);
}

/* The messages of one pass along time on p ranks, all ranks together: forward, backward, injected gradients, sum of weights. */
static int64_t messages_of(const char *method, int64_t p) {
  const int64_t rounds = p > 2 ? 2 : p > 1 ? 1 : 0, tree = p > 1 ? 2 * (p - 1) - rounds : 0;
  const int64_t backward = strcmp(method, "blelloch") == 0 ? tree : p - 1, injected = strcmp(method, "bp") == 0 ? 0 : p - 1;
  return GROUPS * (p - 1) + GROUPS * LAYERS * (backward + injected) + p - 1;
}

static void test_document(void **state) {
  (void)state;
  static const char *const methods[] = {"bp", "linear", "blelloch", "chunked"};
  static const char *const schemes[] = {"wait-free",       "priority",        "reverse-first-1",
                                        "reverse-first-2", "reverse-first-3", "reverse-first-4"};
  json_t *document = run_json(SMALL " --out F.json --json");
  assert_string_equal(get_text(document, "bench"), "ranks");
  assert_string_equal(get_text(document, "transport"), "threads");
  assert_true(get_real(json_object_get(document, "link"), "alpha_s") > 0);
  assert_true(get_real(json_object_get(document, "link"), "beta_s") >= 0);
  assert_int_equal(json_array_size(json_object_get(document, "rows")), 3 + 3 * 6 + 1 + 3 * 6);
  assert_int_equal(json_array_size(json_object_get(document, "left_out")), 0);
  assert_true(get_real(find_row(document, "gru", "alone", "bp", 1), "times_alone") == 1);
  for (int64_t p = 1; p <= RANKS; ++p) {
    for (size_t i = 0; i < 4; ++i) {
      const json_t *row = find_row(document, "gru", "time", methods[i], p);
      check_row(row, p > 1 || i < 2);
      assert_int_equal(get_integer(row, "all_messages"), messages_of(methods[i], p));
      assert_int_equal(get_integer(row, "micro_batches"), GROUPS);
    }
    for (size_t i = 0; i < 6; ++i) {
      check_row(find_row(document, "lenet5", "batch", schemes[i], p), true);
      /* a message and a broadcast for each of 10 parameters, and for the losses */
      assert_int_equal(get_integer(find_row(document, "lenet5", "batch", schemes[i], p), "all_messages"), 11 * (p - 1));
    }
    check_row(find_row(document, "gru", "batch", "priority", p), true);
  }
  /* what a rank holds falls with the number of ranks */
  assert_true(3 * get_integer(find_row(document, "gru", "time", "bp", RANKS), "held_bytes") <
              2 * get_integer(find_row(document, "gru", "time", "bp", 1), "held_bytes"));
  assert_written("F.json", document);
  json_decref(document);
  assert_int_equal(remove("F.json"), 0);
}

/* Beside the rows behind sequential forward passes those behind speculative ones: the same pass for every number of ranks, with its
 * path, its work and a prediction. */
static void test_forward(void **state) {
  (void)state;
  static const char *const methods[] = {"bp-speculative", "linear-speculative", "blelloch-speculative", "chunked-speculative"};
  json_t *document = run_json("bench ranks --ranks 3 --split time --seq-len 150 --batch 2 --hidden 5 --input 3 --init default "
                              "--repeats 3 --forward speculative --forward-chunks 4 --warm-up 9 --json");
  assert_int_equal(json_array_size(json_object_get(document, "rows")), 4 + 3 * 8);
  const json_t *alone = find_row(document, "gru", "alone", "bp-speculative", 1);
  assert_true(get_integer(alone, "path") > 9 + 37 && get_integer(alone, "path") < 150 && get_integer(alone, "possible") == 150);
  assert_null(json_object_get(find_row(document, "gru", "time", "bp", 3), "path"));
  for (int64_t p = 1; p <= 3; ++p) {
    for (size_t i = 0; i < 4; ++i) {
      const json_t *row = find_row(document, "gru", "time", methods[i], p);
      assert_string_equal(get_text(row, "forward"), "speculative");
      assert_true(get_real(row, "residual") < 30 && get_real(row, "work") == get_real(alone, "work"));
      assert_int_equal(get_integer(row, "path"), get_integer(alone, "path"));
      assert_true(json_is_number(json_object_get(row, "model_s")) == (p > 1 || i < 2));
    }
  }
  json_decref(document);
  run_result result = run("bench ranks --ranks 2 --seq-len 60 --batch 2 --hidden 3 --repeats 1 --forward auto");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "\n  time     chunked-auto             2 "));
  assert_null(strstr(result.out, "wait-free-auto")); /* where ranks share samples, forward passes are sequential */
  release(&result);
  assert_fails(2, "--warm-up: given beside --forward sequential", "bench ranks --forward sequential --warm-up 3");
}

static void test_table(void **state) {
  (void)state;
  run_result result = run("bench ranks --ranks 2 --split time --model rnn --dtype f64 --seq-len 5 --batch 1 --repeats 3");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "up to 2 ranks over threads"));
  assert_non_null(strstr(result.out, "rnn: T 5, B 1, I 38, H 20, layers 1, tanh, loss last, f64"));
  assert_non_null(strstr(result.out, "\n  time     blelloch                 2 "));
  assert_null(strstr(result.out, "wait-free"));
  assert_null(strstr(result.out, "lenet5"));
  release(&result);
  result = run("bench ranks --ranks 4 --split batch --seq-len 5 --batch 2 --hidden 3 --repeats 3");
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "batch, wait-free, 4 ranks  left out: 4 ranks, more than the 2 samples of the batch"));
  assert_non_null(strstr(result.out, "\n  batch    reverse-first-4          2 "));
  assert_null(strstr(result.out, "blelloch"));
  release(&result);
}

static void test_requests(void **state) {
  (void)state;
  assert_fails(2, "--ranks: '0', expected a whole number from 1 to 4096", "bench ranks --ranks 0");
  assert_fails(2, "--split: 'time:2,batch:2', expected time or batch", "bench ranks --split time:2,batch:2");
  assert_fails(2, "--micro-batches: 9, expected at most the 8 samples of a batch", "bench ranks --batch 8 --micro-batches 9");
  assert_fails(2, "--transport: 'udp', expected threads, mpi or nccl", "bench ranks --transport udp");
  assert_fails(2, "--transport: nccl", "bench ranks --transport nccl");
  assert_fails(2, "transport mpi: no launcher has started this process", "bench ranks --transport mpi");
  assert_fails(2, "--model: 'lenet5'", "bench ranks --model lenet5");
  assert_fails(2, "--device: device \"gpu\": expected cpu, cuda or cuda:K", "bench ranks --device gpu");
  assert_fails(2, "--out: missing/F.json: cannot write", "bench ranks --out missing/F.json");
}

static void test_memory(void **state) {
  (void)state;
  walk_benchmark("bench ranks --ranks 2 --split time --seq-len 3 --batch 1 --hidden 2 --repeats 1 --json", 11, 300, 151, 2000);
  walk_benchmark("bench ranks --ranks 2 --split batch --seq-len 3 --batch 2 --hidden 2 --repeats 1 --json", 61, 600, 397, 5000);
}

/* ---- the model ---- */

static double time_of(const bppsa_ranks_costs *costs, const char *method, int64_t p) {
  bppsa_gradient_method parsed;
  assert_int_equal(bppsa_gradient_method_parse(method, &parsed), BPPSA_OK);
  return bppsa_ranks_model_time(costs, &parsed, false, p);
}

/* Where only messages take time, a pass takes as many as follow each other: two a level in the sum of weights, p - 1 in the forward
 * pass, and those of docs/time-ranks.md in the backward pass. */
static void test_model_counts_messages(void **state) {
  (void)state;
  const bppsa_ranks_costs costs = {
      .link = {1, 0}, .collective = {1, 0}, .at_once = 1e9, .steps = 1000, .layers = 1, .batch = 1, .micro_batches = 1};
  for (int64_t p = 1; p <= 33; ++p) {
    int64_t levels = 0, wide = 0;
    for (; (1 << levels) < p; ++levels) {
    }
    for (; 3 * (1 << wide) < p; ++wide) {
    }
    const double besides = (double)(2 * levels + p - 1);
    assert_true(time_of(&costs, "bp", p) == besides + (double)(p - 1));
    assert_true(time_of(&costs, "linear", p) == besides + (double)(p - 1));
    assert_true(p == 1 || time_of(&costs, "chunked", p) == besides + (double)(p - 1));
    assert_true(p == 1 || time_of(&costs, "blelloch", p) == besides + (double)(levels + wide));
  }
  assert_true(isnan(time_of(&costs, "chunked", 1)) && isnan(time_of(&costs, "auto", 4)));
}

/* Where messages are free and processors are many: a pipeline of one group gains nothing but the gradients of weights, many groups
 * gain all; the chunked scan pays its products. Where processors are few, nothing takes less than all the work. */
static void test_model_counts_work(void **state) {
  (void)state;
  bppsa_ranks_costs costs = {.forward_s = 1,
                             .backward_s = 2,
                             .product_s = 0.001,
                             .recurrence = 0.5,
                             .at_once = 1e9,
                             .steps = 1000,
                             .layers = 1,
                             .batch = 8,
                             .micro_batches = 1};
  assert_true(fabs(time_of(&costs, "bp", 4) - (1 + 1 + 0.25)) < 1e-12);
  assert_true(fabs(time_of(&costs, "linear", 4) - (1 + 1 + 0.25)) < 1e-12);
  assert_true(fabs(time_of(&costs, "chunked", 4) - (1 + 249 * 0.001 + 0.5)) < 1e-3);
  costs.micro_batches = 8;
  assert_true(fabs(time_of(&costs, "bp", 4) - (11.0 / 32 + 11.0 / 32 + 0.25)) < 1e-12);
  costs.at_once = 1;
  assert_true(time_of(&costs, "bp", 4) >= 3 && time_of(&costs, "chunked", 4) >= 3 + 2 * 249 * 0.001);
}

/* A forward pass in parallel: its work is shared, its path is not; after each phase a message and two sums over all ranks. */
static void test_model_of_parallel_passes(void **state) {
  (void)state;
  const bppsa_gradient_method bp = {.backward = BPPSA_BACKWARD_BP};
  bppsa_ranks_costs costs = {.forward_s = 1,
                             .parallel_s = 0.8,
                             .path = 0.1,
                             .phases = 2,
                             .at_once = 1e9,
                             .steps = 1000,
                             .layers = 1,
                             .batch = 1,
                             .micro_batches = 1};
  assert_true(fabs(bppsa_ranks_model_time(&costs, &bp, true, 4) - 0.2) < 1e-12);
  assert_true(fabs(bppsa_ranks_model_time(&costs, &bp, true, 32) - 0.1) < 1e-12);
  costs.at_once = 1;
  assert_true(fabs(bppsa_ranks_model_time(&costs, &bp, true, 4) - 0.8) < 1e-12);
  costs.forward_s = costs.parallel_s = 0;
  costs.link = costs.collective = (bppsa_link){1, 0};
  /* two phases of a message and twice two levels up and down; a pipeline back, and the sum of weights */
  assert_true(bppsa_ranks_model_time(&costs, &bp, true, 4) == 2 * (1 + 2 * 2 * 2) + 3 + 2 * 2);
  costs.parallel_s = NAN;
  assert_true(isnan(bppsa_ranks_model_time(&costs, &bp, true, 4)) && !isnan(bppsa_ranks_model_time(&costs, &bp, false, 4)));
}

static double batch_of(const bppsa_ranks_costs *costs, const char *scheme, int64_t reverse, int64_t p, int64_t blocks) {
  double seconds = -1;
  assert_int_equal(bppsa_ranks_model_batch(costs, scheme, reverse, p, blocks, &seconds), BPPSA_OK);
  return seconds;
}

static void test_model_of_data_parallelism(void **state) {
  (void)state;
  bppsa_cnn_network network;
  assert_int_equal(bppsa_cnn_network_builtin("lenet5", &network), BPPSA_OK);
  bppsa_ranks_costs costs = {
      .forward_s = 1, .backward_s = 2, .at_once = 1e9, .batch = 128, .weight_bytes = 1000, .parameters = 1};
  assert_true(fabs(batch_of(&costs, "wait-free", 0, 4, 8) - 3.0 / 4) < 1e-12); /* free messages: 2 blocks of 8 a rank */
  costs.at_once = 2;
  assert_true(fabs(batch_of(&costs, "wait-free", 0, 4, 8) - 3.0 / 2) < 1e-12);
  /* one layer: its gradients travel at the end, up and down two levels, and five numbers behind them */
  costs.link = costs.collective = (bppsa_link){0, 0.001};
  const double after = 2 * (2 + 0.08);
  assert_true(fabs(batch_of(&costs, "wait-free", 0, 4, 8) - (3.0 / 2 + after)) < 1e-9);
  assert_true(batch_of(&costs, "wait-free", 0, 1, 8) == 3);
  costs.network = &network; /* layers: all but the first one's gradients travel beside the backward pass */
  costs.parameters = 10;
  const double overlapped = batch_of(&costs, "wait-free", 0, 4, 8);
  assert_true(overlapped > 3.0 / 2 && overlapped < 3.0 / 2 + after);
  assert_true(batch_of(&costs, "reverse-first-k", 2, 4, 8) > 3.0 / 2);
  double seconds = -1;
  assert_int_equal(bppsa_ranks_model_batch(&costs, "reverse-first-k", 9, 4, 8, &seconds), BPPSA_ERR_ARGUMENT);
  assert_true(seconds == -1);
  bppsa_cnn_network_free(&network);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_document),
                                     cmocka_unit_test(test_forward),
                                     cmocka_unit_test(test_table),
                                     cmocka_unit_test(test_requests),
                                     cmocka_unit_test(test_memory),
                                     cmocka_unit_test(test_model_counts_messages),
                                     cmocka_unit_test(test_model_counts_work),
                                     cmocka_unit_test(test_model_of_parallel_passes),
                                     cmocka_unit_test(test_model_of_data_parallelism)};
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}
