/* A schedule with its times, and its files: JSON, SVG, a Chrome trace, CSV, and costs. */
#ifndef BPPSA_SCHEDULE_TIMED_H
#define BPPSA_SCHEDULE_TIMED_H

#include <jansson.h>

#include "core/base/text.h"
#include "schedule/schedule.h"

/* A valid schedule and its simulated times. */
typedef struct {
  bppsa_schedule *list;
  bppsa_schedule_times times;
} bppsa_timed;

/* Validates and simulates the list. Takes it over, also on failure. ERR_ARGUMENT names the rule that is broken. */
bppsa_status bppsa_timed_create(bppsa_schedule *list, bppsa_timed *timed);
void bppsa_timed_free(bppsa_timed *timed);

/* The schedule as JSON; with `with_ops` its operations too, unless there are more than 100 000, or more than 8388608 layers,
 * micro-batches and dependencies in them. NULL when out of memory. */
json_t *bppsa_timed_json(const bppsa_timed *timed, bool with_ops);

/* Reads a file of costs into `config`. `arrays` receives the arrays that config borrows, the profile's in the last three places;
 * free each with bppsa_free, also on failure. Their lengths are not checked: see bppsa_schedule_check_rows. ERR_FORMAT names key
 * and row; ERR_IO, ERR_MEMORY. */
bppsa_status bppsa_schedule_costs_load(const char *path, bppsa_schedule_config *config, double *arrays[]);
#define BPPSA_SCHEDULE_COST_ARRAYS (BPPSA_COST_COUNT + 3)
/* Writes a file of costs: the size of the micro-batches, the configuration's arrays of costs, and its link. ERR_MEMORY. */
bppsa_status bppsa_schedule_costs_write(const bppsa_schedule_config *config, bppsa_text *text);

/* Draws the timeline: workers from top to bottom, time from left to right, kinds coloured, numbers of micro-batches (of layers,
 * if each layer has an operation), activations below each worker. ERR_ARGUMENT: more than BPPSA_SCHEDULE_DRAW_LIMIT operations. */
bppsa_status bppsa_schedule_draw(const bppsa_timed *timed, bppsa_text *text);
#define BPPSA_SCHEDULE_DRAW_LIMIT 20000

/* Writes events of the Chrome trace format: one for each operation, arrows from SEND to RECV, counters of activations. A unit of
 * time is shown as a millisecond. ERR_ARGUMENT: more than BPPSA_SCHEDULE_TRACE_LIMIT operations. */
bppsa_status bppsa_schedule_trace(const bppsa_timed *timed, bppsa_text *text);
#define BPPSA_SCHEDULE_TRACE_LIMIT (1 << 20)

/* One of several schedules in a drawing or trace, which may show what was predicted beside what was measured. All is borrowed. */
typedef struct {
  const char *name; /* "predicted" */
  const bppsa_schedule *list;
  const bppsa_schedule_times *times;
  bool again;      /* in a trace: this is a later run of the previous group's list, by the same processes */
  int64_t updates; /* in a trace: how many updates each stage had in the runs before */
} bppsa_timed_group;

/* Other work that a trace shows. The spans of a track do not overlap. Borrowed. */
typedef struct {
  const char *name;
  double start, end;
} bppsa_timed_span;

typedef struct {
  char name[40]; /* "rank 0" */
  int64_t count;
  const bppsa_timed_span *spans;
} bppsa_timed_track;

typedef struct {
  int64_t count; /* 1 or more; in a trace 0 or more */
  const bppsa_timed_group *groups;
  double milliseconds; /* milliseconds in a unit of time */
  int64_t tracks;      /* used only in a trace */
  const bppsa_timed_track *track;
} bppsa_timed_groups;

/* Draws the timelines one below the other, with one scale. ERR_ARGUMENT: more operations than the limit. */
bppsa_status bppsa_schedule_draw_groups(const bppsa_timed_groups *groups, bppsa_text *text);
/* Writes a trace with a process for each worker of each group, "1f1b, predicted: worker 0", and for each track. */
bppsa_status bppsa_schedule_trace_groups(const bppsa_timed_groups *groups, bppsa_text *text);

/* Writes one row with what the schedule was made from, then one for each worker: its operations in order. */
bppsa_status bppsa_schedule_csv_write(const bppsa_timed *timed, bppsa_text *text);
/* Makes the contents of all files whose paths are given (NULL: not wanted) before it writes the first one. ERR_* of the functions
 * above, and of bppsa_file_write. */
typedef struct {
  const char *svg, *trace, *csv;
} bppsa_timed_files;
bppsa_status bppsa_timed_write(const bppsa_timed *timed, const bppsa_timed_files *files);
/* Reads a CSV file. The caller destroys the list. ERR_FORMAT names row and cell, or says that the file has more bytes than the
 * limit, or more operations, layers, workers or dependencies than it may have (csv.c); ERR_IO, ERR_MEMORY. */
bppsa_status bppsa_schedule_csv_load(const char *path, bppsa_schedule **list);
#define BPPSA_SCHEDULE_CSV_LIMIT ((int64_t)8 << 20) /* about a million operations: less than 1 GiB and 5 s, with csv.c's limits */

#endif
