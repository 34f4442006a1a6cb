/* `bppsa eval MODEL`: loss and accuracy of trained weights on a data set. */
#include <inttypes.h>

#include "cli/eval_out.h"
#include "core/alloc.h"

#define OUT_HELP "logits and predictions of every sample, in the data's order; numpy.load reads it"

/* What both kinds of network take; `only` is what one of them takes besides. */
#define USES(only)                                                                                                               \
  {                                                                                                                              \
    {.option = BPPSA_OPTION_LAYERS, .fallback = ""}, {.option = BPPSA_OPTION_HIDDEN, .fallback = ""},                            \
        only{.option = BPPSA_OPTION_TRAIN_LOSS}, {.option = BPPSA_OPTION_IGNORE_LABEL}, {.option = BPPSA_OPTION_DATA},           \
        {.option = BPPSA_OPTION_SET}, {.option = BPPSA_OPTION_PADDING}, {.option = BPPSA_OPTION_SAMPLES},                        \
        {.option = BPPSA_OPTION_SEQ_LEN}, {.option = BPPSA_OPTION_INPUT_SIZE}, {.option = BPPSA_OPTION_BATCH},                   \
        {.option = BPPSA_OPTION_VALIDATION}, {.option = BPPSA_OPTION_SEED, .help = "of the data"},                               \
        {.option = BPPSA_OPTION_DEVICE}, {.option = BPPSA_OPTION_DTYPE, .fallback = ""}, {.option = BPPSA_OPTION_THREADS},       \
        {.option = BPPSA_OPTION_WEIGHTS, .required = true}, {.option = BPPSA_OPTION_PREFIX},                                     \
        {.option = BPPSA_OPTION_OUT, .metavar = "P.npz", .help = OUT_HELP}, {.option = BPPSA_OPTION_STATES},                     \
        {.option = BPPSA_OPTION_JSON}, {.option = BPPSA_OPTION_HELP}, {                                                          \
      .option = BPPSA_OPTION_COUNT                                                                                               \
    }                                                                                                                            \
  }
#define RNN_ONLY {.option = BPPSA_OPTION_NONLINEARITY},
static const bppsa_option_use uses_rnn[] = USES(RNN_ONLY), uses_gru[] = USES();

/* What convolutional networks take. */
static const bppsa_option_use uses_cnn[] = {
    {.option = BPPSA_OPTION_TRAIN_LOSS, .help = "last: cross-entropy; mse: mean squared error of real targets"},
    {.option = BPPSA_OPTION_IGNORE_LABEL},
    {.option = BPPSA_OPTION_DATA, .fallback = "", .required = true, .help = BPPSA_IMAGES_HELP},
    {.option = BPPSA_OPTION_SAMPLES, .help = "images in front of those held out"},
    {.option = BPPSA_OPTION_BATCH, .fallback = "256"},
    {.option = BPPSA_OPTION_VALIDATION, .help = BPPSA_IMAGES_VALIDATION_HELP},
    {.option = BPPSA_OPTION_DEVICE},
    {.option = BPPSA_OPTION_DTYPE, .fallback = ""},
    {.option = BPPSA_OPTION_THREADS},
    {.option = BPPSA_OPTION_WEIGHTS, .required = true},
    {.option = BPPSA_OPTION_PREFIX},
    {.option = BPPSA_OPTION_OUT, .metavar = "P.npz", .help = OUT_HELP},
    {.option = BPPSA_OPTION_STATES},
    {.option = BPPSA_OPTION_JSON},
    {.option = BPPSA_OPTION_HELP},
    {.option = BPPSA_OPTION_COUNT}};

/* What one run holds. */
typedef struct {
  bppsa_network network;
  bppsa_recurrent_config config;
  bppsa_objective objective;
  bppsa_safetensors *file;
  bppsa_device *device;
  bppsa_dataset *dataset;
  bppsa_model *model;
  bppsa_split split;
  bppsa_eval_out *out; /* --out, or NULL */
} evaluation;

static bppsa_status prepare(const bppsa_cli *cli, evaluation *e) {
  const char *path = bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->text;
  BPPSA_TRY(bppsa_eval_out_check(cli));
  BPPSA_TRY(bppsa_network_open(cli, &e->network));
  e->config = bppsa_network_config_default(&e->network);
  BPPSA_TRY(bppsa_setup_config(cli, &e->config));
  BPPSA_TRY(bppsa_setup_weights(cli, &e->network, &e->config, &e->file));
  BPPSA_TRY(bppsa_objective_setup(cli, e->file, &e->objective));
  BPPSA_TRY(bppsa_setup_device(cli, &e->device));
  BPPSA_TRY(bppsa_setup_dataset(cli, e->device, e->config.loss_all, &e->objective, &e->dataset));
  BPPSA_TRY(bppsa_dataset_split(e->dataset, bppsa_cli_value(cli, BPPSA_OPTION_VALIDATION)->real, &e->split));
  BPPSA_TRY(bppsa_setup_match(path, &e->network, &e->config, e->dataset));
  const int64_t count = e->split.validation > 0 ? e->split.validation : e->split.train;
  e->config.batch = e->config.batch < count ? e->config.batch : count;
  e->config.seq_len = e->dataset->seq_len;
  e->config.method.backward = BPPSA_BACKWARD_BP; /* no backward pass: spare the scan's workspace */
  BPPSA_TRY(bppsa_network_create(&e->network, &e->config, e->device, &e->model));
  return bppsa_setup_model(cli, e->file, e->model);
}

static json_t *evaluation_json(const bppsa_evaluation *result) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_real(object, "loss", result->loss);
  ok = ok && bppsa_json_put_real(object, "accuracy", result->accuracy);
  ok = ok && bppsa_json_put_integer(object, "samples", result->samples);
  return bppsa_json_finish(object, ok);
}

static bppsa_status print_result(bppsa_cli *cli, const evaluation *e, const bppsa_evaluation *result) {
  BPPSA_TRY(bppsa_cli_print(cli, "samples   %" PRId64 "%s\nloss      %.6f\n", result->samples,
                            e->split.validation > 0 ? ", held out" : "", result->loss));
  if (!e->objective.mse) {
    BPPSA_TRY(bppsa_cli_print(cli, "accuracy  %.4f\n", result->accuracy));
  }
  const bppsa_option_value *out = bppsa_cli_value(cli, BPPSA_OPTION_OUT);
  return out->given ? bppsa_cli_print(cli, "outputs   written to %s\n", out->text) : BPPSA_OK;
}

/* The document is made before the outputs are in place, and printed after. */
static bppsa_status finish(bppsa_cli *cli, evaluation *e, const bppsa_evaluation *result) {
  char *text = NULL;
  if (cli->json) {
    bppsa_json_start();
    BPPSA_TRY(bppsa_cli_render(evaluation_json(result), &text));
  }
  bppsa_status status = bppsa_eval_out_commit(e->out);
  e->out = NULL;
  if (status == BPPSA_OK) {
    status = cli->json ? bppsa_cli_print_document(cli, text) : print_result(cli, e, result);
  }
  bppsa_free(text);
  return status;
}

static bppsa_status evaluate(bppsa_cli *cli, evaluation *e) {
  BPPSA_TRY(prepare(cli, e));
  const bool held_out = e->split.validation > 0;
  const int64_t first = held_out ? e->split.train : 0, count = held_out ? e->split.validation : e->split.train;
  BPPSA_TRY(bppsa_eval_out_open(cli, &e->network, &e->config, e->dataset, e->device, e->model, count, &e->out));
  const bppsa_evaluation_sink sink = {bppsa_eval_out_add, e->out};
  bppsa_evaluation result;
  BPPSA_TRY(bppsa_evaluate_each(e->model, e->dataset, e->device, first, count, e->config.batch, e->out != NULL ? &sink : NULL,
                                &result));
  return finish(cli, e, &result);
}

static bppsa_status run(bppsa_cli *cli) {
  evaluation e = {0};
  const bppsa_status status = evaluate(cli, &e);
  bppsa_eval_out_abort(e.out);
  bppsa_model_destroy(e.model);
  bppsa_dataset_destroy(e.dataset);
  bppsa_device_destroy(e.device);
  bppsa_safetensors_destroy(e.file);
  bppsa_network_close(&e.network);
  return status;
}

const bppsa_command bppsa_command_eval_rnn = {.verb = "eval",
                                              .object = "rnn",
                                              .summary = "Loss and accuracy of trained weights on a data set",
                                              .example = "eval rnn --weights W.safetensors --samples 1000 --seed 1",
                                              .uses = uses_rnn,
                                              .run = run};

const bppsa_command bppsa_command_eval_gru = {.verb = "eval",
                                              .object = "gru",
                                              .summary = "Loss and accuracy of trained weights on a data set",
                                              .example = "eval gru --weights W.safetensors --samples 1000 --seed 1",
                                              .uses = uses_gru,
                                              .run = run};

const bppsa_command bppsa_command_eval_lenet5 = {.verb = "eval",
                                                 .object = "lenet5",
                                                 .summary = "Loss and accuracy of trained weights on images",
                                                 .example = "eval lenet5 --weights W.safetensors --data cifar10:cifar",
                                                 .uses = uses_cnn,
                                                 .run = run};

const bppsa_command bppsa_command_eval_vgg11 = {.verb = "eval",
                                                .object = "vgg11",
                                                .summary = "Loss and accuracy of trained weights on images",
                                                .example = "eval vgg11 --weights W.safetensors --data cifar10:cifar",
                                                .uses = uses_cnn,
                                                .run = run};

const bppsa_command bppsa_command_eval_file = {.verb = "eval",
                                               .object = BPPSA_FILE_OBJECT,
                                               .summary = "Loss and accuracy of trained weights on images",
                                               .example = "eval net.json --weights W.safetensors --data cifar10:cifar",
                                               .uses = uses_cnn,
                                               .run = run};
