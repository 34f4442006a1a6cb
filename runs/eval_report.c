#include "runs/eval_report.h"

#include <inttypes.h>

#include "recurrent/parallel_forward.h"
#include "train/data/pack.h"

json_t *bppsa_evaluation_json(const bppsa_evaluation *result, const bppsa_dataset *dataset) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_real(object, "loss", result->loss);
  ok = ok && bppsa_json_put_real(object, "accuracy", result->accuracy);
  ok = ok && bppsa_json_put_integer(object, "samples", result->samples);
  if (dataset->packing != NULL) {
    ok = ok && bppsa_json_put(object, "packing", bppsa_packing_json(dataset->packing));
  }
  const bppsa_forward_stats forward = bppsa_forward_stats_from(result->account);
  if (forward.passes > 0) {
    ok = ok && bppsa_json_put(object, "forward", bppsa_forward_stats_json(&forward));
  }
  return bppsa_json_finish(object, ok);
}

bppsa_status bppsa_evaluation_text(const bppsa_evaluation *result, bool held_out, bool classes, const char *out,
                                   bppsa_text *text) {
  bppsa_text_add(text, "samples   %" PRId64 "%s\nloss      %.6f\n", result->samples, held_out ? ", held out" : "", result->loss);
  if (classes) {
    bppsa_text_add(text, "accuracy  %.4f\n", result->accuracy);
  }
  const bppsa_forward_stats forward = bppsa_forward_stats_from(result->account);
  if (forward.passes > 0) {
    char words[BPPSA_FORWARD_TEXT];
    bppsa_text_add(text, "forward   in parallel: %s\n", bppsa_forward_stats_text(&forward, words, sizeof words));
  }
  if (out != NULL) {
    bppsa_text_add(text, "outputs   written to %s\n", out);
  }
  return bppsa_text_check(text);
}
