/* The report of the parallel backward pass on a GPU: what was done with the samples, and the decision about pauses. */
#ifndef BPPSA_RECURRENT_GPU_SPECULATE_BACK_REPORT_CUH
#define BPPSA_RECURRENT_GPU_SPECULATE_BACK_REPORT_CUH

#include "recurrent/gpu/speculate_back_decide.cuh"
#include "recurrent/pause.h"

/* Adds what was done with sample b to the sums of the pass, a warp together: a lane has every 32nd chunk. */
template <typename real>
__device__ __forceinline__ void back_sum_sample(const layer_arrays<real> &c, const back_arrays<real> &s, const back_sample &o,
                                                bool first) {
  back_sums *sums = &s.report->sums;
  double gap = 0, dropped = 0, all = 0;
  int64_t steps = 0;
  int mended = 0, compared = 0;
  for (int p = o.lane; p < o.chunks; p += WARP_LANES) {
    const back_chunk *f = back_found(c, s, o, p);
    steps += f->work;
    mended += f->mended;
    compared += f->compared;
    gap = f->dropped > 0 && f->dropped / f->scale > gap ? f->dropped / f->scale : gap;
    dropped += f->dropped + f->stopped;
    all += f->sum + f->added;
  }
  steps = warp_sum(steps);
  mended = warp_sum(mended);
  compared = warp_sum(compared);
  gap = warp_largest(gap);
  dropped = warp_sum(dropped);
  all = warp_sum(all);
  const bool scans = o.given_up && s.fallen != NULL;
  const int64_t path = (first ? 0 : s.paths[o.b]) + o.path + (scans ? s.scan.path : 0);
  const double changed = dropped > 0 ? dropped / all : 0;
  __syncwarp(); /* all lanes have read */
  if (o.lane == 0) {
    s.paths[o.b] = path;
    (void)atomicAdd(&sums->steps, (unsigned long long)(steps + (scans ? s.scan.steps : o.given_up ? (int64_t)o.length : 0)));
    (void)atomicAdd(&sums->rows, (unsigned long long)o.length);
    (void)atomicAdd(&sums->mended, (unsigned long long)mended);
    (void)atomicAdd(&sums->given_up, o.given_up ? 1ull : 0ull);
    (void)atomicAdd(&sums->compared, (unsigned long long)compared);
    (void)atomicAdd(&sums->early, (unsigned long long)o.early);
    (void)atomicMax(&sums->longest, (long long)o.longest);
    (void)atomicMax(&sums->path, (long long)path);
    (void)atomicMax(&sums->rounds, (long long)o.rounds);
    if (!o.given_up) {
      (void)atomicMax(&sums->gap, (long long)__double_as_longlong(gap));
      (void)atomicMax(&sums->perturbation, (long long)__double_as_longlong(changed));
    }
  }
}

/* A warp adds what it knows of sample b to the report. The last warp of the last layer completes it, and decides about pauses. */
template <typename real>
__device__ __forceinline__ void back_tell(const layer_arrays<real> &c, const back_arrays<real> &s, const back_sample &o,
                                          bool first, bool last) {
  back_report *r = s.report;
  if (!o.idle) {
    back_sum_sample(c, s, o, first);
  }
  if (o.lane != 0) {
    return;
  }
  if (s.fallen != NULL) {
    s.fallen[1 + o.b] = o.idle || o.given_up;
    (void)atomicAdd(&r->sums.fallen, o.idle || o.given_up ? 1ull : 0ull);
  }
  __threadfence(); /* others see this sample's numbers in the sums before they see that it is counted */
  if (atomicAdd(&r->sums.samples, 1ull) + 1 < (unsigned long long)c.batch) {
    return;
  }
  __threadfence(); /* this warp sees the numbers of all samples that are counted */
  r->sums.samples = 0;
  if (s.fallen != NULL) {
    s.fallen[0] = (int)((const volatile back_sums *)&r->sums)->fallen;
    r->sums.fallen = 0;
  }
  if (!last) {
    return;
  }
  const volatile back_sums *sums = &r->sums;
  back_report report = {};
  report.state = r->state;
  report.misses = r->misses;
  if (o.idle) {
    report.state.pause.left -= report.misses == 0;
  } else {
    report.path = sums->path;
    report.rounds = sums->rounds;
    report.mended = (int64_t)sums->mended;
    report.given_up = (int64_t)sums->given_up;
    report.steps = (int64_t)sums->steps;
    report.rows = (int64_t)sums->rows;
    report.speculated = 1;
    report.gap = __longlong_as_double(sums->gap);
    report.perturbation = __longlong_as_double(sums->perturbation);
    const double work = (double)report.steps / (double)report.rows;
    report.state.pause = bppsa_forward_pause_end(
        report.given_up > 0 || bppsa_backward_pause_fails(s.cost, report.path, s.possible, work), report.state.pause);
    if (s.most_warm_up > 0 && report.given_up == 0) {
      report.state.warm_up =
          bppsa_backward_gpu_warm_up(report.state.warm_up > 0 ? report.state.warm_up : s.warm_up, s.most_warm_up,
                                     {(int64_t)sums->compared, (int64_t)sums->early, (int64_t)sums->longest});
    }
  }
  *r = report; /* with sums of 0 */
}

#endif
