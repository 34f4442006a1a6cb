/* The family of recurrent networks: layers of one cell, and a linear head. */
#include <inttypes.h>
#include <stdio.h>

#include "core/base/decimal.h"
#include "networks/named_network.h"
#include "recurrent/chain.h"

/* ---- configurations ---- */

static bppsa_network_config config_of(const bppsa_recurrent_config *c) {
  return (bppsa_network_config){.batch = c->batch,
                                .input = c->input,
                                .classes = c->classes,
                                .loss_all = c->loss_all,
                                .dtype = c->dtype,
                                .method = c->method,
                                .input_gradients = c->input_gradients,
                                .memory_limit = c->memory_limit,
                                .optimizer_slots = c->optimizer_slots,
                                .steps = {c->seq_len, c->hidden, c->layers, c->nonlinearity, c->forward, c->lengths, c->resets,
                                          c->reset_state, c->no_bias, c->bidirectional, c->dropout, c->dropout_seed, c->no_head,
                                          c->speculation, c->recompute}};
}

static bppsa_network_config default_config(const bppsa_network *network) {
  const bppsa_recurrent_config recurrent = bppsa_recurrent_config_default();
  (void)network;
  return config_of(&recurrent);
}

bppsa_recurrent_config bppsa_network_recurrent_config(const bppsa_network_config *config) {
  bppsa_recurrent_config made = bppsa_recurrent_config_default();
  made.seq_len = config->steps.seq_len;
  made.batch = config->batch;
  made.input = config->input;
  made.hidden = config->steps.hidden;
  made.layers = config->steps.layers;
  made.classes = config->classes;
  made.loss_all = config->loss_all;
  made.dtype = config->dtype;
  made.nonlinearity = config->steps.nonlinearity;
  made.method = config->method;
  made.forward = config->steps.forward;
  made.speculation = config->steps.speculation;
  made.lengths = config->steps.lengths;
  made.resets = config->steps.resets;
  made.reset_state = config->steps.reset_state;
  made.no_bias = config->steps.no_bias;
  made.bidirectional = config->steps.bidirectional;
  made.dropout = config->steps.dropout;
  made.dropout_seed = config->steps.dropout_seed;
  made.no_head = config->steps.no_head;
  made.recompute = config->steps.recompute;
  made.input_gradients = config->input_gradients;
  made.memory_limit = config->memory_limit;
  made.optimizer_slots = config->optimizer_slots;
  return made;
}

static bppsa_status infer(const char *where, const bppsa_network *network, int64_t count, const bppsa_named_view *tensors,
                          bppsa_network_config *config) {
  const bppsa_network_kind *kind = network->kind;
  bppsa_recurrent_config found = bppsa_network_recurrent_config(config);
  BPPSA_TRY(bppsa_recurrent_infer(where, kind->name, kind->cell->gates, count, tensors, &found));
  *config = config_of(&found);
  return BPPSA_OK;
}

static const char *first_weight(const bppsa_network *network, char *text) {
  (void)network;
  snprintf(text, BPPSA_NETWORK_TEXT, "weight_ih_l0");
  return text;
}

/* ---- models ---- */

static bppsa_status create(const bppsa_network *network, const bppsa_network_config *config, const bppsa_device *device,
                           bppsa_model **model) {
  const bppsa_recurrent_config recurrent = bppsa_network_recurrent_config(config);
  if (recurrent.dropout > 0 && recurrent.layers == 1) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "--dropout: %g between the layers of a network that has one, expected --layers 2 or more",
                      recurrent.dropout);
  }
  return network->kind->create(&recurrent, network->kind->cell, device, model);
}

static bppsa_status count(const bppsa_network *network, const bppsa_network_config *config, const bppsa_device *device,
                          int64_t *bytes) {
  const bppsa_recurrent_config recurrent = bppsa_network_recurrent_config(config);
  return bppsa_recurrent_count(&recurrent, network->kind->cell, device, bytes);
}

static bppsa_status create_chain(const bppsa_network *network, const bppsa_network_config *config, const bppsa_device *device,
                                 bppsa_chain **chain) {
  const bppsa_recurrent_config recurrent = bppsa_network_recurrent_config(config);
  return bppsa_recurrent_chain_create(&recurrent, network->kind->cell, device, chain);
}

static const bppsa_scan_plan *plan_of(const bppsa_network_config *config, const bppsa_model *model) {
  return bppsa_recurrent_plan(model, config->steps.layers - 1);
}

/* ---- data ---- */

static bppsa_status match(const bppsa_network *network, const bppsa_network_config *config, const char *weights,
                          const bppsa_dataset *dataset) {
  (void)network;
  return weights == NULL || config->input == dataset->input
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_SHAPE, "%s: weights for input size %" PRId64 ", expected %" PRId64 " as in the data%s",
                          weights, config->input, dataset->input,
                          config->input == dataset->seq_len ? ", which are [N, T, I], but look like [N, I, T]" : "");
}

static void fit(const bppsa_dataset *dataset, bool weights, bppsa_network_config *config) {
  config->steps.seq_len = dataset->seq_len;
  if (dataset->windows > 1) { /* the first passes of an epoch have fewer steps (train/batch_windows.c) */
    config->steps.seq_len *= dataset->windows;
    config->steps.lengths = config->steps.lengths || !dataset->whole_rows;
    config->steps.resets = config->steps.resets || dataset->whole_rows;
  }
  if (!weights) {
    config->input = dataset->input;
    config->classes = dataset->classes;
  }
}

static bppsa_status take_batch(const char *path, const bppsa_network *network, const bppsa_view *x,
                               bppsa_network_config *config) {
  (void)network;
  if (x->ndim != 3 || x->shape[0] < 1 || x->shape[1] < 1 || x->shape[2] != config->input) {
    char found[BPPSA_SHAPE_TEXT];
    const int axis = x->ndim != 3 ? -1 : x->shape[1] == config->input ? 1 : x->shape[0] == config->input ? 0 : -1;
    return bppsa_fail(BPPSA_ERR_SHAPE,
                      "%s: shape %s, expected [T, B, I] with T and B at least 1 and I = %" PRId64 " as in the weights%s", path,
                      bppsa_shape_text(x->ndim, x->shape, found, sizeof found), config->input,
                      axis == 1   ? "; its middle axis has that size"
                      : axis == 0 ? "; its first axis has that size"
                                  : "");
  }
  config->steps.seq_len = x->shape[0];
  config->batch = x->shape[1];
  return BPPSA_OK;
}

/* Counts the numbers in a layer's output. */
static int64_t outputs_of(const bppsa_network_config *config) {
  return (config->steps.bidirectional ? 2 : 1) * config->steps.hidden;
}

/* ---- passes that are timed ---- */

static bppsa_status forward(bppsa_model *model, const bppsa_view *x) {
  return bppsa_recurrent_forward_layers(model, x, NULL);
}

static void batch(const bppsa_network *network, const bppsa_network_config *config, bppsa_network_shape *x,
                  bppsa_network_shape *seed) {
  const int64_t t = config->steps.seq_len, b = config->batch, h = outputs_of(config);
  (void)network;
  *x = (bppsa_network_shape){"x", 3, {t, b, config->input}};
  *seed = config->loss_all ? (bppsa_network_shape){"seed", 3, {t, b, h}} : (bppsa_network_shape){"seed", 2, {b, h}};
}

static bppsa_scan_config scan(const bppsa_network *network, const bppsa_network_config *config) {
  const bppsa_recurrent_config recurrent = bppsa_network_recurrent_config(config);
  return bppsa_network_scan(network->kind, &recurrent, 0);
}

/* ---- states ---- */

static int64_t layers_of(const bppsa_network *network, const bppsa_network_config *config) {
  (void)network;
  return config->steps.layers;
}

static bppsa_network_shape states_shape(const bppsa_network *network, const bppsa_network_config *config, int64_t layer,
                                        int64_t samples) {
  bppsa_network_shape made = {"", 3, {samples, config->steps.seq_len, outputs_of(config)}};
  (void)network;
  snprintf(made.name, sizeof made.name, "states_l%" PRId64, layer);
  return made;
}

/* ---- words and numbers ---- */

static const char *describe(const bppsa_network *network, const bppsa_network_config *config, char *text, size_t size) {
  const bppsa_recurrent_config recurrent = bppsa_network_recurrent_config(config);
  return bppsa_network_text(network->kind, &recurrent, text, size);
}

static bool put_json(const bppsa_network *network, const bppsa_network_config *c, json_t *object) {
  const bppsa_network_steps *s = &c->steps;
  bool ok = bppsa_json_put_integer(object, "seq_len", s->seq_len) && bppsa_json_put_integer(object, "batch", c->batch);
  ok = ok && bppsa_json_put_integer(object, "input", c->input) && bppsa_json_put_integer(object, "hidden", s->hidden);
  ok = ok && bppsa_json_put_integer(object, "layers", s->layers);
  ok = ok && bppsa_json_put(object, "classes", s->no_head ? json_null() : json_integer(c->classes));
  if (network->kind->cell->relu) {
    ok = ok && bppsa_json_put_text(object, "nonlinearity", bppsa_nonlinearity_name(s->nonlinearity));
  }
  if (s->bidirectional) {
    ok = ok && bppsa_json_put(object, "bidirectional", json_true());
  }
  if (s->lengths) {
    ok = ok && bppsa_json_put(object, "lengths", json_true());
  }
  if (s->resets) {
    ok = ok && bppsa_json_put(object, "resets", json_true());
  }
  if (s->reset_state) {
    ok = ok && bppsa_json_put_text(object, "reset_state", "learned");
  }
  if (s->dropout > 0) {
    ok = ok && bppsa_json_put_real(object, "dropout", s->dropout);
  }
  if (s->recompute > 0) {
    ok = ok && bppsa_json_put_integer(object, "recompute", s->recompute);
  }
  if (s->no_bias) {
    ok = ok && bppsa_json_put(object, "bias", json_false());
  }
  return ok;
}

static int64_t list_fields(const bppsa_network *network, const bppsa_network_config *config, const char *loss,
                           bppsa_network_field fields[BPPSA_NETWORK_FIELDS]) {
  (void)network;
  fields[0].key = "nonlinearity";
  fields[1].key = "loss";
  fields[2].key = "hidden";
  fields[3].key = "layers";
  snprintf(fields[0].text, sizeof fields[0].text, "%s", bppsa_nonlinearity_name(config->steps.nonlinearity));
  snprintf(fields[1].text, sizeof fields[1].text, "%s", loss);
  snprintf(fields[2].text, sizeof fields[2].text, "%" PRId64, config->steps.hidden);
  snprintf(fields[3].text, sizeof fields[3].text, "%" PRId64, config->steps.layers);
  int64_t count = 4; /* the fields below are said only where they are unusual */
  if (config->steps.no_bias) {
    fields[count].key = "bias";
    snprintf(fields[count++].text, sizeof fields[0].text, "false");
  }
  if (config->steps.bidirectional) {
    fields[count].key = "bidirectional";
    snprintf(fields[count++].text, sizeof fields[0].text, "true");
  }
  if (config->steps.reset_state) {
    fields[count].key = "reset_state";
    snprintf(fields[count++].text, sizeof fields[0].text, "learned");
  }
  if (config->steps.dropout > 0) {
    fields[count].key = "dropout";
    bppsa_print(fields[count++].text, sizeof fields[0].text, "%.17g", config->steps.dropout);
  }
  return count;
}

const bppsa_network_family bppsa_network_recurrent = {.name = "recurrent",
                                                      .samples = "sequences",
                                                      .steps = true,
                                                      .bp_is_linear = true,
                                                      .head = "linear",
                                                      .head_parameters = 2, /* weight and bias */
                                                      .config = default_config,
                                                      .infer = infer,
                                                      .first_weight = first_weight,
                                                      .create = create,
                                                      .count = count,
                                                      .init = bppsa_recurrent_init,
                                                      .plan = plan_of,
                                                      .chain = create_chain,
                                                      .match = match,
                                                      .fit = fit,
                                                      .take_batch = take_batch,
                                                      .forward = forward,
                                                      .backward = bppsa_recurrent_backward_layers,
                                                      .batch = batch,
                                                      .scan = scan,
                                                      .layers = layers_of,
                                                      .states_shape = states_shape,
                                                      .states = bppsa_recurrent_states,
                                                      .describe = describe,
                                                      .json = put_json,
                                                      .fields = list_fields};
