/* Phase 2 of the fused backward pass (recurrent/gpu/chunk_kernels.cuh): the gradient goes from chunk to chunk through their
 * products. */
#ifndef BPPSA_RECURRENT_GPU_CHUNK_CARRY_CUH
#define BPPSA_RECURRENT_GPU_CHUNK_CARRY_CUH

#include "core/base/cut.h"
#include "core/compute/launch.cuh"
#include "recurrent/gpu/cell_cuda.cuh"
#include "recurrent/gpu/chunk_transition.cuh"
#include "recurrent/gpu/lanes.cuh"
#include "scan/scan_numbers.cuh"

/* CARRY_NEAR: if the exponents of a product's rows differ by no more than this, they are taken off before the gradient is known. */
template <typename real> constexpr int CARRY_THREADS = sizeof(real) == 4 ? 512 : 256;
enum { CARRY_NONE = -(1 << 30), CARRY_NEAR = 24, CARRY_LEAST = -64 }; /* exponents */
enum { CARRY_CUT = -1 };                                              /* the range of a product that a reset cuts */

/* Takes one step from g_t to g_{t-1}, a unit in each lane, slowly: for chunks that are redone. *g_c: likewise for c of a pair.
 * shared: [K][H] reals. No sample begins anew in these steps: the product of a chunk that has a reset is not applied. */
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
    const bool cut = __any_sync(0xffffffffu, norm == CUT_NORM), some = !cut && norm != 0; /* NaN too */
    const int32_t top = __reduce_max_sync(0xffffffffu, some ? e : (int32_t)CARRY_NONE),
                  low = -__reduce_max_sync(0xffffffffu, some ? -e : (int32_t)CARRY_NONE);
    if (lane < HP) {
      to->norm[buffer3][warp][lane] = cut ? 0 : norm;
      to->offset[buffer3][warp][lane] = offset;
      to->e[buffer][warp][lane] = e;
      to->by[buffer][warp][lane] = some ? scan_normal_power<real>(e - top) : 0;
    }
    to->top[buffer][warp] = top == CARRY_NONE ? 0 : top;
    to->range[buffer][warp] = cut ? (int)CARRY_CUT : top == CARRY_NONE ? 0 : top - low;
  }
};

/* Follows the chain through links first .. links - 1 of one tile, whose offsets are 0 if nothing is injected. */
template <typename real, int HP>
__device__ __forceinline__ carry_value<real> carry_follow(carry_value<real> g, int first, int links, int buffer, int buffer3,
                                                          int hidden, int lane, carry_tile<real, HP> *tile) {
  typedef carry_tile<real, HP> type;
  const int j = lane < HP ? lane : 0; /* the other lanes read the same */
  const quad<real> *m = launch_held(tile->m[buffer][first] + j * type::COLUMN);
  const int32_t *e = launch_held(&tile->e[buffer][first][j]);
  real *in = launch_held(tile->scaled[buffer][first]), *sum = launch_held(&tile->sum[buffer][first][j]);
  int32_t *after = launch_held(tile->after[buffer] + first), now = *e;
  BPPSA_UNROLL_BY(2)
  for (int link = first; link < links; ++link) {
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
__device__ __forceinline__ carry_value<real> carry_follow_near(carry_value<real> g, int first, int links, int buffer, int lane,
                                                               carry_tile<real, HP> *tile) {
  enum { Q = quad<real>::SIZE, PRODUCT = HP * carry_tile<real, HP>::COLUMN };
  const int j = lane < HP ? lane : 0; /* the other lanes compute the same as lane 0 */
  const quad<real> *m_at = launch_held(tile->m[buffer][first] + j * carry_tile<real, HP>::COLUMN);
  const real *by_at = launch_held(&tile->by[buffer][first][j]);
  const int32_t *top_at = launch_held(tile->top[buffer] + first);
  real *in = launch_held(tile->scaled[buffer][first]), *sum_at = launch_held(&tile->sum[buffer][first][j]), by = *by_at;
  int32_t *after_at = launch_held(tile->after[buffer] + first), top = *top_at;
  quad<real> m[HP / Q], rows[HP / Q];
  BPPSA_UNROLL
  for (int q = 0; q < HP / Q; ++q) {
    m[q] = m_at[q];
  }
  BPPSA_UNROLL_BY(2)
  for (int link = first; link < links; ++link) {
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

/* The gradient behind a link that a reset cuts is what has been injected since the last reset in it: its offset. */
template <typename real, int HP>
__device__ __forceinline__ carry_value<real> carry_begin(int link, int buffer, int buffer3, int hidden, int lane,
                                                         carry_tile<real, HP> *tile) {
  const int j = lane < HP ? lane : 0; /* the other lanes compute the same as lane 0 */
  const carry_value<real> g = carry_value_of(tile->offset[buffer3][link][j], lane < hidden);
  if (lane < HP) {
    tile->scaled[buffer][link][lane] = 0;
    tile->sum[buffer][link][lane] = g.v;
  }
  tile->after[buffer][link] = g.e;
  return g;
}

/* Follows the chain through one tile of `links` links. */
template <typename real, int HP>
__device__ __forceinline__ carry_value<real> carry_through_tile(const layer_arrays<real> &c, carry_value<real> g, bool injected,
                                                                int links, int buffer, int buffer3, int lane,
                                                                carry_tile<real, HP> *tile) {
  const int hidden = (int)c.hidden, range = lane < links ? tile->range[buffer][lane] : 0;
  const bool apart = injected || __any_sync(0xffffffffu, range > CARRY_NEAR) != 0;
  const unsigned cuts = c.resets.words == nullptr ? 0 : __ballot_sync(0xffffffffu, range == CARRY_CUT);
  for (int link = 0; link < links;) {
    const int end = cuts >> link == 0 ? links : link + __ffs((int)(cuts >> link)) - 1;
    if (link < end) {
      g = apart ? carry_follow<real, HP>(g, link, end, buffer, buffer3, hidden, lane, tile)
                : carry_follow_near<real, HP>(g, link, end, buffer, lane, tile);
    }
    if (end < links) {
      g = carry_begin<real, HP>(end, buffer, buffer3, hidden, lane, tile);
    }
    link = end + 1;
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
    if (s.norms[at] == CUT_NORM) {
      v = offset;
      g = carry_value_of(v, lane < hidden);
    } else if (!carry_useless(scaled, s.norms[at], scan_shifted(offset, -next.e), next.v, result, lane < hidden)) {
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
      g = carry_through_tile<real, HP>(c, g, s.offsets != NULL, here, buffer, buffer3, lane, shared);
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

#endif
