/* `bppsa bench product`: times planned products of every kind, and beside them those of the other libraries that the program was
 * built with. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "bench/cases/case.h"
#include "bench/cases/product_case.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/compute/memory.h"
#include "core/measure/residual.h"
#include "terminal/machine.h"

static const bppsa_product_rival *const no_rivals[] = {NULL};
bppsa_product_rival_list bppsa_product_rivals = no_rivals;
bppsa_product_rival_list bppsa_product_rivals_on_gpu[] = {bppsa_product_cusparse_rivals, bppsa_product_cublas_rivals, NULL};

const char bppsa_bench_notes_product[] =
    "C = A B in f32, for these pairs of factors:\n"
    "  A      conv3 and conv4 of VGG-11 with 3 % of their weights\n"
    "  B      conv, relu, conv with 16 channels at 16 x 16\n"
    "  B64    the same with 64 channels at 8 x 8\n"
    "  D      fc1, relu, fc2 of LeNet-5: two factors without gaps\n"
    "  D1024  the same with 1024 x 1024 each\n"
    "With --up-levels the pairs are those that a scan of a pruned VGG-11 multiplies; a[i:j] names the product by its elements.\n"
    "First every kind computes C once. The result is held against float64. A kind with a |c - ref| / (eps sum |a b|) of 30 or\n"
    "more is wrong: it is marked and not timed, and the program exits 1. Then all kinds take turns.\n"
    "  floor  the share of the time that is the least possible: the larger of FLOP over the measured peak and bytes over the\n"
    "         measured bandwidth of a copy\n"
    "  plan   how many products take as long as planning one. Another library's plan does not include taking over the factors,\n"
    "         and is 0 in rows of phase full, where every product plans anew\n" BPPSA_BENCH_QUEUED_NOTE
    "On a GPU there are rows of cuSPARSE, where it is installed: SpGEMM with everything it does (full), and what SpGEMMreuse\n"
    "computes once the structure of C is known (numeric). Where neither factor has a gap, there are rows of cuBLAS.\n"
    "The program bppsa-rivals, which is built on machines that have SuiteSparse:GraphBLAS, LIBXSMM or PETSc, adds their rows.\n";

#define KEPT 0.03 /* fraction of the weights that VGG-11's scan keeps */

typedef struct session session;

typedef struct {
  const bppsa_product_rival *rival;
  const bppsa_product_gpu_rival *gpu; /* the same rival where it runs on a GPU, or NULL */
  void *state;
} rival_run;

/* A kind of the project's products, or a rival, for the current case. All exist at once, so that they can take turns. */
typedef struct {
  session *s;
  bppsa_product *product; /* the project's product; or */
  rival_run rival;
  double plan_s;
  double flops;          /* 2 for each matching pair of entries */
  double executed_flops; /* FLOPs that were done, padding included; 0: the library does not tell */
  double bytes;
} multiplier;

struct session {
  const bppsa_bench *bench;
  bppsa_product_chain *chain; /* if the cases are the products of a scan; otherwise NULL */
  /* the current case */
  bppsa_product_case c;
  bppsa_csr pattern; /* a copy of C's pattern */
  double *sums, *magnitudes;
  float *values;            /* of C */
  void *left, *right, *out; /* values of A, B and C on the device; on a processor they are the case's own */
  multiplier *list;         /* `limit` elements */
  int count, limit;
};

static double worst_residual(const session *s) {
  double worst = 0;
  for (int64_t i = 0; i < s->pattern.nnz; ++i) {
    const double r = fabs((double)s->values[i] - s->sums[i]) / (1.1920929e-7 * s->magnitudes[i] + 1e-37);
    worst = bppsa_residual_worse(worst, r);
  }
  return worst;
}

/* ---- rows ---- */

/* The least seconds that the FLOPs take; the next function: that the bytes take. */
static double compute_s(const multiplier *m) {
  return m->flops / m->s->bench->limits.peak;
}

static double move_s(const multiplier *m) {
  return m->bytes / m->s->bench->limits.copy_bytes;
}

static bool put(const bppsa_bench_entrant *e, json_t *row) {
  const multiplier *m = e->context;
  const session *s = m->s;
  const bppsa_timing *t = &e->contender.timing[0];
  const bool timed = t->repeats > 0;
  bool ok = bppsa_json_put_text(row, "case", s->c.name);
  ok = ok && bppsa_json_put_text(row, "method", e->method);
  ok = ok && bppsa_json_put_text(row, "phase", e->phase);
  ok = ok && bppsa_json_put_integer(row, "threads", bppsa_device_get_threads(s->bench->device));
  ok = ok && bppsa_json_put_text(row, "dtype", "f32");
  ok = ok && bppsa_json_put_integer(row, "nnz", s->pattern.nnz);
  ok = ok && bppsa_bench_put_timing(row, t);
  ok = ok && bppsa_json_put_real(row, "residual", e->contender.residual);
  ok = ok && bppsa_json_put_real(row, "flops", m->flops);
  ok = ok && bppsa_json_put_real(row, "pair_flops", m->flops);
  if (m->executed_flops > 0) {
    ok = ok && bppsa_json_put_real(row, "executed_flops", m->executed_flops);
  }
  ok = ok && bppsa_json_put_real(row, "bytes", m->bytes);
  ok = ok && bppsa_json_put_real(row, "flops_per_s", timed ? m->flops / t->median_s : NAN);
  ok = ok && bppsa_json_put_real(row, "floor_s", fmax(compute_s(m), move_s(m)));
  ok = ok && bppsa_json_put_real(row, "plan_s", m->plan_s);
  return ok && bppsa_json_put_real(row, "plan_passes", timed ? m->plan_s / t->median_s : NAN);
}

static const char *write_limit(const void *context, const json_t *row, char *text, size_t size) {
  const multiplier *m = ((const bppsa_bench_entrant *)context)->context;
  (void)row, (void)text, (void)size;
  return compute_s(m) > move_s(m) ? "FMA" : "bandwidth";
}

static const bppsa_table_column columns[] = {
    {.heading = "case", .width = -8, .key = "case"},
    {.heading = "method", .width = -19, .key = "method"},
    {.heading = "phase", .width = -9, .key = "phase"},
    BPPSA_COLUMN_TIMES(11, 11, 7, 3),
    {.heading = "GFLOP/s", .width = 10, .kind = BPPSA_COLUMN_REAL, .key = "flops_per_s", .scale = 1e-9, .digits = 2},
    {.heading = "floor", .width = 9, .kind = BPPSA_COLUMN_PERCENT, .key = "floor_s", .over = "median_s"},
    {.heading = "limit", .width = -9, .key = "floor_s", .write = write_limit},
    {.heading = "plan", .width = 9, .kind = BPPSA_COLUMN_REAL, .key = "plan_passes", .digits = 1},
    {.heading = "residual", .width = 10, .kind = BPPSA_COLUMN_REAL, .key = "residual", .digits = 1},
    {0}};

/* ---- the project's kinds ---- */

static bppsa_status run_kind(void *context) {
  const multiplier *m = context;
  return bppsa_product_execute(m->product, 1, (bppsa_csr_values){m->s->left, 0}, (bppsa_csr_values){m->s->right, 0}, m->s->out);
}

static bppsa_status clear_kind(void *context) {
  const session *s = ((const multiplier *)context)->s;
  return bppsa_memory_clear(s->bench->device, s->out, s->pattern.nnz * (int64_t)sizeof *s->values);
}

static bppsa_status judge_kind(void *context, double *residual) {
  const session *s = ((const multiplier *)context)->s;
  if (s->bench->gpu) {
    BPPSA_TRY(bppsa_memory_get(s->bench->device, s->values, s->out, s->pattern.nnz * (int64_t)sizeof *s->values));
  }
  *residual = worst_residual(s);
  return BPPSA_OK;
}

static const bppsa_bench_work kind_work = {.action = run_kind, .clear = clear_kind, .judge = judge_kind};

static bppsa_status enter_kind(bppsa_bench *bench, bppsa_product_kind kind) {
  session *s = bench->session;
  const bppsa_product_config config = {.kind = kind, .dtype = BPPSA_F32, .memory_limit = bench->memory_limit};
  const char *name = bppsa_product_kind_name(kind);
  multiplier *m = &s->list[s->count];
  bool entered;
  *m = (multiplier){.s = s};
  const double start = bppsa_now();
  const bppsa_status made = bppsa_product_create(s->c.a, s->c.b, &config, bench->device, &m->product);
  if (made == BPPSA_ERR_UNSUPPORTED || made == BPPSA_ERR_ARGUMENT) {
    return bppsa_bench_leave_out(bench, name, "numeric"); /* the kind does not apply, or needs too much memory */
  }
  BPPSA_TRY(made);
  ++s->count;
  m->plan_s = bppsa_now() - start;
  const bppsa_product_info *info = bppsa_product_get_info(m->product);
  const int64_t indices = info->kind == BPPSA_PRODUCT_SLOTS ? info->plan_bytes - 4 * info->nnz - 8 * (s->c.a->rows + 1) : 0;
  m->flops = (double)info->pair_flops;
  m->executed_flops = (double)info->executed_flops;
  m->bytes = 4.0 * (double)(s->c.a->nnz + s->c.b->nnz + info->nnz) + (double)indices;
  BPPSA_TRY(bppsa_bench_enter(bench, &kind_work, bench->device, m, name, "numeric", &entered));
  return bench->gpu && entered ? bppsa_bench_enter_recording(bench, &kind_work, m, name, "graph") : BPPSA_OK;
}

/* ---- rivals ---- */

static bppsa_status run_rival(void *context) {
  const rival_run *r = &((const multiplier *)context)->rival;
  return r->rival->run(r->state);
}

static bppsa_status clear_rival(void *context) {
  const rival_run *r = &((const multiplier *)context)->rival;
  return r->gpu == NULL ? BPPSA_OK : r->gpu->clear(r->state);
}

static bppsa_status judge_rival(void *context, double *residual) {
  const multiplier *m = context;
  BPPSA_TRY(m->rival.rival->read(m->rival.state, &m->s->pattern, m->s->values));
  *residual = worst_residual(m->s);
  return BPPSA_OK;
}

static const bppsa_bench_work rival_work = {.action = run_rival, .clear = clear_rival, .judge = judge_rival};

/* Makes a rival ready to run. *plan_s counts its plan alone: loading the library and taking over the factors come before. */
static bppsa_status open_rival(const session *s, rival_run *r, double *plan_s) {
  void *state = NULL;
  (void)bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: not for this case",
                   r->rival->name); /* the message of a rival that refuses without one */
  BPPSA_TRY(r->rival->create(&s->c, bppsa_device_get_threads(s->bench->device), &state));
  const double start = bppsa_now();
  const bppsa_status planned = r->rival->plan != NULL ? r->rival->plan(state) : BPPSA_OK;
  if (planned != BPPSA_OK) {
    r->rival->destroy(state);
    return planned;
  }
  *plan_s = r->rival->plan != NULL ? bppsa_now() - start : 0;
  r->state = state;
  return BPPSA_OK;
}

/* On a GPU a first plan loads kernels: one plan is made and thrown away before the one that counts. */
static bppsa_status open_warm(const session *s, rival_run *r, double *plan_s) {
  if (r->gpu != NULL && r->rival->plan != NULL) {
    BPPSA_TRY(open_rival(s, r, plan_s));
    r->rival->destroy(r->state);
    r->state = NULL;
  }
  return open_rival(s, r, plan_s);
}

static bppsa_status enter_rival(bppsa_bench *bench, const bppsa_product_rival *rival, double flops) {
  session *s = bench->session;
  multiplier *m = &s->list[s->count];
  bool entered;
  *m = (multiplier){.s = s,
                    .rival = {rival, bench->gpu ? (const bppsa_product_gpu_rival *)rival : NULL, NULL},
                    .flops = flops,
                    .bytes = 4.0 * (double)(s->c.a->nnz + s->c.b->nnz + s->pattern.nnz)};
  const bppsa_status status = open_warm(s, &m->rival, &m->plan_s);
  if (status == BPPSA_ERR_UNSUPPORTED) {
    return bppsa_bench_leave_out(bench, rival->name, rival->method);
  }
  BPPSA_TRY(status);
  ++s->count;
  BPPSA_TRY(bppsa_bench_enter(bench, &rival_work, bench->device, m, rival->name, rival->method, &entered));
  /* a call that takes memory and reads counts waits for the GPU and cannot be recorded */
  return bench->gpu && entered && strcmp(rival->method, "numeric") == 0
             ? bppsa_bench_enter_recording(bench, &rival_work, m, rival->name, "graph")
             : BPPSA_OK;
}

static bppsa_status enter_rivals(bppsa_bench *bench, bppsa_product_rival_list rivals, double flops) {
  for (; *rivals != NULL; ++rivals) {
    BPPSA_TRY(enter_rival(bench, *rivals, flops));
  }
  return BPPSA_OK;
}

static int count_rivals(bppsa_product_rival_list rivals) {
  int count = 0;
  while (rivals[count] != NULL) {
    ++count;
  }
  return count;
}

/* ---- a case ---- */

static bppsa_status move_factor(const session *s, const float *values, int64_t count, void **to) {
  BPPSA_TRY(bppsa_memory_alloc(s->bench->device, count * (int64_t)sizeof *values, to));
  return count == 0 ? BPPSA_OK : bppsa_memory_put(s->bench->device, *to, values, count * (int64_t)sizeof *values);
}

static bppsa_status move_values(session *s) {
  s->c.device = s->bench->device;
  if (!s->bench->gpu) {
    s->left = s->c.a_values;
    s->right = s->c.b_values;
    s->out = s->values;
    return BPPSA_OK;
  }
  BPPSA_TRY(move_factor(s, s->c.a_values, s->c.a->nnz, &s->left));
  BPPSA_TRY(move_factor(s, s->c.b_values, s->c.b->nnz, &s->right));
  return bppsa_memory_alloc(s->bench->device, s->pattern.nnz * (int64_t)sizeof *s->values, &s->out);
}

static bppsa_status prepare_case(session *s, double *flops) {
  const bppsa_product_config config = bppsa_product_config_default();
  bppsa_product *product = NULL;
  BPPSA_TRY(bppsa_product_create(s->c.a, s->c.b, &config, s->bench->host, &product));
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

/* Allocates the list for the largest possible number of kinds and rivals. */
static bppsa_status make_list(session *s) {
  s->limit = BPPSA_PRODUCT_KINDS + count_rivals(bppsa_product_rivals);
  for (bppsa_product_rival_list *library = bppsa_product_rivals_on_gpu; *library != NULL; ++library) {
    s->limit += count_rivals(*library);
  }
  s->list = bppsa_calloc(s->limit, sizeof *s->list);
  return s->list != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY;
}

static bppsa_status enter_case(bppsa_bench *bench) {
  session *s = bench->session;
  double flops;
  snprintf(bench->point, sizeof bench->point, "%s", s->c.name);
  BPPSA_TRY(prepare_case(s, &flops));
  BPPSA_TRY(make_list(s));
  for (int kind = BPPSA_PRODUCT_AUTO; kind < BPPSA_PRODUCT_KINDS; ++kind) {
    BPPSA_TRY(enter_kind(bench, (bppsa_product_kind)kind));
  }
  if (!bench->gpu) {
    return enter_rivals(bench, bppsa_product_rivals, flops);
  }
  for (bppsa_product_rival_list *library = bppsa_product_rivals_on_gpu; *library != NULL; ++library) {
    BPPSA_TRY(enter_rivals(bench, *library, flops));
  }
  return BPPSA_OK;
}

/* The factors from files were read before; other cases are made here. */
static bppsa_status enter(bppsa_bench *bench, int64_t point, bool *more) {
  session *s = bench->session;
  if (bench->asked->left != NULL) {
    *more = point == 0;
  } else if (s->chain != NULL) {
    BPPSA_TRY(bppsa_product_chain_next(s->chain, &s->c, more));
  } else {
    BPPSA_TRY(bppsa_product_case_make(point, bench->request->seed, bench->host, &s->c, more));
  }
  return *more ? enter_case(bench) : BPPSA_OK;
}

static void leave(bppsa_bench *bench) {
  session *s = bench->session;
  void *const on_device[] = {s->left, s->right, s->out};
  for (int i = s->count - 1; i >= 0; --i) {
    if (s->list[i].rival.state != NULL) {
      s->list[i].rival.rival->destroy(s->list[i].rival.state);
    }
    bppsa_product_destroy(s->list[i].product);
  }
  for (int i = 0; bench->gpu && i < 3; ++i) {
    bppsa_memory_free(bench->device, on_device[i]);
  }
  bppsa_product_case_free(&s->c);
  bppsa_csr_free(&s->pattern);
  bppsa_free(s->list);
  bppsa_free(s->sums);
  bppsa_free(s->magnitudes);
  bppsa_free(s->values);
  *s = (session){.bench = bench, .chain = s->chain};
}

/* ---- the benchmark ---- */

static bppsa_status print_head(const bppsa_bench *bench) {
  char date[BPPSA_DATE_TEXT], peak[BPPSA_SI_TEXT], copy[BPPSA_SI_TEXT];
  return bppsa_output_print(
      &bench->request->to,
      "products on %s, %d threads, %s; measured: %s, copy %s\n"
      "milliseconds; floor: share of the time that the limit beside it explains; plan: in numeric passes\n\n",
      bppsa_device_get_hardware(bench->device), bppsa_device_get_threads(bench->device), bppsa_machine_date(date, sizeof date),
      bppsa_text_si(bench->limits.peak, "FLOP/s", peak, sizeof peak),
      bppsa_text_si(bench->limits.copy_bytes, "B/s", copy, sizeof copy));
}

static bool put_members(const bppsa_bench *bench, json_t *document) {
  return bppsa_json_put_real(document, "peak_flops_per_s", bench->limits.peak) &&
         bppsa_json_put_real(document, "copy_bytes_per_s", bench->limits.copy_bytes);
}

/* Reads the factors from files, or plans the scan. */
static bppsa_status prepare(bppsa_bench *bench) {
  session *s = bench->session;
  const char *left = bench->asked->left, *right = bench->asked->right;
  s->bench = bench;
  if (left == NULL) {
    return bench->asked->of_scan
               ? bppsa_product_chain_create(&bench->asked->scan, KEPT, bench->request->seed, bench->host, &s->chain)
               : BPPSA_OK;
  }
  BPPSA_TRY(bppsa_product_case_load(left, right, &s->c));
  return s->c.a->cols == s->c.b->rows
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_SHAPE, "--right: %s: %" PRId64 " rows, expected the %" PRId64 " columns of %s", right,
                          s->c.b->rows, s->c.a->cols, left);
}

static void release(bppsa_bench *bench) {
  session *s = bench->session;
  leave(bench);
  bppsa_product_chain_destroy(s->chain);
}

const bppsa_bench_case bppsa_bench_case_product = {.name = "product",
                                                   .session = sizeof(session),
                                                   .budget_s = 2,
                                                   .quick_s = 0.2,
                                                   .bound = BPPSA_RESIDUAL_BOUND,
                                                   .memory_quarters = 1,
                                                   .limits = true,
                                                   .names = (const char *const[]){"case", "method", "phase", NULL},
                                                   .columns = columns,
                                                   .prepare = prepare,
                                                   .put_members = put_members,
                                                   .head = print_head,
                                                   .enter = enter,
                                                   .put = put,
                                                   .leave = leave,
                                                   .release = release};
