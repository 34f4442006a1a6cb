/* NPZ archives: written by turns and in pieces, read by NumPy; errors, failing calls, failing allocations. */
#include "core/files/npy.h"
#include "core/files/npz.h"
#include "tests/core/helpers.h"
#include "tests/support/io_fault.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIR "core_npz/"
#define PATH DIR "archive.npz"

static const int64_t wide[] = {6, 2}, grid[] = {2, 3, 4}, none[] = {0, 5};
static const int64_t numbers[12] = {1, -2, 3, -4, 5, -6, 7, -8, 9, -10, 11, INT64_MIN};
static float floats[24];
static const double one[] = {0.1};

/* a [6,2] and b [2,3,4] by turns, c whole, d empty, e a scalar, f bytes. */
static const bppsa_npz_array arrays[] = {{"a", NULL, BPPSA_I64, 2, wide, NULL},    {"b", NULL, BPPSA_F32, 3, grid, NULL},
                                         {"c", NULL, BPPSA_I64, 2, wide, numbers}, {"d", NULL, BPPSA_F64, 2, none, NULL},
                                         {"e", NULL, BPPSA_F64, 0, NULL, one},     {"f", "csr", BPPSA_U8, 0, NULL, NULL}};
enum { COUNT = sizeof arrays / sizeof arrays[0] };

static bppsa_status write_all(int64_t limit) {
  bppsa_npz_writer *writer = NULL;
  BPPSA_TRY(bppsa_npz_writer_create_zip64(PATH, COUNT, arrays, limit, &writer));
  bppsa_status status = BPPSA_OK;
  for (int64_t i = 0; status == BPPSA_OK && i < 6; ++i) {
    status = bppsa_npz_writer_write(writer, 0, numbers + 2 * i, 16);
    status = status == BPPSA_OK ? bppsa_npz_writer_write(writer, 1, floats + 4 * i, 16) : status;
  }
  if (status != BPPSA_OK) {
    bppsa_npz_writer_abort(writer);
    return status;
  }
  return bppsa_npz_writer_commit(writer);
}

/* One array of an archive, where an NPY file is expected. */
static void test_read(void **state) {
  (void)state;
  const int64_t before = bppsa_alloc_live();
  bppsa_buffer array = {0};
  assert_int_equal(write_all(UINT32_MAX), BPPSA_OK);
  assert_int_equal(bppsa_npy_load(PATH, &array), BPPSA_ERR_FORMAT);
  assert_message(PATH ": an archive of the arrays a, b, c, d, e, f, expected one array; name it, as in " PATH ":a");
  assert_int_equal(bppsa_npy_load(PATH ":x", &array), BPPSA_ERR_FORMAT);
  assert_message(PATH ": member x.npy missing, expected one of a, b, c, d, e, f");
  assert_int_equal(bppsa_npy_load(PATH ":f", &array), BPPSA_ERR_UNSUPPORTED);
  assert_message(PATH ":f: byte 20: dtype '|S3'");
  assert_int_equal(bppsa_npy_load(PATH ":a", &array), BPPSA_OK);
  assert_true(array.view.dtype == BPPSA_I64 && array.view.ndim == 2 && array.view.shape[0] == 6);
  assert_memory_equal(array.view.data, numbers, sizeof numbers);
  bppsa_buffer_free(&array);
  assert_int_equal(rename(PATH, DIR "archive.bin"), 0); /* known by its content */
  assert_true(bppsa_npy_is_member(DIR "archive.bin:b") && !bppsa_npy_is_member(DIR "archive.bin"));
  assert_int_equal(bppsa_npy_load(DIR "archive.bin:x", &array), BPPSA_ERR_FORMAT);
  assert_message(DIR "archive.bin: member x.npy missing, expected one of a, b, c, d, e, f");
  assert_int_equal(bppsa_npy_load(DIR "archive.bin:a", &array), BPPSA_OK);
  assert_memory_equal(array.view.data, numbers, sizeof numbers);
  const bppsa_view other = array.view;
  assert_int_equal(bppsa_npy_save(DIR "archive.bin:b", &other), BPPSA_OK); /* a file of just that name goes first */
  assert_false(bppsa_npy_is_member(DIR "archive.bin:b"));
  assert_int_equal(remove(DIR "archive.bin:b"), 0);
  assert_int_equal(remove(DIR "archive.bin"), 0);
  bppsa_buffer_free(&array);
  const bppsa_npz_array single = {"arr_0", NULL, BPPSA_F64, 0, NULL, one};
  bppsa_npz_writer *writer = NULL;
  assert_int_equal(bppsa_npz_writer_create(PATH, 1, &single, &writer), BPPSA_OK);
  assert_int_equal(bppsa_npz_writer_commit(writer), BPPSA_OK);
  assert_int_equal(bppsa_npy_load(PATH, &array), BPPSA_OK); /* the only one needs no name */
  assert_true(bppsa_view_get(&array.view, 0) == 0.1);
  bppsa_buffer_free(&array);
  assert_true(bppsa_npy_is_member("a.npz:b") && !bppsa_npy_is_member("a.npz") && !bppsa_npy_is_member("a.npz:") &&
              !bppsa_npy_is_member("a.npy:b") && !bppsa_npy_is_member(".npz:b"));
  assert_int_equal(bppsa_npy_file_length("d/a.npz:b"), 7);
  bppsa_status status = BPPSA_ERR_MEMORY;
  for (int64_t failing = 1; status == BPPSA_ERR_MEMORY; ++failing) {
    bppsa_alloc_fail_at(failing);
    status = bppsa_npy_load(PATH, &array);
    bppsa_alloc_fail_at(0);
    assert_true(status == BPPSA_OK || (status == BPPSA_ERR_MEMORY && bppsa_alloc_live() == before));
  }
  assert_int_equal(status, BPPSA_OK);
  bppsa_buffer_free(&array);
  assert_int_equal(bppsa_alloc_live(), before);
}

static void test_numpy(void **state) {
  (void)state;
  static const char script[] =
      "/usr/bin/python3 -c \"import numpy as n, zipfile\n"
      "assert zipfile.ZipFile('" PATH "').testzip() is None\n"
      "z = n.load('" PATH "'); a, b = z['a'], z['b']\n"
      "assert z.files == list('abcdef') and a.dtype == n.int64 and b.dtype == n.float32 and b.shape == (2, 3, 4)\n"
      "assert a.shape == (6, 2) and a[5, 1] == -2**63 and a.ravel()[:4].tolist() == [1, -2, 3, -4] and n.array_equal(a, z['c'])\n"
      "assert n.array_equal(b.ravel(), n.arange(24, dtype=n.float32) / 4) and z['d'].shape == (0, 5)\n"
      "assert z['e'].shape == () and z['e'] == 0.1 and z['f'].item() == b'csr'\n\"";
  const int64_t limits[] = {UINT32_MAX, 0, 200, 600}; /* none, all, and some Zip64 records */
  if (system("/usr/bin/python3 -c 'import numpy' >/dev/null 2>&1") != 0) {
    print_message("no NumPy (package python3-numpy)\n");
    skip();
  }
  for (size_t i = 0; i < sizeof limits / sizeof limits[0]; ++i) {
    assert_int_equal(write_all(limits[i]), BPPSA_OK);
    assert_int_equal(system(script), 0);
  }
}

/* Without NumPy: the members' bytes are where the archive's directory says. */
static void test_layout(void **state) {
  (void)state;
  unsigned char bytes[8192];
  assert_int_equal(write_all(UINT32_MAX), BPPSA_OK);
  const long size = get_file(PATH, bytes, sizeof bytes);
  assert_true(size > 1000 && size < (long)sizeof bytes);
  assert_memory_equal(bytes, "PK\3\4", 4);
  assert_memory_equal(bytes + size - 22, "PK\5\6\0\0\0\0\6\0\6\0", 12);
  int found = 0;
  for (long at = 0; at + (long)sizeof numbers <= size; ++at) {
    found += memcmp(bytes + at, numbers, sizeof numbers) == 0;
  }
  assert_int_equal(found, 2);
}

static void test_errors(void **state) {
  (void)state;
  bppsa_npz_writer *writer = NULL;
  const int64_t huge[] = {INT64_MAX / 8, 4};
  char name[300];
  memset(name, 'x', sizeof name - 1);
  name[sizeof name - 1] = '\0';
  const bppsa_npz_array bad[] = {{name, NULL, BPPSA_F32, 2, wide, NULL}, {"b", NULL, BPPSA_F32, 2, huge, NULL}};
  (void)remove(PATH);
  assert_int_equal(bppsa_npz_writer_create(PATH, 1, bad, &writer), BPPSA_ERR_ARGUMENT);
  assert_message("an array's name of 299 bytes");
  assert_int_equal(bppsa_npz_writer_create(PATH, 1, bad + 1, &writer), BPPSA_ERR_MEMORY);
  assert_int_equal(bppsa_npz_writer_create(PATH, 0, bad, &writer), BPPSA_ERR_ARGUMENT);
  assert_int_equal(bppsa_npz_writer_create(PATH, 1, arrays, &writer), BPPSA_OK);
  assert_int_equal(bppsa_npz_writer_write(writer, 0, numbers, 88), BPPSA_OK);
  assert_int_equal(bppsa_npz_writer_write(writer, 0, numbers, 16), BPPSA_ERR_SHAPE);
  assert_int_equal(bppsa_npz_writer_write(writer, 1, numbers, 8), BPPSA_ERR_SHAPE);
  assert_int_equal(bppsa_npz_writer_commit(writer), BPPSA_ERR_SHAPE);
  assert_message("a.npy has 88 bytes, expected 96");
  assert_int_not_equal(access(PATH, F_OK), 0);
  bppsa_npz_writer_abort(NULL);
}

/* A message names the first twelve arrays, and counts the others. */
static void test_many(void **state) {
  (void)state;
  enum { MANY = 15 };
  static char names[MANY][2];
  bppsa_npz_array many[MANY];
  bppsa_npz_writer *writer = NULL;
  bppsa_buffer array = {0};
  for (int i = 0; i < MANY; ++i) {
    names[i][0] = (char)('a' + i);
    many[i] = (bppsa_npz_array){names[i], NULL, BPPSA_F64, 0, NULL, one};
  }
  assert_int_equal(bppsa_npz_writer_create(PATH, MANY, many, &writer), BPPSA_OK);
  assert_int_equal(bppsa_npz_writer_commit(writer), BPPSA_OK);
  assert_error(bppsa_npy_load(PATH ":x", &array), BPPSA_ERR_FORMAT,
               PATH ": member x.npy missing, expected one of a, b, c, d, e, f, g, h, i, j, k, l and 3 more");
}

static bppsa_status write_anything(void *argument) {
  (void)argument;
  return write_all(UINT32_MAX);
}

static void test_memory(void **state) {
  (void)state;
  assert_true(walk_allocations(write_anything, NULL) > 2);
}

/* Every call to the operating system fails, as on a full disk: no archive appears, and an existing one stays. */
static void test_io(void **state) {
  (void)state;
  for (int onwards = 0; onwards < 2; ++onwards) {
    bool succeeded = false;
    for (int64_t call = 1; !succeeded; ++call) {
      io_fault fault;
      char before[4];
      put_file(PATH, "old", 3);
      io_fault_set(&fault, call, onwards == 1, ENOSPC);
      const bppsa_status status = write_all(200);
      io_fault_clear();
      assert_int_equal(bppsa_io_open_count(), 0);
      succeeded = fault.failed == 0;
      const bool renamed = fault.kinds[BPPSA_IO_RENAME] > 0 && !(fault.failed > 0 && fault.kind == BPPSA_IO_RENAME);
      assert_int_equal(get_file(PATH, before, sizeof before), renamed ? 4 : 3); /* after that it may lack the directory's fsync */
      assert_true(status == BPPSA_OK || (fault.failed > 0 && status == BPPSA_ERR_IO));
      assert_true(call < 200);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_read), cmocka_unit_test(test_numpy),  cmocka_unit_test(test_layout),
                                     cmocka_unit_test(test_many), cmocka_unit_test(test_errors), cmocka_unit_test(test_memory),
                                     cmocka_unit_test(test_io)};
  (void)mkdir(DIR, 0777);
  for (int i = 0; i < 24; ++i) {
    floats[i] = (float)i / 4;
  }
  return cmocka_run_group_tests(tests, NULL, NULL);
}
