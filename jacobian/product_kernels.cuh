/* Numeric passes of planned products on a GPU: one launch for a pass; `slots` takes one for each class of rows, `conv` one more for
 * packing. Passes that are queued together share their launches. What a kernel's comment says of its blocks holds for the blocks of
 * one item (core/compute/launch_group.cuh), whose units are samples.
 *
 * Every sum runs in one fixed order. Products are rounded before they are added where the CPU rounds them too (slots, diagonal),
 * so those kinds have the CPU's bits, except for subnormal numbers, which the CPU takes for 0. Padding of a tile cannot turn
 * an infinity into NaN: sums beyond the matrices' edges are thrown away, and beyond the depth both factors are 0.
 */
#ifndef BPPSA_JACOBIAN_PRODUCT_KERNELS_CUH
#define BPPSA_JACOBIAN_PRODUCT_KERNELS_CUH

#include "core/compute/launch_group.cuh"
#include "jacobian/product_internal.h"

/* Values of samples: sample s begins at data + s * stride. */
template <typename real> struct product_values {
  const real *data;
  int64_t stride;
};

__device__ inline float product_rounded(float a, float b) {
  return __fmul_rn(a, b);
}
__device__ inline double product_rounded(double a, double b) {
  return __dmul_rn(a, b);
}

/* ---- identity, diagonal: blocks (entries, or rows; samples) ---- */

template <typename real> struct product_copies {
  int64_t count;
  product_values<real> from;
  real *to;
};

template <typename real, int MOST>
__global__ void bppsa_product_copy(BPPSA_GRID_CONSTANT(launch_group<product_copies<real>, MOST>) g) {
  const launch_place at = launch_find(g);
  const product_copies<real> &o = g.items[at.item];
  const int64_t i = (int64_t)at.x * blockDim.x + threadIdx.x, s = at.unit;
  if (i < o.count) {
    o.to[s * o.count + i] = o.from.data[s * o.from.stride + i];
  }
}

template <typename real> struct product_columns {
  int64_t count;
  const int32_t *columns;
  product_values<real> a, b;
  real *c;
};

/* c_ij = a_ij b_jj, one thread for each entry */
template <typename real, int MOST>
__global__ void bppsa_product_scale_columns(BPPSA_GRID_CONSTANT(launch_group<product_columns<real>, MOST>) g) {
  const launch_place at = launch_find(g);
  const product_columns<real> &o = g.items[at.item];
  const int64_t i = (int64_t)at.x * blockDim.x + threadIdx.x, s = at.unit;
  if (i < o.count) {
    o.c[s * o.count + i] = product_rounded(o.a.data[s * o.a.stride + i], o.b.data[s * o.b.stride + o.columns[i]]);
  }
}

template <typename real> struct product_rows {
  int64_t rows, nnz;
  const int64_t *c_ptr;
  const product_scale *scales;
  product_values<real> a, b;
  real *c;
  int32_t lanes; /* threads for each row, a power of two */
};

/* C[i, :] = a_i B[k, :] */
template <typename real, int MOST>
__global__ void bppsa_product_scale_rows(BPPSA_GRID_CONSTANT(launch_group<product_rows<real>, MOST>) g) {
  const launch_place at = launch_find(g);
  const product_rows<real> &o = g.items[at.item];
  const int lanes = o.lanes, lane = (int)threadIdx.x % lanes;
  const int64_t r = ((int64_t)at.x * blockDim.x + threadIdx.x) / lanes, s = at.unit;
  if (r >= o.rows || o.c_ptr[r + 1] == o.c_ptr[r]) {
    return;
  }
  const int64_t from = o.c_ptr[r], count = o.c_ptr[r + 1] - from;
  const real factor = o.a.data[s * o.a.stride + o.scales[r].a], *row = o.b.data + s * o.b.stride + o.scales[r].b;
  real *out = o.c + s * o.nnz + from;
  for (int64_t j = lane; j < count; j += lanes) {
    out[j] = product_rounded(factor, row[j]);
  }
}

/* ---- slots ---- */

template <typename real, typename slot_type> struct product_slots {
  const int32_t *order; /* rows of the class */
  const int64_t *a_ptr, *c_ptr;
  const product_link *links;
  const slot_type *slots;
  product_values<real> a, b;
  int64_t samples, nnz;
  int64_t room; /* reals of shared memory for a sample's row */
  real *c;
};

/* A link that one instruction reads. */
struct alignas(16) product_reach {
  int64_t b, pair;
};

/* Reads what a round adds: the values of the entries that a points to, how many pairs each has, and the thread's first pairs of
 * each. left: entries that are left in the row. */
template <typename real, typename slot_type, int AHEAD, int PAIRS, int SAMPLES>
__device__ __forceinline__ void
product_slots_fetch(const product_reach (&link)[AHEAD + 1], const slot_type *slots, const real *const (&a)[SAMPLES],
                    const real *const (&b)[SAMPLES], int left, int me, int threads, real (&factor)[AHEAD][SAMPLES],
                    real (&term)[AHEAD][PAIRS][SAMPLES], int32_t (&slot)[AHEAD][PAIRS], int (&pairs)[AHEAD]) {
  BPPSA_UNROLL
  for (int e = 0; e < AHEAD; ++e) {
    const slot_type *to = launch_kept(slots + link[e].pair);
    const real *terms[SAMPLES];
    pairs[e] = e < left ? (int)(link[e + 1].pair - link[e].pair) : 0;
    BPPSA_UNROLL
    for (int s = 0; s < SAMPLES; ++s) {
      terms[s] = launch_kept(b[s] + link[e].b);
      factor[e][s] = e < left ? a[s][e] : 0;
    }
    BPPSA_UNROLL
    for (int v = 0; v < PAIRS; ++v) { /* a thread that has no pair reads another's */
      const unsigned j = (unsigned)max(min(me + v * threads, pairs[e] - 1), 0);
      slot[e][v] = (int32_t)to[j];
      BPPSA_UNROLL
      for (int s = 0; s < SAMPLES; ++s) {
        term[e][v][s] = terms[s][j];
      }
    }
  }
}

/* Adds a thread's first pairs of an entry to the row's sums. The slots differ: all are read before the first is written. */
template <typename real, int PAIRS, int SAMPLES>
__device__ __forceinline__ void product_slots_add(const real (&factor)[SAMPLES], const real (&term)[PAIRS][SAMPLES],
                                                  const int32_t (&slot)[PAIRS], int pairs, int me, int threads,
                                                  real *const (&sums)[SAMPLES]) {
  real sum[PAIRS][SAMPLES] = {};
  BPPSA_UNROLL
  for (int v = 0; v < PAIRS; ++v) {
    BPPSA_UNROLL
    for (int s = 0; s < SAMPLES; ++s) {
      if (me + v * threads < pairs) {
        sum[v][s] = sums[s][slot[v]];
      }
    }
  }
  BPPSA_UNROLL
  for (int v = 0; v < PAIRS; ++v) {
    BPPSA_UNROLL
    for (int s = 0; s < SAMPLES; ++s) {
      if (me + v * threads < pairs) {
        sums[s][slot[v]] = sum[v][s] + product_rounded(factor[s], term[v][s]);
      }
    }
  }
}

/* c[slot] += a b. A's entries come one after the other as on a CPU; the columns within one row of B differ, so its pairs are
 * added at once. A block computes SAMPLES samples of one row of C, so that a slot is read once for all of them; where fewer
 * samples are left, it computes the last one several times and writes it once.
 *
 * The pairs of an entry wait for memory three times: for its link, for B's row and the slots, and for shared memory. A round takes
 * 4 / SAMPLES entries. Their links were read during the round before; the second reads go to registers before the first pair is
 * added, for each entry the first 2 pairs of a thread. Without SHARED the row is summed in C. blocks (rows of the class, samples /
 * SAMPLES) */
template <typename real, typename slot_type, int SAMPLES, bool SHARED, int MOST>
__global__ void bppsa_product_slots_rows(BPPSA_GRID_CONSTANT(launch_group<product_slots<real, slot_type>, MOST>) g) {
  enum { AHEAD = 4 / SAMPLES, PAIRS = 2 };
  static_assert(2 * AHEAD <= PRODUCT_LINKS_BEHIND, "links are read a round ahead");
  BPPSA_SHARED(real, shared);
  const launch_place at = launch_find(g);
  const product_slots<real, slot_type> &o = g.items[at.item];
  const int64_t row = o.order[at.x], from = o.c_ptr[row], first = o.a_ptr[row], s0 = at.unit * SAMPLES;
  const int width = (int)(o.c_ptr[row + 1] - from), entries = (int)(o.a_ptr[row + 1] - first), threads = (int)blockDim.x,
            me = (int)threadIdx.x, last = o.samples - s0 < SAMPLES ? (int)(o.samples - s0) - 1 : SAMPLES - 1;
  const product_reach *links = launch_kept((const product_reach *)(const void *)o.links + first);
  const slot_type *slots = launch_kept(o.slots);
  const real *a[SAMPLES], *b[SAMPLES];
  real *sums[SAMPLES], *all = SHARED ? launch_held(shared) : o.c + from;
  BPPSA_UNROLL
  for (int s = 0; s < SAMPLES; ++s) {
    const int64_t sample = s0 + (s < last ? s : last);
    a[s] = launch_kept(o.a.data + sample * o.a.stride + first);
    b[s] = launch_kept(o.b.data + sample * o.b.stride);
    sums[s] = SHARED ? all + s * (int)o.room : all + sample * o.nnz;
    BPPSA_UNROLL_BY(1)
    for (int j = me; j < width; j += threads) {
      sums[s][j] = 0;
    }
  }
  product_reach link[AHEAD + 1];
  BPPSA_UNROLL
  for (int e = 0; e <= AHEAD; ++e) {
    link[e] = links[e];
  }
  __syncthreads();
  BPPSA_UNROLL_BY(1)
  for (int left = entries; left > 0; left -= AHEAD) {
    real factor[AHEAD][SAMPLES], term[AHEAD][PAIRS][SAMPLES];
    int32_t slot[AHEAD][PAIRS];
    int pairs[AHEAD];
    product_slots_fetch(link, slots, a, b, left, me, threads, factor, term, slot, pairs);
    links += AHEAD;
    link[0] = link[AHEAD];
    BPPSA_UNROLL
    for (int e = 1; e <= AHEAD; ++e) {
      link[e] = links[e];
    }
    BPPSA_UNROLL
    for (int e = 0; e < AHEAD; ++e) {
      product_slots_add(factor[e], term[e], slot[e], pairs[e], me, threads, sums);
      BPPSA_UNROLL_BY(1)
      for (int j = me + PAIRS * threads; j < pairs[e]; j += threads) {
        const product_reach it = links[e - AHEAD];
        const int32_t to = (int32_t)slots[it.pair + j];
        BPPSA_UNROLL
        for (int s = 0; s < SAMPLES; ++s) {
          sums[s][to] += product_rounded(a[s][e], b[s][it.b + j]);
        }
      }
      __syncthreads();
    }
    BPPSA_UNROLL
    for (int s = 0; s < SAMPLES; ++s) {
      a[s] += AHEAD;
    }
  }
  BPPSA_UNROLL
  for (int s = 0; SHARED && s < SAMPLES; ++s) {
    real *out = o.c + (s0 + s) * o.nnz + from;
    BPPSA_UNROLL_BY(1)
    for (int j = me; s <= last && j < width; j += threads) {
      out[j] = sums[s][j];
    }
  }
}

/* ---- tiles in shared memory ---- */

enum { TILE_DEPTH = 16 };

/* A block has (TILE / SIDE)² threads with SIDE x SIDE sums each. A stage has two areas of [TILE_DEPTH][TILE + SIDE]; a thread
 * reads SIDE neighbours of each at once: 4 + 4 numbers for 16 multiply-adds, and half a warp shares the left ones. */
template <typename real, int SIDE> struct alignas(SIDE * sizeof(real) < 16 ? SIDE * sizeof(real) : 16) product_side {
  real v[SIDE];
};

template <typename real, int TILE, int SIDE> struct product_tile {
  enum {
    ROW = TILE + SIDE,
    THREADS = (TILE / SIDE) * (TILE / SIDE),
    AREA = TILE_DEPTH * ROW,
    EACH = TILE * TILE_DEPTH / THREADS, /* numbers of an area that a thread loads */
    DEEP = THREADS / TILE,              /* distance of these, where neighbours lie along a tile's side; */
    DOWN = THREADS / TILE_DEPTH         /* where they lie along its depth */
  };
  static_assert(THREADS % TILE == 0 && THREADS % TILE_DEPTH == 0 && EACH * THREADS == TILE * TILE_DEPTH, "whole areas");

  __device__ static void add(const real *left, const real *right, real (&sum)[SIDE][SIDE]) {
    const int i = (int)threadIdx.x / (TILE / SIDE) * SIDE, j = (int)threadIdx.x % (TILE / SIDE) * SIDE;
    BPPSA_UNROLL
    for (int k = 0; k < TILE_DEPTH; ++k) {
      const product_side<real, SIDE> a = *reinterpret_cast<const product_side<real, SIDE> *>(left + k * ROW + i);
      const product_side<real, SIDE> b = *reinterpret_cast<const product_side<real, SIDE> *>(right + k * ROW + j);
      BPPSA_UNROLL
      for (int s = 0; s < SIDE * SIDE; ++s) {
        sum[s / SIDE][s % SIDE] += a.v[s / SIDE] * b.v[s % SIDE];
      }
    }
  }
};

/* ---- dense: blocks (tiles of all bands, samples) ---- */

template <typename real> struct product_bands {
  const product_band *bands;
  const int64_t *tile_ptr;
  int64_t count, nnz;
  product_values<real> a, b;
  real *c;
};

template <typename real, int TILE, int SIDE, int MOST>
__global__ void bppsa_product_bands(BPPSA_GRID_CONSTANT(launch_group<product_bands<real>, MOST>) g) {
  typedef product_tile<real, TILE, SIDE> tile;
  BPPSA_SHARED(real, left);
  real *right = left + tile::AREA;
  const launch_place here = launch_find(g);
  const launch_item<product_bands<real>, MOST> o = g.items[here.item];
  int64_t low = 0, high = o.count - 1;
  while (low < high) { /* the last band that begins at this tile or before it */
    const int64_t middle = (low + high + 1) / 2;
    if (o.tile_ptr[middle] <= (int64_t)here.x) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const product_band band = o.bands[low];
  const int64_t number = (int64_t)here.x - o.tile_ptr[low], across = (band.n + TILE - 1) / TILE, s = here.unit;
  const int64_t i0 = number / across * TILE, j0 = number % across * TILE;
  const real *a = o.a.data + s * o.a.stride + band.a, *b = o.b.data + s * o.b.stride + band.b;
  real *c = o.c + s * o.nnz + band.c;
  const int me = (int)threadIdx.x, k = (int)band.k, ak = me % TILE_DEPTH, ai = me / TILE_DEPTH, bk = me / TILE, bj = me % TILE;
  const int rows = (int)(band.rows - i0) - ai; /* left from the thread's first one on */
  const bool column = j0 + bj < band.n;
  const int64_t a_apart = tile::DOWN * band.k, b_apart = tile::DEEP * band.n;
  const real *from_a = launch_kept(a + (i0 + ai) * band.k + ak), *from_b = launch_kept(b + bk * band.n + j0 + bj);
  real sum[SIDE][SIDE] = {}, x[tile::EACH], y[tile::EACH];
  /* Reads the next stage into registers while the threads add the last one: `depth` is what is left. */
  const auto fetch = [&](int depth) {
    BPPSA_UNROLL
    for (int q = 0; q < tile::EACH; ++q) {
      x[q] = q * tile::DOWN < rows && ak < depth ? from_a[q * a_apart] : (real)0;
      y[q] = column && bk + q * tile::DEEP < depth ? from_b[q * b_apart] : (real)0;
    }
    from_a += TILE_DEPTH;
    from_b += TILE_DEPTH * band.n;
  };
  fetch(k);
  BPPSA_UNROLL_BY(1)
  for (int depth = k; depth > 0; depth -= TILE_DEPTH) {
    BPPSA_UNROLL
    for (int q = 0; q < tile::EACH; ++q) {
      left[ak * tile::ROW + ai + q * tile::DOWN] = x[q];
      right[(bk + q * tile::DEEP) * tile::ROW + bj] = y[q];
    }
    __syncthreads();
    fetch(depth - TILE_DEPTH);
    tile::add(left, right, sum);
    __syncthreads();
  }
  const int64_t i = i0 + me / (TILE / SIDE) * SIDE, j = j0 + me % (TILE / SIDE) * SIDE;
  BPPSA_UNROLL
  for (int q = 0; q < SIDE * SIDE; ++q) {
    if (i + q / SIDE < band.rows && j + q % SIDE < band.n) {
      c[(i + q / SIDE) * band.n + j + q % SIDE] = sum[q / SIDE][q % SIDE];
    }
  }
}

/* ---- channel structure ---- */

enum { PACK_TILE = 32, PACK_THREADS = 256 };

template <typename real> struct product_packing {
  const int64_t *s_ptr;
  int64_t s_nnz, s_rows;
  int64_t groups, rows, columns; /* number of groups; channels of a group */
  int64_t row_tiles;
  product_values<real> from;
  real *to;
  int64_t to_stride;
};

/* Packs A's rows of position x and a group from [r][m][e] to [e][m][r]: tiles of 32 rows and 32 values are transposed in shared
 * memory. A warp reads a row of the tile and writes a value of 32 rows, EACH times, and all reads are under way before the first is
 * kept. Positions, groups and a row's values are numbered with 32 bits (check_blocks in product_gpu.c).
 * blocks (x, group, tile of values, tile of rows; samples) */
template <typename real, int MOST>
__global__ void bppsa_product_pack_left(BPPSA_GRID_CONSTANT(launch_group<product_packing<real>, MOST>) g) {
  enum { ROW = PACK_TILE + 1, APART = PACK_THREADS / PACK_TILE, EACH = PACK_TILE / APART };
  BPPSA_SHARED(real, held); /* [32][ROW] */
  const launch_place here = launch_find(g);
  const product_packing<real> &o = g.items[here.item];
  const uint32_t tiles = (uint32_t)o.row_tiles, positions = (uint32_t)o.s_rows, groups = (uint32_t)o.groups;
  const uint32_t block = here.x / tiles, x = block % positions, group = block / positions % groups,
                 q0 = block / positions / groups * PACK_TILE;
  const int64_t start = o.s_ptr[x], rows = o.rows, columns = o.columns, r0 = (int64_t)(here.x % tiles) * PACK_TILE, s = here.unit;
  const uint32_t taps = (uint32_t)(o.s_ptr[x + 1] - start), values = (uint32_t)columns * taps;
  if (q0 >= values) {
    return; /* the whole block leaves: this position has fewer taps than others */
  }
  const int lane = (int)threadIdx.x % PACK_TILE, first = (int)threadIdx.x / PACK_TILE;
  const int wide = (int)min(values - q0, (uint32_t)PACK_TILE), high = rows - r0 < PACK_TILE ? (int)(rows - r0) : (int)PACK_TILE;
  const int64_t apart = columns * o.s_nnz;
  const real *in = launch_kept(o.from.data + s * o.from.stride + columns * (group * rows * o.s_nnz + start) +
                               (r0 + first) * apart + q0 + lane);
  real kept[EACH];
  BPPSA_UNROLL
  for (int n = 0; n < EACH; ++n) {
    if (first + n * APART < high && lane < wide) {
      kept[n] = in[n * APART * apart];
    }
  }
  BPPSA_UNROLL
  for (int n = 0; n < EACH; ++n) {
    if (first + n * APART < high && lane < wide) {
      held[(first + n * APART) * ROW + lane] = kept[n];
    }
  }
  __syncthreads();
  real *out = launch_kept(o.to + s * o.to_stride + (int64_t)group * columns * rows + r0 + lane);
  const uint32_t down = APART / taps, on = APART % taps; /* value q + APART is that of mid channel m + down and entry e + on */
  uint32_t m = (q0 + (uint32_t)first) / taps, e = (q0 + (uint32_t)first) % taps;
  const int64_t pitch = groups * columns;
  BPPSA_UNROLL
  for (int n = 0; n < EACH; ++n) {
    if (lane < high && first + n * APART < wide) {
      out[((start + e) * pitch + m) * rows] = held[lane * ROW + first + n * APART];
    }
    const bool next = e + on >= taps;
    m += down + next;
    e += on - (next ? taps : 0);
  }
}

/* Packs B's row of mid channel m and position y from [c][f] to [f][m][c]. Reads are `width` apart, but the block reads their
 * sectors whole; a thread has EACH under way at once. A row's values are numbered with 32 bits, as above.
 * blocks (m, y; samples) */
template <typename real, int MOST>
__global__ void bppsa_product_pack_right(BPPSA_GRID_CONSTANT(launch_group<product_packing<real>, MOST>) g) {
  enum { EACH = 4 };
  const launch_place here = launch_find(g);
  const product_packing<real> &o = g.items[here.item];
  const uint32_t positions = (uint32_t)o.s_rows, columns = (uint32_t)o.columns, y = here.x % positions, m = here.x / positions;
  const int64_t start = o.s_ptr[y], s = here.unit;
  const uint32_t width = (uint32_t)(o.s_ptr[y + 1] - start), count = width * columns;
  const real *in = launch_kept(o.from.data + s * o.from.stride + o.columns * (m * o.s_nnz + start));
  const int64_t apart = o.groups * o.rows * o.columns;
  real *out = launch_kept(o.to + s * o.to_stride + start * apart + m * o.columns);
  BPPSA_UNROLL_BY(1)
  for (uint32_t at = threadIdx.x; at < count; at += EACH * blockDim.x) {
    real kept[EACH];
    int64_t to[EACH];
    BPPSA_UNROLL
    for (int n = 0; n < EACH; ++n) {
      const uint32_t i = min(at + (uint32_t)n * blockDim.x, count - 1), f = i / columns, c = i - f * columns;
      kept[n] = in[c * width + f];
      to[n] = f * apart + c;
    }
    BPPSA_UNROLL
    for (int n = 0; n < EACH; ++n) {
      if (at + (uint32_t)n * blockDim.x < count) {
        out[to[n]] = kept[n];
      }
    }
  }
}

/* left [e][m][r] and right [f][m][c]: see product_gpu.c. A part is the mid channels that one group of A and one of B share. */
template <typename real> struct product_conv {
  const real *left, *right;
  int64_t left_stride, right_stride; /* reals from one sample to the next; 0: shared */
  const product_place *places;
  const product_meeting *meetings;
  int64_t place_count, parts, rows, columns, depth;
  int64_t a_groups, b_groups, c_groups, mid; /* mid: channels in all groups */
  int64_t c_columns;                         /* channels in a group of C */
  int64_t s_nnz, nnz;                        /* entries of S_C and of C */
  real *c;
};

/* Writes a thread's sums of the tile that begins at row channel i0 and column channel j0 of a part, for entry q of S_C. */
template <int TILE, typename real, int SIDE>
__device__ __forceinline__ void product_put(const product_conv<real> &o, const product_place &place, int64_t part, int64_t q,
                                            int64_t i0, int64_t j0, int64_t s, int me, const real (&sum)[SIDE][SIDE]) {
  const int64_t finest = o.parts, ga = part * o.a_groups / finest, gb = part * o.b_groups / finest,
                g = part * o.c_groups / finest;
  const int64_t i = i0 + me / (TILE / SIDE) * SIDE, j = j0 + me % (TILE / SIDE) * SIDE, slot = q - place.start;
  BPPSA_UNROLL
  for (int n = 0; n < SIDE * SIDE; ++n) {
    const int64_t r = ga * o.rows + i + n / SIDE, column = gb * o.columns - g * o.c_columns + j + n % SIDE;
    if (i + n / SIDE < o.rows && j + n % SIDE < o.columns) {
      o.c[s * o.nnz + o.c_columns * (r * o.s_nnz + place.start) + column * place.positions + slot] = sum[n / SIDE][n % SIDE];
    }
  }
}

/* C[r, x][c, z] = Σ over meetings and mid channels. A block computes a tile of row and column channels of one part, for one entry
 * of S_C. Blocks of the entries in a row of S_C follow each other, because their numbers are neighbours in C, so that halves of a
 * memory sector meet in the second-level cache. blocks (entry of S_C, tile of columns, tile of rows, part; samples) */
template <typename real, int TILE, int SIDE, int MOST>
__global__ void bppsa_product_meetings(BPPSA_GRID_CONSTANT(launch_group<product_conv<real>, MOST>) group) {
  typedef product_tile<real, TILE, SIDE> tile;
  BPPSA_SHARED(real, left);
  real *right = left + tile::AREA;
  const launch_place here = launch_find(group);
  const product_conv<real> o = group.items[here.item];
  const int64_t across = (o.columns + TILE - 1) / TILE, down = (o.rows + TILE - 1) / TILE, s = here.unit;
  const int64_t q = here.x % o.place_count, block = here.x / o.place_count;
  const int64_t j0 = block % across * TILE, i0 = block / across % down * TILE, part = block / across / down;
  const product_place place = o.places[q];
  const uint32_t each = (uint32_t)o.depth, depth = (uint32_t)(o.places[q + 1].first - place.first) * each;
  const bool whole = each % TILE_DEPTH == 0; /* then a stage lies within one meeting, and nothing is divided */
  const real *a = o.left + s * o.left_stride, *b = o.right + s * o.right_stride;
  const int64_t m0 = part * o.depth;
  const product_meeting *meetings = o.meetings + place.first;
  uint32_t first = 0, within = 0; /* the meeting of the next stage, and the stage's first channel in it */
  product_meeting meeting = whole && depth > 0 ? meetings[0] : product_meeting{}; /* that meeting, read a stage ahead */
  const int me = (int)threadIdx.x, deep = me / TILE, side = me % TILE;
  const bool row = i0 + side < o.rows, column = j0 + side < o.columns;
  const real *from_a = launch_kept(a + i0 + side), *from_b = launch_kept(b + j0 + side);
  real sum[SIDE][SIDE] = {}, x[tile::EACH], y[tile::EACH];
  /* Reads the stage that begins at k0 into registers, while the threads add the one before it. */
  const auto fetch = [&](uint32_t k0) {
    if (whole && k0 < depth) {
      const int64_t m = m0 + within + deep;
      const real *stage_a = launch_kept(from_a + (meeting.left * o.mid + m) * o.rows);
      const real *stage_b = launch_kept(from_b + (meeting.right * o.mid + m) * o.columns);
      BPPSA_UNROLL
      for (int q = 0; q < tile::EACH; ++q) {
        x[q] = row ? stage_a[q * tile::DEEP * o.rows] : (real)0;
        y[q] = column ? stage_b[q * tile::DEEP * o.columns] : (real)0;
      }
      within += TILE_DEPTH;
      first += within == each;
      within = within == each ? 0 : within;
      if (k0 + TILE_DEPTH < depth) {
        meeting = meetings[first];
      }
    } else {
      BPPSA_UNROLL
      for (int q = 0; q < tile::EACH; ++q) {
        const uint32_t k = k0 + (uint32_t)(deep + q * tile::DEEP);
        real p = 0, r = 0;
        if (k < depth) {
          const product_meeting its = meetings[k / each];
          const int64_t m = m0 + k % each;
          p = row ? from_a[(its.left * o.mid + m) * o.rows] : (real)0;
          r = column ? from_b[(its.right * o.mid + m) * o.columns] : (real)0;
        }
        x[q] = p;
        y[q] = r;
      }
    }
  };
  fetch(0);
  BPPSA_UNROLL_BY(1)
  for (uint32_t k0 = 0; k0 < depth; k0 += TILE_DEPTH) {
    BPPSA_UNROLL
    for (int q = 0; q < tile::EACH; ++q) {
      left[(deep + q * tile::DEEP) * tile::ROW + side] = x[q];
      right[(deep + q * tile::DEEP) * tile::ROW + side] = y[q];
    }
    __syncthreads();
    fetch(k0 + TILE_DEPTH);
    tile::add(left, right, sum);
    __syncthreads();
  }
  product_put<TILE>(o, place, part, q, i0, j0, s, me, sum);
}

#endif
