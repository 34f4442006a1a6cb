/* The names in a directory. */
#ifndef BPPSA_CORE_DIRECTORY_H
#define BPPSA_CORE_DIRECTORY_H

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

#ifdef __cplusplus
}
#endif
#endif
