#include "figures/measured_rows.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/measure/rounds.h"
#include "scan/method.h"

/* ---- methods ---- */

const char *bppsa_measured_method(int index) {
  enum { FIRST = BPPSA_SCAN_AUTO + 1, LAST = BPPSA_SCAN_ALGORITHMS - 1 };
  return index == 0                      ? bppsa_backward_name(BPPSA_BACKWARD_BP)
         : index + FIRST - 1 <= LAST     ? bppsa_scan_algorithm_name((bppsa_scan_algorithm)(index + FIRST - 1))
         : index + FIRST - 1 == LAST + 1 ? bppsa_scan_algorithm_name(BPPSA_SCAN_AUTO)
                                         : "pytorch";
}

static bool is_parallel(bppsa_scan_algorithm algorithm) {
  return algorithm != BPPSA_SCAN_AUTO && !bppsa_scan_algorithm_is_bp(algorithm);
}

bppsa_scan_algorithm bppsa_measured_parallel(int index) {
  int algorithm = 0;
  while (!is_parallel((bppsa_scan_algorithm)algorithm) || index-- > 0) {
    ++algorithm;
  }
  return (bppsa_scan_algorithm)algorithm;
}

bool bppsa_measured_is_parallel(const char *method) {
  for (int i = 0; method != NULL && i < BPPSA_MEASURED_PARALLEL; ++i) {
    if (strcmp(method, bppsa_scan_algorithm_name(bppsa_measured_parallel(i))) == 0) {
      return true;
    }
  }
  return false;
}

const char *bppsa_measured_parallel_text(char *text, size_t size) {
  size_t used = 0;
  for (int i = 0; i < BPPSA_MEASURED_PARALLEL && used < size; ++i) {
    const char *between = i == 0 ? "" : i + 1 == BPPSA_MEASURED_PARALLEL ? " and " : ", ";
    used += (size_t)snprintf(text + used, size - used, "%s%s", between, bppsa_scan_algorithm_name(bppsa_measured_parallel(i)));
  }
  return text;
}

/* ---- rows ---- */

int64_t bppsa_measured_integer(const json_t *row, const char *key) {
  return json_integer_value(json_object_get(row, key));
}

double bppsa_measured_real(const json_t *row, const char *key) {
  const json_t *value = json_object_get(row, key);
  return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

const char *bppsa_measured_text(const json_t *row, const char *key) {
  const char *text = json_string_value(json_object_get(row, key));
  return text != NULL ? text : "";
}

bool bppsa_measured_is(const json_t *row, const char *key, const char *expected) {
  const char *found = json_string_value(json_object_get(row, key));
  return found != NULL && strcmp(found, expected) == 0;
}

static const json_t *find_row(const json_t *rows, int64_t seq_len, int64_t batch, const char *phase, const char *method) {
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    if (bppsa_measured_integer(row, "seq_len") == seq_len && bppsa_measured_integer(row, "batch") == batch &&
        bppsa_measured_is(row, "phase", phase) && bppsa_measured_is(row, "method", method) &&
        bppsa_measured_is(row, "init", "default")) {
      return row;
    }
  }
  return NULL;
}

static double seconds_of(const json_t *rows, int64_t seq_len, int64_t batch, const char *phase, const char *method,
                         const char *key) {
  const json_t *value = json_object_get(find_row(rows, seq_len, batch, phase, method), key);
  return json_is_number(value) ? json_number_value(value) : NAN;
}

double bppsa_measured_median(const json_t *rows, int64_t seq_len, int64_t batch, const char *method) {
  return method == NULL ? seconds_of(rows, seq_len, batch, "forward", "forward", "median_s")
                        : seconds_of(rows, seq_len, batch, "backward", method, "median_s");
}

/* The row that has a method's forward pass: PyTorch has a separate one, the program's methods share one. */
static const char *forward_of(const char *method) {
  return method != NULL && strcmp(method, "pytorch") == 0 ? "pytorch" : "forward";
}

double bppsa_measured_iteration(const json_t *rows, int64_t seq_len, int64_t batch, const char *method, const char *key) {
  const double forward = seconds_of(rows, seq_len, batch, "forward", forward_of(method), key);
  return method == NULL ? forward : forward + seconds_of(rows, seq_len, batch, "backward", method, key);
}

/* Whether the row is noisy: its own mark or, in a rival's row without one, the ratio of its median to its minimum. */
static bool is_noisy(const json_t *row) {
  const json_t *noisy = json_object_get(row, "noisy"), *median = json_object_get(row, "median_s"),
               *least = json_object_get(row, "min_s");
  return json_is_boolean(noisy)
             ? json_is_true(noisy)
             : json_number_value(median) > BPPSA_TIMING_SPREAD * json_number_value(least) && json_is_number(least);
}

bool bppsa_measured_noisy(const json_t *rows, int64_t seq_len, int64_t batch, const char *method) {
  const json_t *forward = find_row(rows, seq_len, batch, "forward", forward_of(method)),
               *backward = method != NULL ? find_row(rows, seq_len, batch, "backward", method) : NULL;
  return is_noisy(forward) || is_noisy(backward);
}

double bppsa_measured_best_scan(const json_t *rows, int64_t seq_len, int64_t batch, bool *noisy) {
  double best = NAN;
  *noisy = false;
  for (int i = 0; i < BPPSA_MEASURED_PARALLEL; ++i) {
    const char *method = bppsa_scan_algorithm_name(bppsa_measured_parallel(i));
    *noisy = *noisy || bppsa_measured_noisy(rows, seq_len, batch, method);
    best = fmin(best, bppsa_measured_iteration(rows, seq_len, batch, method, "median_s")); /* fmin ignores NaN */
  }
  return best;
}

/* Does the row have all fields that the tables need? */
static bool is_row(const json_t *row) {
  return json_is_integer(json_object_get(row, "seq_len")) && json_is_integer(json_object_get(row, "batch")) &&
         json_is_string(json_object_get(row, "method")) && json_is_string(json_object_get(row, "phase"));
}

static bool is_name(const char *text) {
  static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 ._+=:/-";
  const size_t length = strlen(text);
  return length > 0 && length <= BPPSA_MEASURED_NAME && strspn(text, allowed) == length && isalnum((unsigned char)text[0]);
}

/* The texts of rows that are names, and how many different ones a figure has room for. */
static const struct {
  const char *key;
  int most;
} names[] = {{"group", 8}, {"way", 64},   {"network", 4}, {"share", 8}, {"method", 64}, {"model", 8},
             {"init", 16}, {"phase", 16}, {"study", 8},   {"task", 4},  {"scheme", 8},  {"optimizer", 4}};

static bppsa_status no_memory(const char *option, const char *path) {
  return bppsa_fail(BPPSA_ERR_MEMORY, "%s: %s: out of memory", option, path);
}

/* Checks `text`, the name that row i has under names[k].key, and adds it to `seen`, the set of names of earlier rows. */
static bppsa_status check_name(const char *option, const char *path, size_t i, size_t k, const char *text, json_t *seen) {
  if (!is_name(text)) {
    return bppsa_fail(BPPSA_ERR_FORMAT,
                      "%s: %s: row %zu: %s '%.64s', expected 1 to %d letters, digits, blanks and ._+=:/-, the first a letter or "
                      "digit",
                      option, path, i, names[k].key, text, BPPSA_MEASURED_NAME);
  }
  if (json_object_set_new(seen, text, json_null()) != 0) {
    return no_memory(option, path);
  }
  return json_object_size(seen) <= (size_t)names[k].most
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_FORMAT, "%s: %s: row %zu: %s '%s' is one of more than %d, expected at most so many", option,
                          path, i, names[k].key, text, names[k].most);
}

#define LEAST_TIME 1e-15
#define MOST_TIME 1e15

/* Checks the times of row i: gnuplot draws them on logarithmic axes. A row that could not be measured has null. */
static bppsa_status check_times(const char *option, const char *path, size_t i, const json_t *row) {
  static const char *const times[] = {"median_s", "min_s", "max_s"};
  for (size_t k = 0; k < sizeof times / sizeof times[0]; ++k) {
    const double found = bppsa_measured_real(row, times[k]);
    if (found < LEAST_TIME || found > MOST_TIME) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: %s: row %zu: %s %g, expected %g to %g seconds", option, path, i, times[k], found,
                        LEAST_TIME, MOST_TIME);
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_measured_check_rows(const char *option, const char *path, const json_t *rows) {
  bppsa_status status = BPPSA_OK;
  if (json_array_size(rows) > BPPSA_MEASURED_ROWS) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: %s: %zu rows, expected at most %d", option, path, json_array_size(rows),
                      BPPSA_MEASURED_ROWS);
  }
  for (size_t k = 0; status == BPPSA_OK && k < sizeof names / sizeof names[0]; ++k) {
    json_t *seen = json_object();
    status = seen != NULL ? BPPSA_OK : no_memory(option, path);
    for (size_t i = 0; status == BPPSA_OK && i < json_array_size(rows); ++i) {
      const char *text = json_string_value(json_object_get(json_array_get(rows, i), names[k].key));
      status = text != NULL ? check_name(option, path, i, k, text, seen) : BPPSA_OK;
    }
    json_decref(seen);
  }
  for (size_t i = 0; status == BPPSA_OK && i < json_array_size(rows); ++i) {
    status = check_times(option, path, i, json_array_get(rows, i));
  }
  return status;
}

bppsa_status bppsa_measured_check(const char *option, const char *path, const json_t *rows) {
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    if (!is_row(json_array_get(rows, i))) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: %s: row %zu lacks seq_len, batch, method or phase, expected a row of bench rnn",
                        option, path, i);
    }
  }
  return BPPSA_OK;
}

int64_t bppsa_measured_count_names(const json_t *rows, bool (*is_of)(const json_t *row),
                                   const char *(*name_of)(const json_t *row, char *name)) {
  json_t *seen = json_object(), *row;
  char name[BPPSA_MEASURED_ROW_NAME];
  size_t i;
  bool ok = seen != NULL;
  json_array_foreach(rows, i, row) {
    ok = ok && (!is_of(row) || json_object_set_new(seen, name_of(row, name), json_null()) == 0);
  }
  const int64_t count = (int64_t)json_object_size(seen);
  json_decref(seen);
  return ok ? count : -1;
}
