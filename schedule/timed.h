/* A schedule with its times, and the files it is written to and read from: JSON, SVG, a Chrome trace, CSV, and costs. */
#ifndef BPPSA_SCHEDULE_TIMED_H
#define BPPSA_SCHEDULE_TIMED_H

#include <jansson.h>

#include "core/text.h"
#include "schedule/schedule.h"

/* A schedule, valid and simulated. */
typedef struct {
  bppsa_schedule *list;
  bppsa_schedule_times times;
} bppsa_timed;

/* Validates and simulates the list, which it takes over. ERR_ARGUMENT names the rule that is broken. */
bppsa_status bppsa_timed_create(bppsa_schedule *list, bppsa_timed *timed);
void bppsa_timed_free(bppsa_timed *timed);

/* A schedule as JSON; with `with_ops` its operations, where there are no more than 100 000. NULL when out of memory. */
json_t *bppsa_timed_json(const bppsa_timed *timed, bool with_ops);

/* Reads a file of costs into `config`, and into `arrays` what the config borrows: bppsa_free each, also on failure; the last three
 * are the profile's. Whether the arrays' lengths fit is for the scheme to say: bppsa_schedule_check_rows. ERR_FORMAT names key and
 * row; ERR_IO, ERR_MEMORY. */
bppsa_status bppsa_schedule_costs_load(const char *path, bppsa_schedule_config *config, double *arrays[]);
#define BPPSA_SCHEDULE_COST_ARRAYS (BPPSA_COST_COUNT + 3)

/* The timeline: workers down, time across, kinds coloured, numbers of micro-batches (of layers, where each has an operation),
 * activations below each worker.
 * ERR_ARGUMENT: more than BPPSA_SCHEDULE_DRAW_LIMIT operations. */
bppsa_status bppsa_schedule_draw(const bppsa_timed *timed, bppsa_text *text);
#define BPPSA_SCHEDULE_DRAW_LIMIT 20000

/* Events of the Chrome trace format: an operation each, arrows from SEND to RECV, counters of activations. A unit of time is a
 * millisecond. */
bppsa_status bppsa_schedule_trace(const bppsa_timed *timed, bppsa_text *text);

/* One row with what the schedule was made from, then one a worker: its operations in order. */
bppsa_status bppsa_schedule_csv_write(const bppsa_timed *timed, bppsa_text *text);
/* Reads such a file. The caller destroys the list. ERR_FORMAT names row and cell; ERR_IO, ERR_MEMORY. */
bppsa_status bppsa_schedule_csv_load(const char *path, bppsa_schedule **list);

#endif
