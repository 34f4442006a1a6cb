/* `bppsa plan MODEL`: the plan of a model's backward pass, as a table, as JSON, as a drawing. */
#include "cli/ranks.h"
#include "cli/setup_flops.h"
#include "core/files/file.h"
#include "distributed/time/split_time.h"
#include "runs/layer_plans.h"
#include "runs/plan_draw.h"

/* The options of recurrent networks; `only` adds the options of one cell. */
#define USES(only)                                                                                                               \
  {                                                                                                                              \
    BPPSA_USE(LAYERS), BPPSA_USE(HIDDEN), BPPSA_USE(BIDIRECTIONAL), only BPPSA_USE(LOSS),                                        \
        {.option = BPPSA_OPTION_SEQ_LEN, .fallback = "1000"}, BPPSA_USE(BATCH), BPPSA_FORWARD_USES,                              \
        {.option = BPPSA_OPTION_BACKWARD,                                                                                        \
         .meaning = &bppsa_meaning_any_backward,                                                                                 \
         .fallback = "scan",                                                                                                     \
         .help = "whose plan to show; auto and speculative: with the predicted seconds of all"},                                 \
        BPPSA_USE(BACKWARD_CHUNKS), BPPSA_USE(BACKWARD_WARM_UP), BPPSA_USE(BACKWARD_TOLERANCE), BPPSA_USE(ALGORITHM),            \
        BPPSA_USE(UP_LEVELS), BPPSA_USE(CHUNKS), BPPSA_USE(RECOMPUTE_EVERY), BPPSA_USE(INPUT_GRAD), BPPSA_USE(DTYPE),            \
        {.option = BPPSA_OPTION_DEVICE, .help = "what auto chooses for; it need not be there"},                                  \
        {.option = BPPSA_OPTION_RANKS, .help = "show what each of P ranks holds and sends"},                                     \
        {.option = BPPSA_OPTION_SPLIT, .fallback = "time"},                                                                      \
        {.option = BPPSA_OPTION_SVG, .help = "a drawing of the plan's levels, or of chunks of time"}, BPPSA_USES_END             \
  }
#define CELL(id, words, functions, rate, sweep) static const bppsa_option_use uses_##id[] = USES(BPPSA_OPTIONS_##functions);
#include "networks/cells.inc"

/* The options of convolutional networks. Their plan is made over the patterns that hold for any input. */
static const bppsa_option_use uses_cnn[] = {
    BPPSA_IN_SHAPE_USE,
    BPPSA_USE(PRUNE),
    {.option = BPPSA_OPTION_METHOD, .help = "of pruning, see bppsa prune"},
    BPPSA_USE(STRUCTURE),
    {.option = BPPSA_OPTION_SEED, .help = "of the weights that are pruned"},
    {.option = BPPSA_OPTION_WEIGHTS, .help = "weights instead of random ones; those that are 0 are left out"},
    {.option = BPPSA_OPTION_BATCH, .fallback = "256"},
    {.option = BPPSA_OPTION_UP_LEVELS, .meaning = &bppsa_meaning_levels_or_auto},
    BPPSA_USE(INPUT_GRAD),
    BPPSA_USE(DTYPE),
    {.option = BPPSA_OPTION_MEMORY_LIMIT,
     .help = "of patterns, and of held products: auto takes fewer levels, a given number is refused"},
    {.option = BPPSA_OPTION_MASK, .metavar = "M.safetensors", .help = BPPSA_PRUNED_MASK_HELP},
    BPPSA_USE(SVG),
    BPPSA_USES_END};

static const char cnn_notes[] =
    "Nothing of a product's size is made unless weights are pruned: those are planned entry by entry. 0 up-levels are the "
    "recurrence\n"
    "itself. bppsa flops has the operators, BP beside the scan, and patterns of real inputs.\n";

/* ---- recurrent networks ---- */

static bppsa_status render(const bppsa_cli *cli, const bppsa_layer_plans *plans, bppsa_text *shown) {
  if (cli->to.json) {
    return bppsa_json_render(bppsa_layer_plans_json(plans), &shown->text);
  }
  bppsa_layer_plans_text(plans, shown);
  return bppsa_text_check(shown);
}

/* Draws the top layer's plan, or the chunks of speculative BP. */
static bppsa_status draw(const bppsa_cli *cli, const bppsa_layer_plans *plans) {
  const bppsa_option_value *svg = bppsa_cli_value(cli, BPPSA_OPTION_SVG);
  bppsa_text drawing = {0};
  if (!svg->given) {
    return BPPSA_OK;
  }
  bppsa_status status = plans->backward.method.backward == BPPSA_BACKWARD_SPECULATIVE
                            ? bppsa_backward_report_draw(&plans->backward, &drawing)
                            : bppsa_plan_draw(&(bppsa_plan_picture){.plan = plans->plans[plans->config.layers - 1]}, &drawing);
  status = status == BPPSA_OK ? bppsa_file_write(svg->text, drawing.text, drawing.size) : bppsa_fail_prefix(status, "--svg");
  bppsa_text_free(&drawing);
  return status;
}

/* Says where a plan has other numbers than were asked for. */
static void note_numbers(const bppsa_cli *cli, const bppsa_layer_plans *plans) {
  const bppsa_gradient_method method = bppsa_scan_plan_method(plans->plans[plans->config.layers - 1]);
  const bool speculates = plans->backward.method.backward == BPPSA_BACKWARD_SPECULATIVE && plans->backward.plan.speculative;
  bppsa_setup_note_scan(cli, &method);
  bppsa_setup_note_forward(cli, &plans->forward);
  bppsa_setup_note_backward(cli, &plans->backward.method, speculates ? &plans->backward.plan : NULL);
}

static bppsa_status run(bppsa_cli *cli) {
  const bppsa_network network = {.kind = bppsa_setup_kind(cli)};
  bppsa_network_config config = bppsa_network_config_default(&network);
  bppsa_layer_plans plans = {0};
  bppsa_text shown = {0};
  bppsa_device_kind device;
  bppsa_rank_split split;
  int32_t index;
  BPPSA_TRY(bppsa_setup_config(cli, BPPSA_RUNS_ONE, &config));
  BPPSA_TRY(bppsa_device_parse(bppsa_cli_value(cli, BPPSA_OPTION_DEVICE)->text, &device, &index));
  config.input_gradients = bppsa_cli_value(cli, BPPSA_OPTION_INPUT_GRAD)->given;
  BPPSA_TRY(bppsa_ranks_split(cli, &network, config.batch, &split));
  if (split.time > 1) {
    bppsa_split_time_numbers(split.time, device == BPPSA_CUDA, config.steps.hidden, &config.method);
  }
  const bppsa_recurrent_config recurrent = bppsa_network_recurrent_config(&config);
  bppsa_status status = bppsa_layer_plans_make(network.kind, &recurrent, device, &split, &plans);
  if (status == BPPSA_OK) {
    note_numbers(cli, &plans);
    status = render(cli, &plans, &shown);
  }
  status = status == BPPSA_OK ? draw(cli, &plans) : status;
  status = status == BPPSA_OK ? bppsa_setup_show(cli, &shown) : status;
  bppsa_text_free(&shown);
  bppsa_layer_plans_free(&plans);
  return status;
}

#define PLAN_RECURRENT(name)                                                                                                     \
  const bppsa_command bppsa_command_plan_##name = {.verb = "plan",                                                               \
                                                   .object = #name,                                                              \
                                                   .summary =                                                                    \
                                                       "Shows the plan of gradients: levels, products, FLOPs, critical path",    \
                                                   .example = "plan " #name " --seq-len 1000 --algorithm blelloch",              \
                                                   .uses = uses_##name,                                                          \
                                                   .run = run}
#define CELL(id, words, functions, rate, sweep) PLAN_RECURRENT(id);
#include "networks/cells.inc"

/* ---- convolutional networks ---- */

static bppsa_status run_cnn(bppsa_cli *cli) {
  return bppsa_setup_flops_run(cli, &(bppsa_flops_forms){bppsa_flops_plan_json, bppsa_flops_plan_text, bppsa_flops_draw});
}

#define PLAN(id, name, network, what)                                                                                            \
  const bppsa_command bppsa_command_plan_##id = {.verb = "plan",                                                                 \
                                                 .object = (name),                                                               \
                                                 .summary = "Shows the plan of " what " sparse scan",                            \
                                                 .example = "plan " network " --up-levels 2",                                    \
                                                 .notes = cnn_notes,                                                             \
                                                 .uses = uses_cnn,                                                               \
                                                 .run = run_cnn}
#define IMAGES(id, words, shape, levels) PLAN(id, #id, #id shape, words "'s");
#include "networks/image_networks.inc"
PLAN(file, BPPSA_NETWORK_FILE, "net.json", "a network file's");
