#include "scan/work.h"

bppsa_work bppsa_work_of_scan(const bppsa_scan_totals *totals, double besides) {
  return (bppsa_work){(double)(totals->mm_flops + totals->mv_flops), (double)totals->critical_flops, besides};
}

bppsa_work bppsa_work_of_bp(const bppsa_scan_totals *totals, double besides) {
  return (bppsa_work){(double)totals->bp_flops, (double)totals->bp_critical_flops, besides};
}

void bppsa_work_add(const bppsa_work *more, bppsa_work *sum) {
  sum->gradients += more->gradients;
  sum->critical += more->critical;
  sum->besides += more->besides;
}

/* Work that is 0 on both sides counts as equal. */
static double ratio(double work, double bp) {
  return work == bp ? 1 : work / bp;
}

bppsa_work_ratios bppsa_work_over(const bppsa_work *work, const bppsa_work *bp) {
  return (bppsa_work_ratios){ratio(work->gradients, bp->gradients),
                             ratio(work->gradients + work->besides, bp->gradients + bp->besides),
                             ratio(work->critical, bp->critical)};
}
