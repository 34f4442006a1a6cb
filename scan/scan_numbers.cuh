/* Numbers that grow and shrink, on a GPU: the window of a product's rows, and powers of two (scan/scan_products.inc explains
 * them). */
#ifndef BPPSA_SCAN_SCAN_NUMBERS_CUH
#define BPPSA_SCAN_SCAN_NUMBERS_CUH

#include <math.h>
#include <stdint.h>

#include "core/compute/launch.cuh"

enum {
  SCAN_WINDOW = 24,       /* rows of products are rescaled outside 2^±WINDOW */
  SCAN_RESCALE_LINKS = 4, /* links of a chain between two checks of the window */
  SCAN_CANCELLATION = 256 /* Σ |v_r| ‖P_r‖ beyond this multiple of ‖v P‖ is useless */
};

/* 2^exponent; 0 or infinity outside the type's range. */
template <typename real> __device__ inline real scan_power(int64_t exponent) {
  const int64_t bounded = exponent < -4000 ? -4000 : exponent > 4000 ? 4000 : exponent;
  return (real)ldexp((double)1, (int)bounded);
}

template <typename real> __device__ inline real scan_scaled(real x, int64_t exponent) {
  return (real)ldexp((double)x, exponent < -4000 ? -4000 : exponent > 4000 ? 4000 : (int)exponent);
}

/* The bits of a number, and how many there are. */
__device__ inline int32_t scan_bits(float x) {
  return __float_as_int(x);
}
__device__ inline int64_t scan_bits(double x) {
  return __double_as_longlong(x);
}
__device__ inline float scan_number(int32_t bits) {
  return __int_as_float(bits);
}
__device__ inline double scan_number(int64_t bits) {
  return __longlong_as_double(bits);
}

template <typename real> struct scan_format {
  enum { DIGITS = sizeof(real) == 4 ? 23 : 52, MOST = sizeof(real) == 4 ? 127 : 1023 };
};

/* The exponent that frexp gives. For 0 and subnormal numbers it is that of the largest subnormal number; for a number that is not
 * finite it is one more than the largest number's. */
template <typename real> __device__ inline int32_t scan_exponent(real x) {
  typedef scan_format<real> format;
  return ((int32_t)(scan_bits(x) >> format::DIGITS) & (2 * format::MOST + 1)) - (format::MOST - 1);
}

/* 2^exponent; 0 below the normal numbers, the type's largest power above them. */
template <typename real> __device__ inline real scan_normal_power(int32_t exponent) {
  typedef scan_format<real> format;
  typedef decltype(scan_bits((real)0)) bits;
  const int32_t field = max(min(exponent, (int32_t)format::MOST), -(int32_t)format::MOST) + format::MOST;
  return scan_number((bits)field << format::DIGITS);
}

/* x 2^exponent by two multiplications, for exponents within twice the type's range; other exponents count as the end of that
 * range. */
template <typename real> __device__ inline real scan_shifted(real x, int32_t exponent) {
  typedef scan_format<real> format;
  const int32_t all = max(min(exponent, 2 * format::MOST), 2 - 2 * format::MOST), half = all / 2;
  return x * scan_normal_power<real>(half) * scan_normal_power<real>(all - half);
}

/* The power of two that brings `largest` near 1; 0 if it is inside the window, 0, or not finite. */
template <typename real> __device__ inline int32_t scan_excess(real largest) {
  const real top = (real)(1 << SCAN_WINDOW);
  if ((largest >= 1 / top && largest < top) || !(largest > 0) || isinf(largest)) {
    return 0;
  }
  const int32_t exponent = scan_exponent(largest);
  return exponent > SCAN_WINDOW || exponent < -SCAN_WINDOW ? exponent : 0;
}

template <typename real> __device__ inline real scan_size(real x) {
  return (real)fabs(x);
}

/* The larger number; NaN is ignored. */
__device__ inline float scan_larger(float a, float b) {
  return fmaxf(a, b);
}
__device__ inline double scan_larger(double a, double b) {
  return fmax(a, b);
}

#endif
