/* Batch norm and dropout on batches, on a CPU. Internal.
 *
 *     y = w (x - m) / σ + b,  σ = sqrt(v + ε)     m, v: a channel's mean and variance, given, or the batch's
 *
 * With given statistics Jᵀ is diagonal. The batch's couple the samples (Ioffe and Szegedy 2015): with n numbers of a channel and
 * z = (x - m) / σ
 *
 *     dx = w / (σ n) (n dy - Σ dy - z Σ dy z),  dw = Σ dy z,  db = Σ dy
 *
 * and the running statistics become (1 - momentum) r + momentum (m, or v n / (n - 1)). Sums are of double, over a channel's numbers
 * in order.
 */
#ifndef BPPSA_CNN_NORM_H
#define BPPSA_CNN_NORM_H

#include "cnn/given.h"

/* What a batch norm keeps for its backward pass: the mean and 1/σ of each channel; its bytes. */
int64_t bppsa_norm_kept(const bppsa_cnn_layer *layer, bppsa_dtype dtype);

/* y from x. In a step of training by the batch's statistics it fills kept and updates the running statistics. */
void bppsa_norm_forward(const bppsa_cnn_pass *pass, const void *x, void *y);
void bppsa_norm_input_gradient(const bppsa_cnn_pass *pass, const void *dy, const void *x, void *dx);
/* Writes the gradients of weight and bias, and zeros for those of the statistics. */
void bppsa_norm_weight_gradient(const bppsa_cnn_pass *pass, const void *dy, const void *x);
/* w / σ of each channel by the given statistics [C]: the values of Jᵀ. */
void bppsa_norm_scale(const bppsa_cnn_pass *pass, void *scale);

/* to = factor · from for each number, whose factor is 0 with probability p and otherwise 1 / (1 - p), by a counter of the step,
 * the layer, the sample and the number alone. from NULL: the factors themselves. Only where the pass drops numbers. */
void bppsa_dropout_apply(const bppsa_cnn_pass *pass, const void *from, void *to);

#endif
