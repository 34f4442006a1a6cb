#include "distributed/pipeline/pipeline_weights.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/memory.h"
#include "distributed/agree.h"

static pipeline_held *held_of(const pipeline_weights *w, int64_t replica, int64_t layer) {
  return w->held[replica * w->plan->layers + layer];
}

/* ---- creation ---- */

static bppsa_status make_arrays(const pipeline_plan *plan, pipeline_held *h) {
  const bool predicts = plan->list->scheme->weights == BPPSA_WEIGHTS_PREDICTED, gpu = plan->chain->device != NULL;
  BPPSA_TRY(bppsa_pipeline_make_array(plan, h->bytes, &h->values));
  BPPSA_TRY(bppsa_pipeline_make_array(plan, h->bytes, &h->gradients));
  BPPSA_TRY(bppsa_pipeline_make_array(plan, predicts ? h->bytes : 0, &h->predicted));
  h->copies = bppsa_calloc(gpu ? h->bytes + 1 : 1, 1);
  h->readers = bppsa_calloc(plan->updates + 1, sizeof *h->readers);
  h->left = bppsa_calloc(plan->updates + 1, sizeof *h->left);
  h->model.parameters = bppsa_calloc(h->model.parameter_count + 1, sizeof *h->model.parameters);
  return h->copies == NULL || h->readers == NULL || h->left == NULL || h->model.parameters == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
}

static bppsa_status make_held(const pipeline_plan *plan, int64_t layer, const bppsa_view *values, pipeline_held *h) {
  const bppsa_chain_layer *about = &plan->chain->layer[layer];
  void *arrays[PIPELINE_MOST_PARAMETERS], *gradients[PIPELINE_MOST_PARAMETERS];
  h->bytes = bppsa_pipeline_layer_bytes(plan, layer);
  h->predicted_from = -1;
  h->model = (bppsa_model){.dtype = plan->chain->dtype, .parameter_count = about->parameters};
  BPPSA_TRY(make_arrays(plan, h));
  if (plan->chain->device != NULL) { /* the views are copies (core/compute/model.h) */
    h->model.device = plan->chain->device;
    h->model.device_values = h->values;
    h->model.device_gradients = h->gradients;
    h->model.reals = h->bytes / (int64_t)bppsa_dtype_size(plan->chain->dtype);
  }
  bppsa_pipeline_lay_out(plan, layer, plan->chain->device != NULL ? h->copies : h->values, arrays);
  bppsa_pipeline_lay_out(plan, layer, h->gradients, gradients);
  for (int64_t i = 0; i < about->parameters; ++i) {
    h->model.parameters[i] = plan->chain->parameters[about->first_parameter + i];
    h->model.parameters[i].value.data = arrays[i];
    h->model.parameters[i].gradient.data = plan->chain->device != NULL ? NULL : gradients[i];
    memcpy(arrays[i], values[about->first_parameter + i].data, bppsa_view_bytes(&h->model.parameters[i].value));
  }
  BPPSA_TRY(about->parameters > 0 ? bppsa_model_push(&h->model) : BPPSA_OK);
  return about->parameters == 0 ? BPPSA_OK : bppsa_optimizer_create(&plan->config.optimizer, &h->model, &h->optimizer);
}

static bppsa_status make_all_held(pipeline_weights *w, const bppsa_view *values) {
  const pipeline_plan *plan = w->plan;
  const int64_t cells = plan->list->replicas * plan->layers;
  w->held = bppsa_calloc(cells, sizeof *w->held);
  if (w->held == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t cell = 0; cell < cells; ++cell) {
    if (plan->holder[cell] < 0 || !pipeline_is_here(plan, plan->holder[cell])) {
      continue;
    }
    w->held[cell] = bppsa_calloc(1, sizeof **w->held);
    if (w->held[cell] == NULL) {
      return BPPSA_ERR_MEMORY;
    }
    BPPSA_TRY(make_held(plan, cell % plan->layers, values, w->held[cell]));
  }
  for (int64_t id = 0; id < plan->list->count; ++id) {
    const bppsa_schedule_op *op = &plan->list->ops[id];
    for (int64_t layer = op->layer; op->kind <= BPPSA_KIND_RECOMPUTE && layer < op->layer + op->layers; ++layer) {
      pipeline_held *h = held_of(w, op->replica, layer);
      if (h != NULL && op->weight_version >= 0 && op->weight_version <= plan->updates) {
        h->readers[op->weight_version]++;
      }
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_pipeline_weights_create(pipeline_weights *w, const bppsa_view *values) {
  BPPSA_TRY(bppsa_device_create("cpu", 1, &w->device));
  w->norms = bppsa_calloc(w->plan->updates * w->plan->layers + 1, sizeof *w->norms);
  w->norm = bppsa_calloc(w->plan->updates + 1, sizeof *w->norm);
  BPPSA_TRY(w->norms != NULL && w->norm != NULL ? make_all_held(w, values) : BPPSA_ERR_MEMORY);
  return bppsa_pipeline_sums_create(w->plan, &w->sums);
}

static void destroy_held(const bppsa_device *device, pipeline_held *h) {
  for (int64_t i = 0; i < h->kept_count; ++i) {
    bppsa_memory_free(device, h->kept[i].values);
  }
  bppsa_optimizer_destroy(h->optimizer);
  bppsa_memory_free(device, h->values);
  bppsa_memory_free(device, h->gradients);
  bppsa_memory_free(device, h->predicted);
  void *const blocks[] = {h->copies, h->readers, h->left, h->kept, h->model.parameters, h};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
    bppsa_free(blocks[i]);
  }
}

void bppsa_pipeline_weights_destroy(pipeline_weights *w) {
  bppsa_pipeline_sums_destroy(w->plan, w->sums);
  for (int64_t cell = 0; w->held != NULL && cell < w->plan->list->replicas * w->plan->layers; ++cell) {
    if (w->held[cell] != NULL) {
      destroy_held(w->plan->chain->device, w->held[cell]);
    }
  }
  bppsa_device_destroy(w->device);
  bppsa_free((void *)w->held);
  bppsa_free(w->norms);
  bppsa_free(w->norm);
}

/* ---- versions ---- */

void bppsa_pipeline_weights_begin(pipeline_weights *w, const bppsa_pipeline_data *data) {
  const pipeline_plan *plan = w->plan;
  w->data = data;
  memset(w->norms, 0, (size_t)(plan->updates * plan->layers) * sizeof *w->norms);
  for (int64_t cell = 0; cell < plan->list->replicas * plan->layers; ++cell) {
    pipeline_held *h = w->held[cell];
    if (h != NULL) {
      memcpy(h->left, h->readers, (size_t)(plan->updates + 1) * sizeof *h->left);
    }
  }
  bppsa_pipeline_sums_begin(plan, w->sums);
}

/* Updates since the run began. */
static int64_t updates_of(const pipeline_weights *w, const pipeline_held *h) {
  return h->updates - w->before;
}

static bppsa_status missing(const pipeline_plan *plan, int64_t id, int64_t layer, int64_t version, int64_t now) {
  return bppsa_fail(BPPSA_ERR_ARGUMENT,
                    "schedule %s: operation %" PRId64 ": weights of layer %s after %" PRId64 " updates, expected after %" PRId64,
                    plan->list->scheme->id, id, plan->chain->layer[layer].name, now, version);
}

/* Finds the copy of a version, or with version -1 a free one; NULL: there is none. */
static pipeline_version *find_kept(pipeline_held *h, int64_t version) {
  for (int64_t i = 0; i < h->kept_count; ++i) {
    if (h->kept[i].version == version) {
      return &h->kept[i];
    }
  }
  return NULL;
}

/* The learning rate of the update that comes next for this layer. */
static double rate_of(const pipeline_weights *w, const pipeline_held *h) {
  return w->data->rate != NULL ? w->data->rate(w->data->context, h->updates) : w->plan->config.optimizer.lr;
}

/* Predicts the weights `ahead` updates from now, unless `predicted` holds them. */
static bppsa_status predict(pipeline_weights *w, int64_t id, int64_t layer, int64_t ahead) {
  pipeline_held *h = held_of(w, w->plan->list->ops[id].replica, layer);
  if (h->predicted_from == h->updates && h->predicted_ahead == ahead) {
    return BPPSA_OK;
  }
  void *places[PIPELINE_MOST_PARAMETERS];
  bppsa_optimizer_config optimizer = w->plan->config.optimizer;
  optimizer.lr = rate_of(w, h);
  bppsa_pipeline_lay_out(w->plan, layer, h->predicted, places);
  BPPSA_TRY(bppsa_pipeline_settle(w->streams)); /* passes may read the former prediction */
  BPPSA_TRY(bppsa_pipeline_predict(&h->model, h->optimizer, &optimizer, ahead, places));
  BPPSA_TRY(bppsa_pipeline_after_here(w->streams, id));
  h->predicted_from = h->updates;
  h->predicted_ahead = ahead;
  h->predicted_made = h->made;
  return BPPSA_OK;
}

bppsa_status bppsa_pipeline_weights(pipeline_weights *w, int64_t id, int64_t layer, bppsa_pipeline_event *event,
                                    void *arrays[PIPELINE_MOST_PARAMETERS]) {
  const bppsa_schedule_op *op = &w->plan->list->ops[id];
  pipeline_held *h = held_of(w, op->replica, layer);
  if (h->model.parameter_count == 0) {
    return BPPSA_OK;
  }
  const int64_t now = updates_of(w, h), version = op->weight_version, ahead = version > now ? version - now : 0;
  pipeline_version found = {.version = version, .updates = h->made, .values = h->values};
  if (version < now) {
    const pipeline_version *kept = find_kept(h, version);
    if (kept == NULL) {
      return missing(w->plan, id, layer, version, now);
    }
    found = *kept;
  } else if (ahead > 0 && w->plan->list->scheme->weights != BPPSA_WEIGHTS_PREDICTED) {
    return missing(w->plan, id, layer, version, now);
  } else if (ahead > 0) {
    BPPSA_TRY(predict(w, id, layer, ahead));
    found.updates = h->predicted_made;
    found.values = h->predicted;
  }
  event->version = found.updates + ahead;
  event->ahead = ahead;
  if (event->version != version + w->before) { /* these weights have another version than the list says */
    return missing(w->plan, id, layer, version, event->version - w->before);
  }
  bppsa_pipeline_lay_out(w->plan, layer, found.values, arrays);
  return BPPSA_OK;
}

void bppsa_pipeline_weights_read(pipeline_weights *w, int64_t id, int64_t layer) {
  const bppsa_schedule_op *op = &w->plan->list->ops[id];
  pipeline_held *h = held_of(w, op->replica, layer);
  if (op->weight_version < 0 || op->weight_version > w->plan->updates || --h->left[op->weight_version] > 0) {
    return;
  }
  pipeline_version *kept = find_kept(h, op->weight_version);
  if (kept != NULL) {
    kept->version = -1;
    h->kept_used--;
  }
}

/* Makes one more copy. */
static bppsa_status add_copy(const pipeline_weights *w, pipeline_held *h, pipeline_version **made) {
  pipeline_version *grown = bppsa_realloc(h->kept, (size_t)(h->kept_count + 1) * sizeof *grown);
  if (grown == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  h->kept = grown;
  pipeline_version added = {.version = -1};
  BPPSA_TRY(bppsa_pipeline_make_array(w->plan, h->bytes, &added.values));
  *made = &h->kept[h->kept_count++];
  **made = added;
  return BPPSA_OK;
}

/* Keeps a copy of the present weights if an operation still reads them after the update. */
static bppsa_status keep(const pipeline_weights *w, pipeline_held *h) {
  const bppsa_schedule_weights weights = w->plan->list->scheme->weights;
  const int64_t now = updates_of(w, h);
  if (h->left[now] == 0 || weights == BPPSA_WEIGHTS_PREDICTED || h->bytes == 0) {
    return BPPSA_OK;
  }
  pipeline_version *copy = find_kept(h, -1);
  BPPSA_TRY(copy == NULL ? add_copy(w, h, &copy) : BPPSA_OK);
  BPPSA_TRY(bppsa_memory_queue_copy(w->plan->chain->device, copy->values, h->bytes, h->values, h->bytes, h->bytes, 1));
  copy->version = now;
  copy->updates = h->made;
  h->kept_used++;
  h->kept_most = h->kept_used > h->kept_most ? h->kept_used : h->kept_most;
  return BPPSA_OK;
}

/* ---- updates ---- */

/* Takes the sum as the layer's gradients, and updates its weights; *norm: the gradients' norm (NULL: not wanted). Where it is not
 * finite, a GPU makes no update; this ends the run. */
static bppsa_status update(const pipeline_weights *w, pipeline_held *h, const pipeline_sum *sum, double *norm) {
  double found = 0;
  BPPSA_TRY(bppsa_memory_queue_copy(w->plan->chain->device, h->gradients, h->bytes, sum->result, h->bytes, h->bytes, 1));
  bppsa_optimizer_set_lr(h->optimizer, rate_of(w, h));
  if (w->plan->chain->device != NULL) {
    BPPSA_TRY(bppsa_optimizer_update(h->optimizer, w->device, 0, &found));
  } else {
    found = norm != NULL ? bppsa_gradient_norm(&h->model, w->device) : 0;
    bppsa_optimizer_step(h->optimizer, w->device);
  }
  h->made++;
  if (norm != NULL) {
    *norm = found;
  }
  return BPPSA_OK;
}

/* Compares the version of the present weights with the one that operation `id`, a STEP, finds (`before`) or makes. */
static bppsa_status check_made(const pipeline_weights *w, int64_t id, int64_t layer, const pipeline_held *h, bool before) {
  const int64_t updates = h->optimizer != NULL ? h->made : h->updates, found = updates - w->before;
  const int64_t expected = w->plan->list->ops[id].weight_version - before;
  if (found == expected) {
    return BPPSA_OK;
  }
  return bppsa_fail(BPPSA_ERR_ARGUMENT,
                    "schedule %s: operation %" PRId64 ": STEP %s version %" PRId64 " of layer %s, expected version %" PRId64,
                    w->plan->list->scheme->id, id, before ? "begins with" : "makes", found, w->plan->chain->layer[layer].name,
                    expected);
}

bppsa_status bppsa_pipeline_step(pipeline_weights *w, int64_t id, int64_t layer, bppsa_pipeline_event *event, bool *done) {
  const int32_t replica = w->plan->list->ops[id].replica;
  pipeline_held *h = held_of(w, replica, layer);
  BPPSA_TRY(bppsa_pipeline_sum_go(w->plan, &w->sums[layer], updates_of(w, h), done));
  if (!*done) {
    return BPPSA_OK;
  }
  BPPSA_TRY(check_made(w, id, layer, h, true));
  BPPSA_TRY(keep(w, h));
  if (h->optimizer != NULL) {
    double *norm = &w->norms[updates_of(w, h) * w->plan->layers + layer];
    BPPSA_TRY(update(w, h, &w->sums[layer], replica == 0 ? norm : NULL));
  }
  h->updates++;
  event->version = h->optimizer != NULL ? h->made : event->version;
  return check_made(w, id, layer, h, false);
}

int64_t bppsa_pipeline_update_of(const pipeline_weights *w, int64_t replica, int64_t layer) {
  return updates_of(w, held_of(w, replica, layer));
}

/* The norm of each update's gradients, from those of the layers, each of which one rank knows. They are scaled by the largest,
 * because their squares may overflow. */
static bppsa_status share_norms(const pipeline_weights *w) {
  const int64_t updates = w->plan->updates, layers = w->plan->layers;
  BPPSA_TRY(bppsa_ranks_reduce(w->plan->comm, BPPSA_COMM_SUM, BPPSA_F64, updates * layers, w->norms));
  for (int64_t update = 0; update < updates; ++update) {
    const double *norms = &w->norms[update * layers];
    double largest = 0, squares = 0;
    for (int64_t layer = 0; layer < layers; ++layer) {
      largest = norms[layer] > largest || isnan(norms[layer]) ? norms[layer] : largest;
    }
    const bool scaled = largest > 0 && isfinite(largest);
    for (int64_t layer = 0; scaled && layer < layers; ++layer) {
      squares += norms[layer] / largest * (norms[layer] / largest);
    }
    w->norm[update] = scaled ? largest * sqrt(squares) : largest;
  }
  return BPPSA_OK;
}

bppsa_status bppsa_pipeline_weights_end(pipeline_weights *w) {
  w->before += w->plan->updates;
  return share_norms(w);
}
