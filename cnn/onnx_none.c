/* The reader of ONNX files in a library that was built without protobuf-c. */
#include "cnn/onnx.h"

bppsa_status bppsa_cnn_onnx_load(const char *path, bppsa_cnn_network *network, bppsa_safetensors **weights) {
  (void)network;
  (void)weights;
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                    "%s: built without ONNX, expected a build with protobuf-c (packages libprotobuf-c-dev protobuf-c-compiler)",
                    path);
}
