/* A generator's values from host memory to host memory, wherever they are filled. */
#ifndef BPPSA_CLI_JACOBIAN_FILL_H
#define BPPSA_CLI_JACOBIAN_FILL_H

#include "jacobian/jacobian.h"

/* bppsa_jacobian_fill with operands and values on the host; those of a GPU are copied there and back. *seconds: of the fill
 * alone. ERR_* of bppsa_jacobian_fill, ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_cli_jacobian_fill(const bppsa_device *device, bppsa_jacobian *j, bppsa_dtype dtype,
                                     const bppsa_jacobian_operands *operands, void *values, double *seconds);

#endif
