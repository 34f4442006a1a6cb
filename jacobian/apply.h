/* Mat-vecs y_b = A_b x_b on any device, planned once: on a GPU a plan holds the pattern in its memory. */
#ifndef BPPSA_JACOBIAN_APPLY_H
#define BPPSA_JACOBIAN_APPLY_H

#include "core/device.h"
#include "jacobian/csr.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bppsa_apply bppsa_apply;

/* The pattern is borrowed and must outlive the plan; it has its columns, or is the identity. dtype f32 or f64. ERR_UNSUPPORTED:
 * another dtype, or more rows than a launch has blocks for; ERR_MEMORY with the bytes; ERR_CUDA. */
bppsa_status bppsa_apply_create(const bppsa_csr *csr, bppsa_dtype dtype, const bppsa_device *device, bppsa_apply **apply);
void bppsa_apply_destroy(bppsa_apply *apply); /* NULL is legal */
/* Bytes of GPU memory that a plan for such a device holds; 0 for a processor. */
int64_t bppsa_apply_bytes(const bppsa_csr *csr, const bppsa_device *device);

/* x [batch][cols], y [batch][rows]. An identity's values are not looked at: y = x. On a processor a row is summed in the order of
 * its entries; on a GPU by up to 32 threads, each in the order of its entries, whose sums are added in a fixed order.
 * ERR_ARGUMENT: a negative batch; ERR_CUDA. */
bppsa_status bppsa_apply_execute(const bppsa_apply *apply, int64_t batch, bppsa_csr_values values, const void *x, void *y);

typedef struct {
  const bppsa_apply *apply;
  bppsa_csr_values values;
  const void *x;
  void *y;
} bppsa_apply_pass;

/* Several mat-vecs of plans of one dtype for one device, none of which needs another's result: on a GPU they share launches. They
 * are queued on `stream` of the GPU; a processor has none. ERR_ARGUMENT, also: plans of differing dtypes or devices. */
bppsa_status bppsa_apply_queue(const bppsa_apply_pass *passes, int64_t count, int64_t batch, void *stream);

#ifdef __cplusplus
}
#endif
#endif
