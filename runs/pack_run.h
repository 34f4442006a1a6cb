/* Samples of a run packed into rows (train/data/pack.h): as asked, or where a measurement finds rows the faster. */
#ifndef BPPSA_RUNS_PACK_RUN_H
#define BPPSA_RUNS_PACK_RUN_H

#include "core/base/text.h"
#include "networks/named_network.h"

/* What --pack asks for. */
typedef struct {
  int64_t steps;       /* of a row; 0: as many as the data set's samples have at most */
  bool automatic;      /* rows only where they are measured to be the faster */
  const char *kept;    /* what a resumed run's checkpoint says of rows, which decides; NULL: there is no checkpoint */
  const char *weights; /* the file of weights, which the network's sizes come from; NULL: there is none */
  bool backward;       /* passes have a backward pass too */
  int64_t batch;       /* samples of a batch */
} bppsa_pack_request;

/* What was measured for `automatic`; zero where nothing was. */
typedef struct {
  double rows_s, samples_s; /* seconds of a pass for each step of a sample */
} bppsa_pack_times;

/* Packs the samples of *dataset and makes the configuration one for rows: a loss of every step, resets, no lengths. *validation,
 * the fraction that is held out, becomes 0: the rows hold out what holds the same samples. Where rows are not the faster, all stays
 * as it is. Times are the least of three passes, each of a batch of its own, by BP unless the configuration says another method.
 * ERR_ARGUMENT: two directions and a loss of the last step; ERR_* of bppsa_dataset_split, bppsa_dataset_pack and the network's
 * passes. */
bppsa_status bppsa_pack_run(const bppsa_pack_request *request, const bppsa_network *network, const bppsa_device *device,
                            double *validation, bppsa_network_config *config, bppsa_dataset **dataset, bppsa_pack_times *times);

/* Does the loss count every step? In rows of samples it may count the last step of each sample alone, although the network has
 * outputs on every step. */
static inline bool bppsa_pack_loss_all(const bppsa_dataset *dataset, const bppsa_network_config *config) {
  return config->loss_all && (dataset->packing == NULL || !dataset->packing->ends);
}

/* Adds the line of a report that says what is packed, and what was measured; nothing where --pack is not asked for. label: what the
 * line begins with. */
void bppsa_packing_lines(const bppsa_dataset *dataset, const bppsa_pack_times *times, const char *label, bppsa_text *text);

#endif
