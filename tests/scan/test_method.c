/* Methods: each one is converted to its text and its JSON form and back; anything else is refused. */
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/files/json.h"
#include "scan/method.h"
#include "tests/core/helpers.h"
#include "tests/support/json_memory.h"

typedef struct {
  bppsa_gradient_method method;
  const char *text, *words, *json;
} form;

static const form forms[] = {
    {{BPPSA_BACKWARD_AUTO, {0}}, "auto", "auto", "{\"backward\":\"auto\"}"},
    {{BPPSA_BACKWARD_BP, {0}}, "bp", "sequential BP", "{\"backward\":\"bp\"}"},
    {{BPPSA_BACKWARD_SPECULATIVE, {0}}, "speculative", "speculative BP", "{\"backward\":\"speculative\"}"},
    {{BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_AUTO, -1, 0}}, "scan", "scan, auto", "{\"backward\":\"scan\",\"algorithm\":\"auto\"}"},
    {{BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_LINEAR, -1, 0}},
     "linear",
     "scan, linear",
     "{\"backward\":\"scan\",\"algorithm\":\"linear\"}"},
    {{BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_BLELLOCH, -1, 0}},
     "blelloch",
     "scan, blelloch",
     "{\"backward\":\"scan\",\"algorithm\":\"blelloch\"}"},
    {{BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_BLELLOCH, 0, 0}},
     "blelloch 0",
     "scan, blelloch (0 up-levels)",
     "{\"backward\":\"scan\",\"algorithm\":\"blelloch\",\"up_levels\":0}"},
    {{BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_BLELLOCH, 3, 0}},
     "blelloch 3",
     "scan, blelloch (3 up-levels)",
     "{\"backward\":\"scan\",\"algorithm\":\"blelloch\",\"up_levels\":3}"},
    {{BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_CHUNKED, -1, 0}},
     "chunked",
     "scan, chunked",
     "{\"backward\":\"scan\",\"algorithm\":\"chunked\"}"},
    {{BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_CHUNKED, -1, 1}},
     "chunked 1",
     "scan, chunked (1 chunk)",
     "{\"backward\":\"scan\",\"algorithm\":\"chunked\",\"chunks\":1}"},
    {{BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_CHUNKED, -1, INT64_MAX}},
     "chunked 9223372036854775807",
     "scan, chunked (9223372036854775807 chunks)",
     "{\"backward\":\"scan\",\"algorithm\":\"chunked\",\"chunks\":9223372036854775807}"},
};
enum { FIRST_SCAN = 3, FORMS = sizeof forms / sizeof forms[0] };

static void assert_scan(const bppsa_scan_method *found, const bppsa_scan_method *expected) {
  assert_int_equal(found->algorithm, expected->algorithm);
  assert_int_equal(found->up_levels, expected->up_levels);
  assert_int_equal(found->chunks, expected->chunks);
}

static void test_forms(void **state) {
  (void)state;
  for (int i = 0; i < FORMS; ++i) {
    const form *f = &forms[i];
    assert_int_equal(bppsa_gradient_method_open(&f->method), i == 0 || i == FIRST_SCAN); /* those that say auto */
    char text[BPPSA_METHOD_TEXT];
    bppsa_gradient_method found = {0};
    assert_string_equal(bppsa_gradient_method_text(&f->method, text, sizeof text), f->text);
    assert_int_equal(bppsa_gradient_method_parse(text, &found), BPPSA_OK);
    assert_int_equal(found.backward, f->method.backward);
    if (found.backward == BPPSA_BACKWARD_SCAN) {
      assert_scan(&found.scan, &f->method.scan);
    }
    assert_string_equal(bppsa_gradient_method_words(&f->method, text, sizeof text), f->words);
    for (size_t size = 1; size < sizeof text; ++size) { /* a text that is too short is cut */
      assert_true(strlen(bppsa_gradient_method_words(&f->method, text, size)) < size);
      assert_true(strlen(bppsa_gradient_method_text(&f->method, text, size)) < size);
    }
  }
}

/* A scan's own method: "auto" where the other says "scan". */
static void test_scans(void **state) {
  (void)state;
  for (int i = FIRST_SCAN; i < FORMS; ++i) {
    const form *f = &forms[i];
    char text[BPPSA_METHOD_TEXT];
    bppsa_scan_method found = {0};
    assert_string_equal(bppsa_scan_method_text(&f->method.scan, text, sizeof text), i == FIRST_SCAN ? "auto" : f->text);
    assert_int_equal(bppsa_scan_method_parse(text, &found), BPPSA_OK);
    assert_scan(&found, &f->method.scan);
    assert_string_equal(bppsa_scan_method_words(&f->method.scan, text, sizeof text), f->words + strlen("scan, "));
  }
}

static void test_json(void **state) {
  (void)state;
  for (int i = 0; i < FORMS; ++i) {
    const form *f = &forms[i];
    json_t *object = json_object();
    char *text = NULL;
    bppsa_scan_method found = {.chunks = -7};
    assert_true(bppsa_gradient_method_put(object, &f->method));
    assert_int_equal(bppsa_json_text(object, 0, 0, &text), BPPSA_OK);
    char plain[200];
    size_t length = 0;
    for (const char *c = text; *c != '\0'; ++c) { /* without blanks */
      plain[length] = *c;
      length += *c != ' ';
    }
    plain[length] = '\0';
    assert_string_equal(plain, f->json);
    bppsa_gradient_method whole = {.scan = {.chunks = -7}};
    assert_true(bppsa_gradient_method_get(object, &whole));
    assert_int_equal(whole.backward, f->method.backward);
    if (whole.backward == BPPSA_BACKWARD_SCAN) {
      assert_scan(&whole.scan, &f->method.scan);
    }
    assert_int_equal(bppsa_scan_method_get(object, &found), f->method.backward == BPPSA_BACKWARD_SCAN);
    if (f->method.backward == BPPSA_BACKWARD_SCAN) {
      assert_scan(&found, &f->method.scan);
    } else {
      assert_int_equal(found.chunks, -7);
    }
    bppsa_free(text);
    json_decref(object);
  }
}

/* The sentence speaks of the number where the name is right. */
static void test_numbers(void **state) {
  (void)state;
  static const char *const texts[][2] = {
      {"chunked 0", "method 'chunked 0', expected a number of chunks, 1 or more, as in 'chunked 4', or chunked alone"},
      {"chunked:0", "method 'chunked:0', expected a number of chunks, 1 or more, as in 'chunked 4', or chunked alone"},
      {"blelloch -1", "method 'blelloch -1', expected a number of up-levels, 0 or more, as in 'blelloch 4', or blelloch alone"},
      {"linear 3", "method 'linear 3', expected linear alone: it takes no number"},
      {"chunkeds", "method 'chunkeds', expected auto, linear"}};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; ++i) {
    bppsa_scan_method scan;
    assert_int_equal(bppsa_scan_method_parse(texts[i][0], &scan), BPPSA_ERR_FORMAT);
    assert_memory_equal(bppsa_last_error(), texts[i][1], strlen(texts[i][1]));
  }
}

static void test_refusals(void **state) {
  (void)state;
  static const char *const texts[] = {
      "",          "b",         "Linear",      "linear 3",    "linear ",     "auto 1",
      "blelloch ", "blelloch3", "blelloch -1", "blelloch 3x", "blelloch  3", "blelloch 3 ",
      "chunked 0", "chunked +", "chunked 1.5", "chunkeds",    "chunked:0",   "chunked 9223372036854775808"};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; ++i) {
    bppsa_scan_method scan = {.chunks = -7};
    bppsa_gradient_method method = {.scan = {.chunks = -7}};
    assert_int_equal(bppsa_scan_method_parse(texts[i], &scan), BPPSA_ERR_FORMAT);
    assert_int_equal(bppsa_gradient_method_parse(texts[i], &method), BPPSA_ERR_FORMAT);
    assert_int_equal(scan.chunks, -7);
    assert_int_equal(method.scan.chunks, -7);
  }
  bppsa_scan_method scan;
  bppsa_gradient_method method;
  assert_int_equal(bppsa_scan_method_parse("bp", &scan), BPPSA_ERR_FORMAT);
  assert_message("method 'bp', expected auto, linear, blelloch [UP-LEVELS] or chunked [CHUNKS]");
  assert_int_equal(bppsa_gradient_method_parse("newton", &method), BPPSA_ERR_FORMAT);
  assert_message("method 'newton', expected auto, bp, scan, linear, blelloch [UP-LEVELS] or chunked [CHUNKS]");
  static const char *const objects[] = {"{}",
                                        "[]",
                                        "{\"algorithm\": 3}",
                                        "{\"algorithm\": \"newton\"}",
                                        "{\"algorithm\": \"chunked\", \"chunks\": 0}",
                                        "{\"algorithm\": \"chunked\", \"chunks\": \"4\"}",
                                        "{\"algorithm\": \"blelloch\", \"up_levels\": -1}"};
  for (size_t i = 0; i < sizeof objects / sizeof objects[0]; ++i) {
    json_t *object = NULL;
    bppsa_scan_method found = {.chunks = -7};
    assert_int_equal(bppsa_json_parse("object", objects[i], (int64_t)strlen(objects[i]), &object), BPPSA_OK);
    assert_false(bppsa_scan_method_get(object, &found));
    assert_int_equal(found.chunks, -7);
    bppsa_gradient_method whole = {.scan = {.chunks = -7}};
    assert_false(bppsa_gradient_method_get(object, &whole)); /* none of them says which backward pass */
    assert_int_equal(whole.scan.chunks, -7);
    json_decref(object);
  }
}

static void test_memory(void **state) {
  (void)state;
  for (int i = 0; i < FORMS; ++i) {
    int64_t call = 1;
    for (bool done = false; !done; ++call) {
      json_t *object = json_object();
      bppsa_alloc_fail_at(call);
      done = bppsa_gradient_method_put(object, &forms[i].method);
      bppsa_alloc_fail_at(0);
      json_decref(object);
    }
    assert_true(call > 2);
  }
}

int main(void) {
  count_json_memory();
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms),   cmocka_unit_test(test_scans),
                                     cmocka_unit_test(test_json),    cmocka_unit_test(test_refusals),
                                     cmocka_unit_test(test_numbers), cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
