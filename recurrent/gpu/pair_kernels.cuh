/* The products of chunks of a layer whose state is a pair (h, c), H <= 32, and the way of the gradient through them: what
 * chunk_kernels.cuh does in phases 1 and 2 for states h alone. Phase 3 is the same for both.
 *
 * A gradient is a row (g_h, g_c) of 2 HP numbers, and a step is (BPPSA_ELEMENT_PAIR in scan/plan.h)
 *
 *     (g_h, g_c) ← (δ A + g_h B,  e ∘ δ)    δ = g_c + b ∘ g_h
 *     A = Σ_{k < K-1} diag(d_k) W_k    B = diag(d_{K-1}) W_{K-1}
 *
 * A and B are made once a step and item, so that a row takes 2 HP² multiply-adds, half of what the step as one matrix would take.
 */
#ifndef BPPSA_RECURRENT_GPU_PAIR_KERNELS_CUH
#define BPPSA_RECURRENT_GPU_PAIR_KERNELS_CUH

#include "recurrent/gpu/chunk_kernels.cuh"

/* ---- phase 1 ---- */

/* Like transition_shape, but both halves of a row are in shared memory. D_REALS: A, B, b and e of an item, and a gap that moves
 * the next item to other banks. */
template <typename real, template <typename> class cell, int HP, int V> struct pair_shape {
  enum {
    K = cell<real>::MATRICES,
    STATE = 2 * HP,
    GROUPS = (STATE + V - 1) / V,
    ITEMS = WARP_LANES / GROUPS, /* of a warp */
    MINE = (HP + GROUPS - 1) / GROUPS,
    WARPS = CHUNK_THREADS / WARP_LANES,
    W_REALS = K * HP * HP,
    X_REALS = STATE * V * CHUNK_THREADS,
    D_REALS = 2 * HP * HP + 2 * HP + quad<real>::SIZE,
    SHARED = (W_REALS + X_REALS + WARPS * ITEMS * D_REALS) * (int)sizeof(real)
  };
  static_assert(ITEMS > 0, "an item's rows fit into a warp");
};

/* Makes A, B, b and e of a step. A thread of the item makes the rows of its units. */
template <typename real, template <typename> class cell, int HP, int V>
__device__ __forceinline__ void pair_make(const cell<real> *mine, const real *w, bool relu, int group, int hidden, real *to) {
  typedef pair_shape<real, cell, HP, V> shape;
  enum { K = shape::K, Q = quad<real>::SIZE };
  BPPSA_UNROLL
  for (int i = 0; i < shape::MINE; ++i) {
    const int r = group + i * shape::GROUPS;
    real d[K + 1], e, unused;
    mine[i].factors(relu, d, &e, &unused);
    BPPSA_UNROLL
    for (int k = 0; k < K; ++k) {
      d[k] = r < hidden ? d[k] : 0;
    }
    if (r < HP) {
      BPPSA_UNROLL
      for (int q = 0; q < HP / Q; ++q) {
        quad<real> through = {}, own = ((const quad<real> *)(w + ((K - 1) * HP + r) * HP))[q];
        BPPSA_UNROLL
        for (int at = 0; at < (K - 1) * Q; ++at) {
          through.v[at % Q] += d[at / Q] * ((const quad<real> *)(w + (at / Q * HP + r) * HP))[q].v[at % Q];
        }
        BPPSA_UNROLL
        for (int l = 0; l < Q; ++l) {
          own.v[l] *= d[K - 1];
        }
        ((quad<real> *)(to + r * HP))[q] = through;
        ((quad<real> *)(to + (HP + r) * HP))[q] = own;
      }
      to[2 * HP * HP + r] = r < hidden ? d[K] : 0;
      to[2 * HP * HP + HP + r] = r < hidden ? e : 0;
    }
  }
}

/* y = the first half of x times the step, V rows x [2 HP][V][threads]; their second half is replaced by the result's. */
template <typename real, int HP, int V>
__device__ __forceinline__ void pair_multiply(const real *step, real *x, int hidden, real (&y)[V][HP]) {
  enum { Q = quad<real>::SIZE, ROWS = HP == 20 ? 5 : 4 }; /* of x at once: HP is a multiple */
  const real *b = step + 2 * HP * HP, *e = b + HP;
  for (int first = 0; first < hidden; first += ROWS) {
    BPPSA_UNROLL
    for (int r = first; r < first + ROWS; ++r) {
      const quad<real> *through_c = (const quad<real> *)(step + r * HP), *through_h = through_c + HP * HP / Q;
      real in[V], delta[V];
      BPPSA_UNROLL
      for (int v = 0; v < V; ++v) {
        real *of_c = x + ((HP + r) * V + v) * CHUNK_THREADS;
        in[v] = x[(r * V + v) * CHUNK_THREADS];
        delta[v] = *of_c + b[r] * in[v];
        *of_c = e[r] * delta[v];
      }
      BPPSA_UNROLL
      for (int q = 0; q < HP / Q; ++q) {
        const quad<real> part_c = through_c[q], part_h = through_h[q];
        BPPSA_UNROLL
        for (int at = 0; at < Q * V; ++at) {
          y[at % V][q * Q + at / V] += delta[at % V] * part_c.v[at / V] + in[at % V] * part_h.v[at / V];
        }
      }
    }
  }
}

/* Begins with the first link, whose rows are the step's own. row: the thread's first. */
template <typename real, int HP, int V>
__device__ __forceinline__ void pair_begin(const real *step, int row, real *x, real (&y)[V][HP]) {
  const real *b = step + 2 * HP * HP, *e = b + HP;
  BPPSA_UNROLL
  for (int v = 0; v < V; ++v) {
    const int place = row + v < 2 * HP ? row + v : 0, r = place % HP; /* rows beyond are not used */
    const bool of_h = place < HP;
    const real by = of_h ? b[r] : 1;
    BPPSA_UNROLL
    for (int j = 0; j < HP; ++j) {
      y[v][j] = by * step[r * HP + j] + (of_h ? step[(HP + r) * HP + j] : 0);
      x[((HP + j) * V + v) * CHUNK_THREADS] = j == r ? by * e[r] : 0;
    }
  }
}

/* Brings rows back into the window. */
template <typename real, int HP, int V>
__device__ __forceinline__ void pair_rescale(real (&y)[V][HP], real *x, int32_t e[V], real norms[V]) {
  real largest[V] = {};
  BPPSA_UNROLL
  for (int at = 0; at < HP * V; ++at) {
    const real of_c = x[(HP * V + at) * CHUNK_THREADS];
    largest[at % V] = scan_larger(largest[at % V], scan_larger(scan_size(y[at % V][at / V]), scan_size(of_c)));
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
        x[((HP + j) * V + v) * CHUNK_THREADS] *= factor;
      }
    }
  }
}

/* Writes the finished products of a warp's items, as transition_store does. */
template <typename real, template <typename> class cell, int HP, int V>
__device__ __forceinline__ void pair_store(const chunk_arrays<real> &s, int64_t hidden, int64_t items, int64_t item,
                                           const real *w, const int32_t (&e)[V], const real (&norms)[V]) {
  typedef pair_shape<real, cell, HP, V> shape;
  enum { STATE = shape::STATE };
  const int thread = (int)threadIdx.x, lane = thread % WARP_LANES, warp = thread / WARP_LANES;
  const int place = lane / shape::GROUPS, group = lane % shape::GROUPS;
  const bool active = place < shape::ITEMS && item < items;
  BPPSA_UNROLL
  for (int v = 0; v < V; ++v) {
    const int row = group * V + v, unit = row % HP;
    if (active && row < STATE && unit < hidden) {
      const int64_t to = (2 * item + row / HP) * hidden + unit;
      s.exponents[to] = e[v];
      s.norms[to] = norms[v];
    }
  }
  __syncwarp();
  const real *rows = w + shape::W_REALS + warp * WARP_LANES;
  const int64_t first = item - place;                                        /* the first item of the warp */
  for (int at = lane; at < shape::ITEMS * STATE * STATE; at += WARP_LANES) { /* whole rows */
    const int column = at % STATE, row = at / STATE % STATE, its = at / (STATE * STATE);
    if (first + its < items) {
      s.products[first * STATE * STATE + at] = rows[(column * V + row % V) * CHUNK_THREADS + its * shape::GROUPS + row / V];
    }
  }
}

/* s.products: [links][b][2 HP][2 HP], row r the image of basis vector r; exponents and norms: [links][b][2 H]. shared: SHARED. */
template <typename real, template <typename> class cell, int HP, int V>
__global__ void __launch_bounds__(CHUNK_THREADS) bppsa_recurrent_pair_transition(layer_arrays<real> c, chunk_arrays<real> s) {
  typedef pair_shape<real, cell, HP, V> shape;
  BPPSA_SHARED(real, memory);
  if (chunks_rest(s)) {
    return;
  }
  const transition_item<real, HP, shape> own(c, s, memory);
  const int64_t hidden = c.hidden;
  const int group = own.group, count = own.count;
  real *w = own.w, *x = own.x, *step = own.made; /* x: [2 HP][V][threads] */
  int32_t e[V];
  real norms[V];
  cell<real> mine[shape::MINE] = {};
  unit_place<real, cell> at(c, own.past(c), group);
  transition_clear(count, shape::STATE * V, x, e, norms);
  BPPSA_UNROLL
  for (int i = 0; i < shape::MINE; ++i) {
    mine[i] = cell<real>::load(at, group + i * shape::GROUPS < hidden ? i * shape::GROUPS : -group);
  }
  __syncthreads();
  for (int link = 0; link < own.longest; ++link) {
    const bool works = own.active && link < count;
    __syncwarp(); /* the last link's step has been read */
    if (works) {
      pair_make<real, cell, HP, V>(mine, w, c.relu, group, (int)hidden, step);
    }
    __syncwarp();
    if (link + 1 < count) {
      at.back();
    }
    BPPSA_UNROLL
    for (int i = 0; i < shape::MINE; ++i) { /* after the last link in vain: a condition would wait for what it loads */
      mine[i] = cell<real>::load(at, group + i * shape::GROUPS < hidden ? i * shape::GROUPS : -group);
    }
    if (works) {
      real y[V][HP] = {};
      if (link == 0) {
        pair_begin<real>(step, group * V, x, y);
      } else {
        pair_multiply<real>(step, x, (int)hidden, y);
      }
      if (link % SCAN_RESCALE_LINKS == 0 || link + 1 == count) {
        pair_rescale(y, x, e, norms);
      }
      BPPSA_UNROLL
      for (int at = 0; at < HP * V; ++at) {
        x[at * CHUNK_THREADS] = y[at % V][at / V];
      }
    }
  }
  pair_store<real, cell, HP, V>(s, hidden, own.items, own.item, w, e, norms);
}

/* ---- phase 2 ---- */

/* The threads of a block that takes one sample through the chain: PARTS for each number of the result. */
template <int HP> struct pair_carry_shape {
  enum { STATE = 2 * HP, PARTS = 4, THREADS = PARTS * STATE, ROWS = STATE / PARTS };
};

/* What a lane of the first warp knows of a link: its two rows. */
template <typename real> struct pair_rows {
  int32_t e[2];
  real norm[2], offset[2];
  __device__ __forceinline__ void fetch(const chunk_arrays<real> &s, int64_t item, int64_t hidden, int lane) {
    BPPSA_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int64_t at = (2 * item + half) * hidden + (lane < hidden ? lane : 0);
      e[half] = s.exponents[at];
      norm[half] = s.norms[at];
      offset[half] = s.offsets != NULL ? s.offsets[at] : 0;
    }
  }
};

/* A lane's units of the gradient: v 2^e; e is the same in all lanes. */
template <typename real> struct pair_value {
  real v[2];
  int32_t e;
};

template <typename real> __device__ inline pair_value<real> pair_value_of(const real g[2], bool unit) {
  const int32_t top = max(carry_top(g[0], 0, unit), carry_top(g[1], 0, unit)), e = top == CARRY_NONE ? 0 : top;
  return {{scan_shifted(g[0], -e), scan_shifted(g[1], -e)}, e};
}

/* Scales the gradient and the offset for a product, as carry_apply. in [2 HP] receives the gradient. Returns the exponent of the
 * result. */
template <typename real, int HP>
__device__ __forceinline__ int32_t pair_scale(const pair_value<real> &g, const pair_rows<real> &rows, bool unit, int lane,
                                              real (&scaled)[2], real (&offset)[2], real *in) {
  int32_t top = max(carry_top(g.v[0], rows.e[0], unit), carry_top(g.v[1], rows.e[1], unit));
  top = max(top, max(carry_top(rows.offset[0], 0, unit), carry_top(rows.offset[1], 0, unit)) - g.e);
  BPPSA_UNROLL
  for (int half = 0; half < 2; ++half) {
    scaled[half] = unit ? g.v[half] * scan_normal_power<real>(rows.e[half] - top) : 0;
    offset[half] = unit ? scan_shifted(rows.offset[half], -g.e - top) : 0;
    if (lane < HP) {
      in[half * HP + lane] = scaled[half];
    }
  }
  return top < CARRY_NONE / 2 ? g.e : g.e + top;
}

/* Takes the gradient through the steps of chunk p, by the first warp. v: the lane's numbers of the gradient in front of the chunk,
 * then behind it. */
template <typename real, template <typename> class cell>
__device__ void pair_redo(const layer_arrays<real> &c, const chunk_arrays<real> &s, int64_t p, int64_t b, int lane, real *shared,
                          real v[2]) {
  const int64_t end = c.steps - bppsa_cut(c.steps, s.chunks, p + 1);
  for (int64_t t = c.steps - bppsa_cut(c.steps, s.chunks, p); t > end; --t) {
    v[0] = step_back<real, cell>(c, t, b, lane, v[0], &v[1], shared);
  }
  if (lane == 0) {
    (void)atomicAdd(s.redone, 1ull);
  }
}

/* Adds up the parts of a link's result, by the first warp. g receives the sums and their exponent e, result the numbers that they
 * stand for. Returns whether the product was useless. */
template <typename real, int HP>
__device__ __forceinline__ bool pair_sum(const real *sums, const pair_rows<real> &rows, const real (&scaled)[2],
                                         const real (&offset)[2], int32_t e, bool unit, int lane, pair_value<real> *g,
                                         real (&result)[2]) {
  typedef pair_carry_shape<HP> shape;
  real size = 0;
  BPPSA_UNROLL
  for (int half = 0; half < 2; ++half) {
    real all = offset[half];
    BPPSA_UNROLL
    for (int q = 0; q < shape::PARTS; ++q) {
      all += sums[q * shape::STATE + half * HP + (lane < HP ? lane : 0)];
    }
    result[half] = unit ? scan_shifted(all, e) : 0;
    g->v[half] = unit ? all : 0;
    const real left =
        (real)SCAN_CANCELLATION * scan_size(all) - (scan_size(scaled[half]) * rows.norm[half] + scan_size(offset[half]));
    size += !unit ? (real)0 : isfinite(result[half]) ? left : -(real)INFINITY;
  }
  g->e = e;
  return !(warp_sum(size) >= 0); /* true for NaN */
}

/* Behind a chunk that a reset cuts the gradient is the chunk's offset. */
template <typename real>
__device__ __forceinline__ void pair_cut(const pair_rows<real> &now, bool unit, real *v, pair_value<real> *g) {
  v[0] = unit ? now.offset[0] : 0;
  v[1] = unit ? now.offset[1] : 0;
  *g = pair_value_of(v, unit);
}

/* carried[p + 1] = carried[p] · product of chunk p + offset, one block for each sample. The first warp scales the gradient, all
 * warps multiply; then the first warp sums up, checks whether the product was useless, and redoes the chunk's steps if it was. */
template <typename real, template <typename> class cell, int HP>
__global__ void __launch_bounds__(pair_carry_shape<HP>::THREADS)
    bppsa_recurrent_pair_carry(layer_arrays<real> c, chunk_arrays<real> s) {
  typedef pair_carry_shape<HP> shape;
  enum { STATE = shape::STATE, PARTS = shape::PARTS, ROWS = shape::ROWS };
  BPPSA_SHARED(real, memory); /* in [STATE]; sums [PARTS][STATE]; for step_back [K][HP] */
  if (chunks_rest(s) || !chunks_want(s, blockIdx.x)) {
    return;
  }
  real *in = launch_held(memory), *sums = launch_held(memory + STATE);
  const int lane = (int)threadIdx.x % WARP_LANES, j = (int)threadIdx.x % STATE, part = (int)threadIdx.x / STATE;
  const bool leads = (int)threadIdx.x < WARP_LANES, unit = lane < c.hidden;
  const int64_t b = blockIdx.x, hidden = c.hidden;
  const real *from = s.products + (b * STATE + part * ROWS) * STATE + j;
  real next[ROWS], v[2] = {};
  pair_rows<real> coming = {};
  pair_value<real> g = {};
  BPPSA_UNROLL
  for (int r = 0; r < ROWS; ++r) {
    next[r] = from[r * STATE];
  }
  if (leads) {
    coming.fetch(s, b, hidden, lane);
    BPPSA_UNROLL
    for (int half = 0; half < 2; ++half) {
      v[half] = unit ? c.last[(2 * b + half) * hidden + lane] : 0;
      if (unit) {
        s.carried[(2 * b + half) * hidden + lane] = v[half];
      }
    }
    g = pair_value_of(v, unit);
  }
  for (int64_t p = 0; p < s.links; ++p) {
    const int64_t item = p * c.batch + b;
    const bool more = p + 1 < s.links;
    const pair_rows<real> now = coming;
    real scaled[2], offset[2], sum = 0;
    int32_t e = 0;
    if (leads) {
      e = pair_scale<real, HP>(g, now, unit, lane, scaled, offset, in);
      if (more) {
        coming.fetch(s, item + c.batch, hidden, lane);
      }
    }
    __syncthreads();
    from += more ? c.batch * STATE * STATE : 0; /* the last link reads its own numbers again */
    BPPSA_UNROLL
    for (int r = 0; r < ROWS; ++r) {
      sum += in[part * ROWS + r] * next[r];
      next[r] = from[r * STATE];
    }
    sums[part * STATE + j] = sum;
    __syncthreads();
    if (leads) {
      real result[2];
      if (c.resets.words != nullptr && now.norm[0] == CUT_NORM) { /* not what the product of a gradient that is NaN with 0 is */
        pair_cut(now, unit, v, &g);
      } else if (pair_sum<real, HP>(sums, now, scaled, offset, e, unit, lane, &g, result)) {
        pair_redo<real, cell>(c, s, p, b, lane, sums + PARTS * STATE, v);
        g = pair_value_of(v, unit);
      } else {
        v[0] = result[0];
        v[1] = result[1];
      }
      BPPSA_UNROLL
      for (int half = 0; unit && half < 2; ++half) {
        s.carried[(2 * (item + c.batch) + half) * hidden + lane] = v[half];
      }
    }
  }
}

#endif
