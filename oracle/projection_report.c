/* The oracle's rows as a table with a verdict, and as JSON. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/decimal.h"
#include "oracle/oracle.h"

/* ---- the verdict ---- */

static int64_t largest(const bppsa_oracle_rows *rows) {
  int64_t p = 0;
  for (int64_t i = 0; i < rows->count; ++i) {
    p = rows->rows[i].processors > p ? rows->rows[i].processors : p;
  }
  return p;
}

/* Finds the fastest possible row that is slower than `than`; rows with equal times follow in their order. NULL: there is none. */
static const bppsa_oracle_row *next_slower(const bppsa_oracle_rows *rows, int64_t p, const bppsa_oracle_row *than) {
  const bppsa_oracle_row *found = NULL;
  for (int64_t i = 0; i < rows->count; ++i) {
    const bppsa_oracle_row *row = &rows->rows[i];
    const bool behind = row->time_s > than->time_s || (row->time_s == than->time_s && row > than);
    if (row->processors == p && row->feasible && behind && (found == NULL || row->time_s < found->time_s)) {
      found = row;
    }
  }
  return found;
}

/* Adds the percentages of the epoch that are communication and, if ranks wait, waiting: 0 if the epoch takes no time. */
static void add_shares(const bppsa_oracle_row *row, const char *of, bppsa_text *text) {
  const double per_cent = row->time_s > 0 ? 100 / row->time_s : 0;
  bppsa_text_add(text, "%.0f %% %scommunication", per_cent * row->communication_s, of);
  if (row->waiting_s > 0) {
    bppsa_text_add(text, ", %.0f %% waiting", per_cent * row->waiting_s);
  }
}

/* May the row be as fast as the best one, within the spread of the system's numbers? */
static bool is_rival(const bppsa_oracle_query *q, const bppsa_oracle_rows *rows, int64_t i) {
  return rows->best >= 0 && i != rows->best && rows->rows[i].processors == rows->rows[rows->best].processors &&
         bppsa_oracle_spreads(q) && bppsa_oracle_may_be_fastest(q, rows, i);
}

/* Adds the other possible strategies, the fastest first, with how many times slower each is, or, if the best one takes no time,
 * its seconds. */
static void add_slower(const bppsa_oracle_rows *rows, int64_t p, bppsa_text *text) {
  const bppsa_oracle_row *best = &rows->rows[rows->best], *row = best;
  const char *before = best->time_s > 0 ? " Slower: " : " Others: ";
  char time[BPPSA_SI_TEXT];
  while ((row = next_slower(rows, p, row)) != NULL) {
    bppsa_text_add(text, "%s%s (", before, row->strategy);
    if (best->time_s > 0) {
      bppsa_text_add(text, "%.3g times", row->time_s / best->time_s);
    } else {
      bppsa_text_add(text, "%s", bppsa_text_si(row->time_s, "s", time, sizeof time));
    }
    bppsa_text_add(text, ", ");
    add_shares(row, "", text);
    bppsa_text_add(text, ")");
    before = ", ";
  }
  bppsa_text_add(text, strcmp(before, ", ") == 0 ? "." : "");
}

static bool refused(const bppsa_oracle_row *row, int64_t p) {
  return row->processors == p && !row->feasible;
}

/* Did an earlier row give the same reason? */
static bool told(const bppsa_oracle_rows *rows, int64_t p, int64_t i) {
  for (int64_t k = 0; k < i; ++k) {
    if (refused(&rows->rows[k], p) && strcmp(rows->rows[k].reason, rows->rows[i].reason) == 0) {
      return true;
    }
  }
  return false;
}

/* Adds the strategies that are impossible, and each reason once. */
static void add_refused(const bppsa_oracle_rows *rows, int64_t p, bppsa_text *text) {
  const char *before = " Not possible: ";
  for (int64_t i = 0; i < rows->count; ++i) {
    if (!refused(&rows->rows[i], p) || told(rows, p, i)) {
      continue;
    }
    for (int64_t k = i; k < rows->count; ++k) {
      if (refused(&rows->rows[k], p) && strcmp(rows->rows[k].reason, rows->rows[i].reason) == 0) {
        bppsa_text_add(text, "%s%s", before, rows->rows[k].strategy);
        before = ", ";
      }
    }
    bppsa_text_add(text, " (%s)", rows->rows[i].reason);
  }
  bppsa_text_add(text, strcmp(before, ", ") == 0 ? "." : "");
}

/* If there are several numbers of processors, adds which strategy is the fastest from which number on. Numbers below the first
 * one for which a strategy is possible are left out. */
static void add_leaders(const bppsa_oracle_rows *rows, bppsa_text *text) {
  const char *before = NULL, *words = " Fastest: ";
  for (int64_t i = 1; i < rows->count && strcmp(rows->rows[i].strategy, rows->rows[0].strategy) == 0; ++i) {
    before = ""; /* there are several numbers */
  }
  for (int64_t i = 0; before != NULL && i < rows->count && strcmp(rows->rows[i].strategy, rows->rows[0].strategy) == 0; ++i) {
    const int64_t best = bppsa_oracle_fastest(rows, rows->rows[i].processors);
    const char *name = best >= 0 ? rows->rows[best].strategy : before[0] != '\0' ? "none" : "";
    if (strcmp(name, before) != 0) {
      bppsa_text_add(text, "%s%s from %" PRId64, words, name, rows->rows[i].processors);
      words = ", ";
    }
    before = name;
  }
  bppsa_text_add(text, before != NULL && before[0] != '\0' ? "." : "");
}

/* If the system's numbers spread, adds which strategies may be as fast as the best one. */
static void add_rivals(const bppsa_oracle_query *q, const bppsa_oracle_rows *rows, bppsa_text *text) {
  const char *before = " Within the measured spread, ";
  int64_t rivals = 0;
  for (int64_t i = 0; i < rows->count; ++i) {
    if (is_rival(q, rows, i)) {
      bppsa_text_add(text, "%s%s", before, rows->rows[i].strategy);
      before = ", ";
      ++rivals;
    }
  }
  bppsa_text_add(text, rivals > 0 ? " may be as fast." : "");
}

static void add_verdict(const bppsa_oracle_query *q, const bppsa_oracle_rows *rows, bppsa_text *text) {
  const int64_t p = largest(rows);
  if (rows->best < 0) {
    bppsa_text_add(text, "No strategy trains %s on %" PRId64 " processor%s of %s.", q->model->name, p, p == 1 ? "" : "s",
                   q->system->name);
  } else {
    const bppsa_oracle_row *best = &rows->rows[rows->best];
    char time[BPPSA_SI_TEXT];
    bppsa_text_add(text, "Take %s for %s on %" PRId64 " processor%s of %s: %s an epoch, ", best->strategy, q->model->name, p,
                   p == 1 ? "" : "s", q->system->name, bppsa_text_si(best->time_s, "s", time, sizeof time));
    add_shares(best, "of it ", text);
    bppsa_text_add(text, ".");
    add_rivals(q, rows, text);
    add_slower(rows, p, text);
  }
  add_refused(rows, p, text);
  add_leaders(rows, text);
}

/* ---- the table ---- */

static void add_row(const bppsa_oracle_query *q, const bppsa_oracle_row *row, bppsa_text *text) {
  char memory[BPPSA_SI_TEXT], part[2 * BPPSA_SI_TEXT] = "-";
  if (!isnan(row->speedup)) {
    bppsa_print(part, sizeof part, "%.3g", row->speedup);
  }
  bppsa_text_add(text, "%-14s %9" PRId64 " %10" PRId64 " %10.4g %10.4g %10.4g %10.4g %9s %10s", row->strategy, row->processors,
                 row->mini_batch, row->compute_s, row->communication_s, row->waiting_s, row->time_s, part,
                 bppsa_text_si(row->memory_bytes, "B", memory, sizeof memory));
  if (bppsa_oracle_spreads(q)) {
    bppsa_print(part, sizeof part, "%.4g..%.4g", row->spread_s.low, row->spread_s.high);
    bppsa_text_add(text, " %18s", part);
  }
  if (row->groups > 1) {
    bppsa_text_add(text, "  %" PRId64 " groups of %" PRId64, row->groups, row->processors / row->groups);
  }
  bppsa_text_add(text, "\n");
}

/* Is there an earlier row of the same strategy with the same reason? */
static bool repeats(const bppsa_oracle_rows *rows, int64_t i) {
  const bppsa_oracle_row *row = &rows->rows[i], *before = i > 0 ? row - 1 : NULL;
  return before != NULL && !before->feasible && strcmp(before->strategy, row->strategy) == 0 &&
         strcmp(before->reason, row->reason) == 0;
}

/* Adds what is impossible, a line for each strategy and reason, with the range of processors. */
static void add_impossible(const bppsa_oracle_rows *rows, bppsa_text *text) {
  bool any = false;
  for (int64_t i = 0; i < rows->count; ++i) {
    const bppsa_oracle_row *row = &rows->rows[i];
    int64_t last = i;
    char processors[48];
    if (row->feasible || repeats(rows, i)) {
      continue;
    }
    while (last + 1 < rows->count && !rows->rows[last + 1].feasible && repeats(rows, last + 1)) {
      ++last;
    }
    snprintf(processors, sizeof processors, last > i ? "%" PRId64 "..%" PRId64 : "%" PRId64, row->processors,
             rows->rows[last].processors);
    bppsa_text_add(text, "%s%-14s %9s  %s\n", any ? "" : "\nnot possible\n", row->strategy, processors, row->reason);
    any = true;
  }
}

/* Adds a line for each level whose processors gain nothing. */
static void add_warnings(const bppsa_oracle_system *system, bppsa_text *text) {
  char warning[BPPSA_ORACLE_WARNING];
  for (int64_t i = 0; i < system->count; ++i) {
    if (bppsa_oracle_level_warning(&system->levels[i], warning)[0] != '\0') {
      bppsa_text_add(text, "warning: %s: %s\n", system->name, warning);
    }
  }
}

static void add_possible(const bppsa_oracle_query *q, const bppsa_oracle_rows *rows, bppsa_text *text) {
  bool any = false;
  for (int64_t i = 0; i < rows->count; ++i) {
    if (rows->rows[i].feasible && !any) {
      bppsa_text_add(text, "%-14s %9s %10s %10s %10s %10s %10s %9s %10s%s\n", "strategy", "p", "mini-batch", "compute s",
                     "commun. s", "waiting s", "epoch s", "speed-up", "memory",
                     bppsa_oracle_spreads(q) ? "    spread of epoch" : "");
      any = true;
    }
    if (rows->rows[i].feasible) {
      add_row(q, &rows->rows[i], text);
    }
  }
  if (any) {
    bppsa_text_add(text, "speed-up: over serial, one processor with mini-batches of %" PRId64 "\n", q->batch);
  }
}

bppsa_status bppsa_oracle_text_table(const bppsa_oracle_query *query, const bppsa_oracle_rows *rows, bppsa_text *text) {
  char parameters[BPPSA_SI_TEXT];
  bppsa_text_add(text, "%s: %" PRId64 " layers, %s parameters, %" PRId64 " samples an epoch; %s\n", query->model->name,
                 query->model->count, bppsa_text_si(bppsa_oracle_parameters(query->model), "", parameters, sizeof parameters),
                 query->samples, query->system->name);
  if (query->model->measured[0] != '\0') {
    bppsa_text_add(text, "layers measured: %s\n", query->model->measured);
  }
  add_warnings(query->system, text);
  add_possible(query, rows, text);
  add_impossible(rows, text);
  bppsa_text_add(text, "\n");
  add_verdict(query, rows, text);
  bppsa_text_add(text, "\n");
  return bppsa_text_check(text);
}

/* ---- JSON ---- */

static json_t *phases_json(const bppsa_oracle_row *row) {
  json_t *object = json_object();
  bool ok = object != NULL;
  for (int32_t phase = 0; ok && phase < BPPSA_PHASE_COUNT; ++phase) {
    ok = bppsa_json_put_real(object, bppsa_oracle_phase_name(phase), isnan(row->time_s) ? NAN : row->phase_s[phase]);
  }
  return bppsa_json_finish(object, ok);
}

static json_t *row_json(const bppsa_oracle_row *row) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "strategy", row->strategy);
  ok = ok && bppsa_json_put_integer(object, "processors", row->processors) &&
       bppsa_json_put_integer(object, "groups", row->groups);
  ok = ok && bppsa_json_put_integer(object, "mini_batch", row->mini_batch);
  ok = ok && bppsa_json_put_integer(object, "micro_batches", row->micro_batches);
  ok = ok && bppsa_json_put_real(object, "compute_s", row->compute_s);
  ok = ok && bppsa_json_put_real(object, "communication_s", row->communication_s);
  ok = ok && bppsa_json_put_real(object, "waiting_s", row->waiting_s);
  ok = ok && bppsa_json_put_real(object, "time_s", row->time_s) && bppsa_json_put_real(object, "speedup", row->speedup);
  ok = ok && (row->spread_s.high <= 0 || bppsa_json_put(object, "time_spread_s", bppsa_oracle_spread_json(row->spread_s)));
  ok = ok && bppsa_json_put(object, "phases_s", phases_json(row));
  ok = ok && (row->chunks == 0 || bppsa_json_put_integer(object, "chunks", row->chunks));
  ok = ok && (row->cuts == 0 || bppsa_json_put_shape(object, "cut", (int32_t)row->cuts, row->cut));
  ok = ok && (isnan(row->model_s) || bppsa_json_put_real(object, "model_s", row->model_s));
  ok =
      ok && bppsa_json_put_real(object, "memory_bytes", row->memory_bytes) && bppsa_json_put_integer(object, "limit", row->limit);
  ok = ok && bppsa_json_put_bool(object, "feasible", row->feasible);
  return bppsa_json_finish(object, ok && bppsa_json_put_text(object, "reason", row->reason));
}

/* Lists the names of the strategies that may be as fast as the best one. */
static json_t *rivals_json(const bppsa_oracle_query *q, const bppsa_oracle_rows *rows) {
  json_t *list = json_array();
  bool ok = list != NULL;
  for (int64_t i = 0; ok && i < rows->count; ++i) {
    ok = !is_rival(q, rows, i) || json_array_append_new(list, json_string(rows->rows[i].strategy)) == 0;
  }
  return bppsa_json_finish(list, ok);
}

json_t *bppsa_oracle_rows_json(const bppsa_oracle_query *query, const bppsa_oracle_rows *rows) {
  json_t *object = json_object(), *list = json_array();
  bppsa_text verdict = {0};
  bool ok = object != NULL && list != NULL;
  for (int64_t i = 0; ok && i < rows->count; ++i) {
    ok = json_array_append_new(list, row_json(&rows->rows[i])) == 0;
  }
  add_verdict(query, rows, &verdict);
  ok = ok && !verdict.failed && bppsa_json_put_text(object, "model", query->model->name);
  ok = ok && bppsa_json_put_text(object, "system", query->system->name);
  ok = ok && bppsa_json_put_real(object, "parameters", bppsa_oracle_parameters(query->model));
  ok = ok && bppsa_json_put_integer(object, "samples", query->samples) && bppsa_json_put_integer(object, "batch", query->batch);
  ok = ok && bppsa_json_put_text(object, "scaling", query->strong ? "strong" : "weak");
  ok = ok && (query->model->measured[0] == '\0' || bppsa_json_put_text(object, "measured", query->model->measured));
  ok = ok && bppsa_json_put_text(object, "verdict", verdict.text);
  ok = ok && (!bppsa_oracle_spreads(query) || bppsa_json_put(object, "may_be_as_fast", rivals_json(query, rows)));
  ok = ok && bppsa_json_put(object, "warnings", bppsa_oracle_warnings_json(query->system));
  bppsa_text_free(&verdict);
  if (!ok) {
    json_decref(list);
    return bppsa_json_finish(object, false);
  }
  return bppsa_json_finish(object, bppsa_json_put(object, "rows", list));
}
