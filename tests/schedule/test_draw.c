/* Drawings of schedules: boxes in their lanes, tooltips, and a list that takes no time. */
#include "schedule/timed.h"
#include "tests/core/helpers.h"

static bppsa_text draw(const char *id, const bppsa_schedule_config *config, bppsa_timed *timed) {
  bppsa_schedule *list = NULL;
  bppsa_text text = {0};
  assert_int_equal(bppsa_schedule_create(id, config, &list), BPPSA_OK);
  assert_int_equal(bppsa_timed_create(list, timed), BPPSA_OK);
  assert_int_equal(bppsa_schedule_draw(timed, &text), BPPSA_OK);
  return text;
}

static int count_of(const char *text, const char *part) {
  int count = 0;
  for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) {
    ++count;
  }
  return count;
}

/* The top and the height of the first box of a kind. */
static void box_of(const char *text, const char *kind, double *y, double *height) {
  char start[64];
  double x, width;
  snprintf(start, sizeof start, "<g class=\"op %s\"><title>", kind);
  const char *at = strstr(text, start);
  assert_non_null(at);
  at = strstr(at, "<rect");
  assert_non_null(at);
  assert_int_equal(sscanf(at, "<rect x=\"%lf\" y=\"%lf\" width=\"%lf\" height=\"%lf\"", &x, y, &width, height), 4);
}

/* Every operation that takes time is a group with a tooltip. Passes are above transfers; no lane reaches into the next one, and
 * the next worker begins below all of them. */
static void test_lanes(void **state) {
  (void)state;
  bppsa_schedule_config config = bppsa_schedule_config_default();
  bppsa_timed timed;
  config.stages = 2;
  config.micro_batches = 3;
  config.alpha = 0.5;
  bppsa_text text = draw("gpipe", &config, &timed);
  int operations = 0;
  for (int64_t id = 0; id < timed.list->count; ++id) {
    operations += timed.list->ops[id].kind != BPPSA_KIND_RECV && timed.times.end[id] > timed.times.start[id];
  }
  assert_true(operations > 12);
  assert_int_equal(count_of(text.text, "<g class=\"op "), operations);
  assert_int_equal(count_of(text.text, "<g"), count_of(text.text, "</g>"));
  assert_int_equal(count_of(text.text, "<title>"), operations + 1);
  assert_non_null(strstr(text.text, "<title>gpipe, D = 2, N = 3: makespan "));
  assert_int_equal(count_of(text.text, ">gpipe, D = 2, N = 3: makespan "), 2); /* and as words */
  double pass, transfer, next, height, low;
  box_of(text.text, "F", &pass, &height);
  box_of(text.text, "SEND", &transfer, &low);
  assert_true(pass + height <= transfer && transfer <= pass + height + 5);
  assert_true(low < height);
  const char *second = strstr(text.text, "stage 1,");
  assert_non_null(second);
  while (second > text.text && strncmp(second, "<g class", 8) != 0) {
    --second;
  }
  assert_true(second > text.text);
  box_of(second, "F", &next, &height);
  assert_true(next > transfer + low);
  bppsa_text_free(&text);
  bppsa_timed_free(&timed);
}

/* A list that takes no time has workers and an axis on which one unit of time is one pixel wide, but no boxes. */
static void test_no_time(void **state) {
  (void)state;
  bppsa_schedule_config config = bppsa_schedule_config_default();
  bppsa_timed timed;
  memset(config.uniform, 0, sizeof config.uniform);
  config.stages = 2;
  bppsa_text text = draw("gpipe", &config, &timed);
  assert_true(timed.times.makespan == 0);
  assert_int_equal(count_of(text.text, "<g class=\"op "), 0);
  assert_int_equal(count_of(text.text, ">worker "), 2);
  assert_int_equal(count_of(text.text, ">600<"), 1);
  assert_int_equal(count_of(text.text, ">700<"), 0);
  bppsa_text_free(&text);
  bppsa_timed_free(&timed);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_lanes), cmocka_unit_test(test_no_time)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
