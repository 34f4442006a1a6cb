/* Pools. Row (c, x) of Jᵀ holds the windows (c, X) that contain x. An average has 1 / divisor(X); a maximum has 1 where x is X's
 * largest value, else an explicit 0, so that the pattern does not depend on the sample.
 */
#include <math.h>
#include <string.h>

#include "core/compute/pool.h"
#include "jacobian/jacobian_internal.h"
#include "jacobian/kernels.h"

bppsa_status bppsa_jacobian_pool_create(bppsa_jacobian *j) {
  const bppsa_op *op = &j->op;
  j->shared = bppsa_op_shares_values(op);
  for (int axis = 0; axis < 2; ++axis) {
    BPPSA_TRY(bppsa_axis_of(op, axis, j->out[axis + 1], &j->axes[axis]));
  }
  bppsa_csr positions;
  BPPSA_TRY(bppsa_axis_positions(j->axes, &positions));
  BPPSA_TRY(bppsa_csr_from_blocks(op->in[0], op->in[0], op->in[0], &positions, &j->pattern));
  return j->symbolic ? BPPSA_OK : bppsa_csr_expand(&j->pattern, j->threads);
}

bool bppsa_jacobian_pool_is_plain(const bppsa_op *op) {
  bool plain = op->in[1] % 2 == 0 && op->in[2] % 2 == 0;
  for (int axis = 0; axis < 2; ++axis) {
    plain = plain && op->kernel[axis] == 2 && op->stride[axis] == 2 && op->dilation[axis] == 1 && op->padding[2 * axis] == 0 &&
            op->padding[2 * axis + 1] == 0;
  }
  return plain;
}

#define EACH_REAL "jacobian/pooling.inc"
#include "core/base/each_real.inc"
