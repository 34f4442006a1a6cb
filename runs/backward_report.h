/* A speculative backward pass as `bppsa plan` shows it, and its FLOPs beside BP's. */
#ifndef BPPSA_RUNS_BACKWARD_REPORT_H
#define BPPSA_RUNS_BACKWARD_REPORT_H

#include "core/base/text.h"
#include "networks/planner.h"
#include "recurrent/recurrent.h"
#include "scan/work.h"

typedef struct {
  const bppsa_network_kind *kind;
  bppsa_recurrent_config config; /* as asked for */
  bppsa_device_kind device;
  bppsa_gradient_method method; /* with AUTO resolved */
  bppsa_backward_plan plan;     /* if the method is SPECULATIVE */
  int64_t bytes;                /* that it holds beside BP's arrays, with one thread; -1: not known, on a GPU */
  int64_t candidate_count;      /* where the backward pass is AUTO, or SPECULATIVE, beside which they are shown; otherwise 0 */
  bppsa_recurrent_candidate *candidates;
} bppsa_backward_report;

/* chosen: *config with AUTO resolved. The device need not be there. ERR_* of bppsa_backward_plan_make and of plans. */
bppsa_status bppsa_backward_report_make(const bppsa_network_kind *kind, const bppsa_recurrent_config *config,
                                        const bppsa_recurrent_config *chosen, bppsa_device_kind device,
                                        bppsa_backward_report *report);
void bppsa_backward_report_free(bppsa_backward_report *report); /* a zeroed one is legal */

/* Compares a pass with BP, over all layers: the gradients between steps are those of all steps walked, and 2 FLOPs for each number
 * of a state that is compared at a boundary; weight gradients are those of all steps but warm-ups. stats: what the pass did; NULL:
 * it mends nothing. ERR_* of bppsa_scan_plan_create. */
bppsa_status bppsa_backward_ratios(const bppsa_network_kind *kind, const bppsa_recurrent_config *config,
                                   const bppsa_backward_plan *plan, const bppsa_backward_stats *stats, bppsa_work_ratios *ratios);

/* The document of `bppsa plan` for speculative BP; NULL when out of memory. */
json_t *bppsa_backward_report_json(const bppsa_backward_report *report);
/* Writes the same for people. */
void bppsa_backward_report_text(const bppsa_backward_report *report, bppsa_text *text);
/* Draws the chunks and their warm-ups over time, as SVG. ERR_ARGUMENT: more than 500 chunks, or BP; ERR_MEMORY. */
bppsa_status bppsa_backward_report_draw(const bppsa_backward_report *report, bppsa_text *drawing);

/* What `auto` chooses among, with predicted seconds: a list for a document, and lines for people. The chosen method is marked. */
json_t *bppsa_candidates_json(const bppsa_backward_report *report);
void bppsa_candidates_text(const bppsa_backward_report *report, bppsa_text *text);

#endif
