#include "oracle/members.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "train/line.h"

bool bppsa_oracle_is_file(const char *name) {
  const size_t length = strlen(name);
  return length > 5 && strcmp(name + length - 5, ".json") == 0;
}

bppsa_status bppsa_oracle_known(const char *where, const json_t *object, const char *const *names) {
  if (!json_is_object(object)) {
    char found[BPPSA_JSON_FOUND];
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: %s, expected a JSON object", where, bppsa_json_found(object, found));
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
      bppsa_line expected = {.length = 0};
      for (name = names; *name != NULL; ++name) {
        bppsa_line_add(&expected, "%s%s", name > names ? ", " : "", *name);
      }
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: unknown member \"%s\", expected %s%s", where, key, expected.text,
                        bppsa_suggestion(key, names, hint, sizeof hint));
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_oracle_text(const char *where, const json_t *object, const char *name, size_t size, char *text) {
  const json_t *member = json_object_get(object, name);
  const char *value = json_string_value(member);
  if (value == NULL || value[0] == '\0' || strlen(value) >= size) {
    char found[BPPSA_JSON_FOUND], length[48];
    snprintf(length, sizeof length, "a text of %zu", value != NULL ? strlen(value) : 0);
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"%s\": %s, expected a text of 1 to %zu characters", where, name,
                      value != NULL ? length : bppsa_json_found(member, found), size - 1);
  }
  if (bppsa_has_control_characters(value)) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"%s\": '%s', expected a text without control characters", where, name, value);
  }
  strcpy(text, value);
  return BPPSA_OK;
}

bppsa_status bppsa_oracle_numbers(const char *where, const json_t *object, size_t count, const bppsa_oracle_member *members) {
  for (size_t i = 0; i < count; ++i) {
    const bppsa_oracle_member *m = &members[i];
    const json_t *value = json_object_get(object, m->name);
    const double number = json_number_value(value);
    const bool wrong = !json_is_number(value) || !isfinite(number) || number < m->low || number > m->high;
    if (value != NULL && (wrong || (m->whole && number != floor(number)))) {
      char found[BPPSA_JSON_FOUND];
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"%s\": %s, expected a %snumber from %.10g to %.10g", where, m->name,
                        bppsa_json_found(value, found), m->whole ? "whole " : "", m->low, m->high);
    }
    if (value != NULL) {
      *m->value = number;
    }
  }
  return BPPSA_OK;
}
