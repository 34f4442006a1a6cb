/* `bppsa eval MODEL`: loss and accuracy of trained weights on a data set. */
#include <string.h>

#include "cli/ranks.h"
#include "cli/setup.h"
#include "distributed/evaluate.h"
#include "models/eval_report.h"
#include "models/outputs.h"

#define OUT_HELP "logits and predictions of every sample, in the data's order; numpy.load reads it"

/* The options of recurrent networks; `only` adds those of one cell. */
#define USES(only)                                                                                                               \
  {                                                                                                                              \
    {.option = BPPSA_OPTION_LAYERS, .fallback = ""}, {.option = BPPSA_OPTION_HIDDEN, .fallback = ""},                            \
        only{.option = BPPSA_OPTION_TRAIN_LOSS}, {.option = BPPSA_OPTION_IGNORE_LABEL}, {.option = BPPSA_OPTION_DATA},           \
        {.option = BPPSA_OPTION_SET}, {.option = BPPSA_OPTION_PADDING}, {.option = BPPSA_OPTION_SAMPLES},                        \
        {.option = BPPSA_OPTION_SEQ_LEN}, {.option = BPPSA_OPTION_INPUT_SIZE}, {.option = BPPSA_OPTION_BATCH},                   \
        {.option = BPPSA_OPTION_VALIDATION}, {.option = BPPSA_OPTION_SEED, .help = "of the data"}, BPPSA_FORWARD_USES,           \
        {.option = BPPSA_OPTION_DEVICE}, {.option = BPPSA_OPTION_DTYPE, .fallback = ""}, {.option = BPPSA_OPTION_THREADS},       \
        BPPSA_RANKS_USES, {.option = BPPSA_OPTION_WEIGHTS, .required = true}, {.option = BPPSA_OPTION_PREFIX},                   \
        {.option = BPPSA_OPTION_OUT, .metavar = "P.npz", .help = OUT_HELP}, {.option = BPPSA_OPTION_STATES},                     \
        {.option = BPPSA_OPTION_JSON}, {.option = BPPSA_OPTION_HELP}, {                                                          \
      .option = BPPSA_OPTION_COUNT                                                                                               \
    }                                                                                                                            \
  }
#define CELL(id, words, functions, rate, sweep) static const bppsa_option_use uses_##id[] = USES(BPPSA_OPTIONS_##functions);
#include "models/cells.inc"

/* The options of convolutional networks. */
static const bppsa_option_use uses_cnn[] = {
    {.option = BPPSA_OPTION_TRAIN_LOSS, .help = BPPSA_IMAGES_LOSS_HELP},
    {.option = BPPSA_OPTION_IGNORE_LABEL},
    {.option = BPPSA_OPTION_DATA, .fallback = "", .required = true, .help = BPPSA_IMAGES_HELP},
    {.option = BPPSA_OPTION_SAMPLES, .help = "images in front of those held out"},
    {.option = BPPSA_OPTION_BATCH, .fallback = "256"},
    {.option = BPPSA_OPTION_VALIDATION, .help = BPPSA_IMAGES_VALIDATION_HELP},
    {.option = BPPSA_OPTION_DEVICE},
    {.option = BPPSA_OPTION_DTYPE, .fallback = ""},
    {.option = BPPSA_OPTION_THREADS},
    BPPSA_RANKS_USES,
    {.option = BPPSA_OPTION_WEIGHTS, .required = true},
    {.option = BPPSA_OPTION_PREFIX},
    {.option = BPPSA_OPTION_OUT, .metavar = "P.npz", .help = OUT_HELP},
    {.option = BPPSA_OPTION_STATES},
    {.option = BPPSA_OPTION_JSON},
    {.option = BPPSA_OPTION_HELP},
    {.option = BPPSA_OPTION_COUNT}};

/* One run of the command. */
typedef struct {
  bppsa_network network;
  bppsa_network_config config;
  bppsa_objective objective;
  bppsa_safetensors *file;
  bppsa_device *device;
  bppsa_dataset *dataset;
  bppsa_model *model;
  bppsa_rank_network on; /* its ranks */
  bppsa_split split;
  bppsa_outputs *out; /* --out, or NULL */
} evaluation;

/* Checks the ending of --out, and that --states is given only with it. */
static bppsa_status check_out(const bppsa_cli *cli) {
  static const char suffix[] = ".npz";
  const bppsa_option_value *out = bppsa_cli_value(cli, BPPSA_OPTION_OUT);
  if (bppsa_cli_value(cli, BPPSA_OPTION_STATES)->given && !out->given) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--states: given without --out, expected --out P.npz too");
  }
  const size_t length = out->given ? strlen(out->text) : 0, end = strlen(suffix);
  return !out->given || (length >= end && strcmp(out->text + length - end, suffix) == 0)
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "--out: '%s', expected a name that ends in %s", out->text, suffix);
}

static bppsa_status prepare(const bppsa_cli *cli, evaluation *e) {
  const char *path = bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->text;
  BPPSA_TRY(check_out(cli));
  BPPSA_TRY(bppsa_setup_network(cli, &e->network));
  e->config = bppsa_network_config_default(&e->network);
  BPPSA_TRY(bppsa_setup_config(cli, BPPSA_RUNS_ONE, &e->config));
  BPPSA_TRY(bppsa_setup_weights(cli, &e->network, &e->config, &e->file));
  BPPSA_TRY(bppsa_setup_objective(cli, e->file, &e->objective));
  BPPSA_TRY(bppsa_setup_device(cli, &e->device));
  BPPSA_TRY(bppsa_setup_dataset(cli, e->device, e->config.loss_all, &e->objective, &e->dataset));
  BPPSA_TRY(bppsa_dataset_split(e->dataset, bppsa_cli_value(cli, BPPSA_OPTION_VALIDATION)->real, &e->split));
  BPPSA_TRY(bppsa_network_fit(&e->network, path, e->dataset, &e->config));
  const int64_t count = e->split.validation > 0 ? e->split.validation : e->split.train;
  e->config.batch = e->config.batch < count ? e->config.batch : count;
  e->config.method.backward = BPPSA_BACKWARD_BP; /* eval makes no backward pass and needs no workspace for a scan */
  return BPPSA_OK;
}

static bppsa_status create(const bppsa_cli *cli, evaluation *e) {
  BPPSA_TRY(bppsa_rank_network_create(&e->network, &e->config, e->device, &e->on, &e->model));
  return bppsa_setup_model(cli, &e->network, e->file, e->model);
}

/* The text is made before the output files are put in place, and printed after that. */
static bppsa_status finish(bppsa_cli *cli, evaluation *e, const bppsa_evaluation *result) {
  bppsa_text shown = {0};
  const char *out = bppsa_cli_value(cli, BPPSA_OPTION_OUT)->text;
  bppsa_status status = cli->to.json ? bppsa_json_render(bppsa_evaluation_json(result), &shown.text)
                                     : bppsa_evaluation_text(result, e->split.validation > 0, !e->objective.mse, out, &shown);
  if (status == BPPSA_OK) {
    status = bppsa_outputs_commit(e->out);
    e->out = NULL;
  }
  return bppsa_setup_finish(cli, status, &shown);
}

/* Ranks share the batches, of which each takes whole ones, and along time the steps. Only a run without ranks writes --out, whose
 * samples are in order. */
static bppsa_status prepare_on_ranks(const bppsa_cli *cli, evaluation *e) {
  BPPSA_TRY(prepare(cli, e));
  const int64_t count = e->split.validation > 0 ? e->split.validation : e->split.train;
  BPPSA_TRY(bppsa_ranks_setup(cli, &e->network, count, "the evaluation", e->config.batch, &e->on, &e->config));
  return bppsa_cli_value(cli, BPPSA_OPTION_OUT)->given
             ? bppsa_fail(BPPSA_ERR_ARGUMENT, "--out: given beside ranks, which do not write it, expected one of them")
             : BPPSA_OK;
}

static bppsa_status evaluate_on_ranks(bppsa_cli *cli, evaluation *e) {
  bppsa_evaluation result;
  bppsa_comm *comm = e->on.comm;
  BPPSA_TRY(bppsa_job_agree(comm, prepare_on_ranks(cli, e)));
  BPPSA_TRY(bppsa_job_agree(comm, create(cli, e)));
  const bool held_out = e->split.validation > 0;
  bppsa_comm_at(comm, "the evaluation", -1);
  BPPSA_TRY(bppsa_ranks_evaluate(bppsa_rank_network_among(&e->on), &e->on.parallel, e->model, e->dataset, e->device,
                                 held_out ? e->split.train : 0, held_out ? e->split.validation : e->split.train, e->config.batch,
                                 &result));
  return bppsa_ranks_first(comm) ? finish(cli, e, &result) : BPPSA_OK;
}

static bppsa_status evaluate(bppsa_cli *cli, evaluation *e) {
  BPPSA_TRY(prepare(cli, e));
  BPPSA_TRY(create(cli, e));
  const bool held_out = e->split.validation > 0;
  const int64_t first = held_out ? e->split.train : 0, count = held_out ? e->split.validation : e->split.train;
  const bppsa_option_value *out = bppsa_cli_value(cli, BPPSA_OPTION_OUT);
  if (out->given) {
    BPPSA_TRY(bppsa_outputs_open(out->text, bppsa_cli_value(cli, BPPSA_OPTION_STATES)->given, &e->network, &e->config, e->dataset,
                                 e->device, e->model, count, &e->out));
  }
  const bppsa_evaluation_sink sink = {bppsa_outputs_add, e->out};
  bppsa_evaluation result;
  BPPSA_TRY(bppsa_evaluate_each(e->model, e->dataset, e->device, first, count, e->config.batch, e->out != NULL ? &sink : NULL,
                                &result));
  return finish(cli, e, &result);
}

static bppsa_status run_rank(bppsa_cli *cli, bppsa_comm *comm) {
  evaluation e = {.on = {.comm = comm}};
  const bppsa_status status = comm != NULL ? evaluate_on_ranks(cli, &e) : evaluate(cli, &e);
  bppsa_outputs_abort(e.out);
  bppsa_model_destroy(e.model);
  bppsa_rank_network_free(&e.on);
  bppsa_dataset_destroy(e.dataset);
  bppsa_device_destroy(e.device);
  bppsa_safetensors_destroy(e.file);
  bppsa_network_close(&e.network);
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
#include "models/cells.inc"
EVAL(lenet5, "lenet5", "images", "lenet5 --weights W.safetensors --data cifar10:cifar", uses_cnn);
EVAL(vgg11, "vgg11", "images", "vgg11 --weights W.safetensors --data cifar10:cifar", uses_cnn);
EVAL(file, BPPSA_NETWORK_FILE, "images", "net.json --weights W.safetensors --data cifar10:cifar", uses_cnn);
