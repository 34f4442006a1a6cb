/* What a run of training shows: a header, rows while it runs, a summary; or one JSON document. */
#ifndef BPPSA_RUNS_TRAIN_SHOW_H
#define BPPSA_RUNS_TRAIN_SHOW_H

#include "core/base/text.h"
#include "runs/provenance.h"
#include "runs/train_run.h"

typedef struct {
  bppsa_train_run *run; /* borrowed; the callbacks count its samples, seconds and epochs */
  bool json;
  bppsa_provenance provenance;
  const char *saved; /* where the weights will be saved, or NULL */
  /* Prints a text for people at once. A failure ends the run. */
  bppsa_status (*print)(void *context, const char *text);
  /* Prints a line that the user should see, in whatever form the results have. */
  void (*note)(void *context, const char *text);
  void *context;
  json_t *rows; /* of the JSON document, or NULL */
} bppsa_train_show;

/* Returns callbacks whose context is `show`: they print the header when the run begins, and rows while it runs. The caller sets
 * `progress` and `stop`. */
bppsa_train_callbacks bppsa_train_show_callbacks(bppsa_train_show *show);
/* Makes the log's first line, with everything that is needed to run the run again (owned, bppsa_free). ERR_MEMORY. */
bppsa_status bppsa_train_show_header(const bppsa_train_show *show, char **text);
/* Writes the summary or the whole document, once the result is known. ERR_MEMORY. */
bppsa_status bppsa_train_show_render(const bppsa_train_show *show, bppsa_text *shown);
void bppsa_train_show_free(bppsa_train_show *show); /* a zeroed one is legal */

#endif
