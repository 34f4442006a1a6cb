/* The rows as JSON and as a table for people, and the verdict on them. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "bench/cases/rnn.h"
#include "core/alloc.h"
#include "core/decimal.h"
#include "core/residual.h"

static const char *phase_name(int row) {
  return bppsa_bench_row_backward(row) ? "backward" : "forward";
}

static const char *init_name(bppsa_init init) {
  return init == BPPSA_INIT_ORTHOGONAL ? "orthogonal" : "default";
}

static bool is_right(const bppsa_bench_row *row) {
  return row->residual < BPPSA_RESIDUAL_BOUND;
}

/* Wrong rows have no time. */
static bool is_timed(const bppsa_bench_row *row) {
  return row->measured && row->time.repeats > 0;
}

static bool is_absent(const bppsa_bench_row *row) {
  return !row->measured && row->reason[0] == '\0';
}

/* ---- JSON ---- */

/* Writes an integer where JSON readers keep it exactly, otherwise a real. */
static bool put_count(json_t *object, const char *key, double value) {
  return fabs(value) < 9e15 ? bppsa_json_put_integer(object, key, (int64_t)value) : bppsa_json_put_real(object, key, value);
}

static bool put_point(json_t *object, const bppsa_bench_point *point, const bppsa_bench_result *result) {
  const bppsa_recurrent_config *c = &point->config;
  bool ok = object != NULL && bppsa_json_put_integer(object, "seq_len", c->seq_len);
  ok = ok && bppsa_json_put_integer(object, "batch", c->batch);
  ok = ok && bppsa_json_put_integer(object, "hidden", c->hidden);
  ok = ok && bppsa_json_put_integer(object, "input", c->input);
  ok = ok && bppsa_json_put_integer(object, "layers", c->layers);
  ok = ok && bppsa_json_put_integer(object, "threads", result->threads);
  ok = ok && bppsa_json_put_text(object, "dtype", bppsa_dtype_name(c->dtype));
  ok = ok && bppsa_json_put_text(object, "init", init_name(point->init));
  if (point->kind->cell->relu) {
    ok = ok && bppsa_json_put_text(object, "nonlinearity", bppsa_nonlinearity_name(c->nonlinearity));
  }
  return ok && bppsa_json_put_text(object, "loss_on", bppsa_loss_name(c->loss_all));
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

static bool put_measurement(json_t *object, const bppsa_bench_point *point, const bppsa_bench_row *row) {
  const bool m = row->measured;
  bool ok = bppsa_bench_put_timing(object, &row->time);
  ok = ok && bppsa_json_put_real(object, "step_s", is_timed(row) ? row->time.median_s / (double)point->config.seq_len : NAN);
  ok = ok && bppsa_json_put_real(object, "residual", m ? row->residual : NAN);
  ok = ok && bppsa_json_put_bool(object, "ok", m && is_right(row));
  ok = ok && put_count(object, "flops", row->flops);
  ok = ok && put_count(object, "bytes", row->bytes);
  ok = ok && bppsa_json_put_integer(object, "memory_bytes", row->memory);
  return m ? ok : ok && bppsa_json_put_text(object, "skipped", row->reason);
}

/* The share of the peak; on a GPU also the floor, the cost model's prediction, and the nodes of a graph. */
static bool put_ceilings(json_t *object, const bppsa_bench_result *result, const bppsa_bench_row *row, bool graph) {
  const bool timed = is_timed(row);
  bool ok = bppsa_json_put_real(object, "peak_fraction", timed ? row->flops / row->time.median_s / result->peak.flops : NAN);
  if (!result->gpu || !row->measured) {
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

static bool put_gradients(json_t *object, const bppsa_bench_result *result, const bppsa_bench_row *row) {
  bool ok = bppsa_json_put_real(object, "zeros", row->zeros);
  ok = ok && bppsa_json_put_real(object, "subnormals", row->subnormals);
  ok = ok && bppsa_json_put_integer(object, "redone", row->redone);
  if (!result->gpu) {
    ok = ok && bppsa_json_put_real(object, "hidden_zeros", result->hidden_zeros);
    ok = ok && bppsa_json_put_real(object, "hidden_subnormals", result->hidden_subnormals);
  }
  return ok && bppsa_json_put_real(object, "forward_s", is_timed(row) ? row->forward.median_s : NAN);
}

static json_t *row_json(const bppsa_bench_point *point, const bppsa_bench_result *result, int index) {
  char name[BPPSA_BENCH_NAME];
  const bppsa_bench_row *row = &result->rows[index];
  json_t *object = json_object();
  bool ok = put_point(object, point, result);
  ok = ok && bppsa_json_put_text(object, "method", bppsa_bench_row_name(index, name, sizeof name));
  ok = ok && bppsa_json_put_text(object, "phase", phase_name(index));
  ok = ok && put_measurement(object, point, row);
  ok = ok && put_ceilings(object, result, row, bppsa_bench_row_graph(index));
  if (bppsa_bench_row_backward(index) && row->measured) {
    ok = ok && put_gradients(object, result, row);
  }
  if (row->plan) {
    ok = ok && put_plan(object, row, point->config.batch);
  }
  return bppsa_json_finish(object, ok);
}

bool bppsa_bench_append(json_t *rows, const bppsa_bench_point *point, const bppsa_bench_result *result) {
  bool ok = true;
  for (int i = 0; ok && i < BPPSA_BENCH_ROWS; ++i) {
    ok = is_absent(&result->rows[i]) || json_array_append_new(rows, row_json(point, result, i)) == 0;
  }
  return ok;
}

/* ---- for people ---- */

/* "0.123 ms": three digits and a unit that people read. */
static const char *time_text(double seconds, char *text, size_t size) {
  const double scale = seconds < 1e-3 ? 1e6 : seconds < 1 ? 1e3 : 1;
  bppsa_print(text, size, "%.*f %s",
              seconds * scale < 9.995   ? 2
              : seconds * scale < 99.95 ? 1
                                        : 0,
              seconds * scale,
              scale == 1e6   ? "us"
              : scale == 1e3 ? "ms"
                             : "s ");
  return text;
}

/* "blelloch (9 up-levels), 3 redone": the scan's method, and the products it redid. */
static const char *how_text(const bppsa_bench_row *row, char *text, size_t size) {
  text[0] = '\0';
  if (!row->plan) {
    return text;
  }
  bppsa_scan_method_words(&row->method, text, size);
  if (row->redone > 0) {
    const size_t used = strlen(text);
    snprintf(text + used, size - used, ", %" PRId64 " redone", row->redone);
  }
  return text;
}

/* The width of the names' column: cuDNN's names are long. */
static int name_width(const bppsa_bench_result *result) {
  int width = 9;
  for (int i = 0; i < BPPSA_BENCH_ROWS; ++i) {
    char name[BPPSA_BENCH_NAME];
    const int length = (int)strlen(bppsa_bench_row_name(i, name, sizeof name));
    width = !is_absent(&result->rows[i]) && length > width ? length : width;
  }
  return width + 1;
}

/* On a GPU: the cost model's prediction, the floor, the row's time over it, and the memory it holds. "" on a CPU. */
static const char *floor_text(const bppsa_bench_result *result, const bppsa_bench_row *row, char *text, size_t size) {
  char predicted[24] = "", floor[24], memory[BPPSA_SI_TEXT];
  text[0] = '\0';
  if (result->gpu) {
    if (row->predicted > 0) {
      time_text(row->predicted, predicted, sizeof predicted);
    }
    bppsa_print(text, size, "%11s%10s%9.1f%10s", predicted, time_text(bppsa_bench_floor(result, row), floor, sizeof floor),
                row->time.median_s / bppsa_bench_floor(result, row),
                bppsa_text_si((double)row->memory, "B", memory, sizeof memory));
  }
  return text;
}

static bppsa_status show_row(const bppsa_output *to, const bppsa_bench_result *result, int index) {
  const bppsa_bench_row *row = &result->rows[index];
  char name[BPPSA_BENCH_NAME], median[24], marked[26], least[24], most[24], how[64], floor[80], ratio[24] = "";
  if (is_absent(row)) {
    return BPPSA_OK;
  }
  bppsa_bench_row_name(index, name, sizeof name);
  if (!row->measured) {
    return bppsa_output_print(to, "  %-9s%-*s skipped: %s\n", phase_name(index), name_width(result), name, row->reason);
  }
  const bppsa_bench_row *other = &result->rows[bppsa_bench_row_backward(index) ? BPPSA_BENCH_BP : BPPSA_BENCH_FORWARD];
  if (!is_timed(row)) {
    return bppsa_output_print(to, "  %-9s%-*s not timed: its residual is %.2f%s\n", phase_name(index), name_width(result), name,
                              row->residual, bppsa_bench_wrong(is_right(row)));
  }
  if (index != BPPSA_BENCH_FORWARD && is_timed(other)) {
    bppsa_print(ratio, sizeof ratio, "%s%.2f", bppsa_timing_mark(row->time.noisy || other->time.noisy),
                row->time.median_s / other->time.median_s);
  }
  snprintf(marked, sizeof marked, "%s%s", bppsa_timing_mark(row->time.noisy),
           time_text(row->time.median_s, median, sizeof median));
  return bppsa_output_print(
      to, "  %-9s%-*s%10s%10s%10s%5" PRId64 "%8s%9.2f%6.0f%10.2f%11.2f%s%s  %s\n", phase_name(index), name_width(result), name,
      marked, time_text(row->time.min_s, least, sizeof least), time_text(row->time.max_s, most, sizeof most), row->time.repeats,
      ratio, 1e-9 * row->flops / row->time.median_s, 100 * row->flops / row->time.median_s / result->peak.flops,
      1e-9 * row->bytes / row->time.median_s, row->residual, is_right(row) ? "     " : bppsa_bench_wrong(false),
      floor_text(result, row, floor, sizeof floor), how_text(row, how, sizeof how));
}

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

/* Says how many FLOP the scans do for their shorter chains, and which method wins; none where the rows that decide are noisy. */
static bppsa_status show_work(const bppsa_output *to, const bppsa_bench_result *result) {
  int fastest = BPPSA_BENCH_BP;
  char noisy[80];
  BPPSA_TRY(bppsa_output_print(to, "  times the FLOPs of BP for the gradients between steps (with those of weights):"));
  for (int m = BPPSA_BENCH_SCANS; m < BPPSA_BENCH_AUTO; ++m) {
    const bppsa_bench_row *row = &result->rows[m];
    if (is_timed(row)) {
      const bppsa_work_ratios ratios = bppsa_work_over(&row->work, &row->bp);
      char text[2][BPPSA_RATIO_TEXT];
      BPPSA_TRY(bppsa_output_print(to, "  %s %s (%s)", bppsa_bench_method_name((bppsa_bench_method)m),
                                   bppsa_work_ratio(ratios.gradients, text[0]), bppsa_work_ratio(ratios.backward, text[1])));
      fastest = row->time.median_s < result->rows[fastest].time.median_s ? m : fastest;
    }
  }
  if (noisy_names(result, BPPSA_BENCH_BP, BPPSA_BENCH_AUTO - 1, noisy, sizeof noisy)[0] != '\0') {
    return bppsa_output_print(to, "; no winner is named: noisy: %s\n", noisy);
  }
  return bppsa_output_print(to, "; here %s wins\n",
                            bppsa_bench_is_scan((bppsa_bench_method)fastest)
                                ? bppsa_bench_method_name((bppsa_bench_method)fastest)
                                : "the recurrence (bp, linear)");
}

static bppsa_status show_forward(const bppsa_output *to, const bppsa_bench_result *result) {
  const bppsa_bench_row *bp = &result->rows[BPPSA_BENCH_BP];
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

/* The fastest backward pass of the project's and of cuDNN's; TF32, which is less exact, is left out. */
static bppsa_status show_duel(const bppsa_output *to, const bppsa_bench_result *result) {
  int best[2] = {-1, -1}; /* the project's, cuDNN's */
  char names[2][BPPSA_BENCH_NAME], times[2][24];
  double seconds[2] = {INFINITY, INFINITY};
  for (int i = 0; i < BPPSA_BENCH_ROWS; ++i) {
    const bppsa_bench_row *row = &result->rows[i];
    const int side = i >= BPPSA_BENCH_RIVALS;
    const bool exact = i < BPPSA_BENCH_RIVALS + 4 * BPPSA_CUDNN_STANDARD_TF32;
    if (exact && is_timed(row) && is_right(row) && bppsa_bench_row_backward(i) && row->time.median_s < seconds[side]) {
      seconds[side] = row->time.median_s;
      best[side] = i;
    }
  }
  for (int side = 0; side < 2; ++side) {
    if (best[side] < 0) {
      return BPPSA_OK;
    }
    if (result->rows[best[side]].time.noisy) {
      return bppsa_output_print(to, "  backward: no comparison with cuDNN: noisy: %s\n",
                                bppsa_bench_row_name(best[side], names[side], sizeof names[side]));
    }
    bppsa_bench_row_name(best[side], names[side], sizeof names[side]);
    time_text(seconds[side], times[side], sizeof times[side]);
  }
  return bppsa_output_print(to, "  backward: %s %s, cuDNN's best, %s, %s: %.2f times as long\n", names[0], times[0], names[1],
                            times[1], seconds[1] / seconds[0]);
}

static bppsa_status show_ceilings(const bppsa_output *to, const bppsa_bench_result *result) {
  char flops[BPPSA_SI_TEXT], bytes[BPPSA_SI_TEXT];
  const bppsa_bench_row *bp = &result->rows[BPPSA_BENCH_BP];
  if (result->gpu) {
    return bppsa_output_print(to,
                              "  floor: the larger of FLOP over %s and bytes over %s, both measured here; memory of the GPU\n",
                              bppsa_text_si(result->peak.flops, "FLOP/s", flops, sizeof flops),
                              bppsa_text_si(result->peak.bytes, "B/s", bytes, sizeof bytes));
  }
  return bppsa_output_print(to,
                            "  %% of the threads' peak of %.0f GFLOP/s, measured here; gradients of the hidden states: %.3g %% "
                            "zeros, %.3g %% subnormals; of the parameters (bp): %.3g %% zeros, "
                            "%.3g %% subnormals\n",
                            1e-9 * result->peak.flops, 100 * result->hidden_zeros, 100 * result->hidden_subnormals,
                            100 * bp->zeros, 100 * bp->subnormals);
}

bppsa_status bppsa_bench_show_table(const bppsa_output *to, const bppsa_bench_point *point, const bppsa_bench_result *result) {
  const bppsa_recurrent_config *c = &point->config;
  BPPSA_TRY(bppsa_output_print(to, "\nT %" PRId64 "  B %" PRId64 "  H %" PRId64 "  I %" PRId64 "  layers %" PRId64 "  init %s\n",
                               c->seq_len, c->batch, c->hidden, c->input, c->layers, init_name(point->init)));
  BPPSA_TRY(
      bppsa_output_print(to, "  phase    %-*s    median       min       max    n    x bp  GFLOP/s    %%      GB/s   residual%s\n",
                         name_width(result), "method", result->gpu ? "       predicted     floor  x floor    memory" : ""));
  int64_t noisy = 0;
  for (int i = 0; i < BPPSA_BENCH_ROWS; ++i) {
    BPPSA_TRY(show_row(to, result, i));
    noisy += result->rows[i].time.noisy || result->rows[i].forward.noisy;
  }
  if (is_timed(&result->rows[BPPSA_BENCH_BP])) {
    BPPSA_TRY(show_work(to, result));
    BPPSA_TRY(show_forward(to, result));
  }
  BPPSA_TRY(result->gpu ? show_duel(to, result) : BPPSA_OK);
  BPPSA_TRY(bppsa_bench_show_noisy(to, noisy));
  return result->gpu || is_timed(&result->rows[BPPSA_BENCH_BP]) ? show_ceilings(to, result) : BPPSA_OK;
}

/* ---- the verdict ---- */

void bppsa_bench_tally_add(bppsa_bench_tally *tally, const bppsa_bench_result *result) {
  for (int i = 0; i < BPPSA_BENCH_ROWS; ++i) {
    const bppsa_bench_row *row = &result->rows[i];
    if (row->measured) {
      bppsa_bench_count_row(&tally->rows, row->residual, is_right(row), row->time.noisy);
    } else if (!is_absent(row) && row->memory == 0 && tally->reason[0] == '\0') {
      memcpy(tally->reason, row->reason, sizeof tally->reason);
    } else if (!is_absent(row) && row->memory > 0 && (tally->needed == 0 || row->memory < tally->needed)) {
      tally->needed = row->memory;
    }
  }
}

/* Whether a row belongs to the point: its shape, its layers, its weights. */
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
  return init != NULL && strcmp(init, init_name(point->init)) == 0;
}

bool bppsa_bench_tally_rows(bppsa_bench_tally *tally, const bppsa_bench_point *point, const json_t *rows) {
  bool found = false;
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    if (!is_of_point(row, point)) {
      continue;
    }
    found = true;
    if (json_object_get(row, "skipped") == NULL) { /* a wrong row has no time */
      bppsa_bench_count_row(&tally->rows, json_number_value(json_object_get(row, "residual")),
                            json_is_true(json_object_get(row, "ok")), json_is_true(json_object_get(row, "noisy")));
    }
  }
  return found;
}

bppsa_status bppsa_bench_verdict(const bppsa_bench_tally *tally, int64_t memory_limit) {
  BPPSA_TRY(bppsa_bench_rows_status(&tally->rows, BPPSA_RESIDUAL_BOUND));
  if (tally->rows.measured == 0 && tally->needed == 0) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "bench: nothing could be measured: %s", tally->reason);
  }
  if (tally->rows.measured == 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--memory-limit: %" PRId64 " bytes, expected at least %" PRId64, memory_limit,
                      tally->needed);
  }
  return BPPSA_OK;
}
