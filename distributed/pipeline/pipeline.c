/* The executor of schedules: what it reads from the list before it runs. */
#include "distributed/pipeline/pipeline.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/memory.h"
#include "distributed/pipeline/pipeline_internal.h"

int64_t bppsa_pipeline_parts(const bppsa_schedule *list) {
  return list->config.scale == BPPSA_SCALE_HALVING ? 2 : 1;
}

/* ---- what it can execute ---- */

static bppsa_status unsupported(const bppsa_schedule *list, const char *what) {
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "schedule %s: the executor has no %s", list->scheme->id, what);
}

static bppsa_status check_list(const bppsa_schedule *list) {
  if (list->scheme->scan) {
    return unsupported(list, "scans, expected a scheme with layers and micro-batches");
  }
  if (list->rounds != list->config.iterations) {
    return unsupported(list, "window from backward to forward, expected whole iterations");
  }
  for (int64_t id = 0; id < list->count; ++id) {
    const bppsa_schedule_op *op = &list->ops[id];
    if (op->kind == BPPSA_KIND_COLLECTIVE || op->kind == BPPSA_KIND_HALO) {
      return unsupported(list, "collectives inside layers and no exchange of borders");
    }
  }
  return bppsa_schedule_validate(list);
}

static bppsa_status check(const bppsa_pipeline_config *config, const bppsa_chain *chain, int64_t ranks) {
  const bppsa_schedule *list = config->schedule;
  if (list->config.layers != chain->layers) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "schedule %s: %" PRId64 " layers, expected the network's %" PRId64, list->scheme->id,
                      list->config.layers, chain->layers);
  }
  const int64_t parts = bppsa_pipeline_parts(list);
  if (config->samples < 1 || config->samples % parts != 0 || config->samples / parts > chain->batch) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "pipeline: micro-batches of %" PRId64 " samples, expected %s1 .. %" PRId64,
                      config->samples, parts > 1 ? "an even number in " : "", parts * chain->batch);
  }
  const int64_t most = (list->workers + ranks - 1) / ranks, tags = chain->layers + 2 * most * most;
  if (config->tag < 0 || config->tag > BPPSA_COMM_MAX_TAG || tags > BPPSA_COMM_MAX_TAG - config->tag) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "pipeline: %" PRId64 " tags from %d, expected at most %d of them; more ranks need fewer", tags, config->tag,
                      BPPSA_COMM_MAX_TAG);
  }
  for (int64_t layer = 0; layer < chain->layers; ++layer) {
    if (chain->layer[layer].parameters > PIPELINE_MOST_PARAMETERS) {
      return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "pipeline: layer %s has %" PRId64 " parameters, expected at most %d",
                        chain->layer[layer].name, chain->layer[layer].parameters, PIPELINE_MOST_PARAMETERS);
    }
  }
  return check_list(list);
}

/* ---- what the list says ---- */

/* Finds the update that a micro-batch's gradients go into, and its number among that update's micro-batches. */
static bppsa_status find_updates(bppsa_pipeline *p) {
  const bppsa_schedule *list = p->list;
  int64_t *steps = bppsa_calloc(list->replicas * p->layers, sizeof *steps), *count = NULL;
  if (steps == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t id = 0; id < list->count; ++id) {
    const bppsa_schedule_op *op = &list->ops[id];
    for (int64_t layer = op->layer; layer < op->layer + op->layers; ++layer) {
      int64_t *step = &steps[op->replica * p->layers + layer];
      if (op->kind == BPPSA_KIND_STEP) {
        p->updates = ++*step > p->updates ? *step : p->updates;
      } else if (op->kind == BPPSA_KIND_W || op->kind == BPPSA_KIND_B) {
        const pipeline_span span = pipeline_span_of(p, op);
        for (int64_t m = span.first; m < span.end; ++m) {
          p->micro[m].update = *step;
          p->micro[m].blocks = 1; /* it is used */
        }
      }
    }
  }
  bppsa_free(steps);
  count = bppsa_calloc(p->updates + 1, sizeof *count);
  if (count == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t m = 0; m < p->micros; ++m) {
    p->micro[m].block = p->micro[m].blocks > 0 ? count[p->micro[m].update]++ : -1;
  }
  for (int64_t m = 0; m < p->micros; ++m) {
    p->micro[m].blocks = count[p->micro[m].update];
  }
  bppsa_free(count);
  return BPPSA_OK;
}

static void find_holders(bppsa_pipeline *p) {
  memset(p->holder, 0xff, (size_t)(p->list->replicas * p->layers) * sizeof *p->holder); /* -1 */
  for (int64_t i = 0; i < p->list->stages; ++i) {
    p->first_layer[i] = p->layers;
  }
  for (int64_t id = 0; id < p->list->count; ++id) {
    const bppsa_schedule_op *op = &p->list->ops[id];
    if (op->kind != BPPSA_KIND_F && op->kind != BPPSA_KIND_STEP) { /* a pipeline without micro-batches has STEP alone */
      continue;
    }
    p->first_layer[op->stage] = op->layer < p->first_layer[op->stage] ? op->layer : p->first_layer[op->stage];
    for (int64_t layer = op->layer; layer < op->layer + op->layers; ++layer) {
      p->holder[op->replica * p->layers + layer] = op->worker;
    }
  }
}

/* Pairs SEND and RECV, which share a group, and finds what they carry. */
static bppsa_status find_transfers(bppsa_pipeline *p) {
  const bppsa_schedule *list = p->list;
  int32_t *first = bppsa_alloc((size_t)(list->groups + 1) * sizeof *first);
  if (first == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  memset(first, 0xff, (size_t)(list->groups + 1) * sizeof *first); /* -1 */
  for (int32_t id = 0; id < list->count; ++id) {
    const bppsa_schedule_op *op = &list->ops[id];
    if (op->kind != BPPSA_KIND_SEND && op->kind != BPPSA_KIND_RECV) {
      continue;
    }
    const pipeline_span span = pipeline_span_of(p, op);
    p->most_micros = span.end - span.first > p->most_micros ? span.end - span.first : p->most_micros;
    if (first[op->group] < 0) {
      first[op->group] = id;
      continue;
    }
    const int32_t send = op->kind == BPPSA_KIND_SEND ? id : first[op->group],
                  recv = op->kind == BPPSA_KIND_SEND ? first[op->group] : id;
    const bppsa_schedule_op *from = &list->ops[list->deps[list->ops[send].deps]];
    const bool gradients = from->kind != BPPSA_KIND_F;
    p->transfers[send] = (pipeline_transfer){recv, gradients};
    p->transfers[recv] = (pipeline_transfer){send, gradients};
  }
  bppsa_free(first);
  return BPPSA_OK;
}

/* NCCL runs the messages of a rank one after the other, in the order in which they begin, and a message ends when both ranks have
 * come to it. The list is in an order in which it can run (schedule/connect.c). So every rank begins its messages in the order of
 * the list, whichever of its workers sends or receives them: then the first message that is not over can always go on. */
static bppsa_status find_turns(bppsa_pipeline *p) {
  int64_t turns = 0;
  if (bppsa_comm_get_transport(p->comm) != BPPSA_COMM_NCCL) {
    return BPPSA_OK;
  }
  p->turn = bppsa_alloc((size_t)p->list->count * sizeof *p->turn);
  if (p->turn == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  memset(p->turn, 0xff, (size_t)p->list->count * sizeof *p->turn); /* -1 */
  for (int64_t id = 0; id < p->list->count; ++id) {
    const bppsa_schedule_op *op = &p->list->ops[id];
    if (op->kind != BPPSA_KIND_SEND) {
      continue;
    }
    const int32_t recv = p->transfers[id].other;
    const int64_t from = pipeline_rank_of(p, op->worker), to = pipeline_rank_of(p, p->list->ops[recv].worker);
    if (from != to && (from == p->rank || to == p->rank)) {
      p->turn[id] = p->turn[recv] = turns++;
    }
  }
  return BPPSA_OK;
}

/* ---- workers ---- */

static bppsa_status make_worker(bppsa_pipeline *p, int64_t worker, pipeline_worker *w) {
  const bppsa_schedule *list = p->list;
  int64_t counts[BPPSA_LANE_COUNT] = {0}, all = 0;
  w->worker = worker;
  for (int64_t id = 0; id < list->count; ++id) {
    counts[list->ops[id].lane] += list->ops[id].worker == worker;
    all += list->ops[id].worker == worker;
  }
  w->ops = bppsa_alloc((size_t)(all + 1) * sizeof *w->ops);
  w->slots = bppsa_calloc(PIPELINE_ARRAYS * p->micros * (p->layers + 1), sizeof *w->slots);
  w->requests = bppsa_calloc(2 * (p->most_micros + 1), sizeof *w->requests);
  if (w->ops == NULL || w->slots == NULL || w->requests == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  int32_t *at = w->ops;
  for (int lane = 0; lane < BPPSA_LANE_COUNT; ++lane) {
    w->lanes[lane].ops = at;
    at += counts[lane];
  }
  for (int32_t id = 0; id < list->count; ++id) {
    if (list->ops[id].worker == worker) {
      pipeline_lane *lane = &w->lanes[list->ops[id].lane];
      w->ops[lane->ops - w->ops + lane->count++] = id;
      bppsa_pipeline_read(p, w, id, true);
    }
  }
  return BPPSA_OK;
}

static bppsa_status make_workers(bppsa_pipeline *p) {
  for (int64_t worker = p->rank; worker < p->list->workers; worker += p->ranks) {
    p->workers++;
  }
  p->worker = bppsa_calloc(p->workers + 1, sizeof *p->worker);
  if (p->worker == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < p->workers; ++i) {
    BPPSA_TRY(make_worker(p, p->rank + i * p->ranks, &p->worker[i]));
  }
  return BPPSA_OK;
}

static bppsa_status make_tables(bppsa_pipeline *p) {
  const bppsa_schedule *list = p->list;
  p->done = bppsa_calloc(list->count, sizeof *p->done);
  p->taken = bppsa_calloc(list->count, sizeof *p->taken);
  p->transfers = bppsa_calloc(list->count, sizeof *p->transfers);
  p->events = bppsa_calloc(list->count, sizeof *p->events);
  p->micro = bppsa_calloc(p->micros, sizeof *p->micro);
  p->losses = bppsa_calloc(p->micros, sizeof *p->losses);
  p->holder = bppsa_calloc(list->replicas * p->layers, sizeof *p->holder);
  p->first_layer = bppsa_calloc(list->stages, sizeof *p->first_layer);
  p->pools = bppsa_calloc(PIPELINE_ARRAYS * (p->layers + 1), sizeof *p->pools);
  if (p->done == NULL || p->taken == NULL || p->transfers == NULL || p->events == NULL || p->micro == NULL || p->losses == NULL ||
      p->holder == NULL || p->first_layer == NULL || p->pools == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < PIPELINE_ARRAYS * (p->layers + 1); ++i) {
    const int64_t bytes = bppsa_pipeline_bytes(p, (pipeline_array)(i / (p->layers + 1)), i % (p->layers + 1));
    p->pools[i].device = p->chain->device;
    p->pools[i].bytes = (size_t)(PIPELINE_HEADER + (bytes + 7) / 8 * 8 + BPPSA_ALIGNMENT);
  }
  BPPSA_TRY(find_updates(p));
  p->norms = bppsa_calloc(p->updates * p->layers + 1, sizeof *p->norms);
  p->norm = bppsa_calloc(p->updates + 1, sizeof *p->norm);
  if (p->norms == NULL || p->norm == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  find_holders(p);
  BPPSA_TRY(find_transfers(p));
  BPPSA_TRY(find_turns(p));
  return make_workers(p);
}

bppsa_status bppsa_pipeline_create(bppsa_comm *comm, bppsa_chain *chain, const bppsa_pipeline_config *config,
                                   const bppsa_view *values, bppsa_pipeline **pipeline) {
  BPPSA_REQUIRE(comm != NULL && chain != NULL && config != NULL && config->schedule != NULL && values != NULL &&
                pipeline != NULL);
  BPPSA_TRY(check(config, chain, bppsa_comm_size(comm)));
  bppsa_pipeline *p = bppsa_calloc(1, sizeof *p);
  if (p == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  p->comm = comm;
  p->chain = chain;
  p->config = *config;
  p->list = config->schedule;
  p->rank = bppsa_comm_rank(comm);
  p->ranks = bppsa_comm_size(comm);
  p->parts = bppsa_pipeline_parts(p->list);
  p->micros = p->list->micros * p->parts;
  p->samples = config->samples / p->parts;
  p->layers = chain->layers;
  bppsa_status status = bppsa_device_create("cpu", 1, &p->device);
  status = status == BPPSA_OK ? make_tables(p) : status;
  status = status == BPPSA_OK ? bppsa_pipeline_check_whole(p, values, NULL) : status;
  status = status == BPPSA_OK ? bppsa_pipeline_weights_create(p, values) : status;
  status = status == BPPSA_OK ? bppsa_pipeline_streams_create(p) : status;
  if (status != BPPSA_OK) {
    bppsa_pipeline_destroy(p);
    return status;
  }
  *pipeline = p;
  return BPPSA_OK;
}

static void destroy_worker(const bppsa_pipeline *p, pipeline_worker *w) {
  if (w->requests != NULL) { /* first, because another rank may still write into the arrays that they borrow */
    bppsa_comm_cancel(2 * (p->most_micros + 1), w->requests);
  }
  for (int64_t i = 0; w->slots != NULL && i < PIPELINE_ARRAYS * p->micros * (p->layers + 1); ++i) {
    bppsa_memory_free(p->chain->device, w->slots[i].block);
  }
  bppsa_free(w->ops);
  bppsa_free(w->slots);
  bppsa_free((void *)w->requests);
}

void bppsa_pipeline_destroy(bppsa_pipeline *p) {
  if (p == NULL) {
    return;
  }
  bppsa_pipeline_streams_destroy(p);
  for (int64_t i = 0; p->worker != NULL && i < p->workers; ++i) {
    destroy_worker(p, &p->worker[i]);
  }
  bppsa_pipeline_weights_destroy(p);
  for (int64_t i = 0; p->pools != NULL && i < PIPELINE_ARRAYS * (p->layers + 1); ++i) {
    bppsa_pipeline_pool_free(&p->pools[i]);
  }
  bppsa_device_destroy(p->device);
  void *const blocks[] = {p->worker, p->done, p->taken,  p->transfers,   p->events, p->micro, p->losses,
                          p->norms,  p->norm, p->holder, p->first_layer, p->pools,  p->turn,  p};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
    bppsa_free(blocks[i]);
  }
}

int64_t bppsa_pipeline_updates(const bppsa_pipeline *p) {
  return p->updates;
}

const double *bppsa_pipeline_norms(const bppsa_pipeline *p) {
  return p->norm;
}

double bppsa_pipeline_began(const bppsa_pipeline *p) {
  return p->began;
}

const bppsa_pipeline_event *bppsa_pipeline_events(const bppsa_pipeline *p) {
  return p->events;
}

int64_t bppsa_pipeline_peak_activations(const bppsa_pipeline *p, int64_t worker) {
  return worker >= 0 && worker < p->list->workers && worker % p->ranks == p->rank ? p->worker[worker / p->ranks].peak : 0;
}

int64_t bppsa_pipeline_peak_versions(const bppsa_pipeline *p, int64_t worker) {
  int64_t most = 0;
  for (int64_t cell = 0; cell < p->list->replicas * p->layers; ++cell) {
    const pipeline_held *h = p->held[cell];
    most = h != NULL && p->holder[cell] == worker && h->kept_most + 1 > most ? h->kept_most + 1 : most;
  }
  return most;
}
