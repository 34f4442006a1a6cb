#include "calibrate/limits.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/compute/pool.h"
#include "core/measure/peak.h"

#define AREA ((int64_t)128 << 20) /* bytes */

/* A thread's share of the area, written past the caches. */
static void write_share(char *to, int64_t bytes) {
#if defined(__x86_64__)
  const __m128i ones = _mm_set1_epi32(1);
  for (int64_t i = 0; i + 16 <= bytes; i += 16) {
    _mm_stream_si128((__m128i *)(void *)(to + i), ones);
  }
  _mm_sfence();
#else
  memset(to, 1, (size_t)bytes);
#endif
}

typedef struct {
  char *area;
  int64_t share; /* bytes of a thread */
  bool copy;
} traffic;

static void move_shares(const void *context, int32_t worker, int64_t first, int64_t end) {
  const traffic *t = context;
  (void)worker;
  for (int64_t i = first; i < end; ++i) {
    char *mine = t->area + i * t->share;
    if (t->copy) {
      memcpy(mine, mine + t->share / 2, (size_t)(t->share / 2));
    } else {
      write_share(mine, t->share);
    }
  }
}

/* The best of many runs: threads that have just been woken may share a core for a tenth of a second. */
static double best_rate(char *area, int32_t threads, bool copy) {
  const double begun = bppsa_now(), long_enough = 0.25; /* s */
  double best = 0;
  const traffic t = {area, AREA / threads / 128 * 128, copy};
  for (int run = 0; run < 7 || bppsa_now() - begun < long_enough; ++run) {
    const double start = bppsa_now();
    bppsa_parallel_for(threads, threads, (double)INFINITY, move_shares, &t);
    const double rate = (double)(t.share * threads) / (bppsa_now() - start); /* a copy reads one half and writes the other */
    best = rate > best ? rate : best;
  }
  return best;
}

bppsa_status bppsa_machine_limits_measure(const bppsa_device *device, bppsa_machine_limits *limits) {
  if (bppsa_device_get_kind(device) == BPPSA_CUDA) {
    bppsa_peak gpu = {0};
    BPPSA_TRY(bppsa_peak_measure(device, BPPSA_F32, &gpu));
    *limits = (bppsa_machine_limits){.peak = gpu.flops, .write_bytes = gpu.written, .copy_bytes = gpu.bytes};
    return BPPSA_OK;
  }
  char *area = bppsa_alloc((size_t)AREA);
  if (area == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  memset(area, 0, (size_t)AREA);
  const int32_t threads = bppsa_device_get_threads(device);
  bppsa_peak peak = {0};
  const bppsa_status status = bppsa_peak_measure(device, BPPSA_F32, &peak);
  limits->write_bytes = best_rate(area, threads, false);
  limits->copy_bytes = best_rate(area, threads, true);
  limits->peak = peak.flops;
  bppsa_free(area);
  return status;
}
