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
/* NULL where the status is BPPSA_OK, otherwise an error with the library's sentence: "bppsa.jax: WHAT, PASS: ..". */
bppsa_xla_error *bppsa_xla_answer(const bppsa_xla_frame *frame, bppsa_status status, const char *what, const char *pass);

#endif
