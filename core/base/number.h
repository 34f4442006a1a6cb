/* Elements of arrays of any dtype, one by one, as files have them: nothing computes with most of these types. Views are contiguous
 * and in host memory. */
#ifndef BPPSA_CORE_BASE_NUMBER_H
#define BPPSA_CORE_BASE_NUMBER_H

#include "core/base/view.h"

/* The number at flat index i, a bool as 0 or 1. False: a 64-bit integer that no double is equal to, or no known dtype; *value is
 * then the nearest double, or 0. */
bool bppsa_number_real(const bppsa_view *view, int64_t i, double *value);
/* The same for arrays of integers and bools; false: another dtype, or a number above the largest of int64. */
bool bppsa_number_whole(const bppsa_view *view, int64_t i, int64_t *value);
/* Is the number another one than 0 (and -0)? True for NaN. */
bool bppsa_number_set(const bppsa_view *view, int64_t i);

/* Turns an array of any dtype into one of f32 or f64 with the same numbers (owned, bppsa_free), for a reader of `where`.
 * ERR_FORMAT: a number that `dtype` does not hold, with its place; a dtype without numbers. ERR_MEMORY. */
bppsa_status bppsa_number_convert(const char *where, const bppsa_view *view, bppsa_dtype dtype, void **data);

/* Reverses the bytes of every element. */
void bppsa_number_swap(const bppsa_view *view);
/* Copies an array whose first index runs fastest (Fortran order) into C order (owned, bppsa_free). ERR_MEMORY. */
bppsa_status bppsa_number_reorder(const bppsa_view *view, void **data);

#endif
