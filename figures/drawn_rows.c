#include "figures/drawn_rows.h"

const char *bppsa_row_find_lack(const json_t *row, const bppsa_row_field *fields) {
  for (const bppsa_row_field *field = fields; field->key != NULL; ++field) {
    const json_t *value = json_object_get(row, field->key);
    const bool has[] = {[BPPSA_ROW_TEXT] = json_is_string(value),
                        [BPPSA_ROW_INTEGER] = json_is_integer(value),
                        [BPPSA_ROW_COUNT] = json_is_integer(value) && json_integer_value(value) >= 1,
                        [BPPSA_ROW_NUMBER] = json_is_number(value),
                        [BPPSA_ROW_POSITIVE] = json_is_number(value) && json_number_value(value) > 0,
                        [BPPSA_ROW_FLAG] = json_is_boolean(value)};
    if (!has[field->kind]) {
      return field->key;
    }
  }
  return NULL;
}

bppsa_status bppsa_row_check(const char *path, size_t i, const char *lacks, const char *writer) {
  return lacks == NULL
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_FORMAT, "--results: %s: row %zu lacks %s, expected a row of %s", path, i, lacks, writer);
}
