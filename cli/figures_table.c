/* Tables 4 and 5 and figure 8: the paper's numbers beside those measured here. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/figures.h"

enum { FIXED_BATCH = 16, FIXED_SEQ_LEN = 1000, MOST_POINTS = 64 };

static const char *const methods[] = {"bp", "linear", "blelloch", "chunked", "auto", "pytorch"};
enum { METHODS = sizeof methods / sizeof methods[0] };

/* ---- looking rows up ---- */

static int64_t integer(const json_t *row, const char *key) {
  return json_integer_value(json_object_get(row, key));
}

static bool is_text(const json_t *row, const char *key, const char *expected) {
  const char *found = json_string_value(json_object_get(row, key));
  return found != NULL && strcmp(found, expected) == 0;
}

static const json_t *find_row(const json_t *rows, int64_t seq_len, int64_t batch, const char *phase, const char *method) {
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    if (integer(row, "seq_len") == seq_len && integer(row, "batch") == batch && is_text(row, "phase", phase) &&
        is_text(row, "method", method) && is_text(row, "init", "default")) {
      return row;
    }
  }
  return NULL;
}

static double seconds_of(const json_t *rows, int64_t seq_len, int64_t batch, const char *phase, const char *method,
                         const char *key) {
  const json_t *value = json_object_get(find_row(rows, seq_len, batch, phase, method), key);
  return json_is_number(value) ? json_number_value(value) : NAN;
}

double bppsa_figures_median(const json_t *rows, int64_t seq_len, int64_t batch, const char *method) {
  return method == NULL ? seconds_of(rows, seq_len, batch, "forward", "forward", "median_s")
                        : seconds_of(rows, seq_len, batch, "backward", method, "median_s");
}

/* PyTorch's forward pass is its own; the program's methods share one. */
static const char *forward_of(const char *method) {
  return method != NULL && strcmp(method, "pytorch") == 0 ? "pytorch" : "forward";
}

double bppsa_figures_iteration(const json_t *rows, int64_t seq_len, int64_t batch, const char *method, const char *key) {
  const double forward = seconds_of(rows, seq_len, batch, "forward", forward_of(method), key);
  return method == NULL ? forward : forward + seconds_of(rows, seq_len, batch, "backward", method, key);
}

bool bppsa_figures_noisy(const json_t *rows, int64_t seq_len, int64_t batch, const char *method) {
  const json_t *forward = find_row(rows, seq_len, batch, "forward", forward_of(method)),
               *backward = method != NULL ? find_row(rows, seq_len, batch, "backward", method) : NULL;
  return json_is_true(json_object_get(forward, "noisy")) || json_is_true(json_object_get(backward, "noisy"));
}

double bppsa_figures_best_scan(const json_t *rows, int64_t seq_len, int64_t batch, bool *noisy) {
  *noisy = bppsa_figures_noisy(rows, seq_len, batch, "blelloch") || bppsa_figures_noisy(rows, seq_len, batch, "chunked");
  return fmin(bppsa_figures_iteration(rows, seq_len, batch, "blelloch", "median_s"), /* fmin passes over NaN */
              bppsa_figures_iteration(rows, seq_len, batch, "chunked", "median_s"));
}

/* Seconds of an epoch: forward alone (method NULL), or forward and backward. */
static double epoch(const json_t *rows, const bppsa_paper_row *at, const char *method, const char *key) {
  const double iterations = (double)BPPSA_PAPER_SAMPLES / (double)at->batch;
  return iterations * bppsa_figures_iteration(rows, at->seq_len, at->batch, method, key);
}

static bool is_noisy(const json_t *rows, const bppsa_paper_row *at, const char *method) {
  return bppsa_figures_noisy(rows, at->seq_len, at->batch, method);
}

json_t *bppsa_figures_growth(const bppsa_figures *figures) {
  return bppsa_bench_growth(json_object_get(figures->document, "rows"), FIXED_BATCH);
}

/* The points of a table: the paper's, then those that were measured beside them. */
static int64_t list_points(const json_t *rows, int table, bppsa_paper_row points[MOST_POINTS]) {
  int64_t count;
  const bppsa_paper_row *paper = bppsa_paper_table(table, &count);
  memcpy(points, paper, (size_t)count * sizeof *points);
  for (size_t i = 0; i < json_array_size(rows) && count < MOST_POINTS; ++i) {
    const json_t *row = json_array_get(rows, i);
    const bppsa_paper_row found = {integer(row, "seq_len"), integer(row, "batch"), NAN, NAN, NAN};
    bool fits = (table == 4 ? found.batch == FIXED_BATCH : found.seq_len == FIXED_SEQ_LEN) && is_text(row, "phase", "forward") &&
                is_text(row, "init", "default");
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

/* The paper's seconds an epoch; those measured here by medians, then by minima; and whose are noisy, blanks between them. */
void bppsa_figures_table_csv(const json_t *rows, int table, bppsa_text *text) {
  static const char *const keys[] = {"median_s", "min_s"};
  bppsa_paper_row points[MOST_POINTS];
  const int64_t count = list_points(rows, table, points);
  bppsa_text_add(text, "seq_len,batch,paper_v100_forward_s,paper_v100_bp_s,paper_v100_bppsa_s");
  for (int k = 0; k < 2; ++k) {
    bppsa_text_add(text, ",forward%s_s", k == 0 ? "" : "_min");
    for (int m = 0; m < METHODS; ++m) {
      bppsa_text_add(text, ",%s%s_s", methods[m], k == 0 ? "" : "_min");
    }
  }
  bppsa_text_add(text, ",noisy\n");
  for (int64_t i = 0; i < count; ++i) {
    const bppsa_paper_row *at = &points[i];
    bppsa_text_add(text, "%" PRId64 ",%" PRId64, at->seq_len, at->batch);
    bppsa_text_add_cells(text, 3, (double[]){at->forward_s, at->bp_s, at->bppsa_s});
    for (int k = 0; k < 2; ++k) {
      add_field(text, epoch(rows, at, NULL, keys[k]));
      for (int m = 0; m < METHODS; ++m) {
        add_field(text, epoch(rows, at, methods[m], keys[k]));
      }
    }
    bppsa_text_add(text, ",");
    bool more = false;
    for (int m = 0; m < METHODS; ++m) {
      if (is_noisy(rows, at, methods[m])) {
        bppsa_text_add(text, "%s%s", more ? " " : "", methods[m]);
        more = true;
      }
    }
    bppsa_text_add(text, "\n");
  }
}

/* x: T or B; times of one iteration, of its backward pass and of both, and what is gained over BP. The paper's backward pass is
 * its total less its forward pass. */
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

void bppsa_figures_figure8_csv(const json_t *rows, bppsa_text *text) {
  bppsa_text_add(text, "axis,value,method,backward_ms,backward_speedup,overall_speedup,overall_ms,noisy\n");
  for (int table = 4; table <= 5; ++table) {
    const char *axis = table == 4 ? "T" : "B";
    bppsa_paper_row points[MOST_POINTS];
    const int64_t count = list_points(rows, table, points);
    sort_points(count, points);
    for (int m = 0; m < METHODS; ++m) {
      for (int64_t i = 0; i < count; ++i) {
        const double backward = bppsa_figures_median(rows, points[i].seq_len, points[i].batch, methods[m]);
        if (!isfinite(backward)) {
          continue;
        }
        bppsa_text_add(text, "%s,%" PRId64 ",%s", axis, table == 4 ? points[i].seq_len : points[i].batch, methods[m]);
        add_field(text, 1e3 * backward);
        add_field(text, bppsa_figures_median(rows, points[i].seq_len, points[i].batch, "bp") / backward);
        const double all = bppsa_figures_iteration(rows, points[i].seq_len, points[i].batch, methods[m], "median_s");
        add_field(text, bppsa_figures_iteration(rows, points[i].seq_len, points[i].batch, "bp", "median_s") / all);
        add_field(text, 1e3 * all);
        bppsa_text_add(text, ",%d\n", is_noisy(rows, &points[i], methods[m]));
      }
    }
    add_paper_points(table, axis, text);
  }
}

/* ---- HTML ---- */

static void add_number(bppsa_text *text, double value, bool noisy) {
  bppsa_text_add(text, "%s%.*f", bppsa_bench_mark(noisy), value < 9.995 ? 3 : 2, value);
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

/* The median, and the minimum below it. */
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

/* Whether a method has a number at any point of the table. */
static bool has_column(const json_t *rows, int64_t count, const bppsa_paper_row *points, const char *method) {
  for (int64_t i = 0; i < count; ++i) {
    if (isfinite(epoch(rows, &points[i], method, "median_s"))) {
      return true;
    }
  }
  return false;
}

void bppsa_figures_table_html(const json_t *rows, int table, bppsa_text *text) {
  bppsa_paper_row points[MOST_POINTS];
  const int64_t count = list_points(rows, table, points);
  bool shown[METHODS];
  int columns = 2;
  for (int m = 0; m < METHODS; ++m) {
    shown[m] = has_column(rows, count, points, methods[m]);
    columns += shown[m];
  }
  bppsa_text_add(text,
                 "<table>\n<tr><th rowspan=\"2\">%s</th><th colspan=\"4\">paper, V100</th><th colspan=\"%d\">here: median, "
                 "<small>minimum</small></th></tr>\n<tr>"
                 "<th>forward</th><th>BP</th><th>BPPSA</th><th>BP / BPPSA</th><th>forward</th>",
                 table == 4 ? "T (B = 16)" : "B (T = 1000)", columns);
  for (int m = 0; m < METHODS; ++m) {
    if (shown[m]) {
      bppsa_text_add(text, "<th>%s</th>", methods[m]);
    }
  }
  bppsa_text_add(text, "<th>BP / best scan</th></tr>\n");
  for (int64_t i = 0; i < count; ++i) {
    const bppsa_paper_row *at = &points[i];
    bool noisy;
    const double scan = bppsa_figures_best_scan(rows, at->seq_len, at->batch, &noisy);
    const double bp = bppsa_figures_iteration(rows, at->seq_len, at->batch, "bp", "median_s");
    bppsa_text_add(text, "<tr><td>%" PRId64 "</td>", table == 4 ? at->seq_len : at->batch);
    add_cell(text, at->forward_s, false);
    add_cell(text, at->bp_s, false);
    add_cell(text, at->bppsa_s, false);
    add_cell(text, at->bp_s / at->bppsa_s, false);
    add_times(text, rows, at, NULL);
    for (int m = 0; m < METHODS; ++m) {
      if (shown[m]) {
        add_times(text, rows, at, methods[m]);
      }
    }
    add_cell(text, bp / scan, noisy || is_noisy(rows, at, "bp"));
    bppsa_text_add(text, "</tr>\n");
  }
  bppsa_text_add(text, "</table>\n");
}

/* ---- who wins ---- */

typedef struct {
  int64_t points, bp_wins, noisy; /* noisy: points left out */
  double best;                    /* largest bp / scan */
  int64_t seq_len, batch;
  const char *init;
  double work[2]; /* the scan's FLOPs over BP's at that point: of the gradients between steps, with those of weights */
} score;

static double number(const json_t *row, const char *key) {
  const json_t *value = json_object_get(row, key);
  return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Rows of one point: the same shape and weights. */
static bool is_same_point(const json_t *a, const json_t *b) {
  static const char *const keys[] = {"seq_len", "batch", "hidden", "input", "layers", "init"};
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; ++i) {
    const json_t *x = json_object_get(a, keys[i]), *y = json_object_get(b, keys[i]);
    if (x != y && !json_equal(x, y)) {
      return false;
    }
  }
  return true;
}

/* BP against the faster parallel scan at one point, forward passes included. */
static void judge(const json_t *rows, const json_t *bp, score *s) {
  double forward = NAN, scan = INFINITY, work[2] = {0, 0};
  bool noisy = json_is_true(json_object_get(bp, "noisy"));
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    const bool is_forward = is_text(row, "phase", "forward") && is_text(row, "method", "forward");
    const bool is_scan =
        is_text(row, "phase", "backward") && (is_text(row, "method", "blelloch") || is_text(row, "method", "chunked"));
    if ((!is_forward && !is_scan) || !is_same_point(row, bp)) {
      continue;
    }
    noisy = noisy || json_is_true(json_object_get(row, "noisy"));
    forward = is_forward ? number(row, "median_s") : forward;
    if (is_scan && number(row, "median_s") < scan) {
      scan = number(row, "median_s");
      work[0] = number(row, "flops_of_bp"); /* NaN: a document from before there was this field */
      work[1] = number(row, "flops") / number(bp, "flops");
    }
  }
  const double ratio = (forward + number(bp, "median_s")) / (forward + scan);
  if (!isfinite(scan) || !isfinite(ratio)) {
    return;
  }
  if (noisy) {
    ++s->noisy;
    return;
  }
  ++s->points;
  s->bp_wins += ratio < 1;
  if (ratio > s->best) {
    *s = (score){.points = s->points,
                 .bp_wins = s->bp_wins,
                 .noisy = s->noisy,
                 .best = ratio,
                 .seq_len = integer(bp, "seq_len"),
                 .batch = integer(bp, "batch"),
                 .init = json_string_value(json_object_get(bp, "init")),
                 .work = {work[0], work[1]}};
  }
}

static void add_noisy_points(const score *s, bppsa_text *text) {
  if (s->noisy > 0) {
    bppsa_text_add(text,
                   "%" PRId64
                   " point%s noisy, measured twice, and left out of this: half of the passes took more than 1.25 times the "
                   "fastest one. ",
                   s->noisy, s->noisy == 1 ? " is" : "s are");
  }
}

void bppsa_figures_verdict(const json_t *document, bppsa_text *text) {
  const json_t *rows = json_object_get(document, "rows");
  const int64_t threads = integer(json_object_get(document, "device"), "threads");
  score s = {0};
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    if (is_text(row, "method", "bp") && is_text(row, "phase", "backward")) {
      judge(rows, row, &s);
    }
  }
  if (s.points == 0) {
    bppsa_text_add(text, s.noisy > 0 ? "No conclusion: every point that was measured by BP and by a parallel scan is noisy. "
                                     : "No point was measured by BP and by a parallel scan.");
    add_noisy_points(&s, text);
    return;
  }
  bppsa_text_add(text,
                 "On this machine, with %" PRId64
                 " thread%s, one forward and one backward pass of sequential BP, by medians, are "
                 "faster than by both parallel scans (Blelloch and chunked) at %" PRId64 " of %" PRId64 " measured points. ",
                 threads, threads == 1 ? "" : "s", s.bp_wins, s.points);
  bppsa_text_add(text,
                 "The scan %s at T = %" PRId64 ", B = %" PRId64 " (init %s), where BP takes %.2f times the best scan's "
                 "time; the scan's backward pass does %.1f times the FLOPs of BP's, gradients of weights included",
                 s.best > 1 ? "wins most clearly" : "comes closest", s.seq_len, s.batch, s.init != NULL ? s.init : "default",
                 s.best, s.work[1]);
  if (isfinite(s.work[0])) {
    bppsa_text_add(text, " (%.1f times for the gradients between steps alone)", s.work[0]);
  }
  bppsa_text_add(text, ". ");
  add_noisy_points(&s, text);
  bppsa_text_add(
      text, "The scan's matrix products cost about H times the arithmetic of BP's matrix-vector products; it pays where far more "
            "workers stand ready than there are samples in the batch, as on the paper's GPUs, whose baseline was cuDNN 7. "
            "The linear scan is the recurrence of BP itself.");
}
