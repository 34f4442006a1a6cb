/* `bppsa eval MODEL`: loss and accuracy of trained weights on a data set. */
#include "cli/ranks.h"
#include "cli/setup.h"
#include "runs/eval_report.h"
#include "runs/eval_run.h"

#define OUT_HELP "logits and predictions of every sample, in the data's order; numpy.load reads it"

/* The options of recurrent networks; `only` adds the options of one cell. */
#define USES(only)                                                                                                               \
  {                                                                                                                              \
    {.option = BPPSA_OPTION_LAYERS, .fallback = ""}, {.option = BPPSA_OPTION_HIDDEN, .fallback = ""}, only BPPSA_USE(NO_BIAS),   \
        BPPSA_USE(BIDIRECTIONAL), {.option = BPPSA_OPTION_RESET_STATE, .fallback = ""},                                          \
        {.option = BPPSA_OPTION_LOSS, .meaning = &bppsa_meaning_train_loss}, BPPSA_USE(IGNORE_LABEL), BPPSA_USE(DATA),           \
        BPPSA_USE(SET), BPPSA_USE(PADDING), BPPSA_USE(SAMPLES), BPPSA_USE(SEQ_LEN),                                              \
        {.option = BPPSA_OPTION_INPUT, .meaning = &bppsa_meaning_input_size}, BPPSA_USE(BATCH), BPPSA_USE(VALIDATION),           \
        BPPSA_USE(LENGTHS), BPPSA_USE(RESETS), BPPSA_USE(LOSS_WEIGHTS), BPPSA_USE(PACK), BPPSA_USE(STATEFUL),                    \
        {.option = BPPSA_OPTION_SEED, .help = "of the data"}, BPPSA_FORWARD_USES, BPPSA_USE(DEVICE),                             \
        {.option = BPPSA_OPTION_DTYPE, .fallback = ""}, BPPSA_USE(THREADS), BPPSA_RANKS_USES,                                    \
        {.option = BPPSA_OPTION_WEIGHTS, .required = true}, BPPSA_USE(PREFIX),                                                   \
        {.option = BPPSA_OPTION_OUT, .metavar = "P.npz", .help = OUT_HELP}, BPPSA_USE(STATES), BPPSA_USES_END                    \
  }
#define CELL(id, words, functions, rate, sweep) static const bppsa_option_use uses_##id[] = USES(BPPSA_OPTIONS_##functions);
#include "networks/cells.inc"

/* The options of convolutional networks. */
static const bppsa_option_use uses_cnn[] = {
    {.option = BPPSA_OPTION_LOSS, .meaning = &bppsa_meaning_train_loss, .help = BPPSA_IMAGES_LOSS_HELP},
    BPPSA_USE(IGNORE_LABEL),
    {.option = BPPSA_OPTION_DATA, .fallback = "", .required = true, .help = BPPSA_IMAGES_HELP},
    {.option = BPPSA_OPTION_SAMPLES, .help = "images in front of those held out"},
    {.option = BPPSA_OPTION_BATCH, .fallback = "256"},
    {.option = BPPSA_OPTION_VALIDATION, .help = BPPSA_IMAGES_VALIDATION_HELP},
    BPPSA_USE(DEVICE),
    {.option = BPPSA_OPTION_DTYPE, .fallback = ""},
    BPPSA_USE(THREADS),
    BPPSA_RANKS_USES,
    {.option = BPPSA_OPTION_WEIGHTS, .required = true},
    BPPSA_USE(PREFIX),
    {.option = BPPSA_OPTION_OUT, .metavar = "P.npz", .help = OUT_HELP},
    BPPSA_USE(STATES),
    BPPSA_USES_END};

static bppsa_status prepare(const bppsa_cli *cli, bppsa_eval_run *e) {
  bppsa_objective objective;
  const bppsa_option_value *out = bppsa_cli_value(cli, BPPSA_OPTION_OUT);
  BPPSA_TRY(bppsa_eval_run_check_out(out->text, bppsa_cli_value(cli, BPPSA_OPTION_STATES)->given));
  BPPSA_TRY(bppsa_setup_network(cli, &e->network));
  e->config = bppsa_network_config_default(&e->network);
  BPPSA_TRY(bppsa_setup_config(cli, BPPSA_RUNS_ONE, &e->config));
  BPPSA_TRY(bppsa_setup_weights(cli, &e->network, &e->config, &e->file));
  BPPSA_TRY(bppsa_setup_objective(cli, e->file, &objective));
  BPPSA_TRY(bppsa_setup_device(cli, &e->device));
  BPPSA_TRY(bppsa_setup_dataset(cli, e->device, &e->config, &objective, &e->dataset));
  double validation = bppsa_cli_value(cli, BPPSA_OPTION_VALIDATION)->real;
  BPPSA_TRY(bppsa_setup_pack(cli, &e->network, e->device, NULL, e->on.comm != NULL, &validation, &e->config, &e->dataset,
                             &e->pack_times));
  if (out->given && e->dataset->packing != NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "--out: given beside --pack, whose rows hold samples in another order, expected one of them");
  }
  BPPSA_TRY(bppsa_setup_streams(cli, e->on.comm != NULL, &e->config, e->dataset));
  BPPSA_TRY(bppsa_eval_run_fit(e, bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->text, validation));
  if (bppsa_ranks_first(e->on.comm)) {
    bppsa_setup_note_option(cli, BPPSA_OPTION_BATCH, e->config.batch);
    bppsa_setup_note_classes(cli, e->dataset);
  }
  if (e->on.comm == NULL) {
    return BPPSA_OK;
  }
  /* Ranks share the batches, and each takes whole ones; ranks along time share the steps. Only a run without ranks writes --out,
   * whose samples are in order. */
  BPPSA_TRY(bppsa_ranks_setup(cli, &e->network, e->count, "the evaluation", e->config.batch, &e->on, &e->config));
  return out->given ? bppsa_fail(BPPSA_ERR_ARGUMENT, "--out: given beside ranks, which do not write it, expected one of them")
                    : BPPSA_OK;
}

static bppsa_status create(const bppsa_cli *cli, bppsa_eval_run *e) {
  BPPSA_TRY(bppsa_rank_network_create(&e->network, &e->config, e->device, &e->on, &e->model));
  if (bppsa_ranks_first(e->on.comm)) {
    bppsa_setup_note_forward(cli, bppsa_forward_plan_of(e->model));
  }
  return bppsa_setup_model(cli, &e->network, e->file, e->model);
}

/* The text is made before the output files are put in place, and printed after that. */
static bppsa_status finish(bppsa_cli *cli, bppsa_eval_run *e, const bppsa_evaluation *result) {
  bppsa_text shown = {0};
  const char *out = bppsa_cli_value(cli, BPPSA_OPTION_OUT)->text;
  const bool classes = !bppsa_objective_real(&e->dataset->objective);
  if (!cli->to.json) {
    bppsa_packing_lines(e->dataset, &e->pack_times, "packing   ", &shown);
  }
  bppsa_status status = cli->to.json ? bppsa_json_render(bppsa_evaluation_json(result, e->dataset), &shown.text)
                                     : bppsa_evaluation_text(result, e->split.validation > 0, classes, out, &shown);
  if (status == BPPSA_OK) {
    status = bppsa_outputs_commit(e->out);
    e->out = NULL;
  }
  return bppsa_setup_finish(cli, status, &shown);
}

static bppsa_status evaluate(bppsa_cli *cli, bppsa_eval_run *e) {
  bppsa_evaluation result;
  bppsa_comm *comm = e->on.comm;
  BPPSA_TRY(comm != NULL ? bppsa_job_agree(comm, prepare(cli, e)) : prepare(cli, e));
  BPPSA_TRY(comm != NULL ? bppsa_job_agree(comm, create(cli, e)) : create(cli, e));
  BPPSA_TRY(bppsa_eval_run_compute(e, bppsa_cli_value(cli, BPPSA_OPTION_OUT)->text,
                                   bppsa_cli_value(cli, BPPSA_OPTION_STATES)->given, &result));
  return bppsa_ranks_first(comm) ? finish(cli, e, &result) : BPPSA_OK;
}

static bppsa_status run_rank(bppsa_cli *cli, bppsa_comm *comm) {
  bppsa_eval_run e = {.on = {.comm = comm}};
  const bppsa_status status = evaluate(cli, &e);
  bppsa_eval_run_free(&e);
  return status;
}

static bppsa_status run(bppsa_cli *cli) {
  return bppsa_ranks_run(cli, run_rank);
}

#define EVAL(id, name, what, words, takes)                                                                                       \
  const bppsa_command bppsa_command_eval_##id = {.verb = "eval",                                                                 \
                                                 .object = (name),                                                               \
                                                 .summary = "Loss and accuracy of trained weights on " what,                     \
                                                 .example = "eval " words,                                                       \
                                                 .uses = (takes),                                                                \
                                                 .run = run}
#define CELL(id, words, functions, rate, sweep)                                                                                  \
  EVAL(id, #id, "a data set", #id " --weights W.safetensors --samples 1000 --seed 1", uses_##id);
#include "networks/cells.inc"
EVAL(lenet5, "lenet5", "images", "lenet5 --weights W.safetensors --data cifar10:cifar", uses_cnn);
EVAL(vgg11, "vgg11", "images", "vgg11 --weights W.safetensors --data cifar10:cifar", uses_cnn);
EVAL(file, BPPSA_NETWORK_FILE, "images", "net.json --weights W.safetensors --data cifar10:cifar", uses_cnn);
