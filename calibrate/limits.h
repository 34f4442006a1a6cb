/* What a machine can do at best: the floor of a pass is the larger of its FLOPs over the peak and its bytes over the bandwidth. */
#ifndef BPPSA_CALIBRATE_LIMITS_H
#define BPPSA_CALIBRATE_LIMITS_H

#include "core/compute/device.h"

typedef struct {
  double peak;                    /* FLOP/s of independent multiply-adds in f32 */
  double write_bytes, copy_bytes; /* bytes/s: written past the caches; read and written */
} bppsa_machine_limits;

/* Measures them on all threads of the device, or on a GPU (core/measure/peak.h); the best of several runs. ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_machine_limits_measure(const bppsa_device *device, bppsa_machine_limits *limits);

#endif
