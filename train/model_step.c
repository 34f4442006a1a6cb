#include "train/model_step.h"

#include <math.h>

#include "core/compute/device_buffer.h"

/* Everything behind the forward pass; seed: memory for the gradient of the logits. */
static bppsa_status learn(bppsa_model *model, bppsa_optimizer *optimizer, const bppsa_device *device, const bppsa_view *logits,
                          const int64_t *labels, const bppsa_view *seed, bppsa_loss_result *result) {
  bppsa_loss_result found;
  double norm;
  BPPSA_TRY(bppsa_cross_entropy(device, logits, labels, seed, &found));
  if (!isfinite(found.loss)) {
    return bppsa_model_fail_nonfinite(model, "loss");
  }
  BPPSA_TRY(bppsa_model_backward(model, seed));
  BPPSA_TRY(bppsa_optimizer_update(optimizer, device, 0, &norm)); /* takes no step where the norm is not finite */
  if (!isfinite(norm)) {
    return bppsa_model_fail_nonfinite(model, "gradient norm");
  }
  *result = found;
  return BPPSA_OK;
}

bppsa_status bppsa_model_step(bppsa_model *model, bppsa_optimizer *optimizer, const bppsa_device *device, const bppsa_view *x,
                              const int64_t *labels, bppsa_loss_result *result) {
  BPPSA_REQUIRE(model != NULL && optimizer != NULL && x != NULL && labels != NULL && result != NULL);
  bppsa_view logits;
  bppsa_buffer seed = {.device = NULL};
  BPPSA_TRY(bppsa_model_forward(model, x, NULL, NULL, &logits));
  BPPSA_TRY(bppsa_buffer_create(model->device, logits.dtype, logits.ndim, logits.shape, &seed));
  const bppsa_status status = learn(model, optimizer, device, &logits, labels, &seed.view, result);
  bppsa_buffer_free(&seed);
  return status;
}
