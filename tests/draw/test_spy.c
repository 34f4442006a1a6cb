/* Pictures of sparse matrices, read back pixel by pixel. */
#include "draw/spy.h"

#include <string.h>
#include <zlib.h>

#include "core/base/alloc.h"
#include "tests/core/helpers.h"
#include "tests/support/io_fault.h"

enum { NONE, ZERO, VALUE };

static uint32_t number(const unsigned char *at) {
  return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* The indices of a picture's pixels, [height][1 + width]; free with bppsa_free. */
static unsigned char *read_picture(const char *path, uint32_t *width, uint32_t *height) {
  static unsigned char bytes[1 << 20];
  const long size = get_file(path, bytes, sizeof bytes);
  unsigned char *pixels = NULL;
  assert_true(size > 8 && memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0);
  long at = 8;
  while (at + 12 <= size) {
    const uint32_t length = number(bytes + at);
    const unsigned char *kind = bytes + at + 4, *data = kind + 4;
    assert_int_equal(crc32_z(0, kind, length + 4), number(data + length));
    if (memcmp(kind, "IHDR", 4) == 0) {
      *width = number(data);
      *height = number(data + 4);
    } else if (memcmp(kind, "IDAT", 4) == 0) {
      uLongf count = (uLongf)(*width + 1) * *height;
      pixels = bppsa_alloc(count);
      assert_int_equal(uncompress(pixels, &count, data, length), Z_OK);
      assert_int_equal(count, (*width + 1) * *height);
    }
    at += 12 + (long)length;
  }
  assert_int_equal(at, size);
  return pixels;
}

static void small(void **state) {
  (void)state;
  static const int64_t row_ptr[] = {0, 2, 2, 3};
  static const int32_t col[] = {0, 3, 1};
  static const float f32[] = {1, 0, -2};
  static const double f64[] = {1, 0, -2};
  static const unsigned char expected[3][4] = {{VALUE, NONE, NONE, ZERO}, {NONE, NONE, NONE, NONE}, {NONE, VALUE, NONE, NONE}};
  for (int type = 0; type < 2; ++type) {
    uint32_t width = 0, height = 0;
    assert_int_equal(
        bppsa_spy_save("spy.png", 3, 4, row_ptr, col, type == 0 ? BPPSA_F32 : BPPSA_F64, type == 0 ? (const void *)f32 : f64),
        BPPSA_OK);
    unsigned char *pixels = read_picture("spy.png", &width, &height);
    assert_int_equal(width, 4);
    assert_int_equal(height, 3);
    for (int r = 0; r < 3; ++r) {
      assert_int_equal(pixels[5 * r], 0);
      assert_memory_equal(pixels + 5 * r + 1, expected[r], 4);
    }
    bppsa_free(pixels);
  }
}

/* There are more rows than pixels: several rows share a pixel, and one value that is not 0 is enough to colour it. An empty
 * matrix is one pixel. */
static void large_and_empty(void **state) {
  (void)state;
  enum { N = 3000 };
  static int64_t row_ptr[N + 1];
  static int32_t col[N];
  static float values[N];
  for (int i = 0; i < N; ++i) {
    row_ptr[i + 1] = i + 1;
    col[i] = i;
    values[i] = i % 3 == 1;
  }
  uint32_t width = 0, height = 0;
  assert_int_equal(bppsa_spy_save("spy.png", N, N, row_ptr, col, BPPSA_F32, values), BPPSA_OK);
  unsigned char *pixels = read_picture("spy.png", &width, &height);
  assert_true(width == 1024 && height == 1024);
  for (uint32_t y = 0; y < height; ++y) {
    for (uint32_t x = 0; x < width; ++x) {
      assert_true((pixels[y * 1025 + 1 + x] != NONE) == (x == y));
    }
  }
  assert_int_equal(pixels[1], VALUE); /* rows 0, 1 and 2, of which 1 is not 0 */
  bppsa_free(pixels);
  assert_int_equal(bppsa_spy_save("spy.png", 0, 0, row_ptr, col, BPPSA_F32, values), BPPSA_OK);
  pixels = read_picture("spy.png", &width, &height);
  assert_true(width == 1 && height == 1 && pixels[1] == NONE);
  bppsa_free(pixels);
}

static bppsa_status save(void *argument) {
  (void)argument;
  static const int64_t row_ptr[] = {0, 1};
  static const int32_t col[] = {0};
  static const double value[] = {1};
  return bppsa_spy_save("spy_fault.png", 1, 1, row_ptr, col, BPPSA_F64, value);
}

/* Every allocation and every call to the system fails once: an error, or a complete file. */
static void failures(void **state) {
  (void)state;
  assert_true(walk_allocations(save, NULL) >= 2);
  io_fault fault = {.failed = 1};
  int errors = 0;
  for (int64_t call = 1; fault.failed > 0; ++call) { /* some calls may fail: a close of the directory loses nothing */
    static unsigned char bytes[16];
    remove("spy_fault.png");
    io_fault_set(&fault, call, false, 5);
    const bppsa_status status = save(NULL);
    io_fault_clear();
    assert_true(status == BPPSA_OK || (status == BPPSA_ERR_IO && fault.failed > 0));
    errors += status == BPPSA_ERR_IO;
    assert_true(status != BPPSA_OK || get_file("spy_fault.png", bytes, sizeof bytes) > 8);
    assert_int_equal(bppsa_io_open_count(), 0);
  }
  assert_true(errors >= 5);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(small), cmocka_unit_test(large_and_empty), cmocka_unit_test(failures)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
