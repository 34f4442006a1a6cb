#include "networks/cache_directory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/io.h"

bool bppsa_cache_directory(char path[BPPSA_CACHE_PATH], bool make) {
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  int length;
  if (cache != NULL && cache[0] == '/') {
    length = snprintf(path, BPPSA_CACHE_PATH, "%s", cache);
  } else if (home != NULL && home[0] == '/') {
    length = snprintf(path, BPPSA_CACHE_PATH, "%s/.cache", home);
  } else {
    return false;
  }
  if (length < 0 || length > BPPSA_CACHE_PATH - 32) {
    return false;
  }
  if (make) {
    (void)bppsa_io_mkdir(path);
  }
  memcpy(path + length, "/bppsa", sizeof "/bppsa");
  return !make || bppsa_io_mkdir(path) == 0 || errno == EEXIST;
}

bppsa_status bppsa_cache_directory_missing(void) {
  return bppsa_fail(BPPSA_ERR_IO, "no cache directory, expected XDG_CACHE_HOME or HOME to name one that can be written");
}
