/* Describes a run of training and its results, for people and as JSON. */
#ifndef BPPSA_RUNS_TRAIN_REPORT_H
#define BPPSA_RUNS_TRAIN_REPORT_H

#include "core/base/text.h"
#include "runs/train_run.h"

/* ---- for people ---- */

/* Writes network, data, update and machine, then the titles of the rows' columns. */
void bppsa_train_header_text(const bppsa_train_run *run, const bppsa_train_start *start, bppsa_text *text);
/* Writes a row: one step if the run counts iterations, otherwise an epoch of `steps` steps. */
void bppsa_train_row_text(const bppsa_train_run *run, const bppsa_train_record *record, int64_t steps, bppsa_text *text);
/* Writes the results of the run: seconds a step, losses. */
void bppsa_train_summary_text(const bppsa_train_run *run, bppsa_text *text);

/* ---- JSON ---- */

json_t *bppsa_train_row_json(const bppsa_train_record *record); /* NULL when out of memory */
/* Adds "parameters" and "config", which describe the run. */
bool bppsa_train_run_put(json_t *object, const bppsa_train_run *run);
/* Adds the results, "steps_done" to "final". */
bool bppsa_train_result_put(json_t *object, const bppsa_train_run *run);

#endif
