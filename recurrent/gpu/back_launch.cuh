/* Launches the parallel backward pass of a layer, H <= 32 (recurrent/gpu/speculate_back_kernels.cuh). */
#ifndef BPPSA_RECURRENT_GPU_BACK_LAUNCH_CUH
#define BPPSA_RECURRENT_GPU_BACK_LAUNCH_CUH

#include "recurrent/gpu/speculate_back_kernels.cuh"

namespace {

/* The kind of a layer's walks, which sum weight gradients if these fit. */
template <typename real, template <typename> class cell, int HP> constexpr walk_kind back_walks() {
  return fits<real, cell, HP>::SUM ? WALK_SUMS : WALK_FREE;
}

/* Bytes of shared memory of a block. */
template <typename real, template <typename> class cell, int HP>
size_t back_shared(int64_t hidden, int64_t input, bool sums, int64_t warps) {
  const int64_t all = cell<real>::MATRICES * hidden, part = sums ? all * hidden + (input == 1 ? 3 : 2) * all : 0;
  return (size_t)(warps * (2 * cell<real>::MATRICES * HP + part)) * sizeof(real);
}

/* Finds the largest cluster for which the GPU has room. */
template <typename real, template <typename> class cell, int HP>
bppsa_status back_fits(int64_t hidden, int device, int *most_cluster) {
  enum { SUM = fits<real, cell, HP>::SUM };
  const size_t shared = back_shared<real, cell, HP>(hidden, 1, SUM, BACK_WARPS);
  for (*most_cluster = BACK_CLUSTER; *most_cluster > 1; *most_cluster /= 2) {
    bool has_room;
    BPPSA_TRY(cluster_fits(bppsa_recurrent_back<real, cell, HP, back_walks<real, cell, HP>()>, (unsigned)*most_cluster,
                           BACK_THREADS, shared, device, &has_room));
    if (has_room) {
      break;
    }
  }
  return BPPSA_OK;
}

template <typename real, template <typename> class cell, int HP>
bppsa_status launch_back(cudaStream_t stream, const layer_arrays<real> &c, back_arrays<real> s, const back_shape &shape,
                         bool first, bool last) {
  const bool sums = s.partials != NULL;
  const auto shared = [&](int warps) { return back_shared<real, cell, HP>(c.hidden, c.input, sums, warps); };
  int parts = BACK_ALL;
  if (shape.guess_blocks > 0) {
    BPPSA_LAUNCH((bppsa_recurrent_back<real, cell, HP, back_walks<real, cell, HP>()>), (unsigned)(c.batch * shape.guess_blocks),
                 (unsigned)(shape.guess_warps * WARP_LANES), shared(shape.guess_warps), stream, c, s, shape.guess_blocks,
                 (int)BACK_GUESS, first, last);
    parts = BACK_REST;
    s.guessed = s.partials;
    s.guess_blocks = shape.guess_blocks;
    s.partials += sums ? c.batch * shape.guess_blocks * back_part<real>(cell<real>::MATRICES, c) : 0;
  }
  if (shape.blocks > 1) {
    if (parts == BACK_ALL) { /* the kernel in front may be anyone's */
      BPPSA_LAUNCH_CLUSTER((bppsa_recurrent_back<real, cell, HP, back_walks<real, cell, HP>()>), (unsigned)shape.blocks,
                           (unsigned)(c.batch * shape.blocks), (unsigned)(shape.warps * WARP_LANES), shared(shape.warps), stream,
                           c, s, shape.blocks, parts, first, last);
    } else {
      BPPSA_LAUNCH_EARLY((bppsa_recurrent_back<real, cell, HP, back_walks<real, cell, HP>()>), (unsigned)shape.blocks,
                         (unsigned)(c.batch * shape.blocks), (unsigned)(shape.warps * WARP_LANES), shared(shape.warps), stream, c,
                         s, shape.blocks, parts, first, last);
    }
  } else {
    BPPSA_LAUNCH((bppsa_recurrent_back<real, cell, HP, back_walks<real, cell, HP>()>), (unsigned)c.batch,
                 (unsigned)(shape.warps * WARP_LANES), shared(shape.warps), stream, c, s, shape.blocks, parts, first, last);
  }
  return bppsa_cuda_check(cudaGetLastError(), "parallel backward pass: launch");
}

} // namespace

#endif
