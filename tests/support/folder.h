/* Folders that tests of files write into. */
#ifndef BPPSA_TESTS_SUPPORT_FOLDER_H
#define BPPSA_TESTS_SUPPORT_FOLDER_H

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* Counts the names in a folder, temporary files included. */
static inline int entries(const char *path) {
  DIR *folder = opendir(path);
  assert_non_null(folder);
  int count = -2; /* "." and ".." */
  while (readdir(folder) != NULL) {
    ++count;
  }
  closedir(folder);
  return count;
}

/* Removes a folder with all that is in it; its path has no blanks. */
static inline void remove_folder(const char *path) {
  char command[200];
  snprintf(command, sizeof command, "rm -rf %s", path);
  assert_int_equal(system(command), 0);
}

/* Makes an empty folder; removes what was there. */
static inline void fresh_folder(const char *path) {
  char command[200];
  remove_folder(path);
  snprintf(command, sizeof command, "mkdir %s", path);
  assert_int_equal(system(command), 0);
}

#endif
