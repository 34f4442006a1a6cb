/* Launches the passes of wide_kernels.cuh. */
#ifndef BPPSA_RECURRENT_GPU_WIDE_LAUNCH_CUH
#define BPPSA_RECURRENT_GPU_WIDE_LAUNCH_CUH

#include <type_traits>

#include "recurrent/gpu/speculate_wide.cuh"

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

/* The same for the kernels of the parallel forward pass. */
template <typename real, template <typename> class cell, int SIZE> bppsa_status wide_speculates(int device, bool *fits) {
  typedef wide_shape<real, cell<real>::MATRICES, SIZE, false> shape;
  typedef wide_walk_shape<real, cell<real>::MATRICES, SIZE> walk;
  bool all[4] = {true, true, true, true};
  if constexpr (shape::EXISTS && shape::CLUSTER > 1) {
    BPPSA_TRY(cluster_fits(bppsa_recurrent_wide_speculate<real, cell, shape, false>, shape::CLUSTER, shape::THREADS,
                           shape::SHARED, device, &all[0]));
    BPPSA_TRY(cluster_fits(bppsa_recurrent_wide_speculate<real, cell, shape, true>, shape::CLUSTER, shape::THREADS, shape::SHARED,
                           device, &all[1]));
    BPPSA_TRY(
        cluster_fits(bppsa_recurrent_wide_mend<real, cell, walk>, shape::CLUSTER, shape::THREADS, walk::SHARED, device, &all[2]));
    BPPSA_TRY(
        cluster_fits(bppsa_recurrent_wide_tail<real, cell, walk>, shape::CLUSTER, shape::THREADS, walk::SHARED, device, &all[3]));
  }
  *fits = shape::EXISTS && all[0] && all[1] && all[2] && all[3];
  return BPPSA_OK;
}

/* Do all passes of a layer of H units run on this GPU? */
template <typename real, template <typename> class cell> bppsa_status wide_runs(int64_t hidden, int device, bool *runs) {
  *runs = false;
  return wide_sized(hidden, BPPSA_OK, [=](auto size) {
    bool there, back, parallel;
    BPPSA_TRY((wide_fits<real, cell, size.value, false>(device, &there)));
    BPPSA_TRY((wide_fits<real, cell, size.value, true>(device, &back)));
    BPPSA_TRY((wide_speculates<real, cell, size.value>(device, &parallel)));
    *runs = there && back && parallel;
    return BPPSA_OK;
  });
}

/* Launches a kernel with a block or a cluster for each of `items`. */
#define WIDE_LAUNCH(kernel, shape, items, stream, ...)                                                                           \
  do {                                                                                                                           \
    if constexpr (shape::CLUSTER > 1) {                                                                                          \
      BPPSA_LAUNCH_CLUSTER(kernel, shape::CLUSTER, (unsigned)(items)*shape::CLUSTER, shape::THREADS, shape::SHARED, stream,      \
                           __VA_ARGS__);                                                                                         \
    } else {                                                                                                                     \
      BPPSA_LAUNCH(kernel, (unsigned)(items), shape::THREADS, shape::SHARED, stream, __VA_ARGS__);                               \
    }                                                                                                                            \
  } while (0)

/* Launches the phases of a wide layer's parallel forward pass, or the sequential pass, which runs during a pause. */
template <typename real, template <typename> class cell>
bppsa_status wide_speculate(cudaStream_t stream, const layer_arrays<real> &c, const speculate_arrays<real> &s, int64_t rounds) {
  const bppsa_status otherwise = BPPSA_ERR_UNSUPPORTED; /* never: wide_runs has said so */
  layer_arrays<real> sequential = c;
  sequential.pause = &s.report->pause.left;
  return wide_sized(c.hidden, otherwise, [&](auto size) {
    typedef wide_shape<real, cell<real>::MATRICES, size.value, false> shape;
    typedef wide_walk_shape<real, cell<real>::MATRICES, size.value> walk;
    if constexpr (!shape::EXISTS) {
      return otherwise;
    } else {
      const int64_t items = s.chunks * c.batch;
      int phase = 0;
      WIDE_LAUNCH((bppsa_recurrent_wide_speculate<real, cell, shape, false>), shape, items, stream, c, s);
      for (int64_t round = 1; round <= rounds; ++round) {
        WIDE_LAUNCH((bppsa_recurrent_wide_mend<real, cell, walk>), walk, items, stream, c, s, ++phase, (int)((round - 1) % 2));
        if (round == 1) {
          WIDE_LAUNCH((bppsa_recurrent_wide_speculate<real, cell, shape, true>), shape, items, stream, c, s);
          ++phase;
        }
      }
      WIDE_LAUNCH((bppsa_recurrent_wide_tail<real, cell, walk>), walk, c.batch, stream, c, s, (int)(rounds % 2));
      WIDE_LAUNCH((bppsa_recurrent_wide_forward<real, cell, shape>), shape, c.batch, stream, sequential);
      return bppsa_cuda_check(cudaGetLastError(), "parallel forward pass: launch");
    }
  });
}

template <typename real, template <typename> class cell, bool BACK>
bppsa_status wide_launch(cudaStream_t stream, const layer_arrays<real> &c) {
  const bppsa_status otherwise = BPPSA_ERR_UNSUPPORTED; /* never: wide_runs has said so */
  return wide_sized(c.hidden, otherwise, [&](auto size) {
    typedef wide_shape<real, cell<real>::MATRICES, size.value, BACK> shape;
    if constexpr (!shape::EXISTS) {
      return otherwise;
    } else if constexpr (BACK) {
      WIDE_LAUNCH((bppsa_recurrent_wide_walk<real, cell, shape>), shape, c.batch, stream, c);
    } else {
      WIDE_LAUNCH((bppsa_recurrent_wide_forward<real, cell, shape>), shape, c.batch, stream, c);
    }
    return bppsa_cuda_check(cudaGetLastError(), BACK ? "backward pass: launch" : "forward pass: launch");
  });
}

#undef WIDE_LAUNCH

} // namespace

#endif
