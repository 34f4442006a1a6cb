/* Plans and statistics of forward passes as JSON. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "core/base/alloc.h"
#include "core/files/json.h"
#include "recurrent/parallel_forward.h"
#include "tests/support/json_memory.h"

static void assert_document(json_t *found, const char *expected) {
  json_error_t error;
  json_t *wanted = json_loads(expected, JSON_REJECT_DUPLICATES, &error);
  assert_non_null(wanted);
  if (!json_equal(found, wanted)) {
    char *text = json_dumps(found, JSON_ENCODE_ANY);
    fail_msg("%s, expected %s", text != NULL ? text : "nothing", expected);
  }
  json_decref(wanted);
  json_decref(found);
}

static const bppsa_forward_plan plan = {.speculative = true,
                                        .chunks = 32,
                                        .warm_up = 48,
                                        .rounds = 8,
                                        .accept = 0.25,
                                        .stop = 0.125,
                                        .settled = 0.0625,
                                        .far = 0.5,
                                        .most_work = 2.5,
                                        .most_path = 0.75};
static const bppsa_forward_stats stats = {.speculated = true,
                                          .passes = 3,
                                          .path = 125,
                                          .possible = 1000,
                                          .work = 1.5,
                                          .rounds = 2,
                                          .mended = 7,
                                          .reseeded = 1,
                                          .tails = 4,
                                          .gap = 0.03125};

static void test_documents(void **state) {
  (void)state;
  assert_document(bppsa_forward_plan_json(&plan), "{\"kind\": \"speculative\", \"chunks\": 32, \"warm_up\": 48, \"rounds\": 8, "
                                                  "\"accept\": 0.25, \"stop\": 0.125, \"most_work\": 2.5, \"most_path\": 0.75}");
  bppsa_forward_plan open = plan; /* a limit that is not known is left out */
  open.most_work = (double)INFINITY;
  open.most_path = BPPSA_FORWARD_MOST_PATH;
  open.speculative = false;
  open.chunks = 1;
  open.warm_up = open.rounds = 0;
  assert_document(bppsa_forward_plan_json(&open), "{\"kind\": \"sequential\", \"chunks\": 1, \"warm_up\": 0, \"rounds\": 0, "
                                                  "\"accept\": 0.25, \"stop\": 0.125}");
  assert_document(bppsa_forward_stats_json(&stats),
                  "{\"speculated\": true, \"passes\": 3, \"path\": 125, \"possible\": 1000, \"work\": 1.5, \"rounds\": 2, "
                  "\"mended\": 7, \"reseeded\": 1, \"tails\": 4, \"gap\": 0.03125}");
}

static json_t *plan_json(void) {
  return bppsa_forward_plan_json(&plan);
}

static json_t *stats_json(void) {
  return bppsa_forward_stats_json(&stats);
}

/* Whichever allocation fails, there is a whole document or none. */
static void test_memory(void **state) {
  (void)state;
  static json_t *(*const makers[])(void) = {plan_json, stats_json};
  for (int i = 0; i < 2; ++i) {
    json_t *whole = makers[i]();
    const int64_t live = bppsa_alloc_live();
    int64_t call = 1;
    for (bool done = false; !done; ++call) {
      bppsa_alloc_fail_at(call);
      json_t *found = makers[i]();
      done = bppsa_alloc_calls() < call;
      bppsa_alloc_fail_at(0);
      assert_int_equal(found != NULL, done);
      assert_true(found == NULL || json_equal(found, whole));
      json_decref(found);
      assert_int_equal(bppsa_alloc_live(), live);
    }
    assert_true(call > 8);
    json_decref(whole);
  }
}

int main(void) {
  count_json_memory();
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_documents), cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
