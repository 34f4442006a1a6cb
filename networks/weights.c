#include "networks/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cnn/onnx.h"
#include "core/base/alloc.h"
#include "train/line.h"
#include "train/objective.h"

/* ---- names ---- */

#define BARE "."          /* the --prefix for names without a prefix, which begin with weight_ih_l0 */
#define ADDED "recurrent" /* as long as the longest addition to an old name */

/* The two parts of --prefix P[,HEAD]. */
typedef struct {
  const char *stem, *head; /* head: "" if it is not given */
  size_t stem_length;
} prefix;

/* Returns what follows "STEM." in a name, or NULL; where the stem is BARE, the whole name. */
static const char *rest_of(const char *name, const char *stem, size_t length) {
  if (length == strlen(BARE) && strncmp(stem, BARE, length) == 0) {
    return name;
  }
  return strncmp(name, stem, length) == 0 && name[length] == '.' ? name + length + 1 : NULL;
}

static bool starts(const char *text, const char *start) {
  return strncmp(text, start, strlen(start)) == 0;
}

/* Is it "linear.weight", a tensor of the head? */
static bool is_of_head(const bppsa_network_kind *kind, const char *name) {
  const size_t length = strlen(kind->family->head);
  return strncmp(name, kind->family->head, length) == 0 && name[length] == '.';
}

/* Splits the network's own name of a file's tensor into *before, a dot and *rest. Returns false if the network has no such
 * tensor. */
static bool own_name(const bppsa_network_kind *kind, const prefix *p, const char *name, const char **before, const char **rest) {
  *before = "";
  *rest = p->head[0] != '\0' ? rest_of(name, p->head, strlen(p->head)) : NULL;
  if (*rest != NULL) {
    *before = kind->family->head;
    return true;
  }
  *rest = rest_of(name, p->stem, p->stem_length);
  if (*rest == NULL || kind->family->head == NULL) {
    return *rest != NULL;
  }
  *before = starts(*rest, "weight_") || starts(*rest, "bias_") ? kind->name : "";
  return p->head[0] == '\0' || !is_of_head(kind, *rest);
}

static bppsa_status parse_prefix(const char *text, const bppsa_network_kind *kind, prefix *p) {
  const char *comma = strchr(text, ',');
  *p = (prefix){text, comma != NULL ? comma + 1 : "", comma != NULL ? (size_t)(comma - text) : strlen(text)};
  if (p->stem_length == 0 || (comma != NULL && (comma[1] == '\0' || strchr(comma + 1, ',') != NULL))) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--prefix: '%s', expected P or P,HEAD", text);
  }
  if (comma != NULL && kind->family->head == NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--prefix: '%s' names a head of %s, expected P alone: its head is one of the layers",
                      text, kind->name);
  }
  return BPPSA_OK;
}

/* Adds a tensor of another list under a new name, which is written to *text. */
static void add_renamed(const bppsa_weight_list *from, int64_t i, const char *before, const char *rest, char **text,
                        bppsa_weight_list *list) {
  list->tensors[list->count] = (bppsa_named_view){*text, from->tensors[i].view};
  list->origins[list->count++] = from->origins[i];
  *text += sprintf(*text, "%s%s%s", before, before[0] != '\0' ? "." : "", rest) + 1;
}

/* Lists the tensors that --prefix selects, under the network's own names. A head whose tensors lack the prefix is found under its
 * own name, unless tensors with the prefix exist. */
static bppsa_status rename_tensors(const bppsa_network_kind *kind, const prefix *p, const bppsa_weight_list *from,
                                   bppsa_weight_list *list) {
  const char *before, *rest;
  size_t bytes = 1;
  for (int64_t i = 0; i < from->count; ++i) {
    bytes += strlen(from->tensors[i].name) + sizeof ADDED + 1;
  }
  bppsa_weight_list made = {.tensors = bppsa_calloc(from->count, sizeof *made.tensors),
                            .origins = bppsa_calloc(from->count, sizeof *made.origins),
                            .arrays = bppsa_alloc(bytes)};
  if (made.tensors == NULL || made.origins == NULL || made.arrays == NULL) {
    bppsa_weight_list_free(&made);
    return BPPSA_ERR_MEMORY;
  }
  char *text = made.arrays;
  for (int64_t i = 0; i < from->count; ++i) {
    if (own_name(kind, p, from->tensors[i].name, &before, &rest)) {
      add_renamed(from, i, before, rest, &text, &made);
    }
  }
  /* If several tensors have one name, the first counts. */
  for (int64_t i = 0; kind->family->head != NULL && p->head[0] == '\0' && i < from->count; ++i) {
    const char *name = from->tensors[i].name;
    if (is_of_head(kind, name) && rest_of(name, p->stem, p->stem_length) == NULL) {
      add_renamed(from, i, "", name, &text, &made);
    }
  }
  *list = made;
  return BPPSA_OK;
}

/* The tensors of a file under its names; and with --prefix a second list under the network's own names, which borrows the arrays
 * of the first. */
typedef struct {
  bppsa_weight_list stored, renamed;
  const bppsa_weight_list *own; /* renamed with --prefix, otherwise stored */
} file_tensors;

static void free_tensors(file_tensors *t) {
  bppsa_weight_list_free(&t->stored);
  bppsa_weight_list_free(&t->renamed);
}

/* Fills *t, which the caller frees, also on failure. */
static bppsa_status network_tensors(const bppsa_weights_request *request, const bppsa_network_kind *kind,
                                    const bppsa_safetensors *file, bppsa_list_content content, file_tensors *t) {
  prefix p;
  t->own = request->prefix != NULL ? &t->renamed : &t->stored;
  BPPSA_TRY(request->prefix != NULL ? parse_prefix(request->prefix, kind, &p) : BPPSA_OK);
  BPPSA_TRY(bppsa_weight_list_make(request->path, file, content, &t->stored));
  return request->prefix != NULL ? rename_tensors(kind, &p, &t->stored, &t->renamed) : BPPSA_OK;
}

/* ---- what is missing ---- */

/* The most candidates that are tried. Each walks through all tensors of the file, whose number only its size limits. */
enum { MOST_PROPOSALS = 200 };
#define STEM 90 /* the most bytes in front of a name. Longer stems are not proposed, because a message must have room for two. */

/* A candidate for --prefix. */
typedef struct {
  const bppsa_network *network;
  const bppsa_weight_list *stored;
  char text[2 * STEM];
  int64_t tried;
  bool fits; /* with it every tensor of the network is found */
} proposal;

static bool open_for_more(const proposal *proposed) {
  return !proposed->fits && proposed->tried < MOST_PROPOSALS;
}

/* Tries --prefix STEM, or STEM,HEAD if `head` is not NULL, unless one that fits is known or too many were tried. ERR_MEMORY. */
static bppsa_status try_prefix(proposal *proposed, const char *stem, const char *head) {
  bppsa_weight_list renamed = {.count = 0};
  bppsa_network_config found = {0};
  prefix p;
  if (!open_for_more(proposed)) {
    return BPPSA_OK;
  }
  ++proposed->tried;
  snprintf(proposed->text, sizeof proposed->text, "%s%s%s", stem, head != NULL ? "," : "", head != NULL ? head : "");
  if (parse_prefix(proposed->text, proposed->network->kind, &p) != BPPSA_OK) {
    return BPPSA_OK; /* --prefix separates two stems by a comma, so no stem has one */
  }
  BPPSA_TRY(rename_tensors(proposed->network->kind, &p, proposed->stored, &renamed));
  proposed->fits = bppsa_network_infer("", proposed->network, renamed.count, renamed.tensors, &found) == BPPSA_OK;
  bppsa_weight_list_free(&renamed);
  return BPPSA_OK;
}

/* Cuts ".END" off a name (stem: size STEM); the name END alone has the stem BARE. Returns false if the name ends in something
 * else. */
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

/* Tries the prefixes of a network with a head of its own whose other tensors follow `stem`: one for these tensors alone, one for
 * them and the head together, and one with a different stem for the head. */
static bppsa_status try_beside_head(proposal *proposed, const char *stem) {
  char part[STEM];
  BPPSA_TRY(try_prefix(proposed, stem, NULL));
  if (cut_end(stem, proposed->network->kind->name, part)) {
    BPPSA_TRY(try_prefix(proposed, part, NULL));
  }
  for (int64_t i = 0; open_for_more(proposed) && i < proposed->stored->count; ++i) {
    const bppsa_named_view *tensor = &proposed->stored->tensors[i];
    if (tensor->view.ndim == 2 && cut_end(tensor->name, "weight", part)) {
      BPPSA_TRY(try_prefix(proposed, stem, part));
    }
  }
  return BPPSA_OK;
}

/* Appends the --prefix under which every tensor of the network is found, if the file has one. A candidate is what stands before
 * the name of the network's first weight. */
static bppsa_status suggest_prefix(const bppsa_network *network, const bppsa_weight_list *stored, bppsa_line *line) {
  char first[BPPSA_NETWORK_TEXT], stem[STEM];
  const bppsa_network_family *family = network->kind->family;
  proposal proposed = {.network = network, .stored = stored};
  family->first_weight(network, first);
  for (int64_t i = 0; open_for_more(&proposed) && i < stored->count; ++i) {
    if (cut_end(stored->tensors[i].name, first, stem)) {
      BPPSA_TRY(family->head == NULL ? try_prefix(&proposed, stem, NULL) : try_beside_head(&proposed, stem));
    }
  }
  if (proposed.fits) {
    bppsa_line_add(line, "; did you mean --prefix %s?", proposed.text);
  }
  return BPPSA_OK;
}

/* Appends to the message of a missing tensor what the file has. */
static bppsa_status say_names(const bppsa_weights_request *request, const bppsa_network *network,
                              const bppsa_weight_list *stored) {
  enum { SHOWN = 8 };
  bppsa_line line = {.length = 0};
  const int64_t count = stored->count;
  bppsa_line_add(&line, "%.300s", bppsa_last_error());
  if (request->propose_prefix) {
    BPPSA_TRY(suggest_prefix(network, stored, &line));
  }
  bppsa_line_add(&line, "; the file has %s", count == 0 ? "no tensor" : "");
  for (int64_t i = 0; i < count && i < SHOWN; ++i) {
    bppsa_line_add(&line, "%s%.60s", i > 0 ? ", " : "", stored->tensors[i].name);
  }
  if (count > SHOWN) {
    bppsa_line_add(&line, " and %" PRId64 " more", count - SHOWN);
  }
  return bppsa_fail(BPPSA_ERR_FORMAT, "%s", line.text);
}

/* ---- the architecture ---- */

/* Refuses a size that differs from that of the weights. */
static bppsa_status check_integer(const char *option, int64_t asked, int64_t found, const char *path) {
  return asked == 0 || asked == found
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: %" PRId64 " contradicts the weights in %s, expected %" PRId64, option, asked,
                          path, found);
}

/* Reads what files saved by this program say about themselves; other files have no such metadata. */
static bppsa_status read_metadata(const bppsa_weights_request *request, const bppsa_network_kind *kind,
                                  const bppsa_safetensors *file, bppsa_network_config *config) {
  const char *nonlinearity = bppsa_safetensors_metadata(file, "nonlinearity"), *asked = request->nonlinearity;
  if (nonlinearity != NULL && kind->cell != NULL && kind->cell->relu) {
    const bool relu = strcmp(nonlinearity, "relu") == 0;
    if (!relu && strcmp(nonlinearity, "tanh") != 0) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: metadata nonlinearity is '%s', expected tanh or relu", request->path,
                        nonlinearity);
    }
    if (asked != NULL && strcmp(asked, nonlinearity) != 0) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "--nonlinearity: %s contradicts the weights in %s, expected %s", asked, request->path,
                        nonlinearity);
    }
    config->steps.nonlinearity = relu ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
  }
  /* An option may name another loss, because the loss is no part of the architecture. */
  const char *loss = bppsa_safetensors_metadata(file, "loss");
  if (loss != NULL && !request->loss_given) {
    config->loss_all = bppsa_objective_all(loss);
  }
  return BPPSA_OK;
}

static bppsa_status infer(const bppsa_weights_request *request, const bppsa_network *network, const bppsa_safetensors *file,
                          bppsa_network_config *config) {
  file_tensors t = {.own = NULL};
  bppsa_status status = network_tensors(request, network->kind, file, BPPSA_LIST_SHAPES, &t);
  if (status == BPPSA_OK) {
    status = bppsa_network_infer(request->path, network, t.own->count, t.own->tensors, config);
    status = status == BPPSA_ERR_FORMAT ? say_names(request, network, &t.stored) : status; /* a tensor is missing */
  }
  free_tensors(&t);
  return status;
}

static bppsa_status describe_weights(const bppsa_weights_request *request, const bppsa_network *network,
                                     const bppsa_safetensors *file, bppsa_network_config *config) {
  const bppsa_network_steps asked = config->steps;
  BPPSA_TRY(infer(request, network, file, config));
  BPPSA_TRY(check_integer("--layers", request->layers, config->steps.layers, request->path));
  BPPSA_TRY(check_integer("--hidden", request->hidden, config->steps.hidden, request->path));
  if (asked.no_bias && !config->steps.no_bias) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--no-bias: contradicts the weights in %s, expected weights without biases",
                      request->path);
  }
  if (asked.bidirectional && !config->steps.bidirectional) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--bidirectional: contradicts the weights in %s, expected weights of both directions",
                      request->path);
  }
  if (request->reset_state != NULL && (strcmp(request->reset_state, "learned") == 0) != config->steps.reset_state) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--reset-state: %s contradicts the weights in %s, which have %s, expected %s",
                      request->reset_state, request->path, config->steps.reset_state ? "one" : "none",
                      config->steps.reset_state ? "learned" : "zeros");
  }
  config->dtype = request->dtype != NULL ? *request->dtype : config->dtype;
  return read_metadata(request, network->kind, file, config);
}

/* A pruned weight keeps its mask, unless other masks were given or the network takes none. */
static bppsa_status take_masks(const bppsa_weights_request *request, const bppsa_safetensors *file, bppsa_network *network) {
  file_tensors t = {.own = NULL};
  if (network->kind->family->masks == NULL || network->mask_count > 0) {
    return BPPSA_OK;
  }
  bppsa_status status = network_tensors(request, network->kind, file, BPPSA_LIST_MASKS, &t);
  status = status == BPPSA_OK ? network->kind->family->masks(t.own, network) : status;
  free_tensors(&t);
  return status;
}

const char *bppsa_weights_path(const char *asked, const char *network) {
  return asked == NULL && network != NULL && bppsa_network_is_onnx(network) ? network : asked;
}

bppsa_status bppsa_weights_file(const char *path, bppsa_safetensors **file) {
  return bppsa_input_status(bppsa_network_is_onnx(path) ? bppsa_cnn_onnx_load(path, NULL, file)
                                                        : bppsa_safetensors_load(path, file));
}

bppsa_status bppsa_weights_load(const bppsa_weights_request *request, bppsa_network *network, bppsa_network_config *config,
                                bppsa_safetensors **file) {
  bppsa_safetensors *loaded = NULL;
  bppsa_network_config described = *config;
  BPPSA_TRY(bppsa_weights_file(request->path, &loaded));
  bppsa_status status = describe_weights(request, network, loaded, &described);
  status = status == BPPSA_OK ? take_masks(request, loaded, network) : status;
  if (status != BPPSA_OK) {
    bppsa_safetensors_destroy(loaded);
    return status;
  }
  *config = described;
  *file = loaded;
  return BPPSA_OK;
}

/* ---- the values ---- */

/* Refuses values that are not finite in the parameter's dtype. bppsa_model_set itself refuses tensors of another shape. */
static bppsa_status check_finite(const char *path, const bppsa_parameter *parameter, const bppsa_view *from) {
  const bool real = from != NULL && (from->dtype == BPPSA_F32 || from->dtype == BPPSA_F64);
  const int64_t count = real && bppsa_view_same_shape(from, &parameter->value) ? bppsa_view_count(from) : 0;
  const bppsa_dtype dtype = parameter->value.dtype;
  for (int64_t k = 0; k < count; ++k) {
    const double value = bppsa_view_get(from, k);
    if (!isfinite(value)) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: %s: element %" PRId64 " is %g, expected finite weights", path, parameter->name, k,
                        value);
    }
    if (dtype == BPPSA_F32 && !isfinite((float)value)) {
      return bppsa_fail(BPPSA_ERR_FORMAT, "%s: %s: element %" PRId64 " is %g, beyond %s, expected --dtype %s or smaller weights",
                        path, parameter->name, k, value, bppsa_dtype_name(dtype), bppsa_dtype_name(from->dtype));
    }
  }
  return BPPSA_OK;
}

static bool has_mask(const bppsa_network *network, const char *name) {
  for (int64_t i = 0; i < network->mask_count; ++i) {
    if (strcmp(network->masks[i].name, name) == 0) {
      return true;
    }
  }
  return false;
}

/* Says what was done to the parameters' tensors that a user should know; all of them are in the list. */
static void describe_changes(const bppsa_weights_request *request, const bppsa_model *model, const bppsa_weight_list *own,
                             const bppsa_network *network, char *note) {
  const char *pruned = NULL;
  char converted[BPPSA_CONVERTED_NOTE] = "";
  int64_t masks = 0;
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    const bppsa_list_origin *origin = bppsa_weight_list_origin(own, model->parameters[i].name);
    if (converted[0] == '\0') {
      const bppsa_view *value = bppsa_weight_list_find(own, model->parameters[i].name);
      (void)bppsa_weight_list_converted(origin->stored, value, model->dtype, converted);
    }
    if (origin->pruned && !has_mask(network, model->parameters[i].name)) {
      pruned = pruned == NULL ? model->parameters[i].name : pruned;
      ++masks;
    }
  }
  const size_t used = (size_t)snprintf(note, BPPSA_WEIGHTS_NOTE, "%s", converted);
  if (pruned != NULL && request->trains) {
    char more[48] = "";
    if (masks > 1) {
      snprintf(more, sizeof more, " and of %lld more tensors", (long long)masks - 1);
    }
    snprintf(note + used, BPPSA_WEIGHTS_NOTE - used, "%sthe mask of %.100s%s is applied once: training changes all weights",
             used > 0 ? "; " : "", pruned, more);
  }
}

static bppsa_status set_model(const bppsa_weights_request *request, const bppsa_weight_list *own, bppsa_model *model) {
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    const bppsa_parameter *parameter = &model->parameters[i];
    BPPSA_TRY(check_finite(request->path, parameter, bppsa_weight_list_find(own, parameter->name)));
  }
  return bppsa_model_set(model, request->path, own->count, own->tensors);
}

bppsa_status bppsa_weights_set(const bppsa_weights_request *request, const bppsa_network *network, const bppsa_safetensors *file,
                               bppsa_model *model, char *note) {
  file_tensors t = {.own = NULL};
  bppsa_status status = network_tensors(request, network->kind, file, BPPSA_LIST_VALUES, &t);
  status = status == BPPSA_OK ? set_model(request, t.own, model) : status;
  if (status == BPPSA_OK && note != NULL) {
    describe_changes(request, model, t.own, network, note);
  }
  free_tensors(&t);
  return status;
}
