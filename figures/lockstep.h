/* Training by BP and by the scans in lock step: all methods make every iteration in turn, on the same batch, so that other load
 * hits all of them alike. */
#ifndef BPPSA_FIGURES_LOCKSTEP_H
#define BPPSA_FIGURES_LOCKSTEP_H

#include "figures/figure.h"
#include "train/optimizer.h"
#include "train/trainer.h"

enum { BPPSA_LOCKSTEP_METHODS = 3, BPPSA_LOCKSTEP_WINDOW = 20 };
extern const bppsa_bench_method bppsa_lockstep_methods[BPPSA_LOCKSTEP_METHODS]; /* BP first */
extern const double bppsa_lockstep_rate;                                        /* Adam's */

typedef struct {
  bppsa_model *model;
  bppsa_optimizer *optimizer;
  double *losses;  /* size iterations */
  double *seconds; /* size windows: s of the forward and backward passes of the latest repeat, a window of iterations */
  bppsa_evaluation held_out;
} bppsa_lockstep_runner;

typedef struct {
  const bppsa_figures *figures;
  const char *name; /* of the figure, for progress */
  bppsa_progress_line line;
  bppsa_dataset *data;
  bppsa_split split;
  bppsa_recurrent_config config; /* the data set's shape */
  int64_t iterations, windows;
  int64_t *order, *labels;
  float *x, *seed;
  bppsa_lockstep_runner runners[BPPSA_LOCKSTEP_METHODS];
} bppsa_lockstep;

/* Opens the run's data set, bitstream where it names none, and takes the memory of all repeats. Close it in every case. */
bppsa_status bppsa_lockstep_open(const bppsa_figures *figures, const char *name, bppsa_lockstep *training);
/* Trains new models of all methods from the same weights; `done` says what was done before, where the run is told to stop. ERR_IO:
 * it was; ERR_* of the models. */
bppsa_status bppsa_lockstep_repeat(bppsa_lockstep *training, const char *done);
void bppsa_lockstep_close(bppsa_lockstep *training);

#endif
