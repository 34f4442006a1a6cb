/* Training by BP and by the scans in lock step: in each iteration all methods take turns on the same batch, so that other load on
 * the machine slows all of them equally. */
#ifndef BPPSA_FIGURES_LOCKSTEP_H
#define BPPSA_FIGURES_LOCKSTEP_H

#include "figures/figure.h"
#include "figures/measured_rows.h"
#include "train/optimizer.h"
#include "train/trainer.h"

/* BP, then the parallel scans. */
enum { BPPSA_LOCKSTEP_METHODS = 1 + BPPSA_MEASURED_PARALLEL, BPPSA_LOCKSTEP_WINDOW = 20 };
const char *bppsa_lockstep_name(int method); /* "bp" */
extern const double bppsa_lockstep_rate;     /* Adam's learning rate */

typedef struct {
  bppsa_model *model;
  bppsa_optimizer *optimizer;
  double *losses;  /* one for each iteration */
  double *seconds; /* one for each window: seconds of its forward and backward passes in the latest repeat */
  bppsa_evaluation held_out;
} bppsa_lockstep_runner;

typedef struct {
  const bppsa_figures *figures;
  const char *name; /* name of the figure, for progress messages */
  bppsa_progress_line line;
  bppsa_dataset *data;
  bppsa_split split;
  bppsa_recurrent_config config; /* with the data set's shape */
  int64_t iterations, windows;
  int64_t *order, *labels;
  float *x, *seed;
  bppsa_lockstep_runner runners[BPPSA_LOCKSTEP_METHODS];
} bppsa_lockstep;

/* Opens the run's data set (bitstream if it names none) and allocates memory for all repeats. Close it also after a failure. */
bppsa_status bppsa_lockstep_open(const bppsa_figures *figures, const char *name, bppsa_lockstep *training);
/* Trains new models by all methods from the same weights. done: the last finished piece of work, for the message if the run is told
 * to stop. ERR_IO: the run was told to stop. ERR_* of the models. */
bppsa_status bppsa_lockstep_repeat(bppsa_lockstep *training, const char *done);
void bppsa_lockstep_close(bppsa_lockstep *training);

#endif
