/* `bppsa prune`: which weights of a network stay, as a file of masks. */
#include <inttypes.h>
#include <string.h>

#include "cli/prune.h"
#include "core/alloc.h"
#include "core/safetensors.h"

static const bppsa_option_use uses[] = {{.option = BPPSA_OPTION_FRACTION, .required = true},
                                        {.option = BPPSA_OPTION_METHOD},
                                        {.option = BPPSA_OPTION_WEIGHTS, .required = true},
                                        {.option = BPPSA_OPTION_OUT,
                                         .metavar = "M.safetensors",
                                         .required = true,
                                         .help = "where the masks go, bool, by the weights' names"},
                                        {.option = BPPSA_OPTION_JSON},
                                        {.option = BPPSA_OPTION_HELP},
                                        {.option = BPPSA_OPTION_COUNT}};

static const char notes[] = "Every tensor NAME.weight with two extents or more is pruned by magnitude; biases stay.\n"
                            "  class-blind         one threshold for all layers\n"
                            "  class-uniform       the same fraction of every layer\n"
                            "  class-distribution  a threshold a layer, in proportion to the standard deviation of its weights\n"
                            "train --mask M.safetensors --weights W.safetensors trains on with the pruned weights kept at 0.\n";

/* ---- masks of a list of tensors ---- */

/* Is it a weight, and not part of an optimiser's state? */
static bool is_weight(const bppsa_named_view *tensor) {
  static const char suffix[] = ".weight", optimizer[] = "optimizer.";
  const size_t length = strlen(tensor->name), end = sizeof suffix - 1;
  return tensor->view.ndim >= 2 && length > end && strcmp(tensor->name + length - end, suffix) == 0 &&
         strncmp(tensor->name, optimizer, sizeof optimizer - 1) != 0;
}

static bppsa_status take_weights(int64_t count, const bppsa_named_view *tensors, bppsa_masks *masks) {
  masks->weights = bppsa_calloc(count, sizeof *masks->weights);
  masks->masks = bppsa_calloc(count, sizeof *masks->masks);
  masks->layers = bppsa_calloc(count, sizeof *masks->layers);
  masks->bytes = bppsa_calloc(count, sizeof *masks->bytes);
  if (masks->weights == NULL || masks->masks == NULL || masks->layers == NULL || masks->bytes == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < count; ++i) {
    if (!is_weight(&tensors[i])) {
      continue;
    }
    const bppsa_view *v = &tensors[i].view;
    uint8_t *bytes = bppsa_alloc((size_t)bppsa_view_count(v));
    if (bytes == NULL) {
      return BPPSA_ERR_MEMORY;
    }
    masks->bytes[masks->count] = bytes;
    masks->weights[masks->count] = tensors[i];
    masks->masks[masks->count++] = (bppsa_named_view){tensors[i].name, bppsa_view_make(bytes, BPPSA_BOOL, v->ndim, v->shape)};
  }
  return masks->count > 0 ? BPPSA_OK
                          : bppsa_fail(BPPSA_ERR_FORMAT, "no tensor NAME.weight with two extents or more, expected one to prune");
}

bppsa_status bppsa_masks_make(bppsa_prune_method method, double fraction, int64_t count, const bppsa_named_view *tensors,
                              bppsa_masks *masks) {
  bppsa_masks made = {0};
  bppsa_status status = take_weights(count, tensors, &made);
  if (status == BPPSA_OK) {
    status = bppsa_prune(method, fraction, made.count, made.weights, made.bytes, made.layers);
  }
  if (status != BPPSA_OK) {
    bppsa_masks_free(&made);
    return status;
  }
  *masks = made;
  return BPPSA_OK;
}

void bppsa_masks_free(bppsa_masks *masks) {
  for (int64_t i = 0; i < masks->count; ++i) {
    bppsa_free(masks->bytes[i]);
  }
  bppsa_free(masks->bytes);
  bppsa_free(masks->weights);
  bppsa_free(masks->masks);
  bppsa_free(masks->layers);
  *masks = (bppsa_masks){0};
}

/* ---- the command ---- */

static bppsa_prune_layer total_of(const bppsa_masks *masks) {
  bppsa_prune_layer total = {0};
  for (int64_t i = 0; i < masks->count; ++i) {
    total.weights += masks->layers[i].weights;
    total.kept += masks->layers[i].kept;
    total.rows += masks->layers[i].rows;
    total.empty += masks->layers[i].empty;
  }
  return total;
}

static bool put_layer(json_t *object, const bppsa_prune_layer *layer) {
  return bppsa_json_put_integer(object, "weights", layer->weights) && bppsa_json_put_integer(object, "kept", layer->kept) &&
         bppsa_json_put_integer(object, "channels", layer->rows) &&
         bppsa_json_put_integer(object, "empty_channels", layer->empty);
}

static json_t *masks_json(const bppsa_cli *cli, const bppsa_masks *masks) {
  const bppsa_prune_layer total = total_of(masks);
  json_t *object = json_object(), *layers = json_array();
  bool filled = layers != NULL;
  for (int64_t i = 0; filled && i < masks->count; ++i) {
    json_t *layer = json_object();
    bool ok = layer != NULL && bppsa_json_put_text(layer, "name", masks->weights[i].name);
    ok = ok && put_layer(layer, &masks->layers[i]) && bppsa_json_put_real(layer, "threshold", masks->layers[i].threshold);
    filled = json_array_append_new(layers, bppsa_json_finish(layer, ok)) == 0;
  }
  bool ok = bppsa_json_put(object, "tensors", bppsa_json_finish(layers, filled));
  ok = ok && bppsa_json_put_text(object, "method", bppsa_cli_value(cli, BPPSA_OPTION_METHOD)->text);
  ok = ok && bppsa_json_put_real(object, "fraction", bppsa_cli_value(cli, BPPSA_OPTION_FRACTION)->real);
  ok = ok && put_layer(object, &total);
  return bppsa_json_finish(object, ok);
}

static bppsa_status print_line(bppsa_cli *cli, const char *name, const bppsa_prune_layer *layer, const char *threshold) {
  const double gone = layer->weights > 0 ? 100 - 100 * (double)layer->kept / (double)layer->weights : 0;
  return bppsa_cli_print(cli, "%-28s %10" PRId64 " %10" PRId64 " %8.2f %%  %-11s %7" PRId64 " of %" PRId64 "\n", name,
                         layer->weights, layer->kept, gone, threshold, layer->empty, layer->rows);
}

static bppsa_status print_table(bppsa_cli *cli, const bppsa_masks *masks) {
  const bppsa_prune_layer total = total_of(masks);
  BPPSA_TRY(bppsa_cli_print(cli, "%-28s %10s %10s %10s  %-11s %s\n", "layer", "weights", "kept", "pruned", "threshold",
                            "empty channels"));
  for (int64_t i = 0; i < masks->count; ++i) {
    char threshold[32];
    snprintf(threshold, sizeof threshold, "%.4g", masks->layers[i].threshold);
    BPPSA_TRY(print_line(cli, masks->weights[i].name, &masks->layers[i], threshold));
  }
  BPPSA_TRY(print_line(cli, "all", &total, ""));
  return bppsa_cli_print(cli, "\n%s, masks written to %s\n", bppsa_cli_value(cli, BPPSA_OPTION_METHOD)->text,
                         bppsa_cli_value(cli, BPPSA_OPTION_OUT)->text);
}

static bppsa_status save(const bppsa_cli *cli, const bppsa_masks *masks) {
  const bppsa_metadata method = {"method", bppsa_cli_value(cli, BPPSA_OPTION_METHOD)->text};
  return bppsa_safetensors_save(bppsa_cli_value(cli, BPPSA_OPTION_OUT)->text, masks->count, masks->masks, 1, &method);
}

/* The document is made before the masks are saved, and printed after. */
static bppsa_status output(bppsa_cli *cli, const bppsa_masks *masks) {
  if (!cli->json) {
    BPPSA_TRY(save(cli, masks));
    return print_table(cli, masks);
  }
  char *text = NULL;
  bppsa_json_start();
  BPPSA_TRY(bppsa_cli_render(masks_json(cli, masks), &text));
  bppsa_status status = save(cli, masks);
  status = status == BPPSA_OK ? bppsa_cli_print_document(cli, text) : status;
  bppsa_free(text);
  return status;
}

static bppsa_status prune(bppsa_cli *cli, const bppsa_safetensors *file) {
  const char *path = bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->text;
  bppsa_named_view *tensors = NULL;
  bppsa_masks masks = {0};
  int64_t count;
  BPPSA_TRY(bppsa_setup_tensors(file, &tensors, &count));
  bppsa_status status = bppsa_masks_make((bppsa_prune_method)bppsa_cli_value(cli, BPPSA_OPTION_METHOD)->choice,
                                         bppsa_cli_value(cli, BPPSA_OPTION_FRACTION)->real, count, tensors, &masks);
  status = status == BPPSA_OK ? output(cli, &masks) : status == BPPSA_ERR_MEMORY ? status : bppsa_fail_prefix(status, "%s", path);
  bppsa_masks_free(&masks);
  bppsa_free(tensors);
  return status;
}

static bppsa_status run(bppsa_cli *cli) {
  bppsa_safetensors *file = NULL;
  BPPSA_TRY(bppsa_cli_check_output(cli, BPPSA_OPTION_OUT));
  BPPSA_TRY(bppsa_cli_check_distinct(cli, BPPSA_OPTION_WEIGHTS, BPPSA_OPTION_OUT));
  BPPSA_TRY(bppsa_cli_input(bppsa_safetensors_load(bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->text, &file)));
  const bppsa_status status = prune(cli, file);
  bppsa_safetensors_destroy(file);
  return status;
}

const bppsa_command bppsa_command_prune = {.verb = "prune",
                                           .summary = "Prunes weights by magnitude: makes the masks that train --mask keeps",
                                           .example =
                                               "prune --weights W.safetensors --fraction 0.97 --method class-uniform --out "
                                               "M.safetensors",
                                           .notes = notes,
                                           .uses = uses,
                                           .run = run};
