/* What the files of the validator share. */
#ifndef BPPSA_SCHEDULE_CHECK_H
#define BPPSA_SCHEDULE_CHECK_H

#include "schedule/schedule_internal.h"

typedef struct {
  const bppsa_schedule *list;
  bppsa_schedule_finding *finding;
  bool *sane; /* per operation: it keeps all shape rules; size count */
  bool all_sane;
  int32_t *send, *recv;    /* the SEND and the RECV of each group, or -1; size groups */
  int32_t *first, *second; /* scratch memory of a rule: cells [micro][layer] or [replica][layer] */
  int64_t cells;
} bppsa_checker;

/* Records what is wrong with an operation (-1: with the list) and returns false. */
bool bppsa_checker_broken(bppsa_checker *c, int64_t op, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Allocates and fills what the rules need. ERR_MEMORY. */
bppsa_status bppsa_checker_prepare(bppsa_checker *c);
void bppsa_checker_free(bppsa_checker *c);

/* A rule about more than the shape of one operation, and the walk that checks it. *kept becomes whether every operation keeps the
 * rule. ERR_MEMORY. */
typedef struct {
  bppsa_schedule_rule rule;
  bppsa_status (*walk)(bppsa_checker *c, bool *kept);
} bppsa_checker_rule;
enum { BPPSA_CHECKER_MOST_RULES = 32 }; /* the most shape rules, and the most others: half of a mask's bits each */
extern const bppsa_checker_rule bppsa_checker_rules[];
extern const int bppsa_checker_rule_count;

/* The following are in rules_weights.c. */
bppsa_status bppsa_rule_sync_replicas(bppsa_checker *c, bool *kept);
bppsa_status bppsa_rule_sync_gradients(bppsa_checker *c, bool *kept);
bppsa_status bppsa_rule_step_synchronised(bppsa_checker *c, bool *kept);
bppsa_status bppsa_rule_step_count(bppsa_checker *c, bool *kept);
bppsa_status bppsa_rule_step_micro_batches(bppsa_checker *c, bool *kept);
bppsa_status bppsa_rule_step_at_once(bppsa_checker *c, bool *kept);
bppsa_status bppsa_rule_version_step(bppsa_checker *c, bool *kept);
bppsa_status bppsa_rule_version_forward(bppsa_checker *c, bool *kept);
bppsa_status bppsa_rule_version_backward(bppsa_checker *c, bool *kept);
bppsa_status bppsa_rule_version_prepared(bppsa_checker *c, bool *kept);
bppsa_status bppsa_rule_version_sent(bppsa_checker *c, bool *kept);
bppsa_status bppsa_rule_memory_balance(bppsa_checker *c, bool *kept);
bppsa_status bppsa_rule_memory_cap(bppsa_checker *c, bool *kept);

/* Returns the operation that made the tensor behind dependency `dep`. A RECV is traced to its SEND, and from there to what the SEND
 * sends; -1 if that pair is broken. */
int64_t bppsa_checker_source(const bppsa_checker *c, int64_t dep);
/* Fills a scratch array with a value. */
void bppsa_checker_fill(int32_t *cells, int64_t count, int32_t value);

#endif
