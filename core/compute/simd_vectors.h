/* For kernels that are compiled for every instruction set: a file X_ISA.c defines the width of its vectors (SIMD_BYTES: 16, 32,
 * 64), is compiled with that instruction set's flags (cmake/BppsaSimd.cmake), and includes this file; its own .inc file, for each
 * real type (core/base/each_real.inc), begins with core/compute/squash_terms.inc and core/compute/simd_vectors.inc. */
#ifndef BPPSA_CORE_COMPUTE_SIMD_VECTORS_H
#define BPPSA_CORE_COMPUTE_SIMD_VECTORS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if SIMD_BYTES > 16
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#define SIMD_PRAGMA_(text) _Pragma(#text)
#define SIMD_PRAGMA(text) SIMD_PRAGMA_(text)
#define SIMD_INLINE static inline __attribute__((always_inline))

/* For each of `count` vectors. */
#define EACH SIMD_PRAGMA(GCC unroll 4) for (int i = 0; i < count; ++i)

/* sums = Σ c_p x^p; the highest coefficient comes first */
#define SERIES(sums, x, c)                                                                                                       \
  EACH {                                                                                                                         \
    sums[i] = R(spread)((c)[0]);                                                                                                 \
  }                                                                                                                              \
  SIMD_PRAGMA(GCC unroll 16) for (unsigned term = 1; term < sizeof(c) / sizeof *(c); ++term) {                                   \
    EACH {                                                                                                                       \
      sums[i] = sums[i] * x[i] + (c)[term];                                                                                      \
    }                                                                                                                            \
  }

/* Calls AT(count, apart, row, column, cut) for all numbers of [rows][n]: `count` vectors whose rows are `apart` from each other.
 * Ends of four numbers are a separate case: a partly stored vector comes back from memory only, and the next product waits for
 * it. */
#define FOR_ROWS(SIDES, AT)                                                                                                      \
  do {                                                                                                                           \
    const int64_t whole_ = n / R(LANES) * R(LANES), end_ = n - whole_;                                                           \
    enum { TOGETHER_ = SIMD_BYTES / 16 }; /* rows whose ends share a vector */                                                   \
    const bool gathered_ = SIMD_BYTES >= 32 && sizeof(real) == 4 && end_ <= 4;                                                   \
    int64_t row_ = 0;                                                                                                            \
    for (; row_ + (SIDES) <= rows; row_ += (SIDES)) {                                                                            \
      for (int64_t j_ = 0; j_ < whole_; j_ += R(LANES)) {                                                                        \
        AT(SIDES, 1, row_, j_, ((R(cut)){0, 0}));                                                                                \
      }                                                                                                                          \
    }                                                                                                                            \
    for (; row_ < rows; ++row_) {                                                                                                \
      for (int64_t j_ = 0; j_ < whole_; j_ += R(LANES)) {                                                                        \
        AT(1, 1, row_, j_, ((R(cut)){0, 0}));                                                                                    \
      }                                                                                                                          \
    }                                                                                                                            \
    row_ = end_ > 0 ? 0 : rows;                                                                                                  \
    for (; gathered_ && end_ == 4 && row_ + TOGETHER_ * (SIDES) <= rows; row_ += TOGETHER_ * (SIDES)) {                          \
      AT(SIDES, TOGETHER_, row_, whole_, ((R(cut)){4, TOGETHER_}));                                                              \
    }                                                                                                                            \
    for (; gathered_ && row_ < rows; row_ += TOGETHER_) {                                                                        \
      AT(1, TOGETHER_, row_, whole_, ((R(cut)){end_, rows - row_ < TOGETHER_ ? rows - row_ : TOGETHER_}));                       \
    }                                                                                                                            \
    for (; row_ < rows; ++row_) {                                                                                                \
      AT(1, 1, row_, whole_, ((R(cut)){end_, 0}));                                                                               \
    }                                                                                                                            \
  } while (0)

#endif
