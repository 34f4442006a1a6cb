/* Where the program keeps what it has measured: $XDG_CACHE_HOME/bppsa where that is an absolute path, otherwise
 * $HOME/.cache/bppsa. Everything in it may be deleted at any time. */
#ifndef BPPSA_NETWORKS_CACHE_DIRECTORY_H
#define BPPSA_NETWORKS_CACHE_DIRECTORY_H

#include <stdbool.h>

#include "core/base/status.h"

enum { BPPSA_CACHE_PATH = 4096 };

/* Puts the directory into `path`, and creates it with `make`. false: no variable names a home, or it cannot be made. */
bool bppsa_cache_directory(char path[BPPSA_CACHE_PATH], bool make);
/* Returns the error of a caller for whom bppsa_cache_directory found no directory. */
bppsa_status bppsa_cache_directory_missing(void);

#endif
