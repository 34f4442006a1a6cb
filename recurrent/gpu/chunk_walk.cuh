/* Phase 3 of the fused backward pass, and sequential BP (recurrent/gpu/chunk_kernels.cuh): a warp goes through a chunk, and sums
 * weight gradients. */
#ifndef BPPSA_RECURRENT_GPU_CHUNK_WALK_CUH
#define BPPSA_RECURRENT_GPU_CHUNK_WALK_CUH

#include "core/base/cut.h"
#include "core/compute/launch.cuh"
#include "recurrent/gpu/cell_cuda.cuh"
#include "recurrent/gpu/lanes.cuh"
#include "recurrent/gpu/walk_sums.cuh"

/* A warp's sums of weight gradients: lane j has column j of dW_hh, and unit j of the others. db_hh differs from db_ih only in the
 * last gate. */
template <typename real, int K, int HP> struct walk_sums { real w_hh[K][HP], b_ih[K], b_hh, w_ih[K]; };

/* Adds the sums of all warps of a block, in order, and writes them to the block's part. shared: for each warp as many reals as a
 * part has. */
template <typename real, int K, int HP>
__device__ void walk_finish(const layer_arrays<real> &c, const chunk_arrays<real> &s, const walk_sums<real, K, HP> &sums,
                            real *shared) {
  const int lane = (int)threadIdx.x % WARP_LANES, warp = (int)threadIdx.x / WARP_LANES, warps = (int)blockDim.x / WARP_LANES;
  const int hidden = (int)c.hidden, all = K * hidden, count = all * hidden + (c.input == 1 ? 3 : 2) * all;
  real *own = shared + warp * count;
  if (lane < hidden) {
    BPPSA_UNROLL
    for (int k = 0; k < K; ++k) {
      BPPSA_UNROLL
      for (int r = 0; r < HP; ++r) {
        if (r < hidden) {
          own[(k * hidden + r) * hidden + lane] = sums.w_hh[k][r];
        }
      }
      real *units = own + all * hidden + k * hidden + lane;
      units[0] = k + 1 == K ? sums.b_hh : sums.b_ih[k];
      units[all] = sums.b_ih[k];
      if (c.input == 1) {
        units[2 * all] = sums.w_ih[k];
      }
    }
  }
  __syncthreads();
  for (int at = (int)threadIdx.x; at < count; at += (int)blockDim.x) {
    real sum = 0;
    for (int w = 0; w < warps; ++w) {
      sum += shared[w * count + at];
    }
    s.partials[(int64_t)blockIdx.x * count + at] = sum;
  }
  if (s.to.counted != NULL) {
    walk_sums_end(s.to, s.partials, (int)gridDim.x, count, count, gridDim.x);
  }
}

/* Do the sums fit into registers beside the weights? */
template <typename real, template <typename> class cell, int HP> struct fits {
  enum { SUM = cell<real>::MATRICES * HP * (int)sizeof(real) <= 60 * 4 };
};

/* Kinds of walks. PLAIN, the usual case, sums weight gradients; nothing is injected, and no output but g_0 is written. SUMS also
 * injects gradients or writes outputs. FREE sums no weight gradients. */
enum walk_kind { WALK_PLAIN, WALK_SUMS, WALK_FREE };

/* The numbers that a lane reads for a step. */
template <typename real, template <typename> class cell> struct walk_step {
  cell<real> unit;
  real u, u_c; /* c: of a pair */
};

/* The numbers that a lane keeps during a walk: weights, sums, the gradient, and the addresses of its next numbers. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND> struct walk_lane {
  enum {
    K = cell<real>::MATRICES,
    SUM = KIND != WALK_FREE,
    MORE = KIND != WALK_PLAIN,
    AHEAD = K > 1 && SUM &&MORE ? cell<real>::AHEAD / 2 : (int)cell<real>::AHEAD
  };                        /* fewer if registers are short */
  real w[K][HP], g, g_c, x; /* a column of each W_k; g_c: of a pair; x: of step lane % AHEAD of the next round */
  walk_sums<real, K, SUM ? HP : 1> sums;
  walk_step<real, cell> ring[AHEAD]; /* the next steps */
  unit_place<real, cell> unit;
  bool reads_x, reads_u, stores_x, stores_h, stores_g;
  const real *x_at, *u_at;
  real *delta_x, *delta_h, *g_to;
  int64_t state, g_row, x_row; /* g_row: reals from one step of g to the next */
  int64_t c_place;             /* of a pair: reals from the gradient of h to that of c */
  resets_of_rounds<AHEAD> resets;
  real begin_h, begin_c; /* the unit's numbers of the state from which the sample begins anew; c: of a pair */
};

/* Reads the next step; with `step` also what only that step needs. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void walk_read(bool step, walk_step<real, cell> *to, walk_lane<real, cell, HP, KIND> *l) {
  to->unit = cell<real>::load(l->unit);
  l->unit.back();
  if (l->MORE && l->reads_u && step) {
    to->u = *l->u_at;
    if constexpr (cell<real>::PAIR) {
      to->u_c = l->u_at[l->c_place];
    }
    l->u_at -= l->g_row;
  }
}

/* Writes delta_x and delta_h of a step, if they are wanted. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void walk_store(int k, int64_t hidden, real to_x, real to_h, walk_lane<real, cell, HP, KIND> *l) {
  enum { K = cell<real>::MATRICES };
  if (l->MORE && l->stores_x) {
    l->delta_x[k * hidden] = to_x;
    l->delta_x -= k + 1 == K ? K * l->state : 0;
  }
  if (!l->SUM && cell<real>::SPLIT && l->stores_h) {
    l->delta_h[k * hidden] = to_h;
    l->delta_h -= k + 1 == K ? K * l->state : 0;
  }
}

/* What the steps of a round may need. PLAIN: nothing; this round and the next have all steps. CUT: likewise, but the sample may
 * begin anew in front of them. ANY: also tests whether a step exists, and writes the gradient of a learned state where one is
 * wanted. */
enum walk_form { WALK_FORM_PLAIN, WALK_FORM_CUT, WALK_FORM_ANY };

/* Computes g_{t-1} from g_t, and adds to the sums. own: K · HP reals of shared memory. last: g_{t-1} is g_0. anew: the sample
 * begins anew in front of the step, whose row is `row`, so that g_{t-1} is what is injected. */
template <walk_form FORM, typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void walk_back(const layer_arrays<real> &c, const walk_step<real, cell> &now, real before, real x,
                                          bool unit, int lane, bool last, bool anew, int64_t row, real *own,
                                          walk_lane<real, cell, HP, KIND> *l) {
  enum { K = cell<real>::MATRICES, Q = quad<real>::SIZE, SUM = KIND != WALK_FREE, SUMS_HP = SUM ? HP : 1 };
  const unit_back<real, cell> made(now.unit, c.relu, l->g, l->g_c);
  const bool adds = l->MORE && !(FORM == WALK_FORM_ANY && anew);
  real part[4] = {made.own + (adds ? now.u : (real)0), 0, 0, 0};
  l->g_c = cell<real>::PAIR ? made.own_c + (adds ? now.u_c : (real)0) : 0;
  BPPSA_UNROLL
  for (int k = 0; k < K; ++k) {
    const real to_h = made.to_h[k], to_x = k + 1 == K ? made.to_x : made.to_h[k];
    if (unit) {
      own[k * HP + lane] = to_h;
    }
    walk_store(k, c.hidden, to_x, to_h, l);
    if (SUM) {
      l->sums.b_ih[k] += to_x;
      l->sums.w_ih[k] += to_x * x;
      if (k + 1 == K) {
        l->sums.b_hh += to_h;
      }
    }
  }
  __syncwarp();
  BPPSA_UNROLL
  for (int k = 0; k < K; ++k) {
    quad<real> rows[HP / Q];
    BPPSA_UNROLL
    for (int q = 0; q < HP / Q; ++q) {
      rows[q] = ((const quad<real> *)(own + k * HP))[q];
    }
    BPPSA_UNROLL
    for (int r = 0; r < HP; ++r) {
      part[r % 4] += rows[r / Q].v[r % Q] * l->w[k][r];
      if (SUM) {
        l->sums.w_hh[k][r % SUMS_HP] += rows[r / Q].v[r % Q] * before;
      }
    }
  }
  l->g = (part[0] + part[1]) + (part[2] + part[3]);
  if (anew) {
    if (FORM == WALK_FORM_ANY && unit) {
      put_begun<real, cell>(c, row, lane, l->g, l->g_c);
    }
    l->g = l->MORE ? now.u : (real)0;
    l->g_c = cell<real>::PAIR && l->MORE ? now.u_c : (real)0;
  }
  if (!SUM && l->stores_g) {
    if (!last) {
      *l->g_to = l->g;
      if constexpr (cell<real>::PAIR) {
        l->g_to[l->c_place] = l->g_c;
      }
    }
    l->g_to -= l->g_row;
  }
}

/* A number of the lane's unit in the state from which samples begin anew. half: 1 for c of a pair. */
template <typename real> __device__ __forceinline__ real walk_begin(const layer_arrays<real> &c, bool unit, int lane, int half) {
  return begin_number(c, half * c.hidden + (unit ? lane : 0));
}

/* Computes AHEAD steps, of the `left` that are left, and reads the numbers of the next ones. RESETS: the batch has some. row: of
 * the round's first step. to_zero: the last of the steps that are left leads to g_0. */
template <walk_form FORM, bool RESETS, typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void walk_round(const layer_arrays<real> &c, bool unit, int lane, int left, bool to_zero, int64_t row,
                                           real *delta, walk_lane<real, cell, HP, KIND> *l) {
  enum {
    K = cell<real>::MATRICES,
    AHEAD = walk_lane<real, cell, HP, KIND>::AHEAD,
    WHOLE = FORM != WALK_FORM_ANY,
    EARLY = WHOLE && K == 1 /* all reads come first; other cells have no registers for that */
  };
  const real x = l->x;
  const uint32_t resets = RESETS ? l->resets.bits : 0;
  walk_step<real, cell> behind[EARLY ? (int)AHEAD : 1] = {}; /* of the next round */
  if (l->SUM && l->reads_x && (WHOLE || AHEAD + lane % AHEAD < left)) {
    l->x = *l->x_at;
    l->x_at -= l->x_row;
  }
  if (RESETS) {
    l->resets.fetch(WHOLE, left, lane);
  }
  BPPSA_UNROLL
  for (int i = 0; EARLY && i < AHEAD; ++i) {
    walk_read(true, &behind[EARLY ? i : 0], l);
  }
  BPPSA_UNROLL
  for (int i = 0; i < AHEAD; ++i) {
    if (RESETS && i + 1 == AHEAD) {
      l->resets.vote(); /* early enough for the next round */
    }
    if (WHOLE || i < left) {
      walk_step<real, cell> now = l->ring[i];
      if (EARLY) {
        l->ring[i] = behind[EARLY ? i : 0];
      } else if (WHOLE || AHEAD + i < left + cell<real>::EARLIER) {
        walk_read(WHOLE || AHEAD + i < left, &l->ring[i], l);
      }
      const real own_x = l->SUM ? __shfl_sync(0xffffffffu, x, i) : (real)0;
      real before = now.unit.before(l->ring[(i + 1) % AHEAD].unit);
      const bool anew = RESETS && FORM != WALK_FORM_PLAIN && (resets >> i & 1) != 0;
      if (anew) {
        now.unit.begin(l->begin_h, l->begin_c);
        before = l->begin_h;
      }
      walk_back<FORM>(c, now, before, own_x, unit, lane, !WHOLE && to_zero && i + 1 == left, anew, row - i * c.batch,
                      delta + i % 2 * K * HP, l);
    }
  }
}

/* Writes the lane's gradient. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void walk_put(const walk_lane<real, cell, HP, KIND> &l, real *to) {
  to[0] = l.g;
  if constexpr (cell<real>::PAIR) {
    to[l.c_place] = l.g_c;
  }
}

/* Reads unit j's column of each W_k, and sets to 0 the deltas that no unit of the warp writes. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void walk_weights(const real *w_hh, int64_t hidden, bool unit, int lane, int64_t j, real *delta,
                                             walk_lane<real, cell, HP, KIND> *l) {
  enum { K = cell<real>::MATRICES };
  BPPSA_UNROLL
  for (int k = 0; k < K; ++k) {
    BPPSA_UNROLL
    for (int r = 0; r < HP; ++r) {
      l->w[k][r] = r < hidden ? w_hh[(k * hidden + r) * hidden + j] : 0;
    }
    if (!unit && lane < HP) {
      delta[k * HP + lane] = delta[(K + k) * HP + lane] = 0;
    }
  }
}

/* Goes backward through the `count` steps of a chunk, from the last one to step `first`, the first one. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void walk_steps(const layer_arrays<real> &c, bool unit, int lane, int64_t first, int count,
                                           real *delta, walk_lane<real, cell, HP, KIND> *l) {
  enum { AHEAD = walk_lane<real, cell, HP, KIND>::AHEAD };
  int left = count;
  BPPSA_UNROLL_BY(1)
  for (; left >= 2 * AHEAD; left -= AHEAD) {
    walk_round<WALK_FORM_PLAIN, false>(c, unit, lane, left, false, 0, delta, l);
  }
  for (; left > 0; left -= AHEAD) {
    walk_round<WALK_FORM_ANY, false>(c, unit, lane, left, first == 0, 0, delta, l);
  }
}

/* The same in a batch that has resets. Rounds without one run the loop of a batch that has none. A round with one takes another
 * form: for cells whose registers have room for it one that selects in each step, otherwise the one that also takes the last
 * steps. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void walk_steps_cut(const layer_arrays<real> &c, bool unit, int lane, int64_t b, int64_t first,
                                               int count, real *delta, walk_lane<real, cell, HP, KIND> *l) {
  enum { AHEAD = walk_lane<real, cell, HP, KIND>::AHEAD, HAS_CUT = cell<real>::MATRICES == 1 || KIND == WALK_FREE };
  const uint32_t puts = c.begun != NULL ? ~0u : 0; /* a round with one of these resets writes a gradient */
  int left = count;
  l->begin_h = walk_begin(c, unit, lane, 0);
  l->begin_c = cell<real>::PAIR ? walk_begin(c, unit, lane, cell<real>::PAIR) : 0;
  l->resets.begin(c.resets, c.batch, lane, (first + count - 1) * c.batch + b, true, count);
  while (left > 0) {
    bool plain = left >= 2 * AHEAD && l->resets.bits == 0;
    BPPSA_UNROLL_BY(1)
    while (plain) {
      walk_round<WALK_FORM_PLAIN, true>(c, unit, lane, left, false, 0, delta, l);
      left -= AHEAD;
      plain = left >= 2 * AHEAD && l->resets.bits == 0;
    }
    if (HAS_CUT && left >= 2 * AHEAD && (l->resets.bits & puts) == 0) {
      walk_round<HAS_CUT ? WALK_FORM_CUT : WALK_FORM_ANY, true>(c, unit, lane, left, false, 0, delta, l);
    } else {
      walk_round<WALK_FORM_ANY, true>(c, unit, lane, left, first == 0, (first + left - 1) * c.batch + b, delta, l);
    }
    left -= AHEAD;
  }
}

/* A warp walks through one chunk of one sample, with a unit in each lane; lanes beyond H repeat lane 0. The unit's column of each
 * W_k and the sums of its weight gradients are in registers. Loads are AHEAD steps ahead of their use. shared: 2 · K · HP reals
 * for each warp; with sums at least a part for each warp. RESETS: the batch has some. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND, bool RESETS>
__global__ void __launch_bounds__(CHUNK_THREADS) bppsa_recurrent_walk(layer_arrays<real> c, chunk_arrays<real> s) {
  enum { K = cell<real>::MATRICES, PAIR = cell<real>::PAIR, AHEAD = walk_lane<real, cell, HP, KIND>::AHEAD };
  BPPSA_SHARED(real, shared);
  if (chunks_rest(s)) {
    return;
  }
  const int place = (int)threadIdx.x % WARP_LANES, warps = (int)blockDim.x / WARP_LANES;
  const int lane = RESETS ? launch_number(place) : place; /* otherwise the compiler computes it anew in every round */
  const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / WARP_LANES, 0); /* the compiler sees that all lanes agree */
  const int64_t hidden = c.hidden, item = (int64_t)blockIdx.x * warps + warp, p = item / c.batch, b = item % c.batch;
  const bool works = p < (s.from_zero ? s.links : s.chunks) && chunks_want(s, b), unit = lane < hidden;
  const int64_t start = works ? c.steps - bppsa_cut(c.steps, s.chunks, p) : 0;
  const int count = works ? (int)(bppsa_cut(c.steps, s.chunks, p + 1) - bppsa_cut(c.steps, s.chunks, p)) : 0;
  const int64_t j = unit ? lane : 0, state = c.batch * hidden, row = (start - 1) * c.batch + b, past = row * hidden + j;
  real *delta = launch_held(shared + warp * 2 * K * HP);
  walk_lane<real, cell, HP, KIND> l = {};
  walk_weights(c.w_hh, hidden, unit, lane, j, delta, &l);
  if (works) {
    l.unit = unit_place<real, cell>(c, past, j);
    l.state = state;
    l.g_row = (1 + PAIR) * state;
    l.c_place = hidden;
    l.reads_u = c.injected;
    l.stores_x = c.delta_x != NULL && !s.from_zero;
    l.stores_h = c.delta_h != NULL && !s.from_zero;
    l.stores_g = c.store_g && !s.from_zero;
    l.u_at = l.g_to = c.g + row * (1 + PAIR) * hidden + j;
    l.delta_x = l.stores_x ? c.delta_x + row * K * hidden + j : NULL;
    l.delta_h = l.stores_h ? c.delta_h + row * K * hidden + j : NULL;
    const real *g = s.chunks > 1 ? s.carried + item * (1 + PAIR) * hidden + j : c.last + b * (1 + PAIR) * hidden + j;
    l.g = s.from_zero ? 0 : g[0];
    l.g_c = s.from_zero ? 0 : g[PAIR * hidden];
  }
  if (l.SUM && works && c.input == 1) {
    l.reads_x = true;
    l.x_at = c.x + row - lane % AHEAD * c.batch;
    l.x_row = AHEAD * c.batch;
    if (lane % AHEAD < count) {
      l.x = *l.x_at;
      l.x_at -= l.x_row;
    }
  }
  BPPSA_UNROLL
  for (int i = 0; i < AHEAD; ++i) {
    if (works && i < count + cell<real>::EARLIER) {
      walk_read(i < count, &l.ring[i], &l);
    }
  }
  if constexpr (RESETS) {
    walk_steps_cut(c, unit, lane, b, start - count, count, delta, &l);
  } else {
    walk_steps(c, unit, lane, start - count, count, delta, &l);
  }
  if (works && unit && c.want_input && !s.from_zero && start == count) { /* g_0 */
    walk_put(l, c.g + b * (1 + PAIR) * hidden + lane);
  }
  if (s.from_zero && works && unit) {
    walk_put(l, s.offsets + item * (1 + PAIR) * hidden + lane);
  }
  if constexpr (KIND != WALK_FREE) {
    __syncthreads(); /* the deltas have been read */
    walk_finish(c, s, l.sums, shared);
  }
}

#endif
