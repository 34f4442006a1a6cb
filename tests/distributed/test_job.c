/* How the ranks of a program share splits and processors. */
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/pool.h"
#include "distributed/job.h"
#include "tests/comm/cases.h"
#include "tests/support/support.h"

/* Six ranks of which two, three and one have sets of processors of their own. */
static bppsa_status sets(bppsa_comm *comm, void *context) {
  static const int64_t set[] = {7, 7, 8, 8, 8, 9}, cpus[] = {9, 9, 5, 5, 2, 1}, expected[] = {4, 4, 1, 1, 1, 1};
  const int32_t rank = bppsa_comm_rank(comm);
  int64_t threads = -1;
  (void)context;
  BPPSA_TRY(bppsa_job_threads(comm, cpus[rank], set[rank], &threads));
  CHECK(threads == expected[rank]);
  BPPSA_TRY(bppsa_job_threads(comm, 64, bppsa_pool_cpu_set(), &threads)); /* they are on one machine, with all of it */
  CHECK(threads == 10);
  return BPPSA_OK;
}

static void share_processors(void **state) {
  (void)state;
  const bppsa_comm_config config = {.ranks = 6, .timeout = 60};
  const int64_t blocks = bppsa_alloc_live();
  if (bppsa_comm_run(&config, sets, NULL, NULL) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
  assert_int_equal(bppsa_alloc_live(), blocks);
  assert_true(bppsa_pool_cpu_set() >= 0);
}

/* A rank alone on its processors has all of them. */
static bppsa_status alone(bppsa_comm *comm, void *context) {
  int64_t threads = -1;
  (void)context;
  BPPSA_TRY(bppsa_job_threads(comm, 6, 3 + bppsa_comm_rank(comm), &threads));
  CHECK(threads == 6);
  return BPPSA_OK;
}

static void has_all_processors(void **state) {
  (void)state;
  for (int64_t ranks = 1; ranks <= 3; ++ranks) {
    const bppsa_comm_config config = {.ranks = ranks, .timeout = 60};
    if (bppsa_comm_run(&config, alone, NULL, NULL) != BPPSA_OK) {
      fail_msg("%s", bppsa_last_error());
    }
  }
}

static bppsa_status without_memory(bppsa_comm *comm, void *context) {
  int64_t threads = -1;
  (void)context;
  bppsa_alloc_fail_at(1);
  const bppsa_status status = bppsa_job_threads(comm, 4, 4, &threads);
  bppsa_alloc_fail_at(0);
  CHECK(status == BPPSA_ERR_MEMORY && threads == -1);
  return BPPSA_OK;
}

static void memory_runs_out(void **state) {
  (void)state;
  const bppsa_comm_config config = {.ranks = 1, .timeout = 60};
  assert_int_equal(bppsa_comm_run(&config, without_memory, NULL, NULL), BPPSA_OK);
}

static bppsa_status refuse(bppsa_comm *comm, void *context) {
  (void)comm;
  return bppsa_fail(*(const bppsa_status *)context, "batch 3: expected a multiple of 4");
}

/* Every rank refuses a request in the same words. Any other failure is one rank's own, and the message names that rank. */
static void names_ranks_where_they_differ(void **state) {
  (void)state;
  static const struct {
    bppsa_status status;
    bool named;
  } cases[] = {{BPPSA_ERR_ARGUMENT, false},    {BPPSA_ERR_SHAPE, false}, {BPPSA_ERR_FORMAT, false},
               {BPPSA_ERR_UNSUPPORTED, false}, {BPPSA_ERR_IO, true},     {BPPSA_ERR_NUMERIC, true}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    const bppsa_comm_config config = {.ranks = 3, .timeout = 60};
    bppsa_comm_outcome outcome;
    bppsa_status status = cases[i].status;
    char expected[64];
    assert_int_equal(bppsa_job_run(&config, refuse, &status, &outcome), cases[i].status);
    snprintf(expected, sizeof expected, "rank %d: batch 3: expected a multiple of 4", outcome.rank);
    assert_string_equal(bppsa_last_error(), strstr(expected, cases[i].named ? "rank" : "batch"));
  }
}

static void splits(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t ranks, time, batch;
    const char *shown;
  } good[] = {{"batch", 4, 1, 4, "batch"},       {"time", 4, 4, 1, "time"},
              {"time:2,batch:3", 6, 2, 3, NULL}, {"batch:3,time:2", 6, 2, 3, "time:2,batch:3"},
              {"time:2,batch:3", 0, 2, 3, NULL}, {"time:1,batch:5", 5, 1, 5, "batch"}};
  static const char *const bad[] = {"",
                                    "rows",
                                    "time:2",
                                    "time:2,",
                                    "time:2,time:2",
                                    "time:2,batch:2,",
                                    "time:0,batch:4",
                                    "time:-1,batch:4",
                                    "time:,batch:4",
                                    "batch:4",
                                    "time:9999,batch:1"};
  char text[BPPSA_RANK_SPLIT_TEXT];
  bppsa_rank_split split;
  for (size_t i = 0; i < sizeof good / sizeof good[0]; ++i) {
    assert_int_equal(bppsa_rank_split_parse(good[i].text, good[i].ranks, &split), BPPSA_OK);
    assert_int_equal(split.time, good[i].time);
    assert_int_equal(split.batch, good[i].batch);
    assert_string_equal(bppsa_rank_split_text(&split, text, sizeof text), good[i].shown != NULL ? good[i].shown : good[i].text);
  }
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    assert_int_equal(bppsa_rank_split_parse(bad[i], 4, &split), BPPSA_ERR_ARGUMENT);
  }
  assert_int_equal(bppsa_rank_split_parse("time:2,batch:3", 4, &split), BPPSA_ERR_ARGUMENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(share_processors), cmocka_unit_test(has_all_processors),
                                     cmocka_unit_test(memory_runs_out), cmocka_unit_test(names_ranks_where_they_differ),
                                     cmocka_unit_test(splits)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
