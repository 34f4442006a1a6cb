/* Launches with attributes, for GPUs and code of sm_90 and later.
 *
 * ---- launches that begin early ----
 *
 *     BPPSA_LAUNCH_EARLY(kernel, cluster, blocks, threads, shared_bytes, stream, arguments ...);     cluster 1: single blocks
 *     launch_wait()   every thread of such a kernel, before it reads what the kernel in front writes, and before it writes
 *     launch_next()   in the kernel in front: lets the one behind it begin
 *
 * Blocks of an early launch begin when all blocks of the kernel in front of it in the stream have called launch_next or have ended.
 * Until they wait they may read what earlier kernels wrote, weights for example: the kernel in front must have been launched
 * without `early`, or call launch_next behind its own launch_wait. It must be a kernel of this library. In kernels that were
 * launched otherwise, and in code for other GPUs, both calls do nothing.
 *
 * ---- clusters ----
 *
 * Clusters of thread blocks, which run at the same time and write to each other's shared memory (sm_90 and later).
 *
 *     BPPSA_LAUNCH_CLUSTER(kernel, cluster, blocks, threads, shared_bytes, stream, arguments ...);    `cluster` blocks each
 *     cluster_fits(kernel, cluster, threads, shared_bytes, &fits)                      does the GPU have room for such a cluster?
 *
 * A number is sent together with the notice of its arrival. A gate is an object in shared memory; in every phase it opens when the
 * expected number of bytes has arrived:
 *
 *     cluster_gate_make(gate)            one thread, before a cluster_meet()
 *     cluster_gate_expect(gate, bytes)   one thread, once for each phase; it may be late, then the gate waits for it
 *     cluster_find(mine, rank)           the place in block `rank` of the cluster that `mine` is in this block
 *     cluster_send(far, at, value, gate) value goes `at` bytes behind that place, and is counted `gate` bytes behind it
 *     cluster_gate_wait(gate, parity)    waits for the phases 0, 2, .. (parity 0) or 1, 3, .. (parity 1) in turn
 *
 * A block whose architecture has no clusters must not be launched in one. */
#ifndef BPPSA_CORE_COMPUTE_CLUSTER_CUH
#define BPPSA_CORE_COMPUTE_CLUSTER_CUH

#include "core/compute/check.cuh"
#include "core/compute/launch.cuh"

#ifndef BPPSA_LAUNCH_CLUSTER
#define BPPSA_LAUNCH_CLUSTER(kernel, cluster, blocks, threads, shared_bytes, stream, ...)                                        \
  cluster_launch((kernel), (cluster), false, (blocks), (threads), (shared_bytes), (stream), __VA_ARGS__)
#define BPPSA_LAUNCH_EARLY(kernel, cluster, blocks, threads, shared_bytes, stream, ...)                                          \
  cluster_launch((kernel), (cluster), true, (blocks), (threads), (shared_bytes), (stream), __VA_ARGS__)

typedef unsigned long long cluster_gate;
struct cluster_far {
  unsigned address; /* in the cluster's window of shared memory */
};

/* cudaLaunchKernelEx takes an address of the attribute, which must outlive it. */
struct cluster_config {
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config;
  cluster_config(unsigned cluster, unsigned blocks, unsigned threads, size_t shared, cudaStream_t stream, bool early = false)
      : attributes(), config() {
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = cluster;
    attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = early ? 2 : 1;
  }
  cluster_config(const cluster_config &) = delete;
};

/* The error is cudaGetLastError's, as after any launch. */
template <typename... P, typename... A>
void cluster_launch(void (*kernel)(P...), unsigned cluster, bool early, unsigned blocks, unsigned threads, size_t shared,
                    cudaStream_t stream, const A &...arguments) {
  const cluster_config c(cluster, blocks, threads, shared, stream, early);
  (void)cudaLaunchKernelEx(&c.config, kernel, P(arguments)...);
}

#ifdef __CUDA_ARCH__
#if __CUDA_ARCH__ >= 900
#define CLUSTER_PTX(...) asm volatile(__VA_ARGS__)
#else
#define CLUSTER_PTX(...) __trap()
#endif
#else
#define CLUSTER_PTX(...)
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define LAUNCH_PTX(...) asm volatile(__VA_ARGS__)
#else
#define LAUNCH_PTX(...)
#endif

__device__ __forceinline__ void launch_wait() {
  LAUNCH_PTX("griddepcontrol.wait;" ::: "memory");
}

__device__ __forceinline__ void launch_next() {
  LAUNCH_PTX("griddepcontrol.launch_dependents;" ::: "memory");
}

__device__ __forceinline__ unsigned cluster_address(const void *shared) {
  return (unsigned)__cvta_generic_to_shared(shared);
}

/* A barrier of all threads of the cluster. Behind it each thread sees what any of them wrote before it. */
__device__ __forceinline__ void cluster_meet() {
  CLUSTER_PTX("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}

__device__ __forceinline__ void cluster_gate_make(cluster_gate *gate) {
  CLUSTER_PTX("mbarrier.init.shared::cta.b64 [%0], 1;\n\tfence.mbarrier_init.release.cluster;" ::"r"(cluster_address(gate))
              : "memory");
}

__device__ __forceinline__ void cluster_gate_expect(cluster_gate *gate, unsigned bytes) {
  CLUSTER_PTX("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(cluster_address(gate)), "r"(bytes) : "memory");
}

__device__ __forceinline__ cluster_far cluster_find(const void *mine, unsigned rank) {
  cluster_far far = {0};
  CLUSTER_PTX("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(far.address) : "r"(cluster_address(mine)), "r"(rank));
  return far;
}

__device__ __forceinline__ void cluster_send(cluster_far far, unsigned at, float value, unsigned gate) {
  CLUSTER_PTX("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(far.address + at),
              "r"(__float_as_uint(value)), "r"(far.address + gate)
              : "memory");
}

__device__ __forceinline__ void cluster_send(cluster_far far, unsigned at, double value, unsigned gate) {
  CLUSTER_PTX("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(far.address + at),
              "l"(__double_as_longlong(value)), "r"(far.address + gate)
              : "memory");
}

__device__ __forceinline__ void cluster_gate_wait(cluster_gate *gate, unsigned parity) {
  unsigned open = 1;
  do {
    CLUSTER_PTX("{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\t"
                "selp.u32 %0, 1, 0, p;\n\t}"
                : "=r"(open)
                : "r"(cluster_address(gate)), "r"(parity)
                : "memory");
  } while (open == 0);
}
#endif

/* Clusters of more than eight blocks depend on the GPU, and the kernel must be allowed them, as it must be allowed more than 48
 * KiB of shared memory. ERR_CUDA: the GPU does not answer. */
template <typename F>
bppsa_status cluster_fits(F *kernel, unsigned cluster, unsigned threads, size_t shared, int device, bool *fits) {
  enum { PORTABLE = 8 };
  int has = 0, clusters = 0, most = 0;
  BPPSA_TRY(bppsa_cuda_check(cudaDeviceGetAttribute(&has, cudaDevAttrClusterLaunch, device), "clusters of blocks"));
  BPPSA_TRY(bppsa_cuda_check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
                             "clusters of blocks: shared memory"));
  cudaFuncAttributes code = {};
  BPPSA_TRY(bppsa_cuda_check(cudaFuncGetAttributes(&code, kernel), "clusters of blocks: code"));
  if (has != 0 && shared <= (size_t)most &&
      code.ptxVersion >= 90) { /* code for older GPUs runs on this one too, without clusters */
    BPPSA_TRY(bppsa_cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
                               "clusters of blocks: shared memory"));
    const cluster_config c(cluster, cluster, threads, shared, NULL);
    if (cluster > PORTABLE) {
      BPPSA_TRY(bppsa_cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
                                 "clusters of blocks: more than eight"));
    }
    if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &c.config) != cudaSuccess) {
      (void)cudaGetLastError(); /* a size that this GPU refuses is an answer */
      clusters = 0;
    }
  }
  *fits = clusters > 0;
  return BPPSA_OK;
}

#endif
