/* What a run of training shows: a header, rows while it runs, a summary; or one JSON document. */
#ifndef BPPSA_RUNS_TRAIN_SHOW_H
#define BPPSA_RUNS_TRAIN_SHOW_H

#include "core/base/text.h"
#include "runs/provenance.h"
#include "runs/train_run.h"

typedef struct {
  bppsa_train_run *run; /* borrowed; counts samples, seconds and epochs as it goes on */
  bool json;
  bppsa_provenance provenance;
  const char *saved; /* where the weights will be, or NULL */
  /* Prints a text for people at once. Its status ends the run. */
  bppsa_status (*print)(void *context, const char *text);
  /* Prints a line that the user should see, in whatever form the results have. */
  void (*note)(void *context, const char *text);
  void *context;
  json_t *rows; /* of the JSON document, or NULL */
} bppsa_train_show;

/* Callbacks whose context is `show`: the header comes when the run begins, rows while it runs. `progress` and `stop` are the
 * caller's to set. */
bppsa_train_callbacks bppsa_train_show_callbacks(bppsa_train_show *show);
/* The log's first line: what the run is, with everything that is needed to run it again (owned, bppsa_free). ERR_MEMORY. */
bppsa_status bppsa_train_show_header(const bppsa_train_show *show, char **text);
/* The summary or the whole document, once the result is known. ERR_MEMORY. */
bppsa_status bppsa_train_show_render(const bppsa_train_show *show, bppsa_text *shown);
void bppsa_train_show_free(bppsa_train_show *show); /* a zeroed one is legal */

#endif
