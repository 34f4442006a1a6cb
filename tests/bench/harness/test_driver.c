/* The driver of benchmarks with a benchmark of the test's own: verified before timed, rows, table, what is left out, verdict. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness/driver.h"
#include "core/base/alloc.h"

/* A pass that does what the test says. */
typedef struct {
  const char *name;
  double residual;
  bppsa_status judged;  /* what its verification answers */
  int64_t refuses_from; /* this call and later ones are refused; 0: none */
  int64_t calls, cleared, judged_calls;
} actor;

enum { ACTORS = 20 };
static actor actors[ACTORS];
static int64_t count, points;
static bppsa_status prepared; /* what `prepare` answers */
static int64_t left, released;

static bppsa_status act(void *context) {
  actor *a = context;
  ++a->calls;
  return a->refuses_from > 0 && a->calls >= a->refuses_from ? bppsa_fail(BPPSA_ERR_UNSUPPORTED, "enough of this") : BPPSA_OK;
}

static bppsa_status clear(void *context) {
  actor *a = context;
  assert_int_equal(a->calls, 0); /* before the first pass */
  ++a->cleared;
  return BPPSA_OK;
}

static bppsa_status judge(void *context, double *residual) {
  actor *a = context;
  assert_true(a->calls == 1 && a->cleared == 1); /* one pass, on cleared results, before any that is timed */
  ++a->judged_calls;
  *residual = a->residual;
  return a->judged == BPPSA_OK ? BPPSA_OK : bppsa_fail(a->judged, "no such thing");
}

static const bppsa_bench_work work = {.action = act, .clear = clear, .judge = judge};

static bppsa_status prepare(bppsa_bench *bench) {
  assert_int_equal(*(int64_t *)bench->session, 0);
  *(int64_t *)bench->session = 7;
  return prepared == BPPSA_OK ? BPPSA_OK : bppsa_fail(prepared, "cannot prepare");
}

static bppsa_status enter(bppsa_bench *bench, int64_t point, bool *more) {
  assert_int_equal(*(int64_t *)bench->session, 7);
  assert_ptr_equal(bench->host, bench->device);
  *more = point < points;
  snprintf(bench->point, sizeof bench->point, "p%d", (int)point);
  for (int64_t i = 0; *more && i < count; ++i) {
    bool entered;
    BPPSA_TRY(bppsa_bench_enter(bench, &work, bench->device, &actors[i], actors[i].name, "try", &entered));
    assert_int_equal(entered, actors[i].judged == BPPSA_OK && actors[i].refuses_from != 1);
  }
  return BPPSA_OK;
}

static bool put(const bppsa_bench_entrant *e, json_t *row) {
  bool ok = bppsa_json_put_text(row, "point", e->bench->point) && bppsa_json_put_text(row, "method", e->method);
  ok = ok && bppsa_json_put_real(row, "residual", e->contender.residual);
  return ok && bppsa_bench_put_timing(row, &e->contender.timing[0]);
}

static bppsa_status head(const bppsa_bench *bench) {
  return bppsa_output_print(&bench->request->to, "the head\n");
}

static void leave(bppsa_bench *bench) {
  assert_int_equal(bench->count, 0); /* no entrant is left that could use what is freed */
  ++left;
}

static void release(bppsa_bench *bench) {
  (void)bench;
  ++released;
}

static const bppsa_table_column columns[] = {{.heading = "point", .width = -6, .key = "point"},
                                             {.heading = "method", .width = -8, .key = "method"},
                                             BPPSA_COLUMN_TIMES(11, 11, 4, 3),
                                             {0}};
static const char *const names[] = {"point", "method", NULL};
static const bppsa_bench_case plain = {.name = "acting",
                                       .session = sizeof(int64_t),
                                       .budget_s = 0.01,
                                       .quick_s = 0.01,
                                       .bound = 30,
                                       .names = names,
                                       .columns = columns,
                                       .prepare = prepare,
                                       .head = head,
                                       .enter = enter,
                                       .put = put,
                                       .leave = leave,
                                       .release = release};

typedef struct {
  bppsa_status status;
  char *out; /* owned */
} outcome;

static outcome drive(const bppsa_bench_case *kind, bool json) {
  outcome o = {0};
  size_t size = 0;
  bppsa_device *device = NULL;
  assert_int_equal(bppsa_device_create("cpu", 1, &device), BPPSA_OK);
  bppsa_bench_request request = {.to = {.err = stderr, .json = json}, .device = device, .repeats = 3};
  request.to.out = open_memstream(&o.out, &size);
  left = released = 0;
  const int64_t live = bppsa_alloc_live();
  o.status = bppsa_bench_drive(kind, &request, NULL);
  assert_int_equal(bppsa_alloc_live(), live);
  fclose(request.to.out);
  bppsa_device_destroy(device);
  return o;
}

static void cast(int64_t of_points, int64_t of_actors, const actor *list) {
  points = of_points;
  count = of_actors;
  prepared = BPPSA_OK;
  for (int64_t i = 0; i < of_actors; ++i) {
    actors[i] = list[i];
  }
}

static double number(const json_t *rows, size_t i, const char *key) {
  const json_t *found = json_object_get(json_array_get(rows, i), key);
  return json_is_number(found) ? json_number_value(found) : NAN;
}

/* Right and wrong contenders have rows, in the order in which they were entered. Only the right ones were timed. */
static void test_document(void **state) {
  (void)state;
  cast(1, 3, (actor[]){{.name = "a", .residual = 1}, {.name = "b", .residual = 30}, {.name = "c", .residual = 2}});
  outcome o = drive(&plain, true);
  assert_int_equal(o.status, BPPSA_ERR_NUMERIC);
  assert_string_equal(bppsa_last_error(), "bench: 1 of 3 rows have a residual of 30 or more, up to 30, expected less");
  json_t *document = json_loads(o.out, 0, NULL);
  const json_t *rows = json_object_get(document, "rows");
  assert_string_equal(json_string_value(json_object_get(document, "bench")), "acting");
  assert_int_equal(json_array_size(rows), 3);
  assert_int_equal(json_array_size(json_object_get(document, "left_out")), 0);
  assert_true(number(rows, 0, "repeats") == 3 && number(rows, 1, "repeats") == 0 && number(rows, 2, "repeats") == 3);
  assert_true(number(rows, 0, "median_s") >= 0 && isnan(number(rows, 1, "median_s")) && isnan(number(rows, 1, "min_s")));
  assert_true(number(rows, 0, "residual") == 1 && number(rows, 1, "residual") == 30);
  assert_true(actors[0].calls >= 1 + 1 + 3 && actors[1].calls == 1 && actors[2].calls >= 1 + 1 + 3);
  assert_true(left == 2 && released == 1); /* after the point, and after the search for another one */
  json_decref(document);
  free(o.out);
}

/* The table: head, headings, a row each; WRONG behind a row that is, and no time in it. */
static void test_table(void **state) {
  (void)state;
  cast(1, 2, (actor[]){{.name = "right", .residual = 1}, {.name = "bad", .residual = INFINITY}});
  outcome o = drive(&plain, false);
  assert_int_equal(o.status, BPPSA_ERR_NUMERIC);
  assert_memory_equal(o.out, "the head\n  point   method       median        min        max   n\n", 63);
  assert_non_null(strstr(o.out, "\n  p0      right  "));
  assert_non_null(strstr(o.out, "\n  p0      bad               -          -          -   0  WRONG\n"));
  free(o.out);
}

/* What is refused, when it is verified or in the rounds, is left out with its reason; the others are measured. */
static void test_left_out(void **state) {
  (void)state;
  const actor list[] = {{.name = "never", .judged = BPPSA_ERR_UNSUPPORTED}, {.name = "late", .refuses_from = 3}, {.name = "yes"}};
  cast(1, 3, list);
  outcome o = drive(&plain, true);
  assert_int_equal(o.status, BPPSA_OK);
  json_t *document = json_loads(o.out, 0, NULL);
  const json_t *rows = json_object_get(document, "rows"), *left_out = json_object_get(document, "left_out");
  assert_int_equal(json_array_size(rows), 1);
  assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 0), "method")), "yes");
  assert_int_equal(json_array_size(left_out), 2);
  const char *const expected[2][2] = {{"never", "no such thing"}, {"late", "enough of this"}};
  for (size_t i = 0; i < 2; ++i) {
    const json_t *one = json_array_get(left_out, i);
    assert_string_equal(json_string_value(json_object_get(one, "point")), "p0");
    assert_string_equal(json_string_value(json_object_get(one, "method")), expected[i][0]);
    assert_string_equal(json_string_value(json_object_get(one, "reason")), expected[i][1]);
  }
  json_decref(document);
  free(o.out);
  cast(1, 1, list);
  o = drive(&plain, false);
  assert_int_equal(o.status, BPPSA_OK);
  assert_non_null(strstr(o.out, "\n  p0      never     left out: no such thing\n"));
  free(o.out);
}

/* An error of a part ends the run, and everything is released. */
static void test_errors(void **state) {
  (void)state;
  cast(1, 1, (actor[]){{.name = "a"}});
  prepared = BPPSA_ERR_ARGUMENT;
  outcome o = drive(&plain, true);
  assert_int_equal(o.status, BPPSA_ERR_ARGUMENT);
  assert_true(actors[0].calls == 0 && released == 1 && o.out[0] == '\0'); /* half a document is none */
  free(o.out);
  cast(1, 2, (actor[]){{.name = "a"}, {.name = "b", .judged = BPPSA_ERR_CUDA}});
  actors[1].name = "b";
  o = drive(&plain, true);
  assert_int_equal(o.status, BPPSA_ERR_CUDA);
  assert_true(actors[0].calls == 1 && left == 1 && released == 1 && o.out[0] == '\0');
  free(o.out);
}

static bppsa_status enter_unverified(bppsa_bench *bench, int64_t point, bool *more) {
  const bppsa_contender contender = {.pass = bppsa_timed_work_pass, .parts = 1};
  *more = point == 0;
  return *more ? bppsa_bench_enter_contender(bench, &contender, NULL, "sly", "", NULL) : BPPSA_OK;
}

/* A contender that nothing verifies is refused when it is entered. */
static void test_unverified(void **state) {
  (void)state;
  bppsa_bench_case kind = plain;
  kind.enter = enter_unverified;
  cast(1, 0, NULL);
  outcome o = drive(&kind, true);
  assert_int_equal(o.status, BPPSA_ERR_ARGUMENT);
  assert_string_equal(bppsa_last_error(), "rounds: sly has no verification, expected one before it is timed");
  free(o.out);
}

/* ---- lines ---- */

static int64_t idle_points; /* the first ones */
static int64_t needs;       /* bytes, of what is skipped */
static bool only_skipped;
static int64_t settled, finished;

static bppsa_status enter_lines(bppsa_bench *bench, int64_t point, bool *more) {
  bench->points = points;
  bench->idle = point < idle_points;
  bench->deadline = 1e-9; /* is over */
  if (point >= points || bench->idle || bppsa_bench_out_of_time(bench)) {
    *more = point < points;
    return BPPSA_OK;
  }
  return enter(bench, point, more);
}

/* Two lines an actor: the second is what one more pass would be, and is skipped. */
static bool line(const bppsa_bench *bench, int64_t index, bppsa_bench_entrant *made) {
  actor *a = &actors[index / 2];
  assert_true(settled == released + 1); /* before the lines are asked for */
  if (index / 2 >= bench->count || (only_skipped && index % 2 == 0)) {
    return false;
  }
  made->context = a;
  snprintf(made->method, sizeof made->method, "%s%s", a->name, index % 2 == 0 ? "" : "_more");
  made->contender = bench->entrants[index / 2]->contender;
  if (index % 2 == 1) {
    made->contender = (bppsa_contender){.verdict = BPPSA_REFUSED, .reason = "no second one"};
    made->needs = needs;
  }
  return true;
}

static const char *note(const bppsa_bench_entrant *e, char *text, size_t size) {
  snprintf(text, size, "skipped: %s", e->contender.reason);
  return e->contender.verdict == BPPSA_REFUSED ? text : NULL;
}

static bppsa_status settle(bppsa_bench *bench) {
  for (int64_t i = 0; i < bench->count; ++i) {
    assert_int_equal(bench->entrants[i]->contender.timing[0].repeats, 3);
  }
  ++settled;
  return BPPSA_OK;
}

static bppsa_status above(bppsa_bench *bench) {
  return bppsa_output_print(&bench->request->to, "above %s\n", bench->point);
}

static bppsa_status below(bppsa_bench *bench) {
  return bppsa_output_print(&bench->request->to, "below %s\n", bench->point);
}

static bppsa_status finish(bppsa_bench *bench) {
  ++finished;
  return bppsa_bench_report_points(bench);
}

static bppsa_bench_case case_of_lines(void) {
  bppsa_bench_case kind = plain;
  kind.document = "another";
  kind.names = NULL;
  kind.memory_quarters = 1;
  kind.enter = enter_lines;
  kind.lines = 4;
  kind.line = line;
  kind.note = note;
  kind.settle = settle;
  kind.above = above;
  kind.below = below;
  kind.finish = finish;
  settled = finished = idle_points = needs = 0;
  only_skipped = false;
  return kind;
}

/* The benchmark says which rows a point has. What it skipped has a row, a note in the table, and no part in the verdict. */
static void test_lines(void **state) {
  (void)state;
  const bppsa_bench_case kind = case_of_lines();
  cast(1, 2, (actor[]){{.name = "a"}, {.name = "b", .residual = 2}});
  outcome o = drive(&kind, true);
  assert_int_equal(o.status, BPPSA_OK);
  json_t *document = json_loads(o.out, 0, NULL);
  const json_t *rows = json_object_get(document, "rows");
  const char *const names_of_rows[] = {"a", "a_more", "b", "b_more"};
  assert_string_equal(json_string_value(json_object_get(document, "bench")), "another");
  assert_null(json_object_get(document, "left_out"));
  assert_null(json_object_get(document, "points_left_out")); /* nobody asked for a limit */
  assert_int_equal(json_array_size(rows), 4);
  for (size_t i = 0; i < 4; ++i) {
    assert_string_equal(json_string_value(json_object_get(json_array_get(rows, i), "method")), names_of_rows[i]);
    assert_int_equal(number(rows, i, "repeats"), i % 2 == 0 ? 3 : 0);
  }
  assert_true(settled == 1 && finished == 1);
  json_decref(document);
  free(o.out);
  settled = 0;
  cast(1, 1, (actor[]){{.name = "a"}});
  o = drive(&kind, false);
  assert_int_equal(o.status, BPPSA_OK);
  assert_memory_equal(o.out, "the head\nabove p0\n  point   method  ", 36);
  assert_non_null(strstr(o.out, "\n  p0      a   "));
  assert_non_null(strstr(o.out, "\n  p0      a_more   skipped: no second one\nbelow p0\n"));
  free(o.out);
}

/* Nothing measured is an error: bytes that would suffice, or the first reason. */
static void test_nothing_measured(void **state) {
  (void)state;
  const bppsa_bench_case kind = case_of_lines();
  only_skipped = true;
  cast(1, 1, (actor[]){{.name = "a"}});
  outcome o = drive(&kind, true);
  assert_int_equal(o.status, BPPSA_ERR_UNSUPPORTED);
  assert_string_equal(bppsa_last_error(), "bench: nothing could be measured: no second one");
  assert_true(o.out[0] == '\0' && finished == 0);
  free(o.out);
  settled = 0;
  needs = 77;
  cast(1, 1, (actor[]){{.name = "a"}});
  o = drive(&kind, true);
  assert_int_equal(o.status, BPPSA_ERR_ARGUMENT);
  assert_non_null(strstr(bppsa_last_error(), "bytes, expected at least 77"));
  free(o.out);
}

typedef struct {
  int64_t calls, done, all;
  bppsa_status answer;
} watcher;

static bppsa_status watch(void *context, int64_t done, int64_t all) {
  watcher *w = context;
  ++w->calls;
  w->done = done;
  w->all = all;
  return w->answer;
}

/* Rows without a document: idle points are passed by, others are told of, and a deadline ends the run behind the first rows. */
static void test_keeper(void **state) {
  (void)state;
  const bppsa_bench_case kind = case_of_lines();
  bppsa_device *device = NULL;
  watcher w = {0};
  bppsa_bench_count_rows counted = {0};
  assert_int_equal(bppsa_device_create("cpu", 1, &device), BPPSA_OK);
  const bppsa_bench_request request = {.to = {.err = stderr}, .device = device, .repeats = 3};
  const bppsa_bench_keeper keeper = {json_array(), watch, &w};
  idle_points = 1;
  released = 0;
  cast(4, 1, (actor[]){{.name = "a"}});
  assert_int_equal(bppsa_bench_drive_rows(&kind, &request, NULL, &keeper, &counted), BPPSA_OK);
  assert_int_equal(json_array_size(keeper.rows), 2);
  assert_true(counted.measured == 1 && counted.failed == 0 && finished == 0);
  assert_true(w.calls == 1 && w.done == 2 && w.all == 4);
  settled = released = 0;
  w.answer = BPPSA_ERR_IO;
  cast(4, 1, (actor[]){{.name = "a"}});
  assert_int_equal(bppsa_bench_drive_rows(&kind, &request, NULL, &keeper, &counted), BPPSA_ERR_IO);
  assert_true(w.calls == 2 && counted.measured == 1);
  json_decref(keeper.rows);
  bppsa_device_destroy(device);
}

/* Whichever allocation fails, the run ends with ERR_MEMORY and holds nothing. More entrants than the list has at first. */
static void test_memory(void **state) {
  (void)state;
  bppsa_status status = BPPSA_ERR_MEMORY;
  int64_t failures = 0;
  for (int64_t call = 2; status != BPPSA_OK; ++call) { /* the first is the device's */
    actor list[ACTORS];
    for (int i = 0; i < ACTORS; ++i) {
      list[i] = (actor){.name = "a", .refuses_from = i == 1 ? 1 : 0};
    }
    cast(1, ACTORS, list);
    bppsa_alloc_fail_at(call);
    outcome o = drive(&plain, true);
    bppsa_alloc_fail_at(0);
    status = o.status;
    assert_true(status == BPPSA_OK || status == BPPSA_ERR_MEMORY);
    failures += status == BPPSA_ERR_MEMORY;
    free(o.out);
    assert_true(call < 2000);
  }
  assert_true(failures > 20);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_document),         cmocka_unit_test(test_table),      cmocka_unit_test(test_left_out),
      cmocka_unit_test(test_errors),           cmocka_unit_test(test_unverified), cmocka_unit_test(test_lines),
      cmocka_unit_test(test_nothing_measured), cmocka_unit_test(test_keeper),     cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
