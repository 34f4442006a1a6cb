/* Projects from measurements of ranks that share a model (oracle/share.h). */
#include <string.h>

#include "oracle/strategies.h"

/* Finds the measurements of this many parts. With one part every strategy computes the whole model. */
static const bppsa_oracle_share *find(const bppsa_oracle_model *model, const char *strategy, double ways, double ranks) {
  const char *name = ways > 1 ? strategy : "data";
  for (int64_t i = 0; i < model->share_count; ++i) {
    const bppsa_oracle_share *share = &model->shares[i];
    if (share->ways == ways && share->ranks == ranks && strcmp(share->strategy, name) == 0) {
      return share;
    }
  }
  return NULL;
}

/* Multiplies both ends by `count`. */
static bppsa_oracle_spread times(double count, bppsa_oracle_spread spread) {
  return (bppsa_oracle_spread){count * spread.low, count * spread.high};
}

bool bppsa_oracle_by_share(const bppsa_oracle_query *q, const char *strategy, int64_t ways, int64_t groups,
                           bppsa_oracle_row *row) {
  const int64_t p = row->processors;
  const bppsa_oracle_share *share = find(q->model, strategy, (double)ways, (double)p);
  if (share == NULL) {
    return false;
  }
  const double samples = (double)q->samples / (double)groups, iterations = (double)q->samples / (double)row->mini_batch;
  const double batch = (double)row->mini_batch / (double)groups;
  row->phase_s[BPPSA_PHASE_FORWARD] = samples * share->forward_s;
  row->phase_s[BPPSA_PHASE_BACKWARD] = samples * share->backward_s;
  row->phase_s[BPPSA_PHASE_UPDATE] = iterations * share->update_s;
  row->phase_spread_s[BPPSA_PHASE_FORWARD] = times(samples, share->forward_spread);
  row->phase_spread_s[BPPSA_PHASE_BACKWARD] = times(samples, share->backward_spread);
  row->phase_spread_s[BPPSA_PHASE_UPDATE] = times(iterations, share->update_spread);
  row->side_by_side = true;
  if (share->allgathers > 0) {
    row->phase_s[BPPSA_PHASE_COLLECTIVES] +=
        iterations * share->allgathers * bppsa_oracle_allgather_s(q, ways, batch * share->allgather_bytes / share->allgathers);
  }
  if (share->sums > 0) {
    row->phase_s[BPPSA_PHASE_COLLECTIVES] +=
        iterations * share->sums * bppsa_oracle_allreduce_s(q, ways, false, ways, batch * share->sum_bytes / share->sums);
  }
  if (share->messages > 0) {
    row->phase_s[BPPSA_PHASE_HALO] =
        iterations * share->messages * bppsa_oracle_message_s(q, ways, batch * share->message_bytes / share->messages);
  }
  if (share->tile_gradient_bytes > 0) {
    row->phase_s[BPPSA_PHASE_GRADIENT_EXCHANGE] =
        iterations * bppsa_oracle_allreduce_s(q, ways, false, ways, share->tile_gradient_bytes);
  }
  const bool buckets = strcmp(strategy, "data") == 0 && share->exchange_s > 0; /* ranks that share layers add without buckets */
  row->phase_spread_s[BPPSA_PHASE_GRADIENT_EXCHANGE] = times(buckets ? iterations : 0, share->exchange_spread);
  row->phase_s[BPPSA_PHASE_GRADIENT_EXCHANGE] +=
      iterations * (buckets ? share->exchange_s : bppsa_oracle_allreduce_s(q, p, ways > 1, groups, share->weight_gradient_bytes));
  return true;
}
