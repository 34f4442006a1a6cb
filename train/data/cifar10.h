/* The binary version of CIFAR-10: its files, and a synthetic set in the same format for machines without it.
 *
 * A file is a list of records: a byte with the label 0 .. 9, then 3 x 32 x 32 bytes, red, green, blue, each plane row by row.
 */
#ifndef BPPSA_TRAIN_DATA_CIFAR10_H
#define BPPSA_TRAIN_DATA_CIFAR10_H

#include <stdint.h>

#include "core/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  BPPSA_CIFAR10_CLASSES = 10,
  BPPSA_CIFAR10_CHANNELS = 3,
  BPPSA_CIFAR10_SIDE = 32,
  BPPSA_CIFAR10_PIXELS = BPPSA_CIFAR10_CHANNELS * BPPSA_CIFAR10_SIDE * BPPSA_CIFAR10_SIDE,
  BPPSA_CIFAR10_RECORD = 1 + BPPSA_CIFAR10_PIXELS,
  BPPSA_CIFAR10_FILES = 6 /* five batches to train on, and one that is held out */
};

/* "data_batch_1.bin" .. "data_batch_5.bin", "test_batch.bin" */
const char *bppsa_cifar10_file(int index);

/* Draws record `number` of the synthetic set. Its label is number mod 10; its pixels depend on the seed and the number alone.
 * Five classes are textures (horizontal, vertical or diagonal stripes, a checkerboard, dots), five are shapes on a plain ground
 * (a disk, a square, a triangle, a ring, a cross), in random colours, positions, sizes and phases, with noise. */
void bppsa_cifar10_draw(uint64_t seed, int64_t number, uint8_t record[BPPSA_CIFAR10_RECORD]);

/* Writes `samples` synthetic records into five files to train on, and a fifth as many into the held-out file. The directory is
 * created if it does not exist; one that holds any of the files is refused (ERR_ARGUMENT). Each file is complete or absent.
 * progress may be NULL. ERR_ARGUMENT: fewer than 10 or more than 10^7 samples; ERR_IO; ERR_MEMORY. */
bppsa_status bppsa_cifar10_write(const char *directory, int64_t samples, uint64_t seed, int32_t threads,
                                 void (*progress)(void *context, int64_t done, int64_t total), void *context);

#ifdef __cplusplus
}
#endif
#endif
