#include "core/files/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/text.h"
#include "core/files/file.h"
#include "core/files/json.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little-endian and are read in place");

#define HEADER_START 8 /* the header's length comes first */
#define METADATA "__metadata__"

static const char *const dtype_codes[BPPSA_DTYPE_COUNT] = {
    [BPPSA_F32] = "F32", [BPPSA_F64] = "F64", [BPPSA_I64] = "I64",   [BPPSA_I32] = "I32", [BPPSA_I16] = "I16",
    [BPPSA_I8] = "I8",   [BPPSA_U8] = "U8",   [BPPSA_BOOL] = "BOOL", [BPPSA_F16] = "F16", [BPPSA_BF16] = "BF16",
    [BPPSA_U16] = "U16", [BPPSA_U32] = "U32", [BPPSA_U64] = "U64",
};

struct bppsa_safetensors {
  json_t *header; /* owns the names and the metadata */
  int64_t count;
  bppsa_named_view *tensors; /* size count, in the order of their data */
  void *data;                /* every tensor begins at a multiple of BPPSA_ALIGNMENT, whatever its offset in the file */
};

/* ---- the header ---- */

/* One tensor as the header describes it. */
typedef struct {
  const char *name;
  bppsa_dtype dtype;
  int32_t ndim;
  int64_t shape[BPPSA_MAX_DIMS];
  int64_t begin, end; /* bytes from the start of the data */
  const char *other;  /* the name of a dtype that is not read; NULL: it is `dtype` */
  int64_t key;        /* position among the header's keys */
} entry;

/* The source of a text, so that messages can name the byte in the file. */
typedef struct {
  const char *path;
  const char *text; /* the header, size bytes */
  int64_t size;
} source;

/* Byte of the key-th key of the outermost object in the file. The text is valid JSON. */
static long long key_byte(const source *s, int64_t key) {
  int depth = 0;
  bool at_key = false;
  for (int64_t i = 0; i < s->size; ++i) {
    const char c = s->text[i];
    if (c == '"') {
      if (depth == 1 && at_key && key-- == 0) {
        return (long long)(HEADER_START + i);
      }
      at_key = false;
      for (++i; i < s->size && s->text[i] != '"'; ++i) {
        i += s->text[i] == '\\' ? 1 : 0;
      }
    } else if (c == '{' || c == '[') {
      ++depth;
      at_key = true;
    } else if (c == '}' || c == ']') {
      --depth;
    } else if (c == ',') {
      at_key = true;
    }
  }
  return HEADER_START;
}

/* "PATH: byte N: tensor "NAME": " in front of the last error. */
static bppsa_status at_entry(const source *s, const entry *e) {
  return bppsa_fail_prefix(BPPSA_ERR_FORMAT, "%s: byte %lld: tensor \"%.100s\"", s->path, key_byte(s, e->key), e->name);
}

static bppsa_status parse_dtype(const json_t *value, entry *e) {
  const char *code = json_string_value(value);
  for (int d = 0; code != NULL && d < BPPSA_DTYPE_COUNT; ++d) {
    if (strcmp(code, dtype_codes[d]) == 0) {
      e->dtype = (bppsa_dtype)d;
      return BPPSA_OK;
    }
  }
  e->dtype = BPPSA_DTYPE_OTHER; /* the format grows by types */
  e->other = code;
  return code != NULL ? BPPSA_OK
                      : bppsa_fail(BPPSA_ERR_FORMAT, "dtype missing or no string, expected a text such as F32, F64 or I64");
}

static bppsa_status parse_shape(const json_t *value, entry *e) {
  if (!json_is_array(value)) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "shape missing or no array, expected the list of its extents");
  }
  if (json_array_size(value) > BPPSA_MAX_DIMS) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%zu dimensions, expected at most %d", json_array_size(value), BPPSA_MAX_DIMS);
  }
  e->ndim = (int32_t)json_array_size(value);
  for (int32_t d = 0; d < e->ndim; ++d) {
    const json_t *extent = json_array_get(value, (size_t)d);
    if (!json_is_integer(extent) || json_integer_value(extent) < 0) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "extent %d of the shape is not an integer of 0 or more, expected one", (int)d);
    }
    e->shape[d] = json_integer_value(extent);
  }
  return BPPSA_OK;
}

/* Reads data_offsets. Both must lie inside the data, as far apart as dtype and shape require. */
static bppsa_status parse_offsets(const json_t *value, int64_t data_size, entry *e) {
  const json_t *begin = json_array_get(value, 0);
  const json_t *end = json_array_get(value, 1);
  if (json_array_size(value) != 2 || !json_is_integer(begin) || !json_is_integer(end)) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "data_offsets missing or not two integers, expected [begin, end]");
  }
  e->begin = json_integer_value(begin);
  e->end = json_integer_value(end);
  if (e->begin < 0 || e->begin > e->end || e->end > data_size) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "data_offsets [%lld, %lld], expected a range inside the %lld bytes of data",
                      (long long)e->begin, (long long)e->end, (long long)data_size);
  }
  size_t bytes = 0;
  if (e->other != NULL) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_shape_bytes(e->dtype, e->ndim, e->shape, NULL, &bytes));
  if ((int64_t)bytes != e->end - e->begin) {
    char text[BPPSA_SHAPE_TEXT];
    return bppsa_fail(BPPSA_ERR_FORMAT,
                      "data_offsets [%lld, %lld] are %lld bytes, but shape %s of %s needs %zu, expected as many",
                      (long long)e->begin, (long long)e->end, (long long)(e->end - e->begin),
                      bppsa_shape_text(e->ndim, e->shape, text, sizeof text), dtype_codes[e->dtype], bytes);
  }
  return BPPSA_OK;
}

static bppsa_status parse_entry(const json_t *value, int64_t data_size, entry *e) {
  if (bppsa_has_control_characters(e->name)) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "expected a name without control characters");
  }
  if (!json_is_object(value)) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "expected an object");
  }
  BPPSA_TRY(parse_dtype(json_object_get(value, "dtype"), e));
  BPPSA_TRY(parse_shape(json_object_get(value, "shape"), e));
  return parse_offsets(json_object_get(value, "data_offsets"), data_size, e);
}

static bppsa_status check_metadata(const source *s, json_t *metadata, int64_t key) {
  const char *name = NULL;
  json_t *value = NULL;
  if (!json_is_object(metadata)) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: %s: expected an object", s->path, key_byte(s, key), METADATA);
  }
  json_object_foreach(metadata, name, value) {
    if (!json_is_string(value)) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: %s: \"%.100s\" is not a string, expected one", s->path,
                        key_byte(s, key), METADATA, name);
    }
  }
  return BPPSA_OK;
}

/* Reads all tensors of the header. entries has room for every key; *count of them are tensors. */
static bppsa_status parse_entries(const source *s, json_t *header, int64_t data_size, entry *entries, int64_t *count) {
  const char *name = NULL;
  json_t *value = NULL;
  int64_t key = 0;
  json_object_foreach(header, name, value) {
    if (strcmp(name, METADATA) == 0) {
      BPPSA_TRY(check_metadata(s, value, key));
    } else {
      entry *e = &entries[*count];
      *e = (entry){.name = name, .key = key};
      if (parse_entry(value, data_size, e) != BPPSA_OK) {
        return at_entry(s, e);
      }
      ++*count;
    }
    ++key;
  }
  return BPPSA_OK;
}

static int compare_entries(const void *left, const void *right) {
  const entry *a = left, *b = right;
  if (a->begin != b->begin) {
    return a->begin < b->begin ? -1 : 1;
  }
  if (a->end != b->end) {
    return a->end < b->end ? -1 : 1;
  }
  return a->key < b->key ? -1 : 1;
}

/* Checks that the sorted entries cover the data from the first byte to the last, without a hole and without an overlap. */
static bppsa_status check_layout(const source *s, const entry *entries, int64_t count, int64_t data_size) {
  const long long data_start = (long long)(HEADER_START + s->size);
  int64_t expected = 0;
  for (int64_t i = 0; i < count; ++i) {
    const entry *e = &entries[i];
    if (e->begin != expected) {
      return bppsa_fail(
          BPPSA_ERR_FORMAT, "%s: byte %lld: tensor \"%.100s\": its data begin at byte %lld and %s byte %lld, expected them there",
          s->path, key_byte(s, e->key), e->name, data_start + e->begin,
          e->begin < expected ? "overlap another tensor's, which end at" : "leave a hole from", data_start + expected);
    }
    expected = e->end;
  }
  if (expected != data_size) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: %lld bytes that belong to no tensor, expected the file to end there",
                      s->path, data_start + expected, (long long)(data_size - expected));
  }
  return BPPSA_OK;
}

/* ---- loading ---- */

/* Bytes of a tensor's place in memory. */
static int64_t place_of(const entry *e) {
  return e->other != NULL ? 0 : (e->end - e->begin + BPPSA_ALIGNMENT - 1) / BPPSA_ALIGNMENT * BPPSA_ALIGNMENT;
}

/* Reads each tensor to a place of its own; one pass over the file. Sizes are known to be the file's. */
static bppsa_status read_data(bppsa_file_reader *reader, const entry *entries, bppsa_safetensors *file) {
  size_t total = 0;
  for (int64_t i = 0; i < file->count; ++i) {
    total += (size_t)place_of(&entries[i]);
  }
  file->data = bppsa_alloc(total);
  file->tensors = bppsa_calloc(file->count, sizeof *file->tensors);
  if (file->data == NULL || file->tensors == NULL) {
    return bppsa_fail_prefix(BPPSA_ERR_MEMORY, "%s", reader->path);
  }
  char *at = file->data;
  for (int64_t i = 0; i < file->count; ++i) {
    const entry *e = &entries[i];
    const int64_t bytes = e->end - e->begin;
    file->tensors[i].name = e->name;
    if (e->other != NULL) {
      BPPSA_TRY(bppsa_file_reader_skip(reader, bytes));
      file->tensors[i].view = bppsa_view_make((char *)(uintptr_t)e->other, e->dtype, e->ndim, e->shape);
      continue;
    }
    BPPSA_TRY(bppsa_file_reader_read(reader, at, bytes));
    file->tensors[i].view = bppsa_view_make(at, e->dtype, e->ndim, e->shape);
    at += place_of(e);
  }
  return BPPSA_OK;
}

/* Refuses a file of torch.save, and says how to convert it: a ZIP archive that begins with NAME/data.pkl, or, before PyTorch 1.6,
 * pickles. length: the file's first 8 bytes; rest [size]: the bytes behind them. */
static bppsa_status refuse_torch(const char *path, uint64_t length, const void *rest, int64_t size) {
  enum { SHOWN = 256, LOCAL = 30 };
  static const char file_name[] = "/data.pkl", magic[] = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
  unsigned char bytes[SHOWN] = {0};
  memcpy(bytes, &length, HEADER_START);
  memcpy(bytes + HEADER_START, rest, (size_t)(size < SHOWN - HEADER_START ? size : SHOWN - HEADER_START));
  const size_t name = (size_t)bytes[26] | (size_t)bytes[27] << 8, end = sizeof file_name - 1;
  const bool zip = memcmp(bytes, "PK\x03\x04", 4) == 0 && name >= end && LOCAL + name <= SHOWN &&
                   memcmp(bytes + LOCAL + name - end, file_name, end) == 0;
  if (!zip && memcmp(bytes, magic, sizeof magic - 1) != 0) {
    return BPPSA_OK;
  }
  return bppsa_fail(BPPSA_ERR_FORMAT,
                    "%s: byte 0: a file of torch.save, expected safetensors; in Python: import torch, safetensors.torch; "
                    "safetensors.torch.save_file(torch.load('%.100s', map_location='cpu'), 'W.safetensors')",
                    path, path);
}

/* Parses and checks the header, whose text has been read, and reads the data that it describes. */
static bppsa_status load_tensors(bppsa_file_reader *reader, const source *s, bppsa_safetensors *file) {
  if (s->size == 0 || s->text[0] != '{') {
    BPPSA_TRY(refuse_torch(s->path, (uint64_t)s->size, s->text, s->size));
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %d: the header does not begin with '{', expected a JSON object", s->path,
                      HEADER_START);
  }
  BPPSA_TRY(bppsa_json_parse_at(s->path, s->text, s->size, HEADER_START, &file->header));
  entry *entries = bppsa_calloc((int64_t)json_object_size(file->header), sizeof *entries);
  if (entries == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  const int64_t data_size = reader->size - reader->offset;
  bppsa_status status = parse_entries(s, file->header, data_size, entries, &file->count);
  if (status == BPPSA_OK) {
    qsort(entries, (size_t)file->count, sizeof *entries, compare_entries);
    status = check_layout(s, entries, file->count, data_size);
  }
  if (status == BPPSA_OK) {
    status = read_data(reader, entries, file);
  }
  bppsa_free(entries);
  return status;
}

static bppsa_status read_length(bppsa_file_reader *reader, int64_t *length) {
  uint64_t announced = 0;
  if (reader->size < HEADER_START) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: the file ends there, expected the 8 bytes of the header's length",
                      reader->path, (long long)reader->size);
  }
  BPPSA_TRY(bppsa_file_reader_read(reader, &announced, HEADER_START));
  const int64_t left = reader->size - HEADER_START;
  if (announced > (uint64_t)left || announced > (uint64_t)BPPSA_SAFETENSORS_HEADER_LIMIT) {
    unsigned char rest[256];
    char found[BPPSA_BEGINNING_TEXT];
    const int64_t size = left < (int64_t)sizeof rest ? left : (int64_t)sizeof rest;
    BPPSA_TRY(bppsa_file_reader_read(reader, rest, size));
    BPPSA_TRY(refuse_torch(reader->path, announced, rest, size));
    if (size > 0 && rest[0] != '{') {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte 0: '%s', expected the length of a safetensors header, which begins with '{'",
                        reader->path, bppsa_text_beginning(&announced, HEADER_START, found));
    }
  }
  if (announced > (uint64_t)left) {
    return bppsa_fail(BPPSA_ERR_FORMAT,
                      "%s: byte 0: a header of %llu bytes, but the file has %lld after its length, expected at most those",
                      reader->path, (unsigned long long)announced, (long long)left);
  }
  if (announced > (uint64_t)BPPSA_SAFETENSORS_HEADER_LIMIT) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte 0: a header of %llu bytes, expected at most %lld", reader->path,
                      (unsigned long long)announced, (long long)BPPSA_SAFETENSORS_HEADER_LIMIT);
  }
  *length = (int64_t)announced;
  return BPPSA_OK;
}

static bppsa_status load(bppsa_file_reader *reader, bppsa_safetensors *file) {
  int64_t length = 0;
  BPPSA_TRY(read_length(reader, &length));
  char *text = bppsa_alloc((size_t)length);
  if (text == NULL) {
    return bppsa_fail_prefix(BPPSA_ERR_MEMORY, "%s", reader->path);
  }
  bppsa_status status = bppsa_file_reader_read(reader, text, length);
  if (status == BPPSA_OK) {
    const source s = {.path = reader->path, .text = text, .size = length};
    status = load_tensors(reader, &s, file);
  }
  bppsa_free(text);
  return status;
}

bppsa_status bppsa_safetensors_load(const char *path, bppsa_safetensors **file) {
  BPPSA_REQUIRE(path != NULL && file != NULL);
  bppsa_file_reader reader = {0};
  BPPSA_TRY(bppsa_file_reader_open(path, &reader));
  bppsa_safetensors *made = bppsa_calloc(1, sizeof *made);
  const bppsa_status status = made == NULL ? BPPSA_ERR_MEMORY : load(&reader, made);
  bppsa_file_reader_close(&reader);
  if (status != BPPSA_OK) {
    bppsa_safetensors_destroy(made);
    return status;
  }
  *file = made;
  return BPPSA_OK;
}

/* Copies one tensor to *at, which moves behind it. */
static bppsa_status copy_tensor(const bppsa_named_view *from, char **at, bppsa_safetensors *file) {
  bppsa_named_view *to = &file->tensors[file->count];
  if (json_object_get(file->header, from->name) != NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "two tensors are called '%.100s', expected different names", from->name);
  }
  if (json_object_set_new(file->header, from->name, json_string(from->name)) != 0) {
    return BPPSA_ERR_MEMORY;
  }
  const size_t bytes = bppsa_view_bytes(&from->view);
  to->name = json_string_value(json_object_get(file->header, from->name));
  to->view = bppsa_view_make(*at, from->view.dtype, from->view.ndim, from->view.shape);
  if (bytes > 0) {
    memcpy(*at, from->view.data, bytes);
  }
  *at += (bytes + BPPSA_ALIGNMENT - 1) / BPPSA_ALIGNMENT * BPPSA_ALIGNMENT;
  ++file->count;
  return BPPSA_OK;
}

static bppsa_status copy_tensors(int64_t count, const bppsa_named_view *tensors, bppsa_safetensors *file) {
  size_t bytes = 0;
  for (int64_t i = 0; i < count; ++i) {
    bytes += (bppsa_view_bytes(&tensors[i].view) + BPPSA_ALIGNMENT - 1) / BPPSA_ALIGNMENT * BPPSA_ALIGNMENT;
  }
  file->header = json_object();
  file->tensors = bppsa_calloc(count, sizeof *file->tensors);
  file->data = bppsa_alloc(bytes);
  char *at = file->data;
  bppsa_status status = file->header == NULL || file->tensors == NULL || at == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  for (int64_t i = 0; status == BPPSA_OK && i < count; ++i) {
    status = copy_tensor(&tensors[i], &at, file);
  }
  return status;
}

bppsa_status bppsa_safetensors_make(int64_t count, const bppsa_named_view *tensors, bppsa_safetensors **file) {
  BPPSA_REQUIRE(count >= 0 && (tensors != NULL || count == 0) && file != NULL);
  bppsa_safetensors *made = bppsa_calloc(1, sizeof *made);
  const bppsa_status status = made == NULL ? BPPSA_ERR_MEMORY : copy_tensors(count, tensors, made);
  if (status != BPPSA_OK) {
    bppsa_safetensors_destroy(made);
    return status;
  }
  *file = made;
  return BPPSA_OK;
}

void bppsa_safetensors_destroy(bppsa_safetensors *file) {
  if (file != NULL) {
    json_decref(file->header);
    bppsa_free(file->tensors);
    bppsa_free(file->data);
    bppsa_free(file);
  }
}

int64_t bppsa_safetensors_count(const bppsa_safetensors *file) {
  return file->count;
}

const bppsa_named_view *bppsa_safetensors_get(const bppsa_safetensors *file, int64_t index) {
  return index >= 0 && index < file->count ? &file->tensors[index] : NULL;
}

const bppsa_view *bppsa_safetensors_find(const bppsa_safetensors *file, const char *name) {
  for (int64_t i = 0; i < file->count; ++i) {
    if (strcmp(file->tensors[i].name, name) == 0) {
      return &file->tensors[i].view;
    }
  }
  return NULL;
}

const char *bppsa_safetensors_metadata(const bppsa_safetensors *file, const char *key) {
  return json_string_value(json_object_get(json_object_get(file->header, METADATA), key));
}

bool bppsa_safetensors_metadata_next(const bppsa_safetensors *file, bppsa_metadata *pair) {
  json_t *metadata = json_object_get(file->header, METADATA);
  void *at = pair->key == NULL ? json_object_iter(metadata) : json_object_iter_next(metadata, json_object_key_to_iter(pair->key));
  if (at == NULL) {
    return false;
  }
  *pair = (bppsa_metadata){json_object_iter_key(at), json_string_value(json_object_iter_value(at))};
  return true;
}

/* ---- saving ---- */

/* Reports what jansson has refused: there was no memory, or the text is not valid UTF-8. */
static bppsa_status refused(const char *path, const char *what, const char *name) {
  if (bppsa_json_out_of_memory()) {
    return bppsa_fail_prefix(BPPSA_ERR_MEMORY, "%s", path);
  }
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: %s \"%.100s\" is not valid UTF-8", path, what, name);
}

static bppsa_status check_tensor(const char *path, const json_t *header, const bppsa_named_view *tensor) {
  const bppsa_view *view = &tensor->view;
  if (strcmp(tensor->name, METADATA) == 0 || json_object_get(header, tensor->name) != NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: tensor name \"%.100s\" %s", path, tensor->name,
                      strcmp(tensor->name, METADATA) == 0 ? "is reserved" : "is used twice");
  }
  if (bppsa_has_control_characters(tensor->name)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: tensor name \"%.100s\", expected one without control characters", path,
                      tensor->name);
  }
  if (view->device != BPPSA_CPU || !bppsa_view_contiguous(view)) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: tensor \"%.100s\": only contiguous arrays in host memory can be saved", path,
                      tensor->name);
  }
  if (bppsa_shape_bytes(view->dtype, view->ndim, view->shape, NULL, NULL) != BPPSA_OK) {
    return bppsa_fail_prefix(BPPSA_ERR_SHAPE, "%s: tensor \"%.100s\"", path, tensor->name);
  }
  return BPPSA_OK;
}

/* {"dtype": ..., "shape": [...], "data_offsets": [begin, end]}, or NULL. jansson's _new functions take the value in every
 * case and answer -1 to a NULL. */
static json_t *describe(const bppsa_view *view, int64_t begin, int64_t end) {
  json_t *object = json_object();
  json_t *shape = json_array();
  json_t *offsets = json_array();
  int failed = 0;
  for (int32_t d = 0; d < view->ndim; ++d) {
    failed |= json_array_append_new(shape, json_integer(view->shape[d]));
  }
  failed |= json_array_append_new(offsets, json_integer(begin));
  failed |= json_array_append_new(offsets, json_integer(end));
  failed |= json_object_set_new(object, "dtype", json_string(dtype_codes[view->dtype]));
  failed |= json_object_set_new(object, "shape", shape);
  failed |= json_object_set_new(object, "data_offsets", offsets);
  if (failed != 0) {
    json_decref(object);
    return NULL;
  }
  return object;
}

static bppsa_status add_metadata(const char *path, int64_t count, const bppsa_metadata *metadata, json_t *header) {
  json_t *object = json_object();
  if (object == NULL || json_object_set_new(header, METADATA, object) != 0) {
    return refused(path, "key", METADATA);
  }
  for (int64_t i = 0; i < count; ++i) {
    if (json_object_get(object, metadata[i].key) != NULL) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: metadata key \"%s\" is used twice", path, metadata[i].key);
    }
    if (json_object_set_new(object, metadata[i].key, json_string(metadata[i].value)) != 0) {
      return refused(path, "key or value of metadata", metadata[i].key);
    }
  }
  return BPPSA_OK;
}

static bppsa_status build_header(const char *path, int64_t count, const bppsa_named_view *tensors, int64_t metadata_count,
                                 const bppsa_metadata *metadata, json_t *header) {
  if (metadata_count > 0) {
    BPPSA_TRY(add_metadata(path, metadata_count, metadata, header));
  }
  int64_t begin = 0;
  for (int64_t i = 0; i < count; ++i) {
    BPPSA_TRY(check_tensor(path, header, &tensors[i]));
    const int64_t end = begin + (int64_t)bppsa_view_bytes(&tensors[i].view);
    if (json_object_set_new(header, tensors[i].name, describe(&tensors[i].view, begin, end)) != 0) {
      return refused(path, "tensor name", tensors[i].name);
    }
    begin = end;
  }
  return BPPSA_OK;
}

/* Writes the length, the header with spaces up to a multiple of 8, then the tensors one after the other. */
static bppsa_status write_all(bppsa_file_writer *writer, const char *header, int64_t count, const bppsa_named_view *tensors) {
  const size_t length = strlen(header);
  const uint64_t padded = (length + 7) / 8 * 8;
  BPPSA_TRY(bppsa_file_writer_write(writer, &padded, sizeof padded));
  BPPSA_TRY(bppsa_file_writer_write(writer, header, length));
  BPPSA_TRY(bppsa_file_writer_write(writer, "       ", padded - length));
  for (int64_t i = 0; i < count; ++i) {
    BPPSA_TRY(bppsa_file_writer_write(writer, tensors[i].view.data, bppsa_view_bytes(&tensors[i].view)));
  }
  return BPPSA_OK;
}

static bppsa_status write_file(const char *path, const char *header, int64_t count, const bppsa_named_view *tensors) {
  bppsa_file_writer *writer = NULL;
  BPPSA_TRY(bppsa_file_writer_create(path, &writer));
  const bppsa_status status = write_all(writer, header, count, tensors);
  if (status != BPPSA_OK) {
    bppsa_file_writer_abort(writer);
    return status;
  }
  return bppsa_file_writer_commit(writer);
}

bppsa_status bppsa_safetensors_save(const char *path, int64_t count, const bppsa_named_view *tensors, int64_t metadata_count,
                                    const bppsa_metadata *metadata) {
  BPPSA_REQUIRE(path != NULL);
  BPPSA_REQUIRE(count >= 0 && metadata_count >= 0 && (tensors != NULL || count == 0) &&
                (metadata != NULL || metadata_count == 0));
  (void)bppsa_json_out_of_memory();
  json_t *header = json_object();
  if (header == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  char *text = NULL;
  bppsa_status status = build_header(path, count, tensors, metadata_count, metadata, header);
  if (status == BPPSA_OK) {
    status = bppsa_json_text(header, 0, 0, &text);
  }
  json_decref(header);
  if (status == BPPSA_OK) {
    status = write_file(path, text, count, tensors);
  }
  bppsa_free(text);
  return status;
}

bppsa_status bppsa_safetensors_list(const bppsa_safetensors *file, bppsa_named_view **tensors, int64_t *count) {
  BPPSA_REQUIRE(file != NULL && tensors != NULL && count != NULL);
  const int64_t size = bppsa_safetensors_count(file);
  bppsa_named_view *list = bppsa_calloc(size, sizeof *list);
  if (list == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < size; ++i) {
    list[i] = *bppsa_safetensors_get(file, i);
  }
  *count = size;
  *tensors = list;
  return BPPSA_OK;
}
