/* A folder of the test's own for files that are rescued (core/files/rescue.h). */
#ifndef BPPSA_TESTS_SUPPORT_RESCUE_FOLDER_H
#define BPPSA_TESTS_SUPPORT_RESCUE_FOLDER_H

#include <limits.h>

#include "tests/support/folder.h"

static char rescue_folder[PATH_MAX]; /* its absolute path */

/* Makes the folder, empty, and sets TMPDIR to it. */
static inline void rescue_to(const char *path) {
  fresh_folder(path);
  assert_non_null(realpath(path, rescue_folder));
  assert_int_equal(setenv("TMPDIR", rescue_folder, 1), 0);
}

#endif
