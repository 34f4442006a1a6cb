/* `bppsa grad MODEL`: the gradients of one batch, written as a safetensors file. */
#include "cli/setup.h"
#include "models/gradients.h"

/* The options that grad rnn and grad gru both take; `only` adds those of one of them. */
#define USES(only)                                                                                                               \
  {                                                                                                                              \
    {.option = BPPSA_OPTION_LAYERS, .fallback = ""}, {.option = BPPSA_OPTION_HIDDEN, .fallback = ""},                            \
        only{.option = BPPSA_OPTION_TRAIN_LOSS}, {.option = BPPSA_OPTION_IGNORE_LABEL}, {.option = BPPSA_OPTION_BACKWARD},       \
        {.option = BPPSA_OPTION_ALGORITHM}, {.option = BPPSA_OPTION_UP_LEVELS}, {.option = BPPSA_OPTION_CHUNKS},                 \
        {.option = BPPSA_OPTION_PLAN}, {.option = BPPSA_OPTION_DEVICE}, {.option = BPPSA_OPTION_DTYPE, .fallback = ""},          \
        {.option = BPPSA_OPTION_THREADS}, {.option = BPPSA_OPTION_MEMORY_LIMIT, .help = BPPSA_REFUSE_HELP},                      \
        {.option = BPPSA_OPTION_WEIGHTS, .required = true}, {.option = BPPSA_OPTION_PREFIX},                                     \
        {.option = BPPSA_OPTION_INPUT, .required = true}, {.option = BPPSA_OPTION_LABELS, .required = true},                     \
        {.option = BPPSA_OPTION_H0}, {.option = BPPSA_OPTION_OUT, .required = true}, {.option = BPPSA_OPTION_JSON},              \
        {.option = BPPSA_OPTION_HELP}, {                                                                                         \
      .option = BPPSA_OPTION_COUNT                                                                                               \
    }                                                                                                                            \
  }
#define RNN_ONLY {.option = BPPSA_OPTION_NONLINEARITY},
static const bppsa_option_use uses_rnn[] = USES(RNN_ONLY), uses_gru[] = USES();

/* The options of convolutional networks. */
static const bppsa_option_use uses_cnn[] = {
    {.option = BPPSA_OPTION_TRAIN_LOSS, .help = BPPSA_IMAGES_LOSS_HELP},
    {.option = BPPSA_OPTION_IGNORE_LABEL},
    {.option = BPPSA_OPTION_MASK, .metavar = "M.safetensors", .help = BPPSA_MASK_HELP},
    {.option = BPPSA_OPTION_BACKWARD},
    {.option = BPPSA_OPTION_ALGORITHM},
    {.option = BPPSA_OPTION_UP_LEVELS},
    {.option = BPPSA_OPTION_PLAN},
    {.option = BPPSA_OPTION_WEIGHT_GRADIENTS},
    {.option = BPPSA_OPTION_DEVICE},
    {.option = BPPSA_OPTION_DTYPE, .fallback = ""},
    {.option = BPPSA_OPTION_THREADS},
    {.option = BPPSA_OPTION_MEMORY_LIMIT, .help = BPPSA_REFUSE_HELP},
    {.option = BPPSA_OPTION_WEIGHTS, .required = true},
    {.option = BPPSA_OPTION_PREFIX},
    {.option = BPPSA_OPTION_INPUT, .required = true, .help = "input [B,C,H,W]"},
    {.option = BPPSA_OPTION_LABELS, .required = true, .help = "int64 labels [B]; with --loss mse reals [B,C]"},
    {.option = BPPSA_OPTION_OUT, .required = true},
    {.option = BPPSA_OPTION_JSON},
    {.option = BPPSA_OPTION_HELP},
    {.option = BPPSA_OPTION_COUNT}};

static bppsa_status compute(const bppsa_cli *cli, bppsa_gradients *g) {
  BPPSA_TRY(bppsa_setup_network(cli, &g->network));
  g->config = bppsa_network_config_default(&g->network);
  BPPSA_TRY(bppsa_setup_config(cli, BPPSA_RUNS_ONE, &g->config));
  BPPSA_TRY(bppsa_setup_device(cli, &g->device));
  BPPSA_TRY(bppsa_setup_weights(cli, &g->network, &g->config, &g->file));
  BPPSA_TRY(bppsa_setup_objective(cli, g->file, &g->objective));
  BPPSA_TRY(bppsa_gradients_load(bppsa_cli_value(cli, BPPSA_OPTION_INPUT)->text, bppsa_cli_value(cli, BPPSA_OPTION_LABELS)->text,
                                 bppsa_cli_value(cli, BPPSA_OPTION_H0)->text, g));
  g->config.input_gradients = true;
  g->chosen = bppsa_chosen_of(&g->config.method);
  BPPSA_TRY(bppsa_setup_choose(cli, &g->network, g->device, &g->config, &g->chosen));
  BPPSA_TRY(bppsa_network_create(&g->network, &g->config, g->device, &g->model));
  BPPSA_TRY(bppsa_setup_model(cli, &g->network, g->file, g->model));
  return bppsa_gradients_compute(g);
}

static bppsa_status render(const bppsa_cli *cli, const bppsa_gradients *g, bppsa_text *shown) {
  if (cli->to.json) {
    return bppsa_json_render(bppsa_gradients_json(g), &shown->text);
  }
  bppsa_gradients_text(g, shown);
  bppsa_text_add(shown, "\nloss %.6f, written to %s\n", g->loss, bppsa_cli_value(cli, BPPSA_OPTION_OUT)->text);
  return bppsa_text_check(shown);
}

static bppsa_status run(bppsa_cli *cli) {
  bppsa_gradients g = {0};
  bppsa_text shown = {0};
  bppsa_status status = compute(cli, &g);
  status = status == BPPSA_OK ? render(cli, &g, &shown) : status;
  status = status == BPPSA_OK ? bppsa_gradients_save(&g, bppsa_cli_value(cli, BPPSA_OPTION_OUT)->text) : status;
  status = status == BPPSA_OK ? bppsa_setup_show(cli, &shown) : status;
  bppsa_text_free(&shown);
  bppsa_gradients_free(&g);
  return status;
}

#define GRAD(id, name, word, scan, takes)                                                                                        \
  const bppsa_command bppsa_command_grad_##id = {                                                                                \
      .verb = "grad",                                                                                                            \
      .object = (name),                                                                                                          \
      .summary = "Gradients of one batch by BP or by the " scan ", for weights from PyTorch",                                    \
      .example = "grad " word " --weights W.safetensors --input X.npy --labels Y.npy --out G.safetensors",                       \
      .uses = (takes),                                                                                                           \
      .run = run}
GRAD(rnn, "rnn", "rnn", "scan", uses_rnn);
GRAD(gru, "gru", "gru", "scan", uses_gru);
GRAD(lenet5, "lenet5", "lenet5", "sparse scan", uses_cnn);
GRAD(vgg11, "vgg11", "vgg11", "sparse scan", uses_cnn);
GRAD(file, BPPSA_NETWORK_FILE, "net.json", "sparse scan", uses_cnn);
