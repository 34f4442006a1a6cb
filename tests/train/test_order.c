/* The order of samples: the visits of an epoch, and orders that are refused. */
#include "core/files/npy.h"
#include "tests/core/helpers.h"
#include "train/data/dataset.h"
#include "train/order.h"

static const int64_t rows[] = {4, 0, 4, 2, /**/ 1, 1, 3, 0};

static void test_kinds(void **state) {
  (void)state;
  int64_t found[5], shuffled[5];
  const bppsa_order given = {.kind = BPPSA_ORDER_GIVEN, .indices = rows, .epochs = 2, .samples = 4};
  bppsa_order one = given;
  one.epochs = 0;
  assert_int_equal(bppsa_order_samples(&(bppsa_order){0}, 5), 5);
  assert_int_equal(bppsa_order_samples(&given, 5), 4);
  bppsa_shuffle(3, 2, 5, shuffled);
  bppsa_order_fill(&(bppsa_order){0}, 3, 2, 5, found);
  assert_memory_equal(found, shuffled, sizeof found);
  bppsa_order_fill(&(bppsa_order){.kind = BPPSA_ORDER_DATA}, 3, 2, 5, found);
  assert_memory_equal(found, ((int64_t[]){0, 1, 2, 3, 4}), sizeof found);
  bppsa_order_fill(&given, 3, 2, 5, found);
  assert_memory_equal(found, rows + 4, 4 * sizeof *rows);
  bppsa_order_fill(&one, 3, 2, 5, found);
  assert_memory_equal(found, rows, 4 * sizeof *rows);
}

static void test_check(void **state) {
  (void)state;
  bppsa_order order = {.kind = BPPSA_ORDER_GIVEN, .indices = rows, .epochs = 2, .samples = 4};
  assert_int_equal(bppsa_order_check(&order, 5, 2), BPPSA_OK);
  assert_int_equal(bppsa_order_check(&order, 5, 3), BPPSA_ERR_ARGUMENT);
  assert_message("order: the order of 2 epochs, expected 3 as the run has");
  order.where = "O.npy";
  assert_int_equal(bppsa_order_check(&order, 4, 2), BPPSA_ERR_ARGUMENT);
  assert_message("O.npy: index 4 at [0, 0], expected 0 .. 3, the samples to train on");
  order.epochs = 0;
  assert_int_equal(bppsa_order_check(&order, 5, 1000), BPPSA_OK);
  const int64_t negative[] = {0, 1, 2, -1};
  order.indices = negative;
  assert_int_equal(bppsa_order_check(&order, 5, 1), BPPSA_ERR_ARGUMENT);
  assert_message("O.npy: index -1 at [3], expected 0 .. 4");
  order.samples = 0;
  assert_int_equal(bppsa_order_check(&order, 5, 1), BPPSA_ERR_ARGUMENT);
}

/* A file of one index is an order; one of none, of other numbers or of more extents is refused. */
static void test_load(void **state) {
  (void)state;
  const char *const path = "order.npy";
  static const int64_t shapes[][3] = {{1}, {4}, {2, 4}, {0}, {3, 0}, {1, 2, 4}};
  for (int i = 0; i < 6; ++i) {
    const int32_t dimensions = i == 5 ? 3 : i == 2 || i == 4 ? 2 : 1;
    const bppsa_view view = bppsa_view_make((void *)(uintptr_t)rows, BPPSA_I64, dimensions, shapes[i]);
    bppsa_buffer indices = {0};
    bppsa_order order = {0};
    assert_int_equal(bppsa_npy_save(path, &view), BPPSA_OK);
    const bppsa_status status = bppsa_order_load(path, &indices, &order);
    if (i >= 3) {
      assert_error(status, BPPSA_ERR_SHAPE, "expected int64 indices of samples, [M] or [E, M], at least one");
      continue;
    }
    assert_int_equal(status, BPPSA_OK);
    assert_int_equal(order.kind, BPPSA_ORDER_GIVEN);
    assert_int_equal(order.samples, dimensions == 2 ? 4 : shapes[i][0]);
    assert_int_equal(order.epochs, dimensions == 2 ? 2 : 0);
    assert_memory_equal(order.indices, rows, (size_t)bppsa_view_count(&view) * sizeof *rows);
    bppsa_buffer_free(&indices);
  }
  const bppsa_view reals = bppsa_view_make((double[]){1, 2}, BPPSA_F64, 1, (int64_t[]){2});
  bppsa_buffer indices = {0};
  bppsa_order order = {0};
  assert_int_equal(bppsa_npy_save(path, &reals), BPPSA_OK);
  assert_error(bppsa_order_load(path, &indices, &order), BPPSA_ERR_SHAPE, "order.npy: f64 [2], expected int64");
  (void)remove(path);
}

/* Orders that differ have texts that differ. */
static void test_text(void **state) {
  (void)state;
  char texts[5][64];
  const bppsa_order orders[5] = {{0},
                                 {.kind = BPPSA_ORDER_DATA},
                                 {.kind = BPPSA_ORDER_GIVEN, .indices = rows, .epochs = 2, .samples = 4},
                                 {.kind = BPPSA_ORDER_GIVEN, .indices = rows, .epochs = 0, .samples = 8},
                                 {.kind = BPPSA_ORDER_GIVEN, .indices = rows + 4, .epochs = 1, .samples = 4}};
  for (int i = 0; i < 5; ++i) {
    bppsa_order_text(&orders[i], texts[i], sizeof texts[i]);
    for (int k = 0; k < i; ++k) {
      assert_string_not_equal(texts[i], texts[k]);
    }
  }
  assert_string_equal(texts[0], "shuffled");
  assert_string_equal(texts[1], "data");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds), cmocka_unit_test(test_check), cmocka_unit_test(test_load),
                                     cmocka_unit_test(test_text)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
