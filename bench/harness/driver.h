/* Runs a benchmark. A benchmark is a descriptor that says what it prepares, which contenders each of its points has, and what their
 * rows say. The driver does what they share: the document, the host beside a GPU, the limits of memory
 * and time, verification before timing (core/measure/rounds.h), recordings on a GPU, rows, the table, what is left out, the
 * verdict.
 *
 * The order of a run: prepare; what the machine can do; the head of the table; for each point enter, rounds, settle, rows, leave;
 * finish; the document; release.
 *
 * A row belongs to a contender, unless the benchmark has lines: then it says which rows a point has, and a row may be one of two
 * phases of a contender, or something that was skipped and says why.
 */
#ifndef BPPSA_BENCH_HARNESS_DRIVER_H
#define BPPSA_BENCH_HARNESS_DRIVER_H

#include "bench/harness/bench_report.h"
#include "bench/harness/outlook.h"
#include "bench/harness/recording.h"
#include "calibrate/limits.h"
#include "terminal/progress.h"
#include "terminal/table.h"

typedef struct bppsa_bench bppsa_bench;

/* A pass, and the function that compares its results with a reference. On a GPU a pass is also recorded and replayed. */
typedef struct {
  bppsa_queued_work action; /* queues one pass */
  bppsa_queued_work
      clear; /* makes the results of an earlier pass 0, so that a pass that does nothing is found; NULL: not needed */
  /* The residual of the latest pass, which is over. ERR_UNSUPPORTED refuses the contender. */
  bppsa_status (*judge)(void *context, double *residual);
  bppsa_qualifying qualifies; /* of rivals (core/measure/rounds.h) */
} bppsa_bench_work;

enum { BPPSA_BENCH_METHOD = 80, BPPSA_BENCH_PHASE = 16, BPPSA_BENCH_LABEL = 120 };

/* One contender at a point, with a row of its own. */
typedef struct {
  bppsa_bench *bench;
  char method[BPPSA_BENCH_METHOD], phase[BPPSA_BENCH_PHASE]; /* they name it; "" where a benchmark has only one */
  void *context;                                             /* the benchmark's: its work and what its row says */
  const bppsa_bench_work *work;                              /* NULL: the contender has a pass of its own */
  const bppsa_device *device;                                /* whose clock times it */
  bool recorded;                                             /* replayed as a recording */
  bppsa_timed_work timed;                                    /* the passes are queued anew and timed; or */
  bppsa_bench_recording recording;
  bppsa_contender contender; /* with the residual and the timing */
  int64_t needs;             /* bytes that a refused line would need; 0: it was refused for another reason */
} bppsa_bench_entrant;

struct bppsa_bench_settings; /* cases/case.h */

typedef struct {
  const char *name;         /* "scan", as in `bppsa bench scan` */
  const char *document;     /* what the document calls it; NULL: the name */
  size_t session;           /* bytes of what the benchmark holds while it runs, zero at first */
  double budget_s, quick_s; /* seconds of the rounds of one contender; in a quick run */
  bool shared;              /* the contenders of a point share these seconds */
  double bound;             /* results whose residual is smaller are right */
  int memory_quarters;      /* quarters of the available memory that are the default limit; 0: no limit */
  bool limits;              /* it needs to know what the machine can do at best */
  bool one_thread;          /* it runs on one thread of the processor */
  /* The members by which the document names what was left out: "method", "phase", or one for the point; NULL-terminated. NULL:
   * nothing is ever left out. */
  const char *const *names;
  const bppsa_table_column *columns;                               /* NULL: rows are not shown to people */
  bppsa_status (*prepare)(bppsa_bench *bench);                     /* what all points need */
  bool (*put_members)(const bppsa_bench *bench, json_t *document); /* of the document, besides rows; NULL: none */
  bppsa_status (*head)(const bppsa_bench *bench);                  /* prints the lines above the table */
  bppsa_status (*enter)(bppsa_bench *bench, int64_t point,
                        bool *more);                            /* the contenders of a point; *more: there is such a point */
  bool (*put)(const bppsa_bench_entrant *entrant, json_t *row); /* the members of a row; false: out of memory */
  void (*leave)(bppsa_bench *bench);                            /* frees what the point's contenders used; NULL: nothing */
  void (*release)(bppsa_bench *bench);                          /* after `prepare`, also where it failed */
  /* NULL: every entrant has a row. Otherwise `line` describes the point's row `index`, 0 .. lines - 1: it sets the names, the
   * context, and the contender's verdict, residual, reason and timing[0]. false: the point does not have that row. */
  int64_t lines;
  bool (*line)(const bppsa_bench *bench, int64_t index, bppsa_bench_entrant *line);
  /* Returns the text that the table shows instead of a row's numbers, or NULL for the numbers. NULL: always the numbers. */
  const char *(*note)(const bppsa_bench_entrant *line, char *text, size_t size);
  /* Called when all rounds of a point are over and the entrants have their results. NULL: nothing to do. */
  bppsa_status (*settle)(bppsa_bench *bench);
  /* Print the lines above the headings and below the rows of every point. NULL: one table has the rows of all points. */
  bppsa_status (*above)(bppsa_bench *bench), (*below)(bppsa_bench *bench);
  /* After all points: adds members to the document and prints what stands below the table. NULL: nothing. */
  bppsa_status (*finish)(bppsa_bench *bench);
  /* A benchmark on ranks: rank 0 drives it, and the other ranks do this. NULL: it runs in one process, on one rank. */
  bppsa_status (*serve)(const bppsa_bench_request *request, const struct bppsa_bench_settings *asked);
} bppsa_bench_case;

enum { BPPSA_BENCH_NOTE = BPPSA_CONTENDER_REASON + 40 }; /* bytes of a note */

/* Takes rows as they are measured. */
typedef struct {
  json_t *rows; /* an array; rows of an earlier run may be in it */
  /* Called after every point, when its rows are in the array; `done` of `all` points are over. Any status but OK ends the run.  */
  bppsa_status (*after)(void *context, int64_t done, int64_t all);
  void *context;
} bppsa_bench_keeper;

struct bppsa_bench {
  const bppsa_bench_case *kind;
  const bppsa_bench_request *request;
  const struct bppsa_bench_settings *asked;
  const bppsa_device *device; /* where it is measured */
  const bppsa_device *host;   /* the processor, with as many threads as the device; the device itself unless that is a GPU */
  bool gpu;
  int64_t memory_limit; /* bytes */
  double deadline;      /* of the monotonic clock; 0: none */
  double qualify; /* rivals qualify by this factor (core/measure/rounds.h): 2 on a GPU and beside --time-limit, otherwise 0 */
  bppsa_machine_limits limits; /* where the benchmark needs them */
  bppsa_bench_report report;
  json_t *left_out;
  json_t *earlier;                     /* rows of earlier runs, by which rivals are judged (outlook.h); NULL: none */
  const bppsa_bench_keeper *keeper;    /* NULL: rows go to a document and a table */
  const bppsa_table_column *columns;   /* the case's; a case may set others for a point, before its rows */
  bppsa_bench_count_rows rows;         /* what was measured so far */
  int64_t needed;                      /* the fewest bytes that a refused line needs; 0: no line lacks memory */
  char reason[BPPSA_CONTENDER_REASON]; /* of the first line that was refused for another reason */
  int64_t points;                      /* set by a case that knows how many there are */
  int64_t points_left_out;             /* by the deadline */
  bool idle;                           /* set by `enter`: nothing is measured at this point */
  bppsa_progress_line progress;
  char label[BPPSA_BENCH_LABEL]; /* of the point, in front of its progress; "": no progress is shown */
  char point[BPPSA_BENCH_METHOD];
  int64_t count, capacity; /* of entrants */
  bppsa_bench_entrant **entrants;
  void *session;
};

/* Runs a benchmark. ERR_NUMERIC: rows are wrong; other ERR_* of its parts. */
bppsa_status bppsa_bench_drive(const bppsa_bench_case *kind, const bppsa_bench_request *request,
                               const struct bppsa_bench_settings *asked);
/* Makes the rows alone, without document and table, and counts them; those that are wrong are no error. ERR_*: of its parts. */
bppsa_status bppsa_bench_drive_rows(const bppsa_bench_case *kind, const bppsa_bench_request *request,
                                    const struct bppsa_bench_settings *asked, const bppsa_bench_keeper *keeper,
                                    bppsa_bench_count_rows *count);

/* ---- for `prepare` ---- */

/* Reads the rows of --earlier, of the benchmark and this model. ERR_* of bppsa_outlook_read. */
bppsa_status bppsa_bench_read_earlier(bppsa_bench *bench, const char *model);

/* ---- for `finish` ---- */

/* "points_left_out" of the document where there is a deadline, and a line for people. ERR_MEMORY, ERR_IO. */
bppsa_status bppsa_bench_report_points(bppsa_bench *bench);

/* ---- for `enter` ---- */

/* Is the deadline over, and at least one row measured? Then the point becomes idle and counts as left out. */
bool bppsa_bench_out_of_time(bppsa_bench *bench);

/* Enters a pass that is queued anew, and verifies it. A pass that is refused is left out, and *entered (may be NULL) is false. */
bppsa_status bppsa_bench_enter(bppsa_bench *bench, const bppsa_bench_work *work, const bppsa_device *device, void *context,
                               const char *method, const char *phase, bool *entered);
/* Enters the same as a recording of the GPU. One that cannot be recorded is left out. */
bppsa_status bppsa_bench_enter_recording(bppsa_bench *bench, const bppsa_bench_work *work, void *context, const char *method,
                                         const char *phase);
/* Enters a contender with a verification and a pass of its own, whose contexts are the caller's. One that is refused is left out,
 * the last error is the reason, and *entered (may be NULL) is false. */
bppsa_status bppsa_bench_enter_contender(bppsa_bench *bench, const bppsa_contender *contender, void *context, const char *method,
                                         const char *phase, bool *entered);
/* Writes that a method has no row; the last error is the reason. method, phase: "" if the benchmark has no such name. Does nothing
 * if the case has no `names`. */
bppsa_status bppsa_bench_leave_out(bppsa_bench *bench, const char *method, const char *phase);

#endif
