/* The sources of the oracle's figures. */
#ifndef BPPSA_FIGURES_ORACLE_FIGURES_H
#define BPPSA_FIGURES_ORACLE_FIGURES_H

#include "figures/figure.h"

#define BPPSA_ORACLE_FIGURES_SYSTEM "paradl-v100" /* the paper's cluster */

/* Bars of ParaDL's strategies at `last` processors and lines from `first` on; strong scaling of mini-batches of `batch`. */
typedef struct {
  const char *model;
  int64_t first, last, batch;
} bppsa_oracle_figure;
bppsa_figure_data bppsa_make_oracle; /* source: a bppsa_oracle_figure */

/* What a curve shows of a row: the halo exchange over the gradient exchange, the update over all computing, seconds of an epoch. */
typedef enum { BPPSA_ORACLE_HALO = 0, BPPSA_ORACLE_UPDATE, BPPSA_ORACLE_EPOCH } bppsa_oracle_value;

typedef struct {
  const char *name, *model, *strategy;
  int64_t batch;           /* of each processor; unused where the curve runs over it */
  int64_t samples_of_node; /* instead: strong scaling with so many samples for every `first` processors; 0: not */
  const char *says;        /* the name of what the paper's text says about it */
  double published;        /* a number of the text; 0: none */
  int64_t published_at;    /* its x; 0: the text gives none, a level */
  bool perfect;            /* the text says that it scales perfectly */
} bppsa_oracle_curve;

enum { BPPSA_ORACLE_CURVES = 4 };
typedef struct {
  bppsa_oracle_value value;
  bool over_batch;     /* x: samples of one processor; otherwise processors */
  int64_t first, last; /* x, doubled from point to point */
  bppsa_oracle_curve curves[BPPSA_ORACLE_CURVES];
} bppsa_oracle_curves;
bppsa_figure_data bppsa_make_oracle_curves; /* source: a bppsa_oracle_curves */

#endif
