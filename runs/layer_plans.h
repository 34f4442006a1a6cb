/* The plans of a recurrent network's backward pass, as `bppsa plan` shows them: the scans of its layers, or speculative BP. */
#ifndef BPPSA_RUNS_LAYER_PLANS_H
#define BPPSA_RUNS_LAYER_PLANS_H

#include "core/base/text.h"
#include "networks/planner.h"
#include "runs/backward_report.h"
#include "runs/rank_plan.h"

typedef struct {
  const bppsa_network_kind *kind;
  bppsa_recurrent_config config; /* as asked for */
  bppsa_forward_plan forward;    /* shown unless the config's forward pass is sequential */
  bppsa_scan_plan **plans;       /* size config.layers */
  bppsa_rank_split split;        /* how ranks share the work; zero: there are none */
  bppsa_device_kind device;
  int64_t bytes, bytes_kept;      /* with recompute: of the network, and of one that keeps all states */
  bppsa_backward_report backward; /* the method with AUTO resolved; if it is speculative BP, `plans` are those of BP */
} bppsa_layer_plans;

/* Makes the plans for a kind of device, which this machine need not have; both directions have the same plans. The cost model
 * resolves `auto`. split: NULL or zero without ranks. ERR_UNSUPPORTED: ranks share the time of two directions; ERR_* of
 * bppsa_scan_plan_create. */
bppsa_status bppsa_layer_plans_make(const bppsa_network_kind *kind, const bppsa_recurrent_config *config,
                                    bppsa_device_kind device, const bppsa_rank_split *split, bppsa_layer_plans *plans);
void bppsa_layer_plans_free(bppsa_layer_plans *plans); /* a zeroed one is legal */

/* Describes the top layer in full and gives totals for the others, or describes speculative BP; NULL when out of memory. */
json_t *bppsa_layer_plans_json(const bppsa_layer_plans *plans);
/* Writes the same for people: the layers in the order in which backward passes run, the top one first. */
void bppsa_layer_plans_text(const bppsa_layer_plans *plans, bppsa_text *text);

#endif
