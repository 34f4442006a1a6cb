/* The options of `train` for the update and for checkpoints. */
#ifndef BPPSA_CLI_TRAIN_OPTIONS_H
#define BPPSA_CLI_TRAIN_OPTIONS_H

#include "cli/command.h"
#include "train/trainer.h"

/* Reads --optimizer, --lr, --momentum, --weight-decay, --lr-schedule and its numbers, --warmup. ERR_ARGUMENT: two options
 * contradict each other. */
bppsa_status bppsa_train_update_options(const bppsa_cli *cli, bppsa_train_config *train);
/* Reads --checkpoint, --checkpoint-every, --resume and --allow-other-ranks. ERR_ARGUMENT: one of them without the one that it
 * needs. */
bppsa_status bppsa_train_checkpoint_options(const bppsa_cli *cli, bppsa_train_config *train);

#endif
