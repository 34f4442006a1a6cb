/* Call frames as XLA makes them, for tests of the handlers of XLA's FFI. Names, numbers and buffers are collected, and then a
 * handler is called. */
#ifndef BPPSA_TESTS_PYTHON_XLA_FRAME_H
#define BPPSA_TESTS_PYTHON_XLA_FRAME_H

#include <stdio.h>
#include <string.h>

#include "core/compute/memory.h"
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

/* What calls on a GPU are told, and what they asked for. */
static struct {
  const bppsa_device *device; /* on whose stream XLA queues work; NULL: calls are on a CPU, by an XLA that knows no more */
  int32_t number;             /* of the GPU */
  bool fails;                 /* XLA has no stream */
  int64_t taken, held;        /* how often memory was asked for, and how many such arrays there are now */
} xla_gpu;

static inline bppsa_xla_error *xla_get_stream(bppsa_xla_stream *arguments) {
  bppsa_xla_new_error error = {.size = sizeof error, .message = "XLA: no stream", .code = BPPSA_XLA_INTERNAL};
  arguments->stream = bppsa_device_get_stream(xla_gpu.device);
  return xla_gpu.fails ? xla_make_error(&error) : NULL;
}

static inline bppsa_xla_error *xla_get_device(bppsa_xla_device *arguments) {
  arguments->number = xla_gpu.number;
  return NULL;
}

static inline bppsa_xla_error *xla_allocate(bppsa_xla_allocation *arguments) {
  bppsa_xla_new_error error = {.size = sizeof error, .message = "XLA: no memory", .code = BPPSA_XLA_RESOURCE_EXHAUSTED};
  const bool made = bppsa_memory_alloc(xla_gpu.device, (int64_t)arguments->bytes, &arguments->data) == BPPSA_OK;
  xla_gpu.taken += 1;
  xla_gpu.held += made ? 1 : 0;
  return made ? NULL : xla_make_error(&error);
}

/* XLA's own allocator hands memory out again in the order of the stream; here the stream is awaited. */
static inline bppsa_xla_error *xla_free(bppsa_xla_release *arguments) {
  assert_int_equal(bppsa_device_wait(xla_gpu.device), BPPSA_OK);
  bppsa_memory_free(xla_gpu.device, arguments->data);
  xla_gpu.held -= 1;
  return NULL;
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
  const bppsa_xla_api api = {.size = xla_gpu.device != NULL ? sizeof api : offsetof(bppsa_xla_api, errors),
                             .error_create = xla_make_error,
                             .stream_get = xla_get_stream,
                             .memory_allocate = xla_allocate,
                             .memory_free = xla_free,
                             .device_get = xla_get_device};
  bppsa_xla_frame frame = {.size = sizeof frame, .api = &api, .stage = BPPSA_XLA_EXECUTE};
  frame.attributes = (bppsa_xla_attributes){
      .size = sizeof frame.attributes, .count = a->count, .types = a->kinds, .names = a->listed, .items = a->values};
  frame.arguments = xla_list(arguments);
  frame.results = xla_list(results);
  const bppsa_xla_error *error = handler(&frame);
  return error == NULL ? 0 : error->code;
}

#endif
