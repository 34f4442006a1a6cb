#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* realpath, O_CLOEXEC */
#endif
#include "core/files/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/base/io.h"
#include "core/files/temporary_internal.h"

enum { PROOF = 4096 /* bytes that a full disk refuses */ };

struct bppsa_file_writer {
  int descriptor;
  int slot;        /* where a signal handler finds the temporary name; -1: the handler does not know it */
  bool direct;     /* writes go straight to `path`, which is a terminal, a pipe or a device */
  bool failed;     /* a write failed: commit refuses */
  int64_t written; /* bytes */
  char *path;      /* with symbolic links resolved */
  char *temporary; /* in the directory of path; NULL when direct */
};

static const struct {
  mode_t type;
  const char *name;
} file_types[] = {{S_IFDIR, "a directory"},
                  {S_IFIFO, "a pipe"},
                  {S_IFCHR, "a character device"},
                  {S_IFBLK, "a block device"},
                  {S_IFSOCK, "a socket"}};

static const char *type_name(mode_t mode) {
  for (size_t i = 0; i < sizeof file_types / sizeof file_types[0]; ++i) {
    if ((mode & S_IFMT) == file_types[i].type) {
      return file_types[i].name;
    }
  }
  return "not a regular file";
}

/* Keeps errno. */
static bppsa_status system_failure(const char *path, const char *action) {
  const int reason = errno;
  const bppsa_status status = bppsa_fail(BPPSA_ERR_IO, "%s: %s: %s", path, action, strerror(reason));
  errno = reason;
  return status;
}

/* ---- reading ---- */

bppsa_status bppsa_file_reader_open(const char *path, bppsa_file_reader *reader) {
  BPPSA_REQUIRE(path != NULL && reader != NULL);
  const int descriptor = bppsa_io_open(path, O_RDONLY | O_CLOEXEC, 0);
  if (descriptor < 0) {
    return system_failure(path, "cannot open");
  }
  struct stat info;
  if (bppsa_io_status(descriptor, &info) != 0) {
    const bppsa_status status = system_failure(path, "cannot read its size");
    (void)bppsa_io_close(descriptor);
    return status;
  }
  if (!S_ISREG(info.st_mode)) {
    (void)bppsa_io_close(descriptor);
    return bppsa_fail(BPPSA_ERR_IO, "%s: %s, expected a regular file", path, type_name(info.st_mode));
  }
  *reader = (bppsa_file_reader){.descriptor = descriptor, .size = info.st_size, .offset = 0, .path = path};
  return BPPSA_OK;
}

bppsa_status bppsa_file_reader_read(bppsa_file_reader *reader, void *data, int64_t bytes) {
  BPPSA_REQUIRE(reader != NULL);
  BPPSA_REQUIRE(bytes >= 0 && (data != NULL || bytes == 0));
  char *to = data;
  int64_t left = bytes;
  while (left > 0) {
    const ssize_t got = bppsa_io_read(reader->descriptor, to, (size_t)left);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return system_failure(reader->path, "cannot read");
    }
    if (got == 0) {
      return bppsa_fail(BPPSA_ERR_IO, "%s: byte %lld: the file ends there, expected %lld more bytes", reader->path,
                        (long long)reader->offset, (long long)left);
    }
    to += got;
    left -= got;
    reader->offset += got;
  }
  return BPPSA_OK;
}

bool bppsa_file_begins(const char *path, const char *text) {
  char found[16];
  const size_t length = strlen(text);
  struct stat info;
  if (length > sizeof found) {
    return false;
  }
  const int descriptor = bppsa_io_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0); /* a pipe would wait for its writer */
  if (descriptor < 0) {
    return false;
  }
  const bool read = bppsa_io_status(descriptor, &info) == 0 && S_ISREG(info.st_mode) &&
                    bppsa_io_read(descriptor, found, length) == (ssize_t)length;
  (void)bppsa_io_close(descriptor);
  return read && memcmp(found, text, length) == 0;
}

bppsa_status bppsa_file_reader_skip(bppsa_file_reader *reader, int64_t bytes) {
  BPPSA_REQUIRE(reader != NULL && bytes >= 0);
  if (bppsa_io_seek(reader->descriptor, reader->offset + bytes) < 0) {
    return system_failure(reader->path, "cannot move");
  }
  reader->offset += bytes;
  return BPPSA_OK;
}

void bppsa_file_reader_close(bppsa_file_reader *reader) {
  if (reader == NULL) {
    return;
  }
  (void)bppsa_io_close(reader->descriptor); /* nothing was written, so nothing can be lost */
  reader->descriptor = -1;
}

/* Reads the whole file and checks that nothing follows: a file that changes while it is read is refused. */
static bppsa_status read_whole(bppsa_file_reader *reader, char *data) {
  BPPSA_TRY(bppsa_file_reader_read(reader, data, reader->size));
  data[reader->size] = '\0';
  char extra = 0;
  const ssize_t more = bppsa_io_read(reader->descriptor, &extra, 1);
  if (more < 0) {
    return system_failure(reader->path, "cannot read");
  }
  if (more > 0) {
    return bppsa_fail(BPPSA_ERR_IO, "%s: byte %lld: the file goes on, expected it to end there as its size says", reader->path,
                      (long long)reader->size);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_file_read(const char *path, int64_t limit, char **data, int64_t *size) {
  BPPSA_REQUIRE(path != NULL && data != NULL && size != NULL);
  bppsa_file_reader reader = {0};
  BPPSA_TRY(bppsa_file_reader_open(path, &reader));
  if (reader.size > limit) {
    bppsa_file_reader_close(&reader);
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: %lld bytes, expected at most %lld", path, (long long)reader.size, (long long)limit);
  }
  char *text = bppsa_alloc((size_t)reader.size + 1);
  const bppsa_status status = text == NULL ? BPPSA_ERR_MEMORY : read_whole(&reader, text);
  bppsa_file_reader_close(&reader);
  if (status != BPPSA_OK) {
    bppsa_free(text);
    return status;
  }
  *data = text;
  *size = reader.size;
  return BPPSA_OK;
}

/* ---- writing ---- */

/* Attributes that a file system does not report are taken to be off. */
static bool has_attribute(const char *path, uint64_t attribute) {
  struct statx found;
  return statx(AT_FDCWD, path, 0, 0, &found) == 0 && (found.stx_attributes & attribute) != 0;
}

static bppsa_status open_direct(bppsa_file_writer *writer, int stream) {
  writer->direct = true;
  writer->descriptor = stream >= 0 ? bppsa_io_duplicate(stream) : bppsa_io_open(writer->path, O_WRONLY | O_CLOEXEC | O_NOCTTY, 0);
  if (writer->descriptor < 0 && errno == ENXIO) {
    return bppsa_fail(BPPSA_ERR_IO, "%s: a pipe or device that nobody reads, expected a file or a reader", writer->path);
  }
  return writer->descriptor < 0 ? system_failure(writer->path, "cannot open for writing") : BPPSA_OK;
}

/* Creates ".bppsa-PID-NUMBER.tmp" in the directory of path; the name is short, so that it is legal wherever the name of path is. */
static bppsa_status open_temporary(bppsa_file_writer *writer) {
  const char *slash = strrchr(writer->path, '/');
  const size_t directory = slash == NULL ? 0 : (size_t)(slash - writer->path) + 1;
  const size_t size = directory + BPPSA_TEMPORARY_NAME;
  writer->temporary = bppsa_alloc(size);
  if (writer->temporary == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  memcpy(writer->temporary, writer->path, directory);
  memcpy(writer->temporary + directory, ".", 2);
  errno = EPERM; /* nothing can be renamed or removed in a directory to which names can only be added */
  const int attempts = has_attribute(writer->temporary, STATX_ATTR_APPEND) ? 0 : 1000;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const unsigned number = bppsa_temporary_name(writer->temporary + directory);
    writer->slot = bppsa_temporary_remember(writer->temporary, number);
    writer->descriptor = bppsa_io_open(writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (writer->descriptor >= 0) {
      return BPPSA_OK;
    }
    bppsa_temporary_forget(writer->slot);
    writer->slot = -1;
    if (errno != EEXIST) {
      break;
    }
  }
  const bppsa_status status = system_failure(writer->path, "cannot create a file in its directory");
  const int reason = errno;
  bppsa_free(writer->temporary);
  writer->temporary = NULL;
  errno = reason;
  return status;
}

/* Says whether a new file can take the place of the one at `path`, before there is a new one: the system asks for the same rights
 * that removing a name takes. These rights depend on the owners of file and directory, on the sticky bit, on capabilities and
 * attributes, so the system is asked itself: rmdir never removes a file, but says "not a directory" only where all else allows it.
 * A file on which a file system is mounted, as containers have them, cannot be renamed over either. */
static bppsa_status check_replaceable(const char *path, const char *name) {
  if (has_attribute(path, STATX_ATTR_MOUNT_ROOT)) {
    return bppsa_fail(BPPSA_ERR_IO, "%s: mounted by itself, so no new file can replace it", name);
  }
  if (bppsa_io_rmdir(path) != 0 && errno != ENOTDIR && errno != ENOENT) {
    return system_failure(name, "a new file cannot replace it in its directory");
  }
  return BPPSA_OK;
}

/* Chooses how to write a path that exists. */
static bppsa_status open_existing(bppsa_file_writer *writer, const struct stat *info) {
  if (S_ISDIR(info->st_mode)) {
    return bppsa_fail(BPPSA_ERR_IO, "%s: a directory, expected a file", writer->path);
  }
  const int stream = bppsa_io_standard_stream(info); /* writing to it continues at the program's position */
  if (stream >= 0 || !S_ISREG(info->st_mode)) {
    return open_direct(writer, stream);
  }
  if (access(writer->path, W_OK) != 0) {
    return system_failure(writer->path, "cannot write");
  }
  char resolved[PATH_MAX];
  if (realpath(writer->path, resolved) == NULL) { /* a symbolic link stays; the file it names is replaced */
    return system_failure(writer->path, "cannot resolve");
  }
  BPPSA_TRY(check_replaceable(resolved, writer->path));
  char *path = bppsa_strdup(resolved);
  if (path == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_free(writer->path);
  writer->path = path;
  BPPSA_TRY(open_temporary(writer));
  (void)fchmod(writer->descriptor, info->st_mode & 0777); /* a private file stays private */
  return BPPSA_OK;
}

static bppsa_status open_writer(bppsa_file_writer *writer) {
  struct stat info;
  if (stat(writer->path, &info) == 0) {
    return open_existing(writer, &info);
  }
  if (errno != ENOENT) {
    return system_failure(writer->path, "cannot write");
  }
  const size_t length = strlen(writer->path);
  if (length == 0 || writer->path[length - 1] == '/') {
    return bppsa_fail(BPPSA_ERR_IO, "\"%s\": not the name of a file, expected one", writer->path);
  }
  if (lstat(writer->path, &info) == 0) {
    return bppsa_fail(BPPSA_ERR_IO, "%s: a symbolic link that leads nowhere, expected a file or a new name", writer->path);
  }
  return open_temporary(writer);
}

bppsa_status bppsa_file_writer_create(const char *path, bppsa_file_writer **writer) {
  BPPSA_REQUIRE(path != NULL && writer != NULL);
  bppsa_file_writer *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  made->descriptor = made->slot = -1;
  made->path = bppsa_strdup(path);
  const bppsa_status status = made->path == NULL ? BPPSA_ERR_MEMORY : open_writer(made);
  if (status != BPPSA_OK) {
    bppsa_file_writer_abort(made);
    return status;
  }
  *writer = made;
  return BPPSA_OK;
}

bppsa_status bppsa_file_writer_write(bppsa_file_writer *writer, const void *data, size_t bytes) {
  BPPSA_REQUIRE(writer != NULL);
  BPPSA_REQUIRE(data != NULL || bytes == 0);
  const char *from = data;
  while (bytes > 0) {
    const ssize_t put = bppsa_io_write(writer->descriptor, from, bytes);
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put <= 0) {
      const int reason = errno;
      writer->failed = true;
      (void)bppsa_fail(BPPSA_ERR_IO, "%s: cannot write after %lld bytes: %s", writer->path, (long long)writer->written,
                       put < 0 ? strerror(reason) : "no byte was written");
      errno = reason;
      return BPPSA_ERR_IO;
    }
    from += put;
    bytes -= (size_t)put;
    writer->written += put;
  }
  return BPPSA_OK;
}

bppsa_status bppsa_file_writer_seek(bppsa_file_writer *writer, int64_t offset) {
  BPPSA_REQUIRE(writer != NULL);
  if (writer->direct) {
    return bppsa_fail(BPPSA_ERR_IO, "%s: can be written from begin to end only, expected a regular file", writer->path);
  }
  if (bppsa_io_seek(writer->descriptor, offset) < 0) {
    writer->failed = true;
    return system_failure(writer->path, "cannot go to another place in it");
  }
  return BPPSA_OK;
}

/* A name is on disk only when its directory is. A file system that cannot synchronise directories, or a directory that may not be
 * read, is no error: the file is complete. */
bppsa_status bppsa_file_sync_directory(const char *path) {
  BPPSA_REQUIRE(path != NULL);
  const int descriptor = bppsa_io_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  if (descriptor < 0) {
    return errno == EACCES ? BPPSA_OK : system_failure(path, "cannot open the directory");
  }
  bppsa_status status = BPPSA_OK;
  if (bppsa_io_sync(descriptor) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EROFS) {
    status = system_failure(path, "cannot bring the directory to disk");
  }
  (void)bppsa_io_close(descriptor);
  return status;
}

static bppsa_status sync_directory_of(const char *path) {
  char directory[PATH_MAX];
  const char *slash = strrchr(path, '/');
  const int length = slash == NULL ? 1 : slash == path ? 1 : (int)(slash - path);
  snprintf(directory, sizeof directory, "%.*s", length, slash == NULL ? "." : path);
  if (bppsa_file_sync_directory(directory) != BPPSA_OK) {
    return bppsa_fail_prefix(BPPSA_ERR_IO, "%s: written, but", path);
  }
  return BPPSA_OK;
}

static bppsa_status commit(bppsa_file_writer *writer) {
  if (writer->failed) {
    return bppsa_fail(BPPSA_ERR_IO, "%s: not written, an earlier write failed", writer->path);
  }
  if (!writer->direct && bppsa_io_sync(writer->descriptor) != 0) {
    return system_failure(writer->path, "cannot bring it to disk");
  }
  const int closed = bppsa_io_close(writer->descriptor);
  writer->descriptor = -1;
  if (closed != 0) {
    return system_failure(writer->path, "cannot close");
  }
  if (writer->direct) {
    return BPPSA_OK;
  }
  if (bppsa_io_rename(writer->temporary, writer->path) != 0) {
    return system_failure(writer->path, "cannot put the new file in place");
  }
  bppsa_temporary_forget(writer->slot);
  bppsa_free(writer->temporary);
  writer->temporary = NULL;
  return sync_directory_of(writer->path);
}

bppsa_status bppsa_file_writer_commit(bppsa_file_writer *writer) {
  BPPSA_REQUIRE(writer != NULL);
  const bppsa_status status = commit(writer);
  bppsa_file_writer_abort(writer);
  return status;
}

/* Gives back what a writer holds, its own memory apart. */
static void abandon(bppsa_file_writer *writer) {
  if (writer->descriptor >= 0) {
    (void)bppsa_io_close(writer->descriptor);
  }
  if (writer->temporary != NULL) {
    (void)bppsa_io_unlink(writer->temporary);
    bppsa_temporary_forget(writer->slot);
    bppsa_free(writer->temporary);
  }
  bppsa_free(writer->path);
}

void bppsa_file_writer_abort(bppsa_file_writer *writer) {
  if (writer != NULL) {
    abandon(writer);
  }
  bppsa_free(writer);
}

bppsa_status bppsa_file_write(const char *path, const void *data, size_t bytes) {
  BPPSA_REQUIRE(path != NULL);
  BPPSA_REQUIRE(data != NULL || bytes == 0);
  bppsa_file_writer *writer = NULL;
  BPPSA_TRY(bppsa_file_writer_create(path, &writer));
  const bppsa_status status = bppsa_file_writer_write(writer, data, bytes);
  if (status != BPPSA_OK) {
    bppsa_file_writer_abort(writer);
    return status;
  }
  return bppsa_file_writer_commit(writer);
}

/* ---- proving ---- */

/* Writes to the temporary file and removes it. On failure errno is the reason. */
static bppsa_status try_writing(bppsa_file_writer *writer) {
  static const char page[PROOF];
  BPPSA_TRY(bppsa_file_writer_write(writer, page, sizeof page));
  const int closed = bppsa_io_close(writer->descriptor);
  writer->descriptor = -1;
  if (closed != 0) {
    return system_failure(writer->path, "cannot close a file in its directory");
  }
  if (bppsa_io_unlink(writer->temporary) != 0) {
    return system_failure(writer->path, "cannot remove a file from its directory");
  }
  bppsa_temporary_forget(writer->slot);
  bppsa_free(writer->temporary);
  writer->temporary = NULL;
  return BPPSA_OK;
}

bppsa_status bppsa_file_prove(const char *path) {
  BPPSA_REQUIRE(path != NULL);
  bppsa_file_writer *writer = NULL;
  BPPSA_TRY(bppsa_file_writer_create(path, &writer));
  const bppsa_status status = writer->direct ? BPPSA_OK : try_writing(writer);
  bppsa_file_writer_abort(writer);
  return status;
}

bppsa_status bppsa_file_prove_directory(const char *path) {
  BPPSA_REQUIRE(path != NULL);
  const size_t length = strlen(path);
  bppsa_file_writer writer = {.descriptor = -1, .slot = -1, .path = bppsa_alloc(length + 2)};
  if (writer.path == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  memcpy(writer.path, path, length);
  memcpy(writer.path + length, "/", 2);
  bppsa_status status = open_temporary(&writer);
  status = status == BPPSA_OK ? try_writing(&writer) : status;
  const int reason = errno;
  abandon(&writer);
  return status == BPPSA_ERR_IO ? bppsa_fail(status, "%s: no file can be made in it: %s", path, strerror(reason)) : status;
}
