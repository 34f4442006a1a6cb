/* Checks of the files that options name. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/command.h"
#include "core/alloc.h"

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

static bppsa_status check_writable(const char *name, const char *path, const char *directory) {
  struct stat found;
  if (stat(directory, &found) == 0 && S_ISDIR(found.st_mode) && access(directory, W_OK | X_OK) == 0) {
    return BPPSA_OK;
  }
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: %s: cannot write into directory '%s', expected one that exists and is writable",
                    name, path, directory);
}

bppsa_status bppsa_cli_check_output(const bppsa_cli *cli, bppsa_option option) {
  const bppsa_option_value *value = bppsa_cli_value(cli, option);
  if (!value->present) {
    return BPPSA_OK;
  }
  const char *name = bppsa_option_get(option)->name, *path = value->text;
  char directory[PATH_MAX], target[PATH_MAX];
  if (!directory_of(path, directory, sizeof directory)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: a path of %zu characters, expected at most 4095", name, strlen(path));
  }
  BPPSA_TRY(check_writable(name, path, directory));
  const char *wrong = path[strlen(path) - 1] == '/' ? "not a regular file" : wrong_path(path, S_IFREG);
  if (wrong[0] != '\0') {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: %s: %s, expected the path of a new or a regular file", name, path, wrong);
  }
  const bool linked = realpath(path, target) != NULL && directory_of(target, directory, sizeof directory);
  return linked ? check_writable(name, path, directory) : BPPSA_OK; /* the new file is made beside the one it replaces */
}

bppsa_status bppsa_cli_check_directory(const bppsa_cli *cli, bppsa_option option) {
  const bppsa_option_value *value = bppsa_cli_value(cli, option);
  if (!value->present) {
    return BPPSA_OK;
  }
  const char *name = bppsa_option_get(option)->name, *path = value->text;
  char above[PATH_MAX];
  struct stat found;
  if (path[0] == '\0' || !directory_of(path, above, sizeof above)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: a path of %zu characters, expected 1 to 4095", name, strlen(path));
  }
  if (stat(path, &found) == 0 && S_ISDIR(found.st_mode)) {
    return check_writable(name, path, path);
  }
  const char *wrong = wrong_path(path, S_IFDIR);
  return wrong[0] != '\0' ? bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: %s: %s, expected the path of a directory", name, path, wrong)
                          : check_writable(name, path, above);
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

/* Says whether two paths lead to one file; where it does not exist yet, whether name and directory are the same. */
static bool same_file(const char *a, const char *b) {
  char a_directory[4096], b_directory[4096];
  return strcmp(a, b) == 0 || same_inode(a, b) ||
         (strcmp(name_in(a), name_in(b)) == 0 && directory_of(a, a_directory, sizeof a_directory) &&
          directory_of(b, b_directory, sizeof b_directory) && same_inode(a_directory, b_directory));
}

bppsa_status bppsa_cli_check_other(const bppsa_cli *cli, const char *path, const char *what, bppsa_option option) {
  const bppsa_option_value *value = bppsa_cli_value(cli, option);
  return value->present && same_file(path, value->text)
             ? bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: %s, the file of %s, expected two different files",
                          bppsa_option_get(option)->name, value->text, what)
             : BPPSA_OK;
}

bppsa_status bppsa_cli_check_distinct(const bppsa_cli *cli, bppsa_option first, bppsa_option second) {
  const bppsa_option_value *value = bppsa_cli_value(cli, first);
  return value->present ? bppsa_cli_check_other(cli, value->text, bppsa_option_get(first)->name, second) : BPPSA_OK;
}
