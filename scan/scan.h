/* Executes a scan plan on a device.
 *
 * An executor is a plan with memory: creating it allocates everything; executing it allocates nothing and can be repeated without
 * end. It is a small table of functions, so that a distributed executor can replace the local one. Several executors of one plan
 * may run at the same time; those of sparse elements wait for each other where they multiply, and on a GPU share a stream.
 */
#ifndef BPPSA_SCAN_SCAN_H
#define BPPSA_SCAN_SCAN_H

#include "core/compute/device.h"
#include "scan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The operands: borrowed, of the plan's dtype, on the executor's device, contiguous. On a GPU the work is queued on the device's
 * stream, and operands are borrowed until it is done. b is `batch`, T the plan's n. Index j of an array holds step t = j + 1 for
 * Jacobians, and t = j for gradients. */
typedef struct {
  int64_t batch; /* b: 1 .. the plan's batch */
  /* dense: J_1ᵀ, .., J_nᵀ one behind the other, each [b][d_{t-1}][d_t]. diagonal: their diagonals [n][b][H]. */
  const void *jt;
  /* recurrent, and pair, of which H is half of a gradient's size: */
  const void *const *weights; /* W_k, K pointers to [H][weight_row] (rows: the cell's outputs) */
  int64_t weight_row;         /* elements from one row of W_k to the next; 0: H */
  const void *const *columns; /* d_k, K pointers to [n][b][H]; pair: K + 1 */
  const void *diagonal;       /* e [n][b][H]; NULL unless planned */
  /* recurrent and pair: bytes [n][b], 1 where J_tᵀ of a sample is 0, whatever its factors are; NULL: nowhere. A
   * gradient behind such a step, NaN too, has no part in those in front of it. */
  const uint8_t *cuts;
  const bppsa_csr_values *values; /* csr: of J_1ᵀ .. J_nᵀ; J_1ᵀ is not used unless g_0 is wanted */
  /* u_0 .. u_{n-1}, laid out like gradients; NULL unless planned affine. It may be the array of gradients itself, because each
   * u_t is read before g_t is written. u_0 is read only if g_0 is wanted. */
  const void *injected;
  /* g_0, .., g_n one behind the other, each [b][d_t]. On entry g_n holds the seed; on return g_1 .. g_{n-1} are set, and g_0 if
   * planned. */
  void *gradients;
  /* Time runs forward, on a CPU, with elements of one size. The chain is h_t = J_t h_{t-1} + u_t, the linearised recurrence, and
   * `gradients` holds h_0 .. h_n: on entry h_0, on return h_1 .. h_{n-1}, and h_n if g_0 is planned. `injected` is u_1 .. u_n, and
   * may be the array of h from h_1 on. dense: jt holds J_1 .. J_n. recurrent and pair: the columns, diagonals and cuts are those of
   * the chain of gradients, and `weights` are W_kᵀ. */
  bool forward;
  bool transposed; /* dense, on a CPU, of one size: the transposes of the matrices in jt are multiplied */
} bppsa_scan_operands;

typedef struct bppsa_scan_executor bppsa_scan_executor; /* a plan with memory */
struct bppsa_scan_executor {
  /* ERR_ARGUMENT: a missing operand or a batch beyond the plan's. */
  bppsa_status (*execute)(bppsa_scan_executor *executor, const bppsa_scan_operands *operands);
  void (*destroy)(bppsa_scan_executor *executor);
  bppsa_status (*count_redone)(bppsa_scan_executor *executor); /* NULL: `redone` is always up to date */
  const bppsa_scan_plan *plan;                                 /* borrowed; must outlive the executor */
  /* How many held products were useless (not finite, or rounding error), so that their steps were computed one by one. Counted
   * since creation, each sample for itself. */
  int64_t redone;
};

/* Makes the local executor. The bits of the result do not depend on the device's number of threads. ERR_MEMORY; ERR_UNSUPPORTED:
 * the device does not run this kind of scan. */
bppsa_status bppsa_scan_executor_create(const bppsa_scan_plan *plan, const bppsa_device *device, bppsa_scan_executor **executor);
void bppsa_scan_executor_destroy(bppsa_scan_executor *executor); /* NULL is legal */
/* Bytes of GPU memory that the executor of a plan of recurrent or pair elements needs on a device; 0 on a CPU. ERR_MEMORY: they do
 * not fit in 64 bits; ERR_UNSUPPORTED: other elements, or no such device. */
bppsa_status bppsa_scan_executor_bytes(const bppsa_scan_plan *plan, const bppsa_device *device, int64_t *bytes);
/* Makes the executor with so many bytes of the caller's, which it borrows until the work that it has queued is done: nothing on the
 * GPU is allocated or waited for. On a CPU it is bppsa_scan_executor_create, whose memory is the executor's own. */
bppsa_status bppsa_scan_executor_create_in(const bppsa_scan_plan *plan, const bppsa_device *device, void *memory,
                                           bppsa_scan_executor **executor);
/* How a network makes its executors, so that a distributed executor can be used. Zero: the local executor. */
typedef struct {
  bppsa_status (*create)(void *context, const bppsa_scan_plan *plan, const bppsa_device *device, bppsa_scan_executor **executor);
  void *context;
} bppsa_scan_factory;

/* Brings executor->redone up to date; on a GPU it waits. ERR_CUDA. */
bppsa_status bppsa_scan_executor_count(bppsa_scan_executor *executor);

/* A number among the operands that is not finite. */
typedef struct {
  const char
      *operand;    /* "seed", "weight", "column factor", "diagonal factor", "transposed Jacobian", "injected gradient"; NULL */
  int64_t index;   /* k of W_k or d_k; -1: the operand has none */
  int64_t step;    /* t of J_tᵀ and its factors, of u_t and of g_n; -1: all steps share it */
  int64_t sample;  /* -1: all samples share it */
  int64_t element; /* its place in the matrix or vector of this step and sample, row-major; of sparse values, among them */
} bppsa_scan_nonfinite;

/* Executing a scan does not look at values: an infinite or NaN one goes through to gradients. This finds the first one, before an
 * execution or after it if `injected` is not the array of gradients: of the seed, then of the weights, factors or Jacobians step
 * by step from the first, then of the injected gradients. It looks only at what the plan reads: at J_1ᵀ and u_0 only if g_0 is
 * wanted. where->operand is NULL if everything is finite. device: that of the operands; on a GPU the search waits, and copies them
 * piece by piece. ERR_ARGUMENT as in execute; ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_scan_find_nonfinite(const bppsa_scan_plan *plan, const bppsa_device *device,
                                       const bppsa_scan_operands *operands, bppsa_scan_nonfinite *where);

#ifdef __cplusplus
}
#endif
#endif
