/* Convolutional networks as data: a chain or a graph of the operators of jacobian/op.h, on images [C][H][W].
 *
 * In a graph a layer may read any other layer's output, and an output may be read by several layers; further operators join,
 * split, reorder and normalise tensors. The layers are kept in an order in which each comes behind those that it reads: the first
 * such order by the file's own. A graph is then a chain of live sets: of the tensors that later layers read.
 *
 * The last operator is linear: the head, which gives the scan its seed and is no element of it. Each operator in front of it is one
 * element (BPPSA §3.5, 4.3): with the seed LeNet-5 has 11 elements, VGG-11 22.
 *
 * A network file is one JSON object:
 *
 *     {"input": [C, H, W],
 *      "layers": [{"name": "conv1", "op": "conv2d", "out": 6, "kernel": [5, 5]},
 *                 {"name": "relu1", "op": "relu"},
 *                 {"name": "pool1", "op": "maxpool2d", "kernel": [2, 2]},
 *                 {"name": "fc", "op": "linear", "out": 10}]}
 *
 *   name       unique, 1 to 47 letters, digits, dots, dashes and _; its parameters are NAME.weight and NAME.bias
 *   op         conv2d, linear, relu, leaky_relu, tanh, sigmoid, maxpool2d, avgpool2d, flatten, relu6,
 *              hardsigmoid, hardswish, silu, gelu, adaptive_avgpool2d, global_avgpool, batchnorm2d, dropout
 *   out        conv2d, linear: output channels
 *   kernel     conv2d, pools: [height, width], or one number for both; required
 *   stride     conv2d, pools: the same form; default 1 x 1, for pools the kernel
 *   padding    conv2d, pools: one number for all sides, [height, width], or [top, bottom, left, right]; default 0
 *   dilation   conv2d, maxpool2d: [height, width], or one number for both; default 1 x 1
 *   groups     conv2d; default 1
 *   bias       conv2d, linear: whether there is one; default true
 *   ceil_mode  pools; default false
 *   exclude_pad  avgpool2d; default false
 *   slope      leaky_relu; default 0.01
 *   approximate  gelu: "none" or "tanh"; default "none"
 *   size       adaptive_avgpool2d: [height, width] of the output, or one number for both; required
 *   eps, momentum, affine  batchnorm2d; default 1e-5, 0.1, true. Its parameters are NAME.weight and NAME.bias if it is affine, and
 *              the statistics NAME.running_mean and NAME.running_var, which have no gradient
 *   p          dropout: the share that is left out while a network is trained; default 0.5
 *
 * conv1d is conv2d on [C, 1, L]: kernel, stride and dilation are one number, padding is one or [left, right], and NAME.weight is
 * [out, in / groups, kernel], as PyTorch's Conv1d has it. And in a graph
 *
 *   op         add (of two or more inputs of one shape), mul (likewise, but an input's extent may be 1 where another's is not: its
 *              values are repeated), concat (of channels; two or more inputs), slice (of channels), reshape, permute (of axes),
 *              softmax, layernorm, groupnorm
 *   inputs     all operators: the names of the layers that it reads, ["NAME", ..]; "input" is the network's own input; default: the
 *              layer before it in the file. Operators other than add, mul and concat read one
 *   first      slice: the first channel that it takes; default 0
 *   out        slice: how many channels it takes
 *   shape      reshape: [C, H, W] of the output, of as many values. layernorm: the extents of the last axes, over which it
 *              normalises, as PyTorch's normalized_shape; extents of 1 count for nothing
 *   order      permute: which axis of the input each axis of the output is, [2, 0, 1]: C is the input's W
 *   axis       softmax: 0, 1 or 2 for C, H or W
 *   groups     groupnorm: how many groups the channels are in
 *   eps, affine  layernorm, groupnorm: as of batchnorm2d. Parameters are NAME.weight and NAME.bias, [shape] or [C]
 *
 * softmax, layernorm and groupnorm become two layers, the sums of their groups, called NAME.sums, and NAME, which reads the same
 * input and these sums: so that scans and counts keep the diagonal and the matrix of low rank that their Jacobian is made of.
 *
 * Any other member is refused, and so is one that the operator does not have. A linear operator takes all of [C][H][W] in that
 * order; it needs no flatten in front of it.
 */
#ifndef BPPSA_CNN_NETWORK_H
#define BPPSA_CNN_NETWORK_H

#include "core/compute/model.h"
#include "jacobian/op.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BPPSA_CNN_NAME 48      /* bytes of a layer's name with its final 0 */
#define BPPSA_CNN_PARAMETER 64 /* bytes of a parameter's name: NAME.weight */
#define BPPSA_CNN_MOST_LAYERS 4096
enum { BPPSA_CNN_PARAMETERS = 4 }; /* the most parameters of a layer */

/* What a layer is: an operator with one input, or one of those that graphs have besides. */
typedef enum {
  BPPSA_CNN_OPERATOR = 0, /* `op` says which */
  BPPSA_CNN_ADD,          /* y = x_1 + x_2 + .. */
  BPPSA_CNN_MUL,          /* y = x_1 x_2 .., value by value; an extent of 1 is repeated */
  BPPSA_CNN_CONCAT,       /* the channels of x_1, then those of x_2, .. */
  BPPSA_CNN_SLICE,        /* channels first .. first + C' - 1 of x */
  BPPSA_CNN_RESHAPE,      /* the values of x in their order, with another shape */
  BPPSA_CNN_PERMUTE,      /* axis i of y is axis order[i] of x */
  BPPSA_CNN_SUMS,         /* two numbers of each group of x, for the following three, which read x and these */
  BPPSA_CNN_SOFTMAX,      /* y = e^x / Σ e^x along an axis */
  BPPSA_CNN_LAYERNORM,    /* y = w (x - m) / sqrt(v + epsilon) + b, m and v of the last axes, w and b of their positions */
  BPPSA_CNN_GROUPNORM,    /* the same with m and v of a group of channels, w and b of a channel */
  BPPSA_CNN_NODES
} bppsa_cnn_node;

typedef struct {
  char name[BPPSA_CNN_NAME];   /* "conv1": in tables and messages */
  char prefix[BPPSA_CNN_NAME]; /* of its parameters' names, as in PyTorch: "features.0" in VGG-11 */
  bppsa_op op;                 /* with the shape of its input */
  int64_t out[3];              /* shape of its output */
  bool bias;                   /* conv2d, linear: a bias; norms: a weight and a bias */
  bool line;                   /* conv2d: called conv1d, with a kernel of one extent */
  bppsa_cnn_node node;         /* if it is no operator, op is flatten, with the shape of its first input */
  bppsa_cnn_node of;           /* sums: what reads them */
  int64_t first;               /* slice */
  int64_t order[3];            /* permute */
  int64_t axis;                /* softmax, and its sums */
  int64_t extents, shape[3];   /* reshape, layernorm: the extents in the file and their number; groupnorm: its weight's, [C] */
} bppsa_cnn_layer;

typedef struct {
  char name[BPPSA_CNN_NAME]; /* "lenet5"; "network" for one from a file */
  int64_t in[3];             /* C, H, W */
  int64_t count;             /* layers with the head; at least 1 */
  bppsa_cnn_layer *layers;   /* size count, owned */
  /* A graph: layer i reads the outputs of layers inputs[input_ptr[i]] .. inputs[input_ptr[i + 1] - 1], all of them less than i,
   * or -1 for the network's input. Both are NULL for a chain, in which layer i reads i - 1. Owned */
  int64_t *input_ptr;
  int32_t *inputs;
} bppsa_cnn_network;

/* Makes a built-in network with PyTorch's parameter names: "lenet5" or "vgg11" on 3 x 32 x 32 (conv1 .. fc3; features.K and
 * classifier), "resnet18", "resnet50", "resnet152", "mobilenetv2" or "vgg16" as torchvision has them on 3 x 224 x 224, "resnet20"
 * on 3 x 32 x 32 (He et al. 2016, section 4.2, with projections as shortcuts between stages). ERR_ARGUMENT: another name;
 * ERR_MEMORY. */
bppsa_status bppsa_cnn_network_builtin(const char *name, bppsa_cnn_network *network);
/* Reads a network file. Messages name the file and the layer. ERR_FORMAT: not JSON, a member that is missing, unknown or of the
 * wrong type, an unknown operator, a name given twice, an input that is no layer, layers that read each other in a circle, a layer
 * that none reads; ERR_ARGUMENT, ERR_SHAPE: those of bppsa_op_shape, inputs whose shapes do not fit, and a network that does not
 * end with a linear operator; ERR_IO; ERR_MEMORY. */
bppsa_status bppsa_cnn_network_load(const char *path, bppsa_cnn_network *network);
/* The same for `size` bytes of text; `where` names their source in messages. */
bppsa_status bppsa_cnn_network_parse(const char *where, const char *text, int64_t size, bppsa_cnn_network *network);
/* Gives the network another input [C, H, W]: all shapes follow from it, and with them the shapes of the weights of convolutions and
 * linear operators. ERR_ARGUMENT, ERR_SHAPE: the network does not take such an input; then it stays as it was; ERR_MEMORY. */
bppsa_status bppsa_cnn_network_reshape(bppsa_cnn_network *network, const int64_t in[3]);
/* ERR_MEMORY. */
bppsa_status bppsa_cnn_network_copy(const bppsa_cnn_network *from, bppsa_cnn_network *to);
/* The same for a document that is parsed already and stays the caller's. */
struct json_t; /* jansson's */
bppsa_status bppsa_cnn_network_read(const char *where, struct json_t *document, bppsa_cnn_network *network);
void bppsa_cnn_network_free(bppsa_cnn_network *network); /* a zeroed one is legal */

/* Does the operator have weights that join inputs and outputs, which a mask may leave out? Only conv2d and linear do. */
static inline bool bppsa_cnn_has_weights(const bppsa_cnn_layer *layer) {
  return layer->op.kind == BPPSA_OPERATOR_CONV2D || layer->op.kind == BPPSA_OPERATOR_LINEAR;
}
/* The first batch norm of the network, or NULL. */
const bppsa_cnn_layer *bppsa_cnn_network_norm(const bppsa_cnn_network *network);
/* The number of values of one sample that layer i - 1 gives; i = 0: of the network's input (i = count: the logits). */
int64_t bppsa_cnn_size(const bppsa_cnn_network *network, int64_t i);
/* "conv2d", "add": what the layer is. */
const char *bppsa_cnn_layer_word(const bppsa_cnn_layer *layer);
/* Is the network a graph and no chain? */
static inline bool bppsa_cnn_is_graph(const bppsa_cnn_network *network) {
  return network->input_ptr != NULL;
}
/* Fails for a graph with ERR_UNSUPPORTED: "NETWORK: a graph of layers for WHAT, expected a chain". */
bppsa_status bppsa_cnn_require_chain(const bppsa_cnn_network *network, const char *what);
/* The number of layers that layer i reads, and the k-th of them; -1: the network's input. */
static inline int64_t bppsa_cnn_input_count(const bppsa_cnn_network *network, int64_t i) {
  return bppsa_cnn_is_graph(network) ? network->input_ptr[i + 1] - network->input_ptr[i] : 1;
}
static inline int64_t bppsa_cnn_input_of(const bppsa_cnn_network *network, int64_t i, int64_t k) {
  return bppsa_cnn_is_graph(network) ? network->inputs[network->input_ptr[i] + k] : i - 1;
}
/* Do weights and biases scale what a layer norm or a group norm gives? */
static inline bool bppsa_cnn_is_affine(const bppsa_cnn_layer *layer) {
  return (layer->node == BPPSA_CNN_LAYERNORM || layer->node == BPPSA_CNN_GROUPNORM) && layer->bias;
}
/* The shape of the layer's weight, as in PyTorch: conv2d [Co][Ci / groups][kh][kw], conv1d [Co][Ci / groups][k], linear [Co][Ci].
 * Returns the number of extents. */
int32_t bppsa_cnn_weight_shape(const bppsa_cnn_layer *layer, int64_t shape[4]);

/* The number of a layer's parameters: weight and bias; of a batch norm also running_mean and running_var. */
int64_t bppsa_cnn_parameters(const bppsa_cnn_layer *layer);
/* Describes parameter `which` of a layer, in that order: both views have its shape and no data; its name, PREFIX.weight, is written
 * to `name` and borrowed. */
bppsa_parameter bppsa_cnn_parameter(const bppsa_cnn_layer *layer, int64_t which, bppsa_dtype dtype,
                                    char name[BPPSA_CNN_PARAMETER]);

#ifdef __cplusplus
}
#endif
#endif
