/* The strategies that bppsa_oracle_strategy_at lists, one pair of functions each. */
#ifndef BPPSA_ORACLE_STRATEGIES_H
#define BPPSA_ORACLE_STRATEGIES_H

#include "oracle/layer_cost.h"

#define STRATEGY(name)                                                                                                           \
  int64_t bppsa_oracle_##name##_limit(const bppsa_oracle_query *q, int64_t p, char reason[160]);                                 \
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
int64_t bppsa_oracle_simulated_limit(const bppsa_oracle_query *q, int64_t p, char reason[160]);
int64_t bppsa_oracle_even_limit(const bppsa_oracle_query *q, int64_t p, char reason[160]);
bppsa_status bppsa_oracle_simulated(const bppsa_oracle_query *q, bppsa_oracle_row *row);
/* time_split.c */
STRATEGY(time_bp);
STRATEGY(time_chunked);
STRATEGY(time_blelloch);
#undef STRATEGY

/* Compute of whole layers: `share` of the samples' forward and backward passes, `update_share` of the updates. */
void bppsa_oracle_compute(const bppsa_oracle_query *q, bppsa_oracle_row *row, double share, double update_share);
/* Fills in all phases by what was measured of ranks that share the model in `ways` parts, `groups` groups of them beside each
 * other: computing as it is, operations by their counts and the system's links. false: nothing was measured for these numbers. */
bool bppsa_oracle_by_share(const bppsa_oracle_query *q, const char *strategy, int64_t ways, int64_t groups,
                           bppsa_oracle_row *row);
/* gamma delta times the sum of all layers' elements. */
double bppsa_oracle_memory(const bppsa_oracle_query *q, double batch, double activations, double weights);
/* Sum of |w| over all layers, in bytes. */
double bppsa_oracle_weight_bytes(const bppsa_oracle_query *q);
/* The limit of data parallelism between groups of `group` processors: a sample for each group, and no mini-batch beyond the data
 * set. */
int64_t bppsa_oracle_samples_limit(const bppsa_oracle_query *q, int64_t p, int64_t group, char reason[160]);
/* The smallest divisor of n above d; n + 1 where there is none. All divisors of n take about 2 sqrt(n) divisions. */
int64_t bppsa_oracle_next_divisor(int64_t n, int64_t d);
/* p2 of a hybrid strategy: the largest divisor of p up to the group. */
int64_t bppsa_oracle_group(const bppsa_oracle_query *q, int64_t p);

#endif
