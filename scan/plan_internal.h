/* The inside of a scan plan, for the executors of this folder. */
#ifndef BPPSA_SCAN_PLAN_INTERNAL_H
#define BPPSA_SCAN_PLAN_INTERNAL_H

#include <pthread.h>

#include "scan/algorithm_internal.h"
#include "scan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* csr: a product a[first:last] and its plan. */
typedef struct {
  int64_t first, last;
  bppsa_product *product;
  bool dead;          /* only counted */
  int64_t nnz, flops; /* of the product */
  /* In a symbolic plan: the classes of the operands' patterns (plan_csr.c); with how many other products it is queued; and the
   * node that owns the product, which is this one or an earlier one with the same three numbers. */
  int64_t left, right, together, owner;
  /* where a counter counts, which has no `product`: the pattern by its numbers alone, and standard errors */
  bppsa_csr pattern, ones;
  double nnz_error, flops_error;
} bppsa_scan_node;

struct bppsa_scan_plan {
  bppsa_scan_config config;            /* with everything resolved; its dims is the copy below */
  const bppsa_scan_algorithm_row *row; /* of the table, or a transition's (transition.c) */
  int64_t *dims;                       /* size of each g_t, size n + 1; NULL if uniform */
  int64_t record_count;
  bppsa_scan_level *records; /* size record_count */
  int64_t level_count;
  int64_t *levels; /* products in each level, size level_count */
  int64_t slot_count;
  int64_t slot_reals;    /* reals of a slot for one sample, if sizes are uniform */
  int64_t *slot_offsets; /* otherwise: first real of each slot, size slot_count + 1 */
  bppsa_scan_totals totals;
  const bppsa_csr **patterns; /* csr: copies of the pointers, size n */
  int64_t *classes;           /* symbolic: of each pattern the first one that is the same, size n; otherwise NULL */
  int64_t node_count;
  bppsa_scan_node *nodes;         /* csr: every mat-mat, in execution order */
  int64_t counted;                /* symbolic: bytes of patterns with ones that are spelled out to be counted */
  pthread_mutex_t multiplying;    /* csr: held by the executor that runs a product, because the products' scratch is the plan's */
  bppsa_device_kind planner_kind; /* csr: kind of the device for which the products are planned */
  int32_t planner_index;
};

/* For a record: where item k begins; how many links item k has; how many all items have together; and how many elements the first
 * `link` links of a chain cover. */
static inline int64_t bppsa_scan_item_first(const bppsa_scan_level *level, int64_t k) {
  return level->first + k * level->stride + (k < level->longer ? k : level->longer);
}
static inline int64_t bppsa_scan_item_length(const bppsa_scan_level *level, int64_t k) {
  return level->length + (k < level->longer);
}
static inline int64_t bppsa_scan_level_links(const bppsa_scan_level *level) {
  return level->count * level->length + level->longer;
}
static inline int64_t bppsa_scan_reach(const bppsa_scan_level *level, int64_t link) {
  return link * level->span + (link < level->wider ? link : level->wider);
}

/* Does every element have the same matrices W_k? */
static inline bool bppsa_scan_shares(const bppsa_scan_config *c) {
  return c->element == BPPSA_ELEMENT_RECURRENT || c->element == BPPSA_ELEMENT_PAIR;
}
/* The size of these matrices, and of d_k and e. */
static inline int64_t bppsa_scan_shared_dim(const bppsa_scan_config *c) {
  return c->element == BPPSA_ELEMENT_PAIR ? c->dim / 2 : c->dim;
}

/* The number of multiplications when such an element is applied to one gradient. */
static inline int64_t bppsa_scan_shared_pairs(const bppsa_scan_config *c) {
  return c->matrices * bppsa_scan_shared_dim(c) * bppsa_scan_shared_dim(c);
}

/* Size of y[i], i = 1 .. n + 1. */
int64_t bppsa_scan_plan_dim(const bppsa_scan_plan *plan, int64_t y);
/* The slot that holds the product a[first:last], first < last. */
int64_t bppsa_scan_plan_slot(const bppsa_scan_plan *plan, int64_t first, int64_t last);
/* The first real of a slot, for one sample (multiply it by the batch). */
int64_t bppsa_scan_plan_slot_offset(const bppsa_scan_plan *plan, int64_t slot);

/* Finds the smallest size of BPPSA_SCAN_WALK_SIZES that has room for `dim`, or the largest size. Returns its place there. */
int bppsa_scan_walk_place(int64_t dim, int64_t *size);

/* Makes a plan from a checked configuration: create_fixed if its algorithm is not AUTO, create_auto if it is (plan_auto.c).
 * Errors of bppsa_scan_plan_create. */
bppsa_status bppsa_scan_create_fixed(const bppsa_scan_config *config, bppsa_scan_plan **out);
/* bppsa_scan_create_row: uses another row than that of the configuration's algorithm, and checks the configuration. */
bppsa_status bppsa_scan_create_row(const bppsa_scan_config *config, const bppsa_scan_algorithm_row *row, bppsa_scan_plan **plan);
bppsa_status bppsa_scan_create_auto(const bppsa_scan_config *config, bppsa_scan_plan **plan);

/* ---- csr (plan_csr.c) ---- */

/* Takes dims and patterns from the configuration. */
bppsa_status bppsa_scan_csr_chain(bppsa_scan_plan *plan, const bppsa_scan_config *config);
/* Plans the products of all records, and counts their bytes. */
bppsa_status bppsa_scan_csr_nodes(bppsa_scan_plan *plan);
/* Adds up the FLOPs of executing the plan; a counter does not know them. */
void bppsa_scan_csr_executed(bppsa_scan_plan *plan);
/* Adds up the standard errors of a counter's estimates. ERR_MEMORY. */
bppsa_status bppsa_scan_csr_errors(bppsa_scan_plan *plan);
void bppsa_scan_csr_free(bppsa_scan_plan *plan);
/* Sets nnz, FLOPs and bytes of a step; 0 if its product is not planned yet. */
void bppsa_scan_csr_cost(const bppsa_scan_plan *plan, bppsa_scan_step *step);
/* The pattern of a[first:last]. */
const bppsa_csr *bppsa_scan_csr_pattern(const bppsa_scan_plan *plan, int64_t first, int64_t last);
/* Counts the bytes of GPU memory that the patterns of the mat-vecs take, each pattern once; 0 for a CPU. ERR_MEMORY. */
bppsa_status bppsa_scan_csr_apply_bytes(const bppsa_scan_plan *plan, const bppsa_device *device, int64_t *bytes);
/* The index of the node a[first:last], or -1. */
int64_t bppsa_scan_csr_find(const bppsa_scan_plan *plan, int64_t first, int64_t last);

#ifdef __cplusplus
}
#endif

#endif
