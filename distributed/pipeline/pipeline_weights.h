/* The executor's weights: their versions and their updates. Internal. */
#ifndef BPPSA_DISTRIBUTED_PIPELINE_PIPELINE_WEIGHTS_H
#define BPPSA_DISTRIBUTED_PIPELINE_PIPELINE_WEIGHTS_H

#include "distributed/pipeline/pipeline_streams.h"
#include "distributed/pipeline/pipeline_sums.h"

/* A kept copy of older weights. */
typedef struct {
  int64_t version; /* by which operations ask for it; -1: the copy is free, because no later operation does */
  int64_t updates; /* that these values have seen, since creation */
  void *values;
} pipeline_version;

/* The weights of one layer of one replica. */
typedef struct {
  bppsa_model model; /* the layer's parameters alone, one behind the other */
  bppsa_optimizer *optimizer;
  void *values, *gradients, *predicted; /* where the chain computes */
  void *copies;                         /* of values in host memory, where the chain computes on a GPU */
  int64_t bytes;
  int64_t updates;        /* STEPs since creation */
  int64_t made;           /* updates of `values` since creation: check_made compares both numbers */
  int64_t *readers;       /* how many operations of a run read each version, size updates of a run + 1 */
  int64_t *left;          /* how many of them are still to come in the present run */
  pipeline_version *kept; /* size kept_count */
  int64_t kept_count, kept_used, kept_most;
  int64_t predicted_from,
      predicted_ahead;    /* after how many updates `predicted` was made, and for how many more; -1: not at all */
  int64_t predicted_made; /* `made` at that time */
} pipeline_held;

typedef struct {
  const pipeline_plan *plan;
  pipeline_streams *streams;
  pipeline_sum *sums;              /* of each layer, owned */
  bppsa_device *device;            /* of the optimisers, with one thread; owned */
  pipeline_held **held;            /* [replicas][layers]; NULL: of another rank */
  int64_t before;                  /* updates of each layer in the runs before the present one */
  const bppsa_pipeline_data *data; /* of the present run */
  double *norms;                   /* of the gradients, [updates][layers] */
  double *norm;                    /* of all layers together, size updates */
} pipeline_weights;

/* Fills in the rest of weights that have plan and streams. Destroy them also after a failure. Collective. */
bppsa_status bppsa_pipeline_weights_create(pipeline_weights *weights, const bppsa_view *values);
void bppsa_pipeline_weights_destroy(pipeline_weights *weights);
void bppsa_pipeline_weights_begin(pipeline_weights *weights, const bppsa_pipeline_data *data); /* a run begins */
/* Call after a run: all ranks get the norm of each update's gradients. Collective. */
bppsa_status bppsa_pipeline_weights_end(pipeline_weights *weights);
/* The weights that the operation sees for a layer, an array for each parameter. Sets the event's version to the updates that these
 * arrays have seen, or are predicted to have seen. ERR_ARGUMENT: it is another than the list's. */
bppsa_status bppsa_pipeline_weights(pipeline_weights *weights, int64_t id, int64_t layer, bppsa_pipeline_event *event,
                                    void *arrays[PIPELINE_MOST_PARAMETERS]);
/* The operation has read the weights of the layer. */
void bppsa_pipeline_weights_read(pipeline_weights *weights, int64_t id, int64_t layer);
/* Updates a layer of the STEP `id`, once the sum is there, and sets the event's version to the updates that its weights have then
 * seen. ERR_ARGUMENT: the list's version is not the one that this update makes. */
bppsa_status bppsa_pipeline_step(pipeline_weights *weights, int64_t id, int64_t layer, bppsa_pipeline_event *event, bool *done);
/* The number of the layer's next update in the present run. */
int64_t bppsa_pipeline_update_of(const pipeline_weights *weights, int64_t replica, int64_t layer);

/* Ŵ (pipeline.h) of a layer's parameters, `ahead` updates from now. */
bppsa_status bppsa_pipeline_predict(const bppsa_model *model, bppsa_optimizer *optimizer, const bppsa_optimizer_config *config,
                                    int64_t ahead, void *const *predicted);

#endif
