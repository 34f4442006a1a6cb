/* Counts the FLOP and bytes of a point, and its gradients that are zero or subnormal. */
#include <math.h>

#include "bench/cases/bench_rnn.h"
#include "core/measure/residual.h"

/* The algorithm of a scan or of auto. */
static bppsa_scan_algorithm algorithm_of(bppsa_bench_method method) {
  return method == BPPSA_BENCH_AUTO ? BPPSA_SCAN_AUTO : (bppsa_scan_algorithm)((int)method - BPPSA_BENCH_SCANS + 1);
}

static bppsa_backward backward_of(bppsa_bench_method method) {
  return method >= BPPSA_BENCH_SCANS         ? BPPSA_BACKWARD_SCAN
         : method == BPPSA_BENCH_SPECULATIVE ? BPPSA_BACKWARD_SPECULATIVE
                                             : BPPSA_BACKWARD_BP;
}

const char *bppsa_bench_method_name(bppsa_bench_method method) {
  return method == BPPSA_BENCH_FORWARD ? "forward"
         : method < BPPSA_BENCH_SCANS  ? bppsa_backward_name(backward_of(method))
                                       : bppsa_scan_algorithm_name(algorithm_of(method));
}

bool bppsa_bench_is_scan(bppsa_bench_method method) {
  return method >= BPPSA_BENCH_SCANS && method < BPPSA_BENCH_AUTO && !bppsa_scan_algorithm_is_bp(algorithm_of(method));
}

bool bppsa_bench_row_backward(int row) {
  return row >= BPPSA_BENCH_RIVALS ? (row - BPPSA_BENCH_RIVALS) % 2 == 1 : row % BPPSA_BENCH_METHODS != BPPSA_BENCH_FORWARD;
}

bool bppsa_bench_row_graph(int row) {
  return row < BPPSA_BENCH_GUESTS &&
         (row >= BPPSA_BENCH_RIVALS ? (row - BPPSA_BENCH_RIVALS) % 4 >= 2 : row >= BPPSA_BENCH_GRAPHS);
}

bool bppsa_bench_row_rival(int row) {
  return row >= BPPSA_BENCH_RIVALS;
}

bool bppsa_bench_row_exact(int row) {
  return row < BPPSA_BENCH_RIVALS || row >= BPPSA_BENCH_GUESTS ||
         bppsa_cudnn_exact((bppsa_cudnn_algorithm)((row - BPPSA_BENCH_RIVALS) / 4));
}

const char *bppsa_bench_row_name(const bppsa_guest *guest, int row, char *text, size_t size) {
  const bool rival = row >= BPPSA_BENCH_RIVALS;
  if (row >= BPPSA_BENCH_GUESTS) {
    const int method = (row - BPPSA_BENCH_GUESTS) / 2;
    snprintf(text, size, "%s",
             guest != NULL && method < bppsa_guest_method_count(guest) ? bppsa_guest_method(guest, method) : "");
    return text;
  }
  const char *name = rival ? bppsa_cudnn_algorithm_name((bppsa_cudnn_algorithm)((row - BPPSA_BENCH_RIVALS) / 4))
                           : bppsa_bench_method_name((bppsa_bench_method)(row % BPPSA_BENCH_METHODS));
  snprintf(text, size, "%s%s%s", rival ? "cudnn_" : "", name, bppsa_bench_row_graph(row) ? "_graph" : "");
  return text;
}

double bppsa_bench_floor(const bppsa_bench_result *result, const bppsa_bench_row *row) {
  return fmax(row->flops / result->peak.flops, row->bytes / result->peak.bytes);
}

bool bppsa_bench_put_backward(json_t *row, const char *prefix, const bppsa_backward_stats *stats) {
  json_t *all = bppsa_backward_stats_json(stats), *value;
  const char *key;
  bool ok = all != NULL;
  json_object_foreach(all, key, value) {
    char name[40];
    snprintf(name, sizeof name, "%s%s", prefix, key);
    ok = ok && bppsa_json_put(row, name, json_incref(value));
  }
  json_decref(all);
  return ok;
}

/* Keeps the up-levels and chunks that were asked for; each algorithm reads only its own number. */
bppsa_recurrent_config bppsa_bench_config(const bppsa_recurrent_config *config, bppsa_bench_method method) {
  bppsa_recurrent_config c = *config;
  c.method.backward = backward_of(method);
  c.method.scan.algorithm = method >= BPPSA_BENCH_SCANS ? algorithm_of(method) : BPPSA_SCAN_LINEAR;
  return c;
}

/* ---- FLOP and bytes ---- */

/* Bytes that a plan's products read and write for one sample; dead products never run. */
static double plan_bytes(const bppsa_scan_plan *plan) {
  bppsa_scan_iterator iterator = {0};
  bppsa_scan_step step;
  double bytes = 0;
  while (bppsa_scan_plan_next(plan, &iterator, &step)) {
    bytes += step.level->dead ? 0 : (double)step.bytes;
  }
  return bytes;
}

static bppsa_status add_plan(const bppsa_network_kind *kind, const bppsa_recurrent_config *config, int64_t layer, bool costs,
                             bppsa_device_kind device, bppsa_bench_row *row) {
  bppsa_scan_config scan = bppsa_network_scan(kind, config, layer);
  scan.device = device;
  bppsa_scan_plan *plan = NULL;
  BPPSA_TRY(bppsa_scan_plan_create(&scan, &plan));
  const bppsa_scan_totals *totals = bppsa_scan_plan_totals(plan);
  const bool scans = config->method.backward == BPPSA_BACKWARD_SCAN;
  const int64_t times = scans ? bppsa_recurrent_segments(config) : 1; /* segments of recompute follow each other */
  const double batch = (double)(times * config->batch),
               besides = bppsa_network_flops_besides(kind, config, layer) / (double)times;
  const bppsa_work work = bppsa_work_of_scan(totals, besides), bp = bppsa_work_of_bp(totals, besides);
  for (int64_t i = 0; i < times; ++i) {
    bppsa_work_add(&work, &row->work);
    bppsa_work_add(&bp, &row->bp);
  }
  row->critical_steps += times * totals->critical_steps;
  row->workspace += scans ? (double)totals->workspace_bytes : 0;
  row->plan = scans;
  row->method = bppsa_scan_plan_config(plan)->method; /* the top layer comes last, and its method stays */
  if (costs) {
    row->flops += batch * (work.gradients + work.besides);
    row->bytes += batch * plan_bytes(plan);
    row->predicted += config->method.backward != BPPSA_BACKWARD_SPECULATIVE ? (double)times * bppsa_scan_plan_seconds(plan) : 0;
  }
  bppsa_scan_plan_destroy(plan);
  return BPPSA_OK;
}

bppsa_status bppsa_bench_costs(const bppsa_network_kind *kind, const bppsa_recurrent_config *asked, bppsa_bench_method method,
                               bppsa_device_kind device, bppsa_bench_row *row) {
  bppsa_recurrent_config chosen, *config = &chosen;
  BPPSA_TRY(bppsa_recurrent_choose(asked, kind->cell, device, &chosen));
  const double rows = (double)config->seq_len * (double)config->batch, hidden = (double)config->hidden,
               gates = (double)kind->cell->gates * hidden;
  const double size = (double)bppsa_dtype_size(config->dtype);
  for (int64_t l = 0; l < config->layers; ++l) {
    const double input = l == 0 ? (double)config->input : hidden;
    row->flops += method == BPPSA_BENCH_FORWARD ? 2 * rows * gates * (input + hidden) : 0;
    row->bytes += size * rows * (input + (method == BPPSA_BENCH_FORWARD ? 1 : 2) * hidden);
    row->bytes += method != BPPSA_BENCH_FORWARD && l > 0 ? size * rows * 2 * hidden : 0;
    row->bytes += method != BPPSA_BENCH_FORWARD && l == 0 && config->input_gradients ? size * rows * input : 0;
    BPPSA_TRY(add_plan(kind, config, l, method != BPPSA_BENCH_FORWARD, device, row));
  }
  return BPPSA_OK;
}

/* ---- gradients ---- */

void bppsa_bench_count_view(const bppsa_view *view, bppsa_bench_count *count) {
  const double tiny = bppsa_smallest_normal(view->dtype);
  for (int64_t i = 0; i < bppsa_view_count(view); ++i) {
    const double size = fabs(bppsa_view_get(view, i));
    count->zeros += size == 0;
    count->subnormals += size != 0 && size < tiny;
    count->all += 1;
  }
}
