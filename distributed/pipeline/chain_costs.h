/* What the calls of a chain of layers cost on this machine, measured as the executor of schedules makes them, and what a message
 * between two ranks and a sum over several cost: the costs with which schedule/ predicts what the executor
 * (distributed/pipeline/pipeline.h) then does.
 *
 * A layer's forward pass (F), input gradient (I), weight gradient (W), both at once (B) and update (STEP) are the operations of two
 * lists that the executor runs on one rank, with a stage for each layer. Their times are medians over the runs, of a mean over the
 * run's micro-batches or updates. F of the first layer contains the loading of the input, F of the last one the loss.
 */
#ifndef BPPSA_DISTRIBUTED_PIPELINE_CHAIN_COSTS_H
#define BPPSA_DISTRIBUTED_PIPELINE_CHAIN_COSTS_H

#include "distributed/pipeline/pipeline.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- data that nobody has to load ---- */

typedef struct bppsa_chain_noise bppsa_chain_noise;

/* Inputs of variance 1, and the loss (y - t)² / 2, mean over all logits y of an update, to targets t of variance 1, for
 * micro-batches of so many samples; others are refused with ERR_SHAPE. A micro-batch's numbers depend on the seed, its update and
 * its block alone. The caller destroys it; the chain is read while it is made. ERR_ARGUMENT: samples below 1; ERR_MEMORY. */
bppsa_status bppsa_chain_noise_create(const bppsa_chain *chain, int64_t samples, uint64_t seed, bppsa_chain_noise **noise);
void bppsa_chain_noise_destroy(bppsa_chain_noise *noise); /* NULL is legal */
/* What bppsa_pipeline_run takes; borrowed. */
const bppsa_pipeline_data *bppsa_chain_noise_data(const bppsa_chain_noise *noise);

/* ---- costs ---- */

typedef struct {
  int64_t layers;  /* L */
  int64_t samples; /* of a micro-batch */
  /* Seconds and bytes for a micro-batch, size L each: forward, input_grad, weight_grad, backward, step; activation, message,
   * gradient. The others are NULL. */
  const double *cost[BPPSA_COST_COUNT];
  /* The seconds between which each measured median lies (bppsa_spread); NULL for costs that are not measured. */
  const double *low[BPPSA_COST_COUNT], *high[BPPSA_COST_COUNT];
  double alpha, beta; /* seconds of a message, and of a byte; 0: there is one rank */
  double *memory;     /* owned: of all arrays */
} bppsa_chain_costs;

void bppsa_chain_costs_free(bppsa_chain_costs *costs); /* NULL and a zeroed one are legal */
/* Makes a configuration borrow the costs: of L layers, in seconds and bytes. */
void bppsa_chain_costs_set(const bppsa_chain_costs *costs, bppsa_schedule_config *config);
/* Bytes of the message behind a layer for a micro-batch of so many samples, and of the gradients of a layer's parameters. */
double bppsa_chain_message(const bppsa_chain *chain, int64_t samples, int64_t layer);
double bppsa_chain_gradient(const bppsa_chain *chain, int64_t layer);
typedef struct {
  int64_t samples; /* of a micro-batch, 1 .. the chain's batch */
  bppsa_optimizer_config optimizer;
  const bppsa_view *values;        /* of all the chain's parameters */
  const bppsa_pipeline_data *data; /* NULL: noise */
  int64_t micro_batches;           /* one after the other, between two updates; 0: one */
  int64_t updates;                 /* of a run; 0: one */
  int64_t at_once;                 /* ranks that measure side by side, as they compute later; the others wait. 1 or more */
  int64_t repeats; /* runs of each list, after one that is not counted; 0: as many as fit into the budget, 3 .. 101 */
  double budget_s; /* of each list */
} bppsa_chain_measuring;

/* The two lists, ready to run again and again between other work, so that costs are measured at the same time as what they
 * predict. how: repeats and budget_s are not read, values and data are borrowed; collective. ERR_* of bppsa_pipeline_create. */
typedef struct bppsa_chain_probe bppsa_chain_probe;
bppsa_status bppsa_chain_probe_create(bppsa_comm *comm, bppsa_chain *chain, const bppsa_chain_measuring *how,
                                      bppsa_chain_probe **probe);
void bppsa_chain_probe_destroy(bppsa_chain_probe *probe); /* NULL is legal */
/* Runs each list once, on ranks that measure. ERR_* of bppsa_pipeline_run. */
bppsa_status bppsa_chain_probe_run(bppsa_chain_probe *probe);
/* Forgets the runs so far. */
void bppsa_chain_probe_forget(bppsa_chain_probe *probe);
/* Writes the times of this rank's latest runs, at most 512, to `costs`, which are of the same layers. Without a run they stay. */
void bppsa_chain_probe_times(const bppsa_chain_probe *probe, bppsa_chain_costs *costs);

/* Measures on the ranks of comm; collective. All ranks get rank 0's numbers; free them with bppsa_chain_costs_free. ERR_ARGUMENT,
 * ERR_MEMORY, ERR_COMM; ERR_* of bppsa_pipeline_create and _run. */
bppsa_status bppsa_chain_measure(bppsa_comm *comm, bppsa_chain *chain, const bppsa_chain_measuring *how,
                                 bppsa_chain_costs *costs);
/* The same with a probe that exists already, and keeps its runs. */
bppsa_status bppsa_chain_probe_measure(bppsa_comm *comm, bppsa_chain_probe *probe, const bppsa_chain_measuring *how,
                                       bppsa_chain_costs *costs);
/* Sends a view to the other of two ranks, or receives it, as the executor does: asks whether it is done, and sleeps in between.
 * ERR_COMM. */
bppsa_status bppsa_chain_pass_on(bppsa_comm *comm, bool sends, const bppsa_view *view);
/* Measures a message from rank 0 to rank 1, received as the executor receives: it asks for the message and sleeps in between. How
 * long a message then waits depends on when it comes, so that each is sent behind a random delay, which does not count. Half of the
 * median time there and back gives alpha from a short message, and beta from a long one. Collective; all ranks get the numbers, 0
 * on a communicator of one. ERR_MEMORY, ERR_COMM. */
bppsa_status bppsa_chain_measure_link(bppsa_comm *comm, double *alpha, double *beta);
/* Measures SYNC of each layer over the first `ranks` ranks of comm, 1 .. its size, as the executor makes it: the gradients of
 * one micro-batch from each rank are added up along the tree (comm/ordered.h) and sent back to all; between two steps of a sum the
 * executor sleeps. seconds, size L: of the slowest rank, medians; 0 for layers without parameters, and over one rank. The part of a
 * sum that a rank computes while it adds its own micro-batches belongs to W. Collective; all ranks get the numbers. ERR_MEMORY,
 * ERR_COMM. */
bppsa_status bppsa_chain_measure_sync(bppsa_comm *comm, const bppsa_chain *chain, int64_t ranks, double *seconds);
/* Measures all of this, and on rank 0 makes the text of a file of costs (of `--costs`; owned, bppsa_free); on other ranks
 * NULL. It has sums only of two ranks, because sums of more depend on how many of them hold a layer. Collective. ERR_* of the
 * functions above. */
bppsa_status bppsa_chain_measure_file(bppsa_comm *comm, bppsa_chain *chain, const bppsa_chain_measuring *how, char **text);

#ifdef __cplusplus
}
#endif
#endif
