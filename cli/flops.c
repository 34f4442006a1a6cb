/* `bppsa flops NETWORK`: what every step of the sparse scan costs (BPPSA §4.3, figure 10).
 *
 * A product counts 2 FLOPs for each matching pair. BP counts 2 FLOPs for each entry of every pattern that it applies. Both follow
 * the same rule (scan/work.h).
 */
#include <string.h>

#include "cli/setup_flops.h"

/* levels: what --up-levels is unless it is given. */
#define USES(levels)                                                                                                             \
  {                                                                                                                              \
    BPPSA_IN_SHAPE_USE, BPPSA_USE(PRUNE), {.option = BPPSA_OPTION_METHOD, .help = "of pruning, see bppsa prune"},                \
        BPPSA_USE(STRUCTURE),                                                                                                    \
        {.option = BPPSA_OPTION_SEED, .help = "of the weights, PyTorch's initialisation, and of an image where none is given"},  \
        {.option = BPPSA_OPTION_PATTERN, .meaning = &bppsa_meaning_flops_pattern},                                               \
        {.option = BPPSA_OPTION_UP_LEVELS, .meaning = &bppsa_meaning_levels_auto_or_none, .fallback = (levels)},                 \
        {.option = BPPSA_OPTION_INPUT_GRAD, .help = "count the step to the input's gradient too"},                               \
        {.option = BPPSA_OPTION_BATCH, .fallback = "1", .help = "samples whose products are held"}, BPPSA_USE(DTYPE),            \
        {.option = BPPSA_OPTION_WEIGHTS, .help = "weights instead of random ones; those that are 0 are left out"},               \
        {.option = BPPSA_OPTION_INPUT, .help = "images [B,C,H,W] whose values are counted, the mean over them"},                 \
        {.option = BPPSA_OPTION_LABELS, .help = "int64 labels [B]: the seed is dense whatever they are"},                        \
        {.option = BPPSA_OPTION_MEMORY_LIMIT,                                                                                    \
         .help = "of patterns, and of held products: auto takes fewer levels, a given number is refused"},                       \
        {.option = BPPSA_OPTION_MASK, .metavar = "M.safetensors", .help = BPPSA_PRUNED_MASK_HELP},                               \
        {.option = BPPSA_OPTION_CSV, .help = "the layers, with a row for each"},                                                 \
        {.option = BPPSA_OPTION_SVG, .help = "bars of the layers' FLOPs, and over them the scan's steps beside BP's"},           \
        BPPSA_USES_END                                                                                                           \
  }
static const bppsa_option_use uses_AUTO[] = USES("auto"), uses_NONE[] = USES("none");

static const char notes[] =
    "Three kinds of patterns. Without --prune and --weights every weight counts, by the operators' "
    "structure alone. With them, weights "
    "that\n"
    "are pruned or 0 are left out: these patterns are guaranteed, whatever the input, and execution uses "
    "them. --pattern value leaves out "
    "what\n"
    "dead ReLUs and pools drop at real inputs too, as the published figure does; no plan can be "
    "made ahead of time with these.\n"
    "BP beside the scan computes the same gradients: between layers, of the input with --input-grad only, over the "
    "same patterns or\n"
    "with all weights. 2 FLOPs an entry it applies, 2 a matching pair of a product: 0 up-levels are 1.00 times "
    "BP. docs/flops.md has\n"
    "the derivation.\n"
    "--up-levels none counts the layers alone, also of networks whose scan does not fit into memory: forward, and backward to "
    "inputs "
    "and\n"
    "weights; dense (with the padding, as PyTorch counts), and of the weights that are kept.\n";

static bppsa_status run(bppsa_cli *cli) {
  const bool layers = strcmp(bppsa_cli_value(cli, BPPSA_OPTION_UP_LEVELS)->text, "none") == 0;
  const bppsa_flops_forms alone = {bppsa_layer_table_json, bppsa_layer_table_text, bppsa_setup_flops_picture};
  const bppsa_flops_forms scanned = {bppsa_flops_json, bppsa_flops_text, bppsa_setup_flops_picture};
  return bppsa_setup_flops_run(cli, layers ? &alone : &scanned);
}

#define FLOPS(id, name, what, words, takes)                                                                                      \
  const bppsa_command bppsa_command_flops_##id = {.verb = "flops",                                                               \
                                                  .object = (name),                                                              \
                                                  .summary = "Counts the FLOPs of " what                                         \
                                                             " layers and of every step of its sparse scan",                     \
                                                  .example = "flops " words,                                                     \
                                                  .notes = notes,                                                                \
                                                  .uses = (takes),                                                               \
                                                  .run = run}
#define EXAMPLE_AUTO " --prune 0.97 --up-levels 2"
#define EXAMPLE_NONE " --prune 0.9 --csv layers.csv --svg layers.svg"
#define IMAGES(id, words, shape, levels) FLOPS(id, #id, words "'s", #id EXAMPLE_##levels, uses_##levels);
#include "networks/image_networks.inc"
FLOPS(file, BPPSA_NETWORK_FILE, "a network file's", "net.json --prune 0.9 --up-levels auto", uses_AUTO);
