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

static double median_of(const json_t *rows, int64_t seq_len, int64_t batch, const char *phase, const char *method) {
  const json_t *value = json_object_get(find_row(rows, seq_len, batch, phase, method), "median_s");
  return json_is_number(value) ? json_number_value(value) : NAN;
}

double bppsa_figures_median(const json_t *rows, int64_t seq_len, int64_t batch, const char *method) {
  return method == NULL ? median_of(rows, seq_len, batch, "forward", "forward")
                        : median_of(rows, seq_len, batch, "backward", method);
}

/* Seconds of an epoch: forward alone (method NULL), or forward and backward. PyTorch's forward is its own. */
static double epoch(const json_t *rows, const bppsa_paper_row *at, const char *method) {
  const double iterations = (double)BPPSA_PAPER_SAMPLES / (double)at->batch;
  const bool rival = method != NULL && strcmp(method, "pytorch") == 0;
  const double forward = median_of(rows, at->seq_len, at->batch, "forward", rival ? "pytorch" : "forward");
  return iterations * (method == NULL ? forward : forward + bppsa_figures_median(rows, at->seq_len, at->batch, method));
}

static double best_scan(const json_t *rows, const bppsa_paper_row *at) {
  return fmin(epoch(rows, at, "blelloch"), epoch(rows, at, "chunked")); /* fmin passes over NaN */
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

/* ",1.23", or "," where there is no number. */
static void add_field(bppsa_text *text, double value) {
  if (isfinite(value)) {
    bppsa_text_add(text, ",%.6g", value);
  } else {
    bppsa_text_add(text, ",");
  }
}

void bppsa_figures_table_csv(const json_t *rows, int table, bppsa_text *text) {
  bppsa_paper_row points[MOST_POINTS];
  const int64_t count = list_points(rows, table, points);
  bppsa_text_add(text, "seq_len,batch,paper_v100_forward_s,paper_v100_bp_s,paper_v100_bppsa_s,forward_s");
  for (int m = 0; m < METHODS; ++m) {
    bppsa_text_add(text, ",%s_s", methods[m]);
  }
  bppsa_text_add(text, "\n");
  for (int64_t i = 0; i < count; ++i) {
    bppsa_text_add(text, "%" PRId64 ",%" PRId64, points[i].seq_len, points[i].batch);
    add_field(text, points[i].forward_s);
    add_field(text, points[i].bp_s);
    add_field(text, points[i].bppsa_s);
    add_field(text, epoch(rows, &points[i], NULL));
    for (int m = 0; m < METHODS; ++m) {
      add_field(text, epoch(rows, &points[i], methods[m]));
    }
    bppsa_text_add(text, "\n");
  }
}

/* x: T or B; times of one iteration and what is gained over BP. The paper's backward pass is its total less its forward pass. */
static void add_paper_points(int table, const char *axis, bppsa_text *text) {
  int64_t count;
  const bppsa_paper_row *rows = bppsa_paper_table(table, &count);
  for (int64_t i = 0; i < count; ++i) {
    const double iterations = (double)BPPSA_PAPER_SAMPLES / (double)rows[i].batch, backward = rows[i].bppsa_s - rows[i].forward_s;
    bppsa_text_add(text, "%s,%" PRId64 ",paper", axis, table == 4 ? rows[i].seq_len : rows[i].batch);
    add_field(text, 1e3 * backward / iterations);
    add_field(text, (rows[i].bp_s - rows[i].forward_s) / backward);
    add_field(text, rows[i].bp_s / rows[i].bppsa_s);
    bppsa_text_add(text, "\n");
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
  bppsa_text_add(text, "axis,value,method,backward_ms,backward_speedup,overall_speedup\n");
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
        add_field(text, epoch(rows, &points[i], "bp") / epoch(rows, &points[i], methods[m]));
        bppsa_text_add(text, "\n");
      }
    }
    add_paper_points(table, axis, text);
  }
}

/* ---- HTML ---- */

static void add_cell(bppsa_text *text, double value) {
  if (isfinite(value)) {
    bppsa_text_add(text, "<td>%.*f</td>", value < 9.995 ? 3 : 2, value);
  } else {
    bppsa_text_add(text, "<td class=\"none\">&#8211;</td>");
  }
}

void bppsa_figures_table_html(const json_t *rows, int table, bppsa_text *text) {
  bppsa_paper_row points[MOST_POINTS];
  const int64_t count = list_points(rows, table, points);
  bppsa_text_add(text,
                 "<table>\n<tr><th rowspan=\"2\">%s</th><th colspan=\"4\">paper, V100</th><th colspan=\"%d\">here</th></tr>\n<tr>"
                 "<th>forward</th><th>BP</th><th>BPPSA</th><th>BP / BPPSA</th><th>forward</th>",
                 table == 4 ? "T (B = 16)" : "B (T = 1000)", METHODS + 2);
  for (int m = 0; m < METHODS; ++m) {
    bppsa_text_add(text, "<th>%s</th>", methods[m]);
  }
  bppsa_text_add(text, "<th>BP / best scan</th></tr>\n");
  for (int64_t i = 0; i < count; ++i) {
    bppsa_text_add(text, "<tr><td>%" PRId64 "</td>", table == 4 ? points[i].seq_len : points[i].batch);
    add_cell(text, points[i].forward_s);
    add_cell(text, points[i].bp_s);
    add_cell(text, points[i].bppsa_s);
    add_cell(text, points[i].bp_s / points[i].bppsa_s);
    add_cell(text, epoch(rows, &points[i], NULL));
    for (int m = 0; m < METHODS; ++m) {
      add_cell(text, epoch(rows, &points[i], methods[m]));
    }
    add_cell(text, epoch(rows, &points[i], "bp") / best_scan(rows, &points[i]));
    bppsa_text_add(text, "</tr>\n");
  }
  bppsa_text_add(text, "</table>\n");
}

/* ---- who wins ---- */

typedef struct {
  int64_t points, bp_wins;
  double best; /* largest bp / scan */
  int64_t seq_len, batch;
  const char *init;
  double work[2]; /* the scan's FLOPs over BP's at that point: of the gradients between steps, with those of weights */
} score;

static double number(const json_t *row, const char *key) {
  const json_t *value = json_object_get(row, key);
  return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Every backward row of a parallel scan against the row of bp at the same point. */
static void judge(const json_t *rows, const json_t *bp, score *s) {
  double best = 0, work[2] = {0, 0};
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    const bool scan = is_text(row, "method", "blelloch") || is_text(row, "method", "chunked");
    const double ratio = number(bp, "median_s") / number(row, "median_s");
    if (scan && integer(row, "seq_len") == integer(bp, "seq_len") && integer(row, "batch") == integer(bp, "batch") &&
        integer(row, "hidden") == integer(bp, "hidden") &&
        json_equal(json_object_get(row, "init"), json_object_get(bp, "init")) && ratio > best) {
      best = ratio;
      work[0] = number(row, "flops_of_bp"); /* NaN: a document from before there was this field */
      work[1] = number(row, "flops") / number(bp, "flops");
    }
  }
  if (best == 0) {
    return;
  }
  ++s->points;
  s->bp_wins += best < 1;
  if (best > s->best) {
    *s = (score){.points = s->points,
                 .bp_wins = s->bp_wins,
                 .best = best,
                 .seq_len = integer(bp, "seq_len"),
                 .batch = integer(bp, "batch"),
                 .init = json_string_value(json_object_get(bp, "init")),
                 .work = {work[0], work[1]}};
  }
}

void bppsa_figures_verdict(const json_t *document, bppsa_text *text) {
  const json_t *rows = json_object_get(document, "rows");
  const int64_t threads = integer(json_object_get(document, "device"), "threads");
  score s = {0};
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    if (is_text(row, "method", "bp")) {
      judge(rows, row, &s);
    }
  }
  if (s.points == 0) {
    bppsa_text_add(text, "No point was measured by BP and by a parallel scan.");
    return;
  }
  bppsa_text_add(text,
                 "On this machine, with %" PRId64
                 " thread%s, the backward pass of sequential BP is faster than both parallel scans "
                 "(Blelloch and chunked) at %" PRId64 " of %" PRId64 " measured points. ",
                 threads, threads == 1 ? "" : "s", s.bp_wins, s.points);
  bppsa_text_add(text,
                 "The scan %s at T = %" PRId64 ", B = %" PRId64 " (init %s), where BP takes %.2f times the best scan's "
                 "time and the scan does %.1f times BP's FLOPs, gradients of weights included",
                 s.best > 1 ? "wins most clearly" : "comes closest", s.seq_len, s.batch, s.init != NULL ? s.init : "default",
                 s.best, s.work[1]);
  if (isfinite(s.work[0])) {
    bppsa_text_add(text, " (%.1f times for the gradients between steps alone)", s.work[0]);
  }
  bppsa_text_add(text, ". ");
  bppsa_text_add(
      text, "The scan's matrix products cost about H times the arithmetic of BP's matrix-vector products; it pays where far more "
            "workers stand ready than there are samples in the batch, as on the paper's GPUs, whose baseline was cuDNN 7. "
            "The linear scan is the recurrence of BP itself.");
}
