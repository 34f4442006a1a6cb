#include "schedule/compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/decimal.h"
#include "core/files/json.h"

bppsa_schedule_summary bppsa_schedule_summarise(const bppsa_timed *timed) {
  const bppsa_schedule *list = timed->list;
  const bppsa_schedule_config *c = &list->config;
  const bool scan = list->scheme->scan;
  bppsa_schedule_summary s = {.scheme = list->scheme,
                              .layers = scan ? -1 : c->layers,
                              .micro_batches = scan ? -1 : c->micro_batches,
                              .elements = scan ? c->elements : -1,
                              .workers = list->workers,
                              .iterations = c->iterations,
                              .window = c->window,
                              .makespan = timed->times.makespan,
                              .bubble_ratio = timed->times.bubble_ratio,
                              .least = INFINITY};
  for (int64_t w = 0; w < list->workers; ++w) {
    s.most = fmax(s.most, timed->times.worker[w].peak_activations);
    s.least = fmin(s.least, timed->times.worker[w].peak_activations);
    s.weights = fmax(s.weights, timed->times.worker[w].weight_versions);
  }
  return s;
}

/* ---- fields that should agree ---- */

static int64_t layers_of(const bppsa_schedule_summary *s) {
  return s->layers;
}
static int64_t micro_batches_of(const bppsa_schedule_summary *s) {
  return s->micro_batches;
}
static int64_t elements_of(const bppsa_schedule_summary *s) {
  return s->elements;
}
static int64_t workers_of(const bppsa_schedule_summary *s) {
  return s->workers;
}
static int64_t iterations_of(const bppsa_schedule_summary *s) {
  return s->iterations;
}
static int64_t window_of(const bppsa_schedule_summary *s) {
  return s->window;
}

static const struct {
  const char *key, *words;
  int64_t (*value)(const bppsa_schedule_summary *s);
  bool window; /* the value is a bppsa_schedule_window */
} fields[] = {{"layers", "layers", layers_of, false},
              {"micro_batches", "micro-batches", micro_batches_of, false},
              {"elements", "elements", elements_of, false},
              {"workers", "workers", workers_of, false},
              {"iterations", "iterations", iterations_of, false},
              {"window", "window", window_of, true}};
enum { FIELDS = sizeof fields / sizeof fields[0], VALUE_TEXT = 24 };

static bool differs(int field, const bppsa_schedule_summary *rows, int64_t count) {
  for (int64_t i = 1; i < count; ++i) {
    if (fields[field].value(&rows[i]) != fields[field].value(&rows[0])) {
      return true;
    }
  }
  return false;
}

/* Writes a field as a text: "32" or "backward-forward", or "-" if the scheme has no such field. Returns the text. */
static const char *value_text(int field, const bppsa_schedule_summary *row, char text[VALUE_TEXT]) {
  const int64_t value = fields[field].value(row);
  if (fields[field].window) {
    return bppsa_schedule_window_name((int32_t)value);
  }
  snprintf(text, VALUE_TEXT, value >= 0 ? "%" PRId64 : "-", value);
  return text;
}

/* ---- the table ---- */

static void add_row(const bppsa_schedule_summary *rows, int64_t count, int64_t i, bppsa_text *text) {
  const bppsa_schedule_summary *s = &rows[i];
  char activations[48], value[VALUE_TEXT];
  bppsa_print(activations, sizeof activations, "[%.4g, %.4g]", s->least, s->most);
  bppsa_text_add(text, " %-16s  %-10.6g  %-12.4g  %-16s  %-16.4g", s->scheme->id, s->makespan, s->bubble_ratio, activations,
                 s->weights);
  for (int field = 0; field < FIELDS; ++field) {
    if (differs(field, rows, count)) {
      bppsa_text_add(text, "  %-*s", (int)strlen(fields[field].words), value_text(field, s, value));
    }
  }
  bppsa_text_add(text, "\n");
}

/* Lists the fields with commas between them: the ones that differ, or the ones that all schemes have and that agree. */
static int add_fields(const bppsa_schedule_summary *rows, int64_t count, bool different, bppsa_text *text) {
  int added = 0;
  char value[VALUE_TEXT];
  for (int field = 0; field < FIELDS; ++field) {
    if (differs(field, rows, count) == different && (different || fields[field].value(&rows[0]) >= 0)) {
      bppsa_text_add(text, "%s%s", added > 0 ? ", " : "", fields[field].words);
      if (!different) {
        bppsa_text_add(text, " %s", value_text(field, &rows[0], value));
      }
      ++added;
    }
  }
  return added;
}

void bppsa_schedule_table(const bppsa_schedule_summary *rows, int64_t count, bppsa_text *text) {
  if (count == 0) {
    return;
  }
  bppsa_text_add(text, " %-16s  %-10s  %-12s  %-16s  %-16s", "scheme", "makespan", "bubble ratio", "activations, M_a",
                 "weights, M_theta");
  for (int field = 0; field < FIELDS; ++field) {
    if (differs(field, rows, count)) {
      bppsa_text_add(text, "  %s", fields[field].words);
    }
  }
  bppsa_text_add(text, "\n");
  for (int64_t i = 0; i < count; ++i) {
    add_row(rows, count, i, text);
  }
  bppsa_text_add(text, "\nThe same for all: ");
  add_fields(rows, count, false, text);
  bppsa_text_add(text, ".\n");
  bppsa_text differences = {0};
  if (add_fields(rows, count, true, &differences) > 0 && bppsa_text_check(&differences) == BPPSA_OK) {
    bppsa_text_add(text, "Not the same for all: %s. Their times are of different work.\n", differences.text);
  }
  text->failed = text->failed || differences.failed;
  bppsa_text_free(&differences);
}

json_t *bppsa_schedule_differences(const bppsa_schedule_summary *rows, int64_t count) {
  json_t *array = json_array();
  bool ok = array != NULL;
  for (int field = 0; field < FIELDS && ok; ++field) {
    if (differs(field, rows, count)) {
      ok = json_array_append_new(array, json_string(fields[field].key)) == 0;
    }
  }
  return bppsa_json_finish(array, ok);
}

/* ---- all schemes of a list ---- */

enum { COMPARED = 1024 }; /* the most characters of a list of schemes, with the 0 at its end */

/* The schemes that are compared: their names and results. */
typedef struct {
  char text[COMPARED];
  const char *ids[COMPARED / 2];
  bppsa_schedule_summary rows[COMPARED / 2];
  int64_t count;
  json_t *documents;
} comparison;

static bppsa_status no_memory(void) {
  return bppsa_fail(BPPSA_ERR_MEMORY, "JSON document: out of memory, expected room for the results");
}

static bppsa_status split_names(const char *list, comparison *c) {
  char *rest = c->text;
  if (strlen(list) >= sizeof c->text) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--compare: %zu characters, expected fewer than %d", strlen(list), COMPARED);
  }
  strcpy(c->text, list);
  for (char *id = strtok_r(c->text, ",", &rest); id != NULL; id = strtok_r(NULL, ",", &rest)) {
    c->ids[c->count++] = id;
  }
  return c->count > 0 ? BPPSA_OK : bppsa_fail(BPPSA_ERR_ARGUMENT, "--compare: '%s', expected schemes with commas between", list);
}

/* Returns the number of layers of the model that all schemes share: the largest of their defaults. Scans have elements instead. */
static int64_t common_layers(const bppsa_schedule_request *r, const comparison *c) {
  int64_t layers = 0;
  for (int64_t i = 0; i < c->count; ++i) {
    const bppsa_schedule_scheme *scheme = bppsa_schedule_find(c->ids[i]);
    if (scheme != NULL && !scheme->scan) {
      const int64_t own = bppsa_schedule_layers(scheme, &r->config);
      layers = own > layers ? own : layers;
    }
  }
  return layers;
}

static bppsa_status compare_one(const bppsa_schedule_request *r, int64_t layers, int64_t i, comparison *c) {
  bppsa_timed timed;
  BPPSA_TRY(bppsa_schedule_request_make(r, c->ids[i], layers, &timed));
  c->rows[i] = bppsa_schedule_summarise(&timed);
  const bool kept = c->documents == NULL || json_array_append_new(c->documents, bppsa_timed_json(&timed, false)) == 0;
  bppsa_timed_free(&timed);
  return kept ? BPPSA_OK : no_memory();
}

/* Adds to every document the names of the settings in which the schemes differ. */
static bppsa_status render_documents(comparison *c, bppsa_text *shown) {
  bool ok = true;
  for (int64_t i = 0; i < c->count && ok; ++i) {
    ok = bppsa_json_put(json_array_get(c->documents, (size_t)i), "differs", bppsa_schedule_differences(c->rows, c->count));
  }
  json_t *documents = bppsa_json_finish(c->documents, ok);
  c->documents = NULL;
  return bppsa_json_render(documents, &shown->text);
}

static bppsa_status compare_all(const bppsa_schedule_request *r, bool json, comparison *c, bppsa_text *shown) {
  const int64_t layers = common_layers(r, c);
  if (json) {
    c->documents = json_array();
    BPPSA_TRY(c->documents != NULL ? BPPSA_OK : no_memory());
  }
  for (int64_t i = 0; i < c->count; ++i) {
    BPPSA_TRY(compare_one(r, layers, i, c));
  }
  if (json) {
    return render_documents(c, shown);
  }
  bppsa_schedule_table(c->rows, c->count, shown);
  return bppsa_text_check(shown);
}

bppsa_status bppsa_schedule_compare(const bppsa_schedule_request *request, const char *schemes, bool json, bppsa_text *text) {
  comparison c = {.count = 0};
  BPPSA_TRY(split_names(schemes, &c));
  const bppsa_status status = compare_all(request, json, &c, text);
  json_decref(c.documents);
  return status;
}
