/* NPY: round trips, files written by other programs, and files with wrong contents. */
#include <errno.h>

#include "core/base/philox.h"
#include "core/files/npy.h"
#include "tests/core/helpers.h"
#include "tests/support/io_fault.h"

#define PATH "npy_test.npy"

static unsigned char made[4096];

/* A file of the given version, dictionary and data; returns its size. */
static size_t make(int version, const char *dictionary, size_t data) {
  const size_t length = strlen(dictionary);
  const size_t start = version == 1 ? 10 : 12;
  memset(made, 0, sizeof made);
  memcpy(made, "\x93NUMPY", 6);
  made[6] = (unsigned char)version;
  made[8] = (unsigned char)length;
  made[9] = (unsigned char)(length >> 8);
  memcpy(made + start, dictionary, length);
  for (size_t i = 0; i < data; ++i) {
    made[start + length + i] = (unsigned char)i;
  }
  return start + length + data;
}

static bppsa_status load_made(size_t size, bppsa_buffer *array) {
  put_file(PATH, made, size);
  return bppsa_npy_load(PATH, array);
}

static void round_trips(void **state) {
  (void)state;
  static const int64_t shapes[][BPPSA_MAX_DIMS] = {{0}, {1}, {7}, {0}, {2, 3}, {2, 0, 3}, {3, 1, 2, 2}, {1, 2, 1, 2, 1, 2, 1, 2}};
  static const int32_t dims[] = {0, 1, 1, 1, 2, 3, 4, 8};
  static unsigned char data[64 * 8];
  for (size_t i = 0; i < sizeof data; ++i) {
    data[i] = (unsigned char)(i * 37 + 1);
  }
  const int64_t before = bppsa_alloc_live();
  for (int dtype = 0; dtype < BPPSA_DTYPE_COUNT; ++dtype) {
    for (size_t s = 0; s < sizeof dims / sizeof dims[0]; ++s) {
      const bppsa_view view = bppsa_view_make(data, (bppsa_dtype)dtype, dims[s], shapes[s]);
      if (dtype > 0 && s != 4) { /* every shape with f32, every dtype with [2, 3] */
        continue;
      }
      bppsa_buffer array = {0};
      if (dtype == BPPSA_BF16) {
        assert_int_equal(bppsa_npy_save(PATH, &view), BPPSA_ERR_UNSUPPORTED);
        assert_message("bf16");
        continue;
      }
      assert_int_equal(bppsa_npy_save(PATH, &view), BPPSA_OK);
      assert_int_equal((size_t)get_file(PATH, made, sizeof made) % 64, bppsa_view_bytes(&view) % 64);
      assert_int_equal(bppsa_npy_load(PATH, &array), BPPSA_OK);
      assert_int_equal(array.view.dtype, dtype);
      assert_true(bppsa_view_same_shape(&array.view, &view));
      assert_true(bppsa_view_contiguous(&array.view));
      assert_int_equal((uintptr_t)array.view.data % BPPSA_ALIGNMENT, 0);
      assert_int_equal(memcmp(array.view.data, data, bppsa_view_bytes(&view)), 0);
      bppsa_buffer_free(&array);
    }
  }
  assert_int_equal(bppsa_alloc_live(), before);
}

/* Byte for byte what NumPy 1.24 writes for numpy.arange(3, dtype='<i2'). */
static void numpy_bytes(void **state) {
  (void)state;
  static const char expected[] = "\x93NUMPY\x01\x00\x76\x00{'descr': '<i2', 'fortran_order': False, 'shape': (3,), }"
                                 "                                                            \n\x00\x00\x01\x00\x02\x00";
  int16_t values[3] = {0, 1, 2};
  const bppsa_view view = bppsa_view_make(values, BPPSA_I16, 1, (const int64_t[]){3});
  assert_int_equal(bppsa_npy_save(PATH, &view), BPPSA_OK);
  assert_int_equal(get_file(PATH, made, sizeof made), 134);
  assert_int_equal(sizeof expected - 1, 134);
  assert_memory_equal(made, expected, 134);
}

static void other_writers(void **state) {
  (void)state;
  static const struct {
    int version;
    const char *dictionary;
    size_t data;
    bppsa_dtype dtype;
    int32_t ndim;
  } good[] = {{1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 24, BPPSA_F32, 2},
              {2, "{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }\n", 16, BPPSA_F64, 1},
              {3, "{'shape':(),'descr':'<i8','fortran_order':False}", 8, BPPSA_I64, 0},
              {1, "  { \"fortran_order\" :\tTrue , \"shape\" : ( 4 , ) , \"descr\" : \"|u1\" }  \n", 4, BPPSA_U8, 1},
              {1, "{'descr': '|b1', 'fortran_order': True, 'shape': ()}", 1, BPPSA_BOOL, 0},
              {1, "{'descr': '<i1', 'fortran_order': False, 'shape': (1, 2, 1,)}", 2, BPPSA_I8, 3},
              {1, "{'descr': '<f8', 'fortran_order': False, 'shape': (0, 9223372036854775)}", 0, BPPSA_F64, 2}};
  for (size_t i = 0; i < sizeof good / sizeof good[0]; ++i) {
    bppsa_buffer array = {0};
    assert_int_equal(load_made(make(good[i].version, good[i].dictionary, good[i].data), &array), BPPSA_OK);
    assert_int_equal(array.view.dtype, good[i].dtype);
    assert_int_equal(array.view.ndim, good[i].ndim);
    assert_int_equal(bppsa_view_bytes(&array.view), good[i].data);
    for (size_t b = 0; b < good[i].data; ++b) {
      assert_int_equal(((unsigned char *)array.view.data)[b], b);
    }
    bppsa_buffer_free(&array);
  }
}

static void bad_headers(void **state) {
  (void)state;
  static const struct {
    const char *dictionary;
    size_t data;
    bppsa_status status;
    const char *message;
  } bad[] = {
      {"{'descr': '=f4', 'fortran_order': False, 'shape': (1,), }", 4, BPPSA_ERR_UNSUPPORTED, "byte 20: dtype '=f4'"},
      {"{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", 8, BPPSA_ERR_UNSUPPORTED, "byte 20: dtype '<c8'"},
      {"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", 8, BPPSA_ERR_UNSUPPORTED,
       "dtype '|O', Python objects, expected one of"},
      {"{'descr': '', 'fortran_order': False, 'shape': (1,), }", 8, BPPSA_ERR_UNSUPPORTED, "dtype ''"},
      {"{'descr': 'f4', 'fortran_order': False, 'shape': (1,), }", 4, BPPSA_ERR_UNSUPPORTED, "dtype 'f4'"},
      {"{'descr': '|f4', 'fortran_order': False, 'shape': (1,), }", 4, BPPSA_ERR_UNSUPPORTED, "dtype '|f4'"},
      {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", 4, BPPSA_ERR_UNSUPPORTED, "an array with fields"},
      {"{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2), }", 4, BPPSA_ERR_FORMAT, "needs 8 bytes, the file has 4"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }", 4, BPPSA_ERR_UNSUPPORTED,
       "more dimensions, expected at most 8"},
      {"", 4, BPPSA_ERR_FORMAT, "byte 10: the header ends there, expected '{'"},
      {"[]", 4, BPPSA_ERR_FORMAT, "byte 10: found '[', expected '{'"},
      {"{}", 4, BPPSA_ERR_FORMAT, "without the key 'descr'"},
      {"{'descr': '<f4', 'fortran_order': False}", 4, BPPSA_ERR_FORMAT, "without the key 'shape'"},
      {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", 4, BPPSA_ERR_FORMAT,
       "byte 27: key 'descr' comes twice"},
      {"{'extra': 1, 'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", 4, BPPSA_ERR_FORMAT,
       "byte 11: key 'extra' is unknown"},
      {"{'descr': '<f4', 'fortran_order': false, 'shape': (1,), }", 4, BPPSA_ERR_FORMAT, "expected True or False"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1), }", 4, BPPSA_ERR_FORMAT, "',' after the only extent"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': 1, }", 4, BPPSA_ERR_FORMAT, "byte 60: found '1', expected '('"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", 4, BPPSA_ERR_FORMAT,
       "byte 61: found '-', expected an extent"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1.0,), }", 4, BPPSA_ERR_FORMAT, "byte 62: found '.'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1 2), }", 4, BPPSA_ERR_FORMAT, "',' or ')'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (,), }", 4, BPPSA_ERR_FORMAT, "found ','"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,,), }", 4, BPPSA_ERR_FORMAT, "found ','"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } x", 4, BPPSA_ERR_FORMAT, "found 'x'"},
      {"{'descr': '<f4' 'fortran_order': False, 'shape': (1,), }", 4, BPPSA_ERR_FORMAT, "',' or '}'"},
      {"{'descr': '<f4', , 'fortran_order': False, 'shape': (1,), }", 4, BPPSA_ERR_FORMAT, "found ','"},
      {"{'descr' '<f4', 'fortran_order': False, 'shape': (1,), }", 4, BPPSA_ERR_FORMAT, "expected ':'"},
      {"{'descr': '<f4\\'', 'fortran_order': False, 'shape': (1,), }", 4, BPPSA_ERR_FORMAT, "closing quote"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", 4, BPPSA_ERR_FORMAT,
       "does not fit in 64 bits"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,), }", 4, BPPSA_ERR_FORMAT,
       "does not fit in 64 bits"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807,), }", 4, BPPSA_ERR_FORMAT, "64 bits"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", 4, BPPSA_ERR_FORMAT, "64 bits"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4294967296, 4294967296), }", 0, BPPSA_ERR_FORMAT, "64 bits"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1152921504606846976,), }", 4, BPPSA_ERR_FORMAT,
       "needs 4611686018427387904 bytes"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 23, BPPSA_ERR_FORMAT,
       "byte 69: shape [2, 3] of f32 needs 24 bytes, the file has 23"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 25, BPPSA_ERR_FORMAT, "needs 24 bytes, the file has 25"}};
  const int64_t before = bppsa_alloc_live();
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    bppsa_buffer array = {0};
    assert_int_equal(load_made(make(1, bad[i].dictionary, bad[i].data), &array), bad[i].status);
    assert_int_equal(strncmp(bppsa_last_error(), PATH ": ", strlen(PATH) + 2), 0);
    assert_message(bad[i].message);
    assert_null(array.view.data);
  }
  assert_int_equal(bppsa_alloc_live(), before);
}

static void bad_prefixes(void **state) {
  (void)state;
  bppsa_buffer array = {0};
  const size_t size = make(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", 4);
  assert_int_equal(load_made(0, &array), BPPSA_ERR_FORMAT);
  assert_message(PATH ": byte 0: the file ends there");
  made[8] = 200;
  assert_int_equal(load_made(size, &array), BPPSA_ERR_FORMAT);
  assert_message(PATH ": byte 8: a header of 200 bytes, but the file has 61 after its length");
  made[6] = 2;
  made[11] = 0xFF;
  assert_int_equal(load_made(size, &array), BPPSA_ERR_FORMAT);
  assert_message("byte 8: a header of 42");
  assert_int_equal(load_made(11, &array), BPPSA_ERR_FORMAT);
  made[6] = 4;
  assert_int_equal(load_made(size, &array), BPPSA_ERR_UNSUPPORTED);
  assert_message("version 4.0");
  made[6] = 1;
  made[7] = 1;
  assert_int_equal(load_made(size, &array), BPPSA_ERR_UNSUPPORTED);
  made[0] = 'x';
  assert_int_equal(load_made(size, &array), BPPSA_ERR_FORMAT);
  assert_message("byte 0: 'xNUMPY\\x01\\x01', expected \\x93NUMPY, with which an NPY file begins");
  assert_int_equal(bppsa_npy_load("no_such.npy", &array), BPPSA_ERR_IO);
  assert_null(array.view.data);
}

/* Every shorter file fails; every file with one byte changed loads or fails, and never anything else. */
static void truncated_and_flipped(void **state) {
  (void)state;
  const size_t size = make(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 24);
  const int64_t before = bppsa_alloc_live();
  for (size_t cut = 0; cut < size; ++cut) {
    bppsa_buffer array = {0};
    assert_int_equal(load_made(cut, &array), BPPSA_ERR_FORMAT);
    assert_null(array.view.data);
  }
  for (size_t at = 0; at < size - 24; ++at) {
    const unsigned char kept = made[at];
    for (int change = 1; change < 256; change += at < 10 ? 1 : 7) {
      bppsa_buffer array = {0};
      made[at] = (unsigned char)(kept ^ change);
      const bppsa_status status = load_made(size, &array);
      assert_true(status == BPPSA_OK || status == BPPSA_ERR_FORMAT || status == BPPSA_ERR_UNSUPPORTED);
      if (status == BPPSA_OK) {
        assert_int_equal(bppsa_view_bytes(&array.view), 24);
      }
      bppsa_buffer_free(&array);
    }
    made[at] = kept;
  }
  assert_int_equal(bppsa_alloc_live(), before);
}

/* Random dictionaries from the pieces of real ones. */
static void random_dictionaries(void **state) {
  (void)state;
  static const char *const pieces[] = {
      "{", "}", "'descr'", ": ", "'<f4'", ", ",    "'fortran_order'", "False", "'shape'", "(",  ")",      "2",
      "3", ",", "-",       "'",  "True",  "'>f4'", "99999999999",     " ",     "\\",      "\"", "(2, 3)", "()"};
  const int64_t before = bppsa_alloc_live();
  for (uint64_t round = 0; round < 3000; ++round) {
    char dictionary[600] = "{'descr': '<f4', 'fortran_order': False, 'shape': ";
    if (round % 2 == 0) {
      dictionary[0] = '\0';
    }
    const uint64_t count = bppsa_random_below(round, BPPSA_STREAM_TEST, 0, 20);
    for (uint64_t i = 0; i < count; ++i) {
      strcat(dictionary, pieces[bppsa_random_below(round, BPPSA_STREAM_TEST, i + 1, sizeof pieces / sizeof pieces[0])]);
    }
    bppsa_buffer array = {0};
    const bppsa_status status = load_made(make(1, dictionary, 24), &array);
    assert_true(status == BPPSA_OK || status == BPPSA_ERR_FORMAT || status == BPPSA_ERR_UNSUPPORTED);
    bppsa_buffer_free(&array);
  }
  assert_int_equal(bppsa_alloc_live(), before);
}

static void writer_counts(void **state) {
  (void)state;
  const int64_t before = bppsa_alloc_live();
  const float values[6] = {1, 2, 3, 4, 5, 6};
  bppsa_npy_writer *writer = NULL;
  remove(PATH);
  assert_int_equal(bppsa_npy_writer_create(PATH, BPPSA_F32, 2, (const int64_t[]){2, 3}, &writer), BPPSA_OK);
  assert_int_equal(bppsa_npy_writer_write(writer, values, 4), BPPSA_OK);
  assert_int_equal(bppsa_npy_writer_write(writer, values + 1, 20), BPPSA_OK);
  assert_int_equal(bppsa_npy_writer_write(writer, values, 1), BPPSA_ERR_SHAPE);
  assert_message(PATH ": 1 bytes after 24, the shape has 24");
  assert_int_equal(bppsa_npy_writer_commit(writer), BPPSA_OK);
  bppsa_buffer array = {0};
  assert_int_equal(bppsa_npy_load(PATH, &array), BPPSA_OK);
  assert_memory_equal(array.view.data, values, sizeof values);
  bppsa_buffer_free(&array);
  remove(PATH);
  assert_int_equal(bppsa_npy_writer_create(PATH, BPPSA_F32, 2, (const int64_t[]){2, 3}, &writer), BPPSA_OK);
  assert_int_equal(bppsa_npy_writer_write(writer, values, 20), BPPSA_OK);
  assert_int_equal(bppsa_npy_writer_commit(writer), BPPSA_ERR_SHAPE);
  assert_int_equal(get_file(PATH, made, 1), -1);
  writer = NULL;
  assert_int_equal(bppsa_npy_writer_create(PATH, BPPSA_F32, 1, (const int64_t[]){-1}, &writer), BPPSA_ERR_SHAPE);
  assert_int_equal(bppsa_npy_writer_create("no_such_folder/x.npy", BPPSA_F32, 0, NULL, &writer), BPPSA_ERR_IO);
  assert_null(writer);
  bppsa_npy_writer_abort(NULL);
  bppsa_view strided = bppsa_view_make(made, BPPSA_F32, 2, (const int64_t[]){2, 3});
  strided.strides[1] = 2;
  assert_int_equal(bppsa_npy_save(PATH, &strided), BPPSA_ERR_UNSUPPORTED);
  assert_int_equal(get_file(PATH, made, 1), -1);
  assert_int_equal(bppsa_alloc_live(), before);
}

static bppsa_status save_and_load(void *argument) {
  bppsa_buffer array = {0};
  BPPSA_TRY(bppsa_npy_save(PATH, argument));
  BPPSA_TRY(bppsa_npy_load(PATH, &array));
  bppsa_buffer_free(&array);
  return BPPSA_OK;
}

static void allocation_failures(void **state) {
  (void)state;
  float values[6] = {0};
  bppsa_view view = bppsa_view_make(values, BPPSA_F32, 2, (const int64_t[]){2, 3});
  assert_true(walk_allocations(save_and_load, &view) >= 5);
  remove(PATH);
}

/* Every call to the system fails once: the old file stays as it was, or the new one is whole. */
static void failed_calls(void **state) {
  (void)state;
  static double values[3 * 5000]; /* more than what is written at once */
  io_fault fault;
  static unsigned char found[sizeof values + 4096];
  const bppsa_view view = bppsa_view_make(values, BPPSA_F64, 2, (const int64_t[]){3, 5000});
  int64_t old = 0;
  for (int64_t call = 1;; ++call) {
    put_file(PATH, "old", 3);
    io_fault_set(&fault, call, false, ENOSPC);
    const bppsa_status status = bppsa_npy_save(PATH, &view);
    io_fault_clear();
    if (fault.failed == 0) {
      assert_int_equal(status, BPPSA_OK);
      assert_true(old > 2);
      break;
    }
    if (status != BPPSA_OK) { /* a call may fail whose result does not matter */
      assert_error(status, BPPSA_ERR_IO, PATH);
      const long size = get_file(PATH, found, sizeof found);
      assert_true(size == 3 ? memcmp(found, "old", 3) == 0 : size == 128 /* header */ + (long)sizeof values);
      old += size == 3;
    }
  }
  remove(PATH);
}

/* Orders of bytes and of indices that other programs write. */
static void arrangements(void **state) {
  (void)state;
  static const char *const dictionaries[] = {
      "{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3), }", "{'descr': '>i2', 'fortran_order': False, 'shape': (2, 3), }",
      "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }", "{'descr': '>i2', 'fortran_order': True, 'shape': (6,), }"};
  static const int16_t expected[4][6] = {{0x0100, 0x0504, 0x0908, 0x0302, 0x0706, 0x0b0a},
                                         {0x0001, 0x0203, 0x0405, 0x0607, 0x0809, 0x0a0b},
                                         {0x0001, 0x0405, 0x0809, 0x0203, 0x0607, 0x0a0b},
                                         {0x0001, 0x0203, 0x0405, 0x0607, 0x0809, 0x0a0b}};
  const int64_t before = bppsa_alloc_live();
  for (int i = 0; i < 4; ++i) {
    bppsa_buffer array = {0}, copy = {0};
    bppsa_view view;
    const size_t size = make(1, dictionaries[i], 12), start = size - 12;
    for (int b = 0; b < 12; ++b) {
      made[start + (size_t)b] = (unsigned char)b;
    }
    assert_int_equal(load_made(size, &array), BPPSA_OK);
    assert_memory_equal(array.view.data, expected[i], 12);
    assert_true(bppsa_view_contiguous(&array.view));
    assert_int_equal(bppsa_npy_copy("memory", made, (int64_t)size, &copy), BPPSA_OK);
    assert_memory_equal(copy.view.data, expected[i], 12);
    assert_int_equal(bppsa_npy_parse("memory", made, (int64_t)size, &view), BPPSA_ERR_UNSUPPORTED); /* it cannot move them */
    bppsa_buffer_free(&array);
    bppsa_buffer_free(&copy);
  }
  assert_int_equal(bppsa_alloc_live(), before);
  remove(PATH);
}

/* Numbers of all types as reals and as integers. */
static void numbers(void **state) {
  (void)state;
  static uint16_t halves[4] = {0x3c00, 0xc000, 0x0001, 0x7bff}; /* 1, -2, 2^-24, 65504 */
  static uint8_t flags[3] = {0, 1, 7};
  static uint64_t large[2] = {5, UINT64_MAX};
  const bppsa_view half = bppsa_view_make(halves, BPPSA_F16, 1, (const int64_t[]){4}),
                   flag = bppsa_view_make(flags, BPPSA_BOOL, 1, (const int64_t[]){3}),
                   big = bppsa_view_make(large, BPPSA_U64, 1, (const int64_t[]){2});
  const double expected[] = {1, -2, 0x1p-24, 65504};
  bppsa_buffer array = {0};
  assert_int_equal(bppsa_npy_save(PATH, &half), BPPSA_OK);
  assert_int_equal(bppsa_npy_load(PATH, &array), BPPSA_OK);
  assert_int_equal(bppsa_npy_to_reals(PATH, &array), BPPSA_OK);
  for (int i = 0; i < 4; ++i) {
    assert_true(array.view.dtype == BPPSA_F32 && bppsa_view_get(&array.view, i) == expected[i]);
  }
  bppsa_buffer_free(&array);
  assert_int_equal(bppsa_npy_load_whole(PATH, &array), BPPSA_ERR_FORMAT);
  assert_message(PATH ": dtype f16, expected i64");
  assert_int_equal(bppsa_npy_save(PATH, &flag), BPPSA_OK);
  assert_int_equal(bppsa_npy_load_whole(PATH, &array), BPPSA_OK);
  assert_memory_equal(array.view.data, ((int64_t[]){0, 1, 1}), 24);
  bppsa_buffer_free(&array);
  assert_int_equal(bppsa_npy_save(PATH, &big), BPPSA_OK);
  assert_int_equal(bppsa_npy_load(PATH, &array), BPPSA_OK);
  assert_int_equal(bppsa_npy_to_reals(PATH, &array), BPPSA_ERR_FORMAT);
  assert_message(PATH ": u64 1.8446744073709552e+19 at [1], expected a number that f64 holds");
  assert_int_equal(array.view.dtype, BPPSA_U64); /* unchanged */
  bppsa_buffer_free(&array);
  assert_int_equal(bppsa_npy_load_whole(PATH, &array), BPPSA_ERR_FORMAT);
  remove(PATH);
}

static void reals(void **state) {
  (void)state;
  double data[4] = {1, 2.5, -3, 1e300};
  int64_t integers[4] = {-3, 0, 1, 16777217};
  bppsa_buffer array = {0};
  const bppsa_view view = bppsa_view_make(data, BPPSA_F64, 2, (const int64_t[]){2, 2});
  const bppsa_view whole = bppsa_view_make(integers, BPPSA_I64, 1, (const int64_t[]){4});
  assert_int_equal(bppsa_npy_save(PATH, &view), BPPSA_OK);
  assert_int_equal(bppsa_npy_load_reals(PATH, BPPSA_F64, &array), BPPSA_OK);
  assert_true(bppsa_view_get(&array.view, 3) == 1e300);
  bppsa_buffer_free(&array);
  assert_int_equal(bppsa_npy_load_reals(PATH, BPPSA_F32, &array), BPPSA_ERR_FORMAT);
  assert_message(PATH ": element 3 is not finite in f32, expected finite values: 1e+300 at [1, 1]");
  assert_int_equal(bppsa_npy_save(PATH, &whole), BPPSA_OK);
  assert_int_equal(bppsa_npy_load_reals(PATH, BPPSA_F32, &array), BPPSA_ERR_FORMAT);
  assert_message(PATH ": i64 16777217 at [3], expected a number that f32 holds");
  assert_null(array.view.data);
  assert_int_equal(bppsa_npy_load_reals(PATH, BPPSA_F64, &array), BPPSA_OK);
  assert_true(array.view.dtype == BPPSA_F64 && bppsa_view_get(&array.view, 3) == 16777217);
  bppsa_buffer_free(&array);
  remove(PATH);
  assert_int_equal(bppsa_npy_load_reals(PATH, BPPSA_F32, &array), BPPSA_ERR_IO);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(round_trips),
                                     cmocka_unit_test(numpy_bytes),
                                     cmocka_unit_test(other_writers),
                                     cmocka_unit_test(bad_headers),
                                     cmocka_unit_test(bad_prefixes),
                                     cmocka_unit_test(truncated_and_flipped),
                                     cmocka_unit_test(random_dictionaries),
                                     cmocka_unit_test(writer_counts),
                                     cmocka_unit_test(allocation_failures),
                                     cmocka_unit_test(failed_calls),
                                     cmocka_unit_test(reals),
                                     cmocka_unit_test(arrangements),
                                     cmocka_unit_test(numbers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
