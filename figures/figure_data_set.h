/* The data sets that figures train on. */
#ifndef BPPSA_FIGURES_FIGURE_DATA_SET_H
#define BPPSA_FIGURES_FIGURE_DATA_SET_H

#include "figures/figure.h"
#include "train/data/dataset.h"

/* Opens a data set and splits it; shows progress while it reads WAV files. validation: the fraction that is held out. batch: at
 * most the number of samples that are left for training. seq_len, samples: 0 to take the data set's own. The caller destroys the
 * data set. ERR_ARGUMENT; ERR_* of bppsa_dataset_create. */
typedef struct {
  const char *spec;
  int64_t seq_len, samples, batch;
  double validation;
} bppsa_figures_dataset;
bppsa_status bppsa_figures_open_data(const bppsa_figures *figures, const bppsa_figures_dataset *asked, bppsa_dataset **dataset,
                                     bppsa_split *split);

#endif
