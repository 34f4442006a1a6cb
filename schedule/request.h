/* A request for a schedule: a configuration, perhaps a file of costs, and which values the scheme may choose. */
#ifndef BPPSA_SCHEDULE_REQUEST_H
#define BPPSA_SCHEDULE_REQUEST_H

#include "schedule/timed.h"

typedef struct {
  bppsa_schedule_config config;
  bool sets_window;                           /* config.window holds; otherwise the scheme chooses */
  bool sets_elements;                         /* config.elements holds; otherwise a scan has 16 Jacobians a worker */
  const char *costs;                          /* the path of a file of costs (borrowed), or NULL */
  double *arrays[BPPSA_SCHEDULE_COST_ARRAYS]; /* owned: the numbers of that file, which config borrows */
  int64_t *cut;                               /* owned: config.cut, or NULL */
} bppsa_schedule_request;

/* Checks that a scheme, or one of several with commas between them, takes an option. `option` is its name in `bppsa schedule`, as
 * "chunks"; `value` is its number, 0 if it has none. ERR_ARGUMENT: no scheme takes it; the message names the schemes that do. Every
 * scheme accepts the value 1 for stages, width, micro-batches, iterations and chunks. */
bppsa_status bppsa_schedule_check_option(const char *schemes, const char *option, int64_t value);
/* Appends a line for each option that only some schemes take, with their names. */
void bppsa_schedule_options_text(bppsa_text *text);
/* Returns the names of the options that this scheme takes and not every scheme does, as an array. NULL when out of memory. */
json_t *bppsa_schedule_options_json(const bppsa_schedule_scheme *scheme);

bppsa_schedule_request bppsa_schedule_request_default(void);
/* Reads a file of costs. ERR_* of bppsa_schedule_costs_load. */
bppsa_status bppsa_schedule_request_costs(bppsa_schedule_request *request, const char *path);
/* Reads the first layers of the stages, "3,5". ERR_* of bppsa_schedule_cut_parse. */
bppsa_status bppsa_schedule_request_cut(bppsa_schedule_request *request, const char *text);
void bppsa_schedule_request_free(bppsa_schedule_request *request); /* a zeroed one is legal */

/* Makes and times the scheme's schedule. layers: the number of the model's layers if config has none; 0: the scheme's default.
 * ERR_ARGUMENT: an unknown scheme (the message suggests one), or costs for other layers; ERR_* of bppsa_schedule_create and
 * bppsa_timed_create. */
bppsa_status bppsa_schedule_request_make(const bppsa_schedule_request *request, const char *scheme, int64_t layers,
                                         bppsa_timed *timed);

/* Reads the schedule of a CSV file and times it. ERR_ARGUMENT: a file that cannot be read; ERR_* of bppsa_schedule_csv_load and
 * bppsa_timed_create. */
bppsa_status bppsa_schedule_load(const char *path, bppsa_timed *timed);

#endif
