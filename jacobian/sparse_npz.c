/* SciPy's sparse matrices: NPZ files (core/files/npz.h) with the members indices, indptr, format, shape and data. */
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/files/archive.h"
#include "core/files/npy.h"
#include "core/files/npz.h"
#include "jacobian/file.h"

#define MEMBER_LIMIT ((int64_t)UINT32_MAX)

enum { MEMBERS = 5 };

static const char *const names[MEMBERS] = {"indices.npy", "indptr.npy", "format.npy", "shape.npy", "data.npy"};
enum { INDICES = 0, INDPTR, FORMAT, SHAPE, DATA };

/* ---- writing ---- */

/* Refuses to write what the reader below could not read. */
static bppsa_status check_size(const char *path, const bppsa_npz_array *arrays) {
  int64_t sum = 0, count;
  for (int i = 0; i < MEMBERS; ++i) {
    size_t bytes = 0;
    BPPSA_TRY(bppsa_shape_bytes(arrays[i].dtype, arrays[i].ndim, arrays[i].shape, &count, &bytes));
    sum += bytes < (size_t)MEMBER_LIMIT ? (int64_t)bytes + BPPSA_NPY_HEADER : MEMBER_LIMIT;
  }
  return sum <= MEMBER_LIMIT - 4096
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: %lld bytes of arrays, expected less than 4 GiB in an NPZ file of a matrix",
                          path, (long long)sum);
}

bppsa_status bppsa_csr_save_npz(const char *path, const bppsa_csr *csr, bppsa_dtype dtype, const void *values) {
  BPPSA_REQUIRE(path != NULL && csr != NULL);
  BPPSA_REQUIRE(values != NULL || csr->nnz == 0);
  const bool narrow = csr->nnz <= INT32_MAX; /* SciPy then uses one type for indices and indptr */
  const int64_t shape[2] = {csr->rows, csr->cols}, two = 2, rows = csr->rows + 1;
  int32_t *offsets = narrow ? bppsa_calloc(rows, sizeof *offsets) : NULL;
  if (narrow && offsets == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t r = 0; narrow && r < rows; ++r) {
    offsets[r] = (int32_t)csr->row_ptr[r];
  }
  const bppsa_npz_array arrays[MEMBERS] = {
      [INDICES] = {"indices", NULL, BPPSA_I32, 1, &csr->nnz, csr->col},
      [INDPTR] = {"indptr", NULL, narrow ? BPPSA_I32 : BPPSA_I64, 1, &rows, narrow ? (const void *)offsets : csr->row_ptr},
      [FORMAT] = {"format", "csr", BPPSA_U8, 0, NULL, NULL},
      [SHAPE] = {"shape", NULL, BPPSA_I64, 1, &two, shape},
      [DATA] = {"data", NULL, dtype, 1, &csr->nnz, values}};
  bppsa_npz_writer *file = NULL;
  bppsa_status status = check_size(path, arrays);
  if (status == BPPSA_OK) {
    status = bppsa_npz_writer_create(path, MEMBERS, arrays, &file);
  }
  if (status == BPPSA_OK) {
    status = bppsa_npz_writer_commit(file);
  }
  bppsa_free(offsets);
  return status;
}

/* ---- reading ---- */

static const char expected[] = "a sparse matrix as scipy.sparse.save_npz writes it";

/* Accepts b"csr" or "csr" in any text dtype. */
static bppsa_status check_format(bppsa_archive *a) {
  unsigned char *bytes = NULL;
  int64_t size = 0;
  BPPSA_TRY(bppsa_archive_read(a, names[FORMAT], expected, &bytes, &size));
  const bool good = (size > 13 && memcmp(bytes + size - 3, "csr", 3) == 0) ||
                    (size > 22 && memcmp(bytes + size - 12, "c\0\0\0s\0\0\0r\0\0\0", 12) == 0);
  bppsa_free(bytes);
  return good ? BPPSA_OK
              : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: format.npy is another format, expected csr", bppsa_archive_path(a));
}

/* Reads a one-dimensional member: int64 or int32 as int64 (owned), or the reals of DATA in their own type. */
static bppsa_status read_array(bppsa_archive *a, int which, bppsa_dtype *dtype, int64_t *count, void **array) {
  char where[512];
  unsigned char *bytes = NULL;
  int64_t size = 0;
  bppsa_view view;
  snprintf(where, sizeof where, "%s: %s", bppsa_archive_path(a), names[which]);
  BPPSA_TRY(bppsa_archive_read(a, names[which], expected, &bytes, &size));
  bppsa_status status = bppsa_npy_parse(where, bytes, size, &view);
  const bool real = which == DATA;
  if (status == BPPSA_OK && (view.ndim != 1 || (real ? view.dtype != BPPSA_F32 && view.dtype != BPPSA_F64
                                                     : view.dtype != BPPSA_I32 && view.dtype != BPPSA_I64))) {
    status = bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: %d dimensions of %s, expected one of %s", where, view.ndim,
                        bppsa_dtype_name(view.dtype), real ? "f32 or f64" : "i32 or i64");
  }
  char *made = NULL;
  if (status == BPPSA_OK) {
    *count = view.shape[0];
    *dtype = view.dtype;
    made = bppsa_calloc(*count, real ? bppsa_dtype_size(view.dtype) : sizeof(int64_t));
    status = made == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  }
  for (int64_t i = 0; made != NULL && view.dtype == BPPSA_I32 && i < *count; ++i) {
    int32_t narrow;
    memcpy(&narrow, (const char *)view.data + 4 * i, 4);
    ((int64_t *)(void *)made)[i] = narrow;
  }
  if (made != NULL && view.dtype != BPPSA_I32) {
    memcpy(made, view.data, bppsa_view_bytes(&view));
  }
  bppsa_free(bytes);
  *array = made;
  return status;
}

/* Assembles the matrix from the arrays. Counts are checked here, entries by bppsa_csr_check. */
static bppsa_status assemble(const bppsa_archive *a, const int64_t counts[MEMBERS], void *const arrays[MEMBERS],
                             bppsa_csr_matrix *made) {
  const int64_t *indices = arrays[INDICES], *indptr = arrays[INDPTR], *shape = arrays[SHAPE];
  if (counts[SHAPE] != 2 || shape[0] < 0 || counts[INDPTR] - 1 != shape[0] || counts[INDICES] != counts[DATA]) {
    return bppsa_fail(BPPSA_ERR_FORMAT,
                      "%s: %lld offsets, %lld indices and %lld values, expected those of a csr matrix of its shape",
                      bppsa_archive_path(a), (long long)counts[INDPTR], (long long)counts[INDICES], (long long)counts[DATA]);
  }
  bppsa_status status = bppsa_csr_create(shape[0], shape[1], counts[INDICES], &made->csr);
  for (int64_t i = 0; status == BPPSA_OK && i < counts[INDICES]; ++i) {
    if (indices[i] < 0 || indices[i] > INT32_MAX) {
      status = bppsa_fail(BPPSA_ERR_FORMAT, "column %lld, expected 0 .. 2147483647", (long long)indices[i]);
    } else {
      made->csr.col[i] = (int32_t)indices[i];
    }
  }
  if (status == BPPSA_OK) {
    memcpy(made->csr.row_ptr, indptr, (size_t)counts[INDPTR] * sizeof *indptr);
    status = bppsa_csr_check(&made->csr);
  }
  return status == BPPSA_OK || status == BPPSA_ERR_MEMORY ? status
                                                          : bppsa_fail_prefix(BPPSA_ERR_FORMAT, "%s", bppsa_archive_path(a));
}

static bppsa_status load(bppsa_archive *a, bppsa_csr_matrix *made) {
  void *arrays[MEMBERS] = {NULL};
  int64_t counts[MEMBERS] = {0};
  bppsa_dtype dtype;
  bppsa_status status = check_format(a);
  static const int order[] = {SHAPE, INDPTR, INDICES, DATA};
  for (int i = 0; status == BPPSA_OK && i < 4; ++i) {
    status = read_array(a, order[i], order[i] == DATA ? &made->dtype : &dtype, &counts[order[i]], &arrays[order[i]]);
  }
  if (status == BPPSA_OK) {
    status = assemble(a, counts, arrays, made);
  }
  if (status == BPPSA_OK) {
    made->values = arrays[DATA];
    arrays[DATA] = NULL;
  }
  for (int i = 0; i < MEMBERS; ++i) {
    bppsa_free(arrays[i]);
  }
  return status;
}

bppsa_status bppsa_csr_load_npz(const char *path, bppsa_csr_matrix *matrix) {
  BPPSA_REQUIRE(path != NULL && matrix != NULL);
  bppsa_archive *file = NULL;
  bppsa_csr_matrix made = {0};
  BPPSA_TRY(bppsa_archive_open(path, &file));
  const bppsa_status status = load(file, &made);
  bppsa_archive_close(file);
  if (status != BPPSA_OK) {
    bppsa_csr_matrix_free(&made);
    return status;
  }
  *matrix = made;
  return BPPSA_OK;
}
