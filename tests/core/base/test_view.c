/* Views, shapes and conversion. */
#include <math.h>

#include "core/base/view.h"
#include "tests/core/helpers.h"

/* More dimensions than a view has, fewer than none, or no shape: an empty view that other functions refuse. */
static void misused(void **state) {
  (void)state;
  int64_t shape[99];
  float data[2] = {1, 2}, other[2] = {3, 4};
  for (int i = 0; i < 99; ++i) {
    shape[i] = 2;
  }
  const int64_t pair[] = {2}, huge[] = {INT64_MAX, INT64_MAX, 3};
  const bppsa_view to = bppsa_view_make(other, BPPSA_F32, 1, pair);
  const bppsa_view bad[] = {bppsa_view_make(data, BPPSA_F32, 99, shape), bppsa_view_make(data, BPPSA_F32, -1, shape),
                            bppsa_view_make(data, BPPSA_F32, BPPSA_MAX_DIMS + 1, shape),
                            bppsa_view_make(data, BPPSA_F32, 1, NULL)};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    assert_null(bad[i].data);
    assert_int_equal(bppsa_view_count(&bad[i]), 0);
    assert_int_equal(bppsa_view_bytes(&bad[i]), 0);
    assert_int_equal(bppsa_view_convert(&bad[i], &to), BPPSA_ERR_SHAPE);
    assert_true(other[0] == 3);
  }
  (void)bppsa_view_make(data, BPPSA_F32, 99, shape);
  assert_message("view: 99 dimensions, expected 0 .. 8");
  const bppsa_view large = bppsa_view_make(NULL, BPPSA_F32, 3, huge); /* no overflow that a sanitizer finds */
  assert_int_equal(bppsa_shape_bytes(large.dtype, large.ndim, large.shape, NULL, NULL), BPPSA_ERR_MEMORY);
}

static void dtypes(void **state) {
  (void)state;
  static const struct {
    bppsa_dtype dtype;
    const char *name;
    size_t size;
  } expected[] = {{BPPSA_F32, "f32", 4}, {BPPSA_F64, "f64", 8},   {BPPSA_I64, "i64", 8}, {BPPSA_I32, "i32", 4},
                  {BPPSA_I16, "i16", 2}, {BPPSA_I8, "i8", 1},     {BPPSA_U8, "u8", 1},   {BPPSA_BOOL, "bool", 1},
                  {BPPSA_F16, "f16", 2}, {BPPSA_BF16, "bf16", 2}, {BPPSA_U16, "u16", 2}, {BPPSA_U32, "u32", 4},
                  {BPPSA_U64, "u64", 8}};
  assert_int_equal(sizeof expected / sizeof expected[0], BPPSA_DTYPE_COUNT);
  for (int i = 0; i < BPPSA_DTYPE_COUNT; ++i) {
    assert_int_equal(bppsa_dtype_size(expected[i].dtype), expected[i].size);
    assert_string_equal(bppsa_dtype_name(expected[i].dtype), expected[i].name);
  }
  assert_int_equal(bppsa_dtype_size((bppsa_dtype)99), 0);
  assert_int_equal(bppsa_dtype_padded(BPPSA_F32, 0), 0);
  assert_int_equal(bppsa_dtype_padded(BPPSA_F32, 1), 16);
  assert_int_equal(bppsa_dtype_padded(BPPSA_F32, 16), 16);
  assert_int_equal(bppsa_dtype_padded(BPPSA_F64, 9), 16);
  assert_int_equal(bppsa_dtype_padded((bppsa_dtype)99, 7), 7);
  assert_string_equal(bppsa_dtype_name((bppsa_dtype)-1), "unknown");
  bppsa_dtype dtype = BPPSA_U8;
  assert_int_equal(bppsa_dtype_parse("f64", &dtype), BPPSA_OK);
  assert_int_equal(dtype, BPPSA_F64);
  assert_int_equal(bppsa_dtype_parse("f32", &dtype), BPPSA_OK);
  assert_int_equal(dtype, BPPSA_F32);
  static const char *const bad[] = {"", "f", "f3", "f320", "F32", "i64", " f32"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    assert_int_equal(bppsa_dtype_parse(bad[i], &dtype), BPPSA_ERR_ARGUMENT);
    assert_int_equal(dtype, BPPSA_F32);
    assert_message("expected f32 or f64");
  }
}

static void shapes(void **state) {
  (void)state;
  const int64_t shape[] = {2, 3, 4};
  float data[24] = {0};
  bppsa_view view = bppsa_view_make(data, BPPSA_F32, 3, shape);
  assert_int_equal(view.strides[0], 12);
  assert_int_equal(view.strides[1], 4);
  assert_int_equal(view.strides[2], 1);
  assert_int_equal(bppsa_view_count(&view), 24);
  assert_int_equal(bppsa_view_bytes(&view), 96);
  assert_true(bppsa_view_contiguous(&view));
  view.strides[0] = 24;
  assert_false(bppsa_view_contiguous(&view));
  view.shape[0] = 1; /* the stride of an extent of 1 says nothing */
  assert_true(bppsa_view_contiguous(&view));
  const bppsa_view scalar = bppsa_view_make(data, BPPSA_F32, 0, NULL);
  assert_int_equal(bppsa_view_count(&scalar), 1);
  assert_true(bppsa_view_contiguous(&scalar));
  const bppsa_view empty = bppsa_view_make(NULL, BPPSA_F64, 3, (const int64_t[]){2, 0, 4});
  assert_int_equal(bppsa_view_count(&empty), 0);
  assert_int_equal(bppsa_view_bytes(&empty), 0);
  assert_true(bppsa_view_contiguous(&empty));
  assert_true(bppsa_view_same_shape(&empty, &empty));
  assert_false(bppsa_view_same_shape(&empty, &scalar));
  assert_false(bppsa_view_same_shape(&empty, &view));
}

static void shape_texts(void **state) {
  (void)state;
  char text[BPPSA_SHAPE_TEXT];
  assert_string_equal(bppsa_shape_text(0, NULL, text, sizeof text), "[]");
  assert_string_equal(bppsa_shape_text(1, (const int64_t[]){5}, text, sizeof text), "[5]");
  assert_string_equal(bppsa_shape_text(3, (const int64_t[]){2, -3, 4}, text, sizeof text), "[2, -3, 4]");
  int64_t most[BPPSA_MAX_DIMS];
  for (int d = 0; d < BPPSA_MAX_DIMS; ++d) {
    most[d] = INT64_MIN;
  }
  bppsa_shape_text(BPPSA_MAX_DIMS, most, text, sizeof text);
  assert_int_equal(text[strlen(text) - 1], ']');
  for (size_t size = 1; size < 12; ++size) { /* cut, never beyond the end */
    memset(text, 'z', sizeof text);
    bppsa_shape_text(3, (const int64_t[]){2, 3, 4}, text, size);
    assert_int_equal(strncmp(text, "[2, 3, 4]", size - 1), 0);
    assert_int_equal(text[size], 'z');
  }
}

static void shape_bytes(void **state) {
  (void)state;
  int64_t count = -1;
  size_t bytes = 77;
  assert_int_equal(bppsa_shape_bytes(BPPSA_F64, 0, NULL, &count, &bytes), BPPSA_OK);
  assert_int_equal(count, 1);
  assert_int_equal(bytes, 8);
  assert_int_equal(bppsa_shape_bytes(BPPSA_I16, 2, (const int64_t[]){3, 5}, &count, &bytes), BPPSA_OK);
  assert_int_equal(count, 15);
  assert_int_equal(bytes, 30);
  assert_int_equal(bppsa_shape_bytes(BPPSA_I16, 3, (const int64_t[]){3, 0, 5}, &count, &bytes), BPPSA_OK);
  assert_int_equal(count, 0);
  assert_int_equal(bytes, 0);
  assert_int_equal(bppsa_shape_bytes(BPPSA_U8, 1, (const int64_t[]){INT64_MAX}, NULL, NULL), BPPSA_OK);
  count = -1;
  bytes = 77;
  static const struct {
    int32_t ndim;
    int64_t shape[9];
    bppsa_status status;
    const char *message;
  } bad[] = {{2, {3, -1}, BPPSA_ERR_SHAPE, "shape [3, -1]: extent 1 is negative"},
             {2, {0, -1}, BPPSA_ERR_SHAPE, "negative"},
             {1, {INT64_MAX / 4 + 1}, BPPSA_ERR_MEMORY, "shape [2305843009213693952] of f32"},
             {3, {1 << 30, 1 << 30, 1 << 30}, BPPSA_ERR_MEMORY, "64 bits"},
             {3, {0, INT64_MAX, INT64_MAX}, BPPSA_ERR_MEMORY, "64 bits"},
             {-1, {0}, BPPSA_ERR_SHAPE, "-1 dimensions"},
             {9, {1, 1, 1, 1, 1, 1, 1, 1, 1}, BPPSA_ERR_SHAPE, "9 dimensions"}};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    assert_int_equal(bppsa_shape_bytes(BPPSA_F32, bad[i].ndim, bad[i].shape, &count, &bytes), bad[i].status);
    assert_message(bad[i].message);
    assert_int_equal(count, -1);
    assert_int_equal(bytes, 77);
  }
  assert_int_equal(bppsa_shape_bytes((bppsa_dtype)13, 0, NULL, &count, &bytes), BPPSA_ERR_ARGUMENT);
}

static void conversion(void **state) {
  (void)state;
  const int64_t shape[] = {2, 3};
  double d[6] = {1.0, -0.0, 1.0 + 0x1p-30, 1e300, (double)NAN, 0x1p-1074};
  float f[6] = {0};
  double back[6] = {0};
  const bppsa_view from = bppsa_view_make(d, BPPSA_F64, 2, shape);
  const bppsa_view to = bppsa_view_make(f, BPPSA_F32, 2, shape);
  const bppsa_view wide = bppsa_view_make(back, BPPSA_F64, 2, shape);
  assert_int_equal(bppsa_view_convert(&from, &to), BPPSA_OK);
  assert_true(f[0] == 1.0f && f[1] == 0.0f && signbit(f[1]) && f[2] == 1.0f && isinf(f[3]) && isnan(f[4]) && f[5] == 0.0f);
  assert_int_equal(bppsa_view_convert(&to, &wide), BPPSA_OK);
  assert_true(back[0] == 1.0 && back[2] == 1.0 && isinf(back[3]) && isnan(back[4]));
  assert_int_equal(bppsa_view_convert(&from, &wide), BPPSA_OK);
  assert_memory_equal(d, back, sizeof d);
  assert_true(bppsa_view_get(&from, 3) == 1e300 && bppsa_view_get(&to, 2) == 1.0);
  bppsa_view_set(&to, 5, 0.5);
  bppsa_view_set(&wide, 5, 0.25);
  assert_true(f[5] == 0.5f && back[5] == 0.25);
  bppsa_view_set(&to, 0, 3);
  bppsa_view_scale(&to, 1.0 / 3.0); /* the factor is not rounded to f32 */
  bppsa_view_scale(&wide, -2);
  assert_true(f[0] == 1.0f && f[5] == (float)(0.5 / 3.0) && back[5] == -0.5);
}

static void conversions_refused(void **state) {
  (void)state;
  double d[6] = {7.0};
  float f[6] = {0};
  const bppsa_view from = bppsa_view_make(d, BPPSA_F64, 2, (const int64_t[]){2, 3});
  const bppsa_view turned = bppsa_view_make(f, BPPSA_F32, 2, (const int64_t[]){3, 2});
  assert_int_equal(bppsa_view_convert(&from, &turned), BPPSA_ERR_SHAPE);
  assert_message("shape [2, 3], expected [3, 2]");
  bppsa_view integers = bppsa_view_make(f, BPPSA_I32, 2, (const int64_t[]){2, 3});
  assert_int_equal(bppsa_view_convert(&from, &integers), BPPSA_ERR_UNSUPPORTED);
  assert_message("from f64 to i32");
  bppsa_view strided = bppsa_view_make(f, BPPSA_F32, 2, (const int64_t[]){2, 3});
  strided.strides[0] = 4;
  assert_int_equal(bppsa_view_convert(&from, &strided), BPPSA_ERR_UNSUPPORTED);
  bppsa_view elsewhere = bppsa_view_make(f, BPPSA_F32, 2, (const int64_t[]){2, 3});
  elsewhere.device = BPPSA_CUDA;
  assert_int_equal(bppsa_view_convert(&from, &elsewhere), BPPSA_ERR_UNSUPPORTED);
  assert_true(f[0] == 0.0f);
  const bppsa_view nothing = bppsa_view_make(NULL, BPPSA_F64, 1, (const int64_t[]){0});
  assert_int_equal(bppsa_view_convert(&nothing, &nothing), BPPSA_OK);
}

static void checked_shapes(void **state) {
  (void)state;
  double data[24] = {0};
  const bppsa_view view = bppsa_view_make(data, BPPSA_F64, 3, (const int64_t[]){2, 3, 4});
  assert_int_equal(bppsa_view_check_shape("F", &view, "[T, B, I]", 3, (const int64_t[]){2, 3, 4}), BPPSA_OK);
  assert_int_equal(bppsa_view_check_shape("F", &view, "[T, B, I]", 3, (const int64_t[]){3, 2, 4}), BPPSA_ERR_SHAPE);
  assert_message("F: shape [2, 3, 4], expected [T, B, I] = [3, 2, 4]; it looks like [B, T, I]");
  assert_int_equal(bppsa_view_check_shape("F", &view, "[T, B]", 2, (const int64_t[]){2, 3}), BPPSA_ERR_SHAPE);
  assert_message("F: shape [2, 3, 4], expected [T, B] = [2, 3]");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(misused),
                                     cmocka_unit_test(dtypes),
                                     cmocka_unit_test(shapes),
                                     cmocka_unit_test(shape_texts),
                                     cmocka_unit_test(shape_bytes),
                                     cmocka_unit_test(conversion),
                                     cmocka_unit_test(conversions_refused),
                                     cmocka_unit_test(checked_shapes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
