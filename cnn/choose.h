/* What computing the gradients between a network's layers takes, BP beside the scan, and what `auto` makes of it. */
#ifndef BPPSA_CNN_CHOOSE_H
#define BPPSA_CNN_CHOOSE_H

#include "cnn/cnn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Predicted seconds of g_{n-1} .. g_1 (and g_0 with input gradients) for the whole batch. The gradients of weights and the
 * head's, which every method computes alike, are left out. Ratios are what is meant: of a processor it is one thread. */
typedef struct {
  double bp;   /* the operators' own backward passes */
  double scan; /* the linear scan over CSR: Jacobians' values and mat-vecs */
} bppsa_cnn_seconds;

/* masks[i]: which weights of layer i are there, a byte each, NULL: all; masks NULL: all of every layer. The configuration's
 * batch, dtype and input_gradients count. Nothing of a Jacobian's size is made. ERR_*: of bppsa_op_count. */
bppsa_status bppsa_cnn_predict(const bppsa_cnn_network *network, const uint8_t *const *masks, const bppsa_cnn_config *config,
                               const bppsa_device *device, bppsa_cnn_seconds *seconds);

/* What backward = AUTO stands for, for such seconds: BP, or the linear scan. */
bppsa_gradient_method bppsa_cnn_choose(const bppsa_cnn_seconds *seconds);

#ifdef __cplusplus
}
#endif
#endif
