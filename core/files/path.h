/* Checks of paths that are to be written, before the work begins whose results go there. */
#ifndef BPPSA_CORE_FILES_PATH_H
#define BPPSA_CORE_FILES_PATH_H

#include <stdbool.h>

#include "core/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A file can be made at `path`, or replaces the regular file there: its directory, and that of the file which a link names, exist
 * and are writable, the file system accepts the name, and standard output and error do not go to this file (unless it is named
 * as /dev/stdout, /dev/stderr or the like). Proven by a file that is made beside it and removed (bppsa_file_prove); nothing else
 * is written. ERR_ARGUMENT names the path and what is wrong with it. */
bppsa_status bppsa_path_check_file(const char *path);
/* The same for a directory: it exists and is writable, or can be made in a directory that is. */
bppsa_status bppsa_path_check_folder(const char *path);
/* Says whether two paths lead to one file; where it does not exist yet, whether name and directory are the same. */
bool bppsa_path_same(const char *a, const char *b);

#ifdef __cplusplus
}
#endif
#endif
