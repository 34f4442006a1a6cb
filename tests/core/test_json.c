/* JSON: parsing, writing, messages, memory. */
#include <math.h>

#include "core/json.h"
#include "tests/core/helpers.h"

static const char document[] =
    "{\"name\": \"x\\u00e9\", \"list\": [1, -2.5, true, null, {\"deep\": \"\"}], \"big\": 9223372036854775807}";

static void round_trip(void **state) {
  (void)state;
  const int64_t before = bppsa_alloc_live();
  json_t *value = NULL;
  assert_int_equal(bppsa_json_parse("doc", document, (int64_t)strlen(document), &value), BPPSA_OK);
  assert_true(bppsa_alloc_live() > before); /* jansson's memory is the library's */
  assert_string_equal(json_string_value(json_object_get(value, "name")), "x\xc3\xa9");
  assert_true(json_integer_value(json_object_get(value, "big")) == INT64_MAX);
  for (int indent = 0; indent <= 2; indent += 2) {
    char *text = NULL;
    json_t *again = NULL;
    assert_int_equal(bppsa_json_text(value, indent, 0, &text), BPPSA_OK);
    assert_int_equal(strchr(text, '\n') == NULL, indent == 0);
    assert_int_equal(bppsa_json_parse("again", text, (int64_t)strlen(text), &again), BPPSA_OK);
    assert_true(json_equal(value, again));
    json_decref(again);
    bppsa_free(text);
  }
  json_decref(value);
  assert_int_equal(bppsa_alloc_live(), before);
}

static void reals(void **state) {
  (void)state;
  static const double values[] = {0.1, 1.0 / 3, 1e300, -0x1p-1074, 12345.0, 3e-4};
  for (size_t i = 0; i < sizeof values / sizeof values[0]; ++i) {
    json_t *value = bppsa_json_real(values[i]);
    char *text = NULL;
    json_t *again = NULL;
    assert_int_equal(bppsa_json_text(value, 0, 0, &text), BPPSA_OK);
    assert_int_equal(bppsa_json_parse("real", text, (int64_t)strlen(text), &again), BPPSA_OK);
    assert_true(json_real_value(again) == values[i]);
    json_decref(again);
    bppsa_free(text);
    json_decref(value);
  }
  json_t *third = bppsa_json_real(1.0 / 3);
  char *text = NULL;
  assert_int_equal(bppsa_json_text(third, 0, 4, &text), BPPSA_OK);
  assert_string_equal(text, "0.3333");
  bppsa_free(text);
  json_decref(third);
  static const double words[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
  for (size_t i = 0; i < 3; ++i) {
    json_t *value = bppsa_json_real(words[i]);
    assert_true(json_is_null(value));
    json_decref(value);
  }
}

static void bad_texts(void **state) {
  (void)state;
  static const struct {
    const char *text, *message;
  } bad[] = {{"", "line 1, column 0, byte 0"},
             {"{", "line 1"},
             {"{\"a\": 1,}", "line 1, column 9, byte 9"},
             {"{\"a\": 1, \"a\": 2}", "duplicate"},
             {"[1, 2\n, nan]", "line 2"},
             {"{\"a\": 1} x", "end of file expected"},
             {"\"\xff\"", "unable to decode byte 0xff"},
             {"\"\\u0000\"", "NUL"},
             {"[1e999]", "overflow"},
             {"[99999999999999999999]", "too big"},
             {"[0x10]", "line 1"},
             {"\"a\nb\"", "unexpected newline"}};
  const int64_t before = bppsa_alloc_live();
  json_t *value = NULL;
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    assert_int_equal(bppsa_json_parse("doc", bad[i].text, (int64_t)strlen(bad[i].text), &value), BPPSA_ERR_FORMAT);
    assert_int_equal(strncmp(bppsa_last_error(), "doc: line ", 10), 0);
    assert_message(bad[i].message);
    assert_null(strchr(bppsa_last_error(), '\n'));
    assert_null(value);
  }
  assert_int_equal(bppsa_json_parse("doc", "{\"a\"\0: 1}", 9, &value), BPPSA_ERR_FORMAT);
  assert_int_equal(bppsa_json_parse_at("doc", "[x]", 3, 1000, &value), BPPSA_ERR_FORMAT);
  assert_message("byte 1002");
  static char deep[100000];
  memset(deep, '[', sizeof deep);
  assert_int_equal(bppsa_json_parse("doc", deep, sizeof deep, &value), BPPSA_ERR_FORMAT);
  assert_message("depth");
  assert_int_equal(bppsa_alloc_live(), before);
}

static void truncations(void **state) {
  (void)state;
  const int64_t before = bppsa_alloc_live();
  for (size_t size = 0; size < strlen(document); ++size) {
    json_t *value = NULL;
    assert_int_equal(bppsa_json_parse("doc", document, (int64_t)size, &value), BPPSA_ERR_FORMAT);
    assert_null(value);
  }
  assert_int_equal(bppsa_alloc_live(), before);
}

static void files(void **state) {
  (void)state;
  json_t *value = NULL;
  put_file("json_test.json", document, strlen(document));
  assert_int_equal(bppsa_json_load("json_test.json", &value), BPPSA_OK);
  assert_int_equal(json_object_size(value), 3);
  json_decref(value);
  value = NULL;
  put_file("json_test.json", "[1,\n2,\n}", 8);
  assert_int_equal(bppsa_json_load("json_test.json", &value), BPPSA_ERR_FORMAT);
  assert_message("json_test.json: line 3, column 1, byte 8");
  assert_int_equal(bppsa_json_load("no_such.json", &value), BPPSA_ERR_IO);
  assert_message("no_such.json");
  assert_null(value);
  remove("json_test.json");
}

static void unwritable(void **state) {
  (void)state;
  char *text = NULL;
  assert_int_equal(bppsa_json_text(NULL, 0, 0, &text), BPPSA_ERR_ARGUMENT);
  json_t *one = json_integer(1);
  assert_int_equal(bppsa_json_text(one, 32, 0, &text), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_json_text(one, -1, 0, &text), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_json_text(one, 0, 18, &text), BPPSA_ERR_ARGUMENT);
  json_decref(one);
  assert_null(text);
}

static bppsa_status parse_and_write(void *argument) {
  (void)argument;
  json_t *value = NULL;
  char *text = NULL;
  BPPSA_TRY(bppsa_json_parse("doc", document, (int64_t)strlen(document), &value));
  const bppsa_status status = bppsa_json_text(value, 2, 0, &text);
  bppsa_free(text);
  json_decref(value);
  return status;
}

static void allocation_failures(void **state) {
  (void)state;
  assert_true(walk_allocations(parse_and_write, NULL) > 10);
  bppsa_alloc_fail_at(1);
  assert_null(bppsa_json_real(1.0));
  bppsa_alloc_fail_at(0);
  assert_true(bppsa_json_out_of_memory());
  assert_false(bppsa_json_out_of_memory());
}

static bppsa_status put_all(void *argument) {
  json_t **made = argument;
  const int64_t shape[] = {2, 3};
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_integer(object, "i", -7) && bppsa_json_put_real(object, "r", 0.5);
  ok = ok && bppsa_json_put_real(object, "n", NAN) && bppsa_json_put_text(object, "t", "x");
  ok = ok && bppsa_json_put_bool(object, "b", true) && bppsa_json_put_shape(object, "s", 2, shape);
  ok = ok && bppsa_json_put(object, "a", json_array());
  *made = bppsa_json_finish(object, ok);
  return *made != NULL ? BPPSA_OK : bppsa_fail(BPPSA_ERR_MEMORY, "out of memory");
}

static bppsa_status put_and_release(void *argument) {
  (void)argument;
  json_t *made = NULL;
  const bppsa_status status = put_all(&made);
  json_decref(made);
  return status;
}

/* Members put one by one; what no memory was left for makes the whole object NULL and loses nothing. */
static void members(void **state) {
  (void)state;
  json_t *made = NULL;
  char *text = NULL;
  assert_int_equal(put_all(&made), BPPSA_OK);
  assert_int_equal(bppsa_json_text(made, 0, 0, &text), BPPSA_OK);
  assert_string_equal(text, "{\"i\": -7, \"r\": 0.5, \"n\": null, \"t\": \"x\", \"b\": true, \"s\": [2, 3], \"a\": []}");
  bppsa_free(text);
  json_decref(made);
  assert_null(bppsa_json_finish(NULL, false));
  assert_true(walk_allocations(put_and_release, NULL) > 10);
}

int main(void) {
  bppsa_json_start();
  const struct CMUnitTest tests[] = {cmocka_unit_test(round_trip), cmocka_unit_test(reals),
                                     cmocka_unit_test(bad_texts),  cmocka_unit_test(truncations),
                                     cmocka_unit_test(files),      cmocka_unit_test(unwritable),
                                     cmocka_unit_test(members),    cmocka_unit_test(allocation_failures)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
