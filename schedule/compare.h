/* Compares schemes in a table. */
#ifndef BPPSA_SCHEDULE_COMPARE_H
#define BPPSA_SCHEDULE_COMPARE_H

#include <jansson.h>

#include "schedule/request.h"

/* A row of the table: a schedule's results, and the size of the work that takes this time. -1: the scheme has no such field. */
typedef struct {
  const bppsa_schedule_scheme *scheme;
  int64_t layers, micro_batches, elements, workers, iterations;
  bppsa_schedule_window window;
  double makespan, bubble_ratio;
  double least, most; /* smallest and largest of the workers' peak activations, M_a */
  double weights;     /* the most versions that a worker holds, M_theta */
} bppsa_schedule_summary;

bppsa_schedule_summary bppsa_schedule_summarise(const bppsa_timed *timed);

/* Appends a table with a row for each schedule. A field in which schedules differ (layers, micro-batches, elements of a scan,
 * workers, iterations, the window) becomes a column, and a sentence says that their times are for different work; a field in
 * which all agree is named once. */
void bppsa_schedule_table(const bppsa_schedule_summary *rows, int64_t count, bppsa_text *text);

/* Returns an array of the keys (of bppsa_timed_json) of the fields in which the schedules differ. NULL when out of memory. */
json_t *bppsa_schedule_differences(const bppsa_schedule_summary *rows, int64_t count);

/* Makes a schedule for each scheme of a list ("gpipe,1f1b"), all for one model. It has as many layers as the request says, or else
 * the largest of the schemes' defaults. Appends the table, or with `json` an array of the schedules' documents. These have no
 * operations, but "differs", the keys of bppsa_schedule_differences. ERR_ARGUMENT: no scheme, or a list of more than 1023
 * characters; ERR_* of bppsa_schedule_request_make. */
bppsa_status bppsa_schedule_compare(const bppsa_schedule_request *request, const char *schemes, bool json, bppsa_text *text);

#endif
