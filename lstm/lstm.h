/* The LSTM, the same as PyTorch's nn.LSTM and cuDNN's. Its state is a pair (h, c), of which h is the output.
 *
 *     i_t = σ(W_ii x_t + b_ii + W_hi h_{t-1} + b_hi)
 *     f_t = σ(W_if x_t + b_if + W_hf h_{t-1} + b_hf)
 *     g_t = tanh(W_ig x_t + b_ig + W_hg h_{t-1} + b_hg)
 *     o_t = σ(W_io x_t + b_io + W_ho h_{t-1} + b_ho)
 *     c_t = f_t ∘ c_{t-1} + i_t ∘ g_t
 *     h_t = o_t ∘ tanh(c_t)
 *
 * The gradients (g_h, g_c) of step t give those of step t - 1 (the Jacobian of a pair in scan/plan.h):
 *
 *     δ   = g_c + g_h ∘ o_t ∘ (1 - tanh²(c_t))
 *     g_h ← W_hiᵀ(d_i ∘ δ) + W_hfᵀ(d_f ∘ δ) + W_hgᵀ(d_g ∘ δ) + W_hoᵀ(d_o ∘ g_h)        g_c ← f_t ∘ δ
 *     d_i = g_t i_t (1 - i_t)    d_f = c_{t-1} f_t (1 - f_t)    d_g = i_t (1 - g_t²)    d_o = tanh(c_t) o_t (1 - o_t)
 *
 * So that no gate is computed twice the forward pass keeps g, tanh(c), and of i, f and o their signed halves (of a gate σ(x): σ
 * where x < 0, σ - 1 elsewhere), from which a gate, its distance from 1 and their product follow with all their digits however far
 * it is open or closed. Large biases do not round pre-activations.
 * The gates are stacked in the order i, f, g, o.
 */
#ifndef BPPSA_LSTM_LSTM_H
#define BPPSA_LSTM_LSTM_H

#include "recurrent/cell.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BPPSA_LSTM_GATES = 4, BPPSA_LSTM_MATRICES = 4 }; /* G, and K of its Jacobian */

extern const bppsa_cell bppsa_lstm_cell; /* the LSTM, for bppsa_recurrent_create */
extern const bppsa_step bppsa_lstm_step; /* the cell as an operator of one step, for its sparse Jacobian */

#ifdef __cplusplus
}
#endif
#endif
