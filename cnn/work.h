/* The FLOPs of a network's backward pass by BP, counted from the operators' patterns (scan/work.h has the definition). */
#ifndef BPPSA_CNN_WORK_H
#define BPPSA_CNN_WORK_H

#include "cnn/network.h"
#include "scan/work.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  bppsa_work work;
  int64_t largest; /* FLOPs of its most expensive mat-vec except J_1ᵀ's, which is on no critical path */
} bppsa_cnn_bp_work;

/* FLOPs of the weight gradients of all operators but the head. own[i]: the pattern of layer i's own transposed Jacobian; NULL for a
 * layer of a graph that joins or splits tensors. */
double bppsa_cnn_flops_besides(const bppsa_cnn_network *network, const bppsa_csr *const *own);

/* Counts BP of one sample, for all layers but the head, from these patterns. What reaches a tensor by several ways is
 * added, and additions are not counted. Errors of bppsa_cnn_live_create and bppsa_scan_plan_create. */
bppsa_status bppsa_cnn_count_chain(const bppsa_cnn_network *network, const bppsa_csr *const *own, bool input,
                                   const bppsa_device *device, bppsa_cnn_bp_work *bp);
/* Counts BP of one sample. masks[i]: a byte for each weight of layer i, 0 where it is masked; NULL: all weights are kept; masks
 * NULL: no layer has a mask. input: the input's gradient is wanted. For layers without a mask it allocates nothing of a
 * Jacobian's size. ERR_MEMORY; errors of bppsa_jacobian_create. */
bppsa_status bppsa_cnn_count_bp(const bppsa_cnn_network *network, const uint8_t *const *masks, bool input,
                                const bppsa_device *device, bppsa_cnn_bp_work *bp);

#ifdef __cplusplus
}
#endif
#endif
