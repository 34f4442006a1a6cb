/* Evaluation: the mean loss and accuracy of a model over a range of a data set's samples, by forward passes alone. The loss is
 * that of train/trainer.h. */
#ifndef BPPSA_TRAIN_EVALUATE_H
#define BPPSA_TRAIN_EVALUATE_H

#include "core/compute/device.h"
#include "core/compute/model.h"
#include "train/data/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  double loss, accuracy; /* means over the counted rows: samples, or samples times steps. Accuracy is NaN for real targets */
  int64_t samples;
  double account[BPPSA_ACCOUNT_NUMBERS]; /* the model's account of its forward passes */
} bppsa_evaluation;

/* Evaluates samples first .. first + count - 1 in their order, `batch` at a time; of streams each batch begins with the states in
 * which the one before has ended. Afterwards the model has forgotten its passes (bppsa_model_forget), whose memory was the
 * evaluation's. ERR_ARGUMENT: the range is empty or outside the data set, labels beyond the model's classes. ERR_NUMERIC names the
 * first value that is not finite. */
bppsa_status bppsa_evaluate(bppsa_model *model, const bppsa_dataset *dataset, const bppsa_device *device, int64_t first,
                            int64_t count, int64_t batch, bppsa_evaluation *result);

/* Called after every forward pass with its logits, which are where the model is; the model still holds the pass. A result other
 * than OK ends the evaluation. */
typedef struct {
  bppsa_status (*each)(void *context, const bppsa_view *logits);
  void *context;
} bppsa_evaluation_sink;

/* The same; calls `sink` after each pass, in the order of the samples. NULL: none. */
bppsa_status bppsa_evaluate_each(bppsa_model *model, const bppsa_dataset *dataset, const bppsa_device *device, int64_t first,
                                 int64_t count, int64_t batch, const bppsa_evaluation_sink *sink, bppsa_evaluation *result);

#ifdef __cplusplus
}
#endif
#endif
