/* Drawings of schedules: boxes in their lanes, tooltips, and a list that takes no time. */
#include <math.h>

#include "schedule/timed.h"
#include "tests/core/helpers.h"
#include "tests/support/count.h"

static bppsa_text draw(const char *id, const bppsa_schedule_config *config, bppsa_timed *timed) {
  bppsa_schedule *list = NULL;
  bppsa_text text = {0};
  assert_int_equal(bppsa_schedule_create(id, config, &list), BPPSA_OK);
  assert_int_equal(bppsa_timed_create(list, timed), BPPSA_OK);
  assert_int_equal(bppsa_schedule_draw(timed, &text), BPPSA_OK);
  return text;
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

/* Where the first text of these words is: its anchor, and the height of its middle. */
static const char *place_of(const char *svg, const char *words, double *x, double *y) {
  char wanted[64];
  snprintf(wanted, sizeof wanted, ">%s<", words);
  for (const char *at = strstr(svg, "<text "); at != NULL; at = strstr(at + 1, "<text ")) {
    double size;
    assert_int_equal(sscanf(at, "<text x=\"%lf\" y=\"%lf\" text-anchor=\"%*[a-z]\" font-size=\"%lf\"", x, y, &size), 3);
    *y -= 0.35 * size;
    if (strncmp(strchr(at, '>'), wanted, strlen(wanted)) == 0) {
      return at;
    }
  }
  fail_msg("no text \"%s\"", words);
  return NULL;
}

static void assert_near(double value, double expected) {
  if (!(fabs(value - expected) <= 0.2)) { /* pixels; texts have one decimal */
    fail_msg("%g, expected %g", value, expected);
  }
}

/* Boxes are where the axis says that their operations run, beside their worker's name, and labels are in their middle. */
static void test_places(void **state) {
  (void)state;
  bppsa_schedule_config config = bppsa_schedule_config_default();
  bppsa_timed timed;
  config.stages = 3;
  config.micro_batches = 4;
  config.alpha = 0.5;
  bppsa_text text = draw("1f1b", &config, &timed);
  double zero, end, y, first, second;
  place_of(text.text, "0", &zero, &y); /* the axis comes first */
  place_of(text.text, "25", &end, &y);
  const double unit = (end - zero) / 25;
  assert_true(unit > 10 && timed.times.makespan < 25);
  place_of(text.text, "worker 0", &y, &first);
  place_of(text.text, "worker 1", &y, &second);
  const char *at = text.text;
  int labels = 0;
  for (int64_t id = 0; id < timed.list->count; ++id) {
    const bppsa_schedule_op *op = &timed.list->ops[id];
    double x, top, width, height;
    if (op->kind == BPPSA_KIND_RECV || !(timed.times.end[id] > timed.times.start[id])) {
      continue;
    }
    at = strstr(at, "<g class=\"op ");
    assert_non_null(at);
    assert_int_equal(
        sscanf(strstr(at, "<rect"), "<rect x=\"%lf\" y=\"%lf\" width=\"%lf\" height=\"%lf\"", &x, &top, &width, &height), 4);
    assert_near(x, zero + timed.times.start[id] * unit);
    assert_near(width, (timed.times.end[id] - timed.times.start[id]) * unit);
    if (op->kind == BPPSA_KIND_F || op->kind == BPPSA_KIND_B) {
      char micro[16];
      double middle_x, middle_y;
      snprintf(micro, sizeof micro, "%d", (int)op->micro);
      const char *label = place_of(at, micro, &middle_x, &middle_y);
      assert_true(label < strstr(at, "</g>"));
      assert_near(middle_x, x + width / 2);
      assert_near(middle_y, top + height / 2);
      assert_near(middle_y, first + op->worker * (second - first) - 1); /* beside its worker's name */
      ++labels;
    }
    ++at;
  }
  assert_int_equal(labels, 3 * 4 * 2);
  bppsa_text_free(&text);
  bppsa_timed_free(&timed);
}

/* Pixels from the last worker's base to the middle of the axis' numbers, and from there to the edge of the drawing. */
static void margins_of(const char *svg, double *axis, double *edge) {
  double x, base = 0, height, y;
  for (const char *at = strstr(svg, "<path class=\"memory\""); at != NULL; at = strstr(at + 1, "<path class=\"memory\"")) {
    assert_int_equal(sscanf(at, "<path class=\"memory\" d=\"M%lf %lf", &x, &base), 2);
  }
  place_of(svg, "0", &x, &y);
  assert_int_equal(sscanf(strstr(svg, " height="), " height=\"%lf\"", &height), 1);
  *axis = y - base;
  *edge = height - y;
}

/* However many workers and groups of them a drawing has, it ends below its axis, and the axis below the last worker. */
static void test_height(void **state) {
  (void)state;
  bppsa_schedule_config config = bppsa_schedule_config_default();
  bppsa_timed timed[2];
  config.stages = 2;
  config.micro_batches = 2;
  bppsa_text one = draw("gpipe", &config, &timed[0]);
  config.stages = 5;
  bppsa_text more = draw("1f1b", &config, &timed[1]);
  const bppsa_timed_group both[] = {{.name = "planned", .list = timed[0].list, .times = &timed[0].times},
                                    {.name = "measured", .list = timed[1].list, .times = &timed[1].times}};
  bppsa_text groups = {0};
  assert_int_equal(bppsa_schedule_draw_groups(&(bppsa_timed_groups){.groups = both, .count = 2, .milliseconds = 1}, &groups),
                   BPPSA_OK);
  const char *const drawings[] = {one.text, more.text, groups.text};
  double axis[3], edge[3];
  for (int i = 0; i < 3; ++i) {
    margins_of(drawings[i], &axis[i], &edge[i]);
    assert_true(axis[i] > 10 && edge[i] > 6);
    assert_near(axis[i], axis[0]);
    assert_near(edge[i], edge[0]);
  }
  bppsa_text_free(&one);
  bppsa_text_free(&more);
  bppsa_text_free(&groups);
  bppsa_timed_free(&timed[0]);
  bppsa_timed_free(&timed[1]);
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
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_lanes), cmocka_unit_test(test_places), cmocka_unit_test(test_height),
                                     cmocka_unit_test(test_no_time)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
