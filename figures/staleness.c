/* The figures of old and of predicted weights: SpecTrain's figure 8 and table 1, and appendix C of BPPSA with its figure 12.
 * bench/scripts/spectrain.py writes the documents. A row of the study "rmse" has the errors of one s in one run, any other row has
 * the epochs of one run. */
#include "figures/staleness.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "figures/data.h"
#include "figures/measured.h"

/* ---- rows ---- */

static double number_of(const json_t *value) {
  return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static bool is_of_errors(const json_t *row) {
  return bppsa_measured_is(row, "study", "rmse");
}

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

/* The field that a row lacks, or NULL. */
static const char *find_lack(const json_t *row) {
  static const char *const texts[][3] = {{"study", "task", "scheme"}, {"study", "task", "optimizer"}},
                           *const numbers[][3] = {{"min_train_loss", "min_validation_loss", "max_validation_accuracy"},
                                                  {"stale", "predicted", "nearer"}};
  const int errors = is_of_errors(row);
  for (int i = 0; i < 3; ++i) {
    if (!json_is_string(json_object_get(row, texts[errors][i]))) {
      return texts[errors][i];
    }
  }
  for (int i = 0; i < 3; ++i) {
    if (!json_is_number(json_object_get(row, numbers[errors][i]))) {
      return numbers[errors][i];
    }
  }
  if (errors && bppsa_measured_integer(row, "ahead") < 1) {
    return "ahead";
  }
  const char *list = errors ? "curve" : "epochs";
  return is_triples(json_object_get(row, list)) ? NULL : list;
}

bppsa_status bppsa_staleness_rows_check(const char *path, const json_t *rows) {
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const char *lacks = find_lack(json_array_get(rows, i));
    if (lacks != NULL) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "--results: %s: row %zu lacks %s, expected a row of bench/scripts/spectrain.py", path,
                        i, lacks);
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

static bool is_same(const json_t *a, const json_t *b, const char *key) {
  return strcmp(bppsa_measured_text(a, key), bppsa_measured_text(b, key)) == 0;
}

static bool is_beside(const json_t *a, const json_t *b) {
  return is_same(a, b, "study") && is_same(a, b, "task") && is_same(a, b, "scheme");
}

/* Row i of the study if it is the first of its group, otherwise NULL. */
static const json_t *first_of_group(const json_t *rows, size_t i, const char *study) {
  const json_t *row = json_array_get(rows, i);
  for (size_t k = 0; k < i; ++k) {
    if (is_beside(json_array_get(rows, k), row)) {
      return NULL;
    }
  }
  return bppsa_measured_is(row, "study", study) ? row : NULL;
}

/* What a number is taken from: a field of a row, or (key NULL) a column of one of its epochs. */
typedef struct {
  const char *key;
  size_t epoch, column;
} source;

static double value_of(const json_t *row, const source *from) {
  return from->key != NULL ? number_of(json_object_get(row, from->key))
                           : number_of(json_array_get(json_array_get(json_object_get(row, "epochs"), from->epoch), from->column));
}

static spread spread_of(const json_t *rows, const json_t *group, source from) {
  spread s = {.low = (double)INFINITY, .high = -(double)INFINITY};
  double sum = 0, squares = 0;
  const json_t *row;
  size_t i;
  json_array_foreach(rows, i, row) {
    const double value = is_beside(row, group) ? value_of(row, &from) : (double)NAN;
    if (isfinite(value)) {
      s.runs++;
      sum += value;
      s.low = fmin(s.low, value);
      s.high = fmax(s.high, value);
    }
  }
  s.mean = sum / (double)s.runs;
  json_array_foreach(rows, i, row) {
    const double value = is_beside(row, group) ? value_of(row, &from) : (double)NAN;
    squares += isfinite(value) ? (value - s.mean) * (value - s.mean) : 0;
  }
  s.deviation = s.runs > 1 ? sqrt(squares / (double)(s.runs - 1)) : 0;
  return s;
}

/* What the table shows of a run. */
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

static void add_group(const json_t *rows, const json_t *group, bppsa_figure_content *made) {
  const int64_t runs = spread_of(rows, group, (source){.key = best[0]}).runs;
  bppsa_text_add(&made->csv, "%s,%s,%" PRId64, bppsa_measured_text(group, "task"), bppsa_measured_text(group, "scheme"), runs);
  bppsa_text_add(&made->html, "<tr><td>");
  bppsa_text_add_escaped(&made->html, bppsa_measured_text(group, "task"));
  bppsa_text_add(&made->html, "</td><td>");
  bppsa_text_add_escaped(&made->html, bppsa_measured_text(group, "scheme"));
  bppsa_text_add(&made->html, "</td><td>%" PRId64 "</td>", runs);
  for (int k = 0; k < 3; ++k) {
    const spread s = spread_of(rows, group, (source){.key = best[k]});
    bppsa_text_add_cells(&made->csv, 4, (double[]){s.mean, s.deviation, s.low, s.high});
    bppsa_text_add(&made->html, k < 2 ? "<td>%.4f &plusmn; %.4f</td>" : "<td>%.2f &plusmn; %.2f %%</td>",
                   (k < 2 ? 1 : 100) * s.mean, (k < 2 ? 1 : 100) * s.deviation);
  }
  bppsa_text_add(&made->csv, "\n");
  bppsa_text_add(&made->html, "</tr>\n");
}

bppsa_status bppsa_make_staleness_table(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  const json_t *rows = bppsa_figures_rows(f);
  made->left_out = true;
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *group = first_of_group(rows, i, figure->of);
    if (group == NULL) {
      continue;
    }
    if (made->left_out) {
      add_headings(made);
    }
    made->left_out = false;
    add_group(rows, group, made);
  }
  bppsa_text_add(&made->html, "%s", made->left_out ? "" : "</table>\n");
  return BPPSA_OK;
}

bppsa_status bppsa_make_staleness(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  enum { LOSS = 1, ACCURACY = 2 /* columns of an epoch */ };
  const json_t *rows = bppsa_figures_rows(f);
  made->left_out = true;
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *group = first_of_group(rows, i, figure->of);
    for (size_t epoch = 0; group != NULL && epoch < json_array_size(json_object_get(group, "epochs")); ++epoch) {
      const spread accuracy = spread_of(rows, group, (source){.epoch = epoch, .column = ACCURACY}),
                   loss = spread_of(rows, group, (source){.epoch = epoch, .column = LOSS});
      bppsa_text_add(&made->csv, "%s",
                     made->left_out ? "task,scheme,epoch,runs,accuracy,accuracy_low,accuracy_high,loss,loss_low,loss_high\n"
                                    : "");
      made->left_out = false;
      bppsa_text_add(&made->csv, "%s,%s,%zu,%" PRId64, bppsa_measured_text(group, "task"), bppsa_measured_text(group, "scheme"),
                     epoch + 1, accuracy.runs);
      bppsa_text_add_cells(&made->csv, 6, (double[]){accuracy.mean, accuracy.low, accuracy.high, loss.mean, loss.low, loss.high});
      bppsa_text_add(&made->csv, "\n");
    }
  }
  return BPPSA_OK;
}
