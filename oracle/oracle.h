/* Projects time and memory of parallel training strategies before anybody buys the machines.
 *
 * It uses ParaDL's model (table 3 and appendix A), and comments say where its slips are repaired. It simulates pipeline schemes
 * (schedule/) and shows Chimera's model beside them; and it models the scan of recurrent layers over ranks (BPPSA, section 3.6).
 *
 *     bppsa_oracle_query query = bppsa_oracle_query_default(&model, &system);
 *     query.batch = 32;
 *     bppsa_oracle_rows rows = {0};
 *     bppsa_oracle_ask(&query, NULL, 4, 1024, &rows);
 */
#ifndef BPPSA_ORACLE_ORACLE_H
#define BPPSA_ORACLE_ORACLE_H

#include "core/base/text.h"
#include "oracle/ends.h"
#include "oracle/query.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A strategy. Its functions receive a row that names the strategy, the processors and the mini-batch. `limit` returns the most
 * processors that the strategy can use, and writes into row->reason what limits it. `project` fills in the row of p processors, p
 * <= limit; if p itself is impossible, it sets feasible = false and the reason. A strategy whose name is that of a scheme of
 * schedule/ simulates the scheme; the table of schemes says which options it takes and how its stages lie. */
typedef struct {
  const char *name, *summary;
  int64_t (*limit)(const bppsa_oracle_query *query, bppsa_oracle_row *row);
  bppsa_status (*project)(const bppsa_oracle_query *query, bppsa_oracle_row *row);
  bool strong;       /* it scales strongly, whatever the query says */
  const char *takes; /* an option that it takes and some strategies do not, or NULL; NULL for a scheme */
} bppsa_oracle_strategy;

/* Returns strategy i; NULL after the last. */
const bppsa_oracle_strategy *bppsa_oracle_strategy_at(int64_t i);
/* Does a strategy of the list, "data" or "data,filter" (NULL: all), take an option, as "--group"? An unknown strategy counts as
 * if it did: bppsa_oracle_ask refuses it. ERR_ARGUMENT: none does. */
bppsa_status bppsa_oracle_check_option(const char *list, const char *option);

typedef struct {
  bppsa_oracle_row *rows; /* owned */
  int64_t count;
  int64_t best; /* index of the fastest feasible row at the largest p; -1: none */
} bppsa_oracle_rows;

/* Makes the rows of the strategies in a list, "data" or "data,filter" (NULL: all), for p = first, twice that, ... and last. A
 * strategy that cannot run gives a row with feasible = false and the reason. ERR_ARGUMENT: an unknown strategy (with a
 * suggestion), a size below 1, first > last, more processors than the system has; ERR_MEMORY. */
bppsa_status bppsa_oracle_ask(const bppsa_oracle_query *query, const char *list, int64_t first, int64_t last,
                              bppsa_oracle_rows *rows);
void bppsa_oracle_rows_free(bppsa_oracle_rows *rows);
/* Returns the index of the fastest feasible row at p processors; -1: none is feasible. */
int64_t bppsa_oracle_fastest(const bppsa_oracle_rows *rows, int64_t p);
/* Returns the seconds of an epoch if computing and messages are at these ends of the system's spread. The row must have times. */
double bppsa_oracle_time_at(const bppsa_oracle_query *query, const bppsa_oracle_row *row, bppsa_oracle_end computing,
                            bppsa_oracle_end messages);
/* Is the row as fast as any other row with as many processors, with computing fast, as measured or slow, and messages too, in all
 * nine pairs? If the row's computing was measured by itself, it takes the fast end; another such row takes the slow end. */
bool bppsa_oracle_may_be_fastest(const bppsa_oracle_query *query, const bppsa_oracle_rows *rows, int64_t i);

/* ---- reports ---- */

/* Writes a table of what is possible; below it what is not, with the reasons; and a verdict: which strategy to take at the
 * largest p, which others may be as fast within the system's spread, why the rest is slower, and, if there are several numbers of
 * processors, which strategy is the fastest from which number on. ERR_MEMORY. */
bppsa_status bppsa_oracle_text_table(const bppsa_oracle_query *query, const bppsa_oracle_rows *rows, bppsa_text *text);
/* Makes {"model", "system", "parameters", "rows": [...], "verdict", ..}; NULL when out of memory. */
json_t *bppsa_oracle_rows_json(const bppsa_oracle_query *query, const bppsa_oracle_rows *rows);
/* Draws a stacked bar of phases for each strategy at the largest p, and lines of time over p if there are several. ERR_MEMORY. */
bppsa_status bppsa_oracle_draw(const bppsa_oracle_query *query, const bppsa_oracle_rows *rows, bppsa_text *text);
/* Writes the names of models, systems and strategies; with `json` in one line, into an empty text: {"models": [{"name",
 * "summary"}, ..], "systems": [..], "strategies": [..]}. ERR_MEMORY. */
bppsa_status bppsa_oracle_list(bool json, bppsa_text *text);

#ifdef __cplusplus
}
#endif
#endif
