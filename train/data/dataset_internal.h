/* The kinds of data sets: one constructor each, called by bppsa_dataset_create with checked options, and what they share.
 * Internal. */
#ifndef BPPSA_TRAIN_DATA_DATASET_INTERNAL_H
#define BPPSA_TRAIN_DATA_DATASET_INTERNAL_H

#include "train/data/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `argument` is what follows "KIND:" in the spec, NULL where there is no colon. */
bppsa_status bppsa_dataset_bitstream(const char *argument, const bppsa_dataset_options *options, bppsa_dataset **dataset);
bppsa_status bppsa_dataset_irmas(const char *argument, const bppsa_dataset_options *options, bppsa_dataset **dataset);
bppsa_status bppsa_dataset_instruments(const char *argument, const bppsa_dataset_options *options, bppsa_dataset **dataset);
bppsa_status bppsa_dataset_cifar10(const char *argument, const bppsa_dataset_options *options, bppsa_dataset **dataset);
bppsa_status bppsa_dataset_npy(const char *argument, const bppsa_dataset_options *options, bppsa_dataset **dataset);

/* Copies `n` values from one f32 or f64 row to another. */
void bppsa_dataset_copy_row(bppsa_dtype from_dtype, const void *from, bppsa_dtype to_dtype, void *to, int64_t n);
/* x[t, s, :] = from[indices[s], t, :] of a data set of sequences that are in memory, [N][T][I] of f32 or f64. */
void bppsa_dataset_copy_steps(bppsa_dtype from_dtype, const void *from, int32_t threads, int64_t count, const int64_t *indices,
                              const bppsa_dataset *dataset, const bppsa_view *x);

/* Copies `steps` rows of `width` values, from row `first` of [rows][width] on, to `to` as the part's rows; `to` NULL: nothing. */
void bppsa_dataset_copy_part(bppsa_dtype from_dtype, const void *from, int64_t first, int64_t width, int64_t steps,
                             const bppsa_dataset_part *part, void *to);

/* The bitstream's part of bppsa_dataset_queue. */
bppsa_status bppsa_bitstream_queue(const bppsa_dataset *dataset, const bppsa_device *device, uint64_t seed, int64_t count,
                                   const int64_t *indices, const bppsa_view *x, int64_t *labels);

#ifdef __cplusplus
}
#endif

#endif
