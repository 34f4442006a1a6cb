/* The weights of samples and steps in a loss, from a file. */
#ifndef BPPSA_TRAIN_DATA_LOSS_WEIGHTS_H
#define BPPSA_TRAIN_DATA_LOSS_WEIGHTS_H

#include "train/data/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the weights of so many samples are laid out. */
typedef struct {
  int64_t samples, steps;
  bool time_first;        /* arrays with an axis of steps are [steps][samples], otherwise [samples][steps] */
  bool per_step;          /* the loss is on every step; otherwise on the last step of each sample */
  const int64_t *lengths; /* of the samples, NULL: all have `steps` steps */
} bppsa_loss_weights_shape;

/* Loads weights, reals of at least 0, also integers and bools: one for each sample and step; with a loss on the last step one for
 * each sample, or for each sample and step, of which that of the sample's last step is taken. *weights are in the order of the
 * file, with per_step [samples][steps] or [steps][samples], otherwise [samples]; the caller frees them with bppsa_free. They are
 * divided by the power of two that brings the largest into 1 .. 2: the weighted mean does not depend on it (train/loss.h), and a
 * file of ones stays ones. ERR_ARGUMENT: a negative weight, by position, or none above 0; ERR_SHAPE; ERR_FORMAT: a weight that is
 * not finite; errors of bppsa_npy_load_reals. */
bppsa_status bppsa_loss_weights_load(const char *path, const bppsa_loss_weights_shape *shape, double **weights);

/* Gives the samples of a data set of sequences these weights, [N][T] or [N]; a set that has lengths must have them already. The
 * set's identity changes with them. ERR_ARGUMENT: images; errors as above. */
bppsa_status bppsa_dataset_load_loss_weights(bppsa_dataset *dataset, const char *path);

#ifdef __cplusplus
}
#endif
#endif
