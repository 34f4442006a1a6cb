#include "bench/harness/table.h"

#include <inttypes.h>

#include "core/decimal.h"
#include "core/rounds.h"
#include "core/text.h"

enum { CELL = 64 };

/* The value of a numeric cell; false where the row does not have it. */
static bool value_of(const bppsa_bench_column *column, const json_t *row, double *value) {
  const json_t *found = json_object_get(row, column->key), *over = json_object_get(row, column->over);
  if (!json_is_number(found) || (column->over != NULL && !json_is_number(over))) {
    return false;
  }
  *value = json_number_value(found) * (column->scale != 0 ? column->scale : 1);
  *value /= column->over != NULL ? json_number_value(over) : 1;
  return true;
}

static const char *number_text(const bppsa_bench_column *column, const json_t *row, double value, char *text, size_t size) {
  switch (column->kind) {
  case BPPSA_COLUMN_INTEGER:
    bppsa_print(text, size, "%.0f", value);
    return text;
  case BPPSA_COLUMN_EXPONENT:
    bppsa_print(text, size, "%.1e", value);
    return text;
  case BPPSA_COLUMN_PERCENT:
    bppsa_print(text, size, "%.0f%%", 100 * value);
    return text;
  case BPPSA_COLUMN_SI:
    return bppsa_text_si(value, column->unit, text, size);
  case BPPSA_COLUMN_MARKED:
    bppsa_print(text, size, "%s%.*f", bppsa_timing_mark(json_is_true(json_object_get(row, "noisy"))), column->digits, value);
    return text;
  default:
    bppsa_print(text, size, "%.*f", column->digits, value);
    return text;
  }
}

static const char *cell_text(const bppsa_bench_column *column, const void *context, const json_t *row, char *text, size_t size) {
  double value;
  if (column->write != NULL) {
    return column->write(context, row, text, size);
  }
  if (column->kind == BPPSA_COLUMN_TEXT) {
    const char *found = json_string_value(json_object_get(row, column->key));
    return found != NULL ? found : "-";
  }
  return value_of(column, row, &value) ? number_text(column, row, value, text, size) : "-";
}

static bppsa_status print_cell(const bppsa_output *to, const bppsa_bench_column *column, const char *text) {
  return bppsa_output_print(to, "%s%*s", column->width < 0 ? "  " : "", column->width, text);
}

bppsa_status bppsa_bench_print_row(const bppsa_output *to, const bppsa_bench_column *columns, const void *context,
                                   const json_t *row, const char *end) {
  char text[CELL];
  for (; columns->heading != NULL; ++columns) {
    BPPSA_TRY(print_cell(to, columns, cell_text(columns, context, row, text, sizeof text)));
  }
  return bppsa_output_print(to, "%s\n", end);
}

bppsa_status bppsa_bench_print_headings(const bppsa_output *to, const bppsa_bench_column *columns) {
  for (; columns->heading != NULL; ++columns) {
    BPPSA_TRY(print_cell(to, columns, columns->heading));
  }
  return bppsa_output_print(to, "\n");
}

bppsa_status bppsa_bench_print_left_out(const bppsa_output *to, const bppsa_bench_column *columns, const json_t *object) {
  for (; columns->heading != NULL && columns->kind == BPPSA_COLUMN_TEXT; ++columns) {
    const char *text = json_string_value(json_object_get(object, columns->key));
    BPPSA_TRY(print_cell(to, columns, text != NULL ? text : ""));
  }
  return bppsa_output_print(to, "  left out: %s\n", json_string_value(json_object_get(object, "reason")));
}
