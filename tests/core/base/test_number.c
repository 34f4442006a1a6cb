/* Numbers of any dtype: read one by one, and converted where that is exact. */
#include "core/base/number.h"

#include <math.h>

#include "tests/core/helpers.h"

static const int64_t pair[] = {2}, one[] = {1}, grid[] = {2, 3};

/* Every dtype, with its extremes. */
static void test_read(void **state) {
  (void)state;
  static const float f32[] = {-0.1f, 3};
  static const double f64[] = {0.1, -INFINITY};
  static const int64_t i64[] = {INT64_MIN, (INT64_C(1) << 53) + 1};
  static const int32_t i32[] = {INT32_MIN, INT32_MAX};
  static const int16_t i16[] = {INT16_MIN, INT16_MAX};
  static const int8_t i8[] = {INT8_MIN, INT8_MAX};
  static const uint8_t u8[] = {0, UINT8_MAX};
  static const uint16_t u16[] = {0, UINT16_MAX}, f16[] = {0x8001, 0x7bff}, bf16[] = {0xc020, 0x7f80};
  static const uint32_t u32[] = {0, UINT32_MAX};
  static const uint64_t u64[] = {UINT64_C(1) << 63, UINT64_MAX};
  static const struct {
    bppsa_dtype dtype;
    const void *data;
    double values[2];
    bool exact[2], whole[2];
  } rows[] = {{BPPSA_F32, f32, {-0.1f, 3}, {true, true}, {false, false}},
              {BPPSA_F64, f64, {0.1, -INFINITY}, {true, true}, {false, false}},
              {BPPSA_I64, i64, {-0x1p63, 0x1p53}, {true, false}, {true, true}},
              {BPPSA_I32, i32, {-0x1p31, 0x1p31 - 1}, {true, true}, {true, true}},
              {BPPSA_I16, i16, {-32768, 32767}, {true, true}, {true, true}},
              {BPPSA_I8, i8, {-128, 127}, {true, true}, {true, true}},
              {BPPSA_U8, u8, {0, 255}, {true, true}, {true, true}},
              {BPPSA_BOOL, u8, {0, 1}, {true, true}, {true, true}},
              {BPPSA_F16, f16, {-0x1p-24, 65504}, {true, true}, {false, false}},
              {BPPSA_BF16, bf16, {-2.5, INFINITY}, {true, true}, {false, false}},
              {BPPSA_U16, u16, {0, 65535}, {true, true}, {true, true}},
              {BPPSA_U32, u32, {0, 0x1p32 - 1}, {true, true}, {true, true}},
              {BPPSA_U64, u64, {0x1p63, 0x1p64}, {true, false}, {false, false}}};
  for (size_t r = 0; r < sizeof rows / sizeof rows[0]; ++r) {
    const bppsa_view view = bppsa_view_make((void *)(uintptr_t)rows[r].data, rows[r].dtype, 1, pair);
    for (int i = 0; i < 2; ++i) {
      double value = -7;
      int64_t whole;
      assert_int_equal(bppsa_number_real(&view, i, &value), rows[r].exact[i]);
      assert_true(value == rows[r].values[i]);
      assert_int_equal(bppsa_number_whole(&view, i, &whole), rows[r].whole[i]);
      assert_int_equal(bppsa_number_set(&view, i), rows[r].values[i] != 0);
    }
  }
  static const uint16_t nan = 0x7e00;
  const bppsa_view half = bppsa_view_make((void *)(uintptr_t)&nan, BPPSA_F16, 1, one);
  double value;
  assert_true(bppsa_number_real(&half, 0, &value) && isnan(value) && bppsa_number_set(&half, 0));
}

/* A type that only its file knows has no numbers. */
static void test_unknown(void **state) {
  (void)state;
  char type[] = "F8_E4M3";
  const bppsa_view view = bppsa_view_make(type, BPPSA_DTYPE_OTHER, 1, one);
  double value = 5;
  void *data = NULL;
  assert_false(bppsa_number_real(&view, 0, &value));
  assert_true(value == 0);
  assert_false(bppsa_number_set(&view, 0));
  assert_error(bppsa_number_convert("W: t", &view, BPPSA_F32, &data), BPPSA_ERR_FORMAT, "W: t: dtype F8_E4M3, expected numbers");
  assert_null(data);
}

/* Exact, or refused with the place and the number. */
static void test_convert(void **state) {
  (void)state;
  int64_t numbers[6] = {1, -2, 3, 4, 5, 1 << 24};
  double reals[6] = {1, 0.5, -INFINITY, (double)NAN, 0, 0.25};
  void *data = NULL;
  const bppsa_view whole = bppsa_view_make(numbers, BPPSA_I64, 2, grid), real = bppsa_view_make(reals, BPPSA_F64, 2, grid);
  assert_int_equal(bppsa_number_convert("X", &whole, BPPSA_F32, &data), BPPSA_OK);
  for (int i = 0; i < 6; ++i) {
    assert_true(((float *)data)[i] == (float)numbers[i]);
  }
  bppsa_free(data);
  assert_int_equal(bppsa_number_convert("X", &real, BPPSA_F32, &data), BPPSA_OK);
  assert_true(((float *)data)[2] == -INFINITY && isnan(((float *)data)[3]) && ((float *)data)[5] == 0.25f);
  bppsa_free(data);
  data = NULL;
  numbers[5] += 1;
  assert_error(bppsa_number_convert("X", &whole, BPPSA_F32, &data), BPPSA_ERR_FORMAT,
               "X: i64 16777217 at [1, 2], expected a number that f32 holds");
  reals[4] = 0.1;
  assert_error(bppsa_number_convert("X", &real, BPPSA_F32, &data), BPPSA_ERR_FORMAT,
               "X: f64 0.10000000000000001 at [1, 1], expected a number that f32 holds");
  static const uint64_t large = UINT64_MAX;
  const bppsa_view above = bppsa_view_make((void *)(uintptr_t)&large, BPPSA_U64, 1, one);
  assert_error(bppsa_number_convert("X", &above, BPPSA_F64, &data), BPPSA_ERR_FORMAT, "X: u64 1.8446744073709552e+19 at [0]");
  assert_null(data);
  bppsa_alloc_fail_at(1);
  assert_int_equal(bppsa_number_convert("X", &real, BPPSA_F64, &data), BPPSA_ERR_MEMORY);
  bppsa_alloc_fail_at(0);
}

/* Another byte order, and the order of Fortran. */
static void test_order(void **state) {
  (void)state;
  uint16_t numbers[6] = {0x0102, 0, 0xff00, 4, 5, 6};
  static const uint16_t columns_first[6] = {0x0201, 0x00ff, 0x0500, 0, 0x0400, 0x0600};
  const bppsa_view view = bppsa_view_make(numbers, BPPSA_U16, 2, grid);
  void *data = NULL;
  bppsa_number_swap(&view);
  assert_int_equal(bppsa_number_reorder(&view, &data), BPPSA_OK);
  assert_memory_equal(data, columns_first, sizeof columns_first);
  bppsa_free(data);
  data = NULL;
  bppsa_alloc_fail_at(1);
  assert_int_equal(bppsa_number_reorder(&view, &data), BPPSA_ERR_MEMORY);
  bppsa_alloc_fail_at(0);
  assert_null(data);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_read), cmocka_unit_test(test_unknown), cmocka_unit_test(test_convert),
                                     cmocka_unit_test(test_order)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
