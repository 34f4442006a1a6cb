/* NPZ files: ZIP archives of NPY arrays. SciPy's sparse matrices are the members indices, indptr, format, shape and data.
 *
 * core/npz.h writes them. The reader knows the part of ZIP that NumPy and SciPy write: stored and deflated members (APPNOTE 6.3.3,
 * §4.3 and 4.4), found through the central directory. It does not know Zip64 records, which members of 4 GiB and more need. */
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "core/alloc.h"
#include "core/file.h"
#include "core/npy.h"
#include "core/npz.h"
#include "jacobian/file.h"

#define FILE_LIMIT ((int64_t)1 << 36)
#define MEMBER_LIMIT ((int64_t)UINT32_MAX)

enum { LOCAL = 30, CENTRAL = 46, END = 22, MEMBERS = 5, STORED = 0, DEFLATED = 8 };

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

static uint32_t get16(const unsigned char *from) {
  return (uint32_t)from[0] | (uint32_t)from[1] << 8;
}

static uint32_t get32(const unsigned char *from) {
  return get16(from) | get16(from + 2) << 16;
}

static uint32_t checksum(uint32_t crc, const void *data, size_t bytes) {
  return (uint32_t)crc32_z(crc, data, bytes);
}

typedef struct {
  const char *path;
  const unsigned char *data;
  int64_t size;
  int64_t taken; /* bytes of the members that have been read */
} archive;

static bppsa_status broken(const archive *a, int64_t byte, const char *what) {
  return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: %s", a->path, (long long)byte, what);
}

/* Offset of the end record, which a comment of up to 65535 bytes may follow; -1: the file has none. */
static int64_t find_end(const archive *a) {
  for (int64_t at = a->size - END; at >= 0 && at >= a->size - END - UINT16_MAX; --at) {
    if (memcmp(a->data + at, "PK\x05\x06", 4) == 0 && at + END + (int64_t)get16(a->data + at + 20) == a->size) {
      return at;
    }
  }
  return -1;
}

/* Offset of the central header of the member `name`; 0, where no header can be, if there is none. */
static bppsa_status find_member(const archive *a, const char *name, int64_t *header) {
  const int64_t end = find_end(a);
  if (end < 0) {
    return broken(a, a->size, "the archive ends without its directory, expected an NPZ file");
  }
  int64_t at = get32(a->data + end + 16);
  *header = -1;
  for (uint32_t i = 0; i < get16(a->data + end + 10); ++i) {
    if (at > end - CENTRAL || memcmp(a->data + at, "PK\x01\x02", 4) != 0) {
      return broken(a, at, "no entry of the archive's directory, expected one");
    }
    const int64_t length = get16(a->data + at + 28);
    if (at + CENTRAL + length > end) {
      return broken(a, at, "a name that leaves the archive's directory");
    }
    if ((size_t)length == strlen(name) && memcmp(a->data + at + CENTRAL, name, (size_t)length) == 0) {
      if (*header >= 0) {
        return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: the member %s occurs twice, expected once", a->path, (long long)at,
                          name);
      }
      *header = at;
    }
    at += CENTRAL + length + (int64_t)get16(a->data + at + 30) + (int64_t)get16(a->data + at + 32);
  }
  return *header >= 0
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_FORMAT, "%s: member %s missing, expected a sparse matrix as scipy.sparse.save_npz writes it",
                          a->path, name);
}

static bppsa_status inflate_member(const archive *a, int64_t from, int64_t packed, unsigned char *to, int64_t size) {
  z_stream stream = {
      .next_in = (unsigned char *)(uintptr_t)(a->data + from), .avail_in = (uInt)packed, .next_out = to, .avail_out = (uInt)size};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "%s: out of memory for decompression", a->path);
  }
  const int result = inflate(&stream, Z_FINISH);
  const bool good = result == Z_STREAM_END && stream.avail_out == 0;
  (void)inflateEnd(&stream);
  return good ? BPPSA_OK : broken(a, from, "compressed data that does not give what its header says");
}

/* The bytes of a member, checked against its checksum (owned, bppsa_free). */
static bppsa_status read_member(archive *a, const char *name, unsigned char **bytes, int64_t *size) {
  int64_t header = 0;
  BPPSA_TRY(find_member(a, name, &header));
  const unsigned char *central = a->data + header;
  const int64_t method = get16(central + 10), packed = get32(central + 20), local = get32(central + 42);
  *size = get32(central + 24);
  if ((get16(central + 8) & 1) != 0) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: byte %lld: %s is encrypted, expected a plain member", a->path,
                      (long long)header, name);
  }
  if (method != STORED && method != DEFLATED) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: byte %lld: %s with method %lld, expected stored or deflated", a->path,
                      (long long)header, name, (long long)method);
  }
  if (local > a->size - LOCAL || memcmp(a->data + local, "PK\x03\x04", 4) != 0) {
    return broken(a, local, "no member of the archive, expected one");
  }
  const int64_t from = local + LOCAL + (int64_t)get16(a->data + local + 26) + (int64_t)get16(a->data + local + 28);
  if (packed > a->size - from || (method == STORED && packed != *size) ||
      *size / 1040 > packed) { /* deflate expands a byte to at most 1032 */
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: %s with %lld bytes in %lld, which the file does not hold", a->path,
                      (long long)header, name, (long long)*size, (long long)packed);
  }
  if (method == DEFLATED && *size > BPPSA_NPZ_INFLATED_LIMIT) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: %s has %lld bytes, expected at most %lld compressed, more as they are",
                      a->path, (long long)header, name, (long long)*size, (long long)BPPSA_NPZ_INFLATED_LIMIT);
  }
  if (packed > a->size - a->taken) { /* as if the file were longer than it is */
    return bppsa_fail(BPPSA_ERR_FORMAT,
                      "%s: byte %lld: %s shares bytes with another member, expected members one after the other", a->path,
                      (long long)header, name);
  }
  a->taken += packed;
  unsigned char *made = bppsa_alloc((size_t)*size);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_status status = BPPSA_OK;
  if (method == STORED) {
    memcpy(made, a->data + from, (size_t)packed);
  } else {
    status = inflate_member(a, from, packed, made, *size);
  }
  if (status == BPPSA_OK && checksum(0, made, (size_t)*size) != get32(central + 16)) {
    status = broken(a, from, "a member whose checksum is wrong");
  }
  if (status != BPPSA_OK) {
    bppsa_free(made);
    return status;
  }
  *bytes = made;
  return BPPSA_OK;
}

/* Accepts b"csr" or "csr" in any text dtype. */
static bppsa_status check_format(archive *a) {
  unsigned char *bytes = NULL;
  int64_t size = 0;
  BPPSA_TRY(read_member(a, names[FORMAT], &bytes, &size));
  const bool good = (size > 13 && memcmp(bytes + size - 3, "csr", 3) == 0) ||
                    (size > 22 && memcmp(bytes + size - 12, "c\0\0\0s\0\0\0r\0\0\0", 12) == 0);
  bppsa_free(bytes);
  return good ? BPPSA_OK : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: format.npy is another format, expected csr", a->path);
}

/* Reads a one-dimensional member: int64 or int32 as int64 (owned), or the reals of DATA in their own type. */
static bppsa_status read_array(archive *a, int which, bppsa_dtype *dtype, int64_t *count, void **array) {
  char where[512];
  unsigned char *bytes = NULL;
  int64_t size = 0;
  bppsa_view view;
  snprintf(where, sizeof where, "%s: %s", a->path, names[which]);
  BPPSA_TRY(read_member(a, names[which], &bytes, &size));
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
static bppsa_status assemble(const archive *a, const int64_t counts[MEMBERS], void *const arrays[MEMBERS],
                             bppsa_csr_matrix *made) {
  const int64_t *indices = arrays[INDICES], *indptr = arrays[INDPTR], *shape = arrays[SHAPE];
  if (counts[SHAPE] != 2 || shape[0] < 0 || counts[INDPTR] - 1 != shape[0] || counts[INDICES] != counts[DATA]) {
    return bppsa_fail(BPPSA_ERR_FORMAT,
                      "%s: %lld offsets, %lld indices and %lld values, expected those of a csr matrix of its shape", a->path,
                      (long long)counts[INDPTR], (long long)counts[INDICES], (long long)counts[DATA]);
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
  return status == BPPSA_OK || status == BPPSA_ERR_MEMORY ? status : bppsa_fail_prefix(BPPSA_ERR_FORMAT, "%s", a->path);
}

static bppsa_status load(archive *a, bppsa_csr_matrix *made) {
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
  char *data = NULL;
  archive a = {.path = path};
  BPPSA_TRY(bppsa_file_read(path, FILE_LIMIT, &data, &a.size));
  a.data = (const unsigned char *)data;
  bppsa_csr_matrix made = {0};
  const bppsa_status status = load(&a, &made);
  bppsa_free(data);
  if (status != BPPSA_OK) {
    bppsa_csr_matrix_free(&made);
    return status;
  }
  *matrix = made;
  return BPPSA_OK;
}
