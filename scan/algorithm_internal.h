/* The table of algorithms: one row each, of what it is called, how its plan is written, what of it `auto` tries, and what runs it.
 * Everything else asks the row; an algorithm without one is ERR_UNSUPPORTED, and so is a device that its row does not name.
 */
#ifndef BPPSA_SCAN_ALGORITHM_INTERNAL_H
#define BPPSA_SCAN_ALGORITHM_INTERNAL_H

#include "core/device.h"
#include "scan/algorithm.h"
#include "scan/level.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BPPSA_SCAN_MOST_RECORDS = 4 * 64 };

/* What an algorithm writes: a plan's records, in execution order. */
typedef struct {
  bppsa_scan_level *records; /* room for BPPSA_SCAN_MOST_RECORDS */
  int64_t count;
  int64_t level_count;
  int64_t slot_count; /* of products that are held */
} bppsa_scan_records;

/* Appends a record that has products. */
void bppsa_scan_add_record(bppsa_scan_records *to, bppsa_scan_level record);

/* For whom candidates are listed. */
typedef struct {
  int64_t jacobians;
  bppsa_device_kind device;
  int32_t threads; /* of a processor that is measured; 0: for the cost model, which must not depend on it */
} bppsa_scan_contest;

typedef struct {
  const char *name;   /* "blelloch" */
  const char *number; /* the name, in JSON, of the number it has; NULL: it has none, and so for the next three */
  const char *unit;   /* of the number, in words: "chunk" */
  int64_t least;      /* the smallest number there is; below it stands for the default */
  int64_t *(*number_of)(bppsa_scan_method *method);
  int64_t (*clamp)(int64_t jacobians, int64_t wanted); /* the number that is planned */
  /* Candidate `index` from 0 of `auto`: sets the number of *method, which is the algorithm's own; false when there are no more.
   * NULL: the algorithm is no candidate. */
  bool (*candidate)(const bppsa_scan_contest *contest, int64_t index, bppsa_scan_method *method);
  /* Writes the records of a chain of n Jacobians, the method's number clamped; NULL: the algorithm only chooses another. slot:
   * where the product a[first:last] is held. */
  void (*write)(int64_t n, const bppsa_scan_method *method, bppsa_scan_records *to);
  int64_t (*slot)(int64_t n, const bppsa_scan_method *method, int64_t first, int64_t last);
  bool runs[2]; /* its records, on a device of this kind */
  bool sparse;  /* csr elements */
  bool joins;   /* multiplies products by products */
  bool bp;      /* is the recurrence itself */
  bppsa_scan_fusion fusion;
} bppsa_scan_algorithm_row;

/* NULL: there is no such algorithm. */
const bppsa_scan_algorithm_row *bppsa_scan_algorithm_find(bppsa_scan_algorithm algorithm);
/* ERR_UNSUPPORTED: no such algorithm, or its records do not run on a device of this kind. */
bppsa_status bppsa_scan_algorithm_check(bppsa_scan_algorithm algorithm, bppsa_device_kind device);
/* Candidate `index` from 0 among all algorithms that run on the contest's device, and take csr elements where `sparse`; false
 * when there are no more. */
bool bppsa_scan_algorithm_candidate(const bppsa_scan_contest *contest, bool sparse, int64_t index, bppsa_scan_method *method);

#ifdef __cplusplus
}
#endif

#endif
