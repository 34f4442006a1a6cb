#include "core/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *const names[BPPSA_IO_COUNT] = {
    [BPPSA_IO_OPEN] = "open",     [BPPSA_IO_STATUS] = "fstat",  [BPPSA_IO_READ] = "read",          [BPPSA_IO_WRITE] = "write",
    [BPPSA_IO_SYNC] = "fsync",    [BPPSA_IO_CLOSE] = "close",   [BPPSA_IO_TRUNCATE] = "ftruncate", [BPPSA_IO_SEEK] = "lseek",
    [BPPSA_IO_RENAME] = "rename", [BPPSA_IO_UNLINK] = "unlink", [BPPSA_IO_MKDIR] = "mkdir",        [BPPSA_IO_RMDIR] = "rmdir",
};

static bppsa_io_hook intercept; /* NULL: none */
static void *intercept_context;
static atomic_int_least64_t opened;

const char *bppsa_io_name(bppsa_io_call call) {
  return (unsigned)call < BPPSA_IO_COUNT ? names[call] : "unknown";
}

void bppsa_io_set_hook(bppsa_io_hook hook, void *context) {
  intercept = hook;
  intercept_context = context;
}

int64_t bppsa_io_open_count(void) {
  return atomic_load(&opened);
}

/* True, with errno set, if the hook wants the call to fail. */
static bool refused(bppsa_io_call call) {
  const int reason = intercept == NULL ? 0 : intercept(intercept_context, call);
  if (reason != 0) {
    errno = reason;
  }
  return reason != 0;
}

int bppsa_io_open(const char *path, int flags, mode_t mode) {
  const int descriptor = refused(BPPSA_IO_OPEN) ? -1 : open(path, flags | O_NONBLOCK, mode);
  if (descriptor < 0) {
    return -1;
  }
  if (fcntl(descriptor, F_SETFL, flags) != 0) { /* reads and writes wait, as usual */
    const int reason = errno;
    (void)close(descriptor);
    errno = reason;
    return -1;
  }
  atomic_fetch_add(&opened, 1);
  return descriptor;
}

int bppsa_io_duplicate(int descriptor) {
  const int copy = refused(BPPSA_IO_OPEN) ? -1 : fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (copy >= 0) {
    atomic_fetch_add(&opened, 1);
  }
  return copy;
}

int bppsa_io_status(int descriptor, struct stat *info) {
  return refused(BPPSA_IO_STATUS) ? -1 : fstat(descriptor, info);
}

ssize_t bppsa_io_read(int descriptor, void *data, size_t bytes) {
  return refused(BPPSA_IO_READ) ? -1 : read(descriptor, data, bytes);
}

ssize_t bppsa_io_write(int descriptor, const void *data, size_t bytes) {
  return refused(BPPSA_IO_WRITE) ? -1 : write(descriptor, data, bytes);
}

int bppsa_io_sync(int descriptor) {
  return refused(BPPSA_IO_SYNC) ? -1 : fsync(descriptor);
}

int bppsa_io_close(int descriptor) {
  const bool fails = refused(BPPSA_IO_CLOSE);
  const int reason = errno;
  atomic_fetch_sub(&opened, 1);
  const int closed = close(descriptor);
  if (fails) {
    errno = reason;
  }
  return fails ? -1 : closed;
}

int bppsa_io_truncate(int descriptor, int64_t size) {
  return refused(BPPSA_IO_TRUNCATE) ? -1 : ftruncate(descriptor, (off_t)size);
}

int64_t bppsa_io_seek(int descriptor, int64_t offset) {
  return refused(BPPSA_IO_SEEK) ? -1 : (int64_t)lseek(descriptor, (off_t)offset, SEEK_SET);
}

int bppsa_io_standard_stream(const struct stat *file) {
  for (int descriptor = STDOUT_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    struct stat info;
    if (fstat(descriptor, &info) == 0 && info.st_dev == file->st_dev && info.st_ino == file->st_ino) {
      return descriptor;
    }
  }
  return -1;
}

int bppsa_io_rename(const char *from, const char *to) {
  return refused(BPPSA_IO_RENAME) ? -1 : rename(from, to);
}

int bppsa_io_unlink(const char *path) {
  return refused(BPPSA_IO_UNLINK) ? -1 : unlink(path);
}

int bppsa_io_mkdir(const char *path) {
  return refused(BPPSA_IO_MKDIR) ? -1 : mkdir(path, 0777);
}

int bppsa_io_mkdir_private(char *path) {
  return refused(BPPSA_IO_MKDIR) || mkdtemp(path) == NULL ? -1 : 0;
}

int bppsa_io_rmdir(const char *path) {
  return refused(BPPSA_IO_RMDIR) ? -1 : rmdir(path);
}
