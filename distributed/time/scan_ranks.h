/* The scan over ranks: a chain of n transposed Jacobians that is cut along time, every rank holding neighbouring steps.
 *
 * Rank 0 holds the last steps, where back-propagation begins; bppsa_ranks_share says which rank holds which steps. Ranks beyond n
 * hold none and take no part. An executor of this kind is used like a local one of its rank's own steps (scan/scan.h), by all ranks
 * at once:
 *
 *   - the plan is the rank's own: n is the number of its own steps, and its operands are theirs;
 *   - the seed g_n is given on rank 0 alone. On the others g_n is set: it comes from the rank before;
 *   - on return g_1 .. g_{n-1} are set, and, if the plan wants it, g_0 on the last rank that holds steps. On the others g_0 is
 *     scratch, and may have been written to;
 *   - affine: u_0 .. u_{n-1} are given on every rank. The u_0 of one rank belongs to the gradient g_n of the next.
 *
 * The plan's algorithm says how ranks work together; each rank applies its own steps at the end, on a CPU one by one, on a GPU by
 * the local scan that the cost model chooses:
 *
 *   linear    a rank waits for the gradient of the one before it: p - 1 messages, one after the other
 *   chunked   every rank multiplies its steps, at once; then the gradient passes along the ranks through those products
 *   blelloch  Algorithm 1 of BPPSA over the ranks' products (§3.6): products travel up a binary tree, gradients down
 *
 * A product that turns out useless (not finite, or rounding error) is replaced: the ranks that hold its steps compute them one by
 * one. The rank that found the product counts it in `redone`.
 */
#ifndef BPPSA_DISTRIBUTED_TIME_SCAN_RANKS_H
#define BPPSA_DISTRIBUTED_TIME_SCAN_RANKS_H

#include "comm/comm.h"
#include "scan/scan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The steps of a rank, of `steps` in all: first + 1 .. first + count in time. The counts of two ranks differ by at most one. */
void bppsa_ranks_share(int64_t steps, int32_t ranks, int32_t rank, int64_t *first, int64_t *count);

/* Makes the executor of this rank; collective. plan: of this rank's own steps; all ranks plan the same algorithm, element, dtype,
 * batch, affine and input. Up-levels and chunks have no meaning: the tree has all its levels, the chunks are the ranks' shares.
 * comm and plan are borrowed. tag: of its messages, which nothing else may use meanwhile.
 * The same error on every rank: ERR_ARGUMENT: plans that differ; shares that bppsa_ranks_share does not give. ERR_SHAPE: neighbours
 * that do not fit. ERR_UNSUPPORTED: no such method. ERR_MEMORY, ERR_CUDA, ERR_COMM. Sparse elements, by linear and blelloch: the
 * ranks send each other the patterns of their products now, and later values alone; J_1ᵀ of a rank must be set on all ranks but
 * the last. On a GPU all operands are in its memory, and it must be the communicator's (bppsa_comm_set_device): gradients and
 * products travel from its memory, and an execution waits for each message, so that it cannot be recorded. */
bppsa_status bppsa_ranks_scan_create(bppsa_comm *comm, int32_t tag, const bppsa_scan_plan *plan, const bppsa_device *device,
                                     bppsa_scan_executor **executor);

/* The same as a factory for networks (recurrent/recurrent.h); context: a bppsa_ranks_scan_context, borrowed. */
typedef struct {
  bppsa_comm *comm;
  int32_t tag;
} bppsa_ranks_scan_context;
bppsa_scan_factory bppsa_ranks_scan_factory(bppsa_ranks_scan_context *context);

#ifdef __cplusplus
}
#endif
#endif
