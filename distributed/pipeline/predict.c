/* Weights of the future, from the optimiser's smoothed gradient. (SpecTrain, section 3.2, equation 4) */
#include <math.h>
#include <string.h>

#include "core/base/host_device.h"
#include "core/compute/memory.h"
#include "distributed/pipeline/pipeline_weights.h"
#include "distributed/pipeline/predict_internal.h"
#include "train/optimizer_internal.h"

typedef struct {
  const bppsa_optimizer_config *config;
  const bppsa_optimizer_state *state;
  int64_t ahead;
} predict_call;

/* Returns the numbers that all parameters have in common. */
static predict_rule rule_of(const predict_call *call) {
  const bppsa_optimizer_config *o = call->config;
  const double step = (double)call->state->step, rate = (double)call->ahead * o->lr;
  return bppsa_optimizer_get(o->kind)->moments ? (predict_rule){.moments = true,
                                                                .rate = rate / (1 - pow(o->beta1, step)),
                                                                .second = sqrt(1 - pow(o->beta2, step)),
                                                                .epsilon = o->epsilon}
                                               : (predict_rule){.rate = rate};
}

#define EACH_REAL "distributed/pipeline/predict.inc"
#include "core/base/each_real.inc"

/* Predicts on a GPU, where the parameters lie one behind the other, and so do the predicted ones. */
static bppsa_status predict_on_gpu(const bppsa_model *model, const bppsa_optimizer *optimizer, const predict_call *call,
                                   void *predicted) {
  const predict_rule rule = rule_of(call);
  const void *first = bppsa_optimizer_device_slot(optimizer, 0), *second = bppsa_optimizer_device_slot(optimizer, 1);
  const int64_t bytes = model->reals * (int64_t)bppsa_dtype_size(model->dtype);
  return call->state->step == 0
             ? bppsa_memory_queue_copy(model->device, predicted, bytes, model->device_values, bytes, bytes, 1)
             : bppsa_predict_queue(model, &rule, first != NULL ? first : model->device_gradients, second, predicted);
}

bppsa_status bppsa_pipeline_predict(const bppsa_model *model, bppsa_optimizer *optimizer, const bppsa_optimizer_config *config,
                                    int64_t ahead, void *const *predicted) {
  const predict_call call = {config, bppsa_optimizer_get_state(optimizer), ahead};
  const bool none = call.state->step == 0; /* before the first update nothing is known about the next */
  if (model->device != NULL) {
    return predict_on_gpu(model, optimizer, &call, predicted[0]);
  }
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
