/* Passes over a convolutional network. */
#include "cnn/cnn.h"

#include <math.h>
#include <string.h>

#include "cnn/cnn_internal.h"

static void *at(const cnn *n, void *array, int64_t reals) {
  return (char *)array + reals * (int64_t)bppsa_dtype_size(n->config.dtype);
}

/* g_t of the present batch */
static void *gradient(const cnn *n, int64_t t) {
  return at(n, n->g, n->offsets[t] * n->batch);
}

static void *weight_of(const cnn *n, const cnn_layer *layer, bool gradient_of) {
  const bppsa_parameter *p = &n->base.parameters[layer->weight];
  return gradient_of ? p->gradient.data : p->value.data;
}

static void *bias_of(const cnn *n, const cnn_layer *layer, bool gradient_of) {
  const bppsa_parameter *p = &n->base.parameters[layer->weight + 1];
  return !layer->about->bias ? NULL : gradient_of ? p->gradient.data : p->value.data;
}

bppsa_linear bppsa_cnn_linear(const cnn *n, const cnn_layer *layer, int64_t batch) {
  enum { BLOCK = 32 };
  return (bppsa_linear){.dtype = n->config.dtype,
                        .threads = n->threads,
                        .rows = batch,
                        .in = layer->in,
                        .out = layer->out,
                        .unit = 1,
                        .block = BLOCK};
}

static bppsa_layer_call call_of(const cnn *n, const cnn_layer *layer) {
  return (bppsa_layer_call){
      .op = &layer->about->op, .out = layer->about->out, .dtype = n->config.dtype, .threads = n->threads, .batch = n->batch};
}

/* The input of layer i. */
static const void *input_of(const cnn *n, int64_t i) {
  return i == 0 ? n->x : n->layers[i - 1].y;
}

static bppsa_status check_view(const char *what, const bppsa_view *view, bppsa_dtype dtype, int32_t ndim, const int64_t *shape) {
  const bppsa_view expected = bppsa_view_make(NULL, dtype, ndim, shape);
  if (view->dtype == dtype && bppsa_view_same_shape(view, &expected) && bppsa_view_contiguous(view) &&
      view->device == BPPSA_CPU) {
    return BPPSA_OK;
  }
  char found[BPPSA_SHAPE_TEXT], wanted[BPPSA_SHAPE_TEXT];
  return bppsa_fail(BPPSA_ERR_SHAPE, "%s: %s %s, expected contiguous %s %s in host memory", what, bppsa_dtype_name(view->dtype),
                    bppsa_shape_text(view->ndim, view->shape, found, sizeof found), bppsa_dtype_name(dtype),
                    bppsa_shape_text(ndim, shape, wanted, sizeof wanted));
}

bppsa_status bppsa_cnn_activation(const bppsa_model *model, int64_t i, bppsa_view *activation) {
  const cnn *n = (const cnn *)model;
  if (i < -1 || i >= n->network.count || n->batch == 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "activation of layer %lld, expected -1 .. %lld after a forward pass", (long long)i,
                      (long long)n->network.count - 1);
  }
  const int64_t *s = i < 0 ? n->network.in : n->network.layers[i].out;
  *activation = bppsa_view_make((void *)input_of(n, i + 1), n->config.dtype, 4, (int64_t[]){n->batch, s[0], s[1], s[2]});
  return BPPSA_OK;
}

/* ---- masks ---- */

/* What a mask keeps at 0 is 0: weights before a pass, gradients after it. */
static void apply_masks(const cnn *n, bool gradients) {
  for (int64_t i = 0; i < n->network.count; ++i) {
    const cnn_layer *layer = &n->layers[i];
    if (layer->mask == NULL) {
      continue;
    }
    const int64_t count = bppsa_view_count(&n->base.parameters[layer->weight].value);
    void *w = weight_of(n, layer, gradients);
    for (int64_t k = 0; k < count; ++k) {
      if (layer->mask[k] == 0 && n->config.dtype == BPPSA_F32) {
        ((float *)w)[k] = 0;
      } else if (layer->mask[k] == 0) {
        ((double *)w)[k] = 0;
      }
    }
  }
}

/* ---- forward ---- */

static void forward_layer(const cnn *n, const cnn_layer *layer, const void *x) {
  switch (layer->about->op.kind) {
  case BPPSA_OPERATOR_CONV2D:
    bppsa_conv_forward(&layer->conv, n->batch, x, weight_of(n, layer, false), bias_of(n, layer, false), n->scratch, layer->y);
    break;
  case BPPSA_OPERATOR_LINEAR: {
    const bppsa_linear l = bppsa_cnn_linear(n, layer, n->batch);
    bppsa_linear_transpose(&l, weight_of(n, layer, false), n->transposed);
    bppsa_linear_forward(&l, x, n->transposed, bias_of(n, layer, false), layer->y);
    break;
  }
  default: {
    const bppsa_layer_call call = call_of(n, layer);
    bppsa_layer_forward(&call, x, layer->places, layer->y);
  }
  }
}

static bppsa_status forward(bppsa_model *model, const bppsa_view *x, const bppsa_view *h0, bppsa_view *logits) {
  cnn *n = (cnn *)model;
  const int64_t *in = n->network.in, shape[] = {x->ndim > 0 ? x->shape[0] : 0, in[0], in[1], in[2]};
  if (h0 != NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: an initial state, expected none", n->network.name);
  }
  BPPSA_TRY(check_view("input", x, n->config.dtype, 4, shape));
  if (shape[0] < 1 || shape[0] > n->config.batch) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "input: %lld samples, expected 1 .. %lld", (long long)shape[0],
                      (long long)n->config.batch);
  }
  n->x = x->data;
  n->batch = shape[0];
  n->seed = NULL;
  n->backward_done = false;
  apply_masks(n, false);
  for (int64_t i = 0; i < n->network.count; ++i) {
    forward_layer(n, &n->layers[i], input_of(n, i));
  }
  *logits = bppsa_view_make(n->layers[n->elements].y, n->config.dtype, 2, (int64_t[]){n->batch, n->base.classes});
  return BPPSA_OK;
}

/* ---- backward ---- */

/* g_{t-1} = J_tᵀ g_t by operator t itself. */
static void backward_layer(const cnn *n, int64_t t) {
  const cnn_layer *layer = &n->layers[t - 1];
  const void *dy = gradient(n, t);
  switch (layer->about->op.kind) {
  case BPPSA_OPERATOR_CONV2D:
    bppsa_conv_input_gradient(&layer->conv, n->batch, dy, weight_of(n, layer, false), n->scratch, gradient(n, t - 1));
    break;
  case BPPSA_OPERATOR_LINEAR: {
    const bppsa_linear l = bppsa_cnn_linear(n, layer, n->batch);
    bppsa_linear_input_gradient(&l, dy, weight_of(n, layer, false), gradient(n, t - 1));
    break;
  }
  default: {
    const bppsa_layer_call call = call_of(n, layer);
    bppsa_layer_backward(&call, dy, input_of(n, t - 1), layer->y, layer->places, gradient(n, t - 1));
  }
  }
}

static void weight_gradient(const cnn *n, const cnn_layer *layer, const void *dy, const void *x) {
  if (layer->weight < 0) {
    return;
  }
  void *dw = weight_of(n, layer, true), *db = bias_of(n, layer, true);
  if (layer->about->op.kind == BPPSA_OPERATOR_CONV2D) {
    bppsa_conv_weight_gradient(&layer->conv, n->batch, dy, x, n->scratch, n->sums, dw, db);
  } else {
    const bppsa_linear l = bppsa_cnn_linear(n, layer, n->batch);
    bppsa_linear_weight_gradient(&l, dy, x, dw, db, n->sums);
  }
}

/* The values of J_tᵀ that the scan multiplies. */
static bppsa_status fill_values(cnn *n, int64_t t) {
  cnn_layer *layer = &n->layers[t - 1];
  const bppsa_jacobian_operands operands = {.batch = n->batch,
                                            .weights = layer->weight >= 0 ? weight_of(n, layer, false) : NULL,
                                            .input = input_of(n, t - 1),
                                            .output = layer->y};
  n->csr_values[t - 1] = (bppsa_csr_values){layer->values, bppsa_jacobian_shared(layer->jt) ? 0 : n->patterns[t - 1]->nnz};
  return layer->values == NULL ? BPPSA_OK : bppsa_jacobian_fill(layer->jt, n->config.dtype, &operands, layer->values);
}

static bppsa_status run_scan(cnn *n) {
  for (int64_t t = 1; t <= n->elements; ++t) {
    BPPSA_TRY(fill_values(n, t));
  }
  const bppsa_scan_operands operands = {.batch = n->batch, .values = n->csr_values, .gradients = n->g};
  return n->scan->execute(n->scan, &operands);
}

static bppsa_status backward(bppsa_model *model, const bppsa_view *seed) {
  cnn *n = (cnn *)model;
  if (n->batch == 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "backward: no forward pass precedes it");
  }
  const cnn_layer *head = &n->layers[n->elements];
  BPPSA_TRY(check_view("seed", seed, n->config.dtype, 2, (int64_t[]){n->batch, n->base.classes}));
  n->seed = seed->data;
  const bppsa_linear l = bppsa_cnn_linear(n, head, n->batch);
  if (n->elements > 0 || n->config.input_gradients) {
    bppsa_linear_input_gradient(&l, n->seed, weight_of(n, head, false), gradient(n, n->elements));
  }
  weight_gradient(n, head, n->seed, input_of(n, n->elements));
  if (n->scan != NULL) {
    BPPSA_TRY(run_scan(n));
  }
  for (int64_t t = n->elements; t >= 1; --t) {
    if (n->scan == NULL && (t > 1 || n->config.input_gradients)) {
      backward_layer(n, t);
    }
    weight_gradient(n, &n->layers[t - 1], gradient(n, t), input_of(n, t - 1));
  }
  apply_masks(n, true);
  n->base.redone = n->scan != NULL ? n->scan->redone : 0;
  n->backward_done = true;
  return BPPSA_OK;
}

static bppsa_status input_gradients(bppsa_model *model, bppsa_view *x, bppsa_view *h0) {
  const cnn *n = (const cnn *)model;
  const int64_t *in = n->network.in;
  if (!n->config.input_gradients) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "input gradients: the model was created without them");
  }
  if (!n->backward_done) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "input gradients: no backward pass precedes them");
  }
  if (x != NULL) {
    *x = bppsa_view_make(gradient(n, 0), n->config.dtype, 4, (int64_t[]){n->batch, in[0], in[1], in[2]});
  }
  if (h0 != NULL) { /* there is no state */
    *h0 = bppsa_view_make(NULL, n->config.dtype, 1, (int64_t[]){0});
  }
  return BPPSA_OK;
}

/* ---- what is not finite ---- */

static bool find_in(const cnn *n, const char *what, const char *name, const void *values, int64_t size, bppsa_nonfinite *where) {
  const bppsa_view view = bppsa_view_make((void *)values, n->config.dtype, 2, (int64_t[]){n->batch, size});
  for (int64_t i = 0; i < n->batch * size; ++i) {
    if (!isfinite(bppsa_view_get(&view, i))) {
      *where = (bppsa_nonfinite){.what = what, .name = name, .layer = -1, .step = -1, .sample = i / size};
      return true;
    }
  }
  return false;
}

static bool find_nonfinite(bppsa_model *model, bppsa_nonfinite *where) {
  const cnn *n = (const cnn *)model;
  if (n->batch == 0) {
    return false;
  }
  if (find_in(n, "input", NULL, n->x, bppsa_cnn_size(&n->network, 0), where)) {
    return true;
  }
  for (int64_t i = 0; i < n->network.count; ++i) {
    const cnn_layer *layer = &n->layers[i];
    if (find_in(n, i == n->elements ? "logits of" : "output of", layer->about->name, layer->y, layer->out, where)) {
      return true;
    }
  }
  if (n->seed != NULL && find_in(n, "gradient of the logits", NULL, n->seed, n->base.classes, where)) {
    return true;
  }
  for (int64_t t = n->elements; n->backward_done && t >= 1; --t) {
    const cnn_layer *layer = &n->layers[t - 1];
    if (find_in(n, "gradient of the output of", layer->about->name, gradient(n, t), layer->out, where)) {
      return true;
    }
  }
  return false;
}

const bppsa_model_ops bppsa_cnn_ops = {.name = "cnn",
                                       .forward = forward,
                                       .backward = backward,
                                       .input_gradients = input_gradients,
                                       .find_nonfinite = find_nonfinite,
                                       .destroy = bppsa_cnn_destroy};
