/* The papers' timelines, Chimera's table 2, bubble ratios, and memory by number of devices. All are computed, none is measured. */
#include <inttypes.h>
#include <math.h>

#include "figures/figure_data.h"
#include "schedule/timed.h"

/* ---- timelines ---- */

static bppsa_schedule_config config_of(const bppsa_timeline_source *t) {
  bppsa_schedule_config c = bppsa_schedule_config_default();
  c.stages = t->stages;
  c.micro_batches = t->micro_batches;
  c.layers = t->layers;
  c.width = t->width;
  c.replicas = t->replicas;
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

bppsa_status bppsa_make_timeline(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  const bppsa_timeline_source *source = figure->of;
  const bppsa_schedule_config config = config_of(source);
  bppsa_timed timed;
  (void)f;
  BPPSA_TRY(make(source->scheme, &config, &timed));
  const bppsa_status status = bppsa_schedule_draw(&timed, &made->svg);
  bppsa_timed_free(&timed);
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

/* Chimera's table 2, computed for D = N = 8; its row for Chimera assumes that all passes take the same time. */
bppsa_status bppsa_make_table2(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  bppsa_text *csv = &made->csv, *html = &made->html;
  (void)f;
  (void)figure;
  bppsa_text_add(
      csv,
      "scheme,makespan,bubble_ratio,bubble_ratio_equal_passes,weights_least,weights_most,activations_least,activations_most\n");
  bppsa_text_add(html, "<table>\n<tr><th>scheme</th><th>bubble ratio, paper</th>"
                       "<th>B = 2F</th><th>B = F</th><th>weights, M_&theta;</th><th>activations, M_a</th></tr>\n");
  for (size_t i = 0; i < sizeof table2 / sizeof table2[0]; ++i) {
    bppsa_schedule_config config = bppsa_schedule_config_default();
    summary s = {0}, equal = {0};
    config.stages = config.micro_batches = 8;
    BPPSA_TRY(summarise(table2[i].scheme, &config, &s));
    config.uniform[BPPSA_COST_INPUT_GRAD] = config.uniform[BPPSA_COST_WEIGHT_GRAD] = 0.5;
    BPPSA_TRY(summarise(table2[i].scheme, &config, &equal));
    bppsa_text_add(csv, "%s", table2[i].scheme);
    bppsa_text_add_cells(csv, 7, (double[]){s.makespan, s.bubble, equal.bubble, s.weights_least, s.weights, s.least, s.most});
    bppsa_text_add(csv, "\n");
    bppsa_text_add(html, "<tr><td>%s</td><td>%s</td><td>%.3f</td><td>%.3f</td><td>[%.3g, %.3g]</td><td>[%.3g, %.3g]</td></tr>\n",
                   table2[i].scheme, table2[i].paper, s.bubble, equal.bubble, s.weights_least, s.weights, s.least, s.most);
  }
  bppsa_text_add(html, "</table>\n");
  return BPPSA_OK;
}

/* ---- curves ---- */

static const char *const curves[] = {"gpipe", "1f1b", "gems", "chimera", "zb-h1"};
enum { CURVES = sizeof curves / sizeof curves[0] };

bppsa_status bppsa_make_bubbles(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  bppsa_text *csv = &made->csv;
  (void)f;
  (void)figure;
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
  return BPPSA_OK;
}

enum { ELEMENTS = 4096, SIMULATED = 64, DEVICES = 2048 };

/* Memory per device for n = 4096 layers on p devices. A pipeline kept full by p micro-batches holds the input of its stage for each
 * of min(N, p) micro-batches, and n / p activations that it recomputes for one of them (BPPSA, section 3.6 and appendix B). The
 * scan holds n / p Jacobians and one product. For more than 64 devices the pipeline's memory comes from a closed form, which the
 * tests check for up to 64 devices. */
bppsa_status bppsa_make_memory(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  bppsa_text *csv = &made->csv;
  (void)f;
  (void)figure;
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
  return BPPSA_OK;
}
