/* What the reader and the writer of NPY files share. Internal. */
#ifndef BPPSA_CORE_FILES_NPY_INTERNAL_H
#define BPPSA_CORE_FILES_NPY_INTERNAL_H

#include "core/base/buffer.h"

enum { BPPSA_NPY_CODES = 12 };

typedef struct {
  const char *code; /* type code without the byte order */
  bppsa_dtype dtype;
} bppsa_npy_code;

extern const bppsa_npy_code bppsa_npy_codes[BPPSA_NPY_CODES];

/* Loads the array that FILE:NAME names, or the only one of FILE. ERR_FORMAT: there are several, or none of that name; the
 * message names them. */
bppsa_status bppsa_npy_load_archive(const char *path, bppsa_buffer *array);

#endif
