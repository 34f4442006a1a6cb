/* What training makes small: which error, and which label takes no part. */
#ifndef BPPSA_TRAIN_OBJECTIVE_H
#define BPPSA_TRAIN_OBJECTIVE_H

#include <stddef.h>
#include <stdint.h>

#include "core/files/json.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The errors: of labels, and of real targets. Without a loss the caller brings the gradient of the outputs. */
typedef enum {
  BPPSA_LOSS_CROSS_ENTROPY = 0,
  BPPSA_LOSS_SQUARED, /* the mean squared error of real targets */
  BPPSA_LOSS_BINARY,  /* the binary cross-entropy of targets in [0, 1] */
  BPPSA_LOSS_NONE
} bppsa_loss_kind;

typedef struct {
  bppsa_loss_kind kind;
  bool ignores; /* rows with the label `ignored` take no part; it need not be one of the classes */
  int64_t ignored;
} bppsa_objective;

/* The objective of a loss: "last" and "all" are the cross-entropy, "mse" and "bce" are of the last step, "mse-all" and "bce-all" of
 * every step. ignored: the label that takes no part, NULL: none. ERR_ARGUMENT: a label beside an error of real targets. */
bppsa_status bppsa_objective_make(const char *loss, const int64_t *ignored, bppsa_objective *objective);

/* Does the error compare outputs with real targets, instead of labels? */
static inline bool bppsa_objective_real(const bppsa_objective *objective) {
  return objective != NULL && (objective->kind == BPPSA_LOSS_SQUARED || objective->kind == BPPSA_LOSS_BINARY);
}

/* Whether a loss, of an option or of a file's metadata, means every step: "all", "mse-all" and "bce-all". */
bool bppsa_objective_all(const char *loss);
/* "last", "all", "mse", ..; NULL: the cross-entropy. */
const char *bppsa_objective_loss(const bppsa_objective *objective, bool all);
/* The error's name in JSON: "cross-entropy", "mse", "bce" or "none". */
const char *bppsa_objective_name(const bppsa_objective *objective);
/* "cross-entropy of the last step, label -100 left out". Returns text (BPPSA_OBJECTIVE_TEXT). */
const char *bppsa_objective_text(const bppsa_objective *objective, bool all, char *text, size_t size);
#define BPPSA_OBJECTIVE_TEXT 96
/* loss_on, objective and ignore_label (null: none) as members of a JSON object. */
bool bppsa_objective_json(json_t *object, const bppsa_objective *objective, bool all);

#ifdef __cplusplus
}
#endif

#endif
