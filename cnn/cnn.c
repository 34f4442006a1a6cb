/* Passes over a convolutional network. */
#include "cnn/cnn.h"

#include <math.h>
#include <string.h>

#include "cnn/cnn_internal.h"
#include "cnn/graph_gpu.h"
#include "cnn/norm.h"
#include "core/compute/device_buffer.h"

static void *at(const cnn *n, void *array, int64_t reals) {
  return (char *)array + reals * (int64_t)bppsa_dtype_size(n->config.dtype);
}

void *bppsa_cnn_gradient(const cnn *n, int64_t t) {
  return at(n, n->g, n->offsets[t] * n->batch);
}

/* A parameter's value or gradient, where the passes use it. In GPU memory parameters have the same offsets as their views. */
static void *parameter_of(const cnn *n, int64_t index, bool gradient) {
  const bppsa_parameter *first = n->base.parameters, *p = first + index;
  if (n->gpu == NULL) {
    return gradient ? p->gradient.data : p->value.data;
  }
  return (char *)(gradient ? n->base.device_gradients : n->base.device_values) +
         ((const char *)p->value.data - (const char *)first->value.data);
}

/* A layer's weight (0) or bias (1). */
static void *own_parameter(const cnn *n, const cnn_layer *layer, int64_t which, bool gradient) {
  void *const *lent = gradient ? layer->lent_gradients : layer->lent_values;
  return lent != NULL ? lent[which] : parameter_of(n, layer->weight + which, gradient);
}

void *bppsa_cnn_weight(const cnn *n, const cnn_layer *layer, bool gradient) {
  return own_parameter(n, layer, 0, gradient);
}

void *bppsa_cnn_bias(const cnn *n, const cnn_layer *layer, bool gradient) {
  return layer->about->bias ? own_parameter(n, layer, 1, gradient) : NULL;
}

bppsa_cnn_pass bppsa_cnn_pass_of(const cnn *n, const cnn_layer *layer, int64_t batch) {
  bppsa_cnn_pass pass = {.about = layer->about,
                         .conv = &layer->conv,
                         .dtype = n->config.dtype,
                         .threads = n->threads,
                         .batch = batch,
                         .in = layer->in,
                         .out = layer->out,
                         .scratch = n->scratch,
                         .sums = n->sums,
                         .transposed = n->transposed,
                         .kept = layer->kept,
                         .training = n->training};
  pass.training.layer = layer - n->layers;
  for (int64_t p = 0; layer->about->op.kind == BPPSA_OPERATOR_BATCHNORM2D && p < bppsa_cnn_parameters(layer->about); ++p) {
    pass.parameters[p] = own_parameter(n, layer, p, false);
    pass.gradients[p] = own_parameter(n, layer, p, true);
  }
  return pass;
}

static const void *weight_of(const cnn *n, const cnn_layer *layer) {
  return layer->weight < 0 ? NULL : bppsa_cnn_weight(n, layer, false);
}

const void *bppsa_cnn_output(const cnn *n, int64_t i) {
  return i < 0 ? n->x : n->layers[i].y;
}

const void *bppsa_cnn_input(const cnn *n, int64_t i) {
  return bppsa_cnn_output(n, bppsa_cnn_input_of(&n->network, i, 0));
}

bppsa_status bppsa_cnn_output_gradient(const cnn *n, int64_t t, const void **gradient) {
  if (bppsa_cnn_is_graph(&n->network)) {
    return bppsa_cnn_graph_gradient(n, t, gradient);
  }
  *gradient = bppsa_cnn_gradient(n, t);
  return BPPSA_OK;
}

/* A view of one of the network's arrays, on the network's device. */
static bppsa_view view_of(const cnn *n, const void *data, int32_t ndim, const int64_t *shape) {
  bppsa_view view = bppsa_view_make((void *)(uintptr_t)data, n->config.dtype, ndim, shape);
  view.device = bppsa_device_get_kind(n->device);
  return view;
}

/* words: the shape in letters. */
static bppsa_status check_view(const cnn *n, const char *what, const bppsa_view *view, const char *words, int32_t ndim,
                               const int64_t *shape) {
  const bppsa_view expected = view_of(n, NULL, ndim, shape);
  if (view->dtype == expected.dtype && bppsa_view_same_shape(view, &expected) && bppsa_view_contiguous(view) &&
      view->device == expected.device) {
    return bppsa_view_check_data(what, view);
  }
  char found[BPPSA_SHAPE_TEXT], wanted[BPPSA_SHAPE_TEXT], guess[BPPSA_SHAPE_TEXT];
  return bppsa_fail(BPPSA_ERR_SHAPE, "%s: %s %s%s, expected contiguous %s %s in %s memory%s", what, bppsa_dtype_name(view->dtype),
                    bppsa_shape_text(view->ndim, view->shape, found, sizeof found),
                    view->device == expected.device ? "" : " elsewhere", bppsa_dtype_name(expected.dtype),
                    bppsa_shape_text(ndim, shape, wanted, sizeof wanted), n->gpu == NULL ? "host" : "the GPU's",
                    bppsa_view_guess(words, view, ndim, shape, guess));
}

bppsa_status bppsa_cnn_activation(const bppsa_model *model, int64_t i, bppsa_view *activation) {
  BPPSA_REQUIRE(model != NULL && activation != NULL);
  const cnn *n = (const cnn *)model;
  if (i < -1 || i >= n->network.count || n->batch == 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "activation of layer %lld, expected -1 .. %lld after a forward pass", (long long)i,
                      (long long)n->network.count - 1);
  }
  const int64_t *s = i < 0 ? n->network.in : n->network.layers[i].out;
  *activation = view_of(n, bppsa_cnn_output(n, i), 4, (int64_t[]){n->batch, s[0], s[1], s[2]});
  return BPPSA_OK;
}

bppsa_status bppsa_cnn_scale(const bppsa_model *model, int64_t i, void *scale) {
  BPPSA_REQUIRE(model != NULL && scale != NULL);
  const cnn *n = (const cnn *)model;
  if (i < 0 || i >= n->network.count || n->network.layers[i].op.kind != BPPSA_OPERATOR_BATCHNORM2D) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "scale of layer %lld, expected a batch norm", (long long)i);
  }
  bppsa_cnn_pass pass = bppsa_cnn_pass_of(n, &n->layers[i], 1);
  pass.training.samples = NULL;
  bppsa_norm_scale(&pass, scale);
  return BPPSA_OK;
}

/* ---- masks ---- */

const uint8_t *bppsa_cnn_mask(const bppsa_model *model, int64_t i) {
  const cnn *n = (const cnn *)model;
  return i >= 0 && i < n->network.count ? n->layers[i].mask : NULL;
}

/* Sets a layer's masked weights to 0, or their gradients. */
static void apply_mask(const cnn *n, const cnn_layer *layer, bool gradients) {
  if (layer->mask == NULL) {
    return;
  }
  const int64_t count = bppsa_view_count(&n->base.parameters[layer->weight].value);
  void *w = bppsa_cnn_weight(n, layer, gradients);
  for (int64_t k = 0; k < count; ++k) {
    if (layer->mask[k] == 0 && n->config.dtype == BPPSA_F32) {
      ((float *)w)[k] = 0;
    } else if (layer->mask[k] == 0) {
      ((double *)w)[k] = 0;
    }
  }
}

/* ---- forward ---- */

static void forward_layer(const cnn *n, const cnn_layer *layer, const void *x) {
  const bppsa_cnn_pass pass = bppsa_cnn_pass_of(n, layer, n->batch);
  const void *weight = weight_of(n, layer), *bias = weight != NULL ? bppsa_cnn_bias(n, layer, false) : NULL;
  bppsa_cnn_pass_forward(&pass, x, weight, bias, layer->places, layer->y);
}

static bppsa_status forward_here(const cnn *n) {
  for (int64_t i = 0; i < n->network.count; ++i) {
    apply_mask(n, &n->layers[i], false);
    if (n->network.layers[i].node != BPPSA_CNN_OPERATOR) {
      BPPSA_TRY(bppsa_cnn_graph_forward(n, i));
    } else {
      forward_layer(n, &n->layers[i], bppsa_cnn_input(n, i));
    }
  }
  return BPPSA_OK;
}

/* A variance needs two numbers of each channel. */
static bppsa_status check_statistics(const cnn *n, int64_t samples) {
  const bool by_batch = n->training.samples != NULL && n->training.batch_statistics;
  for (int64_t i = 0; by_batch && i < n->network.count; ++i) {
    const bppsa_cnn_layer *layer = &n->network.layers[i];
    if (layer->op.kind == BPPSA_OPERATOR_BATCHNORM2D && samples * layer->op.in[1] * layer->op.in[2] < 2) {
      return bppsa_fail(BPPSA_ERR_SHAPE,
                        "%s: one number for each channel, expected two or more, of which a batch norm takes the variance, or "
                        "--batch-norm given",
                        layer->name);
    }
  }
  return BPPSA_OK;
}

static bppsa_status forward(bppsa_model *model, const bppsa_view *x, const bppsa_view *h0, bppsa_view *logits) {
  BPPSA_REQUIRE(x != NULL);
  cnn *n = (cnn *)model;
  const int64_t *in = n->network.in, shape[] = {x->ndim > 0 ? x->shape[0] : 0, in[0], in[1], in[2]};
  if (h0 != NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: an initial state, expected none", n->network.name);
  }
  BPPSA_TRY(check_view(n, "input", x, "[B, C, H, W]", 4, shape));
  if (shape[0] < 1 || shape[0] > n->config.batch) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "input: %lld samples, expected 1 .. %lld", (long long)shape[0],
                      (long long)n->config.batch);
  }
  BPPSA_TRY(check_statistics(n, shape[0]));
  n->x = x->data;
  n->batch = shape[0];
  n->seed = NULL;
  n->backward_done = false;
  BPPSA_TRY(n->gpu != NULL ? bppsa_cnn_cuda_forward(n) : forward_here(n));
  *logits = view_of(n, n->layers[n->elements].y, 2, (int64_t[]){n->batch, n->base.classes});
  return BPPSA_OK;
}

/* ---- backward ---- */

/* g_{t-1} = J_tᵀ g_t by operator t itself; in a graph, its part of the gradients of the tensors that it reads. */
static bppsa_status backward_layer(const cnn *n, int64_t t) {
  if (bppsa_cnn_is_graph(&n->network)) {
    return bppsa_cnn_graph_backward(n, t);
  }
  const cnn_layer *layer = &n->layers[t - 1];
  const bppsa_cnn_pass pass = bppsa_cnn_pass_of(n, layer, n->batch);
  bppsa_cnn_pass_input_gradient(&pass, bppsa_cnn_gradient(n, t), weight_of(n, layer), bppsa_cnn_input(n, t - 1), layer->y,
                                layer->places, bppsa_cnn_gradient(n, t - 1));
  return BPPSA_OK;
}

/* Computes the gradients of the weights of layer i, from 0; these end its part of the pass. */
static bppsa_status weight_gradient(const cnn *n, int64_t i) {
  const cnn_layer *layer = &n->layers[i];
  const void *dy = n->seed, *x = bppsa_cnn_input(n, i);
  if (layer->weight < 0) {
    return BPPSA_OK;
  }
  BPPSA_TRY(i == n->elements ? BPPSA_OK : bppsa_cnn_output_gradient(n, i + 1, &dy));
  void *dw = bppsa_cnn_weight(n, layer, true), *db = bppsa_cnn_bias(n, layer, true);
  const bppsa_cnn_pass pass = bppsa_cnn_pass_of(n, layer, n->batch);
  if (bppsa_cnn_is_affine(layer->about)) {
    BPPSA_TRY(bppsa_cnn_graph_weight_gradient(n, i, dy, NULL));
  } else {
    bppsa_cnn_pass_weight_gradient(&pass, dy, x, dw, db);
  }
  apply_mask(n, layer, true);
  bppsa_model_ready(&n->base, layer->weight, bppsa_cnn_parameters(layer->about));
  return BPPSA_OK;
}

/* The factors by which a dropout multiplies: ones in a pass that is none of training. */
static bppsa_status fill_dropped(const cnn *n, const cnn_layer *layer, const bppsa_cnn_pass *pass, void *values) {
  const int64_t count = n->batch * layer->out;
  if (n->gpu != NULL) {
    return pass->training.samples != NULL
               ? bppsa_cnn_cuda_drop_factors(n, layer, values)
               : bppsa_move_queue_ones(bppsa_device_get_stream(n->device), n->config.dtype, count, values);
  }
  for (int64_t i = 0; pass->training.samples == NULL && i < count; ++i) {
    if (n->config.dtype == BPPSA_F32) {
      ((float *)values)[i] = 1;
    } else {
      ((double *)values)[i] = 1;
    }
  }
  if (pass->training.samples != NULL) {
    bppsa_dropout_apply(pass, NULL, values);
  }
  return BPPSA_OK;
}

/* The values of a batch norm's or a dropout's J_tᵀ: the factors of its channels, or of its numbers. */
static bppsa_status fill_scaled(const cnn *n, const cnn_layer *layer, const bppsa_cnn_pass *pass, void *values) {
  if (layer->about->op.kind != BPPSA_OPERATOR_BATCHNORM2D) {
    return fill_dropped(n, layer, pass, values);
  }
  const bppsa_jacobian_operands operands = {.batch = n->batch, .scale = layer->kept};
  if (n->gpu != NULL) {
    BPPSA_TRY(bppsa_norm_queue_scale(bppsa_device_get_stream(n->device), pass, layer->kept));
  } else {
    bppsa_norm_scale(pass, layer->kept);
  }
  return bppsa_jacobian_fill(layer->jt, n->config.dtype, &operands, values);
}

/* Writes the layer's own entries of J_tᵀ. Each sample has `stride` reals. */
static bppsa_status fill_own(const cnn *n, int64_t t, int64_t stride, void *values) {
  const cnn_layer *layer = &n->layers[t - 1];
  const bppsa_cnn_pass pass = bppsa_cnn_pass_of(n, layer, n->batch);
  const bppsa_jacobian_operands operands = {.batch = n->batch,
                                            .weights = layer->weight >= 0 ? bppsa_cnn_weight(n, layer, false) : NULL,
                                            .input = bppsa_cnn_input(n, t - 1),
                                            .output = layer->y};
  if (bppsa_cnn_has_blocks(layer->about)) {
    return bppsa_cnn_graph_fill(n, t, stride, values);
  }
  return bppsa_op_is_scaled(&layer->about->op) ? fill_scaled(n, layer, &pass, values)
                                               : bppsa_jacobian_fill(layer->jt, n->config.dtype, &operands, values);
}

/* Computes the values of J_tᵀ that the scan multiplies. */
static bppsa_status fill_values(cnn *n, int64_t t) {
  const cnn_layer *layer = &n->layers[t - 1];
  const bool shared = layer->constant || (layer->jt != NULL && bppsa_jacobian_shared(layer->jt));
  const int64_t all = n->patterns[t - 1]->nnz, stride = shared ? 0 : all, own = shared ? 0 : layer->own_entries;
  n->csr_values[t - 1] = (bppsa_csr_values){layer->values, stride};
  if (layer->entry_places == NULL) {
    return layer->values == NULL || layer->constant ? BPPSA_OK : fill_own(n, t, all, layer->values);
  }
  BPPSA_TRY(fill_own(n, t, layer->own_entries, n->entries));
  return bppsa_move_queue_scattered(bppsa_device_get_stream(n->device), n->config.dtype, shared ? 1 : n->batch,
                                    layer->own_entries, layer->entry_places, (bppsa_cnn_part_view){n->entries, own},
                                    (bppsa_cnn_part_view){layer->values, stride});
}

bppsa_status bppsa_cnn_run_scan(cnn *n) {
  for (int64_t t = 1; t <= n->elements; ++t) {
    BPPSA_TRY(fill_values(n, t));
  }
  const bppsa_scan_operands operands = {.batch = n->batch, .values = n->csr_values, .gradients = n->g};
  return n->scan->execute(n->scan, &operands);
}

/* g_n = W_headᵀ seed */
static void backward_head(const cnn *n) {
  const cnn_layer *head = &n->layers[n->elements];
  const bppsa_cnn_pass pass = bppsa_cnn_pass_of(n, head, n->batch);
  bppsa_cnn_pass_input_gradient(&pass, n->seed, weight_of(n, head), NULL, NULL, NULL, bppsa_cnn_gradient(n, n->elements));
}

static bppsa_status backward_here(cnn *n) {
  if (n->elements > 0 || n->config.input_gradients) {
    backward_head(n);
  }
  BPPSA_TRY(weight_gradient(n, n->elements));
  if (n->scan != NULL) {
    BPPSA_TRY(bppsa_cnn_run_scan(n));
  } else if (bppsa_cnn_is_graph(&n->network)) {
    bppsa_cnn_graph_begin(n);
  }
  for (int64_t t = n->elements; t >= 1; --t) {
    if (n->scan == NULL && (t > 1 || n->config.input_gradients)) { /* in a graph, layer 0 reads the network's input too */
      BPPSA_TRY(backward_layer(n, t));
    }
    if (t > n->delayed) {
      BPPSA_TRY(weight_gradient(n, t - 1));
    }
  }
  for (int64_t i = 0; i < n->delayed; ++i) {
    BPPSA_TRY(weight_gradient(n, i));
  }
  return BPPSA_OK;
}

static bppsa_status backward(bppsa_model *model, const bppsa_view *seed) {
  BPPSA_REQUIRE(seed != NULL);
  cnn *n = (cnn *)model;
  if (n->batch == 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "backward: no forward pass precedes it");
  }
  BPPSA_TRY(check_view(n, "seed", seed, "[B, C]", 2, (int64_t[]){n->batch, n->base.classes}));
  n->seed = seed->data;
  BPPSA_TRY(n->gpu != NULL ? bppsa_cnn_cuda_backward(n) : backward_here(n));
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
    *x = view_of(n, bppsa_cnn_gradient(n, 0), 4, (int64_t[]){n->batch, in[0], in[1], in[2]});
  }
  if (h0 != NULL) { /* the model has no state */
    *h0 = view_of(n, NULL, 1, (int64_t[]){0});
  }
  return BPPSA_OK;
}

/* ---- values that are not finite ---- */

/* Searches an array. Values on a GPU are copied first; an array that cannot be copied is skipped. */
static bool find_in(const cnn *n, const char *what, const char *name, const void *values, int64_t size, bppsa_nonfinite *where) {
  bppsa_view view = view_of(n, values, 2, (int64_t[]){n->batch, size});
  bppsa_buffer copy = {0};
  if (n->gpu != NULL && bppsa_buffer_fetch(n->device, &view, &copy) != BPPSA_OK) {
    return false;
  }
  view = n->gpu != NULL ? copy.view : view;
  bool found = false;
  for (int64_t i = 0; !found && i < n->batch * size; ++i) {
    if (!isfinite(bppsa_view_get(&view, i))) {
      *where = (bppsa_nonfinite){.what = what, .name = name, .layer = -1, .step = -1, .sample = i / size};
      found = true;
    }
  }
  bppsa_buffer_free(&copy);
  return found;
}

/* Searches g_n .. g_1. Where they share memory, each is computed once more. */
static bool find_gradient(const cnn *n, bppsa_nonfinite *where) {
  const bool again = bppsa_cnn_reuses(n);
  if (again && n->elements > 0) {
    backward_head(n);
  }
  for (int64_t t = n->elements; t >= 1; --t) {
    const cnn_layer *layer = &n->layers[t - 1];
    const void *gradient;
    if (bppsa_cnn_output_gradient(n, t, &gradient) == BPPSA_OK &&
        find_in(n, "gradient of the output of", layer->about->name, gradient, layer->out, where)) {
      return true;
    }
    if (again && (t > 1 || n->config.input_gradients)) {
      (void)backward_layer(n, t); /* a chain's on a CPU, which cannot fail */
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
  return n->backward_done && find_gradient(n, where);
}

static void drop(bppsa_model *model, int64_t step, const int64_t *samples) {
  cnn *n = (cnn *)model;
  n->training.step = step;
  n->training.samples = samples;
  if (n->gpu != NULL) {
    bppsa_cnn_cuda_tell_step(n, step);
  }
}

static void forget(bppsa_model *model) {
  cnn *n = (cnn *)model;
  n->training.samples = NULL;
  n->batch = 0;
  n->x = n->seed = NULL;
  n->backward_done = false;
}

const bppsa_model_ops bppsa_cnn_ops = {.name = "cnn",
                                       .forward = forward,
                                       .backward = backward,
                                       .input_gradients = input_gradients,
                                       .find_nonfinite = find_nonfinite,
                                       .delay = bppsa_cnn_delay,
                                       .destroy = bppsa_cnn_destroy,
                                       .drop = drop,
                                       .forget = forget};
