/* The linear scan of a recurrent layer's elements in chunks of time at once, on a CPU: what a layer whose backward pass is
 * speculative (recurrent/parallel_backward.h) has for its walks along a direction, with time and against it. Internal.
 *
 * Every chunk is walked from W steps beyond its boundary, from what is injected there alone. The end of its neighbour then shows by
 * how much the state at the boundary was wrong. A difference up to `accept` times the mean |state|_inf of the chunk, or of its
 * first 8 steps if that is less, is dropped, sample by sample; a larger one walks through the chunk and is added, because the
 * recurrence is linear. That may change the chunk's end, so that the next boundary is compared again: all chunks at once for so
 * many rounds as the plan has, then one behind the other. Numbers that are not finite are left to the linear scan. Bits do not
 * depend on the number of threads. */
#ifndef BPPSA_RECURRENT_SPECULATE_SCAN_H
#define BPPSA_RECURRENT_SPECULATE_SCAN_H

#include "recurrent/parallel_backward.h"
#include "scan/scan.h"

/* Makes the executor of a linear plan of recurrent or pair elements, which is affine and wants g_0. speculation: chunks, warm-up,
 * rounds and tolerance. forward: whether the operands of all executions go with time. ERR_MEMORY. */
bppsa_status bppsa_speculative_scan_create(const bppsa_scan_plan *plan, const bppsa_backward_plan *speculation, bool forward,
                                           const bppsa_device *device, bppsa_scan_executor **executor);

#endif
