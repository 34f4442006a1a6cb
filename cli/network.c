#include "cli/network.h"

#include <inttypes.h>
#include <string.h>
#include <zlib.h>

#include "cli/setup.h"
#include "core/alloc.h"

/* ---- layers and mask ---- */

static bool is_file(const bppsa_cli *cli) {
  return cli->command->object != NULL && strcmp(cli->command->object, BPPSA_FILE_OBJECT) == 0;
}

static bppsa_status open_layers(const bppsa_cli *cli, bppsa_cnn_network *layers) {
  return is_file(cli) ? bppsa_cli_input(bppsa_cnn_network_load(cli->object, layers))
                      : bppsa_cnn_network_builtin(cli->command->object, layers);
}

static bppsa_status open_mask(const bppsa_cli *cli, bppsa_network *network) {
  const bppsa_option_value *path = bppsa_cli_value(cli, BPPSA_OPTION_MASK);
  if (!path->given) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_cli_input(bppsa_safetensors_load(path->text, &network->mask)));
  return bppsa_setup_tensors(network->mask, &network->masks, &network->mask_count);
}

/* A second stream is of BP, and of a GPU. */
static bppsa_status read_order(const bppsa_cli *cli, bppsa_network *network) {
  const bppsa_option_value *order = bppsa_cli_value(cli, BPPSA_OPTION_WEIGHT_GRADIENTS),
                           *backward = bppsa_cli_value(cli, BPPSA_OPTION_BACKWARD),
                           *device = bppsa_cli_value(cli, BPPSA_OPTION_DEVICE);
  if (!order->present || order->choice == 0) {
    return BPPSA_OK;
  }
  if (strcmp(backward->text, "bp") != 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--weight-gradients: %s beside --backward %s, expected --backward bp", order->text,
                      backward->text);
  }
  if (strncmp(device->text, "cuda", 4) != 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--weight-gradients: %s beside --device %s, expected --device cuda", order->text,
                      device->text);
  }
  network->weight_gradients = BPPSA_WEIGHT_GRADIENTS_SECOND_STREAM;
  return BPPSA_OK;
}

bppsa_status bppsa_network_open(const bppsa_cli *cli, bppsa_network *network) {
  bppsa_network opened = {.kind = bppsa_network_kind_of(cli)};
  opened.name = is_file(cli) ? cli->object : opened.kind->name;
  if (opened.kind->convolutional) {
    bppsa_status status = open_layers(cli, &opened.layers);
    status = status == BPPSA_OK ? open_mask(cli, &opened) : status;
    status = status == BPPSA_OK ? read_order(cli, &opened) : status;
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

/* ---- models ---- */

bppsa_recurrent_config bppsa_network_config_default(const bppsa_network *network) {
  bppsa_recurrent_config config = bppsa_recurrent_config_default();
  const bppsa_cnn_network *layers = &network->layers;
  if (network->kind->convolutional) {
    config.batch = bppsa_cnn_config_default().batch;
    config.seq_len = 1;
    config.input = bppsa_cnn_size(layers, 0);
    config.classes = bppsa_cnn_size(layers, layers->count);
  }
  return config;
}

bppsa_cnn_config bppsa_network_cnn_config(const bppsa_network *network, const bppsa_recurrent_config *config) {
  return (bppsa_cnn_config){.batch = config->batch,
                            .dtype = config->dtype,
                            .method = config->method,
                            .weight_gradients = network->weight_gradients,
                            .input_gradients = config->input_gradients,
                            .memory_limit = config->memory_limit,
                            .mask_count = network->mask_count,
                            .masks = network->masks};
}

bppsa_status bppsa_network_create(const bppsa_network *network, const bppsa_recurrent_config *config, const bppsa_device *device,
                                  bppsa_model **model) {
  if (!network->kind->convolutional) {
    return network->kind->create(config, device, model);
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

bppsa_gradient_method bppsa_network_method(const bppsa_network *network, const bppsa_recurrent_config *config,
                                           const bppsa_model *model) {
  return bppsa_scan_plan_method(network->kind->convolutional ? bppsa_cnn_plan(model)
                                                             : bppsa_recurrent_plan(model, config->layers - 1));
}

/* ---- words and numbers ---- */

const char *bppsa_network_describe(const bppsa_network *network, const bppsa_recurrent_config *config, char *text, size_t size) {
  if (!network->kind->convolutional) {
    return bppsa_network_text(network->kind, config, text, size);
  }
  char shape[BPPSA_SHAPE_TEXT];
  enum { NAME = 100 }; /* bytes of a path that are shown, its end */
  const size_t length = strlen(network->name);
  const char *name = network->name + (length > NAME ? length - NAME : 0);
  while (((unsigned char)*name & 0xc0) == 0x80) { /* not within a letter */
    ++name;
  }
  snprintf(text, size, "%s%s: B %" PRId64 ", %" PRId64 " layers, %s to %" PRId64 " classes%s", length > NAME ? "..." : "", name,
           config->batch, network->layers.count, bppsa_shape_text(3, network->layers.in, shape, sizeof shape), config->classes,
           network->mask != NULL ? ", masked" : "");
  return text;
}

bool bppsa_network_json(const bppsa_network *network, const bppsa_recurrent_config *c, json_t *object) {
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

/* Continues a checksum over integers, however structs are padded. */
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
