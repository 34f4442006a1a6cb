/* The output of `train`: a header, rows while it runs, a summary; or one JSON document. */
#ifndef BPPSA_CLI_TRAIN_REPORT_H
#define BPPSA_CLI_TRAIN_REPORT_H

#include "bench/harness/progress.h"
#include "cli/command.h"
#include "core/text.h"
#include "models/train_run.h"

/* The output of one run of `train`. */
typedef struct {
  bppsa_cli *cli;
  bppsa_train_run run;
  bppsa_progress_line line;
  json_t *rows; /* of the JSON document, or NULL */
} bppsa_train_show;

/* The header comes when the run begins, rows while it runs. */
bppsa_train_callbacks bppsa_train_report_callbacks(bppsa_train_show *show);
/* The log's first line: what the run is, with everything that is needed to run it again (owned, bppsa_free). ERR_MEMORY. */
bppsa_status bppsa_train_report_header(const bppsa_train_show *show, char **text);
/* The summary or the whole document, once the result is known. ERR_MEMORY. */
bppsa_status bppsa_train_report_render(const bppsa_train_show *show, bppsa_text *shown);

#endif
