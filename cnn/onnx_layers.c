/* The nodes of an ONNX model that become layers. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cnn/onnx_internal.h"
#include "core/base/alloc.h"
#include "core/base/text.h"

/* ---- layers of any kind ---- */

const int64_t *bppsa_onnx_shape(const onnx_reader *r, const onnx_value *value) {
  return value->layer < 0 ? r->network.in : r->network.layers[value->layer].out;
}

bppsa_status bppsa_onnx_axis(const onnx_value *value, int64_t axis, int *found) {
  const int64_t place = axis < 0 ? axis + value->axes : axis;
  if (place < 1 || place >= value->axes) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "axis %" PRId64 ", expected one of 1 .. %d", axis, value->axes - 1);
  }
  *found = value->axes == 3 && place == 2 ? 2 : (int)place - 1; /* [C, L] is [C, 1, L] */
  return BPPSA_OK;
}

/* Makes room for a layer with `count` inputs. */
static bppsa_status grow(onnx_reader *r, int64_t count) {
  bppsa_cnn_network *n = &r->network;
  if (n->count == BPPSA_CNN_MOST_LAYERS) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "more than %d layers, expected at most those", BPPSA_CNN_MOST_LAYERS);
  }
  BPPSA_TRY(bppsa_grow(&n->layers, n->count, &r->layer_room, sizeof *n->layers));
  BPPSA_TRY(bppsa_grow(&n->input_ptr, n->count + 1, &r->pointer_room, sizeof *n->input_ptr));
  for (int64_t k = 0; k < count; ++k) {
    BPPSA_TRY(bppsa_grow(&n->inputs, r->input_count + k, &r->input_room, sizeof *n->inputs));
  }
  return BPPSA_OK;
}

bppsa_status bppsa_onnx_append(onnx_reader *r, bppsa_cnn_layer *layer, int64_t count, onnx_value *const *inputs,
                               const onnx_value *weight, int32_t *place) {
  bppsa_cnn_network *n = &r->network;
  const int64_t i = n->count;
  BPPSA_TRY(grow(r, count));
  for (int64_t k = 0; k < count; ++k) {
    n->inputs[r->input_count + k] = inputs[k]->layer;
  }
  n->input_ptr[i] = r->input_count;
  n->input_ptr[i + 1] = r->input_count + count;
  memcpy(layer->op.in, bppsa_onnx_shape(r, inputs[0]), sizeof layer->op.in);
  BPPSA_TRY(layer->node == BPPSA_CNN_OPERATOR ? bppsa_cnn_operator_shape(layer) : bppsa_cnn_node_shape(n, i, layer));
  if (layer->node == BPPSA_CNN_GROUPNORM) { /* its parameters' shape is set when the layers are put in order */
    layer->extents = layer->shape[0] = 0;
  }
  BPPSA_TRY(bppsa_onnx_name(r, weight != NULL ? weight->name : NULL, layer));
  n->layers[n->count++] = *layer;
  r->input_count += count;
  *place = (int32_t)i;
  return BPPSA_OK;
}

bppsa_status bppsa_onnx_give(onnx_reader *r, bppsa_cnn_layer *layer, int64_t count, onnx_value *const *inputs,
                             const onnx_value *weight) {
  onnx_value given = *inputs[0];
  for (int64_t k = 1; k < count; ++k) {
    if (inputs[k]->axes != given.axes) {
      return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "inputs of %d and %d axes, expected as many", given.axes, inputs[k]->axes);
    }
  }
  BPPSA_TRY(bppsa_onnx_append(r, layer, count, inputs, weight, &given.layer));
  given.own = true;
  return bppsa_onnx_define(r, 0, given);
}

static bppsa_status add_weight(onnx_reader *r, int32_t layer, const char *word, const bppsa_view *view) {
  BPPSA_TRY(bppsa_grow(&r->weights, r->weight_count, &r->weight_room, sizeof *r->weights));
  onnx_weight *w = &r->weights[r->weight_count++];
  snprintf(w->name, sizeof w->name, "%s.%s", r->network.layers[layer].prefix, word);
  w->view = *view;
  return BPPSA_OK;
}

bppsa_status bppsa_onnx_parameter(onnx_reader *r, int32_t layer, const char *word, onnx_value *value, int32_t axes,
                                  const int64_t *shape) {
  const bppsa_view *view = &value->view, wanted = bppsa_view_make(NULL, view->dtype, axes, shape);
  const bool reals =
      view->dtype == BPPSA_F32 || view->dtype == BPPSA_F64 || view->dtype == BPPSA_F16 || view->dtype == BPPSA_BF16;
  char found[BPPSA_SHAPE_TEXT], expected[BPPSA_SHAPE_TEXT];
  if (!bppsa_view_same_shape(view, &wanted) || !reals) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "input '%.60s' is %s of %s, expected reals %s", value->name,
                      bppsa_shape_text(view->ndim, view->shape, found, sizeof found), bppsa_view_dtype_name(view),
                      bppsa_shape_text(axes, shape, expected, sizeof expected));
  }
  const bool joins = bppsa_cnn_has_weights(&r->network.layers[layer]) && strcmp(word, "weight") == 0;
  if (joins && value->taken) { /* exporters share what is equal, such as biases of 0 */
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "input '%.60s' is another layer's parameter too, expected one of its own",
                      value->name);
  }
  value->taken = value->taken || joins;
  return add_weight(r, layer, word, view);
}

/* Inputs 1, 2, .. are parameters of those words, all of one shape. A missing bias is zeros. */
static bppsa_status parameters(onnx_reader *r, int32_t layer, int count, const char *const *words, int32_t axes,
                               const int64_t *shape) {
  for (int k = 0; k < count; ++k) {
    onnx_value *value = NULL;
    BPPSA_TRY(bppsa_onnx_input(r, (size_t)k + 1, &value));
    if (value == NULL && strcmp(words[k], "bias") == 0) {
      bppsa_view zeros = bppsa_view_make(NULL, BPPSA_F32, axes, shape);
      zeros.data = bppsa_onnx_own(r, (int64_t)bppsa_view_bytes(&zeros));
      BPPSA_TRY(zeros.data == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK);
      memset(zeros.data, 0, bppsa_view_bytes(&zeros));
      BPPSA_TRY(add_weight(r, layer, words[k], &zeros));
      continue;
    }
    BPPSA_TRY(bppsa_onnx_constant(r, (size_t)k + 1, &value));
    BPPSA_TRY(bppsa_onnx_parameter(r, layer, words[k], value, axes, shape));
  }
  return BPPSA_OK;
}

/* ---- windows ---- */

/* ONNX pads so that the output has the input's extent over the stride; what is odd goes behind (SAME_UPPER) or in front. */
static void pad_same(bool upper, int axis, int64_t in, bppsa_op *op) {
  const int64_t stride = op->stride[axis], kernel = op->kernel[axis], dilation = op->dilation[axis];
  if (stride < 1 || kernel < 1 || dilation < 1 || stride > INT32_MAX || kernel > INT32_MAX || dilation > INT32_MAX) {
    return; /* the rule of shapes refuses it */
  }
  const int64_t need = ((in + stride - 1) / stride - 1) * stride + (kernel - 1) * dilation + 1 - in, all = need > 0 ? need : 0;
  op->padding[2 * axis] = upper ? all / 2 : all - all / 2;
  op->padding[2 * axis + 1] = all - op->padding[2 * axis];
}

/* Reads strides, dilations and padding of a window over the last one or two axes, whose kernel has been read before. */
static bppsa_status read_window(onnx_reader *r, const onnx_value *value, bppsa_op *op) {
  const int n = value->axes - 2, skip = 2 - n; /* a line's window is one position high */
  const int64_t *in = bppsa_onnx_shape(r, value);
  int64_t pads[4] = {0};
  BPPSA_TRY(bppsa_onnx_list(r, "strides", n, op->stride + skip));
  BPPSA_TRY(bppsa_onnx_list(r, "dilations", n, op->dilation + skip));
  BPPSA_TRY(bppsa_onnx_list(r, "pads", 2 * n, pads));
  const bool upper = bppsa_onnx_is(r, "auto_pad", "SAME_UPPER"), lower = bppsa_onnx_is(r, "auto_pad", "SAME_LOWER");
  for (int k = 0; k < n; ++k) {
    op->padding[2 * (skip + k)] = pads[k];
    op->padding[2 * (skip + k) + 1] = pads[n + k];
    if (upper || lower) {
      pad_same(upper, skip + k, in[1 + skip + k], op);
    }
  }
  return BPPSA_OK;
}

static bppsa_status check_images(const onnx_value *value) {
  return value->axes >= 3 ? BPPSA_OK : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "an input [N, C], expected [N, C, L] or [N, C, H, W]");
}

static bppsa_status read_conv(onnx_reader *r) {
  onnx_value *value = NULL, *weight = NULL, *bias = NULL;
  int32_t place;
  int64_t shape[4];
  BPPSA_TRY(bppsa_onnx_activation(r, 0, &value));
  BPPSA_TRY(bppsa_onnx_constant(r, 1, &weight));
  BPPSA_TRY(bppsa_onnx_input(r, 2, &bias));
  BPPSA_TRY(check_images(value));
  const bppsa_view *w = &weight->view;
  if (w->ndim != value->axes) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "a weight of %d axes, expected %d", (int)w->ndim, value->axes);
  }
  bppsa_cnn_layer layer = {.op = bppsa_op_default(BPPSA_OPERATOR_CONV2D), .line = value->axes == 3, .bias = bias != NULL};
  layer.op.out_channels = w->shape[0];
  layer.op.kernel[1] = w->shape[w->ndim - 1];
  layer.op.kernel[0] = layer.line ? 1 : w->shape[2];
  layer.op.groups = bppsa_onnx_whole(r, "group", 1);
  BPPSA_TRY(read_window(r, value, &layer.op));
  onnx_value given = *value;
  BPPSA_TRY(bppsa_onnx_append(r, &layer, 1, &value, weight, &place));
  const int32_t axes = bppsa_cnn_weight_shape(&layer, shape);
  BPPSA_TRY(bppsa_onnx_parameter(r, place, "weight", weight, axes, shape));
  if (bias != NULL) {
    BPPSA_TRY(bppsa_onnx_constant(r, 2, &bias));
    BPPSA_TRY(bppsa_onnx_parameter(r, place, "bias", bias, 1, shape));
  }
  given.layer = place;
  return bppsa_onnx_define(r, 0, given);
}

static bppsa_status give_pool(onnx_reader *r, bppsa_operator kind) {
  onnx_value *value = NULL;
  BPPSA_TRY(bppsa_onnx_activation(r, 0, &value));
  BPPSA_TRY(check_images(value));
  bppsa_cnn_layer layer = {.op = bppsa_op_default(kind)};
  if (bppsa_onnx_attribute(r, "kernel_shape") == NULL) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "no kernel_shape, expected one");
  }
  BPPSA_TRY(bppsa_onnx_list(r, "kernel_shape", value->axes - 2, layer.op.kernel + (4 - value->axes)));
  BPPSA_TRY(read_window(r, value, &layer.op));
  layer.op.ceil_mode = bppsa_onnx_whole(r, "ceil_mode", 0) != 0;
  layer.op.exclude_pad = kind == BPPSA_OPERATOR_AVGPOOL2D && bppsa_onnx_whole(r, "count_include_pad", 0) == 0;
  return r->node->n_output > 1 && r->node->output[1][0] != '\0'
             ? bppsa_fail(BPPSA_ERR_UNSUPPORTED, "the output of indices, expected none")
             : bppsa_onnx_give(r, &layer, 1, &value, NULL);
}

static bppsa_status read_maxpool(onnx_reader *r) {
  return give_pool(r, BPPSA_OPERATOR_MAXPOOL2D);
}

static bppsa_status read_avgpool(onnx_reader *r) {
  return give_pool(r, BPPSA_OPERATOR_AVGPOOL2D);
}

/* The mean over all positions; without `keep` the output is [N, C]. */
static bppsa_status give_mean(onnx_reader *r, onnx_value *value, bool keep) {
  bppsa_cnn_layer layer = {.op = bppsa_op_default(BPPSA_OPERATOR_GLOBAL_AVGPOOL)};
  onnx_value given = *value;
  BPPSA_TRY(check_images(value));
  BPPSA_TRY(bppsa_onnx_append(r, &layer, 1, &value, NULL, &given.layer));
  given.axes = keep ? given.axes : 2;
  return bppsa_onnx_define(r, 0, given);
}

static bppsa_status read_global_avgpool(onnx_reader *r) {
  onnx_value *value = NULL;
  BPPSA_TRY(bppsa_onnx_activation(r, 0, &value));
  return give_mean(r, value, true);
}

/* A mean over all positions of an image; `axes` is an attribute up to opset 17, then an input. */
static bppsa_status read_mean(onnx_reader *r) {
  onnx_value *value = NULL, *list = NULL;
  int64_t axes[ONNX_DIMS];
  int count = 0;
  BPPSA_TRY(bppsa_onnx_activation(r, 0, &value));
  BPPSA_TRY(bppsa_onnx_input(r, 1, &list));
  const BppsaOnnx__Attribute *a = bppsa_onnx_attribute(r, "axes");
  if (list != NULL) {
    BPPSA_TRY(bppsa_onnx_constant(r, 1, &list));
    BPPSA_TRY(bppsa_onnx_wholes(list, axes, &count));
  } else if (a != NULL && a->n_ints <= ONNX_DIMS) {
    count = (int)a->n_ints;
    memcpy(axes, a->ints, a->n_ints * sizeof *axes);
  }
  unsigned seen = 0;
  for (int i = 0; i < count; ++i) {
    int axis;
    BPPSA_TRY(bppsa_onnx_axis(value, axes[i], &axis));
    seen |= 1u << axis;
  }
  const bool all = value->axes == 4 ? seen == 6 : value->axes == 3 && seen == 4;
  return all ? give_mean(r, value, bppsa_onnx_whole(r, "keepdims", 1) != 0)
             : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "a mean over other axes, expected one over height and width");
}

/* ---- linear operators ---- */

/* Weights [in][out] become [out][in]. */
static bppsa_status transpose(onnx_reader *r, const bppsa_view *from, bppsa_view *to) {
  const int64_t rows = from->shape[0], columns = from->shape[1], size = (int64_t)bppsa_dtype_size(from->dtype);
  char *data = bppsa_onnx_own(r, rows * columns * size);
  if (data == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      memcpy(data + (j * rows + i) * size, (const char *)from->data + (i * columns + j) * size, (size_t)size);
    }
  }
  *to = bppsa_view_make(data, from->dtype, 2, (int64_t[]){columns, rows});
  return BPPSA_OK;
}

/* y = W x + b for an input [N, C]; rows: the weight is [in][out]. */
static bppsa_status give_linear(onnx_reader *r, bool rows, onnx_value *bias) {
  onnx_value *value = NULL, *weight = NULL;
  int32_t place;
  BPPSA_TRY(bppsa_onnx_activation(r, 0, &value));
  BPPSA_TRY(bppsa_onnx_constant(r, 1, &weight));
  if (value->axes != 2 || weight->view.ndim != 2) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "an input of %d axes and a weight of %d, expected [N, C] and two axes", value->axes,
                      (int)weight->view.ndim);
  }
  if (rows && !weight->taken) {
    BPPSA_TRY(transpose(r, &weight->view, &weight->view));
  }
  bppsa_cnn_layer layer = {.op = bppsa_op_default(BPPSA_OPERATOR_LINEAR), .bias = bias != NULL};
  layer.op.out_channels = weight->view.shape[0];
  onnx_value given = *value;
  BPPSA_TRY(bppsa_onnx_append(r, &layer, 1, &value, weight, &place));
  int64_t shape[4];
  const int32_t axes = bppsa_cnn_weight_shape(&layer, shape);
  BPPSA_TRY(bppsa_onnx_parameter(r, place, "weight", weight, axes, shape));
  BPPSA_TRY(bias != NULL ? bppsa_onnx_parameter(r, place, "bias", bias, 1, shape) : BPPSA_OK);
  given.layer = place;
  given.own = true;
  return bppsa_onnx_define(r, 0, given);
}

static bppsa_status read_gemm(onnx_reader *r) {
  onnx_value *bias = NULL;
  BPPSA_TRY(bppsa_onnx_input(r, 2, &bias));
  if (bias != NULL) {
    BPPSA_TRY(bppsa_onnx_constant(r, 2, &bias));
  }
  const bool plain =
      bppsa_onnx_whole(r, "transA", 0) == 0 && bppsa_onnx_real(r, "alpha", 1) == 1 && bppsa_onnx_real(r, "beta", 1) == 1;
  return plain ? give_linear(r, bppsa_onnx_whole(r, "transB", 0) == 0, bias)
               : bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                            "transA, alpha or beta given, expected the product of the input and weights, and a bias");
}

static bppsa_status read_matmul(onnx_reader *r) {
  return give_linear(r, true, NULL);
}

/* ---- normalisations ---- */

static bppsa_status read_batch_norm(onnx_reader *r) {
  static const char *const words[] = {"weight", "bias", "running_mean", "running_var"};
  onnx_value *value = NULL, *weight = NULL;
  BPPSA_TRY(bppsa_onnx_activation(r, 0, &value));
  BPPSA_TRY(bppsa_onnx_constant(r, 1, &weight));
  bppsa_cnn_layer layer = {.op = bppsa_op_default(BPPSA_OPERATOR_BATCHNORM2D), .bias = true};
  layer.op.epsilon = bppsa_onnx_real(r, "epsilon", 1e-5);
  layer.op.momentum = round((1 - bppsa_onnx_real(r, "momentum", 0.9)) * 1e9) / 1e9; /* ONNX weighs what was, PyTorch the batch */
  if (bppsa_onnx_whole(r, "training_mode", 0) != 0) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "training_mode is set, expected a model exported for evaluation");
  }
  onnx_value given = *value;
  BPPSA_TRY(bppsa_onnx_append(r, &layer, 1, &value, weight, &given.layer));
  BPPSA_TRY(parameters(r, given.layer, 4, words, 1, layer.op.in));
  return bppsa_onnx_define(r, 0, given);
}

/* A norm with a weight and a bias of that shape, inputs 1 and 2. */
static bppsa_status give_norm(onnx_reader *r, onnx_value *value, bppsa_cnn_layer *layer, int32_t axes, const int64_t *shape) {
  static const char *const words[] = {"weight", "bias"};
  onnx_value given = *value, *weight = NULL;
  BPPSA_TRY(bppsa_onnx_constant(r, 1, &weight));
  BPPSA_TRY(bppsa_onnx_append(r, layer, 1, &value, weight, &given.layer));
  BPPSA_TRY(parameters(r, given.layer, 2, words, axes, shape));
  return bppsa_onnx_define(r, 0, given);
}

static bppsa_status read_layer_norm(onnx_reader *r) {
  onnx_value *value = NULL;
  BPPSA_TRY(bppsa_onnx_activation(r, 0, &value));
  bppsa_cnn_layer layer = {.op = bppsa_op_default(BPPSA_OPERATOR_FLATTEN), .node = BPPSA_CNN_LAYERNORM, .bias = true};
  const int64_t asked = bppsa_onnx_whole(r, "axis", -1), first = asked < 0 ? asked + value->axes : asked;
  layer.op.epsilon = bppsa_onnx_real(r, "epsilon", 1e-5);
  for (int64_t axis = first; axis < value->axes || axis == first; ++axis) {
    int found;
    BPPSA_TRY(bppsa_onnx_axis(value, axis, &found));
    layer.shape[layer.extents++] = bppsa_onnx_shape(r, value)[found];
  }
  return give_norm(r, value, &layer, (int32_t)layer.extents, layer.shape);
}

static bppsa_status give_group_norm(onnx_reader *r, onnx_value *value, int64_t groups) {
  bppsa_cnn_layer layer = {.op = bppsa_op_default(BPPSA_OPERATOR_FLATTEN), .node = BPPSA_CNN_GROUPNORM, .bias = true};
  layer.op.groups = groups;
  layer.op.epsilon = bppsa_onnx_real(r, "epsilon", 1e-5);
  return give_norm(r, value, &layer, 1, bppsa_onnx_shape(r, value));
}

static bppsa_status read_group_norm(onnx_reader *r) {
  onnx_value *value = NULL;
  BPPSA_TRY(bppsa_onnx_activation(r, 0, &value));
  return r->opset >= 21 ? give_group_norm(r, value, bppsa_onnx_whole(r, "num_groups", 1))
                        : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "weights of groups, as up to opset 20, expected opset 21");
}

static bppsa_status read_instance_norm(onnx_reader *r) {
  onnx_value *value = NULL;
  BPPSA_TRY(bppsa_onnx_activation(r, 0, &value));
  return give_group_norm(r, value, bppsa_onnx_shape(r, value)[0]);
}

static bppsa_status read_softmax(onnx_reader *r) {
  onnx_value *value = NULL;
  int axis;
  BPPSA_TRY(bppsa_onnx_activation(r, 0, &value));
  BPPSA_TRY(bppsa_onnx_axis(value, bppsa_onnx_whole(r, "axis", -1), &axis));
  bppsa_cnn_layer layer = {.op = bppsa_op_default(BPPSA_OPERATOR_FLATTEN), .node = BPPSA_CNN_SOFTMAX, .axis = axis};
  return bppsa_onnx_give(r, &layer, 1, &value, NULL);
}

/* ---- functions of single numbers ---- */

static bppsa_status give_function(onnx_reader *r, bppsa_operator kind) {
  onnx_value *value = NULL;
  BPPSA_TRY(bppsa_onnx_activation(r, 0, &value));
  bppsa_cnn_layer layer = {.op = bppsa_op_default(kind)};
  layer.op.slope = kind == BPPSA_OPERATOR_LEAKY_RELU ? bppsa_onnx_real(r, "alpha", 0.01) : layer.op.slope;
  layer.op.approximate = bppsa_onnx_is(r, "approximate", "tanh");
  return bppsa_onnx_give(r, &layer, 1, &value, NULL);
}

#define FUNCTION(name, kind)                                                                                                     \
  static bppsa_status read_##name(onnx_reader *r) {                                                                              \
    return give_function(r, BPPSA_OPERATOR_##kind);                                                                              \
  }
FUNCTION(relu, RELU)
FUNCTION(leaky_relu, LEAKY_RELU)
FUNCTION(tanh, TANH)
FUNCTION(sigmoid, SIGMOID)
FUNCTION(hardswish, HARDSWISH)
FUNCTION(gelu, GELU)

static bool is_near(double value, double wanted) {
  return fabs(value - wanted) < 1e-6;
}

static bppsa_status read_hardsigmoid(onnx_reader *r) {
  const double alpha = bppsa_onnx_real(r, "alpha", 0.2), beta = bppsa_onnx_real(r, "beta", 0.5);
  return is_near(alpha, 1.0 / 6) && is_near(beta, 0.5)
             ? give_function(r, BPPSA_OPERATOR_HARDSIGMOID)
             : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "alpha %g and beta %g, expected 1/6 and 1/2, as PyTorch has them", alpha, beta);
}

/* Between 0 and 6, or above 0. */
static bppsa_status read_clip(onnx_reader *r) {
  double ends[2] = {-INFINITY, INFINITY};
  for (size_t k = 0; k < 2; ++k) {
    onnx_value *end = NULL;
    BPPSA_TRY(bppsa_onnx_input(r, k + 1, &end));
    if (end != NULL) {
      BPPSA_TRY(bppsa_onnx_constant(r, k + 1, &end));
      BPPSA_TRY(bppsa_onnx_scalar(end, &ends[k]));
    }
  }
  return ends[0] == 0 && ends[1] == 6 ? give_function(r, BPPSA_OPERATOR_RELU6)
         : ends[0] == 0 && ends[1] >= 3.4e38
             ? give_function(r, BPPSA_OPERATOR_RELU)
             : bppsa_fail(BPPSA_ERR_UNSUPPORTED, "from %g to %g, expected 0 to 6, or above 0", ends[0], ends[1]);
}

static bppsa_status read_dropout(onnx_reader *r) {
  onnx_value *value = NULL, *ratio = NULL;
  bppsa_cnn_layer layer = {.op = bppsa_op_default(BPPSA_OPERATOR_DROPOUT)};
  BPPSA_TRY(bppsa_onnx_activation(r, 0, &value));
  BPPSA_TRY(bppsa_onnx_input(r, 1, &ratio));
  if (ratio != NULL) {
    BPPSA_TRY(bppsa_onnx_constant(r, 1, &ratio));
    BPPSA_TRY(bppsa_onnx_scalar(ratio, &layer.op.p));
  }
  return bppsa_onnx_give(r, &layer, 1, &value, NULL);
}

/* ---- the table ---- */

/* The operators that are read, in the order of their names. */
static const struct {
  const char *name;
  bppsa_status (*read)(onnx_reader *r);
} operators[] = {{"Add", bppsa_onnx_add},
                 {"AveragePool", read_avgpool},
                 {"BatchNormalization", read_batch_norm},
                 {"Cast", bppsa_onnx_cast},
                 {"Clip", read_clip},
                 {"Concat", bppsa_onnx_concat},
                 {"Constant", bppsa_onnx_constant_node},
                 {"Conv", read_conv},
                 {"Div", bppsa_onnx_div},
                 {"Dropout", read_dropout},
                 {"Erf", bppsa_onnx_erf},
                 {"Flatten", bppsa_onnx_flatten},
                 {"Gather", bppsa_onnx_gather},
                 {"Gelu", read_gelu},
                 {"Gemm", read_gemm},
                 {"GlobalAveragePool", read_global_avgpool},
                 {"GroupNormalization", read_group_norm},
                 {"HardSigmoid", read_hardsigmoid},
                 {"HardSwish", read_hardswish},
                 {"Identity", bppsa_onnx_identity},
                 {"InstanceNormalization", read_instance_norm},
                 {"LayerNormalization", read_layer_norm},
                 {"LeakyRelu", read_leaky_relu},
                 {"MatMul", read_matmul},
                 {"MaxPool", read_maxpool},
                 {"Mul", bppsa_onnx_mul},
                 {"ReduceMean", read_mean},
                 {"Relu", read_relu},
                 {"Reshape", bppsa_onnx_reshape},
                 {"Shape", bppsa_onnx_shape_node},
                 {"Sigmoid", read_sigmoid},
                 {"Slice", bppsa_onnx_slice},
                 {"Softmax", read_softmax},
                 {"Split", bppsa_onnx_split},
                 {"Squeeze", bppsa_onnx_squeeze},
                 {"Sum", bppsa_onnx_add},
                 {"Tanh", read_tanh},
                 {"Transpose", bppsa_onnx_transpose},
                 {"Unsqueeze", bppsa_onnx_unsqueeze}};
enum { OPERATORS = sizeof operators / sizeof operators[0] };

static bppsa_status fail_operator(const char *word, const char *domain) {
  const char *known[OPERATORS + 1] = {NULL};
  char meant[80];
  for (int i = 0; i < OPERATORS; ++i) {
    known[i] = operators[i].name;
  }
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                    "operator '%.40s'%s%.40s is not read, expected those of convolutional networks, Add to "
                    "Unsqueeze (docs/networks.md)%s",
                    word, domain[0] != '\0' ? " of " : "", domain, bppsa_suggestion(word, known, meant, sizeof meant));
}

bppsa_status bppsa_onnx_read_node(onnx_reader *r) {
  const char *word = r->node->op_type != NULL ? r->node->op_type : "", *domain = r->node->domain != NULL ? r->node->domain : "";
  const bool own = domain[0] == '\0' || strcmp(domain, "ai.onnx") == 0;
  int i = 0;
  while (i < OPERATORS && strcmp(operators[i].name, word) != 0) {
    ++i;
  }
  return own && i < OPERATORS ? operators[i].read(r) : fail_operator(word, own ? "" : domain);
}
