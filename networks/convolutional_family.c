/* The family of convolutional networks: a chain or a graph of operators, whose last one is the head, and a mask of its weights. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "cnn/chain.h"
#include "cnn/onnx.h"
#include "core/base/alloc.h"
#include "networks/named_network.h"

/* ---- layers and mask ---- */

static bppsa_status open_layers(const char *name, bppsa_cnn_network *layers) {
  if (bppsa_network_is_onnx(name)) {
    return bppsa_input_status(bppsa_cnn_onnx_load(name, layers, NULL));
  }
  return strcmp(bppsa_network_kind_find(name)->name, BPPSA_NETWORK_FILE) == 0
             ? bppsa_input_status(bppsa_cnn_network_load(name, layers))
             : bppsa_cnn_network_builtin(name, layers);
}

/* Copies masks of bool and their names into one block of memory, behind the views of them. */
static bppsa_status copy_masks(int64_t count, const bppsa_named_view *from, bppsa_network *network) {
  size_t bytes = (size_t)count * sizeof *from;
  for (int64_t i = 0; i < count; ++i) {
    bytes += bppsa_view_bytes(&from[i].view) + strlen(from[i].name) + 1;
  }
  bppsa_named_view *masks = bppsa_alloc(bytes);
  if (masks == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  char *at = (char *)(masks + count);
  for (int64_t i = 0; i < count; ++i) {
    const bppsa_view *v = &from[i].view;
    const size_t size = bppsa_view_bytes(v), name = strlen(from[i].name) + 1;
    memcpy(at + size, from[i].name, name);
    masks[i] = (bppsa_named_view){at + size, bppsa_view_make(at, v->dtype, v->ndim, v->shape)};
    memcpy(at, v->data, size);
    at += size + name;
  }
  network->masks = masks;
  network->mask_count = count;
  return BPPSA_OK;
}

/* Is the tensor the weight of a layer? */
static bool is_weight(const bppsa_cnn_network *layers, const char *name) {
  for (int64_t i = 0; i < layers->count; ++i) {
    const size_t length = strlen(layers->layers[i].prefix);
    if (bppsa_cnn_has_weights(&layers->layers[i]) && strncmp(name, layers->layers[i].prefix, length) == 0 &&
        strcmp(name + length, ".weight") == 0) {
      return true;
    }
  }
  return false;
}

static bppsa_status take_masks(const bppsa_weight_list *masks, bppsa_network *network) {
  bppsa_named_view *known = bppsa_calloc(masks->count, sizeof *known);
  int64_t count = 0;
  if (known == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < masks->count; ++i) {
    if (is_weight(&network->layers, masks->tensors[i].name)) {
      known[count++] = masks->tensors[i];
    }
  }
  const bppsa_status status = count > 0 ? copy_masks(count, known, network) : BPPSA_OK;
  bppsa_free(known);
  return status;
}

/* Loads a file of masks, or takes the masks of one with pruned weights. */
static bppsa_status open_mask(const char *path, bppsa_network *network) {
  bppsa_weight_list pruned = {.count = 0};
  if (path == NULL) {
    return BPPSA_OK;
  }
  network->mask_path = path;
  BPPSA_TRY(bppsa_input_status(bppsa_safetensors_load(path, &network->mask)));
  BPPSA_TRY(bppsa_weight_list_make(path, network->mask, BPPSA_LIST_MASKS, &pruned));
  const bppsa_status status = pruned.count > 0 ? copy_masks(pruned.count, pruned.tensors, network)
                                               : bppsa_safetensors_list(network->mask, &network->masks, &network->mask_count);
  bppsa_weight_list_free(&pruned);
  return status;
}

static bppsa_status open_network(const char *name, const char *mask_path, bppsa_network *network) {
  BPPSA_TRY(open_layers(name, &network->layers));
  return open_mask(mask_path, network);
}

/* ---- configurations ---- */

static bppsa_network_config default_config(const bppsa_network *network) {
  const bppsa_cnn_config cnn = bppsa_cnn_config_default();
  return (bppsa_network_config){.batch = cnn.batch,
                                .input = bppsa_cnn_size(&network->layers, 0),
                                .classes = bppsa_cnn_size(&network->layers, network->layers.count),
                                .dtype = cnn.dtype,
                                .method = cnn.method};
}

bppsa_cnn_config bppsa_network_cnn_config(const bppsa_network *network, const bppsa_network_config *config) {
  return (bppsa_cnn_config){.batch = config->batch,
                            .dtype = config->dtype,
                            .method = config->method,
                            .weight_gradients = network->weight_gradients,
                            .input_gradients = config->input_gradients,
                            .memory_limit = config->memory_limit,
                            .optimizer_slots = config->optimizer_slots,
                            .delayed = config->delayed,
                            .mask_count = network->mask_count,
                            .masks = network->masks,
                            .dropping = config->training,
                            .batch_statistics = config->batch_statistics,
                            .dropout_seed = config->dropout_seed};
}

static bppsa_status infer(const char *where, const bppsa_network *network, int64_t count, const bppsa_named_view *tensors,
                          bppsa_network_config *config) {
  return bppsa_cnn_infer(where, &network->layers, count, tensors, &config->dtype);
}

static const char *first_weight(const bppsa_network *network, char *text) {
  int64_t i = 0;
  while (!bppsa_cnn_has_weights(&network->layers.layers[i])) { /* the head has some */
    ++i;
  }
  snprintf(text, BPPSA_NETWORK_TEXT, "%s.weight", network->layers.layers[i].prefix);
  return text;
}

/* ---- models ---- */

static bppsa_status create(const bppsa_network *network, const bppsa_network_config *config, const bppsa_device *device,
                           bppsa_model **model) {
  static const char of_mask[] = "mask '";
  const bppsa_cnn_config cnn = bppsa_network_cnn_config(network, config);
  const bppsa_status status = bppsa_cnn_create(&network->layers, &cnn, device, model);
  return status == BPPSA_OK || network->mask_path == NULL || strncmp(bppsa_last_error(), of_mask, sizeof of_mask - 1) != 0
             ? status
             : bppsa_fail_prefix(status, "%s", network->mask_path);
}

static bppsa_status init_model(bppsa_model *model, bppsa_init init, uint64_t seed) {
  (void)init; /* its one initialisation is used */
  return bppsa_cnn_init(model, seed);
}

static bppsa_status count(const bppsa_network *network, const bppsa_network_config *config, const bppsa_device *device,
                          int64_t *bytes) {
  const bppsa_cnn_config cnn = bppsa_network_cnn_config(network, config);
  return bppsa_cnn_count(&network->layers, &cnn, device, bytes);
}

static bppsa_status create_chain(const bppsa_network *network, const bppsa_network_config *config, const bppsa_device *device,
                                 bppsa_chain **chain) {
  return bppsa_cnn_chain_create(&network->layers, config->batch, config->dtype, device, chain);
}

static const bppsa_scan_plan *plan_of(const bppsa_network_config *config, const bppsa_model *model) {
  (void)config;
  return bppsa_cnn_plan(model);
}

/* ---- data ---- */

static bppsa_status match(const bppsa_network *network, const bppsa_network_config *config, const char *weights,
                          const bppsa_dataset *dataset) {
  (void)config;
  (void)weights;
  const int64_t *in = network->layers.in, *image = dataset->image;
  char found[BPPSA_SHAPE_TEXT], expected[BPPSA_SHAPE_TEXT], guess[BPPSA_SHAPE_TEXT];
  return in[0] == image[0] && in[1] == image[1] && in[2] == image[2]
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_SHAPE, "%s: images of %s, expected %s, the network's input [C, H, W]%s", dataset->ops->name,
                          bppsa_shape_text(3, image, found, sizeof found), bppsa_shape_text(3, in, expected, sizeof expected),
                          bppsa_shape_guess("[C, H, W]", 3, image, in, guess, sizeof guess));
}

static bppsa_status take_batch(const char *path, const bppsa_network *network, const bppsa_view *x,
                               bppsa_network_config *config) {
  const int64_t *in = network->layers.in, batch = x->ndim > 0 ? x->shape[0] : 0, shape[] = {batch, in[0], in[1], in[2]};
  BPPSA_TRY(bppsa_view_check_shape(path, x, "[B, C, H, W]", 4, shape));
  config->batch = batch;
  return batch > 0 ? BPPSA_OK : bppsa_fail(BPPSA_ERR_SHAPE, "%s: no sample, expected at least one", path);
}

/* ---- passes that are timed ---- */

static bppsa_status forward(bppsa_model *model, const bppsa_view *x) {
  bppsa_view logits;
  return model->ops->forward(model, x, NULL, &logits);
}

static bppsa_status backward(bppsa_model *model, const bppsa_view *seed) {
  return model->ops->backward(model, seed);
}

static void batch(const bppsa_network *network, const bppsa_network_config *config, bppsa_network_shape *x,
                  bppsa_network_shape *seed) {
  const int64_t *in = network->layers.in, b = config->batch;
  *x = (bppsa_network_shape){"x", 4, {b, in[0], in[1], in[2]}};
  *seed = (bppsa_network_shape){"seed", 2, {b, config->classes}};
}

static bppsa_scan_config scan(const bppsa_network *network, const bppsa_network_config *config) {
  bppsa_scan_config asked = bppsa_scan_config_default();
  (void)config;
  asked.element = BPPSA_ELEMENT_CSR;
  asked.jacobians = network->layers.count - 1;
  return asked;
}

/* ---- states ---- */

/* The head gives the logits. */
static int64_t layers_of(const bppsa_network *network, const bppsa_network_config *config) {
  (void)config;
  return network->layers.count - 1;
}

static bppsa_network_shape states_shape(const bppsa_network *network, const bppsa_network_config *config, int64_t layer,
                                        int64_t samples) {
  const bppsa_cnn_layer *about = &network->layers.layers[layer];
  bppsa_network_shape made = {"", 4, {samples, about->out[0], about->out[1], about->out[2]}};
  (void)config;
  snprintf(made.name, sizeof made.name, "states_%.60s", about->name);
  return made;
}

/* ---- words and numbers ---- */

static const char *describe(const bppsa_network *network, const bppsa_network_config *config, char *text, size_t size) {
  char shape[BPPSA_SHAPE_TEXT];
  enum { NAME = 100 }; /* a longer path shows only its last bytes */
  const size_t length = strlen(network->name);
  const char *name = network->name + (length > NAME ? length - NAME : 0);
  while (((unsigned char)*name & 0xc0) == 0x80) { /* do not begin in the middle of a character */
    ++name;
  }
  snprintf(text, size, "%s%s: B %" PRId64 ", %" PRId64 " layers, %s to %" PRId64 " classes%s", length > NAME ? "..." : "", name,
           config->batch, network->layers.count, bppsa_shape_text(3, network->layers.in, shape, sizeof shape), config->classes,
           network->mask_count > 0 ? ", masked" : "");
  return text;
}

static bool put_json(const bppsa_network *network, const bppsa_network_config *c, json_t *object) {
  return bppsa_json_put_shape(object, "input", 3, network->layers.in) &&
         bppsa_json_put_integer(object, "layers", network->layers.count) &&
         bppsa_json_put_integer(object, "classes", c->classes) && bppsa_json_put_integer(object, "batch", c->batch) &&
         bppsa_json_put_bool(object, "masked", network->mask_count > 0);
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
  /* What only later operators have: the sums of networks without them stay as they were. */
  if (o->approximate) {
    sum = checksum(sum, 1, (int64_t[]){1});
  }
  if (o->kind == BPPSA_OPERATOR_ADAPTIVE_AVGPOOL2D) {
    sum = checksum(sum, 2, o->size);
  }
  if (o->kind == BPPSA_OPERATOR_BATCHNORM2D || o->kind == BPPSA_OPERATOR_DROPOUT) {
    const double reals[] = {o->epsilon, o->momentum, o->p};
    sum = crc32_z(sum, (const Bytef *)reals, sizeof reals);
  }
  return crc32_z(sum, (const Bytef *)layer->prefix, strlen(layer->prefix) + 1);
}

/* The same for what makes a layer one of a graph. */
static uLong input_checksum(uLong sum, const bppsa_cnn_network *layers, int64_t i) {
  const bppsa_cnn_layer *layer = &layers->layers[i];
  const int64_t numbers[] = {(int64_t)layer->node, layer->first, bppsa_cnn_input_count(layers, i)};
  sum = checksum(sum, (int64_t)(sizeof numbers / sizeof numbers[0]), numbers);
  if (layer->node >= BPPSA_CNN_RESHAPE) { /* as above: what only later layers have */
    const int64_t more[] = {(int64_t)layer->of, layer->order[0], layer->order[1], layer->order[2], layer->axis,
                            layer->extents,     layer->shape[0], layer->shape[1], layer->shape[2]};
    sum = checksum(sum, (int64_t)(sizeof more / sizeof more[0]), more);
    sum = crc32_z(sum, (const Bytef *)&layer->op.epsilon, sizeof layer->op.epsilon);
  }
  for (int64_t k = 0; k < bppsa_cnn_input_count(layers, i); ++k) {
    sum = checksum(sum, 1, &(int64_t){bppsa_cnn_input_of(layers, i, k)});
  }
  return sum;
}

static const char *identity(const bppsa_network *network, char *text, size_t size) {
  uLong layers = checksum(crc32_z(0, NULL, 0), 3, network->layers.in), masks = crc32_z(0, NULL, 0);
  for (int64_t i = 0; i < network->layers.count; ++i) {
    layers = layer_checksum(layers, &network->layers.layers[i]);
    layers = bppsa_cnn_is_graph(&network->layers) ? input_checksum(layers, &network->layers, i) : layers;
  }
  for (int64_t i = 0; i < network->mask_count; ++i) {
    const bppsa_named_view *m = &network->masks[i];
    masks = crc32_z(crc32_z(masks, (const Bytef *)m->name, strlen(m->name)), m->view.data, bppsa_view_bytes(&m->view));
  }
  snprintf(text, size, "%08lx %08lx", layers, masks);
  return text;
}

static int64_t list_fields(const bppsa_network *network, const bppsa_network_config *config, const char *loss,
                           bppsa_network_field fields[BPPSA_NETWORK_FIELDS]) {
  (void)loss;
  fields[0].key = "network";
  identity(network, fields[0].text, sizeof fields[0].text);
  if (bppsa_cnn_network_norm(&network->layers) == NULL) {
    return 1;
  }
  fields[1].key = "batch_norm";
  snprintf(fields[1].text, sizeof fields[1].text, "%s", config->batch_statistics ? "batch" : "given");
  return 2;
}

const bppsa_network_family bppsa_network_convolutional = {.name = "convolutional",
                                                          .samples = "images",
                                                          .plans = true,
                                                          .open = open_network,
                                                          .masks = take_masks,
                                                          .config = default_config,
                                                          .infer = infer,
                                                          .first_weight = first_weight,
                                                          .create = create,
                                                          .count = count,
                                                          .init = init_model,
                                                          .plan = plan_of,
                                                          .chain = create_chain,
                                                          .match = match,
                                                          .take_batch = take_batch,
                                                          .forward = forward,
                                                          .backward = backward,
                                                          .batch = batch,
                                                          .scan = scan,
                                                          .layers = layers_of,
                                                          .states_shape = states_shape,
                                                          .states = bppsa_cnn_activation,
                                                          .describe = describe,
                                                          .json = put_json,
                                                          .identity = identity,
                                                          .fields = list_fields};
