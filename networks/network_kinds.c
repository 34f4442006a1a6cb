#include "networks/network_kinds.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/decimal.h"
#include "gru/gru.h"
#include "lstm/lstm.h"
#include "rnn/rnn.h"
#include "train/line.h"
#include "train/objective.h"

static const bppsa_network_kind kinds[] = {
#define CELL(id, words, functions, rate, sweep)                                                                                  \
  {#id, &bppsa_network_recurrent, &bppsa_##id##_cell, {16, BPPSA_ADAM, rate, 0}, bppsa_recurrent_create},
#include "networks/cells.inc"
#define IMAGES(id, words, shape, levels) {#id, &bppsa_network_convolutional, NULL, {256, BPPSA_SGD, 1e-3, 0.9}, NULL},
#include "networks/image_networks.inc"
    {BPPSA_NETWORK_FILE, &bppsa_network_convolutional, NULL, {256, BPPSA_SGD, 1e-3, 0.9}, NULL},
};

static bool ends_with(const char *name, const char *suffix) {
  const size_t length = strlen(name), end = strlen(suffix);
  return length > end && strcmp(name + length - end, suffix) == 0;
}

bool bppsa_network_is_onnx(const char *name) {
  return ends_with(name, ".onnx");
}

static bool is_path(const char *name) {
  return ends_with(name, ".json") || bppsa_network_is_onnx(name);
}

const bppsa_network_kind *bppsa_network_kind_find(const char *name) {
  const char *wanted = is_path(name) ? BPPSA_NETWORK_FILE : name;
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; ++i) {
    if (strcmp(kinds[i].name, wanted) == 0) {
      return &kinds[i];
    }
  }
  return NULL;
}

const bppsa_network_kind *bppsa_network_kind_at(int64_t index) {
  return index >= 0 && index < (int64_t)(sizeof kinds / sizeof kinds[0]) ? &kinds[index] : NULL;
}

const char *bppsa_network_kind_with_relu(void) {
  int64_t i = 0;
  const bppsa_network_kind *kind = bppsa_network_kind_at(0);
  while (kind != NULL && (kind->cell == NULL || !kind->cell->relu)) {
    kind = bppsa_network_kind_at(++i);
  }
  return kind != NULL ? kind->name : "of another cell";
}

const char *bppsa_network_kind_names(char *text, size_t size) {
  bppsa_line line = {.length = 0};
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; ++i) {
    if (strcmp(kinds[i].name, BPPSA_NETWORK_FILE) != 0) {
      bppsa_line_add(&line, "%s%s", line.length > 0 ? ", " : "", kinds[i].name);
    }
  }
  snprintf(text, size, "%s", line.text);
  return text;
}

bppsa_train_config bppsa_network_train_config(const bppsa_network_kind *kind) {
  bppsa_train_config config = bppsa_train_config_default();
  config.batch = kind->training.batch;
  config.optimizer.kind = kind->training.optimizer;
  config.optimizer.lr = kind->training.lr;
  config.optimizer.momentum = kind->training.momentum;
  return config;
}

bppsa_scan_config bppsa_network_scan(const bppsa_network_kind *kind, const bppsa_recurrent_config *config, int64_t layer) {
  return bppsa_recurrent_scan_config(config, kind->cell, layer);
}

double bppsa_network_flops_besides(const bppsa_network_kind *kind, const bppsa_recurrent_config *config, int64_t layer) {
  const double hidden = (double)config->hidden, outputs = config->bidirectional ? 2 * hidden : hidden;
  const double input = layer == 0 ? (double)config->input : outputs;
  const bool below = layer > 0 || config->input_gradients;
  return 2 * (double)config->seq_len * (double)kind->cell->gates * hidden * (input + hidden + (below ? input : 0));
}

bppsa_status bppsa_network_choose(const bppsa_network_kind *kind, const bppsa_recurrent_config *config, bppsa_device_kind device,
                                  bppsa_recurrent_config *chosen) {
  return bppsa_recurrent_choose(config, kind->cell, device, chosen);
}

/* Writes the settings that only some networks have. */
static const char *extras(const bppsa_recurrent_config *c, char *text, size_t size) {
  snprintf(text, size, "%s%s%s%s%s", c->bidirectional ? ", bidirectional" : "", c->no_bias ? ", no biases" : "",
           c->lengths ? ", samples of their own lengths" : "", c->resets ? ", resets" : "",
           c->reset_state ? ", a learned reset state" : "");
  if (c->dropout > 0) {
    bppsa_print(text + strlen(text), size - strlen(text), ", dropout %g", c->dropout);
  }
  return text;
}

const char *bppsa_network_text(const bppsa_network_kind *kind, const bppsa_recurrent_config *config, char *text, size_t size) {
  const bppsa_recurrent_config *c = config;
  char more[128];
  snprintf(text, size, "%s: T %" PRId64 ", B %" PRId64 ", I %" PRId64 ", H %" PRId64 ", layers %" PRId64 "%s%s%s, loss %s",
           kind->name, c->seq_len, c->batch, c->input, c->hidden, c->layers, kind->cell->relu ? ", " : "",
           kind->cell->relu ? bppsa_nonlinearity_name(c->nonlinearity) : "", extras(c, more, sizeof more),
           bppsa_objective_loss(NULL, c->loss_all));
  return text;
}
