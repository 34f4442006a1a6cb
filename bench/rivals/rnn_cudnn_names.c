/* Names that appear in results, in builds with cuDNN and without. */
#include "bench/rivals/rnn_cudnn.h"

const char *bppsa_cudnn_algorithm_name(bppsa_cudnn_algorithm algorithm) {
  static const char *const names[BPPSA_CUDNN_ALGORITHMS] = {"standard",
                                                            "persist_static",
                                                            "persist_dynamic",
                                                            "persist_static_small_h",
                                                            "standard_tf32",
                                                            "standard_packed",
                                                            "persist_static_packed",
                                                            "persist_dynamic_packed",
                                                            "persist_static_small_h_packed",
                                                            "standard_tf32_packed"};
  return names[algorithm];
}

bool bppsa_cudnn_exact(bppsa_cudnn_algorithm algorithm) {
  return algorithm % BPPSA_CUDNN_PACKED != BPPSA_CUDNN_STANDARD_TF32;
}

double bppsa_cudnn_rounding(bppsa_cudnn_algorithm algorithm, bppsa_dtype dtype) {
  static const double roundings[BPPSA_CUDNN_PACKED] = {1, 32, 32, 32, 8192};
  return dtype == BPPSA_F32 ? roundings[algorithm % BPPSA_CUDNN_PACKED] : 1;
}
