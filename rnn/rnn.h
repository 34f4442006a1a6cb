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

extern const bppsa_cell bppsa_rnn_cell; /* the RNN, for bppsa_recurrent_create */
extern const bppsa_step bppsa_rnn_step;

#ifdef __cplusplus
}
#endif
#endif
