#include "core/npy.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/file.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little-endian and are read in place");

static const struct {
  const char *code; /* type code without the byte order */
  bppsa_dtype dtype;
} codes[] = {{"f4", BPPSA_F32}, {"f8", BPPSA_F64},  {"i8", BPPSA_I64}, {"i4", BPPSA_I32}, {"i2", BPPSA_I16}, {"i1", BPPSA_I8},
             {"u1", BPPSA_U8},  {"b1", BPPSA_BOOL}, {"f2", BPPSA_F16}, {"u2", BPPSA_U16}, {"u4", BPPSA_U32}, {"u8", BPPSA_U64}};

#define CODE_COUNT (sizeof codes / sizeof codes[0])

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
  bool fortran;
  int64_t fortran_at, shape_at; /* bytes of the file where these values begin */
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
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: byte %lld: an array with fields, expected one dtype", c->path, byte);
  }
  char descr[32];
  BPPSA_TRY(take_string(c, descr, sizeof descr));
  for (size_t i = 0; descr[0] != '\0' && i < CODE_COUNT; ++i) {
    if (strcmp(descr + 1, codes[i].code) != 0) {
      continue;
    }
    const bool one_byte = bppsa_dtype_size(codes[i].dtype) == 1;
    if (descr[0] == '>' && !one_byte) {
      return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: byte %lld: dtype '%s' is big-endian, expected '<%s'", c->path, byte, descr,
                        codes[i].code);
    }
    if (descr[0] == '<' || (one_byte && (descr[0] == '|' || descr[0] == '>'))) {
      header->dtype = codes[i].dtype;
      return BPPSA_OK;
    }
  }
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                    "%s: byte %lld: dtype '%s', expected one of '<f4' '<f8' '<i8' '<i4' '<i2' '|i1' '|u1' '|b1' '<f2' '<u2' "
                    "'<u4' '<u8'",
                    c->path, byte, descr);
}

static bppsa_status take_order(cursor *c, npy_header *header) {
  skip_space(c);
  header->fortran_at = c->offset + c->at;
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
      return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: byte %lld: more than %d dimensions", c->path, (long long)(c->offset + c->at),
                        BPPSA_MAX_DIMS);
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
  if (header->fortran && header->ndim > 1) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: byte %lld: Fortran order, expected C order (numpy.ascontiguousarray)", c->path,
                      (long long)header->fortran_at);
  }
  return BPPSA_OK;
}

/* ---- reading ---- */

/* Reads magic, version and header length; *length is at most what the file holds. */
static bppsa_status read_prefix(bppsa_file_reader *reader, int64_t *length) {
  unsigned char prefix[12];
  if (reader->size < 10) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: the file ends there, expected the 10 bytes an NPY file begins with",
                      reader->path, (long long)reader->size);
  }
  BPPSA_TRY(bppsa_file_reader_read(reader, prefix, 10));
  if (memcmp(prefix, "\x93NUMPY", 6) != 0) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte 0: not an NPY file (it does not begin with \\x93NUMPY)", reader->path);
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

static bppsa_status read_header(bppsa_file_reader *reader, npy_header *header) {
  int64_t length = 0;
  BPPSA_TRY(read_prefix(reader, &length));
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

static bppsa_status read_array(bppsa_file_reader *reader, bppsa_buffer *array) {
  npy_header header = {0};
  BPPSA_TRY(read_header(reader, &header));
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
  *array = (bppsa_buffer){.view = bppsa_view_make(data, header.dtype, header.ndim, header.shape)};
  return BPPSA_OK;
}

bppsa_status bppsa_npy_load(const char *path, bppsa_buffer *array) {
  BPPSA_REQUIRE(path != NULL && array != NULL);
  bppsa_file_reader reader = {0};
  BPPSA_TRY(bppsa_file_reader_open(path, &reader));
  const bppsa_status status = read_array(&reader, array);
  bppsa_file_reader_close(&reader);
  return status;
}

bppsa_status bppsa_npy_load_reals(const char *path, bppsa_dtype dtype, bppsa_buffer *array) {
  bppsa_buffer loaded = {0}, converted = {0};
  BPPSA_TRY(bppsa_npy_load(path, &loaded));
  bppsa_status status = BPPSA_OK;
  if (loaded.view.dtype != BPPSA_F32 && loaded.view.dtype != BPPSA_F64) {
    status = bppsa_fail(BPPSA_ERR_FORMAT, "%s: dtype %s, expected f32 or f64", path, bppsa_dtype_name(loaded.view.dtype));
  }
  if (status == BPPSA_OK) {
    status = bppsa_buffer_create(NULL, dtype, loaded.view.ndim, loaded.view.shape, &converted);
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

bppsa_status bppsa_npy_parse(const char *where, const void *data, int64_t size, bppsa_view *view) {
  BPPSA_REQUIRE(where != NULL && data != NULL && view != NULL);
  const unsigned char *bytes = data;
  if (size < 10 || memcmp(bytes, "\x93NUMPY", 6) != 0 || bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte 0: not an array of NPY version 1.0, 2.0 or 3.0", where);
  }
  const int64_t start = bytes[6] > 1 ? 12 : 10;
  int64_t length = bytes[8] | (int64_t)bytes[9] << 8;
  length |= start == 12 && size >= 12 ? (int64_t)bytes[10] << 16 | (int64_t)bytes[11] << 24 : 0;
  if (length > size - start || length > BPPSA_NPY_HEADER_LIMIT) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte 8: a header of %lld bytes, expected at most %lld", where, (long long)length,
                      (long long)(size - start < BPPSA_NPY_HEADER_LIMIT ? size - start : BPPSA_NPY_HEADER_LIMIT));
  }
  cursor c = {.path = where, .text = (const char *)bytes + start, .size = length, .at = 0, .offset = start};
  npy_header header = {0};
  BPPSA_TRY(parse_dictionary(&c, &header));
  size_t needed = 0;
  if (bppsa_shape_bytes(header.dtype, header.ndim, header.shape, NULL, &needed) != BPPSA_OK) {
    return bppsa_fail_prefix(BPPSA_ERR_FORMAT, "%s: byte %lld", where, (long long)header.shape_at);
  }
  if ((int64_t)needed != size - start - length) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: byte %lld: the shape needs %zu bytes, there are %lld", where,
                      (long long)(start + length), needed, (long long)(size - start - length));
  }
  *view = bppsa_view_make((char *)(uintptr_t)data + start + length, header.dtype, header.ndim, header.shape);
  return BPPSA_OK;
}

/* ---- writing ---- */

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
  while (code < CODE_COUNT && codes[code].dtype != dtype) {
    ++code;
  }
  if (code == CODE_COUNT) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: NPY files have no dtype for %s", path, bppsa_dtype_name(dtype));
  }
  const size_t start = 10, room = BPPSA_NPY_HEADER;
  memcpy(text, "\x93NUMPY\x01", 8); /* version 1.0; the string's own 0 is the minor version */
  size_t used = start;
  used += (size_t)snprintf(text + used, room - used, "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
                           bppsa_dtype_size(dtype) == 1 ? '|' : '<', codes[code].code);
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
