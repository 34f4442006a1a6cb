/* Writes a schedule as JSON. */
#include <math.h>

#include "core/files/json.h"
#include "schedule/schedule_internal.h"
#include "schedule/timed.h"

enum { MOST_JSON_OPS = 100000, MOST_JSON_NUMBERS = 1 << 23 };

/* Is the list short enough to be written operation by operation? Each operation lists its layers, micro-batches and dependencies
 * one by one. */
static bool fits(const bppsa_schedule *list) {
  int64_t numbers = list->dep_count;
  for (int64_t id = 0; id < list->count && list->count <= MOST_JSON_OPS; ++id) {
    numbers += list->ops[id].layers + (list->scheme->scan ? 0 : list->ops[id].micros);
  }
  return list->count <= MOST_JSON_OPS && numbers <= MOST_JSON_NUMBERS;
}

static json_t *range_json(int64_t first, int64_t count) {
  json_t *array = json_array();
  bool ok = array != NULL;
  for (int64_t i = 0; i < count && ok; ++i) {
    ok = json_array_append_new(array, json_integer(first + i)) == 0;
  }
  return bppsa_json_finish(array, ok);
}

/* Returns the dependencies of an operation. A RECV depends on its SEND, which stands in front of it. */
static json_t *deps_json(const bppsa_schedule *list, int64_t id) {
  const bppsa_schedule_op *op = &list->ops[id];
  if (op->kind == BPPSA_KIND_RECV) {
    return range_json(id - 1, 1);
  }
  json_t *array = json_array();
  bool ok = array != NULL;
  for (int32_t k = 0; k < op->dep_count && ok; ++k) {
    ok = json_array_append_new(array, json_integer(list->deps[op->deps + k])) == 0;
  }
  return bppsa_json_finish(array, ok);
}

static json_t *op_json(const bppsa_timed *timed, int64_t id) {
  const bppsa_schedule_op *op = &timed->list->ops[id];
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_integer(object, "id", id) && bppsa_json_put_integer(object, "worker", op->worker);
  ok = ok && bppsa_json_put_text(object, "lane", bppsa_schedule_lane_name(op->lane)) &&
       bppsa_json_put_integer(object, "replica", op->replica);
  ok = ok && bppsa_json_put_integer(object, "stage", op->stage) &&
       bppsa_json_put(object, "layer_range", range_json(op->layer, op->layers));
  ok = ok && bppsa_json_put_text(object, "kind", bppsa_schedule_kind_name(op->kind));
  ok = ok && bppsa_json_put(object, "micro_batch_range", range_json(op->micro, timed->list->scheme->scan ? 0 : op->micros));
  ok = ok && bppsa_json_put(object, "half", op->part >= 0 ? json_integer(op->part) : json_null());
  ok = ok && bppsa_json_put(object, "weight_version", op->weight_version >= 0 ? json_integer(op->weight_version) : json_null());
  ok = ok && bppsa_json_put_real(object, "cost", op->cost) && bppsa_json_put_real(object, "memory_delta", op->memory_delta);
  ok = ok && bppsa_json_put(object, "deps", deps_json(timed->list, id));
  ok = ok && bppsa_json_put_real(object, "start", timed->times.start[id]) &&
       bppsa_json_put_real(object, "end", timed->times.end[id]);
  return bppsa_json_finish(object, ok);
}

static json_t *workers_json(const bppsa_timed *timed) {
  json_t *array = json_array();
  bool ok = array != NULL;
  for (int64_t w = 0; w < timed->list->workers && ok; ++w) {
    const bppsa_schedule_worker *worker = &timed->times.worker[w];
    json_t *object = json_object();
    bool made = object != NULL && bppsa_json_put_real(object, "busy", worker->busy);
    made = made && bppsa_json_put_real(object, "peak_activations", worker->peak_activations);
    made = made && bppsa_json_put_real(object, "weight_versions", worker->weight_versions);
    ok = json_array_append_new(array, bppsa_json_finish(object, made)) == 0;
  }
  return bppsa_json_finish(array, ok);
}

static json_t *ops_json(const bppsa_timed *timed) {
  json_t *array = json_array();
  bool ok = array != NULL;
  for (int64_t id = 0; id < timed->list->count && ok; ++id) {
    ok = json_array_append_new(array, op_json(timed, id)) == 0;
  }
  return bppsa_json_finish(array, ok);
}

static json_t *model_json(double time, int64_t forward, int64_t backward) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_real(object, "time", time) && bppsa_json_put_integer(object, "c_f", forward);
  return bppsa_json_finish(object, ok && bppsa_json_put_integer(object, "c_b", backward));
}

json_t *bppsa_timed_json(const bppsa_timed *timed, bool with_ops) {
  const bppsa_schedule *list = timed->list;
  int64_t forward = 0, backward = 0;
  double model = NAN;
  json_t *object = bppsa_schedule_model(list, &model, &forward, &backward) == BPPSA_OK ? json_object() : NULL;
  bool ok = object != NULL && bppsa_json_put_text(object, "scheme", list->scheme->id);
  ok = ok && bppsa_json_put_integer(object, "stages", list->config.stages) &&
       bppsa_json_put_integer(object, "micro_batches", list->config.micro_batches);
  ok = ok && bppsa_json_put_integer(object, "layers", list->config.layers) &&
       bppsa_json_put_integer(object, "width", list->config.width);
  if (list->scheme->scan) {
    ok = ok && bppsa_json_put_integer(object, "elements", list->config.elements);
  }
  ok = ok && bppsa_json_put_integer(object, "iterations", list->config.iterations) &&
       bppsa_json_put_text(object, "window", bppsa_schedule_window_name((int32_t)list->config.window));
  ok = ok && bppsa_json_put_real(object, "makespan", timed->times.makespan) &&
       bppsa_json_put_real(object, "bubble_ratio", timed->times.bubble_ratio);
  ok = ok && bppsa_json_put_integer(object, "operations", list->count);
  if ((list->scheme->takes & TAKES_REVERSE) != 0) {
    ok = ok && bppsa_json_put_integer(object, "k", list->config.reverse);
  }
  if (!isnan(model)) {
    ok = ok && bppsa_json_put(object, "model", model_json(model, forward, backward));
  }
  if (list->advice_text[0] != '\0') {
    ok = ok && bppsa_json_put_text(object, "advice", list->advice_text);
  }
  ok = ok && bppsa_json_put(object, "workers", workers_json(timed));
  if (with_ops && fits(list)) {
    ok = ok && bppsa_json_put(object, "ops", ops_json(timed));
  }
  return bppsa_json_finish(object, ok);
}
