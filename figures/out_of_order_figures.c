/* The figures of steps whose weight gradients come out of order, beside steps in order: ooo-backprop's Algorithms 1 and 2,
 * measured. bench/scripts/out_of_order.py writes the documents, a row for each way to take a step; the ways of a group compute the
 * same. */
#include "figures/drawn_rows.h"

#include <math.h>
#include <string.h>

#include "figures/figure_data.h"
#include "figures/measured_rows.h"

/* ---- rows ---- */

bppsa_status bppsa_out_of_order_rows_check(const char *path, const json_t *rows) {
  static const bppsa_row_field fields[] = {{"group", BPPSA_ROW_TEXT},        {"way", BPPSA_ROW_TEXT},
                                           {"median_s", BPPSA_ROW_POSITIVE}, {"min_s", BPPSA_ROW_POSITIVE},
                                           {"max_s", BPPSA_ROW_POSITIVE},    {"same_bits", BPPSA_ROW_FLAG},
                                           {"noisy", BPPSA_ROW_FLAG},        {NULL, BPPSA_ROW_TEXT}};
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const char *lacks = bppsa_row_find_lack(json_array_get(rows, i), fields);
    BPPSA_TRY(bppsa_row_check(path, i, lacks, "bench/scripts/out_of_order.py"));
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
