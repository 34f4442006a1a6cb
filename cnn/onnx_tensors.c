/* The constants of an ONNX model: their elements stand in one of several fields, or in a file beside the model. */
#include <stdio.h>
#include <string.h>

#include "cnn/onnx_internal.h"
#include "core/base/alloc.h"
#include "core/base/text.h"
#include "core/files/file.h"

void *bppsa_onnx_own(onnx_reader *r, int64_t bytes) {
  void *memory =
      bppsa_grow(&r->owned, r->owned_count, &r->owned_room, sizeof *r->owned) == BPPSA_OK ? bppsa_alloc((size_t)bytes) : NULL;
  if (memory != NULL) {
    r->owned[r->owned_count++] = memory;
  }
  return memory;
}

/* The types of ONNX's TensorProto.DataType; 0: not read. */
static const struct {
  bool read;
  bppsa_dtype dtype;
} types[] = {[1] = {true, BPPSA_F32},  [2] = {true, BPPSA_U8},   [3] = {true, BPPSA_I8},   [5] = {true, BPPSA_I16},
             [6] = {true, BPPSA_I32},  [7] = {true, BPPSA_I64},  [9] = {true, BPPSA_BOOL}, [10] = {true, BPPSA_F16},
             [11] = {true, BPPSA_F64}, [16] = {true, BPPSA_BF16}};
enum { TYPES = sizeof types / sizeof types[0] };

/* ---- elements in a file beside the model ---- */

static const char *external(const onnx_tensor *tensor, const char *key) {
  for (size_t i = 0; i < tensor->n_external_data; ++i) {
    if (tensor->external_data[i]->key != NULL && strcmp(tensor->external_data[i]->key, key) == 0) {
      return tensor->external_data[i]->value;
    }
  }
  return NULL;
}

/* A number of an entry; 0 without the entry. */
static bppsa_status external_number(const onnx_tensor *tensor, const char *key, int64_t *number) {
  const char *text = external(tensor, key);
  int count = 0;
  *number = 0;
  return text == NULL || (bppsa_text_numbers(text, 1, number, &count) && count == 1)
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_FORMAT, "%s of its external data is '%.40s', expected a whole number", key, text);
}

/* Is it a path that stays in the model's directory? */
static bool stays(const char *location) {
  for (const char *part = location; part != NULL; part = strchr(part, '/') != NULL ? strchr(part, '/') + 1 : NULL) {
    if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0')) {
      return false;
    }
  }
  return location[0] != '/' && location[0] != '\0' && !bppsa_has_control_characters(location);
}

/* Memory for the elements is taken when the file is known to have them. */
static bppsa_status read_external(onnx_reader *r, const onnx_tensor *tensor, int64_t bytes, void **data) {
  const char *location = external(tensor, "location"), *slash = strrchr(r->path, '/');
  int64_t offset, length;
  char path[4096];
  if (location == NULL || !stays(location)) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "its data are in '%.100s', expected a file beside the model",
                      location != NULL ? location : "");
  }
  BPPSA_TRY(external_number(tensor, "offset", &offset));
  BPPSA_TRY(external_number(tensor, "length", &length));
  if (length != 0 && length != bytes) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%lld bytes of data in %.100s, expected %lld", (long long)length, location,
                      (long long)bytes);
  }
  const int written = snprintf(path, sizeof path, "%.*s%s", slash != NULL ? (int)(slash - r->path + 1) : 0, r->path, location);
  if (written < 0 || (size_t)written >= sizeof path) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "the path of its data is too long, expected less than %d bytes", (int)sizeof path);
  }
  bppsa_file_reader reader = {0};
  BPPSA_TRY(bppsa_file_reader_open(path, &reader));
  bppsa_status status = BPPSA_OK;
  if (offset > reader.size || bytes > reader.size - offset) {
    status = bppsa_fail(BPPSA_ERR_FORMAT, "%s: %lld bytes, expected %lld behind byte %lld", path, (long long)reader.size,
                        (long long)bytes, (long long)offset);
  }
  *data = status == BPPSA_OK ? bppsa_onnx_own(r, bytes) : NULL;
  status = status == BPPSA_OK && *data == NULL ? BPPSA_ERR_MEMORY : status;
  status = status == BPPSA_OK ? bppsa_file_reader_skip(&reader, offset) : status;
  status = status == BPPSA_OK ? bppsa_file_reader_read(&reader, *data, bytes) : status;
  bppsa_file_reader_close(&reader);
  return status;
}

/* ---- elements in the model ---- */

/* Narrows numbers of int32_data to a type of two bytes or one. */
static bppsa_status narrow(onnx_reader *r, const onnx_tensor *tensor, bppsa_view *view) {
  const size_t size = bppsa_dtype_size(view->dtype);
  uint8_t *to = bppsa_onnx_own(r, (int64_t)(tensor->n_int32_data * size));
  if (to == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (size_t i = 0; i < tensor->n_int32_data; ++i) {
    memcpy(to + i * size, &tensor->int32_data[i], size); /* the low bytes come first */
  }
  view->data = to;
  return BPPSA_OK;
}

/* The field in which the elements of a type stand, if they are not in raw_data. */
static void *field(const onnx_tensor *t, bppsa_dtype dtype, size_t *count) {
  *count = dtype == BPPSA_F32   ? t->n_float_data
           : dtype == BPPSA_F64 ? t->n_double_data
           : dtype == BPPSA_I64 ? t->n_int64_data
                                : t->n_int32_data;
  return dtype == BPPSA_F32   ? (void *)t->float_data
         : dtype == BPPSA_F64 ? (void *)t->double_data
         : dtype == BPPSA_I64 ? (void *)t->int64_data
                              : (void *)t->int32_data;
}

static bppsa_status fill(onnx_reader *r, const onnx_tensor *tensor, int64_t count, size_t bytes, bppsa_view *view) {
  size_t found;
  if (tensor->has_data_location && tensor->data_location != 0) {
    return read_external(r, tensor, (int64_t)bytes, &view->data);
  }
  if (tensor->has_raw_data) {
    view->data = tensor->raw_data.data;
    return tensor->raw_data.len == bytes
               ? BPPSA_OK
               : bppsa_fail(BPPSA_ERR_FORMAT, "%zu bytes of data, expected %zu", tensor->raw_data.len, bytes);
  }
  view->data = field(tensor, view->dtype, &found);
  if (found != (size_t)count) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%zu elements, expected %lld", found, (long long)count);
  }
  return bppsa_dtype_size(view->dtype) < sizeof(int32_t) ? narrow(r, tensor, view) : BPPSA_OK;
}

static bppsa_status make(onnx_reader *r, const onnx_tensor *tensor, bppsa_view *view) {
  const int32_t type = tensor->data_type;
  int64_t count;
  size_t bytes;
  if (type < 0 || type >= TYPES || !types[type].read) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "elements of type %d, expected reals (1, 10, 11 or 16) or whole numbers", (int)type);
  }
  if (tensor->n_dims > BPPSA_MAX_DIMS) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%zu dimensions, expected at most %d", tensor->n_dims, BPPSA_MAX_DIMS);
  }
  BPPSA_TRY(bppsa_shape_bytes(types[type].dtype, (int32_t)tensor->n_dims, tensor->dims, &count, &bytes));
  bppsa_view made = bppsa_view_make(NULL, types[type].dtype, (int32_t)tensor->n_dims, (int64_t[ONNX_DIMS]){0});
  for (size_t k = 0; k < tensor->n_dims; ++k) {
    made.shape[k] = tensor->dims[k];
  }
  made = bppsa_view_make(NULL, made.dtype, made.ndim, made.shape);
  BPPSA_TRY(fill(r, tensor, count, bytes, &made));
  *view = made;
  return BPPSA_OK;
}

bppsa_status bppsa_onnx_tensor(onnx_reader *r, const onnx_tensor *tensor, bppsa_view *view) {
  const bppsa_status status = make(r, tensor, view);
  return status == BPPSA_OK
             ? BPPSA_OK
             : bppsa_fail_prefix(bppsa_input_status(status), "tensor '%.60s'", tensor->name != NULL ? tensor->name : "");
}
