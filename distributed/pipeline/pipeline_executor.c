/* The executor of schedules: how it is made, and what its latest run tells (pipeline.h). */
#include "distributed/pipeline/pipeline.h"

#include <math.h>

#include "core/base/alloc.h"
#include "distributed/pipeline/pipeline_executor.h"

/* ---- workers ---- */

static bppsa_status make_worker(bppsa_pipeline *p, int64_t worker, pipeline_worker *w) {
  const pipeline_plan *plan = &p->plan;
  const bppsa_schedule *list = plan->list;
  int64_t all = 0;
  for (int64_t id = 0; id < list->count; ++id) {
    all += list->ops[id].worker == worker;
  }
  w->ops = bppsa_alloc((size_t)(all + 1) * sizeof *w->ops);
  w->requests = bppsa_calloc(2 * (plan->most_micros + 1), sizeof *w->requests);
  w->arrays = (pipeline_arrays){.plan = plan, .pools = p->pools};
  w->arrays.slots = bppsa_calloc(PIPELINE_ARRAYS * plan->micros * (plan->layers + 1), sizeof *w->arrays.slots);
  if (w->ops == NULL || w->arrays.slots == NULL || w->requests == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  int32_t *at = w->ops;
  for (int lane = 0; lane < BPPSA_LANE_COUNT; ++lane) {
    w->lanes[lane].ops = at;
    for (int32_t id = 0; id < list->count; ++id) {
      if (list->ops[id].worker == worker && list->ops[id].lane == lane) {
        *at++ = id;
        bppsa_pipeline_read(&w->arrays, id, true);
      }
    }
    w->lanes[lane].count = at - w->lanes[lane].ops;
  }
  return BPPSA_OK;
}

static void destroy_worker(const pipeline_plan *plan, pipeline_worker *w) {
  if (w->requests != NULL) { /* first, because another rank may still write into the arrays that they borrow */
    bppsa_comm_cancel(2 * (plan->most_micros + 1), w->requests);
  }
  bppsa_free(w->arrays.slots);
  bppsa_free(w->ops);
  bppsa_free((void *)w->requests);
}

/* ---- the whole ---- */

static bppsa_status make_run(const pipeline_plan *plan, pipeline_run *run) {
  run->done = bppsa_calloc(plan->list->count, sizeof *run->done);
  run->taken = bppsa_calloc(plan->list->count, sizeof *run->taken);
  run->events = bppsa_calloc(plan->list->count, sizeof *run->events);
  run->losses = bppsa_calloc(plan->micros, sizeof *run->losses);
  return run->done != NULL && run->taken != NULL && run->events != NULL && run->losses != NULL ? BPPSA_OK : BPPSA_ERR_MEMORY;
}

static bppsa_status make(bppsa_pipeline *p, const bppsa_view *values) {
  const pipeline_plan *plan = &p->plan;
  BPPSA_TRY(bppsa_pipeline_plan_make(&p->plan));
  BPPSA_TRY(make_run(plan, &p->run));
  BPPSA_TRY(bppsa_pipeline_pools_make(plan, &p->pools));
  p->worker = bppsa_calloc(plan->workers + 1, sizeof *p->worker);
  for (int64_t i = 0; p->worker != NULL && i < plan->workers; ++i) {
    BPPSA_TRY(make_worker(p, plan->rank + i * plan->ranks, &p->worker[i]));
  }
  BPPSA_TRY(p->worker != NULL ? bppsa_pipeline_check_whole(plan, values, NULL) : BPPSA_ERR_MEMORY);
  BPPSA_TRY(bppsa_pipeline_weights_create(&p->weights, values));
  return bppsa_pipeline_streams_create(&p->streams, p->pools);
}

bppsa_status bppsa_pipeline_create(bppsa_comm *comm, bppsa_chain *chain, const bppsa_pipeline_config *config,
                                   const bppsa_view *values, bppsa_pipeline **pipeline) {
  BPPSA_REQUIRE(comm != NULL && chain != NULL && config != NULL && config->schedule != NULL && values != NULL &&
                pipeline != NULL);
  bppsa_pipeline *p = bppsa_calloc(1, sizeof *p);
  if (p == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  p->plan = (pipeline_plan){.comm = comm, .chain = chain, .config = *config, .list = config->schedule};
  p->streams = (pipeline_streams){.plan = &p->plan, .keep = bppsa_pipeline_keep, .context = p};
  p->weights = (pipeline_weights){.plan = &p->plan, .streams = &p->streams};
  const bppsa_status status = make(p, values);
  if (status != BPPSA_OK) {
    bppsa_pipeline_destroy(p);
    return status;
  }
  *pipeline = p;
  return BPPSA_OK;
}

void bppsa_pipeline_destroy(bppsa_pipeline *p) {
  if (p == NULL) {
    return;
  }
  bppsa_pipeline_streams_destroy(&p->streams);
  for (int64_t i = 0; p->worker != NULL && i < p->plan.workers; ++i) {
    destroy_worker(&p->plan, &p->worker[i]);
  }
  bppsa_pipeline_weights_destroy(&p->weights);
  bppsa_pipeline_pools_free(&p->plan, p->pools);
  bppsa_pipeline_plan_free(&p->plan);
  void *const blocks[] = {p->worker, p->run.done, p->run.taken, p->run.events, p->run.losses, p};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; ++i) {
    bppsa_free(blocks[i]);
  }
}

int64_t bppsa_pipeline_updates(const bppsa_pipeline *p) {
  return p->plan.updates;
}

const double *bppsa_pipeline_norms(const bppsa_pipeline *p) {
  return p->weights.norm;
}

double bppsa_pipeline_began(const bppsa_pipeline *p) {
  return p->run.began;
}

const bppsa_pipeline_event *bppsa_pipeline_events(const bppsa_pipeline *p) {
  return p->run.events;
}

void bppsa_pipeline_times(const bppsa_pipeline *p, double *start, double *end) {
  for (int64_t id = 0; id < p->plan.list->count; ++id) {
    const bppsa_pipeline_event *event = &p->run.events[id];
    start[id] = isnan(event->end) ? 0 : p->run.began + event->start;
    end[id] = isnan(event->end) ? 0 : p->run.began + event->end;
  }
}

void bppsa_pipeline_settle_times(const bppsa_schedule *list, double origin, double *start, double *end) {
  for (int64_t id = 0; id < list->count; ++id) {
    start[id] = fmax(0, start[id] - origin);
    end[id] = fmax(start[id], end[id] - origin);
  }
  for (int64_t id = 0; id + 1 < list->count; ++id) { /* a RECV stands behind its SEND */
    const bool pair = list->ops[id].kind == BPPSA_KIND_SEND && list->ops[id + 1].kind == BPPSA_KIND_RECV &&
                      list->ops[id].group == list->ops[id + 1].group;
    if (pair) {
      start[id + 1] = fmin(fmax(start[id], start[id + 1]), end[id + 1]);
    }
  }
}

int64_t bppsa_pipeline_peak_activations(const bppsa_pipeline *p, int64_t worker) {
  const pipeline_worker *w = worker >= 0 && worker < p->plan.list->workers ? pipeline_local(p, worker) : NULL;
  return w != NULL ? w->arrays.peak : 0;
}

int64_t bppsa_pipeline_peak_versions(const bppsa_pipeline *p, int64_t worker) {
  int64_t most = 0;
  for (int64_t cell = 0; cell < p->plan.list->replicas * p->plan.layers; ++cell) {
    const pipeline_held *h = p->weights.held[cell];
    most = h != NULL && p->plan.holder[cell] == worker && h->kept_most + 1 > most ? h->kept_most + 1 : most;
  }
  return most;
}

void bppsa_pipeline_recordings(const bppsa_pipeline *p, int64_t *made, int64_t *launches) {
  *made = 0;
  *launches = p->streams.launches;
  for (int64_t i = 0; i < p->streams.recording_count; ++i) {
    *made += p->streams.recordings[i].graph != NULL;
  }
}
