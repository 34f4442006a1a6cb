/* The figures of steps whose weight gradients come out of order, beside steps in order: ooo-backprop's Algorithms 1 and 2,
 * measured. bench/scripts/out_of_order.py writes the documents, a row for each way to take a step; the ways of a group compute the
 * same. */
#include "figures/out_of_order_figures.h"

#include <math.h>
#include <string.h>

#include "figures/figure_data.h"
#include "figures/measured_rows.h"

/* ---- rows ---- */

bppsa_status bppsa_out_of_order_rows_check(const char *path, const json_t *rows) {
  static const char *const texts[] = {"group", "way"}, *const numbers[] = {"median_s", "min_s", "max_s"},
                           *const flags[] = {"same_bits", "noisy"};
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    const char *lacks = NULL;
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; ++k) {
      lacks = lacks == NULL && !json_is_string(json_object_get(row, texts[k])) ? texts[k] : lacks;
    }
    for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; ++k) {
      lacks = lacks == NULL && !(bppsa_measured_real(row, numbers[k]) > 0) ? numbers[k] : lacks;
    }
    for (size_t k = 0; k < sizeof flags / sizeof flags[0]; ++k) {
      lacks = lacks == NULL && !json_is_boolean(json_object_get(row, flags[k])) ? flags[k] : lacks;
    }
    if (lacks != NULL) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "--results: %s: row %zu lacks %s, expected a row of bench/scripts/out_of_order.py",
                        path, i, lacks);
    }
  }
  return BPPSA_OK;
}

/* The way in order of the row's group, which is the group's first row. */
static const json_t *in_order(const json_t *rows, const json_t *row) {
  size_t i = 0;
  while (!bppsa_measured_is(json_array_get(rows, i), "group", bppsa_measured_text(row, "group"))) {
    ++i;
  }
  return json_array_get(rows, i);
}

/* What may be concluded of two ways: nothing where one of them is noisy, or where their ranges have a time in common. */
static const char *verdict_of(const json_t *first, const json_t *row) {
  const bool noisy = json_is_true(json_object_get(first, "noisy")) || json_is_true(json_object_get(row, "noisy"));
  return row == first                                                              ? ""
         : noisy                                                                   ? "noisy"
         : bppsa_measured_real(row, "max_s") < bppsa_measured_real(first, "min_s") ? "faster"
         : bppsa_measured_real(row, "min_s") > bppsa_measured_real(first, "max_s") ? "slower"
                                                                                   : "within the range";
}

/* ---- data ---- */

/* A row's numbers, times in milliseconds. */
typedef struct {
  double median, least, most, over; /* over: the median over that of the way in order */
  bool same;                        /* bits */
  const char *verdict;
} way;

static way way_of(const json_t *rows, const json_t *row) {
  const json_t *first = in_order(rows, row);
  return (way){.median = 1e3 * bppsa_measured_real(row, "median_s"),
               .least = 1e3 * bppsa_measured_real(row, "min_s"),
               .most = 1e3 * bppsa_measured_real(row, "max_s"),
               .over = bppsa_measured_real(row, "median_s") / bppsa_measured_real(first, "median_s"),
               .same = json_is_true(json_object_get(row, "same_bits")),
               .verdict = verdict_of(first, row)};
}

bppsa_status bppsa_make_out_of_order(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  const json_t *rows = bppsa_figures_rows(f), *row;
  size_t i;
  (void)figure;
  made->left_out = json_array_size(rows) == 0;
  json_array_foreach(rows, i, row) {
    const way w = way_of(rows, row);
    bppsa_text_add(&made->csv, "%s", i == 0 ? "group,way,median_ms,min_ms,max_ms,over_in_order,same_bits,noisy,verdict\n" : "");
    bppsa_text_add(&made->csv, "%s,%s", bppsa_measured_text(row, "group"), bppsa_measured_text(row, "way"));
    bppsa_text_add_cells(&made->csv, 4, (double[]){w.median, w.least, w.most, w.over});
    bppsa_text_add(&made->csv, ",%s,%d,%s\n", w.same ? "yes" : "no", json_is_true(json_object_get(row, "noisy")), w.verdict);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_make_out_of_order_table(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  const json_t *rows = bppsa_figures_rows(f), *row;
  size_t i;
  BPPSA_TRY(bppsa_make_out_of_order(f, figure, made));
  json_array_foreach(rows, i, row) {
    const way w = way_of(rows, row);
    bppsa_text_add(&made->html, "%s<tr><td>",
                   i == 0 ? "<table>\n<tr><th>group</th><th>way</th><th>ms a step</th><th>fastest .. slowest round</th>"
                            "<th>over the way in order</th><th>bits</th><th>against it</th></tr>\n"
                          : "");
    bppsa_text_add_escaped(&made->html, bppsa_measured_text(row, "group"));
    bppsa_text_add(&made->html, "</td><td>");
    bppsa_text_add_escaped(&made->html, bppsa_measured_text(row, "way"));
    bppsa_text_add(&made->html, "</td><td>%.3f</td><td>%.3f .. %.3f</td><td>%.3f</td><td>%s</td><td>%s</td></tr>\n", w.median,
                   w.least, w.most, w.over, w.same ? "the same" : "OTHER", w.verdict);
  }
  bppsa_text_add(&made->html, "%s", made->left_out ? "" : "</table>\n");
  return BPPSA_OK;
}
