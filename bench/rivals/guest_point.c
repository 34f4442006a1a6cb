/* What a rival's program is asked, in the words of bench/rivals/guest.h. */
#include <math.h>
#include <string.h>

#include "bench/rivals/guest.h"
#include "core/base/alloc.h"
#include "core/files/json.h"
#include "train/objective.h"

static bool describe(const bppsa_guest_point *point, json_t *request) {
  const bppsa_recurrent_config *c = point->config;
  bool ok = bppsa_json_put_text(request, "ask", "point") && bppsa_json_put_text(request, "model", point->model);
  const struct {
    const char *key;
    int64_t value;
  } sizes[] = {{"seq_len", c->seq_len}, {"batch", c->batch}, {"input", c->input}, {"hidden", c->hidden}, {"layers", c->layers}};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    ok = ok && bppsa_json_put_integer(request, sizes[i].key, sizes[i].value);
  }
  ok = ok && bppsa_json_put_text(request, "nonlinearity", bppsa_nonlinearity_name(c->nonlinearity));
  ok = ok && bppsa_json_put_text(request, "loss_on", bppsa_objective_loss(NULL, c->loss_all));
  ok = ok && bppsa_json_put_text(request, "dtype", bppsa_dtype_name(c->dtype));
  ok = ok && (!point->forward_only || bppsa_json_put_text(request, "passes", "forward"));
  if (point->step_lr > 0) {
    ok = ok && bppsa_json_put_text(request, "passes", "step") && bppsa_json_put_real(request, "lr", point->step_lr);
    ok = ok && bppsa_json_put_integer(request, "classes", c->classes);
  }
  json_t *list = json_array();
  for (int64_t p = 0; ok && p < point->parameter_count; ++p) {
    const bppsa_parameter *parameter = &point->parameters[p];
    json_t *entry = json_object();
    ok = entry != NULL && bppsa_json_put_text(entry, "name", parameter->name) &&
         bppsa_json_put_shape(entry, "shape", parameter->value.ndim, parameter->value.shape);
    ok = json_array_append_new(list, bppsa_json_finish(entry, ok)) == 0 && ok;
  }
  return bppsa_json_put(request, "parameters", list) && ok;
}

bppsa_status bppsa_guest_send_point(bppsa_guest *guest, const bppsa_guest_point *point) {
  bppsa_view *sent = bppsa_calloc(point->parameter_count + 2, sizeof *sent);
  json_t *request = json_object(), *answer = NULL;
  bppsa_status status = sent != NULL && request != NULL && describe(point, request)
                            ? BPPSA_OK
                            : bppsa_fail(BPPSA_ERR_MEMORY, "bench: no memory for a point of --rivals");
  if (status == BPPSA_OK) {
    sent[0] = point->x;
    sent[1] = point->seed;
    for (int64_t p = 0; p < point->parameter_count; ++p) {
      sent[2 + p] = point->parameters[p].value;
    }
    status = bppsa_guest_ask(guest, INFINITY, request, point->parameter_count + 2, sent, 0, NULL, &answer);
  }
  json_decref(answer);
  json_decref(request);
  bppsa_free(sent);
  return status;
}

/* Asks for something of one method, which may take that long; *answer must be released. */
static bppsa_status ask_method(bppsa_guest *guest, const char *what, const char *method, double time_s, int64_t bytes,
                               void *received, json_t **answer) {
  json_t *request = json_pack("{s:s, s:s}", "ask", what, "method", method);
  if (request == NULL || (time_s < INFINITY && !bppsa_json_put_real(request, "seconds", time_s))) {
    json_decref(request);
    return bppsa_fail(BPPSA_ERR_MEMORY, "bench: no memory for a request to the rivals' program");
  }
  const bppsa_status status = bppsa_guest_ask(guest, time_s, request, 0, NULL, bytes, received, answer);
  json_decref(request);
  return status;
}

bppsa_status bppsa_guest_enter(bppsa_guest *guest, const char *method, int64_t bytes, void *received) {
  json_t *answer = NULL;
  const double time_s = bppsa_guest_time(guest);
  if (time_s == 0) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "--time-limit was over");
  }
  BPPSA_TRY(ask_method(guest, "enter", method, time_s, bytes, received, &answer));
  json_decref(answer);
  return BPPSA_OK;
}

bppsa_status bppsa_guest_pass(bppsa_guest *guest, const char *method, int parts, double *seconds) {
  json_t *answer = NULL;
  BPPSA_TRY(ask_method(guest, "pass", method, INFINITY, 0, NULL, &answer));
  const json_t *found = json_object_get(answer, "seconds");
  bool fine = json_array_size(found) == (size_t)parts;
  for (int i = 0; fine && i < parts; ++i) {
    seconds[i] = json_number_value(json_array_get(found, (size_t)i));
    fine = json_is_number(json_array_get(found, (size_t)i)) && seconds[i] > 0;
  }
  json_decref(answer);
  return fine ? BPPSA_OK
              : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "the rivals' program answers a pass of %s without its seconds", method);
}
