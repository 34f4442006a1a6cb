#include "cli/network_kind.h"

#include <inttypes.h>
#include <string.h>

#include "cli/setup.h"
#include "gru/gru.h"
#include "rnn/rnn.h"

static bppsa_status create_rnn(const bppsa_recurrent_config *config, const bppsa_device *device, bppsa_model **model) {
  return bppsa_recurrent_create(config, &bppsa_rnn_cell, device, model);
}

static bppsa_status create_gru(const bppsa_recurrent_config *config, const bppsa_device *device, bppsa_model **model) {
  return bppsa_recurrent_create(config, &bppsa_gru_cell, device, model);
}

static const bppsa_network_kind kinds[] = {
    {.name = "rnn", .cell = &bppsa_rnn_cell, .create = create_rnn},
    {.name = "gru", .cell = &bppsa_gru_cell, .create = create_gru},
    {.name = "lenet5", .convolutional = true},
    {.name = "vgg11", .convolutional = true},
    {.name = BPPSA_FILE_OBJECT, .convolutional = true},
};

const bppsa_network_kind *bppsa_network_kind_find(const char *name) {
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; ++i) {
    if (strcmp(kinds[i].name, name) == 0) {
      return &kinds[i];
    }
  }
  return NULL;
}

const bppsa_network_kind *bppsa_network_kind_of(const bppsa_cli *cli) {
  const char *object = cli->command->object;
  const bppsa_network_kind *kind = object != NULL ? bppsa_network_kind_find(object) : NULL;
  return kind != NULL ? kind : &kinds[bppsa_cli_value(cli, BPPSA_OPTION_MODEL)->choice];
}

bppsa_scan_config bppsa_network_scan(const bppsa_network_kind *kind, const bppsa_recurrent_config *config, int64_t layer) {
  return bppsa_recurrent_scan_config(config, kind->cell->matrices, kind->cell->diagonal, layer);
}

double bppsa_network_flops_besides(const bppsa_network_kind *kind, const bppsa_recurrent_config *config, int64_t layer) {
  const double hidden = (double)config->hidden, input = layer == 0 ? (double)config->input : hidden;
  const bool below = layer > 0 || config->input_gradients;
  return 2 * (double)config->seq_len * (double)kind->cell->gates * hidden * (input + hidden + (below ? input : 0));
}

bppsa_status bppsa_network_choose(const bppsa_network_kind *kind, const bppsa_recurrent_config *config, bppsa_device_kind device,
                                  bppsa_recurrent_config *chosen) {
  return bppsa_recurrent_choose(config, kind->cell->matrices, kind->cell->diagonal, device, chosen);
}

const char *bppsa_network_text(const bppsa_network_kind *kind, const bppsa_recurrent_config *config, char *text, size_t size) {
  const bppsa_recurrent_config *c = config;
  snprintf(text, size, "%s: T %" PRId64 ", B %" PRId64 ", I %" PRId64 ", H %" PRId64 ", layers %" PRId64 "%s%s, loss %s",
           kind->name, c->seq_len, c->batch, c->input, c->hidden, c->layers, kind->cell->relu ? ", " : "",
           kind->cell->relu ? bppsa_nonlinearity_name(c->nonlinearity) : "", bppsa_loss_name(c->loss_all));
  return text;
}
