/* Launches the passes of wide_kernels.cuh. */
#ifndef BPPSA_RECURRENT_WIDE_LAUNCH_CUH
#define BPPSA_RECURRENT_WIDE_LAUNCH_CUH

#include <type_traits>

#include "recurrent/wide_kernels.cuh"

namespace {

/* Calls f with the first place in wide_sizes that has room for H, as a constant; `otherwise` where none has. */
template <typename F> bppsa_status wide_sized(int64_t hidden, bppsa_status otherwise, F f) {
  return hidden <= wide_sizes[0]   ? f(std::integral_constant<int, 0>())
         : hidden <= wide_sizes[1] ? f(std::integral_constant<int, 1>())
         : hidden <= wide_sizes[2] ? f(std::integral_constant<int, 2>())
         : hidden <= wide_sizes[3] ? f(std::integral_constant<int, 3>())
         : hidden <= wide_sizes[4] ? f(std::integral_constant<int, 4>())
                                   : otherwise;
}

/* Does the GPU have room for the pass? */
template <typename real, template <typename> class cell, int SIZE, bool BACK> bppsa_status wide_fits(int device, bool *fits) {
  typedef wide_shape<real, cell<real>::MATRICES, SIZE, BACK> shape;
  *fits = shape::EXISTS;
  if constexpr (shape::EXISTS && shape::CLUSTER > 1) {
    if constexpr (BACK) { /* at compile time: no kernel is made for the other pass */
      return cluster_fits(bppsa_recurrent_wide_walk<real, cell, shape>, shape::CLUSTER, shape::THREADS, shape::SHARED, device,
                          fits);
    } else {
      return cluster_fits(bppsa_recurrent_wide_forward<real, cell, shape>, shape::CLUSTER, shape::THREADS, shape::SHARED, device,
                          fits);
    }
  }
  return BPPSA_OK;
}

/* Do both passes of a layer of H units run on this GPU? */
template <typename real, template <typename> class cell> bppsa_status wide_runs(int64_t hidden, int device, bool *runs) {
  *runs = false;
  return wide_sized(hidden, BPPSA_OK, [=](auto size) {
    bool there, back;
    BPPSA_TRY((wide_fits<real, cell, size.value, false>(device, &there)));
    BPPSA_TRY((wide_fits<real, cell, size.value, true>(device, &back)));
    *runs = there && back;
    return BPPSA_OK;
  });
}

template <typename real, template <typename> class cell, bool BACK>
bppsa_status wide_launch(cudaStream_t stream, const layer_arrays<real> &c) {
  const bppsa_status otherwise = BPPSA_ERR_UNSUPPORTED; /* never: wide_runs has said so */
  return wide_sized(c.hidden, otherwise, [&](auto size) {
    typedef wide_shape<real, cell<real>::MATRICES, size.value, BACK> shape;
    if constexpr (!shape::EXISTS) {
      return otherwise;
    } else if constexpr (shape::CLUSTER > 1 && BACK) {
      BPPSA_LAUNCH_CLUSTER((bppsa_recurrent_wide_walk<real, cell, shape>), shape::CLUSTER, (unsigned)c.batch * shape::CLUSTER,
                           shape::THREADS, shape::SHARED, stream, c);
    } else if constexpr (shape::CLUSTER > 1) {
      BPPSA_LAUNCH_CLUSTER((bppsa_recurrent_wide_forward<real, cell, shape>), shape::CLUSTER, (unsigned)c.batch * shape::CLUSTER,
                           shape::THREADS, shape::SHARED, stream, c);
    } else if constexpr (BACK) {
      BPPSA_LAUNCH((bppsa_recurrent_wide_walk<real, cell, shape>), (unsigned)c.batch, shape::THREADS, shape::SHARED, stream, c);
    } else {
      BPPSA_LAUNCH((bppsa_recurrent_wide_forward<real, cell, shape>), (unsigned)c.batch, shape::THREADS, shape::SHARED, stream,
                   c);
    }
    return bppsa_cuda_check(cudaGetLastError(), BACK ? "backward pass: launch" : "forward pass: launch");
  });
}

} // namespace

#endif
