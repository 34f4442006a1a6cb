/* A schedule that trains: what joins the executor (distributed/pipeline/pipeline.h) to the training loop (train/trainer.h).
 *
 * A step of the loop is an iteration of the schedule. Its batch is cut into micro-batches of equal size, in the order of the
 * samples: an update's micro-batches are neighbours. The stages update their weights themselves, as the list says, and the loop
 * gets whole weights back where it validates, saves or ends.
 *
 * The list may have several iterations. Then all of its steps are computed when the loop asks for the first of them, because a
 * scheme without a flush begins an iteration before the one in front of it is over; only behind the last of them the pipeline is
 * empty, and weights can be looked at.
 */
#ifndef BPPSA_DISTRIBUTED_PIPELINE_PIPELINE_TRAIN_H
#define BPPSA_DISTRIBUTED_PIPELINE_PIPELINE_TRAIN_H

#include "distributed/pipeline/pipeline.h"
#include "train/trainer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bppsa_pipeline_train bppsa_pipeline_train; /* a rank's part of a pipeline that trains */

/* Makes this rank's part; collective. config: its schedule's iterations are the steps between two flushes; a batch of the loop has
 * config->samples for each micro-batch of an iteration. model: of the same parameters as the chain, planned for config->samples
 * or, with halving, half of them; its weights are those that the loop begins with. All are borrowed. The caller destroys the
 * object, before the others. ERR_* of bppsa_pipeline_create. */
bppsa_status bppsa_pipeline_train_create(bppsa_comm *comm, bppsa_chain *chain, bppsa_model *model,
                                         const bppsa_pipeline_config *config, bppsa_pipeline_train **made);
void bppsa_pipeline_train_destroy(bppsa_pipeline_train *train); /* NULL is legal */

/* What the training loop drives (bppsa_train_config.ranks); borrowed. */
const bppsa_train_ranks *bppsa_pipeline_train_ranks(const bppsa_pipeline_train *train);
/* The executor; borrowed. */
const bppsa_pipeline *bppsa_pipeline_train_executor(const bppsa_pipeline_train *train);

/* Micro-batches of an iteration of all copies together. */
int64_t bppsa_pipeline_train_micros(const bppsa_schedule *schedule);

#ifdef __cplusplus
}
#endif
#endif
