#include "scan/work.h"

#include "core/base/decimal.h"

#include <stdio.h>

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

const char *bppsa_work_ratio(double ratio, char text[BPPSA_RATIO_TEXT]) {
  if (ratio > 0 && ratio < 0.1) {
    bppsa_print(text, BPPSA_RATIO_TEXT, "%.3g", ratio);
  } else {
    bppsa_print(text, BPPSA_RATIO_TEXT, "%.*f", ratio < 10 ? 2 : ratio < 100 ? 1 : 0, ratio);
  }
  return text;
}

const char *bppsa_work_text(const bppsa_work_ratios *ratios, const char *parts, char *text, size_t size) {
  char gradients[BPPSA_RATIO_TEXT], backward[BPPSA_RATIO_TEXT];
  snprintf(text, size, "%s times the FLOPs of BP for the gradients between %s, %s times with those of weights",
           bppsa_work_ratio(ratios->gradients, gradients), parts, bppsa_work_ratio(ratios->backward, backward));
  return text;
}

bool bppsa_work_json(json_t *object, const char *bp, const bppsa_work_ratios *ratios) {
  const struct {
    const char *prefix;
    double ratio;
  } members[] = {{"", ratios->gradients}, {"backward_", ratios->backward}, {"critical_", ratios->critical}};
  bool ok = true;
  for (size_t i = 0; ok && i < sizeof members / sizeof members[0]; ++i) {
    char key[48];
    snprintf(key, sizeof key, "%sflops_of_%s", members[i].prefix, bp);
    ok = bppsa_json_put_real(object, key, members[i].ratio);
  }
  return ok;
}
