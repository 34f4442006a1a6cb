/* How hybrid strategies cut processors into groups. */
#include <inttypes.h>
#include <stdio.h>

#include "oracle/strategies.h"

int64_t bppsa_oracle_hybrid_limit(const bppsa_oracle_query *q, int64_t most, char reason[160]) {
  const int64_t group = q->group > 0 ? q->group : most;
  if (group > most) {
    char what[160];
    snprintf(what, sizeof what, "groups of %" PRId64 ", but %.110s", group, reason);
    snprintf(reason, 160, "%s", what);
    return 0;
  }
  if (most == 0 || !q->strong) {
    return most == 0 ? 0 : INT64_MAX; /* weak scaling gives every processor a sample */
  }
  snprintf(reason, 160, "the mini-batch of %" PRId64 " has fewer samples than there are groups of %" PRId64, q->batch, group);
  return q->batch > INT64_MAX / group ? INT64_MAX : q->batch * group;
}

/* Can p processors work in groups of p2? */
static bool suits(const bppsa_oracle_query *q, int64_t p2, bool (*fits)(const bppsa_oracle_model *, int64_t),
                  const bppsa_oracle_row *row) {
  return row->processors / p2 <= row->mini_batch && (fits == NULL || fits(q->model, p2));
}

int64_t bppsa_oracle_cut_groups(const bppsa_oracle_query *q, int64_t most, bool (*fits)(const bppsa_oracle_model *, int64_t),
                                bppsa_oracle_row *row) {
  const int64_t p = row->processors, node = q->system->levels[0].processors;
  int64_t group = 0;
  if (q->group > 0) {
    group = p % q->group == 0 && suits(q, q->group, fits, row) ? q->group : 0;
  } else {
    for (int64_t p2 = 1; p2 <= most && p2 <= p && (p2 <= node || group == 0); p2 = bppsa_oracle_next_divisor(p, p2)) {
      group = suits(q, p2, fits, row) ? p2 : group;
    }
  }
  row->feasible = group > 0;
  row->groups = group > 0 ? p / group : 1;
  if (group == 0 && q->group > 0 && p % q->group == 0) { /* the group is right, so the images do not fit */
    snprintf(row->reason, sizeof row->reason, BPPSA_ORACLE_NO_GRID, q->group);
  } else if (group == 0 && q->group > 0) {
    snprintf(row->reason, sizeof row->reason, "%" PRId64 " processor%s not cut into groups of %" PRId64, p,
             p == 1 ? " is" : "s are", q->group);
  } else if (group == 0) {
    snprintf(row->reason, sizeof row->reason, "%" PRId64 " processors are not cut into %" PRId64 " groups of up to %" PRId64, p,
             row->mini_batch < p ? row->mini_batch : p, most);
  }
  return group;
}
