/* The papers' timelines, Chimera's table 2, bubble ratios, and memory against devices: schedules.html and its files. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/figures.h"
#include "core/alloc.h"
#include "schedule/timed.h"

/* ---- timelines ---- */

/* A timeline of a paper; what is not named is as in bppsa_schedule_config_default. */
typedef struct {
  const char *name, *title, *scheme;
  int64_t stages, micro_batches, layers, width, replicas, iterations;
  bppsa_schedule_split split;
  bppsa_schedule_scale scale;
  double gradient;    /* cost of I and of W */
  const double *sync; /* of each layer, or NULL */
} timeline;

/* ooo-backprop's figure 4 gives no SYNC costs; these fit its ratios and its boxes (18, 17, 15). */
static const double figure4[] = {3, 1, 1, 2, 4};

static const timeline timelines[] = {
    {"ooo_4a", "ooo-backprop, figure 4(a): conventional data parallelism (SYNC costs are ours)", "wait-free", 1, 1, 5, 1, 0, 1,
     BPPSA_SPLIT_IW, 0, 1, figure4},
    {"ooo_4b", "Figure 4(b): prioritised communication", "priority", 1, 1, 5, 1, 0, 1, BPPSA_SPLIT_IW, 0, 1, figure4},
    {"ooo_4c", "Figure 4(c): reverse first-k", "reverse-first-k", 1, 1, 5, 1, 0, 1, BPPSA_SPLIT_IW, 0, 1, figure4},
    {"ooo_5a", "ooo-backprop, figure 5(a): model parallelism, 23 units", "model-parallel", 2, 1, 8, 1, 0, 1, BPPSA_SPLIT_WI, 0, 1,
     NULL},
    {"ooo_5b", "Figure 5(b): gradient fast-forwarding, 19 units", "fast-forward", 2, 1, 8, 1, 0, 1, BPPSA_SPLIT_IW, 0, 1, NULL},
    {"ooo_5c", "Figure 5(c): modulo allocation, 16 units", "modulo", 2, 1, 8, 1, 0, 1, BPPSA_SPLIT_IW, 0, 1, NULL},
    {"ooo_13a", "ooo-backprop, figure 13(a): GPipe, 16 layers as in its text, 83 units", "gpipe", 4, 4, 16, 1, 0, 1,
     BPPSA_SPLIT_WI, 0, 1, NULL},
    {"ooo_13b", "Figure 13(b): gradient fast-forwarding, 68 units", "fast-forward", 4, 4, 16, 1, 0, 1, BPPSA_SPLIT_IW, 0, 1,
     NULL},
    {"ooo_13c", "Figure 13(c): modulo allocation, 51 units", "modulo", 4, 4, 16, 1, 0, 1, BPPSA_SPLIT_IW, 0, 1, NULL},
    {"chimera_2_pipedream", "Chimera, figure 2: PipeDream", "pipedream", 4, 4, 0, 1, 0, 1, 0, 0, 1, NULL},
    {"chimera_2_2bw", "Figure 2: PipeDream-2BW", "2bw", 4, 4, 0, 1, 0, 1, 0, 0, 1, NULL},
    {"chimera_2_gpipe", "Figure 2: GPipe", "gpipe", 4, 4, 0, 1, 0, 1, 0, 0, 1, NULL},
    {"chimera_2_gems", "Figure 2: GEMS", "gems", 4, 4, 0, 1, 0, 1, 0, 0, 1, NULL},
    {"chimera_2_dapple", "Figure 2: DAPPLE", "1f1b", 4, 4, 0, 1, 0, 1, 0, 0, 1, NULL},
    {"chimera_3", "Figures 2 and 3: Chimera's two pipelines, equal passes", "chimera", 4, 4, 0, 1, 2, 1, 0, 0, 0.5, NULL},
    {"chimera_5", "Figure 5: with data parallelism, W = 2", "chimera", 4, 4, 0, 2, 2, 1, 0, 0, 1, NULL},
    {"chimera_7b", "Figure 7(b): direct concatenation", "chimera", 4, 8, 0, 1, 2, 1, 0, BPPSA_SCALE_DIRECT, 1, NULL},
    {"chimera_7d", "Figure 7(d): forward doubling", "chimera", 4, 8, 0, 1, 2, 1, 0, BPPSA_SCALE_DOUBLING, 1, NULL},
    {"chimera_7h", "Section 3.5: backward halving", "chimera", 4, 8, 0, 1, 2, 1, 0, BPPSA_SCALE_HALVING, 1, NULL},
    {"chimera_8", "Figure 8: four pipelines of eight stages, equal passes", "chimera", 8, 8, 0, 1, 4, 1, 0, 0, 0.5, NULL},
    {"spectrain_6", "SpecTrain, figure 6: pipelined model parallelism, equal passes", "vanilla", 3, 8, 0, 1, 0, 1, 0, 0, 0.5,
     NULL},
    {"spectrain_7a", "Figure 7(a): a single GPU", "vanilla", 1, 8, 0, 1, 0, 1, 0, 0, 0.5, NULL},
    {"spectrain_7c", "Figure 7(c): PipeDream's stashed weights", "pipedream", 3, 8, 0, 1, 0, 1, 0, 0, 0.5, NULL},
    {"spectrain_7d", "Figure 7(d): SpecTrain's predicted weights (versions in the tooltips)", "spectrain", 3, 8, 0, 1, 0, 1, 0, 0,
     0.5, NULL},
};
enum { TIMELINES = sizeof timelines / sizeof timelines[0] };

static bppsa_schedule_config config_of(const timeline *t) {
  bppsa_schedule_config c = bppsa_schedule_config_default();
  c.stages = t->stages;
  c.micro_batches = t->micro_batches;
  c.layers = t->layers;
  c.width = t->width;
  c.replicas = t->replicas;
  c.iterations = t->iterations;
  c.split = t->split;
  c.scale = t->scale;
  c.skip_first_input_grad = t->split != BPPSA_SPLIT_NONE;
  c.window = t->sync != NULL ? BPPSA_WINDOW_BACKWARD_FORWARD : BPPSA_WINDOW_ITERATION;
  c.uniform[BPPSA_COST_INPUT_GRAD] = c.uniform[BPPSA_COST_WEIGHT_GRAD] = t->gradient;
  c.cost[BPPSA_COST_SYNC] = t->sync;
  c.rows[BPPSA_COST_SYNC] = t->layers;
  return c;
}

static bppsa_status make(const char *scheme, const bppsa_schedule_config *config, bppsa_timed *timed) {
  bppsa_schedule *list = NULL;
  BPPSA_TRY(bppsa_schedule_create(scheme, config, &list));
  return bppsa_timed_create(list, timed);
}

static bppsa_status add_timeline(bppsa_figures *f, const timeline *t, bppsa_text *page) {
  const bppsa_schedule_config config = config_of(t);
  bppsa_timed timed;
  bppsa_text svg = {0};
  char file[64];
  BPPSA_TRY(make(t->scheme, &config, &timed));
  bppsa_status status = bppsa_schedule_draw(&timed, &svg);
  bppsa_timed_free(&timed);
  if (status == BPPSA_OK) {
    snprintf(file, sizeof file, "%s.svg", t->name);
    status = bppsa_figures_write(f, file, &svg);
    bppsa_text_add(page, "<h2 id=\"%s\">%s</h2>\n<figure>\n%s</figure>\n", t->name, t->title, svg.text);
  }
  bppsa_text_free(&svg);
  return status;
}

/* ---- table 2 ---- */

typedef struct {
  double makespan, bubble, least, most, weights_least, weights;
} summary;

static bppsa_status summarise(const char *scheme, const bppsa_schedule_config *config, summary *s) {
  bppsa_timed timed;
  BPPSA_TRY(make(scheme, config, &timed));
  *s = (summary){
      .makespan = timed.times.makespan, .bubble = timed.times.bubble_ratio, .least = INFINITY, .weights_least = INFINITY};
  for (int64_t w = 0; w < timed.list->workers; ++w) {
    s->least = fmin(s->least, timed.times.worker[w].peak_activations);
    s->most = fmax(s->most, timed.times.worker[w].peak_activations);
    s->weights_least = fmin(s->weights_least, timed.times.worker[w].weight_versions);
    s->weights = fmax(s->weights, timed.times.worker[w].weight_versions);
  }
  bppsa_timed_free(&timed);
  return BPPSA_OK;
}

static const struct {
  const char *scheme, *paper;
} table2[] = {{"pipedream", "&asymp; 0"},
              {"2bw", "&asymp; 0"},
              {"gpipe", "(D&minus;1)/(N+D&minus;1)"},
              {"gems", "&asymp; (D&minus;1)/(D+&frac12;)"},
              {"1f1b", "(D&minus;1)/(N+D&minus;1)"},
              {"chimera", "(D&minus;2)/(2N+D&minus;2)"}};

/* Chimera's table 2 at D = N = 8, computed; its chimera row is for equal passes. */
static bppsa_status add_table2(bppsa_figures *f, bppsa_text *page) {
  bppsa_text csv = {0};
  bppsa_status status = BPPSA_OK;
  bppsa_text_add(
      &csv,
      "scheme,makespan,bubble_ratio,bubble_ratio_equal_passes,weights_least,weights_most,activations_least,activations_most\n");
  bppsa_text_add(page, "<h2 id=\"chimera_table2\">Chimera, table 2, computed: D = 8, N = "
                       "8</h2>\n<table>\n<tr><th>scheme</th><th>bubble ratio, paper</th>"
                       "<th>B = 2F</th><th>B = F</th><th>weights, M_&theta;</th><th>activations, M_a</th></tr>\n");
  for (size_t i = 0; i < sizeof table2 / sizeof table2[0] && status == BPPSA_OK; ++i) {
    bppsa_schedule_config config = bppsa_schedule_config_default();
    summary s = {0}, equal = {0};
    config.stages = config.micro_batches = 8;
    status = summarise(table2[i].scheme, &config, &s);
    config.uniform[BPPSA_COST_INPUT_GRAD] = config.uniform[BPPSA_COST_WEIGHT_GRAD] = 0.5;
    status = status == BPPSA_OK ? summarise(table2[i].scheme, &config, &equal) : status;
    bppsa_text_add(&csv, "%s", table2[i].scheme);
    bppsa_text_add_cells(&csv, 7, (double[]){s.makespan, s.bubble, equal.bubble, s.weights_least, s.weights, s.least, s.most});
    bppsa_text_add(&csv, "\n");
    bppsa_text_add(page, "<tr><td>%s</td><td>%s</td><td>%.3f</td><td>%.3f</td><td>[%.3g, %.3g]</td><td>[%.3g, %.3g]</td></tr>\n",
                   table2[i].scheme, table2[i].paper, s.bubble, equal.bubble, s.weights_least, s.weights, s.least, s.most);
  }
  bppsa_text_add(page, "</table>\n<p class=\"note\">One iteration from an empty pipeline to an empty one: PipeDream's and 2BW's "
                       "bubbles are those of filling and draining it, "
                       "and vanish as N grows.</p>\n");
  status = status == BPPSA_OK ? bppsa_text_check(&csv) : status;
  status = status == BPPSA_OK ? bppsa_figures_write(f, "chimera_table2.csv", &csv) : status;
  bppsa_text_free(&csv);
  return status;
}

/* ---- curves ---- */

static const char *const curves[] = {"gpipe", "1f1b", "gems", "chimera", "zb-h1"};
enum { CURVES = sizeof curves / sizeof curves[0] };

static bppsa_status add_bubbles(bppsa_text *csv) {
  bppsa_text_add(csv, "axis,value,scheme,bubble_ratio\n");
  for (int axis = 0; axis < 2; ++axis) {
    for (int64_t value = axis == 0 ? 4 : 2; value <= (axis == 0 ? 64 : 32); value *= 2) {
      for (int i = 0; i < CURVES; ++i) {
        bppsa_schedule_config config = bppsa_schedule_config_default();
        summary s;
        config.stages = axis == 0 ? 8 : value;
        config.micro_batches = axis == 0 ? value : 32;
        BPPSA_TRY(summarise(curves[i], &config, &s));
        bppsa_text_add(csv, "%s,%" PRId64 ",%s", axis == 0 ? "N" : "D", value, curves[i]);
        bppsa_text_add_cells(csv, 1, &s.bubble);
        bppsa_text_add(csv, "\n");
      }
    }
  }
  return bppsa_text_check(csv);
}

enum { ELEMENTS = 4096, SIMULATED = 64, DEVICES = 2048 };

/* n = 4096 layers over p devices. A pipeline kept full by p micro-batches holds an input of its stage for each of min(N, p) of
 * them, and n / p activations made again for one (BPPSA, section 3.6 and appendix B); the scan n / p Jacobians and one product.
 * Pipelines of more than 64 devices by the closed form that the tests hold up to 64. */
static bppsa_status add_memory(bppsa_text *csv) {
  bppsa_text_add(csv, "devices,pipeline_M_x,pipeline_from,scan_M_Jacob\n");
  for (int64_t p = 1; p <= DEVICES; p *= 2) {
    bppsa_schedule_config config = bppsa_schedule_config_default();
    summary pipeline = {.most = (double)p}, scan;
    config.stages = config.micro_batches = p;
    config.elements = ELEMENTS + 1;
    if (p <= SIMULATED) {
      BPPSA_TRY(summarise("1f1b", &config, &pipeline));
    }
    BPPSA_TRY(summarise("scan-blelloch", &config, &scan));
    bppsa_text_add(csv, "%" PRId64, p);
    bppsa_text_add_cells(csv, 1, (double[]){pipeline.most + (double)ELEMENTS / (double)p});
    bppsa_text_add(csv, ",%s", p <= SIMULATED ? "simulation" : "closed form");
    bppsa_text_add_cells(csv, 1, &scan.most);
    bppsa_text_add(csv, "\n");
  }
  return bppsa_text_check(csv);
}

#define SCRIPT_HEAD(name, width)                                                                                                 \
  "# gnuplot -c " name ".gp svg|png: draws " name ".csv\n"                                                                       \
  "data = '" name ".csv'\n"                                                                                                      \
  "set output '" name ".' . ARG1\n"                                                                                              \
  "if (ARG1 eq 'svg') {\n"                                                                                                       \
  "  set terminal svg size " width ",420 font 'DejaVu Sans,13' background rgb 'white' noenhanced\n"                              \
  "} else {\n"                                                                                                                   \
  "  set terminal pngcairo size " width ",420 font 'DejaVu Sans,10' background rgb 'white' noenhanced\n"                         \
  "}\n"                                                                                                                          \
  "set datafile separator ','\n"                                                                                                 \
  "set grid back lt 1 lw 1 lc rgb '#dddddd'\n"                                                                                   \
  "set border 3\n"                                                                                                               \
  "set tics nomirror out\n"                                                                                                      \
  "set logscale x 2\n"

static const char bubbles_script[] = SCRIPT_HEAD("bubble_ratio", "1100") //
    "set multiplot layout 1,2\n"
    "set yrange [0:1]\n"
    "set ylabel 'bubble ratio'\n"
    "set key top right\n"
    "ratio(axis, scheme) = (stringcolumn(1) eq axis && stringcolumn(3) eq scheme ? column(4) : NaN)\n"
    "schemes = 'gpipe 1f1b gems chimera zb-h1'\n"
    "set datafile missing NaN\n"
    "set xlabel 'N micro-batches, D = 8'\n"
    "plot for [s in schemes] data using 2:(ratio('N', s)) every ::1 with linespoints lw 2 title s\n"
    "set xlabel 'D stages, N = 32'\n"
    "plot for [s in schemes] data using 2:(ratio('D', s)) every ::1 with linespoints lw 2 title s\n"
    "unset multiplot\n";

static const char memory_script[] = SCRIPT_HEAD("schedule_memory", "820") //
    "set logscale y 2\n"
    "set ylabel 'activations or Jacobians of one device'\n"
    "set xlabel 'devices, n = 4096'\n"
    "set key top center\n"
    "plot data using 1:2 every ::1 with linespoints lw 2 lc rgb '#b35806' title 'pipeline, M_x', \\\n"
    "  data using 1:4 every ::1 with linespoints lw 2 lc rgb '#2166ac' title 'Blelloch scan, M_Jacob'\n";

static bppsa_status add_plot(bppsa_figures *f, const char *name, bppsa_status (*make_csv)(bppsa_text *csv), const char *script,
                             bppsa_text *page, const char *title, const char *caption) {
  bppsa_text csv = {0}, copy = {0};
  char file[64];
  bppsa_status status = make_csv(&csv);
  bppsa_text_add(&copy, "%s", script);
  snprintf(file, sizeof file, "%s.csv", name);
  status = status == BPPSA_OK ? bppsa_figures_write(f, file, &csv) : status;
  snprintf(file, sizeof file, "%s.gp", name);
  status = status == BPPSA_OK ? bppsa_figures_write(f, file, &copy) : status;
  bppsa_text_free(&csv);
  bppsa_text_free(&copy);
  BPPSA_TRY(status);
  BPPSA_TRY(bppsa_figures_plot(f, name, "svg"));
  BPPSA_TRY(bppsa_figures_plot(f, name, "png"));
  return bppsa_figures_add_plot(f, page, name, title, caption);
}

/* ---- the page ---- */

static bppsa_status add_all(bppsa_figures *f, bppsa_text *page) {
  bppsa_text_add(
      page,
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>bppsa: "
      "schedules</title>\n<style>%s</style>\n"
      "</head>\n<body>\n<h1>Schedules: the papers' timelines, computed</h1>\n<p class=\"note\">Nothing here is measured: every "
      "picture and number comes from "
      "validated lists of operations, as bppsa schedule makes them. F = I = W = 1 unless a title says otherwise.</p>\n",
      bppsa_figures_style);
  BPPSA_TRY(add_table2(f, page));
  BPPSA_TRY(add_plot(f, "bubble_ratio", add_bubbles, bubbles_script, page, "Bubble ratio against N and D",
                     "F = I = W = 1; chimera beyond N = D by direct concatenation."));
  BPPSA_TRY(add_plot(
      f, "schedule_memory", add_memory, memory_script, page,
      "Memory of a device against the number of devices (BPPSA, section 3.6)",
      "A model of 4096 layers. A pipeline kept full by as many micro-batches as devices, with recomputation, holds n/p + p "
      "activations; the scan's workers hold "
      "n/p Jacobians and one product. A Jacobian is larger than an activation: the curves differ in growth, not in bytes."));
  for (int i = 0; i < TIMELINES; ++i) {
    BPPSA_TRY(add_timeline(f, &timelines[i], page));
  }
  bppsa_text_add(page, "</body>\n</html>\n");
  return bppsa_text_check(page);
}

bppsa_status bppsa_figures_schedules(bppsa_figures *f) {
  bppsa_text page = {0};
  bppsa_status status = add_all(f, &page);
  status = status == BPPSA_OK ? bppsa_figures_write(f, "schedules.html", &page) : status;
  bppsa_text_free(&page);
  return status;
}
