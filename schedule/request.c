#include "schedule/request.h"

#include "core/base/alloc.h"
#include "schedule/schedule_internal.h"

enum { MOST_SCHEMES = 64, JACOBIANS = 16 /* of each worker of a scan */ };

bppsa_schedule_request bppsa_schedule_request_default(void) {
  return (bppsa_schedule_request){.config = bppsa_schedule_config_default()};
}

void bppsa_schedule_request_free(bppsa_schedule_request *request) {
  for (int i = 0; i < BPPSA_SCHEDULE_COST_ARRAYS; ++i) {
    bppsa_free(request->arrays[i]);
  }
  bppsa_free(request->cut);
  *request = (bppsa_schedule_request){.costs = NULL};
}

bppsa_status bppsa_schedule_request_cut(bppsa_schedule_request *request, const char *text) {
  BPPSA_REQUIRE(request->cut == NULL);
  const bppsa_status status = bppsa_schedule_cut_parse(text, &request->cut, &request->config.cuts);
  request->config.cut = request->cut;
  return status == BPPSA_OK ? status : bppsa_fail_prefix(status, "--cut");
}

bppsa_status bppsa_schedule_request_costs(bppsa_schedule_request *request, const char *path) {
  BPPSA_REQUIRE(request->costs == NULL);
  bppsa_schedule_request made = *request;
  const bppsa_status status = bppsa_schedule_costs_load(path, &made.config, made.arrays);
  if (status != BPPSA_OK) {
    bppsa_schedule_request_free(&made);
    return bppsa_fail_prefix(bppsa_input_status(status), "--costs");
  }
  made.costs = path;
  *request = made;
  return BPPSA_OK;
}

/* Finds a scheme. For an unknown name the message suggests one. */
static bppsa_status find(const char *id, const bppsa_schedule_scheme **scheme) {
  int64_t count = 0;
  const bppsa_schedule_scheme *schemes = bppsa_schedule_schemes(&count);
  const char *ids[MOST_SCHEMES] = {NULL};
  char hint[96];
  *scheme = bppsa_schedule_find(id);
  if (*scheme != NULL) {
    return BPPSA_OK;
  }
  for (int64_t i = 0; i < count && i + 1 < MOST_SCHEMES; ++i) {
    ids[i] = schemes[i].id;
  }
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "schedule: unknown scheme '%s', expected one that bppsa schedule --list names%s", id,
                    bppsa_suggestion(id, ids, hint, sizeof hint));
}

/* Returns the request's configuration. A window or elements that the request does not set are the scheme's. */
static bppsa_schedule_config config_of(const bppsa_schedule_request *request, const bppsa_schedule_scheme *scheme,
                                       int64_t layers) {
  bppsa_schedule_config c = request->config;
  const bool parallel = scheme->data_parallel && (scheme->takes & TAKES_STAGES) != 0;
  c.layers = c.layers > 0 ? c.layers : layers;
  if (!request->sets_window) {
    c.window = parallel ? BPPSA_WINDOW_BACKWARD_FORWARD : BPPSA_WINDOW_ITERATION;
  }
  if (!request->sets_elements && scheme->scan) {
    c.elements = c.stages * c.width * JACOBIANS + 1;
  }
  return c;
}

/* Checks the file of costs, and cuts the layers by it where the request has no cut. *cut: owned by the caller, borrowed by the
 * configuration. */
static bppsa_status use_costs(const bppsa_schedule_request *request, const char *id, bppsa_schedule_config *c, int64_t **cut) {
  const bppsa_status status = bppsa_schedule_check_rows(id, c);
  if (status != BPPSA_OK) {
    return bppsa_fail_prefix(status, "--costs: %s", request->costs);
  }
  if (c->cut == NULL && bppsa_schedule_costs_by_layer(c)) {
    BPPSA_TRY(bppsa_schedule_cut_scheme(id, c, cut, &c->cuts));
    c->cut = *cut;
  }
  return BPPSA_OK;
}

bppsa_status bppsa_schedule_request_make(const bppsa_schedule_request *request, const char *id, int64_t layers,
                                         bppsa_timed *timed) {
  const bppsa_schedule_scheme *scheme;
  bppsa_schedule *list = NULL;
  int64_t *cut = NULL;
  BPPSA_TRY(find(id, &scheme));
  bppsa_schedule_config config = config_of(request, scheme, layers);
  BPPSA_TRY(request->costs != NULL ? use_costs(request, id, &config, &cut) : BPPSA_OK);
  const bppsa_status status = bppsa_schedule_create(id, &config, &list);
  bppsa_free(cut);
  return status == BPPSA_OK ? bppsa_timed_create(list, timed) : status;
}

bppsa_status bppsa_schedule_load(const char *path, bppsa_timed *timed) {
  bppsa_schedule *list = NULL;
  const bppsa_status read = bppsa_schedule_csv_load(path, &list);
  if (read != BPPSA_OK) {
    return bppsa_fail_prefix(bppsa_input_status(read), "--load");
  }
  const bppsa_status status = bppsa_timed_create(list, timed);
  return status == BPPSA_OK ? BPPSA_OK : bppsa_fail_prefix(status, "--load: %s", path);
}
