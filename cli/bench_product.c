/* `bppsa bench product`: planned products beside each other, and beside other libraries' where this program has any. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/bench_queued.h"
#include "cli/machine.h"
#include "cli/setup.h"
#include "core/alloc.h"
#include "core/memory.h"

static const bppsa_product_rival *const no_rivals[] = {NULL};
bppsa_product_rival_list bppsa_product_rivals = no_rivals;
bppsa_product_rival_list bppsa_product_rivals_on_gpu[] = {bppsa_product_cusparse_rivals, bppsa_product_cublas_rivals, NULL};

static const bppsa_option_use uses[] = {
    {.option = BPPSA_OPTION_QUICK, .help = "a tenth of the time"},
    {.option = BPPSA_OPTION_REPEATS},
    {.option = BPPSA_OPTION_SEED, .help = "of values and masks"},
    {.option = BPPSA_OPTION_LEFT},
    {.option = BPPSA_OPTION_RIGHT},
    {.option = BPPSA_OPTION_UP_LEVELS, .help = "VGG-11's scan with so many, 3 % of the weights: its products are the cases"},
    {.option = BPPSA_OPTION_DEVICE},
    {.option = BPPSA_OPTION_THREADS},
    {.option = BPPSA_OPTION_MEMORY_LIMIT, .help = "leave kinds out whose plan needs more [1/4 of available memory]"},
    {.option = BPPSA_OPTION_OUT, .metavar = "F.json", .help = "where the JSON document goes too"},
    {.option = BPPSA_OPTION_JSON},
    {.option = BPPSA_OPTION_HELP},
    {.option = BPPSA_OPTION_COUNT}};

static const char notes[] =
    "C = A B in f32. Case A: conv3·conv4 of VGG-11 with 3 % of the weights. B: conv·relu·conv with 16 channels at 16 x 16. B64: "
    "with 64.\n"
    "D: fc1·relu·fc2 of LeNet-5, two full factors. D1024: 1024 x 1024 each.\n"
    "--up-levels: the products of a pruned VGG-11's scan in their place, a[i:j] of its elements.\n"
    "Every result is first checked against float64: a largest |c - ref| / (eps sum |a b|) of 30 or more marks the row and exits "
    "1.\n"
    "floor: the larger of FLOP / measured peak and bytes / measured copy bandwidth. plan: planning time in numeric passes; of "
    "other libraries\n"
    "without taking over the factors, and 0 where every pass does all of it (full).\n" BPPSA_BENCH_QUEUED_NOTE
    "There cuSPARSE is beside them, where it is: SpGEMM as a whole (full) and what SpGEMMreuse computes once its structure is "
    "known\n"
    "(numeric); and, where both factors are full, cuBLAS.\n"
    "The program bppsa-rivals, built beside this one where the libraries are, adds SuiteSparse:GraphBLAS, LIBXSMM and PETSc to "
    "the same run.\n";

enum { WRONG = 30 };
#define KEPT 0.03 /* of the weights of VGG-11's scan */

typedef struct {
  const char *method, *phase;
  bppsa_timing timing;
  double plan_s, residual, flops, executed_flops, bytes, floor_s; /* flops: of matching pairs; executed: 0 where nobody says */
} product_row;

typedef struct {
  bppsa_cli *cli;
  const bppsa_device *device, *host; /* host: whose threads make the cases */
  bppsa_machine_limits limits;
  json_t *rows, *left_out;
  int64_t failed, repeats, memory_limit;
  double budget_s;
  /* the case at hand */
  bppsa_product_case c;
  bppsa_csr pattern; /* of C, a copy */
  double *sums, *magnitudes;
  float *values;            /* of C */
  void *left, *right, *out; /* values of A, B and C on the device; a processor's are the case's */
} session;

static bool on_gpu(const session *s) {
  return bppsa_device_get_kind(s->device) == BPPSA_CUDA;
}

static double residual(const session *s) {
  double worst = 0;
  for (int64_t i = 0; i < s->pattern.nnz; ++i) {
    const double r = fabs((double)s->values[i] - s->sums[i]) / (1.1920929e-7 * s->magnitudes[i] + 1e-37);
    worst = r <= worst ? worst : r; /* NaN stays */
  }
  return worst;
}

/* ---- rows ---- */

static json_t *row_json(const session *s, const product_row *row) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "case", s->c.name);
  ok = ok && bppsa_json_put_text(object, "method", row->method);
  ok = ok && bppsa_json_put_text(object, "phase", row->phase);
  ok = ok && bppsa_json_put_integer(object, "threads", bppsa_device_get_threads(s->device));
  ok = ok && bppsa_json_put_text(object, "dtype", "f32");
  ok = ok && bppsa_json_put_integer(object, "nnz", s->pattern.nnz);
  ok = ok && bppsa_json_put_real(object, "median_s", row->timing.median_s);
  ok = ok && bppsa_json_put_real(object, "min_s", row->timing.min_s);
  ok = ok && bppsa_json_put_real(object, "max_s", row->timing.max_s);
  ok = ok && bppsa_json_put_integer(object, "repeats", row->timing.repeats);
  ok = ok && bppsa_json_put_real(object, "residual", row->residual);
  ok = ok && bppsa_json_put_real(object, "flops", row->flops);
  ok = ok && bppsa_json_put_real(object, "pair_flops", row->flops);
  if (row->executed_flops > 0) {
    ok = ok && bppsa_json_put_real(object, "executed_flops", row->executed_flops);
  }
  ok = ok && bppsa_json_put_real(object, "bytes", row->bytes);
  ok = ok && bppsa_json_put_real(object, "flops_per_s", row->flops / row->timing.median_s);
  ok = ok && bppsa_json_put_real(object, "floor_s", row->floor_s);
  ok = ok && bppsa_json_put_real(object, "plan_s", row->plan_s);
  ok = ok && bppsa_json_put_real(object, "plan_passes", row->plan_s / row->timing.median_s);
  return bppsa_json_finish(object, ok);
}

static bppsa_status add_row(session *s, product_row *row) {
  const double compute = row->flops / s->limits.peak, move = row->bytes / s->limits.copy_bytes;
  row->floor_s = compute > move ? compute : move;
  const bool wrong = !(row->residual < WRONG);
  s->failed += wrong;
  if (json_array_append_new(s->rows, row_json(s, row)) != 0) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "bench: out of memory, expected room for the results");
  }
  return s->cli->json ? BPPSA_OK
                      : bppsa_cli_print(s->cli, "  %-9s%-21s%-9s%11.3f%11.3f%11.3f%7" PRId64 "%10.2f%8.0f%%  %-9s%9.1f%10.1f%s\n",
                                        s->c.name, row->method, row->phase, 1e3 * row->timing.median_s, 1e3 * row->timing.min_s,
                                        1e3 * row->timing.max_s, row->timing.repeats, 1e-9 * row->flops / row->timing.median_s,
                                        100 * row->floor_s / row->timing.median_s, compute > move ? "FMA" : "bandwidth",
                                        row->plan_s / row->timing.median_s, row->residual, wrong ? "  WRONG" : "");
}

/* Not measured, by the last error. */
static bppsa_status leave_out(session *s, const char *method, const char *phase) {
  const char *const names[] = {"case", s->c.name, "method", method, "phase", phase, NULL}, *why = bppsa_last_error();
  BPPSA_TRY(bppsa_bench_leave_out(s->left_out, names, why));
  return s->cli->json ? BPPSA_OK : bppsa_cli_print(s->cli, "  %-9s%-21s%-9sleft out: %s\n", s->c.name, method, phase, why);
}

/* ---- timing ---- */

/* What computes C on the device, and brings its values to s->values. */
typedef struct {
  bppsa_status (*run)(void *context);
  bppsa_status (*clear)(void *context); /* C's values, where an earlier run may have left them: 0 again */
  bppsa_status (*fetch)(session *s, void *context);
  void *context;
} contender;

static bppsa_status measure_queued(session *s, const contender *who, product_row *row) {
  BPPSA_TRY(who->clear(who->context));
  BPPSA_TRY(bppsa_bench_time_on(s->device, who->run, who->context, s->repeats, s->budget_s, &row->timing));
  BPPSA_TRY(who->fetch(s, who->context));
  row->residual = residual(s);
  return add_row(s, row);
}

/* A GPU's pass once more as a recording, in which no launch waits for the host. What cannot be recorded is left out. */
static bppsa_status measure_graph(session *s, const contender *who, product_row *row) {
  bppsa_bench_recording recording;
  row->phase = "graph";
  const bppsa_status recorded = bppsa_bench_record(s->device, who->run, who->clear, who->context, &recording);
  if (recorded == BPPSA_ERR_UNSUPPORTED) {
    return leave_out(s, row->method, row->phase);
  }
  BPPSA_TRY(recorded);
  bppsa_status status = bppsa_bench_replay(&recording, s->repeats, s->budget_s, &row->timing);
  bppsa_bench_recording_free(&recording);
  status = status == BPPSA_OK ? who->fetch(s, who->context) : status;
  row->residual = status == BPPSA_OK ? residual(s) : INFINITY;
  return status == BPPSA_OK ? add_row(s, row) : status;
}

/* ---- own kinds ---- */

typedef struct {
  const session *s;
  bppsa_product *product;
} pass;

static bppsa_status run_pass(void *context) {
  const pass *p = context;
  return bppsa_product_execute(p->product, 1, (bppsa_csr_values){p->s->left, 0}, (bppsa_csr_values){p->s->right, 0}, p->s->out);
}

static bppsa_status clear_pass(void *context) {
  const pass *p = context;
  return bppsa_memory_clear(p->s->device, p->s->out, p->s->pattern.nnz * (int64_t)sizeof *p->s->values);
}

static bppsa_status fetch_pass(session *s, void *context) {
  (void)context;
  return on_gpu(s) ? bppsa_memory_get(s->device, s->values, s->out, s->pattern.nnz * (int64_t)sizeof *s->values) : BPPSA_OK;
}

static bppsa_status measure_kind(session *s, bppsa_product_kind kind) {
  const bppsa_product_config config = {.kind = kind, .dtype = BPPSA_F32, .memory_limit = s->memory_limit};
  pass p = {.s = s};
  const contender who = {run_pass, clear_pass, fetch_pass, &p};
  const double start = bppsa_bench_now();
  const bppsa_status made = bppsa_product_create(s->c.a, s->c.b, &config, s->device, &p.product);
  if (made == BPPSA_ERR_UNSUPPORTED || made == BPPSA_ERR_ARGUMENT) {
    return leave_out(s, bppsa_product_kind_name(kind), "numeric"); /* does not apply, or does not fit */
  }
  BPPSA_TRY(made);
  product_row row = {.method = bppsa_product_kind_name(kind), .phase = "numeric", .plan_s = bppsa_bench_now() - start};
  const bppsa_product_info *info = bppsa_product_get_info(p.product);
  const int64_t indices = info->kind == BPPSA_PRODUCT_SLOTS ? info->plan_bytes - 4 * info->nnz - 8 * (s->c.a->rows + 1) : 0;
  row.flops = (double)info->pair_flops;
  row.executed_flops = (double)info->executed_flops;
  row.bytes = 4.0 * (double)(s->c.a->nnz + s->c.b->nnz + info->nnz) + (double)indices;
  bppsa_status status = measure_queued(s, &who, &row);
  status = status == BPPSA_OK && on_gpu(s) ? measure_graph(s, &who, &row) : status;
  bppsa_product_destroy(p.product);
  return status;
}

/* ---- rivals ---- */

typedef struct {
  const bppsa_product_rival *rival;
  const bppsa_product_gpu_rival *gpu; /* the same where it is a GPU's, or NULL */
  void *state;
} rival_run;

static bppsa_status run_rival(void *context) {
  const rival_run *r = context;
  return r->rival->run(r->state);
}

static bppsa_status clear_rival(void *context) {
  const rival_run *r = context;
  return r->gpu == NULL ? BPPSA_OK : r->gpu->clear(r->state);
}

static bppsa_status fetch_rival(session *s, void *context) {
  const rival_run *r = context;
  return r->rival->read(r->state, &s->pattern, s->values);
}

/* Ready to run; *plan_s is the plan alone: loading the library and taking over the factors come before. */
static bppsa_status open_rival(const session *s, rival_run *r, double *plan_s) {
  (void)bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: not for this case",
                   r->rival->name); /* what a rival says that refuses without words */
  BPPSA_TRY(r->rival->create(&s->c, bppsa_device_get_threads(s->device), &r->state));
  const double start = bppsa_bench_now();
  const bppsa_status planned = r->rival->plan != NULL ? r->rival->plan(r->state) : BPPSA_OK;
  if (planned != BPPSA_OK) {
    r->rival->destroy(r->state);
    return planned;
  }
  *plan_s = r->rival->plan != NULL ? bppsa_bench_now() - start : 0;
  return BPPSA_OK;
}

/* The same on a GPU once more, thrown away, before: a first plan loads kernels. */
static bppsa_status open_warm(const session *s, rival_run *r, double *plan_s) {
  if (r->gpu != NULL && r->rival->plan != NULL) {
    BPPSA_TRY(open_rival(s, r, plan_s));
    r->rival->destroy(r->state);
  }
  return open_rival(s, r, plan_s);
}

static bppsa_status measure_rival(session *s, const bppsa_product_rival *rival, double flops) {
  rival_run r = {rival, on_gpu(s) ? (const bppsa_product_gpu_rival *)rival : NULL, NULL};
  const contender who = {run_rival, clear_rival, fetch_rival, &r};
  product_row row = {.method = rival->name, .phase = rival->method, .flops = flops};
  const bppsa_status made = open_warm(s, &r, &row.plan_s);
  if (made == BPPSA_ERR_UNSUPPORTED) {
    return leave_out(s, rival->name, rival->method);
  }
  BPPSA_TRY(made);
  row.bytes = 4.0 * (double)(s->c.a->nnz + s->c.b->nnz + s->pattern.nnz);
  bppsa_status status = measure_queued(s, &who, &row);
  if (status == BPPSA_OK && on_gpu(s) &&
      strcmp(rival->method, "numeric") == 0) { /* what has memory to take and counts to read waits */
    status = measure_graph(s, &who, &row);
  }
  rival->destroy(r.state);
  return status == BPPSA_ERR_UNSUPPORTED ? leave_out(s, rival->name, rival->method) : status;
}

static bppsa_status measure_rivals(session *s, bppsa_product_rival_list rivals, double flops) {
  for (; *rivals != NULL; ++rivals) {
    BPPSA_TRY(measure_rival(s, *rivals, flops));
  }
  return BPPSA_OK;
}

/* ---- a case ---- */

static bppsa_status move_factor(const session *s, const float *values, int64_t count, void **to) {
  BPPSA_TRY(bppsa_memory_alloc(s->device, count * (int64_t)sizeof *values, to));
  return count == 0 ? BPPSA_OK : bppsa_memory_put(s->device, *to, values, count * (int64_t)sizeof *values);
}

static bppsa_status move_values(session *s) {
  s->c.device = s->device;
  if (!on_gpu(s)) {
    s->left = s->c.a_values;
    s->right = s->c.b_values;
    s->out = s->values;
    return BPPSA_OK;
  }
  BPPSA_TRY(move_factor(s, s->c.a_values, s->c.a->nnz, &s->left));
  BPPSA_TRY(move_factor(s, s->c.b_values, s->c.b->nnz, &s->right));
  return bppsa_memory_alloc(s->device, s->pattern.nnz * (int64_t)sizeof *s->values, &s->out);
}

static bppsa_status prepare(session *s, double *flops) {
  const bppsa_product_config config = bppsa_product_config_default();
  bppsa_product *product = NULL;
  BPPSA_TRY(bppsa_product_create(s->c.a, s->c.b, &config, s->host, &product));
  *flops = (double)bppsa_product_get_info(product)->pair_flops;
  const bppsa_status status = bppsa_csr_copy(bppsa_product_pattern(product), &s->pattern);
  bppsa_product_destroy(product);
  BPPSA_TRY(status);
  s->values = bppsa_calloc(s->pattern.nnz, sizeof *s->values);
  if (s->values == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  BPPSA_TRY(move_values(s));
  return bppsa_product_case_reference(&s->c, &s->pattern, &s->sums, &s->magnitudes);
}

static bppsa_status measure_case(session *s) {
  double flops;
  BPPSA_TRY(prepare(s, &flops));
  for (int kind = BPPSA_PRODUCT_AUTO; kind < BPPSA_PRODUCT_KINDS; ++kind) {
    BPPSA_TRY(measure_kind(s, (bppsa_product_kind)kind));
  }
  if (!on_gpu(s)) {
    return measure_rivals(s, bppsa_product_rivals, flops);
  }
  for (bppsa_product_rival_list *library = bppsa_product_rivals_on_gpu; *library != NULL; ++library) {
    BPPSA_TRY(measure_rivals(s, *library, flops));
  }
  return BPPSA_OK;
}

static void release_case(session *s) {
  void *const there[] = {s->left, s->right, s->out};
  for (int i = 0; on_gpu(s) && i < 3; ++i) {
    bppsa_memory_free(s->device, there[i]);
  }
  s->left = s->right = s->out = NULL;
  bppsa_product_case_free(&s->c);
  bppsa_csr_free(&s->pattern);
  bppsa_free(s->sums);
  bppsa_free(s->magnitudes);
  bppsa_free(s->values);
  s->sums = s->magnitudes = NULL;
  s->values = NULL;
}

static bppsa_status print_head(session *s) {
  char date[BPPSA_DATE_TEXT], peak[BPPSA_SI_TEXT], copy[BPPSA_SI_TEXT];
  return bppsa_cli_print(s->cli,
                         "products on %s, %d threads, %s; measured: %s, copy %s\n"
                         "milliseconds; floor: share of the time that the limit beside it explains; plan: in numeric passes\n\n"
                         "  case     method               phase         median        min        max      n   GFLOP/s    floor  "
                         "limit         plan  residual\n",
                         bppsa_device_get_hardware(s->device), bppsa_device_get_threads(s->device),
                         bppsa_machine_date(date, sizeof date), bppsa_cli_si(s->limits.peak, "FLOP/s", peak, sizeof peak),
                         bppsa_cli_si(s->limits.copy_bytes, "B/s", copy, sizeof copy));
}

static bppsa_status measure_cases(session *s) {
  bool more = true;
  for (int64_t i = 0; more; ++i) {
    bppsa_status status =
        bppsa_product_case_make(i, (uint64_t)bppsa_cli_value(s->cli, BPPSA_OPTION_SEED)->integer, s->host, &s->c, &more);
    if (status == BPPSA_OK && more) {
      status = measure_case(s);
    }
    release_case(s);
    BPPSA_TRY(status);
  }
  return BPPSA_OK;
}

static bppsa_status measure_chain(session *s, int64_t up_levels) {
  const uint64_t seed = (uint64_t)bppsa_cli_value(s->cli, BPPSA_OPTION_SEED)->integer;
  bppsa_product_chain *chain = NULL;
  bool more = true;
  bppsa_status status = bppsa_product_chain_create(up_levels, KEPT, seed, s->host, &chain);
  while (status == BPPSA_OK && more) {
    status = bppsa_product_chain_next(chain, &s->c, &more);
    if (status == BPPSA_OK && more) {
      status = measure_case(s);
    }
    release_case(s);
  }
  bppsa_product_chain_destroy(chain);
  return status;
}

static bppsa_status measure(session *s, json_t *document) {
  const bppsa_option_value *limit = bppsa_cli_value(s->cli, BPPSA_OPTION_MEMORY_LIMIT);
  s->repeats = bppsa_cli_value(s->cli, BPPSA_OPTION_REPEATS)->integer;
  s->budget_s = bppsa_cli_value(s->cli, BPPSA_OPTION_QUICK)->given ? 0.2 : 2;
  int64_t available = bppsa_machine_memory();
  if (on_gpu(s)) {
    BPPSA_TRY(bppsa_memory_available(s->device, &available));
  }
  s->memory_limit = limit->present ? limit->integer : available / 4;
  BPPSA_TRY(bppsa_bench_limits_measure(s->device, &s->limits));
  if (!bppsa_json_put_real(document, "peak_flops_per_s", s->limits.peak) ||
      !bppsa_json_put_real(document, "copy_bytes_per_s", s->limits.copy_bytes)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "bench: out of memory, expected room for the results");
  }
  if (!s->cli->json) {
    BPPSA_TRY(print_head(s));
  }
  const bppsa_option_value *up_levels = bppsa_cli_value(s->cli, BPPSA_OPTION_UP_LEVELS);
  if (bppsa_cli_value(s->cli, BPPSA_OPTION_LEFT)->present) {
    return measure_case(s); /* which has been read */
  }
  return up_levels->present ? measure_chain(s, up_levels->integer) : measure_cases(s);
}

/* --left and --right, read before anything is printed. */
static bppsa_status read_files(session *s) {
  const bppsa_option_value *left = bppsa_cli_value(s->cli, BPPSA_OPTION_LEFT),
                           *right = bppsa_cli_value(s->cli, BPPSA_OPTION_RIGHT);
  if (left->present != right->present) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: given without %s, expected both factors", left->present ? "--left" : "--right",
                      left->present ? "--right" : "--left");
  }
  if (left->present && bppsa_cli_value(s->cli, BPPSA_OPTION_UP_LEVELS)->present) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--up-levels: given with --left and --right, expected a scan's products or the files'");
  }
  if (!left->present) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_product_case_load(left->text, right->text, &s->c));
  return s->c.a->cols == s->c.b->rows
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_SHAPE, "--right: %s: %" PRId64 " rows, expected the %" PRId64 " columns of %s", right->text,
                          s->c.b->rows, s->c.a->cols, left->text);
}

static bppsa_status run(bppsa_cli *cli) {
  bppsa_bench_output output;
  BPPSA_TRY(bppsa_bench_open(cli, "product", &output));
  session s = {.cli = cli, .device = output.device, .rows = output.rows};
  bppsa_device *host = NULL;
  bppsa_status status = bppsa_bench_list_left_out(&output, &s.left_out);
  status = status == BPPSA_OK ? bppsa_device_create("cpu", bppsa_device_get_threads(output.device), &host) : status;
  s.host = host;
  status = status == BPPSA_OK ? read_files(&s) : status;
  status = status == BPPSA_OK ? measure(&s, output.document) : status;
  release_case(&s);
  bppsa_device_destroy(host);
  return bppsa_bench_close(&output, status, s.failed, WRONG);
}

const bppsa_command bppsa_command_bench_product = {.verb = "bench",
                                                   .object = "product",
                                                   .summary = "Verifies and times planned products of sparse Jacobians",
                                                   .example = "bench product --quick",
                                                   .notes = notes,
                                                   .uses = uses,
                                                   .run = run};
