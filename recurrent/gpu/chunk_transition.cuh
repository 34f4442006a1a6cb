/* Phase 1 of the fused backward pass (recurrent/gpu/chunk_kernels.cuh): products of chunks, that is the sequential backward pass of
 * the rows of the identity. The product of a chunk in which a sample begins anew is 0; its norms are CUT_NORM, which says so. */
#ifndef BPPSA_RECURRENT_GPU_CHUNK_TRANSITION_CUH
#define BPPSA_RECURRENT_GPU_CHUNK_TRANSITION_CUH

#include <limits.h>

#include "core/base/cut.h"
#include "core/compute/launch.cuh"
#include "recurrent/gpu/cell_cuda.cuh"
#include "recurrent/gpu/lanes.cuh"
#include "scan/scan_numbers.cuh"

enum { CUT_NORM = -1 };

/* The links that an item of a warp has: the steps of its chunk, or none if the sample begins anew in one of them. *longest: of all
 * items in the warp. first: the chunk's first step. */
template <typename real>
__device__ __forceinline__ int transition_count(const layer_arrays<real> &c, bool active, int64_t b, int64_t first, int steps,
                                                int *longest) {
  int count = steps;
  if (c.resets.words != nullptr) {
    count = active && c.resets.next(b, first, first + steps) < first + steps ? 0 : steps;
    *longest = __reduce_max_sync(0xffffffffu, active ? count : 0);
  }
  return count;
}

/* Sets what a thread's rows have without links: a product that is cut. x [reals][threads] */
template <typename real, int V>
__device__ __forceinline__ void transition_clear(int count, int reals, real *x, int32_t (&e)[V], real (&norms)[V]) {
  BPPSA_UNROLL
  for (int v = 0; v < V; ++v) {
    e[v] = 0;
    norms[v] = CUT_NORM;
  }
  for (int at = 0; count == 0 && at < reals; ++at) {
    x[at * CHUNK_THREADS] = 0;
  }
}

/* A thread holds V rows of the product of one chunk and sample (an item); GROUPS threads of a warp share an item. The rows are in
 * shared memory, so that the loop over their entries need not be unrolled; sums are in registers. Once in a step an item's threads
 * compute its factors, from what was loaded a step earlier. If the cell has one matrix and no diagonal, all lanes read W's rows at
 * the same time, and scale by the factors what they multiply. Otherwise (MADE) the item's threads also make its Jacobian, H numbers
 * a row for K H multiply-adds, which saves K - 1 of K products with the rows. A thread loads MINE units; those beyond H are memory
 * behind the step's row, which also belongs to the layer, and are not used. Where the array may end there (careful_links) unit 0
 * is loaded in their places. shared: see SHARED. */
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

/* Loads the units of a thread. CAREFUL: in the place of units beyond H it loads unit 0. */
template <bool CAREFUL, typename real, template <typename> class cell, int HP, int V>
__device__ __forceinline__ void transition_load(const unit_place<real, cell> &at, int group, int hidden, cell<real> *mine) {
  typedef transition_shape<real, cell, HP, V> shape;
  BPPSA_UNROLL
  for (int i = 0; i < shape::MINE; ++i) {
    mine[i] = cell<real>::load(at, CAREFUL && group + i * shape::GROUPS >= hidden ? -group : i * shape::GROUPS);
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

/* A thread's item: a chunk of a sample, of which it has some rows. Constructing it also brings W_hh to shared memory, which a
 * barrier makes visible. shape: transition_shape, or pair_shape (pair_kernels.cuh). */
template <typename real, int HP, typename shape> struct transition_item {
  int group, count, longest; /* the thread's number among the item's; its links, and the most of any item in the warp */
  bool active;               /* the item exists */
  int64_t items, item, b, start;
  real *w, *x, *made; /* W_hh [K][HP][HP]; the thread's rows; what is made of a step: D_REALS of the item */

  __device__ __forceinline__ transition_item(const layer_arrays<real> &c, const chunk_arrays<real> &s, real *memory) {
    const int thread = (int)threadIdx.x, lane = thread % WARP_LANES, warp = thread / WARP_LANES, place = lane / shape::GROUPS;
    w = launch_held(memory);
    group = lane % shape::GROUPS;
    x = launch_held(memory + shape::W_REALS + thread);
    made = w + shape::W_REALS + shape::X_REALS + (warp * shape::ITEMS + place) * shape::D_REALS;
    items = s.links * c.batch;
    item = ((int64_t)blockIdx.x * shape::WARPS + warp) * shape::ITEMS + place;
    active = place < shape::ITEMS && item < items;
    b = active ? item % c.batch : 0;
    const int64_t chunk = active ? item / c.batch : 0, end = c.steps - bppsa_cut(c.steps, s.chunks, chunk + 1);
    start = c.steps - bppsa_cut(c.steps, s.chunks, chunk);
    longest = (int)bppsa_cut(c.steps, s.chunks, 1); /* chunks differ by one step at most */
    count = transition_count(c, active, b, end, (int)(start - end), &longest);
    for (int at = thread; at < shape::W_REALS; at += CHUNK_THREADS) {
      const int64_t j = at % HP, r = at / HP % HP, k = at / (HP * HP);
      w[at] = r < c.hidden && j < c.hidden ? c.w_hh[(k * c.hidden + r) * c.hidden + j] : 0;
    }
  }
  /* Where h in front of the item's last step is, of the thread's first unit. */
  __device__ __forceinline__ int64_t past(const layer_arrays<real> &c) const {
    return ((start - 1) * c.batch + b) * c.hidden + group;
  }
  /* Units beyond H are less than 2 HP numbers behind the row of their step. In how many links, from the first one on, may that be
   * behind the array? A link loads the step in front of its own, and behind the last link the last step in vain. */
  __device__ __forceinline__ int careful_links(const layer_arrays<real> &c) const {
    const int64_t free = c.steps - 2 * HP,
                  last = start - (count > 1 ? count : 1); /* rows in front of `free` have rows behind them */
    return last >= free ? INT_MAX : start - 1 > free ? (int)(start - 1 - free) : 0;
  }
};

template <typename real, template <typename> class cell, int HP, int V>
__global__ void __launch_bounds__(CHUNK_THREADS) bppsa_recurrent_transition(layer_arrays<real> c, chunk_arrays<real> s) {
  typedef transition_shape<real, cell, HP, V> shape;
  BPPSA_SHARED(real, memory);
  if (chunks_rest(s)) {
    return;
  }
  const transition_item<real, HP, shape> own(c, s, memory);
  const int64_t hidden = c.hidden;
  const int group = own.group, count = own.count;
  real *w = own.w, *x = own.x; /* x: [HP][V][threads] */
  int32_t e[V];
  real norms[V];
  cell<real> mine[shape::MINE] = {};
  unit_place<real, cell> at(c, own.past(c), group);
  transition_clear(count, HP * V, x, e, norms);
  transition_load<true, real, cell, HP, V>(at, group, (int)hidden, mine);
  const int careful = own.careful_links(c);
  __syncthreads();
  for (int link = 0; link < own.longest; ++link) {
    const bool works = own.active && link < count;
    real *d = own.made + (shape::MADE ? 0 : link % 2 * HP);
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
    if (link < careful) { /* after the last link in vain: a condition would wait for what it loads */
      transition_load<true, real, cell, HP, V>(at, group, (int)hidden, mine);
    } else {
      transition_load<false, real, cell, HP, V>(at, group, (int)hidden, mine);
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
  transition_store<real, cell, HP, V>(s, hidden, own.items, own.item, w, e, norms);
}

#endif
