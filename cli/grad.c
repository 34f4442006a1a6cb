/* `bppsa grad MODEL`: the gradients of one batch, written as a safetensors file. */
#include "cli/ranks.h"
#include "cli/setup.h"
#include "runs/gradients.h"

/* The options of recurrent networks; `only` adds the options of one cell. */
#define USES(only)                                                                                                               \
  {                                                                                                                              \
    {.option = BPPSA_OPTION_LAYERS, .fallback = ""}, {.option = BPPSA_OPTION_HIDDEN, .fallback = ""}, only BPPSA_USE(NO_BIAS),   \
        BPPSA_USE(BIDIRECTIONAL), {.option = BPPSA_OPTION_RESET_STATE, .fallback = ""},                                          \
        {.option = BPPSA_OPTION_LOSS, .meaning = &bppsa_meaning_train_loss}, BPPSA_USE(IGNORE_LABEL), BPPSA_FORWARD_USES,        \
        BPPSA_BACKWARD_USES, BPPSA_USE(RECOMPUTE_EVERY), BPPSA_USE(INPUT_GRADIENTS), BPPSA_USE(CERTIFY), BPPSA_USE(ALGORITHM),   \
        BPPSA_USE(UP_LEVELS), BPPSA_USE(CHUNKS), BPPSA_USE(PLAN), BPPSA_USE(DEVICE),                                             \
        {.option = BPPSA_OPTION_DTYPE, .fallback = ""}, BPPSA_USE(THREADS), BPPSA_RANKS_USES,                                    \
        {.option = BPPSA_OPTION_MEMORY_LIMIT, .help = BPPSA_REFUSE_HELP}, {.option = BPPSA_OPTION_WEIGHTS, .required = true},    \
        BPPSA_USE(PREFIX), {.option = BPPSA_OPTION_INPUT, .required = true}, BPPSA_USE(LABELS), BPPSA_USE(GRAD_OUTPUT),          \
        BPPSA_USE(LENGTHS), BPPSA_USE(RESETS), BPPSA_USE(LOSS_WEIGHTS), BPPSA_USE(H0), BPPSA_USE(C0),                            \
        {.option = BPPSA_OPTION_OUT, .required = true}, BPPSA_USES_END                                                           \
  }
#define CELL(id, words, functions, rate, sweep) static const bppsa_option_use uses_##id[] = USES(BPPSA_OPTIONS_##functions);
#include "networks/cells.inc"

/* The options of convolutional networks. */
static const bppsa_option_use uses_cnn[] = {
    BPPSA_IN_SHAPE_USE,
    {.option = BPPSA_OPTION_LOSS, .meaning = &bppsa_meaning_train_loss, .help = BPPSA_IMAGES_LOSS_HELP},
    BPPSA_USE(IGNORE_LABEL),
    {.option = BPPSA_OPTION_MASK, .metavar = "M.safetensors", .help = BPPSA_MASK_HELP},
    {.option = BPPSA_OPTION_BATCH_NORM,
     .fallback = "given",
     .help = "statistics that batch norms normalise by: the given running ones, or the batch's as in training, by BP alone"},
    BPPSA_USE(BACKWARD),
    BPPSA_USE(ALGORITHM),
    BPPSA_USE(UP_LEVELS),
    BPPSA_USE(PLAN),
    BPPSA_USE(WEIGHT_GRADIENTS),
    BPPSA_USE(DEVICE),
    {.option = BPPSA_OPTION_DTYPE, .fallback = ""},
    BPPSA_USE(THREADS),
    BPPSA_RANKS_USES,
    {.option = BPPSA_OPTION_MEMORY_LIMIT, .help = BPPSA_REFUSE_HELP},
    {.option = BPPSA_OPTION_WEIGHTS, .required = true},
    BPPSA_USE(PREFIX),
    {.option = BPPSA_OPTION_INPUT, .required = true, .help = "input [B,C,H,W]"},
    {.option = BPPSA_OPTION_LABELS, .required = true, .help = "int64 labels [B]; with --loss mse or bce reals [B,C]"},
    {.option = BPPSA_OPTION_OUT, .required = true},
    BPPSA_USES_END};

/* Checks that there are either labels and a loss, or the gradient of the states. */
static bppsa_status check_labels(const bppsa_cli *cli) {
  static const bppsa_option of_loss[] = {BPPSA_OPTION_LABELS, BPPSA_OPTION_LOSS, BPPSA_OPTION_IGNORE_LABEL,
                                         BPPSA_OPTION_LOSS_WEIGHTS};
  const bool given = bppsa_cli_value(cli, BPPSA_OPTION_GRAD_OUTPUT)->given;
  for (size_t i = 0; given && i < sizeof of_loss / sizeof of_loss[0]; ++i) {
    if (bppsa_cli_value(cli, of_loss[i])->given) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT,
                        "%s: given beside --grad-output, which takes the place of a loss, expected one of them",
                        bppsa_option_get(of_loss[i])->name);
    }
  }
  return given || bppsa_cli_value(cli, BPPSA_OPTION_LABELS)->given
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT,
                          "--labels: option missing in 'grad %s', expected the path of an NPY file, or "
                          "--grad-output G.npy",
                          cli->command->object);
}

static bppsa_status load(const bppsa_cli *cli, bppsa_gradients *g) {
  const bppsa_gradients_files files = {.input = bppsa_cli_value(cli, BPPSA_OPTION_INPUT)->text,
                                       .labels = bppsa_cli_value(cli, BPPSA_OPTION_LABELS)->text,
                                       .grad_output = bppsa_cli_value(cli, BPPSA_OPTION_GRAD_OUTPUT)->text,
                                       .h0 = bppsa_cli_value(cli, BPPSA_OPTION_H0)->text,
                                       .c0 = bppsa_cli_value(cli, BPPSA_OPTION_C0)->text,
                                       .lengths = bppsa_cli_value(cli, BPPSA_OPTION_LENGTHS)->text,
                                       .resets = bppsa_cli_value(cli, BPPSA_OPTION_RESETS)->text,
                                       .loss_weights = bppsa_cli_value(cli, BPPSA_OPTION_LOSS_WEIGHTS)->text};
  BPPSA_TRY(check_labels(cli));
  BPPSA_TRY(bppsa_setup_network(cli, &g->network));
  g->config = bppsa_network_config_default(&g->network);
  g->config.steps.no_head = files.grad_output != NULL;
  BPPSA_TRY(bppsa_setup_config(cli, BPPSA_RUNS_ONE, &g->config));
  BPPSA_TRY(bppsa_setup_device(cli, &g->device));
  bppsa_setup_limit(cli, g->device, &g->config);
  BPPSA_TRY(bppsa_setup_weights(cli, &g->network, &g->config, &g->file));
  BPPSA_TRY(bppsa_setup_objective(cli, g->file, &g->objective));
  g->objective.kind = files.grad_output != NULL ? BPPSA_LOSS_NONE : g->objective.kind;
  return bppsa_gradients_load(&files, g);
}

static bppsa_status choose(const bppsa_cli *cli, bppsa_gradients *g) {
  g->config.input_gradients = true;
  g->chosen = bppsa_chosen_of(&g->config.method);
  return bppsa_setup_choose(cli, &g->network, g->device, &g->config, &g->chosen);
}

static bppsa_status create(const bppsa_cli *cli, bppsa_gradients *g) {
  BPPSA_TRY(bppsa_rank_network_create(&g->network, &g->config, g->device, &g->on, &g->model));
  if (bppsa_ranks_first(g->on.comm)) {
    const bppsa_gradient_method method = bppsa_rank_network_method(&g->network, &g->config, &g->on, g->model);
    bppsa_setup_note_scan(cli, &method);
    bppsa_setup_note_forward(cli, bppsa_forward_plan_of(g->model));
    bppsa_setup_note_backward(cli, &g->config.method, bppsa_backward_plan_of(g->model));
  }
  return bppsa_setup_model(cli, &g->network, g->file, g->model);
}

static bppsa_status compute(const bppsa_cli *cli, bppsa_gradients *g) {
  g->certifies = bppsa_cli_given(cli, BPPSA_OPTION_CERTIFY);
  BPPSA_TRY(load(cli, g));
  BPPSA_TRY(choose(cli, g));
  BPPSA_TRY(create(cli, g));
  return bppsa_gradients_compute(g);
}

/* Loads the batch, and chooses the method for as many samples as a rank's model takes at once. A network cut along time chooses its
 * method when it is made. */
static bppsa_status prepare_on_ranks(const bppsa_cli *cli, bppsa_gradients *g) {
  if (bppsa_cli_given(cli, BPPSA_OPTION_CERTIFY)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--certify: given beside ranks, which compute parts of the batch, expected no ranks");
  }
  BPPSA_TRY(load(cli, g));
  BPPSA_TRY(bppsa_ranks_setup(cli, &g->network, g->config.batch, "the batch", 0, &g->on, &g->config));
  g->config.input_gradients = true;
  g->chosen = bppsa_chosen_of(&g->config.method);
  return bppsa_rank_network_cut(&g->on) ? BPPSA_OK : choose(cli, g);
}

static bppsa_status compute_on_ranks(const bppsa_cli *cli, bppsa_gradients *g) {
  bppsa_comm *comm = g->on.comm;
  BPPSA_TRY(bppsa_job_agree(comm, prepare_on_ranks(cli, g)));
  BPPSA_TRY(bppsa_chosen_share(comm, &g->config.method, &g->chosen));
  BPPSA_TRY(bppsa_job_agree(comm, create(cli, g)));
  bppsa_comm_at(comm, "the gradients", -1);
  return bppsa_gradients_compute_on_ranks(&g->on, g);
}

static bppsa_status render(const bppsa_cli *cli, const bppsa_gradients *g, bppsa_text *shown) {
  if (cli->to.json) {
    return bppsa_json_render(bppsa_gradients_json(g), &shown->text);
  }
  bppsa_gradients_text(g, bppsa_cli_value(cli, BPPSA_OPTION_OUT)->text, shown);
  return bppsa_text_check(shown);
}

static bppsa_status report(const bppsa_cli *cli, const bppsa_gradients *g) {
  bppsa_text shown = {0};
  bppsa_status status = render(cli, g, &shown);
  status = status == BPPSA_OK ? bppsa_gradients_save(g, bppsa_cli_value(cli, BPPSA_OPTION_OUT)->text) : status;
  status = status == BPPSA_OK ? bppsa_setup_show(cli, &shown) : status;
  bppsa_text_free(&shown);
  return status;
}

static bppsa_status run_rank(bppsa_cli *cli, bppsa_comm *comm) {
  bppsa_gradients g = {.on = {.comm = comm}};
  bppsa_status status = comm != NULL ? compute_on_ranks(cli, &g) : compute(cli, &g);
  status = status == BPPSA_OK && bppsa_ranks_first(comm) ? report(cli, &g) : status;
  bppsa_gradients_free(&g);
  return status;
}

static bppsa_status run(bppsa_cli *cli) {
  return bppsa_ranks_run(cli, run_rank);
}

#define GRAD(id, name, word, scan, takes)                                                                                        \
  const bppsa_command bppsa_command_grad_##id = {                                                                                \
      .verb = "grad",                                                                                                            \
      .object = (name),                                                                                                          \
      .summary = "Gradients of one batch by BP or by the " scan ", for weights from PyTorch",                                    \
      .example = "grad " word " --weights W.safetensors --input X.npy --labels Y.npy --out G.safetensors",                       \
      .uses = (takes),                                                                                                           \
      .run = run}
#define CELL(id, words, functions, rate, sweep) GRAD(id, #id, #id, "scan", uses_##id);
#include "networks/cells.inc"
#define IMAGES(id, words, shape, levels) GRAD(id, #id, #id, "sparse scan", uses_cnn);
#include "networks/image_networks.inc"
GRAD(file, BPPSA_NETWORK_FILE, "net.json", "sparse scan", uses_cnn);
