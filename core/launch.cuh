/* How kernels are launched: through BPPSA_LAUNCH and in no other way, so that a kernel file can also be compiled for the
 * host by whoever defines the macro first (the tests' SIMT emulation).
 *
 *     BPPSA_LAUNCH(kernel, blocks, threads, shared_bytes, stream, arguments ...);
 *     cudaError_t error = cudaGetLastError();
 */
#ifndef BPPSA_CORE_LAUNCH_CUH
#define BPPSA_CORE_LAUNCH_CUH

#ifndef BPPSA_LAUNCH
#include <cuda_runtime.h>
#define BPPSA_LAUNCH(kernel, blocks, threads, shared_bytes, stream, ...)                                                         \
  kernel<<<(blocks), (threads), (shared_bytes), (stream)>>>(__VA_ARGS__)
#endif

#endif
