/* Weights of the future, from the optimiser's smoothed gradient. (SpecTrain, section 3.2, equation 4) */
#include <math.h>
#include <string.h>

#include "distributed/pipeline_internal.h"

typedef struct {
  const bppsa_optimizer_config *config;
  const bppsa_optimizer_state *state;
  int64_t ahead;
} predict_call;

#define EACH_REAL "distributed/predict.inc"
#include "core/each_real.inc"

bppsa_status bppsa_pipeline_predict(const bppsa_model *model, bppsa_optimizer *optimizer, const bppsa_optimizer_config *config,
                                    int64_t ahead, void *const *predicted) {
  const predict_call call = {config, bppsa_optimizer_get_state(optimizer), ahead};
  const bool none = call.state->step == 0; /* before the first update nothing is known about the next */
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    const bppsa_parameter *parameter = &model->parameters[i];
    if (none) {
      memcpy(predicted[i], parameter->value.data, bppsa_view_bytes(&parameter->value));
    } else if (model->dtype == BPPSA_F32) {
      predict_f32(&call, parameter, i, predicted[i]);
    } else {
      predict_f64(&call, parameter, i, predicted[i]);
    }
  }
  return BPPSA_OK;
}
