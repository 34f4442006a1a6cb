/* What training makes small: which error, on which steps, and which labels take no part. */
#ifndef BPPSA_TRAIN_OBJECTIVE_H
#define BPPSA_TRAIN_OBJECTIVE_H

#include <stddef.h>
#include <stdint.h>

#include "core/json.h"

typedef struct {
  bool mse;     /* the mean squared error of real targets; otherwise the cross-entropy of labels */
  bool ignores; /* the label `ignored` takes no part */
  int64_t ignored;
} bppsa_objective;

/* The objective of a loss "last", "all", "mse" or "mse-all"; ignored: the label that takes no part, NULL: none. ERR_ARGUMENT: a
 * label beside the mean squared error. */
bppsa_status bppsa_objective_make(const char *loss, const int64_t *ignored, bppsa_objective *objective);

/* Whether a loss, of an option or of a file's metadata, means every step: "all" and "mse-all". */
bool bppsa_objective_all(const char *loss);
/* "last", "all", "mse" or "mse-all"; NULL: the cross-entropy. */
const char *bppsa_objective_loss(const bppsa_objective *objective, bool all);
/* "cross-entropy of the last step, label -100 left out". Returns text (BPPSA_OBJECTIVE_TEXT). */
const char *bppsa_objective_text(const bppsa_objective *objective, bool all, char *text, size_t size);
#define BPPSA_OBJECTIVE_TEXT 96
/* loss_on, objective and ignore_label (null: none) as members of a JSON object. */
bool bppsa_objective_json(json_t *object, const bppsa_objective *objective, bool all);

#endif
