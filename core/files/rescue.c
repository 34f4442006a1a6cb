#include "core/files/rescue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/io.h"
#include "core/files/file.h"

enum { MESSAGE = 512, PLACE = 300 /* of a message, at most */ };

/* Saves the file into a new directory in `parent`. Says whether it is there; its path goes to `place`. */
static bool keep_in(const char *parent, const bppsa_result_file *file, char place[PLACE]) {
  const char *slash = strrchr(file->path, '/'), *name = slash != NULL ? slash + 1 : file->path;
  const int length = snprintf(place, PLACE, "%s/bppsa-rescued-XXXXXX", parent);
  if (parent[0] != '/' || length + 1 + (int)strlen(name) >= PLACE || bppsa_io_mkdir_private(place) != 0) {
    return false;
  }
  snprintf(place + length, (size_t)(PLACE - length), "/%s", name);
  if (file->save(place, file->context) == BPPSA_OK) {
    return true;
  }
  place[length] = '\0';
  (void)bppsa_io_rmdir(place);
  return false;
}

bppsa_status bppsa_rescue(bppsa_status status, const bppsa_result_file *file, const char *words, const char *after) {
  const char *const chosen = getenv("TMPDIR"), *const parents[] = {chosen != NULL ? chosen : "", "/tmp"};
  char why[MESSAGE], place[PLACE];
  snprintf(why, sizeof why, "%s", bppsa_last_error());
  for (size_t i = 0; i < sizeof parents / sizeof parents[0]; ++i) {
    if (keep_in(parents[i], file, place)) {
      const int left = MESSAGE - 5 - (int)(strlen(words) + strlen(place) + strlen(after)); /* so that the place is whole */
      return bppsa_fail(status, "%.*s; %s %s%s", left > 0 ? left : 0, why, words, place, after);
    }
  }
  return bppsa_fail(status, "%.450s; nor can it be kept in TMPDIR or /tmp", why);
}

bppsa_status bppsa_save_results(int count, const bppsa_result_file *files) {
  bppsa_status first = BPPSA_OK;
  for (int i = 0; i < count; ++i) {
    char before[MESSAGE];
    snprintf(before, sizeof before, "%s", bppsa_last_error());
    bppsa_status status = files[i].path != NULL ? files[i].save(files[i].path, files[i].context) : BPPSA_OK;
    if (status == BPPSA_ERR_IO) {
      status = bppsa_rescue(status, &files[i], "it is in", " instead");
    }
    if (first != BPPSA_OK) {
      (void)(status == BPPSA_OK ? bppsa_fail(first, "%s", before) : bppsa_fail(first, "%s; %s", before, bppsa_last_error()));
    }
    first = first == BPPSA_OK ? status : first;
  }
  return first;
}

bppsa_status bppsa_save_text(const char *path, const void *context) {
  const bppsa_result_text *text = context;
  return bppsa_file_write(path, text->text, text->bytes);
}
