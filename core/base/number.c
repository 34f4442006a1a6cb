#include "core/base/number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/decimal.h"

/* IEEE 754 binary16: sign, 5 bits of exponent, 10 of fraction. */
static double half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size = exponent == 0    ? ldexp(fraction, -24)
                      : exponent == 31 ? (fraction == 0 ? (double)INFINITY : (double)NAN)
                                       : ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -size : size;
}

/* bfloat16: the upper half of a float. */
static double upper_half(uint16_t bits) {
  const uint32_t whole = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &whole, sizeof value);
  return (double)value;
}

bool bppsa_number_whole(const bppsa_view *view, int64_t i, int64_t *value) {
  switch (view->dtype) {
  case BPPSA_I64:
    *value = ((const int64_t *)view->data)[i];
    return true;
  case BPPSA_I32:
    *value = ((const int32_t *)view->data)[i];
    return true;
  case BPPSA_I16:
    *value = ((const int16_t *)view->data)[i];
    return true;
  case BPPSA_I8:
    *value = ((const int8_t *)view->data)[i];
    return true;
  case BPPSA_U8:
    *value = ((const uint8_t *)view->data)[i];
    return true;
  case BPPSA_BOOL:
    *value = ((const uint8_t *)view->data)[i] != 0;
    return true;
  case BPPSA_U16:
    *value = ((const uint16_t *)view->data)[i];
    return true;
  case BPPSA_U32:
    *value = ((const uint32_t *)view->data)[i];
    return true;
  case BPPSA_U64:
    *value = (int64_t)(((const uint64_t *)view->data)[i] & INT64_MAX);
    return ((const uint64_t *)view->data)[i] <= INT64_MAX;
  default:
    return false;
  }
}

bool bppsa_number_real(const bppsa_view *view, int64_t i, double *value) {
  int64_t whole = 0;
  switch (view->dtype) {
  case BPPSA_F32:
  case BPPSA_F64:
    *value = bppsa_view_get(view, i);
    return true;
  case BPPSA_F16:
    *value = half(((const uint16_t *)view->data)[i]);
    return true;
  case BPPSA_BF16:
    *value = upper_half(((const uint16_t *)view->data)[i]);
    return true;
  case BPPSA_U64:
    *value = (double)((const uint64_t *)view->data)[i];
    return *value < 0x1p64 && (uint64_t)*value == ((const uint64_t *)view->data)[i];
  default:
    if (!bppsa_number_whole(view, i, &whole)) {
      *value = 0;
      return false;
    }
    *value = (double)whole;
    return *value < 0x1p63 && (int64_t)*value == whole;
  }
}

bool bppsa_number_set(const bppsa_view *view, int64_t i) {
  double value;
  (void)bppsa_number_real(view, i, &value);
  return value != 0;
}

bppsa_status bppsa_number_convert(const char *where, const bppsa_view *view, bppsa_dtype dtype, void **data) {
  const int64_t count = bppsa_view_count(view);
  if (bppsa_dtype_size(view->dtype) == 0) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: dtype %s, expected numbers", where, bppsa_view_dtype_name(view));
  }
  bppsa_view made = bppsa_view_make(NULL, dtype, view->ndim, view->shape);
  made.data = bppsa_calloc(count, bppsa_dtype_size(dtype));
  if (made.data == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < count; ++i) {
    double value;
    const bool known = bppsa_number_real(view, i, &value);
    bppsa_view_set(&made, i, value);
    if (!known || (bppsa_view_get(&made, i) != value && !isnan(value))) {
      char position[BPPSA_SHAPE_TEXT], number[32];
      int64_t whole;
      if (bppsa_number_whole(view, i, &whole)) {
        snprintf(number, sizeof number, "%lld", (long long)whole);
      } else {
        bppsa_print(number, sizeof number, "%.17g", value);
      }
      bppsa_free(made.data);
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: %s %s at %s, expected a number that %s holds", where,
                        bppsa_dtype_name(view->dtype), number, bppsa_index_text(view, i, position, sizeof position),
                        bppsa_dtype_name(dtype));
    }
  }
  *data = made.data;
  return BPPSA_OK;
}

void bppsa_number_swap(const bppsa_view *view) {
  const size_t size = bppsa_dtype_size(view->dtype);
  const int64_t count = bppsa_view_count(view);
  char *element = view->data;
  for (int64_t i = 0; i < count; ++i, element += size) {
    for (size_t b = 0; b < size / 2; ++b) {
      const char low = element[b];
      element[b] = element[size - 1 - b];
      element[size - 1 - b] = low;
    }
  }
}

bppsa_status bppsa_number_reorder(const bppsa_view *view, void **data) {
  const size_t size = bppsa_dtype_size(view->dtype);
  const int64_t count = bppsa_view_count(view);
  int64_t index[BPPSA_MAX_DIMS] = {0};
  char *made = bppsa_calloc(count, size);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < count; ++i) { /* in the file the first index runs fastest */
    int64_t at = 0;
    for (int32_t d = 0; d < view->ndim; ++d) {
      at += index[d] * view->strides[d];
    }
    memcpy(made + (size_t)at * size, (const char *)view->data + (size_t)i * size, size);
    for (int32_t d = 0; d < view->ndim && ++index[d] == view->shape[d]; ++d) {
      index[d] = 0;
    }
  }
  *data = made;
  return BPPSA_OK;
}
