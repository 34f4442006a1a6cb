/* The rows of a point as JSON, and its table for people. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "bench/cases/case.h"
#include "core/base/decimal.h"
#include "core/measure/residual.h"
#include "train/objective.h"

static const char *phase_name(int row) {
  return bppsa_bench_row_backward(row) ? "backward" : "forward";
}

const char *bppsa_bench_init_name(bppsa_init init) {
  return init == BPPSA_INIT_ORTHOGONAL ? "orthogonal" : "default";
}

const char *bppsa_bench_weights_name(const bppsa_bench_point *point) {
  return point->weights != NULL ? point->weights : bppsa_bench_init_name(point->init);
}

static bool is_right(const bppsa_bench_row *row) {
  return row->residual < BPPSA_RESIDUAL_BOUND;
}

/* Does the row have a time? Wrong rows have none. */
static bool is_timed(const bppsa_bench_row *row) {
  return row->measured && row->time.repeats > 0;
}

/* Do the backward passes spend part of their time on zeros or subnormal numbers? */
static bool underflows(const bppsa_bench_result *result) {
  return result->hidden_zeros + result->hidden_subnormals >= 0.01;
}

static bool is_absent(const bppsa_bench_row *row) {
  return !row->measured && row->reason[0] == '\0';
}

/* ---- JSON ---- */

/* Writes an integer where JSON readers keep it exactly, otherwise a real. */
static bool put_count(json_t *object, const char *key, double value) {
  return fabs(value) < 9e15 ? bppsa_json_put_integer(object, key, (int64_t)value) : bppsa_json_put_real(object, key, value);
}

bool bppsa_bench_put_point(json_t *object, const bppsa_bench_session *s) {
  const bppsa_recurrent_config *c = &s->point.config;
  bool ok = bppsa_json_put_integer(object, "seq_len", c->seq_len);
  ok = ok && bppsa_json_put_integer(object, "batch", c->batch);
  ok = ok && bppsa_json_put_integer(object, "hidden", c->hidden);
  ok = ok && bppsa_json_put_integer(object, "input", c->input);
  ok = ok && bppsa_json_put_integer(object, "layers", c->layers);
  ok = ok && bppsa_json_put_integer(object, "threads", bppsa_device_get_threads(s->device));
  ok = ok && bppsa_json_put_text(object, "dtype", bppsa_dtype_name(c->dtype));
  ok = ok && bppsa_json_put_text(object, "init", bppsa_bench_weights_name(&s->point));
  if (s->point.kind->cell->relu) {
    ok = ok && bppsa_json_put_text(object, "nonlinearity", bppsa_nonlinearity_name(c->nonlinearity));
  }
  ok = ok && (c->recompute == 0 || bppsa_json_put_integer(object, "recompute", c->recompute));
  ok = ok && (s->bench->asked->reset_rate == 0 || bppsa_json_put_real(object, "reset_rate", s->point.reset_rate));
  ok = ok && (s->cold.cache == 0 || (bppsa_json_put_integer(object, "cold_bytes", s->cold.bytes) &&
                                     bppsa_json_put_integer(object, "cold_copies", s->cold.copies)));
  return ok && bppsa_json_put_text(object, "loss_on", bppsa_objective_loss(NULL, c->loss_all));
}

static bool put_plan(json_t *object, const bppsa_bench_row *row, int64_t batch) {
  bool ok = bppsa_scan_method_put(object, &row->method);
  ok = ok && put_count(object, "workspace_bytes", row->workspace);
  const bppsa_work_ratios ratios = bppsa_work_over(&row->work, &row->bp);
  ok = ok && put_count(object, "critical_flops", row->work.critical);
  ok = ok && put_count(object, "scan_flops", (double)batch * row->work.gradients);
  ok = ok && bppsa_work_json(object, "bp", &ratios);
  return ok && bppsa_json_put_integer(object, "critical_steps", row->critical_steps);
}

static bool put_measurement(json_t *object, int64_t seq_len, const bppsa_bench_row *row) {
  const bool m = row->measured;
  bool ok = bppsa_bench_put_timing(object, &row->time);
  ok = ok && (row->qualifying == 0 || bppsa_json_put_real(object, "qualifying", row->qualifying));
  ok = ok && bppsa_json_put_real(object, "step_s", is_timed(row) ? row->time.median_s / (double)seq_len : NAN);
  ok = ok && bppsa_json_put_real(object, "residual", m ? row->residual : NAN);
  ok = ok && bppsa_json_put_bool(object, "ok", m && is_right(row));
  ok = ok && put_count(object, "flops", row->flops);
  ok = ok && put_count(object, "bytes", row->bytes);
  ok = ok && bppsa_json_put_integer(object, "memory_bytes", row->memory);
  return m ? ok
           : ok && bppsa_json_put_text(object, "skipped", row->reason) &&
                 (row->predicted == 0 || bppsa_json_put_real(object, "predicted_s", row->predicted));
}

/* Writes the share of the peak; on a GPU also the floor, the cost model's prediction and a graph's number of nodes. */
static bool put_ceilings(json_t *object, const bppsa_bench_session *s, const bppsa_bench_row *row, bool graph) {
  const bppsa_bench_result *result = &s->result;
  const bool timed = is_timed(row);
  bool ok = bppsa_json_put_real(object, "peak_fraction", timed ? row->flops / row->time.median_s / result->peak.flops : NAN);
  if (!s->bench->gpu || !row->measured) {
    return ok;
  }
  ok = ok && bppsa_json_put_integer(object, "peak_device_bytes", row->memory);
  ok = ok && bppsa_json_put_real(object, "peak_flops_per_s", result->peak.flops);
  ok = ok && bppsa_json_put_real(object, "copy_bytes_per_s", result->peak.bytes);
  ok = ok && bppsa_json_put_real(object, "floor_s", bppsa_bench_floor(result, row));
  ok = ok && bppsa_json_put_real(object, "over_floor", timed ? row->time.median_s / bppsa_bench_floor(result, row) : NAN);
  ok = ok && (row->predicted == 0 || bppsa_json_put_real(object, "predicted_s", row->predicted));
  ok = ok && bppsa_json_put_bool(object, "graph", graph);
  return graph ? ok && bppsa_json_put_integer(object, "graph_nodes", row->nodes) : ok;
}

/* Writes what the forward pass did, if states may be computed in parallel. */
static bool put_forward(json_t *object, const bppsa_bench_row *row) {
  return bppsa_json_put_integer(object, "chunks", row->forward_plan.chunks) &&
         bppsa_json_put_integer(object, "warm_up", row->forward_plan.warm_up) &&
         bppsa_forward_stats_put(object, &row->forward_stats);
}

/* Writes what the backward pass did by speculative BP. */
static bool put_backward(json_t *object, const bppsa_bench_row *row) {
  return bppsa_json_put_integer(object, "chunks", row->backward_plan.chunks) &&
         bppsa_json_put_integer(object, "warm_up", row->backward_plan.warm_up) &&
         bppsa_bench_put_backward(object, "", &row->backward_stats);
}

static bool put_gradients(json_t *object, const bppsa_bench_session *s, const bppsa_bench_row *row) {
  bool ok = bppsa_json_put_real(object, "zeros", row->zeros);
  ok = ok && bppsa_json_put_real(object, "subnormals", row->subnormals);
  ok = ok && bppsa_json_put_integer(object, "redone", row->redone);
  ok = ok && bppsa_json_put_real(object, "hidden_zeros", s->result.hidden_zeros);
  ok = ok && bppsa_json_put_real(object, "hidden_subnormals", s->result.hidden_subnormals);
  ok = ok && bppsa_json_put_bool(object, "underflow", underflows(&s->result));
  ok = ok && bppsa_json_put_real(object, "forward_s", is_timed(row) ? row->forward.median_s : NAN);
  return ok && bppsa_json_put_real(object, "forward_min_s", is_timed(row) ? row->forward.min_s : NAN);
}

/* The session of a line; the next function: the position of its row in the session's result. */
static const bppsa_bench_session *session_of(const bppsa_bench_entrant *line) {
  return line->bench->session;
}

static int index_of(const bppsa_bench_entrant *line) {
  return (int)((const bppsa_bench_row *)line->context - session_of(line)->result.rows);
}

bool bppsa_bench_line_of_point(const bppsa_bench *bench, int64_t index, bppsa_bench_entrant *line) {
  bppsa_bench_session *s = bench->session;
  bppsa_bench_row *row = &s->result.rows[index];
  if (is_absent(row)) {
    return false;
  }
  bppsa_bench_row_name(s->guest, (int)index, line->method, sizeof line->method);
  snprintf(line->phase, sizeof line->phase, "%s", phase_name((int)index));
  snprintf(line->contender.reason, sizeof line->contender.reason, "%s", row->reason);
  line->context = row;
  line->needs = row->measured ? 0 : row->memory;
  line->contender.verdict = !row->measured ? BPPSA_REFUSED : is_right(row) ? BPPSA_VERIFIED : BPPSA_WRONG;
  line->contender.residual = row->residual;
  line->contender.timing[0] = row->time;
  return true;
}

bool bppsa_bench_put_line(const bppsa_bench_entrant *line, json_t *object) {
  const bppsa_bench_session *s = session_of(line);
  const bppsa_bench_row *row = line->context;
  const int index = index_of(line);
  bool ok = bppsa_bench_put_point(object, s) && bppsa_json_put_text(object, "method", line->method);
  ok = ok && bppsa_json_put_text(object, "phase", line->phase);
  ok = ok && (!bppsa_bench_row_rival(index) || bppsa_json_put_bool(object, "rival", true));
  ok = ok && (!s->point.config.input_gradients || !bppsa_bench_row_backward(index) ||
              bppsa_json_put_bool(object, "input_gradient", row->input_gradient));
  ok = ok && (bppsa_bench_row_exact(index) || !row->measured || bppsa_json_put_real(object, "error", row->error));
  ok = ok && put_measurement(object, s->point.config.seq_len, row);
  ok = ok && (!row->measured || bppsa_json_put_text(object, "reference", s->result.reference_read ? "file" : "computed"));
  ok = ok && put_ceilings(object, s, row, bppsa_bench_row_graph(index));
  if (bppsa_bench_row_backward(index) && row->measured) {
    ok = ok && put_gradients(object, s, row);
  }
  ok = ok && (!row->planned || put_forward(object, row)) && (!row->speculated || put_backward(object, row));
  return ok && (!row->plan || put_plan(object, row, s->point.config.batch));
}

/* ---- for people: columns ---- */

static const char *write_name(const void *context, const json_t *row, char *text, size_t size) {
  const bppsa_bench_entrant *line = context;
  (void)row;
  snprintf(text, size, "%-9s%s", line->phase, line->method);
  return text;
}

/* Writes the time divided by that of bp, or of the forward pass. */
static const char *write_ratio(const void *context, const json_t *object, char *text, size_t size) {
  const bppsa_bench_entrant *line = context;
  const int index = index_of(line);
  const bppsa_bench_row *row = line->context, *rows = session_of(line)->result.rows,
                        *other = &rows[bppsa_bench_row_backward(index) ? BPPSA_BENCH_BP : BPPSA_BENCH_FORWARD];
  (void)object;
  text[0] = '\0';
  if (index != BPPSA_BENCH_FORWARD && is_timed(other)) {
    bppsa_print(text, size, "%s%.2f", bppsa_timing_mark(row->time.noisy || other->time.noisy),
                row->time.median_s / other->time.median_s);
  }
  return text;
}

/* Writes "blelloch (9 up-levels), 3 redone": the scan's method and the products that it redid; for TF32 and bf16 the error. Blanks
 * fill the place of a mark. */
static const char *write_method(const void *context, const json_t *object, char *text, size_t size) {
  const bppsa_bench_entrant *line = context;
  const bppsa_bench_row *row = line->context;
  (void)object;
  size_t used = (size_t)snprintf(text, size, "%s", line->bench->gpu ? "  " : "       ");
  if (!bppsa_bench_row_exact(index_of(line))) {
    bppsa_print(text + used, size - used, "error %.2g", row->error);
  }
  if (!row->plan) {
    return text;
  }
  bppsa_scan_method_words(&row->method, text + used, size - used);
  if (row->redone > 0) {
    used = strlen(text);
    snprintf(text + used, size - used, ", %" PRId64 " redone", row->redone);
  }
  return text;
}

/* All columns that a table may have. Before the last one come the columns of passes in parallel over time, the last two of them of
 * backward passes alone, and then the columns of a GPU; `above` leaves out what a point does not have. */
enum { PARALLEL_COLUMNS = 4, BACKWARD_COLUMNS = 2, GPU_COLUMNS = 4 };
const bppsa_table_column bppsa_bench_point_columns[] = {
    {.heading = "phase    method", .write = write_name}, /* as wide as the longest name */
    {.heading = "median", .width = 10, .kind = BPPSA_COLUMN_MARKED_TIME, .key = "median_s"},
    {.heading = "min", .width = 10, .kind = BPPSA_COLUMN_TIME, .key = "min_s"},
    {.heading = "max", .width = 10, .kind = BPPSA_COLUMN_TIME, .key = "max_s"},
    {.heading = "n", .width = 5, .kind = BPPSA_COLUMN_INTEGER, .key = "repeats"},
    {.heading = "x bp", .width = 8, .kind = BPPSA_COLUMN_REAL, .write = write_ratio},
    {.heading = "GFLOP/s", .width = 9, .kind = BPPSA_COLUMN_REAL, .key = "flops", .over = "median_s", .scale = 1e-9, .digits = 2},
    {.heading = "%", .width = 6, .kind = BPPSA_COLUMN_REAL, .key = "peak_fraction", .scale = 100},
    {.heading = "GB/s", .width = 10, .kind = BPPSA_COLUMN_REAL, .key = "bytes", .over = "median_s", .scale = 1e-9, .digits = 2},
    {.heading = "residual", .width = 11, .kind = BPPSA_COLUMN_REAL, .key = "residual", .digits = 2},
    {.heading = "path", .width = 8, .kind = BPPSA_COLUMN_INTEGER, .key = "path", .missing = ""},
    {.heading = "work", .width = 6, .kind = BPPSA_COLUMN_REAL, .key = "work", .digits = 2, .missing = ""},
    {.heading = "gap", .width = 9, .kind = BPPSA_COLUMN_EXPONENT, .key = "gap", .missing = ""},
    {.heading = "perturbation", .width = 14, .kind = BPPSA_COLUMN_EXPONENT, .key = "perturbation", .missing = ""},
    {.heading = "predicted", .width = 16, .kind = BPPSA_COLUMN_TIME, .key = "predicted_s", .missing = ""},
    {.heading = "floor", .width = 10, .kind = BPPSA_COLUMN_TIME, .key = "floor_s"},
    {.heading = "x floor", .width = 9, .kind = BPPSA_COLUMN_REAL, .key = "over_floor", .digits = 1},
    {.heading = "memory", .width = 10, .kind = BPPSA_COLUMN_SI, .key = "peak_device_bytes", .unit = "B"},
    {.heading = "", .kind = BPPSA_COLUMN_REAL, .write = write_method},
    {0}};
#define COLUMNS ((int)(sizeof bppsa_bench_point_columns / sizeof bppsa_bench_point_columns[0]))
_Static_assert(COLUMNS == (int)BPPSA_BENCH_POINT_COLUMNS, "a session has room for the columns of a point");

/* The width of the names' column: cuDNN's names are long. */
static int name_width(const bppsa_bench_result *result) {
  int width = 9;
  for (int i = 0; i < BPPSA_BENCH_ROWS; ++i) {
    char name[BPPSA_BENCH_NAME];
    const int length = (int)strlen(bppsa_bench_row_name(result->guest, i, name, sizeof name));
    width = !is_absent(&result->rows[i]) && length > width ? length : width;
  }
  return width + 1;
}

/* Has a row of speculative BP numbers of its own? */
static bool speculates(const bppsa_bench_result *result) {
  bool found = false;
  for (int i = 0; i < BPPSA_BENCH_ROWS; ++i) {
    found = found || (result->rows[i].measured && result->rows[i].speculated);
  }
  return found;
}

static bppsa_status show_cold(const bppsa_output *to, const bppsa_cold *cold) {
  char bytes[BPPSA_SI_TEXT], cache[BPPSA_SI_TEXT];
  return bppsa_output_print(
      to, "cold: before every pass %s are written, as much as %" PRId64 " copies of the inputs; the largest cache has %s\n",
      bppsa_text_si((double)cold->bytes, "B", bytes, sizeof bytes), cold->copies,
      bppsa_text_si((double)cold->cache, "B", cache, sizeof cache));
}

/* Shows where the reference comes from, if --references is given. */
static bppsa_status show_reference(const bppsa_bench *bench, const bppsa_bench_result *result) {
  return result->reference_read ? bppsa_output_print(&bench->request->to, "reference: from %s\n", bench->asked->references)
                                : bppsa_output_print(&bench->request->to, "reference: computed: %s\n", result->reference_reason);
}

enum { RATE_TEXT = 48 };

/* Writes "  resets in front of 3 % of the steps", of a run with --reset-rate. Returns text. */
static const char *rate_text(const bppsa_bench_session *s, char *text, size_t size) {
  text[0] = '\0';
  if (s->point.reset_rate > 0) {
    (void)bppsa_print(text, size, "  resets in front of %.3g %% of the steps", 100 * s->point.reset_rate);
  } else if (s->bench->asked->reset_rate > 0) {
    (void)snprintf(text, size, "  without resets");
  }
  return text;
}

bppsa_status bppsa_bench_print_above(bppsa_bench *bench) {
  bppsa_bench_session *s = bench->session;
  const bppsa_recurrent_config *c = &s->point.config;
  const int first_of_gpu = COLUMNS - 2 - GPU_COLUMNS, first_of_parallel = first_of_gpu - PARALLEL_COLUMNS;
  const bool backward = speculates(&s->result), parallel = backward || c->forward.kind != BPPSA_FORWARD_SEQUENTIAL;
  const int end_of_parallel = parallel ? first_of_gpu - (backward ? 0 : BACKWARD_COLUMNS) : first_of_parallel;
  char rate[RATE_TEXT];
  int count = 0;
  for (int i = 0; i < COLUMNS; ++i) {
    const bool of_gpu = i >= first_of_gpu && i < first_of_gpu + GPU_COLUMNS;
    const bool of_parallel = i >= first_of_parallel && i < first_of_gpu;
    if ((bench->gpu || !of_gpu) && (!of_parallel || i < end_of_parallel)) {
      s->columns[count++] = bppsa_bench_point_columns[i];
    }
  }
  s->columns[0].width = -(9 + name_width(&s->result));
  bench->columns = s->columns;
  BPPSA_TRY(bppsa_output_print(&bench->request->to,
                               "\nT %" PRId64 "  B %" PRId64 "  H %" PRId64 "  I %" PRId64 "  layers %" PRId64 "  init %s%s\n",
                               c->seq_len, c->batch, c->hidden, c->input, c->layers, bppsa_bench_weights_name(&s->point),
                               rate_text(s, rate, sizeof rate)));
  BPPSA_TRY(s->references != NULL ? show_reference(bench, &s->result) : BPPSA_OK);
  return s->cold.cache > 0 ? show_cold(&bench->request->to, &s->cold) : BPPSA_OK;
}

const char *bppsa_bench_note_line(const bppsa_bench_entrant *line, char *text, size_t size) {
  const bppsa_bench_row *row = line->context;
  if (is_timed(row)) {
    return NULL;
  }
  if (!row->measured) {
    snprintf(text, size, "skipped: %s", row->reason);
  } else if (row->qualifying > 0) {
    bppsa_table_qualifying_text(row->qualifying, text, size);
  } else {
    bppsa_print(text, size, "not timed: its residual is %.2f%s", row->residual, bppsa_bench_wrong(is_right(row)));
  }
  return text;
}

/* ---- for people: what the rows say ---- */

/* The names of noisy rows among those compared, "bp, chunked"; empty where there are none. */
static const char *noisy_names(const bppsa_bench_result *result, int first, int last, char *text, size_t size) {
  size_t used = 0;
  text[0] = '\0';
  for (int m = first; m <= last; ++m) {
    const bppsa_bench_row *row = &result->rows[m];
    if (is_timed(row) && row->time.noisy && used < size) {
      used += (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "",
                               bppsa_bench_method_name((bppsa_bench_method)m));
    }
  }
  return text;
}

/* "blelloch 20.7 (10.6)"; of speculative BP the steps that it computed, which are not all of the same FLOPs: "speculative 1.53". */
static bppsa_status show_ratio(const bppsa_output *to, bppsa_bench_method method, const bppsa_bench_row *row) {
  char text[2][BPPSA_RATIO_TEXT];
  const bppsa_work_ratios ratios = bppsa_work_over(&row->work, &row->bp);
  const char *name = bppsa_bench_method_name(method);
  return method == BPPSA_BENCH_SPECULATIVE
             ? bppsa_output_print(to, "  %s %s", name, bppsa_work_ratio(row->backward_stats.work, text[0]))
             : bppsa_output_print(to, "  %s %s (%s)", name, bppsa_work_ratio(ratios.gradients, text[0]),
                                  bppsa_work_ratio(ratios.backward, text[1]));
}

/* Says how many FLOP other methods spend on shorter chains, and which method wins, unless the rows that decide are noisy. */
static bppsa_status show_work(const bppsa_output *to, const bppsa_bench_result *result) {
  int fastest = BPPSA_BENCH_BP;
  char noisy[80];
  BPPSA_TRY(bppsa_output_print(to, "  times the FLOPs of BP for the gradients between steps (with those of weights):"));
  for (int m = BPPSA_BENCH_BP + 1; m < BPPSA_BENCH_AUTO; ++m) {
    const bppsa_bench_row *row = &result->rows[m];
    if (is_timed(row)) {
      BPPSA_TRY(show_ratio(to, (bppsa_bench_method)m, row));
      fastest = row->time.median_s < result->rows[fastest].time.median_s ? m : fastest;
    }
  }
  if (noisy_names(result, BPPSA_BENCH_BP, BPPSA_BENCH_AUTO - 1, noisy, sizeof noisy)[0] != '\0') {
    return bppsa_output_print(to, "; no winner is named: noisy: %s\n", noisy);
  }
  return bppsa_output_print(to, "; here %s wins\n",
                            fastest == BPPSA_BENCH_SPECULATIVE || bppsa_bench_is_scan((bppsa_bench_method)fastest)
                                ? bppsa_bench_method_name((bppsa_bench_method)fastest)
                                : "the recurrence (bp, linear)");
}

static bppsa_status show_forward(const bppsa_output *to, const bppsa_bench_result *result) {
  const bppsa_bench_row *bp = &result->rows[BPPSA_BENCH_BP], *forward_row = &result->rows[BPPSA_BENCH_FORWARD];
  char plan[BPPSA_FORWARD_TEXT], stats[BPPSA_FORWARD_TEXT];
  if (forward_row->planned) {
    BPPSA_TRY(bppsa_output_print(to, "  forward pass: %s: %s\n",
                                 bppsa_forward_plan_text(&forward_row->forward_plan, plan, sizeof plan),
                                 bppsa_forward_stats_text(&forward_row->forward_stats, stats, sizeof stats)));
  }
  BPPSA_TRY(bppsa_output_print(to, "  forward pass in front of each, over bp's:"));
  for (int m = BPPSA_BENCH_BP + 1; m < BPPSA_BENCH_METHODS; ++m) {
    if (is_timed(&result->rows[m])) {
      const bppsa_timing *forward = &result->rows[m].forward;
      BPPSA_TRY(bppsa_output_print(to, "  %s %s%+.1f %%", bppsa_bench_method_name((bppsa_bench_method)m),
                                   bppsa_timing_mark(forward->noisy || bp->forward.noisy),
                                   100 * (forward->median_s / bp->forward.median_s - 1)));
    }
  }
  return bppsa_output_print(to, "\n");
}

/* The seconds of a contestant's backward pass or of both passes, from its backward row. */
static double seconds_of(const bppsa_bench_row *row, bool both) {
  return row->time.median_s + (both ? row->forward.median_s : 0);
}

/* The fastest right row of the project's or of the rivals, by the backward pass or both passes; -1: none. TF32 and bf16,
 * which are less exact, are left out. */
static int find_best(const bppsa_bench_result *result, bool rivals, bool both) {
  int best = -1;
  for (int i = rivals ? BPPSA_BENCH_RIVALS : 0; i < (rivals ? BPPSA_BENCH_ROWS : BPPSA_BENCH_RIVALS); ++i) {
    const bppsa_bench_row *row = &result->rows[i];
    if (bppsa_bench_row_exact(i) && is_timed(row) && is_right(row) && bppsa_bench_row_backward(i) &&
        (best < 0 || seconds_of(row, both) < seconds_of(&result->rows[best], both))) {
      best = i;
    }
  }
  return best;
}

/* Shows the fastest of the project's methods beside the fastest rival. */
static bppsa_status show_duel(const bppsa_output *to, const bppsa_bench_result *result, bool both) {
  const int best[2] = {find_best(result, false, both), find_best(result, true, both)};
  const char *what = both ? "forward and backward" : "backward";
  char names[2][BPPSA_BENCH_NAME], times[2][24];
  double seconds[2];
  for (int side = 0; side < 2; ++side) {
    if (best[side] < 0) {
      return BPPSA_OK;
    }
    const bppsa_bench_row *row = &result->rows[best[side]];
    seconds[side] = seconds_of(row, both);
    bppsa_bench_row_name(result->guest, best[side], names[side], sizeof names[side]);
    bppsa_table_time_text(seconds[side], times[side], sizeof times[side]);
    if (row->time.noisy || (both && row->forward.noisy)) {
      return bppsa_output_print(to, "  %s: no comparison with the rivals: noisy: %s\n", what, names[side]);
    }
  }
  return bppsa_output_print(to, "  %s: %s %s, the rivals' best, %s, %s: %.2f times as long\n", what, names[0], times[0], names[1],
                            times[1], seconds[1] / seconds[0]);
}

static bppsa_status show_ceilings(const bppsa_output *to, const bppsa_bench_session *s) {
  const bppsa_bench_result *result = &s->result;
  char flops[BPPSA_SI_TEXT], bytes[BPPSA_SI_TEXT];
  const bppsa_bench_row *bp = &result->rows[BPPSA_BENCH_BP];
  if (s->bench->gpu) {
    return bppsa_output_print(to,
                              "  floor: the larger of FLOP over %s and bytes over %s, both measured here; memory of the GPU\n",
                              bppsa_text_si(result->peak.flops, "FLOP/s", flops, sizeof flops),
                              bppsa_text_si(result->peak.bytes, "B/s", bytes, sizeof bytes));
  }
  return bppsa_output_print(
      to,
      "  %% of the threads' peak of %.0f GFLOP/s, measured in the same rounds; gradients of the hidden states: %.3g %% "
      "zeros, %.3g %% subnormals; of the parameters (bp): %.3g %% zeros, "
      "%.3g %% subnormals\n",
      1e-9 * result->peak.flops, 100 * result->hidden_zeros, 100 * result->hidden_subnormals, 100 * bp->zeros,
      100 * bp->subnormals);
}

bppsa_status bppsa_bench_print_below(bppsa_bench *bench) {
  const bppsa_bench_session *s = bench->session;
  const bppsa_bench_result *result = &s->result;
  const bppsa_output *to = &bench->request->to;
  const bool compared = is_timed(&result->rows[BPPSA_BENCH_BP]);
  int64_t noisy = 0;
  for (int i = 0; i < BPPSA_BENCH_ROWS; ++i) {
    noisy += result->rows[i].time.noisy || result->rows[i].forward.noisy;
  }
  BPPSA_TRY(compared ? show_work(to, result) : BPPSA_OK);
  BPPSA_TRY(compared ? show_forward(to, result) : BPPSA_OK);
  BPPSA_TRY(show_duel(to, result, false));
  BPPSA_TRY(show_duel(to, result, true));
  BPPSA_TRY(bppsa_bench_show_noisy(to, noisy));
  if (underflows(result)) {
    BPPSA_TRY(bppsa_output_print(
        to, "  * the gradients %s: %.3g %% of the gradients of the hidden states are zero and %.3g %% are subnormal\n",
        s->point.reset_rate > 0 ? "underflow, or end at resets" : "underflow", 100 * result->hidden_zeros,
        100 * result->hidden_subnormals));
  }
  return bench->gpu || compared ? show_ceilings(to, s) : BPPSA_OK;
}

/* ---- rows of an earlier run ---- */

/* Does a row belong to the point, with the same shape, layers, weights and rate of resets? */
static bool is_of_point(const json_t *row, const bppsa_bench_point *point) {
  const bppsa_recurrent_config *c = &point->config;
  const struct {
    const char *key;
    int64_t value;
  } sizes[] = {{"seq_len", c->seq_len}, {"batch", c->batch}, {"hidden", c->hidden}, {"input", c->input}, {"layers", c->layers}};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    const json_t *found = json_object_get(row, sizes[i].key);
    if (!json_is_integer(found) || json_integer_value(found) != sizes[i].value) {
      return false;
    }
  }
  const char *init = json_string_value(json_object_get(row, "init"));
  const bool same_rate = json_number_value(json_object_get(row, "reset_rate")) == point->reset_rate;
  return same_rate && init != NULL && strcmp(init, bppsa_bench_weights_name(point)) == 0;
}

bool bppsa_bench_count_kept(bppsa_bench *bench, const json_t *rows) {
  const bppsa_bench_session *s = bench->session;
  bool found = false;
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    if (!is_of_point(row, &s->point)) {
      continue;
    }
    found = true;
    if (json_object_get(row, "skipped") == NULL) { /* a wrong row has no time */
      bppsa_bench_count_row(&bench->rows, json_number_value(json_object_get(row, "residual")),
                            json_is_true(json_object_get(row, "ok")), json_is_true(json_object_get(row, "noisy")));
    }
  }
  return found;
}
