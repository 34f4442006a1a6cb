#include "cnn/norm.h"

#include <math.h>
#include <string.h>

#include "core/base/philox.h"
#include "core/compute/flush.h"
#include "core/compute/pool.h"

/* Positions of weight, bias and statistics among a batch norm's parameters; -1: it has none. */
typedef struct {
  int weight, bias, mean, variance;
} places;

static places places_of(const bppsa_cnn_pass *pass) {
  return pass->about->bias ? (places){0, 1, 2, 3} : (places){-1, -1, 0, 1};
}

/* Are the statistics the batch's? */
static bool by_batch(const bppsa_cnn_pass *pass) {
  return pass->training.samples != NULL && pass->training.batch_statistics;
}

int64_t bppsa_norm_kept(const bppsa_cnn_layer *layer, bppsa_dtype dtype) {
  return 2 * layer->op.in[0] * (int64_t)bppsa_dtype_size(dtype);
}

#define EACH_REAL "cnn/norm.inc"
#include "core/base/each_real.inc"

void bppsa_norm_forward(const bppsa_cnn_pass *pass, const void *x, void *y) {
  (pass->dtype == BPPSA_F32 ? norm_forward_f32 : norm_forward_f64)(pass, x, y);
}

void bppsa_norm_input_gradient(const bppsa_cnn_pass *pass, const void *dy, const void *x, void *dx) {
  (pass->dtype == BPPSA_F32 ? norm_input_f32 : norm_input_f64)(pass, dy, x, dx);
}

void bppsa_norm_weight_gradient(const bppsa_cnn_pass *pass, const void *dy, const void *x) {
  (pass->dtype == BPPSA_F32 ? norm_weights_f32 : norm_weights_f64)(pass, dy, x);
}

void bppsa_norm_scale(const bppsa_cnn_pass *pass, void *scale) {
  (pass->dtype == BPPSA_F32 ? norm_scale_f32 : norm_scale_f64)(pass, scale);
}

void bppsa_dropout_apply(const bppsa_cnn_pass *pass, const void *from, void *to) {
  (pass->dtype == BPPSA_F32 ? dropout_f32 : dropout_f64)(pass, from, to);
}
