#include "core/compute/accumulate.h"

#include "core/compute/accumulate_internal.h"

bppsa_status bppsa_accumulate(const bppsa_device *device, bppsa_dtype dtype, int64_t count, const void *from, void *to) {
  BPPSA_REQUIRE(count <= 0 || (from != NULL && to != NULL));
  if (dtype != BPPSA_F32 && dtype != BPPSA_F64) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "sum of arrays: dtype %s, expected f32 or f64", bppsa_dtype_name(dtype));
  }
  if (device != NULL && bppsa_device_get_kind(device) == BPPSA_CUDA) {
    return count > 0 ? bppsa_accumulate_queue(device, dtype, count, from, to) : BPPSA_OK;
  }
  for (int64_t i = 0; i < count; ++i) {
    if (dtype == BPPSA_F32) {
      ((float *)to)[i] += ((const float *)from)[i];
    } else {
      ((double *)to)[i] += ((const double *)from)[i];
    }
  }
  return BPPSA_OK;
}
