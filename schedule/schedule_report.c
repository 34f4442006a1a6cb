/* Schedules and schemes as texts for people, and the list of schemes as JSON. */
#include "schedule/schedule_report.h"

#include <inttypes.h>
#include <math.h>

#include "core/files/json.h"
#include "schedule/request.h"
#include "schedule/schedule_internal.h"

enum { MOST_ROWS = 32 };

static void add_worker(const bppsa_timed *timed, int64_t w, bppsa_text *text) {
  const bppsa_schedule_worker *worker = &timed->times.worker[w];
  const double makespan = timed->times.makespan;
  bppsa_text_add(text, " %6" PRId64 "  %-12.6g  %5.1f %%  %-17.6g  %.6g\n", w, worker->busy,
                 makespan > 0 ? 100 * worker->busy / makespan : 0, worker->peak_activations, worker->weight_versions);
}

static void add_times(const bppsa_timed *timed, double model, int64_t forward, int64_t backward, bppsa_text *text) {
  const bppsa_schedule *list = timed->list;
  bppsa_text_add(text, "%s: D %" PRId64 ", N %" PRId64 ", %" PRId64 " workers, %" PRId64 " operations, valid\n\n",
                 list->scheme->id, list->config.stages, list->config.micro_batches, list->workers, list->count);
  bppsa_text_add(text, "  makespan      %.10g%s\n  bubble ratio  %.6g\n", timed->times.makespan,
                 list->config.window == BPPSA_WINDOW_ITERATION
                     ? ""
                     : ", from the start of the backward pass to the end of the next forward pass",
                 timed->times.bubble_ratio);
  if ((list->scheme->takes & TAKES_REVERSE) != 0) {
    bppsa_text_add(text, "  k             %" PRId64 "\n", list->config.reverse);
  }
  if (list->config.samples > 0) {
    bppsa_text_add(text, "  costs         of micro-batches of %" PRId64 " samples\n", list->config.samples);
  }
  if (!isnan(model)) {
    bppsa_text_add(text, "  model         %.6g (C_f %" PRId64 ", C_b %" PRId64 ")\n", model, forward, backward);
  }
}

bppsa_status bppsa_timed_text(const bppsa_timed *timed, bppsa_text *text) {
  const bppsa_schedule *list = timed->list;
  int64_t forward = 0, backward = 0;
  double model = NAN;
  BPPSA_TRY(bppsa_schedule_model(list, &model, &forward, &backward));
  add_times(timed, model, forward, backward, text);
  bppsa_text_add(text, "\n worker  busy                  activations, M_a  weights, M_theta\n");
  for (int64_t w = 0; w < list->workers; ++w) {
    if (list->workers <= MOST_ROWS || w < MOST_ROWS / 2 || w >= list->workers - MOST_ROWS / 2) {
      add_worker(timed, w, text);
    } else if (w == MOST_ROWS / 2) {
      bppsa_text_add(text, "    ...\n");
    }
  }
  if (list->advice_text[0] != '\0') {
    bppsa_text_add(text, "\nNote: %s.\n", list->advice_text);
  }
  return bppsa_text_check(text);
}

bppsa_status bppsa_schedule_list_text(bppsa_text *text) {
  int64_t count = 0;
  const bppsa_schedule_scheme *schemes = bppsa_schedule_schemes(&count);
  for (int64_t i = 0; i < count; ++i) {
    bppsa_text_add(text, "%-16s %-68s %s\n", schemes[i].id, schemes[i].summary, schemes[i].paper);
  }
  bppsa_text_add(text, "\nOptions that not every scheme takes:\n");
  bppsa_schedule_options_text(text);
  return bppsa_text_check(text);
}

json_t *bppsa_schedule_list_json(void) {
  int64_t count = 0;
  const bppsa_schedule_scheme *schemes = bppsa_schedule_schemes(&count);
  json_t *array = json_array();
  bool ok = array != NULL;
  for (int64_t i = 0; ok && i < count; ++i) {
    json_t *object = json_object();
    bool made = object != NULL && bppsa_json_put_text(object, "id", schemes[i].id);
    made = made && bppsa_json_put_text(object, "summary", schemes[i].summary);
    made = made && bppsa_json_put_text(object, "paper", schemes[i].paper);
    made = made && bppsa_json_put(object, "options", bppsa_schedule_options_json(&schemes[i]));
    ok = json_array_append_new(array, bppsa_json_finish(object, made)) == 0;
  }
  return bppsa_json_finish(array, ok);
}
