/* Mat-vecs y_b = A_b x_b on any device, planned once. On a GPU the plan holds a copy of the pattern in the GPU's memory. */
#ifndef BPPSA_JACOBIAN_APPLY_H
#define BPPSA_JACOBIAN_APPLY_H

#include "core/compute/device.h"
#include "jacobian/csr.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bppsa_apply bppsa_apply;

/* The pattern is borrowed and must outlive the plan. It must have its columns or be the identity. dtype f32 or f64.
 * ERR_UNSUPPORTED: another dtype, on a GPU ones beside entries (csr.h), or more rows than a launch has blocks for; ERR_MEMORY
 * with the bytes; ERR_CUDA. */
bppsa_status bppsa_apply_create(const bppsa_csr *csr, bppsa_dtype dtype, const bppsa_device *device, bppsa_apply **apply);
void bppsa_apply_destroy(bppsa_apply *apply); /* NULL is legal */
/* Bytes of GPU memory that a plan for this device holds; 0 on a CPU. */
int64_t bppsa_apply_bytes(const bppsa_csr *csr, const bppsa_device *device);

/* Seconds that the cost model expects of a mat-vec on a GPU, one of `together` that are queued together, for `batch` samples, each
 * with values of its own. */
double bppsa_apply_gpu_seconds(const bppsa_csr *csr, bppsa_dtype dtype, int64_t batch, int64_t together);

/* x [batch][cols], y [batch][rows]. For an identity y = x, and values are not read. On a CPU a row is summed in the order of its
 * entries; on a GPU up to 32 threads each sum their entries in order, and their sums are added in a fixed order. ERR_ARGUMENT: a
 * negative batch; ERR_CUDA. */
bppsa_status bppsa_apply_execute(const bppsa_apply *apply, int64_t batch, bppsa_csr_values values, const void *x, void *y);

typedef struct {
  const bppsa_apply *apply;
  bppsa_csr_values values;
  const void *x;
  void *y;
} bppsa_apply_pass;

/* Computes several mat-vecs that do not depend on each other, with plans of one dtype for one device. On a GPU they share
 * launches and are queued on `stream`; on a CPU `stream` is ignored. ERR_ARGUMENT, also: plans of differing dtypes or devices. */
bppsa_status bppsa_apply_queue(const bppsa_apply_pass *passes, int64_t count, int64_t batch, void *stream);

#ifdef __cplusplus
}
#endif
#endif
