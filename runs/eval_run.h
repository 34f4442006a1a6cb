/* An evaluation of weights: the network, its data, and the results. */
#ifndef BPPSA_RUNS_EVAL_RUN_H
#define BPPSA_RUNS_EVAL_RUN_H

#include "runs/outputs.h"
#include "runs/pack_run.h"
#include "runs/rank_network.h"

/* All pointers are owned. The caller opens the network and the device, loads weights and data, and makes the model. */
typedef struct {
  bppsa_network network;
  bppsa_network_config config;
  bppsa_safetensors *file; /* the file of the weights */
  bppsa_device *device;
  bppsa_dataset *dataset;
  bppsa_model *model;
  bppsa_rank_network on;       /* the ranks that evaluate it */
  bppsa_pack_times pack_times; /* of --pack auto */
  bppsa_split split;
  int64_t first, count; /* the samples that are evaluated: those held out, or all of them */
  bppsa_outputs *out;   /* where outputs are written, or NULL */
} bppsa_eval_run;

void bppsa_eval_run_free(bppsa_eval_run *run); /* a zeroed one is legal; outputs that are not committed are removed */

/* Checks the options for outputs: `out`, the path of --out (NULL: none), must end in .npz; `states` are asked for only with it.
 * ERR_ARGUMENT. */
bppsa_status bppsa_eval_run_check_out(const char *out, bool states);
/* Chooses the samples and takes the sizes that the data give. `weights` names the weights in messages, `validation` is the
 * fraction that is held out. ERR_* of bppsa_dataset_split and bppsa_network_fit. */
bppsa_status bppsa_eval_run_fit(bppsa_eval_run *run, const char *weights, double validation);
/* Evaluates the model, and writes outputs to run->out where `out` is not NULL. On ranks it is collective, every rank gets the
 * result, and no outputs are written. ERR_* of bppsa_outputs_open, bppsa_evaluate_each and bppsa_ranks_evaluate. */
bppsa_status bppsa_eval_run_compute(bppsa_eval_run *run, const char *out, bool states, bppsa_evaluation *result);

#endif
