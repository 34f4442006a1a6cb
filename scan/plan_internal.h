/* Inside of a scan plan, for the executors of this folder. */
#ifndef BPPSA_SCAN_PLAN_INTERNAL_H
#define BPPSA_SCAN_PLAN_INTERNAL_H

#include "scan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

struct bppsa_scan_plan {
  bppsa_scan_config config; /* resolved; dims = the copy below */
  int64_t *dims;            /* size of g_t, size n + 1; NULL when uniform */
  int64_t chunk_length;     /* chunked: c */
  int64_t record_count;
  bppsa_scan_level *records; /* size record_count */
  int64_t level_count;
  int64_t *levels; /* products per level, size level_count */
  int64_t slot_count;
  int64_t slot_reals;    /* reals per slot and sample when sizes are uniform */
  int64_t *slot_offsets; /* else: first real of each slot, size slot_count + 1 */
  bppsa_scan_totals totals;
};

/* Size of y[i], i = 1 .. n + 1. */
int64_t bppsa_scan_plan_dim(const bppsa_scan_plan *plan, int64_t y);
/* Where the product a[first:last], first < last, is held. */
int64_t bppsa_scan_plan_slot(const bppsa_scan_plan *plan, int64_t first, int64_t last);
/* First real of a slot, counted for one sample (multiply by the batch). */
int64_t bppsa_scan_plan_slot_offset(const bppsa_scan_plan *plan, int64_t slot);

#ifdef __cplusplus
}
#endif

#endif
