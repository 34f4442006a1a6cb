/* The peak a measurement can be held against. */
#ifndef BPPSA_CORE_PEAK_H
#define BPPSA_CORE_PEAK_H

#include "core/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* FLOP/s of independent multiply-adds on all host threads of the device with the kernels in use, measured now: the best of several short
 * runs, some ten milliseconds together. dtype f32 or f64. */
double bppsa_peak_measure(const bppsa_device *device, bppsa_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
