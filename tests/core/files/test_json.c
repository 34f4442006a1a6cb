/* JSON: parsing, writing, messages, memory. */
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "core/files/json.h"
#include "tests/core/helpers.h"
#include "tests/support/json_memory.h"

static const char document[] =
    "{\"name\": \"x\\u00e9\", \"list\": [1, -2.5, true, null, {\"deep\": \"\"}], \"big\": 9223372036854775807}";

static void round_trip(void **state) {
  (void)state;
  const int64_t before = bppsa_alloc_live();
  json_t *value = NULL;
  assert_int_equal(bppsa_json_parse("doc", document, (int64_t)strlen(document), &value), BPPSA_OK);
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
  put_file("json_test.json", "\xef\xbb\xbf{\"a\": 1}", 11); /* an editor's byte order mark */
  assert_int_equal(bppsa_json_load("json_test.json", &value), BPPSA_OK);
  assert_int_equal(json_integer_value(json_object_get(value, "a")), 1);
  json_decref(value);
  value = NULL;
  put_file("json_test.json", "\xef\xbb\xbf{\"a\" 1}", 10);
  assert_error(bppsa_json_load("json_test.json", &value), BPPSA_ERR_FORMAT, "json_test.json: line 1, column 6, byte ");
  put_file("json_test.json", "{\0}\0", 4);
  assert_int_equal(bppsa_json_load("json_test.json", &value), BPPSA_ERR_FORMAT);
  assert_message("json_test.json: byte 0: text in UTF-16, expected UTF-8");
  put_file("json_test.json", "\xef\xbb\xbf", 3);
  assert_error(bppsa_json_load("json_test.json", &value), BPPSA_ERR_FORMAT, "expected valid JSON");
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
  assert_true(walk_allocations(parse_and_write, NULL) >= 2); /* jansson's own: test_json_memory.c */
}

/* ---- what a stranger's text may cost ---- */

static double seconds_of(const char *text, int64_t size) {
  json_t *value = NULL;
  const clock_t begin = clock();
  assert_int_equal(bppsa_json_parse("doc", text, size, &value), BPPSA_OK);
  const clock_t end = clock();
  json_decref(value);
  return (double)(end - begin) / CLOCKS_PER_SEC;
}

/* jansson's hash of a key of eight bytes: lookup3 by Bob Jenkins, public domain. */
static uint32_t hash(const char key[8], uint32_t seed) {
  static const int turns[7][2] = {{2, 14}, {0, 11}, {1, 25}, {2, 16}, {0, 4}, {1, 14}, {2, 24}};
  uint32_t x[3], word[2];
  memcpy(word, key, sizeof word);
  x[0] = x[1] = x[2] = 0xdeadbeef + 8 + seed;
  x[0] += word[0];
  x[1] += word[1];
  for (int i = 0; i < 7; ++i) {
    const uint32_t other = x[(turns[i][0] + 2) % 3];
    const int turn = turns[i][1];
    x[turns[i][0]] = (x[turns[i][0]] ^ other) - (other << turn | other >> (32 - turn));
  }
  return x[2];
}

/* An object of `count` keys, those alone whose hash by seed 1 has its low `bits` clear. Returns its length. */
static size_t put_keys(char *text, int count, int bits) {
  size_t size = 0;
  text[size++] = '{';
  for (uint32_t i = 0; count > 0; ++i) {
    char key[9];
    for (int digit = 0; digit < 8; ++digit) {
      key[digit] = "0123456789abcdef"[i >> (28 - 4 * digit) & 15];
    }
    if ((hash(key, 1) & ((1U << bits) - 1)) == 0) {
      memcpy(text + size, "\"........\":1,", 13);
      memcpy(text + size + 1, key, 8);
      size += 13;
      --count;
    }
  }
  text[size - 1] = '}';
  return size;
}

/* Keys that were prepared to collide under a known seed take no longer than others: the seed is not known. */
static void prepared_keys(void **state) {
  (void)state;
  enum { KEYS = 8000, BITS = 13 };
  static char text[13 * KEYS + 2];
  const double others = seconds_of(text, (int64_t)put_keys(text, KEYS, 0));
  const double prepared = seconds_of(text, (int64_t)put_keys(text, KEYS, BITS));
  if (prepared > 10 * others + 0.05) {
    fail_msg("prepared keys take %g s, expected about as long as others: %g s", prepared, others);
  }
}

/* The texts whose values are largest: at most a gibibyte, in five seconds. */
static void largest_values(void **state) {
  (void)state;
  static const char *const units[] = {"{},", "1,", "[],", "{\"\":1},", "[[[[[[[[]]]]]]]],", "\"\","};
  char *text = malloc((size_t)BPPSA_JSON_LIMIT);
  assert_non_null(text);
  for (size_t i = 0; i < sizeof units / sizeof units[0]; ++i) {
    const size_t length = strlen(units[i]);
    size_t size = 0;
    for (text[size++] = '['; size + length < (size_t)BPPSA_JSON_LIMIT; size += length) {
      memcpy(text + size, units[i], length);
    }
    text[size - 1] = ']';
    json_t *value = NULL;
    const size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    const clock_t begin = clock();
    assert_int_equal(bppsa_json_parse("doc", text, (int64_t)size, &value), BPPSA_OK);
    assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 5);
    const size_t taken = mallinfo2().uordblks + mallinfo2().hblkhd - before;
    if (taken > 96 * size || taken + size > (size_t)1 << 30) {
      fail_msg("%s takes %zu bytes, expected at most %zu and 1 GiB", units[i], taken, 96 * size);
    }
    json_decref(value);
  }
  free(text);
}

static void too_long(void **state) {
  (void)state;
  char *text = calloc(1, (size_t)BPPSA_JSON_LIMIT + 1);
  assert_non_null(text);
  memset(text, ' ', (size_t)BPPSA_JSON_LIMIT + 1);
  text[0] = '1';
  json_t *value = NULL;
  assert_int_equal(bppsa_json_parse("doc", text, BPPSA_JSON_LIMIT, &value), BPPSA_OK);
  json_decref(value);
  value = NULL;
  assert_int_equal(bppsa_json_parse("doc", text, BPPSA_JSON_LIMIT + 1, &value), BPPSA_ERR_FORMAT);
  assert_message("doc: 8388609 bytes of JSON, expected at most 8388608");
  put_file("json_test.json", text, (size_t)BPPSA_JSON_LIMIT + 1);
  assert_int_equal(bppsa_json_load("json_test.json", &value), BPPSA_ERR_FORMAT);
  assert_message("json_test.json");
  assert_null(value);
  remove("json_test.json");
  free(text);
}

int main(void) {
  count_json_memory();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(round_trip),    cmocka_unit_test(reals),         cmocka_unit_test(bad_texts),
      cmocka_unit_test(truncations),   cmocka_unit_test(files),         cmocka_unit_test(unwritable),
      cmocka_unit_test(too_long),      cmocka_unit_test(prepared_keys), cmocka_unit_test(allocation_failures),
      cmocka_unit_test(largest_values)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
