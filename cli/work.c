#include "cli/work.h"

#include <stdio.h>

const char *bppsa_work_ratio(double ratio, char text[BPPSA_RATIO_TEXT]) {
  if (ratio > 0 && ratio < 0.1) {
    snprintf(text, BPPSA_RATIO_TEXT, "%.3g", ratio);
  } else {
    snprintf(text, BPPSA_RATIO_TEXT, "%.*f", ratio < 10 ? 2 : ratio < 100 ? 1 : 0, ratio);
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
