/* Splits a large bias into far + near: a whole number, and a rest of at most 1/2. If a sum of products began with a bias of 80,
 * each of its roundings would be that of a number near 80, and the sum would lose its own digits. So the sum begins with the near
 * part, and the far part is added at the end, where its rounding error can be kept. Most biases are small and have no far part. */
#ifndef BPPSA_CORE_COMPUTE_FAR_BIAS_H
#define BPPSA_CORE_COMPUTE_FAR_BIAS_H

#include <math.h>

#include "core/base/host_device.h"

/* A bias below this size rounds its sum by no more than half a unit of 2, so that gradients are right to 1e-6 in f32. The forget
 * biases of 1 and 2 with which many LSTMs begin are below it. */
#define BPPSA_LEAST_FAR 2.5

/* The far part: 0 for small biases, for biases of 2^20 or more, and for NaN and infinities. */
static BPPSA_HOST_DEVICE inline double bppsa_far_bias(double bias) {
  const double size = fabs(bias);
  return size >= BPPSA_LEAST_FAR && size < 0x1p20 ? rint(bias) : 0;
}

#ifdef __cplusplus
/* The near part. In f32 nothing is computed in float64 for biases without a far part, which most are. */
template <typename real> BPPSA_HOST_DEVICE inline real bppsa_near_bias(real bias) {
  return fabs(bias) >= (real)BPPSA_LEAST_FAR ? bias - (real)bppsa_far_bias(bias) : bias;
}
#endif

#endif
