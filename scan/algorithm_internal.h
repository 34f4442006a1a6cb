/* The table of algorithms. A row says what the algorithm is called, how its plan is written, which candidates `auto` tries, and
 * what runs it. All other code asks the row; an algorithm without a row, or a device that its row does not name, is
 * ERR_UNSUPPORTED.
 */
#ifndef BPPSA_SCAN_ALGORITHM_INTERNAL_H
#define BPPSA_SCAN_ALGORITHM_INTERNAL_H

#include "core/compute/device.h"
#include "scan/algorithm.h"
#include "scan/level.h"
#include "scan/slot.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BPPSA_SCAN_MOST_RECORDS = 4 * 64 };

/* What an algorithm writes: the records of a plan, in execution order. */
typedef struct {
  bppsa_scan_level *records; /* room for BPPSA_SCAN_MOST_RECORDS */
  int64_t count;
  int64_t level_count;
  int64_t slot_count; /* of held products */
} bppsa_scan_records;

/* Appends a record that has products. */
void bppsa_scan_add_record(bppsa_scan_records *to, bppsa_scan_level record);

/* What the list of candidates depends on. */
typedef struct {
  int64_t jacobians;
  bppsa_device_kind device;
  int32_t threads; /* of the CPU whose times are measured; 0: for the cost model, which must not depend on threads */
} bppsa_scan_contest;

typedef struct {
  const char *name;   /* "blelloch" */
  const char *number; /* the JSON name of the number that a method has; NULL: it has none, and the next three are unused */
  const char *unit;   /* what the number counts, in words: "chunk" */
  int64_t least;      /* the smallest valid number; a smaller one stands for the default */
  int64_t *(*number_of)(bppsa_scan_method *method);
  int64_t (*clamp)(int64_t jacobians, int64_t wanted); /* the number that is planned */
  /* Candidate `index` from 0 of `auto`: sets the number of *method, whose algorithm is set; false if there are no more. NULL: the
   * algorithm is no candidate. */
  bool (*candidate)(const bppsa_scan_contest *contest, int64_t index, bppsa_scan_method *method);
  /* Writes the records for a chain of n Jacobians; the method's number is clamped. NULL: the algorithm only chooses
   * another. slot_rule: how its products' slots are numbered; an executor that does not know the rule cannot be created. */
  void (*write)(int64_t n, const bppsa_scan_method *method, bppsa_scan_records *to);
  bppsa_slot_rule slot_rule;
  bool runs[2]; /* can a device of this kind run its records? */
  bool sparse;  /* can it scan csr elements? */
  bool joins;   /* does it multiply products by products? */
  bool bp;      /* is it the recurrence itself? */
  bppsa_scan_fusion fusion;
} bppsa_scan_algorithm_row;

/* NULL: no such algorithm. */
const bppsa_scan_algorithm_row *bppsa_scan_algorithm_find(bppsa_scan_algorithm algorithm);
/* ERR_UNSUPPORTED: no such algorithm, or a device of this kind does not run its records. */
bppsa_status bppsa_scan_algorithm_check(bppsa_scan_algorithm algorithm, bppsa_device_kind device);
/* Candidate `index` from 0, over all algorithms that run on the contest's device and, if `sparse`, can scan csr elements; false
 * if there are no more. */
bool bppsa_scan_algorithm_candidate(const bppsa_scan_contest *contest, bool sparse, int64_t index, bppsa_scan_method *method);

#ifdef __cplusplus
}
#endif

#endif
