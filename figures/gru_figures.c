/* Table 3: the audio features. Table 6 and figure 9: the GRU's runtimes for the shapes of the IRMAS feature sets, compared with
 * the paper's. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "audio/features.h"
#include "core/measure/rounds.h"
#include "figures/figure_data.h"
#include "figures/measured_rows.h"

/* ---- table 3 ---- */

/* The paper's features: frames x coefficients of both channels. Ours come from the plan that computes the features. */
static const int64_t paper_features[BPPSA_MFCC_SETS][2] = {{259, 38}, {517, 24}, {1034, 12}};

static bppsa_status features_of(int set, int64_t *frames, int64_t *features) {
  bppsa_mfcc_plan *plan = NULL;
  BPPSA_TRY(bppsa_mfcc_plan_create(&bppsa_mfcc_sets[set], BPPSA_FEATURES_SAMPLES, BPPSA_PADDING_CONSTANT, &plan));
  *frames = bppsa_mfcc_frames(plan);
  *features = 2 * bppsa_mfcc_features(plan);
  bppsa_mfcc_plan_destroy(plan);
  return BPPSA_OK;
}

static bppsa_status table3_csv(bppsa_text *text) {
  bppsa_text_add(text, "set,mfcc_coefficients,fft_window,hop,paper_frames,paper_features,frames,features\n");
  for (int i = 0; i < BPPSA_MFCC_SETS; ++i) {
    const bppsa_mfcc_config *c = &bppsa_mfcc_sets[i];
    int64_t frames, features;
    BPPSA_TRY(features_of(i, &frames, &features));
    bppsa_text_add(text, "%s,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "\n", c->name,
                   c->n_mfcc, c->n_fft, c->hop, paper_features[i][0], paper_features[i][1], frames, features);
  }
  return BPPSA_OK;
}

static bppsa_status table3_html(bppsa_text *text) {
  bppsa_text_add(text, "<table>\n<tr><th>set</th><th>MFCC coefficients</th>"
                       "<th>FFT window</th><th>hop</th><th>paper, frames × features</th><th>here</th></tr>\n");
  for (int i = 0; i < BPPSA_MFCC_SETS; ++i) {
    const bppsa_mfcc_config *c = &bppsa_mfcc_sets[i];
    int64_t frames, features;
    BPPSA_TRY(features_of(i, &frames, &features));
    bppsa_text_add(text,
                   "<tr><td>%s</td><td>%" PRId64 "</td><td>%" PRId64 "</td><td>%" PRId64 "</td><td>%" PRId64 " × %" PRId64
                   "</td><td>%" PRId64 " × %" PRId64 "</td></tr>\n",
                   c->name, c->n_mfcc, c->n_fft, c->hop, paper_features[i][0], paper_features[i][1], frames, features);
  }
  bppsa_text_add(text, "</table>\n");
  return BPPSA_OK;
}

bppsa_status bppsa_make_table3(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  (void)f;
  (void)figure;
  BPPSA_TRY(table3_csv(&made->csv));
  return table3_html(&made->html);
}

/* ---- table 6 and figure 9 ---- */

/* Table 6, in seconds per epoch on a V100: the forward pass; the forward pass with the overhead of the scan's Jacobians; forward
 * and backward pass by BP (PyTorch with cuDNN 7); forward and backward pass by BPPSA. */
typedef struct {
  const char *set;
  int64_t seq_len, batch;
  double forward_s, overhead_s, bp_s, bppsa_s;
} paper_row;

static const paper_row paper[] = {
    {"S", 259, 16, 1.66, 2.10, 3.71, 2.94},   {"S", 259, 32, 0.91, 1.09, 1.90, 1.48},  {"S", 259, 64, 0.52, 0.62, 1.00, 0.82},
    {"M", 517, 16, 3.21, 3.52, 6.19, 4.20},   {"M", 517, 32, 1.73, 1.83, 3.30, 2.22},  {"M", 517, 64, 0.86, 1.18, 1.82, 1.20},
    {"L", 1034, 16, 5.78, 6.06, 11.43, 6.91}, {"L", 1034, 32, 3.04, 3.23, 6.09, 3.57}, {"L", 1034, 64, 1.64, 2.13, 3.19, 2.33}};
enum { POINTS = sizeof paper / sizeof paper[0] };

static double forward_ms(const json_t *rows, const paper_row *at) {
  return 1e3 * bppsa_measured_median(rows, at->seq_len, at->batch, NULL);
}

static double backward_ms(const json_t *rows, const paper_row *at, const char *method) {
  return 1e3 * bppsa_measured_median(rows, at->seq_len, at->batch, method);
}

/* The best parallel scan's backward pass. */
static double best_backward_ms(const json_t *rows, const paper_row *at) {
  double best = NAN;
  for (int i = 0; i < BPPSA_MEASURED_PARALLEL; ++i) {
    best = fmin(best, backward_ms(rows, at, bppsa_scan_algorithm_name(bppsa_measured_parallel(i)))); /* fmin ignores NaN */
  }
  return best;
}

/* The time of one forward and one backward pass by BP, divided by the time of the same by the best scan. */
static double speedup(const json_t *rows, const paper_row *at, bool *noisy) {
  const double scan = bppsa_measured_best_scan(rows, at->seq_len, at->batch, noisy);
  *noisy = *noisy || bppsa_measured_noisy(rows, at->seq_len, at->batch, "bp");
  return bppsa_measured_iteration(rows, at->seq_len, at->batch, "bp", "median_s") / scan;
}

static void add_number(bppsa_text *text, double value, bool noisy) {
  if (isfinite(value)) {
    bppsa_text_add(text, "<td>%s%.4g</td>", bppsa_timing_mark(noisy), value);
  } else {
    bppsa_text_add(text, "<td></td>");
  }
}

/* Number of columns with the paper's numbers: seconds and speedups. */
enum { PAPER = 5 };
static void paper_numbers(const paper_row *at, double numbers[PAPER]) {
  memcpy(numbers, (double[]){at->forward_s, at->overhead_s, at->bp_s, at->bppsa_s, at->bp_s / at->bppsa_s},
         PAPER * sizeof *numbers);
}

/* Our medians in ms: the forward pass, then the backward pass by each method. */
static void here_numbers(const json_t *rows, const paper_row *at, double numbers[BPPSA_MEASURED_METHODS + 1]) {
  numbers[0] = forward_ms(rows, at);
  for (int m = 0; m < BPPSA_MEASURED_METHODS; ++m) {
    numbers[m + 1] = backward_ms(rows, at, bppsa_measured_method(m));
  }
}

static void table6_csv(const json_t *rows, bppsa_text *text) {
  bppsa_text_add(text, "set,batch,paper_v100_forward_s,paper_v100_forward_overhead_s,paper_v100_bp_s,paper_v100_bppsa_s,"
                       "paper_speedup,forward_ms");
  for (int m = 0; m < BPPSA_MEASURED_METHODS; ++m) {
    bppsa_text_add(text, ",backward_%s_ms", bppsa_measured_method(m));
  }
  bppsa_text_add(text, ",bp_over_best_scan,noisy\n");
  for (int i = 0; i < POINTS; ++i) {
    double numbers[PAPER + BPPSA_MEASURED_METHODS + 2];
    bool noisy;
    paper_numbers(&paper[i], numbers);
    here_numbers(rows, &paper[i], numbers + PAPER);
    numbers[PAPER + BPPSA_MEASURED_METHODS + 1] = speedup(rows, &paper[i], &noisy);
    bppsa_text_add(text, "%s,%" PRId64, paper[i].set, paper[i].batch);
    bppsa_text_add_cells(text, PAPER + BPPSA_MEASURED_METHODS + 2, numbers);
    bppsa_text_add(text, ",%d\n", noisy);
  }
}

/* Was the method measured at any point? */
static bool has_column(const json_t *rows, const char *method) {
  for (int i = 0; i < POINTS; ++i) {
    if (isfinite(backward_ms(rows, &paper[i], method))) {
      return true;
    }
  }
  return false;
}

static void table6_html(const json_t *rows, bppsa_text *text) {
  int columns = 2;
  for (int m = 0; m < BPPSA_MEASURED_METHODS; ++m) {
    columns += has_column(rows, bppsa_measured_method(m));
  }
  bppsa_text_add(text,
                 "<table>\n<tr><th colspan=\"2\"></th>"
                 "<th colspan=\"5\">paper, V100, seconds an epoch</th><th colspan=\"%d\">here, milliseconds, medians</th>"
                 "</tr>\n<tr><th>set</th><th>B</th><th>forward</th><th>with overhead</th><th>BP, all</th><th>BPPSA, all</th>"
                 "<th>BP / BPPSA</th><th>forward</th>",
                 columns);
  for (int m = 0; m < BPPSA_MEASURED_METHODS; ++m) {
    if (has_column(rows, bppsa_measured_method(m))) {
      bppsa_text_add(text, "<th>backward, %s</th>", bppsa_measured_method(m));
    }
  }
  bppsa_text_add(text, "<th>BP / best scan, forward and backward</th></tr>\n");
  for (int i = 0; i < POINTS; ++i) {
    double theirs[PAPER], here[BPPSA_MEASURED_METHODS + 1];
    bool noisy;
    const paper_row *at = &paper[i];
    const double ratio = speedup(rows, at, &noisy);
    paper_numbers(at, theirs);
    here_numbers(rows, at, here);
    bppsa_text_add(text, "<tr><td>%s</td><td>%" PRId64 "</td>", at->set, at->batch);
    for (int k = 0; k < PAPER; ++k) {
      add_number(text, theirs[k], false);
    }
    add_number(text, here[0], bppsa_measured_noisy(rows, at->seq_len, at->batch, NULL));
    for (int m = 0; m < BPPSA_MEASURED_METHODS; ++m) {
      if (has_column(rows, bppsa_measured_method(m))) {
        add_number(text, here[m + 1], bppsa_measured_noisy(rows, at->seq_len, at->batch, bppsa_measured_method(m)));
      }
    }
    add_number(text, ratio, noisy);
    bppsa_text_add(text, "</tr>\n");
  }
  bppsa_text_add(text, "</table>\n");
}

/* Columns: x, the method, and the parts of its bar, each divided by the time of forward + BP on the same machine. */
static void figure9_csv(const json_t *rows, bppsa_text *text) {
  bppsa_text_add(text, "position,set,who,forward,overhead,backward,noisy\n");
  for (int i = 0; i < POINTS; ++i) {
    const paper_row *p = &paper[i];
    bool noisy;
    const double forward = forward_ms(rows, p), all = forward + backward_ms(rows, p, "bp"), ratio = speedup(rows, p, &noisy);
    bppsa_text_add(text, "%d,%s %" PRId64 ",paper", i, p->set, p->batch);
    bppsa_text_add_cells(
        text, 3,
        (double[]){p->forward_s / p->bp_s, (p->overhead_s - p->forward_s) / p->bp_s, (p->bppsa_s - p->overhead_s) / p->bp_s});
    bppsa_text_add(text, ",0\n");
    if (isfinite(ratio)) {
      const double scan = best_backward_ms(rows, p);
      bppsa_text_add(text, "%d,%s %" PRId64 ",here", i, p->set, p->batch);
      bppsa_text_add_cells(text, 3, (double[]){forward / all, 0, scan / all});
      bppsa_text_add(text, ",%d\n", noisy);
    }
  }
}

/* ---- the figures' data ---- */

bppsa_status bppsa_make_table6(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  (void)figure;
  table6_csv(bppsa_figures_rows(f), &made->csv);
  table6_html(bppsa_figures_rows(f), &made->html);
  return BPPSA_OK;
}

bppsa_status bppsa_make_figure9(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  (void)figure;
  figure9_csv(bppsa_figures_rows(f), &made->csv);
  return BPPSA_OK;
}
