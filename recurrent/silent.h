/* Whether a difference may be dropped in front of a silent chunk (recurrent/parallel_backward.h), on every device. */
#ifndef BPPSA_RECURRENT_SILENT_H
#define BPPSA_RECURRENT_SILENT_H

#include <float.h>
#include <stdbool.h>

#include "core/base/host_device.h"

/* As bppsa_backward_silent; accept: the plan's. */
static inline BPPSA_HOST_DEVICE bool bppsa_silent_accepts(double accept, double size, double reach, double deltas) {
  const double worse = 1000;
  return deltas <= DBL_MAX && size * reach * worse <= accept * deltas; /* false for NaN, and where squares overflow */
}

#endif
