/* The cache of measured plans without a planner: what is kept, what counts as empty, where it lies. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files/json.h"
#include "networks/plan_cache.h"
#include "tests/core/helpers.h"
#include "tests/support/folder.h"
#include "tests/support/io_fault.h"
#include "tests/support/json_memory.h"

#define CACHE "plan_cache"
#define PLANS CACHE "/bppsa/plans.json"

static const bppsa_gradient_method chunked = {BPPSA_BACKWARD_SCAN,
                                              {.algorithm = BPPSA_SCAN_CHUNKED, .up_levels = -1, .chunks = 7}};

static void use_cache(const char *name) {
  char directory[2048];
  assert_non_null(getcwd(directory, sizeof directory - 64));
  strcat(directory, "/");
  strcat(directory, name);
  assert_int_equal(setenv("XDG_CACHE_HOME", directory, 1), 0);
}

static void fresh_cache(void) {
  remove_folder(CACHE);
  use_cache(CACHE);
}

static void test_kept(void **state) {
  (void)state;
  bppsa_gradient_method found = {.backward = BPPSA_BACKWARD_AUTO};
  fresh_cache();
  assert_false(bppsa_plan_cache_find("a", &found));
  assert_int_equal(found.backward, BPPSA_BACKWARD_AUTO); /* untouched */
  assert_int_equal(bppsa_plan_cache_store("a", &chunked, 0.5), BPPSA_OK);
  assert_int_equal(bppsa_plan_cache_store("b", &(bppsa_gradient_method){.backward = BPPSA_BACKWARD_BP}, 0.25), BPPSA_OK);
  assert_true(bppsa_plan_cache_find("a", &found));
  assert_true(found.backward == BPPSA_BACKWARD_SCAN && found.scan.algorithm == BPPSA_SCAN_CHUNKED && found.scan.chunks == 7);
  assert_true(bppsa_plan_cache_find("b", &found));
  assert_int_equal(found.backward, BPPSA_BACKWARD_BP);
  assert_false(bppsa_plan_cache_find("c", &found));
  assert_int_equal(bppsa_plan_cache_store("b", &chunked, 0.125), BPPSA_OK); /* in the place of the older one */
  assert_true(bppsa_plan_cache_find("b", &found));
  assert_int_equal(found.backward, BPPSA_BACKWARD_SCAN);
  json_t *document = NULL;
  assert_int_equal(bppsa_json_load(PLANS, &document), BPPSA_OK);
  assert_int_equal(json_array_size(json_object_get(document, "plans")), 2);
  json_decref(document);
}

/* What speculative BP costs, of a plan's text, beside the method. */
static void test_speculation(void **state) {
  (void)state;
  bppsa_backward_method found = bppsa_backward_method_default();
  const bppsa_backward_plan plan = {
      .speculative = true, .chunks = 3, .warm_up = 40, .rounds = 1, .accept = 1e-6, .cost = {.path = .125, .work = .75}};
  fresh_cache();
  found.exact_inputs = true;
  assert_false(bppsa_plan_cache_find_speculation("s", &found));
  assert_int_equal(bppsa_plan_cache_store_speculation("s", &plan, 0.5), BPPSA_OK);
  assert_true(bppsa_plan_cache_find_speculation("s", &found));
  assert_true(found.cost.fixed == 0 && found.cost.path == .125 && found.cost.work == .75);
  assert_true(found.chunks == 0 && found.warm_up == -1 && found.exact_inputs); /* these are not kept */
  static const char *const texts[] = {"", "bp", "speculative, 3 chunks, warm-up 40, 1 rounds, tolerance 1e-06", "x"};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; ++i) {
    char document[200];
    snprintf(document, sizeof document, "{\"format\": 1, \"plans\": [{\"key\": \"s\", \"speculation\": \"%s\"}]}", texts[i]);
    put_file(PLANS, document, strlen(document));
    assert_false(bppsa_plan_cache_find_speculation("s", &found));
  }
}

/* How states are computed: kind and work of a plan's text, beside methods under keys of their own. */
static void test_forward(void **state) {
  (void)state;
  bppsa_forward_method found = bppsa_forward_method_default();
  bppsa_gradient_method method;
  const bppsa_forward_plan plan = {
      .speculative = true, .chunks = 3, .warm_up = 40, .rounds = 8, .accept = 1e-6, .most_work = 1.25, .most_path = 0.75};
  fresh_cache();
  found.chunks = 7;
  assert_false(bppsa_plan_cache_find_forward("f", &found));
  assert_int_equal(bppsa_plan_cache_store_forward("f", &plan, 0.5), BPPSA_OK);
  assert_int_equal(bppsa_plan_cache_store_forward("s", &(bppsa_forward_plan){.chunks = 1}, 0.5), BPPSA_OK);
  assert_int_equal(bppsa_plan_cache_store("m", &chunked, 0.5), BPPSA_OK);
  assert_true(bppsa_plan_cache_find_forward("f", &found));
  assert_true(found.kind == BPPSA_FORWARD_SPECULATIVE && found.most_work == 1.25 && found.chunks == 7 && found.most_path == 0.75);
  assert_false(bppsa_plan_cache_find("f", &method));
  assert_false(bppsa_plan_cache_find_forward("m", &found));
  assert_true(bppsa_plan_cache_find_forward("s", &found));
  assert_true(found.kind == BPPSA_FORWARD_SEQUENTIAL && found.most_work == 0);
  static const char *const texts[] = {"", "auto", "speculative, work up to 0", "chunked", "speculative, work up to x"};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; ++i) {
    char document[200];
    snprintf(document, sizeof document, "{\"format\": 1, \"plans\": [{\"key\": \"f\", \"forward\": \"%s\"}]}", texts[i]);
    put_file(PLANS, document, strlen(document));
    assert_false(bppsa_plan_cache_find_forward("f", &found));
  }
}

/* The oldest of a thousand plans makes room for the next one. */
static void test_oldest(void **state) {
  (void)state;
  bppsa_gradient_method found;
  char key[16];
  fresh_cache();
  assert_int_equal(bppsa_plan_cache_store("0", &chunked, 1), BPPSA_OK);
  json_t *document = NULL;
  assert_int_equal(bppsa_json_load(PLANS, &document), BPPSA_OK);
  json_t *plans = json_object_get(document, "plans");
  for (int i = 1; i < 1000; ++i) {
    json_t *plan = json_deep_copy(json_array_get(plans, 0));
    snprintf(key, sizeof key, "%d", i);
    json_object_set_new(plan, "key", json_string(key));
    assert_int_equal(json_array_append_new(plans, plan), 0);
  }
  assert_int_equal(json_dump_file(document, PLANS, 0), 0);
  json_decref(document);
  assert_true(bppsa_plan_cache_find("0", &found));
  assert_int_equal(bppsa_plan_cache_store("new", &chunked, 1), BPPSA_OK);
  assert_false(bppsa_plan_cache_find("0", &found));
  assert_true(bppsa_plan_cache_find("1", &found) && bppsa_plan_cache_find("999", &found) && bppsa_plan_cache_find("new", &found));
}

/* A file that cannot be used counts as empty, and the next plan replaces it. */
static void test_unusable(void **state) {
  (void)state;
  static const char *const texts[] = {
      "", "{", "[]", "{\"format\": 1}", "{\"format\": 2, \"plans\": [{\"key\": \"a\", \"backward\": \"bp\"}]}",
      "{\"format\": 1, \"plans\": {\"key\": \"a\"}}", "{\"format\": 1, \"plans\": [1, {\"key\": 7}, {\"key\": \"a\"}]}",
      /* nothing is decided by it */
      "{\"format\": 1, \"plans\": [{\"key\": \"a\", \"backward\": \"auto\"}]}"};
  bppsa_gradient_method found;
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; ++i) {
    fresh_cache();
    assert_int_equal(bppsa_plan_cache_store("z", &chunked, 1), BPPSA_OK);
    put_file(PLANS, texts[i], strlen(texts[i]));
    assert_false(bppsa_plan_cache_find("a", &found));
    assert_int_equal(bppsa_plan_cache_store("a", &chunked, 1), BPPSA_OK);
    assert_true(bppsa_plan_cache_find("a", &found));
  }
}

/* $XDG_CACHE_HOME where it is absolute, otherwise $HOME/.cache; without a home nothing is kept. */
static void test_places(void **state) {
  (void)state;
  char home[2048];
  bppsa_gradient_method found;
  assert_non_null(getcwd(home, sizeof home - 64));
  strcat(home, "/plan_home");
  fresh_folder("plan_home");
  assert_int_equal(setenv("HOME", home, 1), 0);
  assert_int_equal(setenv("XDG_CACHE_HOME", "relative", 1), 0);
  assert_int_equal(bppsa_plan_cache_store("h", &chunked, 1), BPPSA_OK);
  assert_int_equal(access("plan_home/.cache/bppsa/plans.json", F_OK), 0);
  assert_true(bppsa_plan_cache_find("h", &found));
  assert_int_equal(unsetenv("XDG_CACHE_HOME") + unsetenv("HOME"), 0);
  assert_false(bppsa_plan_cache_find("h", &found));
  assert_error(bppsa_plan_cache_store("h", &chunked, 1), BPPSA_ERR_IO, "no cache directory, expected XDG_CACHE_HOME or HOME");
  remove_folder(CACHE);
  put_file(CACHE, "x", 1); /* a file where the directory should be */
  use_cache(CACHE);
  assert_error(bppsa_plan_cache_store("h", &chunked, 1), BPPSA_ERR_IO, "no cache directory");
  assert_int_equal(remove(CACHE), 0);
}

static bppsa_status store(void *argument) {
  (void)argument;
  return bppsa_plan_cache_store("walked", &chunked, 1);
}

static bppsa_status store_forward(void *argument) {
  (void)argument;
  return bppsa_plan_cache_store_forward("walked forward", &(bppsa_forward_plan){.chunks = 1}, 1);
}

/* Out of memory, or with any call to the system failing: what was kept is kept, unless its file could not be read. */
static void test_failures(void **state) {
  (void)state;
  bppsa_gradient_method found;
  fresh_cache();
  assert_true(walk_allocations(store, NULL) > 5 && walk_allocations(store_forward, NULL) > 5);
  io_fault fault;
  for (int64_t call = 1;; ++call) {
    assert_int_equal(bppsa_plan_cache_store("old", &chunked, 1), BPPSA_OK);
    io_fault_set(&fault, call, false, EIO);
    const bppsa_status status = bppsa_plan_cache_store("faulty", &chunked, 1);
    io_fault_clear();
    assert_true(status == BPPSA_OK || status == BPPSA_ERR_IO);
    if (fault.failed == 0) {
      break;
    }
    assert_true(bppsa_plan_cache_find("old", &found) || fault.read_failed); /* a file that cannot be read is replaced */
  }
  assert_true(bppsa_plan_cache_find("faulty", &found));
}

int main(void) {
  count_json_memory();
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_kept),        cmocka_unit_test(test_forward),
                                     cmocka_unit_test(test_speculation), cmocka_unit_test(test_oldest),
                                     cmocka_unit_test(test_unusable),    cmocka_unit_test(test_places),
                                     cmocka_unit_test(test_failures)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
