#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "core/json.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>

#include "core/alloc.h"
#include "core/file.h"

#define JSON_FILE_LIMIT ((int64_t)64 << 20)

/* ---- memory ----
 *
 * jansson's lexer does not check every allocation: after a failed one it runs into an assertion and ends the program. So
 * while a text is parsed, a failing allocation jumps out of the parser, and what the parser had allocated is released from
 * a list that goes through the front of every block.
 */

typedef struct block {
  struct block *previous, *next; /* NULL outside the list */
} block;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local bool out_of_memory;
static _Thread_local block *parsing;  /* the list's head, while a text is parsed */
static _Thread_local jmp_buf *escape; /* likewise */

static void *allocate(size_t bytes) {
  block *made = bytes <= SIZE_MAX - sizeof *made ? bppsa_alloc(bytes + sizeof *made) : NULL;
  if (made == NULL) {
    out_of_memory = true;
    if (escape != NULL) {
      longjmp(*escape, 1);
    }
    return NULL;
  }
  *made = (block){NULL, NULL};
  if (parsing != NULL) {
    *made = (block){parsing, parsing->next};
    parsing->next->previous = made;
    parsing->next = made;
  }
  return made + 1;
}

static void release(void *pointer) {
  if (pointer == NULL) {
    return;
  }
  block *old = (block *)pointer - 1;
  if (old->next != NULL) {
    old->previous->next = old->next;
    old->next->previous = old->previous;
  }
  bppsa_free(old);
}

/* Takes every block off the list: `freed` or handed on. */
static void empty_list(block *head, bool freed) {
  for (block *b = head->next; b != head;) {
    block *next = b->next;
    *b = (block){NULL, NULL};
    if (freed) {
      bppsa_free(b);
    }
    b = next;
  }
}

/* NULL on failure; nothing is left of it then. */
static json_t *parse(const char *text, size_t size, json_error_t *error) {
  block head = {&head, &head};
  jmp_buf target;
  parsing = &head;
  escape = &target;
  json_t *volatile parsed = NULL;
  if (setjmp(target) == 0) {
    parsed = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, error);
  }
  parsing = NULL;
  escape = NULL;
  empty_list(&head, parsed == NULL);
  return parsed;
}

static void start(void) {
  json_set_alloc_funcs(allocate, release);
  json_object_seed(1); /* a fixed hash seed: the same run allocates the same blocks every time */
}

void bppsa_json_start(void) {
  pthread_once(&once, start);
}

bool bppsa_json_out_of_memory(void) {
  const bool answer = out_of_memory;
  out_of_memory = false;
  return answer;
}

bppsa_status bppsa_json_parse_at(const char *where, const char *text, int64_t size, int64_t offset, json_t **value) {
  bppsa_json_start();
  (void)bppsa_json_out_of_memory();
  json_error_t error;
  json_t *parsed = parse(text, (size_t)size, &error);
  if (parsed == NULL && bppsa_json_out_of_memory()) {
    return bppsa_fail_prefix(BPPSA_ERR_MEMORY, "%s", where);
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
  char *text = NULL;
  int64_t size = 0;
  BPPSA_TRY(bppsa_file_read(path, JSON_FILE_LIMIT, &text, &size));
  const bppsa_status status = bppsa_json_parse(path, text, size, value);
  bppsa_free(text);
  return status;
}

bppsa_status bppsa_json_text(const json_t *value, int indent, int digits, char **text) {
  if (indent < 0 || indent > 31 || digits < 0 || digits > 17) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "JSON: indent %d and %d digits, expected 0 .. 31 and 0 .. 17", indent, digits);
  }
  bppsa_json_start();
  (void)bppsa_json_out_of_memory();
  const size_t flags = JSON_ENCODE_ANY | JSON_INDENT((size_t)indent) | JSON_REAL_PRECISION((size_t)digits);
  char *result = json_dumps(value, flags);
  if (bppsa_json_out_of_memory()) { /* json_dumps leaves out a key it has no memory for, and goes on */
    release(result);
    return BPPSA_ERR_MEMORY;
  }
  if (result == NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "JSON: the value cannot be written: it is NULL, contains itself or is nested too deep");
  }
  char *copy = bppsa_strdup(result); /* jansson's block has a front of its own */
  release(result);
  if (copy == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  *text = copy;
  return BPPSA_OK;
}

json_t *bppsa_json_real(double value) {
  bppsa_json_start();
  return isfinite(value) ? json_real(value) : json_null();
}

bool bppsa_json_put(json_t *object, const char *key, json_t *value) {
  return json_object_set_new(object, key, value) == 0;
}

bool bppsa_json_put_integer(json_t *object, const char *key, int64_t value) {
  return bppsa_json_put(object, key, json_integer(value));
}

bool bppsa_json_put_real(json_t *object, const char *key, double value) {
  return bppsa_json_put(object, key, bppsa_json_real(value));
}

bool bppsa_json_put_text(json_t *object, const char *key, const char *value) {
  return bppsa_json_put(object, key, json_string(value));
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
  return NULL;
}
