/* The executor's weights: versions, sums of gradients over micro-batches and replicas, updates. */
#include <inttypes.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/memory.h"
#include "distributed/pipeline/pipeline_internal.h"

static int64_t padded(const bppsa_view *view) {
  return ((int64_t)bppsa_view_bytes(view) + BPPSA_ALIGNMENT - 1) / BPPSA_ALIGNMENT * BPPSA_ALIGNMENT;
}

static const bppsa_parameter *parameter_of(const bppsa_pipeline *p, int64_t layer, int64_t i) {
  return &p->chain->parameters[p->chain->layer[layer].first_parameter + i];
}

/* Bytes of a layer's parameters, one behind the other. */
static int64_t layer_bytes(const bppsa_pipeline *p, int64_t layer) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < p->chain->layer[layer].parameters; ++i) {
    bytes += padded(&parameter_of(p, layer, i)->value);
  }
  return bytes;
}

static void place_arrays(const bppsa_pipeline *p, int64_t layer, void *memory, void *arrays[PIPELINE_MOST_PARAMETERS]) {
  char *at = memory;
  for (int64_t i = 0; i < p->chain->layer[layer].parameters; ++i) {
    arrays[i] = at;
    at += padded(&parameter_of(p, layer, i)->value);
  }
}

static pipeline_held *held_of(const bppsa_pipeline *p, int64_t replica, int64_t layer) {
  return p->held[replica * p->layers + layer];
}

/* ---- creation ---- */

/* Zeroed memory where the chain computes. */
static bppsa_status make_array(const bppsa_pipeline *p, int64_t bytes, void **array) {
  BPPSA_TRY(bppsa_memory_alloc(p->chain->device, bytes + 1, array));
  return bppsa_memory_clear(p->chain->device, *array, bytes + 1);
}

static bppsa_status make_arrays(const bppsa_pipeline *p, pipeline_held *h) {
  const bool predicts = p->list->scheme->weights == BPPSA_WEIGHTS_PREDICTED, gpu = p->chain->device != NULL;
  BPPSA_TRY(make_array(p, h->bytes, &h->values));
  BPPSA_TRY(make_array(p, h->bytes, &h->gradients));
  BPPSA_TRY(make_array(p, predicts ? h->bytes : 0, &h->predicted));
  h->copies = bppsa_calloc(gpu ? h->bytes + 1 : 1, 1);
  h->readers = bppsa_calloc(p->updates + 1, sizeof *h->readers);
  h->left = bppsa_calloc(p->updates + 1, sizeof *h->left);
  h->model.parameters = bppsa_calloc(h->model.parameter_count + 1, sizeof *h->model.parameters);
  return h->copies == NULL || h->readers == NULL || h->left == NULL || h->model.parameters == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
}

static bppsa_status make_held(bppsa_pipeline *p, int64_t layer, const bppsa_view *values, pipeline_held *h) {
  const bppsa_chain_layer *about = &p->chain->layer[layer];
  void *arrays[PIPELINE_MOST_PARAMETERS], *gradients[PIPELINE_MOST_PARAMETERS];
  h->bytes = layer_bytes(p, layer);
  h->predicted_from = -1;
  h->model = (bppsa_model){.dtype = p->chain->dtype, .parameter_count = about->parameters};
  BPPSA_TRY(make_arrays(p, h));
  if (p->chain->device != NULL) { /* the views are copies (core/compute/model.h) */
    h->model.device = p->chain->device;
    h->model.device_values = h->values;
    h->model.device_gradients = h->gradients;
    h->model.reals = h->bytes / (int64_t)bppsa_dtype_size(p->chain->dtype);
  }
  place_arrays(p, layer, p->chain->device != NULL ? h->copies : h->values, arrays);
  place_arrays(p, layer, h->gradients, gradients);
  for (int64_t i = 0; i < about->parameters; ++i) {
    h->model.parameters[i] = *parameter_of(p, layer, i);
    h->model.parameters[i].value.data = arrays[i];
    h->model.parameters[i].gradient.data = p->chain->device != NULL ? NULL : gradients[i];
    memcpy(arrays[i], values[about->first_parameter + i].data, bppsa_view_bytes(&h->model.parameters[i].value));
  }
  BPPSA_TRY(about->parameters > 0 ? bppsa_model_push(&h->model) : BPPSA_OK);
  return about->parameters == 0 ? BPPSA_OK : bppsa_optimizer_create(&p->config.optimizer, &h->model, &h->optimizer);
}

static bppsa_status make_all_held(bppsa_pipeline *p, const bppsa_view *values) {
  const int64_t cells = p->list->replicas * p->layers;
  p->held = bppsa_calloc(cells, sizeof *p->held);
  if (p->held == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t cell = 0; cell < cells; ++cell) {
    if (p->holder[cell] < 0 || pipeline_rank_of(p, p->holder[cell]) != p->rank) {
      continue;
    }
    p->held[cell] = bppsa_calloc(1, sizeof **p->held);
    if (p->held[cell] == NULL) {
      return BPPSA_ERR_MEMORY;
    }
    BPPSA_TRY(make_held(p, cell % p->layers, values, p->held[cell]));
  }
  for (int64_t id = 0; id < p->list->count; ++id) {
    const bppsa_schedule_op *op = &p->list->ops[id];
    for (int64_t layer = op->layer; op->kind <= BPPSA_KIND_RECOMPUTE && layer < op->layer + op->layers; ++layer) {
      pipeline_held *h = held_of(p, op->replica, layer);
      if (h != NULL && op->weight_version >= 0 && op->weight_version <= p->updates) {
        h->readers[op->weight_version]++;
      }
    }
  }
  return BPPSA_OK;
}

/* The ranks that hold a layer: *member says whether this one does, and *ranks how many. mark: size p->ranks. */
static void find_group(const bppsa_pipeline *p, int64_t layer, bool *mark, int64_t *ranks) {
  memset(mark, 0, (size_t)p->ranks * sizeof *mark);
  *ranks = 0;
  for (int64_t replica = 0; replica < p->list->replicas; ++replica) {
    const int32_t worker = p->holder[replica * p->layers + layer];
    if (worker >= 0 && !mark[pipeline_rank_of(p, worker)]) {
      mark[pipeline_rank_of(p, worker)] = true;
      ++*ranks;
    }
  }
}

/* Splits a communicator for every layer that several ranks hold: sums of different layers end in any order, and the collective
 * operations of one communicator must come in the same order on all of its ranks. marks: [layers][ranks]. */
static bppsa_status make_groups(bppsa_pipeline *p, bool *marks) {
  for (int64_t layer = 0; layer < p->layers; ++layer) {
    bool *mark = &marks[layer * p->ranks];
    int64_t ranks;
    find_group(p, layer, mark, &ranks);
    if (ranks > 1 && p->chain->layer[layer].parameters > 0) {
      bppsa_comm *host = bppsa_comm_get_host(p->comm); /* communicators of NCCL may not go on side by side */
      BPPSA_TRY(bppsa_comm_split(host, mark[p->rank] ? 0 : -1, (int32_t)p->rank, &p->sums[layer].comm));
    }
  }
  return BPPSA_OK;
}

/* The rank, in the layer's group, of the worker that computes a micro-batch's gradient. */
static int32_t rank_in_group(const bppsa_pipeline *p, const bool *mark, int64_t worker) {
  int32_t place = 0;
  for (int64_t rank = 0; rank < pipeline_rank_of(p, worker); ++rank) {
    place += mark[rank];
  }
  return place;
}

/* Notes that the operation's worker computes a micro-batch's gradient. */
static bppsa_status own_block(const bppsa_pipeline *p, const bppsa_schedule_op *op, const bppsa_pipeline_micro *micro,
                              const bool *marks, int64_t blocks, int32_t *owners) {
  for (int64_t layer = op->layer; layer < op->layer + op->layers; ++layer) {
    const int32_t found = rank_in_group(p, &marks[layer * p->ranks], op->worker);
    int32_t *owner = micro->blocks == blocks ? &owners[layer * blocks + micro->block] : NULL;
    if (owner == NULL || (*owner >= 0 && *owner != found)) {
      return bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                        "schedule %s: update %" PRId64
                        " of layer %s adds up other micro-batches than the first, expected the same in every update",
                        p->list->scheme->id, micro->update, p->chain->layer[layer].name);
    }
    *owner = found;
  }
  return BPPSA_OK;
}

/* Fills in who computes each block of every layer's updates, the same in all updates. owners: [layers][blocks] */
static bppsa_status find_owners(const bppsa_pipeline *p, const bool *marks, int64_t blocks, int32_t *owners) {
  memset(owners, 0xff, (size_t)(p->layers * blocks) * sizeof *owners); /* -1 */
  for (int64_t id = 0; id < p->list->count; ++id) {
    const bppsa_schedule_op *op = &p->list->ops[id];
    const bool makes = op->kind == BPPSA_KIND_W || op->kind == BPPSA_KIND_B;
    const pipeline_span span = pipeline_span_of(p, op);
    for (int64_t micro = span.first; makes && micro < span.end; ++micro) {
      BPPSA_TRY(own_block(p, op, &p->micro[micro], marks, blocks, owners));
    }
  }
  return BPPSA_OK;
}

/* Micro-batches of an update. */
static int64_t blocks_of(const bppsa_pipeline *p) {
  for (int64_t m = 0; m < p->micros; ++m) {
    if (p->micro[m].block == 0) {
      return p->micro[m].blocks;
    }
  }
  return 1;
}

/* mark: the ranks that hold the layer; owners: of its blocks. */
static bppsa_status make_sum(bppsa_pipeline *p, int64_t layer, const bool *mark, int64_t blocks, const int32_t *owners) {
  pipeline_sum *sum = &p->sums[layer];
  const int64_t bytes = layer_bytes(p, layer);
  const int32_t me = rank_in_group(p, mark, p->rank);
  for (int64_t b = 0; b < blocks; ++b) {
    sum->mine += owners[b] == me;
  }
  sum->count = bytes / (int64_t)bppsa_dtype_size(p->chain->dtype);
  BPPSA_TRY(make_array(p, bytes, &sum->part));
  BPPSA_TRY(make_array(p, bytes, &sum->result));
  BPPSA_TRY(bppsa_ordered_sum_create(sum->comm, blocks, sum->comm == NULL ? NULL : owners, p->chain->dtype, sum->count,
                                     p->config.tag + (int32_t)layer, &sum->sum));
  bppsa_ordered_sum_set_device(sum->sum, p->chain->device);
  return BPPSA_OK;
}

static bppsa_status make_sums(bppsa_pipeline *p, const bool *marks) {
  const int64_t blocks = blocks_of(p);
  int32_t *owners = bppsa_calloc(p->layers * blocks, sizeof *owners);
  bppsa_status status = owners == NULL ? BPPSA_ERR_MEMORY : find_owners(p, marks, blocks, owners);
  for (int64_t layer = 0; layer < p->layers && status == BPPSA_OK; ++layer) {
    const bool *mark = &marks[layer * p->ranks];
    if (mark[p->rank] && p->chain->layer[layer].parameters > 0) {
      status = make_sum(p, layer, mark, blocks, &owners[layer * blocks]);
    }
  }
  bppsa_free(owners);
  return status;
}

bppsa_status bppsa_pipeline_weights_create(bppsa_pipeline *p, const bppsa_view *values) {
  BPPSA_TRY(make_all_held(p, values));
  p->sums = bppsa_calloc(p->layers, sizeof *p->sums);
  bool *marks = bppsa_calloc(p->layers * p->ranks, sizeof *marks);
  bppsa_status status = p->sums == NULL || marks == NULL ? BPPSA_ERR_MEMORY : make_groups(p, marks);
  status = status == BPPSA_OK ? make_sums(p, marks) : status;
  bppsa_free(marks);
  return status;
}

static void destroy_held(const bppsa_pipeline *p, pipeline_held *h) {
  for (int64_t i = 0; i < h->kept_count; ++i) {
    bppsa_memory_free(p->chain->device, h->kept[i].values);
  }
  bppsa_optimizer_destroy(h->optimizer);
  bppsa_memory_free(p->chain->device, h->values);
  bppsa_memory_free(p->chain->device, h->gradients);
  bppsa_memory_free(p->chain->device, h->predicted);
  void *const blocks[] = {h->copies, h->readers, h->left, h->kept, h->model.parameters, h};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
    bppsa_free(blocks[i]);
  }
}

void bppsa_pipeline_weights_destroy(bppsa_pipeline *p) {
  for (int64_t layer = 0; p->sums != NULL && layer < p->layers; ++layer) {
    bppsa_comm_cancel(1, &p->sums[layer].request);
    bppsa_ordered_sum_destroy(p->sums[layer].sum);
    bppsa_comm_destroy(p->sums[layer].comm);
    bppsa_pipeline_pool_free(&p->sums[layer].parts);
    bppsa_memory_free(p->chain->device, p->sums[layer].part);
    bppsa_memory_free(p->chain->device, p->sums[layer].result);
  }
  for (int64_t cell = 0; p->held != NULL && cell < p->list->replicas * p->layers; ++cell) {
    if (p->held[cell] != NULL) {
      destroy_held(p, p->held[cell]);
    }
  }
  bppsa_free(p->sums);
  bppsa_free((void *)p->held);
}

/* ---- versions ---- */

void bppsa_pipeline_weights_begin(bppsa_pipeline *p) {
  for (int64_t cell = 0; cell < p->list->replicas * p->layers; ++cell) {
    pipeline_held *h = p->held[cell];
    if (h != NULL) {
      memcpy(h->left, h->readers, (size_t)(p->updates + 1) * sizeof *h->left);
    }
  }
  for (int64_t layer = 0; layer < p->layers; ++layer) {
    p->sums[layer].finished = 0;
  }
}

/* Updates since the run began. */
static int64_t updates_of(const bppsa_pipeline *p, const pipeline_held *h) {
  return h->updates - p->runs * p->updates;
}

static bppsa_status missing(const bppsa_pipeline *p, int64_t id, int64_t layer, int64_t version, int64_t now) {
  return bppsa_fail(BPPSA_ERR_ARGUMENT,
                    "schedule %s: operation %" PRId64 ": weights of layer %s after %" PRId64 " updates, expected after %" PRId64,
                    p->list->scheme->id, id, p->chain->layer[layer].name, now, version);
}

/* -1: a copy that is free. */
static pipeline_version *find_kept(pipeline_held *h, int64_t version) {
  for (int64_t i = 0; i < h->kept_count; ++i) {
    if (h->kept[i].version == version) {
      return &h->kept[i];
    }
  }
  return NULL;
}

/* Predicts the weights `ahead` updates from now, unless `predicted` holds them. */
static bppsa_status predict(bppsa_pipeline *p, int64_t id, int64_t layer, int64_t ahead) {
  pipeline_held *h = held_of(p, p->list->ops[id].replica, layer);
  if (h->predicted_from == h->updates && h->predicted_ahead == ahead) {
    return BPPSA_OK;
  }
  void *places[PIPELINE_MOST_PARAMETERS];
  bppsa_optimizer_config optimizer = p->config.optimizer;
  optimizer.lr = bppsa_pipeline_rate(p, h);
  place_arrays(p, layer, h->predicted, places);
  BPPSA_TRY(bppsa_pipeline_settle(p)); /* passes may read the former prediction */
  BPPSA_TRY(bppsa_pipeline_predict(&h->model, h->optimizer, &optimizer, ahead, places));
  BPPSA_TRY(bppsa_pipeline_after_here(p, id));
  h->predicted_from = h->updates;
  h->predicted_ahead = ahead;
  h->predicted_made = h->made;
  return BPPSA_OK;
}

bppsa_status bppsa_pipeline_weights(bppsa_pipeline *p, int64_t id, int64_t layer, void *arrays[PIPELINE_MOST_PARAMETERS]) {
  const bppsa_schedule_op *op = &p->list->ops[id];
  pipeline_held *h = held_of(p, op->replica, layer);
  if (h->model.parameter_count == 0) {
    return BPPSA_OK;
  }
  const int64_t now = updates_of(p, h), version = op->weight_version, ahead = version > now ? version - now : 0;
  pipeline_version found = {.version = version, .updates = h->made, .values = h->values};
  if (version < now) {
    const pipeline_version *kept = find_kept(h, version);
    if (kept == NULL) {
      return missing(p, id, layer, version, now);
    }
    found = *kept;
  } else if (ahead > 0 && p->list->scheme->weights != BPPSA_WEIGHTS_PREDICTED) {
    return missing(p, id, layer, version, now);
  } else if (ahead > 0) {
    BPPSA_TRY(predict(p, id, layer, ahead));
    found.updates = h->predicted_made;
    found.values = h->predicted;
  }
  p->events[id].version = found.updates + ahead;
  p->events[id].ahead = ahead;
  if (p->events[id].version != version + p->runs * p->updates) { /* the tag of what is handed out is not the list's */
    return missing(p, id, layer, version, p->events[id].version - p->runs * p->updates);
  }
  place_arrays(p, layer, found.values, arrays);
  return BPPSA_OK;
}

void bppsa_pipeline_weights_read(bppsa_pipeline *p, int64_t id, int64_t layer) {
  const bppsa_schedule_op *op = &p->list->ops[id];
  pipeline_held *h = held_of(p, op->replica, layer);
  if (op->weight_version < 0 || op->weight_version > p->updates || --h->left[op->weight_version] > 0) {
    return;
  }
  pipeline_version *kept = find_kept(h, op->weight_version);
  if (kept != NULL) {
    kept->version = -1;
    h->kept_used--;
  }
}

/* Makes room for one more copy. */
static bppsa_status add_copy(const bppsa_pipeline *p, pipeline_held *h, pipeline_version **made) {
  pipeline_version *grown = bppsa_realloc(h->kept, (size_t)(h->kept_count + 1) * sizeof *grown);
  if (grown == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  h->kept = grown;
  pipeline_version added = {.version = -1};
  BPPSA_TRY(make_array(p, h->bytes, &added.values));
  *made = &h->kept[h->kept_count++];
  **made = added;
  return BPPSA_OK;
}

/* Keeps a copy of the present weights if an operation behind the update reads them. */
static bppsa_status keep(const bppsa_pipeline *p, pipeline_held *h) {
  const bppsa_schedule_weights weights = p->list->scheme->weights;
  const int64_t now = updates_of(p, h);
  if (h->left[now] == 0 || weights == BPPSA_WEIGHTS_PREDICTED || h->bytes == 0) {
    return BPPSA_OK;
  }
  pipeline_version *copy = find_kept(h, -1);
  BPPSA_TRY(copy == NULL ? add_copy(p, h, &copy) : BPPSA_OK);
  BPPSA_TRY(bppsa_memory_queue_copy(p->chain->device, copy->values, h->bytes, h->values, h->bytes, h->bytes, 1));
  copy->version = now;
  copy->updates = h->made;
  h->kept_used++;
  h->kept_most = h->kept_used > h->kept_most ? h->kept_used : h->kept_most;
  return BPPSA_OK;
}

/* ---- sums and updates ---- */

bppsa_status bppsa_pipeline_sum_add(bppsa_pipeline *p, int64_t micro, int64_t layer, void *memory) {
  pipeline_sum *sum = &p->sums[layer];
  const bppsa_view part = pipeline_view_of(p, memory, p->chain->dtype, 1, &sum->count);
  BPPSA_TRY(bppsa_ordered_sum_add(sum->sum, p->micro[micro].block, &part));
  sum->added++;
  return BPPSA_OK;
}

void bppsa_pipeline_gradient(const bppsa_pipeline *p, int64_t layer, void *part, void *arrays[PIPELINE_MOST_PARAMETERS]) {
  place_arrays(p, layer, part, arrays);
}

bppsa_status bppsa_pipeline_sum_go(bppsa_pipeline *p, int64_t layer, int64_t update, bool *done) {
  pipeline_sum *sum = &p->sums[layer];
  *done = sum->sum == NULL || sum->finished > update;
  if (*done || (sum->state == PIPELINE_ADDING && sum->added < sum->mine)) {
    return BPPSA_OK;
  }
  bool over = true;
  if (sum->state != PIPELINE_SHARING) {
    sum->state = PIPELINE_REDUCING;
    BPPSA_TRY(bppsa_ordered_sum_reduce(sum->sum, false, &over));
    if (!over) {
      return BPPSA_OK;
    }
    const bppsa_view result = pipeline_view_of(p, sum->result, p->chain->dtype, 1, &sum->count);
    BPPSA_TRY(bppsa_ordered_sum_ibroadcast(sum->sum, &result, &sum->request));
    sum->state = PIPELINE_SHARING;
  }
  if (sum->request != NULL) {
    BPPSA_TRY(bppsa_comm_test(&sum->request, &over));
  }
  if (over) {
    sum->state = PIPELINE_ADDING;
    sum->added = 0;
    sum->finished++;
    *done = sum->finished > update;
  }
  return BPPSA_OK;
}

double bppsa_pipeline_rate(const bppsa_pipeline *p, const pipeline_held *h) {
  return p->data->rate != NULL ? p->data->rate(p->data->context, h->updates) : p->config.optimizer.lr;
}

/* Takes the sum for the layer's gradients and makes the update; *norm: theirs (NULL: not wanted). A GPU makes none where the norm
 * is not finite, which ends the run. */
static bppsa_status update(const bppsa_pipeline *p, pipeline_held *h, const pipeline_sum *sum, double *norm) {
  double found = 0;
  BPPSA_TRY(bppsa_memory_queue_copy(p->chain->device, h->gradients, h->bytes, sum->result, h->bytes, h->bytes, 1));
  bppsa_optimizer_set_lr(h->optimizer, bppsa_pipeline_rate(p, h));
  if (p->chain->device != NULL) {
    BPPSA_TRY(bppsa_optimizer_update(h->optimizer, p->device, 0, &found));
  } else {
    found = norm != NULL ? bppsa_gradient_norm(&h->model, p->device) : 0;
    bppsa_optimizer_step(h->optimizer, p->device);
  }
  h->made++;
  if (norm != NULL) {
    *norm = found;
  }
  return BPPSA_OK;
}

/* Compares the version of the present weights with the one that operation `id`, a STEP, finds (`before`) or makes. */
static bppsa_status check_made(const bppsa_pipeline *p, int64_t id, int64_t layer, const pipeline_held *h, bool before) {
  const int64_t updates = h->optimizer != NULL ? h->made : h->updates, found = updates - p->runs * p->updates;
  const int64_t expected = p->list->ops[id].weight_version - before;
  if (found == expected) {
    return BPPSA_OK;
  }
  return bppsa_fail(BPPSA_ERR_ARGUMENT,
                    "schedule %s: operation %" PRId64 ": STEP %s version %" PRId64 " of layer %s, expected version %" PRId64,
                    p->list->scheme->id, id, before ? "begins with" : "makes", found, p->chain->layer[layer].name, expected);
}

bppsa_status bppsa_pipeline_step(bppsa_pipeline *p, int64_t id, int64_t layer, bool *done) {
  const int32_t replica = p->list->ops[id].replica;
  pipeline_held *h = held_of(p, replica, layer);
  BPPSA_TRY(bppsa_pipeline_sum_go(p, layer, updates_of(p, h), done));
  if (!*done) {
    return BPPSA_OK;
  }
  BPPSA_TRY(check_made(p, id, layer, h, true));
  BPPSA_TRY(keep(p, h));
  if (h->optimizer != NULL) {
    double *norm = &p->norms[updates_of(p, h) * p->layers + layer];
    BPPSA_TRY(update(p, h, &p->sums[layer], replica == 0 ? norm : NULL));
  }
  h->updates++;
  p->events[id].version = h->optimizer != NULL ? h->made : p->events[id].version;
  return check_made(p, id, layer, h, false);
}

int64_t bppsa_pipeline_update_of(const bppsa_pipeline *p, int64_t replica, int64_t layer) {
  return updates_of(p, held_of(p, replica, layer));
}
