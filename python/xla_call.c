/* What the handlers of XLA's FFI share: attributes, sizes, and answers. */
#include "python/xla_call.h"

#include <stdio.h>
#include <string.h>

static bool is_named(const bppsa_xla_text *name, const char *wanted) {
  return name->length == strlen(wanted) && memcmp(name->text, wanted, name->length) == 0;
}

static const void *find_attribute(const bppsa_xla_attributes *attributes, const char *name, int32_t type) {
  for (int64_t k = 0; k < attributes->count; ++k) {
    if (attributes->types[k] == type && is_named(attributes->names[k], name)) {
      return attributes->items[k];
    }
  }
  return NULL;
}

bppsa_status bppsa_xla_read_word(const bppsa_xla_attributes *attributes, const char *name, char word[BPPSA_XLA_WORD]) {
  const bppsa_xla_text *text = find_attribute(attributes, name, BPPSA_XLA_STRING);
  if (text == NULL || text->length >= BPPSA_XLA_WORD) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "attribute %s: expected a text of at most %d characters", name, BPPSA_XLA_WORD - 1);
  }
  memcpy(word, text->text, text->length);
  return BPPSA_OK;
}

bppsa_status bppsa_xla_read_number(const bppsa_xla_attributes *attributes, const char *name, int64_t *number) {
  const bppsa_xla_scalar *scalar = find_attribute(attributes, name, BPPSA_XLA_SCALAR);
  if (scalar == NULL || scalar->dtype != BPPSA_XLA_S64) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "attribute %s: expected an int64", name);
  }
  memcpy(number, scalar->value, sizeof *number);
  return BPPSA_OK;
}

static int64_t size_of(const bppsa_xla_buffer *buffer) {
  return buffer->dtype == BPPSA_XLA_F64 || buffer->dtype == BPPSA_XLA_S64   ? 8
         : buffer->dtype == BPPSA_XLA_F32 || buffer->dtype == BPPSA_XLA_S32 ? 4
                                                                            : 1;
}

int64_t bppsa_xla_bytes(const bppsa_xla_buffer *buffer, int64_t first_axis) {
  int64_t bytes = size_of(buffer);
  for (int64_t k = first_axis; k < buffer->rank; ++k) {
    bytes *= buffer->dims[k];
  }
  return bytes;
}

static int32_t code_of(bppsa_status status) {
  switch (status) {
  case BPPSA_ERR_ARGUMENT:
  case BPPSA_ERR_SHAPE:
  case BPPSA_ERR_FORMAT:
    return BPPSA_XLA_INVALID_ARGUMENT;
  case BPPSA_ERR_MEMORY:
    return BPPSA_XLA_RESOURCE_EXHAUSTED;
  case BPPSA_ERR_UNSUPPORTED:
    return BPPSA_XLA_UNIMPLEMENTED;
  case BPPSA_ERR_LIBRARY:
    return BPPSA_XLA_FAILED_PRECONDITION;
  default:
    return BPPSA_XLA_INTERNAL;
  }
}

/* Answers XLA's question for the version of the interface, if the frame is one. */
bool bppsa_xla_answer_metadata(const bppsa_xla_frame *frame) {
  if (frame->extensions == NULL || frame->extensions->type != BPPSA_XLA_METADATA) {
    return false;
  }
  bppsa_xla_metadata *metadata = ((bppsa_xla_metadata_extension *)(void *)frame->extensions)->metadata;
  metadata->version.major = BPPSA_XLA_MAJOR;
  metadata->version.minor = BPPSA_XLA_MINOR;
  metadata->traits = 0;
  return true;
}

bppsa_xla_error *bppsa_xla_answer(const bppsa_xla_frame *frame, bppsa_status status, const char *what, const char *pass) {
  if (status == BPPSA_OK) {
    return NULL;
  }
  char message[600];
  snprintf(message, sizeof message, "bppsa.jax: %s, %s: %s", what, pass, bppsa_last_error());
  bppsa_xla_new_error error = {.size = sizeof error, .message = message, .code = code_of(status)};
  return frame->api->error_create(&error);
}

bppsa_xla_error *bppsa_xla_find_stream(const bppsa_xla_frame *frame, void **stream, int32_t *gpu) {
  bppsa_xla_stream asked = {.size = sizeof asked, .context = frame->context};
  bppsa_xla_device device = {.size = sizeof device, .context = frame->context};
  if (frame->api->size < offsetof(bppsa_xla_api, device_get) + sizeof frame->api->device_get) {
    return bppsa_xla_answer(
        frame, bppsa_fail(BPPSA_ERR_UNSUPPORTED, "this JAX does not say on which GPU it calls, expected a newer one"), "a call",
        "GPU");
  }
  bppsa_xla_error *error = frame->api->stream_get(&asked);
  error = error == NULL ? frame->api->device_get(&device) : error;
  *stream = asked.stream;
  *gpu = device.number;
  return error;
}

bppsa_xla_error *bppsa_xla_allocate(const bppsa_xla_frame *frame, int64_t bytes, int64_t alignment, void **data) {
  bppsa_xla_allocation asked = {
      .size = sizeof asked, .context = frame->context, .bytes = (size_t)bytes, .alignment = (size_t)alignment};
  bppsa_xla_error *error = frame->api->memory_allocate(&asked);
  *data = error == NULL ? asked.data : NULL;
  return error;
}

bppsa_xla_error *bppsa_xla_release_memory(const bppsa_xla_frame *frame, int64_t bytes, void *data) {
  bppsa_xla_release asked = {.size = sizeof asked, .context = frame->context, .bytes = (size_t)bytes, .data = data};
  return frame->api->memory_free(&asked);
}
