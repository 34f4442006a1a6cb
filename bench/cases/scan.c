/* `bppsa bench scan`: the sparse scan of LeNet-5's operators, executed, beside the recurrence. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "bench/cases/case.h"
#include "bench/cases/product_case.h"
#include "bench/harness/limits.h"
#include "bench/harness/machine.h"
#include "bench/harness/recording.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "core/memory.h"
#include "core/philox.h"
#include "jacobian/network.h"
#include "scan/scan.h"
#include "scan/work.h"

const char bppsa_bench_notes_scan[] =
    "The chain of LeNet-5's ten operators on 3 x 32 x 32 in f32 with random values: convolutions and "
    "linear operators shared by the\n"
    "samples, ReLUs and pools per sample. Every result is first held against the recurrence in float64: "
    "a residual of 30 or more\n"
    "marks the row and exits 1. All methods are held side by side and take turns. " BPPSA_BENCH_QUEUED_NOTE;

enum { METHODS = 6, WRONG = 30 };

static const struct {
  const char *name;
  bppsa_scan_method method;
} methods[METHODS] = {{"linear", {BPPSA_SCAN_LINEAR, 0, 0}},        {"up_levels 1", {BPPSA_SCAN_BLELLOCH, 1, 0}},
                      {"up_levels 2", {BPPSA_SCAN_BLELLOCH, 2, 0}}, {"up_levels 3", {BPPSA_SCAN_BLELLOCH, 3, 0}},
                      {"blelloch", {BPPSA_SCAN_BLELLOCH, -1, 0}},   {"auto", {BPPSA_SCAN_AUTO, 0, 0}}};

/* The scan of one method. All scans exist at once, so that the methods can take turns. */
typedef struct session session;
typedef struct {
  session *s;
  const char *name;
  bppsa_scan_plan *plan;
  bppsa_scan_executor *executor;
  double plan_s;
  double residual[2]; /* [0]: queued anew, [1]: of the recording */
  bppsa_timed_work work;
  bppsa_bench_recording recording; /* GPU */
  bool recorded;
} entrant;

struct session {
  const bppsa_bench_settings *asked;
  const bppsa_device *device, *host; /* host: its threads make the chain */
  bppsa_machine_limits limits;
  json_t *rows, *left_out;
  int64_t failed, noisy, n, batch, memory_limit;
  double besides; /* FLOPs of the gradients of weights, of one sample */
  bppsa_jacobian *jacobians[BPPSA_NETWORK_OPS];
  const bppsa_csr *patterns[BPPSA_NETWORK_OPS];
  bppsa_csr_values values[BPPSA_NETWORK_OPS]; /* on the device */
  float *owned[BPPSA_NETWORK_OPS];
  int64_t offsets[BPPSA_NETWORK_OPS + 2]; /* where g_t begins in the gradients of one sample */
  float *gradients;                       /* the seed, and the gradients that a scan computes from it */
  void *moved;                            /* the gradients on the device; on a processor the same array */
  double *reference;
  int64_t held; /* bytes of the entrants' products */
  int entrants;
  entrant list[METHODS];
};

static bool on_gpu(const session *s) {
  return bppsa_device_get_kind(s->device) == BPPSA_CUDA;
}

/* ---- the chain ---- */

/* Random values whose variance lets gradients neither vanish nor explode. Slopes of ReLUs are 0 or 1; a pool has one 1 for each
 * window. */
static bppsa_status make_values(session *s, int64_t t, bppsa_operator kind, uint64_t seed) {
  const bppsa_csr *jt = s->patterns[t];
  const bool shared = bppsa_jacobian_shared(s->jacobians[t]);
  const int64_t count = jt->nnz * (shared ? 1 : s->batch);
  const double scale = sqrt(3.0 * (double)jt->rows / (double)jt->nnz);
  s->owned[t] = bppsa_alloc((size_t)count * sizeof *s->owned[t]);
  if (s->owned[t] == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < count; ++i) {
    const double u = bppsa_random_double(seed, BPPSA_STREAM_TEST + 220 + (uint64_t)t, (uint64_t)i);
    s->owned[t][i] = (float)(bppsa_op_weights(bppsa_jacobian_op(s->jacobians[t])) > 0 ? scale * (2 * u - 1)
                             : kind == BPPSA_OPERATOR_RELU                            ? u < 0.5
                                                                                      : u < 0.25);
  }
  s->values[t] = (bppsa_csr_values){s->owned[t], shared ? 0 : jt->nnz};
  if (on_gpu(s)) {
    void *moved = NULL;
    const int64_t bytes = count * (int64_t)sizeof *s->owned[t];
    s->values[t].data = NULL;
    BPPSA_TRY(bppsa_memory_alloc(s->device, bytes, &moved));
    s->values[t].data = moved;
    return bppsa_memory_put(s->device, moved, s->owned[t], bytes);
  }
  return BPPSA_OK;
}

static int64_t gradient_bytes(const session *s) {
  return s->offsets[s->n + 1] * s->batch * (int64_t)sizeof *s->gradients;
}

static bppsa_status make_chain(session *s, uint64_t seed) {
  bppsa_named_op ops[BPPSA_NETWORK_OPS];
  BPPSA_TRY(bppsa_network_table("lenet5", ops, &s->n));
  for (int64_t t = 0; t < s->n; ++t) {
    BPPSA_TRY(bppsa_jacobian_create(&ops[t].op, NULL, false, s->host, &s->jacobians[t]));
    s->patterns[t] = bppsa_jacobian_pattern(s->jacobians[t]);
    s->besides += (double)bppsa_op_weight_flops(&ops[t].op, s->patterns[t]->nnz);
    BPPSA_TRY(make_values(s, t, ops[t].op.kind, seed));
    s->offsets[t + 1] = s->offsets[t] + s->patterns[t]->rows;
  }
  const int64_t seeds = s->patterns[s->n - 1]->cols, all = (s->offsets[s->n] + seeds) * s->batch,
                last = s->offsets[s->n] * s->batch;
  s->offsets[s->n + 1] = s->offsets[s->n] + seeds;
  s->gradients = bppsa_calloc(all, sizeof *s->gradients);
  s->reference = bppsa_calloc(all, sizeof *s->reference);
  if (s->gradients == NULL || s->reference == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = last; i < all; ++i) {
    s->gradients[i] = (float)(2 * bppsa_random_double(seed, BPPSA_STREAM_TEST + 219, (uint64_t)i) - 1);
    s->reference[i] = (double)s->gradients[i];
  }
  for (int64_t t = s->n; t >= 1; --t) { /* g_{t-1} = J_tᵀ g_t */
    const bppsa_csr *jt = s->patterns[t - 1];
    for (int64_t r = 0; r < jt->rows * s->batch; ++r) {
      const int64_t b = r / jt->rows, row = r % jt->rows;
      const float *v = s->owned[t - 1] + b * s->values[t - 1].stride;
      double sum = 0;
      for (int64_t p = jt->row_ptr[row]; p < jt->row_ptr[row + 1]; ++p) {
        sum += (double)v[p] * s->reference[s->offsets[t] * s->batch + b * jt->cols + jt->col[p]];
      }
      s->reference[s->offsets[t - 1] * s->batch + r] = sum;
    }
  }
  if (!on_gpu(s)) {
    s->moved = s->gradients;
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_memory_alloc(s->device, gradient_bytes(s), &s->moved));
  return bppsa_memory_put(s->device, s->moved, s->gradients, gradient_bytes(s));
}

/* ---- a method ---- */

static bppsa_status queue_scan(void *context) {
  const entrant *e = context;
  const bppsa_scan_operands operands = {.batch = e->s->batch, .values = e->s->values, .gradients = e->s->moved};
  return e->executor->execute(e->executor, &operands);
}

/* Sets all gradients but the seed to 0. */
static bppsa_status clear_scan(void *context) {
  const session *s = ((const entrant *)context)->s;
  return bppsa_memory_clear(s->device, s->moved, s->offsets[s->n] * s->batch * (int64_t)sizeof *s->gradients);
}

static double worst_residual(const session *s) {
  double worst = 0;
  for (int64_t t = 1; t < s->n; ++t) {
    const int64_t from = s->offsets[t] * s->batch;
    const bppsa_view view =
        bppsa_view_make(s->gradients + from, BPPSA_F32, 1, (int64_t[]){(s->offsets[t + 1] - s->offsets[t]) * s->batch});
    const double r = bppsa_bench_residual(&view, s->reference + from, s->n);
    worst = r <= worst ? worst : r; /* NaN stays */
  }
  return worst;
}

static bppsa_status add_row(session *s, const char *name, const entrant *e, double residual, const bppsa_timing *t) {
  const bppsa_scan_method *scan = &bppsa_scan_plan_config(e->plan)->method;
  const bppsa_scan_totals *totals = bppsa_scan_plan_totals(e->plan);
  const bppsa_work work = bppsa_work_of_scan(totals, s->besides), bp = bppsa_work_of_bp(totals, s->besides);
  const bppsa_work_ratios ratios = bppsa_work_over(&work, &bp);
  const double flops = (double)s->batch * work.gradients;
  const double floor_s = flops / s->limits.peak;
  const bool wrong = !(residual < WRONG);
  s->failed += wrong;
  s->noisy += t->noisy;
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "network", "lenet5") && bppsa_json_put_text(object, "method", name);
  ok = ok && bppsa_json_put_text(object, "phase", "scan") && bppsa_json_put_integer(object, "batch", s->batch);
  ok = ok && bppsa_json_put_integer(object, "threads", bppsa_device_get_threads(s->device));
  ok = ok && bppsa_json_put_integer(object, "up_levels", scan->up_levels) && bppsa_scan_method_put(object, scan);
  ok = ok && bppsa_bench_put_timing(object, t);
  ok = ok && bppsa_json_put_real(object, "residual", residual) && bppsa_json_put_real(object, "flops", flops);
  ok = ok && bppsa_json_put_integer(object, "bytes", totals->workspace_bytes) && bppsa_json_put_real(object, "floor_s", floor_s);
  ok = ok && bppsa_json_put_integer(object, "critical_flops", totals->critical_flops);
  ok = ok && bppsa_json_put_integer(object, "critical_steps", totals->critical_steps);
  ok = ok && bppsa_work_json(object, "bp", &ratios);
  ok = ok && bppsa_json_put_real(object, "plan_s", e->plan_s);
  if (json_array_append_new(s->rows, bppsa_json_finish(object, ok)) != 0) {
    return bppsa_bench_no_room();
  }
  char text[3][BPPSA_SI_TEXT], median[BPPSA_TIMING_TEXT];
  return s->asked->request.to.json
             ? BPPSA_OK
             : bppsa_output_print(
                   &s->asked->request.to,
                   "  %-18s%11s%11.3f%11.3f%7" PRId64 "  %-9s%8.2f%8.2f%7.0f%%  %-9s%6" PRId64 "  %-9s%10.1f%10.2f%s\n", name,
                   bppsa_timing_median_ms(t, 3, median), 1e3 * t->min_s, 1e3 * t->max_s, t->repeats,
                   bppsa_text_si(flops, "FLOP", text[0], sizeof text[0]), ratios.gradients, 1e-9 * flops / t->median_s,
                   100 * floor_s / t->median_s, bppsa_text_si((double)totals->critical_flops, "FLOP", text[1], sizeof text[1]),
                   totals->critical_steps, bppsa_text_si((double)totals->workspace_bytes, "B", text[2], sizeof text[2]),
                   1e3 * e->plan_s, residual, wrong ? "  WRONG" : "");
}

static bppsa_status leave_out(const session *s, const char *name) {
  const char *why = bppsa_last_error();
  BPPSA_TRY(bppsa_bench_leave_out(s->left_out, (const char *const[]){"method", name, NULL}, why));
  return s->asked->request.to.json ? BPPSA_OK : bppsa_output_print(&s->asked->request.to, "  %-18s left out: %s\n", name, why);
}

/* The residual of what the latest scan left on the device. */
static bppsa_status judge(session *s, double *residual) {
  if (on_gpu(s)) {
    BPPSA_TRY(bppsa_memory_get(s->device, s->gradients, s->moved, gradient_bytes(s)));
  }
  *residual = worst_residual(s);
  return BPPSA_OK;
}

static const char *graph_name(const entrant *e, char *text, size_t size) {
  snprintf(text, size, "%s graph", e->name);
  return text;
}

/* Records the scan on a GPU as well. What cannot be recorded is left out. */
static bppsa_status record(session *s, entrant *e) {
  char text[64];
  const bppsa_status recorded = bppsa_bench_record(s->device, queue_scan, clear_scan, e, &e->recording);
  if (recorded == BPPSA_ERR_UNSUPPORTED) {
    return leave_out(s, graph_name(e, text, sizeof text));
  }
  BPPSA_TRY(recorded);
  e->recorded = true;
  BPPSA_TRY(bppsa_bench_replay_cleared(&e->recording));
  return judge(s, &e->residual[1]);
}

/* Runs the scan once and verifies it. */
static bppsa_status verify(session *s, entrant *e) {
  BPPSA_TRY(bppsa_scan_executor_create(e->plan, s->device, &e->executor));
  e->work = (bppsa_timed_work){.device = s->device, .action = queue_scan, .context = e};
  BPPSA_TRY(bppsa_timed_work_open(&e->work));
  BPPSA_TRY(clear_scan(e));
  BPPSA_TRY(queue_scan(e));
  BPPSA_TRY(bppsa_device_wait(s->device));
  BPPSA_TRY(judge(s, &e->residual[0]));
  return on_gpu(s) ? record(s, e) : BPPSA_OK;
}

/* Makes a method's plan within the part of the memory limit that the methods before it left. */
static bppsa_status enter_method(session *s, int method) {
  bppsa_scan_config config = bppsa_scan_config_default();
  config.element = BPPSA_ELEMENT_CSR;
  config.method = methods[method].method;
  config.jacobians = s->n;
  config.batch = s->batch;
  config.patterns = s->patterns;
  config.planner = s->device;
  config.memory_limit = s->memory_limit > s->held ? s->memory_limit - s->held : 1;
  entrant *e = &s->list[s->entrants];
  *e = (entrant){.s = s, .name = methods[method].name};
  const double start = bppsa_now();
  const bppsa_status status = bppsa_scan_plan_create(&config, &e->plan);
  e->plan_s = bppsa_now() - start;
  if (status == BPPSA_ERR_ARGUMENT ||
      status == BPPSA_ERR_UNSUPPORTED) { /* beyond the memory limit, or too large for a GPU's indices */
    return leave_out(s, e->name);
  }
  BPPSA_TRY(status);
  ++s->entrants;
  s->held += bppsa_scan_plan_totals(e->plan)->workspace_bytes;
  return verify(s, e);
}

static void leave(entrant *e) {
  bppsa_timed_work_close(&e->work);
  if (e->recorded) {
    bppsa_bench_recording_free(&e->recording);
  }
  bppsa_scan_executor_destroy(e->executor);
  bppsa_scan_plan_destroy(e->plan);
}

/* Times all entrants and their recordings in turn and adds their rows. */
static bppsa_status time_all(session *s) {
  bppsa_contender list[2 * METHODS];
  char text[64];
  int count = 0;
  const bppsa_rounds rounds = bppsa_bench_rounds_of(&s->asked->request, 2, 0.2);
  for (int i = 0; i < s->entrants; ++i) {
    entrant *e = &s->list[i];
    list[count++] = (bppsa_contender){.pass = bppsa_timed_work_pass, .context = &e->work, .parts = 1};
    if (e->recorded) {
      list[count++] = (bppsa_contender){.pass = bppsa_bench_replay_pass, .context = &e->recording, .parts = 1};
    }
  }
  BPPSA_TRY(count > 0 ? bppsa_rounds_run(&rounds, count, list) : BPPSA_OK);
  count = 0;
  for (int i = 0; i < s->entrants; ++i) {
    const entrant *e = &s->list[i];
    BPPSA_TRY(add_row(s, e->name, e, e->residual[0], &list[count++].timing[0]));
    if (e->recorded) {
      BPPSA_TRY(add_row(s, graph_name(e, text, sizeof text), e, e->residual[1], &list[count++].timing[0]));
    }
  }
  return s->asked->request.to.json ? BPPSA_OK : bppsa_bench_show_noisy(&s->asked->request.to, s->noisy);
}

static bppsa_status measure(session *s) {
  char date[BPPSA_DATE_TEXT], peak[BPPSA_SI_TEXT];
  BPPSA_TRY(bppsa_bench_memory_limit(&s->asked->request, 2, &s->memory_limit));
  BPPSA_TRY(bppsa_machine_limits_measure(s->device, &s->limits));
  if (!s->asked->request.to.json) {
    BPPSA_TRY(bppsa_output_print(
        &s->asked->request.to,
        "sparse scan of lenet5 on %s, %d threads, B = %" PRId64 ", %s; measured peak %s\n"
        "milliseconds; x BP: FLOPs over those of BP, gradients between layers on both sides; peak: share of it;\n"
        "critical: FLOPs of a sample and products on the critical path\n\n"
        "  method                 median        min        max      n  work         x BP GFLOP/s   peak  critical    n  "
        "held       plan ms  residual\n",
        bppsa_device_get_hardware(s->device), bppsa_device_get_threads(s->device), s->batch,
        bppsa_machine_date(date, sizeof date), bppsa_text_si(s->limits.peak, "FLOP/s", peak, sizeof peak)));
  }
  for (int i = 0; i < METHODS; ++i) {
    BPPSA_TRY(enter_method(s, i));
  }
  return time_all(s);
}

static bppsa_status run(const bppsa_bench_settings *asked) {
  bppsa_bench_report report;
  BPPSA_TRY(bppsa_bench_open(&asked->request, "scan", &report));
  session s = {.asked = asked, .device = asked->request.device, .rows = report.rows, .batch = asked->batch};
  bppsa_device *host = NULL;
  bppsa_status status = bppsa_bench_list_left_out(&report, &s.left_out);
  status = status == BPPSA_OK ? bppsa_device_create("cpu", bppsa_device_get_threads(asked->request.device), &host) : status;
  s.host = host;
  status = status == BPPSA_OK ? make_chain(&s, asked->request.seed) : status;
  status = status == BPPSA_OK ? measure(&s) : status;
  for (int i = s.entrants - 1; i >= 0; --i) {
    leave(&s.list[i]);
  }
  for (int64_t t = 0; t < BPPSA_NETWORK_OPS; ++t) {
    bppsa_jacobian_destroy(s.jacobians[t]);
    if (on_gpu(&s)) {
      bppsa_memory_free(s.device, (void *)s.values[t].data);
    }
    bppsa_free(s.owned[t]);
  }
  if (on_gpu(&s)) {
    bppsa_memory_free(s.device, s.moved);
  }
  bppsa_free(s.gradients);
  bppsa_free(s.reference);
  bppsa_device_destroy(host);
  return bppsa_bench_close(&report, status, s.failed, WRONG);
}

const bppsa_bench_case bppsa_bench_case_scan = {"scan", run};
