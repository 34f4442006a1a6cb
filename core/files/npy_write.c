/* Writing NPY files. */
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/files/file.h"
#include "core/files/npy.h"
#include "core/files/npy_internal.h"

const bppsa_npy_code bppsa_npy_codes[BPPSA_NPY_CODES] = {
    {"f4", BPPSA_F32}, {"f8", BPPSA_F64},  {"i8", BPPSA_I64}, {"i4", BPPSA_I32}, {"i2", BPPSA_I16}, {"i1", BPPSA_I8},
    {"u1", BPPSA_U8},  {"b1", BPPSA_BOOL}, {"f2", BPPSA_F16}, {"u2", BPPSA_U16}, {"u4", BPPSA_U32}, {"u8", BPPSA_U64}};

struct bppsa_npy_writer {
  bppsa_file_writer *file;
  char *path;
  size_t announced; /* bytes of elements that the header announces */
  size_t written;
};

bppsa_status bppsa_npy_header(const char *path, bppsa_dtype dtype, int32_t ndim, const int64_t *shape,
                              char text[BPPSA_NPY_HEADER], size_t *size) {
  BPPSA_REQUIRE(path != NULL && text != NULL && size != NULL);
  BPPSA_REQUIRE(ndim == 0 || shape != NULL);
  size_t code = 0;
  while (code < BPPSA_NPY_CODES && bppsa_npy_codes[code].dtype != dtype) {
    ++code;
  }
  if (code == BPPSA_NPY_CODES) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: NPY files have no dtype for %s", path, bppsa_dtype_name(dtype));
  }
  const size_t start = 10, room = BPPSA_NPY_HEADER;
  memcpy(text, "\x93NUMPY\x01", 8); /* version 1.0; the string's own 0 is the minor version */
  size_t used = start;
  used += (size_t)snprintf(text + used, room - used, "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
                           bppsa_dtype_size(dtype) == 1 ? '|' : '<', bppsa_npy_codes[code].code);
  for (int32_t d = 0; d < ndim; ++d) {
    used += (size_t)snprintf(text + used, room - used, "%s%lld%s", d > 0 ? " " : "", (long long)shape[d],
                             ndim == 1 || d < ndim - 1 ? "," : "");
  }
  used += (size_t)snprintf(text + used, room - used, "), }");
  const size_t total = (used + 1 + 63) / 64 * 64;
  memset(text + used, ' ', total - used);
  text[total - 1] = '\n';
  text[8] = (char)((total - start) & 0xFF);
  text[9] = (char)((total - start) >> 8);
  *size = total;
  return BPPSA_OK;
}

static bppsa_status write_header(bppsa_file_writer *file, const char *path, bppsa_dtype dtype, int32_t ndim,
                                 const int64_t *shape) {
  char text[BPPSA_NPY_HEADER];
  size_t size;
  BPPSA_TRY(bppsa_npy_header(path, dtype, ndim, shape, text, &size));
  return bppsa_file_writer_write(file, text, size);
}

static bppsa_status start_writer(const char *path, bppsa_dtype dtype, int32_t ndim, const int64_t *shape,
                                 bppsa_npy_writer *writer) {
  if (bppsa_shape_bytes(dtype, ndim, shape, NULL, &writer->announced) != BPPSA_OK) {
    return bppsa_fail_prefix(BPPSA_ERR_SHAPE, "%s", path);
  }
  writer->path = bppsa_strdup(path);
  if (writer->path == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  BPPSA_TRY(bppsa_file_writer_create(path, &writer->file));
  return write_header(writer->file, path, dtype, ndim, shape);
}

bppsa_status bppsa_npy_writer_create(const char *path, bppsa_dtype dtype, int32_t ndim, const int64_t *shape,
                                     bppsa_npy_writer **writer) {
  BPPSA_REQUIRE(path != NULL && writer != NULL);
  BPPSA_REQUIRE(ndim == 0 || shape != NULL);
  bppsa_npy_writer *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const bppsa_status status = start_writer(path, dtype, ndim, shape, made);
  if (status != BPPSA_OK) {
    bppsa_npy_writer_abort(made);
    return status;
  }
  *writer = made;
  return BPPSA_OK;
}

bppsa_status bppsa_npy_writer_write(bppsa_npy_writer *writer, const void *elements, size_t bytes) {
  BPPSA_REQUIRE(writer != NULL);
  BPPSA_REQUIRE(elements != NULL || bytes == 0);
  if (bytes > writer->announced - writer->written) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: %zu bytes after %zu, the shape has %zu", writer->path, bytes, writer->written,
                      writer->announced);
  }
  BPPSA_TRY(bppsa_file_writer_write(writer->file, elements, bytes));
  writer->written += bytes;
  return BPPSA_OK;
}

bppsa_status bppsa_npy_writer_commit(bppsa_npy_writer *writer) {
  BPPSA_REQUIRE(writer != NULL);
  bppsa_status status = BPPSA_OK;
  if (writer->written != writer->announced) {
    status = bppsa_fail(BPPSA_ERR_SHAPE, "%s: %zu bytes of elements were written, the shape has %zu", writer->path,
                        writer->written, writer->announced);
  } else {
    status = bppsa_file_writer_commit(writer->file);
    writer->file = NULL;
  }
  bppsa_npy_writer_abort(writer);
  return status;
}

void bppsa_npy_writer_abort(bppsa_npy_writer *writer) {
  if (writer != NULL) {
    bppsa_file_writer_abort(writer->file);
    bppsa_free(writer->path);
    bppsa_free(writer);
  }
}

bppsa_status bppsa_npy_save(const char *path, const bppsa_view *view) {
  BPPSA_REQUIRE(path != NULL && view != NULL);
  if (view->device != BPPSA_CPU || !bppsa_view_contiguous(view)) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: only contiguous arrays in host memory can be saved", path);
  }
  bppsa_npy_writer *writer = NULL;
  BPPSA_TRY(bppsa_npy_writer_create(path, view->dtype, view->ndim, view->shape, &writer));
  const bppsa_status status = bppsa_npy_writer_write(writer, view->data, bppsa_view_bytes(view));
  if (status != BPPSA_OK) {
    bppsa_npy_writer_abort(writer);
    return status;
  }
  return bppsa_npy_writer_commit(writer);
}
