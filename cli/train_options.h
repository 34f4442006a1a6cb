/* The options of `train` for the update, for checkpoints and for certificates. */
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
/* Reads --certify and --certify-every. ERR_ARGUMENT: one of them beside ranks. */
bppsa_status bppsa_train_certify_options(const bppsa_cli *cli, bool ranks, bppsa_train_config *train);

#endif
