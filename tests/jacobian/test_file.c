/* Sparse matrices in files: written files are read again, also by SciPy; wrong files are refused. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/files/npz.h"
#include "jacobian/file.h"
#include "tests/core/helpers.h"
#include "tests/support/io_fault.h"
#include "tests/support/support.h"

#define DIR BPPSA_TEST_TMP_DIR "/"
#define NPZ DIR "matrix.npz"
#define MTX DIR "matrix.mtx"

/* 4 x 5 with an empty row. */
static const int64_t row_ptr[] = {0, 2, 2, 5, 6};
static const int32_t columns[] = {0, 3, 1, 2, 4, 4};
static const double wide[] = {1.5, -2, 0, 1e-300, 0.1, 12345678901234567.0};
static const float single[] = {1.5f, -2, 0, 1e-30f, 0.1f, 16777216};

static bppsa_csr matrix(void) {
  return (bppsa_csr){
      .rows = 4, .cols = 5, .nnz = 6, .row_ptr = (int64_t *)(uintptr_t)row_ptr, .col = (int32_t *)(uintptr_t)columns};
}

static void round_trip(const char *path, bppsa_dtype dtype, bppsa_dtype read_as) {
  const bppsa_csr csr = matrix();
  const bool is_wide = dtype == BPPSA_F64;
  assert_int_equal(bppsa_csr_save(path, &csr, dtype, is_wide ? (const void *)wide : single), BPPSA_OK);
  bppsa_csr_matrix read = {0};
  assert_int_equal(bppsa_csr_load(path, &read), BPPSA_OK);
  assert_true(bppsa_csr_same(&csr, &read.csr));
  assert_int_equal(read.dtype, read_as);
  for (int64_t i = 0; i < 6; ++i) {
    const double value = read_as == BPPSA_F32 ? (double)((const float *)read.values)[i] : ((const double *)read.values)[i];
    assert_true((is_wide ? wide[i] : (double)single[i]) == value || (!is_wide && (float)value == single[i]));
  }
  bppsa_csr_matrix_free(&read);
}

static void test_round_trip(void **state) {
  (void)state;
  round_trip(NPZ, BPPSA_F32, BPPSA_F32);
  round_trip(NPZ, BPPSA_F64, BPPSA_F64);
  round_trip(MTX, BPPSA_F32, BPPSA_F64);
  round_trip(MTX, BPPSA_F64, BPPSA_F64);
  const bppsa_csr empty = {.rows = 3, .cols = 0, .row_ptr = (int64_t[]){0, 0, 0, 0}, .col = (int32_t[]){0}};
  for (int i = 0; i < 2; ++i) {
    bppsa_csr_matrix read = {0};
    assert_int_equal(bppsa_csr_save(i == 0 ? NPZ : MTX, &empty, BPPSA_F64, wide), BPPSA_OK);
    assert_int_equal(bppsa_csr_load(i == 0 ? NPZ : MTX, &read), BPPSA_OK);
    assert_true(bppsa_csr_same(&empty, &read.csr));
    bppsa_csr_matrix_free(&read);
  }
  bppsa_csr_matrix read;
  assert_int_equal(bppsa_csr_load("matrix.csv", &read), BPPSA_ERR_IO);
  assert_int_equal(bppsa_csr_save("matrix.csv", &empty, BPPSA_F64, wide), BPPSA_ERR_ARGUMENT);
  for (int i = 0; i < 2; ++i) { /* a file of another name is known by its content, and by that alone */
    static const char *const names[2][2] = {{DIR "matrix.zip", DIR "matrix.mtx"}, {DIR "matrix.txt", DIR "matrix.npz"}};
    assert_int_equal(bppsa_csr_save(i == 0 ? NPZ : MTX, &empty, BPPSA_F64, wide), BPPSA_OK);
    for (int k = 0; k < 2; ++k) {
      assert_int_equal(rename(k == 0 ? (i == 0 ? NPZ : MTX) : names[i][0], names[i][k]), 0);
      assert_int_equal(bppsa_csr_load(names[i][k], &read), BPPSA_OK);
      assert_true(bppsa_csr_same(&empty, &read.csr));
      bppsa_csr_matrix_free(&read);
    }
  }
}

/* SciPy reads both, and writes what is read here: compressed and with int64 indices. */
static void test_scipy(void **state) {
  (void)state;
  if (system("/usr/bin/python3 -c 'import scipy.sparse' >/dev/null 2>&1") != 0) {
    print_message("no SciPy (package python3-scipy)\n");
    skip();
  }
  const bppsa_csr csr = matrix();
  assert_int_equal(bppsa_csr_save(NPZ, &csr, BPPSA_F64, wide), BPPSA_OK);
  assert_int_equal(bppsa_csr_save(MTX, &csr, BPPSA_F64, wide), BPPSA_OK);
  static const char script[] =
      "/usr/bin/python3 -c \"import numpy as n, scipy.sparse as s, scipy.io as io\n"
      "a = s.load_npz('" NPZ "'); b = s.csr_matrix(io.mmread('" MTX "'))\n"
      "assert a.has_sorted_indices and a.shape == (4, 5) and a.nnz == 6 and a.dtype == n.float64\n"
      "assert n.array_equal(a.toarray(), b.toarray()) and a[3, 4] == 12345678901234567.0\n"
      "s.save_npz('" DIR "packed.npz', a); a.indices = a.indices.astype(n.int64); a.indptr = a.indptr.astype(n.int64)\n"
      "s.save_npz('" DIR "plain.npz', a, compressed=False); io.mmwrite('" DIR "scipy.mtx', a, precision=17)\n"
      "n.savez('" DIR "real.npz', format='csr', shape=a.shape, data=a.data, indptr=a.indptr, indices=a.indices * 1.0)\n\"";
  assert_int_equal(system(script), 0);
  static const char random[] = /* symmetric, skew-symmetric and general, reals, integers and patterns */
      "/usr/bin/python3 -c \"import numpy as n, scipy.sparse as s, scipy.io as io\n"
      "r = n.random.default_rng(1)\n"
      "for i in range(24):\n"
      "  k = i % 6; a = s.random(9, 9, r.random(), random_state=i)\n"
      "  a = [a + a.T, a - a.T, a + a.T, a.tocsr(), (a * 9).astype(n.int32), a][k]\n"
      "  io.mmwrite('" DIR "r%d.mtx' % i, a, field='pattern' if k in (2, 5) else None, precision=17)\n"
      "  s.save_npz('" DIR "r%d.npz' % i, s.csr_matrix(io.mmread('" DIR "r%d.mtx' % i).astype(float)))\n\"";
  assert_int_equal(system(random), 0);
  for (int i = 0; i < 24; ++i) {
    char name[2][200];
    bppsa_csr_matrix read[2] = {0};
    for (int k = 0; k < 2; ++k) {
      snprintf(name[k], sizeof name[k], DIR "r%d.%s", i, k == 0 ? "mtx" : "npz");
      assert_int_equal(bppsa_csr_load(name[k], &read[k]), BPPSA_OK);
      assert_int_equal(remove(name[k]), 0);
    }
    assert_true(bppsa_csr_same(&read[0].csr, &read[1].csr));
    assert_memory_equal(read[0].values, read[1].values, (size_t)read[0].csr.nnz * sizeof(double));
    bppsa_csr_matrix_free(&read[0]);
    bppsa_csr_matrix_free(&read[1]);
  }
  static const char *const paths[] = {DIR "packed.npz", DIR "plain.npz", DIR "scipy.mtx"};
  for (size_t i = 0; i < 3; ++i) {
    bppsa_csr_matrix read = {0};
    assert_int_equal(bppsa_csr_load(paths[i], &read), BPPSA_OK);
    assert_true(bppsa_csr_same(&csr, &read.csr));
    assert_memory_equal(read.values, wide, sizeof wide);
    bppsa_csr_matrix_free(&read);
    assert_int_equal(remove(paths[i]), 0);
  }
  bppsa_csr_matrix none = {0};
  assert_int_equal(bppsa_csr_load(DIR "real.npz", &none), BPPSA_ERR_UNSUPPORTED);
  assert_message("real.npz: indices.npy: 1 dimensions of f64, expected one of i32 or i64");
  assert_int_equal(remove(DIR "real.npz"), 0);
}

static void refused(const char *path, const char *text, const char *message) {
  bppsa_csr_matrix read = {0};
  put_file(path, text, strlen(text));
  const bppsa_status status = bppsa_csr_load(path, &read);
  if (status != BPPSA_ERR_FORMAT && status != BPPSA_ERR_UNSUPPORTED) {
    fail_msg("status %d for \"%s\"", (int)status, text);
  }
  assert_message(message);
}

#define HEAD "%%MatrixMarket matrix coordinate real general\n"

static void test_bad_mtx(void **state) {
  (void)state;
  refused(MTX, "", MTX ": line 1: the file ends there, expected %%MatrixMarket");
  refused(MTX, "1 1 1\n1 1 1\n", "line 1: '1 1 1', expected %%MatrixMarket");
  refused(MTX, "\xff\xfe%", "byte 0: text in UTF-16, expected UTF-8");
  refused(MTX, "\xef\xbb\xbf" HEAD "1 1 1\n2 1 1\n",
          "line 3: entry (2, 1), expected"); /* behind a byte order mark the words are found */
  refused(MTX, "%%MatrixMarket matrix coordinate complex general\n1 1 0\n", "line 1: 'complex general'");
  refused(MTX, "%%MatrixMarket matrix coordinate real hermitian\n1 1 0\n", "line 1: 'real hermitian'");
  refused(MTX, "%%MatrixMarket matrix coordinate unsigned-integers general\n1 1 0\n", "line 1: 'unsigned-integers general'");
  refused(MTX, "%%MatrixMarket matrix array real general\n1 1\n",
          "line 1: '%%MatrixMarket matrix array real general', expected %%MatrixMarket matrix coordinate real|");
  refused(MTX, "%%MatrixMarket matrix coordinate real\n1 1 0\n",
          "line 1: '%%MatrixMarket matrix coordinate real', expected %%MatrixMarket");
  refused(MTX, "%%MatrixMarket matrix coordinate real symmetric\n2 3 0\n", "line 2: 2 rows, 3 columns and 0 entries of a symm");
  refused(MTX, "%%MatrixMarket matrix coordinate real symmetric\n2 2 2\n2 1 1\n1 2 1\n",
          "line 4: entry (1, 2) occurs twice, itself or by symmetry, expected once, as on line 3");
  refused(MTX, "%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n2 2 0\n",
          "line 3: entry (2, 2) of a skew-symmetric matrix, expected none on its diagonal");
  refused(MTX, HEAD, "line 2: the file ends there, expected numbers of rows, columns and entries");
  refused(MTX, HEAD "% note\n2 2\n", "line 3: '2 2', expected numbers of rows");
  refused(MTX, HEAD "2 2 1 1\n", "line 2: '2 2 1 1', expected numbers of rows");
  refused(MTX, HEAD "2 2 99999999\n1 1 1\n", "99999999 entries, more than the file");
  refused(MTX, HEAD "9999999999 2 0\n", "9999999999 rows");
  refused(MTX, HEAD "2 9999999999 0\n", "line 2: sparse matrix: 9999999999 columns, expected at most 2147483647");
  refused(MTX, HEAD "2 2 99999999999999999999999\n", "expected numbers of rows");
  refused(MTX, HEAD "2 2 2\n1 1 1\n", "line 4: the file ends after 1 entries, expected 2");
  refused(MTX, HEAD "2 2 1\n1 1 1\n1 2 1\n", "line 4: '1 2 1', expected the end of the file");
  refused(MTX, HEAD "2 2 1\n1 3 1\n", "line 3: entry (1, 3), expected 1 .. 2 and 1 .. 2");
  refused(MTX, HEAD "2 2 1\n0 1 1\n", "line 3: entry (0, 1)");
  refused(MTX, HEAD "2 2 1\n-1 1 1\n", "line 3: '-1 1 1', expected a row, a column and a value");
  refused(MTX, HEAD "2 2 1\n1 1\n", "line 3: '1 1', expected a row, a column and a value");
  refused(MTX, HEAD "2 2 1\r\n1 1 x\r\n", "line 3: '1 1 x', expected a row, a column and a value");
  static const char *const wrong[] = {"0x10", "-0X1p2", "1e400", "-1e400", "0x"};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) { /* hexadecimal, beyond f64 */
    char text[100];
    snprintf(text, sizeof text, "%s2 2 1\n1 1 %s\n", HEAD, wrong[i]);
    refused(MTX, text, "', expected a row, a column and a value");
  }
  refused(MTX, HEAD "2 2 1\n1 1 1 1\n", "line 3: '1 1 1 1', expected a row, a column and a value");
  refused(MTX, HEAD "2 2 2\n1 1 1\n%a\n1 1 2\n", "line 5: entry (1, 1) occurs twice, expected once, as on line 3");
  bppsa_csr_matrix read = {0};
  put_file(MTX, HEAD "%a\n\n 2 2 3 \n2 2 nan\n\n1 2 -inf\n%b\n1 1 1e3",
           sizeof(HEAD "%a\n\n 2 2 3 \n2 2 nan\n\n1 2 -inf\n%b\n1 1 1e3") - 1);
  assert_int_equal(bppsa_csr_load(MTX, &read), BPPSA_OK); /* any order, comments, blanks */
  assert_int_equal(read.csr.col[1], 1);
  assert_true(((const double *)read.values)[0] == 1000 && ((const double *)read.values)[2] != ((const double *)read.values)[2]);
  bppsa_csr_matrix_free(&read);
  static const char pattern[] = "%%MatrixMarket matrix coordinate pattern general\n2 2 1\n2 1\n";
  put_file(MTX, pattern, sizeof pattern - 1);
  assert_int_equal(bppsa_csr_load(MTX, &read), BPPSA_OK);
  assert_true(((const double *)read.values)[0] == 1);
  bppsa_csr_matrix_free(&read);
}

/* What the head says of values holds for every entry. */
static void test_values_of_mtx(void **state) {
  (void)state;
  static const struct {
    const char *field, *wrong[10], *right, *expected;
    double value;
  } fields[] = {{"integer",
                 {"1.5", "1e3", "2.0", "1e400", "inf", "nan", "0x10", "9007199254740993", "99999999999999999999999", "- 3"},
                 "-9007199254740992",
                 "a row, a column and a whole number from -2^53 to 2^53, as the head says integer",
                 -9007199254740992.},
                {"Unsigned-Integer",
                 {"-3", "1.5", "9007199254740993", "+", "", "1 2"},
                 "9007199254740992",
                 "a row, a column and a whole number from 0 to 2^53, as the head says unsigned-integer",
                 9007199254740992.},
                {"pattern", {"1", "1.5", "x"}, "", "a row and a column alone, as the head says pattern", 1},
                {"real", {"", "1 2", "1d3", "1e400"}, "+3", "a row, a column and a value that float64 has room for", 3}};
  for (size_t f = 0; f < sizeof fields / sizeof *fields; ++f) {
    char text[200], message[300];
    bppsa_csr_matrix read = {0};
    for (int i = 0; i < 10 && fields[f].wrong[i] != NULL; ++i) {
      snprintf(text, sizeof text, "%%%%MatrixMarket matrix coordinate %s general\n2 2 1\n1 1 %s\n", fields[f].field,
               fields[f].wrong[i]);
      snprintf(message, sizeof message, MTX ": line 3: '1 1 %s', expected %s", fields[f].wrong[i], fields[f].expected);
      refused(MTX, text, message);
    }
    snprintf(text, sizeof text, "%%%%MatrixMarket matrix coordinate %s general\n2 2 1\n1 1 %s\n", fields[f].field,
             fields[f].right);
    put_file(MTX, text, strlen(text));
    assert_int_equal(bppsa_csr_load(MTX, &read), BPPSA_OK);
    assert_true(((const double *)read.values)[0] == fields[f].value);
    bppsa_csr_matrix_free(&read);
  }
}

/* What SciPy writes of a symmetric matrix by itself, of a skew-symmetric one and of a pattern, and words in capitals: the whole
 * matrix is read, in the order of its rows. */
static void test_symmetric_mtx(void **state) {
  (void)state;
  static const struct {
    const char *text;
    double whole[3][3];
  } cases[] = {
      {"%%MatrixMarket matrix coordinate real symmetric\n%\n3 3 4\n1 1 2\n2 1 -3\n3 2 5\n3 3 7\n",
       {{2, -3, 0}, {-3, 0, 5}, {0, 5, 7}}},
      {"%%MatrixMarket matrix coordinate integer skew-symmetric\n3 3 2\n3 1 4\n2 1 -6\n", {{0, 6, -4}, {-6, 0, 0}, {4, 0, 0}}},
      {"%%MatrixMarket matrix coordinate pattern symmetric\r\n3 3 2\r\n3 1\r\n2 2\r\n", {{0, 0, 1}, {0, 1, 0}, {1, 0, 0}}},
      {"%%MATRIXMARKET  MATRIX\tCOORDINATE REAL GENERAL\n3 3 1\n1 3 1.5\n", {{0, 0, 1.5}, {0, 0, 0}, {0, 0, 0}}}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    bppsa_csr_matrix read = {0};
    int64_t entries = 0;
    put_file(MTX, cases[i].text, strlen(cases[i].text));
    assert_int_equal(bppsa_csr_load(MTX, &read), BPPSA_OK);
    assert_true(read.csr.rows == 3 && read.csr.cols == 3);
    for (int64_t r = 0; r < 3; ++r) {
      for (int64_t c = 0; c < 3; ++c) {
        if (cases[i].whole[r][c] != 0) {
          assert_true(entries < read.csr.row_ptr[r + 1] && read.csr.col[entries] == c);
          assert_true(((const double *)read.values)[entries++] == cases[i].whole[r][c]);
        }
      }
    }
    assert_int_equal(read.csr.nnz, entries);
    bppsa_csr_matrix_free(&read);
  }
}

/* Every file that differs from a good one in one byte, or ends early, is either read as some matrix or refused with a message. */
static void test_bad_npz(void **state) {
  (void)state;
  static char good[8192], bad[8192];
  const bppsa_csr csr = matrix();
  assert_int_equal(bppsa_csr_save(NPZ, &csr, BPPSA_F32, single), BPPSA_OK);
  const long size = get_file(NPZ, good, sizeof good);
  assert_in_range(size, 500, 4000);
  int64_t refusals = 0;
  for (long at = 0; at < size; ++at) {
    for (int change = 0; change < 3; ++change) {
      static const unsigned char flips[] = {0x01, 0x80, 0xFF};
      memcpy(bad, good, (size_t)size);
      bad[at] = (char)(bad[at] ^ flips[change]);
      put_file(NPZ, bad, (size_t)size);
      bppsa_csr_matrix read = {0};
      const bppsa_status status = bppsa_csr_load(NPZ, &read);
      assert_true(status == BPPSA_OK || status == BPPSA_ERR_FORMAT || status == BPPSA_ERR_UNSUPPORTED);
      if (status == BPPSA_OK) {
        assert_int_equal(bppsa_csr_check(&read.csr), BPPSA_OK);
        bppsa_csr_matrix_free(&read);
      } else {
        ++refusals;
        assert_message(NPZ);
      }
    }
  }
  assert_true(refusals > 2 * size); /* some bytes have no meaning: dates, versions */
  for (long length = 0; length < size; length += length < 100 ? 1 : 37) {
    put_file(NPZ, good, (size_t)length);
    bppsa_csr_matrix read = {0};
    assert_int_equal(bppsa_csr_load(NPZ, &read), BPPSA_ERR_FORMAT);
  }
  assert_message("the archive ends without its directory");
  refused(NPZ, "<!DOCTYPE html>\n", NPZ ": byte 0: '<!DOCTYP', expected PK, with which an NPZ file begins");
  static const char name[] = "indptr.npy", other[] = "format.npy"; /* of equal length: the directory names a member twice */
  memcpy(bad, good, (size_t)size);
  for (long at = 0; at + (long)sizeof name <= size; ++at) {
    if (memcmp(bad + at, name, sizeof name - 1) == 0) {
      memcpy(bad + at, other, sizeof name - 1);
    }
  }
  put_file(NPZ, bad, (size_t)size);
  bppsa_csr_matrix twice = {0};
  assert_int_equal(bppsa_csr_load(NPZ, &twice), BPPSA_ERR_FORMAT);
  assert_message("the member format.npy occurs twice, expected once");
}

/* Writes an archive of the members of a matrix of zeros, which need not fit each other. */
static void put_members(const int64_t shape[2], int64_t offsets, int64_t entries) {
  static const int32_t zeros[2001] = {0};
  const int64_t two = 2;
  const bppsa_npz_array arrays[] = {{"format", "csr", BPPSA_U8, 0, NULL, NULL},
                                    {"shape", NULL, BPPSA_I64, 1, &two, shape},
                                    {"indptr", NULL, BPPSA_I32, 1, &offsets, zeros},
                                    {"indices", NULL, BPPSA_I32, 1, &entries, zeros},
                                    {"data", NULL, BPPSA_F32, 1, &entries, zeros}};
  bppsa_npz_writer *writer = NULL;
  assert_int_equal(bppsa_npz_writer_create(NPZ, 5, arrays, &writer), BPPSA_OK);
  assert_int_equal(bppsa_npz_writer_commit(writer), BPPSA_OK);
}

/* The place of a member's entry in the directory at the end of an archive. */
static char *find_entry(char *bytes, long size, const char *name) {
  long at = size - (long)strlen(name);
  while (at > 46 && (memcmp(bytes + at, name, strlen(name)) != 0 || memcmp(bytes + at - 46, "PK\x01\x02", 4) != 0)) {
    --at;
  }
  assert_true(at > 46);
  return bytes + at - 46;
}

static void test_forged_npz(void **state) {
  (void)state;
  static char bytes[32768];
  bppsa_csr_matrix read = {0};
  put_members((int64_t[]){INT64_MAX, 2}, 1, 0); /* one more would overflow */
  assert_int_equal(bppsa_csr_load(NPZ, &read), BPPSA_ERR_FORMAT);
  assert_message("1 offsets, 0 indices and 0 values, expected those of a csr matrix of its shape");

  put_members((int64_t[]){2000, 1}, 2001, 0);
  long size = get_file(NPZ, bytes, sizeof bytes);
  find_entry(bytes, size, "data.npy")[8] = 1;
  put_file(NPZ, bytes, (size_t)size);
  assert_int_equal(bppsa_csr_load(NPZ, &read), BPPSA_ERR_UNSUPPORTED);
  assert_message("data.npy is encrypted, expected a plain member");

  put_members((int64_t[]){2000, 1}, 2001, 0); /* the members of the entries lie within that of the offsets */
  size = get_file(NPZ, bytes, sizeof bytes);
  for (int i = 0; i < 2; ++i) {
    char *entry = find_entry(bytes, size, i == 0 ? "indices.npy" : "data.npy");
    memcpy(entry + 16, find_entry(bytes, size, "indptr.npy") + 16, 12); /* checksum and sizes */
    memcpy(entry + 42, find_entry(bytes, size, "indptr.npy") + 42, 4);  /* place */
  }
  put_file(NPZ, bytes, (size_t)size);
  assert_int_equal(bppsa_csr_load(NPZ, &read), BPPSA_ERR_FORMAT);
  assert_message("indices.npy shares bytes with another member, expected members one after the other");
}

/* A file of `size` bytes, all 0 behind `text`, that takes no room on the disk. */
static void put_sparse(const char *path, const char *text, int64_t size) {
  put_file(path, text, strlen(text));
  assert_int_equal(truncate(path, size), 0);
}

/* What would take more than 1 GiB is refused before anything is allocated for it. */
static void test_limits(void **state) {
  (void)state;
  bppsa_csr_matrix read = {0};
  put_sparse(MTX, HEAD "1 1 0\n", BPPSA_MTX_LIMIT + 1);
  assert_int_equal(bppsa_csr_load(MTX, &read), BPPSA_ERR_FORMAT);
  assert_message("67108865 bytes, expected at most 67108864");
  put_sparse(MTX, HEAD "16777217 1 0\n%", (1 << 20) + 8); /* room for as many rows: 64 for each byte */
  assert_int_equal(bppsa_csr_load(MTX, &read), BPPSA_ERR_FORMAT);
  assert_message("line 2: 16777217 rows, expected at most 16777216");

  enum { ROWS = 30000, HUGE_SIZE = (96 << 20) + 1 };
  static int64_t offsets[ROWS + 1];
  static char bytes[ROWS * 8];
  const bppsa_csr csr = {.rows = ROWS, .cols = 1, .row_ptr = offsets, .col = (int32_t[]){0}};
  assert_int_equal(bppsa_csr_save(NPZ, &csr, BPPSA_F32, single), BPPSA_OK);
  const long size = get_file(NPZ, bytes, sizeof bytes);
  assert_in_range(size, 100000, sizeof bytes - 1);
  char *entry = find_entry(bytes, size, "indptr.npy");
  entry[10] = 8; /* deflated */
  for (int i = 0; i < 4; ++i) {
    entry[24 + i] = (char)(HUGE_SIZE >> (8 * i) & 0xFF);
  }
  put_file(NPZ, bytes, (size_t)size);
  assert_int_equal(bppsa_csr_load(NPZ, &read), BPPSA_ERR_FORMAT);
  assert_message("indptr.npy has 100663297 bytes, expected at most 100663296 compressed");
}

static bppsa_status write_and_read(void *argument) {
  const char *path = argument;
  const bppsa_csr csr = matrix();
  bppsa_csr_matrix read = {0};
  BPPSA_TRY(bppsa_csr_save(path, &csr, BPPSA_F64, wide));
  const bppsa_status status = bppsa_csr_load(path, &read);
  bppsa_csr_matrix_free(&read);
  return status;
}

static void test_memory(void **state) {
  (void)state;
  assert_true(walk_allocations(write_and_read, (void *)(uintptr_t)NPZ) > 10);
  assert_true(walk_allocations(write_and_read, (void *)(uintptr_t)MTX) > 5);
}

/* Every call to the operating system fails once, and from then on. */
static void test_io(void **state) {
  (void)state;
  static const char *const paths[] = {NPZ, MTX};
  for (size_t i = 0; i < 4; ++i) {
    const char *path = paths[i / 2];
    const bool onwards = i % 2 == 1;
    bool succeeded = false;
    for (int64_t call = 1; !succeeded; ++call) {
      io_fault fault;
      io_fault_set(&fault, call, onwards, EIO);
      const bppsa_status status = write_and_read((void *)(uintptr_t)path);
      io_fault_clear();
      assert_int_equal(bppsa_io_open_count(), 0);
      succeeded = fault.failed == 0;
      assert_true(status == BPPSA_OK || (fault.failed > 0 && status == BPPSA_ERR_IO));
      assert_true(call < 200);
    }
  }
  assert_int_equal(remove(NPZ), 0);
  assert_int_equal(remove(MTX), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip),    cmocka_unit_test(test_scipy),
                                     cmocka_unit_test(test_bad_mtx),       cmocka_unit_test(test_values_of_mtx),
                                     cmocka_unit_test(test_symmetric_mtx), cmocka_unit_test(test_bad_npz),
                                     cmocka_unit_test(test_limits),        cmocka_unit_test(test_forged_npz),
                                     cmocka_unit_test(test_memory),        cmocka_unit_test(test_io)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
