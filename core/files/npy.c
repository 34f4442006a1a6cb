#include "core/files/npy.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/number.h"
#include "core/base/text.h"
#include "core/files/file.h"
#include "core/files/npy_internal.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little-endian and are read in place");

/* ---- the header: a Python dictionary with the keys descr, fortran_order and shape ---- */

typedef struct {
  const char *path;
  const char *text; /* the dictionary, size bytes */
  int64_t size;
  int64_t at;     /* position in text */
  int64_t offset; /* of text in the file */
} cursor;

typedef struct {
  bppsa_dtype dtype;
  bool swapped;     /* the high byte of an element comes first */
  bool fortran;     /* the first index runs fastest */
  int64_t shape_at; /* byte of the file where the shape begins */
  int32_t ndim;
  int64_t shape[BPPSA_MAX_DIMS];
} npy_header;

static bppsa_status unexpected(const cursor *c, const char *expected) {
  const long long byte = (long long)(c->offset + c->at);
  if (c->at >= c->size) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: the header ends there, expected %s", c->path, byte, expected);
  }
  return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: found '%c', expected %s", c->path, byte, c->text[c->at], expected);
}

static void skip_space(cursor *c) {
  while (c->at < c->size && (c->text[c->at] == ' ' || c->text[c->at] == '\t' || c->text[c->at] == '\n')) {
    ++c->at;
  }
}

/* Skips white space, and then `character` if it follows. */
static bool take(cursor *c, char character) {
  skip_space(c);
  if (c->at < c->size && c->text[c->at] == character) {
    ++c->at;
    return true;
  }
  return false;
}

static bool take_word(cursor *c, const char *word) {
  skip_space(c);
  const int64_t length = (int64_t)strlen(word);
  if (c->size - c->at < length || memcmp(c->text + c->at, word, (size_t)length) != 0) {
    return false;
  }
  c->at += length;
  return true;
}

/* A quoted string without escapes, cut at size - 1 characters. */
static bppsa_status take_string(cursor *c, char *string, size_t size) {
  skip_space(c);
  const char quote = c->at < c->size ? c->text[c->at] : '\0';
  if (quote != '\'' && quote != '"') {
    return unexpected(c, "a quoted string");
  }
  ++c->at;
  size_t length = 0;
  while (c->at < c->size && c->text[c->at] != quote && c->text[c->at] != '\\') {
    if ((unsigned char)c->text[c->at] < ' ') {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: a control character in a string, expected printable ones", c->path,
                        (long long)(c->offset + c->at));
    }
    if (length + 1 < size) {
      string[length++] = c->text[c->at];
    }
    ++c->at;
  }
  string[length] = '\0';
  return take(c, quote) ? BPPSA_OK : unexpected(c, "the closing quote");
}

static bppsa_status take_descr(cursor *c, npy_header *header) {
  skip_space(c);
  const long long byte = (long long)(c->offset + c->at);
  if (c->at < c->size && c->text[c->at] == '[') {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: byte %lld: an array with fields, expected one dtype, as X['FIELD'] has",
                      c->path, byte);
  }
  char descr[32];
  BPPSA_TRY(take_string(c, descr, sizeof descr));
  for (size_t i = 0; descr[0] != '\0' && i < BPPSA_NPY_CODES; ++i) {
    if (strcmp(descr + 1, bppsa_npy_codes[i].code) != 0) {
      continue;
    }
    const bool one_byte = bppsa_dtype_size(bppsa_npy_codes[i].dtype) == 1;
    if (descr[0] == '<' || descr[0] == '>' || (one_byte && descr[0] == '|')) {
      header->swapped = descr[0] == '>' && !one_byte;
      header->dtype = bppsa_npy_codes[i].dtype;
      return BPPSA_OK;
    }
  }
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                    "%s: byte %lld: dtype '%s'%s, expected one of '<f4' '<f8' '<i8' '<i4' '<i2' '|i1' '|u1' '|b1' '<f2' '<u2' "
                    "'<u4' '<u8'",
                    c->path, byte, descr, descr[1] == 'O' ? ", Python objects" : "");
}

static bppsa_status take_order(cursor *c, npy_header *header) {
  skip_space(c);
  header->fortran = take_word(c, "True");
  return header->fortran || take_word(c, "False") ? BPPSA_OK : unexpected(c, "True or False");
}

/* The next character after white space must be a digit. */
static bppsa_status take_extent(cursor *c, int64_t *extent) {
  skip_space(c);
  const int64_t start = c->at;
  int64_t value = 0;
  while (c->at < c->size && c->text[c->at] >= '0' && c->text[c->at] <= '9') {
    const int64_t digit = c->text[c->at] - '0';
    if (value > (INT64_MAX - digit) / 10) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: the extent does not fit in 64 bits", c->path,
                        (long long)(c->offset + start));
    }
    value = 10 * value + digit;
    ++c->at;
  }
  if (c->at == start) {
    return unexpected(c, "an extent, 0 or more");
  }
  *extent = value;
  return BPPSA_OK;
}

/* Reads (), (3,), (3, 4) or (3, 4,): a single extent needs its comma. */
static bppsa_status take_shape(cursor *c, npy_header *header) {
  skip_space(c);
  header->shape_at = c->offset + c->at;
  if (!take(c, '(')) {
    return unexpected(c, "'(' of the shape");
  }
  header->ndim = 0;
  bool comma = true;
  while (!take(c, ')')) {
    if (!comma) {
      return unexpected(c, "',' or ')' in the shape");
    }
    if (header->ndim == BPPSA_MAX_DIMS) {
      return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: byte %lld: more dimensions, expected at most %d", c->path,
                        (long long)(c->offset + c->at), BPPSA_MAX_DIMS);
    }
    BPPSA_TRY(take_extent(c, &header->shape[header->ndim]));
    ++header->ndim;
    comma = take(c, ',');
  }
  if (header->ndim == 1 && !comma) {
    --c->at;
    return unexpected(c, "',' after the only extent");
  }
  return BPPSA_OK;
}

static const struct {
  const char *name;
  bppsa_status (*take_value)(cursor *c, npy_header *header);
} keys[] = {{"descr", take_descr}, {"fortran_order", take_order}, {"shape", take_shape}};

#define KEY_COUNT (sizeof keys / sizeof keys[0])

/* Reads one pair "'key': value". seen: the keys that came before. */
static bppsa_status take_pair(cursor *c, bool seen[KEY_COUNT], npy_header *header) {
  char name[32];
  skip_space(c);
  const long long byte = (long long)(c->offset + c->at);
  BPPSA_TRY(take_string(c, name, sizeof name));
  size_t key = 0;
  while (key < KEY_COUNT && strcmp(name, keys[key].name) != 0) {
    ++key;
  }
  if (key == KEY_COUNT || seen[key]) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: key '%s' %s, expected descr, fortran_order and shape once each", c->path,
                      byte, name, key == KEY_COUNT ? "is unknown" : "comes twice");
  }
  seen[key] = true;
  if (!take(c, ':')) {
    return unexpected(c, "':'");
  }
  return keys[key].take_value(c, header);
}

static bppsa_status parse_dictionary(cursor *c, npy_header *header) {
  if (!take(c, '{')) {
    return unexpected(c, "'{'");
  }
  bool seen[KEY_COUNT] = {false};
  bool comma = true;
  while (!take(c, '}')) {
    if (!comma) {
      return unexpected(c, "',' or '}'");
    }
    BPPSA_TRY(take_pair(c, seen, header));
    comma = take(c, ',');
  }
  for (size_t key = 0; key < KEY_COUNT; ++key) {
    if (!seen[key]) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: the header ends without the key '%s'", c->path,
                        (long long)(c->offset + c->at), keys[key].name);
    }
  }
  skip_space(c);
  if (c->at != c->size) {
    return unexpected(c, "spaces up to the end of the header");
  }
  return BPPSA_OK;
}

/* ---- reading ---- */

/* Reads magic, version and header length; *length is at most what the file holds. */
static bppsa_status read_prefix(bppsa_file_reader *reader, int64_t *length, bool *archive) {
  unsigned char prefix[12];
  if (reader->size < 10) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: the file ends there, expected the 10 bytes an NPY file begins with",
                      reader->path, (long long)reader->size);
  }
  BPPSA_TRY(bppsa_file_reader_read(reader, prefix, 10));
  if (memcmp(prefix, "\x93NUMPY", 6) != 0) {
    *archive = memcmp(prefix, "PK\x03\x04", 4) == 0;
    char found[BPPSA_BEGINNING_TEXT];
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte 0: '%s', expected \\x93NUMPY, with which an NPY file begins", reader->path,
                      bppsa_text_beginning(prefix, 10, found));
  }
  if (prefix[6] < 1 || prefix[6] > 3 || prefix[7] != 0) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: byte 6: NPY version %d.%d, expected 1.0, 2.0 or 3.0", reader->path, prefix[6],
                      prefix[7]);
  }
  *length = prefix[8] | (int64_t)prefix[9] << 8;
  if (prefix[6] > 1) {
    if (reader->size < 12) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: the file ends inside the header's length", reader->path,
                        (long long)reader->size);
    }
    BPPSA_TRY(bppsa_file_reader_read(reader, prefix + 10, 2));
    *length |= (int64_t)prefix[10] << 16 | (int64_t)prefix[11] << 24;
  }
  const int64_t left = reader->size - reader->offset;
  if (*length > left) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte 8: a header of %lld bytes, but the file has %lld after its length",
                      reader->path, (long long)*length, (long long)left);
  }
  if (*length > BPPSA_NPY_HEADER_LIMIT) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte 8: a header of %lld bytes, expected at most %lld", reader->path,
                      (long long)*length, (long long)BPPSA_NPY_HEADER_LIMIT);
  }
  return BPPSA_OK;
}

static bppsa_status read_header(bppsa_file_reader *reader, npy_header *header, bool *archive) {
  int64_t length = 0;
  BPPSA_TRY(read_prefix(reader, &length, archive));
  const int64_t offset = reader->offset;
  char *text = bppsa_alloc((size_t)length);
  if (text == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_status status = bppsa_file_reader_read(reader, text, length);
  if (status == BPPSA_OK) {
    cursor c = {.path = reader->path, .text = text, .size = length, .at = 0, .offset = offset};
    status = parse_dictionary(&c, header);
  }
  bppsa_free(text);
  return status;
}

/* Brings elements that were read as they lie in the file into the machine's order of bytes and into C order. On failure they are
 * freed. */
static bppsa_status arrange(const npy_header *header, void *data, bppsa_buffer *array) {
  bppsa_view view = bppsa_view_make(data, header->dtype, header->ndim, header->shape);
  if (header->swapped) {
    bppsa_number_swap(&view);
  }
  if (header->fortran && header->ndim > 1) {
    const bppsa_status status = bppsa_number_reorder(&view, &data);
    bppsa_free(view.data);
    BPPSA_TRY(status);
    view.data = data;
  }
  *array = (bppsa_buffer){.view = view};
  return BPPSA_OK;
}

/* *archive: whether it failed because the file is a ZIP archive, as NPZ files are. */
static bppsa_status read_array(bppsa_file_reader *reader, bppsa_buffer *array, bool *archive) {
  npy_header header = {0};
  BPPSA_TRY(read_header(reader, &header, archive));
  size_t bytes = 0;
  if (bppsa_shape_bytes(header.dtype, header.ndim, header.shape, NULL, &bytes) != BPPSA_OK) {
    return bppsa_fail_prefix(BPPSA_ERR_FORMAT, "%s: byte %lld", reader->path, (long long)header.shape_at);
  }
  const int64_t left = reader->size - reader->offset;
  if ((int64_t)bytes != left) {
    char text[BPPSA_SHAPE_TEXT];
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: shape %s of %s needs %zu bytes, the file has %lld there", reader->path,
                      (long long)reader->offset, bppsa_shape_text(header.ndim, header.shape, text, sizeof text),
                      bppsa_dtype_name(header.dtype), bytes, (long long)left);
  }
  void *data = bppsa_alloc(bytes);
  if (data == NULL) {
    return bppsa_fail_prefix(BPPSA_ERR_MEMORY, "%s", reader->path);
  }
  const bppsa_status status = bppsa_file_reader_read(reader, data, left);
  if (status != BPPSA_OK) {
    bppsa_free(data);
    return status;
  }
  return arrange(&header, data, array);
}

bppsa_status bppsa_npy_load(const char *path, bppsa_buffer *array) {
  BPPSA_REQUIRE(path != NULL && array != NULL);
  bppsa_file_reader reader = {0};
  if (bppsa_npy_is_member(path)) {
    return bppsa_npy_load_archive(path, array);
  }
  BPPSA_TRY(bppsa_file_reader_open(path, &reader));
  bool archive = false;
  const bppsa_status status = read_array(&reader, array, &archive);
  bppsa_file_reader_close(&reader);
  return archive ? bppsa_npy_load_archive(path, array) : status;
}

/* Replaces an array that was loaded from `path` by one of f32 or f64 with the same numbers. */
static bppsa_status replace(const char *path, bppsa_dtype dtype, bppsa_buffer *array) {
  void *data = NULL;
  BPPSA_TRY(bppsa_number_convert(path, &array->view, dtype, &data));
  bppsa_free(array->view.data);
  array->view = bppsa_view_make(data, dtype, array->view.ndim, array->view.shape);
  return BPPSA_OK;
}

bppsa_status bppsa_npy_to_reals(const char *path, bppsa_buffer *array) {
  BPPSA_REQUIRE(path != NULL && array != NULL);
  if (array->view.dtype == BPPSA_F32 || array->view.dtype == BPPSA_F64) {
    return BPPSA_OK;
  }
  const bppsa_status status = replace(path, BPPSA_F32, array);
  return status == BPPSA_ERR_FORMAT ? replace(path, BPPSA_F64, array) : status;
}

bppsa_status bppsa_npy_to_whole(const char *path, bppsa_buffer *array) {
  BPPSA_REQUIRE(path != NULL && array != NULL);
  const bppsa_view *view = &array->view;
  bppsa_buffer whole = {0};
  BPPSA_TRY(bppsa_buffer_make(BPPSA_I64, view->ndim, view->shape, &whole));
  for (int64_t i = 0; i < bppsa_view_count(view); ++i) {
    if (!bppsa_number_whole(view, i, (int64_t *)whole.view.data + i)) {
      bppsa_buffer_free(&whole);
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: dtype %s, expected i64", path, bppsa_dtype_name(view->dtype));
    }
  }
  bppsa_buffer_free(array);
  *array = whole;
  return BPPSA_OK;
}

bppsa_status bppsa_npy_load_whole(const char *path, bppsa_buffer *array) {
  bppsa_buffer loaded = {0};
  BPPSA_TRY(bppsa_npy_load(path, &loaded));
  const bppsa_status status = bppsa_npy_to_whole(path, &loaded);
  if (status != BPPSA_OK) {
    bppsa_buffer_free(&loaded);
    return status;
  }
  *array = loaded;
  return BPPSA_OK;
}

bppsa_status bppsa_npy_load_reals(const char *path, bppsa_dtype dtype, bppsa_buffer *array) {
  bppsa_buffer loaded = {0}, converted = {0};
  BPPSA_TRY(bppsa_npy_load(path, &loaded));
  const bool real = loaded.view.dtype == BPPSA_F32 || loaded.view.dtype == BPPSA_F64;
  bppsa_status status = real ? BPPSA_OK : replace(path, dtype, &loaded);
  if (status == BPPSA_OK) {
    status = bppsa_buffer_make(dtype, loaded.view.ndim, loaded.view.shape, &converted);
  }
  if (status == BPPSA_OK) {
    status = bppsa_view_convert(&loaded.view, &converted.view);
  }
  const int64_t count = status == BPPSA_OK ? bppsa_view_count(&converted.view) : 0;
  for (int64_t i = 0; status == BPPSA_OK && i < count; ++i) {
    if (!isfinite(bppsa_view_get(&converted.view, i))) {
      char position[BPPSA_SHAPE_TEXT];
      status = bppsa_fail(BPPSA_ERR_FORMAT, "%s: element %" PRId64 " is not finite in %s, expected finite values: %g at %s", path,
                          i, bppsa_dtype_name(dtype), bppsa_view_get(&loaded.view, i),
                          bppsa_index_text(&loaded.view, i, position, sizeof position));
    }
  }
  bppsa_buffer_free(&loaded);
  if (status != BPPSA_OK) {
    bppsa_buffer_free(&converted);
    return status;
  }
  *array = converted;
  return BPPSA_OK;
}

/* Parses the header of an array in memory; its elements begin at *start. */
static bppsa_status parse_header(const char *where, const void *data, int64_t size, npy_header *header, int64_t *start) {
  const unsigned char *bytes = data;
  if (size < 10 || memcmp(bytes, "\x93NUMPY", 6) != 0 || bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte 0: not an array of NPY version 1.0, 2.0 or 3.0", where);
  }
  const int64_t text = bytes[6] > 1 ? 12 : 10;
  int64_t length = bytes[8] | (int64_t)bytes[9] << 8;
  length |= text == 12 && size >= 12 ? (int64_t)bytes[10] << 16 | (int64_t)bytes[11] << 24 : 0;
  if (length > size - text || length > BPPSA_NPY_HEADER_LIMIT) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte 8: a header of %lld bytes, expected at most %lld", where, (long long)length,
                      (long long)(size - text < BPPSA_NPY_HEADER_LIMIT ? size - text : BPPSA_NPY_HEADER_LIMIT));
  }
  cursor c = {.path = where, .text = (const char *)bytes + text, .size = length, .at = 0, .offset = text};
  BPPSA_TRY(parse_dictionary(&c, header));
  size_t needed = 0;
  if (bppsa_shape_bytes(header->dtype, header->ndim, header->shape, NULL, &needed) != BPPSA_OK) {
    return bppsa_fail_prefix(BPPSA_ERR_FORMAT, "%s: byte %lld", where, (long long)header->shape_at);
  }
  if ((int64_t)needed != size - text - length) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: the shape needs %zu bytes, there are %lld", where,
                      (long long)(text + length), needed, (long long)(size - text - length));
  }
  *start = text + length;
  return BPPSA_OK;
}

bppsa_status bppsa_npy_parse(const char *where, const void *data, int64_t size, bppsa_view *view) {
  BPPSA_REQUIRE(where != NULL && data != NULL && view != NULL);
  npy_header header = {0};
  int64_t start = 0;
  BPPSA_TRY(parse_header(where, data, size, &header, &start));
  if (header.swapped || (header.fortran && header.ndim > 1)) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: %s, expected %s", where, header.swapped ? "big-endian" : "Fortran order",
                      header.swapped ? "little-endian" : "C order (numpy.ascontiguousarray)");
  }
  *view = bppsa_view_make((char *)(uintptr_t)data + start, header.dtype, header.ndim, header.shape);
  return BPPSA_OK;
}

bppsa_status bppsa_npy_copy(const char *where, const void *data, int64_t size, bppsa_buffer *array) {
  BPPSA_REQUIRE(where != NULL && data != NULL && array != NULL);
  npy_header header = {0};
  int64_t start = 0;
  BPPSA_TRY(parse_header(where, data, size, &header, &start));
  void *copy = bppsa_alloc((size_t)(size - start));
  if (copy == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  memcpy(copy, (const char *)data + start, (size_t)(size - start));
  return arrange(&header, copy, array);
}
