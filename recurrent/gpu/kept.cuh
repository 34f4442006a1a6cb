/* What a forward pass keeps of a gate and of tanh, on a GPU: signed halves and codes. core/compute/simd_vectors.inc says what they
 * are and why, and has the same functions for processors. */
#ifndef BPPSA_RECURRENT_GPU_KEPT_CUH
#define BPPSA_RECURRENT_GPU_KEPT_CUH

#include <math.h>
#include <stdint.h>
#include <string.h>

/* e / (1 + e) for e <= 1. In float the quotient is within 2 ulp without a branch for subnormal numbers, because the divisor is
 * normal. */
__device__ inline float kept_quotient(float e, float below) {
  return __fdividef(e, below);
}
__device__ inline double kept_quotient(double e, double below) {
  return e / below;
}

/* The number with the highest bit of its exponent set to `bit`, 0 or 1. */
__device__ inline float with_code_bit(float v, bool bit) {
  uint32_t word;
  memcpy(&word, &v, sizeof word);
  word = (word & ~((uint32_t)1 << 30)) | (uint32_t)bit << 30;
  memcpy(&v, &word, sizeof v);
  return v;
}
__device__ inline double with_code_bit(double v, bool bit) {
  uint64_t word;
  memcpy(&word, &v, sizeof word);
  word = (word & ~((uint64_t)1 << 62)) | (uint64_t)bit << 62;
  memcpy(&v, &word, sizeof v);
  return v;
}

/* e = exp(-|x|) of an x that lacks `rest`, a small number. It stays 0 where x is infinite and its rest no number. */
template <typename real> __device__ inline real with_rest(real e, real x, real rest) {
  return e > 0 ? e - e * copysign((real)1, x) * rest : e;
}

/* Returns the signed half of σ(x); e is exp(-|x|). */
template <typename real> __device__ inline real half_of(real x, real e) {
  return copysign(kept_quotient(e, 1 + e), -x);
}
template <typename real> __device__ inline real half_of(real x) {
  return half_of(x, exp(-fabs(x)));
}
/* Of an x that lacks `rest`. */
template <typename real> __device__ inline real half_of_sum(real x, real rest) {
  return half_of(x, with_rest(exp(-fabs(x)), x, rest));
}

/* From a signed half: σ, 1 - σ, σ (1 - σ), and σ g; where σ is near 1, σ g is computed as g less a small part. */
template <typename real> __device__ inline real gate_of(real s) {
  return s + (signbit(s) ? (real)1 : (real)0);
}
template <typename real> __device__ inline real closed_of(real s) {
  return (signbit(s) ? (real)0 : (real)1) - s;
}
template <typename real> __device__ inline real gate_slope_of(real s) {
  return fabs(s) - s * s;
}
template <typename real> __device__ inline real gate_times(real s, real g) {
  return s * g + (signbit(s) ? g : (real)0);
}

/* n = tanh(x), its code, and 1 - n². */
template <typename real> struct tanh_parts {
  real n, code, slope;

  /* w = 4e / (1 + e), e = exp(-2|x|), of which 4e is exp(-2|x| + ln 4) where e is below the least normal number. */
  __device__ inline explicit tanh_parts(real x) : tanh_parts(x, exp(-fabs(x))) {}
  /* Of an x that lacks `rest`. */
  __device__ static inline tanh_parts of_sum(real x, real rest) {
    return tanh_parts(x, with_rest(exp(-fabs(x)), x, rest));
  }
  /* root: exp(-|x|) */
  __device__ inline tanh_parts(real x, real root) {
    if (fabs(x) > (real)0.55) {
      const real f = 2 * root, four = f * f, w = kept_quotient(four, 1 + four * (real)0.25);
      n = copysign(1 - w * (real)0.5, x);
      code = with_code_bit(copysign(w, -x), true);
      slope = w - w * w * (real)0.25;
    } else {
      n = code = (real)tanh(x);
      slope = 1 - n * n;
    }
  }
};

/* Reads a code: n = base + rest with base -1, 0 or 1, and 1 - n². */
template <typename real> struct read_code {
  real base, rest, slope;

  __device__ inline explicit read_code(real code) {
    const bool large = fabs(code) > 1; /* not where it is NaN */
    const real w = large ? with_code_bit(code, false) : code, by = large ? (real)0.5 : (real)1;
    base = large ? copysign((real)1, -code) : (real)0;
    rest = by * w;
    slope = (large ? (real)0 : (real)1) - w * (by * rest + base);
  }
};

#endif
