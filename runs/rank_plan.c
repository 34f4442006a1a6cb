#include "runs/rank_plan.h"

#include <inttypes.h>

#include "core/base/alloc.h"
#include "distributed/batch/data_parallel.h"
#include "distributed/time/scan_messages.h"
#include "distributed/time/scan_ranks.h"

enum { ROWS = 64 }; /* most ranks and messages that are shown */

/* A rank's share of a batch: samples first_sample .. + samples - 1, steps first_step + 1 .. + steps. */
typedef struct {
  int64_t first_sample, samples, first_step, steps;
} rank_share;

/* Counts the messages of a layer's backward scan along time, for all groups of ranks together (docs/time-ranks.md). */
typedef struct {
  int64_t messages, rounds, bytes;
} rank_traffic;

static rank_share share_of(const bppsa_rank_plan *plan, int64_t rank) {
  const int64_t batch = plan->config.batch, among = rank / plan->split.time;
  const int32_t shares = (int32_t)plan->split.batch;
  bppsa_data_parallel_config config = bppsa_data_parallel_config_default();
  config.batch = batch;
  /* along time a rank's share of the batch is one block */
  const int64_t block = plan->split.time > 1 ? (batch - 1) / shares + 1 : bppsa_data_parallel_block(&config, shares);
  rank_share share = {.first_sample = bppsa_data_parallel_first(&config, block, shares, among, batch)};
  share.samples = bppsa_data_parallel_first(&config, block, shares, among + 1, batch) - share.first_sample;
  bppsa_ranks_share(plan->config.seq_len, (int32_t)plan->split.time, (int32_t)(rank % plan->split.time), &share.first_step,
                    &share.steps);
  return share;
}

/* Counts the ranks that hold steps. */
static int64_t ranks_along_time(const bppsa_rank_plan *plan) {
  return plan->split.time < plan->config.seq_len ? plan->split.time : plan->config.seq_len;
}

/* Returns ceil(log2(n / d)), and 0 where n < d. */
static int64_t log2_up(int64_t n, int64_t d) {
  int64_t levels = 0;
  while ((d << levels) < n) {
    ++levels;
  }
  return levels;
}

static rank_traffic traffic_of(const bppsa_rank_plan *plan) {
  const bppsa_recurrent_config *c = &plan->config;
  const int64_t p = ranks_along_time(plan), levels = log2_up(p, 1);
  const int64_t real = (int64_t)bppsa_dtype_size(c->dtype), affine = c->loss_all ? 1 : 0;
  const bool tree = plan->algorithm == BPPSA_SCAN_BLELLOCH;
  rank_traffic t = {.messages = plan->split.batch * (tree ? 2 * (p - 1) - levels : p - 1),
                    .rounds = tree ? levels + log2_up(p, 3) : p - 1};
  for (int64_t among = 0; among < plan->split.batch; ++among) {
    const int64_t b = share_of(plan, among * plan->split.time).samples, vector = b * c->hidden * real;
    const int64_t product = b * (c->hidden + affine) * (c->hidden * real + 4);
    t.bytes += tree ? levels * vector + (p - 1 - levels) * (product + vector + real) : (p - 1) * vector;
  }
  return t;
}

/* ---- the messages one by one ---- */

/* Lists the messages of the first group of ranks, which the caller frees with bppsa_free; NULL: out of memory. */
static bppsa_scan_message *list_messages(const bppsa_rank_plan *plan, int64_t *count) {
  const int64_t ranks = ranks_along_time(plan);
  bppsa_scan_message *messages = bppsa_calloc(2 * ranks, sizeof *messages);
  if (messages != NULL && bppsa_ranks_scan_messages(plan->algorithm, (int32_t)ranks, messages, count) != BPPSA_OK) {
    bppsa_free(messages);
    return NULL;
  }
  return messages;
}

/* What does a message carry? The product of steps *first .. *last (true), or the gradient of the state after step *last. */
static bool is_product(const bppsa_rank_plan *plan, const bppsa_scan_message *m, int64_t *first, int64_t *last) {
  const rank_share begin = share_of(plan, m->first), end = share_of(plan, m->count > 0 ? m->first + m->count - 1 : m->first);
  *last = begin.first_step + begin.steps;
  *first = end.first_step + 1;
  return m->count > 0;
}

static json_t *message_json(const bppsa_rank_plan *plan, const bppsa_scan_message *m) {
  int64_t first, last;
  const bool product = is_product(plan, m, &first, &last);
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_integer(object, "round", m->round) &&
            bppsa_json_put_integer(object, "from", m->from) && bppsa_json_put_integer(object, "to", m->to) &&
            bppsa_json_put_text(object, "what", product ? "product" : "gradient") &&
            bppsa_json_put_integer(object, product ? "last_step" : "step", last);
  ok = ok && (!product || bppsa_json_put_integer(object, "first_step", first));
  return bppsa_json_finish(object, ok);
}

static json_t *messages_json(const bppsa_rank_plan *plan) {
  int64_t count = 0;
  bppsa_scan_message *messages = list_messages(plan, &count);
  json_t *array = json_array();
  bool ok = messages != NULL && array != NULL;
  for (int64_t i = 0; ok && i < count; ++i) {
    ok = json_array_append_new(array, message_json(plan, &messages[i])) == 0;
  }
  bppsa_free(messages);
  return bppsa_json_finish(array, ok);
}

static void add_messages(const bppsa_rank_plan *plan, bppsa_text *text) {
  int64_t count = 0;
  bppsa_scan_message *messages = list_messages(plan, &count);
  if (messages == NULL) {
    text->failed = true;
    return;
  }
  if (count > 0) {
    bppsa_text_add(text, "\n  round  from  to    what%s\n",
                   plan->split.batch > 1 ? " (of the ranks with the first samples; the others alike)" : "");
  }
  for (int64_t i = 0; i < count && i < ROWS; ++i) {
    int64_t first, last;
    const bool product = is_product(plan, &messages[i], &first, &last);
    bppsa_text_add(text, "  %5d  %4d  %-4d  ", messages[i].round, messages[i].from, messages[i].to);
    bppsa_text_add(text, product ? "the product of steps %" PRId64 " to %" PRId64 "\n" : "the gradient of h_%" PRId64 "\n",
                   product ? first : last, last);
  }
  bppsa_text_add(text, "%s", count > ROWS ? "    ...   and so on\n" : "");
  bppsa_free(messages);
}

/* ---- what is shown ---- */

json_t *bppsa_rank_plan_json(const bppsa_rank_plan *plan) {
  const int64_t ranks = plan->split.time * plan->split.batch;
  const rank_traffic traffic = traffic_of(plan);
  char split[BPPSA_RANK_SPLIT_TEXT];
  json_t *object = json_object(), *shares = json_array();
  bool ok = object != NULL && shares != NULL;
  for (int64_t r = 0; ok && r < ranks; ++r) {
    const rank_share s = share_of(plan, r);
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
  ok = ok && bppsa_json_put(object, "scan_schedule", messages_json(plan));
  return bppsa_json_finish(object, ok);
}

void bppsa_rank_plan_text(const bppsa_rank_plan *plan, bppsa_text *text) {
  const int64_t ranks = plan->split.time * plan->split.batch;
  const rank_traffic traffic = traffic_of(plan);
  char split[BPPSA_RANK_SPLIT_TEXT], bytes[BPPSA_SI_TEXT];
  bppsa_text_add(text, "\nRanks: %" PRId64 ", split %s\n\n  rank  samples                 steps\n", ranks,
                 bppsa_rank_split_text(&plan->split, split, sizeof split));
  for (int64_t r = 0; r < ranks && r < ROWS; ++r) {
    const rank_share s = share_of(plan, r);
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
    add_messages(plan, text);
  }
}
