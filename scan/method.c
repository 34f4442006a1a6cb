#include "scan/method.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/files/json.h"
#include "scan/algorithm_internal.h"

/* The row of a method's algorithm; for an unknown algorithm a row that has only a name. */
static const bppsa_scan_algorithm_row *row_of(bppsa_scan_algorithm algorithm) {
  static const bppsa_scan_algorithm_row unknown = {.name = "unknown"};
  const bppsa_scan_algorithm_row *row = bppsa_scan_algorithm_find(algorithm);
  return row != NULL ? row : &unknown;
}

static const char *const backwards[] = {[BPPSA_BACKWARD_AUTO] = "auto",
                                        [BPPSA_BACKWARD_BP] = "bp",
                                        [BPPSA_BACKWARD_SCAN] = "scan",
                                        [BPPSA_BACKWARD_SPECULATIVE] = "speculative"};

bool bppsa_gradient_method_open(const bppsa_gradient_method *method) {
  return method->backward == BPPSA_BACKWARD_AUTO ||
         (method->backward == BPPSA_BACKWARD_SCAN && method->scan.algorithm == BPPSA_SCAN_AUTO);
}

const char *bppsa_backward_name(bppsa_backward backward) {
  return backwards[backward];
}

/* The number that belongs to the method's algorithm; NULL if it has none. */
static int64_t *number_of(bppsa_scan_method *method) {
  const bppsa_scan_algorithm_row *row = row_of(method->algorithm);
  return row->number_of != NULL ? row->number_of(method) : NULL;
}

/* Returns true, and sets *number, if the method says more than its algorithm's name. */
static bool get_number(const bppsa_scan_method *method, int64_t *number) {
  bppsa_scan_method copy = *method;
  const int64_t *found = number_of(&copy);
  *number = found != NULL ? *found : -1;
  return found != NULL && *found >= row_of(method->algorithm)->least;
}

/* ---- text ---- */

const char *bppsa_scan_method_text(const bppsa_scan_method *method, char *text, size_t size) {
  int64_t number;
  const bool numbered = get_number(method, &number);
  const int length = snprintf(text, size, "%s", row_of(method->algorithm)->name);
  if (numbered && length > 0 && (size_t)length < size) {
    snprintf(text + length, size - (size_t)length, " %" PRId64, number);
  }
  return text;
}

const char *bppsa_gradient_method_text(const bppsa_gradient_method *method, char *text, size_t size) {
  if (method->backward == BPPSA_BACKWARD_SCAN && method->scan.algorithm != BPPSA_SCAN_AUTO) {
    return bppsa_scan_method_text(&method->scan, text, size);
  }
  snprintf(text, size, "%s", backwards[method->backward]);
  return text;
}

/* Reads digits, and nothing else, as a number of 63 bits. */
static bool read_number(const char *text, int64_t *number) {
  int64_t value = 0;
  bool good = *text != '\0';
  for (; good && *text != '\0'; ++text) {
    good = *text >= '0' && *text <= '9' && !__builtin_mul_overflow(value, 10, &value) &&
           !__builtin_add_overflow(value, *text - '0', &value);
  }
  *number = value;
  return good;
}

/* Reads the name of an algorithm, and behind a blank its number. *wrong: the algorithm whose name is followed by something else,
 * otherwise NULL. */
static bool read_method(const char *text, bppsa_scan_method *method, const bppsa_scan_algorithm_row **wrong) {
  *wrong = NULL;
  for (int a = 0; a < BPPSA_SCAN_ALGORITHMS; ++a) {
    const size_t length = strlen(row_of((bppsa_scan_algorithm)a)->name);
    if (strncmp(text, row_of((bppsa_scan_algorithm)a)->name, length) != 0) {
      continue;
    }
    bppsa_scan_method found = bppsa_scan_method_of((bppsa_scan_algorithm)a);
    int64_t *number = number_of(&found);
    if (text[length] != '\0' && (number == NULL || text[length] != ' ' || !read_number(text + length + 1, number) ||
                                 *number < row_of((bppsa_scan_algorithm)a)->least)) {
      *wrong = isalpha((unsigned char)text[length]) ? NULL : row_of((bppsa_scan_algorithm)a);
      return false;
    }
    *method = found;
    return true;
  }
  return false;
}

/* ERR_FORMAT: what follows the algorithm's name is not its number. */
static bppsa_status refuse_number(const char *text, const bppsa_scan_algorithm_row *row) {
  return row->number_of == NULL
             ? bppsa_fail(BPPSA_ERR_FORMAT, "method '%.40s', expected %s alone: it takes no number", text, row->name)
             : bppsa_fail(BPPSA_ERR_FORMAT,
                          "method '%.40s', expected a number of %ss, %" PRId64 " or more, as in '%s 4', or %s alone", text,
                          row->unit, row->least, row->name, row->name);
}

/* ERR_FORMAT with `first`, "auto, bp, ", and then the forms of all algorithms but auto: "linear, blelloch [UP-LEVELS] or ..".
 * wrong: as read_method says. */
static bppsa_status refuse(const char *text, const bppsa_scan_algorithm_row *wrong, const char *first) {
  if (wrong != NULL) {
    return refuse_number(text, wrong);
  }
  char forms[200] = "";
  size_t length = 0;
  for (int a = BPPSA_SCAN_AUTO + 1; a < BPPSA_SCAN_ALGORITHMS && length < sizeof forms; ++a) {
    const bppsa_scan_algorithm_row *row = row_of((bppsa_scan_algorithm)a);
    const char *between = a + 1 == BPPSA_SCAN_ALGORITHMS ? " or " : a > BPPSA_SCAN_AUTO + 1 ? ", " : "";
    length += (size_t)snprintf(forms + length, sizeof forms - length, "%s%s", between, row->name);
    if (row->number_of != NULL && length < sizeof forms) {
      const size_t unit = length + 2;
      length += (size_t)snprintf(forms + length, sizeof forms - length, " [%sS]", row->unit);
      for (size_t i = unit; i < length && i < sizeof forms; ++i) {
        forms[i] = (char)toupper((unsigned char)forms[i]);
      }
    }
  }
  return bppsa_fail(BPPSA_ERR_FORMAT, "method '%.40s', expected %s%s", text, first, forms);
}

bppsa_status bppsa_scan_method_parse(const char *text, bppsa_scan_method *method) {
  BPPSA_REQUIRE(text != NULL && method != NULL);
  const bppsa_scan_algorithm_row *wrong;
  return read_method(text, method, &wrong) ? BPPSA_OK : refuse(text, wrong, "auto, ");
}

static bool find_backward(const char *text, bppsa_backward *backward) {
  for (size_t b = 0; b < sizeof backwards / sizeof backwards[0]; ++b) {
    if (strcmp(text, backwards[b]) == 0) {
      *backward = (bppsa_backward)b;
      return true;
    }
  }
  return false;
}

bppsa_status bppsa_gradient_method_parse(const char *text, bppsa_gradient_method *method) {
  BPPSA_REQUIRE(text != NULL && method != NULL);
  bppsa_gradient_method found = {.backward = BPPSA_BACKWARD_SCAN, .scan = bppsa_scan_method_of(BPPSA_SCAN_AUTO)};
  const bppsa_scan_algorithm_row *wrong;
  if (!find_backward(text, &found.backward) && !read_method(text, &found.scan, &wrong)) {
    return refuse(text, wrong, "auto, bp, scan, ");
  }
  *method = found;
  return BPPSA_OK;
}

/* ---- words ---- */

const char *bppsa_scan_method_words(const bppsa_scan_method *method, char *text, size_t size) {
  const bppsa_scan_algorithm_row *a = row_of(method->algorithm);
  int64_t number;
  if (get_number(method, &number)) {
    snprintf(text, size, "%s (%" PRId64 " %s%s)", a->name, number, a->unit, number == 1 ? "" : "s");
  } else {
    snprintf(text, size, "%s", a->name);
  }
  return text;
}

const char *bppsa_gradient_method_words(const bppsa_gradient_method *method, char *text, size_t size) {
  static const char prefix[] = "scan, ";
  if (method->backward != BPPSA_BACKWARD_SCAN) {
    static const char *const words[] = {
        [BPPSA_BACKWARD_AUTO] = "auto", [BPPSA_BACKWARD_BP] = "sequential BP", [BPPSA_BACKWARD_SPECULATIVE] = "speculative BP"};
    snprintf(text, size, "%s", words[method->backward]);
    return text;
  }
  snprintf(text, size, "%s", prefix);
  if (size > sizeof prefix) {
    bppsa_scan_method_words(&method->scan, text + sizeof prefix - 1, size - (sizeof prefix - 1));
  }
  return text;
}

/* ---- JSON ---- */

bool bppsa_scan_method_put(json_t *object, const bppsa_scan_method *method) {
  const bppsa_scan_algorithm_row *a = row_of(method->algorithm);
  int64_t number;
  return json_object_set_new(object, "algorithm", json_string(a->name)) == 0 &&
         (!get_number(method, &number) || json_object_set_new(object, a->number, json_integer(number)) == 0);
}

bool bppsa_gradient_method_put(json_t *object, const bppsa_gradient_method *method) {
  return json_object_set_new(object, "backward", json_string(backwards[method->backward])) == 0 &&
         (method->backward != BPPSA_BACKWARD_SCAN || bppsa_scan_method_put(object, &method->scan));
}

bool bppsa_scan_method_get(const json_t *object, bppsa_scan_method *method) {
  const char *name = json_string_value(json_object_get(object, "algorithm"));
  for (int a = 0; name != NULL && a < BPPSA_SCAN_ALGORITHMS; ++a) {
    if (strcmp(name, row_of((bppsa_scan_algorithm)a)->name) != 0) {
      continue;
    }
    bppsa_scan_method found = bppsa_scan_method_of((bppsa_scan_algorithm)a);
    int64_t *number = number_of(&found);
    const json_t *value = number != NULL ? json_object_get(object, row_of((bppsa_scan_algorithm)a)->number) : NULL;
    if (value != NULL) {
      *number = json_integer_value(value); /* 0 if it is no integer */
      if (!json_is_integer(value) || *number < row_of((bppsa_scan_algorithm)a)->least) {
        return false;
      }
    }
    *method = found;
    return true;
  }
  return false;
}

bool bppsa_gradient_method_get(const json_t *object, bppsa_gradient_method *method) {
  const char *name = json_string_value(json_object_get(object, "backward"));
  bppsa_gradient_method found = {.scan = bppsa_scan_method_of(BPPSA_SCAN_AUTO)};
  if (name == NULL || !find_backward(name, &found.backward) ||
      (found.backward == BPPSA_BACKWARD_SCAN && !bppsa_scan_method_get(object, &found.scan))) {
    return false;
  }
  *method = found;
  return true;
}
