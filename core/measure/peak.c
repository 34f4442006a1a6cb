#include "core/measure/peak.h"

#include <math.h>
#include <stdatomic.h>

#include "core/base/clock.h"
#include "core/compute/pool.h"
#include "core/compute/simd.h"
#include "core/measure/peak_internal.h"

typedef struct {
  bppsa_dtype dtype;
  int64_t rounds;
  atomic_int_least64_t *flops; /* of all threads */
} burst;

/* One run on each thread. */
static void run_some(const void *context, int32_t worker, int64_t first, int64_t end) {
  const burst *b = context;
  (void)worker;
  for (int64_t i = first; i < end; ++i) {
    float single = 1;
    double wide = 1;
    atomic_fetch_add(b->flops, b->dtype == BPPSA_F32 ? bppsa_simd_get()->f32.multiply_adds(b->rounds, &single)
                                                     : bppsa_simd_get()->f64.multiply_adds(b->rounds, &wide));
  }
}

/* Seconds of one run on every thread; *flops: of all threads. */
static double run(int32_t threads, bppsa_dtype dtype, int64_t rounds, int64_t *flops) {
  atomic_int_least64_t sum = 0;
  const double start = bppsa_now();
  bppsa_parallel_for(threads, threads, (double)INFINITY, run_some, &(burst){dtype, rounds, &sum});
  const double seconds = bppsa_now() - start;
  *flops = atomic_load(&sum);
  return seconds;
}

double bppsa_peak_burst(const bppsa_device *device, bppsa_dtype dtype) {
  enum { ROUNDS = 100000 };
  int64_t flops;
  const double seconds = run(bppsa_device_get_threads(device), dtype, ROUNDS, &flops);
  return (double)flops / seconds;
}

bppsa_status bppsa_peak_measure(const bppsa_device *device, bppsa_dtype dtype, bppsa_peak *peak) {
  enum { RUNS = 9 };
  if (bppsa_device_get_kind(device) == BPPSA_CUDA) {
    return bppsa_peak_cuda(device, dtype, peak);
  }
  bppsa_peak best = {0};
  for (int i = 0; i < RUNS; ++i) {
    const double rate = bppsa_peak_burst(device, dtype);
    best.flops = rate > best.flops ? rate : best.flops;
  }
  *peak = best;
  return BPPSA_OK;
}
