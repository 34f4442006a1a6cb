/* The functions of core/measure/peak.h for a GPU. */
#ifndef BPPSA_CORE_MEASURE_PEAK_INTERNAL_H
#define BPPSA_CORE_MEASURE_PEAK_INTERNAL_H

#include "core/measure/peak.h"

#ifdef __cplusplus
extern "C" {
#endif

bppsa_status bppsa_peak_cuda(const bppsa_device *device, bppsa_dtype dtype, bppsa_peak *peak);

#ifdef __cplusplus
}
#endif
#endif
