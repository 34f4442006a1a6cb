/* Ranks that share the layers of a convolutional network (distributed/layers/layer_split.h), or groups of such ranks that share the
 * batches, as the training loop drives them (train/trainer.h).
 *
 * Neighbouring ranks form a group, and each group takes neighbouring samples of a batch. A rank updates its own part of the
 * weights; the loop gets whole weights and the whole state of its optimiser back where it validates, saves or ends.
 */
#ifndef BPPSA_DISTRIBUTED_LAYERS_LAYER_TRAIN_H
#define BPPSA_DISTRIBUTED_LAYERS_LAYER_TRAIN_H

#include "distributed/layers/layer_split.h"
#include "train/trainer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  bppsa_layer_strategy strategy;
  int64_t group; /* ranks of a group, a divisor of all ranks */
  int64_t batch; /* of all groups together */
  bppsa_reduction reduction;
  bppsa_optimizer_config optimizer;
  double clip_norm; /* 0: no clipping */
} bppsa_layer_train_config;

typedef struct bppsa_layer_train bppsa_layer_train; /* a rank's part of shared layers that train */

/* Samples of a batch that a group takes at once, at most. */
int64_t bppsa_layer_train_samples(const bppsa_layer_train_config *config, int64_t ranks);

/* Makes this rank's part; collective. model: the whole network, planned for bppsa_layer_train_samples, which holds the weights that
 * the loop begins with; comm and model are borrowed. The caller destroys the object, before the model. ERR_ARGUMENT: a group that
 * does not divide the ranks, more groups than samples, and those of bppsa_layer_split_create; ERR_* of that function, ERR_COMM. */
bppsa_status bppsa_layer_train_create(bppsa_comm *comm, const bppsa_cnn_network *network, bppsa_model *model,
                                      const bppsa_layer_train_config *config, const bppsa_device *device,
                                      bppsa_layer_train **made);
void bppsa_layer_train_destroy(bppsa_layer_train *train); /* NULL is legal */

/* What the training loop drives (bppsa_train_config.ranks); borrowed. */
const bppsa_train_ranks *bppsa_layer_train_ranks(const bppsa_layer_train *train);
/* This rank's part of the network; borrowed. */
const bppsa_model *bppsa_layer_train_part(const bppsa_layer_train *train);

/* On what the bits depend: "a tree over the 4 ranks of filter parallelism", or "the allreduce of mpi over 2 groups of 2 ranks of
 * spatial parallelism". Returns text. */
const char *bppsa_layer_train_text(const bppsa_layer_train_config *config, bppsa_comm_transport transport, int64_t ranks,
                                   char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
