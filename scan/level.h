/* Level records, of which a scan plan is a short list. scan/plan.h has the notation. */
#ifndef BPPSA_SCAN_LEVEL_H
#define BPPSA_SCAN_LEVEL_H

#include <stdbool.h>
#include <stdint.h>

typedef enum { BPPSA_PHASE_UP = 0, BPPSA_PHASE_MIDDLE, BPPSA_PHASE_DOWN, BPPSA_PHASE_INPUT } bppsa_scan_phase; /* of a level */
typedef enum { BPPSA_OP_MM = 0, BPPSA_OP_MV } bppsa_scan_op; /* a product of two matrices, or of a matrix and a vector */

/* `count` independent items; item k begins at element first + k * stride + min(k, longer). The sizes of chunks differ by at most
 * one element, and the larger chunks come first: the first `longer` items have one link more than `length`, and the first `wider`
 * links of a chain cover one element more than `span`.
 *
 *   MV  a chain of `length` products:      y[i+s] = a[i:i+s-1] y[i],  then i += s             (s = span, or one more)
 *   MM  a tree (chain = false, length 1):  a[i:r] = a[i:i+s-1] ⋄ a[i+s:r],  r = min(i+2s-1, n)
 *       a chain (chain = true):            a[i:i+length] = a[i] ⋄ a[i+1] ⋄ .. ⋄ a[i+length]
 *
 * Records of one level are independent of each other; level k + 1 follows level k. */
typedef struct {
  bppsa_scan_phase phase;
  bppsa_scan_op op;
  int32_t level; /* index in the plan's list of levels */
  bool chain;
  bool dead; /* the result would be overwritten: the record is listed and never run */
  int64_t first, stride, count, span, length;
  int64_t longer, wider; /* chunked; 0 otherwise */
  int64_t critical;      /* the item on the critical path, with all its steps; -1: none */
} bppsa_scan_level;

#endif
