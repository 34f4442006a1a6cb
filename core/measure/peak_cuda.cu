/* Peak rates of a GPU: multiply-adds, writes to its memory and copies through it. Results are checked, and the best of several
 * runs counts. */
#include "core/base/alloc.h"
#include "core/compute/check.cuh"
#include "core/compute/memory.h"
#include "core/measure/peak_internal.h"
#include "core/measure/peak_kernels.cuh"
#include "core/measure/timeline.h"

namespace {

enum { THREADS = 256, BLOCKS_PER_PROCESSOR = 8, RUNS = 7, MOST_ROUNDS = 1 << 16 };
const int64_t MOST_BYTES = (int64_t)1 << 30; /* of one array: much larger than a second-level cache */
const double LONG_ENOUGH = 1e-3;             /* s; the time of a launch does not matter then */

struct session {
  const bppsa_device *device;
  cudaStream_t stream;
  bppsa_timeline *timeline; /* two marks */
  int blocks;
  int64_t bytes, lines; /* in each of the two arrays */
  peak_line *from, *to; /* one allocation; the count of wrong lines follows */
  unsigned long long *wrong;
};

/* Seconds of one launch of `work`. */
template <typename work> bppsa_status time_of(const session *s, work launch, double *seconds) {
  BPPSA_TRY(bppsa_timeline_mark(s->timeline, 0));
  launch();
  BPPSA_TRY(bppsa_cuda_check(cudaGetLastError(), "peak: launch"));
  BPPSA_TRY(bppsa_timeline_mark(s->timeline, 1));
  return bppsa_timeline_seconds(s->timeline, 0, 1, seconds);
}

/* The fixed point of each chain is term / (1 - factor) = 2, which rounding reaches exactly after many rounds. */
template <typename real> bppsa_status check_sums(const session *s) {
  const int64_t count = (int64_t)s->blocks * THREADS;
  real *sums = (real *)bppsa_calloc(count, sizeof *sums);
  if (sums == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_status status = bppsa_memory_get(s->device, sums, s->to, count * (int64_t)sizeof *sums);
  for (int64_t i = 0; status == BPPSA_OK && i < count; ++i) {
    if (sums[i] != (real)(2 * PEAK_CHAINS)) {
      status = bppsa_fail(BPPSA_ERR_CUDA, "peak: thread %lld's sums are %g, expected %d", (long long)i, (double)sums[i],
                          2 * PEAK_CHAINS);
    }
  }
  bppsa_free(sums);
  return status;
}

/* Increases the rounds until a run is long enough to time. */
template <typename real> bppsa_status measure_flops(const session *s, double *rate) {
  int64_t rounds = 8;
  double best = 0, seconds = 0;
  for (int run = 0; run < RUNS;) {
    BPPSA_TRY(time_of(
        s,
        [&]() {
          BPPSA_LAUNCH((bppsa_peak_multiply_adds<real>), s->blocks, THREADS, 0, s->stream, rounds, (real)0.5, (real)1,
                       (real *)(void *)s->to);
        },
        &seconds));
    if (seconds < LONG_ENOUGH && rounds < MOST_ROUNDS) {
      rounds *= 2;
      continue;
    }
    const double flops = 2.0 * PEAK_CHAINS * PEAK_UNROLL * (double)rounds * s->blocks * THREADS;
    best = seconds > 0 && flops / seconds > best ? flops / seconds : best;
    ++run;
  }
  *rate = best;
  return check_sums<real>(s);
}

bppsa_status measure_copy(const session *s, double *written, double *rate) {
  double best = 0, seconds = 0;
  unsigned long long wrong = 0;
  for (int run = 0; run < RUNS; ++run) {
    BPPSA_TRY(time_of(
        s, [&]() { BPPSA_LAUNCH(bppsa_peak_fill, s->blocks, THREADS, 0, s->stream, s->lines, s->from); }, &seconds));
    best = seconds > 0 && (double)s->bytes / seconds > best ? (double)s->bytes / seconds : best;
  }
  *written = best;
  best = 0;
  for (int run = 0; run < RUNS; ++run) {
    BPPSA_TRY(time_of(
        s,
        [&]() { BPPSA_LAUNCH(bppsa_peak_copy, s->blocks, THREADS, 0, s->stream, s->lines, (const peak_line *)s->from, s->to); },
        &seconds));
    best = seconds > 0 && 2 * (double)s->bytes / seconds > best ? 2 * (double)s->bytes / seconds : best;
  }
  BPPSA_TRY(bppsa_memory_clear(s->device, s->wrong, sizeof *s->wrong));
  BPPSA_LAUNCH(bppsa_peak_check, s->blocks, THREADS, 0, s->stream, s->lines, (const peak_line *)s->to, s->wrong);
  BPPSA_TRY(bppsa_cuda_check(cudaGetLastError(), "peak: launch"));
  BPPSA_TRY(bppsa_memory_get(s->device, &wrong, s->wrong, sizeof wrong));
  if (wrong > 0) {
    return bppsa_fail(BPPSA_ERR_CUDA, "peak: %llu of %lld lines copied are wrong, expected none", wrong, (long long)s->lines);
  }
  *rate = best;
  return BPPSA_OK;
}

/* Allocates a real for every thread, and arrays larger than any cache if there is memory. */
bppsa_status prepare(session *s) {
  cudaDeviceProp properties;
  int64_t available;
  void *memory;
  BPPSA_TRY(bppsa_cuda_check(cudaGetDeviceProperties(&properties, bppsa_device_get_index(s->device)), "peak"));
  BPPSA_TRY(bppsa_memory_available(s->device, &available));
  s->blocks = properties.multiProcessorCount * BLOCKS_PER_PROCESSOR;
  const int64_t least = (int64_t)s->blocks * THREADS * (int64_t)sizeof(double), share = available / 256;
  s->bytes = (share < least ? least : share > MOST_BYTES ? MOST_BYTES : share) / 256 * 256;
  s->lines = s->bytes / (int64_t)sizeof(peak_line);
  BPPSA_TRY(bppsa_timeline_create(s->device, 2, &s->timeline));
  BPPSA_TRY(bppsa_memory_alloc(s->device, 2 * s->bytes + (int64_t)sizeof *s->wrong, &memory));
  s->from = (peak_line *)memory;
  s->to = s->from + s->lines;
  s->wrong = (unsigned long long *)(void *)(s->to + s->lines);
  return BPPSA_OK;
}

} // namespace

extern "C" bppsa_status bppsa_peak_cuda(const bppsa_device *device, bppsa_dtype dtype, bppsa_peak *peak) {
  session s = {};
  bppsa_peak found = {};
  s.device = device;
  s.stream = (cudaStream_t)bppsa_device_get_stream(device);
  bppsa_status status = bppsa_cuda_check(cudaSetDevice(bppsa_device_get_index(device)), "peak");
  status = status == BPPSA_OK ? prepare(&s) : status;
  status = status == BPPSA_OK ? measure_copy(&s, &found.written, &found.bytes) : status;
  if (status == BPPSA_OK) {
    status = dtype == BPPSA_F32 ? measure_flops<float>(&s, &found.flops) : measure_flops<double>(&s, &found.flops);
  }
  bppsa_timeline_destroy(s.timeline);
  bppsa_memory_free(device, s.from);
  if (status == BPPSA_OK) {
    *peak = found;
  }
  return status;
}
