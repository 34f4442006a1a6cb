/* Convolutional networks as data: a chain of the operators of jacobian/op.h, on images [C][H][W].
 *
 * The last operator is linear: the head, which gives the scan its seed and is no scan element. Everything in front of it is one
 * element each (BPPSA §3.5, 4.3): LeNet-5 has 11 elements with its seed, VGG-11 22.
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
 *   op         conv2d, linear, relu, leaky_relu, tanh, sigmoid, maxpool2d, avgpool2d, flatten
 *   out        conv2d, linear: output channels
 *   kernel     conv2d, pools: [height, width], or one number for both
 *   stride     likewise; without it 1 x 1, of pools the kernel
 *   padding    likewise: one number for all sides, [height, width], each on both sides, or [top, bottom, left, right]; without it 0
 *   dilation   conv2d, maxpool2d: [height, width], or one number for both; without it 1 x 1
 *   groups     conv2d; without it 1
 *   bias       conv2d, linear: whether there is one; without it true
 *   ceil_mode  pools, exclude_pad avgpool2d: without them false;  slope  leaky_relu: without it 0.01
 *
 * Any other member, and one that the operator does not have, is refused. A linear operator takes all of [C][H][W] in that order;
 * no flatten is needed in front of it.
 */
#ifndef BPPSA_CNN_NETWORK_H
#define BPPSA_CNN_NETWORK_H

#include "jacobian/op.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BPPSA_CNN_NAME 48      /* bytes of a layer's name, with its end */
#define BPPSA_CNN_PARAMETER 64 /* of a parameter's: NAME.weight */
#define BPPSA_CNN_MOST_LAYERS 4096

typedef struct {
  char name[BPPSA_CNN_NAME];   /* "conv1": in tables and messages */
  char prefix[BPPSA_CNN_NAME]; /* of its parameters' names; PyTorch's, "features.0" in VGG-11 */
  bppsa_op op;                 /* its input's shape included */
  int64_t out[3];              /* shape of its output */
  bool bias;                   /* conv2d, linear */
} bppsa_cnn_layer;

typedef struct {
  char name[BPPSA_CNN_NAME]; /* "lenet5"; of a file "network" */
  int64_t in[3];             /* C, H, W */
  int64_t count;             /* layers, the head included; at least 1 */
  bppsa_cnn_layer *layers;   /* size count, owned */
} bppsa_cnn_network;

/* "lenet5" or "vgg11" on 3 x 32 x 32, with PyTorch's parameter names (conv1 .. fc3; features.K and classifier). ERR_ARGUMENT:
 * another name; ERR_MEMORY. */
bppsa_status bppsa_cnn_network_builtin(const char *name, bppsa_cnn_network *network);
/* A network file. The message names the file and the layer. ERR_FORMAT: not JSON, a member that is missing, unknown or of the
 * wrong type, an unknown operator, a name given twice; ERR_ARGUMENT, ERR_SHAPE: as of bppsa_op_shape, and a chain that does not
 * end with a linear operator; ERR_IO; ERR_MEMORY. */
bppsa_status bppsa_cnn_network_load(const char *path, bppsa_cnn_network *network);
/* The same for `size` bytes of text that come from `where`. */
bppsa_status bppsa_cnn_network_parse(const char *where, const char *text, int64_t size, bppsa_cnn_network *network);
void bppsa_cnn_network_free(bppsa_cnn_network *network); /* a zeroed one is legal */

/* Does the operator have weights? Only conv2d and linear do. */
static inline bool bppsa_cnn_has_weights(const bppsa_cnn_layer *layer) {
  return layer->op.kind == BPPSA_OPERATOR_CONV2D || layer->op.kind == BPPSA_OPERATOR_LINEAR;
}
/* Values of one sample in front of layer i (i = count: the logits). */
int64_t bppsa_cnn_size(const bppsa_cnn_network *network, int64_t i);
/* Shape of the layer's weight, PyTorch's: conv2d [Co][Ci / groups][kh][kw], linear [Co][Ci]. Returns the number of extents. */
int32_t bppsa_cnn_weight_shape(const bppsa_cnn_layer *layer, int64_t shape[4]);

#ifdef __cplusplus
}
#endif
#endif
