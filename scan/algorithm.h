/* The algorithms of a scan, and a method: an algorithm with its number. scan/method.h has the text forms of methods. */
#ifndef BPPSA_SCAN_ALGORITHM_H
#define BPPSA_SCAN_ALGORITHM_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  /* The candidate that the cost model expects to be the fastest. csr: the number of up-levels whose critical path
   * has the fewest FLOPs, among those that fit the memory limit and the free memory of the planner's GPU. */
  BPPSA_SCAN_AUTO = 0,
  BPPSA_SCAN_LINEAR,   /* the recurrence itself */
  BPPSA_SCAN_BLELLOCH, /* BPPSA Algorithm 1; with up_levels = L the form of its §5.3 */
  BPPSA_SCAN_CHUNKED,  /* P chunks: transitions at once, carry, mat-vecs at once */
  BPPSA_SCAN_ALGORITHMS
} bppsa_scan_algorithm;

typedef struct {
  bppsa_scan_algorithm algorithm;
  int64_t up_levels; /* blelloch: number of up-levels; negative: all. A number above that of a complete tree is clamped */
  int64_t chunks;    /* chunked: P >= 1; 0: ⌊√(2n)⌉, which minimises 2n/P + P. A number above n is clamped */
} bppsa_scan_method;

/* An algorithm with all its up-levels, or its default number of chunks. */
bppsa_scan_method bppsa_scan_method_of(bppsa_scan_algorithm algorithm);
/* Returns the method with the number that it plans with for so many Jacobians, clamped; its other numbers are 0. An unknown
 * algorithm has no number. */
bppsa_scan_method bppsa_scan_method_clamp(const bppsa_scan_method *method, int64_t jacobians);

/* "blelloch"; "unknown" for an algorithm that does not exist. */
const char *bppsa_scan_algorithm_name(bppsa_scan_algorithm algorithm);
/* Is a scan by this algorithm the recurrence itself, one product after the other? BP computes the same. */
bool bppsa_scan_algorithm_is_bp(bppsa_scan_algorithm algorithm);

/* How a recurrent layer's own kernels run a scan on a GPU instead of an executor: not at all, as one walk through all steps, or
 * chunk by chunk. They take vectors of up to BPPSA_SCAN_FUSED_DIM numbers. A walk also takes longer ones, up to
 * BPPSA_SCAN_WALK_DIM, padded to one of BPPSA_SCAN_WALK_SIZES, if the matrices have at most BPPSA_SCAN_WALK_BYTES: so much 16
 * multiprocessors can hold in registers and shared memory beside other things. A GPU without clusters of that many blocks still
 * runs an executor. */
typedef enum { BPPSA_FUSION_NONE = 0, BPPSA_FUSION_WALK, BPPSA_FUSION_CHUNKS } bppsa_scan_fusion;
#define BPPSA_SCAN_FUSED_DIM 32
#define BPPSA_SCAN_FUSED_WIDE_PAIR 20 /* the same for chunks of pairs (h, c) in f64: the size of h */
#define BPPSA_SCAN_WALK_DIM 512
#define BPPSA_SCAN_WALK_SIZES                                                                                                    \
  { 64, 128, 256, 384, BPPSA_SCAN_WALK_DIM }
#define BPPSA_SCAN_WALK_BYTES (4 * BPPSA_SCAN_WALK_DIM * BPPSA_SCAN_WALK_DIM * 4)

#ifdef __cplusplus
}
#endif

#endif
