/* How far results lie from a reference, in units of rounding errors. */
#ifndef BPPSA_CORE_MEASURE_RESIDUAL_H
#define BPPSA_CORE_MEASURE_RESIDUAL_H

#include "core/base/view.h"

#define BPPSA_RESIDUAL_BOUND 30.0 /* results with a smaller residual are right */

/* The residual of one tensor against a reference in float64 of as many values: ‖found - ref‖ / (‖ref‖·ε·√steps).
 * ε is that of the tensor's dtype, `steps` the length of the chain of products that the values come from. Where ‖ref‖ is
 * below (smallest normal number)/ε, it is ‖found - ref‖ / (smallest normal number · √steps). Infinite where a value is not
 * finite. */
double bppsa_residual(const bppsa_view *found, const double *reference, int64_t steps);
/* The larger of two residuals; NaN where one of them is. */
double bppsa_residual_worse(double a, double b);
/* The smallest normal number of a dtype. */
double bppsa_smallest_normal(bppsa_dtype dtype);

#endif
