/* CUDA kernels of the scan, for any size: one launch for each record.
 *
 * Everything is in row-vector form as on the CPU (scan_cpu.inc): gᵀ_{t-1} = gᵀ_t J_t + uᵀ_{t-1}. A product is sequential BP
 * of the rows of the identity; if gradients are injected, it has one more row, which starts from 0. So one kernel,
 * bppsa_scan_carry, takes vectors through leaves and serves sequential steps, transitions of chunks and products of leaves;
 * bppsa_scan_join multiplies products; bppsa_scan_apply takes a gradient through a product. Diagonal elements have their own
 * kernels, with one thread for each number.
 *
 * Long products over- and underflow where sequential BP does not; how exponents mend that, and when a product is useless and its
 * steps are redone, is told in scan_products.inc. Sums run in one fixed order: the bits do not change from run to run.
 *
 * (Longer than most: the kernels of matrices share how a vector is taken through leaves and how a useless product is redone.)
 */
#ifndef BPPSA_SCAN_SCAN_KERNELS_CUH
#define BPPSA_SCAN_SCAN_KERNELS_CUH

#include "core/compute/launch.cuh"
#include "scan/held.cuh"
#include "scan/slot.h"

enum {
  SCAN_MATRICES = 8,  /* the most matrices of a recurrent element */
  SCAN_LANE_STEPS = 4 /* consecutive steps of a diagonal chain for one lane */
};

enum scan_element { SCAN_DENSE, SCAN_DIAGONAL, SCAN_RECURRENT, SCAN_PAIR };

/* The plan's sizes, the operands and the executor's memory. Pointers point to GPU memory; NULL: not present. */
template <typename real> struct scan_chain {
  int64_t n, batch, planned, dim;
  scan_element element;
  int32_t matrices;
  bool affine;
  const uint8_t *cuts; /* [n][b], not 0: J_tᵀ of the sample is 0, whatever its factors are; NULL: nowhere */
  const real *jt, *weights[SCAN_MATRICES], *columns[SCAN_MATRICES + 1], *diagonal, *injected;
  real *gradients;
  /* If sizes differ (dense): sizes of g_t, size n + 1; first reals of g_t, of J_{t+1}ᵀ and of slots, for one sample. */
  const int64_t *dims, *gradient_offsets, *jacobian_offsets, *slot_offsets;
  int64_t weight_row;         /* reals from one row of a weight to the next */
  int64_t slot_reals, chunks; /* chunks: of BPPSA_SLOT_CHUNKS */
  bppsa_slot_rule slot_rule;
  /* held products [slot][sample][rows + affine][m]; beside: where a product is made before it replaces its operand */
  real *slots, *beside;
  int32_t *exponents; /* [slot][sample][exponent_rows] */
  real *norms;        /* likewise */
  int64_t exponent_rows;
  unsigned long long *redone;
};

/* A level record (scan/plan.h). */
struct scan_record {
  int64_t first, stride, span, length, longer, wider;
};

__device__ inline int64_t scan_item_first(const scan_record &r, int64_t item) {
  return r.first + item * r.stride + (item < r.longer ? item : r.longer);
}

__device__ inline int64_t scan_item_length(const scan_record &r, int64_t item) {
  return r.length + (item < r.longer);
}

/* The number of elements that a link of a chain covers. */
__device__ inline int64_t scan_span(const scan_record &r, int64_t link) {
  return r.span + (link < r.wider);
}

template <typename real> __device__ inline int64_t scan_dim(const scan_chain<real> &c, int64_t y) {
  return c.dims != NULL ? c.dims[c.n - y + 1] : c.dim;
}

template <typename real> __device__ inline int64_t scan_gradient_at(const scan_chain<real> &c, int64_t y, int64_t b) {
  const int64_t t = c.n - y + 1, offset = c.gradient_offsets != NULL ? c.gradient_offsets[t] : t * c.dim;
  return offset * c.batch + b * scan_dim(c, y);
}

template <typename real> __device__ inline int64_t scan_slot(const scan_chain<real> &c, int64_t first, int64_t last) {
  return bppsa_slot(c.slot_rule, c.n, c.chunks, first, last);
}

/* The first real of the product a[first:last] of sample b in `slots`, and in `beside`. */
template <typename real>
__device__ inline int64_t scan_product_at(const scan_chain<real> &c, int64_t first, int64_t last, int64_t b) {
  const int64_t slot = scan_slot(c, first, last);
  const int64_t offset = c.slot_offsets != NULL ? c.slot_offsets[slot] : slot * c.slot_reals;
  const int64_t room = c.slot_offsets != NULL ? c.slot_offsets[slot + 1] - offset : c.slot_reals;
  return offset * c.planned + b * room;
}

template <typename real>
__device__ inline int64_t scan_exponents_at(const scan_chain<real> &c, int64_t first, int64_t last, int64_t b) {
  return (scan_slot(c, first, last) * c.planned + b) * c.exponent_rows;
}

/* The held product a[first:last] of sample b. */
template <typename real>
__device__ inline scan_held<real> scan_held_at(const scan_chain<real> &c, int64_t first, int64_t last, int64_t b) {
  const int64_t exponents = scan_exponents_at(c, first, last, b);
  return {c.slots + scan_product_at(c, first, last, b),
          c.exponents + exponents,
          c.norms + exponents,
          scan_dim(c, first),
          scan_dim(c, last + 1),
          c.affine};
}

/* ---- elements that are 0 ---- */

/* Is a[i] of sample b 0, whatever its factors are? */
template <typename real> __device__ inline bool scan_is_cut(const scan_chain<real> &c, int64_t i, int64_t b) {
  return c.cuts != NULL && c.cuts[(c.n - i) * c.batch + b] != 0;
}

/* Is some element of a[first:last] 0? Then the product is 0, but for its affine row, and its other rows are not read. All threads
 * take part. */
template <typename real> __device__ inline bool scan_has_cut(const scan_chain<real> &c, int64_t first, int64_t last, int64_t b) {
  bool found = false;
  if (c.cuts == NULL) {
    return false;
  }
  for (int64_t i = first + threadIdx.x; i <= last; i += blockDim.x) {
    found = found || scan_is_cut(c, i, b);
  }
  return __syncthreads_or(found) != 0;
}

/* Returns the place of the last element that is 0 among a[first:last], from 0; -1: none is. All lanes of a warp take part. */
template <typename real>
__device__ inline int32_t scan_last_cut(const scan_chain<real> &c, int64_t first, int64_t last, int64_t b) {
  for (int64_t end = last; c.cuts != NULL && end >= first; end -= warpSize) {
    const int64_t i = end - (int)threadIdx.x % warpSize;
    const unsigned found = __ballot_sync(0xffffffffu, i >= first && scan_is_cut(c, i, b));
    if (found != 0) {
      return (int32_t)(end - first) - (__ffs((int)found) - 1);
    }
  }
  return -1;
}

/* ---- vectors through leaves ---- */

/* The vectors of a block: rows 0 .. rows - 1 of shared memory, `room` reals each. */
template <typename real> struct scan_vectors {
  int rows;
  int64_t room;
  real *in, *scaled, *out; /* [rows][room] */
  const int64_t *samples;  /* [rows]: the sample whose factors a row uses */
};

/* A step of pairs, rows (g_h, g_c), like pair_product in scan_pair.inc: δ = g_c + b ∘ g_h is in the second half of `scaled`. */
template <typename real> __device__ void scan_leaf_pair(const scan_chain<real> &c, int64_t i, const scan_vectors<real> &v) {
  const int64_t h = c.dim / 2, step = c.n - i, threads = blockDim.x;
  for (int64_t at = threadIdx.x; at < v.rows * h; at += threads) {
    const int64_t row = at / h, r = at % h, place = (step * c.batch + v.samples[row]) * h + r;
    const real *x = v.in + row * v.room;
    const real delta = x[h + r] + c.columns[c.matrices][place] * x[r];
    v.scaled[row * v.room + h + r] = delta;
    v.out[row * v.room + h + r] = scan_is_cut(c, i, v.samples[row]) ? 0 : delta * c.diagonal[place];
  }
  for (int32_t q = 0; q < c.matrices; ++q) {
    for (int64_t at = threadIdx.x; at < v.rows * h; at += threads) { /* each thread has made these δ itself */
      const int64_t row = at / h, r = at % h;
      const real factor = c.columns[q][(step * c.batch + v.samples[row]) * h + r];
      v.scaled[row * v.room + r] = factor * (q + 1 < c.matrices ? v.scaled[row * v.room + h + r] : v.in[row * v.room + r]);
    }
    __syncthreads();
    for (int64_t at = threadIdx.x; at < v.rows * h; at += threads) {
      const int64_t row = at / h, j = at % h;
      const real *x = v.scaled + row * v.room, *w = c.weights[q] + j;
      real sum = q > 0 ? v.out[row * v.room + j] : 0;
      for (int64_t r = 0; r < h; ++r) {
        sum += x[r] * w[r * c.weight_row];
      }
      v.out[row * v.room + j] = q + 1 == c.matrices && scan_is_cut(c, i, v.samples[row]) ? 0 : sum;
    }
    __syncthreads();
  }
}

/* out = in · a[i] without the injected gradient. recurrent: Σ_k (in ∘ d_k) W_k + in ∘ e. All threads take part; ends with a
 * barrier. */
template <typename real> __device__ void scan_leaf(const scan_chain<real> &c, int64_t i, const scan_vectors<real> &v) {
  const int64_t k = scan_dim(c, i), m = scan_dim(c, i + 1), step = c.n - i, threads = blockDim.x;
  if (c.element == SCAN_DENSE) {
    const int64_t offset = c.jacobian_offsets != NULL ? c.jacobian_offsets[step] : step * k * m;
    for (int64_t at = threadIdx.x; at < v.rows * m; at += threads) {
      const int64_t row = at / m, j = at % m;
      const real *jt = c.jt + offset * c.batch + v.samples[row] * k * m + j * k, *x = v.in + row * v.room;
      real sum = 0;
      for (int64_t r = 0; r < k; ++r) {
        sum += x[r] * jt[r];
      }
      v.out[row * v.room + j] = sum;
    }
    __syncthreads();
    return;
  }
  if (c.element == SCAN_PAIR) {
    scan_leaf_pair(c, i, v);
    return;
  }
  for (int32_t q = 0; q < c.matrices; ++q) {
    for (int64_t at = threadIdx.x; at < v.rows * k; at += threads) {
      const int64_t row = at / k, r = at % k;
      v.scaled[row * v.room + r] = v.in[row * v.room + r] * c.columns[q][(step * c.batch + v.samples[row]) * k + r];
    }
    __syncthreads();
    for (int64_t at = threadIdx.x; at < v.rows * m; at += threads) {
      const int64_t row = at / m, j = at % m;
      const real *x = v.scaled + row * v.room, *w = c.weights[q] + j;
      real sum = q > 0 ? v.out[row * v.room + j] : 0;
      for (int64_t r = 0; r < k; ++r) {
        sum += x[r] * w[r * c.weight_row];
      }
      if (c.diagonal != NULL && q + 1 == c.matrices) {
        sum += v.in[row * v.room + j] * c.diagonal[(step * c.batch + v.samples[row]) * m + j];
      }
      v.out[row * v.room + j] = q + 1 == c.matrices && scan_is_cut(c, i, v.samples[row]) ? 0 : sum;
    }
    __syncthreads();
  }
}

/* One step of the recurrence for one gradient, which is in v.in; the result goes to memory and to v.out. u may be in the memory
 * of the result, because the thread that writes a number there has read it. Ends with a barrier. */
template <typename real> __device__ void scan_step(const scan_chain<real> &c, int64_t i, int64_t b, const scan_vectors<real> &v) {
  const int64_t m = scan_dim(c, i + 1), at = scan_gradient_at(c, i + 1, b);
  scan_leaf(c, i, v);
  for (int64_t j = threadIdx.x; j < m; j += blockDim.x) {
    const real y = v.out[j] + (c.affine ? c.injected[at + j] : 0);
    v.out[j] = y;
    c.gradients[at + j] = y;
  }
  __syncthreads();
}

template <typename real> __device__ inline void scan_swap(scan_vectors<real> &v) {
  real *in = v.in;
  v.in = v.out;
  v.out = in;
}

/* For gradients: y[i+1] = a[i] y[i], `length` times. block (item, sample). shared: 3 · room reals. */
template <typename real> __global__ void bppsa_scan_walk(scan_chain<real> c, scan_record record, int64_t room) {
  BPPSA_SHARED(real, memory);
  const int64_t b = blockIdx.x % c.batch;
  const int64_t item = blockIdx.x / c.batch, length = scan_item_length(record, item);
  int64_t i = scan_item_first(record, item);
  scan_vectors<real> v = {1, room, memory, memory + room, memory + 2 * room, &b};
  for (int64_t r = threadIdx.x; r < scan_dim(c, i); r += blockDim.x) {
    v.in[r] = c.gradients[scan_gradient_at(c, i, b) + r];
  }
  __syncthreads();
  for (int64_t link = 0; link < length; ++link, ++i) {
    scan_step(c, i, b, v);
    scan_swap(v);
  }
}

/* Returns the first link through which some of a block's rows must be taken: a row of a product that is cut is 0, and the affine
 * row begins with the last cut. cut [rows]: the link of each row's last cut, or -1. Ends with a barrier. */
template <typename real>
__device__ inline int64_t scan_carry_start(const scan_chain<real> &c, int64_t i, int64_t length, int64_t first_row, int64_t size,
                                           int rows, int32_t *cut) {
  int64_t start = length + 1;
  for (int row = (int)threadIdx.x / warpSize; row < rows; row += (int)blockDim.x / warpSize) {
    const int32_t last = scan_last_cut(c, i, i + length, (first_row + row) / size);
    if ((int)threadIdx.x % warpSize == 0) {
      cut[row] = last;
    }
  }
  __syncthreads();
  for (int row = 0; row < rows; ++row) {
    const bool affine = c.affine && (first_row + row) % size == size - 1;
    const int64_t from = cut[row] < 0 ? 0 : affine ? cut[row] : length + 1;
    start = from < start ? from : start;
  }
  return start;
}

/* Products a[i:i+length] = a[i] ⋄ .. ⋄ a[i+length] of leaves. block x: a tile of `tile` rows of all samples, block y ..:
 * item. Threads: whole warps. shared: 3 · tile · room reals, then tile norms, tile samples, exponents, and places of cuts. */
template <typename real>
__global__ void bppsa_scan_carry(scan_chain<real> c, scan_record record, int64_t tiles, int tile, int64_t room) {
  BPPSA_SHARED(real, memory);
  const int64_t item = blockIdx.x / tiles, first_row = blockIdx.x % tiles * tile, i = scan_item_first(record, item);
  const int64_t length = scan_item_length(record, item);
  const int64_t size = scan_dim(c, i) + c.affine, all = size * c.batch;
  const int rows = (int)(all - first_row < tile ? all - first_row : tile);
  if (rows <= 0) { /* the item is smaller than the largest */
    return;
  }
  real *norms = memory + 3 * tile * room;
  int64_t *samples = (int64_t *)(norms + tile + tile % 2);
  int32_t *e = (int32_t *)(samples + tile);
  scan_vectors<real> v = {rows, room, memory, memory + tile * room, memory + 2 * tile * room, samples};
  for (int row = (int)threadIdx.x; row < rows; row += (int)blockDim.x) {
    samples[row] = (first_row + row) / size;
    e[row] = 0;
    norms[row] = 0;
  }
  const int64_t start = scan_carry_start(c, i, length, first_row, size, rows, e + tile);
  for (int64_t at = threadIdx.x; at < rows * room;
       at += blockDim.x) { /* the identity; 0 for the affine row, and where it is cut */
    v.in[at] = (first_row + at / room) % size == at % room && e[tile + at / room] < 0 ? 1 : 0;
  }
  __syncthreads();
  for (int64_t link = start; link <= length; ++link) {
    const int64_t m = scan_dim(c, i + link + 1);
    scan_leaf(c, i + link, v);
    for (int64_t at = threadIdx.x; c.affine && at < rows * m; at += blockDim.x) {
      const int64_t row = at / m, j = at % m;
      if ((first_row + row) % size == size - 1) {
        v.out[row * room + j] += scan_scaled(c.injected[scan_gradient_at(c, i + link + 1, samples[row]) + j], -(int64_t)e[row]);
      }
    }
    __syncthreads();
    if (link % SCAN_RESCALE_LINKS == 0 || link == length) {
      scan_rescale(rows, room, m, v.out, e, norms);
    }
    scan_swap(v);
  }
  const int64_t last = i + length, m = scan_dim(c, last + 1);
  for (int64_t at = threadIdx.x; at < rows * m; at += blockDim.x) {
    const int64_t row = at / m, r = (first_row + row) % size;
    c.slots[scan_product_at(c, i, last, samples[row]) + r * m + at % m] = v.in[row * room + at % m];
  }
  for (int row = (int)threadIdx.x; row < rows; row += (int)blockDim.x) {
    const int64_t at = scan_exponents_at(c, i, last, samples[row]) + (first_row + row) % size;
    c.exponents[at] = e[row];
    c.norms[at] = norms[row];
  }
}

/* ---- products of products ---- */

/* Writes the rows of a join that are known where one operand is cut: 0, and where the right one is cut its affine row, whose
 * exponent is `exponent`. Returns how many of the `rows` rows these are. All threads take part; ends with a barrier. */
template <typename real>
__device__ inline int64_t scan_join_cut(bool affine, bool cut, bool cut_right, int64_t rows, int64_t m, const real *right_affine,
                                        int32_t exponent, real *out, int32_t *e) {
  const int64_t known = !cut ? 0 : affine && !cut_right ? rows - 1 : rows;
  for (int64_t at = threadIdx.x; at < known * m; at += blockDim.x) {
    out[at] = affine && at / m + 1 == rows ? right_affine[at % m] : 0;
  }
  for (int64_t r = threadIdx.x; r < known; r += blockDim.x) {
    e[r] = affine && r + 1 == rows ? exponent : 0;
  }
  __syncthreads();
  return known;
}

/* a[i:r] = a[i:i+s-1] ⋄ a[i+s:r]. block (item, sample); threads: whole warps. The right operand is in the result's slot, so the
 * result is computed beside it and then moved. shared: room reals, then room exponents of the right operand and of the result. */
template <typename real> __global__ void bppsa_scan_join(scan_chain<real> c, scan_record record, int64_t room) {
  BPPSA_SHARED(real, x);
  int32_t *er = (int32_t *)(x + room), *e = er + room;
  real *norms = (real *)(e + room);
  const int64_t b = blockIdx.x % c.batch, i = record.first + blockIdx.x / c.batch * record.stride, split = i + record.span,
                last = split + record.span - 1;
  const scan_held<real> left = scan_held_at(c, i, split - 1, b), held = scan_held_at(c, split, last, b);
  const int64_t rows = left.rows + c.affine, m = held.columns, count = held.rows + c.affine;
  real *right = c.slots + scan_product_at(c, split, last, b), *out = c.beside + scan_product_at(c, i, last, b);
  const int64_t result = scan_exponents_at(c, i, last, b);
  for (int64_t q = threadIdx.x; q < count; q += blockDim.x) {
    er[q] = held.e[q];
  }
  __syncthreads();
  const scan_range range = scan_range_of(left, count, er);
  const bool cut_right = scan_has_cut(c, split, last, b), cut = scan_has_cut(c, i, split - 1, b) || cut_right;
  const int64_t given = scan_join_cut(c.affine, cut, cut_right, rows, m, right + (count - 1) * m, er[count - 1], out, e);
  for (int64_t r = given; r < rows; ++r) {
    const int32_t exponent = scan_join_factors(left, r, range, count, er, x);
    for (int64_t j = threadIdx.x; j < m; j += blockDim.x) {
      real sum = 0;
      for (int64_t q = 0; q < count; ++q) {
        sum += x[q] * right[q * m + j];
      }
      out[r * m + j] = sum;
    }
    if (threadIdx.x == 0) {
      e[r] = exponent;
    }
    __syncthreads();
  }
  scan_rescale((int)rows, m, m, out, e, norms);
  for (int64_t at = threadIdx.x; at < rows * m; at += blockDim.x) {
    right[at] = out[at];
  }
  for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) {
    c.exponents[result + r] = e[r];
    c.norms[result + r] = norms[r];
  }
}

/* ---- a gradient through products ---- */

/* y[i+s] = a[i:i+s-1] y[i], `length` times, for held products and for leaves among them. block (item, sample). The steps of
 * useless products are redone; that needs the injected gradients, which may be in the memory of the result, so the result is
 * written last. shared: 3 · room reals. */
template <typename real> __global__ void bppsa_scan_apply(scan_chain<real> c, scan_record record, int64_t room) {
  BPPSA_SHARED(real, memory);
  const int64_t b = blockIdx.x % c.batch;
  const int64_t item = blockIdx.x / c.batch, length = scan_item_length(record, item);
  int64_t i = scan_item_first(record, item);
  scan_vectors<real> v = {1, room, memory, memory + room, memory + 2 * room, &b};
  for (int64_t link = 0; link < length; i += scan_span(record, link++)) {
    const int64_t last = i + scan_span(record, link) - 1, m = scan_dim(c, last + 1);
    if (last > i && scan_has_cut(c, i, last, b)) { /* the affine row alone: a gradient that is NaN ends here */
      const scan_held<real> p = scan_held_at(c, i, last, b);
      for (int64_t j = threadIdx.x; j < m; j += blockDim.x) {
        c.gradients[scan_gradient_at(c, last + 1, b) + j] = c.affine ? scan_scaled(p.values[p.rows * m + j], p.e[p.rows]) : 0;
      }
      __syncthreads();
      continue;
    }
    for (int64_t r = threadIdx.x; r < scan_dim(c, i); r += blockDim.x) {
      v.in[r] = c.gradients[scan_gradient_at(c, i, b) + r];
    }
    __syncthreads();
    if (last > i && scan_try(scan_held_at(c, i, last, b), v.in, v.out)) {
      for (int64_t j = threadIdx.x; j < m; j += blockDim.x) {
        c.gradients[scan_gradient_at(c, last + 1, b) + j] = v.out[j];
      }
      __syncthreads();
      continue;
    }
    for (int64_t r = threadIdx.x; r < scan_dim(c, i); r += blockDim.x) {
      v.in[r] = c.gradients[scan_gradient_at(c, i, b) + r];
    }
    __syncthreads();
    for (int64_t leaf = i; leaf <= last; ++leaf) {
      scan_leaf(c, leaf, v);
      const int64_t at = scan_gradient_at(c, leaf + 1, b), size = scan_dim(c, leaf + 1);
      for (int64_t j = threadIdx.x; j < size; j += blockDim.x) {
        v.out[j] += c.affine ? c.injected[at + j] : 0;
        if (leaf == last) {
          c.gradients[at + j] = v.out[j];
        }
      }
      __syncthreads();
      scan_swap(v);
    }
    if (last > i && threadIdx.x == 0) {
      (void)atomicAdd(c.redone, 1ull);
    }
  }
}

/* ---- diagonal elements: numbers that each have their own exponent ---- */

template <typename real> __device__ inline real scan_factor(const scan_chain<real> &c, int64_t i, int64_t b, int64_t j) {
  return c.jt[((c.n - i) * c.batch + b) * c.dim + j];
}

/* y[i+1] = a[i] y[i], `length` times; one thread for each item, sample and number, `count` in all. */
template <typename real> __global__ void bppsa_scan_diagonal_walk(scan_chain<real> c, scan_record record, int64_t count) {
  const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, j = at % c.dim, b = at / c.dim % c.batch;
  const int64_t item = at / c.dim / c.batch, length = scan_item_length(record, item);
  int64_t i = scan_item_first(record, item);
  if (at >= count) {
    return;
  }
  real y = c.gradients[scan_gradient_at(c, i, b) + j];
  for (int64_t link = 0; link < length; ++link, ++i) {
    const int64_t to = scan_gradient_at(c, i + 1, b) + j;
    y = y * scan_factor(c, i, b, j) + (c.affine ? c.injected[to] : 0);
    c.gradients[to] = y;
  }
}

/* The effect of some steps on a number: y -> y a 2^e + u. */
template <typename real> struct scan_steps {
  real a, u;
  int32_t e;
};

template <typename real> __device__ inline real scan_through(const scan_steps<real> &s, real y) {
  return (s.e == 0 ? y * s.a : scan_scaled(y * s.a, s.e)) + s.u;
}

/* The same for few numbers and many steps: a warp for each number. Each lane has SCAN_LANE_STEPS consecutive steps. An inclusive
 * scan over the effects of the lanes' steps tells every lane its first value, from which it takes its steps; `count` numbers;
 * threads: whole warps. If a value is not finite, because the effect of some steps may exceed the type's range where the whole
 * does not, the lanes go one after the other. */
template <typename real> __global__ void bppsa_scan_diagonal_warp(scan_chain<real> c, scan_record record, int64_t count) {
  enum { S = SCAN_LANE_STEPS };
  const unsigned all = 0xffffffffu;
  const int lane = (int)threadIdx.x % warpSize;
  const int64_t at = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / warpSize, j = at % c.dim, b = at / c.dim % c.batch;
  const int64_t item = at / c.dim / c.batch, length = scan_item_length(record, item), first = scan_item_first(record, item);
  if (at >= count) {
    return;
  }
  real y = c.gradients[scan_gradient_at(c, first, b) + j];
  for (int64_t done = 0; done < length; done += warpSize * S) {
    real a[S], u[S];
    scan_steps<real> mine = {1, 0, 0};
    BPPSA_UNROLL
    for (int s = 0; s < S; ++s) {
      const int64_t link = done + lane * S + s;
      const bool there = link < length;
      a[s] = there ? scan_factor(c, first + link, b, j) : 1;
      u[s] = there && c.affine ? c.injected[scan_gradient_at(c, first + link + 1, b) + j] : 0;
      mine.u = mine.u * a[s] + u[s];
      mine.a *= a[s];
      scan_rescale_one(&mine.a, &mine.e);
    }
    for (int off = 1; off < warpSize; off *= 2) {
      scan_steps<real> before = {__shfl_up_sync(all, mine.a, off), __shfl_up_sync(all, mine.u, off),
                                 __shfl_up_sync(all, mine.e, off)};
      if (lane >= off) {
        mine.u = scan_through(mine, before.u);
        mine.a *= before.a;
        mine.e += before.e;
        scan_rescale_one(&mine.a, &mine.e);
      }
    }
    const scan_steps<real> before = {__shfl_up_sync(all, mine.a, 1), __shfl_up_sync(all, mine.u, 1),
                                     __shfl_up_sync(all, mine.e, 1)};
    real start = lane == 0 ? y : scan_through(before, y);
    if (__any_sync(all, !isfinite(start))) {
      for (int turn = 0; turn < warpSize; ++turn) {
        start = lane == turn ? y : start;
        real end = y;
        BPPSA_UNROLL
        for (int s = 0; s < S; ++s) {
          end = end * a[s] + u[s];
        }
        y = __shfl_sync(all, end, turn);
      }
    }
    BPPSA_UNROLL
    for (int s = 0; s < S; ++s) {
      const int64_t link = done + lane * S + s;
      start = start * a[s] + u[s];
      if (link < length) {
        c.gradients[scan_gradient_at(c, first + link + 1, b) + j] = start;
      }
    }
    y = __shfl_sync(all, start, warpSize - 1);
  }
}

/* a[i:i+length] for leaves. */
template <typename real> __global__ void bppsa_scan_diagonal_carry(scan_chain<real> c, scan_record record, int64_t count) {
  const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, j = at % c.dim, b = at / c.dim % c.batch;
  const int64_t item = at / c.dim / c.batch, i = scan_item_first(record, item), last = i + scan_item_length(record, item);
  if (at >= count) {
    return;
  }
  real a = 1, u = 0;
  int32_t ea = 0, eu = 0;
  for (int64_t leaf = i; leaf <= last; ++leaf) {
    const real factor = scan_factor(c, leaf, b, j);
    a *= factor;
    scan_rescale_one(&a, &ea);
    if (c.affine) {
      u = u * factor + scan_scaled(c.injected[scan_gradient_at(c, leaf + 1, b) + j], -(int64_t)eu);
      scan_rescale_one(&u, &eu);
    }
  }
  const int64_t product = scan_product_at(c, i, last, b) + j, exponents = scan_exponents_at(c, i, last, b) + j;
  c.slots[product] = a;
  c.exponents[exponents] = ea;
  if (c.affine) {
    c.slots[product + c.dim] = u;
    c.exponents[exponents + c.dim] = eu;
  }
}

/* a[i:r] = a[i:i+s-1] ⋄ a[i+s:r] */
template <typename real> __global__ void bppsa_scan_diagonal_join(scan_chain<real> c, scan_record record, int64_t count) {
  const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, j = at % c.dim, b = at / c.dim % c.batch, m = c.dim;
  const int64_t i = record.first + at / c.dim / c.batch * record.stride, split = i + record.span, last = split + record.span - 1;
  if (at >= count) {
    return;
  }
  const int64_t right = scan_product_at(c, split, last, b),
                exponents = scan_exponents_at(c, split, last, b); /* the result's too */
  scan_join_numbers(c.affine, m, j, c.slots + scan_product_at(c, i, split - 1, b),
                    c.exponents + scan_exponents_at(c, i, split - 1, b), c.slots + right, c.exponents + exponents,
                    c.slots + right, c.exponents + exponents);
}

/* y[i+s] = a[i:i+s-1] y[i], `length` times, for held products and for leaves among them. block (item, sample). If the result is
 * not finite, the steps are redone. */
template <typename real> __global__ void bppsa_scan_diagonal_apply(scan_chain<real> c, scan_record record) {
  const int64_t b = blockIdx.x % c.batch, m = c.dim;
  const int64_t item = blockIdx.x / c.batch, length = scan_item_length(record, item);
  int64_t i = scan_item_first(record, item);
  for (int64_t link = 0; link < length; i += scan_span(record, link++)) {
    const int64_t last = i + scan_span(record, link) - 1, from = scan_gradient_at(c, i, b), to = scan_gradient_at(c, last + 1, b);
    const bool leaf = last == i;
    const real *a = leaf ? NULL : c.slots + scan_product_at(c, i, last, b);
    const int32_t *e = leaf ? NULL : c.exponents + scan_exponents_at(c, i, last, b);
    bool infinite = false;
    for (int64_t j = threadIdx.x; !leaf && j < m; j += blockDim.x) {
      const real y = scan_apply_number(c.affine, m, j, a, e, c.gradients[from + j]);
      infinite = infinite || !isfinite(y);
    }
    const bool redo = __syncthreads_or(infinite) != 0, walk = redo || leaf;
    for (int64_t j = threadIdx.x; j < m; j += blockDim.x) {
      real y = c.gradients[from + j];
      if (!walk) {
        y = scan_apply_number(c.affine, m, j, a, e, y);
      }
      for (int64_t at = i; walk && at <= last; ++at) {
        y = y * scan_factor(c, at, b, j) + (c.affine ? c.injected[scan_gradient_at(c, at + 1, b) + j] : 0);
      }
      c.gradients[to + j] = y;
    }
    if (redo && threadIdx.x == 0) {
      (void)atomicAdd(c.redone, 1ull);
    }
    __syncthreads();
  }
}

#endif
