/* Names that appear in results, and what the algorithms round, in builds with cuDNN and without. */
#include "bench/rivals/rnn_cudnn.h"

typedef enum { EXACT = 0, TF32, BF16 } precision;

#define NAMES(name)                                                                                                              \
  { name, name "_packed" }
static const struct {
  const char *names[2]; /* of padded data, of packed data */
  precision of;
  double rounding;
} algorithms[BPPSA_CUDNN_PACKED] = {{NAMES("standard"), EXACT, 1},
                                    {NAMES("persist_static"), EXACT, 32},
                                    {NAMES("persist_dynamic"), EXACT, 32},
                                    {NAMES("persist_static_small_h"), EXACT, 32},
                                    {NAMES("standard_tf32"), TF32, 8192},
                                    {NAMES("persist_static_small_h_tf32"), TF32, 8192},
                                    {NAMES("standard_bf16"), BF16, 65536},
                                    {NAMES("persist_static_bf16"), BF16, 65536},
                                    {NAMES("persist_dynamic_bf16"), BF16, 65536},
                                    {NAMES("persist_static_small_h_bf16"), BF16, 65536}};

const char *bppsa_cudnn_algorithm_name(bppsa_cudnn_algorithm algorithm) {
  return algorithms[algorithm % BPPSA_CUDNN_PACKED].names[algorithm / BPPSA_CUDNN_PACKED];
}

bool bppsa_cudnn_exact(bppsa_cudnn_algorithm algorithm) {
  return algorithms[algorithm % BPPSA_CUDNN_PACKED].of == EXACT;
}

bool bppsa_cudnn_bf16(bppsa_cudnn_algorithm algorithm) {
  return algorithms[algorithm % BPPSA_CUDNN_PACKED].of == BF16;
}

double bppsa_cudnn_rounding(bppsa_cudnn_algorithm algorithm, bppsa_dtype dtype) {
  return dtype == BPPSA_F32 ? algorithms[algorithm % BPPSA_CUDNN_PACKED].rounding : 1;
}
