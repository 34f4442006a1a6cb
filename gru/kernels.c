#include "gru/kernels.h"

#include "core/compute/simd.h"

const bppsa_gru_kernels *bppsa_gru_kernels_get(void) {
  static const bppsa_gru_kernels *const tables[BPPSA_SIMD_ISAS] = {
    [BPPSA_SIMD_PORTABLE] = &bppsa_gru_portable,
#if defined(__x86_64__)
    [BPPSA_SIMD_AVX2] = &bppsa_gru_avx2,
    [BPPSA_SIMD_AVX512] = &bppsa_gru_avx512,
#endif
  };
  return tables[bppsa_simd_get()->isa];
}
