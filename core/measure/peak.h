/* The peak rates with which measurements are compared. */
#ifndef BPPSA_CORE_MEASURE_PEAK_H
#define BPPSA_CORE_MEASURE_PEAK_H

#include "core/compute/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  double flops;   /* FLOP/s of independent multiply-adds: on all host threads with the kernels in use, or on all of a GPU */
  double bytes;   /* bytes/s, read plus written, of a copy within a GPU's memory; 0 for a CPU, which is not measured */
  double written; /* bytes/s of writes alone; 0 for a CPU */
} bppsa_peak;

/* Measures now; the result is the best of several short runs that take about ten milliseconds together. dtype of the
 * multiply-adds: f32 or f64. A GPU's runs check their own results; they write and copy between two arrays of up to 1 GiB, but at
 * most a 256th of the free memory. ERR_MEMORY; ERR_CUDA, also for a wrong result. */
bppsa_status bppsa_peak_measure(const bppsa_device *device, bppsa_dtype dtype, bppsa_peak *peak);
/* FLOP/s of one such run on the device's host threads, about a millisecond. A measurement that takes many of them between the
 * passes it times has a peak of the same moments, whatever else the machine does. */
double bppsa_peak_burst(const bppsa_device *device, bppsa_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
