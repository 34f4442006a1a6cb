/* Large biases in two parts, far + near: a whole number, and what is left, at most 1/2. Where a sum of products begins with a bias
 * of 80, each of its roundings is one of a number near 80, and the sum's own digits are lost. So the sum begins with the near part,
 * and the far part is added at the end, where what that rounds off can be kept. Most biases are small, and have no far part. */
#ifndef BPPSA_CORE_COMPUTE_FAR_BIAS_H
#define BPPSA_CORE_COMPUTE_FAR_BIAS_H

#include <math.h>

#include "core/base/host_device.h"

/* Below this size a bias rounds its sum by no more than half a unit of 2, which leaves gradients their 1e-6 in f32; the forget
 * biases of 1 and 2 with which many LSTMs begin are below it. */
#define BPPSA_LEAST_FAR 2.5

/* 0 where there is no far part; so it is from 2^20 on, and of what is no number. */
static BPPSA_HOST_DEVICE inline double bppsa_far_bias(double bias) {
  const double size = fabs(bias);
  return size >= BPPSA_LEAST_FAR && size < 0x1p20 ? rint(bias) : 0;
}

#ifdef __cplusplus
/* The near part. Most kernels are given biases without far parts, and then compute nothing in float64. */
template <typename real> BPPSA_HOST_DEVICE inline real bppsa_near_bias(real bias) {
  return fabs(bias) >= (real)BPPSA_LEAST_FAR ? bias - (real)bppsa_far_bias(bias) : bias;
}
#endif

#endif
