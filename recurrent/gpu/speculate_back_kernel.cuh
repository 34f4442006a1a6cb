/* The backward pass in parallel over time (recurrent/parallel_backward.h), for H <= 32: a team of two warps for a chunk and sample.
 * One launch takes a sample through all phases, if a cluster of blocks has a team for each of its chunks; barriers of the sample's
 * own teams are between the phases. Otherwise speculation is a launch of its own, and then the cluster's teams take chunks in turn.
 *
 *     guess     every chunk from W steps later in time; a chunk into which nothing is injected walks a random vector
 *     mend      a round: verifies boundaries, and walks differences through the chunks that do not fit. Rounds are repeated
 *     tail      by one team: what is still doubtful, one chunk after the other
 *     whole     by one team: the sample from its end, that is BP: during a pause; if a number of the sample is not finite; if the
 *               first round shows that further rounds take too long. Where a chunked scan is faster, it does that in launches of
 *               its own behind this one, which end at once if no sample needs them
 *
 * Samples decide for themselves. Weight gradients of a walk are summed in registers, and then added to sums in shared memory, so
 * that those of differences are summed apart from larger ones. A team takes its chunks in a fixed order: bits do not depend on how
 * warps are scheduled.
 *
 * speculate_back_team.cuh has what the two warps share and what the second one does, speculate_back_walk.cuh the steps of the first
 * one, speculate_back_phases.cuh the phases, speculate_back_decide.cuh the decisions, and speculate_back_report.cuh the report. */
#ifndef BPPSA_RECURRENT_GPU_SPECULATE_BACK_KERNEL_CUH
#define BPPSA_RECURRENT_GPU_SPECULATE_BACK_KERNEL_CUH

#include "core/base/cut.h"
#include "recurrent/gpu/speculate_back_phases.cuh"
#include "recurrent/gpu/speculate_back_report.cuh"

/* Adds the sums of a block's teams, in order, and writes them to the block's part. If no other launch adds these, the `blocks`
 * blocks of a sample do, and then the block that ends last. */
template <typename real>
__device__ __forceinline__ void back_finish(const back_arrays<real> &s, int count, int blocks, int teams, const real *sums) {
  __syncthreads();
  for (int at = (int)threadIdx.x; at < (int)count; at += (int)blockDim.x) {
    real sum = 0, rest = 0;
    for (int team = 0; team < teams; ++team) {
      sum += sums[team * 2 * count + at];
      rest += sums[team * 2 * count + count + at];
    }
    s.partials[(int64_t)blockIdx.x * count + at] = isfinite(sum) ? sum + rest : sum;
  }
  if (s.to.counted != NULL) {
    const int rank = (int)blockIdx.x % blocks;
    if (blocks > 1) {
      rest_meet(blocks);
      walk_sums_join(s.partials + ((int64_t)blockIdx.x - rank) * count, count, blocks, rank);
    }
    walk_sums_end(s.to, s.partials, (int)gridDim.x / blocks, blocks * count, count, gridDim.x);
  }
}

/* Takes the team's chunks through all phases. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void back_lead(const layer_arrays<real> &c, const back_arrays<real> &s, int own, int teams, int part,
                                          int blocks, int parts, bool first, bool last, back_course *o) {
  enum { K = cell<real>::MATRICES, PAIR = cell<real>::PAIR };
  back_walk<real> w = {};
  w.own = own;
  w.teams = teams;
  w.part = part;
  w.resets = c.resets.mask != NULL;
  if ((parts & BACK_GUESS) != 0) { /* behind the sample's end */
    const int64_t behind = c.steps - o->length;
    back_clear<real, K>(c, *o, o->length + (int)bppsa_cut(behind, o->teams, o->team),
                        o->length + (int)bppsa_cut(behind, o->teams, o->team + 1));
  }
  while (back_next<real, cell, HP, KIND>(c, s, blocks, parts, o, &w)) {
    back_go<real, cell, HP, KIND>(c, s, o, &w);
  }
  if (o->team == 0 && (parts & BACK_REST) != 0) {
    if (!o->idle && !o->given_up) {
      __syncwarp(); /* all lanes see what the tail wrote */
      back_take<PAIR != 0>(place_of_round(s.ends, o->in) + back_at<real, cell>(c, *o, 0), c.hidden, &w);
    }
    if (c.want_input && (!o->given_up || s.fallen == NULL)) { /* g_0 */
      back_put<PAIR != 0>(*o, w, c.hidden, c.g + o->b * (1 + PAIR) * c.hidden + o->j);
    }
    back_tell(c, s, *o, first, last);
  }
  back_ask<real, cell, HP, KIND>(*o, {BACK_ENDS}, w);
}

/* `blocks` blocks for each sample, which are a cluster if parts has BACK_REST. The first half of a block's warps are walkers, the
 * other half their helpers, so that those of few teams are on different schedulers. shared: for each team back_team::REALS, and
 * then with sums two parts for each. first, last: is it the first, the last layer of the pass? */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__global__ void __launch_bounds__(BACK_TEAMS *BACK_TEAM, 1)
    bppsa_recurrent_back(const __grid_constant__ layer_arrays<real> c, const __grid_constant__ back_arrays<real> s, int blocks,
                         int parts, bool first, bool last) {
  typedef back_team<real, cell, HP, KIND> team;
  const int teams = (int)blockDim.x / BACK_TEAM, lane = (int)threadIdx.x % WARP_LANES;
  const int of_block = __shfl_sync(0xffffffffu, (int)threadIdx.x / WARP_LANES, 0); /* the compiler sees that all lanes agree */
  const int own = of_block < teams ? of_block : of_block - teams;
  const int part = team::SUM ? (int)back_part(cell<real>::MATRICES, c) : 0;
  const back_places<real, cell, HP, KIND> at(own, teams, part);
  back_course o = {};
  o.lane = lane;
  o.unit = lane < c.hidden;
  o.j = o.unit ? lane : 0;
  o.b = (int)blockIdx.x / blocks;
  launch_wait(); /* for the launch that has speculated, if that is another one */
  launch_next();
  o.idle = s.report->state.pause.left > 0 || s.report->misses != 0;
  if (o.idle && (parts & BACK_REST) != 0) {
    rest_meet(blocks); /* all know that the pass is BP; the last warp may change that */
  }
  if (o.idle && s.fallen != NULL) { /* or the scan */
    if ((parts & BACK_REST) != 0 && of_block == 0 && (int)blockIdx.x % blocks == 0) {
      back_tell(c, s, o, first, last);
    }
    return;
  }
  if (of_block < teams) {
    o.team = (int)blockIdx.x % blocks * teams + own;
    o.teams = blocks * teams;
    o.p = o.team;
    o.length = (int)(s.lengths != NULL ? s.lengths[o.b] : c.steps);
    back_cut_up(s, &o);
    o.warm_up = (int)(s.report->state.warm_up > 0 ? s.report->state.warm_up : s.warm_up);
    o.warm_up = o.warm_up < o.length ? o.warm_up : o.length;
    o.kind = !o.idle ? BACK_CHUNK : (parts & BACK_REST) != 0 ? BACK_WHOLE : BACK_DONE;
    back_lead<real, cell, HP, KIND>(c, s, own, teams, part, blocks, parts, first, last, &o);
  } else {
    for (int i = lane; i < team::DELTA_REALS; i += WARP_LANES) { /* units beyond H, which no lane writes */
      at.deltas[i] = 0;
    }
    back_clear_sums(lane, part, at.sums);
    back_help<real, cell, HP, KIND>(c, s, own, teams, part, blocks, o.b, lane);
  }
  if constexpr (KIND != WALK_FREE) {
    back_finish(s, part, blocks, teams, at.sums - own * 2 * part);
  }
}

#endif
