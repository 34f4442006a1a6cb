/* The names in a directory. */
#ifndef BPPSA_CORE_FILES_DIRECTORY_H
#define BPPSA_CORE_FILES_DIRECTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  int64_t count;
  char **names; /* size count; owned */
} bppsa_directory;

/* Lists everything in the directory but . and .., in the order of the names' bytes. Free with bppsa_directory_free. ERR_IO: it
 * cannot be listed. */
bppsa_status bppsa_directory_list(const char *path, bppsa_directory *list);
void bppsa_directory_free(bppsa_directory *list); /* a zeroed or already freed one is legal */

/* Counts the files at a path and adds up their bytes. The path names a file, or a directory with at most `depth` levels of
 * directories. False if that is not possible: the path does not exist, the directories are deeper, or one cannot be listed. */
bool bppsa_directory_measure(const char *path, int depth, int64_t *bytes, int64_t *files);

#ifdef __cplusplus
}
#endif
#endif
