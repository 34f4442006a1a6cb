/* The arithmetic of a backward pass compared with BP's: the only definition of all ratios of FLOPs.
 *
 * Counts are for one sample, and both sides do the same work:
 *
 *   gradients  g_{n-1} .. g_1, and g_0 if it is wanted. BP applies J_nᵀ .. J_2ᵀ, and J_1ᵀ if g_0 is wanted, one after the
 *              other: 2 FLOPs for each entry of each pattern. A scan runs the products of its plan: 2 FLOPs for each matching
 *              pair of entries. Neither side multiplies by an identity, and dead products never run. So `linear`, which is BP,
 *              has 1.00 times BP's FLOPs.
 *   critical   those of the longest chain of dependent products: all of BP's. The step to g_0 comes after both and is in neither.
 *   besides    what both sides also compute, in the same way: the gradients of weights; in recurrent networks also the gradients
 *              that a layer passes to the layer below, or to the inputs if they are wanted.
 *
 * The head and the loss, which give the seed g_n, are left out on both sides.
 */
#ifndef BPPSA_SCAN_WORK_H
#define BPPSA_SCAN_WORK_H

#include "core/files/json.h"
#include "scan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* FLOPs; they need not be whole numbers, because they may be means over samples. */
typedef struct {
  double gradients, critical, besides;
} bppsa_work;

/* The work of a plan, and of BP for the same chain and patterns. */
bppsa_work bppsa_work_of_scan(const bppsa_scan_totals *totals, double besides);
bppsa_work bppsa_work_of_bp(const bppsa_scan_totals *totals, double besides);
/* Adds the work of another layer, which follows the others, so that critical paths add up too. */
void bppsa_work_add(const bppsa_work *more, bppsa_work *sum);

/* One work divided by another; 1 where both are 0. */
typedef struct {
  double gradients; /* the gradients between layers or steps alone */
  double backward;  /* with what is computed besides */
  double critical;  /* the critical path */
} bppsa_work_ratios;
bppsa_work_ratios bppsa_work_over(const bppsa_work *work, const bppsa_work *bp);

/* A ratio to three digits or more: "0.0324", "1.00", "20.7", "1611". Returns text. */
#define BPPSA_RATIO_TEXT 32
const char *bppsa_work_ratio(double ratio, char text[BPPSA_RATIO_TEXT]);
/* "20.7 times the FLOPs of BP for the gradients between steps, 10.6 times with those of weights". parts: "steps" or "layers".
 * Returns text. */
#define BPPSA_WORK_TEXT 160
const char *bppsa_work_text(const bppsa_work_ratios *ratios, const char *parts, char *text, size_t size);
/* "flops_of_BP", "backward_flops_of_BP" and "critical_flops_of_BP" as fields of a JSON object; BP: "bp" or "unpruned_bp". */
bool bppsa_work_json(json_t *object, const char *bp, const bppsa_work_ratios *ratios);

#ifdef __cplusplus
}
#endif
#endif
