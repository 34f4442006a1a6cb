/* `bppsa train MODEL`: sets a run up, drives the training loop, saves the weights. What is shown is in train_report.c. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/train_checkpoint.h"
#include "cli/train_optimizer.h"
#include "cli/train_report.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "core/npy.h"

/* What both kinds of network take; `only` is what one of them takes besides. */
#define USES(only, rate)                                                                                                         \
  {                                                                                                                              \
    {.option = BPPSA_OPTION_LAYERS}, {.option = BPPSA_OPTION_HIDDEN}, only{.option = BPPSA_OPTION_TRAIN_LOSS},                   \
        {.option = BPPSA_OPTION_IGNORE_LABEL}, {.option = BPPSA_OPTION_INIT}, {.option = BPPSA_OPTION_DATA},                     \
        {.option = BPPSA_OPTION_SET}, {.option = BPPSA_OPTION_PADDING}, {.option = BPPSA_OPTION_SAMPLES},                        \
        {.option = BPPSA_OPTION_SEQ_LEN}, {.option = BPPSA_OPTION_INPUT_SIZE}, {.option = BPPSA_OPTION_BATCH},                   \
        {.option = BPPSA_OPTION_VALIDATION}, {.option = BPPSA_OPTION_ORDER}, {.option = BPPSA_OPTION_NO_SHUFFLE},                \
        {.option = BPPSA_OPTION_BACKWARD}, {.option = BPPSA_OPTION_ALGORITHM}, {.option = BPPSA_OPTION_UP_LEVELS},               \
        {.option = BPPSA_OPTION_CHUNKS}, {.option = BPPSA_OPTION_PLAN}, {.option = BPPSA_OPTION_EPOCHS},                         \
        {.option = BPPSA_OPTION_TRAIN_ITERATIONS}, {.option = BPPSA_OPTION_OPTIMIZER},                                           \
        {.option = BPPSA_OPTION_LR, .fallback = (rate)}, {.option = BPPSA_OPTION_MOMENTUM},                                      \
        {.option = BPPSA_OPTION_WEIGHT_DECAY}, {.option = BPPSA_OPTION_LR_SCHEDULE}, {.option = BPPSA_OPTION_LR_STEP_SIZE},      \
        {.option = BPPSA_OPTION_LR_GAMMA}, {.option = BPPSA_OPTION_LR_PERIOD}, {.option = BPPSA_OPTION_LR_MIN},                  \
        {.option = BPPSA_OPTION_WARMUP}, {.option = BPPSA_OPTION_CLIP_NORM}, {.option = BPPSA_OPTION_SEED},                      \
        {.option = BPPSA_OPTION_DEVICE}, {.option = BPPSA_OPTION_DTYPE}, {.option = BPPSA_OPTION_THREADS},                       \
        {.option = BPPSA_OPTION_MEMORY_LIMIT, .help = BPPSA_REFUSE_HELP}, {.option = BPPSA_OPTION_LOG},                          \
        {.option = BPPSA_OPTION_WEIGHTS}, {.option = BPPSA_OPTION_PREFIX}, {.option = BPPSA_OPTION_SAVE_WEIGHTS},                \
        {.option = BPPSA_OPTION_CHECKPOINT}, {.option = BPPSA_OPTION_CHECKPOINT_EVERY}, {.option = BPPSA_OPTION_RESUME},         \
        {.option = BPPSA_OPTION_JSON}, {.option = BPPSA_OPTION_HELP}, {                                                          \
      .option = BPPSA_OPTION_COUNT                                                                                               \
    }                                                                                                                            \
  }
#define RNN_ONLY {.option = BPPSA_OPTION_NONLINEARITY},
static const bppsa_option_use uses_rnn[] = USES(RNN_ONLY, "0.001"), uses_gru[] = USES(, "0.0003");

/* What convolutional networks take. */
static const bppsa_option_use uses_cnn[] = {
    {.option = BPPSA_OPTION_TRAIN_LOSS, .help = "last: cross-entropy; mse: mean squared error of real targets"},
    {.option = BPPSA_OPTION_IGNORE_LABEL},
    {.option = BPPSA_OPTION_MASK, .metavar = "M.safetensors", .help = BPPSA_MASK_HELP},
    {.option = BPPSA_OPTION_DATA, .fallback = "", .required = true, .help = BPPSA_IMAGES_HELP},
    {.option = BPPSA_OPTION_SAMPLES, .help = "images to train on, the first ones"},
    {.option = BPPSA_OPTION_BATCH, .fallback = "256"},
    {.option = BPPSA_OPTION_VALIDATION, .help = BPPSA_IMAGES_VALIDATION_HELP},
    {.option = BPPSA_OPTION_ORDER},
    {.option = BPPSA_OPTION_NO_SHUFFLE},
    {.option = BPPSA_OPTION_BACKWARD},
    {.option = BPPSA_OPTION_ALGORITHM},
    {.option = BPPSA_OPTION_UP_LEVELS},
    {.option = BPPSA_OPTION_PLAN},
    {.option = BPPSA_OPTION_WEIGHT_GRADIENTS},
    {.option = BPPSA_OPTION_EPOCHS},
    {.option = BPPSA_OPTION_TRAIN_ITERATIONS},
    {.option = BPPSA_OPTION_OPTIMIZER, .fallback = "sgd"},
    {.option = BPPSA_OPTION_LR, .fallback = "0.001"},
    {.option = BPPSA_OPTION_MOMENTUM, .fallback = "0.9"},
    {.option = BPPSA_OPTION_WEIGHT_DECAY},
    {.option = BPPSA_OPTION_LR_SCHEDULE},
    {.option = BPPSA_OPTION_LR_STEP_SIZE},
    {.option = BPPSA_OPTION_LR_GAMMA},
    {.option = BPPSA_OPTION_LR_PERIOD},
    {.option = BPPSA_OPTION_LR_MIN},
    {.option = BPPSA_OPTION_WARMUP},
    {.option = BPPSA_OPTION_CLIP_NORM},
    {.option = BPPSA_OPTION_SEED, .help = "of weights and shuffling"},
    {.option = BPPSA_OPTION_DEVICE},
    {.option = BPPSA_OPTION_DTYPE},
    {.option = BPPSA_OPTION_THREADS},
    {.option = BPPSA_OPTION_MEMORY_LIMIT, .help = BPPSA_REFUSE_HELP},
    {.option = BPPSA_OPTION_LOG},
    {.option = BPPSA_OPTION_WEIGHTS},
    {.option = BPPSA_OPTION_PREFIX},
    {.option = BPPSA_OPTION_SAVE_WEIGHTS},
    {.option = BPPSA_OPTION_CHECKPOINT},
    {.option = BPPSA_OPTION_CHECKPOINT_EVERY},
    {.option = BPPSA_OPTION_RESUME},
    {.option = BPPSA_OPTION_JSON},
    {.option = BPPSA_OPTION_HELP},
    {.option = BPPSA_OPTION_COUNT}};

/* ---- setting up ---- */

static const bppsa_option outputs[] = {BPPSA_OPTION_LOG, BPPSA_OPTION_SAVE_WEIGHTS};

/* No output is one of the checkpoint's files, which train/checkpoint.h names. */
static bppsa_status check_checkpoint(const bppsa_cli *cli) {
  static const char *const names[] = {"checkpoint.safetensors", "checkpoint.previous.safetensors", "checkpoint.new.safetensors"};
  const bppsa_option_value *directory = bppsa_cli_value(cli, BPPSA_OPTION_CHECKPOINT);
  char path[4200];
  for (size_t i = 0; directory->given && i < sizeof names / sizeof names[0]; ++i) {
    snprintf(path, sizeof path, "%.4095s/%s", directory->text, names[i]);
    for (size_t k = 0; k < sizeof outputs / sizeof outputs[0]; ++k) {
      BPPSA_TRY(bppsa_cli_check_other(cli, path, "--checkpoint", outputs[k]));
    }
  }
  return BPPSA_OK;
}

static bppsa_status check_files(const bppsa_cli *cli) {
  BPPSA_TRY(bppsa_cli_check_output(cli, BPPSA_OPTION_LOG));
  BPPSA_TRY(bppsa_cli_check_output(cli, BPPSA_OPTION_SAVE_WEIGHTS));
  BPPSA_TRY(bppsa_cli_check_distinct(cli, BPPSA_OPTION_LOG, BPPSA_OPTION_SAVE_WEIGHTS));
  BPPSA_TRY(bppsa_cli_check_distinct(cli, BPPSA_OPTION_WEIGHTS, BPPSA_OPTION_LOG));
  BPPSA_TRY(bppsa_cli_check_distinct(cli, BPPSA_OPTION_ORDER, BPPSA_OPTION_LOG));
  BPPSA_TRY(bppsa_cli_check_distinct(cli, BPPSA_OPTION_ORDER, BPPSA_OPTION_SAVE_WEIGHTS));
  BPPSA_TRY(bppsa_cli_check_distinct(cli, BPPSA_OPTION_MASK, BPPSA_OPTION_LOG));
  BPPSA_TRY(bppsa_cli_check_distinct(cli, BPPSA_OPTION_MASK, BPPSA_OPTION_SAVE_WEIGHTS));
  for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; ++i) {
    BPPSA_TRY(bppsa_setup_check_data(cli, outputs[i]));
  }
  BPPSA_TRY(check_checkpoint(cli));
  if (bppsa_cli_value(cli, BPPSA_OPTION_PREFIX)->given && !bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->given) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--prefix: given without --weights, expected --weights W.safetensors too");
  }
  if (bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->given && bppsa_cli_value(cli, BPPSA_OPTION_INIT)->given) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--init: given beside --weights, expected only one of the two");
  }
  return BPPSA_OK;
}

/* What only a run with steps writes or needs. */
static const bppsa_option of_steps[] = {BPPSA_OPTION_LOG, BPPSA_OPTION_CHECKPOINT, BPPSA_OPTION_RESUME};

static bppsa_status setup_training(const bppsa_cli *cli, bppsa_train_config *train) {
  const bppsa_option_value *epochs = bppsa_cli_value(cli, BPPSA_OPTION_EPOCHS);
  const bppsa_option_value *iterations = bppsa_cli_value(cli, BPPSA_OPTION_TRAIN_ITERATIONS);
  if (epochs->given && iterations->given) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--iterations: given beside --epochs, expected only one of the two");
  }
  for (size_t i = 0; iterations->given && iterations->integer == 0 && i < sizeof of_steps / sizeof of_steps[0]; ++i) {
    if (bppsa_cli_value(cli, of_steps[i])->given) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "--iterations: 0, no step, beside %s, expected 1 or more",
                        bppsa_option_get(of_steps[i])->name);
    }
  }
  train->iterations = iterations->integer;
  train->epochs = epochs->given ? epochs->integer : iterations->given ? 0 : 1;
  BPPSA_TRY(bppsa_train_optimizer_options(cli, train));
  train->batch = bppsa_cli_value(cli, BPPSA_OPTION_BATCH)->integer;
  train->clip_norm = bppsa_cli_value(cli, BPPSA_OPTION_CLIP_NORM)->real;
  train->seed = (uint64_t)bppsa_cli_value(cli, BPPSA_OPTION_SEED)->integer;
  train->validation = bppsa_cli_value(cli, BPPSA_OPTION_VALIDATION)->real;
  train->log_path = bppsa_cli_value(cli, BPPSA_OPTION_LOG)->text;
  return bppsa_train_checkpoint_options(cli, train);
}

/* --order and --no-shuffle, when the split is known. That there are rows for all epochs is checked by the training, which counts
 * them. */
static bppsa_status setup_order(const bppsa_cli *cli, bppsa_train_run *run) {
  const bppsa_option_value *path = bppsa_cli_value(cli, BPPSA_OPTION_ORDER);
  const bool in_order = bppsa_cli_value(cli, BPPSA_OPTION_NO_SHUFFLE)->given;
  const bppsa_view *view = &run->order.view;
  if (!path->given || in_order) {
    run->train.order.kind = in_order ? BPPSA_ORDER_DATA : BPPSA_ORDER_SHUFFLED;
    return path->given ? bppsa_fail(BPPSA_ERR_ARGUMENT, "--no-shuffle: given beside --order, expected only one of the two")
                       : BPPSA_OK;
  }
  BPPSA_TRY(bppsa_cli_input(bppsa_npy_load(path->text, &run->order)));
  if (view->dtype != BPPSA_I64 || view->ndim < 1 || view->ndim > 2 || bppsa_view_count(view) == 0) {
    char shape[BPPSA_SHAPE_TEXT];
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: %s %s, expected int64 indices of samples, [M] or [E, M], at least one", path->text,
                      bppsa_dtype_name(view->dtype), bppsa_shape_text(view->ndim, view->shape, shape, sizeof shape));
  }
  run->train.order = (bppsa_order){.kind = BPPSA_ORDER_GIVEN,
                                   .indices = view->data,
                                   .epochs = view->ndim == 2 ? view->shape[0] : 0,
                                   .samples = view->shape[view->ndim - 1],
                                   .where = path->text};
  return bppsa_order_check(&run->train.order, run->split.train, 1);
}

static bppsa_status setup_data(const bppsa_cli *cli, bppsa_train_run *run) {
  BPPSA_TRY(bppsa_setup_dataset(cli, run->device, run->config.loss_all, &run->objective, &run->dataset));
  BPPSA_TRY(bppsa_dataset_split(run->dataset, run->train.validation, &run->split));
  BPPSA_TRY(setup_order(cli, run));
  run->epoch_samples = bppsa_order_samples(&run->train.order, run->split.train);
  if (run->train.batch > run->epoch_samples) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "--batch: %" PRId64 ", more than the %" PRId64 " training samples, expected at most that many",
                      run->train.batch, run->epoch_samples);
  }
  BPPSA_TRY(bppsa_setup_match(bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->text, &run->network, &run->config, run->dataset));
  if (run->network.kind->convolutional) {
    return BPPSA_OK;
  }
  if (run->weights == NULL) {
    run->config.input = run->dataset->input;
    run->config.classes = run->dataset->classes;
  }
  run->config.seq_len = run->dataset->seq_len;
  return BPPSA_OK;
}

static bppsa_status create_model(bppsa_train_run *run) {
  const double start = bppsa_now();
  BPPSA_TRY(bppsa_network_create(&run->network, &run->config, run->device, &run->model));
  run->plan_s = bppsa_now() - start;
  return BPPSA_OK;
}

static bppsa_status setup(const bppsa_cli *cli, bppsa_train_run *run) {
  BPPSA_TRY(bppsa_network_open(cli, &run->network));
  run->config = bppsa_network_config_default(&run->network);
  BPPSA_TRY(bppsa_setup_config(cli, &run->config));
  BPPSA_TRY(setup_training(cli, &run->train));
  BPPSA_TRY(check_files(cli));
  BPPSA_TRY(bppsa_setup_device(cli, &run->device));
  if (bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->given) {
    BPPSA_TRY(bppsa_setup_weights(cli, &run->network, &run->config, &run->weights));
  }
  BPPSA_TRY(bppsa_objective_setup(cli, run->weights, &run->objective));
  BPPSA_TRY(setup_data(cli, run));
  run->chosen = bppsa_planner_chooser(&run->config);
  BPPSA_TRY(bppsa_train_checkpoint_method(&run->train, &run->config, &run->chosen));
  BPPSA_TRY(bppsa_planner_choose(cli, &run->network, run->device, &run->config, &run->chosen));
  BPPSA_TRY(create_model(run));
  if (run->weights != NULL) {
    return bppsa_setup_model(cli, run->weights, run->model);
  }
  const bool orthogonal = bppsa_cli_value(cli, BPPSA_OPTION_INIT)->choice == 1;
  return bppsa_network_init(&run->network, run->model, orthogonal ? BPPSA_INIT_ORTHOGONAL : BPPSA_INIT_DEFAULT, run->train.seed);
}

/* ---- results ---- */

static bppsa_status save_weights(const bppsa_cli *cli, const bppsa_train_run *run) {
  const bppsa_option_value *path = bppsa_cli_value(cli, BPPSA_OPTION_SAVE_WEIGHTS);
  if (!path->given) {
    return BPPSA_OK;
  }
  const bppsa_model *model = run->model;
  const bool recurrent = !run->network.kind->convolutional;
  bppsa_metadata metadata[3] = {{"model", run->network.kind->name}};
  int64_t known = 1;
  if (recurrent) {
    metadata[known++] = (bppsa_metadata){"nonlinearity", bppsa_nonlinearity_name(run->config.nonlinearity)};
  }
  if (recurrent || run->objective.mse) {
    metadata[known++] = (bppsa_metadata){"loss", bppsa_objective_loss(&run->objective, run->config.loss_all)};
  }
  bppsa_named_view *tensors = bppsa_calloc(model->parameter_count, sizeof *tensors);
  if (tensors == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  for (int64_t i = 0; i < model->parameter_count; ++i) {
    tensors[i] = (bppsa_named_view){model->parameters[i].name, model->parameters[i].value};
  }
  const bppsa_status status = bppsa_safetensors_save(path->text, model->parameter_count, tensors, known, metadata);
  bppsa_free(tensors);
  return status;
}

/* The document is made before the weights are saved, and printed after. */
static bppsa_status finish_json(bppsa_cli *cli, bppsa_train_run *run) {
  char *text = NULL;
  BPPSA_TRY(bppsa_cli_render(bppsa_train_report_json(run), &text));
  bppsa_status status = save_weights(cli, run);
  if (status == BPPSA_OK) {
    status = bppsa_cli_print_document(cli, text);
  }
  bppsa_free(text);
  return status;
}

/* All steps; --iterations 0 asks for none. */
static bppsa_status take_steps(bppsa_train_run *run) {
  bppsa_train_callbacks callbacks = bppsa_train_report_callbacks(run);
  bppsa_run_fields fields;
  if (run->train.iterations == 0 && run->train.epochs == 0) {
    run->result.last = (bppsa_train_record){.loss = (double)NAN, .accuracy = (double)NAN};
    return callbacks.started(callbacks.context, &(bppsa_train_start){.notice = ""});
  }
  bppsa_train_checkpoint_fields(run, &fields);
  char *header = NULL;
  BPPSA_TRY(run->train.log_path == NULL ? BPPSA_OK : bppsa_train_report_header(run, &header));
  run->train.log_header = header;
  const bppsa_status status = bppsa_train_interruptible(run, &callbacks);
  bppsa_free(header);
  bppsa_progress_clear(&run->line);
  return status;
}

static bppsa_status train(bppsa_cli *cli, bppsa_train_run *run) {
  BPPSA_TRY(setup(cli, run));
  BPPSA_TRY(take_steps(run));
  if (cli->json) {
    BPPSA_TRY(finish_json(cli, run));
  } else {
    BPPSA_TRY(save_weights(cli, run));
    BPPSA_TRY(bppsa_train_report_print(run));
  }
  return bppsa_train_check_stopped(run);
}

static bppsa_status run_train(bppsa_cli *cli) {
  bppsa_train_run run = {.cli = cli, .train = bppsa_train_config_default()};
  const bppsa_status status = train(cli, &run);
  json_decref(run.rows);
  bppsa_model_destroy(run.model);
  bppsa_dataset_destroy(run.dataset);
  bppsa_buffer_free(&run.order);
  bppsa_device_destroy(run.device);
  bppsa_safetensors_destroy(run.weights);
  bppsa_network_close(&run.network);
  return status;
}

#define SIGNAL_NOTES                                                                                                             \
  "Ctrl-C or SIGTERM ends the run after its step: the summary, --save-weights and --log are written as far as it came, and "     \
  "the exit code is 1. A second one kills it.\n"

const bppsa_command bppsa_command_train_rnn = {.verb = "train",
                                               .object = "rnn",
                                               .summary = "Trains an RNN by sequential BP or by the scan",
                                               .example = "train rnn --seq-len 100 --samples 3200 --epochs 3",
                                               .notes = SIGNAL_NOTES,
                                               .uses = uses_rnn,
                                               .run = run_train};

const bppsa_command bppsa_command_train_gru = {.verb = "train",
                                               .object = "gru",
                                               .summary = "Trains a GRU by sequential BP or by the scan",
                                               .example = "train gru --seq-len 100 --samples 3200 --epochs 3",
                                               .notes = SIGNAL_NOTES,
                                               .uses = uses_gru,
                                               .run = run_train};

static const char cnn_notes[] =
    SIGNAL_NOTES "A mask keeps weights at 0 (bppsa prune makes one): they are 0 from the first step on, and the "
                 "scan's patterns leave them out.\n"
                 "Sparse scans know linear, blelloch and auto, which takes the number of up-levels with the "
                 "fewest FLOPs on the critical path.\n";

const bppsa_command bppsa_command_train_lenet5 = {.verb = "train",
                                                  .object = "lenet5",
                                                  .summary = "Trains LeNet-5 by sequential BP or by the sparse scan",
                                                  .example = "train lenet5 --data cifar10:cifar --lr 0.01 --epochs 3",
                                                  .notes = cnn_notes,
                                                  .uses = uses_cnn,
                                                  .run = run_train};

const bppsa_command bppsa_command_train_vgg11 = {.verb = "train",
                                                 .object = "vgg11",
                                                 .summary = "Trains VGG-11 by sequential BP or by the sparse scan",
                                                 .example = "train vgg11 --data cifar10:cifar --backward bp --lr 0.01",
                                                 .notes = cnn_notes,
                                                 .uses = uses_cnn,
                                                 .run = run_train};

const bppsa_command bppsa_command_train_file = {.verb = "train",
                                                .object = BPPSA_FILE_OBJECT,
                                                .summary = "Trains a network of a file of operators (docs/networks.md)",
                                                .example = "train net.json --data cifar10:cifar --lr 0.01 --epochs 3",
                                                .notes = cnn_notes,
                                                .uses = uses_cnn,
                                                .run = run_train};
