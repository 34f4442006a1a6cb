#include "oracle/layer_model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "oracle/members.h"

static const char *const kinds[] = {"conv", "linear", "norm", "elementwise", "pool", "add", "recurrent", NULL};

bool bppsa_oracle_weighted(const bppsa_oracle_layer *layer) {
  return layer->kind == BPPSA_LAYER_CONV || layer->kind == BPPSA_LAYER_LINEAR;
}

double bppsa_oracle_elements(const int64_t shape[1 + BPPSA_ORACLE_AXES]) {
  double elements = 1;
  for (int i = 0; i <= BPPSA_ORACLE_AXES; ++i) {
    elements *= (double)shape[i];
  }
  return elements;
}

double bppsa_oracle_parameters(const bppsa_oracle_model *model) {
  double sum = 0;
  for (int64_t l = 0; l < model->count; ++l) {
    sum += model->layers[l].w + model->layers[l].bias;
  }
  return sum;
}

void bppsa_oracle_model_free(bppsa_oracle_model *model) {
  bppsa_free(model->layers);
  bppsa_free(model->shares);
  *model = (bppsa_oracle_model){0};
}

void bppsa_oracle_layer_spreads(bppsa_oracle_layer *layer, bppsa_oracle_spread_member members[BPPSA_ORACLE_LAYER_SPREADS]) {
  const bppsa_oracle_spread_member list[] = {{"forward_s", layer->forward_s, &layer->forward_spread, true},
                                             {"backward_s", layer->backward_s, &layer->backward_spread, true},
                                             {"update_s", layer->update_s, &layer->update_spread, true},
                                             {"product_s", layer->product_s, &layer->product_spread, true},
                                             {"scan_s", layer->scan_s, &layer->scan_spread, true}};
  memcpy(members, list, sizeof list);
}

/* ---- reading ---- */

static bool same(const int64_t a[1 + BPPSA_ORACLE_AXES], const int64_t b[1 + BPPSA_ORACLE_AXES]) {
  return memcmp(a, b, (1 + BPPSA_ORACLE_AXES) * sizeof *a) == 0;
}

#define SHAPE_TEXT 64

/* Writes "6 x 28 x 28". */
static const char *shape_text(const int64_t shape[1 + BPPSA_ORACLE_AXES], char text[SHAPE_TEXT]) {
  int last = BPPSA_ORACLE_AXES, size = 0;
  while (last > 0 && shape[last] == 1) {
    --last;
  }
  for (int i = 0; i <= last; ++i) {
    size += snprintf(text + size, (size_t)(SHAPE_TEXT - size), "%s%" PRId64, i > 0 ? " x " : "", shape[i]);
  }
  return text;
}

/* Reads a list of `least` to `most` whole numbers of `low` or more into extents. Extents after the list's end stay as they are. */
static bppsa_status read_extents(const char *where, const char *name, const json_t *value, size_t least, size_t most, int low,
                                 int64_t *extents) {
  const size_t size = json_array_size(value);
  const json_t *wrong = size < least || size > most ? value : NULL;
  for (size_t i = 0; i < size && size <= most && wrong == NULL; ++i) {
    const json_t *number = json_array_get(value, i);
    const double extent = json_number_value(number);
    const bool good = json_is_number(number) && extent >= low && extent <= INT32_MAX && extent == floor(extent);
    wrong = good ? NULL : number;
    extents[i] = good ? (int64_t)extent : 1;
  }
  if (size < least || wrong != NULL) {
    char found[BPPSA_REAL_TEXT];
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"%s\": %s, expected a list of %zu to %zu whole numbers from %d to %d", where, name,
                      bppsa_json_found(wrong, found), least, most, low, INT32_MAX);
  }
  return BPPSA_OK;
}

static bppsa_status read_layer_extents(const char *where, const json_t *object, bppsa_oracle_layer *layer) {
  const struct {
    const char *name;
    size_t least, most;
    bool needed;
    int64_t *extents;
  } members[] = {{"in", 1, 1 + BPPSA_ORACLE_AXES, true, layer->in},
                 {"out", 1, 1 + BPPSA_ORACLE_AXES, true, layer->out},
                 {"kernel", 1, BPPSA_ORACLE_AXES, false, layer->kernel},
                 {"stride", 1, BPPSA_ORACLE_AXES, false, layer->stride},
                 {"padding", 1, BPPSA_ORACLE_AXES, false, layer->padding}};
  for (size_t i = 0; i < sizeof members / sizeof members[0]; ++i) {
    const json_t *value = json_object_get(object, members[i].name);
    const bool padding = members[i].extents == layer->padding;
    for (size_t a = 0; a < members[i].most; ++a) {
      members[i].extents[a] = !padding ? 1 : value != NULL ? 0 : -1;
    }
    if (value != NULL || members[i].needed) {
      BPPSA_TRY(
          read_extents(where, members[i].name, value, members[i].least, members[i].most, padding ? 0 : 1, members[i].extents));
    }
  }
  layer->x = bppsa_oracle_elements(layer->in);
  layer->y = bppsa_oracle_elements(layer->out);
  const double most = 1e18; /* products of extents are computed in 64 bits */
  if (layer->x > most || layer->y > most) {
    const bool is_in = layer->x > most;
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"%s\": %g elements, expected at most %g", where, is_in ? "in" : "out",
                      is_in ? layer->x : layer->y, most);
  }
  return BPPSA_OK;
}

static bppsa_status read_kind(const char *where, const json_t *object, bppsa_oracle_layer *layer) {
  const json_t *value = json_object_get(object, "kind");
  const char *text = json_string_value(value);
  char found[BPPSA_JSON_FOUND];
  for (int32_t kind = 0; text != NULL && kinds[kind] != NULL; ++kind) {
    if (strcmp(text, kinds[kind]) == 0) {
      layer->kind = (bppsa_layer_kind)kind;
      return BPPSA_OK;
    }
  }
  return bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"kind\": %s, expected conv, linear, norm, elementwise, pool, add or recurrent", where,
                    text != NULL ? text : bppsa_json_found(value, found));
}

/* Do the layer's windows make the positions of `out` from those of `in`? If the file gives no padding, a window may begin before
 * the input or end after it as long as it sees some of it; with padding, a pool may have one more window, which ends after it. */
static bppsa_status check_windows(const char *where, const bppsa_oracle_layer *layer, int axis) {
  const int64_t in = layer->in[1 + axis], out = layer->out[1 + axis], kernel = layer->kernel[axis], stride = layer->stride[axis];
  const bool said = layer->padding[axis] >= 0;
  const int64_t covered = in + (said ? layer->padding[axis] : 2 * (kernel - 1)), left = covered - kernel;
  if (left < 0) {
    return bppsa_fail(BPPSA_ERR_FORMAT,
                      "%s (%s): \"kernel\": %" PRId64 ", expected at most %" PRId64 ": %" PRId64 " positions and %" PRId64
                      " of padding",
                      where, layer->name, kernel, covered, in, layer->padding[axis]);
  }
  const int64_t least = said ? left / stride + 1 : 1, most = left / stride + 1 + (said && left % stride > 0);
  if (out < least || out > most) {
    return bppsa_fail(BPPSA_ERR_FORMAT,
                      "%s (%s): \"out\": %" PRId64 " positions of windows of %" PRId64 " over %" PRId64 " positions%s, %" PRId64
                      " at a time, expected %" PRId64 " to %" PRId64,
                      where, layer->name, out, kernel, covered, said ? "" : " with padding", stride, least, most);
  }
  return BPPSA_OK;
}

/* Does the layer's kind make the shape `out` from `in`? */
static bppsa_status check_shapes(const char *where, const bppsa_oracle_layer *layer) {
  const bool keeps = layer->kind == BPPSA_LAYER_ADD || layer->kind == BPPSA_LAYER_NORM;
  char in[SHAPE_TEXT], out[SHAPE_TEXT];
  if ((keeps && !same(layer->in, layer->out)) || (layer->kind == BPPSA_LAYER_ELEMENTWISE && layer->x != layer->y)) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s (%s): \"out\": %s, expected %s, the \"in\" of a layer of kind %s", where, layer->name,
                      shape_text(layer->out, out), shape_text(layer->in, in), kinds[layer->kind]);
  }
  const bool windows = layer->kind == BPPSA_LAYER_CONV || layer->kind == BPPSA_LAYER_POOL;
  for (int axis = 0; axis < BPPSA_ORACLE_AXES && windows; ++axis) {
    BPPSA_TRY(check_windows(where, layer, axis));
  }
  return BPPSA_OK;
}

static const char *const layer_members[] = {
    "name",   "kind",          "in",        "out",        "kernel",   "stride",    "padding", "x",      "y", "w", "bias", "flops",
    "gather", "product_flops", "forward_s", "backward_s", "update_s", "product_s", "scan_s",  "spread", NULL};

static bppsa_status read_layer(const char *where, const json_t *object, bppsa_oracle_layer *layer) {
  double x = -1, y = -1;
  *layer = (bppsa_oracle_layer){.forward_s = -1, .backward_s = -1, .update_s = -1, .product_s = -1, .scan_s = -1, .flops = -1};
  BPPSA_TRY(bppsa_oracle_known(where, object, layer_members));
  BPPSA_TRY(bppsa_oracle_text(where, object, "name", BPPSA_ORACLE_NAME, layer->name));
  BPPSA_TRY(read_kind(where, object, layer));
  BPPSA_TRY(read_layer_extents(where, object, layer));
  const bppsa_oracle_member numbers[] = {{"x", &x, 0, 1e18, true},
                                         {"y", &y, 0, 1e18, true},
                                         {"w", &layer->w, 0, 1e15, true},
                                         {"bias", &layer->bias, 0, 1e15, true},
                                         {"flops", &layer->flops, 0, 1e21, false},
                                         {"product_flops", &layer->product_flops, 0, 1e21, false},
                                         {"forward_s", &layer->forward_s, 0, 1e9, false},
                                         {"backward_s", &layer->backward_s, 0, 1e9, false},
                                         {"update_s", &layer->update_s, 0, 1e9, false},
                                         {"product_s", &layer->product_s, 0, 1e9, false},
                                         {"scan_s", &layer->scan_s, 0, 1e9, false}};
  BPPSA_TRY(bppsa_oracle_numbers(where, object, sizeof numbers / sizeof numbers[0], numbers));
  if ((x >= 0 && x != layer->x) || (y >= 0 && y != layer->y)) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"x\" and \"y\": expected %.17g and %.17g, the elements of \"in\" and \"out\"",
                      where, layer->x, layer->y);
  }
  bppsa_oracle_spread_member spreads[BPPSA_ORACLE_LAYER_SPREADS];
  bppsa_oracle_layer_spreads(layer, spreads);
  BPPSA_TRY(bppsa_oracle_spread_parse(where, object, BPPSA_ORACLE_LAYER_SPREADS, spreads));
  BPPSA_TRY(check_shapes(where, layer));
  if (layer->flops < 0) { /* every weight meets every output position of its channel */
    layer->flops = layer->w > 0 ? 2 * layer->w * layer->y / (double)layer->out[0] : layer->y;
  }
  return BPPSA_OK;
}

/* Can the layer not be split spatially, because it has no image? */
static bool whole(const bppsa_oracle_layer *layer) {
  return layer->kind == BPPSA_LAYER_LINEAR || layer->kind == BPPSA_LAYER_RECURRENT;
}

static bppsa_status read_layers(const char *where, const json_t *list, bppsa_oracle_model *model) {
  char what[160];
  for (int64_t l = 0; l < model->count; ++l) {
    const json_t *object = json_array_get(list, (size_t)l);
    snprintf(what, sizeof what, "%.100s: layer %" PRId64, where, l);
    BPPSA_TRY(read_layer(what, object, &model->layers[l]));
    const json_t *gather = json_object_get(object, "gather");
    if (gather != NULL && !json_is_boolean(gather)) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"gather\": expected true or false", what);
    }
    if (model->gather == model->count && (json_is_true(gather) || whole(&model->layers[l]))) {
      model->gather = l;
    }
  }
  return BPPSA_OK;
}

/* ---- the chain ---- */

static bool flat(const int64_t shape[1 + BPPSA_ORACLE_AXES]) {
  return bppsa_oracle_elements(shape) == (double)shape[0];
}

/* Can the layer take the output of `before`? It takes the same shape, the same elements in one row, the same elements as steps of
 * a recurrent layer, or a recurrent layer's last state. */
static bool follows(const bppsa_oracle_layer *before, const bppsa_oracle_layer *layer) {
  const bool rows = flat(before->out) || flat(layer->in) || layer->kind == BPPSA_LAYER_RECURRENT;
  const bool state = before->kind == BPPSA_LAYER_RECURRENT && flat(layer->in) && layer->in[0] == before->out[0];
  return same(before->out, layer->in) || (rows && before->y == layer->x) || state;
}

enum { SHORTCUT_REACH = 1000 }; /* layers; the limit makes reading take time in proportion to the file's length */

/* Does layer l begin a shortcut? Then it takes the model's input, or an output since the last sum (`block`: the layer after that
 * sum), and the layer before it gives what the next sum takes (`sum`; the model's count if none follows). */
static bool begins_shortcut(const bppsa_oracle_model *model, int64_t block, int64_t sum, int64_t l) {
  const bppsa_oracle_layer *layers = model->layers;
  const int64_t entry = block > 0 ? block - 1 : 0, reach = l - SHORTCUT_REACH;
  bool found = block == 0 && same(layers[0].in, layers[l].in);
  for (int64_t k = entry > reach ? entry : reach; k + 1 < l && !found; ++k) {
    found = follows(&layers[k], &layers[l]);
  }
  return found && sum > l && sum < model->count && same(layers[l - 1].out, layers[sum].in);
}

static bppsa_status check_chain(const char *where, const bppsa_oracle_model *model) {
  for (int64_t l = 1, block = 0, sum = 0; l < model->count; ++l) {
    const bppsa_oracle_layer *before = &model->layers[l - 1], *layer = &model->layers[l];
    block = before->kind == BPPSA_LAYER_ADD ? l : block;
    for (sum = sum > l ? sum : l; sum < model->count && model->layers[sum].kind != BPPSA_LAYER_ADD;) {
      ++sum;
    }
    if (!follows(before, layer) && !begins_shortcut(model, block, sum, l)) {
      char in[SHAPE_TEXT], out[SHAPE_TEXT];
      return bppsa_fail(BPPSA_ERR_FORMAT,
                        "%.100s: layer %" PRId64 " (%s): \"in\": %s, expected %s, the \"out\" of layer %" PRId64 " (%s)", where,
                        l, layer->name, shape_text(layer->in, in), shape_text(before->out, out), l - 1, before->name);
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_oracle_model_parse(const char *where, const json_t *document, bppsa_oracle_model *model) {
  static const char *const members[] = {"name", "samples", "layers", NULL};
  const json_t *list = json_object_get(document, "layers");
  bppsa_oracle_model made = {.count = (int64_t)json_array_size(list), .gather = (int64_t)json_array_size(list)};
  double samples = 1;
  const bppsa_oracle_member number = {"samples", &samples, 1, 9e15, true};
  BPPSA_TRY(bppsa_oracle_known(where, document, members));
  BPPSA_TRY(bppsa_oracle_text(where, document, "name", BPPSA_ORACLE_NAME, made.name));
  BPPSA_TRY(bppsa_oracle_numbers(where, document, 1, &number));
  if (made.count < 1 || made.count > BPPSA_ORACLE_MOST_LAYERS) {
    char found[BPPSA_JSON_FOUND];
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"layers\": %s, expected a list of 1 to %d layers", where,
                      bppsa_json_found(list, found), BPPSA_ORACLE_MOST_LAYERS);
  }
  made.samples = (int64_t)samples;
  made.layers = bppsa_calloc(made.count, sizeof *made.layers);
  bppsa_status status = made.layers == NULL ? BPPSA_ERR_MEMORY : read_layers(where, list, &made);
  status = status == BPPSA_OK ? check_chain(where, &made) : status;
  if (status != BPPSA_OK) {
    bppsa_oracle_model_free(&made);
    return status;
  }
  *model = made;
  return BPPSA_OK;
}

/* ---- writing ---- */

static bool put_measured(json_t *object, const char *key, double seconds) {
  return seconds < 0 || bppsa_json_put_real(object, key, seconds);
}

static json_t *layer_json(const bppsa_oracle_layer *layer, bool gather) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "name", layer->name);
  ok = ok && bppsa_json_put_text(object, "kind", kinds[layer->kind]);
  ok = ok && bppsa_json_put_shape(object, "in", 1 + BPPSA_ORACLE_AXES, layer->in);
  ok = ok && bppsa_json_put_shape(object, "out", 1 + BPPSA_ORACLE_AXES, layer->out);
  ok = ok && bppsa_json_put_shape(object, "kernel", BPPSA_ORACLE_AXES, layer->kernel);
  ok = ok && bppsa_json_put_shape(object, "stride", BPPSA_ORACLE_AXES, layer->stride);
  ok = ok && (layer->padding[0] < 0 || bppsa_json_put_shape(object, "padding", BPPSA_ORACLE_AXES, layer->padding));
  ok = ok && bppsa_json_put_real(object, "x", layer->x) && bppsa_json_put_real(object, "y", layer->y);
  ok = ok && bppsa_json_put_real(object, "w", layer->w) && bppsa_json_put_real(object, "bias", layer->bias);
  ok = ok && bppsa_json_put_real(object, "flops", layer->flops);
  ok = ok && (layer->product_flops <= 0 || bppsa_json_put_real(object, "product_flops", layer->product_flops));
  ok = ok && put_measured(object, "forward_s", layer->forward_s) && put_measured(object, "backward_s", layer->backward_s);
  ok = ok && put_measured(object, "update_s", layer->update_s) && put_measured(object, "product_s", layer->product_s);
  ok = ok && put_measured(object, "scan_s", layer->scan_s);
  bppsa_oracle_layer copy = *layer;
  bppsa_oracle_spread_member spreads[BPPSA_ORACLE_LAYER_SPREADS];
  bppsa_oracle_layer_spreads(&copy, spreads);
  ok = ok && bppsa_oracle_spread_put(object, BPPSA_ORACLE_LAYER_SPREADS, spreads);
  return bppsa_json_finish(object, ok && (!gather || bppsa_json_put_bool(object, "gather", true)));
}

json_t *bppsa_oracle_model_json(const bppsa_oracle_model *model) {
  json_t *object = json_object(), *layers = json_array();
  bool ok = object != NULL && layers != NULL;
  for (int64_t l = 0; ok && l < model->count; ++l) {
    ok = json_array_append_new(layers, layer_json(&model->layers[l], l == model->gather)) == 0;
  }
  ok = ok && bppsa_json_put_text(object, "name", model->name) && bppsa_json_put_integer(object, "samples", model->samples);
  if (!ok) {
    json_decref(layers);
    return bppsa_json_finish(object, false);
  }
  return bppsa_json_finish(object, bppsa_json_put(object, "layers", layers));
}
