/* The backward pass in parallel over time (recurrent/parallel_backward.h), for H <= 32: a warp for a chunk and sample, whose steps
 * are those of BP in chunk_kernels.cuh. One launch takes a sample through all phases, if a cluster of blocks has a warp for each of
 * its chunks; barriers of the sample's own warps are between the phases. Otherwise speculation is a launch of its own, and then the
 * cluster's warps take chunks in turn.
 *
 *     guess     every chunk from W steps later in time; a chunk into which nothing is injected walks a random vector
 *     mend      a round: verifies boundaries, and walks differences through the chunks that do not fit. Rounds are repeated
 *     tail      by one warp: what is still doubtful, one chunk after the other
 *     whole     by one warp: the sample from its end, that is BP: during a pause; if a number of the sample is not finite; if the
 *               first round shows that further rounds take too long
 *
 * Samples decide for themselves. Weight gradients of a walk are summed in registers, and then added to sums in shared memory, so
 * that those of differences are summed apart from larger ones. A warp takes its chunks in a fixed order: bits do not depend on how
 * warps are scheduled.
 *
 * speculate_back_walk.cuh has the steps of a warp, speculate_back_phases.cuh the phases, speculate_back_decide.cuh the decisions, and
 * speculate_back_report.cuh the report. */
#ifndef BPPSA_RECURRENT_GPU_SPECULATE_BACK_KERNELS_CUH
#define BPPSA_RECURRENT_GPU_SPECULATE_BACK_KERNELS_CUH

#include "core/base/cut.h"
#include "recurrent/gpu/speculate_back_phases.cuh"
#include "recurrent/gpu/speculate_back_report.cuh"

/* Adds the sums of a block's warps, in order, and writes them to the block's part. If no other launch adds these, the `blocks`
 * blocks of a sample do, and then the block that ends last. */
template <typename real>
__device__ __forceinline__ void back_finish(const back_arrays<real> &s, int64_t count, int blocks, const real *sums) {
  const int warps = (int)blockDim.x / WARP_LANES;
  __syncthreads();
  for (int at = (int)threadIdx.x; at < (int)count; at += (int)blockDim.x) {
    real sum = 0;
    for (int warp = 0; warp < warps; ++warp) {
      sum += sums[warp * count + at];
    }
    s.partials[(int64_t)blockIdx.x * count + at] = sum;
  }
  if (s.to.counted != NULL) {
    const int rank = (int)blockIdx.x % blocks;
    if (blocks > 1) {
      back_meet(blocks);
      walk_sums_join(s.partials + ((int64_t)blockIdx.x - rank) * count, count, blocks, rank);
    }
    walk_sums_end(s.to, s.partials, (int)gridDim.x / blocks, blocks * count, count, gridDim.x);
  }
}

/* `blocks` blocks for each sample, which are a cluster if parts has BACK_REST. shared: for each warp 2 · K · HP reals, and then
 * with sums a part for each. first, last: is it the first, the last layer of the pass? */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__global__ void __launch_bounds__(BACK_THREADS, 1)
    bppsa_recurrent_back(layer_arrays<real> c, back_arrays<real> s, int blocks, int parts, bool first, bool last) {
  enum { K = cell<real>::MATRICES, PAIR = cell<real>::PAIR, AHEAD = walk_lane<real, cell, HP, KIND>::AHEAD };
  BPPSA_SHARED(real, shared);
  const int warps = (int)blockDim.x / WARP_LANES, lane = (int)threadIdx.x % WARP_LANES;
  const int of_block = __shfl_sync(0xffffffffu, (int)threadIdx.x / WARP_LANES, 0); /* the compiler sees that all lanes agree */
  const int64_t count = back_part(K, c);
  back_course o = {};
  back_walk<real, cell, HP, KIND> w = {};
  o.lane = lane;
  o.unit = lane < c.hidden;
  o.j = o.unit ? lane : 0;
  o.b = (int)blockIdx.x / blocks;
  o.warp = (int)blockIdx.x % blocks * warps + of_block;
  o.warps = blocks * warps;
  o.p = o.warp;
  w.delta = launch_held(shared + of_block * 2 * K * HP);
  w.sums = launch_held(shared + warps * 2 * K * HP + of_block * count);
  walk_weights(c.w_hh, c.hidden, o.unit, lane, o.j, w.delta, &w.l);
  launch_wait(); /* for the launch that has speculated, if that is another one */
  launch_next();
  o.length = (int)(s.lengths != NULL ? s.lengths[o.b] : c.steps);
  back_cut_up(s, &o);
  o.idle = s.report->state.pause.left > 0 || s.report->misses != 0;
  o.warm_up = (int)(s.report->state.warm_up > 0 ? s.report->state.warm_up : s.warm_up);
  o.warm_up = o.warm_up < o.length ? o.warm_up : o.length;
  back_flush(c, o, true, &w);
  if ((parts & BACK_GUESS) != 0) { /* behind the sample's end */
    const int64_t behind = c.steps - o.length;
    back_clear<real, K>(c, o, o.length + (int)bppsa_cut(behind, o.warps, o.warp),
                        o.length + (int)bppsa_cut(behind, o.warps, o.warp + 1));
  }
  if (o.idle && (parts & BACK_REST) != 0) {
    back_meet(blocks); /* all know that the pass is BP; the last warp may change that */
  }
  o.kind = !o.idle ? BACK_CHUNK : (parts & BACK_REST) != 0 ? BACK_WHOLE : BACK_DONE;
  w.l.state = c.batch * c.hidden;
  w.l.reads_u = true;
  w.l.c_place = c.hidden;
  w.l.reads_x = KIND != WALK_FREE && c.input == 1;
  w.l.x_row = AHEAD * c.batch;
  while (back_next(c, s, blocks, parts, &o, &w)) {
    back_go(c, s, &o, &w);
  }
  if (o.warp == 0 && (parts & BACK_REST) != 0) {
    if (!o.idle && !o.given_up) {
      __syncwarp(); /* all lanes see what the tail wrote */
      back_take(place_of_round(s.ends, o.in) + back_at<real, cell>(c, o, 0), c.hidden, &w);
    }
    if (c.want_input) { /* g_0 */
      back_put(o, w, c.hidden, c.g + o.b * (1 + PAIR) * c.hidden + o.j);
    }
    back_tell(c, s, o, first, last);
  }
  if constexpr (KIND != WALK_FREE) {
    back_finish(s, count, blocks, w.sums - of_block * count);
  }
}

#endif
