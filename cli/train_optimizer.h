/* Options of the update: optimiser, weight decay, learning rate and its schedule. */
#ifndef BPPSA_CLI_TRAIN_OPTIMIZER_H
#define BPPSA_CLI_TRAIN_OPTIMIZER_H

#include "cli/command.h"
#include "core/json.h"
#include "train/trainer.h"

/* --optimizer, --lr, --momentum, --weight-decay, --lr-schedule and its numbers, --warmup. ERR_ARGUMENT: one that another
 * contradicts. */
bppsa_status bppsa_train_optimizer_options(const bppsa_cli *cli, bppsa_train_config *train);

/* "adam, lr 0.001, cosine to 0 over 10 epochs, 100 steps of warm-up, weight decay 0.01". Returns text. */
const char *bppsa_train_optimizer_text(const bppsa_train_config *train, char *text, size_t size);
#define BPPSA_OPTIMIZER_TEXT 200

/* The same as fields of a JSON object: optimizer, lr, momentum, weight_decay, lr_schedule and its numbers, warmup. */
bool bppsa_train_optimizer_json(json_t *object, const bppsa_train_config *train);

#endif
