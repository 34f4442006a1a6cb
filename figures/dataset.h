/* The data sets that figures train on. */
#ifndef BPPSA_FIGURES_DATASET_H
#define BPPSA_FIGURES_DATASET_H

#include "figures/figure.h"
#include "train/data/dataset.h"

/* Opens a data set, with progress while WAV files are read, and splits it: `validation` is the fraction held out. A batch must fit
 * into what is trained on. The caller destroys it. seq_len, samples: 0 where the data set says. ERR_ARGUMENT; ERR_* of
 * bppsa_dataset_create. */
typedef struct {
  const char *spec;
  int64_t seq_len, samples, batch;
  double validation;
} bppsa_figures_dataset;
bppsa_status bppsa_figures_open_data(const bppsa_figures *figures, const bppsa_figures_dataset *asked, bppsa_dataset **dataset,
                                     bppsa_split *split);

#endif
