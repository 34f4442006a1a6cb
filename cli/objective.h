/* What --loss and --ignore-label say of train, eval and grad: which error is made small, on which steps, and which labels take
 * no part. */
#ifndef BPPSA_CLI_OBJECTIVE_H
#define BPPSA_CLI_OBJECTIVE_H

#include "cli/command.h"
#include "core/json.h"
#include "core/safetensors.h"

typedef struct {
  bool mse;     /* the mean squared error of real targets; otherwise the cross-entropy of labels */
  bool ignores; /* the label `ignored` takes no part */
  int64_t ignored;
} bppsa_objective;

/* --loss and --ignore-label; where --loss is not given, the loss that the weights' metadata name (file NULL: none). ERR_ARGUMENT:
 * --ignore-label beside the mean squared error. */
bppsa_status bppsa_objective_setup(const bppsa_cli *cli, const bppsa_safetensors *file, bppsa_objective *objective);

/* Whether a --loss, or a file's metadata, means every step: "all" and "mse-all". */
bool bppsa_objective_all(const char *loss);
/* "last", "all", "mse" or "mse-all". */
const char *bppsa_objective_loss(const bppsa_objective *objective, bool all);
/* "cross-entropy of the last step, label -100 left out". Returns text (BPPSA_OBJECTIVE_TEXT). */
const char *bppsa_objective_text(const bppsa_objective *objective, bool all, char *text, size_t size);
#define BPPSA_OBJECTIVE_TEXT 96
/* loss_on, objective and ignore_label (null: none) as members of a JSON object. */
bool bppsa_objective_json(json_t *object, const bppsa_objective *objective, bool all);

#endif
