/* A scan plan as JSON (cli/plan.c): for the commands plan and flops. */
#ifndef BPPSA_CLI_PLAN_JSON_H
#define BPPSA_CLI_PLAN_JSON_H

#include "core/json.h"
#include "scan/plan.h"

#define BPPSA_PLAN_STEPS 10000 /* longer plans are given as totals and levels only */

/* "steps", "levels", "totals" of the design's JSON; NULL when out of memory. */
json_t *bppsa_plan_steps_json(const bppsa_scan_plan *plan);
json_t *bppsa_plan_levels_json(const bppsa_scan_plan *plan);
json_t *bppsa_plan_totals_json(const bppsa_scan_plan *plan);

#endif
