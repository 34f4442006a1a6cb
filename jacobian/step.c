/* One step of a recurrent cell, h_{t-1} -> h_t, as a Jacobian of its own (BPPSA appendix E):
 *
 *     Jᵀ = Σ_k W_kᵀ diag(d_k) + diag(e)
 *
 * with the factors d_k and e that the cell's table computes from W_ih x + b_ih, W_hh h_{-1} + b_hh and h_{-1} (bppsa_step). Sums
 * run in order, and every product and every sum is rounded, so a GPU has the same bits (step_kernels.cuh).
 */
#include <string.h>

#include "core/alloc.h"
#include "core/pool.h"
#include "jacobian/jacobian_internal.h"

static int64_t gates_of(const bppsa_op *op) {
  return op->step->gates;
}

bool bppsa_jacobian_step_has(const bppsa_op *op, bppsa_dtype dtype) {
  return dtype == BPPSA_F32 ? op->step->factors_f32 != NULL : op->step->factors_f64 != NULL;
}

/* Is entry (i, j) of Jᵀ in the pattern? Gate k contributes W_k[j][i] to it. */
static bool is_kept(const bppsa_op *op, const uint8_t *mask, int64_t i, int64_t j) {
  const int64_t h = op->in[0];
  bool kept = mask == NULL || (op->step->diagonal && i == j);
  for (int64_t k = 0; !kept && k < gates_of(op); ++k) {
    kept = mask[(k * h + j) * h + i] != 0;
  }
  return kept;
}

bppsa_status bppsa_jacobian_step_create(bppsa_jacobian *j, const uint8_t *mask) {
  const int64_t h = j->op.in[0], weights = bppsa_op_weights(&j->op);
  if (j->op.in[1] != 1 || j->op.in[2] != 1) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: state %lld x %lld x %lld, expected a vector H, 1, 1", bppsa_op_name(&j->op),
                      (long long)h, (long long)j->op.in[1], (long long)j->op.in[2]);
  }
  int64_t nnz = 0;
  for (int64_t i = 0; mask != NULL && i < h * h; ++i) {
    nnz += is_kept(&j->op, mask, i / h, i % h);
  }
  if (mask == NULL) {
    bppsa_csr one;
    BPPSA_TRY(bppsa_csr_create(1, 1, 1, &one));
    one.col[0] = 0;
    one.row_ptr[1] = 1;
    BPPSA_TRY(bppsa_csr_from_blocks(1, h, h, &one, &j->pattern));
    BPPSA_TRY(j->symbolic ? BPPSA_OK : bppsa_csr_expand(&j->pattern, j->threads));
  } else {
    BPPSA_TRY(bppsa_csr_create(h, h, nnz, &j->pattern));
    j->mask = bppsa_alloc((size_t)weights);
    if (j->mask == NULL) {
      return BPPSA_ERR_MEMORY;
    }
    memcpy(j->mask, mask, (size_t)weights);
    int64_t at = 0;
    for (int64_t i = 0; i < h * h; ++i) {
      if (is_kept(&j->op, mask, i / h, i % h)) {
        j->pattern.col[at++] = (int32_t)(i % h);
      }
      j->pattern.row_ptr[i / h + 1] = at;
    }
  }
  return j->symbolic ? BPPSA_OK : bppsa_jacobian_reserve(j, (gates_of(&j->op) + 1) * h);
}

#define EACH_REAL "jacobian/step.inc"
#include "core/each_real.inc"
