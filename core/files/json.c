#include "core/files/json.h"

#include <errno.h>
#include <math.h>

#include "core/base/alloc.h"
#include "core/base/text.h"
#include "core/files/file.h"

/* jansson takes at most this much memory for a text: "{}," is three bytes, and its value has 240. */
#define MEMORY_PER_BYTE 96
#define MEMORY_ANYWAY 16384 /* its lexer's buffers, and the tables of a document of a few bytes */

bool bppsa_json_out_of_memory(void) {
  const bool answer = errno == ENOMEM;
  errno = 0;
  return answer;
}

/* Is there memory for the value of such a text? jansson's lexer does not check every allocation: after a failed one it runs into
 * an assertion and ends the program. */
static bool has_memory(int64_t size) {
  void *all = bppsa_alloc((size_t)size * MEMORY_PER_BYTE + MEMORY_ANYWAY);
  bppsa_free(all);
  return all != NULL;
}

bppsa_status bppsa_json_parse_at(const char *where, const char *text, int64_t size, int64_t offset, json_t **value) {
  BPPSA_REQUIRE(where != NULL && text != NULL && size >= 0 && value != NULL);
  if (size > BPPSA_JSON_LIMIT) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: %lld bytes of JSON, expected at most %lld", where, (long long)size,
                      (long long)BPPSA_JSON_LIMIT);
  }
  if (!has_memory(size)) {
    return bppsa_fail_prefix(BPPSA_ERR_MEMORY, "%s", where);
  }
  (void)bppsa_json_out_of_memory();
  json_error_t error;
  json_t *parsed = json_loadb(text, (size_t)size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
  if (parsed == NULL && bppsa_json_out_of_memory()) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "%s: out of memory", where);
  }
  if (parsed == NULL) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: line %d, column %d, byte %lld: %s, expected valid JSON", where, error.line,
                      error.column, (long long)offset + error.position, error.text);
  }
  *value = parsed;
  return BPPSA_OK;
}

bppsa_status bppsa_json_parse(const char *where, const char *text, int64_t size, json_t **value) {
  return bppsa_json_parse_at(where, text, size, 0, value);
}

bppsa_status bppsa_json_load(const char *path, json_t **value) {
  BPPSA_REQUIRE(path != NULL && value != NULL);
  char *text = NULL;
  int64_t size = 0;
  BPPSA_TRY(bppsa_file_read(path, BPPSA_JSON_LIMIT, &text, &size));
  const int64_t mark = bppsa_text_order_mark(text, size);
  bppsa_status status = bppsa_text_check_encoding(path, text, size);
  status = status == BPPSA_OK ? bppsa_json_parse_at(path, text + mark, size - mark, mark, value) : status;
  bppsa_free(text);
  return status;
}

static int add_piece(const char *piece, size_t size, void *context) {
  bppsa_text *text = context;
  bppsa_text_append(text, piece, size);
  return text->failed ? -1 : 0;
}

bppsa_status bppsa_json_text(const json_t *value, int indent, int digits, char **text) {
  BPPSA_REQUIRE(text != NULL);
  if (indent < 0 || indent > 31 || digits < 0 || digits > 17) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "JSON: indent %d and %d digits, expected 0 .. 31 and 0 .. 17", indent, digits);
  }
  (void)bppsa_json_out_of_memory();
  const size_t flags = JSON_ENCODE_ANY | JSON_INDENT((size_t)indent) | JSON_REAL_PRECISION((size_t)digits);
  bppsa_text made = {0};
  const bool written = json_dump_callback(value, add_piece, &made, flags) == 0;
  const bool no_memory = bppsa_json_out_of_memory();
  bppsa_status status = bppsa_text_check(&made); /* jansson passes over a key that could not be added */
  if (status == BPPSA_OK && !written) {
    status = no_memory ? bppsa_fail(BPPSA_ERR_MEMORY, "JSON: out of memory")
                       : bppsa_fail(BPPSA_ERR_ARGUMENT,
                                    "JSON: the value cannot be written: it is NULL, contains itself or is nested too deep");
  }
  if (status != BPPSA_OK) {
    bppsa_text_free(&made);
    return status;
  }
  *text = made.text;
  return BPPSA_OK;
}

const char *bppsa_json_found(const json_t *value, char text[BPPSA_JSON_FOUND]) {
  static const char *const types[] = {"an object", NULL, "a text", NULL, NULL, "true", "false", "null"};
  const char *type = value == NULL ? "missing" : types[json_typeof(value)];
  if (type != NULL) {
    return type;
  }
  if (json_is_array(value)) {
    snprintf(text, BPPSA_JSON_FOUND, "a list of %zu", json_array_size(value));
    return text;
  }
  return bppsa_real_text(json_number_value(value), text);
}

json_t *bppsa_json_real(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

bool bppsa_json_put(json_t *object, const char *key, json_t *value) {
  if (json_object_set_new(object, key, value) == 0) {
    return true;
  }
  bppsa_fail(BPPSA_ERR_MEMORY, "out of memory: \"%s\" of a JSON document", key);
  return false;
}

bool bppsa_json_put_integer(json_t *object, const char *key, int64_t value) {
  return bppsa_json_put(object, key, json_integer(value));
}

bool bppsa_json_put_real(json_t *object, const char *key, double value) {
  return bppsa_json_put(object, key, bppsa_json_real(value));
}

json_t *bppsa_json_string(const char *value) {
  errno = 0;
  json_t *text = json_string(value);
  if (text != NULL || errno == ENOMEM) { /* the caller looks at errno */
    return text;
  }
  char *printable = bppsa_strdup(value);
  if (printable == NULL) {
    errno = ENOMEM;
    return NULL;
  }
  bppsa_make_printable(printable);
  text = json_string(printable);
  bppsa_free(printable);
  return text;
}

bool bppsa_json_put_text(json_t *object, const char *key, const char *value) {
  return bppsa_json_put(object, key, bppsa_json_string(value));
}

bool bppsa_json_put_bool(json_t *object, const char *key, bool value) {
  return bppsa_json_put(object, key, json_boolean(value));
}

bool bppsa_json_put_shape(json_t *object, const char *key, int32_t ndim, const int64_t *shape) {
  json_t *array = json_array();
  bool ok = array != NULL;
  for (int32_t d = 0; ok && d < ndim; ++d) {
    ok = json_array_append_new(array, json_integer(shape[d])) == 0;
  }
  return bppsa_json_put(object, key, bppsa_json_finish(array, ok));
}

json_t *bppsa_json_finish(json_t *object, bool ok) {
  if (ok) {
    return object;
  }
  json_decref(object); /* NULL is legal */
  bppsa_fail(BPPSA_ERR_MEMORY, "out of memory: a JSON document");
  return NULL;
}

bppsa_status bppsa_json_render(json_t *document, char **text) {
  if (document == NULL) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "JSON document: out of memory, expected room for the results");
  }
  const bppsa_status status = bppsa_json_text(document, 0, 0, text);
  json_decref(document);
  return status;
}
