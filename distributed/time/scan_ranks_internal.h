/* The inside of a scan over ranks: what a rank holds (scan_ranks.c) and how ranks work together (scan_ranks_methods.c). */
#ifndef BPPSA_DISTRIBUTED_TIME_SCAN_RANKS_INTERNAL_H
#define BPPSA_DISTRIBUTED_TIME_SCAN_RANKS_INTERNAL_H

#include "distributed/time/scan_ranks.h"
#include "scan/transition.h"

enum { MOST_LEVELS = 13 }; /* of a tree over BPPSA_COMM_MAX_RANKS */

/* A local scan with its plan. */
typedef struct {
  bppsa_scan_plan *plan;
  bppsa_scan_executor *executor;
} local_scan;

typedef struct {
  bppsa_scan_executor base;
  bppsa_comm *comm;
  const bppsa_device *device;
  int32_t tag, rank, ranks; /* ranks: those that hold steps */
  const bppsa_scan_config *config;
  int64_t *dims;                 /* size of the gradient in front of each rank, and behind the last, size ranks + 1 */
  local_scan walk, edge;         /* of g_{n-1} .. g_1, and of g_0 */
  bppsa_transition_maker *maker; /* NULL: this rank's product is not needed */
  bppsa_transition *own;         /* of this rank's steps */
  /* blelloch, by level: the product that arrives from the left, and this product joined with what the rank had */
  bppsa_transition *left[MOST_LEVELS], *joined[MOST_LEVELS];
  bppsa_csr patterns[MOST_LEVELS]; /* csr: of `left` */
  char *here, *there, *result;     /* gradients, in the device's memory: [batch][largest dim] and one number */
  bool *useless, *late;            /* [batch], in host memory */
  int64_t walked;                  /* products redone by `walk` that are in base.redone */
} ranks_scan;

/* How the ranks of a method work together. */
typedef struct {
  /* Does this rank need the product of its steps? */
  bool (*multiplies)(const ranks_scan *s);
  /* Allocates what else the method needs; NULL: it needs nothing. */
  bppsa_status (*prepare)(ranks_scan *s);
  bppsa_status (*execute)(ranks_scan *s, const bppsa_scan_operands *o);
} ranks_method;

/* NULL: no such method. */
const ranks_method *ranks_method_find(bppsa_scan_algorithm algorithm);

/* A node of the tree over ranks: the join of ranks begin .. mid - 1 and mid .. end - 1. */
typedef struct {
  int32_t level, begin, mid, end;
} ranks_node;

/* Finds the node above a rank whose halves are on the given level; false if all ranks are in one half. */
bool ranks_node_of(int32_t rank, int32_t ranks, int32_t level, ranks_node *n);

/* Elements and bytes of the gradient in front of a rank, for the samples of an execution. */
int64_t ranks_scan_reals(const ranks_scan *s, const bppsa_scan_operands *o, int32_t rank);
int64_t ranks_scan_bytes(const ranks_scan *s, const bppsa_scan_operands *o, int32_t rank);
/* g_n of this rank. */
char *ranks_scan_seed(const ranks_scan *s, const bppsa_scan_operands *o);

#endif
