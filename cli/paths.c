/* Checks of the files that options name. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/command.h"
#include "core/files/directory.h"
#include "core/files/npy.h"
#include "core/files/path.h"
#include "networks/network_kinds.h"
#include "train/data/cifar10.h"

/* Refuses an output that is the file at `path`, which `what` gives. */
static bppsa_status check_other(const char *path, const char *what, const char *name, const char *output) {
  char file[PATH_MAX];
  if (bppsa_npy_is_member(path)) { /* FILE:NAME */
    snprintf(file, sizeof file, "%.*s", (int)bppsa_npy_file_length(path), path);
    path = file;
  }
  return bppsa_path_same(path, output)
             ? bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: %s, the file of %s, expected two different files", name, output, what)
             : BPPSA_OK;
}

/* Writes the path of one of the checkpoint's files (train/checkpoint.h). Returns path. */
enum { CHECKPOINT_FILES = 3, CHECKPOINT_PATH = PATH_MAX + 64 };
static const char *checkpoint_file(const char *directory, int index, char path[CHECKPOINT_PATH]) {
  static const char *const names[CHECKPOINT_FILES] = {"checkpoint.safetensors", "checkpoint.previous.safetensors",
                                                      "checkpoint.new.safetensors"};
  snprintf(path, CHECKPOINT_PATH, "%.4095s/%s", directory, names[index]);
  return path;
}

/* Refuses an output that is a file in a directory, or below it by as many levels as `depth` says. */
static bppsa_status check_folder(const char *directory, int depth, const char *what, const char *name, const char *output) {
  bppsa_directory list = {0};
  if (bppsa_directory_list(directory, &list) != BPPSA_OK) { /* the data set reports this error itself */
    return BPPSA_OK;
  }
  bppsa_status status = BPPSA_OK;
  for (int64_t i = 0; status == BPPSA_OK && i < list.count; ++i) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", directory, list.names[i]) >= (int)sizeof path) {
      continue;
    }
    status = depth > 0 ? check_folder(path, depth - 1, what, name, output) : check_other(path, what, name, output);
  }
  bppsa_directory_free(&list);
  return status;
}

/* Refuses an output that is a file of the data set. WAV files lie in folders of their class. The data set itself checks the text
 * after --data. */
static bppsa_status check_data(const char *spec, const char *name, const char *output) {
  static const char *const sounds[] = {"irmas:", "instruments:"}, images[] = "cifar10:";
  const char *comma = strchr(spec, ',');
  char path[PATH_MAX];
  for (size_t i = 0; i < sizeof sounds / sizeof sounds[0]; ++i) {
    if (strncmp(spec, sounds[i], strlen(sounds[i])) == 0) {
      return check_folder(spec + strlen(sounds[i]), 1, "--data", name, output);
    }
  }
  for (int i = 0; strncmp(spec, images, strlen(images)) == 0 && i < BPPSA_CIFAR10_FILES; ++i) {
    if (snprintf(path, sizeof path, "%s/%s", spec + strlen(images), bppsa_cifar10_file(i)) < (int)sizeof path) {
      BPPSA_TRY(check_other(path, "--data", name, output));
    }
  }
  if (strncmp(spec, "npy:", 4) != 0 || comma == NULL || (size_t)(comma - spec) >= sizeof path) {
    return BPPSA_OK;
  }
  snprintf(path, sizeof path, "%.*s", (int)(comma - spec) - 4, spec + 4);
  BPPSA_TRY(check_other(path, "--data", name, output));
  return check_other(comma + 1, "--data", name, output);
}

/* Refuses an output if it is a file that the command reads, or the output of an earlier option. Training may replace the file of
 * its first weights, unless a resumed run has to find them again. */
static bppsa_status check_distinct(const bppsa_cli *cli, const bppsa_option_use *output, const char *path) {
  const char *name = bppsa_option_get(output->option)->name;
  const bppsa_option_value *checkpoint = bppsa_cli_value(cli, BPPSA_OPTION_CHECKPOINT);
  const bppsa_option_value *data = bppsa_cli_value(cli, BPPSA_OPTION_DATA);
  const bppsa_option_value *folder = bppsa_cli_value(cli, BPPSA_OPTION_DIRECTORY);
  char file[CHECKPOINT_PATH];
  for (const bppsa_option_use *use = cli->command->uses; use->option != BPPSA_OPTION_COUNT; ++use) {
    const bppsa_option_value *value = bppsa_cli_value(cli, use->option);
    const bppsa_path_use role = bppsa_option_path(use);
    const bool named = role == BPPSA_PATH_OR_NAME && value->text != NULL && strchr(value->text, '.') != NULL;
    const bool other = role == BPPSA_PATH_READ || named || (role == BPPSA_PATH_WRITTEN && use < output);
    const bool replaced = use->option == BPPSA_OPTION_WEIGHTS && output->option == BPPSA_OPTION_SAVE_WEIGHTS;
    if (value->present && other && (!replaced || checkpoint->present)) {
      BPPSA_TRY(check_other(value->text, bppsa_option_get(use->option)->name, name, path));
    }
  }
  for (int i = 0; checkpoint->present && output->option != BPPSA_OPTION_CHECKPOINT && i < CHECKPOINT_FILES; ++i) {
    BPPSA_TRY(check_other(checkpoint_file(checkpoint->text, i, file), "--checkpoint", name, path));
  }
  BPPSA_TRY(data->present ? check_data(data->text, name, path) : BPPSA_OK);
  BPPSA_TRY(folder->present ? check_folder(folder->text, 1, "the folder of sounds", name, path) : BPPSA_OK);
  const bool network = cli->command->object != NULL && strcmp(cli->command->object, BPPSA_NETWORK_FILE) == 0;
  return network ? check_other(cli->object, "the network", name, path) : BPPSA_OK;
}

/* Proves that a file can be written, and that the command does not use it for anything else. */
static bppsa_status check_written(const bppsa_cli *cli, const bppsa_option_use *use, const char *path) {
  const bppsa_status status = bppsa_path_check_file(path);
  return status == BPPSA_OK ? check_distinct(cli, use, path)
                            : bppsa_fail_prefix(status, "%s", bppsa_option_get(use->option)->name);
}

/* Proves that files can be written into a directory. In an existing directory for checkpoints it checks each file, because their
 * names are known. */
static bppsa_status check_directory(const bppsa_cli *cli, const bppsa_option_use *use, const char *path) {
  char file[CHECKPOINT_PATH];
  const bppsa_status status = bppsa_path_check_folder(path);
  BPPSA_TRY(status == BPPSA_OK ? BPPSA_OK : bppsa_fail_prefix(status, "%s", bppsa_option_get(use->option)->name));
  const bool known = use->option == BPPSA_OPTION_CHECKPOINT && access(path, F_OK) == 0;
  for (int i = 0; known && i < CHECKPOINT_FILES; ++i) {
    BPPSA_TRY(check_written(cli, use, checkpoint_file(path, i, file)));
  }
  return BPPSA_OK;
}

bppsa_status bppsa_cli_check_paths(const bppsa_cli *cli) {
  for (const bppsa_option_use *use = cli->command->uses; use->option != BPPSA_OPTION_COUNT; ++use) {
    const bppsa_option_value *value = bppsa_cli_value(cli, use->option);
    const bppsa_path_use role = bppsa_option_path(use);
    if (value->present && role == BPPSA_PATH_WRITTEN) {
      BPPSA_TRY(check_written(cli, use, value->text));
    } else if (value->present && role == BPPSA_PATH_FOLDER) {
      BPPSA_TRY(check_directory(cli, use, value->text));
    }
  }
  return BPPSA_OK;
}
