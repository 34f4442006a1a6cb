/* Networks from ONNX files, as torch.onnx.export writes them: the graph becomes the layers of cnn/network.h, as of a network file,
 * and its initializers the parameters of these layers. docs/networks.md lists the operators. Internal. */
#ifndef BPPSA_CNN_ONNX_H
#define BPPSA_CNN_ONNX_H

#include "cnn/network.h"
#include "core/files/safetensors.h"

/* The versions of ONNX's operators that are read. */
enum { BPPSA_ONNX_FIRST = 13, BPPSA_ONNX_LAST = 21 };

/* Reads a model; network or weights may be NULL. *weights (owned, bppsa_safetensors_destroy) are its parameters by the names of
 * this project, NAME.weight and NAME.bias, with PyTorch's shapes: NAME is the path of the node's module, or what an initializer
 * called NAME.weight says. Messages name the file and the node. ERR_FORMAT: it is no ONNX model; ERR_UNSUPPORTED: another opset, an
 * operator, or a use of one, that networks do not have, or a library that was built without protobuf-c; ERR_LIBRARY: protobuf-c is
 * missing; ERR_ARGUMENT, ERR_SHAPE: as bppsa_cnn_network_load has them; ERR_IO; ERR_MEMORY. */
bppsa_status bppsa_cnn_onnx_load(const char *path, bppsa_cnn_network *network, bppsa_safetensors **weights);

#endif
