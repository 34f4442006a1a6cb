#include "terminal/table.h"

#include <string.h>

#include "core/base/decimal.h"
#include "core/base/text.h"
#include "core/measure/rounds.h"

enum { CELL = 96 };

/* The value of a numeric cell; false where the row does not have it. */
static bool value_of(const bppsa_table_column *column, const json_t *row, double *value) {
  const json_t *found = json_object_get(row, column->key), *over = json_object_get(row, column->over);
  if (!json_is_number(found) || (column->over != NULL && !json_is_number(over))) {
    return false;
  }
  *value = json_number_value(found) * (column->scale != 0 ? column->scale : 1);
  *value /= column->over != NULL ? json_number_value(over) : 1;
  return true;
}

const char *bppsa_table_time_text(double seconds, char *text, size_t size) {
  const int unit = seconds < 1e-3 ? 0 : seconds < 1 ? 1 : 2;
  const double scaled = seconds * (const double[]){1e6, 1e3, 1}[unit];
  bppsa_print(text, size, "%.*f %s",
              scaled < 9.995   ? 2
              : scaled < 99.95 ? 1
                               : 0,
              scaled, (const char *[]){"us", "ms", "s "}[unit]);
  return text;
}

/* "~" if the row's time is noisy, "*" if its gradients underflow, or both. */
static const char *mark_of(const json_t *row) {
  static const char *const marks[] = {"", "~", "*", "~*"};
  return marks[json_is_true(json_object_get(row, "noisy")) + 2 * json_is_true(json_object_get(row, "underflow"))];
}

static const char *number_text(const bppsa_table_column *column, const json_t *row, double value, char *text, size_t size) {
  char time[CELL];
  switch (column->kind) {
  case BPPSA_COLUMN_TIME:
    return bppsa_table_time_text(value, text, size);
  case BPPSA_COLUMN_MARKED_TIME:
    snprintf(text, size, "%s%s", mark_of(row), bppsa_table_time_text(value, time, sizeof time - 1));
    return text;
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
    bppsa_print(text, size, "%s%.*f", mark_of(row), column->digits, value);
    return text;
  default:
    bppsa_print(text, size, "%.*f", column->digits, value);
    return text;
  }
}

static const char *cell_text(const bppsa_table_column *column, const void *context, const json_t *row, char *text, size_t size) {
  const char *missing = column->missing != NULL ? column->missing : "-";
  double value;
  if (column->write != NULL) {
    return column->write(context, row, text, size);
  }
  if (column->kind == BPPSA_COLUMN_TEXT) {
    const char *found = json_string_value(json_object_get(row, column->key));
    return found != NULL ? found : missing;
  }
  return value_of(column, row, &value) ? number_text(column, row, value, text, size) : missing;
}

static bppsa_status print_cell(const bppsa_output *to, const bppsa_table_column *column, const char *text) {
  return bppsa_output_print(to, "%s%*s", column->width < 0 ? "  " : "", column->width, text);
}

bppsa_status bppsa_table_print_row(const bppsa_output *to, const bppsa_table_column *columns, const void *context,
                                   const json_t *row, const char *end) {
  char text[CELL];
  for (; columns->heading != NULL; ++columns) {
    BPPSA_TRY(print_cell(to, columns, cell_text(columns, context, row, text, sizeof text)));
  }
  return bppsa_output_print(to, "%s\n", end);
}

bppsa_status bppsa_table_print_note(const bppsa_output *to, const bppsa_table_column *columns, const void *context,
                                    const json_t *row, const char *note) {
  char text[CELL];
  for (; columns->heading != NULL && columns->kind == BPPSA_COLUMN_TEXT; ++columns) {
    BPPSA_TRY(print_cell(to, columns, cell_text(columns, context, row, text, sizeof text)));
  }
  return bppsa_output_print(to, " %s\n", note);
}

bppsa_status bppsa_table_print_headings(const bppsa_output *to, const bppsa_table_column *columns) {
  for (; columns->heading != NULL; ++columns) {
    BPPSA_TRY(print_cell(to, columns, columns->heading));
  }
  return bppsa_output_print(to, "\n");
}

bppsa_status bppsa_table_print_left_out(const bppsa_output *to, const bppsa_table_column *columns, const json_t *object) {
  for (; columns->heading != NULL && columns->kind == BPPSA_COLUMN_TEXT; ++columns) {
    const char *text = json_string_value(json_object_get(object, columns->key));
    BPPSA_TRY(print_cell(to, columns, text != NULL ? text : ""));
  }
  return bppsa_output_print(to, "  left out: %s\n", json_string_value(json_object_get(object, "reason")));
}

const char *bppsa_table_time_words(double seconds, char *text, size_t size) {
  bppsa_table_time_text(seconds, text, size);
  text[strcspn(text, "s") + 1] = '\0';
  return text;
}

const char *bppsa_table_qualifying_text(double seconds, char *text, size_t size) {
  char time[24];
  snprintf(text, size, "%s in the qualifying pass: more than twice as long as the fastest rival",
           bppsa_table_time_words(seconds, time, sizeof time));
  return text;
}
