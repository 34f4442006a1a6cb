/* Schemes in one table, and schedules as JSON when memory runs out. */
#include "core/files/json.h"
#include "schedule/compare.h"
#include "tests/core/helpers.h"
#include "tests/support/json_memory.h"

static void make(const char *id, int64_t micro_batches, bppsa_timed *timed) {
  bppsa_schedule_config config = bppsa_schedule_config_default();
  bppsa_schedule *list = NULL;
  config.stages = 4;
  config.micro_batches = micro_batches;
  assert_int_equal(bppsa_schedule_create(id, &config, &list), BPPSA_OK);
  assert_int_equal(bppsa_timed_create(list, timed), BPPSA_OK);
}

/* The number of lines that begin with a blank and this word. */
static int rows_of(const char *text, const char *word) {
  char start[64];
  int rows = 0;
  snprintf(start, sizeof start, "\n %s ", word);
  for (const char *at = strstr(text, start); at != NULL; at = strstr(at + 1, start)) {
    ++rows;
  }
  return rows;
}

/* A row a schedule, from the first on; what differs is a column and a sentence, what agrees is named once. */
static void test_table(void **state) {
  (void)state;
  static const char *const ids[] = {"gpipe", "1f1b", "pipedream"};
  for (int other = 0; other < 2; ++other) {
    bppsa_schedule_summary rows[3];
    bppsa_text text = {0};
    for (int i = 0; i < 3; ++i) {
      bppsa_timed timed;
      make(ids[i], i == 2 && other ? 8 : 4, &timed);
      rows[i] = bppsa_schedule_summarise(&timed);
      assert_true(rows[i].makespan == timed.times.makespan);
      assert_true(rows[i].least <= rows[i].most);
      bppsa_timed_free(&timed);
    }
    bppsa_schedule_table(rows, 0, &text);
    assert_null(text.text); /* no rows, no heading */
    bppsa_schedule_table(rows, 3, &text);
    assert_int_equal(bppsa_text_check(&text), BPPSA_OK);
    for (int i = 0; i < 3; ++i) {
      assert_int_equal(rows_of(text.text, ids[i]), 1);
    }
    assert_int_equal(strstr(text.text, "micro-batches 4") != NULL, !other);
    assert_int_equal(strstr(text.text, "Not the same for all: micro-batches.") != NULL, other);
    json_t *differences = bppsa_schedule_differences(rows, 3);
    assert_int_equal(json_array_size(differences), other);
    assert_true(!other || strcmp(json_string_value(json_array_get(differences, 0)), "micro_batches") == 0);
    json_decref(differences);
    bppsa_text_free(&text);
  }
}

/* Each operation of the document says where it runs, and what it is. */
static void test_operations(void **state) {
  (void)state;
  bppsa_timed timed;
  make("1f1b", 4, &timed);
  json_t *document = bppsa_timed_json(&timed, true);
  const json_t *ops = json_object_get(document, "ops");
  assert_int_equal(json_array_size(ops), timed.list->count);
  for (int64_t id = 0; id < timed.list->count; ++id) {
    const json_t *op = json_array_get(ops, (size_t)id);
    const bppsa_schedule_op *expected = &timed.list->ops[id];
    assert_int_equal(json_integer_value(json_object_get(op, "id")), id);
    assert_true(json_is_integer(json_object_get(op, "worker")));
    assert_int_equal(json_integer_value(json_object_get(op, "worker")), expected->worker);
    assert_int_equal(json_integer_value(json_object_get(op, "stage")), expected->stage);
    assert_string_equal(json_string_value(json_object_get(op, "kind")), bppsa_schedule_kind_name(expected->kind));
    assert_true(json_real_value(json_object_get(op, "end")) == timed.times.end[id]);
  }
  json_decref(document);
  bppsa_timed_free(&timed);
}

/* Every allocation fails once: the document is whole or NULL. */
static void test_memory(void **state) {
  (void)state;
  bppsa_timed timed;
  make("1f1b", 1, &timed);
  json_t *whole = bppsa_timed_json(&timed, true);
  const int64_t live = bppsa_alloc_live();
  int64_t call = 1;
  for (bool done = false; !done; ++call) {
    bppsa_alloc_fail_at(call);
    json_t *found = bppsa_timed_json(&timed, true);
    done = bppsa_alloc_calls() < call; /* nothing has failed */
    bppsa_alloc_fail_at(0);
    assert_int_equal(found != NULL, done);
    assert_true(found == NULL || json_equal(found, whole));
    json_decref(found);
    assert_int_equal(bppsa_alloc_live(), live);
  }
  assert_true(call > 100);
  json_decref(whole);
  bppsa_timed_free(&timed);
}

/* Times that were measured are copied, or nothing is. */
static void test_times_memory(void **state) {
  (void)state;
  bppsa_timed timed;
  make("gpipe", 2, &timed);
  const int64_t live = bppsa_alloc_live();
  bppsa_status status = BPPSA_ERR_MEMORY;
  int64_t call = 0;
  while (status == BPPSA_ERR_MEMORY) {
    bppsa_schedule_times times = {0};
    bppsa_alloc_fail_at(++call);
    status = bppsa_schedule_times_of(timed.list, timed.times.start, timed.times.end, &times);
    bppsa_alloc_fail_at(0);
    assert_true(status == BPPSA_OK ? times.start != NULL : times.start == NULL && times.end == NULL);
    bppsa_schedule_times_free(&times);
    assert_int_equal(bppsa_alloc_live(), live);
  }
  assert_int_equal(status, BPPSA_OK);
  assert_true(call > 2);
  bppsa_timed_free(&timed);
}

static void test_null(void **state) {
  (void)state;
  bppsa_timed timed;
  bppsa_schedule_times times;
  make("gpipe", 2, &timed);
  assert_error(bppsa_schedule_simulate(NULL, &times), BPPSA_ERR_ARGUMENT, "NULL");
  assert_error(bppsa_schedule_simulate(timed.list, NULL), BPPSA_ERR_ARGUMENT, "NULL");
  assert_error(bppsa_schedule_times_of(NULL, timed.times.start, timed.times.end, &times), BPPSA_ERR_ARGUMENT, "NULL");
  assert_error(bppsa_schedule_times_of(timed.list, NULL, timed.times.end, &times), BPPSA_ERR_ARGUMENT, "NULL");
  assert_error(bppsa_schedule_times_of(timed.list, timed.times.start, NULL, &times), BPPSA_ERR_ARGUMENT, "NULL");
  assert_error(bppsa_schedule_times_of(timed.list, timed.times.start, timed.times.end, NULL), BPPSA_ERR_ARGUMENT, "NULL");
  bppsa_timed_free(&timed);
}

int main(void) {
  count_json_memory();
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_table), cmocka_unit_test(test_operations),
                                     cmocka_unit_test(test_memory), cmocka_unit_test(test_times_memory),
                                     cmocka_unit_test(test_null)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
