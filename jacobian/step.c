/* One step of a recurrent cell, h_{t-1} -> h_t, as a Jacobian of its own (BPPSA appendix E):
 *
 *     Jᵀ = Σ_k W_kᵀ diag(d_k) + diag(e)         of a pair (h, c) as bppsa_step has it (jacobian/op.h)
 *
 * with the factors d_k and e that the cell's table computes from W_ih x + b_ih, W_hh h_{-1} + b_hh and h_{-1} (bppsa_step). Sums
 * run in order, and every product and every sum is rounded, so a GPU has the same bits (step_kernels.cuh).
 */
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/pool.h"
#include "jacobian/jacobian_internal.h"

static int64_t gates_of(const bppsa_op *op) {
  return op->step->gates;
}

bool bppsa_jacobian_step_has(const bppsa_op *op, bppsa_dtype dtype) {
  return dtype == BPPSA_F32 ? op->step->factors_f32 != NULL : op->step->factors_f64 != NULL;
}

/* The number of gates that lead to output j of Jᵀ; a pair's last gate does not lead to c. */
static int64_t gates_to(const bppsa_op *op, int64_t j) {
  return gates_of(op) - (j >= bppsa_op_units(op));
}

/* Is entry (i, j) of Jᵀ in the pattern? Gate k contributes W_k[j][i] to it. c of a pair leads on through e alone. */
static bool is_kept(const bppsa_op *op, const uint8_t *mask, int64_t i, int64_t j) {
  const int64_t h = bppsa_op_units(op);
  const bool on_diagonal = op->step->diagonal && i % h == j % h && (op->step->pair ? i >= h : i == j);
  bool kept = on_diagonal || (mask == NULL && i < h);
  for (int64_t k = 0; !kept && i < h && k < gates_to(op, j); ++k) {
    kept = mask[(k * h + j % h) * h + i] != 0;
  }
  return kept;
}

/* Lists a pattern entry by entry: for a mask, and for a pair, whose Jacobian does not consist of equal blocks. */
static bppsa_status list_entries(bppsa_jacobian *j, const uint8_t *mask) {
  const int64_t size = j->op.in[0];
  int64_t nnz = 0, at = 0;
  for (int64_t i = 0; i < size * size; ++i) {
    nnz += is_kept(&j->op, mask, i / size, i % size);
  }
  BPPSA_TRY(bppsa_csr_create(size, size, nnz, &j->pattern));
  for (int64_t i = 0; i < size * size; ++i) {
    if (is_kept(&j->op, mask, i / size, i % size)) {
      j->pattern.col[at++] = (int32_t)(i % size);
    }
    j->pattern.row_ptr[i / size + 1] = at;
  }
  return BPPSA_OK;
}

bppsa_status bppsa_jacobian_step_create(bppsa_jacobian *j, const uint8_t *mask) {
  const int64_t h = bppsa_op_units(&j->op), weights = bppsa_op_weights(&j->op);
  if (j->op.in[1] != 1 || j->op.in[2] != 1) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: state %lld x %lld x %lld, expected a vector H, 1, 1", bppsa_op_name(&j->op),
                      (long long)j->op.in[0], (long long)j->op.in[1], (long long)j->op.in[2]);
  }
  if (mask == NULL && !j->op.step->pair) {
    bppsa_csr one;
    BPPSA_TRY(bppsa_csr_create(1, 1, 1, &one));
    one.col[0] = 0;
    one.row_ptr[1] = 1;
    BPPSA_TRY(bppsa_csr_from_blocks(1, h, h, &one, &j->pattern));
    BPPSA_TRY(j->symbolic ? BPPSA_OK : bppsa_csr_expand(&j->pattern, j->threads));
  } else {
    BPPSA_TRY(list_entries(j, mask));
  }
  if (mask != NULL) {
    j->mask = bppsa_alloc((size_t)weights);
    if (j->mask == NULL) {
      return BPPSA_ERR_MEMORY;
    }
    memcpy(j->mask, mask, (size_t)weights);
  }
  return j->symbolic ? BPPSA_OK : bppsa_jacobian_reserve(j, (gates_of(&j->op) + 2) * h);
}

#define EACH_REAL "jacobian/step.inc"
#include "core/base/each_real.inc"
