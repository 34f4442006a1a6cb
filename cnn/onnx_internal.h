/* Reading ONNX models: the tensors, the nodes, the layers that they become. Internal. */
#ifndef BPPSA_CNN_ONNX_INTERNAL_H
#define BPPSA_CNN_ONNX_INTERNAL_H

#include "cnn/network_internal.h"
#include "cnn/onnx.h"
#include "cnn/onnx.pb-c.h"
#include "core/files/json.h"

typedef BppsaOnnx__Node onnx_node;
typedef BppsaOnnx__Tensor onnx_tensor;

/* Steps of x Φ(x) as nodes: x / √2, erf of it, 1 more, times x, and then half of it, which is a layer. */
typedef enum { ONNX_PLAIN = 0, ONNX_ROOT, ONNX_ERF, ONNX_ERF_1, ONNX_TIMES } onnx_gelu;

/* What a name of the graph stands for: a constant, or an activation. */
typedef struct {
  const char *name; /* borrowed from the model */
  bool constant;
  bppsa_view view; /* of a constant */
  bool taken;      /* a constant: some layer has it as a parameter */
  int32_t layer;   /* an activation: the layer that gives it; -1: the network's input */
  int axes;        /* an activation: 2 for [N, C], 3 for [N, C, L], 4 for [N, C, H, W] */
  bool own;        /* an activation: of no other name */
  onnx_gelu step;  /* how far x Φ(x) has come, x being the activation itself */
} onnx_value;

/* A parameter of the network. */
typedef struct {
  char name[BPPSA_CNN_PARAMETER];
  bppsa_view view;
} onnx_weight;

enum { ONNX_UNKNOWN_BATCH = -1, ONNX_DIMS = BPPSA_MAX_DIMS };
#define ONNX_BATCH INT64_MIN /* stands for an unknown batch among the whole numbers of a shape */

typedef struct {
  const char *path;
  int64_t opset;
  int64_t batch;   /* the first extent of the network's input, or ONNX_UNKNOWN_BATCH */
  json_t *names;   /* the place among the values of each name */
  json_t *readers; /* how many inputs of nodes each name is */
  int64_t value_count, value_room;
  onnx_value *values;
  bppsa_cnn_network network; /* the layers so far, as a graph */
  int64_t layer_room, pointer_room, input_room, input_count;
  json_t *layer_names;
  int64_t weight_count, weight_room;
  onnx_weight *weights;
  int64_t owned_count, owned_room;
  void **owned;          /* memory of constants that the model does not hold */
  const onnx_node *node; /* the one that is read */
} onnx_reader;

/* ---- onnx_tensors.c ---- */

/* Memory that lives as long as the reader; NULL: there is none. */
void *bppsa_onnx_own(onnx_reader *r, int64_t bytes);
/* The elements of a tensor: those in the model where they can stay there. */
bppsa_status bppsa_onnx_tensor(onnx_reader *r, const onnx_tensor *tensor, bppsa_view *view);

/* ---- onnx_nodes.c: what a node reads and gives ---- */

/* Input k, or NULL where the node lacks it. ERR_FORMAT: no node before gives it. */
bppsa_status bppsa_onnx_input(const onnx_reader *r, size_t k, onnx_value **value);
/* The same for an input that must be there, and be an activation or a constant. ERR_UNSUPPORTED. */
bppsa_status bppsa_onnx_activation(const onnx_reader *r, size_t k, onnx_value **value);
bppsa_status bppsa_onnx_constant(const onnx_reader *r, size_t k, onnx_value **value);
/* A constant of one number. ERR_UNSUPPORTED: another one. */
bppsa_status bppsa_onnx_scalar(const onnx_value *value, double *number);
/* The whole numbers of a constant, at most ONNX_DIMS. ERR_UNSUPPORTED. */
bppsa_status bppsa_onnx_wholes(const onnx_value *value, int64_t numbers[ONNX_DIMS], int *count);
/* The inputs of nodes that have the name of output k. */
int64_t bppsa_onnx_readers(const onnx_reader *r, const char *name);

/* Attributes: the node's, or the fallback. */
const BppsaOnnx__Attribute *bppsa_onnx_attribute(const onnx_reader *r, const char *name);
int64_t bppsa_onnx_whole(const onnx_reader *r, const char *name, int64_t fallback);
double bppsa_onnx_real(const onnx_reader *r, const char *name, double fallback);
/* ERR_FORMAT: the list has another length than `count`. Without the attribute *numbers stay. */
bppsa_status bppsa_onnx_list(const onnx_reader *r, const char *name, int count, int64_t *numbers);
/* Is the attribute this text? Without it, false. */
bool bppsa_onnx_is(const onnx_reader *r, const char *name, const char *text);

/* Says what output k of the node is: a name that nothing had before. An output without a name is nothing. */
bppsa_status bppsa_onnx_define(onnx_reader *r, size_t k, onnx_value value);
/* The same for a name that is no node's output. */
bppsa_status bppsa_onnx_define_name(onnx_reader *r, const char *name, onnx_value value);
/* Output 0 is `count` whole numbers, a vector or (vector false) one number. */
bppsa_status bppsa_onnx_define_wholes(onnx_reader *r, bool vector, int count, const int64_t *numbers);

/* ---- onnx_layers.c: layers ---- */

/* The shape [C, H, W] of an activation; an axis of ONNX, 1 .. axes - 1 or from the end, as one of these. ERR_UNSUPPORTED: it is the
 * batch's, or there is none. */
const int64_t *bppsa_onnx_shape(const onnx_reader *r, const onnx_value *value);
bppsa_status bppsa_onnx_axis(const onnx_value *value, int64_t axis, int *found);
/* Appends a layer that reads `count` activations, called as `weight` says (or NULL), and gives the place in *place. */
bppsa_status bppsa_onnx_append(onnx_reader *r, bppsa_cnn_layer *layer, int64_t count, onnx_value *const *inputs,
                               const onnx_value *weight, int32_t *place);
/* The same, and the layer's output is output 0 of the node, with the first input's number of axes. */
bppsa_status bppsa_onnx_give(onnx_reader *r, bppsa_cnn_layer *layer, int64_t count, onnx_value *const *inputs,
                             const onnx_value *weight);
/* Makes a constant the parameter LAYER.WORD of a layer, which wants that shape. ERR_UNSUPPORTED: another layer has it already;
 * ERR_SHAPE. */
bppsa_status bppsa_onnx_parameter(onnx_reader *r, int32_t layer, const char *word, onnx_value *value, int32_t axes,
                                  const int64_t *shape);
/* Reads the node that r->node is. ERR_UNSUPPORTED: an operator that networks do not have. */
bppsa_status bppsa_onnx_read_node(onnx_reader *r);

/* ---- onnx_moves.c: shapes, and constants made of them ---- */

bppsa_status bppsa_onnx_constant_node(onnx_reader *r);
bppsa_status bppsa_onnx_shape_node(onnx_reader *r);
bppsa_status bppsa_onnx_gather(onnx_reader *r);
bppsa_status bppsa_onnx_concat(onnx_reader *r);
bppsa_status bppsa_onnx_cast(onnx_reader *r);
/* The sum, the product or the quotient (sign: '+', '*' or '/') of two constants of whole numbers. */
bppsa_status bppsa_onnx_compute(onnx_reader *r, char sign);
bppsa_status bppsa_onnx_squeeze(onnx_reader *r);
bppsa_status bppsa_onnx_unsqueeze(onnx_reader *r);
bppsa_status bppsa_onnx_reshape(onnx_reader *r);
bppsa_status bppsa_onnx_flatten(onnx_reader *r);
bppsa_status bppsa_onnx_transpose(onnx_reader *r);
bppsa_status bppsa_onnx_split(onnx_reader *r);
bppsa_status bppsa_onnx_slice(onnx_reader *r);
bppsa_status bppsa_onnx_identity(onnx_reader *r);

/* ---- onnx_joins.c: sums and products, and the activations that exporters write with them ---- */

/* Output 0 is what a layer makes of all inputs, two or more activations, each of which must pass the check, if there is one. */
typedef bppsa_status onnx_check(const onnx_reader *r, const onnx_value *input);
bppsa_status bppsa_onnx_join(onnx_reader *r, bppsa_cnn_node node, onnx_check *check);
bppsa_status bppsa_onnx_add(onnx_reader *r); /* Sum too */
bppsa_status bppsa_onnx_mul(onnx_reader *r);
bppsa_status bppsa_onnx_div(onnx_reader *r);
bppsa_status bppsa_onnx_erf(onnx_reader *r);

/* ---- onnx_names.c ---- */

/* Names a layer: by the path of the node's module, otherwise NAME of an initializer NAME.weight, otherwise by the node, or by the
 * operator's word; with _1, _2 .. where the name is taken. ERR_MEMORY. */
bppsa_status bppsa_onnx_name(onnx_reader *r, const char *weight, bppsa_cnn_layer *layer);

#endif
