/* The data functions of the table of figures, with the type of each function's source (`of` in figure.h). */
#ifndef BPPSA_FIGURES_FIGURE_DATA_H
#define BPPSA_FIGURES_FIGURE_DATA_H

#include "figures/figure.h"
#include "schedule/schedule.h"

/* ---- from rows of bench rnn or lstm ---- */

/* The paper's points; paper: its numbers, of RNNs, stand beside those measured. */
typedef struct {
  int table; /* 4: by T; 5: by B */
  bool paper;
} bppsa_epochs_source;
bppsa_figure_data bppsa_make_epochs; /* source: a bppsa_epochs_source */
bppsa_figure_data bppsa_make_growth;
bppsa_figure_data bppsa_make_figure8; /* source: a bool, whether the paper's curve is drawn too */

/* ---- from rows of bench gru ---- */

bppsa_figure_data bppsa_make_table6, bppsa_make_figure9;

/* ---- from rows of bench ranks ---- */

bppsa_figure_data bppsa_make_ranks; /* source: a text, what the ranks share: "time" or "batch" */

/* ---- from rows of bench forward ---- */

bppsa_figure_data bppsa_make_forward_path, bppsa_make_forward_steps;

/* ---- from rows of bench step ---- */

bppsa_figure_data bppsa_make_step_path, bppsa_make_step_parts;

/* ---- from rows of bench/scripts/spectrain.py ---- */

bppsa_figure_data bppsa_make_prediction, bppsa_make_prediction_table;
bppsa_figure_data bppsa_make_staleness, bppsa_make_staleness_table; /* source: a text, the study: "accuracy" or "adam" */

/* ---- from rows of bench/scripts/out_of_order.py ---- */

bppsa_figure_data bppsa_make_out_of_order, bppsa_make_out_of_order_table;

/* ---- from what the library plans and counts ---- */

/* A plan of Blelloch's scan, whose steps are counted but never run. */
typedef struct {
  const char *network; /* its elements have this network's patterns; NULL: an RNN's dense elements, H = 20 */
  int64_t jacobians;   /* number of Jacobians if network is NULL */
} bppsa_plan_source;
bppsa_figure_data bppsa_make_plan;   /* source: a bppsa_plan_source */
bppsa_figure_data bppsa_make_table3; /* the audio features */
bppsa_figure_data bppsa_make_figure10;
bppsa_figure_data bppsa_make_figure5;
bppsa_status bppsa_write_figure5(bppsa_figures *figures, const bppsa_figure *figure);

/* ---- from schedules ---- */

/* A timeline; all other settings are as in bppsa_schedule_config_default. */
typedef struct {
  const char *scheme;
  int64_t stages, micro_batches, layers, width, replicas;
  bppsa_schedule_split split;
  bppsa_schedule_scale scale;
  double gradient;    /* cost of I, and cost of W */
  const double *sync; /* cost of SYNC for each layer, or NULL */
} bppsa_timeline_source;
bppsa_figure_data bppsa_make_timeline; /* source: a bppsa_timeline_source */
bppsa_figure_data bppsa_make_table2, bppsa_make_bubbles, bppsa_make_memory;

/* ---- from training ---- */

bppsa_figure_data bppsa_make_training; /* source: a text, the paper's finding. Trains by BP and the scans in lock step */
bppsa_figure_data bppsa_make_figure6;

/* ---- from separate measurements ---- */

bppsa_figure_data bppsa_make_table1;

#endif
