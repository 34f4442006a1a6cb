/* Weights of convolutional networks: initial values, and their dtype in a file. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cnn/cnn_internal.h"
#include "core/base/philox.h"

/* Weights and running variances 1, biases and running means 0. */
static void init_norm(bppsa_model *model, const cnn_layer *layer) {
  const bool statistics = layer->about->op.kind == BPPSA_OPERATOR_BATCHNORM2D;
  for (int64_t k = 0; k < bppsa_cnn_parameters(layer->about); ++k) {
    const bppsa_view *value = &model->parameters[layer->weight + k].value;
    const bool variance = statistics && k + 1 == bppsa_cnn_parameters(layer->about), weight = layer->about->bias && k == 0;
    for (int64_t c = 0; c < bppsa_view_count(value); ++c) {
      bppsa_view_set(value, c, variance || weight ? 1 : 0);
    }
  }
}

bppsa_status bppsa_cnn_init(bppsa_model *model, uint64_t seed) {
  BPPSA_REQUIRE(model != NULL);
  const cnn *n = (const cnn *)model;
  for (int64_t i = 0; i < n->network.count; ++i) {
    const cnn_layer *layer = &n->layers[i];
    if (layer->about->op.kind == BPPSA_OPERATOR_BATCHNORM2D || bppsa_cnn_is_affine(layer->about)) {
      init_norm(model, layer);
      continue;
    }
    for (int64_t p = layer->weight; p >= 0 && p < layer->weight + 1 + layer->about->bias; ++p) {
      const bppsa_view *value = &model->parameters[p].value, *weight = &model->parameters[layer->weight].value;
      const double bound = 1 / sqrt((double)bppsa_view_count(weight) / (double)weight->shape[0]);
      const uint64_t stream = (uint64_t)BPPSA_STREAM_WEIGHTS + ((uint64_t)p << 8);
      for (int64_t k = 0; k < bppsa_view_count(value); ++k) {
        bppsa_view_set(value, k, bound * (2 * bppsa_random_double(seed, stream, (uint64_t)k) - 1));
      }
    }
  }
  return bppsa_model_push(model);
}

bppsa_status bppsa_cnn_infer(const char *where, const bppsa_cnn_network *network, int64_t count, const bppsa_named_view *tensors,
                             bppsa_dtype *dtype) {
  BPPSA_REQUIRE(where != NULL && network != NULL && dtype != NULL);
  BPPSA_REQUIRE(count >= 0 && (tensors != NULL || count == 0));
  const bppsa_view *first = NULL;
  for (int64_t i = 0; i < network->count; ++i) {
    for (int64_t k = 0; k < bppsa_cnn_parameters(&network->layers[i]); ++k) {
      char name[BPPSA_CNN_PARAMETER];
      const bppsa_view *found = NULL;
      (void)bppsa_cnn_parameter(&network->layers[i], k, BPPSA_F32, name);
      for (int64_t t = 0; found == NULL && t < count; ++t) {
        found = strcmp(tensors[t].name, name) == 0 ? &tensors[t].view : NULL;
      }
      if (found == NULL) {
        return bppsa_fail(BPPSA_ERR_FORMAT, "%s: tensor '%s' is missing", where, name);
      }
      first = first == NULL ? found : first;
      if ((found->dtype != BPPSA_F32 && found->dtype != BPPSA_F64) || found->dtype != first->dtype) {
        return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: tensor '%s' is %s, expected %s", where, name, bppsa_view_dtype_name(found),
                          first == found ? "f32 or f64" : bppsa_dtype_name(first->dtype));
      }
    }
  }
  *dtype = first->dtype; /* the head has weights */
  return BPPSA_OK;
}
