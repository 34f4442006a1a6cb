/* The executor of schedules: its parts, and what its runs share. Internal. */
#ifndef BPPSA_DISTRIBUTED_PIPELINE_PIPELINE_EXECUTOR_H
#define BPPSA_DISTRIBUTED_PIPELINE_PIPELINE_EXECUTOR_H

#include <time.h>

#include "distributed/pipeline/pipeline_weights.h"

typedef struct {
  const int32_t *ops; /* in order */
  int64_t count, next;
  bool begun; /* the next operation has begun, and waits for a message */
} pipeline_lane;

typedef struct {
  pipeline_lane lanes[BPPSA_LANE_COUNT];
  int32_t *ops; /* of all lanes */
  pipeline_arrays arrays;
  bppsa_comm_request **requests; /* of the present SEND, then of the present RECV; size 2 (most_micros + 1) */
} pipeline_worker;

/* The latest run. */
typedef struct {
  const bppsa_pipeline_data *data;
  double began;
  bool *done;                   /* size of the list */
  bool *taken;                  /* of a SEND to a worker of the same rank: its RECV has copied what it sends; size of the list */
  int64_t begun;                /* how many messages have begun, of those that have a turn */
  double *losses;               /* size micros */
  bppsa_pipeline_event *events; /* size of the list */
} pipeline_run;

struct bppsa_pipeline {
  pipeline_plan plan;
  pipeline_pool *pools; /* of the workers' arrays */
  pipeline_worker *worker;
  pipeline_weights weights;
  pipeline_streams streams;
  pipeline_run run;
};

/* The micro-batch, with its update counted over all runs. */
static inline bppsa_pipeline_micro pipeline_micro_of(const bppsa_pipeline *p, int64_t micro) {
  bppsa_pipeline_micro m = p->plan.micro[micro];
  m.update += p->weights.before;
  return m;
}

/* Sleeps until the executor asks for its messages again. */
static inline void pipeline_nap(void) {
  const struct timespec nap = {.tv_nsec = 20000};
  (void)nanosleep(&nap, NULL);
}

/* The worker, if it is this rank's; NULL. */
static inline pipeline_worker *pipeline_local(const bppsa_pipeline *p, int64_t worker) {
  return pipeline_is_here(&p->plan, worker) ? &p->worker[worker / p->plan.ranks] : NULL;
}

/* Goes on with a SEND or a RECV, as far as it can without waiting. */
bppsa_status bppsa_pipeline_transfer(bppsa_pipeline *p, pipeline_worker *w, int64_t id, bool begin, bool *done);
/* Compares the header of a message, PIPELINE_HEADER bytes aligned for int64_t, with the list, of the RECV `id`. */
bppsa_status bppsa_pipeline_check_header(const bppsa_pipeline *p, int64_t id, int64_t micro, const void *bytes);
/* Keeps a promise (pipeline_streams.h); context: the executor. */
bppsa_status bppsa_pipeline_keep(void *context, const pipeline_due *due);
/* Compares a view of each of the chain's parameters, and of an optimiser's state (NULL: none), with the chain's. */
bppsa_status bppsa_pipeline_check_whole(const pipeline_plan *plan, const bppsa_view *values, const bppsa_optimizer_state *state);
/* ERR_ARGUMENT: names the operation and `what`. */
bppsa_status bppsa_pipeline_fail_at(const bppsa_pipeline *p, int64_t id, const char *what);

#endif
