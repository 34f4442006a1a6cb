/* The binary interface by which XLA, JAX's compiler, calls functions of other libraries ("FFI"), as far as python/xla.c needs it.
 * The interface is XLA's (xla/ffi/api/c_api.h of OpenXLA); these are declarations of it under names of this project, so that the
 * package builds, and is tested, where JAX is not installed. tests/python/test_jax.py compiles them beside XLA's own header,
 * where there is one, and compares every size, offset and number.
 *
 * Every struct begins with its size and a list of extensions. New members stand behind the old ones; version 0.x is served for a
 * year at least. */
#ifndef BPPSA_PYTHON_XLA_FFI_H
#define BPPSA_PYTHON_XLA_FFI_H

#include <stddef.h>
#include <stdint.h>

enum { BPPSA_XLA_MAJOR = 0, BPPSA_XLA_MINOR = 3 };   /* the version of the interface */
enum { BPPSA_XLA_METADATA = 1 };                     /* the extension that asks for a handler's properties */
enum { BPPSA_XLA_BUFFER = 1 };                       /* the type of every argument and result */
enum { BPPSA_XLA_SCALAR = 3, BPPSA_XLA_STRING = 4 }; /* types of attributes */
enum { BPPSA_XLA_EXECUTE = 3 };                      /* the stage in which arrays may be read and written */
enum { BPPSA_XLA_PRED = 1, BPPSA_XLA_S32 = 4, BPPSA_XLA_S64 = 5, BPPSA_XLA_U8 = 6, BPPSA_XLA_F32 = 11, BPPSA_XLA_F64 = 12 };
enum {
  BPPSA_XLA_INVALID_ARGUMENT = 3,
  BPPSA_XLA_RESOURCE_EXHAUSTED = 8,
  BPPSA_XLA_FAILED_PRECONDITION = 9,
  BPPSA_XLA_UNIMPLEMENTED = 12,
  BPPSA_XLA_INTERNAL = 13
};

typedef struct bppsa_xla_error bppsa_xla_error; /* XLA's own; NULL is success */

typedef struct bppsa_xla_extension {
  size_t size;
  int32_t type;
  struct bppsa_xla_extension *next;
} bppsa_xla_extension;

typedef struct {
  size_t size;
  bppsa_xla_extension *extensions;
  int32_t major, minor;
} bppsa_xla_version;

typedef struct {
  size_t size;
  bppsa_xla_version version;
  uint32_t traits;
} bppsa_xla_metadata; /* of newer versions of the interface it goes on behind these */

typedef struct {
  bppsa_xla_extension base;
  bppsa_xla_metadata *metadata;
} bppsa_xla_metadata_extension;

typedef struct {
  const char *text; /* not ended by a NUL byte */
  size_t length;
} bppsa_xla_text;

typedef struct {
  int32_t dtype;
  void *value;
} bppsa_xla_scalar;

typedef struct {
  size_t size;
  bppsa_xla_extension *extensions;
  int32_t dtype;
  void *data;
  int64_t rank;
  int64_t *dims;
} bppsa_xla_buffer;

typedef struct {
  size_t size;
  bppsa_xla_extension *extensions;
  int64_t count;
  int32_t *types;
  void **items; /* of buffers: bppsa_xla_buffer */
} bppsa_xla_list;

typedef struct {
  size_t size;
  bppsa_xla_extension *extensions;
  int64_t count;
  int32_t *types;
  bppsa_xla_text **names;
  void **items; /* bppsa_xla_scalar, bppsa_xla_text */
} bppsa_xla_attributes;

typedef struct {
  size_t size;
  bppsa_xla_extension *extensions;
  const char *message;
  int32_t code;
} bppsa_xla_new_error;

/* What XLA is asked for in a call on a GPU: the CUDA stream on which it queues work; memory of the GPU, which is given back before
 * the call returns and may be in use by queued work; and the number of the GPU. `context` is the frame's. */
typedef struct {
  size_t size;
  bppsa_xla_extension *extensions;
  void *context;
  void *stream; /* the answer */
} bppsa_xla_stream;

typedef struct {
  size_t size;
  bppsa_xla_extension *extensions;
  void *context;
  size_t bytes, alignment;
  void *data; /* the answer */
} bppsa_xla_allocation;

typedef struct {
  size_t size;
  bppsa_xla_extension *extensions;
  void *context;
  size_t bytes;
  void *data;
} bppsa_xla_release;

typedef struct {
  size_t size;
  bppsa_xla_extension *extensions;
  void *context;
  int32_t number; /* the answer */
} bppsa_xla_device;

typedef void (*bppsa_xla_unused)(void);

/* An older XLA's ends earlier, as `size` says. */
typedef struct {
  size_t size;
  bppsa_xla_extension *extensions;
  bppsa_xla_version version;
  const void *internal;
  bppsa_xla_error *(*error_create)(bppsa_xla_new_error *arguments); /* copies the message */
  bppsa_xla_unused errors[2], registration;
  bppsa_xla_error *(*stream_get)(bppsa_xla_stream *arguments);
  bppsa_xla_unused types[4];
  bppsa_xla_error *(*memory_allocate)(bppsa_xla_allocation *arguments);
  bppsa_xla_error *(*memory_free)(bppsa_xla_release *arguments);
  bppsa_xla_unused threads_and_futures[6];
  bppsa_xla_error *(*device_get)(bppsa_xla_device *arguments);
} bppsa_xla_api; /* it goes on behind this */

typedef struct {
  size_t size;
  bppsa_xla_extension *extensions;
  const bppsa_xla_api *api;
  void *context;
  int32_t stage;
  bppsa_xla_list arguments, results;
  bppsa_xla_attributes attributes;
} bppsa_xla_frame; /* it goes on behind this */

#endif
