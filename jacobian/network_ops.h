/* The operators of the built-in networks: the elements that their scans multiply. */
#ifndef BPPSA_JACOBIAN_NETWORK_OPS_H
#define BPPSA_JACOBIAN_NETWORK_OPS_H

#include "jacobian/op.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  char name[32]; /* "conv1" */
  bppsa_op op;
} bppsa_named_op;

#define BPPSA_NETWORK_OPS 32 /* the most that any of them has */

/* Lists the operators of "vgg11", the 21 of VGG-11 on 3 x 32 x 32 (conv, relu, and a pool behind relu 1, 2, 4, 6 and 8), or of
 * "lenet5", the 10 of LeNet-5 on the same images, in the order of the forward pass. The head (the last linear operator), which
 * gives the seed, is left out. ops has room for BPPSA_NETWORK_OPS. ERR_ARGUMENT: another name. */
bppsa_status bppsa_network_table(const char *name, bppsa_named_op *ops, int64_t *count);

#ifdef __cplusplus
}
#endif
#endif
