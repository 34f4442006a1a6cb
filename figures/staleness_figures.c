/* The figures of old and of predicted weights: SpecTrain's figure 8 and table 1, and appendix C of BPPSA with its figure 12.
 * bench/scripts/spectrain.py writes the documents. A row of the study "rmse" has the errors of one s in one run, any other row has
 * the epochs of one run. */
#include "figures/drawn_rows.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "figures/figure_data.h"
#include "figures/measured_rows.h"

/* ---- rows ---- */

static double number_of(const json_t *value) {
  return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static bool is_of_errors(const json_t *row) {
  return bppsa_measured_is(row, "study", "rmse");
}

enum { MOST_POINTS = 2048 }; /* of all rows: gnuplot reads them once for each curve of each panel */

/* Is it an array of triples of numbers? */
static bool is_triples(const json_t *array) {
  for (size_t i = 0; i < json_array_size(array); ++i) {
    const json_t *point = json_array_get(array, i);
    for (size_t k = 0; k < 3; ++k) {
      if (json_array_size(point) != 3 || !json_is_number(json_array_get(point, k))) {
        return false;
      }
    }
  }
  return json_array_size(array) > 0;
}

/* The key of the row's list of points. */
static const char *list_of(const json_t *row) {
  return is_of_errors(row) ? "curve" : "epochs";
}

/* The field that a row lacks, or NULL. */
static const char *find_lack(const json_t *row) {
  static const bppsa_row_field of_epochs[] = {{"study", BPPSA_ROW_TEXT},
                                              {"task", BPPSA_ROW_TEXT},
                                              {"scheme", BPPSA_ROW_TEXT},
                                              {"min_train_loss", BPPSA_ROW_NUMBER},
                                              {"min_validation_loss", BPPSA_ROW_NUMBER},
                                              {"max_validation_accuracy", BPPSA_ROW_NUMBER},
                                              {NULL, BPPSA_ROW_TEXT}},
                               of_errors[] = {{"study", BPPSA_ROW_TEXT},       {"task", BPPSA_ROW_TEXT},
                                              {"optimizer", BPPSA_ROW_TEXT},   {"stale", BPPSA_ROW_NUMBER},
                                              {"predicted", BPPSA_ROW_NUMBER}, {"nearer", BPPSA_ROW_NUMBER},
                                              {"ahead", BPPSA_ROW_COUNT},      {NULL, BPPSA_ROW_TEXT}};
  const char *lacks = bppsa_row_find_lack(row, is_of_errors(row) ? of_errors : of_epochs);
  return lacks != NULL || is_triples(json_object_get(row, list_of(row))) ? lacks : list_of(row);
}

bppsa_status bppsa_staleness_rows_check(const char *path, const json_t *rows) {
  size_t points = 0;
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    BPPSA_TRY(bppsa_row_check(path, i, find_lack(row), "bench/scripts/spectrain.py"));
    points += json_array_size(json_object_get(row, list_of(row)));
    if (points > MOST_POINTS) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "--results: %s: row %zu: %zu points of curves so far, expected at most %d", path, i,
                        points, MOST_POINTS);
    }
  }
  return BPPSA_OK;
}

/* ---- errors of weights ---- */

bppsa_status bppsa_make_prediction(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  const json_t *rows = bppsa_figures_rows(f), *row, *point;
  size_t i, k;
  (void)figure;
  made->left_out = true;
  json_array_foreach(rows, i, row) {
    if (!is_of_errors(row)) {
      continue;
    }
    bppsa_text_add(&made->csv, "%s", made->left_out ? "task,optimizer,ahead,update,stale,predicted\n" : "");
    made->left_out = false;
    json_array_foreach(json_object_get(row, "curve"), k, point) {
      bppsa_text_add(&made->csv, "%s,%s,%" PRId64, bppsa_measured_text(row, "task"), bppsa_measured_text(row, "optimizer"),
                     bppsa_measured_integer(row, "ahead"));
      bppsa_text_add_cells(&made->csv, 3,
                           (double[]){number_of(json_array_get(point, 0)), number_of(json_array_get(point, 1)),
                                      number_of(json_array_get(point, 2))});
      bppsa_text_add(&made->csv, "\n");
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_make_prediction_table(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  const json_t *rows = bppsa_figures_rows(f), *row;
  size_t i;
  (void)figure;
  made->left_out = true;
  json_array_foreach(rows, i, row) {
    if (!is_of_errors(row)) {
      continue;
    }
    if (made->left_out) {
      bppsa_text_add(&made->csv, "task,optimizer,ahead,stale,predicted,ratio,nearer\n");
      bppsa_text_add(&made->html, "<table>\n<tr><th>task</th><th>optimiser</th><th>s</th><th>stale</th><th>predicted</th>"
                                  "<th>predicted / stale</th><th>updates with the prediction nearer</th></tr>\n");
    }
    made->left_out = false;
    const double stale = number_of(json_object_get(row, "stale")), predicted = number_of(json_object_get(row, "predicted")),
                 nearer = number_of(json_object_get(row, "nearer"));
    const int64_t ahead = bppsa_measured_integer(row, "ahead");
    bppsa_text_add(&made->csv, "%s,%s,%" PRId64, bppsa_measured_text(row, "task"), bppsa_measured_text(row, "optimizer"), ahead);
    bppsa_text_add_cells(&made->csv, 4, (double[]){stale, predicted, predicted / stale, nearer});
    bppsa_text_add(&made->csv, "\n");
    bppsa_text_add(&made->html, "<tr><td>");
    bppsa_text_add_escaped(&made->html, bppsa_measured_text(row, "task"));
    bppsa_text_add(&made->html, "</td><td>");
    bppsa_text_add_escaped(&made->html, bppsa_measured_text(row, "optimizer"));
    bppsa_text_add(&made->html, "</td><td>%" PRId64 "</td><td>%.3g</td><td>%.3g</td><td>%.2f</td><td>%.1f %%</td></tr>\n", ahead,
                   stale, predicted, predicted / stale, 100 * nearer);
  }
  bppsa_text_add(&made->html, "%s", made->left_out ? "" : "</table>\n");
  return BPPSA_OK;
}

/* ---- runs from several seeds ---- */

/* Mean, standard deviation (0 for one run) and range over the runs of a group: the rows of one study, task and scheme. */
typedef struct {
  int64_t runs;
  double mean, deviation, low, high;
} spread;

/* The groups of a study: arrays of the rows of one task and scheme, in the order in which they come first. NULL: no memory. */
static json_t *groups_of(const json_t *rows, const char *study) {
  json_t *groups = json_array(), *by_name = json_object();
  bool ok = groups != NULL && by_name != NULL;
  for (size_t i = 0; ok && i < json_array_size(rows); ++i) {
    json_t *row = json_array_get(rows, i);
    char name[2 * (BPPSA_MEASURED_NAME + 1)];
    if (!bppsa_measured_is(row, "study", study)) {
      continue;
    }
    snprintf(name, sizeof name, "%s,%s", bppsa_measured_text(row, "task"), bppsa_measured_text(row, "scheme"));
    json_t *group = json_object_get(by_name, name);
    if (group == NULL) {
      group = json_array();
      ok = json_object_set_new(by_name, name, group) == 0 && json_array_append(groups, group) == 0;
    }
    ok = ok && json_array_append(group, row) == 0;
  }
  json_decref(by_name);
  if (!ok) {
    json_decref(groups);
  }
  return ok ? groups : NULL;
}

/* Where a number is found: in a field of a row or, if key is NULL, in a column of one of its epochs. */
typedef struct {
  const char *key;
  size_t epoch, column;
} source;

static double value_of(const json_t *row, const source *from) {
  return from->key != NULL ? number_of(json_object_get(row, from->key))
                           : number_of(json_array_get(json_array_get(json_object_get(row, "epochs"), from->epoch), from->column));
}

/* Mean, deviation and range of a number over the rows of a group. */
static spread spread_of(const json_t *group, source from) {
  spread s = {.low = (double)INFINITY, .high = -(double)INFINITY};
  double sum = 0, squares = 0;
  const json_t *row;
  size_t i;
  json_array_foreach(group, i, row) {
    const double value = value_of(row, &from);
    if (isfinite(value)) {
      s.runs++;
      sum += value;
      s.low = fmin(s.low, value);
      s.high = fmax(s.high, value);
    }
  }
  s.mean = sum / (double)s.runs;
  json_array_foreach(group, i, row) {
    const double value = value_of(row, &from);
    squares += isfinite(value) ? (value - s.mean) * (value - s.mean) : 0;
  }
  s.deviation = s.runs > 1 ? sqrt(squares / (double)(s.runs - 1)) : 0;
  return s;
}

/* The fields of a run that the table shows. */
static const char *const best[] = {"min_train_loss", "min_validation_loss", "max_validation_accuracy"};

static void add_headings(bppsa_figure_content *made) {
  bppsa_text_add(&made->csv, "task,scheme,runs");
  bppsa_text_add(&made->html, "<table>\n<tr><th>task</th><th>scheme</th><th>runs</th><th>least training loss</th>"
                              "<th>least validation loss</th><th>greatest validation accuracy</th></tr>\n");
  for (int k = 0; k < 3; ++k) {
    bppsa_text_add(&made->csv, ",%s,%s_deviation,%s_low,%s_high", best[k], best[k], best[k], best[k]);
  }
  bppsa_text_add(&made->csv, "\n");
}

/* Adds a group's task and scheme. */
static void add_cells(bppsa_text *csv, const json_t *group) {
  const json_t *row = json_array_get(group, 0);
  bppsa_text_add(csv, "%s,%s", bppsa_measured_text(row, "task"), bppsa_measured_text(row, "scheme"));
}

static void add_group(const json_t *group, bppsa_figure_content *made) {
  const json_t *row = json_array_get(group, 0);
  const int64_t runs = spread_of(group, (source){.key = best[0]}).runs;
  add_cells(&made->csv, group);
  bppsa_text_add(&made->csv, ",%" PRId64, runs);
  bppsa_text_add(&made->html, "<tr><td>");
  bppsa_text_add_escaped(&made->html, bppsa_measured_text(row, "task"));
  bppsa_text_add(&made->html, "</td><td>");
  bppsa_text_add_escaped(&made->html, bppsa_measured_text(row, "scheme"));
  bppsa_text_add(&made->html, "</td><td>%" PRId64 "</td>", runs);
  for (int k = 0; k < 3; ++k) {
    const spread s = spread_of(group, (source){.key = best[k]});
    bppsa_text_add_cells(&made->csv, 4, (double[]){s.mean, s.deviation, s.low, s.high});
    bppsa_text_add(&made->html, k < 2 ? "<td>%.4f &plusmn; %.4f</td>" : "<td>%.2f &plusmn; %.2f %%</td>",
                   (k < 2 ? 1 : 100) * s.mean, (k < 2 ? 1 : 100) * s.deviation);
  }
  bppsa_text_add(&made->csv, "\n");
  bppsa_text_add(&made->html, "</tr>\n");
}

bppsa_status bppsa_make_staleness_table(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  json_t *groups = groups_of(bppsa_figures_rows(f), figure->of), *group;
  size_t i;
  if (groups == NULL) {
    return bppsa_figures_no_room();
  }
  made->left_out = json_array_size(groups) == 0;
  if (!made->left_out) {
    add_headings(made);
  }
  json_array_foreach(groups, i, group) {
    add_group(group, made);
  }
  bppsa_text_add(&made->html, "%s", made->left_out ? "" : "</table>\n");
  json_decref(groups);
  return BPPSA_OK;
}

/* Adds a line for each epoch of the group's first run. */
static void add_epochs(const json_t *group, bppsa_text *csv) {
  enum { LOSS = 1, ACCURACY = 2 /* columns of an epoch */ };
  for (size_t epoch = 0; epoch < json_array_size(json_object_get(json_array_get(group, 0), "epochs")); ++epoch) {
    const spread accuracy = spread_of(group, (source){.epoch = epoch, .column = ACCURACY}),
                 loss = spread_of(group, (source){.epoch = epoch, .column = LOSS});
    add_cells(csv, group);
    bppsa_text_add(csv, ",%zu,%" PRId64, epoch + 1, accuracy.runs);
    bppsa_text_add_cells(csv, 6, (double[]){accuracy.mean, accuracy.low, accuracy.high, loss.mean, loss.low, loss.high});
    bppsa_text_add(csv, "\n");
  }
}

bppsa_status bppsa_make_staleness(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  json_t *groups = groups_of(bppsa_figures_rows(f), figure->of), *group;
  size_t i;
  if (groups == NULL) {
    return bppsa_figures_no_room();
  }
  made->left_out = json_array_size(groups) == 0;
  bppsa_text_add(&made->csv, "%s",
                 made->left_out ? "" : "task,scheme,epoch,runs,accuracy,accuracy_low,accuracy_high,loss,loss_low,loss_high\n");
  json_array_foreach(groups, i, group) {
    add_epochs(group, &made->csv);
  }
  json_decref(groups);
  return BPPSA_OK;
}
