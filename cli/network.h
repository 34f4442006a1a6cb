/* The network a command works on: recurrent, or convolutional with its layers and its mask.
 *
 * Commands configure every network by a bppsa_recurrent_config; of it a convolutional network takes batch, dtype, how gradients
 * are computed, input gradients and the memory limit.
 */
#ifndef BPPSA_CLI_NETWORK_H
#define BPPSA_CLI_NETWORK_H

#include "cli/network_kind.h"
#include "cnn/cnn.h"
#include "core/safetensors.h"

/* What options mean to convolutional networks. */
#define BPPSA_MASK_HELP "which weights stay; the others are 0 and stay out of the scan's patterns"
#define BPPSA_IMAGES_HELP "cifar10:DIR (its binary version) or npy:X,Y (X [N,C,H,W], Y [N]; with --loss mse Y [N,C])"
#define BPPSA_IMAGES_VALIDATION_HELP "fraction of the samples held out instead of CIFAR-10's test batch"

typedef struct {
  const bppsa_network_kind *kind;
  const char *name;         /* the kind's, or the path of a network's file; borrowed from the command line */
  bppsa_cnn_network layers; /* of a convolutional network; otherwise empty */
  bppsa_safetensors *mask;  /* --mask, or NULL */
  int64_t mask_count;
  bppsa_named_view *masks; /* its tensors, size mask_count */
  bppsa_weight_gradients weight_gradients;
} bppsa_network;

/* The network the command's object names, its file, --mask and --weight-gradients read. ERR_ARGUMENT: a second stream beside a
 * scan or a processor; ERR_* of bppsa_cnn_network_load and bppsa_safetensors_load. */
bppsa_status bppsa_network_open(const bppsa_cli *cli, bppsa_network *network);
void bppsa_network_close(bppsa_network *network); /* a zeroed one is legal */

/* Batch 256 for a convolutional network. */
bppsa_recurrent_config bppsa_network_config_default(const bppsa_network *network);
bppsa_cnn_config bppsa_network_cnn_config(const bppsa_network *network, const bppsa_recurrent_config *config);
bppsa_status bppsa_network_create(const bppsa_network *network, const bppsa_recurrent_config *config, const bppsa_device *device,
                                  bppsa_model **model);
bppsa_status bppsa_network_init(const bppsa_network *network, bppsa_model *model, bppsa_init init, uint64_t seed);
/* How the model computes its gradients, with nothing left open (of the top layer, where there are several). */
bppsa_gradient_method bppsa_network_method(const bppsa_network *network, const bppsa_recurrent_config *config,
                                           const bppsa_model *model);

/* "rnn: T 1000, ..." or "lenet5: B 256, 11 layers, [3, 32, 32] to 10 classes"; a network's file by its path. Returns text
 * (BPPSA_NETWORK_TEXT). */
const char *bppsa_network_describe(const bppsa_network *network, const bppsa_recurrent_config *config, char *text, size_t size);
/* The network's sizes as fields of a JSON object. */
bool bppsa_network_json(const bppsa_network *network, const bppsa_recurrent_config *config, json_t *object);
/* Layers and mask as a number, in text: what two runs of one network share. */
const char *bppsa_network_identity(const bppsa_network *network, char *text, size_t size);

#endif
