/* What the validator's files share. */
#ifndef BPPSA_SCHEDULE_CHECK_H
#define BPPSA_SCHEDULE_CHECK_H

#include "schedule/schedule_internal.h"

typedef struct {
  const bppsa_schedule *list;
  bppsa_schedule_finding *finding;
  bool *sane; /* no rule of shape is broken, size count */
  bool all_sane;
  int32_t *send, *recv;    /* the first of each group, or -1; size groups */
  int32_t *first, *second; /* scratch of a rule: cells of [micro][layer], or of [replica][layer] */
  int64_t cells;
} bppsa_checker;

/* Says what is wrong with an operation (-1: with the list) and returns false. */
bool bppsa_checker_broken(bppsa_checker *c, int64_t op, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* What the rules below need. ERR_MEMORY. */
bppsa_status bppsa_checker_prepare(bppsa_checker *c);
void bppsa_checker_free(bppsa_checker *c);

/* The rules behind those of shape, in the table's order. *kept: nothing broke it. ERR_MEMORY. */
typedef bppsa_status (*bppsa_checker_rule)(bppsa_checker *c, bool *kept);
extern const bppsa_checker_rule bppsa_checker_rules[];

/* rules_weights.c */
bppsa_status bppsa_rule_sync_replicas(bppsa_checker *c, bool *kept);
bppsa_status bppsa_rule_sync_gradients(bppsa_checker *c, bool *kept);
bppsa_status bppsa_rule_step_synchronised(bppsa_checker *c, bool *kept);
bppsa_status bppsa_rule_step_count(bppsa_checker *c, bool *kept);
bppsa_status bppsa_rule_version_step(bppsa_checker *c, bool *kept);
bppsa_status bppsa_rule_version_forward(bppsa_checker *c, bool *kept);
bppsa_status bppsa_rule_version_backward(bppsa_checker *c, bool *kept);
bppsa_status bppsa_rule_version_prepared(bppsa_checker *c, bool *kept);
bppsa_status bppsa_rule_memory_balance(bppsa_checker *c, bool *kept);
bppsa_status bppsa_rule_memory_cap(bppsa_checker *c, bool *kept);

/* What made a tensor an operation waits for: past its RECV and SEND; -1 where the pair is broken. */
int64_t bppsa_checker_source(const bppsa_checker *c, int64_t dep);
/* Fills a scratch array with a value. */
void bppsa_checker_fill(int32_t *cells, int64_t count, int32_t value);

#endif
