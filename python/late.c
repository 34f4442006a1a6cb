/* jansson and zlib, loaded when a command first runs. The library of the package does not name them as libraries that it needs, so
 * that it is imported, and layers and scans work, where they are missing. Each function here stands in front of the one of the same
 * name and hands the call on. Where the library is missing it returns 0, but commands ask bppsa_python_load first.
 *
 * With BPPSA_PYTHON_LINKED the package is linked with both libraries, as tools/wheel wants it, and nothing is loaded here. */
#include "python/native.h"

#ifdef BPPSA_PYTHON_LINKED
bppsa_status bppsa_python_load(void) {
  return BPPSA_OK;
}
#else
#include <jansson.h>
#include <stdarg.h>
#include <zlib.h>

#include "core/compute/library.h"

/* with(type, name, parameters, arguments) for every function that the library calls and that returns something. */
#define JANSSON_FUNCTIONS(with)                                                                                                  \
  with(json_t *, json_object, (void), ()) with(size_t, json_object_size, (const json_t *object), (object)) with(                 \
      json_t *, json_object_get, (const json_t *object, const char *key),                                                        \
      (object, key)) with(int, json_object_set_new, (json_t * object, const char *key, json_t *value),                           \
                          (object, key, value)) with(int, json_object_del, (json_t * object, const char *key), (object, key))    \
      with(int, json_object_update_missing, (json_t * object, json_t * other), (object, other)) with(                            \
          void *, json_object_iter, (json_t * object), (object)) with(void *, json_object_key_to_iter, (const char *key), (key)) \
          with(void *, json_object_iter_next,                                                                                    \
               (json_t * object, void *at), (object, at)) with(const char *, json_object_iter_key, (void *at),                   \
                                                               (at)) with(json_t *, json_object_iter_value, (void *at), (at))    \
              with(json_t *, json_array, (void), ()) with(size_t, json_array_size, (const json_t *array), (array))               \
                  with(json_t *, json_array_get, (const json_t *array, size_t index),                                            \
                       (array, index)) with(int, json_array_append_new, (json_t * array, json_t * value), (array, value))        \
                      with(int, json_array_remove, (json_t * array, size_t index),                                               \
                           (array, index)) with(json_t *, json_string, (const char *value),                                      \
                                                (value)) with(const char *, json_string_value, (const json_t *string), (string)) \
                          with(json_t *, json_integer, (json_int_t value), (value))                                              \
                              with(json_int_t, json_integer_value, (const json_t *integer), (integer))                           \
                                  with(json_t *, json_real, (double value), (value))                                             \
                                      with(double, json_number_value, (const json_t *number), (number))                          \
                                          with(json_t *, json_true, (void), ()) with(json_t *, json_false, (void), ())           \
                                              with(json_t *, json_null, (void), ())                                              \
                                                  with(int, json_equal, (const json_t *a, const json_t *b), (a, b))              \
                                                      with(json_t *, json_loadb,                                                 \
                                                           (const char *text, size_t size, size_t flags, json_error_t *error),   \
                                                           (text, size, flags, error))                                           \
                                                          with(int, json_dump_callback,                                          \
                                                               (const json_t *value, json_dump_callback_t callback, void *data,  \
                                                                size_t flags),                                                   \
                                                               (value, callback, data, flags))
#define ZLIB_FUNCTIONS(with)                                                                                                     \
  with(uLong, crc32_z, (uLong crc, const Bytef *data, z_size_t size), (crc, data, size)) with(uLong, compressBound,              \
                                                                                              (uLong size), (size))              \
      with(int, compress2, (Bytef * to, uLongf * room, const Bytef *from, uLong size, int level), (to, room, from, size, level)) \
          with(int, inflateInit2_, (z_streamp stream, int bits, const char *version, int size), (stream, bits, version, size))   \
              with(int, inflate, (z_streamp stream, int flush), (stream, flush))                                                 \
                  with(int, inflateEnd, (z_streamp stream), (stream))

#define MEMBER(type, name, parameters, arguments) __typeof__(&name) name;
static struct {
  JANSSON_FUNCTIONS(MEMBER)
  ZLIB_FUNCTIONS(MEMBER)
  __typeof__(&json_delete) json_delete;
  __typeof__(&json_vpack_ex) json_vpack_ex;
} loaded;

#define LOOK_UP(type, name, parameters, arguments) BPPSA_LIBRARY_FUNCTION(name)
static const bppsa_library_function jansson[] = {JANSSON_FUNCTIONS(LOOK_UP) BPPSA_LIBRARY_FUNCTION(json_delete)
                                                     BPPSA_LIBRARY_FUNCTION(json_vpack_ex)};
static const bppsa_library_function zlib[] = {ZLIB_FUNCTIONS(LOOK_UP)};
static const bppsa_library list[] = {
    BPPSA_LIBRARY("libjansson.so.4", "libjansson4", jansson), BPPSA_LIBRARY("libz.so.1", "zlib1g", zlib), {.file = NULL}};
static bppsa_libraries libraries = BPPSA_LIBRARIES(list);

static bool ready(void) {
  return bppsa_libraries_load(&libraries) == NULL;
}

bppsa_status bppsa_python_load(void) {
  return ready() ? BPPSA_OK : bppsa_fail(BPPSA_ERR_LIBRARY, "commands: %s", libraries.problem);
}

/* ---- the functions ---- */

#define STAND_IN(type, name, parameters, arguments)                                                                              \
  type name parameters {                                                                                                         \
    return ready() ? loaded.name arguments : (type)0;                                                                            \
  }
JANSSON_FUNCTIONS(STAND_IN)
ZLIB_FUNCTIONS(STAND_IN)

void json_delete(json_t *value) {
  if (ready()) {
    loaded.json_delete(value);
  }
}

json_t *json_pack(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  json_t *value = ready() ? loaded.json_vpack_ex(NULL, 0, format, arguments) : NULL;
  va_end(arguments);
  return value;
}
#endif
