/* Describes the result of an evaluation, for people and as JSON. */
#ifndef BPPSA_RUNS_EVAL_REPORT_H
#define BPPSA_RUNS_EVAL_REPORT_H

#include "core/base/text.h"
#include "core/files/json.h"
#include "train/evaluate.h"

/* dataset: what was evaluated, which may be rows of samples. */
json_t *bppsa_evaluation_json(const bppsa_evaluation *result, const bppsa_dataset *dataset); /* NULL when out of memory */
/* held_out: the samples were held out of training. classes: the accuracy means something. out: the file of outputs, or NULL. */
bppsa_status bppsa_evaluation_text(const bppsa_evaluation *result, bool held_out, bool classes, const char *out,
                                   bppsa_text *text);

#endif
