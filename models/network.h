/* A network as users name it: recurrent, or convolutional with its layers and its mask. */
#ifndef BPPSA_MODELS_NETWORK_H
#define BPPSA_MODELS_NETWORK_H

#include "cnn/cnn.h"
#include "core/json.h"
#include "core/safetensors.h"
#include "models/network_kind.h"
#include "train/data/dataset.h"

typedef struct {
  const bppsa_network_kind *kind;
  const char *name;         /* the kind's, or the path of a network's file (borrowed) */
  bppsa_cnn_network layers; /* of a convolutional network; otherwise empty */
  bppsa_safetensors *mask;  /* which weights stay, or NULL */
  int64_t mask_count;
  bppsa_named_view *masks;                 /* its tensors, size mask_count */
  bppsa_weight_gradients weight_gradients; /* of a convolutional network's BP */
} bppsa_network;

/* Opens the network `name`, a kind's name or the path of a network's file (ending in .json), which must outlive it, and the mask
 * of a convolutional network's weights at `mask_path` (NULL: none). ERR_ARGUMENT: an unknown name, a file that is not there;
 * ERR_* of bppsa_cnn_network_load and bppsa_safetensors_load. */
bppsa_status bppsa_network_open(const char *name, const char *mask_path, bppsa_network *network);
void bppsa_network_close(bppsa_network *network); /* a zeroed one is legal */

/* ---- configurations ---- */

typedef struct {
  int64_t batch;     /* B >= 1, the largest batch */
  int64_t classes;   /* C >= 1; a convolutional network's last layer has as many outputs */
  bool loss_all;     /* recurrent: logits at every step, else of the last */
  bppsa_dtype dtype; /* f32, f64 */
  bppsa_gradient_method method;
  bool input_gradients;
  int64_t memory_limit; /* bytes the network may hold; 0: no limit */
  /* of recurrent networks; the input [C,H,W] of a convolutional one counts as one step of C·H·W values */
  int64_t seq_len, input, hidden, layers;
  bppsa_nonlinearity nonlinearity;
} bppsa_network_config;

/* The defaults of the network's kind: bppsa_recurrent_config_default, or bppsa_cnn_config_default with the layers' sizes. */
bppsa_network_config bppsa_network_config_default(const bppsa_network *network);
bppsa_recurrent_config bppsa_network_recurrent_config(const bppsa_network_config *config);
bppsa_cnn_config bppsa_network_cnn_config(const bppsa_network *network, const bppsa_network_config *config);

/* Finds the architecture that tensors under the network's own names describe: fills dtype, and of a recurrent network
 * input, hidden, layers and classes. `where` names the source. ERR_* of bppsa_recurrent_infer and bppsa_cnn_infer. */
bppsa_status bppsa_network_infer(const char *where, const bppsa_network *network, int64_t count, const bppsa_named_view *tensors,
                                 bppsa_network_config *config);

/* ---- models ---- */

bppsa_status bppsa_network_create(const bppsa_network *network, const bppsa_network_config *config, const bppsa_device *device,
                                  bppsa_model **model);
bppsa_status bppsa_network_init(const bppsa_network *network, bppsa_model *model, bppsa_init init, uint64_t seed);
/* The method by which the model computes its gradients, with `auto` resolved; of several layers, the top one's. */
bppsa_gradient_method bppsa_network_method(const bppsa_network *network, const bppsa_network_config *config,
                                           const bppsa_model *model);

/* Checks that the data are of the network's kind, sequences or images, have its input size and no more classes than it. `weights`
 * names the weights from which a recurrent network has its sizes; NULL: it has none yet. ERR_SHAPE. */
bppsa_status bppsa_network_match(const bppsa_network *network, const bppsa_network_config *config, const char *weights,
                                 const bppsa_dataset *dataset);

/* ---- words and numbers ---- */

/* "rnn: T 1000, ..." or "lenet5: B 256, 11 layers, [3, 32, 32] to 10 classes"; a network's file by its path. Returns text
 * (BPPSA_NETWORK_TEXT). */
const char *bppsa_network_describe(const bppsa_network *network, const bppsa_network_config *config, char *text, size_t size);
/* The network's sizes as fields of a JSON object. */
bool bppsa_network_json(const bppsa_network *network, const bppsa_network_config *config, json_t *object);
/* A checksum of layers and mask, as text: two runs of one network have the same. */
const char *bppsa_network_identity(const bppsa_network *network, char *text, size_t size);

#endif
