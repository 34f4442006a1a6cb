/* A recurrent network whose sequence is cut along time: every rank of a communicator holds neighbouring steps, and is given, as a
 * bppsa_model (core/compute/model.h), the part of the network that computes them. S is the size of a state, as in
 * recurrent/recurrent.h.
 *
 * Rank 0 has the last steps, where back-propagation begins; bppsa_ranks_share (distributed/time/scan_ranks.h) says which rank has
 * which steps, and where p > T the ranks beyond T have none. All ranks call forward and backward, in the same order and with the
 * same b; t is the number of a rank's own steps:
 *
 *   forward          x [t,b,I] of its own steps; h0 [L,b,S] or NULL: only the rank with step 1 reads it. Logits: with a loss on
 *                    all steps [t,b,C]; with a loss on the last one [b,C] on rank 0, and [0,C] on the others.
 *                    Every rank takes the resets of all steps, [T,b].
 *   backward         a seed of the shape of the logits. Every rank's gradients are those of the whole sequence, with the same bits
 *                    on all ranks: the ranks' parts are added in a fixed order (comm/ordered.h).
 *   input_gradients  x [t,b,I]; h0 [L,b,S] on the rank with step 1, [L,0,S] on the others.
 *
 * A rank scales its seed by its own rows alone; bppsa_ranks_loss makes it the seed of all ranks' rows:
 *
 *     forward(x) -> logits;  loss(logits) -> seed, result;  bppsa_ranks_loss(comm, &seed, &result);  backward(seed)
 *
 * The batch goes through the ranks in groups of samples (`micro_batches`) whose sizes differ by at most one. In the forward pass
 * the states of a group pass from the rank with the earlier steps to the next one, which computes while the first goes on to the
 * next group. The backward pass with method BP is the same pipeline from rank 0 on. With a scan (linear, chunked, blelloch) the
 * groups' scans over ranks follow each other (distributed/time/scan_ranks.h). On a GPU all arrays are in its memory. There the
 * layer's own kernels take a rank through BP, linear and, for H up to 32, chunked, by the products of the rank's chunks, which they
 * make before a gradient arrives: gradients alone travel. The other scans are scans over ranks on a GPU as well. AUTO is BP where
 * (p - 1) / micro_batches, the time that ranks of the pipeline wait in units of their own work, is at most S, the work of a product
 * in units of BP's; otherwise chunked.
 *
 * Where a sample begins anew in front of a rank's first step, the rank does not read the state that comes from the rank before, and
 * the gradient that it sends there is exactly 0. Its product of a scan is 0 for samples that begin anew within its steps, but for
 * what comes from behind the last of these.
 *
 * A speculative forward pass (recurrent/parallel_forward.h) is that of the whole sequence: its plan depends on T, the batch and the
 * device, not on p. States, statistics and pauses have the same bits for every p, and with one group those of a network on one
 * device, as long as the project's own kernels compute the products (on a CPU up to 2^18 weights, on a GPU always). On GPUs the
 * hosts go through the phases, and the kernels of the sequential pass compute the lanes. A lane that comes to the end of a rank's
 * steps is sent on, so inputs are not; no rank waits for another one's states unless a lane goes through all of its steps, or in
 * the tail.
 *
 * A speculative backward pass (recurrent/parallel_backward.h), on CPUs, is that of the whole sequence as well. Gradients of x and
 * h0, statistics and states have the bits of a network on one device under the same conditions, also where the pass is BP in the
 * end.
 * Weight gradients have the same bits for every p, because they are summed in blocks of steps that do not depend on p; a network on
 * one device sums them in another order.
 */
#ifndef BPPSA_DISTRIBUTED_TIME_SPLIT_TIME_H
#define BPPSA_DISTRIBUTED_TIME_SPLIT_TIME_H

#include "comm/comm.h"
#include "distributed/time/scan_ranks.h"
#include "recurrent/recurrent.h"
#include "train/loss.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BPPSA_SPLIT_TIME_TAGS = 4 }; /* tags that a network uses, from the first one given */

typedef struct {
  bppsa_comm *comm;      /* of the ranks that share the sequence; borrowed */
  int32_t tag;           /* the first tag of its messages; nothing else may use them while the model exists */
  int64_t micro_batches; /* groups of samples, 1 .. batch */
} bppsa_split_time;

/* Makes this rank's part of a network; collective. config: of the whole network, seq_len = T, equal on all ranks, without a
 * factory. The parameters start at 0 and must be set alike on all ranks. ERR_ARGUMENT: configurations that differ between the
 * ranks (the same error on every rank), micro_batches or tag out of range, another GPU than the communicator's, and those of
 * bppsa_recurrent_create.
 * ERR_SHAPE, ERR_MEMORY, ERR_CUDA, ERR_COMM. */
bppsa_status bppsa_split_time_create(const bppsa_split_time *split, const bppsa_recurrent_config *config, const bppsa_cell *cell,
                                     const bppsa_device *device, bppsa_model **model);

/* Initialises the parameters as bppsa_recurrent_init does, alike on all ranks. ERR_MEMORY. */
bppsa_status bppsa_split_time_init(bppsa_model *model, bppsa_init init, uint64_t seed);

/* A scan over ranks has the ranks as its chunks, and all levels of a tree above them. Sets the method's numbers to these where
 * numbers were asked for. Numbers that were left open stay open; so does a scan that a GPU runs by a layer's own kernels. */
void bppsa_split_time_numbers(int64_t ranks, bool gpu, int64_t hidden, bppsa_gradient_method *method);

/* The method by which its ranks compute gradients, with AUTO resolved, and with the numbers of bppsa_split_time_numbers. */
bppsa_gradient_method bppsa_split_time_method(const bppsa_model *model);

/* Turns the loss of every rank's own rows into the loss of all ranks' rows, on every rank: sums counted rows and correct ones, and
 * averages the losses over the rows, in the order of the ranks; scales this rank's seed to the new mean. A rank without rows gives
 * rows = 0. Collective; one allgather. ERR_ARGUMENT: a seed that is not f32 or f64, contiguous, in host memory; ERR_COMM,
 * ERR_MEMORY. */
bppsa_status bppsa_ranks_loss(bppsa_comm *comm, const bppsa_view *seed, bppsa_loss_result *result);

#ifdef __cplusplus
}
#endif
#endif
