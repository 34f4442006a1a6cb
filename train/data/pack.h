/* Short samples in long rows. A network computes all T steps of a row, so samples of many lengths leave most of a batch empty;
 * packed one behind the other they fill it. The rows begin anew in front of each sample (resets), so that each is computed as if it
 * were alone, and their steps have weights in the loss, so that the loss is that of the samples by themselves. */
#ifndef BPPSA_TRAIN_DATA_PACK_H
#define BPPSA_TRAIN_DATA_PACK_H

#include "train/data/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Packs so many samples of the given lengths, each 1 .. steps, into rows of `steps` steps: best-fit decreasing. The longest sample
 * comes first, the first one of several; each goes to the fullest row that has room, of several to the one that was used last. The
 * result depends on the lengths alone. row, first [samples]: each sample's row, from 0, and its first step there. order [samples]:
 * the samples as they were placed, so that those of a row are in the order of their steps. *rows: how many there are. Takes
 * O(samples + steps) memory. ERR_ARGUMENT: the first sample of another length; ERR_MEMORY. */
bppsa_status bppsa_pack_rows(int64_t samples, const int64_t *lengths, int64_t steps, int64_t *row, int64_t *first, int64_t *order,
                             int64_t *rows);

/* Makes a data set whose samples are rows of `steps` steps that hold the samples of a set of sequences with their lengths, resets
 * and loss weights. The split's samples to train on make the first rows; the held-out ones make the others, and the new set holds
 * them out. The set has resets and loss weights, and labels or targets on every step: where `samples` has them on the last step,
 * the weight of all other steps is 0. Steps behind a row's last sample have inputs 0 and weights 0. Takes `samples` over, which is
 * destroyed with the rows. On failure it stays the caller's. ERR_ARGUMENT: images, a set of rows, `steps` out of range, or the
 * first sample that is longer than a row; ERR_MEMORY. */
bppsa_status bppsa_dataset_pack(bppsa_dataset *samples, const bppsa_split *split, int64_t steps, bppsa_dataset **rows);

/* Puts the samples in the place of the rows, which are destroyed. Sets that are not rows stay as they are. */
void bppsa_dataset_unpack(bppsa_dataset **rows);

/* "1000 samples of 1 .. 97 steps in 53 rows of 1000 steps, 98.7 % full". Returns text. */
const char *bppsa_packing_text(const bppsa_packing *packing, char *text, size_t size);
#define BPPSA_PACKING_TEXT 192
/* A JSON object of the numbers; `full` is the part of the rows' steps that samples have. NULL: out of memory. */
json_t *bppsa_packing_json(const bppsa_packing *packing);

#ifdef __cplusplus
}
#endif
#endif
