/* The calls with which core/files/file, the log and the checkpoints reach the operating system: one function for each, as in POSIX.
 * A test can set a hook that makes any of them fail, or ends the program before it. Internal.
 */
#ifndef BPPSA_CORE_BASE_IO_H
#define BPPSA_CORE_BASE_IO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  BPPSA_IO_OPEN = 0,
  BPPSA_IO_STATUS, /* fstat */
  BPPSA_IO_READ,
  BPPSA_IO_WRITE,
  BPPSA_IO_SYNC, /* fsync, of a file or a directory */
  BPPSA_IO_CLOSE,
  BPPSA_IO_TRUNCATE,
  BPPSA_IO_SEEK,
  BPPSA_IO_RENAME,
  BPPSA_IO_UNLINK,
  BPPSA_IO_MKDIR,
  BPPSA_IO_RMDIR,
  BPPSA_IO_COUNT
} bppsa_io_call;

/* The call's name: "fsync". */
const char *bppsa_io_name(bppsa_io_call call);

/* Opening a pipe never waits for its other end: it succeeds for reading, and fails with ENXIO for writing where nobody reads. */
int bppsa_io_open(const char *path, int flags, mode_t mode);
int bppsa_io_duplicate(int descriptor); /* counts as an open */
int bppsa_io_status(int descriptor, struct stat *info);
ssize_t bppsa_io_read(int descriptor, void *data, size_t bytes);
ssize_t bppsa_io_write(int descriptor, const void *data, size_t bytes);
int bppsa_io_sync(int descriptor);
/* The descriptor is closed even if closing fails. */
int bppsa_io_close(int descriptor);
int bppsa_io_truncate(int descriptor, int64_t size);
int64_t bppsa_io_seek(int descriptor, int64_t offset); /* from the start */
int bppsa_io_rename(const char *from, const char *to);
/* The descriptor of standard output or error, if it is open on this file; else -1. */
int bppsa_io_standard_stream(const struct stat *file);
int bppsa_io_unlink(const char *path);
int bppsa_io_mkdir(const char *path);
int bppsa_io_mkdir_private(char *path); /* mkdtemp: replaces the final XXXXXX of the path; the directory is for this user alone */
int bppsa_io_rmdir(const char *path);

/* Called before every call. A result of 0 lets the call happen; any other is the errno with which it fails without having
 * happened (a close closes all the same). NULL removes the hook. Set it while no other thread uses the library. */
typedef int (*bppsa_io_hook)(void *context, bppsa_io_call call);
void bppsa_io_set_hook(bppsa_io_hook hook, void *context);

/* Descriptors opened and not closed. */
int64_t bppsa_io_open_count(void);

#ifdef __cplusplus
}
#endif
#endif
