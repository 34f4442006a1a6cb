#include "figures/measured.h"

#include <math.h>
#include <string.h>

#include "core/rounds.h"

const char *const bppsa_measured_methods[BPPSA_MEASURED_METHODS] = {"bp", "linear", "blelloch", "chunked", "auto", "pytorch"};

int64_t bppsa_measured_integer(const json_t *row, const char *key) {
  return json_integer_value(json_object_get(row, key));
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

/* What the row says of itself or, where a rival's row says nothing, what its median and minimum say. */
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
  *noisy = bppsa_measured_noisy(rows, seq_len, batch, "blelloch") || bppsa_measured_noisy(rows, seq_len, batch, "chunked");
  return fmin(bppsa_measured_iteration(rows, seq_len, batch, "blelloch", "median_s"), /* fmin ignores NaN */
              bppsa_measured_iteration(rows, seq_len, batch, "chunked", "median_s"));
}

/* Does the row have all fields that the tables need? */
static bool is_row(const json_t *row) {
  return json_is_integer(json_object_get(row, "seq_len")) && json_is_integer(json_object_get(row, "batch")) &&
         json_is_string(json_object_get(row, "method")) && json_is_string(json_object_get(row, "phase"));
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
