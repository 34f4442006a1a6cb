/* Sums of arrays. */
#include "core/compute/accumulate.h"
#include "tests/core/helpers.h"

static void sums(void **state) {
  (void)state;
  const float narrow[3] = {1, -2, 0.5f};
  const double wide[3] = {1, -2, 0.5};
  float narrow_sum[3] = {10, 20, 30};
  double wide_sum[3] = {10, 20, 30};
  assert_int_equal(bppsa_accumulate(NULL, BPPSA_F32, 3, narrow, narrow_sum), BPPSA_OK);
  assert_int_equal(bppsa_accumulate(NULL, BPPSA_F64, 2, wide, wide_sum), BPPSA_OK);
  assert_memory_equal(narrow_sum, ((float[]){11, 18, 30.5f}), sizeof narrow_sum);
  assert_memory_equal(wide_sum, ((double[]){11, 18, 30}), sizeof wide_sum);
  assert_int_equal(bppsa_accumulate(NULL, BPPSA_F32, 0, NULL, NULL), BPPSA_OK);
}

static void refused(void **state) {
  (void)state;
  int64_t numbers[2] = {1, 2};
  assert_error(bppsa_accumulate(NULL, BPPSA_I64, 1, numbers, numbers + 1), BPPSA_ERR_UNSUPPORTED,
               "sum of arrays: dtype i64, expected f32 or f64");
  assert_error(bppsa_accumulate(NULL, BPPSA_F64, 1, NULL, numbers), BPPSA_ERR_ARGUMENT, "NULL");
  assert_int_equal(numbers[1], 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sums), cmocka_unit_test(refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
