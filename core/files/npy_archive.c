/* One array of an archive, where an NPY file is expected. */
#include <limits.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/files/archive.h"
#include "core/files/file.h"
#include "core/files/npy.h"
#include "core/files/npy_internal.h"

#define NPZ ".npz"
#define NPY ".npy"

/* Is there an archive at the first `length` characters of a path at which there is no file? */
static bool is_archive(const char *path, size_t length) {
  char front[PATH_MAX];
  if (length >= sizeof front || bppsa_file_begins(path, "")) {
    return false;
  }
  memcpy(front, path, length);
  front[length] = '\0';
  return bppsa_file_begins(front, "PK");
}

size_t bppsa_npy_file_length(const char *path) {
  const char *colon = strrchr(path, ':');
  const size_t front = colon != NULL ? (size_t)(colon - path) : 0, suffix = sizeof NPZ - 1;
  if (front == 0 || colon[1] == '\0') {
    return strlen(path);
  }
  const bool named = front > suffix && memcmp(colon - suffix, NPZ, suffix) == 0;
  return named || is_archive(path, front) ? front : strlen(path);
}

bool bppsa_npy_is_member(const char *path) {
  return path[bppsa_npy_file_length(path)] != '\0';
}

/* Writes the name of the member to read: the one that is asked for, or the only one. names: the archive's `count` arrays. */
static bppsa_status choose(const bppsa_archive *a, const char *asked, int64_t count, const bppsa_text *names,
                           bppsa_text *member) {
  if (asked == NULL && count != 1) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: an archive of %s%.200s, expected one array%s%.100s%s%.*s", bppsa_archive_path(a),
                      count > 0 ? "the arrays " : "no array", count > 0 ? names->text : "", count > 0 ? "; name it, as in " : "",
                      count > 0 ? bppsa_archive_path(a) : "", count > 0 ? ":" : "",
                      count > 0 ? (int)strcspn(names->text, ",") : 0, count > 0 ? names->text : "");
  }
  bppsa_text_add(member, "%s%s", asked != NULL ? asked : names->text, NPY);
  return bppsa_text_check(member);
}

static bppsa_status load_array(bppsa_archive *a, const char *where, const char *asked, bppsa_buffer *array) {
  bppsa_text names = {0}, member = {0}, expected = {0};
  unsigned char *bytes = NULL;
  int64_t size = 0, count;
  bppsa_status status = bppsa_archive_list(a, &names, &count);
  status = status == BPPSA_OK ? choose(a, asked, count, &names, &member) : status;
  bppsa_text_add(&expected, "one of %s", names.text != NULL ? names.text : "");
  status = status == BPPSA_OK ? bppsa_text_check(&expected) : status;
  status = status == BPPSA_OK ? bppsa_archive_read(a, member.text, expected.text, &bytes, &size) : status;
  status = status == BPPSA_OK ? bppsa_npy_copy(where, bytes, size, array) : status;
  bppsa_free(bytes);
  bppsa_text_free(&names);
  bppsa_text_free(&member);
  bppsa_text_free(&expected);
  return status;
}

bppsa_status bppsa_npy_load_archive(const char *path, bppsa_buffer *array) {
  BPPSA_REQUIRE(path != NULL && array != NULL);
  const size_t length = bppsa_npy_file_length(path);
  char *file = bppsa_strdup(path);
  bppsa_archive *a = NULL;
  if (file == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  file[length] = '\0';
  bppsa_status status = bppsa_archive_open(file, &a);
  if (status == BPPSA_OK) {
    status = load_array(a, path, path[length] != '\0' ? path + length + 1 : NULL, array);
    bppsa_archive_close(a);
  }
  bppsa_free(file);
  return status;
}
