/* The fused kernels of a recurrent layer, H <= 32: the sequential backward pass of a chunk of steps, and what makes chunks independent.
 *
 *     transition   products of chunks: the sequential backward on the rows of the identity (phase 1)
 *     carry        the gradient from chunk to chunk through the products (phase 2)
 *     walk         all chunks at once, from what was carried; weight gradients on the way (phase 3)
 *
 * Chunk p is the steps T - pL .. T - (p+1)L + 1, in that order; one chunk is sequential BP. Jacobians are never stored: their factors are made of
 * what the forward pass kept. Injected gradients enter a chunk as one more vector, the walk from 0.
 *
 * Everything is in row-vector form, gᵀ_{t-1} = Σ_k (gᵀ_t ∘ d_k) W_k + gᵀ_t ∘ e + uᵀ_{t-1}. HP: H padded; W_k has rows and columns of 0 there.
 * Exponents of products, and when one is useless and its steps are redone: scan/scan_products.inc. All sums run in one fixed order.
 */
#ifndef BPPSA_RECURRENT_CHUNK_KERNELS_CUH
#define BPPSA_RECURRENT_CHUNK_KERNELS_CUH

#include "recurrent/cell_kernels.cuh"
#include "scan/scan_numbers.cuh"

enum { WARP_LANES = 32, CHUNK_THREADS = 128 };

template <typename real> struct chunk_arrays {
  int64_t chunks, length; /* P, L */
  real *products;         /* [P-1][b][H][H]: row r is the image of basis vector r, times 2^exponents[r] */
  int32_t *exponents;     /* [P-1][b][H] */
  real *norms;            /* likewise: a row's largest entry */
  real *offsets;          /* [P-1][b][H]: the walk from 0; NULL unless gradients are injected */
  real *carried;          /* [P][b][H]: g where chunk p begins */
  bool from_zero;         /* walk: from 0 to `offsets`, and nothing else is written */
  real *
      partials; /* [blocks][G·H·H + 2 G·H + (I = 1 ? G·H : 0)]: dW_hh, db_hh, db_ih, dW_ih of a block's warps; NULL: not wanted */
  unsigned long long *redone;
};

/* 16 bytes at once. */
template <typename real> struct alignas(16) quad {
  enum { SIZE = 16 / (int)sizeof(real) };
  real v[SIZE];
};

/* ---- phase 1 ---- */

/* A thread carries V rows of the product of one chunk and sample, an item; GROUPS threads of a warp one item. The rows stand in shared memory, so
 * that the loop over their entries need not be unrolled, sums in registers; W_k's rows are read by all lanes at once. Factors are made once an
 * item, a step ahead of their use. shared: see transition_reals. */
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
  const int64_t b = active ? item % c.batch : 0, start = active ? c.steps - item / c.batch * s.length : s.length;
  for (int at = thread; at < shape::W_REALS; at += CHUNK_THREADS) {
    const int64_t j = at % HP, r = at / HP % HP, k = at / (HP * HP);
    w[at] = r < hidden && j < hidden ? c.w_hh[(k * hidden + r) * hidden + j] : 0;
  }
  int32_t e[V];
  real norms[V];
  cell<real> mine[shape::MINE] = {};
  BPPSA_UNROLL
  for (int v = 0; v < V; ++v) {
    e[v] = 0;
    for (int r = 0; r < HP; ++r) {
      x[(r * V + v) * CHUNK_THREADS] = group * V + v == r ? 1 : 0;
    }
  }
  BPPSA_UNROLL
  for (int i = 0; i < shape::MINE; ++i) {
    if (active && group + i * shape::GROUPS < hidden) {
      mine[i] = cell<real>::load(c, start, b, group + i * shape::GROUPS);
    }
  }
  __syncthreads();
  for (int64_t link = 0; link < s.length; ++link) {
    real *d = factors + link % 2 * shape::D_REALS; /* [K, then e][HP] */
    BPPSA_UNROLL
    for (int i = 0; i < shape::MINE; ++i) {
      const int r = group + i * shape::GROUPS;
      real own[K] = {}, diagonal = 0, unused;
      if (active && r < hidden) {
        mine[i].factors(c.relu, own, &diagonal, &unused);
      }
      BPPSA_UNROLL
      for (int k = 0; k < K; ++k) {
        if (active && r < HP) {
          d[k * HP + r] = own[k];
        }
      }
      if (cell<real>::DIAGONAL && active && r < HP) {
        d[K * HP + r] = diagonal;
      }
      if (active && r < hidden && link + 1 < s.length) {
        mine[i] = cell<real>::load(c, start - link - 1, b, r);
      }
    }
    __syncwarp();
    if (active) {
      real y[V][HP] = {};
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
      for (int v = 0; v < V; ++v) {
        real largest = 0;
        BPPSA_UNROLL
        for (int j = 0; j < HP; ++j) {
          if (cell<real>::DIAGONAL) {
            y[v][j] += x[(j * V + v) * CHUNK_THREADS] * d[K * HP + j];
          }
          const real size = scan_size(y[v][j]);
          largest = size > largest ? size : largest;
        }
        const int32_t excess = link % SCAN_RESCALE_LINKS == 0 || link + 1 == s.length ? scan_excess(largest) : 0;
        const real factor = excess != 0 ? scan_power<real>(-excess) : 1;
        e[v] += excess;
        norms[v] = largest * factor;
        BPPSA_UNROLL
        for (int j = 0; j < HP; ++j) {
          x[(j * V + v) * CHUNK_THREADS] = y[v][j] * factor;
        }
      }
    }
  }
  BPPSA_UNROLL
  for (int v = 0; v < V; ++v) {
    const int64_t row = group * V + v, at = item * hidden + row;
    if (active && row < hidden) {
      s.exponents[at] = e[v];
      s.norms[at] = norms[v];
      for (int64_t j = 0; j < hidden; ++j) {
        s.products[at * hidden + j] = x[(j * V + v) * CHUNK_THREADS];
      }
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
    const cell<real> unit = cell<real>::load(c, t, b, lane);
    real d[K], e, d_x;
    unit.factors(c.relu, d, &e, &d_x);
    for (int k = 0; k < K; ++k) {
      shared[k * c.hidden + lane] = d[k] * g;
    }
    sum = cell_carried(unit, g) + (c.injected ? c.g[((t - 1) * c.batch + b) * c.hidden + lane] : 0);
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

/* carried[p + 1] = carried[p] · product of chunk p + offset, a warp a sample. The next product is on its way while one is applied. */
template <typename real, template <typename> class cell, int HP>
__global__ void __launch_bounds__(WARP_LANES) bppsa_recurrent_carry(layer_arrays<real> c, chunk_arrays<real> s) {
  BPPSA_SHARED(real, x); /* [MATRICES][HP] */
  const int lane = (int)threadIdx.x;
  const int64_t b = blockIdx.x, hidden = c.hidden;
  const bool unit = lane < hidden;
  real v = unit ? c.g[(c.steps * c.batch + b) * hidden + lane] : 0, m[HP], next[HP] = {}, norm = 0, offset = 0;
  int32_t e = 0;
  if (unit) {
    s.carried[b * hidden + lane] = v;
  }
  for (int64_t p = -1; p + 1 < s.chunks; ++p) { /* p = -1 only fetches */
    const int64_t after = ((p + 1) * c.batch + b) * hidden;
    const bool more = unit && p + 2 < s.chunks;
    const real own_norm = norm, own_offset = offset;
    const int32_t own_e = e;
    BPPSA_UNROLL
    for (int r = 0; r < HP; ++r) {
      m[r] = next[r];
      next[r] = more && r < hidden ? s.products[(after + r) * hidden + lane] : 0;
    }
    norm = more ? s.norms[after + lane] : 0;
    e = more ? s.exponents[after + lane] : 0;
    offset = more && s.offsets != NULL ? s.offsets[after + lane] : 0;
    if (p < 0) {
      continue;
    }
    int64_t common;
    const real scaled = carry_scaled(v, own_e, &common);
    if (lane < HP) {
      x[lane] = scaled;
    }
    __syncwarp();
    real sum = common == 0 ? own_offset : scan_scaled(own_offset, -common);
    real terms = scan_size(scaled) * own_norm + scan_size(sum);
    BPPSA_UNROLL
    for (int r = 0; r < HP; ++r) {
      sum += x[r] * m[r];
    }
    __syncwarp();
    terms = warp_sum(terms);
    const real size = warp_sum(scan_size(sum));
    real result = common == 0 ? sum : scan_scaled(sum, common);
    const bool useless = !(terms <= (real)SCAN_CANCELLATION * size); /* true for NaN */
    if (__any_sync(0xffffffffu, useless || !isfinite(result))) {
      result = v;
      for (int64_t t = c.steps - p * s.length; t > c.steps - (p + 1) * s.length; --t) {
        result = step_back<real, cell>(c, t, b, lane, result, x);
      }
      if (lane == 0) {
        (void)atomicAdd(s.redone, 1ull);
      }
    }
    v = result;
    if (unit) {
      s.carried[after + lane] = v;
    }
  }
}

/* ---- phase 3, and sequential BP ---- */

/* What a lane reads of a step. */
template <typename real, template <typename> class cell> struct walk_step {
  cell<real> unit;
  real u, x;
};

template <typename real, template <typename> class cell, bool SUM>
__device__ inline void walk_load(const layer_arrays<real> &c, int64_t t, int64_t b, int j, bool step, walk_step<real, cell> *to) {
  to->unit = cell<real>::load(c, t, b, j);
  to->u = step && c.injected ? c.g[((t - 1) * c.batch + b) * c.hidden + j] : 0;
  to->x = SUM && step && c.input == 1 ? c.x[(t - 1) * c.batch + b] : 0;
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

/* A warp a chunk and sample, a lane a unit. W_k's column of the unit is in registers, as are, with SUM, the sums of its weight gradients. Loads
 * are AHEAD steps ahead of their use. shared: 2 · K · HP reals a warp; with SUM at least a part. */
template <typename real, template <typename> class cell, int HP, bool SUM>
__global__ void __launch_bounds__(CHUNK_THREADS) bppsa_recurrent_walk(layer_arrays<real> c, chunk_arrays<real> s) {
  enum { K = cell<real>::MATRICES, AHEAD = cell<real>::AHEAD, SUMS_HP = SUM ? HP : 1, Q = quad<real>::SIZE };
  BPPSA_SHARED(real, shared);
  const int lane = (int)threadIdx.x % WARP_LANES, warp = (int)threadIdx.x / WARP_LANES, warps = (int)blockDim.x / WARP_LANES;
  const int64_t hidden = c.hidden, item = (int64_t)blockIdx.x * warps + warp, p = item / c.batch, b = item % c.batch;
  const bool works = p < s.chunks - s.from_zero, unit = lane < hidden;
  const int64_t start = works ? c.steps - p * s.length : 0, count = start < s.length ? start : s.length;
  real *delta = shared + warp * 2 * K * HP, w[K][HP], g = 0;
  walk_sums<real, K, SUMS_HP> sums = {};
  walk_step<real, cell> now[AHEAD], next[AHEAD] = {};
  const int j = unit ? lane : 0; /* other lanes read along */
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
      walk_load<real, cell, SUM>(c, start - i, b, j, i < count, &next[i]);
    }
  }
  for (int64_t first = 0; first < count; first += AHEAD) {
    BPPSA_UNROLL
    for (int i = 0; i < AHEAD; ++i) {
      now[i] = next[i];
    }
    BPPSA_UNROLL
    for (int i = 0; i < AHEAD; ++i) {
      const int64_t link = first + AHEAD + i;
      if (link < count + cell<real>::EARLIER) {
        walk_load<real, cell, SUM>(c, start - link, b, j, link < count, &next[i]);
      }
    }
    BPPSA_UNROLL
    for (int i = 0; i < AHEAD; ++i) {
      if (first + i < count) {
        const int64_t t = start - first - i, row = (t - 1) * c.batch + b;
        real d[K], e, d_x, *own = delta + i % 2 * K * HP;
        now[i].unit.factors(c.relu, d, &e, &d_x);
        const real before = unit ? now[i].unit.before(i + 1 < AHEAD ? now[(i + 1) % AHEAD].unit : next[0].unit) : 0;
        BPPSA_UNROLL
        for (int k = 0; k < K; ++k) {
          const real to_h = unit ? d[k] * g : 0, to_x = unit ? (k + 1 == K ? d_x : d[k]) * g : 0;
          if (lane < HP) {
            own[k * HP + lane] = to_h;
          }
          if (unit && c.delta_x != NULL && !s.from_zero) {
            c.delta_x[(row * K + k) * hidden + lane] = to_x;
          }
          if (cell<real>::SPLIT && unit && c.delta_h != NULL && !s.from_zero) {
            c.delta_h[(row * K + k) * hidden + lane] = to_h;
          }
          if (SUM) {
            sums.b_hh[k] += to_h;
            sums.b_ih[k] += to_x;
            sums.w_ih[k] += to_x * now[i].x;
          }
        }
        __syncwarp();
        real part[4] = {cell_carried(now[i].unit, g) + now[i].u, 0, 0, 0};
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
        if (unit && !s.from_zero && (t > 1 ? c.store_g : c.want_input)) {
          c.g[row * hidden + lane] = g;
        }
      }
    }
  }
  if (s.from_zero && works && unit) {
    s.offsets[item * hidden + lane] = g;
  }
  if (SUM) {
    __syncthreads();
    walk_finish<real, K, SUMS_HP>(c, s, sums, works, shared);
  }
}

/* ---- forward ---- */

/* h_1 .. h_T, a warp a sample, a lane a unit, its rows of W_hh in registers; ONE: an input of size 1, whose products are made on the way.
 * shared: 2 · HP reals. */
template <typename real, template <typename> class cell, int HP, bool ONE>
__global__ void __launch_bounds__(WARP_LANES) bppsa_recurrent_forward(layer_arrays<real> c) {
  enum { K = cell<real>::MATRICES, AHEAD = cell<real>::AHEAD, GIVEN = ONE ? 1 : K, Q = quad<real>::SIZE };
  BPPSA_SHARED(real, shared);
  const int lane = (int)threadIdx.x;
  const int64_t b = blockIdx.x, hidden = c.hidden, state = c.batch * hidden;
  const bool unit = lane < hidden;
  const int64_t j = unit ? lane : 0; /* other lanes read along */
  real w[K][HP], w_x[K], b_x[K], b_h[K], now[AHEAD][GIVEN], next[AHEAD][GIVEN] = {};
  BPPSA_UNROLL
  for (int k = 0; k < K; ++k) {
    BPPSA_UNROLL
    for (int r = 0; r < HP; ++r) {
      w[k][r] = unit && r < hidden ? c.w_hh[(k * hidden + lane) * hidden + r] : 0;
    }
    b_h[k] = c.b_hh[k * hidden + j];
    w_x[k] = ONE ? c.w_ih[k * hidden + j] : 0;
    b_x[k] = ONE ? c.b_ih[k * hidden + j] : 0;
  }
  real h = unit ? c.h[b * hidden + lane] : 0;
  for (int64_t first = -AHEAD; first < c.steps; first += AHEAD) { /* the first round only fetches */
    BPPSA_UNROLL
    for (int i = 0; i < AHEAD * GIVEN; ++i) {
      const int64_t step = first + AHEAD + i / GIVEN, row = step * c.batch + b;
      now[i / GIVEN][i % GIVEN] = next[i / GIVEN][i % GIVEN];
      if (step < c.steps) {
        next[i / GIVEN][i % GIVEN] = ONE ? c.x[row] : c.pre[(row * K + i % GIVEN) * hidden + j];
      }
    }
    BPPSA_UNROLL
    for (int i = 0; i < AHEAD; ++i) {
      const int64_t t = first + i;
      if (first >= 0 && t < c.steps) {
        real *in = shared + i % 2 * HP, product[K], pre[K], saved[4] = {};
        if (lane < HP) {
          in[lane] = h;
        }
        __syncwarp();
        BPPSA_UNROLL
        for (int k = 0; k < K; ++k) {
          real part[4] = {b_h[k], 0, 0, 0};
          BPPSA_UNROLL
          for (int q = 0; q < HP / Q; ++q) {
            const quad<real> rows = ((const quad<real> *)in)[q];
            BPPSA_UNROLL
            for (int l = 0; l < Q; ++l) {
              part[(q * Q + l) % 4] += rows.v[l] * w[k][q * Q + l];
            }
          }
          product[k] = (part[0] + part[1]) + (part[2] + part[3]);
          pre[k] = ONE ? b_x[k] + w_x[k] * now[i][0] : now[i][k % GIVEN];
        }
        const real fresh = cell<real>::forward(c.relu, pre, product, h, saved);
        h = unit ? fresh : 0;
        if (unit) {
          c.h[(t + 1) * state + b * hidden + lane] = h;
          BPPSA_UNROLL
          for (int v = 0; v < cell<real>::SAVED; ++v) {
            c.saved[((t * c.batch + b) * 4 + v) * hidden + lane] = saved[v];
          }
        }
      }
    }
  }
}

/* Any H: a block a sample, units shared among its threads. w_t [H][G·H]: W_hhᵀ; in shared memory where it fits. shared: 2 · H reals, and those of
 * w_t where it fits. */
template <typename real, template <typename> class cell>
__global__ void bppsa_recurrent_forward_wide(layer_arrays<real> c, const real *w_t, bool fits) {
  enum { K = cell<real>::MATRICES };
  BPPSA_SHARED(real, shared);
  const int64_t b = blockIdx.x, hidden = c.hidden, state = c.batch * hidden;
  real *in = shared, *out = shared + hidden, *copy = shared + 2 * hidden;
  for (int64_t at = threadIdx.x; fits && at < hidden * K * hidden; at += blockDim.x) {
    copy[at] = w_t[at];
  }
  for (int64_t j = threadIdx.x; j < hidden; j += blockDim.x) {
    in[j] = c.h[b * hidden + j];
  }
  const real *w = fits ? copy : w_t;
  __syncthreads();
  for (int64_t t = 0; t < c.steps; ++t) {
    const int64_t row = t * c.batch + b;
    for (int64_t j = threadIdx.x; j < hidden; j += blockDim.x) {
      real product[K], pre[K], saved[4];
      BPPSA_UNROLL
      for (int k = 0; k < K; ++k) {
        product[k] = c.b_hh[k * hidden + j];
        pre[k] = c.pre[(row * K + k) * hidden + j];
      }
      for (int64_t r = 0; r < hidden; ++r) {
        BPPSA_UNROLL
        for (int k = 0; k < K; ++k) {
          product[k] += in[r] * w[(r * K + k) * hidden + j];
        }
      }
      out[j] = cell<real>::forward(c.relu, pre, product, in[j], saved);
      c.h[(t + 1) * state + b * hidden + j] = out[j];
      BPPSA_UNROLL
      for (int v = 0; v < cell<real>::SAVED; ++v) {
        c.saved[(row * 4 + v) * hidden + j] = saved[v];
      }
    }
    __syncthreads();
    real *swap = in;
    in = out;
    out = swap;
  }
}

/* to [columns][rows] = the transpose of from [rows][columns]. */
template <typename real> __global__ void bppsa_recurrent_transpose(const real *from, int64_t rows, int64_t columns, real *to) {
  const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (at < rows * columns) {
    to[at % columns * rows + at / columns] = from[at];
  }
}

#endif
