#include "train/objective.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What each error is called: by the option, for the last step and for every step; in text; and in JSON. */
static const struct {
  const char *losses[2], *text, *name;
} kinds[] = {[BPPSA_LOSS_CROSS_ENTROPY] = {{"last", "all"}, "cross-entropy", "cross-entropy"},
             [BPPSA_LOSS_SQUARED] = {{"mse", "mse-all"}, "mean squared error", "mse"},
             [BPPSA_LOSS_BINARY] = {{"bce", "bce-all"}, "binary cross-entropy", "bce"},
             [BPPSA_LOSS_NONE] = {{"none", "none"}, "given gradient", "none"}};

/* Finds a loss in the table: its kind, the cross-entropy where it is not there. Does the loss mean every step? */
static bool find(const char *loss, bppsa_loss_kind *kind) {
  *kind = BPPSA_LOSS_CROSS_ENTROPY;
  for (int k = 0; k < BPPSA_LOSS_NONE; ++k) {
    const bool all = strcmp(loss, kinds[k].losses[1]) == 0;
    if (all || strcmp(loss, kinds[k].losses[0]) == 0) {
      *kind = (bppsa_loss_kind)k;
      return all;
    }
  }
  return false;
}

bool bppsa_objective_all(const char *loss) {
  bppsa_loss_kind kind;
  return find(loss, &kind);
}

const char *bppsa_objective_loss(const bppsa_objective *objective, bool all) {
  return kinds[objective != NULL ? objective->kind : BPPSA_LOSS_CROSS_ENTROPY].losses[all];
}

const char *bppsa_objective_name(const bppsa_objective *objective) {
  return kinds[objective->kind].name;
}

bppsa_status bppsa_objective_make(const char *loss, const int64_t *ignored, bppsa_objective *objective) {
  bppsa_objective made = {.ignores = ignored != NULL, .ignored = ignored != NULL ? *ignored : 0};
  (void)find(loss, &made.kind);
  if (bppsa_objective_real(&made) && ignored != NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--ignore-label: given beside the loss %s, expected --loss last or all", loss);
  }
  *objective = made;
  return BPPSA_OK;
}

const char *bppsa_objective_text(const bppsa_objective *objective, bool all, char *text, size_t size) {
  char ignored[48] = "";
  if (objective->ignores) {
    snprintf(ignored, sizeof ignored, ", label %" PRId64 " left out", objective->ignored);
  }
  snprintf(text, size, "%s of %s%s", kinds[objective->kind].text, all ? "every step" : "the last step", ignored);
  return text;
}

bool bppsa_objective_json(json_t *object, const bppsa_objective *objective, bool all) {
  return bppsa_json_put_text(object, "loss_on", kinds[BPPSA_LOSS_CROSS_ENTROPY].losses[all]) &&
         bppsa_json_put_text(object, "objective", bppsa_objective_name(objective)) &&
         bppsa_json_put(object, "ignore_label", objective->ignores ? json_integer(objective->ignored) : json_null());
}
