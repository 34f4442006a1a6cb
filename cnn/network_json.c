/* Network files. cnn/network.h has the format. */
#include <stdio.h>
#include <string.h>

#include "cnn/network_internal.h"
#include "core/base/alloc.h"
#include "core/base/text.h"
#include "core/files/json.h"

/* The operators that have a member, one bit each. */
#define OF(kind) (UINT64_C(1) << BPPSA_OPERATOR_##kind)
#define WEIGHTED (OF(CONV2D) | OF(LINEAR))
#define POOLS (OF(MAXPOOL2D) | OF(AVGPOOL2D))
#define WINDOWS (OF(CONV2D) | POOLS)
#define ACTIVATIONS (OF(RELU6) | OF(HARDSIGMOID) | OF(HARDSWISH) | OF(SILU) | OF(GELU))
#define NETWORKS                                                                                                                 \
  (WEIGHTED | POOLS | OF(RELU) | OF(LEAKY_RELU) | OF(TANH) | OF(SIGMOID) | OF(FLATTEN) | ACTIVATIONS | OF(ADAPTIVE_AVGPOOL2D) |  \
   OF(GLOBAL_AVGPOOL) | OF(BATCHNORM2D) | OF(DROPOUT))
/* Behind the operators, those that only graphs have, and a second word for a convolution. */
enum { NODES = BPPSA_OPERATOR_COUNT, LINE = NODES + BPPSA_CNN_NODES, WORDS };
_Static_assert(WORDS <= 64, "a set of operators is an unsigned number of 64 bits");
#define NODE(kind) (UINT64_C(1) << (NODES + BPPSA_CNN_##kind))
#define CONV1D (UINT64_C(1) << LINE)
#define CONVS (OF(CONV2D) | CONV1D)
#define JOINS (NODE(ADD) | NODE(MUL) | NODE(CONCAT))
#define NORMS (NODE(LAYERNORM) | NODE(GROUPNORM))
#define ALL (NETWORKS | JOINS | NODE(SLICE) | NODE(RESHAPE) | NODE(PERMUTE) | NODE(SOFTMAX) | NORMS | CONV1D)

/* Reads one member into the layer; false if its type is wrong. */
typedef bool (*read_fn)(const json_t *value, bppsa_cnn_layer *layer);

static bool read_numbers(const json_t *value, int64_t count, int64_t *numbers) {
  if (!json_is_array(value) || json_array_size(value) != (size_t)count) {
    return false;
  }
  for (int64_t i = 0; i < count; ++i) {
    const json_t *number = json_array_get(value, (size_t)i);
    if (!json_is_integer(number)) {
      return false;
    }
    numbers[i] = json_integer_value(number);
  }
  return true;
}

/* Reads [height, width], or one number for both. */
static bool read_pair(const json_t *value, int64_t numbers[2]) {
  if (json_is_integer(value)) {
    numbers[0] = numbers[1] = json_integer_value(value);
    return true;
  }
  return read_numbers(value, 2, numbers);
}

/* Reads [top, bottom, left, right]; or [height, width], each for both sides; or one number for all sides. */
static bool read_sides(const json_t *value, int64_t numbers[4]) {
  int64_t pair[2];
  if (!read_pair(value, pair)) {
    return read_numbers(value, 4, numbers);
  }
  for (int i = 0; i < 4; ++i) {
    numbers[i] = pair[i / 2];
  }
  return true;
}

static bool read_integer(const json_t *value, int64_t *number) {
  *number = json_integer_value(value);
  return json_is_integer(value);
}

static bool read_bool(const json_t *value, bool *flag) {
  *flag = json_is_true(value);
  return json_is_boolean(value);
}

static bool read_out(const json_t *value, bppsa_cnn_layer *layer) {
  return read_integer(value, &layer->op.out_channels);
}

static bool read_kernel(const json_t *value, bppsa_cnn_layer *layer) {
  return read_pair(value, layer->op.kernel);
}

static bool read_stride(const json_t *value, bppsa_cnn_layer *layer) {
  return read_pair(value, layer->op.stride);
}

static bool read_padding(const json_t *value, bppsa_cnn_layer *layer) {
  return read_sides(value, layer->op.padding);
}

static bool read_dilation(const json_t *value, bppsa_cnn_layer *layer) {
  return read_pair(value, layer->op.dilation);
}

static bool read_groups(const json_t *value, bppsa_cnn_layer *layer) {
  return read_integer(value, &layer->op.groups);
}

static bool read_bias(const json_t *value, bppsa_cnn_layer *layer) {
  return read_bool(value, &layer->bias);
}

static bool read_ceil_mode(const json_t *value, bppsa_cnn_layer *layer) {
  return read_bool(value, &layer->op.ceil_mode);
}

static bool read_exclude_pad(const json_t *value, bppsa_cnn_layer *layer) {
  return read_bool(value, &layer->op.exclude_pad);
}

static bool read_size(const json_t *value, bppsa_cnn_layer *layer) {
  return read_pair(value, layer->op.size);
}

static bool read_real(const json_t *value, double *number) {
  *number = json_number_value(value);
  return json_is_number(value);
}

static bool read_first(const json_t *value, bppsa_cnn_layer *layer) {
  return read_integer(value, &layer->first);
}

/* Only checks the type: what the names mean is known once all layers are read. */
static bool check_inputs(const json_t *value, bppsa_cnn_layer *layer) {
  (void)layer;
  for (size_t i = 0; i < json_array_size(value); ++i) {
    if (!json_is_string(json_array_get(value, i))) {
      return false;
    }
  }
  return json_array_size(value) > 0; /* 0 if it is no array */
}

/* ---- conv1d: along the width, which its input alone has ---- */

static bool read_line(const json_t *value, int64_t pair[2]) {
  pair[0] = 1;
  return read_integer(value, &pair[1]);
}

static bool read_line_kernel(const json_t *value, bppsa_cnn_layer *layer) {
  return read_line(value, layer->op.kernel);
}

static bool read_line_stride(const json_t *value, bppsa_cnn_layer *layer) {
  return read_line(value, layer->op.stride);
}

static bool read_line_dilation(const json_t *value, bppsa_cnn_layer *layer) {
  return read_line(value, layer->op.dilation);
}

static bool read_line_padding(const json_t *value, bppsa_cnn_layer *layer) {
  return read_pair(value, layer->op.padding + 2); /* left and right */
}

/* ---- layers that reorder or normalise ---- */

static bool read_shape(const json_t *value, bppsa_cnn_layer *layer) {
  layer->extents = 3;
  return read_numbers(value, 3, layer->shape);
}

static bool read_ending(const json_t *value, bppsa_cnn_layer *layer) {
  layer->extents = (int64_t)json_array_size(value); /* 0 if it is no array */
  return layer->extents >= 1 && layer->extents <= 3 && read_numbers(value, layer->extents, layer->shape);
}

static bool read_order(const json_t *value, bppsa_cnn_layer *layer) {
  return read_numbers(value, 3, layer->order);
}

static bool read_axis(const json_t *value, bppsa_cnn_layer *layer) {
  return read_integer(value, &layer->axis);
}

static bool read_slope(const json_t *value, bppsa_cnn_layer *layer) {
  return read_real(value, &layer->op.slope);
}

static bool read_eps(const json_t *value, bppsa_cnn_layer *layer) {
  return read_real(value, &layer->op.epsilon);
}

static bool read_momentum(const json_t *value, bppsa_cnn_layer *layer) {
  return read_real(value, &layer->op.momentum);
}

static bool read_p(const json_t *value, bppsa_cnn_layer *layer) {
  return read_real(value, &layer->op.p);
}

/* PyTorch's words: "none" and "tanh". */
static bool read_approximate(const json_t *value, bppsa_cnn_layer *layer) {
  const char *word = json_is_string(value) ? json_string_value(value) : "";
  layer->op.approximate = strcmp(word, "tanh") == 0;
  return layer->op.approximate || strcmp(word, "none") == 0;
}

static const struct {
  const char *name;
  uint64_t of, needed; /* operators that have the member, and those that must have it */
  const char *expected;
  read_fn read; /* NULL: it is read before the others */
} members[] = {
    {"name", ALL, ALL, "a text", NULL},
    {"op", ALL, ALL, "a text", NULL},
    {"inputs", ALL, JOINS, "a list of layers' names", check_inputs},
    {"out", WEIGHTED | CONV1D | NODE(SLICE), WEIGHTED | CONV1D | NODE(SLICE), "a whole number", read_out},
    {"first", NODE(SLICE), 0, "a whole number", read_first},
    {"kernel", WINDOWS, WINDOWS, "a whole number, or two, [height, width]", read_kernel},
    {"stride", WINDOWS, 0, "a whole number, or two, [height, width]", read_stride},
    {"padding", WINDOWS, 0, "a whole number, two, [height, width], or four, [top, bottom, left, right]", read_padding},
    {"dilation", OF(CONV2D) | OF(MAXPOOL2D), 0, "a whole number, or two, [height, width]", read_dilation},
    {"kernel", CONV1D, CONV1D, "a whole number", read_line_kernel},
    {"stride", CONV1D, 0, "a whole number", read_line_stride},
    {"padding", CONV1D, 0, "a whole number, or two, [left, right]", read_line_padding},
    {"dilation", CONV1D, 0, "a whole number", read_line_dilation},
    {"groups", CONVS | NODE(GROUPNORM), NODE(GROUPNORM), "a whole number", read_groups},
    {"bias", WEIGHTED | CONV1D, 0, "true or false", read_bias},
    {"ceil_mode", POOLS, 0, "true or false", read_ceil_mode},
    {"exclude_pad", OF(AVGPOOL2D), 0, "true or false", read_exclude_pad},
    {"slope", OF(LEAKY_RELU), 0, "a number", read_slope},
    {"size", OF(ADAPTIVE_AVGPOOL2D), OF(ADAPTIVE_AVGPOOL2D), "a whole number, or two, [height, width]", read_size},
    {"shape", NODE(RESHAPE), NODE(RESHAPE), "three whole numbers, [C, H, W]", read_shape},
    {"shape", NODE(LAYERNORM), NODE(LAYERNORM), "a list of one to three whole numbers", read_ending},
    {"order", NODE(PERMUTE), NODE(PERMUTE), "three whole numbers, the input's axes in their new order", read_order},
    {"axis", NODE(SOFTMAX), NODE(SOFTMAX), "a whole number", read_axis},
    {"eps", OF(BATCHNORM2D) | NORMS, 0, "a number", read_eps},
    {"momentum", OF(BATCHNORM2D), 0, "a number", read_momentum},
    {"affine", OF(BATCHNORM2D) | NORMS, 0, "true or false", read_bias},
    {"p", OF(DROPOUT), 0, "a number", read_p},
    {"approximate", OF(GELU), 0, "\"none\" or \"tanh\"", read_approximate},
};
enum { MEMBERS = sizeof members / sizeof members[0] };

/* "name, op and slope": writes `count` words to a text with room for LIST_TEXT. */
enum { LIST_TEXT = 400, SHOWN = 60 }; /* SHOWN: characters of a wrong name */
static const char *list_text(const char *const *words, int count, char *text) {
  size_t used = 0;
  text[0] = '\0';
  for (int i = 0; i < count && used < LIST_TEXT; ++i) {
    const char *between = i == 0 ? "" : i + 1 < count ? ", " : " and ";
    used += (size_t)snprintf(text + used, LIST_TEXT - used, "%s%s", between, words[i]);
  }
  return text;
}

/* Fails for a member that is not among the `count` known ones (NULL-terminated): names them, and the one that was probably meant.
 */
static bppsa_status fail_unknown(const char *key, const char *of, const char *const *known, int count) {
  char list[LIST_TEXT], meant[80];
  return bppsa_fail(BPPSA_ERR_FORMAT, "member \"%.40s\" is unknown%s, expected %s%s", key, of, list_text(known, count, list),
                    bppsa_suggestion(key, known, meant, sizeof meant));
}

/* The number of a layer's operator in the sets above. */
static int number_of(const bppsa_cnn_layer *layer) {
  return layer->node != BPPSA_CNN_OPERATOR ? NODES + (int)layer->node : layer->line ? LINE : (int)layer->op.kind;
}

/* A layer of this number, with the defaults of its members. */
static bppsa_cnn_layer layer_of(int number) {
  const bppsa_operator kind = number < NODES   ? (bppsa_operator)number
                              : number == LINE ? BPPSA_OPERATOR_CONV2D
                                               : BPPSA_OPERATOR_FLATTEN;
  return (bppsa_cnn_layer){.op = bppsa_op_default(kind),
                           .line = number == LINE,
                           .node = number < NODES || number == LINE ? BPPSA_CNN_OPERATOR : (bppsa_cnn_node)(number - NODES),
                           .bias = ((WEIGHTED | CONV1D | OF(BATCHNORM2D) | NORMS) >> number & 1u) != 0};
}

static const char *word_of(int number) {
  const bppsa_cnn_layer layer = layer_of(number);
  return bppsa_cnn_layer_word(&layer);
}

/* Checks that every member of the object is known and belongs to the operator. */
static bppsa_status check_members(json_t *object, int kind) {
  const char *key, *known[MEMBERS + 1] = {NULL};
  char of[40];
  json_t *value;
  int count = 0;
  for (size_t m = 0; m < MEMBERS; ++m) {
    if ((members[m].of >> kind & 1u) != 0) {
      known[count++] = members[m].name;
    }
  }
  snprintf(of, sizeof of, " of %s", word_of(kind));
  json_object_foreach(object, key, value) {
    int m = 0;
    while (m < count && strcmp(known[m], key) != 0) {
      ++m;
    }
    if (m == count) {
      return fail_unknown(key, of, known, count);
    }
  }
  return BPPSA_OK;
}

static bppsa_status read_members(json_t *object, bppsa_cnn_layer *layer) {
  const int kind = number_of(layer);
  BPPSA_TRY(check_members(object, kind));
  for (size_t m = 0; m < MEMBERS; ++m) {
    const json_t *value = json_object_get(object, members[m].name);
    const bool absent = value == NULL && (members[m].needed >> kind & 1u) == 0;
    if (members[m].read == NULL || (members[m].of >> kind & 1u) == 0 || absent) {
      continue;
    }
    if (value == NULL || !members[m].read(value, layer)) {
      char found[BPPSA_JSON_FOUND];
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"%s\": %s, expected %s", word_of(kind), members[m].name,
                        bppsa_json_found(value, found), members[m].expected);
    }
    if (members[m].read == read_kernel && (POOLS >> kind & 1u) != 0) {
      memcpy(layer->op.stride, layer->op.kernel, sizeof layer->op.stride); /* unless the next member says otherwise */
    }
  }
  return BPPSA_OK;
}

/* Fails for an operator that networks do not have: names those they have, and the one that was probably meant. */
static bppsa_status fail_operator(const char *word) {
  const char *known[WORDS + 1] = {NULL};
  char list[LIST_TEXT], meant[80];
  int count = 0;
  for (int kind = 0; kind < WORDS; ++kind) {
    if ((ALL >> kind & 1u) != 0) {
      known[count++] = word_of(kind);
    }
  }
  return bppsa_fail(BPPSA_ERR_FORMAT, "unknown operator '%.40s', expected one of %s%s", word, list_text(known, count, list),
                    bppsa_suggestion(word, known, meant, sizeof meant));
}

static bppsa_status read_operator(json_t *object, bppsa_cnn_layer *layer) {
  const json_t *value = json_object_get(object, "op");
  const char *word = json_string_value(value);
  int kind = 0;
  if (word == NULL) {
    char found[BPPSA_JSON_FOUND];
    return bppsa_fail(BPPSA_ERR_FORMAT, "\"op\": %s, expected an operator's name", bppsa_json_found(value, found));
  }
  while (kind < WORDS && ((ALL >> kind & 1u) == 0 || strcmp(word_of(kind), word) != 0)) {
    ++kind;
  }
  if (kind == WORDS) {
    return fail_operator(word);
  }
  const bppsa_cnn_layer named = *layer;
  *layer = layer_of(kind);
  memcpy(layer->name, named.name, sizeof layer->name);
  memcpy(layer->prefix, named.prefix, sizeof layer->prefix);
  return read_members(object, layer);
}

/* ---- layers ---- */

/* The layers of a file while it is read: their places by name, and what they are. */
typedef struct {
  const char *where;
  json_t *names; /* the place of each layer, by its name */
  json_t *layers;
  int64_t count;
  bppsa_cnn_entry *entries;
} layer_list;

/* Reads the name of layer i, with which messages about other members begin. */
static bppsa_status read_name(const layer_list *list, int64_t i, json_t *object) {
  const json_t *value = json_object_get(object, "name"), *other;
  const char *name = json_string_value(value), *where = list->where;
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  const size_t length = name != NULL ? strspn(name, letters) : 0;
  if (length < 1 || length >= BPPSA_CNN_NAME || name[length] != '\0') {
    char found[BPPSA_JSON_FOUND];
    return bppsa_fail(BPPSA_ERR_FORMAT,
                      "%s: layer %lld: \"name\": %s%.*s%s, expected 1 to %d letters, digits, dots, dashes and _", where,
                      (long long)i, name != NULL ? "'" : "", SHOWN, name != NULL ? name : bppsa_json_found(value, found),
                      name != NULL ? "'" : "", BPPSA_CNN_NAME - 1);
  }
  if (strcmp(name, "input") == 0) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: layer %lld: \"name\": 'input', the network's own input, expected another name",
                      where, (long long)i);
  }
  if ((other = json_object_get(list->names, name)) != NULL) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: layer '%s': the name of layer %lld too, expected different names", where, name,
                      (long long)json_integer_value(other));
  }
  bppsa_cnn_layer *layer = &list->entries[i].layer;
  memcpy(layer->name, name, length + 1);
  memcpy(layer->prefix, name, length + 1);
  return json_object_set_new(list->names, name, json_integer(i)) == 0 ? BPPSA_OK : BPPSA_ERR_MEMORY;
}

static bppsa_status read_layer(const layer_list *list, int64_t i) {
  json_t *object = json_array_get(list->layers, (size_t)i);
  if (!json_is_object(object)) {
    char found[BPPSA_JSON_FOUND];
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: layer %lld: %s, expected an object", list->where, (long long)i,
                      bppsa_json_found(object, found));
  }
  BPPSA_TRY(read_name(list, i, object));
  bppsa_cnn_layer *layer = &list->entries[i].layer;
  const bppsa_status status = read_operator(object, layer);
  return status == BPPSA_OK ? BPPSA_OK : bppsa_fail_prefix(status, "%s: layer '%s'", list->where, layer->name);
}

/* Fails for an input that is no layer: names the one that was probably meant. */
static bppsa_status fail_input(const layer_list *list, const char *name) {
  const char **known = bppsa_calloc(list->count + 2, sizeof *known);
  char meant[80];
  if (known == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  known[0] = "input";
  for (int64_t i = 0; i < list->count; ++i) {
    known[i + 1] = list->entries[i].layer.name;
  }
  const bppsa_status status = bppsa_fail(BPPSA_ERR_FORMAT, "input '%.*s': no such layer, expected \"input\" or a layer's name%s",
                                         SHOWN, name, bppsa_suggestion(name, known, meant, sizeof meant));
  bppsa_free((void *)known);
  return status;
}

/* Finds the layers that layer i reads: those of "inputs", or the one before it. */
static bppsa_status read_inputs(const layer_list *list, int64_t i) {
  bppsa_cnn_entry *entry = &list->entries[i];
  const json_t *names = json_object_get(json_array_get(list->layers, (size_t)i), "inputs");
  const bool joins = (JOINS >> number_of(&entry->layer) & 1u) != 0;
  const int64_t count = names == NULL ? 1 : (int64_t)json_array_size(names);
  if (joins ? count < 2 : count != 1) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"inputs\": %lld of them, expected %s", bppsa_cnn_layer_word(&entry->layer),
                      (long long)count, joins ? "two or more" : "one");
  }
  entry->inputs = bppsa_calloc(count, sizeof *entry->inputs);
  if (entry->inputs == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  entry->input_count = count;
  entry->inputs[0] = (int32_t)i - 1;
  for (int64_t k = 0; names != NULL && k < count; ++k) {
    const char *name = json_string_value(json_array_get(names, (size_t)k));
    const json_t *place = json_object_get(list->names, name);
    if (place == NULL && strcmp(name, "input") != 0) {
      return fail_input(list, name);
    }
    entry->inputs[k] = place == NULL ? -1 : (int32_t)json_integer_value(place);
  }
  return BPPSA_OK;
}

static bppsa_status read_list(const layer_list *list, bppsa_cnn_network *network) {
  if (list->entries == NULL || list->names == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < list->count; ++i) {
    BPPSA_TRY(read_layer(list, i));
  }
  for (int64_t i = 0; i < list->count; ++i) {
    const bppsa_status status = read_inputs(list, i);
    BPPSA_TRY(status == BPPSA_OK ? BPPSA_OK
                                 : bppsa_fail_prefix(status, "%s: layer '%s'", list->where, list->entries[i].layer.name));
  }
  return bppsa_cnn_network_order(list->where, list->count, list->entries, network);
}

/* Reads the input's shape and the list of layers. */
static bppsa_status read_root(const char *where, json_t *root, bppsa_cnn_network *network, json_t **layers) {
  char found[BPPSA_JSON_FOUND];
  const char *key;
  json_t *value;
  if (!json_is_object(root)) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: %s, expected {\"input\": [C, H, W], \"layers\": [..]}", where,
                      bppsa_json_found(root, found));
  }
  static const char *const known[] = {"input", "layers", NULL};
  json_object_foreach(root, key, value) {
    if (strcmp(key, known[0]) != 0 && strcmp(key, known[1]) != 0) {
      return bppsa_fail_prefix(fail_unknown(key, "", known, 2), "%s", where);
    }
  }
  if (!read_numbers(json_object_get(root, "input"), 3, network->in)) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"input\": %s, expected three whole numbers, [C, H, W]", where,
                      bppsa_json_found(json_object_get(root, "input"), found));
  }
  *layers = json_object_get(root, "layers");
  const size_t count = json_array_size(*layers); /* 0 if it is no array */
  if (count < 1 || count > BPPSA_CNN_MOST_LAYERS) {
    return bppsa_fail(BPPSA_ERR_FORMAT, "%s: \"layers\": %s, expected a list of 1 to %d", where, bppsa_json_found(*layers, found),
                      BPPSA_CNN_MOST_LAYERS);
  }
  return BPPSA_OK;
}

static bppsa_status read_network(const char *where, json_t *root, bppsa_cnn_network *network) {
  layer_list list = {.where = where};
  BPPSA_TRY(read_root(where, root, network, &list.layers));
  list.count = (int64_t)json_array_size(list.layers);
  list.names = json_object();
  list.entries = bppsa_calloc(list.count, sizeof *list.entries);
  const bppsa_status status = read_list(&list, network);
  for (int64_t i = 0; list.entries != NULL && i < list.count; ++i) {
    bppsa_free(list.entries[i].inputs);
  }
  bppsa_free(list.entries);
  json_decref(list.names);
  return status == BPPSA_OK ? bppsa_cnn_network_check_head(where, network) : status;
}

bppsa_status bppsa_cnn_network_read(const char *where, json_t *root, bppsa_cnn_network *network) {
  BPPSA_REQUIRE(where != NULL && root != NULL && network != NULL);
  bppsa_cnn_network made = {.name = "network"};
  const bppsa_status status = read_network(where, root, &made);
  if (status != BPPSA_OK) {
    bppsa_cnn_network_free(&made);
    return status;
  }
  *network = made;
  return BPPSA_OK;
}

bppsa_status bppsa_cnn_network_parse(const char *where, const char *text, int64_t size, bppsa_cnn_network *network) {
  BPPSA_REQUIRE(where != NULL && text != NULL && network != NULL);
  json_t *root = NULL;
  BPPSA_TRY(bppsa_json_parse(where, text, size, &root));
  const bppsa_status status = bppsa_cnn_network_read(where, root, network);
  json_decref(root);
  return status;
}

bppsa_status bppsa_cnn_network_load(const char *path, bppsa_cnn_network *network) {
  BPPSA_REQUIRE(path != NULL && network != NULL);
  json_t *root = NULL;
  BPPSA_TRY(bppsa_json_load(path, &root));
  const bppsa_status status = bppsa_cnn_network_read(path, root, network);
  json_decref(root);
  return status;
}
