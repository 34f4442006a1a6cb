/* What `flops` counts: a network's transposed Jacobians and the steps of their scan (flops_count.c), and how it is shown
 * (flops.c). */
#ifndef BPPSA_CLI_FLOPS_H
#define BPPSA_CLI_FLOPS_H

#include "cli/network.h"
#include "cli/prune.h"
#include "cnn/work.h"
#include "jacobian/jacobian.h"

#define BPPSA_FLOPS_MASK_HELP "which weights stay, as prune writes it; the others stay out of the patterns"

/* An operator's transposed Jacobian; with values the mean over samples. */
typedef struct {
  int64_t rows, cols;
  double nnz;
  int64_t bp_flops; /* of BP's mat-vec with it; 0 of the first operator's where the input's gradient is not wanted */
} bppsa_flops_operator;

typedef struct {
  bppsa_network network;
  bppsa_device *device;
  int64_t count;      /* operators in front of the head */
  const char **names; /* of the operators, size count; borrowed from the network */
  bool pruned;        /* some weights are left out of the patterns */
  bool values;        /* patterns of a batch's values are counted */
  int64_t samples;
  bppsa_masks masks; /* of all weights; empty where the patterns are known by structure alone */
  bppsa_jacobian **jacobians;
  const bppsa_csr **patterns; /* known ahead of any input */
  bppsa_flops_operator *operators;
  bppsa_scan_plan *plan;      /* as asked, over those patterns or, with values, over the first sample's */
  bppsa_scan_plan *automatic; /* what auto would choose, over those known ahead */
  bppsa_csr *compact;         /* values: the sample's patterns that are smaller, size count */
  int64_t step_count;
  bppsa_scan_step *steps; /* counts and critical path as counted: with values means over the samples */
  bppsa_scan_totals totals;
  bppsa_work work, bp;        /* as counted, and of BP over the same patterns */
  bppsa_cnn_bp_work unpruned; /* of BP with all weights, by structure */
} bppsa_flops;

/* Opens the network and counts. The caller frees it in every case. */
bppsa_status bppsa_flops_count(const bppsa_cli *cli, bppsa_flops *flops);
void bppsa_flops_free(bppsa_flops *flops);
/* "flops_of_bp" over BP of the same patterns, "flops_of_unpruned_bp" over BP with all weights, and what belongs to them
 * (cli/work.h). */
bool bppsa_flops_ratios_json(json_t *object, const bppsa_flops *flops);
/* --svg: may the file be written, and is it none of those that are read? */
bppsa_status bppsa_flops_check_paths(const bppsa_cli *cli);
/* --svg: draws the scan as counted, with the operators' names. */
bppsa_status bppsa_flops_draw(const bppsa_cli *cli, const bppsa_flops *flops);
/* "mask": its path, or null. */
bool bppsa_flops_mask_json(const bppsa_cli *cli, json_t *object);
/* The steps as counted, by the names of their operators: a table, and "steps" of the design's JSON (NULL when out of memory). */
bppsa_status bppsa_flops_print_steps(bppsa_cli *cli, const bppsa_flops *flops);
json_t *bppsa_flops_steps_json(const bppsa_flops *flops);

#endif
