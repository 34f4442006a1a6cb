/* Printing, JSON documents, and checks of files. */
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

static bppsa_status write_failed(int reason) {
  return bppsa_fail(BPPSA_ERR_IO, "standard output: write failed (%s), expected it to take the results", strerror(reason));
}

bppsa_status bppsa_cli_print(bppsa_cli *cli, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  errno = 0;
  const int written = vfprintf(cli->out, format, arguments);
  const int reason = errno;
  va_end(arguments);
  return written < 0 ? write_failed(reason) : BPPSA_OK;
}

bppsa_status bppsa_cli_flush(FILE *out) {
  const int before = ferror(out) ? errno : 0; /* of a long text a part was written, or lost, before */
  errno = 0;
  return fflush(out) != 0 || ferror(out) ? write_failed(errno != 0 ? errno : before != 0 ? before : EIO) : BPPSA_OK;
}

bppsa_status bppsa_cli_render(json_t *document, char **text) {
  if (document == NULL) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "JSON document: out of memory, expected room for the results");
  }
  const bppsa_status status = bppsa_json_text(document, 0, 0, text);
  json_decref(document);
  return status;
}

bppsa_status bppsa_cli_print_document(bppsa_cli *cli, const char *text) {
  errno = 0;
  const bool good = fputs(text, cli->out) >= 0 && fputc('\n', cli->out) != EOF;
  return good ? bppsa_cli_flush(cli->out) : write_failed(errno);
}

bppsa_status bppsa_cli_print_json(bppsa_cli *cli, json_t *document) {
  char *text = NULL;
  BPPSA_TRY(bppsa_cli_render(document, &text));
  const bppsa_status status = bppsa_cli_print_document(cli, text);
  bppsa_free(text);
  return status;
}

bppsa_status bppsa_cli_input(bppsa_status status) {
  return status == BPPSA_ERR_IO ? BPPSA_ERR_ARGUMENT : status;
}

/* The directory part of a path, "." without one. false when it does not fit. */
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

/* What is wrong with a path at which something is to be written, "" where nothing is: a link must lead somewhere, a name must be
 * one that the file system takes, and what is there must have the type `type` (S_IFREG, S_IFDIR). */
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

/* The last name of a path. */
static const char *name_in(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash == NULL ? path : slash + 1;
}

/* One file, or one that does not exist yet: the same name in the same directory. */
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

const char *bppsa_cli_si(double value, const char *unit, char *text, size_t size) {
  static const char *const prefixes[] = {"", "k", "M", "G", "T", "P", "E"};
  size_t power = 0;
  while (fabs(value) >= 999.5 && power + 1 < sizeof prefixes / sizeof prefixes[0]) {
    value /= 1000;
    ++power;
  }
  const char *between = power > 0 || unit[0] != '\0' ? " " : "";
  snprintf(text, size, "%.3g%s%s%s", value, between, prefixes[power], unit);
  return text;
}
