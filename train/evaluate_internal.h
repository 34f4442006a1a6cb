/* Evaluation with a training run's buffers. Internal. */
#ifndef BPPSA_TRAIN_EVALUATE_INTERNAL_H
#define BPPSA_TRAIN_EVALUATE_INTERNAL_H

#include "train/batch.h"
#include "train/evaluate.h"

/* bppsa_evaluate_each with existing buffers, batch->capacity samples at a time. */
bppsa_status bppsa_batch_evaluate(bppsa_batch *batch, int64_t first, int64_t count, const bppsa_evaluation_sink *sink,
                                  bppsa_evaluation *result);

#endif
