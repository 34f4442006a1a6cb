/* A schedule that the ranks of a training run execute: a network as a chain of layers, cut into stages, with a list of operations
 * for every worker (schedule/schedule.h, distributed/pipeline/pipeline_train.h). */
#ifndef BPPSA_RUNS_RANK_SCHEDULE_H
#define BPPSA_RUNS_RANK_SCHEDULE_H

#include "core/base/text.h"
#include "distributed/pipeline/pipeline_train.h"
#include "networks/named_network.h"

typedef struct {
  /* The settings that the user asks for; the texts are borrowed. */
  const char *split;            /* a scheme, or the path of a schedule as CSV; NULL: the ranks execute no schedule */
  bool one_device;              /* the user gave micro-batches on one rank but no split: split is "gpipe" */
  const char *cut;              /* the first layers of the stages, "3,5"; NULL: cut by cost */
  const char *costs;            /* a file of costs in seconds and its samples (schedule/timed.h); NULL: FLOPs are the costs */
  bppsa_schedule_config config; /* stages 0: as many as the ranks have workers; micro_batches 0: as many as stages */

  /* Made by bppsa_rank_schedule_make, freed by bppsa_rank_schedule_free. */
  bppsa_chain *chain;
  bppsa_schedule *list; /* its iterations are the steps between two flushes */
  int64_t samples;      /* samples of a micro-batch */
} bppsa_rank_schedule;

/* Sets *schedule if --split names a schedule: a scheme with layers and micro-batches, or a path that ends in .csv. "batch",
 * "time", their products and the words of bppsa_rank_layers_word name none. ERR_ARGUMENT: a scheme of scans; an unknown word, for
 * which the message suggests one. */
bppsa_status bppsa_rank_schedule_find(const char *split, bool *schedule);
/* Is the schedule a file? */
bool bppsa_rank_schedule_is_file(const char *split);

/* Refuses an optimiser without a smoothed gradient, from which weights are predicted. ERR_ARGUMENT: SGD without momentum; the
 * message names the option and the value that ask for predictions: "--split " and "spectrain". */
bppsa_status bppsa_rank_schedule_check_smooth(const bppsa_optimizer_config *optimizer, const char *option, const char *value);
/* Sets stages that are not given to the ranks of a copy of the schedule. ERR_ARGUMENT: the copies do not divide the ranks. */
bppsa_status bppsa_rank_schedule_stages(int64_t ranks, bppsa_schedule_config *config);
/* Makes chain and list for `ranks` ranks. config is that of the model that evaluates: on success its method becomes BP, and its
 * batch, which counts the samples of all ranks, becomes the samples that the chain takes at once. epoch_samples: how many samples
 * an epoch visits. An asynchronous scheme's list has as many iterations as can follow each other before something reads the
 * weights: the end of the epoch, the next checkpoint or the end of the run. ERR_ARGUMENT names the option: a schedule cannot do
 * it, micro-batches do not divide the batch, batches do not divide the epoch, there are more stages than layers, or the costs are
 * those of other layers. ERR_MEMORY, ERR_CUDA; ERR_UNSUPPORTED: the device does not compute the chain; ERR_* of
 * bppsa_schedule_create, bppsa_schedule_csv_load and bppsa_schedule_costs_load. */
bppsa_status bppsa_rank_schedule_make(bppsa_rank_schedule *schedule, const bppsa_network *network,
                                      const bppsa_train_config *train, const bppsa_dataset *dataset, int64_t epoch_samples,
                                      const bppsa_device *device, int64_t ranks, bppsa_network_config *config);
void bppsa_rank_schedule_free(bppsa_rank_schedule *schedule); /* a zeroed one is legal */

/* Does every update see the weights that all earlier updates have made? */
bool bppsa_rank_schedule_synchronous(const bppsa_rank_schedule *schedule);
/* Names what the bits depend on: "a tree over 4 micro-batches of 64 samples", or with an asynchronous scheme the list, by its
 * checksum and by the options that make it. Returns text. */
const char *bppsa_rank_schedule_reduction(const bppsa_rank_schedule *schedule, char *text, size_t size);
/* Writes "1f1b, 4 stages from layers 0, 2, 5, 8, 8 micro-batches of 32 samples". */
void bppsa_rank_schedule_text(const bppsa_rank_schedule *schedule, bppsa_text *text);
/* Adds members to an object: split, scheme, stages, cut, micro_batches, samples, flush_every. */
bool bppsa_rank_schedule_put(json_t *object, const bppsa_rank_schedule *schedule);

#endif
