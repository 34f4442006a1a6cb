/* `bench ranks --device cuda`: rows of ranks that share a GPU or have one each, over threads and, where the program has it, over
 * NCCL, all of them right; messages as on processors; what a GPU lacks is left out. */
#include "tests/cli/run_cli.h"

#include "comm/comm.h"
#include "core/compute/device.h"

#define SMALL "--seq-len 7 --batch 2 --hidden 3 --input 2 --repeats 1 --threads 1 --json"
#define ALONG_TIME SMALL " --micro-batches 2"

static bool nccl;

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

/* Every row is verified, and has a time and GPU memory that it holds. */
static void check_rows(const json_t *document, size_t count) {
  const json_t *row;
  size_t i;
  assert_int_equal(json_array_size(json_object_get(document, "rows")), count);
  json_array_foreach(json_object_get(document, "rows"), i, row) {
    assert_true(get_real(row, "residual") < 30);
    assert_true(get_real(row, "median_s") > 0);
    assert_true(get_integer(row, "held_bytes") > 0);
  }
}

/* Ranks along time. The fused chunked scan sends gradients alone, blelloch products as well, as ranks on processors do. */
static void along_time(void **state) {
  (void)state;
  for (int t = 0; t <= (nccl ? 1 : 0); ++t) {
    json_t *document =
        run_json("bench ranks --split time --ranks 3 --device cuda %s " ALONG_TIME, t == 1 ? "--transport nccl" : "");
    check_rows(document, 3 + 3 * 4);
    assert_int_equal(get_integer(find_row(document, "gru", "time", "bp", 3), "all_messages"), 2 * 2 + 2 * 2 + 2);
    assert_int_equal(get_integer(find_row(document, "gru", "time", "chunked", 3), "all_messages"), 2 * 2 + 2 * 2 + 2);
    assert_int_equal(get_integer(find_row(document, "gru", "time", "blelloch", 3), "all_messages"), 2 * 2 + 2 * 2 + 2);
    assert_true(get_real(json_object_get(document, "link"), "alpha_s") > 0);
    json_decref(document);
  }
}

/* Rows behind forward passes in parallel over time: the same pass on one GPU and on several. */
static void speculative(void **state) {
  (void)state;
  json_t *document = run_json("bench ranks --split time --ranks 3 --device cuda --forward speculative --forward-chunks 3 "
                              "--warm-up 2 " ALONG_TIME);
  const json_t *alone = find_row(document, "gru", "alone", "bp-speculative", 1);
  check_rows(document, 4 + 3 * 4 * 2);
  for (int64_t ranks = 1; ranks <= 3; ++ranks) {
    const json_t *row = find_row(document, "gru", "time", "bp-speculative", ranks);
    assert_true(get_integer(row, "mended") > 0 && get_integer(row, "mended") == get_integer(alone, "mended"));
    assert_true(get_integer(row, "path") == get_integer(alone, "path") && get_real(row, "work") == get_real(alone, "work"));
  }
  json_decref(document);
  document = run_json("bench ranks --split time --ranks 2 --model lstm --device cuda --forward speculative --forward-chunks 3 "
                      "--warm-up 2 " ALONG_TIME);
  assert_true(get_integer(find_row(document, "lstm", "time", "bp-speculative", 2), "mended") > 0);
  json_decref(document);
}

/* Data parallelism: one order, in which gradients set out when a pass is over. */
static void among_samples(void **state) {
  (void)state;
  json_t *document = run_json("bench ranks --split batch --ranks 2 --device cuda:0 " SMALL);
  const bool images = json_array_size(json_object_get(document, "left_out")) == 0;
  check_rows(document, 3 + 2 + (images ? 1 + 2 : 0));
  (void)find_row(document, "gru", "batch", "wait-free", 2);
  if (images) { /* a message and a broadcast for each of 10 parameters, and for the losses */
    assert_int_equal(get_integer(find_row(document, "lenet5", "batch", "wait-free", 2), "all_messages"), 11);
  } else {
    assert_int_equal(json_array_size(json_object_get(document, "left_out")), 1);
  }
  json_decref(document);
}

static void requests(void **state) {
  (void)state;
  assert_fails(2, "--transport: nccl carries arrays between GPUs, expected --device cuda, not cpu",
               "bench ranks --ranks 2 --transport nccl");
  assert_fails(2, "--device: ", "bench ranks --ranks 2 --device cuda:99");
  if (nccl) {
    assert_fails(2, "transport nccl: ranks 0 and 1 share the GPU", "bench ranks --ranks 2 --device cuda:0 --transport nccl");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(along_time), cmocka_unit_test(speculative), cmocka_unit_test(among_samples),
                                     cmocka_unit_test(requests)};
  bppsa_comm_transport_report reports[BPPSA_COMM_TRANSPORT_COUNT];
  bppsa_cuda_report found = {0};
  (void)setenv("SIMT_DEVICES", "4", 1); /* emulated GPUs */
  bppsa_cuda_probe(&found);
  if (found.devices == 0) {
    puts("no GPU");
    return 77;
  }
  bppsa_comm_transports(reports);
  nccl = found.devices >= 3 && reports[BPPSA_COMM_NCCL].found;
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}
