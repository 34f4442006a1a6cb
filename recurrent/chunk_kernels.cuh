/* The fused kernels of a recurrent layer, H <= 32: the sequential backward pass of a chunk of steps, and what makes chunks
 * independent.
 *
 *     transition   products of chunks: the sequential backward on the rows of the identity (phase 1)
 *     carry        the gradient from chunk to chunk through the products (phase 2)
 *     walk         all chunks at once, from what was carried; weight gradients on the way (phase 3)
 *
 * Chunk p is the steps T - C(p) .. T - C(p + 1) + 1, in that order, where C(p) = bppsa_cut(T, P, p); one chunk is sequential BP.
 * Jacobians are never stored: their factors are made of what the forward pass kept. Injected gradients enter a chunk as one more
 * vector, the walk from 0.
 *
 * Everything is in row-vector form, gᵀ_{t-1} = Σ_k (gᵀ_t ∘ d_k) W_k + gᵀ_t ∘ e + uᵀ_{t-1}. HP: H padded; W_k has
 * rows and columns of 0 there. Exponents of products, and when one is useless and its steps are redone: scan/scan_products.inc.
 * All sums run in one fixed order.
 */
#ifndef BPPSA_RECURRENT_CHUNK_KERNELS_CUH
#define BPPSA_RECURRENT_CHUNK_KERNELS_CUH

#include "core/cut.h"
#include "core/launch.cuh"
#include "recurrent/cell_cuda.cuh"
#include "recurrent/lanes.cuh"
#include "scan/scan_numbers.cuh"

/* ---- phase 1 ---- */

/* A thread carries V rows of the product of one chunk and sample, an item; GROUPS threads of a warp one item. The rows stand in
 * shared memory, so that the loop over their entries need not be unrolled, sums in registers; W_k's rows are read by all lanes at
 * once. Factors are made once an item, a step ahead of their use. shared: see transition_reals. */
template <typename real, template <typename> class cell, int HP, int V> struct transition_shape {
  enum {
    K = cell<real>::MATRICES,
    E = K + cell<real>::DIAGONAL,
    GROUPS = (HP + V - 1) / V,
    ITEMS = WARP_LANES / GROUPS, /* of a warp */
    MINE = (HP + GROUPS - 1) / GROUPS,
    WARPS = CHUNK_THREADS / WARP_LANES,
    W_REALS = K * HP * HP,
    X_REALS = HP * V * CHUNK_THREADS,
    D_REALS = E * HP,
    SHARED = (W_REALS + X_REALS + 2 * WARPS * ITEMS * D_REALS) * (int)sizeof(real)
  };
};

/* V rows, x [HP][V][threads], through one step: x = Σ_k (x ∘ d_k) W_k + x ∘ e. With `rescale` they are brought back into the
 * window. */
template <typename real, template <typename> class cell, int HP, int V>
__device__ __forceinline__ void transition_step(const real *w, const real *d, real *x, bool rescale, int32_t e[V],
                                                real norms[V]) {
  enum { K = cell<real>::MATRICES, Q = quad<real>::SIZE };
  real y[V][HP] = {};
  BPPSA_UNROLL_BY(2)
  for (int r = 0; r < HP; ++r) {
    real in[V];
    BPPSA_UNROLL
    for (int v = 0; v < V; ++v) {
      in[v] = x[(r * V + v) * CHUNK_THREADS];
    }
    BPPSA_UNROLL
    for (int k = 0; k < K; ++k) {
      const quad<real> *row = (const quad<real> *)(w + (k * HP + r) * HP);
      real scaled[V];
      BPPSA_UNROLL
      for (int v = 0; v < V; ++v) {
        scaled[v] = in[v] * d[k * HP + r];
      }
      BPPSA_UNROLL
      for (int q = 0; q < HP / Q; ++q) {
        const quad<real> part = row[q];
        BPPSA_UNROLL
        for (int at = 0; at < Q * V; ++at) {
          y[at % V][q * Q + at / V] += scaled[at % V] * part.v[at / V];
        }
      }
    }
  }
  BPPSA_UNROLL
  for (int at = 0; cell<real>::DIAGONAL && at < HP * V; ++at) {
    y[at % V][at / V] += x[at * CHUNK_THREADS] * d[K * HP + at / V];
  }
  if (rescale) {
    BPPSA_UNROLL
    for (int v = 0; v < V; ++v) {
      real largest = 0;
      BPPSA_UNROLL
      for (int j = 0; j < HP; ++j) {
        largest = scan_larger(largest, scan_size(y[v][j]));
      }
      const int32_t excess = scan_excess(largest);
      norms[v] = largest;
      if (excess != 0) {
        const real factor = scan_power<real>(-excess);
        e[v] += excess;
        norms[v] *= factor;
        BPPSA_UNROLL
        for (int j = 0; j < HP; ++j) {
          y[v][j] *= factor;
        }
      }
    }
  }
  BPPSA_UNROLL
  for (int at = 0; at < HP * V; ++at) {
    x[at * CHUNK_THREADS] = y[at % V][at / V];
  }
}

template <typename real, template <typename> class cell, int HP, int V>
__global__ void __launch_bounds__(CHUNK_THREADS) bppsa_recurrent_transition(layer_arrays<real> c, chunk_arrays<real> s) {
  typedef transition_shape<real, cell, HP, V> shape;
  enum { K = shape::K, Q = quad<real>::SIZE };
  BPPSA_SHARED(real, w);
  const int thread = (int)threadIdx.x, lane = thread % WARP_LANES, warp = thread / WARP_LANES;
  const int place = lane / shape::GROUPS, group = lane % shape::GROUPS;
  real *x = w + shape::W_REALS + thread; /* [HP][V][threads] */
  real *factors = w + shape::W_REALS + shape::X_REALS + (warp * shape::ITEMS + place) * 2 * shape::D_REALS;
  const int64_t hidden = c.hidden, items = (s.chunks - 1) * c.batch;
  const int64_t item = ((int64_t)blockIdx.x * shape::WARPS + warp) * shape::ITEMS + place;
  const bool active = place < shape::ITEMS && item < items;
  const int64_t b = active ? item % c.batch : 0, chunk = active ? item / c.batch : 0;
  const int64_t start = c.steps - bppsa_cut(c.steps, s.chunks, chunk), end = c.steps - bppsa_cut(c.steps, s.chunks, chunk + 1);
  const int count = (int)(start - end), longest = (int)bppsa_cut(c.steps, s.chunks, 1); /* chunks differ by a step at most */
  for (int at = thread; at < shape::W_REALS; at += CHUNK_THREADS) {
    const int64_t j = at % HP, r = at / HP % HP, k = at / (HP * HP);
    w[at] = r < hidden && j < hidden ? c.w_hh[(k * hidden + r) * hidden + j] : 0;
  }
  int32_t e[V];
  real norms[V];
  cell<real> mine[shape::MINE] = {};
  const int64_t state = c.batch * hidden;
  int64_t past = (start - 1) * state + b * hidden + group; /* of the unit `group` */
  BPPSA_UNROLL
  for (int v = 0; v < V; ++v) {
    e[v] = 0;
    for (int r = 0; r < HP; ++r) {
      x[(r * V + v) * CHUNK_THREADS] = group * V + v == r ? 1 : 0;
    }
  }
  BPPSA_UNROLL
  for (int i = 0; i < shape::MINE; ++i) {
    const int r = group + i * shape::GROUPS;
    if (active && r < hidden) {
      mine[i] = cell<real>::load(c, past + i * shape::GROUPS, state, r);
    }
  }
  __syncthreads();
  for (int link = 0; link < longest; ++link) {
    const bool works = active && link < count;
    real *d = factors + link % 2 * shape::D_REALS; /* [K, then e][HP] */
    past -= state;
    BPPSA_UNROLL
    for (int i = 0; i < shape::MINE; ++i) {
      const int r = group + i * shape::GROUPS;
      real own[K] = {}, diagonal = 0, unused;
      if (works && r < hidden) {
        mine[i].factors(c.relu, own, &diagonal, &unused);
      }
      BPPSA_UNROLL
      for (int k = 0; k < K; ++k) {
        if (works && r < HP) {
          d[k * HP + r] = own[k];
        }
      }
      if (cell<real>::DIAGONAL && works && r < HP) {
        d[K * HP + r] = diagonal;
      }
      if (works && r < hidden && link + 1 < count) {
        mine[i] = cell<real>::load(c, past + i * shape::GROUPS, state, r);
      }
    }
    __syncwarp();
    if (works) {
      transition_step<real, cell, HP, V>(w, d, x, link % SCAN_RESCALE_LINKS == 0 || link + 1 == count, e, norms);
    }
  }
  BPPSA_UNROLL
  for (int v = 0; v < V; ++v) {
    const int row = group * V + v;
    if (active && row < HP) {
      quad<real> *to = (quad<real> *)(s.products + (item * HP + row) * HP);
      BPPSA_UNROLL
      for (int q = 0; q < HP / Q; ++q) {
        quad<real> part;
        BPPSA_UNROLL
        for (int l = 0; l < Q; ++l) {
          part.v[l] = x[((q * Q + l) * V + v) * CHUNK_THREADS];
        }
        to[q] = part;
      }
    }
    if (active && row < hidden) {
      s.exponents[item * hidden + row] = e[v];
      s.norms[item * hidden + row] = norms[v];
    }
  }
}

/* ---- phase 2 ---- */

template <typename real> __device__ inline real warp_sum(real x) {
  for (int other = WARP_LANES / 2; other > 0; other /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, other);
  }
  return x;
}

/* A step's g_{t-1} from g_t, a unit a lane, slowly: for chunks that are redone. shared: [K][H] reals. */
template <typename real, template <typename> class cell>
__device__ real step_back(const layer_arrays<real> &c, int64_t t, int64_t b, int lane, real g, real *shared) {
  enum { K = cell<real>::MATRICES };
  real sum = 0;
  if (lane < c.hidden) {
    const int64_t past = ((t - 1) * c.batch + b) * c.hidden + lane;
    const cell<real> unit = cell<real>::load(c, past, c.batch * c.hidden, lane);
    real d[K], e, d_x;
    unit.factors(c.relu, d, &e, &d_x);
    for (int k = 0; k < K; ++k) {
      shared[k * c.hidden + lane] = d[k] * g;
    }
    sum = unit.carried(g) + (c.injected ? c.g[past] : 0);
  }
  __syncwarp();
  for (int64_t r = 0; lane < c.hidden && r < K * c.hidden; ++r) {
    sum += shared[r] * c.w_hh[r * c.hidden + lane];
  }
  __syncwarp();
  return sum;
}

/* v 2^e, e a lane's own, with one common power of two left out of all lanes; 0 where no exponent is set, the usual case. */
template <typename real> __device__ inline real carry_scaled(real v, int32_t e, int64_t *common) {
  *common = 0;
  if (!__any_sync(0xffffffffu, e != 0)) {
    return v;
  }
  const int none = -(1 << 30);
  int most = none;
  if (v != 0 && isfinite(v)) {
    (void)frexp((double)v, &most);
    most += e;
  }
  for (int other = WARP_LANES / 2; other > 0; other /= 2) {
    const int theirs = __shfl_xor_sync(0xffffffffu, most, other);
    most = theirs > most ? theirs : most;
  }
  *common = most == none ? 0 : most;
  return scan_scaled(v, e - *common);
}

/* A lane's part of what a chunk's carry takes. */
template <typename real, int HP> struct carry_product {
  real m[HP], norm, offset; /* column of the lane's unit; of its row; of the unit */
  int32_t e;                /* of its row */
  bool scaled;              /* some row has an exponent: the same for all lanes */
};

template <typename real, int HP>
__device__ __forceinline__ void carry_fetch(const layer_arrays<real> &c, const chunk_arrays<real> &s, int64_t p, int64_t b,
                                            int lane, carry_product<real, HP> *to) {
  const bool unit = lane < c.hidden;
  const int64_t item = p * c.batch + b, at = item * c.hidden + lane;
  const real *product = s.products + item * HP * HP + lane;
  BPPSA_UNROLL
  for (int r = 0; r < HP; ++r) {
    to->m[r] = unit ? product[r * HP] : 0;
  }
  to->norm = unit ? s.norms[at] : 0;
  to->e = unit ? s.exponents[at] : 0;
  to->offset = unit && s.offsets != NULL ? s.offsets[at] : 0;
}

/* v · product + offset; *terms and *size: the lane's part of what says whether it is useless. shared: 2 · HP reals, used in
 * turn. */
template <typename real, int HP>
__device__ __forceinline__ real carry_apply(real v, const carry_product<real, HP> &product, int lane, real *shared, real *terms,
                                            real *size) {
  int64_t common = 0;
  const real scaled = product.scaled ? carry_scaled(v, product.e, &common) : v;
  if (lane < HP) {
    shared[lane] = scaled;
  }
  __syncwarp();
  real part[4] = {common == 0 ? product.offset : scan_scaled(product.offset, -common), 0, 0, 0};
  *terms = scan_size(scaled) * product.norm + scan_size(part[0]);
  BPPSA_UNROLL
  for (int r = 0; r < HP; ++r) {
    part[r % 4] += shared[r] * product.m[r];
  }
  const real sum = (part[0] + part[1]) + (part[2] + part[3]);
  *size = scan_size(sum);
  return common == 0 ? sum : scan_scaled(sum, common);
}

/* carried[p + 1] = carried[p] · product of chunk p + offset, a warp a sample. The next product is on its way while one is
 * applied, and whether one was useless comes out while the next is applied, in vain if it was: the chain from gradient to
 * gradient has neither in it. */
template <typename real, template <typename> class cell, int HP>
__global__ void __launch_bounds__(WARP_LANES) bppsa_recurrent_carry(layer_arrays<real> c, chunk_arrays<real> s) {
  BPPSA_SHARED(real, shared); /* [max(2, MATRICES)][HP] */
  const unsigned all = 0xffffffffu;
  const int lane = (int)threadIdx.x;
  const int64_t b = blockIdx.x, hidden = c.hidden, last = s.chunks - 1;
  const bool unit = lane < hidden;
  real v = unit ? c.g[(c.steps * c.batch + b) * hidden + lane] : 0, before = 0, terms = 0, size = 0;
  carry_product<real, HP> now, next = {};
  bool open = false, finite = true; /* is the product of chunk p - 1 still to be judged? */
  carry_fetch(c, s, 0, b, lane, &next);
  for (int64_t p = 0; p < last || open;) {
    real result = 0, new_terms = 0, new_size = 0;
    now = next;
    now.scaled = __any_sync(all, now.e != 0) != 0;
    if (p + 1 < last) {
      carry_fetch(c, s, p + 1, b, lane, &next);
    }
    if (p < last) {
      result = carry_apply(v, now, lane, shared + p % 2 * HP, &new_terms, &new_size);
    }
    const bool cancelled = !(warp_sum(terms) <= (real)SCAN_CANCELLATION * warp_sum(size)); /* true for NaN */
    if (open && __any_sync(all, cancelled || !finite)) {
      v = before;
      const int64_t end = c.steps - bppsa_cut(c.steps, s.chunks, p);
      for (int64_t t = c.steps - bppsa_cut(c.steps, s.chunks, p - 1); t > end; --t) {
        v = step_back<real, cell>(c, t, b, lane, v, shared);
      }
      if (unit) {
        s.carried[(p * c.batch + b) * hidden + lane] = v;
      }
      if (lane == 0) {
        (void)atomicAdd(s.redone, 1ull);
      }
      open = false;
      if (p < last) { /* again, from the right gradient */
        carry_fetch(c, s, p, b, lane, &next);
      }
      continue;
    }
    open = p < last;
    if (open) {
      before = v;
      v = result;
      terms = new_terms;
      size = new_size;
      finite = isfinite(result);
      ++p;
      if (unit) {
        s.carried[(p * c.batch + b) * hidden + lane] = v;
      }
    }
  }
  if (unit) {
    s.carried[b * hidden + lane] = c.g[(c.steps * c.batch + b) * hidden + lane];
  }
}

/* ---- phase 3, and sequential BP ---- */

/* What a lane reads of a step; where the next one to be read stands: h_{t-1} of the lane's unit, and x. */
template <typename real, template <typename> class cell> struct walk_step {
  cell<real> unit;
  real u, x;
};
struct walk_cursor {
  int64_t past, state, row, batch;
};

template <typename real, template <typename> class cell, bool SUM>
__device__ __forceinline__ void walk_load(const layer_arrays<real> &c, bool step, int j, walk_cursor *at,
                                          walk_step<real, cell> *to) {
  to->unit = cell<real>::load(c, at->past, at->state, j);
  if (step && c.injected) {
    to->u = c.g[at->past];
  }
  if (SUM && step && c.input == 1) {
    to->x = c.x[at->row];
  }
  at->past -= at->state;
  at->row -= at->batch;
}

/* A warp's sums of weight gradients: lane j has column j of dW_hh, and unit j of the rest. */
template <typename real, int K, int HP> struct walk_sums { real w_hh[K][HP], b_hh[K], b_ih[K], w_ih[K]; };

/* Adds the sums of all warps of a block, in order, and hands them to the block's part. shared: as many reals as a part has. */
template <typename real, int K, int HP>
__device__ void walk_finish(const layer_arrays<real> &c, const chunk_arrays<real> &s, const walk_sums<real, K, HP> &sums,
                            bool works, real *shared) {
  const int lane = (int)threadIdx.x % WARP_LANES, warp = (int)threadIdx.x / WARP_LANES, warps = (int)blockDim.x / WARP_LANES;
  const int64_t hidden = c.hidden, all = K * hidden, count = all * hidden + (c.input == 1 ? 3 : 2) * all;
  for (int64_t at = threadIdx.x; at < count; at += blockDim.x) {
    shared[at] = 0;
  }
  __syncthreads();
  for (int turn = 0; turn < warps; ++turn) {
    if (turn == warp && works && lane < hidden) {
      BPPSA_UNROLL
      for (int k = 0; k < K; ++k) {
        BPPSA_UNROLL
        for (int r = 0; r < HP; ++r) {
          if (r < hidden) {
            shared[(k * hidden + r) * hidden + lane] += sums.w_hh[k][r];
          }
        }
        real *units = shared + all * hidden + k * hidden + lane;
        units[0] += sums.b_hh[k];
        units[all] += sums.b_ih[k];
        if (c.input == 1) {
          units[2 * all] += sums.w_ih[k];
        }
      }
    }
    __syncthreads();
  }
  for (int64_t at = threadIdx.x; at < count; at += blockDim.x) {
    s.partials[blockIdx.x * count + at] = shared[at];
  }
}

/* A warp a chunk and sample, a lane a unit. W_k's column of the unit is in registers, as are, with SUM, the sums of its weight
 * gradients. Loads are AHEAD steps ahead of their use. shared: 2 · K · HP reals a warp; with SUM at least a part. */
template <typename real, template <typename> class cell, int HP, bool SUM>
__global__ void __launch_bounds__(CHUNK_THREADS) bppsa_recurrent_walk(layer_arrays<real> c, chunk_arrays<real> s) {
  enum { K = cell<real>::MATRICES, AHEAD = cell<real>::AHEAD, SUMS_HP = SUM ? HP : 1, Q = quad<real>::SIZE };
  BPPSA_SHARED(real, shared);
  const int lane = (int)threadIdx.x % WARP_LANES, warp = (int)threadIdx.x / WARP_LANES, warps = (int)blockDim.x / WARP_LANES;
  const int64_t hidden = c.hidden, item = (int64_t)blockIdx.x * warps + warp, p = item / c.batch, b = item % c.batch;
  const bool works = p < s.chunks - s.from_zero, unit = lane < hidden;
  const int64_t start = works ? c.steps - bppsa_cut(c.steps, s.chunks, p) : 0;
  const int count = works ? (int)(bppsa_cut(c.steps, s.chunks, p + 1) - bppsa_cut(c.steps, s.chunks, p)) : 0;
  const int j = unit ? lane : 0; /* other lanes read along */
  real *delta = shared + warp * 2 * K * HP, w[K][HP], g = 0;
  walk_sums<real, K, SUMS_HP> sums = {};
  walk_step<real, cell> now[AHEAD], next[AHEAD] = {};
  walk_cursor at = {((start - 1) * c.batch + b) * hidden + j, c.batch * hidden, (start - 1) * c.batch + b, c.batch};
  int64_t past = at.past; /* of the step at hand */
  const bool stores_x = unit && c.delta_x != NULL && !s.from_zero, stores_g = unit && c.store_g && !s.from_zero,
             stores_h = cell<real>::SPLIT && unit && c.delta_h != NULL && !s.from_zero;
  BPPSA_UNROLL
  for (int k = 0; k < K; ++k) {
    BPPSA_UNROLL
    for (int r = 0; r < HP; ++r) {
      w[k][r] = unit && r < hidden ? c.w_hh[(k * hidden + r) * hidden + lane] : 0;
    }
  }
  if (works && unit && !s.from_zero) {
    g = s.chunks > 1 ? s.carried[item * hidden + lane] : c.g[(c.steps * c.batch + b) * hidden + lane];
  }
  BPPSA_UNROLL
  for (int i = 0; i < AHEAD; ++i) {
    if (i < count + cell<real>::EARLIER && works) {
      walk_load<real, cell, SUM>(c, i < count, j, &at, &next[i]);
    }
  }
  for (int first = 0; first < count; first += AHEAD) {
    BPPSA_UNROLL
    for (int i = 0; i < AHEAD; ++i) {
      now[i] = next[i];
    }
    BPPSA_UNROLL
    for (int i = 0; i < AHEAD; ++i) {
      const int link = first + AHEAD + i;
      if (link < count + cell<real>::EARLIER) {
        walk_load<real, cell, SUM>(c, link < count, j, &at, &next[i]);
      }
    }
    BPPSA_UNROLL
    for (int i = 0; i < AHEAD; ++i) {
      if (first + i < count) {
        real d[K], e, d_x, *own = delta + i % 2 * K * HP;
        now[i].unit.factors(c.relu, d, &e, &d_x);
        const real before = now[i].unit.before(i + 1 < AHEAD ? now[(i + 1) % AHEAD].unit : next[0].unit);
        BPPSA_UNROLL
        for (int k = 0; k < K; ++k) {
          const real to_h = unit ? d[k] * g : 0, to_x = (k + 1 == K ? d_x : d[k]) * g; /* other lanes' products may be NaN */
          if (lane < HP) {
            own[k * HP + lane] = to_h;
          }
          if (stores_x) {
            c.delta_x[K * (past - lane) + k * hidden + lane] = to_x;
          }
          if (stores_h) {
            c.delta_h[K * (past - lane) + k * hidden + lane] = to_h;
          }
          if (SUM) {
            sums.b_hh[k] += to_h;
            sums.b_ih[k] += to_x;
            sums.w_ih[k] += to_x * now[i].x;
          }
        }
        __syncwarp();
        real part[4] = {now[i].unit.carried(g) + now[i].u, 0, 0, 0};
        BPPSA_UNROLL
        for (int k = 0; k < K; ++k) {
          BPPSA_UNROLL
          for (int q = 0; q < HP / Q; ++q) {
            const quad<real> rows = ((const quad<real> *)(own + k * HP))[q];
            BPPSA_UNROLL
            for (int l = 0; l < Q; ++l) {
              part[(q * Q + l) % 4] += rows.v[l] * w[k][q * Q + l];
              if (SUM) {
                sums.w_hh[k][(q * Q + l) % SUMS_HP] += rows.v[l] * before;
              }
            }
          }
        }
        g = (part[0] + part[1]) + (part[2] + part[3]);
        if (stores_g && past >= at.state) {
          c.g[past] = g;
        }
        past -= at.state;
      }
    }
  }
  if (unit && works && c.want_input && !s.from_zero && start == count) { /* g_0 */
    c.g[past + at.state] = g;
  }
  if (s.from_zero && works && unit) {
    s.offsets[item * hidden + lane] = g;
  }
  if (SUM) {
    __syncthreads();
    walk_finish<real, K, SUMS_HP>(c, s, sums, works, shared);
  }
}

#endif
