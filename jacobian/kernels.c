#include "jacobian/kernels.h"

#include <string.h>

#include "core/simd.h"

const bppsa_jacobian_kernels *bppsa_jacobian_kernels_get(void) {
#if defined(__x86_64__)
  const char *name = bppsa_simd_get()->name;
  if (strcmp(name, "avx512") == 0) {
    return &bppsa_jacobian_avx512;
  }
  if (strcmp(name, "avx2") == 0) {
    return &bppsa_jacobian_avx2;
  }
#endif
  return &bppsa_jacobian_portable;
}
