/* The system file that a calibration writes. */
#include "bppsa_version.h"
#include "calibrate/calibrate_internal.h"
#include "core/base/clock.h"
#include "oracle/ends.h"
#include "terminal/machine.h"

/* Writes the spreads of a layer's times: forward, backward, and each of the two gradients by itself. */
static bool put_spreads(const bppsa_calibration *s, int64_t l, json_t *object) {
  bppsa_oracle_spread_member members[BPPSA_ORACLE_LAYER_SPREADS + 2];
  const double batch = (double)s->request->batch;
  bppsa_oracle_layer layer = s->model.layers[l];
  bppsa_oracle_spread input = bppsa_chain_spread(&s->costs, BPPSA_COST_INPUT_GRAD, l, batch),
                      weight = bppsa_chain_spread(&s->costs, BPPSA_COST_WEIGHT_GRAD, l, batch);
  bppsa_oracle_layer_spreads(&layer, members);
  members[BPPSA_ORACLE_LAYER_SPREADS] = (bppsa_oracle_spread_member){.name = "input_grad_s", .spread = &input};
  members[BPPSA_ORACLE_LAYER_SPREADS + 1] = (bppsa_oracle_spread_member){.name = "weight_grad_s", .spread = &weight};
  return bppsa_oracle_spread_put(object, BPPSA_ORACLE_LAYER_SPREADS + 2, members);
}

static json_t *layers_json(const bppsa_calibration *s) {
  json_t *list = json_array();
  bool ok = list != NULL;
  for (int64_t l = 0; ok && l < s->model.count; ++l) {
    const bppsa_oracle_layer *layer = &s->model.layers[l];
    json_t *object = json_object();
    ok = object != NULL && bppsa_json_put_text(object, "name", layer->name);
    ok = ok && bppsa_json_put_real(object, "forward_s", layer->forward_s);
    ok = ok && bppsa_json_put_real(object, "backward_s", layer->backward_s);
    ok = ok && bppsa_json_put_real(object, "input_grad_s", s->costs.cost[BPPSA_COST_INPUT_GRAD][l] / (double)s->request->batch);
    ok = ok && bppsa_json_put_real(object, "weight_grad_s", s->costs.cost[BPPSA_COST_WEIGHT_GRAD][l] / (double)s->request->batch);
    ok = ok && bppsa_json_put_real(object, "update_s", layer->update_s);
    ok = ok && (layer->scan_s < 0 || bppsa_json_put_real(object, "scan_s", layer->scan_s));
    ok = ok && (layer->product_s < 0 || bppsa_json_put_real(object, "product_s", layer->product_s));
    ok = ok && put_spreads(s, l, object);
    object = bppsa_json_finish(object, ok);
    ok = object != NULL && json_array_append_new(list, object) == 0;
  }
  return bppsa_json_finish(list, ok);
}

static json_t *shares_json(const bppsa_calibration *s) {
  json_t *list = json_array();
  bool ok = list != NULL;
  for (int64_t i = 0; ok && i < s->share_count; ++i) {
    ok = json_array_append_new(list, bppsa_oracle_share_json(&s->shares[i])) == 0;
  }
  return bppsa_json_finish(list, ok);
}

static json_t *times_json(const bppsa_calibration *s) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "model", s->model.name);
  ok = ok && bppsa_json_put_integer(object, "batch", s->request->batch);
  ok = ok && bppsa_json_put_text(object, "dtype", bppsa_dtype_name(s->config.dtype));
  ok = ok && bppsa_json_put(object, "shares", shares_json(s));
  return bppsa_json_finish(object, ok && bppsa_json_put(object, "layers", layers_json(s)));
}

static json_t *points_json(const bppsa_link_fit *fit) {
  json_t *list = json_array();
  bool ok = list != NULL;
  for (int64_t i = 0; ok && i < fit->count; ++i) {
    json_t *object = json_object();
    ok = object != NULL && bppsa_json_put_real(object, "bytes", fit->points[i].bytes);
    ok = ok && bppsa_json_put_real(object, "median_s", fit->points[i].median_s);
    ok = ok && bppsa_json_put_real(object, "low_s", fit->points[i].low_s);
    ok = ok && bppsa_json_put_real(object, "high_s", fit->points[i].high_s);
    object = bppsa_json_finish(object, ok && bppsa_json_put_real(object, "fitted_s", fit->points[i].fitted_s));
    ok = object != NULL && json_array_append_new(list, object) == 0;
  }
  return bppsa_json_finish(list, ok);
}

static json_t *fits_json(const bppsa_calibration *s) {
  json_t *list = json_array();
  bool ok = list != NULL;
  for (int64_t i = 0; ok && i < s->fit_count; ++i) {
    const bppsa_link_fit *fit = &s->fits[i];
    json_t *object = json_object();
    ok = object != NULL && bppsa_json_put_text(object, "operation", bppsa_oracle_operation_name((int32_t)fit->operation));
    ok = ok && bppsa_json_put_integer(object, "ranks", fit->ranks);
    ok = ok && bppsa_json_put_real(object, "alpha_s", fit->link.alpha_s);
    ok = ok && bppsa_json_put_real(object, "bandwidth", 1 / fit->link.beta_s);
    ok = ok && bppsa_json_put_real(object, "residual", fit->residual);
    ok = ok && bppsa_json_put(object, "spread", bppsa_oracle_spread_json(fit->spread));
    object = bppsa_json_finish(object, ok && bppsa_json_put(object, "points", points_json(fit)));
    ok = object != NULL && json_array_append_new(list, object) == 0;
  }
  return bppsa_json_finish(list, ok);
}

/* Writes the slowdown of each level, and from how many rounds it comes. */
static json_t *slowdowns_json(const bppsa_calibration *s) {
  json_t *list = json_array();
  bool ok = list != NULL;
  for (int64_t i = 0; ok && i < s->system.count && !s->request->nccl; ++i) {
    const bppsa_spread *spread = &s->slowdowns[i].slowdown;
    json_t *object = json_object();
    ok = object != NULL && bppsa_json_put_integer(object, "ranks", s->system.levels[i].processors);
    ok = ok && bppsa_json_put_real(object, "median", spread->median) && bppsa_json_put_real(object, "low", spread->low);
    ok = ok && bppsa_json_put_real(object, "high", spread->high) && bppsa_json_put_integer(object, "rounds", spread->samples);
    object = bppsa_json_finish(object, ok && bppsa_json_put_real(object, "confidence", spread->confidence));
    ok = object != NULL && json_array_append_new(list, object) == 0;
  }
  return bppsa_json_finish(list, ok);
}

static json_t *measured_json(const bppsa_calibration *s) {
  char date[BPPSA_DATE_TEXT];
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "date", bppsa_machine_date(date, sizeof date));
  ok = ok && bppsa_json_put_text(object, "hardware", s->system.name);
  ok = ok && bppsa_json_put(object, "device", bppsa_machine_json(s->request->device));
  ok = ok && bppsa_json_put_text(object, "commit", BPPSA_COMMIT);
  ok = ok && bppsa_json_put_text(object, "transport", bppsa_comm_transport_name(bppsa_comm_get_transport(s->links)));
  ok = ok && bppsa_json_put_integer(object, "ranks", bppsa_comm_size(s->world));
  ok = ok && bppsa_json_put_integer(object, "ranks_of_node", bppsa_comm_node_size(s->world));
  ok = ok && bppsa_json_put_integer(object, "threads_of_rank", bppsa_device_get_threads(s->request->device));
  ok = ok && bppsa_json_put_real(object, "seconds", bppsa_now() - s->start);
  ok = ok && bppsa_json_put(object, "slowdowns", slowdowns_json(s)) &&
       bppsa_json_put(object, "warnings", bppsa_oracle_warnings_json(&s->system));
  return bppsa_json_finish(object, ok && bppsa_json_put_bool(object, "quick", s->request->quick));
}

bppsa_status bppsa_calibration_document(const bppsa_calibration *s, json_t **document) {
  json_t *object = bppsa_oracle_system_json(&s->system);
  bool ok = object != NULL && bppsa_json_put(object, "measured", measured_json(s));
  ok = ok && (s->request->nccl || (bppsa_json_put(object, "layer_times", times_json(s)) &&
                                   bppsa_json_put(object, "product_fits", bppsa_product_fits_json(s->products))));
  *document = bppsa_json_finish(object, ok && bppsa_json_put(object, "fits", fits_json(s)));
  return *document != NULL ? BPPSA_OK
                           : bppsa_fail(BPPSA_ERR_MEMORY, "calibrate: out of memory, expected room for the system file");
}
