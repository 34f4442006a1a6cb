/* The limits that SECURITY.md promises are the readers' own. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cnn/network.h"
#include "core/files/archive.h"
#include "core/files/json.h"
#include "core/files/npy.h"
#include "core/files/safetensors.h"
#include "jacobian/file.h"
#include "oracle/layer_model.h"
#include "schedule/timed.h"

static void test_table(void **state) {
  (void)state;
  static char text[1 << 16];
  FILE *file = fopen(BPPSA_TEST_DATA_DIR "/../SECURITY.md", "r");
  assert_non_null(file);
  text[fread(text, 1, sizeof text - 1, file)] = '\0';
  assert_int_equal(fclose(file), 0);
  const struct {
    const char *what;
    int64_t limit;
  } rows[] = {{"JSON text: networks, costs, results, plans", BPPSA_JSON_LIMIT},
              {"a network's layers", BPPSA_CNN_MOST_LAYERS},
              {"layers of a model of the oracle", BPPSA_ORACLE_MOST_LAYERS},
              {"header of a safetensors file, checkpoints too", BPPSA_SAFETENSORS_HEADER_LIMIT},
              {"header of an NPY file", BPPSA_NPY_HEADER_LIMIT},
              {"dimensions of an array", BPPSA_MAX_DIMS},
              {"schedule as CSV", BPPSA_SCHEDULE_CSV_LIMIT},
              {"the same, of `train --split`", BPPSA_SCHEDULE_CSV_LIMIT},
              {"Matrix Market file", BPPSA_MTX_LIMIT},
              {"rows of a Matrix Market file", BPPSA_MTX_ROWS},
              {"compressed member of an NPZ file", BPPSA_ARCHIVE_INFLATED_LIMIT}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
    char row[160];
    snprintf(row, sizeof row, "\n| %s | %" PRId64 " ", rows[i].what, rows[i].limit);
    if (strstr(text, row) == NULL) {
      fail_msg("SECURITY.md lacks the row \"%s\"", row + 1);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_table)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
