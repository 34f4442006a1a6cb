/* Rows of a benchmark's document, found by their names. */
#ifndef BPPSA_TESTS_BENCH_ROWS_H
#define BPPSA_TESTS_BENCH_ROWS_H

#include "tests/cli/run_cli.h"

/* The first row of a phase (NULL: of any) and a method, in a document or in the array of its rows; without one the test fails. */
static inline const json_t *find_phase(const json_t *from, const char *phase, const char *method) {
  const json_t *rows = json_is_array(from) ? from : json_object_get(from, "rows");
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    if (strcmp(get_text(row, "method"), method) == 0 && (phase == NULL || strcmp(get_text(row, "phase"), phase) == 0)) {
      return row;
    }
  }
  fail_msg("no %s row of %s", phase != NULL ? phase : "such", method);
  return NULL;
}

static inline const json_t *find_row(const json_t *from, const char *method) {
  return find_phase(from, NULL, method);
}

#endif
