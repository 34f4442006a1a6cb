/* The algorithms of a scan: one row each, of what it is called, how its plan is written, and what runs it. Everything else asks
 * the row; an algorithm without one is ERR_UNSUPPORTED, and so is a device that its row does not name. Internal.
 */
#ifndef BPPSA_SCAN_ALGORITHM_H
#define BPPSA_SCAN_ALGORITHM_H

#include "scan/plan_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  const char *name;   /* "blelloch" */
  const char *number; /* the name, in JSON, of the number it has; NULL: it has none, and so for the next three */
  const char *unit;   /* of the number, in words: "chunk" */
  int64_t least;      /* the smallest number there is; below it stands for the default */
  int64_t *(*number_of)(bppsa_scan_method *method);
  int64_t (*clamp)(int64_t jacobians, int64_t wanted); /* the number that is planned */
  /* Writes the records, level_count and slot_count; NULL: the algorithm only chooses another. slot: where the product
   * a[first:last] is held. */
  void (*write)(bppsa_scan_plan *plan);
  int64_t (*slot)(const bppsa_scan_plan *plan, int64_t first, int64_t last);
  bool runs[2]; /* its records, on a device of this kind */
  bool sparse;  /* csr elements */
  bool joins;   /* multiplies products by products */
  bppsa_scan_fusion fusion;
} bppsa_scan_algorithm_row;

/* NULL: there is no such algorithm. */
const bppsa_scan_algorithm_row *bppsa_scan_algorithm_find(bppsa_scan_algorithm algorithm);
/* ERR_UNSUPPORTED: no such algorithm, or its records do not run on a device of this kind. */
bppsa_status bppsa_scan_algorithm_check(bppsa_scan_algorithm algorithm, bppsa_device_kind device);
/* ⌈log₂(n + 1)⌉ - 1, at least 0: the up-levels of a whole tree. */
int64_t bppsa_scan_most_levels(int64_t n);

#ifdef __cplusplus
}
#endif

#endif
