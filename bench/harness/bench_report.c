#include "bench/harness/bench_report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "bppsa_version.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/compute/memory.h"
#include "core/files/rescue.h"
#include "core/measure/residual.h"
#include "terminal/machine.h"

bppsa_status bppsa_bench_no_room(void) {
  return bppsa_fail(BPPSA_ERR_MEMORY, "bench: out of memory, expected room for the results");
}

/* ---- what was asked for ---- */

bppsa_rounds bppsa_bench_rounds_of(const bppsa_bench_request *request, double budget_s, double quick_s) {
  return (bppsa_rounds){.repeats = request->repeats, .budget_s = request->quick ? quick_s : budget_s};
}

bppsa_status bppsa_bench_memory_limit(const bppsa_bench_request *request, int quarters, int64_t *bytes) {
  int64_t available = bppsa_machine_memory();
  if (request->memory_limit == 0 && bppsa_device_get_kind(request->device) == BPPSA_CUDA) {
    BPPSA_TRY(bppsa_memory_available(request->device, &available));
  }
  *bytes = request->memory_limit > 0 ? request->memory_limit : available / 4 * quarters;
  return BPPSA_OK;
}

double bppsa_bench_deadline(const bppsa_bench_request *request) {
  return request->time_limit_s > 0 ? bppsa_now() + (double)request->time_limit_s : 0;
}

/* ---- the document ---- */

json_t *bppsa_bench_document(const char *name, const bppsa_device *device) {
  char date[BPPSA_DATE_TEXT];
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "bench", name);
  ok = ok && bppsa_json_put(object, "device", bppsa_machine_json(device));
  ok = ok && bppsa_json_put_text(object, "version", BPPSA_VERSION);
  ok = ok && bppsa_json_put_text(object, "commit", BPPSA_COMMIT);
  ok = ok && bppsa_json_put_text(object, "date", bppsa_machine_date(date, sizeof date));
  return bppsa_json_finish(object, ok);
}

bppsa_status bppsa_bench_open(const bppsa_bench_request *request, const char *name, bppsa_bench_report *report) {
  json_t *document = bppsa_bench_document(name, request->device);
  if (document == NULL || !bppsa_json_put(document, "rows", json_array())) {
    json_decref(document);
    return bppsa_bench_no_room();
  }
  *report = (bppsa_bench_report){.request = request, .document = document, .rows = json_object_get(document, "rows")};
  return BPPSA_OK;
}

bppsa_status bppsa_bench_finish(const bppsa_bench_report *report) {
  const bppsa_bench_request *request = report->request;
  char *text = NULL;
  BPPSA_TRY(bppsa_json_render(json_incref(report->document), &text));
  const bppsa_result_text all = {text, strlen(text)};
  bppsa_status status = bppsa_save_results(1, &(bppsa_result_file){request->path, bppsa_save_text, &all});
  if (status == BPPSA_OK && request->to.json) {
    status = bppsa_output_document(&request->to, text);
  }
  bppsa_free(text);
  return status;
}

/* ---- rows ---- */

void bppsa_bench_count_row(bppsa_bench_count_rows *rows, double residual, bool right, bool noisy) {
  ++rows->measured;
  rows->failed += !right;
  rows->noisy += noisy;
  rows->worst = bppsa_residual_worse(rows->worst, residual);
}

bppsa_status bppsa_bench_rows_status(const bppsa_bench_count_rows *rows, double bound) {
  return rows->failed == 0
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_NUMERIC,
                          "bench: %" PRId64 " of %" PRId64 " rows have a residual of %g or more, up to %g, expected less",
                          rows->failed, rows->measured, bound, rows->worst);
}

bool bppsa_bench_put_timing(json_t *object, const bppsa_timing *t) {
  const bool m = t->repeats > 0; /* bppsa_json_put_real writes null for NaN */
  bool ok = bppsa_json_put_real(object, "median_s", m ? t->median_s : NAN);
  ok = ok && bppsa_json_put_real(object, "min_s", m ? t->min_s : NAN);
  ok = ok && bppsa_json_put_real(object, "max_s", m ? t->max_s : NAN);
  ok = ok && bppsa_json_put_integer(object, "repeats", t->repeats);
  return ok && bppsa_json_put_bool(object, "noisy", t->noisy);
}

const char *bppsa_bench_wrong(bool right) {
  return right ? "" : "  WRONG";
}

bppsa_status bppsa_bench_show_noisy(const bppsa_output *to, int64_t noisy) {
  return noisy == 0 ? BPPSA_OK : bppsa_output_print(to, "  %s\n", BPPSA_TIMING_NOTE);
}
