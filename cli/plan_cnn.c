/* `bppsa plan lenet5|vgg11|FILE.json`: the plan of a convolutional network's sparse scan, over the patterns that hold for any
 * input. */
#include <inttypes.h>
#include <string.h>

#include "cli/flops.h"
#include "cli/plan_json.h"
#include "core/alloc.h"

static const bppsa_option_use uses[] = {
    {.option = BPPSA_OPTION_PRUNE},
    {.option = BPPSA_OPTION_METHOD, .help = "of pruning, see bppsa prune"},
    {.option = BPPSA_OPTION_SEED, .help = "of the weights that are pruned"},
    {.option = BPPSA_OPTION_WEIGHTS, .help = "weights instead of random ones; those that are 0 are left out"},
    {.option = BPPSA_OPTION_BATCH, .fallback = "256"},
    {.option = BPPSA_OPTION_LEVELS},
    {.option = BPPSA_OPTION_INPUT_GRAD},
    {.option = BPPSA_OPTION_DTYPE},
    {.option = BPPSA_OPTION_MEMORY_LIMIT,
     .help = "of patterns, and of held products: auto takes fewer levels, a given number is refused"},
    {.option = BPPSA_OPTION_MASK, .metavar = "M.safetensors", .help = BPPSA_FLOPS_MASK_HELP},
    {.option = BPPSA_OPTION_SVG},
    {.option = BPPSA_OPTION_JSON},
    {.option = BPPSA_OPTION_HELP},
    {.option = BPPSA_OPTION_COUNT}};

static const char notes[] =
    "Nothing of a product's size is made unless weights are pruned: those are planned entry by entry. 0 up-levels are the "
    "recurrence\n"
    "itself. bppsa flops has the operators, BP beside the scan, and patterns of real inputs.\n";

static json_t *plan_json(const bppsa_cli *cli, const bppsa_flops *f) {
  const bppsa_scan_config *config = bppsa_scan_plan_config(f->plan);
  const bppsa_gradient_method method = bppsa_scan_plan_method(f->plan);
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "model", cli->object);
  ok = ok && bppsa_json_put_integer(object, "elements", f->count + 1);
  ok = ok && bppsa_gradient_method_put(object, &method);
  ok = ok && bppsa_json_put_integer(object, "batch", config->batch);
  ok = ok && bppsa_json_put_text(object, "dtype", bppsa_dtype_name(config->dtype));
  ok = ok && bppsa_json_put_bool(object, "pruned", f->pruned);
  ok = ok && bppsa_flops_mask_json(cli, object);
  ok = ok && bppsa_json_put(object, "levels", bppsa_plan_levels_json(f->plan));
  ok = ok && bppsa_json_put(object, "steps", bppsa_flops_steps_json(f));
  ok = ok && bppsa_json_put(object, "totals", bppsa_plan_totals_json(&f->totals));
  ok = ok && bppsa_flops_ratios_json(object, f);
  return bppsa_json_finish(object, ok);
}

static bppsa_status print_plan(bppsa_cli *cli, const bppsa_flops *f) {
  const bppsa_scan_totals *t = &f->totals;
  char words[BPPSA_SETUP_METHOD_TEXT], text[4][BPPSA_SI_TEXT];
  const bool automatic = strcmp(bppsa_cli_value(cli, BPPSA_OPTION_LEVELS)->text, "auto") == 0;
  BPPSA_TRY(bppsa_cli_print(
      cli, "%s: %s, %" PRId64 " elements, %s weights, B %" PRId64 ", %s; FLOPs a sample\n", cli->object,
      bppsa_setup_plan(automatic ? BPPSA_CHOSEN_BY_ESTIMATE : BPPSA_CHOSEN_BY_OPTION, f->plan, words, sizeof words), f->count + 1,
      f->pruned ? "some" : "all", bppsa_scan_plan_config(f->plan)->batch,
      bppsa_dtype_name(bppsa_scan_plan_config(f->plan)->dtype)));
  BPPSA_TRY(bppsa_flops_print_steps(cli, f));
  return bppsa_cli_print(cli,
                         "\n  products           %" PRId64 " mat-mat (%" PRId64 " dead), %" PRId64 " mat-vec\n"
                         "  FLOPs              %s mat-mat, %s mat-vec\n"
                         "  critical path      %" PRId64 " products, %s\n"
                         "  products held      %s for a batch of %" PRId64 "\n",
                         t->mm, t->dead, t->mv, bppsa_cli_si((double)t->mm_flops, "", text[0], sizeof text[0]),
                         bppsa_cli_si((double)t->mv_flops, "", text[1], sizeof text[1]), t->critical_steps,
                         bppsa_cli_si((double)t->critical_flops, "FLOP", text[2], sizeof text[2]),
                         bppsa_cli_si((double)t->workspace_bytes, "B", text[3], sizeof text[3]),
                         bppsa_scan_plan_config(f->plan)->batch);
}

/* Everything that needs memory comes before the drawing's file and before what is printed. */
static bppsa_status show(bppsa_cli *cli, const bppsa_flops *f, char **document) {
  if (cli->json) {
    bppsa_json_start();
    BPPSA_TRY(bppsa_cli_render(plan_json(cli, f), document));
  }
  BPPSA_TRY(bppsa_flops_draw(cli, f));
  return cli->json ? bppsa_cli_print_document(cli, *document) : print_plan(cli, f);
}

static bppsa_status run(bppsa_cli *cli) {
  bppsa_flops flops = {0};
  char *document = NULL;
  BPPSA_TRY(bppsa_flops_check_paths(cli));
  bppsa_status status = bppsa_flops_count(cli, &flops);
  status = status == BPPSA_OK ? show(cli, &flops, &document) : status;
  bppsa_free(document);
  bppsa_flops_free(&flops);
  return status;
}

#define PLAN(id, name, what)                                                                                                     \
  const bppsa_command bppsa_command_plan_##id = {.verb = "plan",                                                                 \
                                                 .object = (name),                                                               \
                                                 .summary = "Shows the plan of " what " sparse scan",                            \
                                                 .example = "plan " name " --up-levels 2",                                       \
                                                 .notes = notes,                                                                 \
                                                 .uses = uses,                                                                   \
                                                 .run = run}
PLAN(lenet5, "lenet5", "LeNet-5's");
PLAN(vgg11, "vgg11", "VGG-11's");
PLAN(file, BPPSA_FILE_OBJECT, "a network file's");
