/* Schedules and schemes as texts for people, and the list of schemes as JSON. */
#ifndef BPPSA_SCHEDULE_SCHEDULE_REPORT_H
#define BPPSA_SCHEDULE_SCHEDULE_REPORT_H

#include "schedule/timed.h"

/* Appends a schedule's times and a row for each worker; if there are many, for the first and the last workers only. ERR_MEMORY. */
bppsa_status bppsa_timed_text(const bppsa_timed *timed, bppsa_text *text);

/* Appends a line for each scheme: its id, a description, its paper; then a line for each option that not every scheme takes.
 * ERR_MEMORY. */
bppsa_status bppsa_schedule_list_text(bppsa_text *text);
/* Returns the schemes as an array of {"id", "summary", "paper", "options"}; NULL when out of memory. */
json_t *bppsa_schedule_list_json(void);

#endif
