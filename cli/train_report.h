/* What a training run shows: a header, lines while it runs, a summary; or one JSON document. */
#ifndef BPPSA_CLI_TRAIN_REPORT_H
#define BPPSA_CLI_TRAIN_REPORT_H

#include "cli/progress.h"
#include "cli/setup.h"
#include "train/trainer.h"

/* One run of `train`. */
typedef struct {
  bppsa_cli *cli;
  bppsa_network network;
  bppsa_recurrent_config config;
  bppsa_objective objective;
  bppsa_chosen chosen; /* who chose its algorithm */
  bppsa_train_config train;
  bppsa_safetensors *weights; /* --weights, or NULL */
  bppsa_device *device;
  bppsa_dataset *dataset;
  bppsa_split split;
  bppsa_buffer order;    /* --order */
  int64_t epoch_samples; /* that an epoch visits */
  bppsa_model *model;
  double plan_s; /* seconds its creation took: of a sparse scan, planning */
  bppsa_train_result result;

  /* the report's own */
  bppsa_progress_line line;
  json_t *rows;             /* of the JSON document, or NULL */
  int64_t every;            /* steps between two printed lines of a run by iterations */
  double seconds;           /* Σ of all steps, validation left out */
  int64_t samples;          /* trained on so far */
  bppsa_train_record epoch; /* the latest complete epoch */
} bppsa_train_run;

/* The header comes when the run begins, lines while it runs. */
bppsa_train_callbacks bppsa_train_report_callbacks(bppsa_train_run *run);
/* The summary after run->result is known. */
bppsa_status bppsa_train_report_print(bppsa_train_run *run);
/* The log's first line: what the run is, and all it takes to run it again (owned, bppsa_free). ERR_MEMORY. */
bppsa_status bppsa_train_report_header(const bppsa_train_run *run, char **text);
/* The whole document. NULL when out of memory. */
json_t *bppsa_train_report_json(bppsa_train_run *run);

#endif
