/* The fused kernels of a recurrent layer, H <= 32: the sequential backward pass of a chunk of steps, and the products that make
 * chunks independent.
 *
 *     transition   products of chunks: the sequential backward pass of the rows of the identity (phase 1)
 *     carry        takes the gradient from chunk to chunk through the products (phase 2)
 *     walk         goes through all chunks at once, from the carried gradients, and sums weight gradients (phase 3)
 *
 * Chunk p has the steps T - C(p) .. T - C(p + 1) + 1, in that order, where C(p) = bppsa_cut(T, P, p); one chunk is sequential BP.
 * Jacobians are never stored: their factors are computed from what the forward pass kept. Injected gradients enter a chunk as one
 * more vector, the walk from 0.
 *
 * Everything is in row-vector form, gᵀ_{t-1} = Σ_k (gᵀ_t ∘ d_k) W_k + gᵀ_t ∘ e + uᵀ_{t-1}. HP is H padded; the
 * padding of W_k is 0. scan/scan_products.inc explains the exponents of products, and when a product is useless and its steps are
 * redone. All sums run in one fixed order.
 *
 * (The file is long because the three phases share one layout of shared memory and one arithmetic of exponents.)
 */
#ifndef BPPSA_RECURRENT_CHUNK_KERNELS_CUH
#define BPPSA_RECURRENT_CHUNK_KERNELS_CUH

#include "core/cut.h"
#include "core/launch.cuh"
#include "recurrent/cell_cuda.cuh"
#include "recurrent/lanes.cuh"
#include "scan/scan_numbers.cuh"

/* ---- phase 1 ---- */

/* A thread holds V rows of the product of one chunk and sample (an item); GROUPS threads of a warp share an item. The rows are in
 * shared memory, so that the loop over their entries need not be unrolled; sums are in registers; all lanes read W_k's rows at
 * the same time. Factors are computed once for an item, a step before they are used, from what was loaded a step earlier. A thread
 * loads MINE units; those beyond H are memory behind the row, which also belongs to the layer, and are not used. shared: see
 * SHARED. */
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

/* Takes V rows, x [HP][V][threads], through one step: x = Σ_k (x ∘ d_k) W_k + x ∘ e. With `rescale` the rows are brought
 * back into the window. */
template <typename real, template <typename> class cell, int HP, int V>
__device__ __forceinline__ void transition_step(const real *w, const real *d, real *x, int hidden, bool rescale, int32_t e[V],
                                                real norms[V]) {
  enum { K = cell<real>::MATRICES, Q = quad<real>::SIZE, ROWS = K == 1 ? 4 : 2 }; /* of x at once: HP is a multiple */
  real y[V][HP] = {};
  for (int first = 0; first < hidden; first += ROWS) {
    BPPSA_UNROLL
    for (int r = first; r < first + ROWS; ++r) {
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
  }
  BPPSA_UNROLL
  for (int at = 0; cell<real>::DIAGONAL && at < HP * V; ++at) {
    y[at % V][at / V] += x[at * CHUNK_THREADS] * d[K * HP + at / V];
  }
  if (rescale) {
    real largest[V] = {};
    BPPSA_UNROLL
    for (int at = 0; at < HP * V; ++at) {
      largest[at % V] = scan_larger(largest[at % V], scan_size(y[at % V][at / V]));
    }
    BPPSA_UNROLL
    for (int v = 0; v < V; ++v) {
      const int32_t excess = scan_excess(largest[v]);
      norms[v] = largest[v];
      if (excess != 0) {
        const real factor = scan_normal_power<real>(-excess);
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
  BPPSA_SHARED(real, memory);
  real *w = launch_held(memory);
  const int thread = (int)threadIdx.x, lane = thread % WARP_LANES, warp = thread / WARP_LANES;
  const int place = lane / shape::GROUPS, group = lane % shape::GROUPS;
  real *x = launch_held(memory + shape::W_REALS + thread); /* [HP][V][threads] */
  real *factors = w + shape::W_REALS + shape::X_REALS + (warp * shape::ITEMS + place) * 2 * shape::D_REALS;
  const int64_t hidden = c.hidden, items = s.links * c.batch;
  const int64_t item = ((int64_t)blockIdx.x * shape::WARPS + warp) * shape::ITEMS + place;
  const bool active = place < shape::ITEMS && item < items;
  const int64_t b = active ? item % c.batch : 0, chunk = active ? item / c.batch : 0;
  const int64_t start = c.steps - bppsa_cut(c.steps, s.chunks, chunk), end = c.steps - bppsa_cut(c.steps, s.chunks, chunk + 1);
  const int count = (int)(start - end), longest = (int)bppsa_cut(c.steps, s.chunks, 1); /* chunks differ by one step at most */
  for (int at = thread; at < shape::W_REALS; at += CHUNK_THREADS) {
    const int64_t j = at % HP, r = at / HP % HP, k = at / (HP * HP);
    w[at] = r < hidden && j < hidden ? c.w_hh[(k * hidden + r) * hidden + j] : 0;
  }
  int32_t e[V];
  real norms[V];
  cell<real> mine[shape::MINE] = {};
  unit_place<real, cell> at(c, ((start - 1) * c.batch + b) * hidden + group, group);
  BPPSA_UNROLL
  for (int v = 0; v < V; ++v) {
    e[v] = 0;
    for (int r = 0; r < HP; ++r) {
      x[(r * V + v) * CHUNK_THREADS] = group * V + v == r ? 1 : 0;
    }
  }
  BPPSA_UNROLL
  for (int i = 0; i < shape::MINE; ++i) {
    mine[i] = cell<real>::load(at, i * shape::GROUPS);
  }
  __syncthreads();
  for (int link = 0; link < longest; ++link) {
    const bool works = active && link < count;
    real *d = factors + link % 2 * shape::D_REALS; /* [K, then e][HP] */
    BPPSA_UNROLL
    for (int i = 0; i < shape::MINE; ++i) { /* all factors, then all loads: a factor would wait for a load before it */
      const int r = group + i * shape::GROUPS;
      real own[K], diagonal, unused;
      mine[i].factors(c.relu, own, &diagonal, &unused);
      if (works && (shape::MINE * shape::GROUPS == HP || r < HP)) {
        BPPSA_UNROLL
        for (int k = 0; k < K; ++k) {
          d[k * HP + r] = r < hidden ? own[k] : 0;
        }
        if (cell<real>::DIAGONAL) {
          d[K * HP + r] = r < hidden ? diagonal : 0;
        }
      }
    }
    __syncwarp();
    if (link + 1 < count) {
      at.back();
    }
    BPPSA_UNROLL
    for (int i = 0; i < shape::MINE; ++i) { /* after the last link in vain: a condition would wait for what it loads */
      mine[i] = cell<real>::load(at, i * shape::GROUPS);
    }
    if (works) {
      transition_step<real, cell, HP, V>(w, d, x, (int)hidden, link % SCAN_RESCALE_LINKS == 0 || link + 1 == count, e, norms);
    }
  }
  BPPSA_UNROLL
  for (int v = 0; v < V; ++v) {
    const int row = group * V + v;
    if (active && row < hidden) {
      s.exponents[item * hidden + row] = e[v];
      s.norms[item * hidden + row] = norms[v];
    }
  }
  __syncwarp();
  const real *rows = w + shape::W_REALS + warp * WARP_LANES;
  const int64_t first = item - place;                                      /* the first item of the warp */
  for (int at = lane; at < shape::ITEMS * HP * HP / Q; at += WARP_LANES) { /* whole columns, four rows at once */
    const int column = at / (HP / Q) % HP, its = at / (HP / Q * HP);
    quad<real> part;
    BPPSA_UNROLL
    for (int l = 0; l < Q; ++l) {
      const int row = at % (HP / Q) * Q + l;
      part.v[l] = rows[(column * V + row % V) * CHUNK_THREADS + its * shape::GROUPS + row / V];
    }
    if (first + its < items) {
      ((quad<real> *)s.products)[first * (HP * HP / Q) + at] = part;
    }
  }
}

/* ---- phase 2 ---- */

enum { CARRY_THREADS = 256, CARRY_HELPERS = CARRY_THREADS - WARP_LANES, CARRY_NONE = -(1 << 30) };

template <typename real> __device__ inline real warp_sum(real x) {
  for (int other = WARP_LANES / 2; other > 0; other /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, other);
  }
  return x;
}

/* One step from g_t to g_{t-1}, a unit in each lane, slowly: for chunks that are redone. shared: [K][H] reals. */
template <typename real, template <typename> class cell>
__device__ real step_back(const layer_arrays<real> &c, int64_t t, int64_t b, int lane, real g, real *shared) {
  enum { K = cell<real>::MATRICES };
  real sum = 0;
  if (lane < c.hidden) {
    const int64_t past = ((t - 1) * c.batch + b) * c.hidden + lane;
    const cell<real> unit = cell<real>::load(unit_place<real, cell>(c, past, lane));
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

/* The shared memory of a carry: links of the chain, LINKS at a time. While one warp follows the chain through a tile, the other
 * warps load the next tile and write the results of the last one; what they read of it is kept in a third buffer. */
template <typename real, int HP> struct carry_tile {
  enum {
    Q = quad<real>::SIZE,
    COLUMN = HP / Q | 1, /* quads from one column to the next: odd, so that lanes use different banks */
    LINK_BYTES = 2 * HP * COLUMN * 16 + 10 * HP * (int)sizeof(real) + 3 * HP * 4 + 8,
    FITTING = 46 * 1024 / LINK_BYTES,
    LINKS = FITTING < 16 ? FITTING : 16
  };
  quad<real> m[2][LINKS][HP * COLUMN];           /* products, stored by columns */
  real norm[3][LINKS][HP], offset[3][LINKS][HP]; /* of the products' rows; offset: 0 if nothing is injected */
  int32_t e[3][LINKS][HP];                       /* exponents of the products' rows */
  real scaled[2][LINKS][HP], sum[2][LINKS][HP];  /* the gradient as it was multiplied, and the result: sum 2^after */
  int32_t after[2][LINKS];
};

/* A lane's unit of the gradient: v 2^e; e is the same in all lanes. */
template <typename real> struct carry_value {
  real v;
  int32_t e;
};

/* The exponent of the largest x 2^e of all lanes; CARRY_NONE if all are 0. */
template <typename real> __device__ __forceinline__ int32_t carry_top(real x, int32_t e, bool unit) {
  return __reduce_max_sync(0xffffffffu, unit && x != 0 ? scan_exponent(x) + e : (int32_t)CARRY_NONE);
}

/* g as v 2^e, with v near 1. */
template <typename real> __device__ inline carry_value<real> carry_value_of(real g, bool unit) {
  const int32_t top = carry_top(g, 0, unit), e = top == CARRY_NONE ? 0 : top;
  return {scan_shifted(g, -e), e};
}

/* g · product + offset. All terms are scaled by a power of two relative to the largest, so that nothing overflows or vanishes on
 * the way; the power goes into the exponent. column: the product's column of the lane's unit; e: exponent of its row; in: HP
 * reals, which receive the scaled g. */
template <typename real, int HP>
__device__ __forceinline__ carry_value<real> carry_apply(carry_value<real> g, const quad<real> *column, int32_t e, real offset,
                                                         bool injected, int hidden, int lane, real *in) {
  enum { Q = quad<real>::SIZE };
  quad<real> m[HP / Q], rows[HP / Q];
  real part[4] = {};
  int32_t top = carry_top(g.v, e, lane < hidden);
  BPPSA_UNROLL
  for (int q = 0; q < HP / Q; ++q) {
    m[q] = column[q];
  }
  if (injected) {
    top = max(top, carry_top(offset, 0, lane < hidden) - g.e);
    part[0] = scan_shifted(offset, -g.e - top);
  }
  if (lane < HP) {
    in[lane] = g.v * scan_normal_power<real>(e - top);
  }
  __syncwarp();
  BPPSA_UNROLL
  for (int q = 0; q < HP / Q; ++q) {
    rows[q] = ((const quad<real> *)in)[q];
  }
  __syncwarp(); /* all reads are in flight before the first is used */
  BPPSA_UNROLL
  for (int r = 0; r < HP; ++r) {
    part[r % 4] += rows[r / Q].v[r % Q] * m[r / Q].v[r % Q];
  }
  return {(part[0] + part[1]) + (part[2] + part[3]), top < CARRY_NONE / 2 ? g.e : g.e + top};
}

/* Is a product useless for the gradient to which it was applied? `scaled`, `sum` and `offset` are terms of one scale, a unit in
 * each lane. */
template <typename real>
__device__ inline bool carry_useless(real scaled, real norm, real offset, real sum, real result, bool unit) {
  const real left = (real)SCAN_CANCELLATION * scan_size(sum) - (scan_size(scaled) * norm + scan_size(offset));
  return !(warp_sum(!unit ? (real)0 : isfinite(result) ? left : -(real)INFINITY) >= 0); /* true for NaN */
}

/* Loads a tile. threads: at least CARRY_HELPERS. */
template <typename real, int HP>
__device__ __forceinline__ void carry_load(const chunk_arrays<real> &s, int64_t batch, int64_t b, int hidden, int64_t first,
                                           int links, int buffer, int buffer3, int thread, int threads,
                                           carry_tile<real, HP> *to) {
  enum {
    Q = quad<real>::SIZE,
    PRODUCT = HP * HP / Q,
    MOST = (carry_tile<real, HP>::LINKS * PRODUCT + CARRY_HELPERS - 1) / CARRY_HELPERS
  };
  const quad<real> *products = (const quad<real> *)s.products + (first * batch + b) * PRODUCT;
  quad<real> part[MOST] = {}; /* all reads are in flight before the first is stored */
  BPPSA_UNROLL
  for (int i = 0; i < MOST; ++i) {
    const int at = thread + i * threads;
    if (at < links * PRODUCT) {
      part[i] = products[at / PRODUCT * batch * PRODUCT + at % PRODUCT];
    }
  }
  BPPSA_UNROLL
  for (int i = 0; i < MOST; ++i) {
    const int at = thread + i * threads, in = at % PRODUCT;
    if (at < links * PRODUCT) {
      to->m[buffer][at / PRODUCT][in / (HP / Q) * carry_tile<real, HP>::COLUMN + in % (HP / Q)] = part[i];
    }
  }
  for (int at = thread; at < links * HP; at += threads) {
    const int link = at / HP, r = at % HP;
    const int64_t from = ((first + link) * batch + b) * hidden + r;
    to->norm[buffer3][link][r] = r < hidden ? s.norms[from] : 0;
    to->e[buffer3][link][r] = r < hidden ? s.exponents[from] : 0;
    to->offset[buffer3][link][r] = r < hidden && s.offsets != NULL ? s.offsets[from] : 0;
  }
}

/* Follows the chain through one tile. */
template <typename real, int HP, bool INJECTED>
__device__ __forceinline__ carry_value<real> carry_follow(carry_value<real> g, int links, int buffer, int buffer3, int hidden,
                                                          int lane, carry_tile<real, HP> *tile) {
  typedef carry_tile<real, HP> type;
  const int j = lane < HP ? lane : 0; /* the other lanes read the same */
  const quad<real> *m = launch_held(tile->m[buffer][0] + j * type::COLUMN);
  const int32_t *e = launch_held(&tile->e[buffer3][0][j]);
  real *in = launch_held(tile->scaled[buffer][0]), *sum = launch_held(&tile->sum[buffer][0][j]);
  int32_t *after = launch_held(tile->after[buffer]), now = *e;
  BPPSA_UNROLL_BY(2)
  for (int link = 0; link < links; ++link) {
    const int32_t next = link + 1 < links ? e[HP] : 0;
    g = carry_apply<real, HP>(g, m, now, INJECTED ? tile->offset[buffer3][link][j] : 0, INJECTED, hidden, lane, in);
    if (lane < HP) {
      *sum = g.v;
    }
    *after = g.e;
    now = next;
    m += HP * type::COLUMN;
    e += HP;
    in += HP;
    sum += HP;
    ++after;
  }
  return g;
}

/* Follows the chain again, checks each product before it applies the next, and redoes the steps of useless ones. shared: MATRICES
 * · HP reals. */
template <typename real, template <typename> class cell, int HP>
__device__ void carry_careful(const layer_arrays<real> &c, const chunk_arrays<real> &s, int64_t b, real v, int lane,
                              real *shared) {
  const int hidden = (int)c.hidden, j = lane < hidden ? lane : 0;
  carry_value<real> g = carry_value_of(v, lane < hidden);
  for (int64_t p = 0; p < s.links; ++p) {
    const int64_t item = p * c.batch + b, at = item * hidden + j;
    const real offset = s.offsets != NULL && lane < hidden ? s.offsets[at] : 0;
    const carry_value<real> next = carry_apply<real, HP>(g, (const quad<real> *)(s.products + (item * HP + j) * HP),
                                                         s.exponents[at], offset, s.offsets != NULL, hidden, lane, shared);
    const real result = scan_shifted(next.v, next.e), scaled = lane < hidden ? shared[lane] : 0;
    __syncwarp();
    if (!carry_useless(scaled, s.norms[at], scan_shifted(offset, -next.e), next.v, result, lane < hidden)) {
      g = next;
      v = result;
    } else {
      const int64_t end = c.steps - bppsa_cut(c.steps, s.chunks, p + 1);
      for (int64_t t = c.steps - bppsa_cut(c.steps, s.chunks, p); t > end; --t) {
        v = step_back<real, cell>(c, t, b, lane, v, shared);
      }
      g = carry_value_of(v, lane < hidden);
      if (lane == 0) {
        (void)atomicAdd(s.redone, 1ull);
      }
    }
    if (lane < hidden) {
      s.carried[at + c.batch * hidden] = v;
    }
  }
}

/* carried[p + 1] = carried[p] · product of chunk p + offset, one block for each sample. One warp follows the chain without
 * checks; the other warps check its results. If a product was useless, which is rare, the chain is followed again with checks. */
template <typename real, template <typename> class cell, int HP>
__global__ void __launch_bounds__(CARRY_THREADS) bppsa_recurrent_carry(layer_arrays<real> c, chunk_arrays<real> s) {
  typedef carry_tile<real, HP> tile;
  BPPSA_SHARED(tile, memory);
  const int lane = (int)threadIdx.x % WARP_LANES, helpers = CARRY_HELPERS / WARP_LANES, hidden = (int)c.hidden;
  /* the same in all lanes of a warp, which the compiler must see */
  const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / WARP_LANES, 0);
  const int64_t b = blockIdx.x, links = s.links, tiles = (links + tile::LINKS - 1) / tile::LINKS;
  const bool unit = lane < hidden;
  const real v = unit ? c.last[b * hidden + lane] : 0;
  carry_value<real> g = carry_value_of(v, unit);
  tile *shared = launch_held(memory);
  bool useless = false;
  carry_load<real, HP>(s, c.batch, b, hidden, 0, (int)min(links, (int64_t)tile::LINKS), 0, 0, (int)threadIdx.x, CARRY_THREADS,
                       shared);
  if (warp == 0 && unit) {
    s.carried[b * hidden + lane] = v;
  }
  __syncthreads();
  for (int64_t k = 0; k <= tiles; ++k) {
    const int64_t first = k * tile::LINKS;
    const int here = (int)min(links - first, (int64_t)tile::LINKS), buffer = (int)(k % 2), buffer3 = (int)(k % 3);
    if (warp == 0 && k < tiles) {
      g = s.offsets == NULL ? carry_follow<real, HP, false>(g, here, buffer, buffer3, hidden, lane, shared)
                            : carry_follow<real, HP, true>(g, here, buffer, buffer3, hidden, lane, shared);
    } else if (warp > 0) {
      if (k + 1 < tiles) {
        carry_load<real, HP>(s, c.batch, b, hidden, first + tile::LINKS,
                             (int)min(links - first - tile::LINKS, (int64_t)tile::LINKS), 1 - buffer, (buffer3 + 1) % 3,
                             (int)threadIdx.x - WARP_LANES, CARRY_HELPERS, shared);
      }
      const int j = unit ? lane : 0, past = (buffer3 + 2) % 3;
      for (int link = warp - 1; k > 0 && link < (k < tiles ? (int)tile::LINKS : (int)(links - first + tile::LINKS));
           link += helpers) {
        const int32_t e = shared->after[1 - buffer][link];
        const real sum = shared->sum[1 - buffer][link][j], result = scan_shifted(sum, e);
        useless |= carry_useless(shared->scaled[1 - buffer][link][j], shared->norm[past][link][j],
                                 scan_shifted(shared->offset[past][link][j], -e), sum, result, unit);
        if (unit) {
          s.carried[((first - tile::LINKS + link + 1) * c.batch + b) * hidden + lane] = result;
        }
      }
    }
    __syncthreads();
  }
  if (__syncthreads_or(useless) != 0 && warp == 0) {
    carry_careful<real, cell, HP>(c, s, b, v, lane, shared->scaled[0][0]);
  }
}

/* ---- phase 3, and sequential BP ---- */

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
}

/* Kinds of walks. PLAIN, the usual case, sums weight gradients; nothing is injected, and no output but g_0 is written. SUMS also
 * injects gradients or writes outputs. FREE sums no weight gradients. */
enum walk_kind { WALK_PLAIN, WALK_SUMS, WALK_FREE };

/* The numbers that a lane reads for a step. */
template <typename real, template <typename> class cell> struct walk_step {
  cell<real> unit;
  real u;
};

/* The numbers that a lane keeps during a walk: weights, sums, the gradient, and the addresses of its next numbers. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND> struct walk_lane {
  enum {
    K = cell<real>::MATRICES,
    SUM = KIND != WALK_FREE,
    MORE = KIND != WALK_PLAIN,
    AHEAD = K > 1 && SUM &&MORE ? cell<real>::AHEAD / 2 : (int)cell<real>::AHEAD
  };                   /* fewer if registers are short */
  real w[K][HP], g, x; /* a column of each W_k; x: of step lane % AHEAD of the next round */
  walk_sums<real, K, SUM ? HP : 1> sums;
  walk_step<real, cell> ring[AHEAD]; /* the next steps */
  unit_place<real, cell> unit;
  bool reads_x, reads_u, stores_x, stores_h, stores_g;
  const real *x_at, *u_at;
  real *delta_x, *delta_h, *g_to;
  int64_t state, x_row;
};

/* Reads step i of the ring; with `step` also what only that step needs. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void walk_read(int i, bool step, walk_lane<real, cell, HP, KIND> *l) {
  l->ring[i].unit = cell<real>::load(l->unit);
  l->unit.back();
  if (l->MORE && l->reads_u && step) {
    l->ring[i].u = *l->u_at;
    l->u_at -= l->state;
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

/* Computes g_{t-1} from g_t, and adds to the sums. own: K · HP reals of shared memory. last: g_{t-1} is g_0. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void walk_back(const layer_arrays<real> &c, const walk_step<real, cell> &now, real before, real x,
                                          bool unit, int lane, bool last, real *own, walk_lane<real, cell, HP, KIND> *l) {
  enum { K = cell<real>::MATRICES, Q = quad<real>::SIZE, SUM = KIND != WALK_FREE, SUMS_HP = SUM ? HP : 1 };
  real d[K], e, d_x, part[4] = {now.unit.carried(l->g) + (l->MORE ? now.u : (real)0), 0, 0, 0};
  now.unit.factors(c.relu, d, &e, &d_x);
  BPPSA_UNROLL
  for (int k = 0; k < K; ++k) {
    const real to_h = d[k] * l->g, to_x = (k + 1 == K ? d_x : d[k]) * l->g;
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
  if (!SUM && l->stores_g) {
    if (!last) {
      *l->g_to = l->g;
    }
    l->g_to -= l->state;
  }
}

/* Computes AHEAD steps, and reads the numbers of the next ones. WHOLE: this round and the next have all their steps; otherwise
 * `left` steps are left. to_zero: the last of them leads to g_0. */
template <bool WHOLE, typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void walk_round(const layer_arrays<real> &c, bool unit, int lane, int left, bool to_zero, real *delta,
                                           walk_lane<real, cell, HP, KIND> *l) {
  enum { K = cell<real>::MATRICES, AHEAD = walk_lane<real, cell, HP, KIND>::AHEAD };
  const real x = l->x;
  if (l->SUM && l->reads_x && (WHOLE || AHEAD + lane % AHEAD < left)) {
    l->x = *l->x_at;
    l->x_at -= l->x_row;
  }
  BPPSA_UNROLL
  for (int i = 0; i < AHEAD; ++i) {
    if (WHOLE || i < left) {
      const walk_step<real, cell> now = l->ring[i];
      if (WHOLE || AHEAD + i < left + cell<real>::EARLIER) {
        walk_read(i, WHOLE || AHEAD + i < left, l);
      }
      const real own_x = l->SUM ? __shfl_sync(0xffffffffu, x, i) : (real)0;
      walk_back(c, now, now.unit.before(l->ring[(i + 1) % AHEAD].unit), own_x, unit, lane, !WHOLE && to_zero && i + 1 == left,
                delta + i % 2 * K * HP, l);
    }
  }
}

/* A warp walks through one chunk of one sample, with a unit in each lane; lanes beyond H repeat lane 0. The unit's column of each
 * W_k and the sums of its weight gradients are in registers. Loads are AHEAD steps ahead of their use. shared: 2 · K · HP reals
 * for each warp; with sums at least a part for each warp. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__global__ void __launch_bounds__(CHUNK_THREADS) bppsa_recurrent_walk(layer_arrays<real> c, chunk_arrays<real> s) {
  enum { K = cell<real>::MATRICES, AHEAD = walk_lane<real, cell, HP, KIND>::AHEAD };
  BPPSA_SHARED(real, shared);
  const int lane = (int)threadIdx.x % WARP_LANES, warps = (int)blockDim.x / WARP_LANES;
  const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / WARP_LANES, 0); /* the warp's, for the compiler too */
  const int64_t hidden = c.hidden, item = (int64_t)blockIdx.x * warps + warp, p = item / c.batch, b = item % c.batch;
  const bool works = p < (s.from_zero ? s.links : s.chunks), unit = lane < hidden;
  const int64_t start = works ? c.steps - bppsa_cut(c.steps, s.chunks, p) : 0;
  const int count = works ? (int)(bppsa_cut(c.steps, s.chunks, p + 1) - bppsa_cut(c.steps, s.chunks, p)) : 0;
  const int64_t j = unit ? lane : 0, state = c.batch * hidden, row = (start - 1) * c.batch + b, past = row * hidden + j;
  real *delta = launch_held(shared + warp * 2 * K * HP);
  walk_lane<real, cell, HP, KIND> l = {};
  BPPSA_UNROLL
  for (int k = 0; k < K; ++k) {
    BPPSA_UNROLL
    for (int r = 0; r < HP; ++r) {
      l.w[k][r] = r < hidden ? c.w_hh[(k * hidden + r) * hidden + j] : 0;
    }
    if (!unit && lane < HP) {
      delta[k * HP + lane] = delta[(K + k) * HP + lane] = 0;
    }
  }
  if (works) {
    l.unit = unit_place<real, cell>(c, past, j);
    l.state = state;
    l.reads_u = c.injected;
    l.stores_x = c.delta_x != NULL && !s.from_zero;
    l.stores_h = c.delta_h != NULL && !s.from_zero;
    l.stores_g = c.store_g && !s.from_zero;
    l.u_at = l.g_to = c.g + past;
    l.delta_x = l.stores_x ? c.delta_x + row * K * hidden + j : NULL;
    l.delta_h = l.stores_h ? c.delta_h + row * K * hidden + j : NULL;
    l.g = s.from_zero ? 0 : s.chunks > 1 ? s.carried[item * hidden + j] : c.last[b * hidden + j];
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
      walk_read(i, i < count, &l);
    }
  }
  int left = count;
  for (; left >= 2 * AHEAD; left -= AHEAD) {
    walk_round<true>(c, unit, lane, left, false, delta, &l);
  }
  for (; left > 0; left -= AHEAD) {
    walk_round<false>(c, unit, lane, left, start == count, delta, &l);
  }
  if (works && unit && c.want_input && !s.from_zero && start == count) { /* g_0 */
    c.g[b * hidden + lane] = l.g;
  }
  if (s.from_zero && works && unit) {
    s.offsets[item * hidden + lane] = l.g;
  }
  if constexpr (KIND != WALK_FREE) {
    __syncthreads(); /* the deltas have been read */
    walk_finish(c, s, l.sums, shared);
  }
}

#endif
