/* `bppsa bench product`: times planned products of every kind, and beside them those of the other libraries that the program was
 * built with. */
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

static const bppsa_product_rival *const no_rivals[] = {NULL};
bppsa_product_rival_list bppsa_product_rivals = no_rivals;
bppsa_product_rival_list bppsa_product_rivals_on_gpu[] = {bppsa_product_cusparse_rivals, bppsa_product_cublas_rivals, NULL};

const char bppsa_bench_notes_product[] =
    "C = A B in f32. Case A: conv3·conv4 of VGG-11 with 3 % of the weights. B: conv·relu·conv with 16 channels at 16 x 16. B64: "
    "with 64.\n"
    "D: fc1·relu·fc2 of LeNet-5, two full factors. D1024: 1024 x 1024 each.\n"
    "--up-levels: the products of a pruned VGG-11's scan in their place, a[i:j] of its elements.\n"
    "Every result is first checked against float64: a largest |c - ref| / (eps sum |a b|) of 30 or more marks the row and exits "
    "1. All kinds are then held side by side and take turns.\n"
    "floor: the larger of FLOP / measured peak and bytes / measured copy bandwidth. plan: planning time in numeric passes; of "
    "other libraries\n"
    "without taking over the factors, and 0 where every pass does all of it (full).\n" BPPSA_BENCH_QUEUED_NOTE
    "On a GPU there are rows of cuSPARSE, where it is installed: SpGEMM as a whole (full), and what SpGEMMreuse computes once "
    "the\n"
    "structure is known (numeric). Where both factors are full, there are rows of cuBLAS.\n"
    "The program bppsa-rivals, which is built on machines that have SuiteSparse:GraphBLAS, LIBXSMM or PETSc, adds their rows.\n";

enum { WRONG = 30 };
#define KEPT 0.03 /* of the weights of VGG-11's scan */

typedef struct {
  const char *method, *phase;
  double plan_s, residual, flops, executed_flops, bytes,
      floor_s; /* flops: 2 a matching pair; executed: FLOPs that were done, 0 where the library does not say */
} product_row;

typedef struct {
  const bppsa_bench_settings *asked;
  const bppsa_device *device, *host; /* host: its threads make the cases */
  bppsa_machine_limits limits;
  json_t *rows, *left_out;
  int64_t failed, noisy, memory_limit;
  bppsa_rounds rounds;
  /* the current case */
  bppsa_product_case c;
  bppsa_csr pattern; /* of C, a copy */
  double *sums, *magnitudes;
  float *values;            /* of C */
  void *left, *right, *out; /* values of A, B and C on the device; on a processor they are the case's own */
  struct entrant *list;     /* size limit */
  int count, limit;
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

static json_t *row_json(const session *s, const product_row *row, const bppsa_timing *t) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "case", s->c.name);
  ok = ok && bppsa_json_put_text(object, "method", row->method);
  ok = ok && bppsa_json_put_text(object, "phase", row->phase);
  ok = ok && bppsa_json_put_integer(object, "threads", bppsa_device_get_threads(s->device));
  ok = ok && bppsa_json_put_text(object, "dtype", "f32");
  ok = ok && bppsa_json_put_integer(object, "nnz", s->pattern.nnz);
  ok = ok && bppsa_bench_put_timing(object, t);
  ok = ok && bppsa_json_put_real(object, "residual", row->residual);
  ok = ok && bppsa_json_put_real(object, "flops", row->flops);
  ok = ok && bppsa_json_put_real(object, "pair_flops", row->flops);
  if (row->executed_flops > 0) {
    ok = ok && bppsa_json_put_real(object, "executed_flops", row->executed_flops);
  }
  ok = ok && bppsa_json_put_real(object, "bytes", row->bytes);
  ok = ok && bppsa_json_put_real(object, "flops_per_s", row->flops / t->median_s);
  ok = ok && bppsa_json_put_real(object, "floor_s", row->floor_s);
  ok = ok && bppsa_json_put_real(object, "plan_s", row->plan_s);
  ok = ok && bppsa_json_put_real(object, "plan_passes", row->plan_s / t->median_s);
  return bppsa_json_finish(object, ok);
}

static bppsa_status add_row(session *s, product_row *row, const bppsa_timing *t) {
  const double compute = row->flops / s->limits.peak, move = row->bytes / s->limits.copy_bytes;
  row->floor_s = compute > move ? compute : move;
  const bool wrong = !(row->residual < WRONG);
  s->failed += wrong;
  s->noisy += t->noisy;
  if (json_array_append_new(s->rows, row_json(s, row, t)) != 0) {
    return bppsa_bench_no_room();
  }
  char median[BPPSA_TIMING_TEXT];
  return s->asked->request.to.json
             ? BPPSA_OK
             : bppsa_output_print(
                   &s->asked->request.to, "  %-9s%-21s%-9s%11s%11.3f%11.3f%7" PRId64 "%10.2f%8.0f%%  %-9s%9.1f%10.1f%s\n",
                   s->c.name, row->method, row->phase, bppsa_timing_median_ms(t, 3, median), 1e3 * t->min_s, 1e3 * t->max_s,
                   t->repeats, 1e-9 * row->flops / t->median_s, 100 * row->floor_s / t->median_s,
                   compute > move ? "FMA" : "bandwidth", row->plan_s / t->median_s, row->residual, wrong ? "  WRONG" : "");
}

/* Names what is not measured; the reason is the last error. */
static bppsa_status leave_out(session *s, const char *method, const char *phase) {
  const char *const names[] = {"case", s->c.name, "method", method, "phase", phase, NULL}, *why = bppsa_last_error();
  BPPSA_TRY(bppsa_bench_leave_out(s->left_out, names, why));
  return s->asked->request.to.json
             ? BPPSA_OK
             : bppsa_output_print(&s->asked->request.to, "  %-9s%-21s%-9sleft out: %s\n", s->c.name, method, phase, why);
}

/* ---- entrants ---- */

/* How an entrant computes C on the device and brings its values to s->values. */
typedef struct {
  bppsa_status (*run)(void *context);
  bppsa_status (*clear)(void *context); /* sets C's values to 0 where an earlier run may have left them */
  bppsa_status (*fetch)(session *s, void *context);
} work;

typedef struct {
  const bppsa_product_rival *rival;
  const bppsa_product_gpu_rival *gpu; /* the same rival where it runs on a GPU, or NULL */
  void *state;
} rival_run;

/* A kind of the project's products, or a rival, for the current case. All entrants exist at once, so that they can take turns. */
typedef struct entrant {
  const session *s;
  bppsa_product *product; /* of a kind of the project's; or */
  rival_run rival;
  product_row row, graph_row;
  bppsa_timed_work work;
  bppsa_bench_recording recording; /* GPU */
  bool recorded;
  bool refused, out; /* refused: a rival's latest run was ERR_UNSUPPORTED; out: it has been left out */
} entrant;

/* Runs and verifies an entrant; on a GPU, also records the pass, in which no launch then waits for the host, and verifies it
 * again. A pass that cannot be recorded is left out. */
static bppsa_status verify(session *s, entrant *e, const work *w, bool record) {
  e->work = (bppsa_timed_work){.device = s->device, .action = w->run, .context = e};
  BPPSA_TRY(w->clear(e));
  BPPSA_TRY(w->run(e));
  BPPSA_TRY(bppsa_device_wait(s->device));
  BPPSA_TRY(w->fetch(s, e));
  e->row.residual = residual(s);
  BPPSA_TRY(bppsa_timed_work_open(&e->work));
  if (!record) {
    return BPPSA_OK;
  }
  e->graph_row = e->row;
  e->graph_row.phase = "graph";
  const bppsa_status recorded = bppsa_bench_record(s->device, w->run, w->clear, e, &e->recording);
  if (recorded == BPPSA_ERR_UNSUPPORTED) {
    return leave_out(s, e->graph_row.method, e->graph_row.phase);
  }
  BPPSA_TRY(recorded);
  e->recorded = true;
  BPPSA_TRY(bppsa_bench_replay_cleared(&e->recording));
  BPPSA_TRY(w->fetch(s, e));
  e->graph_row.residual = residual(s);
  return BPPSA_OK;
}

static void leave(entrant *e) {
  bppsa_timed_work_close(&e->work);
  if (e->recorded) {
    bppsa_bench_recording_free(&e->recording);
  }
  if (e->rival.state != NULL) {
    e->rival.rival->destroy(e->rival.state);
  }
  bppsa_product_destroy(e->product);
}

/* Times all entrants and their recordings in rounds. list: size 2 * s->limit. */
static bppsa_status run_rounds(session *s, bppsa_contender *list) {
  int count = 0;
  for (int i = 0; i < s->count; ++i) {
    entrant *e = &s->list[i];
    if (!e->out) {
      list[count++] = (bppsa_contender){.pass = bppsa_timed_work_pass, .context = &e->work, .parts = 1};
    }
    if (!e->out && e->recorded) {
      list[count++] = (bppsa_contender){.pass = bppsa_bench_replay_pass, .context = &e->recording, .parts = 1};
    }
  }
  return count > 0 ? bppsa_rounds_run(&s->rounds, count, list) : BPPSA_OK;
}

/* Leaves out the rival that refused in the middle of the rounds; the others begin again. ERR_UNSUPPORTED: no rival refused. */
static bppsa_status drop_refused(session *s) {
  for (int i = 0; i < s->count; ++i) {
    entrant *e = &s->list[i];
    if (e->refused && !e->out) {
      e->out = true;
      return leave_out(s, e->row.method, e->row.phase);
    }
  }
  return BPPSA_ERR_UNSUPPORTED;
}

static bppsa_status add_rows(session *s, const bppsa_contender *list) {
  for (int i = 0; i < s->count; ++i) {
    entrant *e = &s->list[i];
    BPPSA_TRY(e->out ? BPPSA_OK : add_row(s, &e->row, &(list++)->timing[0]));
    BPPSA_TRY(e->out || !e->recorded ? BPPSA_OK : add_row(s, &e->graph_row, &(list++)->timing[0]));
  }
  return BPPSA_OK;
}

static bppsa_status time_all(session *s) {
  bppsa_contender *list = bppsa_calloc(2 * s->limit, sizeof *list);
  if (list == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_status status = run_rounds(s, list);
  while (status == BPPSA_ERR_UNSUPPORTED && (status = drop_refused(s)) == BPPSA_OK) {
    status = run_rounds(s, list);
  }
  status = status == BPPSA_OK ? add_rows(s, list) : status;
  bppsa_free(list);
  return status;
}

/* ---- the project's kinds ---- */

static bppsa_status run_kind(void *context) {
  const entrant *e = context;
  return bppsa_product_execute(e->product, 1, (bppsa_csr_values){e->s->left, 0}, (bppsa_csr_values){e->s->right, 0}, e->s->out);
}

static bppsa_status clear_kind(void *context) {
  const session *s = ((const entrant *)context)->s;
  return bppsa_memory_clear(s->device, s->out, s->pattern.nnz * (int64_t)sizeof *s->values);
}

static bppsa_status fetch_kind(session *s, void *context) {
  (void)context;
  return on_gpu(s) ? bppsa_memory_get(s->device, s->values, s->out, s->pattern.nnz * (int64_t)sizeof *s->values) : BPPSA_OK;
}

static bppsa_status enter_kind(session *s, bppsa_product_kind kind) {
  static const work own = {run_kind, clear_kind, fetch_kind};
  const bppsa_product_config config = {.kind = kind, .dtype = BPPSA_F32, .memory_limit = s->memory_limit};
  entrant *e = &s->list[s->count];
  *e = (entrant){.s = s};
  const double start = bppsa_now();
  const bppsa_status made = bppsa_product_create(s->c.a, s->c.b, &config, s->device, &e->product);
  if (made == BPPSA_ERR_UNSUPPORTED || made == BPPSA_ERR_ARGUMENT) {
    return leave_out(s, bppsa_product_kind_name(kind), "numeric"); /* the kind does not apply, or needs too much memory */
  }
  BPPSA_TRY(made);
  ++s->count;
  const bppsa_product_info *info = bppsa_product_get_info(e->product);
  const int64_t indices = info->kind == BPPSA_PRODUCT_SLOTS ? info->plan_bytes - 4 * info->nnz - 8 * (s->c.a->rows + 1) : 0;
  e->row = (product_row){.method = bppsa_product_kind_name(kind),
                         .phase = "numeric",
                         .plan_s = bppsa_now() - start,
                         .flops = (double)info->pair_flops,
                         .executed_flops = (double)info->executed_flops,
                         .bytes = 4.0 * (double)(s->c.a->nnz + s->c.b->nnz + info->nnz) + (double)indices};
  return verify(s, e, &own, on_gpu(s));
}

/* ---- rivals ---- */

static bppsa_status run_rival(void *context) {
  entrant *e = context;
  const bppsa_status status = e->rival.rival->run(e->rival.state);
  e->refused = status == BPPSA_ERR_UNSUPPORTED;
  return status;
}

static bppsa_status clear_rival(void *context) {
  const rival_run *r = &((const entrant *)context)->rival;
  return r->gpu == NULL ? BPPSA_OK : r->gpu->clear(r->state);
}

static bppsa_status fetch_rival(session *s, void *context) {
  const rival_run *r = &((const entrant *)context)->rival;
  return r->rival->read(r->state, &s->pattern, s->values);
}

/* Makes a rival ready to run. *plan_s counts its plan alone: loading the library and taking over the factors come before. */
static bppsa_status open_rival(const session *s, rival_run *r, double *plan_s) {
  void *state = NULL;
  (void)bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: not for this case",
                   r->rival->name); /* for a rival that refuses without a message */
  BPPSA_TRY(r->rival->create(&s->c, bppsa_device_get_threads(s->device), &state));
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

static bppsa_status enter_rival(session *s, const bppsa_product_rival *rival, double flops) {
  static const work theirs = {run_rival, clear_rival, fetch_rival};
  entrant *e = &s->list[s->count];
  *e = (entrant){.s = s, .rival = {rival, on_gpu(s) ? (const bppsa_product_gpu_rival *)rival : NULL, NULL}};
  e->row = (product_row){.method = rival->name,
                         .phase = rival->method,
                         .flops = flops,
                         .bytes = 4.0 * (double)(s->c.a->nnz + s->c.b->nnz + s->pattern.nnz)};
  bppsa_status status = open_warm(s, &e->rival, &e->row.plan_s);
  if (status == BPPSA_OK) { /* a call that takes memory and reads counts waits for the GPU and cannot be recorded */
    status = verify(s, e, &theirs, on_gpu(s) && strcmp(rival->method, "numeric") == 0);
  }
  if (status == BPPSA_OK) {
    ++s->count;
    return BPPSA_OK;
  }
  leave(e);
  return status == BPPSA_ERR_UNSUPPORTED ? leave_out(s, rival->name, rival->method) : status;
}

static bppsa_status enter_rivals(session *s, bppsa_product_rival_list rivals, double flops) {
  for (; *rivals != NULL; ++rivals) {
    BPPSA_TRY(enter_rival(s, *rivals, flops));
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

/* Allocates the list for the largest possible number of entrants. */
static bppsa_status make_list(session *s) {
  s->limit = BPPSA_PRODUCT_KINDS + count_rivals(bppsa_product_rivals);
  for (bppsa_product_rival_list *library = bppsa_product_rivals_on_gpu; *library != NULL; ++library) {
    s->limit += count_rivals(*library);
  }
  s->list = bppsa_calloc(s->limit, sizeof *s->list);
  return s->list != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY;
}

static bppsa_status measure_case(session *s) {
  double flops;
  BPPSA_TRY(prepare(s, &flops));
  BPPSA_TRY(make_list(s));
  for (int kind = BPPSA_PRODUCT_AUTO; kind < BPPSA_PRODUCT_KINDS; ++kind) {
    BPPSA_TRY(enter_kind(s, (bppsa_product_kind)kind));
  }
  if (!on_gpu(s)) {
    BPPSA_TRY(enter_rivals(s, bppsa_product_rivals, flops));
    return time_all(s);
  }
  for (bppsa_product_rival_list *library = bppsa_product_rivals_on_gpu; *library != NULL; ++library) {
    BPPSA_TRY(enter_rivals(s, *library, flops));
  }
  return time_all(s);
}

static void release_case(session *s) {
  void *const on_device[] = {s->left, s->right, s->out};
  for (int i = s->count - 1; i >= 0; --i) {
    leave(&s->list[i]);
  }
  bppsa_free(s->list);
  s->list = NULL;
  s->count = 0;
  for (int i = 0; on_gpu(s) && i < 3; ++i) {
    bppsa_memory_free(s->device, on_device[i]);
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
  return bppsa_output_print(
      &s->asked->request.to,
      "products on %s, %d threads, %s; measured: %s, copy %s\n"
      "milliseconds; floor: share of the time that the limit beside it explains; plan: in numeric passes\n\n"
      "  case     method               phase         median        min        max      n   GFLOP/s    floor  "
      "limit         plan  residual\n",
      bppsa_device_get_hardware(s->device), bppsa_device_get_threads(s->device), bppsa_machine_date(date, sizeof date),
      bppsa_text_si(s->limits.peak, "FLOP/s", peak, sizeof peak), bppsa_text_si(s->limits.copy_bytes, "B/s", copy, sizeof copy));
}

static bppsa_status measure_cases(session *s) {
  bool more = true;
  for (int64_t i = 0; more; ++i) {
    bppsa_status status = bppsa_product_case_make(i, s->asked->request.seed, s->host, &s->c, &more);
    if (status == BPPSA_OK && more) {
      status = measure_case(s);
    }
    release_case(s);
    BPPSA_TRY(status);
  }
  return BPPSA_OK;
}

static bppsa_status measure_chain(session *s, int64_t up_levels) {
  const uint64_t seed = s->asked->request.seed;
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
  s->rounds = bppsa_bench_rounds_of(&s->asked->request, 2, 0.2);
  BPPSA_TRY(bppsa_bench_memory_limit(&s->asked->request, 1, &s->memory_limit));
  BPPSA_TRY(bppsa_machine_limits_measure(s->device, &s->limits));
  if (!bppsa_json_put_real(document, "peak_flops_per_s", s->limits.peak) ||
      !bppsa_json_put_real(document, "copy_bytes_per_s", s->limits.copy_bytes)) {
    return bppsa_bench_no_room();
  }
  if (!s->asked->request.to.json) {
    BPPSA_TRY(print_head(s));
  }
  const int64_t up_levels = s->asked->up_levels;
  const bool files = s->asked->left != NULL; /* the factors come from files, which have been read */
  BPPSA_TRY(files ? measure_case(s) : up_levels >= 0 ? measure_chain(s, up_levels) : measure_cases(s));
  return s->asked->request.to.json ? BPPSA_OK : bppsa_bench_show_noisy(&s->asked->request.to, s->noisy);
}

/* Reads the factors from files before anything is printed. */
static bppsa_status read_files(session *s) {
  const char *left = s->asked->left, *right = s->asked->right;
  if (left == NULL) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_product_case_load(left, right, &s->c));
  return s->c.a->cols == s->c.b->rows
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_SHAPE, "--right: %s: %" PRId64 " rows, expected the %" PRId64 " columns of %s", right,
                          s->c.b->rows, s->c.a->cols, left);
}

static bppsa_status run(const bppsa_bench_settings *asked) {
  bppsa_bench_report report;
  BPPSA_TRY(bppsa_bench_open(&asked->request, "product", &report));
  session s = {.asked = asked, .device = asked->request.device, .rows = report.rows};
  bppsa_device *host = NULL;
  bppsa_status status = bppsa_bench_list_left_out(&report, &s.left_out);
  status = status == BPPSA_OK ? bppsa_device_create("cpu", bppsa_device_get_threads(asked->request.device), &host) : status;
  s.host = host;
  status = status == BPPSA_OK ? read_files(&s) : status;
  status = status == BPPSA_OK ? measure(&s, report.document) : status;
  release_case(&s);
  bppsa_device_destroy(host);
  return bppsa_bench_close(&report, status, s.failed, WRONG);
}

const bppsa_bench_case bppsa_bench_case_product = {"product", run};
