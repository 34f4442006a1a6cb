#include "train/objective.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const losses[2][2] = {{"last", "all"}, {"mse", "mse-all"}};

bool bppsa_objective_all(const char *loss) {
  return strcmp(loss, losses[0][1]) == 0 || strcmp(loss, losses[1][1]) == 0;
}

static bool is_mse(const char *loss) {
  return strcmp(loss, losses[1][0]) == 0 || strcmp(loss, losses[1][1]) == 0;
}

const char *bppsa_objective_loss(const bppsa_objective *objective, bool all) {
  return losses[objective != NULL && objective->mse][all];
}

bppsa_status bppsa_objective_make(const char *loss, const int64_t *ignored, bppsa_objective *objective) {
  const bool mse = is_mse(loss);
  if (mse && ignored != NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--ignore-label: given beside the loss %s, expected --loss last or all", loss);
  }
  *objective = (bppsa_objective){.mse = mse, .ignores = ignored != NULL, .ignored = ignored != NULL ? *ignored : 0};
  return BPPSA_OK;
}

const char *bppsa_objective_text(const bppsa_objective *objective, bool all, char *text, size_t size) {
  char ignored[48] = "";
  if (objective->ignores) {
    snprintf(ignored, sizeof ignored, ", label %" PRId64 " left out", objective->ignored);
  }
  snprintf(text, size, "%s of %s%s", objective->mse ? "mean squared error" : "cross-entropy",
           all ? "every step" : "the last step", ignored);
  return text;
}

bool bppsa_objective_json(json_t *object, const bppsa_objective *objective, bool all) {
  return bppsa_json_put_text(object, "loss_on", losses[0][all]) &&
         bppsa_json_put_text(object, "objective", objective->mse ? "mse" : "cross-entropy") &&
         bppsa_json_put(object, "ignore_label", objective->ignores ? json_integer(objective->ignored) : json_null());
}
