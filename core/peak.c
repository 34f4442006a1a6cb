#include "core/peak.h"

#include <omp.h>
#include <time.h>

#include "core/peak_internal.h"
#include "core/simd.h"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of one run, the slowest thread's; *flops of all threads. */
static double run(int32_t threads, bppsa_dtype dtype, int64_t rounds, int64_t *flops) {
  double slowest = 0;
  int64_t sum = 0;
#pragma omp parallel num_threads(threads) reduction(max : slowest) reduction(+ : sum)
  {
    float single = 1;
    double wide = 1;
#pragma omp barrier
    const double start = now();
    sum = dtype == BPPSA_F32 ? bppsa_simd_get()->f32.multiply_adds(rounds, &single)
                             : bppsa_simd_get()->f64.multiply_adds(rounds, &wide);
    slowest = now() - start;
  }
  *flops = sum;
  return slowest;
}

bppsa_status bppsa_peak_measure(const bppsa_device *device, bppsa_dtype dtype, bppsa_peak *peak) {
  enum { RUNS = 9, ROUNDS = 100000 };
  if (bppsa_device_get_kind(device) == BPPSA_CUDA) {
    return bppsa_peak_cuda(device, dtype, peak);
  }
  bppsa_peak best = {0};
  for (int i = 0; i < RUNS; ++i) {
    int64_t flops;
    const double seconds = run(bppsa_device_get_threads(device), dtype, ROUNDS, &flops), rate = (double)flops / seconds;
    best.flops = rate > best.flops ? rate : best.flops;
  }
  *peak = best;
  return BPPSA_OK;
}
