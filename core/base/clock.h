/* The clock: seconds of monotonic time. */
#ifndef BPPSA_CORE_BASE_CLOCK_H
#define BPPSA_CORE_BASE_CLOCK_H

#include <time.h>

/* Seconds since some fixed moment; only differences have a meaning. */
static inline double bppsa_now(void) {
  struct timespec time;
  (void)clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

#endif
