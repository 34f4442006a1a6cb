/* The inside of a mat-vec's plan. */
#ifndef BPPSA_JACOBIAN_APPLY_INTERNAL_H
#define BPPSA_JACOBIAN_APPLY_INTERNAL_H

#include "jacobian/apply.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most mat-vecs that share a launch. */
enum { APPLY_TOGETHER = 42 };

struct bppsa_apply {
  const bppsa_csr *csr;
  bppsa_dtype dtype;
  int32_t threads; /* on a CPU */
  bool on_gpu;
  int32_t index;    /* number of the GPU */
  void *stream;     /* stream of the device the plan was made for */
  int32_t lanes;    /* threads for each row, a power of two */
  int64_t *row_ptr; /* GPU memory, one allocation with the columns; NULL: the identity */
  int32_t *col;
};

/* Queues passes of plans of one dtype on one GPU; there is at least one. (apply_cuda.cu, or apply_nocuda.c in a build without
 * CUDA.) ERR_CUDA. */
bppsa_status bppsa_apply_cuda_run(const bppsa_apply_pass *passes, int64_t count, int64_t batch, void *stream);

#ifdef __cplusplus
}
#endif
#endif
