/* What every benchmark is asked for, and how it reports: rows in one JSON document, a table for people. */
#ifndef BPPSA_BENCH_HARNESS_BENCH_REPORT_H
#define BPPSA_BENCH_HARNESS_BENCH_REPORT_H

#include "core/compute/device.h"
#include "core/measure/rounds.h"
#include "terminal/output.h"

typedef struct {
  bppsa_output to;
  const char *path;           /* the file that the document goes to as well, or NULL */
  const char *earlier;        /* a file with documents of earlier runs, a line each, by which rivals are judged; NULL: none */
  const bppsa_device *device; /* where it is measured */
  bool quick;                 /* fewer points, shorter rounds */
  int64_t repeats;            /* timed passes of every contender; 0: as many as fit into the budget */
  int64_t time_limit_s;       /* no further point begins after so many seconds; 0: no limit */
  int64_t memory_limit;       /* bytes; 0: a share of what the device has available */
  uint64_t seed;              /* of weights, data and seed gradients */
} bppsa_bench_request;

/* The rounds of timing that were asked for, with the budget of one contender in seconds, or that of a quick run. */
bppsa_rounds bppsa_bench_rounds_of(const bppsa_bench_request *request, double budget_s, double quick_s);
/* The memory limit in bytes: the requested one, or so many quarters of what the device has available. ERR_CUDA. */
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
/* ---- rows ---- */

/* How many rows were measured, and what they were like. */
typedef struct {
  int64_t measured, failed, noisy; /* failed: wrong, and not timed */
  double worst;                    /* residual */
} bppsa_bench_count_rows;

/* Counts a row, noisy or wrong. */
void bppsa_bench_count_row(bppsa_bench_count_rows *rows, double residual, bool right, bool noisy);
/* OK; ERR_NUMERIC where rows failed, because their residual is `bound` or more. */
bppsa_status bppsa_bench_rows_status(const bppsa_bench_count_rows *rows, double bound);

/* Writes "median_s", "min_s", "max_s", "repeats" and "noisy" (rounds.h); a time that was not measured is null. False when out of
 * memory.  */
bool bppsa_bench_put_timing(json_t *object, const bppsa_timing *timing);
/* The end of a row in the table: "  WRONG" if its results are wrong, otherwise "". */
const char *bppsa_bench_wrong(bool right);
/* Prints the line that explains the marks of noise below a table; nothing where `noisy` is 0. ERR_IO. */
bppsa_status bppsa_bench_show_noisy(const bppsa_output *to, int64_t noisy);
/* Fails with ERR_MEMORY: there was no memory for the results. */
bppsa_status bppsa_bench_no_room(void);

#endif
