/* The lengths of samples, from a file. */
#ifndef BPPSA_TRAIN_DATA_LENGTHS_H
#define BPPSA_TRAIN_DATA_LENGTHS_H

#include "train/data/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Loads the lengths of so many samples, int64 [samples], each in 1 .. steps. The caller frees *lengths with bppsa_free.
 * ERR_ARGUMENT names the first length out of range; ERR_SHAPE; ERR_FORMAT: another dtype; errors of bppsa_npy_load. */
bppsa_status bppsa_lengths_load(const char *path, int64_t samples, int64_t steps, int64_t **lengths);

/* Gives the samples of a data set of sequences these lengths. The set's identity changes with them. ERR_ARGUMENT: images; errors as
 * above. */
bppsa_status bppsa_dataset_load_lengths(bppsa_dataset *dataset, const char *path);

#ifdef __cplusplus
}
#endif
#endif
