#include "runs/provenance.h"

#include <string.h>

#include "bppsa_version.h"
#include "core/base/alloc.h"
#include "core/files/directory.h"

enum { DEPTH = 2 }; /* levels of directories: DIR/CLASS/NAME.wav */

static bool add_input(json_t *inputs, const char *option, const char *path) {
  int64_t bytes = 0, files = 0;
  const bool known = bppsa_directory_measure(path, DEPTH, &bytes, &files);
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "option", option);
  ok = ok && bppsa_json_put_text(object, "path", path);
  ok = ok && bppsa_json_put(object, "size_bytes", known ? json_integer(bytes) : json_null());
  ok = ok && bppsa_json_put(object, "file_count", known ? json_integer(files) : json_null());
  object = bppsa_json_finish(object, ok);
  return object != NULL && json_array_append_new(inputs, object) == 0;
}

/* Adds the files of npy:X,Y, or the directory of KIND:DIR. Data that the program makes have neither. */
static bool add_data(json_t *inputs, const char *spec) {
  const char *colon = strchr(spec, ':');
  if (colon == NULL) {
    return true;
  }
  char *paths = bppsa_strdup(colon + 1);
  if (paths == NULL) {
    return false;
  }
  char *comma = strncmp(spec, "npy:", 4) == 0 ? strchr(paths, ',') : NULL;
  if (comma != NULL) {
    *comma = '\0';
  }
  const bool ok = add_input(inputs, "--data", paths) && (comma == NULL || add_input(inputs, "--data", comma + 1));
  bppsa_free(paths);
  return ok;
}

static json_t *inputs_json(const bppsa_provenance *provenance) {
  json_t *inputs = json_array();
  bool ok = inputs != NULL && (provenance->data == NULL || add_data(inputs, provenance->data));
  for (int i = 0; ok && i < provenance->count; ++i) {
    ok = add_input(inputs, provenance->inputs[i].option, provenance->inputs[i].path);
  }
  return bppsa_json_finish(inputs, ok);
}

static json_t *command_json(const bppsa_provenance *provenance) {
  json_t *words = json_array();
  bool ok = words != NULL;
  for (int i = 0; ok && i < provenance->argc; ++i) {
    json_t *word = bppsa_json_string(provenance->argv[i]);
    ok = word != NULL && json_array_append_new(words, word) == 0;
  }
  return bppsa_json_finish(words, ok);
}

bool bppsa_provenance_put(json_t *object, const bppsa_provenance *provenance) {
  return bppsa_json_put_text(object, "version", BPPSA_VERSION) && bppsa_json_put_text(object, "commit", BPPSA_COMMIT) &&
         bppsa_json_put(object, "command", command_json(provenance)) && bppsa_json_put(object, "inputs", inputs_json(provenance));
}
