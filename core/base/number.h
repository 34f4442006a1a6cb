/* Reads the elements of arrays of any dtype, one by one. Most of these types occur in files only; nothing computes with them.
 * Views are contiguous and in host memory. */
#ifndef BPPSA_CORE_BASE_NUMBER_H
#define BPPSA_CORE_BASE_NUMBER_H

#include "core/base/view.h"

/* Reads the number at flat index i, a bool as 0 or 1. Returns false where a 64-bit integer equals no double (*value is the nearest
 * one) and for an unknown dtype (*value is 0). */
bool bppsa_number_real(const bppsa_view *view, int64_t i, double *value);
/* The same for arrays of integers and bools; false: another dtype, or a number above the largest of int64. */
bool bppsa_number_whole(const bppsa_view *view, int64_t i, int64_t *value);
/* Is the number different from 0 (and -0)? True for NaN. */
bool bppsa_number_set(const bppsa_view *view, int64_t i);

/* Turns an array of any dtype into one of f32 or f64 with the same numbers (owned, bppsa_free), for a reader of `where`.
 * ERR_FORMAT: a number that `dtype` does not hold, with its place; a dtype without numbers. ERR_MEMORY. */
bppsa_status bppsa_number_convert(const char *where, const bppsa_view *view, bppsa_dtype dtype, void **data);

/* Reverses the bytes of every element. */
void bppsa_number_swap(const bppsa_view *view);
/* Copies an array whose first index runs fastest (Fortran order) into C order (owned, bppsa_free). ERR_MEMORY. */
bppsa_status bppsa_number_reorder(const bppsa_view *view, void **data);

#endif
