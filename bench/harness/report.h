/* What every benchmark is asked for, and how it reports: rows in one JSON document, a table for people. */
#ifndef BPPSA_BENCH_HARNESS_REPORT_H
#define BPPSA_BENCH_HARNESS_REPORT_H

#include "bench/harness/output.h"
#include "core/device.h"
#include "core/rounds.h"

typedef struct {
  bppsa_output to;
  const char *path;           /* the file that the document goes to as well, or NULL */
  const bppsa_device *device; /* where it is measured */
  bool quick;                 /* fewer points, shorter rounds */
  int64_t repeats;            /* timed passes of every contender; 0: as many as fit into the budget */
  int64_t time_limit_s;       /* no further point begins after so many seconds; 0: no limit */
  int64_t memory_limit;       /* bytes; 0: a share of what the device has available */
  uint64_t seed;              /* of weights, data and seed gradients */
} bppsa_bench_request;

/* The rounds of timing that were asked for, with the budget of one contender in seconds, or that of a quick run. */
bppsa_rounds bppsa_bench_rounds_of(const bppsa_bench_request *request, double budget_s, double quick_s);
/* The memory limit in bytes; where none was asked for, so many quarters of what the device has available. ERR_CUDA. */
bppsa_status bppsa_bench_memory_limit(const bppsa_bench_request *request, int quarters, int64_t *bytes);
/* The time after which no further point begins, of the monotonic clock; 0: none. */
double bppsa_bench_deadline(const bppsa_bench_request *request);

/* ---- the document ---- */

typedef struct {
  const bppsa_bench_request *request;
  json_t *document, *rows; /* rows: an array in the document, empty at first */
} bppsa_bench_report;

/* {"bench":name,"device","version","commit","date"}; NULL when out of memory. */
json_t *bppsa_bench_document(const char *name, const bppsa_device *device);
/* Begins a document with rows. On failure nothing is held. ERR_MEMORY. */
bppsa_status bppsa_bench_open(const bppsa_bench_request *request, const char *name, bppsa_bench_report *report);
/* Writes the document to the request's file (atomically) and prints it where JSON is wanted. ERR_MEMORY, ERR_IO. */
bppsa_status bppsa_bench_finish(const bppsa_bench_report *report);
/* Releases the document and returns the status of the benchmark. Where `status` is OK, the document is finished first, and rows
 * that `failed`, by `bound` or more, are ERR_NUMERIC. */
bppsa_status bppsa_bench_close(bppsa_bench_report *report, bppsa_status status, int64_t failed, double bound);

/* ---- rows ---- */

/* "median_s", "min_s", "max_s", "repeats" and "noisy" (rounds.h); null for times of what was not measured. False when out of
 * memory. */
bool bppsa_bench_put_timing(json_t *object, const bppsa_timing *timing);
/* Prints the line that explains the marks of noise below a table; nothing where `noisy` is 0. ERR_IO. */
bppsa_status bppsa_bench_show_noisy(const bppsa_output *to, int64_t noisy);
/* The document's "left_out": a list of what has no row, empty at first. ERR_MEMORY. */
bppsa_status bppsa_bench_list_left_out(const bppsa_bench_report *report, json_t **left_out);
/* Adds what has no row: names (a key, its text, ..., NULL) and the reason. ERR_MEMORY. */
bppsa_status bppsa_bench_leave_out(json_t *left_out, const char *const *names, const char *reason);
/* ERR_MEMORY with the sentence for results that found no memory. */
bppsa_status bppsa_bench_no_room(void);

#endif
