/* Schedules and schemes as texts, and the list of schemes as JSON. */
#include "core/files/json.h"
#include "schedule/schedule_report.h"
#include "tests/core/helpers.h"

static void make(const char *id, int64_t stages, bppsa_timed *timed) {
  bppsa_schedule_config config = bppsa_schedule_config_default();
  bppsa_schedule *list = NULL;
  config.stages = stages;
  config.micro_batches = 2;
  assert_int_equal(bppsa_schedule_create(id, &config, &list), BPPSA_OK);
  assert_int_equal(bppsa_timed_create(list, timed), BPPSA_OK);
}

static int count_lines(const char *text) {
  int lines = 0;
  for (; *text != '\0'; ++text) {
    lines += *text == '\n';
  }
  return lines;
}

/* A row a worker; of more than 32 workers the first and the last 16. */
static void test_workers(void **state) {
  (void)state;
  static const struct {
    int64_t stages;
    int rows;
  } cases[] = {{2, 2}, {32, 32}, {33, 33}, {60, 33}};
  int head = 0;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    bppsa_timed timed;
    bppsa_text text = {0};
    char title[64];
    make("gpipe", cases[i].stages, &timed);
    assert_int_equal(bppsa_timed_text(&timed, &text), BPPSA_OK);
    snprintf(title, sizeof title, "gpipe: D %d, N 2, %d workers, ", (int)cases[i].stages, (int)cases[i].stages);
    assert_memory_equal(text.text, title, strlen(title));
    head = i == 0 ? count_lines(text.text) - cases[0].rows : head;
    assert_int_equal(count_lines(text.text), head + cases[i].rows);
    assert_int_equal(strstr(text.text, "    ...\n") != NULL, cases[i].stages > 32);
    bppsa_text_free(&text);
    bppsa_timed_free(&timed);
  }
}

static void test_list(void **state) {
  (void)state;
  int64_t count = 0;
  const bppsa_schedule_scheme *schemes = bppsa_schedule_schemes(&count);
  bppsa_text text = {0};
  json_t *list = bppsa_schedule_list_json();
  assert_int_equal(json_array_size(list), count);
  assert_int_equal(bppsa_schedule_list_text(&text), BPPSA_OK);
  char *options = strstr(text.text, "\n\nOptions that not every scheme takes:\n");
  assert_non_null(options);
  assert_non_null(strstr(options, "\n--chunks                  interleaved\n"));
  assert_non_null(strstr(options, "\n--stages                  all but multi-stream\n"));
  options[1] = '\0';
  assert_int_equal(count_lines(text.text), count);
  for (int64_t i = 0; i < count; ++i) {
    const json_t *one = json_array_get(list, (size_t)i);
    assert_string_equal(json_string_value(json_object_get(one, "id")), schemes[i].id);
    assert_string_equal(json_string_value(json_object_get(one, "paper")), schemes[i].paper);
    assert_non_null(strstr(text.text, schemes[i].summary));
    assert_true(json_array_size(json_object_get(one, "options")) > 0);
  }
  bppsa_text_free(&text);
  json_decref(list);
}

static bppsa_status write_all(void *timed) {
  bppsa_text text = {0}, list = {0};
  bppsa_status status = bppsa_timed_text(timed, &text);
  status = status == BPPSA_OK ? bppsa_schedule_list_text(&list) : status;
  bppsa_text_free(&text);
  bppsa_text_free(&list);
  return status;
}

static void test_memory(void **state) {
  (void)state;
  bppsa_timed timed;
  make("gpipe", 3, &timed);
  assert_true(walk_allocations(write_all, &timed) > 3);
  bppsa_timed_free(&timed);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_workers), cmocka_unit_test(test_list), cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
