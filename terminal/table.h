/* A table for people. Columns are data: each shows one member of a row's JSON object. */
#ifndef BPPSA_TERMINAL_TABLE_H
#define BPPSA_TERMINAL_TABLE_H

#include "terminal/output.h"

typedef enum {
  BPPSA_COLUMN_TEXT = 0,
  BPPSA_COLUMN_INTEGER,
  BPPSA_COLUMN_REAL,     /* with `digits` behind the point */
  BPPSA_COLUMN_EXPONENT, /* "1.2e-05" */
  BPPSA_COLUMN_PERCENT,  /* "12%" */
  BPPSA_COLUMN_SI,       /* "1.2 MFLOP": with a prefix and `unit` */
  BPPSA_COLUMN_MARKED,   /* as REAL, with a ~ where the row is noisy and a * where its gradients underflow */
  BPPSA_COLUMN_TIME,     /* "1.23 ms": seconds with three digits and a unit */
  BPPSA_COLUMN_MARKED_TIME
} bppsa_column_kind;

typedef struct {
  const char *heading;
  int width; /* of the cell; negative: its text begins at the left, two spaces behind the previous column */
  bppsa_column_kind kind;
  const char *key;  /* the member shown */
  const char *over; /* the member by which it is divided; NULL: none */
  double scale;     /* the factor by which it is multiplied; 0 stands for 1 */
  int digits;
  const char *unit;
  const char *missing; /* stands where the member is missing or null; NULL: "-" */
  /* Writes the cell instead of `kind`, from the caller's `context`, and returns text. NULL: `kind` decides. */
  const char *(*write)(const void *context, const json_t *row, char *text, size_t size);
} bppsa_table_column;

/* The columns of a timing, in milliseconds: median, minimum, maximum, repeats. */
#define BPPSA_COLUMN_TIMES(median_width, other_width, count_width, places)                                                       \
  {.heading = "median",                                                                                                          \
   .width = (median_width),                                                                                                      \
   .kind = BPPSA_COLUMN_MARKED,                                                                                                  \
   .key = "median_s",                                                                                                            \
   .scale = 1e3,                                                                                                                 \
   .digits = (places)},                                                                                                          \
      {.heading = "min", .width = (other_width), .kind = BPPSA_COLUMN_REAL, .key = "min_s", .scale = 1e3, .digits = (places)},   \
      {.heading = "max", .width = (other_width), .kind = BPPSA_COLUMN_REAL, .key = "max_s", .scale = 1e3, .digits = (places)}, { \
    .heading = "n", .width = (count_width), .kind = BPPSA_COLUMN_INTEGER, .key = "repeats"                                       \
  }

/* Prints a row and `end` behind it. The list of columns ends with one without a heading. ERR_IO. */
bppsa_status bppsa_table_print_row(const bppsa_output *to, const bppsa_table_column *columns, const void *context,
                                   const json_t *row, const char *end);
/* Prints the text columns with which a row begins, then a note instead of all others. ERR_IO. */
bppsa_status bppsa_table_print_note(const bppsa_output *to, const bppsa_table_column *columns, const void *context,
                                    const json_t *row, const char *note);
bppsa_status bppsa_table_print_headings(const bppsa_output *to, const bppsa_table_column *columns);
/* Prints the text columns whose members the object has, then the reason why it has no row. ERR_IO. */
bppsa_status bppsa_table_print_left_out(const bppsa_output *to, const bppsa_table_column *columns, const json_t *object);

/* "1.23 ms", as a TIME cell. Returns text. */
const char *bppsa_table_time_text(double seconds, char *text, size_t size);
/* The same for sentences: a cell has a blank behind "s". */
const char *bppsa_table_time_words(double seconds, char *text, size_t size);
/* The text for a rival that did not qualify, with the time of its single pass. Returns text. */
const char *bppsa_table_qualifying_text(double seconds, char *text, size_t size);

#endif
