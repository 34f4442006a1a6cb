/* `bppsa bench scan`: the sparse scan of LeNet-5's operators, executed, beside the recurrence. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "bench/cases/case.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/philox.h"
#include "core/compute/memory.h"
#include "core/measure/residual.h"
#include "jacobian/jacobian.h"
#include "jacobian/network_ops.h"
#include "scan/scan.h"
#include "scan/work.h"
#include "terminal/machine.h"

const char bppsa_bench_notes_scan[] =
    "The chain of LeNet-5's ten operators on 3 x 32 x 32 in f32, with random values. All samples share the Jacobians of\n"
    "convolutions and linear operators; those of ReLUs and pools differ from sample to sample.\n"
    "First every method computes its gradients once. They are held against the recurrence in float64. A method whose residual\n"
    "is 30 or more is wrong: it is marked and not timed, and the program exits 1. Then all methods take "
    "turns.\n" BPPSA_BENCH_QUEUED_NOTE;

static const bppsa_scan_method methods[] = {{BPPSA_SCAN_LINEAR, 0, 0},    {BPPSA_SCAN_BLELLOCH, 1, 0},
                                            {BPPSA_SCAN_BLELLOCH, 2, 0},  {BPPSA_SCAN_BLELLOCH, 3, 0},
                                            {BPPSA_SCAN_BLELLOCH, -1, 0}, {BPPSA_SCAN_AUTO, 0, 0}};
enum { METHODS = sizeof methods / sizeof methods[0] };

typedef struct session session;

/* The scan of one method. All scans exist at once, so that the methods can take turns. */
typedef struct {
  session *s;
  bppsa_scan_plan *plan;
  bppsa_scan_executor *executor;
  double plan_s;
} method_scan;

struct session {
  const bppsa_bench *bench;
  int64_t n, batch;
  double besides; /* FLOPs of the weights' gradients for one sample */
  bppsa_jacobian *jacobians[BPPSA_NETWORK_OPS];
  const bppsa_csr *patterns[BPPSA_NETWORK_OPS];
  bppsa_csr_values values[BPPSA_NETWORK_OPS]; /* on the device */
  float *owned[BPPSA_NETWORK_OPS];
  int64_t offsets[BPPSA_NETWORK_OPS + 2]; /* where g_t begins in the gradients of one sample */
  float *gradients;                       /* the seed, and the gradients that a scan computes from it */
  void *moved;                            /* the gradients on the device; on a processor the same array */
  double *reference;
  int64_t held; /* bytes that the scans' products hold */
  method_scan scans[METHODS];
};

/* ---- the chain ---- */

/* Makes random values whose variance lets gradients neither vanish nor explode. Slopes of ReLUs are 0 or 1; a pool has one 1 for
 * each window. */
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
  if (s->bench->gpu) {
    void *moved = NULL;
    const int64_t bytes = count * (int64_t)sizeof *s->owned[t];
    s->values[t].data = NULL;
    BPPSA_TRY(bppsa_memory_alloc(s->bench->device, bytes, &moved));
    s->values[t].data = moved;
    return bppsa_memory_put(s->bench->device, moved, s->owned[t], bytes);
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
    BPPSA_TRY(bppsa_jacobian_create(&ops[t].op, NULL, false, s->bench->host, &s->jacobians[t]));
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
  if (!s->bench->gpu) {
    s->moved = s->gradients;
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_memory_alloc(s->bench->device, gradient_bytes(s), &s->moved));
  return bppsa_memory_put(s->bench->device, s->moved, s->gradients, gradient_bytes(s));
}

/* ---- a method ---- */

static bppsa_status queue_scan(void *context) {
  const method_scan *m = context;
  const bppsa_scan_operands operands = {.batch = m->s->batch, .values = m->s->values, .gradients = m->s->moved};
  return m->executor->execute(m->executor, &operands);
}

/* Sets all gradients but the seed to 0. */
static bppsa_status clear_scan(void *context) {
  const session *s = ((const method_scan *)context)->s;
  return bppsa_memory_clear(s->bench->device, s->moved, s->offsets[s->n] * s->batch * (int64_t)sizeof *s->gradients);
}

static double worst_residual(const session *s) {
  double worst = 0;
  for (int64_t t = 1; t < s->n; ++t) {
    const int64_t from = s->offsets[t] * s->batch;
    const bppsa_view view =
        bppsa_view_make(s->gradients + from, BPPSA_F32, 1, (int64_t[]){(s->offsets[t + 1] - s->offsets[t]) * s->batch});
    worst = bppsa_residual_worse(worst, bppsa_residual(&view, s->reference + from, s->n));
  }
  return worst;
}

static bppsa_status judge_scan(void *context, double *residual) {
  const session *s = ((const method_scan *)context)->s;
  if (s->bench->gpu) {
    BPPSA_TRY(bppsa_memory_get(s->bench->device, s->gradients, s->moved, gradient_bytes(s)));
  }
  *residual = worst_residual(s);
  return BPPSA_OK;
}

static const bppsa_bench_work scan_work = {.action = queue_scan, .clear = clear_scan, .judge = judge_scan};

/* Makes a method's plan within the part of the memory limit that the methods before it left. */
static bppsa_status enter_method(bppsa_bench *bench, method_scan *m, const bppsa_scan_method *method) {
  session *s = bench->session;
  char name[BPPSA_METHOD_TEXT], graph[BPPSA_METHOD_TEXT + 8];
  bppsa_scan_config config = bppsa_scan_config_default();
  config.element = BPPSA_ELEMENT_CSR;
  config.method = *method;
  config.jacobians = s->n;
  config.batch = s->batch;
  config.patterns = s->patterns;
  config.planner = bench->device;
  config.memory_limit = bench->memory_limit > s->held ? bench->memory_limit - s->held : 1;
  bppsa_scan_method_text(method, name, sizeof name);
  m->s = s;
  const double start = bppsa_now();
  const bppsa_status status = bppsa_scan_plan_create(&config, &m->plan);
  m->plan_s = bppsa_now() - start;
  if (status == BPPSA_ERR_ARGUMENT ||
      status == BPPSA_ERR_UNSUPPORTED) { /* beyond the memory limit, or too large for a GPU's indices */
    return bppsa_bench_leave_out(bench, name, "");
  }
  BPPSA_TRY(status);
  s->held += bppsa_scan_plan_totals(m->plan)->workspace_bytes;
  BPPSA_TRY(bppsa_scan_executor_create(m->plan, bench->device, &m->executor));
  BPPSA_TRY(bppsa_bench_enter(bench, &scan_work, bench->device, m, name, "scan", NULL));
  snprintf(graph, sizeof graph, "%s graph", name);
  return bench->gpu ? bppsa_bench_enter_recording(bench, &scan_work, m, graph, "scan") : BPPSA_OK;
}

static bppsa_status enter(bppsa_bench *bench, int64_t point, bool *more) {
  session *s = bench->session;
  *more = point == 0;
  for (int i = 0; *more && i < METHODS; ++i) {
    BPPSA_TRY(enter_method(bench, &s->scans[i], &methods[i]));
  }
  return BPPSA_OK;
}

/* ---- rows ---- */

static bool put(const bppsa_bench_entrant *e, json_t *row) {
  const method_scan *m = e->context;
  const session *s = m->s;
  const bppsa_scan_method *method = &bppsa_scan_plan_config(m->plan)->method;
  const bppsa_scan_totals *totals = bppsa_scan_plan_totals(m->plan);
  const bppsa_work work = bppsa_work_of_scan(totals, s->besides), bp = bppsa_work_of_bp(totals, s->besides);
  const bppsa_work_ratios ratios = bppsa_work_over(&work, &bp);
  const double flops = (double)s->batch * work.gradients;
  bool ok = bppsa_json_put_text(row, "network", "lenet5") && bppsa_json_put_text(row, "method", e->method);
  ok = ok && bppsa_json_put_text(row, "phase", e->phase) && bppsa_json_put_integer(row, "batch", s->batch);
  ok = ok && bppsa_json_put_integer(row, "threads", bppsa_device_get_threads(s->bench->device));
  ok = ok && bppsa_json_put_integer(row, "up_levels", method->up_levels) && bppsa_scan_method_put(row, method);
  ok = ok && bppsa_bench_put_timing(row, &e->contender.timing[0]);
  ok = ok && bppsa_json_put_real(row, "residual", e->contender.residual) && bppsa_json_put_real(row, "flops", flops);
  ok = ok && bppsa_json_put_integer(row, "bytes", totals->workspace_bytes);
  ok = ok && bppsa_json_put_real(row, "floor_s", flops / s->bench->limits.peak);
  ok = ok && bppsa_json_put_integer(row, "critical_flops", totals->critical_flops);
  ok = ok && bppsa_json_put_integer(row, "critical_steps", totals->critical_steps);
  ok = ok && (!s->bench->gpu || bppsa_json_put_real(row, "predicted_s", bppsa_scan_plan_seconds(m->plan)));
  return ok && bppsa_work_json(row, "bp", &ratios) && bppsa_json_put_real(row, "plan_s", m->plan_s);
}

static const bppsa_table_column columns[] = {
    {.heading = "method", .width = -18, .key = "method"},
    BPPSA_COLUMN_TIMES(11, 11, 7, 3),
    {.heading = "work", .width = -9, .kind = BPPSA_COLUMN_SI, .key = "flops", .unit = "FLOP"},
    {.heading = "x BP", .width = 8, .kind = BPPSA_COLUMN_REAL, .key = "flops_of_bp", .digits = 2},
    {.heading = "GFLOP/s", .width = 8, .kind = BPPSA_COLUMN_REAL, .key = "flops", .over = "median_s", .scale = 1e-9, .digits = 2},
    {.heading = "peak", .width = 8, .kind = BPPSA_COLUMN_PERCENT, .key = "floor_s", .over = "median_s"},
    {.heading = "critical", .width = -9, .kind = BPPSA_COLUMN_SI, .key = "critical_flops", .unit = "FLOP"},
    {.heading = "n", .width = 6, .kind = BPPSA_COLUMN_INTEGER, .key = "critical_steps"},
    {.heading = "held", .width = -9, .kind = BPPSA_COLUMN_SI, .key = "bytes", .unit = "B"},
    {.heading = "plan ms", .width = 10, .kind = BPPSA_COLUMN_REAL, .key = "plan_s", .scale = 1e3, .digits = 1},
    {.heading = "residual", .width = 10, .kind = BPPSA_COLUMN_REAL, .key = "residual", .digits = 2},
    {0}};

static bppsa_status print_head(const bppsa_bench *bench) {
  char date[BPPSA_DATE_TEXT], peak[BPPSA_SI_TEXT];
  return bppsa_output_print(
      &bench->request->to,
      "sparse scan of lenet5 on %s, %d threads, B = %" PRId64 ", %s; measured peak %s\n"
      "milliseconds; x BP: FLOPs over those of BP, gradients between layers on both sides; peak: share of it;\n"
      "critical: FLOPs of a sample and products on the critical path\n\n",
      bppsa_device_get_hardware(bench->device), bppsa_device_get_threads(bench->device), bench->asked->batch,
      bppsa_machine_date(date, sizeof date), bppsa_text_si(bench->limits.peak, "FLOP/s", peak, sizeof peak));
}

/* ---- the benchmark ---- */

static bppsa_status prepare(bppsa_bench *bench) {
  session *s = bench->session;
  s->bench = bench;
  s->batch = bench->asked->batch;
  return make_chain(s, bench->request->seed);
}

static void leave(bppsa_bench *bench) {
  session *s = bench->session;
  for (int i = METHODS - 1; i >= 0; --i) {
    bppsa_scan_executor_destroy(s->scans[i].executor);
    bppsa_scan_plan_destroy(s->scans[i].plan);
    s->scans[i] = (method_scan){0};
  }
}

static void release(bppsa_bench *bench) {
  session *s = bench->session;
  for (int64_t t = 0; t < BPPSA_NETWORK_OPS; ++t) {
    bppsa_jacobian_destroy(s->jacobians[t]);
    if (bench->gpu) {
      bppsa_memory_free(bench->device, (void *)s->values[t].data);
    }
    bppsa_free(s->owned[t]);
  }
  if (bench->gpu) {
    bppsa_memory_free(bench->device, s->moved);
  }
  bppsa_free(s->gradients);
  bppsa_free(s->reference);
}

const bppsa_bench_case bppsa_bench_case_scan = {.name = "scan",
                                                .session = sizeof(session),
                                                .budget_s = 2,
                                                .quick_s = 0.2,
                                                .bound = BPPSA_RESIDUAL_BOUND,
                                                .memory_quarters = 2,
                                                .limits = true,
                                                .names = (const char *const[]){"method", NULL},
                                                .columns = columns,
                                                .prepare = prepare,
                                                .head = print_head,
                                                .enter = enter,
                                                .put = put,
                                                .leave = leave,
                                                .release = release};
