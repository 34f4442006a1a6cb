#include "bench/harness/driver.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"

/* ---- contenders ---- */

/* Makes one pass on cleared results and holds them against the reference. */
static bppsa_status verify_queued(void *context, double *residual) {
  bppsa_bench_entrant *e = context;
  BPPSA_TRY(e->work->clear != NULL ? e->work->clear(e->context) : BPPSA_OK);
  BPPSA_TRY(e->work->action(e->context));
  BPPSA_TRY(bppsa_device_wait(e->bench->device));
  return e->work->judge(e->context, residual);
}

static bppsa_status verify_recording(void *context, double *residual) {
  bppsa_bench_entrant *e = context;
  BPPSA_TRY(bppsa_bench_replay_cleared(&e->recording));
  return e->work->judge(e->context, residual);
}

static void free_entrant(bppsa_bench_entrant *e) {
  bppsa_timed_work_close(&e->timed);
  if (e->recorded) {
    bppsa_bench_recording_free(&e->recording);
  }
  bppsa_free(e);
}

/* Frees the entrants, the last one first, because a recording uses what its pass made before it. */
static void free_entrants(bppsa_bench *bench) {
  while (bench->count > 0) {
    free_entrant(bench->entrants[--bench->count]);
  }
  bppsa_free(bench->entrants);
  bench->entrants = NULL;
  bench->capacity = 0;
}

/* Makes room for one more entrant at the end of the list. */
static bppsa_status grow(bppsa_bench *bench) {
  if (bench->count < bench->capacity) {
    return BPPSA_OK;
  }
  const int64_t capacity = bench->capacity > 0 ? 2 * bench->capacity : 16;
  bppsa_bench_entrant **entrants = bppsa_calloc(capacity, sizeof(void *));
  if (entrants == NULL) {
    return bppsa_bench_no_room();
  }
  if (bench->count > 0) {
    memcpy(entrants, bench->entrants, (size_t)bench->count * sizeof *entrants);
  }
  bppsa_free(bench->entrants);
  bench->entrants = entrants;
  bench->capacity = capacity;
  return BPPSA_OK;
}

/* Makes an entrant. The caller puts it into the list. */
static bppsa_status make(bppsa_bench *bench, void *context, const char *method, const char *phase, bppsa_bench_entrant **made) {
  BPPSA_TRY(grow(bench));
  bppsa_bench_entrant *e = bppsa_calloc(1, sizeof *e);
  if (e == NULL) {
    return bppsa_bench_no_room();
  }
  *e = (bppsa_bench_entrant){.bench = bench, .context = context, .device = bench->device};
  snprintf(e->method, sizeof e->method, "%s", method);
  snprintf(e->phase, sizeof e->phase, "%s", phase);
  *made = e;
  return BPPSA_OK;
}

/* Verifies an entrant and puts it into the list, unless it is refused. */
static bppsa_status admit(bppsa_bench *bench, bppsa_bench_entrant *e, bool *entered) {
  e->contender.name = e->method;
  const bppsa_status status = bppsa_contender_verify(&e->contender);
  const bool refused = e->contender.verdict == BPPSA_REFUSED;
  if (status == BPPSA_OK && !refused) {
    bench->entrants[bench->count++] = e;
    if (entered != NULL) {
      *entered = true;
    }
    return BPPSA_OK;
  }
  const bppsa_status left_out = refused ? bppsa_bench_leave_out(bench, e->method, e->phase) : status;
  free_entrant(e);
  return left_out;
}

bppsa_status bppsa_bench_enter(bppsa_bench *bench, const bppsa_bench_work *work, const bppsa_device *device, void *context,
                               const char *method, const char *phase, bool *entered) {
  bppsa_bench_entrant *e = NULL;
  if (entered != NULL) {
    *entered = false;
  }
  BPPSA_TRY(make(bench, context, method, phase, &e));
  e->work = work;
  e->device = device;
  e->timed = (bppsa_timed_work){.device = device, .action = work->action, .context = context};
  e->contender = (bppsa_contender){.verification = {verify_queued, e, bench->kind->bound},
                                   .pass = bppsa_timed_work_pass,
                                   .context = &e->timed,
                                   .parts = 1,
                                   .qualifies = work->qualifies};
  const bppsa_status status = bppsa_timed_work_open(&e->timed);
  if (status != BPPSA_OK) {
    free_entrant(e);
    return status;
  }
  return admit(bench, e, entered);
}

bppsa_status bppsa_bench_enter_recording(bppsa_bench *bench, const bppsa_bench_work *work, void *context, const char *method,
                                         const char *phase) {
  bppsa_bench_entrant *e = NULL;
  BPPSA_TRY(make(bench, context, method, phase, &e));
  e->work = work;
  e->contender = (bppsa_contender){.verification = {verify_recording, e, bench->kind->bound},
                                   .pass = bppsa_bench_replay_pass,
                                   .context = &e->recording,
                                   .parts = 1,
                                   .qualifies = work->qualifies};
  const bppsa_status status = bppsa_bench_record(bench->device, work->action, work->clear, context, &e->recording);
  if (status != BPPSA_OK) {
    free_entrant(e);
    return status == BPPSA_ERR_UNSUPPORTED ? bppsa_bench_leave_out(bench, method, phase) : status;
  }
  e->recorded = true;
  return admit(bench, e, NULL);
}

bppsa_status bppsa_bench_enter_contender(bppsa_bench *bench, const bppsa_contender *contender, void *context, const char *method,
                                         const char *phase, bool *entered) {
  bppsa_bench_entrant *e = NULL;
  if (entered != NULL) {
    *entered = false;
  }
  BPPSA_TRY(make(bench, context, method, phase, &e));
  e->contender = *contender;
  e->contender.verification.bound = bench->kind->bound;
  return admit(bench, e, entered);
}

bppsa_status bppsa_bench_read_earlier(bppsa_bench *bench, const char *model) {
  const char *path = bench->request->earlier;
  return path != NULL ? bppsa_outlook_read(path, bench->kind->name, model, &bench->earlier) : BPPSA_OK;
}

bool bppsa_bench_out_of_time(bppsa_bench *bench) {
  bench->idle = bench->deadline > 0 && bench->rows.measured > 0 && bppsa_now() >= bench->deadline;
  bench->points_left_out += bench->idle;
  return bench->idle;
}

/* ---- rows ---- */

/* Does the benchmark print its rows? */
static bool shows(const bppsa_bench *bench) {
  return !bench->request->to.json && bench->keeper == NULL && bench->kind->columns != NULL;
}

/* The text of a member that names a row. */
static const char *name_of(const bppsa_bench *bench, const char *key, const char *method, const char *phase) {
  return strcmp(key, "method") == 0 ? method : strcmp(key, "phase") == 0 ? phase : bench->point;
}

bppsa_status bppsa_bench_leave_out(bppsa_bench *bench, const char *method, const char *phase) {
  if (bench->kind->names == NULL) {
    return BPPSA_OK;
  }
  json_t *object = json_object();
  bool ok = object != NULL;
  for (const char *const *key = bench->kind->names; ok && *key != NULL; ++key) {
    const char *name = name_of(bench, *key, method, phase);
    ok = name[0] == '\0' || bppsa_json_put_text(object, *key, name);
  }
  ok = ok && bppsa_json_put_text(object, "reason", bppsa_last_error());
  object = bppsa_json_finish(object, ok);
  if (json_array_append_new(bench->left_out, object) != 0) {
    return bppsa_bench_no_room();
  }
  return bench->request->to.json ? BPPSA_OK : bppsa_table_print_left_out(&bench->request->to, bench->kind->columns, object);
}

static void count_row(bppsa_bench *bench, const bppsa_bench_entrant *e) {
  const bppsa_contender *c = &e->contender;
  if (c->verdict != BPPSA_REFUSED) {
    bppsa_bench_count_row(&bench->rows, c->residual, c->verdict == BPPSA_VERIFIED, c->timing[0].noisy);
  } else if (e->needs > 0) {
    bench->needed = bench->needed == 0 || e->needs < bench->needed ? e->needs : bench->needed;
  } else if (bench->reason[0] == '\0') {
    snprintf(bench->reason, sizeof bench->reason, "%s", c->reason);
  }
}

static bppsa_status show_row(const bppsa_bench *bench, const bppsa_bench_entrant *e, const json_t *row) {
  char text[BPPSA_BENCH_NOTE];
  const char *note = bench->kind->note != NULL ? bench->kind->note(e, text, sizeof text) : NULL;
  const char *wrong = bppsa_bench_wrong(e->contender.verdict == BPPSA_VERIFIED);
  return note != NULL ? bppsa_table_print_note(&bench->request->to, bench->columns, e, row, note)
                      : bppsa_table_print_row(&bench->request->to, bench->columns, e, row, wrong);
}

static bppsa_status add_row(bppsa_bench *bench, const bppsa_bench_entrant *e) {
  json_t *row = json_object();
  row = bppsa_json_finish(row, row != NULL && bench->kind->put(e, row));
  if (json_array_append_new(bench->report.rows, row) != 0) {
    return bppsa_bench_no_room();
  }
  count_row(bench, e);
  return shows(bench) ? show_row(bench, e, row) : BPPSA_OK;
}

/* Adds the row of an entrant, or names it where it was refused in the rounds. */
static bppsa_status add_entrant(bppsa_bench *bench, const bppsa_bench_entrant *e) {
  if (e->contender.verdict != BPPSA_REFUSED) {
    return add_row(bench, e);
  }
  (void)bppsa_contender_status(&e->contender); /* the reason becomes the last error */
  return bppsa_bench_leave_out(bench, e->method, e->phase);
}

static bppsa_status add_rows(bppsa_bench *bench) {
  const bppsa_bench_case *kind = bench->kind;
  for (int64_t i = 0; kind->line == NULL && i < bench->count; ++i) {
    BPPSA_TRY(add_entrant(bench, bench->entrants[i]));
  }
  for (int64_t i = 0; kind->line != NULL && i < kind->lines; ++i) {
    bppsa_bench_entrant line = {.bench = bench, .device = bench->device};
    BPPSA_TRY(kind->line(bench, i, &line) ? add_row(bench, &line) : BPPSA_OK);
  }
  return BPPSA_OK;
}

/* ---- rounds ---- */

static void show_round(void *context, int64_t round, int64_t rounds) {
  bppsa_bench *bench = context;
  if (bench->label[0] != '\0' && bppsa_progress_due(&bench->progress)) {
    bppsa_progress_show(&bench->progress, "%s: round %" PRId64 " of %" PRId64, bench->label, round, rounds);
  }
}

/* Times all entrants in turn. */
static bppsa_status time_entrants(bppsa_bench *bench) {
  bppsa_rounds rounds = bppsa_bench_rounds_of(bench->request, bench->kind->budget_s, bench->kind->quick_s);
  bppsa_contender *list = bppsa_calloc(bench->count + 1, sizeof *list);
  if (list == NULL) {
    return bppsa_bench_no_room();
  }
  rounds.budget_s /= bench->kind->shared && bench->count > 0 ? (double)bench->count : 1;
  rounds.qualify = bench->qualify;
  rounds.progress = show_round;
  rounds.context = bench;
  for (int64_t i = 0; i < bench->count; ++i) {
    list[i] = bench->entrants[i]->contender;
  }
  const bppsa_status status = bppsa_rounds_run(&rounds, bench->count, list);
  for (int64_t i = 0; status == BPPSA_OK && i < bench->count; ++i) {
    bench->entrants[i]->contender = list[i];
  }
  bppsa_free(list);
  return status;
}

/* ---- a run ---- */

/* Times the entrants of a point and shows its rows. */
static bppsa_status measure_point(bppsa_bench *bench) {
  const bppsa_bench_case *kind = bench->kind;
  BPPSA_TRY(time_entrants(bench));
  bppsa_progress_clear(&bench->progress);
  BPPSA_TRY(kind->settle != NULL ? kind->settle(bench) : BPPSA_OK);
  if (shows(bench) && kind->above != NULL) {
    BPPSA_TRY(kind->above(bench));
    BPPSA_TRY(bppsa_table_print_headings(&bench->request->to, bench->columns));
  }
  BPPSA_TRY(add_rows(bench));
  return shows(bench) && kind->below != NULL ? kind->below(bench) : BPPSA_OK;
}

static bppsa_status run_point(bppsa_bench *bench, int64_t point, bool *more) {
  bench->point[0] = bench->label[0] = '\0';
  bench->idle = false;
  *more = true;
  bppsa_status status = bench->kind->enter(bench, point, more);
  const bool measured = status == BPPSA_OK && *more && !bench->idle;
  status = measured ? measure_point(bench) : status;
  bppsa_progress_clear(&bench->progress);
  free_entrants(bench);
  if (bench->kind->leave != NULL) {
    bench->kind->leave(bench);
  }
  return status == BPPSA_OK && measured && bench->keeper != NULL
             ? bench->keeper->after(bench->keeper->context, point + 1, bench->points)
             : status;
}

static bppsa_status run_points(bppsa_bench *bench) {
  const bppsa_bench_case *kind = bench->kind;
  const bool table = shows(bench), one_table = table && kind->above == NULL;
  bool more = true;
  BPPSA_TRY(table ? kind->head(bench) : BPPSA_OK);
  BPPSA_TRY(one_table ? bppsa_table_print_headings(&bench->request->to, bench->columns) : BPPSA_OK);
  for (int64_t point = 0; more; ++point) {
    BPPSA_TRY(run_point(bench, point, &more));
  }
  return one_table ? bppsa_bench_show_noisy(&bench->request->to, bench->rows.noisy) : BPPSA_OK;
}

/* Fails if a benchmark with lines has measured no row, and says why they were refused. */
static bppsa_status check_measured(const bppsa_bench *bench) {
  if (bench->kind->line == NULL || bench->rows.measured > 0) {
    return BPPSA_OK;
  }
  return bench->needed > 0 ? bppsa_fail(BPPSA_ERR_ARGUMENT, "--memory-limit: %" PRId64 " bytes, expected at least %" PRId64,
                                        bench->memory_limit, bench->needed)
                           : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "bench: nothing could be measured: %s", bench->reason);
}

bppsa_status bppsa_bench_report_points(bppsa_bench *bench) {
  if (bench->request->time_limit_s == 0) {
    return BPPSA_OK;
  }
  if (!bppsa_json_put_integer(bench->report.document, "points_left_out", bench->points_left_out)) {
    return bppsa_bench_no_room();
  }
  return bench->request->to.json || bench->points_left_out == 0
             ? BPPSA_OK
             : bppsa_output_print(&bench->request->to, "\n%" PRId64 " points left out: --time-limit was over\n",
                                  bench->points_left_out);
}

static bppsa_status list_left_out(bppsa_bench *bench) {
  if (bench->kind->names == NULL) {
    return BPPSA_OK;
  }
  if (!bppsa_json_put(bench->report.document, "left_out", json_array())) {
    return bppsa_bench_no_room();
  }
  bench->left_out = json_object_get(bench->report.document, "left_out");
  return BPPSA_OK;
}

static bppsa_status measure(bppsa_bench *bench) {
  const bppsa_bench_case *kind = bench->kind;
  BPPSA_TRY(list_left_out(bench));
  BPPSA_TRY(kind->memory_quarters > 0 ? bppsa_bench_memory_limit(bench->request, kind->memory_quarters, &bench->memory_limit)
                                      : BPPSA_OK);
  BPPSA_TRY(kind->prepare != NULL ? kind->prepare(bench) : BPPSA_OK);
  BPPSA_TRY(kind->limits ? bppsa_machine_limits_measure(bench->device, &bench->limits) : BPPSA_OK);
  if (kind->put_members != NULL && !kind->put_members(bench, bench->report.document)) {
    return bppsa_bench_no_room();
  }
  BPPSA_TRY(run_points(bench));
  BPPSA_TRY(check_measured(bench));
  if (bench->keeper != NULL) {
    return BPPSA_OK;
  }
  BPPSA_TRY(kind->finish != NULL ? kind->finish(bench) : BPPSA_OK);
  BPPSA_TRY(bppsa_bench_finish(&bench->report));
  return bppsa_bench_rows_status(&bench->rows, kind->bound);
}

static bppsa_status measure_beside_host(bppsa_bench *bench) {
  bppsa_device *host = NULL;
  if (bench->gpu) {
    BPPSA_TRY(bppsa_device_create("cpu", bppsa_device_get_threads(bench->device), &host));
  }
  bench->host = host != NULL ? host : bench->device;
  const bppsa_status status = measure(bench);
  if (bench->kind->release != NULL) {
    bench->kind->release(bench);
  }
  json_decref(bench->earlier);
  bppsa_device_destroy(host);
  return status;
}

static bppsa_status begin(const bppsa_bench_case *kind, const bppsa_bench_request *request,
                          const struct bppsa_bench_settings *asked, bppsa_bench *bench) {
  *bench = (bppsa_bench){
      .kind = kind,
      .request = request,
      .asked = asked,
      .device = request->device,
      .gpu = bppsa_device_get_kind(request->device) == BPPSA_CUDA,
      .deadline = bppsa_bench_deadline(request),
      .qualify = request->time_limit_s > 0 || bppsa_device_get_kind(request->device) == BPPSA_CUDA ? BPPSA_OUTLOOK_TIMES : 0,
      .columns = kind->columns,
      .progress = bppsa_progress_start(request->to.err),
      .session = bppsa_calloc(1, kind->session > 0 ? kind->session : 1)};
  return bench->session != NULL ? BPPSA_OK : bppsa_bench_no_room();
}

bppsa_status bppsa_bench_drive(const bppsa_bench_case *kind, const bppsa_bench_request *request,
                               const struct bppsa_bench_settings *asked) {
  bppsa_bench bench;
  BPPSA_TRY(begin(kind, request, asked, &bench));
  bppsa_status status = bppsa_bench_open(request, kind->document != NULL ? kind->document : kind->name, &bench.report);
  if (status == BPPSA_OK) {
    status = measure_beside_host(&bench);
    json_decref(bench.report.document);
  }
  bppsa_free(bench.session);
  return status;
}

bppsa_status bppsa_bench_drive_rows(const bppsa_bench_case *kind, const bppsa_bench_request *request,
                                    const struct bppsa_bench_settings *asked, const bppsa_bench_keeper *keeper,
                                    bppsa_bench_count_rows *count) {
  bppsa_bench bench;
  BPPSA_TRY(begin(kind, request, asked, &bench));
  bench.keeper = keeper;
  bench.report.rows = keeper->rows;
  const bppsa_status status = measure_beside_host(&bench);
  bppsa_free(bench.session);
  if (status == BPPSA_OK) {
    *count = bench.rows;
  }
  return status;
}
