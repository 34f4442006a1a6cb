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

/* The word of that number, NULL behind the last one. */
const char *bppsa_rank_layers_word(int32_t index);
/* Sets split, groups and config.strategy where --split is one of the words; otherwise split is NULL. */
void bppsa_rank_layers_find(const char *split, bppsa_rank_layers *layers);

/* Completes what is asked for, with config.group and config.reduction set, for `ranks` ranks: groups have the largest number of
 * ranks that divides all of them and is no larger than its square root, if config.group is 0. config->batch, of all ranks, becomes
 * what a group takes at once, and the method BP. ERR_ARGUMENT names the option: what such ranks cannot do, a group that does not
 * divide the ranks, more ranks than the network has tiles, filters or channels. ERR_UNSUPPORTED: a GPU. ERR_MEMORY. */
bppsa_status bppsa_rank_layers_make(bppsa_rank_layers *layers, const bppsa_network *network, const bppsa_train_config *train,
                                    const bppsa_device *device, int64_t ranks, bppsa_network_config *config);

/* "data+spatial, 2 groups of 2 ranks, tiles 2 x 1". */
void bppsa_rank_layers_text(const bppsa_rank_layers *layers, int64_t ranks, bppsa_text *text);
/* Members of an object: split, group, grid (null: none), and, once steps were taken, phases: seconds a step of this rank. */
bool bppsa_rank_layers_put(json_t *object, const bppsa_rank_layers *layers, const bppsa_layer_train *train, int64_t steps);

#endif
