/* The rules by which an algorithm numbers the slots that hold its products, for all devices: executors ask the rule in the
 * algorithm's row (scan/algorithm.c). */
#ifndef BPPSA_SCAN_SLOT_H
#define BPPSA_SCAN_SLOT_H

#include "core/base/cut.h"

typedef enum {
  BPPSA_SLOT_NONE = 0, /* the algorithm holds no products */
  BPPSA_SLOT_TREE,     /* a[first:last] is in slot ⌊last / 2⌋: the spans of a tree's products are at least 2 */
  BPPSA_SLOT_CHUNKS,   /* the transition of chunk c, from 1, is in slot c - 1 */
  BPPSA_SLOT_ONE,      /* a single product, in slot 0 */
  BPPSA_SLOT_RULES
} bppsa_slot_rule;

/* The slot of the product a[first:last] of n Jacobians; chunks: of BPPSA_SLOT_CHUNKS. -1: the rule has no slots. */
static inline BPPSA_HOST_DEVICE int64_t bppsa_slot(bppsa_slot_rule rule, int64_t n, int64_t chunks, int64_t first, int64_t last) {
  switch (rule) {
  case BPPSA_SLOT_TREE:
    return last >> 1;
  case BPPSA_SLOT_CHUNKS:
    return bppsa_cut_part(n, chunks, first - 1) - 1;
  case BPPSA_SLOT_ONE:
    return 0;
  case BPPSA_SLOT_NONE:
  case BPPSA_SLOT_RULES:
    break;
  }
  return -1;
}

#endif
