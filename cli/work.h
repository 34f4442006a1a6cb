/* Ratios of FLOPs as commands print them: scan/work.h has the definition, docs/flops.md derives it. */
#ifndef BPPSA_CLI_WORK_H
#define BPPSA_CLI_WORK_H

#include "cli/command.h"
#include "scan/work.h"

#define BPPSA_RATIO_TEXT 32
#define BPPSA_WORK_TEXT 160

/* A ratio to three digits or more: "0.0324", "1.00", "20.7", "1611". Returns text. */
const char *bppsa_work_ratio(double ratio, char text[BPPSA_RATIO_TEXT]);
/* "20.7 times the FLOPs of BP for the gradients between steps, 10.6 times with those of weights". parts: "steps" or "layers".
 * Returns text. */
const char *bppsa_work_text(const bppsa_work_ratios *ratios, const char *parts, char *text, size_t size);
/* "flops_of_BP", "backward_flops_of_BP" and "critical_flops_of_BP" as fields of a JSON object; BP: "bp" or "unpruned_bp". */
bool bppsa_work_json(json_t *object, const char *bp, const bppsa_work_ratios *ratios);

#endif
