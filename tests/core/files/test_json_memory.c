/* What runs out of memory while JSON is built and written, and while a safetensors header is: nothing is lost, and the error is
 * clear. */
#include <math.h>

#include "core/files/json.h"
#include "core/files/safetensors.h"
#include "tests/core/helpers.h"
#include "tests/support/json_memory.h"

/* Every kind of member. */
static json_t *build(void) {
  const int64_t shape[] = {2, 3};
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_integer(object, "i", -7) && bppsa_json_put_real(object, "r", 0.5);
  ok = ok && bppsa_json_put_real(object, "n", NAN) && bppsa_json_put_text(object, "t", "x");
  ok = ok && bppsa_json_put_bool(object, "b", true) && bppsa_json_put_shape(object, "s", 2, shape);
  ok = ok && bppsa_json_put(object, "a", json_array()) && bppsa_json_put_text(object, "u", "\xff.w");
  return bppsa_json_finish(object, ok);
}

static bppsa_status build_and_write(void *argument) {
  (void)argument;
  json_t *made = build();
  if (made == NULL) {
    return bppsa_json_out_of_memory() ? BPPSA_ERR_MEMORY : BPPSA_ERR_ARGUMENT;
  }
  char *text = NULL;
  const bppsa_status status = bppsa_json_text(made, 2, 0, &text);
  assert_int_equal(text != NULL, status == BPPSA_OK);
  bppsa_free(text);
  json_decref(made);
  return status;
}

/* Members put one by one; what no memory was left for makes the whole object NULL and loses nothing. */
static void members(void **state) {
  (void)state;
  json_t *made = build();
  char *text = NULL;
  assert_int_equal(bppsa_json_text(made, 0, 0, &text), BPPSA_OK);
  assert_string_equal(
      text, "{\"i\": -7, \"r\": 0.5, \"n\": null, \"t\": \"x\", \"b\": true, \"s\": [2, 3], \"a\": [], \"u\": \"?.w\"}");
  bppsa_free(text);
  json_decref(made);
  assert_null(bppsa_json_finish(NULL, false));
  assert_true(walk_allocations(build_and_write, NULL) > 20);
}

static void reported_once(void **state) {
  (void)state;
  (void)bppsa_json_out_of_memory();
  assert_null(json_string("\xff")); /* refused, and not for lack of memory */
  assert_false(bppsa_json_out_of_memory());
  bppsa_alloc_fail_at(1);
  assert_null(bppsa_json_real(1.0));
  bppsa_alloc_fail_at(0);
  assert_true(bppsa_json_out_of_memory());
  assert_false(bppsa_json_out_of_memory());
}

static bppsa_status save(void *argument) {
  const bppsa_named_view *tensors = argument;
  const bppsa_metadata metadata[] = {{"format", "pt"}, {"note", "n"}};
  return bppsa_safetensors_save("json_memory.safetensors", 2, tensors, 2, metadata);
}

static void safetensors_header(void **state) {
  (void)state;
  float numbers[6] = {1, 2, 3, 4, 5, 6};
  const int64_t shape[] = {2, 3};
  const bppsa_named_view tensors[] = {{"a", bppsa_view_make(numbers, BPPSA_F32, 2, shape)},
                                      {"b", bppsa_view_make(numbers, BPPSA_F32, 0, NULL)}};
  assert_true(walk_allocations(save, (void *)(uintptr_t)tensors) > 30);
  const bppsa_named_view wrong[] = {{"a", tensors[0].view}, {"\xff", tensors[1].view}};
  assert_int_equal(save((void *)(uintptr_t)wrong), BPPSA_ERR_ARGUMENT);
  assert_message("not valid UTF-8");
  remove("json_memory.safetensors");
}

int main(void) {
  count_json_memory();
  const struct CMUnitTest tests[] = {cmocka_unit_test(members), cmocka_unit_test(reported_once),
                                     cmocka_unit_test(safetensors_header)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
