#include "cli/train_report.h"

#include <inttypes.h>

#include "cli/provenance.h"
#include "models/train_report.h"

#define ROW_LIMIT 10000 /* longer runs by iterations have no rows in their JSON document; --log has them */
#define LINES 10        /* printed lines of a run by iterations */

static bppsa_status no_room(void) {
  return bppsa_fail(BPPSA_ERR_MEMORY, "JSON document: out of memory, expected room for the results");
}

/* ---- while it runs ---- */

/* Prints a text and frees it. The stream is flushed, so that other programs see the text at once. */
static bppsa_status print_now(bppsa_train_show *show, bppsa_text *text) {
  bppsa_progress_clear(&show->line);
  bppsa_status status = bppsa_text_check(text);
  status = status == BPPSA_OK ? bppsa_output_print(&show->cli->to, "%s", text->text) : status;
  bppsa_text_free(text);
  return status == BPPSA_OK ? bppsa_output_flush(show->cli->to.out) : status;
}

/* Prints a row of the table, or adds it to the document. The row sums up `steps` steps. */
static bppsa_status show_row(bppsa_train_show *show, const bppsa_train_record *record, int64_t steps) {
  bppsa_text text = {0};
  if (show->cli->to.json) {
    const bool kept = show->rows == NULL || json_array_append_new(show->rows, bppsa_train_row_json(record)) == 0;
    return kept ? BPPSA_OK : no_room();
  }
  bppsa_train_row_text(&show->run, record, steps, &text);
  return print_now(show, &text);
}

static bppsa_status on_step(void *context, const bppsa_train_record *record) {
  bppsa_train_show *show = context;
  bppsa_train_run *run = &show->run;
  const int64_t batch = run->train.batch, steps = (run->epoch_samples + batch - 1) / batch, position = (record->step - 1) % steps;
  const int64_t count = position + 1 < steps ? batch : run->epoch_samples - position * batch;
  run->samples += count;
  run->seconds += (double)count / record->samples_per_s;
  if (run->train.iterations == 0) {
    return BPPSA_OK;
  }
  const int64_t every = run->train.iterations / LINES > 0 ? run->train.iterations / LINES : 1;
  const bool due = record->step == 1 || record->step == run->train.iterations || record->step % every == 0;
  return due || show->cli->to.json ? show_row(show, record, 1) : BPPSA_OK;
}

static bppsa_status on_epoch(void *context, const bppsa_train_record *record) {
  bppsa_train_show *show = context;
  const int64_t steps = record->step - show->run.epoch.step;
  show->run.epoch = *record;
  return show->run.train.iterations > 0 ? BPPSA_OK : show_row(show, record, steps);
}

static void progress(void *context, const bppsa_progress *p) {
  bppsa_train_show *show = context;
  if (p->step < p->total_steps && bppsa_progress_due(&show->line)) {
    char left[32];
    bppsa_progress_show(&show->line, "step %" PRId64 " of %" PRId64 ", epoch %" PRId64 ", loss %.4f, %.2f ms a step, %s left",
                        p->step, p->total_steps, p->epoch, p->loss, 1e3 * p->elapsed_s / (double)p->done,
                        bppsa_progress_time(p->eta_s, left, sizeof left));
  }
}

/* Prints the header, for people only, and sets the report's fields. */
static bppsa_status started(void *context, const bppsa_train_start *start) {
  bppsa_train_show *show = context;
  bppsa_text text = {0};
  show->run.epoch = start->epoch;
  if (start->notice[0] != '\0') {
    fprintf(show->cli->to.err, "bppsa: note: %s\n", start->notice);
  }
  show->line = bppsa_progress_start(show->cli->to.err);
  if (!show->cli->to.json) {
    bppsa_train_header_text(&show->run, start, &text);
    return print_now(show, &text);
  }
  if (show->run.train.iterations > ROW_LIMIT) {
    return BPPSA_OK;
  }
  show->rows = json_array();
  return show->rows != NULL ? BPPSA_OK : no_room();
}

bppsa_train_callbacks bppsa_train_report_callbacks(bppsa_train_show *show) {
  return (bppsa_train_callbacks){
      .context = show, .on_step = on_step, .on_epoch = on_epoch, .progress = progress, .started = started};
}

/* ---- at the end ---- */

/* Adds what describes the run: the document's first members, and the log's first line. */
static bool put_run(json_t *object, const bppsa_train_show *show) {
  return bppsa_json_put_text(object, "model", show->run.network.kind->name) && bppsa_provenance_json(object, show->cli) &&
         bppsa_train_run_put(object, &show->run);
}

bppsa_status bppsa_train_report_header(const bppsa_train_show *show, char **text) {
  json_t *object = json_object();
  return bppsa_json_render(bppsa_json_finish(object, object != NULL && put_run(object, show)), text);
}

static json_t *document(const bppsa_train_show *show) {
  json_t *object = json_object();
  bool ok = object != NULL && put_run(object, show) && bppsa_train_result_put(object, &show->run);
  if (show->rows != NULL) {
    ok = ok && bppsa_json_put(object, "rows", json_incref(show->rows));
  }
  return bppsa_json_finish(object, ok);
}

bppsa_status bppsa_train_report_render(const bppsa_train_show *show, bppsa_text *shown) {
  const bppsa_option_value *saved = bppsa_cli_value(show->cli, BPPSA_OPTION_SAVE_WEIGHTS);
  if (show->cli->to.json) {
    return bppsa_json_render(document(show), &shown->text);
  }
  bppsa_train_summary_text(&show->run, shown);
  if (saved->given) {
    bppsa_text_add(shown, "weights written to %s\n", saved->text);
  }
  return bppsa_text_check(shown);
}
