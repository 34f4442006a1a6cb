#include "core/measure/residual.h"

#include <float.h>
#include <math.h>

double bppsa_smallest_normal(bppsa_dtype dtype) {
  return dtype == BPPSA_F32 ? (double)FLT_MIN : DBL_MIN;
}

double bppsa_residual_worse(double a, double b) {
  return isnan(a) || b <= a ? a : b;
}

double bppsa_residual(const bppsa_view *found, const double *reference, int64_t steps) {
  const double tiny = bppsa_smallest_normal(found->dtype),
               epsilon = found->dtype == BPPSA_F32 ? (double)FLT_EPSILON : DBL_EPSILON;
  double difference = 0, norm = 0; /* hypot keeps squares of small numbers from vanishing */
  for (int64_t i = 0; i < bppsa_view_count(found); ++i) {
    difference = hypot(difference, bppsa_view_get(found, i) - reference[i]);
    norm = hypot(norm, reference[i]);
  }
  const double unit = norm < tiny / epsilon ? tiny : norm * epsilon;
  const double residual = difference / (unit * sqrt((double)steps));
  return isnan(residual) ? INFINITY : residual;
}
