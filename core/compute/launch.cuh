/* How kernels are launched (clusters: core/compute/cluster.cuh) and reach dynamic shared memory: by these macros only. A kernel
 * file can also be compiled for the host: the tests' SIMT emulation defines both in its own <cuda_runtime.h>.
 *
 *     BPPSA_LAUNCH(kernel, blocks, threads, shared_bytes, stream, arguments ...);     a template instance in parentheses
 *     cudaError_t error = cudaGetLastError();
 *
 *     BPPSA_SHARED(float, tile);    in a kernel: float *tile, the launch's shared memory, on a multiple of 16 bytes
 *     BPPSA_UNROLL_BY(n)            before a loop that is to be unrolled n times
 *     BPPSA_UNROLL                  before a loop whose array indices must be constants, so that the arrays live in registers
 *     tile = launch_held(tile);     in a loop that waits for shared memory: keeps the address in a register
 *     data = launch_kept(data);     the same for an address in the GPU's memory
 *     x = launch_number(x);         the same for a number: the compiler assumes nothing about its value */
#ifndef BPPSA_CORE_COMPUTE_LAUNCH_CUH
#define BPPSA_CORE_COMPUTE_LAUNCH_CUH

#include <cuda_runtime.h>

#ifndef BPPSA_LAUNCH
#define BPPSA_LAUNCH(kernel, blocks, threads, shared_bytes, stream, ...)                                                         \
  (kernel)<<<(blocks), (threads), (shared_bytes), (stream)>>>(__VA_ARGS__)
#define BPPSA_SHARED(type, name)                                                                                                 \
  extern __shared__ __align__(16) unsigned char bppsa_shared_memory[];                                                           \
  type *name = reinterpret_cast<type *>(bppsa_shared_memory)
#define BPPSA_UNROLL _Pragma("unroll")
#define BPPSA_UNROLL_BY(n) BPPSA_PRAGMA(unroll n)
#define BPPSA_PRAGMA(text) _Pragma(#text)

/* A barrier of the warps of a block that give the same number, 1 to 15; `threads`: of all of them. Behind it each sees what any of
 * them wrote before it. */
__device__ __forceinline__ void launch_meet(int number, int threads) {
  __syncwarp();
  asm volatile("barrier.sync.aligned %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
#endif

/* Returns the same shared-memory address as a number that the compiler cannot take apart. Otherwise the compiler computes the
 * address anew at every use, from the block's rank in its cluster, and a short loop waits for that each time. */
template <typename T> __device__ __forceinline__ T *launch_held(T *shared) {
#ifdef __CUDA_ARCH__
  unsigned address = (unsigned)__cvta_generic_to_shared(shared);
  asm("" : "+r"(address));
  return (T *)__cvta_shared_to_generic(address);
#else
  return shared;
#endif
}

/* Returns the same number; the compiler knows nothing about it. */
__device__ __forceinline__ int launch_number(int x) {
#ifdef __CUDA_ARCH__
  asm("" : "+r"(x));
#endif
  return x;
}

/* Returns the same address in the GPU's memory. Otherwise the compiler computes it from the kernel's parameters at every use. */
template <typename T> __device__ __forceinline__ T *launch_kept(T *data) {
#ifdef __CUDA_ARCH__
  unsigned long long address = (unsigned long long)__cvta_generic_to_global(data);
  asm("" : "+l"(address));
  return (T *)__cvta_global_to_generic(address);
#else
  return data;
#endif
}

#endif
