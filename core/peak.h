/* The ceilings a measurement can be held against. */
#ifndef BPPSA_CORE_PEAK_H
#define BPPSA_CORE_PEAK_H

#include "core/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  double flops;   /* FLOP/s of independent multiply-adds: on all host threads with the kernels in use, or on all of a GPU */
  double bytes;   /* bytes/s, read plus written, of a copy within a GPU's memory; 0 for a CPU, whose copies are not measured */
  double written; /* bytes/s of writes alone, likewise */
} bppsa_peak;

/* Measured now, the best of several short runs, some ten milliseconds together. dtype f32 or f64: of the multiply-adds. A GPU's
 * runs check their own results, and write and copy between two arrays of up to 1 GiB, a 256th of the memory nobody holds.
 * ERR_MEMORY; ERR_CUDA, also: a wrong result. */
bppsa_status bppsa_peak_measure(const bppsa_device *device, bppsa_dtype dtype, bppsa_peak *peak);

#ifdef __cplusplus
}
#endif
#endif
