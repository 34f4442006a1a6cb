/* Scan plans: what depends on the architecture alone, computed once.
 *
 * Notation (BPPSA eq. 5). A chain of n transposed Jacobians J_1ᵀ .. J_nᵀ and a seed g_n make the scan's n + 1 elements
 *
 *     a[0] = g_n,  a[1] = J_nᵀ,  a[2] = J_{n-1}ᵀ,  ..,  a[n] = J_1ᵀ          a[i] = J_tᵀ with t = n - i + 1
 *
 * and its exclusive results are y[1] = g_n, y[2] = g_{n-1}, .., y[n] = g_1 (y[i] = g_{n-i+1}). The gradient of the chain's input,
 * y[n+1] = g_0 = J_1ᵀ g_1, is one more mat-vec in a phase of its own. With injected gradients u_t the recurrence is affine,
 * g_{t-1} = J_tᵀ g_t + u_{t-1}.
 *
 * A product of the elements a[i] .. a[j] is written a[i:j]; it takes y[i] to y[j+1]. Every tree node begins where the result y[i]
 * belongs, so the down-sweep of Algorithm 1 needs no swaps here: y[i+s] = a[i:i+s-1] y[i] is written to its place. The copies of
 * the printed algorithm are not needed, and neither are the products into a[n], which it overwrites (they are listed as dead,
 * never run).
 *
 * The critical path is counted level by level: the most expensive item of every level, because levels follow each other with a
 * barrier between them. (For n = 21 Blelloch has 7 steps; if a step waited for its own operands only, 6 could be enough.)
 *
 * A plan is a short list of level records. One iterator over them serves the printer and everything else that needs single
 * products.
 */
#ifndef BPPSA_SCAN_PLAN_H
#define BPPSA_SCAN_PLAN_H

#include "core/base/view.h"
#include "core/compute/device.h"
#include "jacobian/product.h"
#include "scan/level.h"
#include "scan/method.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  BPPSA_ELEMENT_DENSE = 0, /* J_tᵀ [d_{t-1}, d_t], one for each sample */
  BPPSA_ELEMENT_DIAGONAL,  /* J_tᵀ = diag(j_t) */
  BPPSA_ELEMENT_RECURRENT, /* J_tᵀ = Σ_k W_kᵀ diag(d_{k,t}) + diag(e_t), never formed for all t */
  BPPSA_ELEMENT_CSR,       /* J_tᵀ sparse [d_{t-1}, d_t], with differing shapes (BPPSA §3.3) */
  /* The state is a pair (h, c) of equal sizes, so that the gradients of h and c stand side by side, g_t = (g_h, g_c). Jacobians
   * are never formed for all t:
   *
   *     J_tᵀ g_t = (Σ_{k < K-1} W_kᵀ (d_{k,t} ∘ δ) + W_{K-1}ᵀ (d_{K-1,t} ∘ g_h),  e_t ∘ δ)
   *     δ = g_c + d_{K,t} ∘ g_h
   *
   * The gradient that goes through c reaches the first K - 1 matrices; the last matrix stands between h and h alone (the LSTM's
   * output gate). */
  BPPSA_ELEMENT_PAIR,
  BPPSA_ELEMENTS
} bppsa_element;

/* What is counted of a product J_fromᵀ ⋯ J_toᵀ, and the standard errors of what is estimated; 0: it is exact. */
typedef struct {
  double nnz, ones; /* entries that are no ones, and ones (jacobian/csr.h) */
  double flops;     /* 2 for each matching pair of the two factors */
  double nnz_error, flops_error;
  bool identity;
} bppsa_scan_counted;

/* Counts the products of a symbolic plan whose patterns are not in memory. */
typedef struct {
  /* Counts (J_fromᵀ ⋯ J_cutᵀ) (J_{cut+1}ᵀ ⋯ J_toᵀ), 1 <= from <= cut < to <= n. */
  bppsa_status (*count)(void *context, int64_t from, int64_t cut, int64_t to, bppsa_scan_counted *counted);
  void *context;
} bppsa_scan_counter;

typedef struct {
  bppsa_scan_method method;
  bppsa_element element;
  bppsa_dtype dtype;        /* f32, f64 */
  int64_t jacobians;        /* n >= 0 */
  int64_t batch;            /* B >= 1: samples, each with its own chain; FLOPs and bytes of steps are for one sample */
  int64_t dim;              /* size of every g_t if dims is NULL; pair: of both halves together */
  const int64_t *dims;      /* dense only: size of g_t for t = 0 .. n (copied), or NULL */
  int64_t matrices;         /* recurrent, pair: K >= 1 */
  bool diagonal;            /* recurrent: e_t is present; pair: must be true */
  bool affine;              /* gradients u_t are injected */
  bool input;               /* g_0 is wanted too */
  bppsa_device_kind device; /* where the plan will run; only AUTO uses it */
  /* csr */
  const bppsa_csr *const *patterns; /* of J_1ᵀ .. J_nᵀ, borrowed by the plan; they give the sizes of g_t */
  const bppsa_device *planner;      /* where the scan will run: its threads plan the products, and it computes them */
  int64_t memory_limit; /* bytes of held products and their plans, on a GPU also of the mat-vecs' patterns; 0: no limit */
  bool symbolic;        /* count only: the plan cannot be executed */
  /* symbolic: bytes of patterns that products with ones (jacobian/csr.h) need to be counted; 0: the memory limit holds for them */
  int64_t count_limit;
  /* symbolic, for a CPU: counts all products; then the patterns need no arrays, and steps name no kind of product. Its `count` is
   * NULL: products are planned */
  bppsa_scan_counter counter;
} bppsa_scan_config;

/* blelloch with all levels, n = 0, f32, B = 1, dim = 1, K = 1, cpu; everything else zero. */
bppsa_scan_config bppsa_scan_config_default(void);

typedef struct {
  int64_t mm, mv;             /* products; mm includes the dead ones */
  int64_t dead;               /* dead products */
  int64_t mm_flops, mv_flops; /* per sample, without dead products; mv_flops with the input phase */
  int64_t critical_flops;     /* Σ over levels of the most expensive item */
  int64_t critical_steps;     /* products on that path; both without the input phase */
  int64_t bp_flops;           /* of BP for the same chain: its mat-vecs, with that of the input phase if there is one */
  int64_t bp_critical_flops;  /* the same without the input phase */
  int64_t workspace_bytes;    /* held products, for the whole batch */
  int64_t executed_flops;     /* csr: FLOPs that run, per sample, with the padding of blocked products */
  /* csr: patterns, indices and scratch of the products' plans, on a GPU also the mat-vecs' patterns */
  int64_t plan_bytes;
  /* standard errors of mm_flops + mv_flops, and of critical_flops, where a counter estimates; 0: they are exact */
  double flops_error, critical_error;
} bppsa_scan_totals;

typedef struct bppsa_scan_plan bppsa_scan_plan; /* what a scan does, in which order; it never changes */

/* How a layer's own kernels run the scan. */
bppsa_scan_fusion bppsa_scan_fusion_of(const bppsa_scan_config *config);

/* ERR_ARGUMENT: a value out of range, counts beyond 64 bits, or more bytes than the memory limit (the message says how many).
 * ERR_SHAPE: an extent of 0 or above 2^31 - 1, neighbours that do not fit. ERR_UNSUPPORTED: an unknown algorithm, csr with chunks
 * or injected gradients. ERR_MEMORY. */
bppsa_status bppsa_scan_plan_create(const bppsa_scan_config *config, bppsa_scan_plan **plan);
void bppsa_scan_plan_destroy(bppsa_scan_plan *plan); /* NULL is legal */

/* The configuration with everything resolved: algorithm never AUTO, up_levels and chunks clamped. The plan owns dims. */
const bppsa_scan_config *bppsa_scan_plan_config(const bppsa_scan_plan *plan);
/* The method that the plan executes; sequential BP for NULL. */
bppsa_gradient_method bppsa_scan_plan_method(const bppsa_scan_plan *plan);
const bppsa_scan_totals *bppsa_scan_plan_totals(const bppsa_scan_plan *plan);
/* Seconds that executing the plan takes according to the cost model of its device. They depend on the plan alone, not on
 * the number of threads; only ratios are meaningful. */
double bppsa_scan_plan_seconds(const bppsa_scan_plan *plan);
/* Seconds on a GPU of a walk of so many items side by side, each so many steps, by a recurrent layer's own kernels, with weight
 * gradients. *config is one of a linear scan; INFINITY: there are no such kernels for it. */
double bppsa_scan_walk_seconds(const bppsa_scan_config *config, double items, double steps);
/* The number of such walks of a layer of more than BPPSA_SCAN_FUSED_DIM units that keep a GPU of so many multiprocessors busy:
 * more would wait for each other. At least 1. */
int64_t bppsa_scan_walks_at_once(const bppsa_scan_config *config, int64_t multiprocessors);
/* The candidates among which AUTO chooses, in the order of their numbers, for every algorithm that can scan the
 * configuration's elements on its device: linear; blelloch with 1, 2, .. up-levels; chunked with its default number
 * of chunks, and on a GPU, which needs many chunks to be busy, with 2, 4, 8, .. chunks. Sparse elements have no chunks. Candidate
 * `index` from 0 is *config with that method; false if there are no more. */
bool bppsa_scan_candidate(const bppsa_scan_config *config, int64_t index, bppsa_scan_config *candidate);
/* The candidates worth measuring on a device with so many threads: those above, and on a CPU chunked with 1, 2 and 4 chunks for
 * each thread, which keeps the threads busy. A choice by measurement may depend on the number of threads; that of the cost model
 * must not. */
bool bppsa_scan_candidate_to_measure(const bppsa_scan_config *config, int32_t threads, int64_t index,
                                     bppsa_scan_config *candidate);
/* Is the plan the recurrence, one product after the other? It is if it multiplies no two elements, whatever its algorithm is
 * called. */
bool bppsa_scan_plan_is_chain(const bppsa_scan_plan *plan);
/* The records in execution order; *count: how many. */
const bppsa_scan_level *bppsa_scan_plan_records(const bppsa_scan_plan *plan, int64_t *count);
/* Products of each level in execution order: L up-levels, the middle as one entry, L down-levels. Dead products count; a level
 * that only copies is 0; the input phase is left out. *count: the number of entries. */
const int64_t *bppsa_scan_plan_levels(const bppsa_scan_plan *plan, int64_t *count);

/* FLOPs per sample of BP's mat-vec with a[element], element = 1 .. n, counted like the plan's own; 0 for a[n] = J_1ᵀ if g_0 is
 * not wanted. */
int64_t bppsa_scan_plan_bp_flops(const bppsa_scan_plan *plan, int64_t element);

/* One product. m, k, n: result m x n from (m x k)(k x n); n = 1 for mv. */
typedef struct {
  int64_t id;                    /* from 0, in execution order */
  const bppsa_scan_level *level; /* its record */
  bool critical;
  /* mm: a[first:last] = a[first:split-1] ⋄ a[split:last];  mv: y[split] = a[first:last] y[first], split = last + 1 */
  int64_t first, split, last;
  int64_t m, k, n;
  int64_t nnz;   /* of the result */
  int64_t flops; /* 2 for each matching pair, per sample; an affine mm includes its mat-vec */
  int64_t bytes; /* operands read and result written, per sample, without shared matrices; csr: with int32 columns */
  bool copy;     /* csr: an operand is the identity, or has nothing but ones: no FLOPs, and no product is counted */
  const bppsa_product *product; /* csr, mm that is not dead: the product's plan; NULL where a counter counts */
  double flops_error;           /* the standard error of `flops` where it is estimated; 0: it is exact */
} bppsa_scan_step;

/* Iterates over every product in execution order, starting from a zeroed iterator; false after the last. */
typedef struct {
  int64_t record, item, link, id;
} bppsa_scan_iterator;
bool bppsa_scan_plan_next(const bppsa_scan_plan *plan, bppsa_scan_iterator *iterator, bppsa_scan_step *step);

/* The names of a step's operands, such as "a[3]", "a[4:7]", "g[20]" (left ⋄ right = out). Each text has room for
 * BPPSA_OPERAND_TEXT bytes. */
#define BPPSA_OPERAND_TEXT 48
void bppsa_scan_step_text(const bppsa_scan_plan *plan, const bppsa_scan_step *step, char *left, char *right, char *out);

const char *bppsa_scan_phase_name(bppsa_scan_phase phase); /* "up" */
const char *bppsa_scan_op_name(bppsa_scan_op op);          /* "mm" */

#ifdef __cplusplus
}
#endif
#endif
