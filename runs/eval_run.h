/* An evaluation of weights: the network, its data, and the results. */
#ifndef BPPSA_RUNS_EVAL_RUN_H
#define BPPSA_RUNS_EVAL_RUN_H

#include "runs/outputs.h"
#include "runs/rank_network.h"

/* All pointers are owned. The caller opens the network and the device, loads weights and data, and makes the model. */
typedef struct {
  bppsa_network network;
  bppsa_network_config config;
  bppsa_safetensors *file; /* of the weights */
  bppsa_device *device;
  bppsa_dataset *dataset;
  bppsa_model *model;
  bppsa_rank_network on; /* its ranks */
  bppsa_split split;
  int64_t first, count; /* the samples that are evaluated: those held out, or all of them */
  bppsa_outputs *out;   /* or NULL */
} bppsa_eval_run;

void bppsa_eval_run_free(bppsa_eval_run *run); /* a zeroed one is legal; outputs that are not committed are removed */

/* Checks where outputs are asked for: `out` is the path of --out (NULL: none), whose name ends in .npz, and states go nowhere else.
 * ERR_ARGUMENT. */
bppsa_status bppsa_eval_run_check_out(const char *out, bool states);
/* Chooses the samples and takes the data's sizes. `weights` names the weights in messages, `validation` is the fraction held
 * out. ERR_* of bppsa_dataset_split and bppsa_network_fit. */
bppsa_status bppsa_eval_run_fit(bppsa_eval_run *run, const char *weights, double validation);
/* Evaluates the model, and writes outputs to run->out where `out` is not NULL. On ranks, which write none, it is collective and
 * every rank gets the result. ERR_* of bppsa_outputs_open, bppsa_evaluate_each and bppsa_ranks_evaluate. */
bppsa_status bppsa_eval_run_compute(bppsa_eval_run *run, const char *out, bool states, bppsa_evaluation *result);

#endif
