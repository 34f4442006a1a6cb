/* A scan plan as JSON. */
#ifndef BPPSA_SCAN_PLAN_JSON_H
#define BPPSA_SCAN_PLAN_JSON_H

#include "core/files/json.h"
#include "scan/plan.h"

#define BPPSA_PLAN_STEPS 10000 /* longer plans are given as totals and levels only */

/* "steps", "levels", "totals" of the design's JSON; NULL when out of memory. */
json_t *bppsa_plan_steps_json(const bppsa_scan_plan *plan);
json_t *bppsa_plan_levels_json(const bppsa_scan_plan *plan);
json_t *bppsa_plan_totals_json(const bppsa_scan_totals *totals);
/* An entry of "steps"; the counts in `step` may differ from the plan's. */
json_t *bppsa_plan_step_json(const bppsa_scan_plan *plan, const bppsa_scan_step *step);

#endif
