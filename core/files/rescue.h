/* Saves the results of long work also where their place fails at the end: the disk is full by then, or the directory was removed
 * meanwhile. */
#ifndef BPPSA_CORE_FILES_RESCUE_H
#define BPPSA_CORE_FILES_RESCUE_H

#include <stddef.h>

#include "core/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes a file, complete or not at all. */
typedef bppsa_status (*bppsa_save)(const char *path, const void *context);

typedef struct {
  const char *path; /* NULL: the file is not wanted */
  bppsa_save save;
  const void *context;
} bppsa_result_file;

/* Saves every file. One that fails with ERR_IO is saved once more, into a new directory in TMPDIR or /tmp that this user alone can
 * read: bppsa-rescued-XXXXXX/NAME, with the path's last name. Returns the first failure; the last error has all of them, and says
 * where the files are. */
bppsa_status bppsa_save_results(int count, const bppsa_result_file *files);
/* Only the second half, for a file that was not written to its path for the reason in the last error. Returns `status`; the
 * message goes on with `words`, such as "it is in", then the place, then `after`. */
bppsa_status bppsa_rescue(bppsa_status status, const bppsa_result_file *file, const char *words, const char *after);

/* The context and the function for files that hold a text. */
typedef struct {
  const char *text;
  size_t bytes;
} bppsa_result_text;
bppsa_status bppsa_save_text(const char *path, const void *context);

#ifdef __cplusplus
}
#endif
#endif
