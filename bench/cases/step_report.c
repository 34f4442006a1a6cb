/* The rows of `bench step` as JSON, and its table for people. */
#include <inttypes.h>
#include <string.h>

#include "bench/cases/bench_step.h"
#include "terminal/machine.h"
#include "train/objective.h"

typedef bppsa_step_session session;
typedef bppsa_step_entry entry;

/* The median of the point's fastest rival; 0: none was timed, or its time is noisy. */
static double best_rival(const bppsa_bench *bench) {
  const bppsa_timing *best = NULL;
  for (int64_t i = 0; i < bench->count; ++i) {
    const bppsa_timing *timing = &bench->entrants[i]->contender.timing[0];
    const bool rival = ((const entry *)bench->entrants[i]->context)->guest != NULL;
    best = rival && timing->repeats > 0 && (best == NULL || timing->median_s < best->median_s) ? timing : best;
  }
  return best != NULL && !best->noisy ? best->median_s : 0;
}

/* Writes what the latest passes did, of those that speculate. */
static bool put_passes(bppsa_model *model, json_t *row) {
  const bppsa_forward_plan *forward = bppsa_forward_plan_of(model);
  const bppsa_backward_plan *backward = bppsa_backward_plan_of(model);
  bppsa_forward_stats f = {0};
  bppsa_backward_stats b = {0};
  bool ok = true;
  if (forward->speculative && bppsa_forward_stats_of(model, &f) == BPPSA_OK) {
    ok = bppsa_json_put_integer(row, "chunks", forward->chunks) && bppsa_json_put_integer(row, "warm_up", forward->warm_up) &&
         bppsa_forward_stats_put(row, &f);
  }
  if (backward != NULL && bppsa_backward_stats_of(model, &b) == BPPSA_OK) {
    ok = ok && bppsa_json_put_integer(row, "backward_chunks", backward->chunks) &&
         bppsa_json_put_integer(row, "backward_warm_up", backward->warm_up) && bppsa_bench_put_backward(row, "backward_", &b);
  }
  return ok;
}

/* Writes the medians of a step's parts; a graph has none. */
static bool put_parts(const entry *e, json_t *row) {
  static const char *const names[BPPSA_STEP_PARTS] = {"forward_s", "backward_s", "other_s"};
  const int64_t count = e->passes < BPPSA_STEP_PASSES ? e->passes : BPPSA_STEP_PASSES;
  bool ok = true;
  for (int i = 0; ok && count > 0 && i < BPPSA_STEP_PARTS; ++i) {
    double sorted[BPPSA_STEP_PASSES];
    memcpy(sorted, e->parts[i], (size_t)count * sizeof *sorted);
    ok = bppsa_json_put_real(row, names[i], bppsa_timing_of(count, sorted).median_s);
  }
  return ok;
}

/* Writes which methods computed the passes of one of the project's rows. */
static bool put_plan(const entry *e, json_t *row) {
  bppsa_model *model = e->plain != NULL ? e->plain->model : e->model;
  const bppsa_gradient_method *method = e->plain != NULL ? &e->plain->backward : &e->backward;
  const bppsa_forward_plan *plan = bppsa_forward_plan_of(model);
  return bppsa_json_put_text(row, "forward",
                             bppsa_forward_name(plan->speculative ? BPPSA_FORWARD_SPECULATIVE : BPPSA_FORWARD_SEQUENTIAL)) &&
         bppsa_json_put_text(row, "backward",
                             method->backward == BPPSA_BACKWARD_SCAN ? bppsa_scan_algorithm_name(method->scan.algorithm)
                                                                     : bppsa_backward_name(method->backward)) &&
         put_passes(model, row);
}

static bool put_point(const session *s, json_t *row) {
  const bppsa_recurrent_config *c = &s->config;
  bool ok =
      bppsa_json_put_text(row, "model", s->bench->asked->point.kind->name) && bppsa_json_put_text(row, "init", s->init_name);
  ok = ok && bppsa_json_put_integer(row, "seq_len", c->seq_len) && bppsa_json_put_integer(row, "batch", c->batch);
  ok = ok && bppsa_json_put_integer(row, "hidden", c->hidden) && bppsa_json_put_integer(row, "input", c->input);
  ok = ok && bppsa_json_put_integer(row, "layers", c->layers) && bppsa_json_put_text(row, "dtype", bppsa_dtype_name(c->dtype));
  ok = ok && bppsa_json_put_integer(row, "threads", bppsa_device_get_threads(s->bench->device));
  ok = ok && bppsa_json_put_text(row, "loss_on", bppsa_objective_loss(NULL, c->loss_all));
  return ok && bppsa_json_put_real(row, "loss", s->loss) && bppsa_json_put_integer(row, "reach", s->reach);
}

bool bppsa_step_put(const bppsa_bench_entrant *entrant, json_t *row) {
  const entry *e = entrant->context;
  const bppsa_contender *c = &entrant->contender;
  const double best = best_rival(e->s->bench);
  bool ok = put_point(e->s, row) && bppsa_json_put_text(row, "method", entrant->method);
  ok = ok && (e->guest != NULL ? bppsa_json_put_bool(row, "rival", true) : put_plan(e, row));
  ok = ok && bppsa_bench_put_timing(row, &c->timing[0]);
  ok = ok && (!c->beaten || bppsa_json_put_real(row, "qualifying", c->qualifying[0]));
  if (best > 0 && c->timing[0].repeats > 0 && !c->timing[0].noisy) {
    ok = ok && bppsa_json_put_real(row, "rival_times", best / c->timing[0].median_s);
  }
  ok = ok && (c->verdict == BPPSA_REFUSED || bppsa_json_put_real(row, "error", e->error));
  ok = ok && (c->verdict != BPPSA_VERIFIED || put_parts(e, row));
  return ok && bppsa_json_put_real(row, "residual", c->residual) && bppsa_json_put_bool(row, "ok", c->verdict == BPPSA_VERIFIED);
}

const bppsa_table_column bppsa_step_columns[] = {
    {.heading = "init", .width = -24, .key = "init"},
    {.heading = "method", .width = -20, .key = "method"},
    {.heading = "forward", .width = -12, .key = "forward"},
    {.heading = "backward", .width = -9, .key = "backward"},
    BPPSA_COLUMN_TIMES(10, 10, 6, 3),
    {.heading = "x rival", .width = 9, .kind = BPPSA_COLUMN_REAL, .key = "rival_times", .digits = 2},
    {.heading = "reach", .width = 8, .kind = BPPSA_COLUMN_INTEGER, .key = "reach"},
    {.heading = "residual", .width = 10, .kind = BPPSA_COLUMN_REAL, .key = "residual", .digits = 2},
    {.heading = "error", .width = 9, .kind = BPPSA_COLUMN_EXPONENT, .key = "error"},
    {.heading = "path", .width = 8, .kind = BPPSA_COLUMN_INTEGER, .key = "path", .missing = ""},
    {.heading = "work", .width = 6, .kind = BPPSA_COLUMN_REAL, .key = "work", .digits = 2, .missing = ""},
    {.heading = "b path", .width = 8, .kind = BPPSA_COLUMN_INTEGER, .key = "backward_path", .missing = ""},
    {.heading = "b work", .width = 7, .kind = BPPSA_COLUMN_REAL, .key = "backward_work", .digits = 2, .missing = ""},
    {.heading = "gap", .width = 9, .kind = BPPSA_COLUMN_EXPONENT, .key = "backward_gap", .missing = ""},
    {.heading = "perturbation", .width = 14, .kind = BPPSA_COLUMN_EXPONENT, .key = "backward_perturbation", .missing = ""},
    {0}};

bppsa_status bppsa_step_print_head(const bppsa_bench *bench) {
  const session *s = bench->session;
  char date[BPPSA_DATE_TEXT];
  return bppsa_output_print(&bench->request->to,
                            "training steps of %s, T %" PRId64 ", B %" PRId64 ", H %" PRId64
                            ", loss on %s, on %s, %d threads, %s\n"
                            "milliseconds; reach: steps back from the last one until its gradient is zero or subnormal\n\n",
                            bench->asked->point.kind->name, s->config.seq_len, s->config.batch, s->config.hidden,
                            s->config.loss_all ? "every step" : "the last step", bppsa_device_get_hardware(bench->device),
                            bppsa_device_get_threads(bench->device), bppsa_machine_date(date, sizeof date));
}

const char *bppsa_step_note(const bppsa_bench_entrant *entrant, char *text, size_t size) {
  return entrant->contender.beaten ? bppsa_table_qualifying_text(entrant->contender.qualifying[0], text, size) : NULL;
}

bppsa_status bppsa_step_print_below(bppsa_bench *bench) {
  const session *s = bench->session;
  return s->config.loss_all || s->reach >= s->config.seq_len
             ? BPPSA_OK
             : bppsa_output_print(&bench->request->to,
                                  "  %s: BP could stop after %" PRId64 " of %" PRId64 " steps: the rest is a race over zeros\n",
                                  s->init_name, s->reach, s->config.seq_len);
}
