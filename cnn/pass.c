#include "cnn/pass.h"

#include "cnn/layers.h"
#include "cnn/norm.h"

/* The product y = x Wᵀ + b of a linear operator. */
static bppsa_linear linear_of(const bppsa_cnn_pass *pass) {
  enum { BLOCK = 32 };
  return (bppsa_linear){.dtype = pass->dtype,
                        .threads = pass->threads,
                        .rows = pass->batch,
                        .in = pass->in,
                        .out = pass->out,
                        .unit = 1,
                        .block = BLOCK};
}

static void raise(int64_t *most, int64_t bytes) {
  *most = bytes > *most ? bytes : *most;
}

bppsa_status bppsa_cnn_pass_room(const bppsa_cnn_pass *pass, int64_t *scratch, int64_t *sums, int64_t *transposed) {
  const int64_t size = (int64_t)bppsa_dtype_size(pass->dtype);
  if (pass->about->op.kind == BPPSA_OPERATOR_CONV2D) {
    raise(scratch, size * bppsa_conv_scratch(pass->conv));
    raise(sums, size * bppsa_conv_sums(pass->conv));
  } else if (pass->about->op.kind == BPPSA_OPERATOR_LINEAR) {
    const bppsa_linear l = linear_of(pass);
    const int64_t workspace = bppsa_linear_workspace(&l);
    if (workspace < 0) {
      return bppsa_fail(BPPSA_ERR_MEMORY, "%s: the sums of %lld samples do not fit in 64 bits", pass->about->name,
                        (long long)pass->batch);
    }
    raise(sums, workspace);
    raise(transposed, size * pass->in * pass->out);
  }
  return BPPSA_OK;
}

static bppsa_layer_call call_of(const bppsa_cnn_pass *pass) {
  return (bppsa_layer_call){
      .op = &pass->about->op, .out = pass->about->out, .dtype = pass->dtype, .threads = pass->threads, .batch = pass->batch};
}

/* Does the operator leave numbers out in this pass? */
static bool drops(const bppsa_cnn_pass *pass) {
  return pass->about->op.kind == BPPSA_OPERATOR_DROPOUT && pass->about->op.dropping && pass->training.samples != NULL;
}

void bppsa_cnn_pass_forward(const bppsa_cnn_pass *pass, const void *x, const void *weight, const void *bias, int32_t *places,
                            void *y) {
  switch (pass->about->op.kind) {
  case BPPSA_OPERATOR_CONV2D:
    bppsa_conv_forward(pass->conv, pass->batch, x, weight, bias, pass->scratch, y);
    break;
  case BPPSA_OPERATOR_LINEAR: {
    const bppsa_linear l = linear_of(pass);
    bppsa_linear_transpose(&l, weight, pass->transposed, l.out);
    bppsa_linear_forward(&l, x, pass->transposed, bias, y);
    break;
  }
  case BPPSA_OPERATOR_BATCHNORM2D:
    bppsa_norm_forward(pass, x, y);
    break;
  default: {
    const bppsa_layer_call call = call_of(pass);
    if (drops(pass)) {
      bppsa_dropout_apply(pass, x, y);
    } else {
      bppsa_cnn_layer_forward(&call, x, places, y);
    }
  }
  }
}

void bppsa_cnn_pass_input_gradient(const bppsa_cnn_pass *pass, const void *dy, const void *weight, const void *x, const void *y,
                                   const int32_t *places, void *dx) {
  switch (pass->about->op.kind) {
  case BPPSA_OPERATOR_CONV2D:
    bppsa_conv_input_gradient(pass->conv, pass->batch, dy, weight, pass->scratch, dx);
    break;
  case BPPSA_OPERATOR_LINEAR: {
    const bppsa_linear l = linear_of(pass);
    bppsa_linear_input_gradient(&l, dy, weight, dx);
    break;
  }
  case BPPSA_OPERATOR_BATCHNORM2D:
    bppsa_norm_input_gradient(pass, dy, x, dx);
    break;
  default: {
    const bppsa_layer_call call = call_of(pass);
    if (drops(pass)) {
      bppsa_dropout_apply(pass, dy, dx);
    } else {
      bppsa_cnn_layer_backward(&call, dy, x, y, places, dx);
    }
  }
  }
}

void bppsa_cnn_pass_weight_gradient(const bppsa_cnn_pass *pass, const void *dy, const void *x, void *dw, void *db) {
  if (pass->about->op.kind == BPPSA_OPERATOR_CONV2D) {
    bppsa_conv_weight_gradient(pass->conv, pass->batch, dy, x, pass->scratch, pass->sums, dw, db);
  } else if (pass->about->op.kind == BPPSA_OPERATOR_BATCHNORM2D) {
    bppsa_norm_weight_gradient(pass, dy, x);
  } else {
    const bppsa_linear l = linear_of(pass);
    bppsa_linear_weight_gradient(&l, dy, x, dw, db, pass->sums);
  }
}
