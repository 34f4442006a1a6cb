/* Held products on a GPU: joins rows that have exponents of their own, applies them to gradients, and brings them back into the
 * window. held.inc does the same on a processor. For the kernels of scans (scan_kernels.cuh) and of transitions
 * (transition_kernels.cuh). */
#ifndef BPPSA_SCAN_HELD_CUH
#define BPPSA_SCAN_HELD_CUH

#include "core/compute/launch.cuh"
#include "scan/scan_numbers.cuh"

/* The product of some elements for one sample: row r is 2^e[r] times what is stored. */
template <typename real> struct scan_held {
  const real *values;    /* [rows + affine][columns] */
  const int32_t *e;      /* [rows + affine] */
  const real *norms;     /* [rows + affine]: the largest entry of each row */
  int64_t rows, columns; /* without the affine row */
  bool affine;
};

/* The maximum over the warp, ignoring NaN. All lanes of the warp take part. */
template <typename real> __device__ inline real scan_warp_largest(real size) {
  for (int other = warpSize / 2; other > 0; other /= 2) {
    const real theirs = __shfl_xor_sync(0xffffffffu, size, other);
    size = theirs > size ? theirs : size;
  }
  return size;
}

/* The largest of m numbers in size, ignoring NaN. All lanes of the warp take part. */
template <typename real> __device__ inline real scan_row_largest(int64_t m, const real *y) {
  real largest = 0;
  for (int64_t j = (int)threadIdx.x % warpSize; j < m; j += warpSize) {
    const real size = scan_size(y[j]);
    largest = size > largest ? size : largest;
  }
  return scan_warp_largest(largest);
}

/* Brings rows back into the window, and updates their exponents e and largest entries: a warp for each row. Ends with a barrier. */
template <typename real> __device__ void scan_rescale(int rows, int64_t room, int64_t m, real *y, int32_t *e, real *norms) {
  const int lane = (int)threadIdx.x % warpSize;
  for (int row = (int)threadIdx.x / warpSize; row < rows; row += (int)blockDim.x / warpSize) {
    const real largest = scan_row_largest(m, y + row * room);
    const int32_t excess = scan_excess(largest);
    const real factor = excess != 0 ? scan_power<real>(-excess) : 1;
    for (int64_t j = lane; excess != 0 && j < m; j += warpSize) {
      y[row * room + j] *= factor;
    }
    if (lane == 0) {
      e[row] += excess;
      norms[row] = largest * factor;
    }
  }
  __syncthreads();
}

/* Finds the largest of `count` rows' exponents. Returns whether all are so close that no stored entry can underflow. */
__device__ inline bool scan_close(int64_t count, const int32_t *e, int32_t *most) {
  int32_t least = e[0];
  *most = e[0];
  for (int64_t r = 1; r < count; ++r) {
    least = e[r] < least ? e[r] : least;
    *most = e[r] > *most ? e[r] : *most;
  }
  return *most - least <= 2 * SCAN_WINDOW + 16;
}

/* Returns whether numbers are so small that their products with stored rows may underflow, before the exponents of the rows, which
 * a close range puts off, are applied. */
template <typename real> __device__ bool scan_tiny(int64_t count, const real *x) {
  typedef scan_format<real> format;
  real largest = 0;
  for (int64_t r = 0; r < count; ++r) {
    largest = scan_larger(largest, scan_size(x[r]));
  }
  return largest > 0 && largest < scan_normal_power<real>(1 - format::MOST + format::DIGITS + 3 * SCAN_WINDOW + 16);
}

/* The smallest exponent that keeps every x[r] 2^e[r] below 1 in size. */
template <typename real>
__device__ inline int64_t scan_common(int64_t count, const real *x, const int32_t *e, int64_t more, int64_t more_until) {
  int64_t most = INT64_MIN;
  for (int64_t r = 0; r < count; ++r) {
    if (x[r] != 0 && isfinite(x[r])) {
      int exponent;
      (void)frexp((double)x[r], &exponent);
      const int64_t here = exponent + e[r] + (r < more_until ? more : 0);
      most = here > most ? here : most;
    }
  }
  return most == INT64_MIN ? 0 : most;
}

/* ---- products of products ---- */

/* How the rows of a join are scaled: `close` if one exponent, `most`, can stand for all rows of the right operand. */
struct scan_range {
  int32_t most;
  bool close;
};

/* er [count]: exponents of the right operand's rows. */
template <typename real> __device__ scan_range scan_range_of(const scan_held<real> &left, int64_t count, const int32_t *er) {
  int32_t most;
  const bool together = scan_close(count, er, &most);
  const int32_t affine = left.affine ? left.e[left.rows] : 0;
  return {most, together && affine <= SCAN_WINDOW && affine >= -SCAN_WINDOW};
}

/* The factors x [count] by which row r of left ⋄ right is made of the rows of right: row r of left, and 1 or 0 for right's affine
 * row. Returns the exponent of the result. er [count]: exponents of right's rows. All threads take part; ends with a barrier. */
template <typename real>
__device__ int32_t scan_join_factors(const scan_held<real> &left, int64_t r, const scan_range &range, int64_t count,
                                     const int32_t *er, real *x) {
  const int64_t k = left.columns;
  const bool affine_row = left.affine && r == left.rows;
  for (int64_t q = threadIdx.x; q < count; q += blockDim.x) {
    const real entry = q < k ? left.values[r * k + q] : !affine_row ? 0 : range.close ? scan_power<real>(-(int64_t)left.e[r]) : 1;
    x[q] = range.close ? entry * scan_power<real>(er[q] - range.most) : entry;
  }
  __syncthreads();
  /* As terms of one row: the entries of left are 2^e times what is stored, and the 1 is 1. */
  const int64_t common = range.close ? 0 : scan_common(count, x, er, left.e[r], k);
  __syncthreads();
  for (int64_t q = threadIdx.x; !range.close && q < count; q += blockDim.x) {
    x[q] = scan_scaled(x[q], er[q] + (q < k ? left.e[r] : 0) - common);
  }
  __syncthreads();
  return range.close ? left.e[r] + range.most : (int32_t)common;
}

/* ---- a gradient through a product ---- */

/* out = in · p, with p.rows numbers in `in`, which has room for one more and is overwritten. Returns false, in all threads, if the
 * product is useless. Ends with a barrier. */
template <typename real> __device__ bool scan_try(const scan_held<real> &p, real *in, real *out) {
  const int64_t m = p.columns, count = p.rows + p.affine;
  if (p.affine && threadIdx.x == 0) {
    in[p.rows] = 1;
  }
  __syncthreads();
  int32_t most;
  const bool together = scan_close(count, p.e, &most), close = together && !(most > 0 && scan_tiny(p.rows, in));
  const int64_t common = close ? most : scan_common(count, in, p.e, 0, 0);
  __syncthreads();
  for (int64_t r = threadIdx.x; r < count; r += blockDim.x) {
    in[r] = close ? in[r] * scan_power<real>(p.e[r] - common) : scan_scaled(in[r], p.e[r] - common);
  }
  __syncthreads();
  for (int64_t j = threadIdx.x; j < m; j += blockDim.x) {
    real sum = 0;
    for (int64_t r = 0; r < count; ++r) {
      sum += in[r] * p.values[r * m + j];
    }
    out[j] = sum;
  }
  __syncthreads();
  real terms = 0, sum = 0;
  for (int64_t r = 0; r < count; ++r) {
    terms += scan_size(in[r]) * p.norms[r];
  }
  for (int64_t j = 0; j < m; ++j) {
    sum += scan_size(out[j]);
  }
  const bool cancelled = !(terms <= (real)SCAN_CANCELLATION * sum); /* true for NaN */
  __syncthreads();
  bool infinite = false;
  for (int64_t j = threadIdx.x; j < m; j += blockDim.x) {
    out[j] = common != 0 ? scan_scaled(out[j], common) : out[j];
    infinite = infinite || !isfinite(out[j]);
  }
  return __syncthreads_or(cancelled || infinite) == 0;
}

/* ---- diagonal elements: numbers that each have their own exponent ---- */

template <typename real> __device__ inline void scan_rescale_one(real *y, int32_t *e) {
  const int32_t excess = scan_excess(scan_size(*y));
  *y *= scan_power<real>(-excess);
  *e += excess;
}

/* Number j of left ⋄ right, of m numbers; if `affine` with number m + j. The result may take the place of the right operand. */
template <typename real>
__device__ inline void scan_join_numbers(bool affine, int64_t m, int64_t j, const real *left, const int32_t *el,
                                         const real *right, const int32_t *er, real *out, int32_t *e) {
  const real factor = right[j];
  const int32_t exponent = er[j];
  if (affine) {
    const int32_t carried = el[m + j] + exponent, most = carried > er[m + j] ? carried : er[m + j];
    real u = (real)(ldexp((double)left[m + j] * (double)factor, carried - most) + ldexp((double)right[m + j], er[m + j] - most));
    int32_t sum = most;
    scan_rescale_one(&u, &sum);
    out[m + j] = u;
    e[m + j] = sum;
  }
  real a = left[j] * factor;
  int32_t product = el[j] + exponent;
  scan_rescale_one(&a, &product);
  out[j] = a;
  e[j] = product;
}

/* Number j of x, [m], through such a product. */
template <typename real>
__device__ inline real scan_apply_number(bool affine, int64_t m, int64_t j, const real *a, const int32_t *e, real x) {
  return (real)(ldexp((double)x * (double)a[j], e[j]) + (affine ? ldexp((double)a[m + j], e[m + j]) : 0));
}

#endif
