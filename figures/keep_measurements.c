#include "figures/keep_measurements.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/files/rescue.h"

/* ---- the configuration ---- */

/* The text of a setting for messages: its JSON, or "none" if it is not set. Owned. */
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
            ? bppsa_figures_no_room()
            : bppsa_fail(BPPSA_ERR_ARGUMENT,
                         "--resume: %s: %s, but the measurements in %s were made with %s, expected the same setting", key, mine,
                         path, theirs);
    bppsa_free(mine);
    bppsa_free(theirs);
    return status;
  }
  return BPPSA_OK;
}

/* ---- the documents ---- */

bppsa_status bppsa_keep_resume(const bppsa_figures *f, const char *name, const char *list, json_t **document) {
  char path[BPPSA_FIGURES_PATH];
  struct stat found;
  json_t *kept = NULL;
  *document = NULL;
  BPPSA_TRY(bppsa_figures_path(f, name, "", path));
  if (!f->request->resume || (stat(path, &found) != 0 && errno == ENOENT)) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_input_status(bppsa_json_load(path, &kept)));
  const json_t *configuration = json_object_get(kept, "configuration");
  bppsa_status status = BPPSA_OK;
  if (!json_is_object(configuration) || !json_is_array(json_object_get(kept, list))) {
    status = bppsa_fail(BPPSA_ERR_FORMAT,
                        "--resume: %s: no \"configuration\" or no list \"%s\", expected the document of an interrupted run", path,
                        list);
  }
  status = status == BPPSA_OK ? compare(path, configuration, f->request->configuration) : status;
  if (status != BPPSA_OK) {
    json_decref(kept);
    return status;
  }
  *document = kept;
  return BPPSA_OK;
}

bppsa_status bppsa_keep_begin(const bppsa_figures *f, json_t *object, const char *list, json_t **document) {
  if (object == NULL || !bppsa_json_put(object, "configuration", json_incref(f->request->configuration)) ||
      !bppsa_json_put(object, list, json_array())) {
    json_decref(object);
    return bppsa_figures_no_room();
  }
  *document = object;
  return BPPSA_OK;
}

bppsa_status bppsa_keep_save(const bppsa_figures *f, const char *name, json_t *document, bool finished) {
  char path[BPPSA_FIGURES_PATH], *text = NULL;
  BPPSA_TRY(bppsa_figures_path(f, name, "", path));
  if (!bppsa_json_put_bool(document, "finished", finished)) {
    return bppsa_figures_no_room();
  }
  BPPSA_TRY(bppsa_json_text(document, 1, 0, &text));
  const bppsa_result_text all = {text, strlen(text)};
  const bppsa_status status = bppsa_save_results(1, &(bppsa_result_file){path, bppsa_save_text, &all});
  bppsa_free(text);
  return status;
}

bppsa_status bppsa_keep_check_stop(const bppsa_figures *f, const char *done) {
  const bppsa_figures_request *r = f->request;
  return r->stop == NULL || !r->stop(r->stop_context)
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_IO, "stopped by %s after %s, what it measured is kept in %s, expected --resume to continue",
                          r->stop_name(r->stop_context), done, r->directory);
}

/* ---- before a run ---- */

/* Refuses the run if DIRECTORY/name says that an earlier run did not finish: this run would overwrite its measurements. */
static bppsa_status check_overwrite(const bppsa_figures *f, const char *name) {
  char path[BPPSA_FIGURES_PATH];
  json_t *kept = NULL;
  BPPSA_TRY(bppsa_figures_path(f, name, "", path));
  if (access(path, F_OK) != 0) {
    return BPPSA_OK;
  }
  const bppsa_status status = bppsa_json_load(path, &kept);
  const bool unfinished = json_is_false(json_object_get(kept, "finished"));
  json_decref(kept);
  if (status != BPPSA_OK) { /* runs keep only complete JSON documents, so any other file is not from a run */
    return status == BPPSA_ERR_FORMAT ? BPPSA_OK : bppsa_input_status(status);
  }
  return unfinished
             ? bppsa_fail(
                   BPPSA_ERR_ARGUMENT,
                   "--out: %s: %s holds the measurements of an interrupted run, expected --resume to continue it, or another "
                   "directory",
                   f->request->directory, name)
             : BPPSA_OK;
}

/* Checks a kept document. mine: this run would write it. *found becomes true if the file exists. */
static bppsa_status check_document(const bppsa_figures *f, const char *name, const char *suffix, bool mine, bool *found) {
  char file[64], path[BPPSA_FIGURES_PATH];
  snprintf(file, sizeof file, "%s%s", name, suffix);
  BPPSA_TRY(bppsa_figures_path(f, file, "", path));
  *found = *found || access(path, F_OK) == 0;
  return mine && !f->request->resume ? check_overwrite(f, file) : BPPSA_OK;
}

bppsa_status bppsa_keep_check(const bppsa_figures *f) {
  bool found = false;
  for (int i = 0; i < bppsa_figure_page_count; ++i) {
    const bppsa_figure_page *page = &bppsa_figure_pages[i];
    const bool mine = strcmp(page->run, f->page->run) == 0;
    BPPSA_TRY(page->kept != NULL ? check_document(f, page->kept, "", mine, &found) : BPPSA_OK);
    for (int k = 0; k < bppsa_figure_count; ++k) {
      const bppsa_figure *figure = &bppsa_figure_table[k];
      const bool kept = figure->page == i && figure->kept;
      BPPSA_TRY(kept ? check_document(f, figure->name, ".json", mine && bppsa_figure_has_data(f, figure), &found) : BPPSA_OK);
    }
  }
  return found || !f->request->resume
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT,
                          "--resume: %s: the directory has no measurements, expected those of an interrupted run",
                          f->request->directory);
}

/* ---- parts ---- */

const json_t *bppsa_keep_find_part(const bppsa_figures *f, const char *name) {
  const json_t *parts = json_object_get(f->document, "parts");
  for (size_t i = 0; i < json_array_size(parts); ++i) {
    const json_t *part = json_array_get(parts, i);
    const char *found = json_string_value(json_object_get(part, "name"));
    if (found != NULL && strcmp(found, name) == 0) {
      return json_object_get(part, "rows");
    }
  }
  return NULL;
}

bppsa_status bppsa_keep_part(const bppsa_figures *f, const char *name, json_t *rows) {
  char done[64];
  json_t *part = json_object();
  snprintf(done, sizeof done, "%zu parts", json_array_size(json_object_get(f->document, "parts")));
  bool ok = part != NULL && bppsa_json_put_text(part, "name", name);
  ok = rows != NULL && ok && bppsa_json_put(part, "rows", json_incref(rows));
  json_decref(rows);
  part = bppsa_json_finish(part, ok);
  const bppsa_status status = bppsa_keep_check_stop(f, done);
  if (status != BPPSA_OK) {
    json_decref(part);
    return status;
  }
  if (json_array_append_new(json_object_get(f->document, "parts"), part) != 0) {
    return bppsa_figures_no_room();
  }
  return bppsa_keep_save(f, f->page->kept, f->document, false);
}
