/* Predicts the time of the gradients between a network's layers, by BP and by the scan, and makes the choice of `auto`. */
#ifndef BPPSA_CNN_CHOOSE_H
#define BPPSA_CNN_CHOOSE_H

#include "cnn/cnn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Predicted seconds of g_{n-1} .. g_1 (and g_0 with input gradients) for the whole batch. The gradients of weights and those of
 * the head are left out, because every method computes them in the same way. Only ratios are meaningful: on a CPU the numbers are
 * for one thread. */
typedef struct {
  double bp;   /* the operators' own backward passes */
  double scan; /* the linear scan over CSR: Jacobians' values and mat-vecs */
} bppsa_cnn_seconds;

/* masks[i]: a byte for each weight of layer i, 0 where it is masked; NULL: all weights are kept; masks NULL: no layer has a mask.
 * Uses the configuration's batch, dtype and input_gradients. Allocates nothing of a Jacobian's size. Errors of bppsa_op_count. */
bppsa_status bppsa_cnn_predict(const bppsa_cnn_network *network, const uint8_t *const *masks, const bppsa_cnn_config *config,
                               const bppsa_device *device, bppsa_cnn_seconds *seconds);

/* The method that backward = AUTO means, given these seconds: BP, or the linear scan. */
bppsa_gradient_method bppsa_cnn_choose(const bppsa_cnn_seconds *seconds);

#ifdef __cplusplus
}
#endif
#endif
