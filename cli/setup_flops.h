/* What `flops` and `plan` of convolutional networks share: they turn options into a request, count, and draw. */
#ifndef BPPSA_CLI_SETUP_FLOPS_H
#define BPPSA_CLI_SETUP_FLOPS_H

#include "cli/setup.h"
#include "runs/flops.h"

#define BPPSA_PRUNED_MASK_HELP "which weights stay, as prune writes it; the others stay out of the patterns"

/* What a command makes of the counts: a document, a text for people, and what --svg draws. */
typedef struct {
  json_t *(*json)(const bppsa_flops *flops);
  void (*text)(const bppsa_flops *flops, bppsa_text *shown);
  bppsa_status (*draw)(const bppsa_flops *flops, bppsa_text *drawing);
} bppsa_flops_forms;

/* Runs a command that counts a network: checks its paths, counts, draws --svg, and shows the result as JSON or as a text. */
bppsa_status bppsa_setup_flops_run(const bppsa_cli *cli, const bppsa_flops_forms *forms);
/* bppsa_flops_picture as `draw`. */
bppsa_status bppsa_setup_flops_picture(const bppsa_flops *flops, bppsa_text *drawing);

#endif
