#include "jacobian/kernels.h"

#include "core/compute/simd.h"

const bppsa_jacobian_kernels *bppsa_jacobian_kernels_get(void) {
  static const bppsa_jacobian_kernels *const tables[BPPSA_SIMD_ISAS] = {
    [BPPSA_SIMD_PORTABLE] = &bppsa_jacobian_portable,
#if defined(__x86_64__)
    [BPPSA_SIMD_AVX2] = &bppsa_jacobian_avx2,
    [BPPSA_SIMD_AVX512] = &bppsa_jacobian_avx512,
#endif
  };
  return tables[bppsa_simd_get()->isa];
}
