/* Subnormal numbers are treated as zero inside the compute kernels.
 *
 * Gradients of long sequences vanish: with default weights most of them pass through the subnormal range, and many stay at its
 * lower end, because rounding to nearest keeps 0.75 of the smallest number at the smallest number. A processor takes about a
 * hundred cycles for each such operand. A sum loses at most the smallest normal number (1.2e-38 in f32), which is also the unit of
 * the smallest results that are compared. Threads set the mode when they enter a parallel loop of the library and restore it when
 * they leave.
 */
#ifndef BPPSA_CORE_COMPUTE_FLUSH_H
#define BPPSA_CORE_COMPUTE_FLUSH_H

#if defined(__x86_64__)
#include <xmmintrin.h>

/* Switches flush-to-zero and denormals-are-zero on; returns the mode to restore. */
static inline unsigned bppsa_flush_begin(void) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040u);
  return before;
}

static inline void bppsa_flush_end(unsigned before) {
  _mm_setcsr(before);
}
#else
static inline unsigned bppsa_flush_begin(void) {
  return 0;
}

static inline void bppsa_flush_end(unsigned before) {
  (void)before;
}
#endif

#endif
