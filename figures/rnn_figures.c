/* Tables 4 and 5, figure 8 and the growth with T: the numbers of bench rnn beside the paper's, and those of bench lstm alone. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/measure/rounds.h"
#include "figures/figure_data.h"
#include "figures/measured_rows.h"

enum { FIXED_BATCH = 16, FIXED_SEQ_LEN = 1000, MOST_POINTS = 64 };

/* Seconds per epoch: of the forward passes alone (method NULL), or of forward and backward passes. */
static double epoch(const json_t *rows, const bppsa_paper_row *at, const char *method, const char *key) {
  const double iterations = (double)BPPSA_PAPER_SAMPLES / (double)at->batch;
  return iterations * bppsa_measured_iteration(rows, at->seq_len, at->batch, method, key);
}

static bool is_noisy(const json_t *rows, const bppsa_paper_row *at, const char *method) {
  return bppsa_measured_noisy(rows, at->seq_len, at->batch, method);
}

/* Lists the points of a table: the paper's, then all other points that were measured. */
static int64_t list_points(const json_t *rows, int table, bppsa_paper_row points[MOST_POINTS]) {
  int64_t count;
  const bppsa_paper_row *paper = bppsa_paper_table(table, &count);
  memcpy(points, paper, (size_t)count * sizeof *points);
  for (size_t i = 0; i < json_array_size(rows) && count < MOST_POINTS; ++i) {
    const json_t *row = json_array_get(rows, i);
    const bppsa_paper_row found = {bppsa_measured_integer(row, "seq_len"), bppsa_measured_integer(row, "batch"), NAN, NAN, NAN};
    bool fits = (table == 4 ? found.batch == FIXED_BATCH : found.seq_len == FIXED_SEQ_LEN) &&
                bppsa_measured_is(row, "phase", "forward") && bppsa_measured_is(row, "init", "default");
    for (int64_t k = 0; fits && k < count; ++k) {
      fits = points[k].seq_len != found.seq_len || points[k].batch != found.batch;
    }
    if (fits) {
      points[count++] = found;
    }
  }
  return count;
}

/* ---- CSV ---- */

static void add_field(bppsa_text *text, double value) {
  bppsa_text_add_cells(text, 1, &value);
}

/* Columns: the paper's seconds per epoch; ours from medians, then from minima; the names of the noisy methods, separated by
 * blanks. */
static void table_csv(const json_t *rows, const bppsa_epochs_source *of, bppsa_text *text) {
  static const char *const keys[] = {"median_s", "min_s"};
  bppsa_paper_row points[MOST_POINTS];
  const int64_t count = list_points(rows, of->table, points);
  bppsa_text_add(text, "seq_len,batch%s", of->paper ? ",paper_v100_forward_s,paper_v100_bp_s,paper_v100_bppsa_s" : "");
  for (int k = 0; k < 2; ++k) {
    bppsa_text_add(text, ",forward%s_s", k == 0 ? "" : "_min");
    for (int m = 0; m < BPPSA_MEASURED_METHODS; ++m) {
      bppsa_text_add(text, ",%s%s_s", bppsa_measured_method(m), k == 0 ? "" : "_min");
    }
  }
  bppsa_text_add(text, ",noisy\n");
  for (int64_t i = 0; i < count; ++i) {
    const bppsa_paper_row *at = &points[i];
    bppsa_text_add(text, "%" PRId64 ",%" PRId64, at->seq_len, at->batch);
    bppsa_text_add_cells(text, of->paper ? 3 : 0, (double[]){at->forward_s, at->bp_s, at->bppsa_s});
    for (int k = 0; k < 2; ++k) {
      add_field(text, epoch(rows, at, NULL, keys[k]));
      for (int m = 0; m < BPPSA_MEASURED_METHODS; ++m) {
        add_field(text, epoch(rows, at, bppsa_measured_method(m), keys[k]));
      }
    }
    bppsa_text_add(text, ",");
    bool more = false;
    for (int m = 0; m < BPPSA_MEASURED_METHODS; ++m) {
      if (is_noisy(rows, at, bppsa_measured_method(m))) {
        bppsa_text_add(text, "%s%s", more ? " " : "", bppsa_measured_method(m));
        more = true;
      }
    }
    bppsa_text_add(text, "\n");
  }
}

/* Adds lines with x (T or B), the times of one iteration (of its backward pass, and of both passes), and the speedups over BP. The
 * paper's time of the backward pass is its total minus its forward pass. */
static void add_paper_points(int table, const char *axis, bppsa_text *text) {
  int64_t count;
  const bppsa_paper_row *rows = bppsa_paper_table(table, &count);
  for (int64_t i = 0; i < count; ++i) {
    const double iterations = (double)BPPSA_PAPER_SAMPLES / (double)rows[i].batch, backward = rows[i].bppsa_s - rows[i].forward_s;
    bppsa_text_add(text, "%s,%" PRId64 ",paper", axis, table == 4 ? rows[i].seq_len : rows[i].batch);
    add_field(text, 1e3 * backward / iterations);
    add_field(text, (rows[i].bp_s - rows[i].forward_s) / backward);
    add_field(text, rows[i].bp_s / rows[i].bppsa_s);
    add_field(text, 1e3 * rows[i].bppsa_s / iterations);
    bppsa_text_add(text, ",0\n");
  }
}

static int by_point(const bppsa_paper_row *a, const bppsa_paper_row *b) {
  return a->seq_len != b->seq_len ? (a->seq_len > b->seq_len) - (a->seq_len < b->seq_len)
                                  : (a->batch > b->batch) - (a->batch < b->batch);
}

static void sort_points(int64_t count, bppsa_paper_row *points) {
  for (int64_t i = 1; i < count; ++i) {
    for (int64_t k = i; k > 0 && by_point(&points[k], &points[k - 1]) < 0; --k) {
      const bppsa_paper_row swap = points[k];
      points[k] = points[k - 1];
      points[k - 1] = swap;
    }
  }
}

static void figure8_csv(const json_t *rows, bool paper, bppsa_text *text) {
  bppsa_text_add(text, "axis,value,method,backward_ms,backward_speedup,overall_speedup,overall_ms,noisy\n");
  for (int table = 4; table <= 5; ++table) {
    const char *axis = table == 4 ? "T" : "B";
    bppsa_paper_row points[MOST_POINTS];
    const int64_t count = list_points(rows, table, points);
    sort_points(count, points);
    for (int m = 0; m < BPPSA_MEASURED_METHODS; ++m) {
      for (int64_t i = 0; i < count; ++i) {
        const double backward = bppsa_measured_median(rows, points[i].seq_len, points[i].batch, bppsa_measured_method(m));
        if (!isfinite(backward)) {
          continue;
        }
        bppsa_text_add(text, "%s,%" PRId64 ",%s", axis, table == 4 ? points[i].seq_len : points[i].batch,
                       bppsa_measured_method(m));
        add_field(text, 1e3 * backward);
        add_field(text, bppsa_measured_median(rows, points[i].seq_len, points[i].batch, "bp") / backward);
        const double all =
            bppsa_measured_iteration(rows, points[i].seq_len, points[i].batch, bppsa_measured_method(m), "median_s");
        add_field(text, bppsa_measured_iteration(rows, points[i].seq_len, points[i].batch, "bp", "median_s") / all);
        add_field(text, 1e3 * all);
        bppsa_text_add(text, ",%d\n", is_noisy(rows, &points[i], bppsa_measured_method(m)));
      }
    }
    if (paper) {
      add_paper_points(table, axis, text);
    }
  }
}

/* ---- HTML ---- */

static void add_number(bppsa_text *text, double value, bool noisy) {
  bppsa_text_add(text, "%s%.*f", bppsa_timing_mark(noisy), value < 9.995 ? 3 : 2, value);
}

static void add_cell(bppsa_text *text, double value, bool noisy) {
  if (isfinite(value)) {
    bppsa_text_add(text, "<td>");
    add_number(text, value, noisy);
    bppsa_text_add(text, "</td>");
  } else {
    bppsa_text_add(text, "<td class=\"none\">&#8211;</td>");
  }
}

/* Adds the median, and the minimum below it. */
static void add_times(bppsa_text *text, const json_t *rows, const bppsa_paper_row *at, const char *method) {
  const double median = epoch(rows, at, method, "median_s"), least = epoch(rows, at, method, "min_s");
  if (!isfinite(median) || !isfinite(least)) {
    add_cell(text, median, is_noisy(rows, at, method));
    return;
  }
  bppsa_text_add(text, "<td>");
  add_number(text, median, is_noisy(rows, at, method));
  bppsa_text_add(text, "<br><small>");
  add_number(text, least, false);
  bppsa_text_add(text, "</small></td>");
}

/* Does the method have a number at any point of the table? */
static bool has_column(const json_t *rows, int64_t count, const bppsa_paper_row *points, const char *method) {
  for (int64_t i = 0; i < count; ++i) {
    if (isfinite(epoch(rows, &points[i], method, "median_s"))) {
      return true;
    }
  }
  return false;
}

static void table_html(const json_t *rows, const bppsa_epochs_source *of, bppsa_text *text) {
  const int table = of->table;
  bppsa_paper_row points[MOST_POINTS];
  const int64_t count = list_points(rows, table, points);
  bool shown[BPPSA_MEASURED_METHODS];
  int columns = 2;
  for (int m = 0; m < BPPSA_MEASURED_METHODS; ++m) {
    shown[m] = has_column(rows, count, points, bppsa_measured_method(m));
    columns += shown[m];
  }
  bppsa_text_add(
      text,
      "<table>\n<tr><th rowspan=\"2\">%s</th>%s<th colspan=\"%d\">here: median, <small>minimum</small></th></tr>\n<tr>%s"
      "<th>forward</th>",
      table == 4 ? "T (B = 16)" : "B (T = 1000)", of->paper ? "<th colspan=\"4\">paper, V100</th>" : "", columns,
      of->paper ? "<th>forward</th><th>BP</th><th>BPPSA</th><th>BP / BPPSA</th>" : "");
  for (int m = 0; m < BPPSA_MEASURED_METHODS; ++m) {
    if (shown[m]) {
      bppsa_text_add(text, "<th>%s</th>", bppsa_measured_method(m));
    }
  }
  bppsa_text_add(text, "<th>BP / best scan</th></tr>\n");
  for (int64_t i = 0; i < count; ++i) {
    const bppsa_paper_row *at = &points[i];
    bool noisy;
    const double scan = bppsa_measured_best_scan(rows, at->seq_len, at->batch, &noisy);
    const double bp = bppsa_measured_iteration(rows, at->seq_len, at->batch, "bp", "median_s");
    bppsa_text_add(text, "<tr><td>%" PRId64 "</td>", table == 4 ? at->seq_len : at->batch);
    const double paper[] = {at->forward_s, at->bp_s, at->bppsa_s, at->bp_s / at->bppsa_s};
    for (int k = 0; of->paper && k < 4; ++k) {
      add_cell(text, paper[k], false);
    }
    add_times(text, rows, at, NULL);
    for (int m = 0; m < BPPSA_MEASURED_METHODS; ++m) {
      if (shown[m]) {
        add_times(text, rows, at, bppsa_measured_method(m));
      }
    }
    add_cell(text, bp / scan, noisy || is_noisy(rows, at, "bp"));
    bppsa_text_add(text, "</tr>\n");
  }
  bppsa_text_add(text, "</table>\n");
}

/* ---- the figures' data ---- */

bppsa_status bppsa_make_epochs(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  table_csv(bppsa_figures_rows(f), figure->of, &made->csv);
  table_html(bppsa_figures_rows(f), figure->of, &made->html);
  return BPPSA_OK;
}

bppsa_status bppsa_make_figure8(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  figure8_csv(bppsa_figures_rows(f), *(const bool *)figure->of, &made->csv);
  if (bppsa_text_check(&made->csv) == BPPSA_OK &&
      (strstr(made->csv.text, "\nT,") == NULL || strstr(made->csv.text, "\nB,") == NULL)) { /* a panel would be empty */
    bppsa_text_free(&made->csv);
    made->left_out = true;
  }
  return BPPSA_OK;
}

bppsa_status bppsa_make_growth(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  (void)figure;
  json_t *growth = bppsa_bench_growth(bppsa_figures_rows(f), FIXED_BATCH);
  if (growth == NULL) {
    return bppsa_figures_no_room();
  }
  made->left_out = json_array_size(growth) == 0; /* fewer than three values of T were measured */
  if (!made->left_out) {
    bppsa_bench_growth_csv(growth, &made->csv);
    bppsa_bench_growth_html(growth, &made->html);
  }
  json_decref(growth);
  return BPPSA_OK;
}
