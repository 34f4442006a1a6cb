/* The GRU of BPPSA §4.2 (appendix E), the same as PyTorch's nn.GRU and cuDNN's: the reset gate comes after the matrix product.
 *
 *     r_t = σ(W_ir x_t + b_ir + W_hr h_{t-1} + b_hr)
 *     z_t = σ(W_iz x_t + b_iz + W_hz h_{t-1} + b_hz)
 *     n_t = tanh(W_in x_t + b_in + r_t ∘ m_t)            m_t = W_hn h_{t-1} + b_hn
 *     h_t = (1 - z_t) ∘ n_t + z_t ∘ h_{t-1}
 *
 *     Jᵀ_t = W_hrᵀ diag(a_t) + W_hzᵀ diag(c_t) + W_hnᵀ diag(b_t) + diag(z_t)
 *     a_t = (1 - z_t)(1 - n_t²) m_t r_t (1 - r_t)    c_t = (h_{t-1} - n_t) z_t (1 - z_t)    b_t = (1 - z_t)(1 - n_t²) r_t
 *
 * (The paper's last equation of appendix E is this transposed Jacobian, although its left side does not say so.) So that no
 * gate is computed twice the forward pass keeps m, the signed halves of r and z (of a gate σ(x): σ where x < 0, σ - 1
 * elsewhere), and a code of n (n where it is small, elsewhere 1 - |n| with n's sign): every factor follows from them with all
 * its digits, also where z is near 0 or 1, r near 1, or n near 1 or -1. Large biases do not round pre-activations.
 * The gates are stacked in the order r, z, n.
 */
#ifndef BPPSA_GRU_GRU_H
#define BPPSA_GRU_GRU_H

#include "recurrent/cell.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BPPSA_GRU_GATES = 3, BPPSA_GRU_MATRICES = 3 }; /* G, and K of its Jacobian, which also has a diagonal */

extern const bppsa_cell bppsa_gru_cell; /* the GRU, for bppsa_recurrent_create */
extern const bppsa_step bppsa_gru_step;

#ifdef __cplusplus
}
#endif
#endif
