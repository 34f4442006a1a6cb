#include "core/files/path.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/io.h"
#include "core/files/file.h"

/* Copies the directory part of a path, "." where it has none. Returns false when it does not fit. */
static bool directory_of(const char *path, char *text, size_t size) {
  const char *slash = strrchr(path, '/');
  const size_t length = slash == NULL ? 1 : slash == path ? 1 : (size_t)(slash - path);
  if (length >= size) {
    return false;
  }
  memcpy(text, slash == NULL ? "." : path, length);
  text[length] = '\0';
  return true;
}

/* Says what is wrong with a path that is to be written, "" if nothing is. A link must lead to something, the file system must
 * accept the name, and what exists at the path must have the type `type` (S_IFREG, S_IFDIR). */
static const char *wrong_path(const char *path, mode_t type) {
  struct stat found;
  if (lstat(path, &found) != 0) {
    return errno == ENOENT ? "" : strerror(errno);
  }
  if (stat(path, &found) != 0) {
    return errno == ENOENT ? "a symbolic link that leads nowhere" : strerror(errno);
  }
  if ((found.st_mode & S_IFMT) != type) {
    return type == S_IFDIR ? "not a directory" : "not a regular file";
  }
  return access(path, W_OK) == 0 ? "" : strerror(errno);
}

static bppsa_status check_writable(const char *path, const char *directory) {
  struct stat found;
  if (stat(directory, &found) == 0 && S_ISDIR(found.st_mode) && access(directory, W_OK | X_OK) == 0) {
    return BPPSA_OK;
  }
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: cannot write into directory '%s', expected one that exists and is writable", path,
                    directory);
}

/* A proof that fails is a wrong request. */
static bppsa_status prove(bppsa_status proven) {
  return proven == BPPSA_ERR_IO ? bppsa_fail(BPPSA_ERR_ARGUMENT, "%s, expected a path that can be written", bppsa_last_error())
                                : proven;
}

/* Returns the name of the standard stream that the shell sends to this file, because both would write into it; NULL: none. A path
 * such as /dev/stdout names the stream on purpose. */
static const char *stream_of(const char *path) {
  struct stat file;
  const bool purpose = strncmp(path, "/dev/", 5) == 0 || strncmp(path, "/proc/", 6) == 0;
  const int descriptor = !purpose && stat(path, &file) == 0 ? bppsa_io_standard_stream(&file) : -1;
  return descriptor < 0 ? NULL : descriptor == STDOUT_FILENO ? "output" : "error";
}

bppsa_status bppsa_path_check_file(const char *path) {
  char directory[PATH_MAX], target[PATH_MAX];
  if (!directory_of(path, directory, sizeof directory)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "a path of %zu characters, expected at most 4095", strlen(path));
  }
  BPPSA_TRY(check_writable(path, directory));
  const size_t length = strlen(path);
  const char *wrong = length == 0 || path[length - 1] == '/' ? "not a regular file" : wrong_path(path, S_IFREG);
  if (wrong[0] != '\0') {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: %s, expected the path of a new or a regular file", path, wrong);
  }
  const char *stream = stream_of(path);
  if (stream != NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: standard %s goes to this file, expected another", path, stream);
  }
  const bool linked = realpath(path, target) != NULL && directory_of(target, directory, sizeof directory);
  BPPSA_TRY(linked ? check_writable(path, directory) : BPPSA_OK); /* the new file is made beside the one it replaces */
  return prove(bppsa_file_prove(path));
}

bppsa_status bppsa_path_check_folder(const char *path) {
  enum { ROOM = 64 /* for the names of files in it */ };
  char above[PATH_MAX], bare[PATH_MAX];
  struct stat found;
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/') { /* "new/" is made in ".", not in "new" */
    --length;
  }
  const bool fits = snprintf(bare, sizeof bare, "%.*s", (int)length, path) < (int)sizeof bare;
  if (!fits || !directory_of(bare, above, sizeof above)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "a path of %zu characters, expected at most 4095", strlen(path));
  }
  const bool exists = stat(path, &found) == 0 && S_ISDIR(found.st_mode);
  const char *wrong = length == 0                 ? "no name"
                      : length >= PATH_MAX - ROOM ? "File name too long"
                      : exists                    ? ""
                                                  : wrong_path(bare, S_IFDIR);
  if (wrong[0] != '\0') {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: %s, expected the path of a directory", path, wrong);
  }
  BPPSA_TRY(check_writable(path, exists ? path : above));
  const bppsa_status status = prove(bppsa_file_prove_directory(exists ? path : above));
  return status == BPPSA_OK || exists ? status : bppsa_fail_prefix(status, "%s", path);
}

static bool same_inode(const char *a, const char *b) {
  struct stat x, y;
  return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Returns the last name of a path. */
static const char *name_in(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash == NULL ? path : slash + 1;
}

bool bppsa_path_same(const char *a, const char *b) {
  char a_directory[4096], b_directory[4096];
  return strcmp(a, b) == 0 || same_inode(a, b) ||
         (strcmp(name_in(a), name_in(b)) == 0 && directory_of(a, a_directory, sizeof a_directory) &&
          directory_of(b, b_directory, sizeof b_directory) && same_inode(a_directory, b_directory));
}
