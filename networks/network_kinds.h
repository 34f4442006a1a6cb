/* The kinds of network that have a name: what follows `train`, `eval`, `grad`, `plan` and `bench`. */
#ifndef BPPSA_NETWORKS_NETWORK_KINDS_H
#define BPPSA_NETWORKS_NETWORK_KINDS_H

#include "core/compute/model.h"
#include "recurrent/recurrent.h"
#include "train/trainer.h"

/* What networks of one sort share: a table of functions (networks/named_network.h). */
typedef struct bppsa_network_family bppsa_network_family;
extern const bppsa_network_family bppsa_network_recurrent, bppsa_network_convolutional;

/* How a kind trains unless options say otherwise. `bppsa train` has the same defaults. */
typedef struct {
  int64_t batch;
  bppsa_optimizer_kind optimizer;
  double lr, momentum; /* momentum: of SGD */
} bppsa_network_training;

typedef struct {
  const char *name; /* "rnn": the word on the command line, and the prefix of its weights' names */
  const bppsa_network_family *family;
  const bppsa_cell *cell; /* of a recurrent network; NULL otherwise */
  bppsa_network_training training;
  /* For recurrent kinds: bppsa_recurrent_create, or a test's replacement */
  bppsa_status (*create)(const bppsa_recurrent_config *config, const bppsa_cell *cell, const bppsa_device *device,
                         bppsa_model **model);
} bppsa_network_kind;

/* Row `index` of the table of kinds from 0; NULL: there are no more. */
const bppsa_network_kind *bppsa_network_kind_at(int64_t index);
/* "rnn, gru, lenet5, vgg11, ..": the names of all kinds but BPPSA_NETWORK_FILE. Returns text. */
const char *bppsa_network_kind_names(char *text, size_t size);
#define BPPSA_NETWORK_NAMES 200
/* The name of the first kind whose cell has a second function. */
const char *bppsa_network_kind_with_relu(void);
/* The defaults of `bppsa train`: bppsa_train_config_default with the batch and the update of the kind's row. */
bppsa_train_config bppsa_network_train_config(const bppsa_network_kind *kind);

/* The name of the kind of networks in files. On the command line the path of any such file stands in its place. */
#define BPPSA_NETWORK_FILE "FILE.json"

/* Returns the kind of that name, or NULL. A path that ends in .json or .onnx is of the kind BPPSA_NETWORK_FILE. */
const bppsa_network_kind *bppsa_network_kind_find(const char *name);
/* Is it the path of an ONNX model, which ends in .onnx? */
bool bppsa_network_is_onnx(const char *name);

/* Returns the scan configuration of a recurrent network's layer; `auto` is kept. */
bppsa_scan_config bppsa_network_scan(const bppsa_network_kind *kind, const bppsa_recurrent_config *config, int64_t layer);
/* Returns the FLOPs per sample of a layer's backward pass, in one direction, without the gradients between steps ("besides" of
 * scan/work.h). Every method has the same: 2 T G H (I + H) for the gradients of weights, and 2 T G H I for the gradient of the
 * layer below, or of the inputs where it is wanted. */
double bppsa_network_flops_besides(const bppsa_network_kind *kind, const bppsa_recurrent_config *config, int64_t layer);
/* Resolves `auto` by the cost model (bppsa_recurrent_choose). */
bppsa_status bppsa_network_choose(const bppsa_network_kind *kind, const bppsa_recurrent_config *config, bppsa_device_kind device,
                                  bppsa_recurrent_config *chosen);
/* Writes "rnn: T 1000, B 16, I 1, H 20, layers 1, tanh, loss last". Returns text. */
const char *bppsa_network_text(const bppsa_network_kind *kind, const bppsa_recurrent_config *config, char *text, size_t size);
#define BPPSA_NETWORK_TEXT 200

#endif
