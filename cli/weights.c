/* The weights a command reads: their names, the architecture they describe, their values. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/setup.h"
#include "core/alloc.h"
#include "train/line.h"

/* ---- tensors and their names ---- */

bppsa_status bppsa_setup_tensors(const bppsa_safetensors *file, bppsa_named_view **tensors, int64_t *count) {
  const int64_t size = bppsa_safetensors_count(file);
  bppsa_named_view *list = bppsa_calloc(size, sizeof *list);
  if (list == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < size; ++i) {
    list[i] = *bppsa_safetensors_get(file, i);
  }
  *count = size;
  *tensors = list;
  return BPPSA_OK;
}

#define BARE "."          /* --prefix of names that begin with weight_ih_l0 */
#define ADDED "recurrent" /* at least as long as what a new name adds to an old one */

/* --prefix P[,HEAD]. */
typedef struct {
  const char *stem, *head; /* head: "" where none is given */
  size_t stem_length;
} prefix;

/* What follows "STEM." in a name, or NULL; all of it where the stem is BARE. */
static const char *rest_of(const char *name, const char *stem, size_t length) {
  if (length == strlen(BARE) && strncmp(stem, BARE, length) == 0) {
    return name;
  }
  return strncmp(name, stem, length) == 0 && name[length] == '.' ? name + length + 1 : NULL;
}

static bool starts(const char *text, const char *start) {
  return strncmp(text, start, strlen(start)) == 0;
}

/* The network's own name of a file's tensor, as `before` and *rest, one behind the other; false: it is none of the network's. */
static bool own_name(const bppsa_network_kind *kind, const prefix *p, const char *name, const char **before, const char **rest) {
  *before = "";
  *rest = p->head[0] != '\0' ? rest_of(name, p->head, strlen(p->head)) : NULL;
  if (*rest != NULL) {
    *before = "linear";
    return true;
  }
  *rest = rest_of(name, p->stem, p->stem_length);
  if (*rest == NULL || kind->convolutional) {
    return *rest != NULL;
  }
  *before = starts(*rest, "weight_") || starts(*rest, "bias_") ? kind->name : "";
  return p->head[0] == '\0' || !starts(*rest, "linear.");
}

static bppsa_status parse_prefix(const char *text, const bppsa_network_kind *kind, prefix *p) {
  const char *comma = strchr(text, ',');
  *p = (prefix){text, comma != NULL ? comma + 1 : "", comma != NULL ? (size_t)(comma - text) : strlen(text)};
  if (p->stem_length == 0 || (comma != NULL && (comma[1] == '\0' || strchr(comma + 1, ',') != NULL))) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--prefix: '%s', expected P or P,HEAD", text);
  }
  if (comma != NULL && kind->convolutional) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--prefix: '%s' names a head of %s, expected P alone: its head is one of the layers",
                      text, kind->name);
  }
  return BPPSA_OK;
}

/* The tensors that --prefix selects under the network's own names, in one piece of memory with these. A head that stands under its
 * own name is found without a prefix, where there is none with it. */
static bppsa_status rename_tensors(const bppsa_network_kind *kind, const prefix *p, const bppsa_safetensors *file,
                                   bppsa_named_view **tensors, int64_t *count) {
  const int64_t size = bppsa_safetensors_count(file);
  size_t bytes = (size_t)size * sizeof **tensors + 1;
  for (int64_t i = 0; i < size; ++i) {
    bytes += strlen(bppsa_safetensors_get(file, i)->name) + sizeof ADDED + 1;
  }
  bppsa_named_view *list = bppsa_alloc(bytes);
  if (list == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  char *text = (char *)(list + size);
  int64_t found = 0;
  for (int64_t i = 0; i < size; ++i) {
    const bppsa_named_view *tensor = bppsa_safetensors_get(file, i);
    const char *before, *rest;
    if (own_name(kind, p, tensor->name, &before, &rest)) {
      list[found++] = (bppsa_named_view){text, tensor->view};
      text += sprintf(text, "%s%s%s", before, before[0] != '\0' ? "." : "", rest) + 1;
    }
  }
  for (int64_t i = 0; !kind->convolutional && p->head[0] == '\0' && i < size; ++i) { /* the first of a name counts */
    const bppsa_named_view *tensor = bppsa_safetensors_get(file, i);
    if (starts(tensor->name, "linear.") && rest_of(tensor->name, p->stem, p->stem_length) == NULL) {
      list[found++] = *tensor;
    }
  }
  *count = found;
  *tensors = list;
  return BPPSA_OK;
}

static bppsa_status network_tensors(const bppsa_cli *cli, const bppsa_safetensors *file, bppsa_named_view **tensors,
                                    int64_t *count) {
  const bppsa_network_kind *kind = bppsa_network_kind_of(cli);
  prefix p;
  if (!bppsa_cli_value(cli, BPPSA_OPTION_PREFIX)->given) {
    return bppsa_setup_tensors(file, tensors, count);
  }
  BPPSA_TRY(parse_prefix(bppsa_cli_value(cli, BPPSA_OPTION_PREFIX)->text, kind, &p));
  return rename_tensors(kind, &p, file, tensors, count);
}

/* ---- what is missing ---- */

static bool command_takes(const bppsa_cli *cli, bppsa_option option) {
  const bppsa_option_use *use = cli->command->uses;
  while (use->option != BPPSA_OPTION_COUNT && use->option != option) {
    ++use;
  }
  return use->option == option;
}

/* What the tensors say about the network: fills *config. */
static bppsa_status infer(const char *path, const bppsa_network *network, int64_t count, const bppsa_named_view *tensors,
                          bppsa_recurrent_config *config) {
  const bppsa_network_kind *kind = network->kind;
  return kind->convolutional ? bppsa_cnn_infer(path, &network->layers, count, tensors, &config->dtype)
                             : bppsa_recurrent_infer(path, kind->name, kind->cell->gates, count, tensors, config);
}

#define STEM 90 /* bytes of what stands before a name; longer ones are not proposed, as a message has room for two of these */

/* A value of --prefix that is tried on the file. */
typedef struct {
  const bppsa_network *network;
  const bppsa_safetensors *file;
  char text[2 * STEM];
  bool fits; /* with it every tensor of the network is found */
} proposal;

/* Tries --prefix STEM, or STEM,HEAD where `head` is not NULL, unless one that fits is known. ERR_MEMORY. */
static bppsa_status try_prefix(proposal *proposed, const char *stem, const char *head) {
  bppsa_named_view *tensors = NULL;
  bppsa_recurrent_config found = {0};
  int64_t count = 0;
  prefix p;
  if (proposed->fits) {
    return BPPSA_OK;
  }
  snprintf(proposed->text, sizeof proposed->text, "%s%s%s", stem, head != NULL ? "," : "", head != NULL ? head : "");
  if (parse_prefix(proposed->text, proposed->network->kind, &p) != BPPSA_OK) {
    return BPPSA_OK; /* a name with a comma cannot be given */
  }
  BPPSA_TRY(rename_tensors(proposed->network->kind, &p, proposed->file, &tensors, &count));
  proposed->fits = infer("", proposed->network, count, tensors, &found) == BPPSA_OK;
  bppsa_free(tensors);
  return BPPSA_OK;
}

/* What stands before ".END" in a name (size STEM), BARE where the name is END; false: the name ends in something else. */
static bool cut_end(const char *name, const char *end, char *stem) {
  const size_t length = strlen(name), cut = strlen(end) + 1;
  if (strcmp(name, end) == 0) {
    snprintf(stem, STEM, BARE);
    return true;
  }
  if (length <= cut || length - cut >= STEM || name[length - cut] != '.' || strcmp(name + length - cut + 1, end) != 0) {
    return false;
  }
  snprintf(stem, STEM, "%.*s", (int)(length - cut), name);
  return true;
}

/* The prefixes that fit a recurrent cell whose tensors stand behind `stem`: one for the cell beside a head with its own
 * name, one for cell and head together, one for each. */
static bppsa_status try_cell(proposal *proposed, const char *stem) {
  char part[STEM];
  BPPSA_TRY(try_prefix(proposed, stem, NULL));
  if (cut_end(stem, proposed->network->kind->name, part)) {
    BPPSA_TRY(try_prefix(proposed, part, NULL));
  }
  for (int64_t i = 0; !proposed->fits && i < bppsa_safetensors_count(proposed->file); ++i) {
    const bppsa_named_view *tensor = bppsa_safetensors_get(proposed->file, i);
    if (tensor->view.ndim == 2 && cut_end(tensor->name, "weight", part)) {
      BPPSA_TRY(try_prefix(proposed, stem, part));
    }
  }
  return BPPSA_OK;
}

/* Appends the --prefix with which every tensor of the network would be found, if the file has one: the name of the network's first
 * weight stands behind it. */
static bppsa_status suggest_prefix(const bppsa_cli *cli, const bppsa_network *network, const bppsa_safetensors *file,
                                   bppsa_line *line) {
  char first[200] = "weight_ih_l0", stem[STEM];
  const bool convolutional = network->kind->convolutional;
  proposal proposed = {.network = network, .file = file};
  for (int64_t i = 0; convolutional && i < network->layers.count; ++i) {
    if (bppsa_cnn_has_weights(&network->layers.layers[i])) {
      snprintf(first, sizeof first, "%s.weight", network->layers.layers[i].prefix);
      break;
    }
  }
  if (!command_takes(cli, BPPSA_OPTION_PREFIX)) {
    return BPPSA_OK;
  }
  for (int64_t i = 0; !proposed.fits && i < bppsa_safetensors_count(file); ++i) {
    if (cut_end(bppsa_safetensors_get(file, i)->name, first, stem)) {
      BPPSA_TRY(convolutional ? try_prefix(&proposed, stem, NULL) : try_cell(&proposed, stem));
    }
  }
  if (proposed.fits) {
    bppsa_line_add(line, "; did you mean --prefix %s?", proposed.text);
  }
  return BPPSA_OK;
}

/* Appends to the message of a missing tensor what the file has. */
static bppsa_status say_names(const bppsa_cli *cli, const bppsa_network *network, const bppsa_safetensors *file) {
  enum { SHOWN = 8 };
  bppsa_line line = {.length = 0};
  const int64_t count = bppsa_safetensors_count(file);
  bppsa_line_add(&line, "%.300s", bppsa_last_error());
  BPPSA_TRY(suggest_prefix(cli, network, file, &line));
  bppsa_line_add(&line, "; the file has %s", count == 0 ? "no tensor" : "");
  for (int64_t i = 0; i < count && i < SHOWN; ++i) {
    bppsa_line_add(&line, "%s%.60s", i > 0 ? ", " : "", bppsa_safetensors_get(file, i)->name);
  }
  if (count > SHOWN) {
    bppsa_line_add(&line, " and %" PRId64 " more", count - SHOWN);
  }
  return bppsa_fail(BPPSA_ERR_FORMAT, "%s", line.text);
}

/* ---- the architecture ---- */

/* An option that was typed must say what the weights say. */
static bppsa_status check_integer(const bppsa_cli *cli, bppsa_option option, int64_t found, const char *path) {
  const bppsa_option_value *value = bppsa_cli_value(cli, option);
  if (!value->given || value->integer == found) {
    return BPPSA_OK;
  }
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: %" PRId64 " contradicts the weights in %s, expected %" PRId64,
                    bppsa_option_get(option)->name, value->integer, path, found);
}

static bppsa_status check_text(const bppsa_cli *cli, bppsa_option option, const char *found, const char *path) {
  const bppsa_option_value *value = bppsa_cli_value(cli, option);
  if (!value->given || strcmp(value->text, found) == 0) {
    return BPPSA_OK;
  }
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: %s contradicts the weights in %s, expected %s", bppsa_option_get(option)->name,
                    value->text, path, found);
}

/* What files saved by this program say about themselves; other files say nothing. */
static bppsa_status read_metadata(const bppsa_cli *cli, const char *path, const bppsa_safetensors *file,
                                  bppsa_recurrent_config *config) {
  const char *nonlinearity = bppsa_safetensors_metadata(file, "nonlinearity");
  const bppsa_cell *cell = bppsa_network_kind_of(cli)->cell;
  if (nonlinearity != NULL && cell != NULL && cell->relu) {
    const bool relu = strcmp(nonlinearity, "relu") == 0;
    if (!relu && strcmp(nonlinearity, "tanh") != 0) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: metadata nonlinearity is '%s', expected tanh or relu", path, nonlinearity);
    }
    BPPSA_TRY(check_text(cli, BPPSA_OPTION_NONLINEARITY, nonlinearity, path));
    config->nonlinearity = relu ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
  }
  const char *loss = bppsa_safetensors_metadata(file, "loss"); /* a habit, not the architecture: an option may say otherwise */
  if (loss != NULL && !bppsa_cli_value(cli, BPPSA_OPTION_TRAIN_LOSS)->given) {
    config->loss_all = bppsa_objective_all(loss);
  }
  return BPPSA_OK;
}

static bppsa_status describe_weights(const bppsa_cli *cli, const bppsa_network *network, const char *path,
                                     const bppsa_safetensors *file, bppsa_recurrent_config *config) {
  bppsa_named_view *tensors = NULL;
  int64_t count = 0;
  BPPSA_TRY(network_tensors(cli, file, &tensors, &count));
  const bppsa_status status = infer(path, network, count, tensors, config);
  bppsa_free(tensors);
  BPPSA_TRY(status == BPPSA_ERR_FORMAT ? say_names(cli, network, file) : status); /* a tensor is missing */
  BPPSA_TRY(check_integer(cli, BPPSA_OPTION_LAYERS, config->layers, path));
  BPPSA_TRY(check_integer(cli, BPPSA_OPTION_HIDDEN, config->hidden, path));
  if (bppsa_cli_value(cli, BPPSA_OPTION_DTYPE)->given) {
    BPPSA_TRY(bppsa_dtype_parse(bppsa_cli_value(cli, BPPSA_OPTION_DTYPE)->text, &config->dtype));
  }
  return read_metadata(cli, path, file, config);
}

bppsa_status bppsa_setup_weights(const bppsa_cli *cli, const bppsa_network *network, bppsa_recurrent_config *config,
                                 bppsa_safetensors **file) {
  const char *path = bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->text;
  bppsa_safetensors *loaded = NULL;
  bppsa_recurrent_config described = *config;
  BPPSA_TRY(bppsa_cli_input(bppsa_safetensors_load(path, &loaded)));
  const bppsa_status status = describe_weights(cli, network, path, loaded, &described);
  if (status != BPPSA_OK) {
    bppsa_safetensors_destroy(loaded);
    return status;
  }
  *config = described;
  *file = loaded;
  return BPPSA_OK;
}

/* ---- the values ---- */

/* What a parameter was set from: bppsa_model_set has found it. */
static const bppsa_view *source_of(const bppsa_parameter *parameter, const bppsa_named_view *tensors) {
  int64_t i = 0;
  while (strcmp(tensors[i].name, parameter->name) != 0) {
    ++i;
  }
  return &tensors[i].view;
}

static bppsa_status check_finite(const char *path, const bppsa_parameter *parameter, const bppsa_view *from) {
  const bppsa_view *to = &parameter->value;
  for (int64_t k = 0; k < bppsa_view_count(to); ++k) {
    if (isfinite(bppsa_view_get(to, k))) {
      continue;
    }
    const double value = bppsa_view_get(from, k);
    return isfinite(value)
               ? bppsa_fail(BPPSA_ERR_FORMAT,
                            "%s: %s: element %" PRId64 " is %g, beyond %s, expected --dtype %s or smaller weights", path,
                            parameter->name, k, value, bppsa_dtype_name(to->dtype), bppsa_dtype_name(from->dtype))
               : bppsa_fail(BPPSA_ERR_FORMAT, "%s: %s holds a value that is not finite, expected finite weights", path,
                            parameter->name);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_setup_model(const bppsa_cli *cli, const bppsa_safetensors *file, bppsa_model *model) {
  const char *path = bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->text;
  bppsa_named_view *tensors = NULL;
  int64_t count = 0;
  BPPSA_TRY(network_tensors(cli, file, &tensors, &count));
  bppsa_status status = bppsa_model_set(model, path, count, tensors);
  for (int64_t i = 0; status == BPPSA_OK && i < model->parameter_count; ++i) {
    status = check_finite(path, &model->parameters[i], source_of(&model->parameters[i], tensors));
  }
  if (status == BPPSA_OK && model->dtype == BPPSA_F32 && source_of(&model->parameters[0], tensors)->dtype == BPPSA_F64) {
    fprintf(cli->err, "bppsa: note: %s: f64 weights, rounded to f32 as --dtype f32 asks\n", path);
  }
  bppsa_free(tensors);
  return status;
}
