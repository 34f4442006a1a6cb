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
#ifndef BPPSA_RECURRENT_GPU_CHUNK_KERNELS_CUH
#define BPPSA_RECURRENT_GPU_CHUNK_KERNELS_CUH

#include "core/base/cut.h"
#include "core/compute/launch.cuh"
#include "recurrent/gpu/cell_cuda.cuh"
#include "recurrent/gpu/lanes.cuh"
#include "scan/scan_numbers.cuh"

/* ---- phase 1 ---- */

/* A thread holds V rows of the product of one chunk and sample (an item); GROUPS threads of a warp share an item. The rows are in
 * shared memory, so that the loop over their entries need not be unrolled; sums are in registers. Once in a step an item's threads
 * compute its factors, from what was loaded a step earlier. If the cell has one matrix and no diagonal, all lanes read W's rows at
 * the same time, and scale by the factors what they multiply. Otherwise (MADE) the item's threads also make its Jacobian, H numbers
 * a row for K H multiply-adds, which saves K - 1 of K products with the rows. A thread loads MINE units; those beyond H are memory
 * behind the row, which also belongs to the layer, and are not used. shared: see SHARED. */
template <typename real, template <typename> class cell, int HP, int V> struct transition_shape {
  enum {
    K = cell<real>::MATRICES,
    GROUPS = (HP + V - 1) / V,
    ITEMS = WARP_LANES / GROUPS, /* of a warp */
    MINE = (HP + GROUPS - 1) / GROUPS,
    WARPS = CHUNK_THREADS / WARP_LANES,
    MADE = K > 1 || cell<real>::DIAGONAL,
    W_REALS = K * HP * HP,
    X_REALS = HP * V * CHUNK_THREADS,
    D_REALS = MADE ? HP * HP + quad<real>::SIZE : 2 * HP, /* of an item: J, and a gap, for different banks; or d of two steps */
    SHARED = (W_REALS + X_REALS + WARPS * ITEMS * D_REALS) * (int)sizeof(real)
  };
};

/* y = x J for V rows x [HP][V][threads]. matrix: J if MADE; otherwise W, with J = diag(d) W. */
template <typename real, bool MADE, int HP, int V>
__device__ __forceinline__ void transition_multiply(const real *matrix, const real *d, const real *x, int hidden,
                                                    real (&y)[V][HP]) {
  enum { Q = quad<real>::SIZE, ROWS = HP == 20 ? 10 : 8 }; /* of x at once: HP is a multiple */
  for (int first = 0; first < hidden; first += ROWS) {
    BPPSA_UNROLL
    for (int r = first; r < first + ROWS; ++r) {
      const quad<real> *row = (const quad<real> *)(matrix + r * HP);
      real in[V];
      BPPSA_UNROLL
      for (int v = 0; v < V; ++v) {
        in[v] = MADE ? x[(r * V + v) * CHUNK_THREADS] : x[(r * V + v) * CHUNK_THREADS] * d[r];
      }
      BPPSA_UNROLL
      for (int q = 0; q < HP / Q; ++q) {
        const quad<real> part = row[q];
        BPPSA_UNROLL
        for (int at = 0; at < Q * V; ++at) {
          y[at % V][q * Q + at / V] += in[at % V] * part.v[at / V];
        }
      }
    }
  }
}

/* Begins with the first link, whose rows are J's own. row: the thread's first. */
template <typename real, bool MADE, int HP, int V>
__device__ __forceinline__ void transition_begin(const real *matrix, const real *d, int row, real (&y)[V][HP]) {
  enum { Q = quad<real>::SIZE };
  BPPSA_UNROLL
  for (int v = 0; v < V; ++v) {
    const int from = HP % V == 0 || row + v < HP ? row + v : 0; /* rows beyond HP are not used */
    BPPSA_UNROLL
    for (int q = 0; q < HP / Q; ++q) {
      const quad<real> part = ((const quad<real> *)(matrix + from * HP))[q];
      BPPSA_UNROLL
      for (int l = 0; l < Q; ++l) {
        y[v][q * Q + l] = MADE ? part.v[l] : d[from] * part.v[l];
      }
    }
  }
}

/* Brings rows back into the window. */
template <typename real, int HP, int V>
__device__ __forceinline__ void transition_rescale(real (&y)[V][HP], int32_t e[V], real norms[V]) {
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

/* Makes what transition_multiply needs of a step: J [HP][HP], or d [HP]. A thread of the item makes the rows of its units. */
template <typename real, template <typename> class cell, int HP, int V>
__device__ __forceinline__ void transition_make(const cell<real> *mine, const real *w, bool relu, int group, int hidden,
                                                real *to) {
  typedef transition_shape<real, cell, HP, V> shape;
  enum { K = shape::K, Q = quad<real>::SIZE, WHOLE = shape::MINE * shape::GROUPS == HP };
  real own[K], diagonal[shape::MINE], unused;
  quad<real> rows[shape::MINE][HP / Q] = {}; /* none is stored before all have been computed: reads would wait for that */
  BPPSA_UNROLL
  for (int i = 0; i < shape::MINE; ++i) {
    const int r = WHOLE || group + i * shape::GROUPS < HP ? group + i * shape::GROUPS : 0;
    mine[i].factors(relu, own, &diagonal[i], &unused);
    diagonal[i] = r < hidden ? diagonal[i] : 0;
    BPPSA_UNROLL
    for (int k = 0; k < K; ++k) {
      own[k] = r < hidden ? own[k] : 0;
    }
    if (!shape::MADE && (WHOLE || group + i * shape::GROUPS < HP)) {
      to[r] = own[0];
    }
    BPPSA_UNROLL
    for (int at = 0; shape::MADE && at < K * HP; ++at) {
      const int k = at / HP, q = at % HP / Q, l = at % Q;
      rows[i][q].v[l] += own[k] * ((const quad<real> *)(w + (k * HP + r) * HP))[q].v[l];
    }
  }
  BPPSA_UNROLL
  for (int at = 0; shape::MADE && at < shape::MINE * (HP / Q); ++at) {
    const int i = at / (HP / Q), q = at % (HP / Q), r = group + i * shape::GROUPS;
    if (WHOLE || r < HP) {
      ((quad<real> *)(to + r * HP))[q] = rows[i][q];
    }
  }
  BPPSA_UNROLL
  for (int i = 0; cell<real>::DIAGONAL && i < shape::MINE; ++i) { /* all reads are in flight before the first is used */
    const int r = group + i * shape::GROUPS;
    diagonal[i] += WHOLE || r < HP ? to[r * HP + r] : 0;
  }
  BPPSA_UNROLL
  for (int i = 0; cell<real>::DIAGONAL && i < shape::MINE; ++i) {
    const int r = group + i * shape::GROUPS;
    if (WHOLE || r < HP) {
      to[r * HP + r] = diagonal[i];
    }
  }
}

/* Writes the finished products of a warp's items. w: the block's shared memory; e, norms: of the thread's rows. */
template <typename real, template <typename> class cell, int HP, int V>
__device__ __forceinline__ void transition_store(const chunk_arrays<real> &s, int64_t hidden, int64_t items, int64_t item,
                                                 const real *w, const int32_t (&e)[V], const real (&norms)[V]) {
  typedef transition_shape<real, cell, HP, V> shape;
  enum { Q = quad<real>::SIZE };
  const int thread = (int)threadIdx.x, lane = thread % WARP_LANES, warp = thread / WARP_LANES;
  const int place = lane / shape::GROUPS, group = lane % shape::GROUPS;
  const bool active = place < shape::ITEMS && item < items;
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

template <typename real, template <typename> class cell, int HP, int V>
__global__ void __launch_bounds__(CHUNK_THREADS) bppsa_recurrent_transition(layer_arrays<real> c, chunk_arrays<real> s) {
  typedef transition_shape<real, cell, HP, V> shape;
  BPPSA_SHARED(real, memory);
  real *w = launch_held(memory);
  const int thread = (int)threadIdx.x, lane = thread % WARP_LANES, warp = thread / WARP_LANES;
  const int place = lane / shape::GROUPS, group = lane % shape::GROUPS;
  real *x = launch_held(memory + shape::W_REALS + thread); /* [HP][V][threads] */
  real *factors = w + shape::W_REALS + shape::X_REALS + (warp * shape::ITEMS + place) * shape::D_REALS;
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
  }
  BPPSA_UNROLL
  for (int i = 0; i < shape::MINE; ++i) {
    mine[i] = cell<real>::load(at, i * shape::GROUPS);
  }
  __syncthreads();
  for (int link = 0; link < longest; ++link) {
    const bool works = active && link < count;
    real *d = factors + (shape::MADE ? 0 : link % 2 * HP);
    if (shape::MADE) {
      __syncwarp(); /* the last link's Jacobian has been read */
    }
    if (works) { /* all factors, then all loads: a factor would wait for a load before it */
      transition_make<real, cell, HP, V>(mine, w, c.relu, group, (int)hidden, d);
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
      const real *matrix = shape::MADE ? d : w;
      real y[V][HP] = {};
      if (link == 0) {
        transition_begin<real, shape::MADE>(matrix, d, group * V, y);
      } else {
        transition_multiply<real, shape::MADE>(matrix, d, x, (int)hidden, y);
      }
      if (link % SCAN_RESCALE_LINKS == 0 || link + 1 == count) {
        transition_rescale(y, e, norms);
      }
      BPPSA_UNROLL
      for (int at = 0; at < HP * V; ++at) {
        x[at * CHUNK_THREADS] = y[at % V][at / V];
      }
    }
  }
  transition_store<real, cell, HP, V>(s, hidden, items, item, w, e, norms);
}

/* ---- phase 2 ---- */

/* CARRY_NEAR: if the exponents of a product's rows differ by no more than this, they are taken off before the gradient is known. */
template <typename real> constexpr int CARRY_THREADS = sizeof(real) == 4 ? 512 : 256;
enum { CARRY_NONE = -(1 << 30), CARRY_NEAR = 24, CARRY_LEAST = -64 }; /* exponents */

/* Takes one step from g_t to g_{t-1}, a unit in each lane, slowly: for chunks that are redone. *g_c: likewise for c of a pair.
 * shared: [K][H] reals. */
template <typename real, template <typename> class cell>
__device__ real step_back(const layer_arrays<real> &c, int64_t t, int64_t b, int lane, real g, real *g_c, real *shared) {
  enum { K = cell<real>::MATRICES, PAIR = cell<real>::PAIR };
  real sum = 0;
  if (lane < c.hidden) {
    const int64_t row = (t - 1) * c.batch + b;
    const real *u = c.g + row * (1 + PAIR) * c.hidden + lane;
    const unit_back<real, cell> made(cell<real>::load(unit_place<real, cell>(c, row * c.hidden + lane, lane)), c.relu, g, *g_c);
    for (int k = 0; k < K; ++k) {
      shared[k * c.hidden + lane] = made.to_h[k];
    }
    sum = made.own + (c.injected ? u[0] : 0);
    *g_c = PAIR ? made.own_c + (c.injected ? u[PAIR * c.hidden] : 0) : 0;
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
    LINK_BYTES = 2 * HP * COLUMN * 16 + 12 * HP * (int)sizeof(real) + 2 * HP * 4 + 24,
    HELPERS = CARRY_THREADS<real> / WARP_LANES - 1, /* warps, which are not fewer than links */
    FITTING = 46 * 1024 / LINK_BYTES,
    LINKS = FITTING < HELPERS ? FITTING : HELPERS
  };
  quad<real> m[2][LINKS][HP * COLUMN];           /* products, stored by columns */
  real norm[3][LINKS][HP], offset[3][LINKS][HP]; /* of the products' rows; offset: 0 if nothing is injected */
  real by[2][LINKS][HP];                         /* 2^(a row's exponent - top); 0 of a row that is 0 */
  int32_t e[2][LINKS][HP];                       /* exponents of the products' rows, */
  int32_t top[2][LINKS],
      range[2][LINKS]; /* the largest exponent of a row that is not 0, and how far the smallest one is below it */
  real scaled[2][LINKS][HP], sum[2][LINKS][HP]; /* the gradient as it was multiplied, and the result: sum 2^after */
  int32_t after[2][LINKS];
};

/* A lane's unit of the gradient: v 2^e; e is the same in all lanes. */
template <typename real> struct carry_value {
  real v;
  int32_t e;
};

/* Returns the exponent of the largest x 2^e of all lanes; CARRY_NONE if all are 0. */
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

/* The numbers that a thread copies from memory to a tile: its share of the products, and row `lane` of link `warp`. */
template <typename real, int HP> struct carry_load {
  typedef carry_tile<real, HP> tile;
  enum {
    Q = quad<real>::SIZE,
    PRODUCT = HP * HP / Q,
    MOST = (tile::LINKS * PRODUCT + tile::HELPERS * WARP_LANES - 1) / (tile::HELPERS * WARP_LANES)
  };
  quad<real> part[MOST];
  real norm, offset;
  int32_t e;

  /* Begins the reads. warps: at least HELPERS; more than LINKS. */
  __device__ __forceinline__ void fetch(const chunk_arrays<real> &s, int64_t batch, int64_t b, int hidden, int64_t first,
                                        int links, int warp, int warps, int lane) {
    const quad<real> *products = (const quad<real> *)s.products + (first * batch + b) * PRODUCT;
    const bool row = warp < links && lane < hidden;
    const int64_t from = row ? ((first + warp) * batch + b) * hidden + lane : 0;
    BPPSA_UNROLL
    for (int i = 0; i < MOST; ++i) {
      const int at = (i * warps + warp) * WARP_LANES + lane;
      part[i] = {};
      if (at < links * PRODUCT) {
        part[i] = products[at / PRODUCT * batch * PRODUCT + at % PRODUCT];
      }
    }
    norm = row ? s.norms[from] : 0;
    e = row ? s.exponents[from] : 0;
    offset = row && s.offsets != NULL ? s.offsets[from] : 0;
  }
  __device__ __forceinline__ void store(int links, int buffer, int buffer3, int warp, int warps, int lane, tile *to) const {
    BPPSA_UNROLL
    for (int i = 0; i < MOST; ++i) {
      const int at = (i * warps + warp) * WARP_LANES + lane, in = at % PRODUCT;
      if (at < links * PRODUCT) {
        to->m[buffer][at / PRODUCT][in / (HP / Q) * tile::COLUMN + in % (HP / Q)] = part[i];
      }
    }
    if (warp >= links) {
      return;
    }
    const bool some = norm != 0; /* NaN too */
    const int32_t top = __reduce_max_sync(0xffffffffu, some ? e : (int32_t)CARRY_NONE),
                  low = -__reduce_max_sync(0xffffffffu, some ? -e : (int32_t)CARRY_NONE);
    if (lane < HP) {
      to->norm[buffer3][warp][lane] = norm;
      to->offset[buffer3][warp][lane] = offset;
      to->e[buffer][warp][lane] = e;
      to->by[buffer][warp][lane] = some ? scan_normal_power<real>(e - top) : 0;
    }
    to->top[buffer][warp] = top == CARRY_NONE ? 0 : top;
    to->range[buffer][warp] = top == CARRY_NONE ? 0 : top - low;
  }
};

/* Follows the chain through one tile, whose offsets are 0 if nothing is injected. */
template <typename real, int HP>
__device__ __forceinline__ carry_value<real> carry_follow(carry_value<real> g, int links, int buffer, int buffer3, int hidden,
                                                          int lane, carry_tile<real, HP> *tile) {
  typedef carry_tile<real, HP> type;
  const int j = lane < HP ? lane : 0; /* the other lanes read the same */
  const quad<real> *m = launch_held(tile->m[buffer][0] + j * type::COLUMN);
  const int32_t *e = launch_held(&tile->e[buffer][0][j]);
  real *in = launch_held(tile->scaled[buffer][0]), *sum = launch_held(&tile->sum[buffer][0][j]);
  int32_t *after = launch_held(tile->after[buffer]), now = *e;
  BPPSA_UNROLL_BY(2)
  for (int link = 0; link < links; ++link) {
    const int32_t next = link + 1 < links ? e[HP] : 0;
    g = carry_apply<real, HP>(g, m, now, tile->offset[buffer3][link][j], true, hidden, lane, in);
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

/* Does the same faster, where nothing is injected and the exponents of all products' rows are near each other. A result is scaled
 * by the size of what was multiplied, so that no product waits for the largest number of all lanes. A row's largest entry is
 * within 2^±SCAN_WINDOW: unless the product is useless, the largest scaled result is between 2^-38 and 2^29, and the largest
 * number that is multiplied next at least 2^(-38 - CARRY_NEAR), which is above 2^CARRY_LEAST. */
template <typename real, int HP>
__device__ __forceinline__ carry_value<real> carry_follow_near(carry_value<real> g, int links, int buffer, int lane,
                                                               carry_tile<real, HP> *tile) {
  enum { Q = quad<real>::SIZE, PRODUCT = HP * carry_tile<real, HP>::COLUMN };
  const int j = lane < HP ? lane : 0; /* the other lanes compute the same as lane 0 */
  const quad<real> *m_at = launch_held(tile->m[buffer][0] + j * carry_tile<real, HP>::COLUMN);
  const real *by_at = launch_held(&tile->by[buffer][0][j]);
  const int32_t *top_at = launch_held(tile->top[buffer]);
  real *in = launch_held(tile->scaled[buffer][0]), *sum_at = launch_held(&tile->sum[buffer][0][j]), by = *by_at;
  int32_t *after_at = launch_held(tile->after[buffer]), top = *top_at;
  quad<real> m[HP / Q], rows[HP / Q];
  BPPSA_UNROLL
  for (int q = 0; q < HP / Q; ++q) {
    m[q] = m_at[q];
  }
  BPPSA_UNROLL_BY(2)
  for (int link = 0; link < links; ++link) {
    const real own = g.v * by;
    const int32_t after = g.e + top;
    real part[4] = {};
    quad<real> next[HP / Q];
    if (lane < HP) {
      in[lane] = own;
    }
    __syncwarp();
    BPPSA_UNROLL
    for (int q = 0; q < HP / Q; ++q) {
      rows[q] = ((const quad<real> *)in)[q];
    }
    const bool more = link + 1 < links; /* the last link reads its own numbers again */
    m_at += more ? PRODUCT : 0;
    by_at += more ? HP : 0;
    top_at += more ? 1 : 0;
    BPPSA_UNROLL
    for (int q = 0; q < HP / Q; ++q) {
      next[q] = m_at[q];
    }
    by = *by_at;
    top = *top_at;
    __syncwarp(); /* all reads are in flight before the first is used */
    const int32_t size = max(__reduce_max_sync(0xffffffffu, scan_exponent(own)), (int32_t)CARRY_LEAST); /* 0 has the least */
    BPPSA_UNROLL
    for (int r = 0; r < HP; ++r) {
      part[r % 4] += rows[r / Q].v[r % Q] * m[r / Q].v[r % Q];
    }
    const real sum = (part[0] + part[1]) + (part[2] + part[3]);
    *sum_at = sum;
    *after_at = after;
    g = {sum * scan_normal_power<real>(-size), after + size};
    in += HP;
    sum_at += HP;
    ++after_at;
    BPPSA_UNROLL
    for (int q = 0; q < HP / Q; ++q) {
      m[q] = next[q];
    }
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
      real none = 0;
      for (int64_t t = c.steps - bppsa_cut(c.steps, s.chunks, p); t > end; --t) {
        v = step_back<real, cell>(c, t, b, lane, v, &none, shared);
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

/* Writes the result of a link of the last tile, and checks whether its product was useless. */
template <typename real, int HP>
__device__ __forceinline__ bool carry_check(const chunk_arrays<real> &s, int64_t batch, int64_t b, int hidden, int64_t p,
                                            int link, int buffer, int buffer3, int lane, const carry_tile<real, HP> *from) {
  const bool unit = lane < hidden;
  const int32_t e = from->after[buffer][link];
  const int j = unit ? lane : 0;
  const real sum = from->sum[buffer][link][j], result = scan_shifted(sum, e);
  if (unit) {
    s.carried[((p + 1) * batch + b) * hidden + lane] = result;
  }
  return carry_useless(from->scaled[buffer][link][j], from->norm[buffer3][link][j],
                       scan_shifted(from->offset[buffer3][link][j], -e), sum, result, unit);
}

/* carried[p + 1] = carried[p] · product of chunk p + offset, one block for each sample. One warp follows the chain without
 * checks; the other warps check its results, a link each. If a product was useless, which is rare, the chain is followed again with
 * checks. */
template <typename real, template <typename> class cell, int HP>
__global__ void __launch_bounds__(CARRY_THREADS<real>, 1) bppsa_recurrent_carry(layer_arrays<real> c, chunk_arrays<real> s) {
  typedef carry_tile<real, HP> tile;
  BPPSA_SHARED(tile, memory);
  const int lane = (int)threadIdx.x % WARP_LANES, hidden = (int)c.hidden;
  /* a number that the compiler knows to be the same in all lanes of a warp */
  const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / WARP_LANES, 0);
  const int64_t b = blockIdx.x, links = s.links, tiles = (links + tile::LINKS - 1) / tile::LINKS;
  const bool unit = lane < hidden;
  const real v = unit ? c.last[b * hidden + lane] : 0;
  carry_value<real> g = carry_value_of(v, unit);
  tile *shared = launch_held(memory);
  bool useless = false;
  carry_load<real, HP> load;
  load.fetch(s, c.batch, b, hidden, 0, (int)min(links, (int64_t)tile::LINKS), warp, tile::HELPERS + 1, lane);
  load.store((int)min(links, (int64_t)tile::LINKS), 0, 0, warp, tile::HELPERS + 1, lane, shared);
  if (warp == 0 && unit) {
    s.carried[b * hidden + lane] = v;
  }
  __syncthreads();
  for (int64_t k = 0; k <= tiles; ++k) {
    const int64_t first = k * tile::LINKS, next = first + tile::LINKS;
    const int here = (int)min(links - first, (int64_t)tile::LINKS), buffer = (int)(k % 2), buffer3 = (int)(k % 3);
    if (warp == 0 && k < tiles) {
      const bool apart = __any_sync(0xffffffffu, lane < here && shared->range[buffer][lane < here ? lane : 0] > CARRY_NEAR) != 0;
      g = s.offsets == NULL && !apart ? carry_follow_near<real, HP>(g, here, buffer, lane, shared)
                                      : carry_follow<real, HP>(g, here, buffer, buffer3, hidden, lane, shared);
    } else if (warp > 0) {
      const int coming = k + 1 < tiles ? (int)min(links - next, (int64_t)tile::LINKS) : 0, helper = warp - 1;
      load.fetch(s, c.batch, b, hidden, next, coming, helper, tile::HELPERS, lane);
      if (k > 0 && helper < (k < tiles ? (int)tile::LINKS : (int)(links - first + tile::LINKS))) {
        useless |= carry_check<real, HP>(s, c.batch, b, hidden, first - tile::LINKS + helper, helper, 1 - buffer,
                                         (buffer3 + 2) % 3, lane, shared);
      }
      load.store(coming, 1 - buffer, (buffer3 + 1) % 3, helper, tile::HELPERS, lane, shared);
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
};

/* Reads step i of the ring; with `step` also what only that step needs. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void walk_read(int i, bool step, walk_lane<real, cell, HP, KIND> *l) {
  l->ring[i].unit = cell<real>::load(l->unit);
  l->unit.back();
  if (l->MORE && l->reads_u && step) {
    l->ring[i].u = *l->u_at;
    if constexpr (cell<real>::PAIR) {
      l->ring[i].u_c = l->u_at[l->c_place];
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

/* Computes g_{t-1} from g_t, and adds to the sums. own: K · HP reals of shared memory. last: g_{t-1} is g_0. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__device__ __forceinline__ void walk_back(const layer_arrays<real> &c, const walk_step<real, cell> &now, real before, real x,
                                          bool unit, int lane, bool last, real *own, walk_lane<real, cell, HP, KIND> *l) {
  enum { K = cell<real>::MATRICES, Q = quad<real>::SIZE, SUM = KIND != WALK_FREE, SUMS_HP = SUM ? HP : 1 };
  const unit_back<real, cell> made(now.unit, c.relu, l->g, l->g_c);
  real part[4] = {made.own + (l->MORE ? now.u : (real)0), 0, 0, 0};
  l->g_c = cell<real>::PAIR ? made.own_c + (l->MORE ? now.u_c : (real)0) : 0;
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

/* A warp walks through one chunk of one sample, with a unit in each lane; lanes beyond H repeat lane 0. The unit's column of each
 * W_k and the sums of its weight gradients are in registers. Loads are AHEAD steps ahead of their use. shared: 2 · K · HP reals
 * for each warp; with sums at least a part for each warp. */
template <typename real, template <typename> class cell, int HP, walk_kind KIND>
__global__ void __launch_bounds__(CHUNK_THREADS) bppsa_recurrent_walk(layer_arrays<real> c, chunk_arrays<real> s) {
  enum { K = cell<real>::MATRICES, PAIR = cell<real>::PAIR, AHEAD = walk_lane<real, cell, HP, KIND>::AHEAD };
  BPPSA_SHARED(real, shared);
  const int lane = (int)threadIdx.x % WARP_LANES, warps = (int)blockDim.x / WARP_LANES;
  const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / WARP_LANES, 0); /* the compiler sees that all lanes agree */
  const int64_t hidden = c.hidden, item = (int64_t)blockIdx.x * warps + warp, p = item / c.batch, b = item % c.batch;
  const bool works = p < (s.from_zero ? s.links : s.chunks), unit = lane < hidden;
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
