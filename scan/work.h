/* How much arithmetic a backward pass is beside BP's: the one definition behind every ratio of FLOPs (docs/flops.md derives it).
 *
 * Counts are of one sample, and both sides do the same work:
 *
 *   gradients  g_{n-1} .. g_1, and g_0 where it is wanted. BP applies J_nᵀ .. J_2ᵀ, and J_1ᵀ where g_0 is wanted, one after
 *   the other:
 *              2 FLOPs an entry of each pattern. A scan runs the products of its plan: 2 FLOPs a matching pair of entries.
 *              Neither side multiplies by an identity, and dead products never run. So `linear`, which is BP, has 1.00 times BP's
 *              FLOPs.
 *   critical   those of the longest chain of dependent products: all of BP's. The step to g_0 comes after both and is in neither.
 *   besides    what both sides compute besides, and alike: the gradients of weights; in recurrent networks also those that a
 *   layer hands to
 *              the layer below, or to the inputs where they are wanted.
 *
 * The head and the loss, which give the seed g_n, are left out on both sides.
 */
#ifndef BPPSA_SCAN_WORK_H
#define BPPSA_SCAN_WORK_H

#include "scan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* FLOPs; means over samples need not be whole numbers. */
typedef struct {
  double gradients, critical, besides;
} bppsa_work;

/* Of a plan, and of BP of the same chain and patterns. */
bppsa_work bppsa_work_of_scan(const bppsa_scan_totals *totals, double besides);
bppsa_work bppsa_work_of_bp(const bppsa_scan_totals *totals, double besides);
/* Adds the work of a further layer, which follows the others: critical paths add up too. */
void bppsa_work_add(const bppsa_work *more, bppsa_work *sum);

/* A work over another; 1 where both are 0. */
typedef struct {
  double gradients; /* of the gradients between layers or steps alone */
  double backward;  /* of these and of what is computed besides */
  double critical;  /* of the critical path */
} bppsa_work_ratios;
bppsa_work_ratios bppsa_work_over(const bppsa_work *work, const bppsa_work *bp);

#ifdef __cplusplus
}
#endif
#endif
