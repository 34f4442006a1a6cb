/* Ranks that hold parts of the weights and update them themselves, as the training loop sees them (train/ranks.h): what stages of a
 * pipeline and shares of layers have in common. Internal. */
#ifndef BPPSA_DISTRIBUTED_PART_RANKS_H
#define BPPSA_DISTRIBUTED_PART_RANKS_H

#include "comm/comm.h"
#include "train/ranks.h"

/* The first member of an object that makes such ranks; `context` below is that object. */
typedef struct {
  bppsa_train_ranks table; /* what the loop drives */
  bppsa_comm *comm;        /* of all ranks, borrowed */
  char words[64];          /* say where a number is not finite: "in schedule 1f1b" */
  const bppsa_train_lead *lead;
  bool whole; /* the model has the present weights */
  /* `place` takes over the model's weights and the state of the loop's optimiser; `collect` writes the present ones back. Both are
   * collective. */
  bppsa_status (*place)(void *context);
  bppsa_status (*collect)(void *context);
} part_ranks;

/* Fills the table: the caller sets `updates`, forward_backward, place, collect, the words, and what else differs. capacity: samples
 * that the model takes at once. */
void bppsa_part_ranks_init(part_ranks *ranks, bppsa_comm *comm, int64_t capacity);

#endif
