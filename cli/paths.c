/* Checks of the files that options name. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/command.h"
#include "models/network_kind.h"

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

static bppsa_status check_file(const char *name, const char *path) {
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

static bppsa_status check_folder(const char *name, const char *path) {
  char above[PATH_MAX], bare[PATH_MAX];
  struct stat found;
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/') { /* "new/" is made in ".", not in "new" */
    --length;
  }
  const bool fits = snprintf(bare, sizeof bare, "%.*s", (int)length, path) < (int)sizeof bare;
  if (!fits || !directory_of(bare, above, sizeof above)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: a path of %zu characters, expected at most 4095", name, strlen(path));
  }
  if (stat(path, &found) == 0 && S_ISDIR(found.st_mode)) {
    return check_writable(name, path, path);
  }
  const char *wrong = wrong_path(bare, S_IFDIR);
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

/* Refuses an output that is the file at `path`, which `what` gives. */
static bppsa_status check_other(const char *path, const char *what, const char *name, const char *output) {
  return same_file(path, output)
             ? bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: %s, the file of %s, expected two different files", name, output, what)
             : BPPSA_OK;
}

/* Refuses an output that is one of the checkpoint's files (train/checkpoint.h). */
static bppsa_status check_checkpoint(const char *directory, const char *name, const char *output) {
  static const char *const names[] = {"checkpoint.safetensors", "checkpoint.previous.safetensors", "checkpoint.new.safetensors"};
  char path[PATH_MAX + 64];
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    snprintf(path, sizeof path, "%.4095s/%s", directory, names[i]);
    BPPSA_TRY(check_other(path, "--checkpoint", name, output));
  }
  return BPPSA_OK;
}

/* Refuses an output that is a file of --data npy:X,Y; the data set itself checks any other text. */
static bppsa_status check_data(const char *spec, const char *name, const char *output) {
  const char *comma = strchr(spec, ',');
  char x[PATH_MAX];
  if (strncmp(spec, "npy:", 4) != 0 || comma == NULL || (size_t)(comma - spec) >= sizeof x) {
    return BPPSA_OK;
  }
  snprintf(x, sizeof x, "%.*s", (int)(comma - spec) - 4, spec + 4);
  BPPSA_TRY(check_other(x, "--data", name, output));
  return check_other(comma + 1, "--data", name, output);
}

/* Refuses an output that is a file which the command reads, or another of its outputs, of which the later one is named. Training
 * may replace the file of its first weights, unless a resumed run has to find them again. */
static bppsa_status check_distinct(const bppsa_cli *cli, const bppsa_option_use *output) {
  const char *name = bppsa_option_get(output->option)->name, *path = bppsa_cli_value(cli, output->option)->text;
  const bppsa_option_value *checkpoint = bppsa_cli_value(cli, BPPSA_OPTION_CHECKPOINT);
  const bppsa_option_value *data = bppsa_cli_value(cli, BPPSA_OPTION_DATA);
  for (const bppsa_option_use *use = cli->command->uses; use->option != BPPSA_OPTION_COUNT; ++use) {
    const bppsa_option_value *value = bppsa_cli_value(cli, use->option);
    const bppsa_path_use role = bppsa_option_path(use);
    const bool other = role == BPPSA_PATH_READ || (role == BPPSA_PATH_WRITTEN && use < output);
    const bool replaced = use->option == BPPSA_OPTION_WEIGHTS && output->option == BPPSA_OPTION_SAVE_WEIGHTS;
    if (value->present && other && (!replaced || checkpoint->present)) {
      BPPSA_TRY(check_other(value->text, bppsa_option_get(use->option)->name, name, path));
    }
  }
  BPPSA_TRY(checkpoint->present ? check_checkpoint(checkpoint->text, name, path) : BPPSA_OK);
  BPPSA_TRY(data->present ? check_data(data->text, name, path) : BPPSA_OK);
  const bool file = cli->command->object != NULL && strcmp(cli->command->object, BPPSA_NETWORK_FILE) == 0;
  return file ? check_other(cli->object, "the network", name, path) : BPPSA_OK;
}

bppsa_status bppsa_cli_check_paths(const bppsa_cli *cli) {
  for (const bppsa_option_use *use = cli->command->uses; use->option != BPPSA_OPTION_COUNT; ++use) {
    const char *name = bppsa_option_get(use->option)->name, *path = bppsa_cli_value(cli, use->option)->text;
    const bppsa_path_use role = bppsa_option_path(use);
    if (!bppsa_cli_value(cli, use->option)->present || role == BPPSA_NO_PATH || role == BPPSA_PATH_READ) {
      continue;
    }
    BPPSA_TRY(role == BPPSA_PATH_FOLDER ? check_folder(name, path) : check_file(name, path));
    BPPSA_TRY(role == BPPSA_PATH_WRITTEN ? check_distinct(cli, use) : BPPSA_OK);
  }
  return BPPSA_OK;
}
