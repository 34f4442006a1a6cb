#include "bench/harness/driver.h"

#include <inttypes.h>
#include <string.h>

#include "core/alloc.h"

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
  e->contender = (bppsa_contender){
      .verification = {verify_queued, e, bench->kind->bound}, .pass = bppsa_timed_work_pass, .context = &e->timed, .parts = 1};
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
                                   .parts = 1};
  const bppsa_status status = bppsa_bench_record(bench->device, work->action, work->clear, context, &e->recording);
  if (status != BPPSA_OK) {
    free_entrant(e);
    return status == BPPSA_ERR_UNSUPPORTED ? bppsa_bench_leave_out(bench, method, phase) : status;
  }
  e->recorded = true;
  return admit(bench, e, NULL);
}

bppsa_status bppsa_bench_enter_contender(bppsa_bench *bench, const bppsa_contender *contender, void *context, const char *method,
                                         const char *phase) {
  bppsa_bench_entrant *e = NULL;
  BPPSA_TRY(make(bench, context, method, phase, &e));
  e->contender = *contender;
  e->contender.verification.bound = bench->kind->bound;
  return admit(bench, e, NULL);
}

/* ---- rows ---- */

/* The text of a member that names a row. */
static const char *name_of(const bppsa_bench *bench, const char *key, const char *method, const char *phase) {
  return strcmp(key, "method") == 0 ? method : strcmp(key, "phase") == 0 ? phase : bench->point;
}

bppsa_status bppsa_bench_leave_out(bppsa_bench *bench, const char *method, const char *phase) {
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
  return bench->request->to.json ? BPPSA_OK : bppsa_bench_print_left_out(&bench->request->to, bench->kind->columns, object);
}

static bppsa_status add_row(bppsa_bench *bench, const bppsa_bench_entrant *e) {
  const bppsa_contender *c = &e->contender;
  const bool right = c->verdict == BPPSA_VERIFIED;
  json_t *row = json_object();
  row = bppsa_json_finish(row, row != NULL && bench->kind->put(e, row));
  if (json_array_append_new(bench->report.rows, row) != 0) {
    return bppsa_bench_no_room();
  }
  bppsa_bench_count_row(&bench->rows, c->residual, right, c->timing[0].noisy);
  return bench->request->to.json
             ? BPPSA_OK
             : bppsa_bench_print_row(&bench->request->to, bench->kind->columns, e, row, bppsa_bench_wrong(right));
}

/* Times all entrants in turn and adds their rows; what was refused meanwhile is left out. */
static bppsa_status time_entrants(bppsa_bench *bench) {
  const bppsa_rounds rounds = bppsa_bench_rounds_of(bench->request, bench->kind->budget_s, bench->kind->quick_s);
  bppsa_contender *list = bppsa_calloc(bench->count + 1, sizeof *list);
  if (list == NULL) {
    return bppsa_bench_no_room();
  }
  for (int64_t i = 0; i < bench->count; ++i) {
    list[i] = bench->entrants[i]->contender;
  }
  bppsa_status status = bppsa_rounds_run(&rounds, bench->count, list);
  for (int64_t i = 0; status == BPPSA_OK && i < bench->count; ++i) {
    bench->entrants[i]->contender = list[i];
  }
  for (int64_t i = 0; status == BPPSA_OK && i < bench->count; ++i) {
    const bppsa_bench_entrant *e = bench->entrants[i];
    if (e->contender.verdict == BPPSA_REFUSED) {
      (void)bppsa_contender_status(&e->contender); /* the reason becomes the last error */
      status = bppsa_bench_leave_out(bench, e->method, e->phase);
    } else {
      status = add_row(bench, e);
    }
  }
  bppsa_free(list);
  return status;
}

/* ---- a run ---- */

static bppsa_status run_point(bppsa_bench *bench, int64_t point, bool *more) {
  bench->point[0] = '\0';
  *more = true;
  bppsa_status status = bench->kind->enter(bench, point, more);
  status = status == BPPSA_OK && *more ? time_entrants(bench) : status;
  free_entrants(bench);
  if (bench->kind->leave != NULL) {
    bench->kind->leave(bench);
  }
  return status;
}

static bppsa_status run_points(bppsa_bench *bench) {
  const bool table = !bench->request->to.json;
  bool more = true;
  BPPSA_TRY(table ? bench->kind->head(bench) : BPPSA_OK);
  BPPSA_TRY(table ? bppsa_bench_print_headings(&bench->request->to, bench->kind->columns) : BPPSA_OK);
  for (int64_t point = 0; more; ++point) {
    BPPSA_TRY(run_point(bench, point, &more));
  }
  return table ? bppsa_bench_show_noisy(&bench->request->to, bench->rows.noisy) : BPPSA_OK;
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
  BPPSA_TRY(kind->measure != NULL ? kind->measure(bench) : run_points(bench));
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
  bppsa_device_destroy(host);
  return status;
}

bppsa_status bppsa_bench_drive(const bppsa_bench_case *kind, const bppsa_bench_request *request,
                               const struct bppsa_bench_settings *asked) {
  bppsa_bench bench = {.kind = kind,
                       .request = request,
                       .asked = asked,
                       .device = request->device,
                       .gpu = bppsa_device_get_kind(request->device) == BPPSA_CUDA,
                       .deadline = bppsa_bench_deadline(request),
                       .session = bppsa_calloc(1, kind->session > 0 ? kind->session : 1)};
  if (bench.session == NULL) {
    return bppsa_bench_no_room();
  }
  bppsa_status status = bppsa_bench_open(request, kind->document != NULL ? kind->document : kind->name, &bench.report);
  if (status == BPPSA_OK) {
    status = measure_beside_host(&bench);
    json_decref(bench.report.document);
  }
  bppsa_free(bench.session);
  return status;
}
