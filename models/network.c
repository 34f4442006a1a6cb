#include "models/network.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "core/alloc.h"

/* ---- layers and mask ---- */

static bppsa_status open_layers(const char *name, bppsa_cnn_network *layers) {
  return strcmp(bppsa_network_kind_find(name)->name, BPPSA_NETWORK_FILE) == 0
             ? bppsa_input_status(bppsa_cnn_network_load(name, layers))
             : bppsa_cnn_network_builtin(name, layers);
}

static bppsa_status open_mask(const char *path, bppsa_network *network) {
  if (path == NULL) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_input_status(bppsa_safetensors_load(path, &network->mask)));
  return bppsa_safetensors_list(network->mask, &network->masks, &network->mask_count);
}

bppsa_status bppsa_network_open(const char *name, const char *mask_path, bppsa_network *network) {
  bppsa_network opened = {.kind = bppsa_network_kind_find(name), .name = name};
  if (opened.kind == NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "network: unknown '%s', expected rnn, gru, lenet5, vgg11 or the path of a .json file",
                      name);
  }
  if (opened.kind->convolutional) {
    bppsa_status status = open_layers(name, &opened.layers);
    status = status == BPPSA_OK ? open_mask(mask_path, &opened) : status;
    if (status != BPPSA_OK) {
      bppsa_network_close(&opened);
      return status;
    }
  }
  *network = opened;
  return BPPSA_OK;
}

void bppsa_network_close(bppsa_network *network) {
  bppsa_cnn_network_free(&network->layers);
  bppsa_safetensors_destroy(network->mask);
  bppsa_free(network->masks);
  *network = (bppsa_network){0};
}

/* ---- configurations ---- */

static bppsa_network_config config_of(const bppsa_recurrent_config *c) {
  return (bppsa_network_config){.batch = c->batch,
                                .classes = c->classes,
                                .loss_all = c->loss_all,
                                .dtype = c->dtype,
                                .method = c->method,
                                .input_gradients = c->input_gradients,
                                .memory_limit = c->memory_limit,
                                .seq_len = c->seq_len,
                                .input = c->input,
                                .hidden = c->hidden,
                                .layers = c->layers,
                                .nonlinearity = c->nonlinearity};
}

bppsa_network_config bppsa_network_config_default(const bppsa_network *network) {
  const bppsa_recurrent_config recurrent = bppsa_recurrent_config_default();
  const bppsa_cnn_config cnn = bppsa_cnn_config_default();
  const bppsa_cnn_network *layers = &network->layers;
  return network->kind->convolutional ? (bppsa_network_config){.batch = cnn.batch,
                                                               .classes = bppsa_cnn_size(layers, layers->count),
                                                               .dtype = cnn.dtype,
                                                               .method = cnn.method,
                                                               .seq_len = 1,
                                                               .input = bppsa_cnn_size(layers, 0)}
                                      : config_of(&recurrent);
}

bppsa_recurrent_config bppsa_network_recurrent_config(const bppsa_network_config *config) {
  bppsa_recurrent_config made = bppsa_recurrent_config_default();
  made.seq_len = config->seq_len;
  made.batch = config->batch;
  made.input = config->input;
  made.hidden = config->hidden;
  made.layers = config->layers;
  made.classes = config->classes;
  made.loss_all = config->loss_all;
  made.dtype = config->dtype;
  made.nonlinearity = config->nonlinearity;
  made.method = config->method;
  made.input_gradients = config->input_gradients;
  made.memory_limit = config->memory_limit;
  return made;
}

bppsa_cnn_config bppsa_network_cnn_config(const bppsa_network *network, const bppsa_network_config *config) {
  return (bppsa_cnn_config){.batch = config->batch,
                            .dtype = config->dtype,
                            .method = config->method,
                            .weight_gradients = network->weight_gradients,
                            .input_gradients = config->input_gradients,
                            .memory_limit = config->memory_limit,
                            .mask_count = network->mask_count,
                            .masks = network->masks};
}

bppsa_status bppsa_network_infer(const char *where, const bppsa_network *network, int64_t count, const bppsa_named_view *tensors,
                                 bppsa_network_config *config) {
  if (network->kind->convolutional) {
    return bppsa_cnn_infer(where, &network->layers, count, tensors, &config->dtype);
  }
  const bppsa_network_kind *kind = network->kind;
  bppsa_recurrent_config found = bppsa_network_recurrent_config(config);
  BPPSA_TRY(bppsa_recurrent_infer(where, kind->name, kind->cell->gates, count, tensors, &found));
  *config = config_of(&found);
  return BPPSA_OK;
}

/* ---- models ---- */

bppsa_status bppsa_network_create(const bppsa_network *network, const bppsa_network_config *config, const bppsa_device *device,
                                  bppsa_model **model) {
  if (!network->kind->convolutional) {
    const bppsa_recurrent_config recurrent = bppsa_network_recurrent_config(config);
    return network->kind->create(&recurrent, network->kind->cell, device, model);
  }
  const bppsa_cnn_config cnn = bppsa_network_cnn_config(network, config);
  return bppsa_cnn_create(&network->layers, &cnn, device, model);
}

bppsa_status bppsa_network_init(const bppsa_network *network, bppsa_model *model, bppsa_init init, uint64_t seed) {
  if (!network->kind->convolutional) {
    return bppsa_recurrent_init(model, init, seed);
  }
  return bppsa_cnn_init(model, seed);
}

bppsa_gradient_method bppsa_network_method(const bppsa_network *network, const bppsa_network_config *config,
                                           const bppsa_model *model) {
  return bppsa_scan_plan_method(network->kind->convolutional ? bppsa_cnn_plan(model)
                                                             : bppsa_recurrent_plan(model, config->layers - 1));
}

/* ---- data ---- */

static bppsa_status match_images(const bppsa_network *network, const bppsa_dataset *dataset) {
  const int64_t *in = network->layers.in, *image = dataset->image;
  char found[BPPSA_SHAPE_TEXT], expected[BPPSA_SHAPE_TEXT], guess[BPPSA_SHAPE_TEXT];
  return in[0] == image[0] && in[1] == image[1] && in[2] == image[2]
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_SHAPE, "%s: images of %s, expected %s, the network's input [C, H, W]%s", dataset->ops->name,
                          bppsa_shape_text(3, image, found, sizeof found), bppsa_shape_text(3, in, expected, sizeof expected),
                          bppsa_shape_guess("[C, H, W]", 3, image, in, guess, sizeof guess));
}

bppsa_status bppsa_network_match(const bppsa_network *network, const bppsa_network_config *config, const char *weights,
                                 const bppsa_dataset *dataset) {
  const bool images = dataset->image[0] > 0, convolutional = network->kind->convolutional;
  if (images != convolutional) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: %s, expected %s for %s", dataset->ops->name, images ? "images" : "sequences",
                      images ? "sequences" : "images", network->kind->name);
  }
  if (convolutional) {
    BPPSA_TRY(match_images(network, dataset));
  } else if (weights != NULL && config->input != dataset->input) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: weights for input size %" PRId64 ", expected %" PRId64 " as in the data%s", weights,
                      config->input, dataset->input,
                      config->input == dataset->seq_len ? ", which are [N, T, I], but look like [N, I, T]" : "");
  }
  if ((weights != NULL || convolutional) && dataset->real_targets && config->classes != dataset->classes) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: weights for %" PRId64 " outputs, expected %" PRId64 ", the data's targets",
                      weights != NULL ? weights : network->kind->name, config->classes, dataset->classes);
  }
  if ((weights != NULL || convolutional) && config->classes < dataset->classes) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: weights for %" PRId64 " classes, expected at least %" PRId64 " as in the data",
                      weights != NULL ? weights : network->kind->name, config->classes, dataset->classes);
  }
  return BPPSA_OK;
}

/* ---- words and numbers ---- */

const char *bppsa_network_describe(const bppsa_network *network, const bppsa_network_config *config, char *text, size_t size) {
  if (!network->kind->convolutional) {
    const bppsa_recurrent_config recurrent = bppsa_network_recurrent_config(config);
    return bppsa_network_text(network->kind, &recurrent, text, size);
  }
  char shape[BPPSA_SHAPE_TEXT];
  enum { NAME = 100 }; /* of a long path, so many bytes at its end are shown */
  const size_t length = strlen(network->name);
  const char *name = network->name + (length > NAME ? length - NAME : 0);
  while (((unsigned char)*name & 0xc0) == 0x80) { /* do not begin in the middle of a character */
    ++name;
  }
  snprintf(text, size, "%s%s: B %" PRId64 ", %" PRId64 " layers, %s to %" PRId64 " classes%s", length > NAME ? "..." : "", name,
           config->batch, network->layers.count, bppsa_shape_text(3, network->layers.in, shape, sizeof shape), config->classes,
           network->mask != NULL ? ", masked" : "");
  return text;
}

bool bppsa_network_json(const bppsa_network *network, const bppsa_network_config *c, json_t *object) {
  if (network->kind->convolutional) {
    return bppsa_json_put_shape(object, "input", 3, network->layers.in) &&
           bppsa_json_put_integer(object, "layers", network->layers.count) &&
           bppsa_json_put_integer(object, "classes", c->classes) && bppsa_json_put_integer(object, "batch", c->batch) &&
           bppsa_json_put_bool(object, "masked", network->mask != NULL);
  }
  bool ok = bppsa_json_put_integer(object, "seq_len", c->seq_len) && bppsa_json_put_integer(object, "batch", c->batch);
  ok = ok && bppsa_json_put_integer(object, "input", c->input) && bppsa_json_put_integer(object, "hidden", c->hidden);
  ok = ok && bppsa_json_put_integer(object, "layers", c->layers) && bppsa_json_put_integer(object, "classes", c->classes);
  if (network->kind->cell->relu) {
    ok = ok && bppsa_json_put_text(object, "nonlinearity", bppsa_nonlinearity_name(c->nonlinearity));
  }
  return ok;
}

/* Continues a checksum over integers one by one, because structs contain padding. */
static uLong checksum(uLong sum, int64_t count, const int64_t *numbers) {
  return crc32_z(sum, (const Bytef *)numbers, (size_t)count * sizeof *numbers);
}

static uLong layer_checksum(uLong sum, const bppsa_cnn_layer *layer) {
  const bppsa_op *o = &layer->op;
  const int64_t flags[] = {(int64_t)o->kind, o->out_channels, o->groups, o->ceil_mode, o->exclude_pad, layer->bias};
  sum = checksum(sum, (int64_t)(sizeof flags / sizeof flags[0]), flags);
  sum = checksum(checksum(sum, 2, o->kernel), 2, o->stride);
  sum = checksum(checksum(sum, 2, o->dilation), 4, o->padding);
  sum = crc32_z(sum, (const Bytef *)&o->slope, sizeof o->slope);
  return crc32_z(sum, (const Bytef *)layer->prefix, strlen(layer->prefix) + 1);
}

const char *bppsa_network_identity(const bppsa_network *network, char *text, size_t size) {
  uLong layers = checksum(crc32_z(0, NULL, 0), 3, network->layers.in), masks = crc32_z(0, NULL, 0);
  for (int64_t i = 0; i < network->layers.count; ++i) {
    layers = layer_checksum(layers, &network->layers.layers[i]);
  }
  for (int64_t i = 0; i < network->mask_count; ++i) {
    const bppsa_named_view *m = &network->masks[i];
    masks = crc32_z(crc32_z(masks, (const Bytef *)m->name, strlen(m->name)), m->view.data, bppsa_view_bytes(&m->view));
  }
  snprintf(text, size, "%08lx %08lx", layers, masks);
  return text;
}
