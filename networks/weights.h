/* The weights of a network from a safetensors file: their names, the architecture they describe, their values. */
#ifndef BPPSA_NETWORKS_WEIGHTS_H
#define BPPSA_NETWORKS_WEIGHTS_H

#include "networks/named_network.h"
#include "networks/weight_list.h"

/* What the user asks for beside the file. If it contradicts the weights, the message names the option. */
typedef struct {
  const char *path;
  const char *prefix;       /* --prefix: "P" or "P,HEAD" in front of the names; NULL: the network's own prefix */
  bool propose_prefix;      /* propose a --prefix that fits where tensors are missing */
  int64_t layers, hidden;   /* as the user asks; 0: taken from the weights */
  const bppsa_dtype *dtype; /* the model's type; NULL: that of the weights */
  const char *nonlinearity; /* "tanh" or "relu", as the user asks; NULL: taken from the metadata */
  const char *reset_state;  /* "learned" or "zeros", as the user asks; NULL: taken from the weights */
  bool loss_given;          /* the configuration's loss stays, whatever the metadata name */
  bool trains;              /* the weights will change: a note says if a mask is not kept */
} bppsa_weights_request;

/* Which file has the network's weights: `asked`, otherwise the network's own file, if it is an ONNX model; NULL: none. */
const char *bppsa_weights_path(const char *asked, const char *network);
/* Loads the tensors of a safetensors file, or of an ONNX model (.onnx), under the names of its layers. ERR_* of
 * bppsa_safetensors_load and bppsa_cnn_onnx_load; a file that cannot be read is ERR_ARGUMENT. */
bppsa_status bppsa_weights_file(const char *path, bppsa_safetensors **file);
/* Loads the file and fills the architecture it describes: input, hidden, layers, classes, dtype; the nonlinearity and loss that
 * its metadata name; biases, directions and a reset state (for the first two the configuration may ask: no_bias, bidirectional). A
 * convolutional network without masks takes those of the file's pruned weights (networks/weight_list.h). ERR_ARGUMENT: the file
 * does not exist, or contradicts what is asked for. ERR_FORMAT: a tensor is missing; the message lists the tensors of the file. The
 * caller destroys *file. */
bppsa_status bppsa_weights_load(const bppsa_weights_request *request, bppsa_network *network, bppsa_network_config *config,
                                bppsa_safetensors **file);
/* Copies the file's tensors into a model of the network, converted to its dtype, and checks that they are finite in it. note
 * receives what a user should know of conversions and masks, or ""; its size is BPPSA_WEIGHTS_NOTE, or it is NULL. */
#define BPPSA_WEIGHTS_NOTE 300
bppsa_status bppsa_weights_set(const bppsa_weights_request *request, const bppsa_network *network, const bppsa_safetensors *file,
                               bppsa_model *model, char *note);

#endif
