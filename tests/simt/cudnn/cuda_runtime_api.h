/* The CUDA runtime's functions that C files use, on the SIMT machine: its own functions under names that C can call (runtime.cc).
 */
#ifndef BPPSA_TESTS_SIMT_CUDNN_CUDA_RUNTIME_API_H
#define BPPSA_TESTS_SIMT_CUDNN_CUDA_RUNTIME_API_H

#include <stddef.h>

typedef struct simt_stream *cudaStream_t;
typedef int cudaError_t;
enum { cudaSuccess = 0 };
enum cudaMemcpyKind { cudaMemcpyDeviceToDevice = 3 };

int simt_set_device(int device);
int simt_memset(void *data, int value, size_t bytes, cudaStream_t stream);
int simt_memcpy(void *to, const void *from, size_t bytes, cudaStream_t stream);
const char *simt_error_text(int error);
/* Queues function(context) on the stream, or captures it. */
void simt_host_function(cudaStream_t stream, void (*function)(const void *context), const void *context, size_t bytes);

static inline cudaError_t cudaSetDevice(int device) {
  return simt_set_device(device);
}
static inline cudaError_t cudaMemsetAsync(void *data, int value, size_t bytes, cudaStream_t stream) {
  return simt_memset(data, value, bytes, stream);
}
static inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                                          cudaStream_t stream) {
  (void)kind;
  return simt_memcpy(to, from, bytes, stream);
}
static inline const char *cudaGetErrorString(cudaError_t error) {
  return simt_error_text(error);
}

#endif
