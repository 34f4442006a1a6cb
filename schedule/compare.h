/* Schemes side by side. */
#ifndef BPPSA_SCHEDULE_COMPARE_H
#define BPPSA_SCHEDULE_COMPARE_H

#include <jansson.h>

#include "schedule/timed.h"

/* What a table says of a schedule, and what its time is the time of: -1 where the scheme has no such thing. */
typedef struct {
  const bppsa_schedule_scheme *scheme;
  int64_t layers, micro_batches, elements, workers, iterations;
  bppsa_schedule_window window;
  double makespan, bubble_ratio;
  double least, most; /* peak activations of any worker, M_a */
  double weights;     /* the most versions any worker holds, M_theta */
} bppsa_schedule_summary;

bppsa_schedule_summary bppsa_schedule_summarise(const bppsa_timed *timed);

/* Appends a table with a row a schedule. What is not the same for all of them (layers, micro-batches, elements of a scan, workers,
 * iterations, the window) has a column, and a sentence says that their times are of different work; what is the same for all is
 * named once. */
void bppsa_schedule_table(const bppsa_schedule_summary *rows, int64_t count, bppsa_text *text);

/* The keys, of bppsa_timed_json, of what is not the same for all: an array of strings. NULL when out of memory. */
json_t *bppsa_schedule_differences(const bppsa_schedule_summary *rows, int64_t count);

#endif
