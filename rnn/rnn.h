/* The vanilla RNN of BPPSA §4.1 (eq. 9), the same as PyTorch's nn.RNN:
 *
 *     h_t = f(W_ih x_t + b_ih + W_hh h_{t-1} + b_hh)          f = tanh or relu
 *     Jᵀ_t = W_hhᵀ diag(d_t)      d_t = 1 - h_t²  (tanh)   or   [h_t > 0]  (relu; 0 at 0, as PyTorch has it)
 */
#ifndef BPPSA_RNN_RNN_H
#define BPPSA_RNN_RNN_H

#include "recurrent/cell.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const bppsa_cell bppsa_rnn_cell;
extern const bppsa_step bppsa_rnn_step;

/* Makes a network of RNN layers. Parameters are zero until set (bppsa_model_set) or initialised (bppsa_recurrent_init). The
 * device must outlive the model; destroy it with bppsa_model_destroy. ERR_ARGUMENT, ERR_SHAPE, ERR_MEMORY, ERR_UNSUPPORTED. */
bppsa_status bppsa_rnn_create(const bppsa_recurrent_config *config, const bppsa_device *device, bppsa_model **model);

#ifdef __cplusplus
}
#endif
#endif
