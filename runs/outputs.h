/* Writes what a network computes for every sample of a data set to an NPZ archive: logits, predictions, states. */
#ifndef BPPSA_RUNS_OUTPUTS_H
#define BPPSA_RUNS_OUTPUTS_H

#include "networks/named_network.h"
#include "train/trainer.h"

typedef struct bppsa_outputs bppsa_outputs;

/* Begins the archive of `count` samples at `path`; with `states` it includes the states of every layer. The arguments must
 * outlive the archive. ERR_IO, ERR_MEMORY. */
bppsa_status bppsa_outputs_open(const char *path, bool states, const bppsa_network *network, const bppsa_network_config *config,
                                const bppsa_dataset *dataset, const bppsa_device *device, bppsa_model *model, int64_t count,
                                bppsa_outputs **outputs);
/* For bppsa_evaluate_each: adds the batch that the model has just seen. */
bppsa_status bppsa_outputs_add(void *outputs, const bppsa_view *logits);
/* Completes the file and destroys the archive, also on failure. Before this call the path does not exist. NULL is legal. */
bppsa_status bppsa_outputs_commit(bppsa_outputs *outputs);
void bppsa_outputs_abort(bppsa_outputs *outputs);

#endif
