#include "cli/figures_keep.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bppsa_version.h"
#include "cli/interrupt.h"
#include "core/alloc.h"
#include "core/file.h"

static bppsa_status out_of_memory(void) {
  return bppsa_fail(BPPSA_ERR_MEMORY, "figures: out of memory, expected room for the results");
}

/* ---- the configuration ---- */

/* What says where, how or whether to go on, and not what is measured; threads follow below, as they came out. */
static bool is_measured(bppsa_option option) {
  static const bppsa_option others[] = {BPPSA_OPTION_OUT,  BPPSA_OPTION_RESUME, BPPSA_OPTION_RESULTS,
                                        BPPSA_OPTION_JSON, BPPSA_OPTION_HELP,   BPPSA_OPTION_THREADS};
  for (size_t i = 0; i < sizeof others / sizeof others[0]; ++i) {
    if (option == others[i]) {
      return false;
    }
  }
  return true;
}

static json_t *value_json(bppsa_option_kind kind, const bppsa_option_value *value) {
  return kind == BPPSA_FLAG                            ? json_boolean(value->given)
         : !value->present                             ? json_null()
         : kind == BPPSA_INTEGER || kind == BPPSA_SIZE ? json_integer(value->integer)
         : kind == BPPSA_REAL                          ? bppsa_json_real(value->real)
                                                       : json_string(value->text);
}

json_t *bppsa_figures_configuration(const bppsa_cli *cli, const bppsa_device *device) {
  json_t *made = json_object();
  bool ok = made != NULL && bppsa_json_put_text(made, "version", BPPSA_VERSION);
  ok = ok && bppsa_json_put_text(made, "commit", BPPSA_COMMIT);
  ok = ok && bppsa_json_put_text(made, "hardware", bppsa_device_get_hardware(device));
  ok = ok && bppsa_json_put_integer(made, "--threads", bppsa_device_get_threads(device));
  for (const bppsa_option_use *use = cli->command->uses; ok && use->option != BPPSA_OPTION_COUNT; ++use) {
    const bppsa_option_info *info = bppsa_option_get(use->option);
    ok = !is_measured(use->option) || bppsa_json_put(made, info->name, value_json(info->kind, bppsa_cli_value(cli, use->option)));
  }
  return bppsa_json_finish(made, ok);
}

/* "0", "\"npy:X,Y\"" or "nothing". Owned. */
static char *value_text(const json_t *value) {
  char *text = NULL;
  const bool none = value == NULL || json_is_null(value);
  json_t *nothing = none ? json_string("none") : NULL;
  (void)bppsa_json_text(none ? nothing : value, 0, 0, &text);
  json_decref(nothing);
  return text;
}

static bppsa_status compare(const char *path, const json_t *kept, const json_t *asked) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)asked, key, value) {
    const json_t *other = json_object_get(kept, key);
    if (other != NULL && json_equal(value, other)) {
      continue;
    }
    char *mine = value_text(value), *theirs = value_text(other);
    const bppsa_status status =
        mine == NULL || theirs == NULL
            ? out_of_memory()
            : bppsa_fail(BPPSA_ERR_ARGUMENT, "--resume: %s: %s, but %s was measured with %s, expected the same to go on", key,
                         mine, path, theirs);
    bppsa_free(mine);
    bppsa_free(theirs);
    return status;
  }
  return BPPSA_OK;
}

/* ---- the documents ---- */

static bppsa_status path_of(const bppsa_figures *f, const char *name, char *path, size_t size) {
  const int length = snprintf(path, size, "%s/%s", f->directory, name);
  return length > 0 && (size_t)length < size
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "--out: a path of %d characters, expected at most %zu", length, size - 1);
}

bppsa_status bppsa_figures_resume(const bppsa_figures *f, const char *name, const char *list, json_t **document) {
  char path[4096];
  struct stat found;
  json_t *kept = NULL;
  *document = NULL;
  BPPSA_TRY(path_of(f, name, path, sizeof path));
  if (!bppsa_cli_value(f->cli, BPPSA_OPTION_RESUME)->given || (stat(path, &found) != 0 && errno == ENOENT)) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_cli_input(bppsa_json_load(path, &kept)));
  const json_t *configuration = json_object_get(kept, "configuration");
  bppsa_status status = BPPSA_OK;
  if (!json_is_object(configuration) || !json_is_array(json_object_get(kept, list))) {
    status = bppsa_fail(BPPSA_ERR_FORMAT, "--resume: %s: no \"configuration\" or no list \"%s\", expected what figures kept",
                        path, list);
  }
  status = status == BPPSA_OK ? compare(path, configuration, f->configuration) : status;
  if (status != BPPSA_OK) {
    json_decref(kept);
    return status;
  }
  *document = kept;
  return BPPSA_OK;
}

bppsa_status bppsa_figures_check_overwrite(const bppsa_figures *f, const char *name) {
  char path[4096];
  json_t *kept = NULL;
  BPPSA_TRY(path_of(f, name, path, sizeof path));
  if (bppsa_cli_value(f->cli, BPPSA_OPTION_RESUME)->given || access(path, F_OK) != 0) {
    return BPPSA_OK;
  }
  const bppsa_status status = bppsa_json_load(path, &kept);
  const bool unfinished = json_is_false(json_object_get(kept, "finished"));
  json_decref(kept);
  if (status != BPPSA_OK) { /* only whole documents are kept: what is no JSON is none of them */
    return status == BPPSA_ERR_FORMAT ? BPPSA_OK : bppsa_cli_input(status);
  }
  return unfinished
             ? bppsa_fail(BPPSA_ERR_ARGUMENT,
                          "--out: %s: %s in it is what an interrupted run measured, expected --resume to go on, or another "
                          "directory",
                          f->directory, name)
             : BPPSA_OK;
}

bppsa_status bppsa_figures_keep(const bppsa_figures *f, const char *name, json_t *document, bool finished) {
  char path[4096], *text = NULL;
  BPPSA_TRY(path_of(f, name, path, sizeof path));
  if (!bppsa_json_put_bool(document, "finished", finished)) {
    return out_of_memory();
  }
  BPPSA_TRY(bppsa_json_text(document, 1, 0, &text));
  const bppsa_status status = bppsa_file_write(path, text, strlen(text));
  bppsa_free(text);
  return status;
}

bppsa_status bppsa_figures_check_interrupt(const bppsa_figures *f, const char *done) {
  return !bppsa_interrupt_pending()
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_IO, "stopped by %s after %s, what was measured is in %s, expected --resume to go on",
                          bppsa_interrupt_name(), done, f->directory);
}
