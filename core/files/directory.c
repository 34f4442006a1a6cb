#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* F_DUPFD_CLOEXEC, O_DIRECTORY */
#endif
#include "core/files/directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/alloc.h"
#include "core/base/io.h"

static bppsa_status system_failure(const char *path) {
  return bppsa_fail(BPPSA_ERR_IO, "%s: cannot list the directory: %s", path, strerror(errno));
}

static int compare_names(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static bppsa_status add_name(bppsa_directory *list, int64_t *capacity, const char *name) {
  BPPSA_TRY(bppsa_grow(&list->names, list->count, capacity, sizeof *list->names));
  list->names[list->count] = bppsa_strdup(name);
  return list->names[list->count++] == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
}

static bppsa_status read_names(const char *path, DIR *entries, bppsa_directory *list) {
  int64_t capacity = 0;
  for (;;) {
    errno = 0;
    const struct dirent *entry = readdir(entries);
    if (entry == NULL) {
      break;
    }
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
      BPPSA_TRY(add_name(list, &capacity, entry->d_name));
    }
  }
  if (errno != 0) {
    return system_failure(path);
  }
  if (list->count > 0) {
    qsort(list->names, (size_t)list->count, sizeof *list->names, compare_names);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_directory_list(const char *path, bppsa_directory *list) {
  const int descriptor = bppsa_io_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  if (descriptor < 0) {
    return system_failure(path);
  }
  const int stream = fcntl(descriptor, F_DUPFD_CLOEXEC, 0); /* closedir closes its own copy */
  DIR *entries = stream < 0 ? NULL : fdopendir(stream);
  bppsa_directory found = {0};
  const bppsa_status status = entries == NULL ? system_failure(path) : read_names(path, entries, &found);
  if (entries != NULL) {
    closedir(entries);
  }
  (void)bppsa_io_close(descriptor);
  if (status != BPPSA_OK) {
    bppsa_directory_free(&found);
    return status;
  }
  *list = found;
  return BPPSA_OK;
}

void bppsa_directory_free(bppsa_directory *list) {
  for (int64_t i = 0; i < list->count; ++i) {
    bppsa_free(list->names[i]);
  }
  bppsa_free(list->names);
  *list = (bppsa_directory){0};
}

static bool add_entry(const char *path, int depth, int64_t *bytes, int64_t *files) {
  enum { PATH = 4096 };
  struct stat found;
  bppsa_directory list = {0};
  char inner[PATH];
  if (stat(path, &found) != 0) {
    return false;
  }
  if (!S_ISDIR(found.st_mode)) {
    *bytes += found.st_size;
    *files += 1;
    return true;
  }
  bool good = depth > 0 && bppsa_directory_list(path, &list) == BPPSA_OK;
  for (int64_t i = 0; good && i < list.count; ++i) {
    const int length = snprintf(inner, sizeof inner, "%s/%s", path, list.names[i]);
    good = length > 0 && length < PATH && add_entry(inner, depth - 1, bytes, files);
  }
  bppsa_directory_free(&list);
  return good;
}

bool bppsa_directory_measure(const char *path, int depth, int64_t *bytes, int64_t *files) {
  int64_t size = 0, count = 0;
  if (!add_entry(path, depth, &size, &count)) {
    return false;
  }
  *bytes = size;
  *files = count;
  return true;
}
