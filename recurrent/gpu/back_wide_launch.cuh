/* Launches the parallel backward pass of a wide layer (recurrent/gpu/speculate_back_wide.cuh). */
#ifndef BPPSA_RECURRENT_GPU_BACK_WIDE_LAUNCH_CUH
#define BPPSA_RECURRENT_GPU_BACK_WIDE_LAUNCH_CUH

#include "recurrent/gpu/speculate_back_wide.cuh"
#include "recurrent/gpu/wide_launch.cuh"

namespace {

/* Finds how many teams of a sample form a cluster at most; 0: the GPU has no room for one. */
template <typename real, template <typename> class cell>
bppsa_status back_wide_fits(int64_t hidden, int device, int *most_cluster) {
  *most_cluster = 0;
  return wide_sized(hidden, BPPSA_OK, [=](auto size) {
    typedef wide_back_shape<real, cell<real>::MATRICES, size.value> shape;
    if constexpr (shape::EXISTS) {
      int teams = shape::CLUSTER > 1 ? 1 : (int)BACK_CLUSTER;
      for (; teams * shape::CLUSTER > 1; teams /= 2) { /* a single block needs no cluster */
        bool has_room;
        BPPSA_TRY(cluster_fits(bppsa_recurrent_back_wide<real, cell, shape>, (unsigned)(teams * shape::CLUSTER), shape::THREADS,
                               shape::SHARED, device, &has_room));
        if (has_room) {
          break;
        }
      }
      *most_cluster = teams;
    }
    return BPPSA_OK;
  });
}

template <typename real, template <typename> class cell>
bppsa_status launch_back_wide(cudaStream_t stream, const layer_arrays<real> &c, const back_arrays<real> &s,
                              const back_shape &shape, bool first, bool last) {
  const bppsa_status otherwise = BPPSA_ERR_UNSUPPORTED; /* never: back_wide_fits has said so */
  return wide_sized(c.hidden, otherwise, [&](auto size) {
    typedef wide_back_shape<real, cell<real>::MATRICES, size.value> kind;
    if constexpr (!kind::EXISTS) {
      return otherwise;
    } else {
      const auto launch = [&](int teams, int parts, int before) {
        const unsigned cluster = (unsigned)(kind::CLUSTER * ((parts & BACK_REST) != 0 ? teams : 1)),
                       blocks = (unsigned)(c.batch * teams * kind::CLUSTER);
        if (cluster > 1) {
          BPPSA_LAUNCH_CLUSTER((bppsa_recurrent_back_wide<real, cell, kind>), cluster, blocks, kind::THREADS, kind::SHARED,
                               stream, c, s, teams, parts, before, first, last);
        } else {
          BPPSA_LAUNCH((bppsa_recurrent_back_wide<real, cell, kind>), blocks, kind::THREADS, kind::SHARED, stream, c, s, teams,
                       parts, before, first, last);
        }
      };
      if (shape.guess_blocks > 0) {
        launch(shape.guess_blocks, BACK_GUESS, 0);
        for (int round = 0; round < shape.rounds; ++round) {
          launch(shape.guess_blocks, BACK_ROUND, round);
        }
      }
      launch(shape.blocks, shape.guess_blocks > 0 ? BACK_REST : BACK_ALL, shape.rounds);
      return bppsa_cuda_check(cudaGetLastError(), "parallel backward pass: launch");
    }
  });
}

} // namespace

#endif
