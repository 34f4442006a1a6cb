/* Checks of the files that options name. */
#include <limits.h>
#include <string.h>

#include "cli/command.h"
#include "core/path.h"
#include "models/network_kind.h"

/* Refuses an output that is the file at `path`, which `what` gives. */
static bppsa_status check_other(const char *path, const char *what, const char *name, const char *output) {
  return bppsa_path_same(path, output)
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
    const bppsa_status status = role == BPPSA_PATH_FOLDER ? bppsa_path_check_folder(path) : bppsa_path_check_file(path);
    BPPSA_TRY(status == BPPSA_OK ? BPPSA_OK : bppsa_fail_prefix(status, "%s", name));
    BPPSA_TRY(role == BPPSA_PATH_WRITTEN ? check_distinct(cli, use) : BPPSA_OK);
  }
  return BPPSA_OK;
}
