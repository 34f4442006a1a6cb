/* Numbers that grow and shrink: the window of a product's rows, and powers of two, on a GPU (scan/scan_products.inc says
 * how). */
#ifndef BPPSA_SCAN_SCAN_NUMBERS_CUH
#define BPPSA_SCAN_SCAN_NUMBERS_CUH

#include <math.h>
#include <stdint.h>

#include "core/launch.cuh"

enum {
  SCAN_WINDOW = 24,       /* rows of products are rescaled outside 2^±WINDOW */
  SCAN_RESCALE_LINKS = 4, /* links of a chain between two looks at the window */
  SCAN_CANCELLATION = 256 /* Σ |v_r| ‖P_r‖ beyond this multiple of ‖v P‖ is useless */
};

/* 2^exponent; 0 or infinity beyond the type's range. */
template <typename real> __device__ inline real scan_power(int64_t exponent) {
  const int64_t bounded = exponent < -4000 ? -4000 : exponent > 4000 ? 4000 : exponent;
  return (real)ldexp((double)1, (int)bounded);
}

template <typename real> __device__ inline real scan_scaled(real x, int64_t exponent) {
  return (real)ldexp((double)x, exponent < -4000 ? -4000 : exponent > 4000 ? 4000 : (int)exponent);
}

/* The power of two that brings `largest` near 1; 0 inside the window and for 0 and what is not finite. */
template <typename real> __device__ inline int32_t scan_excess(real largest) {
  const real top = (real)(1 << SCAN_WINDOW);
  if ((largest >= 1 / top && largest < top) || !(largest > 0) || isinf(largest)) {
    return 0;
  }
  int exponent;
  (void)frexp((double)largest, &exponent);
  return exponent > SCAN_WINDOW || exponent < -SCAN_WINDOW ? exponent : 0;
}

template <typename real> __device__ inline real scan_size(real x) {
  return (real)fabs(x);
}

/* The larger one; NaN is passed over. */
__device__ inline float scan_larger(float a, float b) {
  return fmaxf(a, b);
}
__device__ inline double scan_larger(double a, double b) {
  return fmax(a, b);
}

#endif
