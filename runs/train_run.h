/* A run of training: the network, its data, the trainer's settings, and the results. */
#ifndef BPPSA_RUNS_TRAIN_RUN_H
#define BPPSA_RUNS_TRAIN_RUN_H

#include "core/compute/device_buffer.h"
#include "distributed/pipeline/staleness.h"
#include "networks/planner.h"
#include "runs/pack_run.h"
#include "runs/rank_layers.h"
#include "runs/rank_network.h"
#include "runs/rank_schedule.h"
#include "runs/train_trace.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

enum { BPPSA_TRAIN_FIELDS = BPPSA_NETWORK_FIELDS + 4, BPPSA_TRAIN_FIELD = 64 };

/* What a resumed run must have in common with the first one, beyond what the trainer itself compares. */
typedef struct {
  bppsa_metadata fields[BPPSA_TRAIN_FIELDS];
  char texts[BPPSA_TRAIN_FIELDS][BPPSA_TRAIN_FIELD];
} bppsa_train_fields;

typedef struct {
  bppsa_network network;
  bppsa_network_config config; /* of this rank's model: config.batch is what it takes at once, train.batch what all ranks take */
  bppsa_chosen chosen;         /* where the choice of the method comes from */
  bppsa_train_config train;
  bppsa_train_fields fields;
  const char *init;           /* "default", "orthogonal", "from weights" */
  bppsa_safetensors *weights; /* where the weights come from, or NULL */
  bppsa_device *device;
  bppsa_dataset *dataset;
  bppsa_pack_times pack_times; /* of --pack auto */
  bppsa_split split;
  bppsa_buffer order;    /* a given order of the samples */
  int64_t epoch_samples; /* samples that an epoch visits */
  bppsa_model *model;
  bppsa_rank_network on;          /* the ranks that train it */
  bppsa_data_parallel *ranks;     /* if ranks share batches: made with the model; otherwise NULL */
  bppsa_rank_schedule schedule;   /* what the ranks execute; empty if they share batches or steps */
  bppsa_pipeline_train *pipeline; /* if there is a schedule: made with the model; otherwise NULL */
  bppsa_rank_layers layers;       /* how ranks share layers; empty if they do not */
  bppsa_layer_train *layer_train; /* if ranks share layers: made with the model; otherwise NULL */
  char reduction[BPPSA_CHECKPOINT_VALUE];
  int64_t ahead;              /* how many updates ahead weights are predicted, and compared with those that come; 0: none */
  bppsa_staleness *staleness; /* if ahead > 0: made with the model; otherwise NULL */
  const char *trace_path;     /* file for a timeline of the ranks, borrowed; NULL: none */
  bppsa_train_trace *trace;   /* if there is a trace_path: made with the model; otherwise NULL */
  bppsa_text timeline;        /* on rank 0: the text for that file */
  double plan_s;              /* seconds that creating the model took; sparse scans plan in them */

  bppsa_train_result result;
  double seconds;           /* sum over all steps, without validation */
  int64_t samples;          /* trained on so far */
  bppsa_train_record epoch; /* the latest complete epoch */
} bppsa_train_run;

void bppsa_train_run_free(bppsa_train_run *run); /* a zeroed one is legal */

/* Takes the methods of gradients and forward passes that a resumed run leaves open from its checkpoint, even where `auto` would
 * now choose others. ERR_ARGUMENT, ERR_FORMAT: from reading the checkpoint. */
bppsa_status bppsa_train_run_resume_method(bppsa_train_run *run);
/* Takes from the checkpoint of a run that is resumed the steps of the rows that its samples are packed into, "" where they are not.
 * kept has BPPSA_CHECKPOINT_VALUE bytes. ERR_* of bppsa_checkpoint_peek. */
bppsa_status bppsa_train_run_kept_rows(const bppsa_train_run *run, char *kept);
/* Subtracts the memory of the samples' order from the limit, and lets the network count the optimiser's state, except on ranks
 * that hold parts of the layers, whose share is not known. ERR_ARGUMENT: the order alone exceeds the limit. */
bppsa_status bppsa_train_run_reserve(bppsa_train_run *run);
/* Makes the schedule that is asked for; config.batch becomes a micro-batch. ERR_* of bppsa_rank_schedule_make. */
bppsa_status bppsa_train_run_make_schedule(bppsa_train_run *run);
/* Does the same for ranks that share layers. ERR_* of bppsa_rank_layers_make. */
bppsa_status bppsa_train_run_make_layers(bppsa_train_run *run);
/* Creates the model and what joins it to the other ranks' models, and measures how long that takes. ERR_* of bppsa_network_create,
 * bppsa_data_parallel_create, bppsa_pipeline_train_create, bppsa_layer_train_create, bppsa_staleness_create and
 * bppsa_train_trace_create. */
bppsa_status bppsa_train_run_create_model(bppsa_train_run *run);
/* Fills run->train with the fields that a resumed run must have in common with this one, once the model has its initial weights.
 * The fields borrow from the run. */
void bppsa_train_run_set_fields(bppsa_train_run *run);
/* Ends the timeline, if there is one. Collective; call it after the last step. ERR_* of bppsa_train_trace_finish. */
bppsa_status bppsa_train_run_end_trace(bppsa_train_run *run);
/* Saves rank 0's files: the timeline, and at `weights` (NULL: nowhere) the weights, with the metadata that `eval` and `grad`
 * need: model, nonlinearity, loss. ERR_IO, ERR_MEMORY. */
bppsa_status bppsa_train_run_save(const bppsa_train_run *run, const char *weights);
/* Rescues the weights of a run whose file or standard output failed after some steps (status ERR_IO; other failures are returned
 * as they are): saves what was to go to `weights` elsewhere (core/files/rescue.h), unless there is a checkpoint to go on from, or
 * rank 0 does not hold all weights. Returns status. */
bppsa_status bppsa_train_run_rescue(const bppsa_train_run *run, bppsa_status status, const char *weights);
/* Returns ERR_IO for a run that the signal of that name ended; the message names the files that are kept. Returns OK if no signal
 * did. weights: the path that the weights were saved to, or NULL. */
bppsa_status bppsa_train_run_stopped(const bppsa_train_run *run, const char *weights, const char *name);

#endif
