/* The algorithms of a scan, and a method: one of them with its number. scan/method.h has the forms in which methods are written,
 * scan/algorithm.c the table of what each algorithm does and what runs it. */
#ifndef BPPSA_SCAN_ALGORITHM_H
#define BPPSA_SCAN_ALGORITHM_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  /* The candidate that the cost model expects to be the fastest (scan/cost.c); csr: the number of up-levels whose critical path
   * has the fewest FLOPs, within the memory limit and what the planner's GPU has free. */
  BPPSA_SCAN_AUTO = 0,
  BPPSA_SCAN_LINEAR,   /* the recurrence itself */
  BPPSA_SCAN_BLELLOCH, /* BPPSA Algorithm 1; with up_levels = L its §5.3 form */
  BPPSA_SCAN_CHUNKED,  /* P chunks: transitions at once, carry, mat-vecs at once */
  BPPSA_SCAN_ALGORITHMS
} bppsa_scan_algorithm;

typedef struct {
  bppsa_scan_algorithm algorithm;
  int64_t up_levels; /* blelloch: number of up-levels; negative: all. More than there are is clamped. */
  int64_t chunks;    /* chunked: P >= 1; 0: ⌊√(2n)⌉, which minimises 2n/P + P. More than n is clamped. */
} bppsa_scan_method;

/* An algorithm with all its up-levels, or its default number of chunks. */
bppsa_scan_method bppsa_scan_method_of(bppsa_scan_algorithm algorithm);

/* "blelloch"; "unknown" of an algorithm that does not exist. */
const char *bppsa_scan_algorithm_name(bppsa_scan_algorithm algorithm);
/* Is its scan the recurrence itself, one product after the other? That is what BP computes. */
bool bppsa_scan_algorithm_is_bp(bppsa_scan_algorithm algorithm);

/* How kernels of a recurrent layer's own run a scan on a GPU, in the place of an executor: not at all; as one walk through all
 * steps; chunk by chunk. */
typedef enum { BPPSA_FUSION_NONE = 0, BPPSA_FUSION_WALK, BPPSA_FUSION_CHUNKS } bppsa_scan_fusion;

#ifdef __cplusplus
}
#endif

#endif
