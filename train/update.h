/* How a training run updates its weights, in words and as JSON: optimiser, learning rate and its schedule. */
#ifndef BPPSA_TRAIN_UPDATE_H
#define BPPSA_TRAIN_UPDATE_H

#include "core/files/json.h"
#include "train/trainer.h"

/* "adam, lr 0.001, cosine to 0 over 10 epochs, 100 steps of warm-up, weight decay 0.01". Returns text. */
const char *bppsa_train_update_text(const bppsa_train_config *train, char *text, size_t size);
#define BPPSA_UPDATE_TEXT 200

/* The same as fields of a JSON object: optimizer, lr, momentum, weight_decay, lr_schedule and its numbers, warmup. */
bool bppsa_train_update_json(json_t *object, const bppsa_train_config *train);

#endif
