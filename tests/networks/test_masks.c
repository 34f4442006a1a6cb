/* Masks of a list of tensors: which are pruned, and the masks in numbers. */
#include "networks/masks.h"
#include "tests/core/helpers.h"

static const bppsa_prune_structure elements = {.kind = BPPSA_STRUCTURE_ELEMENT};

static void test_masks(void **state) {
  (void)state;
  float conv[8] = {1, 2, 3, 4, 5, 6, 7, 8}, other[8] = {0};
  const bppsa_named_view tensors[] = {{"conv.weight", bppsa_view_make(conv, BPPSA_F32, 2, (const int64_t[]){2, 4})},
                                      {"conv.bias", bppsa_view_make(other, BPPSA_F32, 1, (const int64_t[]){8})},
                                      {"optimizer.m.conv.weight", bppsa_view_make(other, BPPSA_F32, 2, (const int64_t[]){2, 4})},
                                      {"norm.weight", bppsa_view_make(other, BPPSA_F32, 1, (const int64_t[]){8})}};
  bppsa_masks masks;
  bppsa_text text = {0};
  assert_int_equal(bppsa_masks_make(BPPSA_PRUNE_CLASS_UNIFORM, elements, 0.5, 4, tensors, &masks), BPPSA_OK);
  assert_int_equal(masks.count, 1);
  assert_memory_equal(masks.bytes[0], ((const uint8_t[]){0, 0, 0, 0, 1, 1, 1, 1}), 8);
  bppsa_masks_text(&masks, &text);
  assert_int_equal(bppsa_text_check(&text), BPPSA_OK);
  assert_non_null(strstr(text.text, "conv.weight                           8          4    50.00 %  4                 1 of 2\n"));
  assert_non_null(strstr(text.text, "all                                   8          4    50.00 %                    1 of 2\n"));
  bppsa_text_free(&text);
  json_t *rows = bppsa_masks_json(&masks), *sums = json_object();
  assert_int_equal(json_array_size(rows), 1);
  assert_int_equal(json_integer_value(json_object_get(json_array_get(rows, 0), "kept")), 4);
  assert_true(bppsa_masks_put_total(sums, &masks));
  assert_int_equal(json_integer_value(json_object_get(sums, "empty_channels")), 1);
  json_decref(rows);
  json_decref(sums);
  bppsa_masks_free(&masks);
  bppsa_masks_free(&masks);
}

/* A weight with a bias of its own shape scales, as a layer norm's over two axes, and stays. */
static void test_scales(void **state) {
  (void)state;
  float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  const int64_t *const shape = (const int64_t[]){2, 4};
  const bppsa_view two = bppsa_view_make(values, BPPSA_F32, 2, shape), one = bppsa_view_make(values, BPPSA_F32, 1, shape);
  const bppsa_named_view tensors[] = {
      {"norm.weight", two}, {"fc.weight", two}, {"fc.bias", one}, {"norm.bias", two}, {"norm2.weight", two}};
  bppsa_masks masks;
  assert_int_equal(bppsa_masks_make(BPPSA_PRUNE_CLASS_UNIFORM, elements, 0.5, 5, tensors, &masks), BPPSA_OK);
  assert_int_equal(masks.count, 2);
  assert_string_equal(masks.weights[0].name, "fc.weight");
  assert_string_equal(masks.weights[1].name, "norm2.weight");
  bppsa_masks_free(&masks);
}

static void test_refusals(void **state) {
  (void)state;
  float bias[2] = {1, 2};
  const bppsa_named_view tensor = {"a.bias", bppsa_view_make(bias, BPPSA_F32, 1, (const int64_t[]){2})};
  bppsa_masks masks = {.count = -1};
  assert_int_equal(bppsa_masks_make(BPPSA_PRUNE_CLASS_BLIND, elements, 0.5, 1, &tensor, &masks), BPPSA_ERR_FORMAT);
  assert_message("no tensor NAME.weight with two extents or more, expected one to prune");
  assert_int_equal(masks.count, -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_masks), cmocka_unit_test(test_scales),
                                     cmocka_unit_test(test_refusals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
