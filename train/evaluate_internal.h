/* Evaluation with a training run's buffers. Internal. */
#ifndef BPPSA_TRAIN_EVALUATE_INTERNAL_H
#define BPPSA_TRAIN_EVALUATE_INTERNAL_H

#include "train/batch.h"
#include "train/evaluate.h"

/* Sums over the samples of an evaluation. */
typedef struct {
  double loss; /* Σ of the rows' losses, each times its weight */
  double weight;
  int64_t correct, rows;
  double account[BPPSA_ACCOUNT_NUMBERS]; /* of forward passes */
} bppsa_batch_sums;

bppsa_evaluation bppsa_batch_evaluation(const bppsa_batch_sums *sums, int64_t samples);
/* Evaluates samples first .. first + count - 1, at most batch->capacity, and adds their numbers to the sums. before: where they are
 * a part of a batch of streams, the samples of the batch in front of them; otherwise 0. */
bppsa_status bppsa_batch_evaluate_part(bppsa_batch *batch, int64_t first, int64_t count, int64_t before,
                                       const bppsa_evaluation_sink *sink, bppsa_batch_sums *sums);
/* bppsa_evaluate_each, before its sums become means. */
bppsa_status bppsa_batch_evaluate_sums(bppsa_batch *batch, int64_t first, int64_t count, const bppsa_evaluation_sink *sink,
                                       bppsa_batch_sums *sums);
/* ERR_ARGUMENT: samples that the data set does not have, none, or a batch of none. */
bppsa_status bppsa_evaluate_check(const bppsa_dataset *dataset, int64_t first, int64_t count, int64_t batch);
/* bppsa_evaluate_each with existing buffers, batch->capacity samples at a time. */
bppsa_status bppsa_batch_evaluate(bppsa_batch *batch, int64_t first, int64_t count, const bppsa_evaluation_sink *sink,
                                  bppsa_evaluation *result);

#endif
