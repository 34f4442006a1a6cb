/* The names in a directory. */
#ifndef BPPSA_CORE_DIRECTORY_H
#define BPPSA_CORE_DIRECTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"

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

/* The bytes and the number of the files at a path: of a file, or of a directory with at most `depth` levels of directories. False
 * where they cannot be found out: nothing is there, the directories are deeper, one of them cannot be listed. */
bool bppsa_directory_measure(const char *path, int depth, int64_t *bytes, int64_t *files);

#ifdef __cplusplus
}
#endif
#endif
