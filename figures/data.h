/* The data functions of the table of figures, and what each is made of. */
#ifndef BPPSA_FIGURES_DATA_H
#define BPPSA_FIGURES_DATA_H

#include "figures/figure.h"
#include "schedule/schedule.h"

/* ---- from rows of bench rnn ---- */

bppsa_figure_data bppsa_make_epochs; /* of an int: table 4, by T, or 5, by B */
bppsa_figure_data bppsa_make_growth, bppsa_make_figure8;

/* ---- from rows of bench gru ---- */

bppsa_figure_data bppsa_make_table6, bppsa_make_figure9;

/* ---- from what the library plans and counts ---- */

/* Blelloch's scan as a plan that is counted and never run. */
typedef struct {
  const char *network; /* whose patterns its elements have; NULL: all elements are an RNN's, H = 20 */
  int64_t jacobians;   /* without a network */
} bppsa_plan_source;
bppsa_figure_data bppsa_make_plan;   /* of a bppsa_plan_source */
bppsa_figure_data bppsa_make_table3; /* features of audio */
bppsa_figure_data bppsa_make_figure10;
bppsa_figure_data bppsa_make_figure5;
bppsa_status bppsa_write_figure5(bppsa_figures *figures, const bppsa_figure *figure);

/* ---- from schedules ---- */

/* A timeline; what is not named is as in bppsa_schedule_config_default. */
typedef struct {
  const char *scheme;
  int64_t stages, micro_batches, layers, width, replicas;
  bppsa_schedule_split split;
  bppsa_schedule_scale scale;
  double gradient;    /* cost of I and of W */
  const double *sync; /* of each layer, or NULL */
} bppsa_timeline_source;
bppsa_figure_data bppsa_make_timeline; /* of a bppsa_timeline_source */
bppsa_figure_data bppsa_make_table2, bppsa_make_bubbles, bppsa_make_memory;

/* ---- from training ---- */

bppsa_figure_data bppsa_make_training; /* of a text, what the paper found: BP and the scans in lock step */
bppsa_figure_data bppsa_make_figure6;

/* ---- from measurements of their own ---- */

bppsa_figure_data bppsa_make_table1;

#endif
