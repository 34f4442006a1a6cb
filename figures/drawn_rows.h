/* Documents whose figures are drawn from results alone: those of bench ranks, forward and step, and of two scripts. */
#ifndef BPPSA_FIGURES_DRAWN_ROWS_H
#define BPPSA_FIGURES_DRAWN_ROWS_H

#include "core/base/status.h"
#include "core/files/json.h"

/* The names of the runs that make these figures, and what the documents say under "bench". */
#define BPPSA_FIGURES_RANKS "ranks"
#define BPPSA_FIGURES_FORWARD "forward"
#define BPPSA_FIGURES_STEP "step"
#define BPPSA_FIGURES_STALENESS "staleness"
#define BPPSA_FIGURES_OUT_OF_ORDER "out_of_order"

/* Check that every row of --results has the fields that the figures need. ERR_FORMAT. */
bppsa_status bppsa_ranks_rows_check(const char *path, const json_t *rows);
bppsa_status bppsa_forward_rows_check(const char *path, const json_t *rows);
bppsa_status bppsa_step_rows_check(const char *path, const json_t *rows);
bppsa_status bppsa_staleness_rows_check(const char *path, const json_t *rows);
bppsa_status bppsa_out_of_order_rows_check(const char *path, const json_t *rows);

/* ---- for these checks ---- */

/* COUNT: an integer of 1 or more; POSITIVE: a number above 0. */
typedef enum {
  BPPSA_ROW_TEXT = 0,
  BPPSA_ROW_INTEGER,
  BPPSA_ROW_COUNT,
  BPPSA_ROW_NUMBER,
  BPPSA_ROW_POSITIVE,
  BPPSA_ROW_FLAG
} bppsa_row_kind;
typedef struct {
  const char *key;
  bppsa_row_kind kind;
} bppsa_row_field;

/* The key of the first field that the row lacks, or NULL. The list ends with a key of NULL. */
const char *bppsa_row_find_lack(const json_t *row, const bppsa_row_field *fields);
/* Refuses row i, which lacks the field, unless that is NULL. writer: what writes such rows. ERR_FORMAT. */
bppsa_status bppsa_row_check(const char *path, size_t i, const char *lacks, const char *writer);

#endif
