/* How ranks share an iteration of a recurrent network, as `bppsa plan --ranks` shows it: who holds what, and what they send. */
#ifndef BPPSA_RUNS_RANK_PLAN_H
#define BPPSA_RUNS_RANK_PLAN_H

#include "core/base/text.h"
#include "core/files/json.h"
#include "distributed/job.h"
#include "recurrent/recurrent.h"

typedef struct {
  bppsa_recurrent_config config; /* the whole network; its batch is shared by all ranks */
  bppsa_scan_algorithm algorithm;
  bppsa_rank_split split;
} bppsa_rank_plan;

/* Makes the document: every rank's share; the numbers of messages in a layer's scan over the ranks along time (docs/time-ranks.md);
 * and the messages of the first group of ranks one by one, in rounds; other groups have the same. NULL when out of memory. */
json_t *bppsa_rank_plan_json(const bppsa_rank_plan *plan);
/* Writes the same for people; long lists are cut. */
void bppsa_rank_plan_text(const bppsa_rank_plan *plan, bppsa_text *text);

#endif
