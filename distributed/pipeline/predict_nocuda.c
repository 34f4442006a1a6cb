/* In a build without CUDA no weights are in GPU memory. */
#include "distributed/pipeline/predict_internal.h"

bppsa_status bppsa_predict_queue(const bppsa_model *model, const predict_rule *rule, const void *first, const void *second,
                                 void *predicted) {
  (void)model, (void)rule, (void)first, (void)second, (void)predicted;
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "prediction on a GPU: this build has no CUDA; use device cpu");
}
