#include "runs/train_show.h"

#include <inttypes.h>

#include "runs/train_report.h"

enum {
  ROW_LIMIT = 10000, /* a longer run by iterations has no rows in its JSON document; the log has them */
  LINES = 10         /* rows that are printed for a run by iterations */
};

static bppsa_status no_room(void) {
  return bppsa_fail(BPPSA_ERR_MEMORY, "JSON document: out of memory, expected room for the results");
}

/* ---- while it runs ---- */

/* Prints a text and frees it. */
static bppsa_status print_now(const bppsa_train_show *show, bppsa_text *text) {
  bppsa_status status = bppsa_text_check(text);
  status = status == BPPSA_OK ? show->print(show->context, text->text) : status;
  bppsa_text_free(text);
  return status;
}

/* Prints a row of the table, or adds it to the document. The row sums up `steps` steps. */
static bppsa_status show_row(bppsa_train_show *show, const bppsa_train_record *record, int64_t steps) {
  bppsa_text text = {0};
  if (show->json) {
    const bool kept = show->rows == NULL || json_array_append_new(show->rows, bppsa_train_row_json(record)) == 0;
    return kept ? BPPSA_OK : no_room();
  }
  bppsa_train_row_text(show->run, record, steps, &text);
  return print_now(show, &text);
}

static bppsa_status on_step(void *context, const bppsa_train_record *record) {
  bppsa_train_show *show = context;
  bppsa_train_run *run = show->run;
  const int64_t batch = run->train.batch, steps = (run->epoch_samples + batch - 1) / batch, position = (record->step - 1) % steps;
  const int64_t count = position + 1 < steps ? batch : run->epoch_samples - position * batch;
  run->samples += count;
  run->seconds += (double)count / record->samples_per_s;
  if (run->train.iterations == 0) {
    return BPPSA_OK;
  }
  const int64_t every = run->train.iterations / LINES > 0 ? run->train.iterations / LINES : 1;
  const bool due = record->step == 1 || record->step == run->train.iterations || record->step % every == 0;
  return due || show->json ? show_row(show, record, 1) : BPPSA_OK;
}

static bppsa_status on_update(void *context, bppsa_optimizer *optimizer, const bppsa_optimizer_config *next,
                              bppsa_train_record *record) {
  const bppsa_train_show *show = context;
  bppsa_staleness *staleness = show->run->staleness;
  return staleness == NULL ? BPPSA_OK : bppsa_staleness_update(staleness, optimizer, next, &record->weight_errors);
}

static bppsa_status on_epoch(void *context, const bppsa_train_record *record) {
  bppsa_train_show *show = context;
  const int64_t steps = record->step - show->run->epoch.step;
  show->run->epoch = *record;
  return show->run->train.iterations > 0 ? BPPSA_OK : show_row(show, record, steps);
}

/* Prints the header, for people only, and sets the report's fields. */
static bppsa_status started(void *context, const bppsa_train_start *start) {
  bppsa_train_show *show = context;
  bppsa_text text = {0};
  show->run->epoch = start->epoch;
  if (start->notice[0] != '\0') {
    show->note(show->context, start->notice);
  }
  if (!show->json) {
    bppsa_train_header_text(show->run, start, &text);
    return print_now(show, &text);
  }
  if (show->run->train.iterations > ROW_LIMIT) {
    return BPPSA_OK;
  }
  show->rows = json_array();
  return show->rows != NULL ? BPPSA_OK : no_room();
}

static void note(void *context, const char *text) {
  const bppsa_train_show *show = context;
  show->note(show->context, text);
}

bppsa_train_callbacks bppsa_train_show_callbacks(bppsa_train_show *show) {
  return (bppsa_train_callbacks){
      .context = show, .on_update = on_update, .on_step = on_step, .on_epoch = on_epoch, .started = started, .note = note};
}

/* ---- at the end ---- */

/* Adds the members that describe the run, which begin the document and the log. */
static bool put_run(json_t *object, const bppsa_train_show *show) {
  return bppsa_json_put_text(object, "model", show->run->network.kind->name) && bppsa_provenance_put(object, &show->provenance) &&
         bppsa_train_run_put(object, show->run);
}

bppsa_status bppsa_train_show_header(const bppsa_train_show *show, char **text) {
  json_t *object = json_object();
  return bppsa_json_render(bppsa_json_finish(object, object != NULL && put_run(object, show)), text);
}

static json_t *document(const bppsa_train_show *show) {
  json_t *object = json_object();
  bool ok = object != NULL && put_run(object, show) && bppsa_train_result_put(object, show->run);
  if (show->run->trace != NULL) {
    ok = ok && bppsa_json_put_integer(object, "traced_steps", bppsa_train_trace_steps(show->run->trace));
  }
  if (show->rows != NULL) {
    ok = ok && bppsa_json_put(object, "rows", json_incref(show->rows));
  }
  return bppsa_json_finish(object, ok);
}

bppsa_status bppsa_train_show_render(const bppsa_train_show *show, bppsa_text *shown) {
  if (show->json) {
    return bppsa_json_render(document(show), &shown->text);
  }
  bppsa_train_summary_text(show->run, shown);
  if (show->saved != NULL) {
    bppsa_text_add(shown, "weights written to %s\n", show->saved);
  }
  if (show->run->trace != NULL) {
    const int64_t traced = bppsa_train_trace_steps(show->run->trace), done = show->run->result.steps - show->run->result.resumed;
    bppsa_text_add(shown, "timeline of %s%" PRId64 " step%s written to %s, for Perfetto or chrome://tracing\n",
                   traced < done ? "the first " : "", traced, traced == 1 ? "" : "s", show->run->trace_path);
  }
  return bppsa_text_check(shown);
}

void bppsa_train_show_free(bppsa_train_show *show) {
  json_decref(show->rows);
  show->rows = NULL;
}
