/* --cache-plan: the sparse scan's plan beside the checkpoints. */
#ifndef BPPSA_CLI_TRAIN_PLAN_H
#define BPPSA_CLI_TRAIN_PLAN_H

#include "cli/train_report.h"

/* The file's name in the checkpoint directory. */
#define BPPSA_PLAN_FILE "plan.safetensors"

/* Creates run->model, with --cache-plan from the plan kept of an equal network, or keeps the plan there. A kept plan that cannot be used is a note on standard
 * error, and is replaced. ERR_*: of bppsa_network_create; ERR_ARGUMENT: no checkpoints, or no scan; ERR_IO: it cannot be kept. */
bppsa_status bppsa_train_plan_create(bppsa_train_run *run);

#endif
