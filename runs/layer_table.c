/* The layers of a network, one by one: numbers of weights and FLOPs of training, as a table for people, as JSON and CSV. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/decimal.h"
#include "runs/flops.h"

/* ---- counting ---- */

/* The masks of all layers, from the request's or from the network's own. */
typedef struct {
  const uint8_t **masks; /* NULL: the layer keeps all */
  uint8_t **owned;       /* the masks that were made here */
} mask_list;

static void free_masks(mask_list *list, int64_t count) {
  for (int64_t i = 0; list->owned != NULL && i < count; ++i) {
    bppsa_free(list->owned[i]);
  }
  bppsa_free((void *)list->masks);
  bppsa_free((void *)list->owned);
}

static bppsa_status take_masks(const bppsa_flops *net, bool by_file, mask_list *list) {
  const bppsa_network *network = &net->network;
  list->masks = bppsa_calloc(net->count + 1, sizeof *list->masks);
  list->owned = bppsa_calloc(net->count + 1, sizeof *list->owned);
  if (list->masks == NULL || list->owned == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i <= net->count; ++i) {
    if (by_file) {
      BPPSA_TRY(bppsa_cnn_mask_bytes(&network->layers.layers[i], network->mask_count, network->masks, &list->owned[i]));
    }
    list->masks[i] = by_file ? list->owned[i] : bppsa_flops_mask(net, i);
  }
  return BPPSA_OK;
}

static bppsa_status count_layers(bppsa_flops *net, const mask_list *list) {
  const bppsa_cnn_network *layers = &net->network.layers;
  net->shrunk = bppsa_calloc(net->count + 1, sizeof *net->shrunk);
  if (net->shrunk == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i <= net->count; ++i) {
    BPPSA_TRY(bppsa_cnn_count_layer(layers, i, list->masks[i], net->request.input_grad, &net->layers[i]));
    net->pruned = net->pruned || net->layers[i].kept < net->layers[i].weights;
  }
  BPPSA_TRY(bppsa_cnn_shrink(layers, list->masks, net->shrunk));
  for (int64_t i = 0; i <= net->count; ++i) {
    for (int pass = 0; pass < BPPSA_CNN_PASSES; ++pass) {
      double *flops = net->layers[i].flops[pass];
      flops[BPPSA_CNN_SHRUNK] = round(flops[BPPSA_CNN_DENSE] * net->shrunk[i].share);
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_layer_table_count(bppsa_flops *net) {
  const bppsa_cnn_network *layers = &net->network.layers;
  const bool by_file = net->masks.count == 0 && net->network.mask_count > 0;
  mask_list list = {.masks = NULL};
  net->layers = bppsa_calloc(net->count + 1, sizeof *net->layers);
  bppsa_status status = net->layers == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  if (by_file && status == BPPSA_OK) {
    status = bppsa_cnn_check_masks(layers, net->network.mask_count, net->network.masks);
  }
  status = status == BPPSA_OK ? take_masks(net, by_file, &list) : status;
  status = status == BPPSA_OK ? count_layers(net, &list) : status;
  free_masks(&list, net->count + 1);
  return status == BPPSA_OK || net->layers == NULL
             ? status
             : bppsa_fail_prefix(status, "%s", by_file ? net->network.mask_path : net->request.network);
}

/* ---- classes of layers ---- */

enum { WEIGHTS, NORMS, OTHER_NORMS, POOLS, ACTIVATIONS, JOINS, MOVES, CLASSES };
static const char *const class_names[CLASSES] = {"matmul", "batch_norm", "sample_norm", "pool", "activation", "join", "move"};
static const char *const class_words[CLASSES] = {"convolutions, linear", "batch norms",         "layer and group norms", "pools",
                                                 "activations",          "additions, products", "nothing computed"};

static int class_of(const bppsa_cnn_layer *layer) {
  const bppsa_cnn_node node = layer->node == BPPSA_CNN_SUMS ? layer->of : layer->node;
  if (node != BPPSA_CNN_OPERATOR) {
    return node == BPPSA_CNN_ADD || node == BPPSA_CNN_MUL               ? JOINS
           : node == BPPSA_CNN_SOFTMAX                                  ? ACTIVATIONS
           : node == BPPSA_CNN_LAYERNORM || node == BPPSA_CNN_GROUPNORM ? OTHER_NORMS
                                                                        : MOVES;
  }
  return bppsa_cnn_has_weights(layer)                   ? WEIGHTS
         : layer->op.kind == BPPSA_OPERATOR_BATCHNORM2D ? NORMS
         : bppsa_op_is_pool(&layer->op)                 ? POOLS
         : bppsa_op_is_identity(&layer->op)             ? MOVES
                                                        : ACTIVATIONS;
}

/* The multiply-adds of a layer's forward pass: of convolutions and linear operators alone. */
static double macs_of(const bppsa_cnn_layer_work *work, int count) {
  return work->weights > 0 ? work->flops[BPPSA_CNN_FORWARD][count] / 2 : 0;
}

/* The sums of all layers of one class, and of their multiply-adds; of all layers if `kind` is CLASSES. Returns their number. */
static int64_t sum_of(const bppsa_flops *net, int kind, bppsa_cnn_layer_work *sum, double macs[BPPSA_CNN_COUNTS]) {
  int64_t layers = 0;
  *sum = (bppsa_cnn_layer_work){.parameters = 0};
  memset(macs, 0, BPPSA_CNN_COUNTS * sizeof *macs);
  for (int64_t i = 0; i <= net->count; ++i) {
    if (kind != CLASSES && class_of(&net->network.layers.layers[i]) != kind) {
      continue;
    }
    ++layers;
    sum->parameters += net->layers[i].parameters;
    sum->weights += net->layers[i].weights;
    sum->kept += net->layers[i].kept;
    for (int k = 0; k < BPPSA_CNN_COUNTS; ++k) {
      macs[k] += macs_of(&net->layers[i], k);
      for (int pass = 0; pass < BPPSA_CNN_PASSES; ++pass) {
        sum->flops[pass][k] += net->layers[i].flops[pass][k];
      }
    }
  }
  return layers;
}

static const char *const pass_names[BPPSA_CNN_PASSES] = {"forward", "to_input", "to_weights"};
static const char *const count_names[BPPSA_CNN_COUNTS] = {"dense", "unpruned", "pruned", "shrunk"};

/* "64x112x112" */
static const char *shape_text(const int64_t shape[3], char text[BPPSA_SHAPE_TEXT]) {
  snprintf(text, BPPSA_SHAPE_TEXT, "%" PRId64 "x%" PRId64 "x%" PRId64, shape[0], shape[1], shape[2]);
  return text;
}

static const char *input_name(const bppsa_flops *net, int64_t i, int64_t k) {
  const int64_t from = bppsa_cnn_input_of(&net->network.layers, i, k);
  return from < 0 ? "input" : net->network.layers.layers[from].name;
}

/* ---- JSON ---- */

/* Puts parameters, weights, kept, density, macs_* and FLOPs into an object. */
static bool put_work(json_t *object, const bppsa_cnn_layer_work *work, const double macs[BPPSA_CNN_COUNTS]) {
  bool ok = bppsa_json_put_integer(object, "parameters", work->parameters);
  ok = ok && bppsa_json_put_integer(object, "weight_count", work->weights) && bppsa_json_put_integer(object, "kept", work->kept);
  ok = ok && bppsa_json_put_real(object, "density", work->weights > 0 ? (double)work->kept / (double)work->weights : NAN);
  for (int k = 0; k < BPPSA_CNN_COUNTS; ++k) {
    char key[32];
    snprintf(key, sizeof key, "macs_%s", count_names[k]);
    ok = ok && bppsa_json_put_integer(object, key, llround(macs[k]));
  }
  for (int at = 0; at < BPPSA_CNN_PASSES * BPPSA_CNN_COUNTS; ++at) {
    const int pass = at / BPPSA_CNN_COUNTS, k = at % BPPSA_CNN_COUNTS;
    char key[32];
    snprintf(key, sizeof key, "%s_%s", pass_names[pass], count_names[k]);
    ok = ok && bppsa_json_put_integer(object, key, llround(work->flops[pass][k]));
  }
  return ok;
}

static json_t *layer_json(const bppsa_flops *net, int64_t i) {
  const bppsa_cnn_layer *layer = &net->network.layers.layers[i];
  double macs[BPPSA_CNN_COUNTS];
  for (int k = 0; k < BPPSA_CNN_COUNTS; ++k) {
    macs[k] = macs_of(&net->layers[i], k);
  }
  json_t *object = json_object(), *inputs = json_array();
  bool ok = object != NULL && inputs != NULL;
  for (int64_t k = 0; ok && k < bppsa_cnn_input_count(&net->network.layers, i); ++k) {
    ok = json_array_append_new(inputs, json_string(input_name(net, i, k))) == 0;
  }
  ok = ok && bppsa_json_put_text(object, "name", layer->name);
  ok = ok && bppsa_json_put_text(object, "operator", bppsa_cnn_layer_word(layer));
  ok = ok && bppsa_json_put_text(object, "class", class_names[class_of(layer)]);
  ok = bppsa_json_put(object, "inputs", bppsa_json_finish(inputs, ok)) && ok;
  ok = ok && bppsa_json_put_shape(object, "input_shape", 3, layer->op.in);
  ok = ok && bppsa_json_put_shape(object, "output_shape", 3, layer->out) && put_work(object, &net->layers[i], macs);
  ok = ok && bppsa_json_put_integer(object, "channels_in_left", net->shrunk[i].in);
  ok = ok && bppsa_json_put_integer(object, "channels_out_left", net->shrunk[i].out);
  return bppsa_json_finish(object, ok);
}

static json_t *sum_json(const bppsa_flops *net, int kind) {
  bppsa_cnn_layer_work sum;
  double macs[BPPSA_CNN_COUNTS];
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_integer(object, "layers", sum_of(net, kind, &sum, macs));
  ok = ok && put_work(object, &sum, macs);
  return bppsa_json_finish(object, ok);
}

bool bppsa_layer_table_put(json_t *object, const bppsa_flops *net) {
  json_t *layers = json_array(), *classes = json_object();
  bool ok = layers != NULL && classes != NULL;
  for (int64_t i = 0; ok && i <= net->count; ++i) {
    ok = json_array_append_new(layers, layer_json(net, i)) == 0;
  }
  for (int kind = 0; ok && kind < CLASSES; ++kind) {
    ok = bppsa_json_put(classes, class_names[kind], sum_json(net, kind));
  }
  layers = bppsa_json_finish(layers, ok);
  classes = bppsa_json_finish(classes, ok);
  ok = bppsa_json_put(object, "per_layer", layers) && ok;
  ok = bppsa_json_put(object, "per_class", classes) && ok;
  return ok && bppsa_json_put(object, "total", sum_json(net, CLASSES));
}

json_t *bppsa_layer_table_json(const bppsa_flops *net) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "network", net->request.network);
  ok = ok && bppsa_json_put_shape(object, "input", 3, net->network.layers.in);
  ok = ok && bppsa_flops_put_weights(object, net) && bppsa_layer_table_put(object, net);
  return bppsa_json_finish(object, ok);
}

/* ---- CSV ---- */

void bppsa_layer_table_csv(const bppsa_flops *net, bppsa_text *text) {
  enum { CELLS = 6 + BPPSA_CNN_COUNTS * (1 + BPPSA_CNN_PASSES) };
  bppsa_text_add(text, "layer,operator,class,inputs,input_shape,output_shape,parameters,weights,kept,density");
  for (int at = -BPPSA_CNN_COUNTS; at < BPPSA_CNN_PASSES * BPPSA_CNN_COUNTS; ++at) {
    const int k = (at + BPPSA_CNN_COUNTS) % BPPSA_CNN_COUNTS;
    bppsa_text_add(text, ",%s_%s", at < 0 ? "macs" : pass_names[at / BPPSA_CNN_COUNTS], count_names[k]);
  }
  bppsa_text_add(text, ",channels_in_left,channels_out_left\n");
  for (int64_t i = 0; i <= net->count; ++i) {
    const bppsa_cnn_layer *layer = &net->network.layers.layers[i];
    const bppsa_cnn_layer_work *work = &net->layers[i];
    char shapes[2][BPPSA_SHAPE_TEXT];
    bppsa_text_add(text, "%s,%s,%s,", layer->name, bppsa_cnn_layer_word(layer), class_names[class_of(layer)]);
    for (int64_t k = 0; k < bppsa_cnn_input_count(&net->network.layers, i); ++k) {
      bppsa_text_add(text, "%s%s", k > 0 ? " " : "", input_name(net, i, k));
    }
    bppsa_text_add(text, ",%s,%s", shape_text(layer->op.in, shapes[0]), shape_text(layer->out, shapes[1]));
    double cells[CELLS] = {(double)work->parameters, (double)work->weights, (double)work->kept,
                           work->weights > 0 ? (double)work->kept / (double)work->weights : NAN};
    for (int k = 0; k < BPPSA_CNN_COUNTS; ++k) {
      cells[4 + k] = macs_of(work, k);
    }
    memcpy(cells + 4 + BPPSA_CNN_COUNTS, work->flops, sizeof work->flops);
    cells[CELLS - 2] = (double)net->shrunk[i].in;
    cells[CELLS - 1] = (double)net->shrunk[i].out;
    bppsa_text_add_cells(text, CELLS, cells);
    bppsa_text_add(text, "\n");
  }
}

/* ---- for people ---- */

enum { NAME_WIDTH = 22, COLUMN = 9 };

/* The width of the column of names: that of the longest. */
static int name_width(const bppsa_flops *net) {
  size_t width = NAME_WIDTH;
  for (int64_t i = 0; i <= net->count; ++i) {
    const size_t length = strlen(net->network.layers.layers[i].name);
    width = length > width ? length : width;
  }
  return (int)width;
}

/* Adds the dense and the pruned FLOPs of all passes. */
static void add_flops(const bppsa_cnn_layer_work *work, bppsa_text *text) {
  for (int pass = 0; pass < BPPSA_CNN_PASSES; ++pass) {
    const double *flops = work->flops[pass];
    char words[2][BPPSA_SI_TEXT];
    bppsa_text_add(text, "  %*s%*s", COLUMN,
                   flops[0] > 0 ? bppsa_text_si(flops[BPPSA_CNN_DENSE], "", words[0], BPPSA_SI_TEXT) : "-", COLUMN + 1,
                   flops[0] > 0 ? bppsa_text_si(flops[BPPSA_CNN_PRUNED], "", words[1], BPPSA_SI_TEXT) : "-");
  }
  bppsa_text_add(text, "\n");
}

/* Adds the number of weights and the share that is kept. */
static void add_density(const bppsa_cnn_layer_work *work, bppsa_text *text) {
  if (work->weights == 0) {
    bppsa_text_add(text, "%11s%9s", "-", "-");
    return;
  }
  char density[24];
  bppsa_print(density, sizeof density, "%.4f", (double)work->kept / (double)work->weights);
  bppsa_text_add(text, "%11" PRId64 "%9s", work->weights, density);
}

static void add_sums(const bppsa_flops *net, int width, bppsa_text *text) {
  bppsa_cnn_layer_work sum;
  double macs[BPPSA_CNN_COUNTS];
  for (int kind = 0; kind <= CLASSES; ++kind) {
    const int64_t layers = sum_of(net, kind, &sum, macs);
    if (layers == 0 || kind == MOVES) {
      continue;
    }
    bppsa_text_add(text, "  %-*s  %5" PRId64 " %-28s", width, kind == CLASSES ? "all" : class_words[kind], layers,
                   layers == 1 ? "layer" : "layers");
    add_density(&sum, text);
    add_flops(&sum, text);
  }
}

void bppsa_layer_table_text(const bppsa_flops *net, bppsa_text *text) {
  const int width = name_width(net);
  char shape[BPPSA_SHAPE_TEXT], words[4][BPPSA_SI_TEXT];
  bppsa_text_add(text, "%s, input %s, ", net->request.network, shape_text(net->network.layers.in, shape));
  bppsa_flops_add_weights(net, text);
  bppsa_text_add(text, "; FLOPs a sample, 2 a multiply-add\n\n  %*s%*s%*s%*s\n", width + 36 + 20, "", 2 * COLUMN + 3, "forward",
                 2 * COLUMN + 3, "to the input", 2 * COLUMN + 3, "to the weights");
  bppsa_text_add(text, "  %-*s  %-18s  %-14s%11s%9s", width, "layer", "operator", "output", "weights", "density");
  for (int pass = 0; pass < BPPSA_CNN_PASSES; ++pass) {
    bppsa_text_add(text, "  %*s%*s", COLUMN, "dense", COLUMN + 1, net->pruned ? "pruned" : "unpadded");
  }
  bppsa_text_add(text, "\n");
  for (int64_t i = 0; i <= net->count; ++i) {
    const bppsa_cnn_layer *layer = &net->network.layers.layers[i];
    bppsa_text_add(text, "  %-*s  %-18s  %-14s", width, layer->name, bppsa_cnn_layer_word(layer), shape_text(layer->out, shape));
    add_density(&net->layers[i], text);
    add_flops(&net->layers[i], text);
  }
  bppsa_text_add(text, "\n");
  add_sums(net, width, text);
  bppsa_cnn_layer_work sum;
  double macs[BPPSA_CNN_COUNTS];
  sum_of(net, WEIGHTS, &sum, macs);
  bppsa_text_add(text, "\n  multiply-adds forward (MACs), convolutions and linear: dense %s, without padding %s",
                 bppsa_text_si(macs[BPPSA_CNN_DENSE], "", words[0], BPPSA_SI_TEXT),
                 bppsa_text_si(macs[BPPSA_CNN_UNPRUNED], "", words[1], BPPSA_SI_TEXT));
  if (net->pruned) {
    bppsa_text_add(text, ", pruned %s, dense without useless channels %s",
                   bppsa_text_si(macs[BPPSA_CNN_PRUNED], "", words[2], BPPSA_SI_TEXT),
                   bppsa_text_si(macs[BPPSA_CNN_SHRUNK], "", words[3], BPPSA_SI_TEXT));
  }
  bppsa_text_add(text, "\n  dense: all weights, with the padding, as dense kernels and PyTorch count; %s\n",
                 net->pruned ? "pruned: the weights that are kept, without the padding" : "unpadded: without the padding");
}
