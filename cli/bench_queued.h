/* Timing of work that a GPU takes into its queue. */
#ifndef BPPSA_CLI_BENCH_QUEUED_H
#define BPPSA_CLI_BENCH_QUEUED_H

#include "cli/bench_sparse.h"

/* As bppsa_bench_time, of what `action` queues on a GPU: it is recorded between two marks and replayed, and the times are the queue's, so that no
 * launch waits for the host within one. ERR_MEMORY, ERR_CUDA, also: the work cannot be recorded. */
bppsa_status bppsa_bench_time_queued(const bppsa_device *device, bppsa_status (*action)(void *context), void *context,
                                     int64_t repeats, double budget_s, bppsa_timing *timing);

#endif
