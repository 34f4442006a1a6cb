/* The strategies that bppsa_oracle_strategy_at lists: each has a pair of functions. */
#ifndef BPPSA_ORACLE_STRATEGIES_H
#define BPPSA_ORACLE_STRATEGIES_H

#include "oracle/layer_cost.h"

#define STRATEGY(name)                                                                                                           \
  int64_t bppsa_oracle_##name##_limit(const bppsa_oracle_query *q, bppsa_oracle_row *row);                                       \
  bppsa_status bppsa_oracle_##name(const bppsa_oracle_query *q, bppsa_oracle_row *row)

/* strategies.c */
STRATEGY(serial);
STRATEGY(data);
STRATEGY(filter);
STRATEGY(channel);
STRATEGY(data_filter);
/* spatial.c */
STRATEGY(spatial);
STRATEGY(data_spatial);
/* stages.c */
STRATEGY(pipeline);
STRATEGY(scheme); /* a scheme of schedule/, simulated */
/* time_split.c */
STRATEGY(time_bp);
STRATEGY(time_chunked);
STRATEGY(time_blelloch);
#undef STRATEGY

/* Strategies set phase_spread_s only where they know both ends of a phase better than the factors of the model's layers and of
 * the system's operations tell. */

/* Adds the time of computing whole layers: `share` of the samples' forward and backward passes, `update_share` of the updates. */
void bppsa_oracle_compute(const bppsa_oracle_query *q, bppsa_oracle_row *row, double share, double update_share);
/* Fills in all phases from measurements of ranks that share the model in `ways` parts, with `groups` such groups side by side.
 * Computing takes the measured time; operations take what their counts and the system's links give. false: there are no
 * measurements for these numbers. */
bool bppsa_oracle_by_share(const bppsa_oracle_query *q, const char *strategy, int64_t ways, int64_t groups,
                           bppsa_oracle_row *row);
/* Returns the bytes of all layers: gamma delta times the sum of their elements. */
double bppsa_oracle_memory(const bppsa_oracle_query *q, double batch, double activations, double weights);
/* Returns the sum of |w| over all layers, in bytes. */
double bppsa_oracle_weight_bytes(const bppsa_oracle_query *q);
/* Returns the smallest divisor of n above d, or n + 1. Walking over all divisors of n takes about 2 sqrt(n) divisions. */
int64_t bppsa_oracle_next_divisor(int64_t n, int64_t d);

#define BPPSA_ORACLE_NO_GRID "no grid of %" PRId64 " parts fits into every image"

/* groups.c: hybrid strategies cut p processors into p1 groups of p2, and cut the mini-batch between the groups. */

/* Returns the most processors that can be used: groups have the query's size, or up to `most` processors, and every group needs a
 * sample. On entry `reason` says what limits `most`. */
int64_t bppsa_oracle_hybrid_limit(const bppsa_oracle_query *q, int64_t most, char reason[160]);
/* Sets the row's groups, and returns p2. It is the group that the query asks for; otherwise the largest divisor of p up to a node
 * (the innermost level), or, if the mini-batch has too few samples for so many groups, the smallest divisor above that. `fits`
 * tells whether the model can be cut in p2 parts; NULL: it can in up to `most`. 0: p has no such groups; the row then says why. */
int64_t bppsa_oracle_cut_groups(const bppsa_oracle_query *q, int64_t most, bool (*fits)(const bppsa_oracle_model *, int64_t),
                                bppsa_oracle_row *row);

#endif
