/* The executor of schedules: ranks that train a chain of layers as a list of operations says (schedule/schedule.h), the same list
 * that is validated, simulated and drawn.
 *
 * A rank does the work of the workers w with w % ranks = rank. Every lane of a worker runs its operations in the list's order, each
 * as soon as what it reads is there; on a GPU a lane is a stream, and events order them. F, I, W, B and RECOMPUTE are passes of the
 * chain, SEND and RECV messages, SYNC a sum over the replicas of a layer, STEP an update by the optimiser. STASH and PREDICT need
 * nothing by themselves: an operation names the version of the weights that it sees (weight_version), and gets it. An older version
 * than the present one is a copy that was kept because the list needs it (PipeDream, PipeDream-2BW); a newer one is predicted
 * (SpecTrain, equation 4):
 *
 *     Ŵ = W - s η v          s: updates that are missing; v: the momentum buffer of SGD
 *     Ŵ = W - s η m̂ / (√v̂ + ε)                              of Adam and AdamW
 *
 * An update's gradient is the sum over its micro-batches along a fixed binary tree over their numbers (comm/ordered.h), whichever
 * rank computed them. So all synchronous schemes with equal micro-batches give the same bits, on any number of ranks.
 *
 * With backward halving (Chimera, section 3.5) every micro-batch consists of two halves of its samples. A forward pass takes both,
 * one after the other, a backward pass one of them; each half is a term of its own in the sum. So N micro-batches with halving have
 * the bits of 2N micro-batches of half the size.
 *
 * Every message carries its kind, layer, micro-batch and iteration, and the version of the weights that made it, and the receiver
 * compares them with the list. The weights count the updates that they have seen: what a pass is handed, what a STEP finds and what
 * it makes must have as many as the list says, otherwise the run ends.
 */
#ifndef BPPSA_DISTRIBUTED_PIPELINE_PIPELINE_H
#define BPPSA_DISTRIBUTED_PIPELINE_PIPELINE_H

#include "comm/comm.h"
#include "core/compute/chain.h"
#include "schedule/schedule.h"
#include "train/loss.h"
#include "train/optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  const bppsa_schedule *schedule; /* borrowed; its layers are the chain's */
  int64_t samples;                /* of a micro-batch, 1 .. the chain's batch; with halving an even number, at most twice that */
  bppsa_optimizer_config optimizer;
  int32_t tag;     /* the first of its messages' tags, of which it uses L + 2 m²; m: workers on a rank */
  bool unrecorded; /* queues every pass by itself; otherwise, on one GPU alone, work that comes again is recorded as graphs */
} bppsa_pipeline_config;

typedef struct bppsa_pipeline bppsa_pipeline; /* a rank's part of a pipeline */

/* Makes this rank's part; collective. comm and chain are borrowed. Where the chain is on a GPU, comm has the same device
 * (bppsa_comm_set_device; over NCCL the communicator that it was made from), and arrays of micro-batches, weights, their versions,
 * sums of gradients and the optimiser's state are in its memory. values: of all the chain's parameters, in host memory, copied,
 * equal on all ranks. The caller destroys it. ERR_ARGUMENT: a list that breaks a rule (the message names it), layers or samples
 * that are not the chain's. ERR_UNSUPPORTED: a list for scans, a window that ends behind forward passes, updates that add up
 * different micro-batches. ERR_MEMORY, ERR_COMM, ERR_CUDA. */
bppsa_status bppsa_pipeline_create(bppsa_comm *comm, bppsa_chain *chain, const bppsa_pipeline_config *config,
                                   const bppsa_view *values, bppsa_pipeline **pipeline);
void bppsa_pipeline_destroy(bppsa_pipeline *pipeline); /* NULL is legal */

/* The equal parts that a backward pass takes of a micro-batch one after the other: 2 with halving, otherwise 1. */
int64_t bppsa_pipeline_parts(const bppsa_schedule *schedule);

/* A micro-batch, with halving a half of one, as the data callbacks see it: number `block` of the `blocks` that the update adds up.
 * Updates count from 0 over all runs. */
typedef struct {
  int64_t update, block, blocks;
} bppsa_pipeline_micro;

typedef struct {
  void *context;
  /* Writes the micro-batch's input, [samples / parts][in of the first layer]. */
  bppsa_status (*input)(void *context, const bppsa_pipeline_micro *micro, const bppsa_view *x);
  /* Writes the gradient of the loss with respect to the logits, and the micro-batch's share of the loss; both such that the sum
   * over the update's micro-batches is the update's. */
  bppsa_status (*loss)(void *context, const bppsa_pipeline_micro *micro, const bppsa_view *logits, const bppsa_view *seed,
                       double *loss);
  /* On a GPU whose passes are only queued, instead of `loss`, the executor computes the cross-entropy itself, without the host:
   * `labels` writes the labels of the micro-batch's rows, of which the logits have `classes` each, in the logits' order; later on
   * `judged` is told the micro-batch's share of the loss (loss.h's bppsa_loss_part). NULL: it calls `loss`. */
  int64_t classes;
  bppsa_status (*labels)(void *context, const bppsa_pipeline_micro *micro, int64_t *labels);
  void (*judged)(void *context, const bppsa_pipeline_micro *micro, const bppsa_loss_result *result);
  double (*rate)(void *context, int64_t update); /* the learning rate of an update; NULL: the configuration's */
} bppsa_pipeline_data;

/* Updates of each stage in one run of the list. */
int64_t bppsa_pipeline_updates(const bppsa_pipeline *pipeline);

/* Executes the list once. losses, size bppsa_pipeline_updates: the loss of every update, the same on every rank. The next run goes
 * on from the weights of this one. Collective. After a failure the object can only be destroyed. Errors of the callbacks; ERR_COMM:
 * a message that is not the list's, an operation that waits for longer than the communicator's timeout; ERR_MEMORY. */
bppsa_status bppsa_pipeline_run(bppsa_pipeline *pipeline, const bppsa_pipeline_data *data, double *losses);

/* Copies the present weights of replica 0 to `values` on every rank: a view in host memory for each parameter of the chain. state:
 * that of an optimiser over all of these parameters, configured as the pipeline's, likewise; NULL: not wanted. Collective.
 * ERR_SHAPE: another shape or dtype, a state of other tensors; ERR_COMM, ERR_CUDA. */
bppsa_status bppsa_pipeline_collect(bppsa_pipeline *pipeline, const bppsa_view *values, bppsa_optimizer_state *state);
/* The other way: the next run goes on from these weights and this state (NULL: the present one), equal on all ranks. ERR_SHAPE. */
bppsa_status bppsa_pipeline_place(bppsa_pipeline *pipeline, const bppsa_view *values, const bppsa_optimizer_state *state);

/* ---- what happened ---- */

/* Of one operation in the latest run. */
typedef struct {
  double start, end; /* seconds since the run began on this rank; on a GPU its work may end later; NaN: another rank's */
  int64_t version;   /* updates that its weights have seen since creation, of a STEP with its own one; -1: no weights */
  int64_t ahead;     /* of these, predicted ones */
} bppsa_pipeline_event;

/* The 2-norm of the gradients of each update in the latest run, the same on every rank; size bppsa_pipeline_updates. */
const double *bppsa_pipeline_norms(const bppsa_pipeline *pipeline);
/* When the latest run began on this rank, in seconds of the monotonic clock; 0 before the first one. */
double bppsa_pipeline_began(const bppsa_pipeline *pipeline);
/* Size: the schedule's operations. Borrowed, until the next run. */
const bppsa_pipeline_event *bppsa_pipeline_events(const bppsa_pipeline *pipeline);
/* The times of the latest run's operations, size of the list. On each rank `times` writes those of its own operations, by the
 * monotonic clock, and 0 for the others, so that a sum over ranks of one node has all. From such sums `settle_times` makes times
 * since `origin`, none below 0: a SEND and its RECV begin together, as the simulator has it, when both have begun. */
void bppsa_pipeline_times(const bppsa_pipeline *pipeline, double *start, double *end);
void bppsa_pipeline_settle_times(const bppsa_schedule *schedule, double origin, double *start, double *end);
/* The most bytes of activations that a worker of this rank has held at once, without its inputs; 0 for other workers. */
int64_t bppsa_pipeline_peak_activations(const bppsa_pipeline *pipeline, int64_t worker);
/* The most versions of a layer's weights that a worker of this rank has held at once: the present one and kept older ones, no
 * predicted ones; 0 for other workers. */
int64_t bppsa_pipeline_peak_versions(const bppsa_pipeline *pipeline, int64_t worker);

/* Where one GPU does the whole list: how many graphs have been recorded, and how often graphs were launched. Both 0 elsewhere. */
void bppsa_pipeline_recordings(const bppsa_pipeline *pipeline, int64_t *made, int64_t *launches);

#ifdef __cplusplus
}
#endif
#endif
