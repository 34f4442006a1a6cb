/* What was written: data sets and their files as JSON documents and as lines for people. */
#ifndef BPPSA_TRAIN_DATA_REPORT_H
#define BPPSA_TRAIN_DATA_REPORT_H

#include "core/base/text.h"
#include "core/files/json.h"
#include "train/data/dataset.h"

/* A data set of sequences that bppsa_dataset_write wrote with this dtype to two files. JSON: NULL when out of memory;
 * text: ERR_MEMORY. */
json_t *bppsa_dataset_json(const bppsa_dataset *dataset, bppsa_dtype dtype);
bppsa_status bppsa_dataset_text(const bppsa_dataset *dataset, bppsa_dtype dtype, const char *x_path, const char *y_path,
                                bppsa_text *text);

/* The same about the WAV files that bppsa_instruments_write wrote. */
json_t *bppsa_instruments_json(const char *directory, int64_t files, int64_t seed);
bppsa_status bppsa_instruments_text(const char *directory, int64_t files, bppsa_text *text);

/* The same about the images that bppsa_cifar10_write wrote. */
json_t *bppsa_cifar10_json(const char *directory, int64_t samples, int64_t seed);
bppsa_status bppsa_cifar10_text(const char *directory, int64_t samples, bppsa_text *text);

#endif
