/* The passes of one operator on a batch in host memory, with all arrays given by the caller. Internal. */
#ifndef BPPSA_CNN_PASS_H
#define BPPSA_CNN_PASS_H

#include "cnn/given.h"
#include "core/compute/linear.h"

/* Raises the bytes of scratch, sums and transposed to what this operator needs. ERR_MEMORY: beyond 64 bits. */
bppsa_status bppsa_cnn_pass_room(const bppsa_cnn_pass *pass, int64_t *scratch, int64_t *sums, int64_t *transposed);

/* y [b][out] from x [b][in]; weight and bias: NULL if the operator has none. places [b][out]: for maxpool2d, the index of each
 * largest value. */
void bppsa_cnn_pass_forward(const bppsa_cnn_pass *pass, const void *x, const void *weight, const void *bias, int32_t *places,
                            void *y);
/* dx [b][in] from dy [b][out] and the arrays of the forward pass; a cache line behind dy must be readable. */
void bppsa_cnn_pass_input_gradient(const bppsa_cnn_pass *pass, const void *dy, const void *weight, const void *x, const void *y,
                                   const int32_t *places, void *dx);
/* The gradients of an operator's weight and bias (NULL: none, or a batch norm's, which are in the pass); a cache line behind dy
 * must be readable. */
void bppsa_cnn_pass_weight_gradient(const bppsa_cnn_pass *pass, const void *dy, const void *x, void *dw, void *db);

#endif
