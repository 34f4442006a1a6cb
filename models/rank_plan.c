#include "models/rank_plan.h"

#include <inttypes.h>

#include "core/cut.h"
#include "distributed/data_parallel.h"
#include "distributed/scan.h"

enum { ROWS = 64 }; /* ranks that are shown */

static bppsa_data_parallel_config parallel(const bppsa_rank_plan *plan) {
  bppsa_data_parallel_config config = bppsa_data_parallel_config_default();
  config.batch = plan->config.batch;
  return config;
}

/* The samples of a block: along time a rank's share of the batch is one. */
static int64_t block(const bppsa_rank_plan *plan) {
  const bppsa_data_parallel_config config = parallel(plan);
  return plan->split.time > 1 ? (config.batch - 1) / plan->split.batch + 1
                              : bppsa_data_parallel_block(&config, (int32_t)plan->split.batch);
}

bppsa_rank_share bppsa_rank_plan_share(const bppsa_rank_plan *plan, int64_t rank) {
  const int64_t size = block(plan), batch = plan->config.batch, blocks = (batch - 1) / size + 1, among = rank / plan->split.time;
  const int64_t first = bppsa_cut(blocks, plan->split.batch, among) * size;
  const int64_t end = bppsa_cut(blocks, plan->split.batch, among + 1) * size;
  bppsa_rank_share share = {.first_sample = first < batch ? first : batch};
  share.samples = (end < batch ? end : batch) - share.first_sample;
  bppsa_ranks_share(plan->config.seq_len, (int32_t)plan->split.time, (int32_t)(rank % plan->split.time), &share.first_step,
                    &share.steps);
  return share;
}

/* ceil(log2(n / d)), and 0 below d */
static int64_t log2_up(int64_t n, int64_t d) {
  int64_t levels = 0;
  while ((d << levels) < n) {
    ++levels;
  }
  return levels;
}

bppsa_rank_traffic bppsa_rank_plan_traffic(const bppsa_rank_plan *plan) {
  const bppsa_recurrent_config *c = &plan->config;
  const int64_t steps = c->seq_len, p = plan->split.time < steps ? plan->split.time : steps, levels = log2_up(p, 1);
  const int64_t real = (int64_t)bppsa_dtype_size(c->dtype), affine = c->loss_all ? 1 : 0;
  const bool tree = plan->algorithm == BPPSA_SCAN_BLELLOCH;
  bppsa_rank_traffic t = {.messages = plan->split.batch * (tree ? 2 * (p - 1) - levels : p - 1),
                          .rounds = tree ? levels + log2_up(p, 3) : p - 1};
  for (int64_t among = 0; among < plan->split.batch; ++among) {
    const int64_t b = bppsa_rank_plan_share(plan, among * plan->split.time).samples, vector = b * c->hidden * real;
    const int64_t product = b * (c->hidden + affine) * (c->hidden * real + 4);
    t.bytes += tree ? levels * vector + (p - 1 - levels) * (product + vector + real) : (p - 1) * vector;
  }
  return t;
}

json_t *bppsa_rank_plan_json(const bppsa_rank_plan *plan) {
  const int64_t ranks = plan->split.time * plan->split.batch;
  const bppsa_rank_traffic traffic = bppsa_rank_plan_traffic(plan);
  char split[BPPSA_RANK_SPLIT_TEXT];
  json_t *object = json_object(), *shares = json_array();
  bool ok = object != NULL && shares != NULL;
  for (int64_t r = 0; ok && r < ranks; ++r) {
    const bppsa_rank_share s = bppsa_rank_plan_share(plan, r);
    json_t *share = json_object();
    const bool filled =
        share != NULL && bppsa_json_put_integer(share, "rank", r) &&
        bppsa_json_put_integer(share, "first_sample", s.first_sample) && bppsa_json_put_integer(share, "samples", s.samples) &&
        bppsa_json_put_integer(share, "first_step", s.first_step + 1) && bppsa_json_put_integer(share, "steps", s.steps);
    ok = json_array_append_new(shares, bppsa_json_finish(share, filled)) == 0;
  }
  ok = bppsa_json_put(object, "shares", bppsa_json_finish(shares, ok));
  ok = ok && bppsa_json_put_integer(object, "ranks", ranks);
  ok = ok && bppsa_json_put_text(object, "split", bppsa_rank_split_text(&plan->split, split, sizeof split));
  ok = ok && bppsa_json_put_integer(object, "scan_messages", traffic.messages);
  ok = ok && bppsa_json_put_integer(object, "scan_rounds", traffic.rounds);
  ok = ok && bppsa_json_put_integer(object, "scan_bytes", traffic.bytes);
  return bppsa_json_finish(object, ok);
}

void bppsa_rank_plan_text(const bppsa_rank_plan *plan, bppsa_text *text) {
  const int64_t ranks = plan->split.time * plan->split.batch;
  const bppsa_rank_traffic traffic = bppsa_rank_plan_traffic(plan);
  char split[BPPSA_RANK_SPLIT_TEXT], bytes[BPPSA_SI_TEXT];
  bppsa_text_add(text, "\nRanks: %" PRId64 ", split %s\n\n  rank  samples                 steps\n", ranks,
                 bppsa_rank_split_text(&plan->split, split, sizeof split));
  for (int64_t r = 0; r < ranks && r < ROWS; ++r) {
    const bppsa_rank_share s = bppsa_rank_plan_share(plan, r);
    char samples[64];
    snprintf(samples, sizeof samples, "%" PRId64 ", from %" PRId64, s.samples, s.first_sample);
    bppsa_text_add(text, "  %4" PRId64 "  %-22s  %" PRId64, r, samples, s.steps);
    bppsa_text_add(text, s.steps > 0 ? ", from %" PRId64 " to %" PRId64 "\n" : "\n", s.first_step + 1, s.first_step + s.steps);
  }
  if (ranks > ROWS) {
    bppsa_text_add(text, "  ...   and so on\n");
  }
  if (plan->split.time > 1) {
    bppsa_text_add(text,
                   "\n  scan of a layer    %s: %" PRId64 " messages in %" PRId64 " rounds, %s, unless a product is useless\n",
                   bppsa_scan_algorithm_name(plan->algorithm), traffic.messages, traffic.rounds,
                   bppsa_text_si((double)traffic.bytes, "B", bytes, sizeof bytes));
  }
}
