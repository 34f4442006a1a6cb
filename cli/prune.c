/* `bppsa prune`: decides which weights of a network stay, and writes them as a file of masks. */
#include "cli/setup.h"
#include "networks/masks.h"
#include "networks/weight_list.h"
#include "networks/weights.h"

static const bppsa_option_use uses[] = {
    {.option = BPPSA_OPTION_FRACTION, .help = "fraction that is pruned; required but with N:M"},
    BPPSA_USE(METHOD),
    BPPSA_USE(STRUCTURE),
    {.option = BPPSA_OPTION_WEIGHTS, .required = true},
    {.option = BPPSA_OPTION_OUT,
     .metavar = "M.safetensors",
     .required = true,
     .help = "where the masks go, bool, by the weights' names"},
    BPPSA_USES_END};

static const char notes[] =
    "Every tensor NAME.weight with two extents or more is pruned by magnitude. Biases stay, and so do the weights of norms:\n"
    "they have one extent, or a NAME.bias of their own shape, as a layer norm's. torch.nn.utils.prune.global_unstructured does\n"
    "the same where it is given the convolutions and linear operators alone.\n"
    "  class-blind         one threshold for all layers\n"
    "  class-uniform       the same fraction of every layer\n"
    "  class-distribution  a threshold for each layer, in proportion to the standard deviation of its weights\n"
    "A structure prunes whole units of weights [Co][Ci][kh][kw] by their root mean square; the fraction is of units:\n"
    "  element    single weights\n"
    "  channel    output channels; flops counts what dense kernels take without them (shrunk)\n"
    "  block:RxC  R output channels by C of their Ci*kh*kw weights\n"
    "  N:M        of every M input channels at one tap the N largest stay (2:4); no fraction and no method\n"
    "train --mask M.safetensors --weights W.safetensors trains on with the pruned weights kept at 0.\n";

static json_t *document(const bppsa_cli *cli, double fraction, const bppsa_masks *masks) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put(object, "tensors", bppsa_masks_json(masks));
  ok = ok && bppsa_json_put_text(object, "method", bppsa_cli_value(cli, BPPSA_OPTION_METHOD)->text);
  ok = ok && bppsa_json_put_text(object, "structure", bppsa_cli_value(cli, BPPSA_OPTION_STRUCTURE)->text);
  ok = ok && bppsa_json_put_real(object, "fraction", fraction);
  return bppsa_json_finish(object, ok && bppsa_masks_put_total(object, masks));
}

static bppsa_status render(const bppsa_cli *cli, double fraction, const bppsa_masks *masks, bppsa_text *shown) {
  const char *method = bppsa_cli_value(cli, BPPSA_OPTION_METHOD)->text, *path = bppsa_cli_value(cli, BPPSA_OPTION_OUT)->text;
  const char *structure = bppsa_cli_value(cli, BPPSA_OPTION_STRUCTURE)->text;
  if (cli->to.json) {
    return bppsa_json_render(document(cli, fraction, masks), &shown->text);
  }
  bppsa_masks_text(masks, shown);
  bppsa_text_add(shown, "\n%s, structure %s, masks written to %s\n", method, structure, path);
  return bppsa_text_check(shown);
}

static bppsa_status output(const bppsa_cli *cli, double fraction, const bppsa_masks *masks) {
  const bppsa_metadata about[] = {{"method", bppsa_cli_value(cli, BPPSA_OPTION_METHOD)->text},
                                  {"structure", bppsa_cli_value(cli, BPPSA_OPTION_STRUCTURE)->text}};
  const char *path = bppsa_cli_value(cli, BPPSA_OPTION_OUT)->text;
  bppsa_text shown = {0};
  bppsa_status status = render(cli, fraction, masks, &shown);
  status = status == BPPSA_OK ? bppsa_safetensors_save(path, masks->count, masks->masks, 2, about) : status;
  status = status == BPPSA_OK ? bppsa_setup_show(cli, &shown) : status;
  bppsa_text_free(&shown);
  return status;
}

/* Notes that weights were converted before they were compared. */
static void note_converted(const bppsa_cli *cli, const bppsa_weight_list *list, const bppsa_masks *masks) {
  char note[BPPSA_CONVERTED_NOTE] = "";
  for (int64_t i = 0; note[0] == '\0' && i < masks->count; ++i) {
    const bppsa_named_view *weight = &masks->weights[i];
    (void)bppsa_weight_list_converted(bppsa_weight_list_origin(list, weight->name)->stored, &weight->view, weight->view.dtype,
                                      note);
  }
  bppsa_setup_note_weights(cli, note);
}

static bppsa_status prune(const bppsa_cli *cli, const bppsa_safetensors *file) {
  const char *path = bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->text;
  bppsa_weight_list list = {.count = 0};
  bppsa_masks masks = {0};
  bppsa_prune_structure structure;
  double fraction = 0;
  BPPSA_TRY(bppsa_setup_structure(cli, BPPSA_OPTION_FRACTION, &structure, &fraction));
  BPPSA_TRY(bppsa_weight_list_make(path, file, BPPSA_LIST_VALUES, &list));
  bppsa_status status = bppsa_masks_make((bppsa_prune_method)bppsa_cli_value(cli, BPPSA_OPTION_METHOD)->choice, structure,
                                         fraction, list.count, list.tensors, &masks);
  if (status == BPPSA_OK) {
    note_converted(cli, &list, &masks);
    status = output(cli, fraction, &masks);
  } else if (status != BPPSA_ERR_MEMORY) {
    status = bppsa_fail_prefix(status, "%s", path);
  }
  bppsa_masks_free(&masks);
  bppsa_weight_list_free(&list);
  return status;
}

static bppsa_status run(bppsa_cli *cli) {
  bppsa_safetensors *file = NULL;
  BPPSA_TRY(bppsa_weights_file(bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->text, &file));
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
