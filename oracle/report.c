/* The oracle's rows as a table with a verdict, and as JSON. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "oracle/oracle.h"

/* ---- the verdict ---- */

static int64_t largest(const bppsa_oracle_rows *rows) {
  int64_t p = 0;
  for (int64_t i = 0; i < rows->count; ++i) {
    p = rows->rows[i].processors > p ? rows->rows[i].processors : p;
  }
  return p;
}

/* The possible row that follows `than` in the order of times, and of places where times are equal. NULL: none does. */
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

/* Per cent of the epoch that is communication; 0 of an epoch that takes no time. */
static double communication_of(const bppsa_oracle_row *row) {
  return row->time_s > 0 ? 100 * row->communication_s / row->time_s : 0;
}

/* Adds the other strategies that are possible, the fastest first. Nothing is a number of times slower than no time at all. */
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
    bppsa_text_add(text, ", %.0f %% communication)", communication_of(row));
    before = ", ";
  }
  bppsa_text_add(text, strcmp(before, ", ") == 0 ? "." : "");
}

static bool refused(const bppsa_oracle_row *row, int64_t p) {
  return row->processors == p && !row->feasible;
}

/* Was this row's reason the reason of a row before it? */
static bool told(const bppsa_oracle_rows *rows, int64_t p, int64_t i) {
  for (int64_t k = 0; k < i; ++k) {
    if (refused(&rows->rows[k], p) && strcmp(rows->rows[k].reason, rows->rows[i].reason) == 0) {
      return true;
    }
  }
  return false;
}

/* Adds the strategies that are not possible, each reason once. */
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

/* Adds which strategy is the fastest from which number of processors on, where there are several numbers. Below the first number
 * with one, none is possible. */
static void add_leaders(const bppsa_oracle_rows *rows, bppsa_text *text) {
  const char *before = NULL, *words = " Fastest: ";
  for (int64_t i = 1; i < rows->count && strcmp(rows->rows[i].strategy, rows->rows[0].strategy) == 0; ++i) {
    before = ""; /* there are several */
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

static void add_verdict(const bppsa_oracle_query *q, const bppsa_oracle_rows *rows, bppsa_text *text) {
  const int64_t p = largest(rows);
  if (rows->best < 0) {
    bppsa_text_add(text, "No strategy trains %s on %" PRId64 " processor%s of %s.", q->model->name, p, p == 1 ? "" : "s",
                   q->system->name);
  } else {
    const bppsa_oracle_row *best = &rows->rows[rows->best];
    char time[BPPSA_SI_TEXT];
    bppsa_text_add(text, "Take %s for %s on %" PRId64 " processor%s of %s: %s an epoch, %.0f %% of it communication.",
                   best->strategy, q->model->name, p, p == 1 ? "" : "s", q->system->name,
                   bppsa_text_si(best->time_s, "s", time, sizeof time), communication_of(best));
    add_slower(rows, p, text);
  }
  add_refused(rows, p, text);
  add_leaders(rows, text);
}

/* ---- the table ---- */

static void add_row(const bppsa_oracle_row *row, bppsa_text *text) {
  char memory[BPPSA_SI_TEXT];
  bppsa_text_add(text, "%-14s %9" PRId64 " ", row->strategy, row->processors);
  if (isnan(row->time_s)) {
    bppsa_text_add(text, "%10s %10s %10s %10s %10s  no: %s\n", "-", "-", "-", "-", "-", row->reason);
    return;
  }
  bppsa_text_add(text, "%10" PRId64 " %10.4g %10.4g %10.4g %10s  %s%s", row->mini_batch, row->compute_s, row->communication_s,
                 row->time_s, bppsa_text_si(row->memory_bytes, "B", memory, sizeof memory),
                 row->feasible ? "yes" : "no: ", row->reason);
  if (row->groups > 1) {
    bppsa_text_add(text, "; %" PRId64 " groups of %" PRId64, row->groups, row->processors / row->groups);
  }
  bppsa_text_add(text, "\n");
}

bppsa_status bppsa_oracle_text_table(const bppsa_oracle_query *query, const bppsa_oracle_rows *rows, bppsa_text *text) {
  char parameters[BPPSA_SI_TEXT];
  bppsa_text_add(text, "%s: %" PRId64 " layers, %s parameters, %" PRId64 " samples an epoch; %s\n", query->model->name,
                 query->model->count, bppsa_text_si(bppsa_oracle_parameters(query->model), "", parameters, sizeof parameters),
                 query->samples, query->system->name);
  if (query->model->measured[0] != '\0') {
    bppsa_text_add(text, "layers measured: %s\n", query->model->measured);
  }
  bppsa_text_add(text, "%-14s %9s %10s %10s %10s %10s %10s  %s\n", "strategy", "p", "mini-batch", "compute s", "commun. s",
                 "epoch s", "memory", "possible");
  for (int64_t i = 0; i < rows->count; ++i) {
    add_row(&rows->rows[i], text);
  }
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
  ok = ok && bppsa_json_put_real(object, "time_s", row->time_s) && bppsa_json_put(object, "phases_s", phases_json(row));
  ok = ok && (row->chunks == 0 || bppsa_json_put_integer(object, "chunks", row->chunks));
  ok = ok && (row->cuts == 0 || bppsa_json_put_shape(object, "cut", (int32_t)row->cuts, row->cut));
  ok = ok && (isnan(row->model_s) || bppsa_json_put_real(object, "model_s", row->model_s));
  ok =
      ok && bppsa_json_put_real(object, "memory_bytes", row->memory_bytes) && bppsa_json_put_integer(object, "limit", row->limit);
  ok = ok && bppsa_json_put_bool(object, "feasible", row->feasible);
  return bppsa_json_finish(object, ok && bppsa_json_put_text(object, "reason", row->reason));
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
  bppsa_text_free(&verdict);
  if (!ok) {
    json_decref(list);
    return bppsa_json_finish(object, false);
  }
  return bppsa_json_finish(object, bppsa_json_put(object, "rows", list));
}
