/* What the handlers of XLA's FFI share (python/xla_ffi.h): they read attributes, and answer. */
#ifndef BPPSA_PYTHON_XLA_CALL_H
#define BPPSA_PYTHON_XLA_CALL_H

#include <stdbool.h>

#include "core/base/status.h"
#include "python/xla_ffi.h"

enum { BPPSA_XLA_WORD = 24 }; /* room for a text among the attributes, with its NUL byte */

/* Reads an attribute by its name: a text, which is copied in front of the zeros that `word` holds, or an int64. ERR_ARGUMENT: it is
 * missing, or of another kind. */
bppsa_status bppsa_xla_read_word(const bppsa_xla_attributes *attributes, const char *name, char word[BPPSA_XLA_WORD]);
bppsa_status bppsa_xla_read_number(const bppsa_xla_attributes *attributes, const char *name, int64_t *number);

/* The bytes of a buffer, or of a part of it: its axes in front of `first_axis` have one element. */
int64_t bppsa_xla_bytes(const bppsa_xla_buffer *buffer, int64_t first_axis);

/* Answers XLA's question for the version of the interface, if the frame is one. */
bool bppsa_xla_answer_metadata(const bppsa_xla_frame *frame);
/* Of a call on a GPU: the stream on which XLA queues work, and the GPU's number. Returns XLA's error or NULL, and an error where
 * this XLA is too old to be asked. */
bppsa_xla_error *bppsa_xla_find_stream(const bppsa_xla_frame *frame, void **stream, int32_t *gpu);
/* Memory of the GPU for the length of a call, at a multiple of `alignment`; work that is queued may go on using it. Returns XLA's
 * error or NULL. */
bppsa_xla_error *bppsa_xla_allocate(const bppsa_xla_frame *frame, int64_t bytes, int64_t alignment, void **data);
bppsa_xla_error *bppsa_xla_release_memory(const bppsa_xla_frame *frame, int64_t bytes, void *data);

/* NULL where the status is BPPSA_OK, otherwise an error with the library's sentence: "bppsa.jax: WHAT, PASS: ..". */
bppsa_xla_error *bppsa_xla_answer(const bppsa_xla_frame *frame, bppsa_status status, const char *what, const char *pass);

#endif
