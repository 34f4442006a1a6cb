/* The kinds of data sets: one constructor each, called by bppsa_dataset_create with checked options. Internal. */
#ifndef BPPSA_TRAIN_DATASET_KINDS_H
#define BPPSA_TRAIN_DATASET_KINDS_H

#include "train/dataset.h"

/* `argument` is what follows "KIND:" in the spec, NULL where there is no colon. */
bppsa_status bppsa_dataset_bitstream(const char *argument, const bppsa_dataset_options *options, bppsa_dataset **dataset);
bppsa_status bppsa_dataset_irmas(const char *argument, const bppsa_dataset_options *options, bppsa_dataset **dataset);
bppsa_status bppsa_dataset_instruments(const char *argument, const bppsa_dataset_options *options, bppsa_dataset **dataset);
bppsa_status bppsa_dataset_cifar10(const char *argument, const bppsa_dataset_options *options, bppsa_dataset **dataset);
bppsa_status bppsa_dataset_npy(const char *argument, const bppsa_dataset_options *options, bppsa_dataset **dataset);

#endif
