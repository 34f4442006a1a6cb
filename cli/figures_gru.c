/* Table 3: the features. Table 6 and figure 9: the GRU's runtimes over the shapes of IRMAS's sets, beside the paper's. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "audio/features.h"
#include "cli/bench_rounds.h"
#include "cli/figures.h"

/* ---- table 3 ---- */

/* The paper's features, frames x coefficients of both channels; ours are worked out by the plan that computes them. */
static const int64_t paper_features[BPPSA_MFCC_SETS][2] = {{259, 38}, {517, 24}, {1034, 12}};

static bppsa_status features_of(int set, int64_t *frames, int64_t *features) {
  bppsa_mfcc_plan *plan = NULL;
  BPPSA_TRY(bppsa_mfcc_plan_create(&bppsa_mfcc_sets[set], BPPSA_FEATURES_SAMPLES, BPPSA_PADDING_CONSTANT, &plan));
  *frames = bppsa_mfcc_frames(plan);
  *features = 2 * bppsa_mfcc_features(plan);
  bppsa_mfcc_plan_destroy(plan);
  return BPPSA_OK;
}

bppsa_status bppsa_figures_table3_csv(bppsa_text *text) {
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

static bppsa_status add_table3(bppsa_text *text) {
  bppsa_text_add(
      text, "<h2 id=\"table3\">Table 3: the features of IRMAS's sets</h2>\n<table>\n<tr><th>set</th><th>MFCC coefficients</th>"
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
  bppsa_text_add(text, "</table>\n<p class=\"note\">Three seconds of two channels at 44.1 kHz; the first coefficient is left "
                       "out.</p>\n");
  return BPPSA_OK;
}

/* ---- table 6 and figure 9 ---- */

/* Table 6: seconds an epoch on a V100. forward; with the overhead of the scan's Jacobians; all of it by BP (PyTorch with cuDNN 7)
 * and by BPPSA. */
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

static const char *const methods[] = {"bp", "linear", "blelloch", "chunked", "auto", "pytorch"};
enum { METHODS = sizeof methods / sizeof methods[0] };

static double forward_ms(const json_t *rows, const paper_row *at) {
  return 1e3 * bppsa_figures_median(rows, at->seq_len, at->batch, NULL);
}

static double backward_ms(const json_t *rows, const paper_row *at, const char *method) {
  return 1e3 * bppsa_figures_median(rows, at->seq_len, at->batch, method);
}

/* The time of one forward and one backward pass by BP over that by the best scan. */
static double speedup(const json_t *rows, const paper_row *at, bool *noisy) {
  const double scan = bppsa_figures_best_scan(rows, at->seq_len, at->batch, noisy);
  *noisy = *noisy || bppsa_figures_noisy(rows, at->seq_len, at->batch, "bp");
  return bppsa_figures_iteration(rows, at->seq_len, at->batch, "bp", "median_s") / scan;
}

static void add_number(bppsa_text *text, double value, bool noisy) {
  if (isfinite(value)) {
    bppsa_text_add(text, "<td>%s%.4g</td>", bppsa_bench_mark(noisy), value);
  } else {
    bppsa_text_add(text, "<td></td>");
  }
}

/* The paper's seconds, and what they gain. */
enum { PAPER = 5 };
static void paper_numbers(const paper_row *at, double numbers[PAPER]) {
  memcpy(numbers, (double[]){at->forward_s, at->overhead_s, at->bp_s, at->bppsa_s, at->bp_s / at->bppsa_s},
         PAPER * sizeof *numbers);
}

/* Medians measured here: of the forward pass, and of the backward pass by every method; ms. */
static void here_numbers(const json_t *rows, const paper_row *at, double numbers[METHODS + 1]) {
  numbers[0] = forward_ms(rows, at);
  for (int m = 0; m < METHODS; ++m) {
    numbers[m + 1] = backward_ms(rows, at, methods[m]);
  }
}

void bppsa_figures_table6_csv(const json_t *rows, bppsa_text *text) {
  bppsa_text_add(text, "set,batch,paper_v100_forward_s,paper_v100_forward_overhead_s,paper_v100_bp_s,paper_v100_bppsa_s,"
                       "paper_speedup,forward_ms");
  for (int m = 0; m < METHODS; ++m) {
    bppsa_text_add(text, ",backward_%s_ms", methods[m]);
  }
  bppsa_text_add(text, ",bp_over_best_scan,noisy\n");
  for (int i = 0; i < POINTS; ++i) {
    double numbers[PAPER + METHODS + 2];
    bool noisy;
    paper_numbers(&paper[i], numbers);
    here_numbers(rows, &paper[i], numbers + PAPER);
    numbers[PAPER + METHODS + 1] = speedup(rows, &paper[i], &noisy);
    bppsa_text_add(text, "%s,%" PRId64, paper[i].set, paper[i].batch);
    bppsa_text_add_cells(text, PAPER + METHODS + 2, numbers);
    bppsa_text_add(text, ",%d\n", noisy);
  }
}

/* Whether a method was measured at any point. */
static bool has_column(const json_t *rows, const char *method) {
  for (int i = 0; i < POINTS; ++i) {
    if (isfinite(backward_ms(rows, &paper[i], method))) {
      return true;
    }
  }
  return false;
}

static void add_table(const json_t *rows, bppsa_text *text) {
  int columns = 2;
  for (int m = 0; m < METHODS; ++m) {
    columns += has_column(rows, methods[m]);
  }
  bppsa_text_add(text,
                 "<h2 id=\"table6\">Table 6: a GRU over IRMAS's sets</h2>\n<table>\n<tr><th colspan=\"2\"></th>"
                 "<th colspan=\"5\">paper, V100, seconds an epoch</th><th colspan=\"%d\">here, milliseconds, medians</th>"
                 "</tr>\n<tr><th>set</th><th>B</th><th>forward</th><th>with overhead</th><th>BP, all</th><th>BPPSA, all</th>"
                 "<th>BP / BPPSA</th><th>forward</th>",
                 columns);
  for (int m = 0; m < METHODS; ++m) {
    if (has_column(rows, methods[m])) {
      bppsa_text_add(text, "<th>backward, %s</th>", methods[m]);
    }
  }
  bppsa_text_add(text, "<th>BP / best scan, forward and backward</th></tr>\n");
  for (int i = 0; i < POINTS; ++i) {
    double theirs[PAPER], here[METHODS + 1];
    bool noisy;
    const paper_row *at = &paper[i];
    const double ratio = speedup(rows, at, &noisy);
    paper_numbers(at, theirs);
    here_numbers(rows, at, here);
    bppsa_text_add(text, "<tr><td>%s</td><td>%" PRId64 "</td>", at->set, at->batch);
    for (int k = 0; k < PAPER; ++k) {
      add_number(text, theirs[k], false);
    }
    add_number(text, here[0], bppsa_figures_noisy(rows, at->seq_len, at->batch, NULL));
    for (int m = 0; m < METHODS; ++m) {
      if (has_column(rows, methods[m])) {
        add_number(text, here[m + 1], bppsa_figures_noisy(rows, at->seq_len, at->batch, methods[m]));
      }
    }
    add_number(text, ratio, noisy);
    bppsa_text_add(text, "</tr>\n");
  }
  bppsa_text_add(
      text, "</table>\n<p class=\"note\">H = 20, default initialisation; S is T 259 with 38 features, M 517 with 24, L 1034 "
            "with 12, here noise of variance 1. The paper's BP is PyTorch with cuDNN 7; its forward overhead is there because "
            "cuDNN hides the gates. The forward pass here keeps them, for BP and for the scan alike: it has no such overhead. "
            "Columns of methods are backward passes.</p>\n");
}

/* x, who, and the parts of a bar, each over forward + BP of the same machine. */
void bppsa_figures_figure9_csv(const json_t *rows, bppsa_text *text) {
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
      const double scan = fmin(backward_ms(rows, p, "blelloch"), backward_ms(rows, p, "chunked"));
      bppsa_text_add(text, "%d,%s %" PRId64 ",here", i, p->set, p->batch);
      bppsa_text_add_cells(text, 3, (double[]){forward / all, 0, scan / all});
      bppsa_text_add(text, ",%d\n", noisy);
    }
  }
}

bppsa_status bppsa_figures_gru_page(const bppsa_figures *f, const char *trained, bppsa_text *text) {
  bppsa_figures_page_head(f, "Back-propagation as a parallel scan: the GRU's tables 3 and 6, figures 9 and 13", text);
  BPPSA_TRY(add_table3(text));
  add_table(json_object_get(f->document, "rows"), text);
  BPPSA_TRY(bppsa_figures_add_plot(
      f, text, "figure9", "Figure 9: runtime of an iteration over that of forward and BP",
      "Left bars: the paper's V100, its forward pass, the overhead of the Jacobians, and BPPSA's backward pass. Right bars: "
      "forward "
      "and the faster of Blelloch and chunked, measured here, medians. A bar below 1 is a gain over BP on the same machine. A "
      "ring "
      "above a bar: noisy."));
  if (trained != NULL) {
    BPPSA_TRY(bppsa_figures_add_plot(f, text, "figure13", "Figure 13: training loss over wall-clock time", trained));
  } else {
    bppsa_text_add(text, "<h2 id=\"figure13\">Figure 13: training loss over wall-clock time</h2>\n<p>Not made: it needs a data "
                         "set, <code>--data instruments:DIR</code> or <code>irmas:DIR</code>.</p>\n");
  }
  bppsa_text_add(text, "</body>\n</html>\n");
  return bppsa_text_check(text);
}

const char bppsa_figure9_script[] =
    "# gnuplot -c figure9.gp svg|png: draws figure9.csv\n"
    "data = 'figure9.csv'\n"
    "set output 'figure9.' . ARG1\n"
    "if (ARG1 eq 'svg') {\n"
    "  set terminal svg size 1100,480 font 'DejaVu Sans,13' background rgb 'white' noenhanced\n"
    "} else {\n"
    "  set terminal pngcairo size 1100,480 font 'DejaVu Sans,10' background rgb 'white' noenhanced\n"
    "}\n"
    "set datafile separator ','\n"
    "set grid ytics back lt 1 lw 1 lc rgb '#dddddd'\n"
    "set border 3\n"
    "set tics nomirror out\n"
    "set style fill solid 0.9 noborder\n"
    "set boxwidth 0.36\n"
    "set yrange [0.1:*]\n"
    "set logscale y\n"
    "set xrange [-0.6:8.6]\n"
    "set ylabel 'over forward + BP'\n"
    "set xlabel 'set and batch'\n"
    "set key top left\n"
    "height(who, parts) = (stringcolumn(3) eq who ? column(4) + (parts > 1 ? column(5) : 0) + (parts > 2 ? column(6) : 0) : "
    "NaN)\n"
    "plot data using ($1 - 0.2):(height('paper', 3)):xtic(2) every ::1 with boxes lc rgb '#92c5de' title 'paper: BPPSA', \\\n"
    "  data using ($1 - 0.2):(height('paper', 2)) every ::1 with boxes lc rgb '#f4a582' title 'paper: overhead', \\\n"
    "  data using ($1 - 0.2):(height('paper', 1)) every ::1 with boxes lc rgb '#bababa' title 'paper: forward', \\\n"
    "  data using ($1 + 0.2):(height('here', 3)) every ::1 with boxes lc rgb '#1b7837' title 'here: best scan', \\\n"
    "  data using ($1 + 0.2):(height('here', 1)) every ::1 with boxes lc rgb '#7f7f7f' title 'here: forward', \\\n"
    "  data using ($1 + 0.2):(column(7) == 1 ? 1.15 * height('here', 3) : NaN) every ::1 with points lc rgb '#333333' lw 1.5 pt "
    "6 ps 1.2 "
    "title 'noisy', \\\n"
    "  1 with lines lc rgb '#b2182b' lw 2 title 'BP'\n";
