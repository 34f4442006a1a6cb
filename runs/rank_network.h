/* A network on ranks: each rank holds the whole network, or, along time, the part that computes its own steps. */
#ifndef BPPSA_RUNS_RANK_NETWORK_H
#define BPPSA_RUNS_RANK_NETWORK_H

#include "distributed/batch/data_parallel.h"
#include "distributed/job.h"
#include "networks/named_network.h"

/* The caller sets the first five members. */
typedef struct {
  bppsa_comm *comm;       /* of all ranks, borrowed; NULL: the network has no ranks */
  bppsa_rank_split split; /* how ranks share time and samples */
  int64_t micro_batches;  /* pieces of a batch that pass along time one after the other */
  bppsa_data_parallel_config parallel;
  bool nccl;        /* arrays on GPUs travel over NCCL */
  bppsa_comm *gpus; /* the same ranks over NCCL; NULL without it */
  /* NULL unless the network is cut along time. time: the ranks that have the other steps of this rank's samples. batch: the ranks
   * that have the same steps of other samples. */
  bppsa_comm *time, *batch;
} bppsa_rank_network;

/* Is the network cut along time? */
bool bppsa_rank_network_cut(const bppsa_rank_network *ranks);
/* Counts the samples that this rank's model takes at once: a block, or along time this rank's share of the batch. */
int64_t bppsa_rank_network_samples(const bppsa_rank_network *ranks);
/* Returns the device of this rank if the user asks for `name`. "cuda" becomes cuda:K, where K is the rank's number on its
 * machine; with fewer GPUs than ranks, K starts again from 0. Other names stay. Returns name or text. */
const char *bppsa_rank_device(const bppsa_comm *comm, const char *name, char *text, size_t size);
#define BPPSA_RANK_DEVICE 24

/* Resolves config->steps.forward, the forward pass that the user asks for, for this rank's model. Where ranks share the samples,
 * each would pause by itself, so AUTO becomes the sequential pass. samples: the size of a batch; a model that takes a whole batch
 * at once (config->batch) is planned for that many, as on one device. ERR_ARGUMENT: SPECULATIVE where ranks share the samples. */
bppsa_status bppsa_rank_network_forward(const bppsa_rank_network *ranks, int64_t samples, bppsa_network_config *config);

/* Fails with ERR_ARGUMENT if more ranks share samples than there are samples; `what` names their source, as in "a batch". */
bppsa_status bppsa_rank_network_check(const bppsa_rank_split *split, int64_t samples, const char *what);
/* Checks micro_batches, given by an option or not, for ranks along time and at most `most` samples. trains: the command runs
 * schedules too. ERR_ARGUMENT. */
bppsa_status bppsa_rank_network_check_micro_batches(const bppsa_rank_network *ranks, bool given, bool trains, int64_t most);

/* Returns the ranks that share a batch. */
bppsa_comm *bppsa_rank_network_among(const bppsa_rank_network *ranks);

/* Makes this rank's model; collective along time and over NCCL. On a GPU the ranks then exchange arrays on the device, until
 * bppsa_rank_network_free. config.batch: what bppsa_rank_network_samples returns. Without ranks the same as bppsa_network_create.
 * ERR_* of that function, of bppsa_split_time_create and bppsa_comm_create_nccl. */
bppsa_status bppsa_rank_network_create(const bppsa_network *network, const bppsa_network_config *config,
                                       const bppsa_device *device, bppsa_rank_network *ranks, bppsa_model **model);
/* Gives the model its initial weights, the same on every rank. ERR_MEMORY. */
bppsa_status bppsa_rank_network_init(const bppsa_network *network, const bppsa_network_config *config, const bppsa_device *device,
                                     const bppsa_rank_network *ranks, bppsa_init init, uint64_t seed, bppsa_model *model);
/* Returns the method by which the model computes its gradients, with `auto` resolved. */
bppsa_gradient_method bppsa_rank_network_method(const bppsa_network *network, const bppsa_network_config *config,
                                                const bppsa_rank_network *ranks, const bppsa_model *model);
void bppsa_rank_network_free(bppsa_rank_network *ranks); /* call it after the model is destroyed; a zeroed one is legal */

#endif
