/* Data parallelism: every rank holds the whole model and takes a part of each batch; the gradients are added up over all ranks.
 *
 * A batch is cut into blocks of consecutive samples. Each rank computes the blocks of its share one after the other, with a model
 * that takes one block at once, and the sum goes along a fixed binary tree over the blocks' numbers (comm/ordered.h). So the bits
 * of loss and gradients depend on the size of a block, and not on the number of ranks. A block has 16 samples if each rank gets at
 * least one of them; otherwise each rank's share of the batch is one block, and the bits depend on the number of ranks.
 *
 * With ranks along time (distributed/time/split_time.h) each rank's share of a batch is one block, which it computes together with
 * the ranks that hold the other steps of these samples. Their gradients are complete when the block's backward pass ends.
 *
 * Speculative backward passes (recurrent/parallel_backward.h) of all blocks begin in the same state. Whether BP computes a block is
 * decided for this block alone. Afterwards the statistics of all blocks are joined, so that every rank pauses at the same pass.
 *
 * The alternative is the transport's own allreduce. Then each rank's share is one block, and the bits depend on ranks and
 * transport.
 *
 * Gradients travel in buckets of neighbouring parameters. A bucket sets out as soon as its gradients are complete, while the
 * backward pass goes on to the layers below. Of several buckets that are complete, the one with the first layers' parameters sets
 * out first. Reverse first-k (ooo-backprop, Algorithm 2) puts the weight gradients of the first k layers off to the end of the
 * pass, the first layer's first: those of the upper layers then travel earlier. It changes no bit. The output gradients of these
 * layers take memory until then, so k is at most the number of layers for which every rank's model has room.
 */
#ifndef BPPSA_DISTRIBUTED_BATCH_DATA_PARALLEL_H
#define BPPSA_DISTRIBUTED_BATCH_DATA_PARALLEL_H

#include "comm/comm.h"
#include "core/compute/model.h"
#include "distributed/reduction.h"
#include "train/trainer.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BPPSA_DATA_PARALLEL_BLOCK 16 /* samples */

/* Ordered, batch 16, buckets of 1 MiB, no reverse first-k, tag 1024. */
bppsa_data_parallel_config bppsa_data_parallel_config_default(void);

/* Samples of a block: what a rank's model takes at once. `ranks` >= 1. */
int64_t bppsa_data_parallel_block(const bppsa_data_parallel_config *config, int32_t ranks);
/* The first sample of a rank's share of `count` samples that are cut into blocks of `block`; `count` for rank = ranks. */
int64_t bppsa_data_parallel_first(const bppsa_data_parallel_config *config, int64_t block, int32_t ranks, int64_t rank,
                                  int64_t count);
/* Are the bits those of every other number of ranks whose blocks have 16 samples? */
bool bppsa_data_parallel_same_bits(const bppsa_data_parallel_config *config, int32_t ranks);
/* On what the bits depend, in words: "a tree over blocks of 16 samples", "the allreduce of mpi over 4 ranks", "2 ranks along time,
 * 3 groups, a tree over blocks of 8 samples", or with time_blocks "blocks along time, a tree over blocks of 8 samples". Returns
 * text. */
const char *bppsa_data_parallel_text(const bppsa_data_parallel_config *config, bppsa_comm_transport transport, int32_t ranks,
                                     char *text, size_t size);
#define BPPSA_DATA_PARALLEL_TEXT 96

typedef struct bppsa_data_parallel bppsa_data_parallel; /* a rank's part of the sums */

/* Makes this rank's part; collective. comm and model are borrowed; the model is planned for a batch of bppsa_data_parallel_block,
 * and equal on all ranks. A model on a GPU needs a communicator that knows the GPU (bppsa_comm_set_device, bppsa_comm_create_nccl);
 * its gradients stay there, except that ordered sums add in host memory. The caller destroys the object, before the model.
 * ERR_ARGUMENT: a number out of its range, more ranks than samples in a batch, another GPU than the communicator's.
 * ERR_UNSUPPORTED: reverse first-k with a model that computes all gradients of a layer together, or on a GPU; speculative forward
 * passes of blocks that are not the whole batch. ERR_MEMORY. */
bppsa_status bppsa_data_parallel_create(bppsa_comm *comm, bppsa_model *model, const bppsa_data_parallel_config *config,
                                        bppsa_data_parallel **made);
void bppsa_data_parallel_destroy(bppsa_data_parallel *dp); /* NULL is legal */

/* What the training loop drives (bppsa_train_config.ranks); borrowed. */
const bppsa_train_ranks *bppsa_data_parallel_ranks(const bppsa_data_parallel *dp);

/* bppsa_evaluate of streams (train/data/dataset.h) on ranks, which share each batch of `batch` samples as training on ranks does,
 * and carry the states of their samples to the next one. along: as of bppsa_ranks_evaluate. Every rank gets the result, whose bits
 * depend on the number of ranks where the bits of gradients do. The model takes at least bppsa_data_parallel_block samples.
 * Collective. ERR_ARGUMENT: no streams, or more ranks than samples in a batch. Errors of bppsa_evaluate; ERR_MEMORY, ERR_COMM. */
bppsa_status bppsa_data_parallel_evaluate_streams(bppsa_comm *comm, const bppsa_data_parallel_config *along, bppsa_model *model,
                                                  const bppsa_dataset *dataset, const bppsa_device *device, int64_t first,
                                                  int64_t count, int64_t batch, bppsa_evaluation *result);

/* The k of reverse first-k in use; -1 while it is still measured. The second function: the largest k for which the models of all
 * ranks have memory, 0 where no k was asked for. The third: the number of buckets. */
int64_t bppsa_data_parallel_reverse_first(const bppsa_data_parallel *dp);
int64_t bppsa_data_parallel_reverse_first_most(const bppsa_data_parallel *dp);
int64_t bppsa_data_parallel_buckets(const bppsa_data_parallel *dp);

/* The same in words, with what was measured: "weight gradients that come last: 1 of 4 layers, 3 asked for: there is memory for 1 of
 * 4". Valid until the next call. */
const char *bppsa_data_parallel_order(bppsa_data_parallel *dp);

/* ---- gradients of one batch, without a training loop ---- */

/* The blocks of this rank in a batch of `count` samples: first .. first + blocks - 1, of *all. */
void bppsa_data_parallel_share(const bppsa_data_parallel *dp, int64_t count, int64_t *first, int64_t *blocks, int64_t *all);

/* Computes the batch: calls `block` for every block of this rank, in order, which runs the model's forward and backward pass on
 * samples first .. first + count - 1 and writes the block's numbers. On return the model's gradients on every rank are those of the
 * whole batch. Collective. Errors of `block`; ERR_COMM, ERR_MEMORY. */
typedef bppsa_status (*bppsa_data_parallel_block_fn)(void *context, int64_t first, int64_t count, bppsa_data_parallel_sums *sums);
bppsa_status bppsa_data_parallel_compute(bppsa_data_parallel *dp, int64_t count, bppsa_data_parallel_block_fn block,
                                         void *context, bppsa_data_parallel_sums *sums);

/* Adds the numbers of the ranks along time, each of which has the rows of its own steps; nothing to do without them. Collective.
 * ERR_COMM. */
bppsa_status bppsa_data_parallel_add_along_time(const bppsa_data_parallel *dp, bppsa_data_parallel_sums *sums);

#ifdef __cplusplus
}
#endif
#endif
