/* The steps in front of which samples begin anew, from a file. */
#ifndef BPPSA_TRAIN_DATA_RESETS_H
#define BPPSA_TRAIN_DATA_RESETS_H

#include "train/data/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Loads a mask of 0 and 1, bool or u8 [rows][columns]; words: what these are, "[T, B]". The caller frees *resets with bppsa_free.
 * ERR_ARGUMENT names the first other value; ERR_SHAPE; ERR_FORMAT: another dtype; errors of bppsa_npy_load. */
bppsa_status bppsa_resets_load(const char *path, const char *words, int64_t rows, int64_t columns, uint8_t **resets);

/* Gives the samples of a data set of sequences these masks, [N][T]. The set's identity changes with them. ERR_ARGUMENT: images;
 * errors as above. */
bppsa_status bppsa_dataset_load_resets(bppsa_dataset *dataset, const char *path);

#ifdef __cplusplus
}
#endif
#endif
