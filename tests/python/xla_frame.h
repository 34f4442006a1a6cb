/* Call frames as XLA makes them, for tests of the handlers of XLA's FFI. Names, numbers and buffers are collected, and then a
 * handler is called. */
#ifndef BPPSA_TESTS_PYTHON_XLA_FRAME_H
#define BPPSA_TESTS_PYTHON_XLA_FRAME_H

#include <stdio.h>
#include <string.h>

#include "python/xla_ffi.h"
#include "tests/core/helpers.h"

enum { XLA_MOST_ATTRIBUTES = 12, XLA_MOST_BUFFERS = 64 };

struct bppsa_xla_error {
  int32_t code;
  char text[600];
};
static bppsa_xla_error last; /* what error_create made */

static inline bppsa_xla_error *xla_make_error(bppsa_xla_new_error *arguments) {
  last.code = arguments->code;
  snprintf(last.text, sizeof last.text, "%s", arguments->message);
  return &last;
}

typedef struct {
  int count;
  bppsa_xla_text names[XLA_MOST_ATTRIBUTES], texts[XLA_MOST_ATTRIBUTES], *listed[XLA_MOST_ATTRIBUTES];
  bppsa_xla_scalar scalars[XLA_MOST_ATTRIBUTES];
  int64_t numbers[XLA_MOST_ATTRIBUTES];
  int32_t kinds[XLA_MOST_ATTRIBUTES];
  void *values[XLA_MOST_ATTRIBUTES];
} xla_attributes;

typedef struct {
  int64_t count;
  int32_t kinds[XLA_MOST_BUFFERS];
  void *items[XLA_MOST_BUFFERS];
} xla_buffers;

static inline int xla_name(xla_attributes *a, const char *name, int32_t kind) {
  const int k = a->count++;
  assert_true(k < XLA_MOST_ATTRIBUTES);
  a->names[k] = (bppsa_xla_text){name, strlen(name)};
  a->listed[k] = &a->names[k];
  a->kinds[k] = kind;
  return k;
}

static inline void xla_add_word(xla_attributes *a, const char *name, const char *word) {
  const int k = xla_name(a, name, BPPSA_XLA_STRING);
  a->texts[k] = (bppsa_xla_text){word, strlen(word)};
  a->values[k] = &a->texts[k];
}

static inline void xla_add_number(xla_attributes *a, const char *name, int64_t number) {
  const int k = xla_name(a, name, BPPSA_XLA_SCALAR);
  a->numbers[k] = number;
  a->scalars[k] = (bppsa_xla_scalar){BPPSA_XLA_S64, &a->numbers[k]};
  a->values[k] = &a->scalars[k];
}

static inline void xla_add_buffer(xla_buffers *b, bppsa_xla_buffer *buffer) {
  assert_true(b->count < XLA_MOST_BUFFERS);
  b->items[b->count] = buffer;
  b->kinds[b->count++] = BPPSA_XLA_BUFFER;
}

static inline bppsa_xla_list xla_list(xla_buffers *b) {
  return (bppsa_xla_list){.size = sizeof(bppsa_xla_list), .count = b->count, .types = b->kinds, .items = b->items};
}

/* Calls a handler; 0, or the error's code, whose sentence is in `last`. */
static inline int32_t xla_call(bppsa_xla_error *(*handler)(bppsa_xla_frame *), xla_attributes *a, xla_buffers *arguments,
                               xla_buffers *results) {
  const bppsa_xla_api api = {.size = sizeof api, .error_create = xla_make_error};
  bppsa_xla_frame frame = {.size = sizeof frame, .api = &api, .stage = BPPSA_XLA_EXECUTE};
  frame.attributes = (bppsa_xla_attributes){
      .size = sizeof frame.attributes, .count = a->count, .types = a->kinds, .names = a->listed, .items = a->values};
  frame.arguments = xla_list(arguments);
  frame.results = xla_list(results);
  const bppsa_xla_error *error = handler(&frame);
  return error == NULL ? 0 : error->code;
}

#endif
