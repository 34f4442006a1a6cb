/* A file in memory. The linker hands the library's calls of core/base/io.h to the functions __wrap_.. below (CMakeLists.txt), which
 * answer for this file, and pass every other on. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "core/base/io.h"
#include "tests/fuzz/fuzz.h"

/* The numbers of its descriptors begin where the operating system's end. */
enum { FIRST = 1 << 24, DESCRIPTORS = 4 };

static const char path_of_file[] = "/memory";
static const uint8_t *content;
static size_t length;
static struct {
  bool open;
  size_t at;
} files[DESCRIPTORS];

const char *fuzz_memory(const void *data, size_t size) {
  fuzz_memory_close();
  content = data;
  length = size;
  return path_of_file;
}

void fuzz_memory_close(void) {
  for (int i = 0; i < DESCRIPTORS; ++i) {
    FUZZ_CHECK(!files[i].open);
  }
  content = NULL;
}

/* NULL: a descriptor of the operating system. */
static size_t *position(int descriptor) {
  const int i = descriptor - FIRST;
  return i >= 0 && i < DESCRIPTORS && files[i].open ? &files[i].at : NULL;
}

int __real_bppsa_io_open(const char *path, int flags, mode_t mode);
int __real_bppsa_io_status(int descriptor, struct stat *info);
ssize_t __real_bppsa_io_read(int descriptor, void *data, size_t bytes);
int __real_bppsa_io_close(int descriptor);
int __wrap_bppsa_io_open(const char *path, int flags, mode_t mode);
int __wrap_bppsa_io_status(int descriptor, struct stat *info);
ssize_t __wrap_bppsa_io_read(int descriptor, void *data, size_t bytes);
int __wrap_bppsa_io_close(int descriptor);

int __wrap_bppsa_io_open(const char *path, int flags, mode_t mode) {
  if (content == NULL || strcmp(path, path_of_file) != 0) {
    return __real_bppsa_io_open(path, flags, mode);
  }
  FUZZ_CHECK((flags & O_ACCMODE) == O_RDONLY);
  for (int i = 0; i < DESCRIPTORS; ++i) {
    if (!files[i].open) {
      files[i].open = true;
      files[i].at = 0;
      return FIRST + i;
    }
  }
  errno = EMFILE;
  return -1;
}

int __wrap_bppsa_io_status(int descriptor, struct stat *info) {
  if (position(descriptor) == NULL) {
    return __real_bppsa_io_status(descriptor, info);
  }
  *info = (struct stat){.st_mode = S_IFREG | 0600, .st_size = (off_t)length};
  return 0;
}

ssize_t __wrap_bppsa_io_read(int descriptor, void *data, size_t bytes) {
  size_t *at = position(descriptor);
  if (at == NULL) {
    return __real_bppsa_io_read(descriptor, data, bytes);
  }
  const size_t left = length - *at, taken = bytes < left ? bytes : left;
  if (taken > 0) {
    memcpy(data, content + *at, taken);
  }
  *at += taken;
  return (ssize_t)taken;
}

int __wrap_bppsa_io_close(int descriptor) {
  if (position(descriptor) == NULL) {
    return __real_bppsa_io_close(descriptor);
  }
  files[descriptor - FIRST].open = false;
  return 0;
}
