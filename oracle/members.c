#include "oracle/members.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/text.h"

bool bppsa_oracle_is_file(const char *name) {
  const size_t length = strlen(name);
  return length > 5 && strcmp(name + length - 5, ".json") == 0;
}

bppsa_status bppsa_oracle_known(const char *where, const json_t *object, const char *const *names) {
  if (!json_is_object(object)) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: expected a JSON object", where);
  }
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)object, key, value) {
    const char *const *name = names;
    while (*name != NULL && strcmp(*name, key) != 0) {
      ++name;
    }
    if (*name == NULL) {
      char hint[96];
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: unknown member \"%s\"%s", where, key,
                        bppsa_suggestion(key, names, hint, sizeof hint));
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_oracle_text(const char *where, const json_t *object, const char *name, size_t size, char *text) {
  const char *value = json_string_value(json_object_get(object, name));
  if (value == NULL || value[0] == '\0' || strlen(value) >= size) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"%s\": expected a text of 1 to %zu characters", where, name, size - 1);
  }
  strcpy(text, value);
  return BPPSA_OK;
}

bppsa_status bppsa_oracle_numbers(const char *where, const json_t *object, size_t count, const bppsa_oracle_member *members) {
  for (size_t i = 0; i < count; ++i) {
    const bppsa_oracle_member *m = &members[i];
    const json_t *value = json_object_get(object, m->name);
    const double number = json_number_value(value);
    if (value != NULL && (!json_is_number(value) || !isfinite(number) || number < m->low || number > m->high)) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"%s\": expected a number from %.10g to %.10g", where, m->name, m->low, m->high);
    }
    if (value != NULL) {
      *m->value = number;
    }
  }
  return BPPSA_OK;
}
