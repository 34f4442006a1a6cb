/* The kinds of network the commands know: what follows `train`, `eval`, `grad`, `plan` and `bench`. */
#ifndef BPPSA_CLI_NETWORK_KIND_H
#define BPPSA_CLI_NETWORK_KIND_H

#include "cli/command.h"
#include "core/device.h"
#include "core/model.h"
#include "recurrent/recurrent.h"

typedef struct {
  const char *name;       /* "rnn": the command's word, and the prefix of its weights' names */
  const bppsa_cell *cell; /* recurrent: its table; NULL otherwise */
  bool convolutional;     /* layers of its own (cli/network.h) */
  bppsa_status (*create)(const bppsa_recurrent_config *config, const bppsa_device *device, bppsa_model **model); /* recurrent */
} bppsa_network_kind;

/* The kind of that name, or NULL. */
const bppsa_network_kind *bppsa_network_kind_find(const char *name);
/* The kind a command's object names, or --model where it names none; the first kind, rnn, without either. */
const bppsa_network_kind *bppsa_network_kind_of(const bppsa_cli *cli);

/* The scan configuration of a layer, `auto` as it stands. */
bppsa_scan_config bppsa_network_scan(const bppsa_network_kind *kind, const bppsa_recurrent_config *config, int64_t layer);
/* FLOPs per sample that a layer's backward pass has besides the gradients between steps, whatever computes these ("besides" of
 * scan/work.h): 2 T G H (I + H) for the gradients of weights, and 2 T G H I for what goes to the layer below, or to the inputs
 * where their gradient is wanted. */
double bppsa_network_flops_besides(const bppsa_network_kind *kind, const bppsa_recurrent_config *config, int64_t layer);
/* `auto` resolved by the cost model (bppsa_recurrent_choose). */
bppsa_status bppsa_network_choose(const bppsa_network_kind *kind, const bppsa_recurrent_config *config, bppsa_device_kind device,
                                  bppsa_recurrent_config *chosen);
/* "rnn: T 1000, B 16, I 1, H 20, layers 1, tanh, loss last". Returns text. */
const char *bppsa_network_text(const bppsa_network_kind *kind, const bppsa_recurrent_config *config, char *text, size_t size);
#define BPPSA_NETWORK_TEXT 200

#endif
