/* Stands in for tiny_cuda.cu in a build without CUDA, in which no test runs on a GPU. */
#include "tests/support/tiny_gpu.h"

bppsa_status tiny_gpu_forward(const bppsa_device *device, bppsa_dtype dtype, const tiny_gpu *g) {
  (void)device, (void)dtype, (void)g;
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "tiny model: this build has no CUDA");
}

bppsa_status tiny_gpu_backward(const bppsa_device *device, bppsa_dtype dtype, const tiny_gpu *g) {
  return tiny_gpu_forward(device, dtype, g);
}
