/* Launches of a recurrent layer's kernels for H <= 32 (chunk_kernels.cuh), and of the wide forward pass. Instances for f32 and f64, RNN and GRU, are
 * in chunk_cuda.cu. All are queued on the stream. */
#ifndef BPPSA_RECURRENT_CHUNK_CUDA_CUH
#define BPPSA_RECURRENT_CHUNK_CUDA_CUH

#include "core/check.cuh"
#include "recurrent/chunk_kernels.cuh"
#include "recurrent/forward_kernels.cuh"

enum { CHUNK_HIDDEN = 32 }; /* the largest H */

template <typename real, template <typename> class cell> struct chunk_launch {
  /* Whether a walk can sum weight gradients: they fit into registers. */
  static bool sums(int64_t hidden);
  static int64_t padded_hidden(int64_t hidden); /* HP */
  /* Blocks of a walk over `chunks` chunks, which are the parts of its partial sums. */
  static int64_t blocks(int64_t chunks, int64_t batch);

  static bppsa_status forward(cudaStream_t stream, const layer_arrays<real> &c);
  static bppsa_status forward_wide(cudaStream_t stream, const layer_arrays<real> &c, real *w_t);
  /* Transitions, what is injected, and the carry: to s.carried. For more than one chunk. */
  static bppsa_status carry(cudaStream_t stream, const layer_arrays<real> &c, const chunk_arrays<real> &s);
  static bppsa_status walk(cudaStream_t stream, const layer_arrays<real> &c, const chunk_arrays<real> &s);
  /* d_k and e; delta_x and delta_h. */
  static bppsa_status coefficients(cudaStream_t stream, const layer_arrays<real> &c);
  static bppsa_status deltas(cudaStream_t stream, const layer_arrays<real> &c);
  /* Asks for more shared memory than 48 KiB, once a device. */
  static bppsa_status prepare(int64_t hidden);
};

#endif
