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
  int64_t largest; /* FLOPs of the most expensive of its mat-vecs, J_1ᵀ's left out, which no critical path has */
} bppsa_cnn_bp_work;

/* FLOPs of the gradients of weights of all operators but the head, over the patterns of their transposed Jacobians. */
double bppsa_cnn_flops_besides(const bppsa_cnn_network *network, const bppsa_csr *const *patterns);

/* BP of one sample over these patterns of the transposed Jacobians, of all layers but the head. ERR_* of bppsa_scan_plan_create. */
bppsa_status bppsa_cnn_count_chain(const bppsa_cnn_network *network, const bppsa_csr *const *patterns, bool input,
                                   const bppsa_device *device, bppsa_cnn_bp_work *bp);
/* BP of one sample. masks[i]: which weights of layer i are there, a byte each; NULL: all; masks NULL: all of every layer. input:
 * the input's gradient is wanted. Nothing of a Jacobian's size is made of layers without a mask. ERR_MEMORY, ERR_* of
 * bppsa_jacobian_create. */
bppsa_status bppsa_cnn_count_bp(const bppsa_cnn_network *network, const uint8_t *const *masks, bool input,
                                const bppsa_device *device, bppsa_cnn_bp_work *bp);

#ifdef __cplusplus
}
#endif
#endif
