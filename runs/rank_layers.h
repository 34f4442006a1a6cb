/* Ranks that share the layers of a convolutional network in a training run: what --split spatial, filter, channel, data+spatial and
 * data+filter mean (distributed/layers/layer_train.h, docs/ranks.md). */
#ifndef BPPSA_RUNS_RANK_LAYERS_H
#define BPPSA_RUNS_RANK_LAYERS_H

#include "core/base/text.h"
#include "core/files/json.h"
#include "distributed/layers/layer_train.h"
#include "networks/named_network.h"

typedef struct {
  const char *split; /* a word of bppsa_rank_layers_word; NULL: the ranks do not share layers */
  bool groups;       /* the word begins with "data+": config.group is what the user asks for, or 0 */
  bppsa_layer_train_config config;
  int64_t grid[2]; /* spatial: tiles along height and width */
} bppsa_rank_layers;

/* Returns word `index`, or NULL after the last one. */
const char *bppsa_rank_layers_word(int32_t index);
/* Sets split, groups and config.strategy if --split is one of the words; otherwise sets split to NULL. */
void bppsa_rank_layers_find(const char *split, bppsa_rank_layers *layers);

/* Completes the settings for `ranks` ranks, once config.group and config.reduction are set. config.group 0 becomes the largest
 * number that divides `ranks` and is no larger than its square root. config->batch, which counts the samples of all ranks,
 * becomes the samples that a group takes at once; the method becomes BP. ERR_ARGUMENT names the option: such ranks cannot do it,
 * the group does not divide the ranks, or they are more than tiles, filters or channels. ERR_UNSUPPORTED: a GPU. ERR_MEMORY. */
bppsa_status bppsa_rank_layers_make(bppsa_rank_layers *layers, const bppsa_network *network, const bppsa_train_config *train,
                                    const bppsa_device *device, int64_t ranks, bppsa_network_config *config);

/* Writes "data+spatial, 2 groups of 2 ranks, tiles 2 x 1". */
void bppsa_rank_layers_text(const bppsa_rank_layers *layers, int64_t ranks, bppsa_text *text);
/* Adds members to an object: split, group, grid (null: none) and, once steps were taken, phases: this rank's seconds per step. */
bool bppsa_rank_layers_put(json_t *object, const bppsa_rank_layers *layers, const bppsa_layer_train *train, int64_t steps);

#endif
