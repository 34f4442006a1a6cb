/* A run of training: the network, its data, the trainer's settings, and the results. */
#ifndef BPPSA_RUNS_TRAIN_RUN_H
#define BPPSA_RUNS_TRAIN_RUN_H

#include "core/compute/device_buffer.h"
#include "distributed/pipeline/staleness.h"
#include "networks/planner.h"
#include "runs/rank_layers.h"
#include "runs/rank_network.h"
#include "runs/rank_schedule.h"
#include "runs/train_trace.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

enum { BPPSA_TRAIN_FIELDS = BPPSA_NETWORK_FIELDS + 2, BPPSA_TRAIN_FIELD = 64 };

/* What a resumed run must have in common with the first one, beyond what the trainer itself compares. */
typedef struct {
  bppsa_metadata fields[BPPSA_TRAIN_FIELDS];
  char texts[BPPSA_TRAIN_FIELDS][BPPSA_TRAIN_FIELD];
} bppsa_train_fields;

typedef struct {
  bppsa_network network;
  bppsa_network_config config; /* of this rank's model: config.batch is what it takes at once, train.batch what ranks share */
  bppsa_chosen chosen;         /* where the choice of the method comes from */
  bppsa_train_config train;
  bppsa_train_fields fields;
  const char *init;           /* "default", "orthogonal", "from weights" */
  bppsa_safetensors *weights; /* where the weights come from, or NULL */
  bppsa_device *device;
  bppsa_dataset *dataset;
  bppsa_split split;
  bppsa_buffer order;    /* a given order of the samples */
  int64_t epoch_samples; /* samples that an epoch visits */
  bppsa_model *model;
  bppsa_rank_network on;          /* its ranks */
  bppsa_data_parallel *ranks;     /* with ranks that share batches, made with the model; NULL otherwise */
  bppsa_rank_schedule schedule;   /* that the ranks execute; empty if they share batches or steps */
  bppsa_pipeline_train *pipeline; /* with a schedule, made with the model; NULL otherwise */
  bppsa_rank_layers layers;       /* the ranks share layers; empty otherwise */
  bppsa_layer_train *layer_train; /* with these, made with the model; NULL otherwise */
  char reduction[BPPSA_CHECKPOINT_VALUE];
  int64_t ahead;              /* compare weights predicted 1 .. ahead updates ahead with the weights that come; 0: do not */
  bppsa_staleness *staleness; /* then: made with the model; NULL otherwise */
  const char *trace_path;     /* where a timeline of the ranks is to be written, borrowed; NULL: nowhere */
  bppsa_train_trace *trace;   /* then: made with the model; NULL otherwise */
  bppsa_text timeline;        /* rank 0: what is to be written there */
  double plan_s;              /* seconds that creating the model took; for a sparse scan this is planning */

  bppsa_train_result result;
  double seconds;           /* Σ of all steps, validation left out */
  int64_t samples;          /* trained on so far */
  bppsa_train_record epoch; /* the latest complete epoch */
} bppsa_train_run;

void bppsa_train_run_free(bppsa_train_run *run); /* a zeroed one is legal */

/* Takes methods that a resumed run leaves open, of gradients and of forward passes, from its checkpoint, even where `auto` would
 * now choose others. ERR_ARGUMENT, ERR_FORMAT: of the checkpoint. */
bppsa_status bppsa_train_run_resume_method(bppsa_train_run *run);
/* Takes the memory of the samples' order off the configuration's limit, and lets the network count the optimiser's state; it does
 * not count it on ranks with parts of the layers, whose share is not known. ERR_ARGUMENT: the order alone exceeds the limit. */
bppsa_status bppsa_train_run_reserve(bppsa_train_run *run);
/* Makes the schedule that is asked for, and config that of a micro-batch. ERR_* of bppsa_rank_schedule_make. */
bppsa_status bppsa_train_run_make_schedule(bppsa_train_run *run);
/* The same for ranks that share layers. ERR_* of bppsa_rank_layers_make. */
bppsa_status bppsa_train_run_make_layers(bppsa_train_run *run);
/* Creates the model and what joins it to the other ranks' models, and measures how long that takes. ERR_* of bppsa_network_create,
 * bppsa_data_parallel_create, bppsa_pipeline_train_create, bppsa_layer_train_create, bppsa_staleness_create and
 * bppsa_train_trace_create. */
bppsa_status bppsa_train_run_create_model(bppsa_train_run *run);
/* Fills run->train with what a resumed run must have in common with the first one, once the model has its initial weights. It
 * borrows from the run. */
void bppsa_train_run_set_fields(bppsa_train_run *run);
/* Ends the timeline, if there is one; collective, once the steps are done. ERR_* of bppsa_train_trace_finish. */
bppsa_status bppsa_train_run_end_trace(bppsa_train_run *run);
/* Rank 0's files: at `weights` (NULL: nowhere) the weights, with the metadata that `eval` and `grad` need: model, nonlinearity,
 * loss; and the timeline. ERR_IO, ERR_MEMORY. */
bppsa_status bppsa_train_run_save(const bppsa_train_run *run, const char *weights);
/* Steps were taken, and then a file or standard output failed (status ERR_IO; other failures are returned as they are). The weights
 * so far, which were to go to `weights`, are rescued (core/files/rescue.h), if there is no checkpoint to go on from, and if rank 0
 * has all of them. Returns status. */
bppsa_status bppsa_train_run_rescue(const bppsa_train_run *run, bppsa_status status, const char *weights);
/* A run that a signal of that name ended counts as a failure, ERR_IO, whose message names the files that are kept; OK where none
 * did. weights: the path that they were saved to, or NULL. */
bppsa_status bppsa_train_run_stopped(const bppsa_train_run *run, const char *weights, const char *name);

#endif
