/* How ranks share an iteration of a recurrent network, as `bppsa plan --ranks` shows it: who holds what, and what they send. */
#ifndef BPPSA_MODELS_RANK_PLAN_H
#define BPPSA_MODELS_RANK_PLAN_H

#include "core/json.h"
#include "core/text.h"
#include "distributed/job.h"
#include "recurrent/recurrent.h"

/* A rank's share of a batch: samples first_sample .. + samples - 1, steps first_step + 1 .. + steps. */
typedef struct {
  int64_t first_sample, samples, first_step, steps;
} bppsa_rank_share;

/* Messages of a layer's backward scan over the ranks along time, of all groups of ranks together (docs/ranks.md). */
typedef struct {
  int64_t messages, rounds, bytes;
} bppsa_rank_traffic;

typedef struct {
  bppsa_recurrent_config config; /* of the whole network; its batch is that of all ranks */
  bppsa_scan_algorithm algorithm;
  bppsa_rank_split split;
} bppsa_rank_plan;

bppsa_rank_share bppsa_rank_plan_share(const bppsa_rank_plan *plan, int64_t rank);
bppsa_rank_traffic bppsa_rank_plan_traffic(const bppsa_rank_plan *plan);

/* NULL when out of memory. */
json_t *bppsa_rank_plan_json(const bppsa_rank_plan *plan);
void bppsa_rank_plan_text(const bppsa_rank_plan *plan, bppsa_text *text);

#endif
