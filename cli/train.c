/* `bppsa train MODEL`: sets a run up, drives the training loop, saves the weights. runs/train_show.c says what is shown. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/ranks.h"
#include "cli/setup.h"
#include "cli/train_options.h"
#include "core/base/alloc.h"
#include "distributed/agree.h"
#include "runs/train_show.h"
#include "terminal/progress.h"

/* The options of all networks: method and length; how the learning rate changes; machine, ranks, files. */
#define LOOP_USES                                                                                                                \
  BPPSA_USE(ORDER), BPPSA_USE(NO_SHUFFLE), BPPSA_USE(ALGORITHM), BPPSA_USE(UP_LEVELS), BPPSA_USE(PLAN), BPPSA_USE(EPOCHS),       \
      BPPSA_USE_AS(ITERATIONS, train_iterations)
#define RATE_USES                                                                                                                \
  BPPSA_USE(WEIGHT_DECAY), BPPSA_USE(LR_SCHEDULE), BPPSA_USE(LR_STEP_SIZE), BPPSA_USE(LR_GAMMA), BPPSA_USE(LR_PERIOD),           \
      BPPSA_USE(LR_MIN), BPPSA_USE(WARMUP), BPPSA_USE(CLIP_NORM), BPPSA_USE(PREDICT_AHEAD)
#define RUN_USES                                                                                                                 \
  BPPSA_USE(DEVICE), BPPSA_USE(DTYPE), BPPSA_USE(THREADS), BPPSA_RANKS_USES, BPPSA_USE(STAGES), BPPSA_SCHEDULE_USES,             \
      {.option = BPPSA_OPTION_COSTS, .help = "of the schedule, in seconds, as bench schedule --save-costs has them [FLOPs]"},    \
      {.option = BPPSA_OPTION_TRACE, .help = "what the ranks did when, and with --costs what is predicted, for Perfetto"},       \
      BPPSA_USE(ALLOW_OTHER_RANKS), {.option = BPPSA_OPTION_MEMORY_LIMIT, .help = BPPSA_REFUSE_HELP}, BPPSA_USE(LOG),            \
      BPPSA_USE(WEIGHTS), BPPSA_USE(PREFIX), BPPSA_USE(SAVE_WEIGHTS), BPPSA_USE(CHECKPOINT), BPPSA_USE(CHECKPOINT_EVERY),        \
      {.option = BPPSA_OPTION_RESUME,                                                                                            \
       .instead = "--checkpoint names the folder of the checkpoint, as in --checkpoint DIR "                                     \
                  "--resume"},                                                                                                   \
      BPPSA_USES_END

/* The certificates of recurrent networks. */
#define CERTIFY_HELP "log how wrong the weight gradients of some steps are, rounding included, by BP in float64"
#define CERTIFY_USES {.option = BPPSA_OPTION_CERTIFY, .help = CERTIFY_HELP}, BPPSA_USE(CERTIFY_EVERY)

#define CHUNKS_HELP "chunks of time; implies chunked [from T]; with --split interleaved stages of a worker [2]"
/* The options of recurrent networks; `only` adds the options of one cell. */
#define USES(only, rate)                                                                                                         \
  {                                                                                                                              \
    BPPSA_USE(LAYERS), BPPSA_USE(HIDDEN), only BPPSA_USE(NO_BIAS), BPPSA_USE(BIDIRECTIONAL), BPPSA_USE(RESET_STATE),             \
        BPPSA_USE(DROPOUT), BPPSA_USE_AS(LOSS, train_loss), BPPSA_USE(IGNORE_LABEL), BPPSA_USE(INIT), BPPSA_USE(DATA),           \
        BPPSA_USE(SET), BPPSA_USE(PADDING), BPPSA_USE(SAMPLES), BPPSA_USE(SEQ_LEN), BPPSA_USE_AS(INPUT, input_size),             \
        BPPSA_USE(BATCH), BPPSA_USE(VALIDATION), BPPSA_USE(LENGTHS), BPPSA_USE(RESETS), BPPSA_USE(LOSS_WEIGHTS),                 \
        BPPSA_USE(PACK), BPPSA_USE(STATEFUL), BPPSA_USE(BPTT), BPPSA_FORWARD_USES, BPPSA_BACKWARD_USES,                          \
        BPPSA_USE(RECOMPUTE_EVERY), CERTIFY_USES, {.option = BPPSA_OPTION_CHUNKS, .help = CHUNKS_HELP}, LOOP_USES,               \
        BPPSA_USE(OPTIMIZER), {.option = BPPSA_OPTION_LR, .fallback = (rate)}, BPPSA_USE(MOMENTUM), RATE_USES, BPPSA_USE(SEED),  \
        RUN_USES                                                                                                                 \
  }
#define CELL(id, words, functions, rate, sweep)                                                                                  \
  static const bppsa_option_use uses_##id[] = USES(BPPSA_OPTIONS_##functions, #rate);
#include "networks/cells.inc"

/* The options of convolutional networks. */
static const bppsa_option_use uses_cnn[] = {
    BPPSA_IN_SHAPE_USE,
    {.option = BPPSA_OPTION_LOSS, .meaning = &bppsa_meaning_train_loss, .help = BPPSA_IMAGES_LOSS_HELP},
    BPPSA_USE(IGNORE_LABEL),
    {.option = BPPSA_OPTION_MASK, .metavar = "M.safetensors", .help = BPPSA_MASK_HELP},
    {.option = BPPSA_OPTION_DATA, .fallback = "", .required = true, .help = BPPSA_IMAGES_HELP},
    {.option = BPPSA_OPTION_SAMPLES, .help = "images to train on, the first ones"},
    {.option = BPPSA_OPTION_BATCH, .fallback = "256"},
    {.option = BPPSA_OPTION_VALIDATION, .help = BPPSA_IMAGES_VALIDATION_HELP},
    BPPSA_USE(BATCH_NORM),
    BPPSA_USE(BACKWARD),
    LOOP_USES,
    BPPSA_USE(WEIGHT_GRADIENTS),
    {.option = BPPSA_OPTION_OPTIMIZER, .fallback = "sgd"},
    {.option = BPPSA_OPTION_LR, .fallback = "0.001"},
    {.option = BPPSA_OPTION_MOMENTUM, .fallback = "0.9"},
    RATE_USES,
    {.option = BPPSA_OPTION_SEED, .help = "of weights and shuffling"},
    BPPSA_USE_AS(CHUNKS, stage_chunks),
    BPPSA_USE(REVERSE_FIRST),
    {.option = BPPSA_OPTION_GROUP_SIZE,
     .help = "ranks of a group of data+filter and data+spatial [up to the root of their number]"},
    RUN_USES};

/* ---- setting up ---- */

static bppsa_status check_weights(const bppsa_cli *cli) {
  if (bppsa_cli_value(cli, BPPSA_OPTION_PREFIX)->given && !bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->given) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--prefix: given without --weights, expected --weights W.safetensors too");
  }
  if (bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->given && bppsa_cli_value(cli, BPPSA_OPTION_INIT)->given) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--init: given beside --weights, expected only one of the two");
  }
  return BPPSA_OK;
}

/* Options that have no meaning in a run without steps, which refuses them. */
static const bppsa_option of_steps[] = {BPPSA_OPTION_LOG,   BPPSA_OPTION_CHECKPOINT, BPPSA_OPTION_RESUME,
                                        BPPSA_OPTION_TRACE, BPPSA_OPTION_CERTIFY,    BPPSA_OPTION_CERTIFY_EVERY};

static bppsa_status setup_training(const bppsa_cli *cli, bppsa_train_config *train) {
  const bppsa_option_value *epochs = bppsa_cli_value(cli, BPPSA_OPTION_EPOCHS);
  const bppsa_option_value *iterations = bppsa_cli_value(cli, BPPSA_OPTION_ITERATIONS);
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
  BPPSA_TRY(bppsa_train_update_options(cli, train));
  train->batch = bppsa_cli_value(cli, BPPSA_OPTION_BATCH)->integer;
  train->clip_norm = bppsa_cli_value(cli, BPPSA_OPTION_CLIP_NORM)->real;
  train->seed = (uint64_t)bppsa_cli_value(cli, BPPSA_OPTION_SEED)->integer;
  train->validation = bppsa_cli_value(cli, BPPSA_OPTION_VALIDATION)->real;
  train->log_path = bppsa_cli_value(cli, BPPSA_OPTION_LOG)->text;
  return bppsa_train_checkpoint_options(cli, train);
}

/* Reads --order and --no-shuffle, once the split is known. The training loop checks that there is a row for every epoch, because
 * it knows their number. */
static bppsa_status setup_order(const bppsa_cli *cli, bppsa_train_run *run) {
  const bppsa_option_value *path = bppsa_cli_value(cli, BPPSA_OPTION_ORDER);
  const bool in_order = bppsa_cli_value(cli, BPPSA_OPTION_NO_SHUFFLE)->given;
  if (!path->given || in_order) {
    run->train.order.kind = in_order || run->dataset->streams ? BPPSA_ORDER_DATA : BPPSA_ORDER_SHUFFLED;
    return path->given ? bppsa_fail(BPPSA_ERR_ARGUMENT, "--no-shuffle: given beside --order, expected only one of the two")
                       : BPPSA_OK;
  }
  BPPSA_TRY(bppsa_order_load(path->text, &run->order, &run->train.order));
  return bppsa_order_check(&run->train.order, run->split.train, 1);
}

static bppsa_status setup_data(const bppsa_cli *cli, bppsa_train_run *run) {
  bppsa_objective objective;
  BPPSA_TRY(bppsa_setup_objective(cli, run->weights, &objective));
  BPPSA_TRY(bppsa_setup_dataset(cli, run->device, &run->config, &objective, &run->dataset));
  char kept[BPPSA_CHECKPOINT_VALUE];
  BPPSA_TRY(bppsa_train_run_kept_rows(run, kept));
  BPPSA_TRY(bppsa_setup_pack(cli, &run->network, run->device, run->train.resume ? kept : NULL, run->on.comm != NULL,
                             &run->train.validation, &run->config, &run->dataset, &run->pack_times));
  if (run->dataset->packing != NULL && bppsa_cli_given(cli, BPPSA_OPTION_ORDER)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--order: given beside --pack, whose rows hold several samples, expected one of them");
  }
  BPPSA_TRY(bppsa_setup_streams(cli, run->on.comm != NULL, &run->config, run->dataset));
  BPPSA_TRY(bppsa_setup_windows(cli, run->on.comm != NULL, &run->config, run->dataset));
  BPPSA_TRY(bppsa_dataset_split(run->dataset, run->train.validation, &run->split));
  BPPSA_TRY(setup_order(cli, run));
  run->epoch_samples = bppsa_order_samples(&run->train.order, run->split.train);
  if (run->train.batch > run->epoch_samples) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "--batch: %" PRId64 ", more than the %" PRId64 " training samples, expected at most that many",
                      run->train.batch, run->epoch_samples);
  }
  const int64_t batches = (run->epoch_samples - 1) / run->train.batch + 1;
  if (run->dataset->windows > batches) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "--bptt: %" PRId64 ", more than the %" PRId64 " batches of an epoch, expected at most that many",
                      run->dataset->windows, batches);
  }
  BPPSA_TRY(bppsa_network_fit(&run->network, bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->text, run->dataset, &run->config));
  bppsa_setup_note_classes(cli, run->dataset);
  return BPPSA_OK;
}

/* Sets up everything up to the model, with the choice of the method. Ranks along time choose it when they make their model. */
static bppsa_status setup_request(const bppsa_cli *cli, bppsa_train_run *run) {
  BPPSA_TRY(bppsa_setup_network(cli, &run->network));
  run->config = bppsa_network_config_default(&run->network);
  BPPSA_TRY(bppsa_setup_config(cli, BPPSA_RUNS_ONE, &run->config));
  BPPSA_TRY(setup_training(cli, &run->train));
  BPPSA_TRY(bppsa_train_certify_options(cli, run->on.comm != NULL, &run->train));
  run->ahead = bppsa_cli_value(cli, BPPSA_OPTION_PREDICT_AHEAD)->integer;
  BPPSA_TRY(check_weights(cli));
  BPPSA_TRY(bppsa_setup_device(cli, &run->device));
  bppsa_setup_limit(cli, run->device, &run->config);
  if (bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->given) {
    BPPSA_TRY(bppsa_setup_weights(cli, &run->network, &run->config, &run->weights));
  }
  BPPSA_TRY(setup_data(cli, run));
  BPPSA_TRY(bppsa_ranks_schedule(cli, run->on.comm, &run->schedule));
  BPPSA_TRY(bppsa_ranks_layers(cli, run->on.comm, &run->layers));
  BPPSA_TRY(bppsa_train_run_reserve(run));
  BPPSA_TRY(run->schedule.split != NULL ? bppsa_train_run_make_schedule(run)
            : run->layers.split != NULL
                ? bppsa_train_run_make_layers(run)
                : bppsa_ranks_setup(cli, &run->network, run->train.batch, "a batch", 0, &run->on, &run->config));
  run->chosen = bppsa_chosen_of(&run->config.method);
  BPPSA_TRY(bppsa_train_run_resume_method(run));
  return bppsa_rank_network_cut(&run->on) ? BPPSA_OK
                                          : bppsa_setup_choose(cli, &run->network, run->device, &run->config, &run->chosen);
}

static bppsa_status setup_model(const bppsa_cli *cli, bppsa_train_run *run) {
  BPPSA_TRY(bppsa_train_run_create_model(run));
  const bppsa_option_value *init = bppsa_cli_value(cli, BPPSA_OPTION_INIT); /* without text: the command does not take --init */
  run->init = run->weights != NULL ? "from weights" : init->text != NULL ? init->text : "default";
  if (run->weights != NULL) {
    return bppsa_setup_model(cli, &run->network, run->weights, run->model);
  }
  return bppsa_rank_network_init(&run->network, &run->config, run->device, &run->on,
                                 init->choice == 1 ? BPPSA_INIT_ORTHOGONAL : BPPSA_INIT_DEFAULT, run->train.seed, run->model);
}

/* On ranks one of them reports what is wrong, and all of them take rank 0's method, which may have been measured. */
static bppsa_status setup(const bppsa_cli *cli, bppsa_train_run *run) {
  bppsa_status status = setup_request(cli, run);
  if (run->on.comm == NULL) {
    return status == BPPSA_OK ? setup_model(cli, run) : status;
  }
  bppsa_comm_at(run->on.comm, "the setup", -1);
  BPPSA_TRY(bppsa_job_agree(run->on.comm, status));
  BPPSA_TRY(bppsa_chosen_share(run->on.comm, &run->config.method, &run->chosen));
  return bppsa_job_agree(run->on.comm, setup_model(cli, run));
}

/* ---- results ---- */

/* The summary is made before the files are written, and printed after that. */
static bppsa_status finish(bppsa_cli *cli, const bppsa_train_show *show) {
  bppsa_text shown = {0};
  bppsa_status status = bppsa_train_show_render(show, &shown);
  if (status != BPPSA_OK) {
    bppsa_text_free(&shown);
    return bppsa_train_run_rescue(show->run, status, show->saved);
  }
  status = bppsa_train_run_save(show->run, show->saved);
  status = status == BPPSA_OK ? bppsa_setup_show(cli, &shown) : status;
  bppsa_text_free(&shown);
  return status;
}

/* ---- what is shown while it runs ---- */

typedef struct {
  const bppsa_cli *cli;
  bppsa_progress_line line;
} screen;

/* The stream is flushed, so that other programs see the text at once. */
static bppsa_status print_now(void *context, const char *text) {
  screen *shown = context;
  bppsa_progress_clear(&shown->line);
  BPPSA_TRY(bppsa_output_print(&shown->cli->to, "%s", text));
  return bppsa_output_flush(shown->cli->to.out);
}

static void note(void *context, const char *text) {
  screen *shown = context;
  bppsa_progress_clear(&shown->line);
  bppsa_output_note(&shown->cli->to, "%s", text);
}

static void show_progress(void *context, const bppsa_progress *p) {
  const bppsa_train_show *show = context;
  bppsa_progress_line *line = &((screen *)show->context)->line;
  if (p->step < p->total_steps && bppsa_progress_due(line)) {
    char left[32];
    bppsa_progress_show(line, "step %" PRId64 " of %" PRId64 ", epoch %" PRId64 ", loss %.4f, %.2f ms a step, %s left", p->step,
                        p->total_steps, p->epoch, p->loss, 1e3 * p->elapsed_s / (double)p->done,
                        bppsa_progress_time(p->eta_s, left, sizeof left));
  }
}

enum { INPUTS = 7 };

/* Lists the files that the run reads, besides its data. */
static bppsa_provenance provenance(const bppsa_cli *cli, bppsa_provenance_input inputs[INPUTS]) {
  static const bppsa_option files[INPUTS] = {BPPSA_OPTION_WEIGHTS, BPPSA_OPTION_MASK,         BPPSA_OPTION_LENGTHS,
                                             BPPSA_OPTION_RESETS,  BPPSA_OPTION_LOSS_WEIGHTS, BPPSA_OPTION_ORDER,
                                             BPPSA_OPTION_COSTS};
  int count = 0;
  for (int i = 0; i < INPUTS; ++i) {
    const bppsa_option_value *file = bppsa_cli_value(cli, files[i]);
    if (file->given) {
      inputs[count++] = (bppsa_provenance_input){bppsa_option_get(files[i])->name, file->text};
    }
  }
  return (bppsa_provenance){.argc = cli->argc,
                            .argv = cli->argv,
                            .data = bppsa_cli_value(cli, BPPSA_OPTION_DATA)->text,
                            .count = count,
                            .inputs = inputs};
}

static bool stop(void *context) {
  const bppsa_train_show *show = context;
  return bppsa_interrupt_pending(((const screen *)show->context)->cli->interrupt);
}

/* Trains until the end, or until SIGINT or SIGTERM ends the run after its step; a second signal kills the program
 * (terminal/interrupt.h). */
static bppsa_status train_interruptible(bppsa_interrupt *interrupt, bppsa_train_run *run, bppsa_train_callbacks *callbacks) {
  const bool catches = bppsa_ranks_first(run->on.comm) || bppsa_comm_get_transport(run->on.comm) == BPPSA_COMM_MPI;
  bool stops = bppsa_interrupt_pending(interrupt); /* the process was told to stop before the run began */
  callbacks->stop = stop;
  if (run->on.comm != NULL) {
    BPPSA_TRY(bppsa_ranks_agree_stop(run->on.comm, 0, &stops));
  }
  if (stops) {
    const char *name = bppsa_interrupt_name(interrupt);
    return bppsa_fail(BPPSA_ERR_IO, "stopped by %s before the first step, nothing was written",
                      name[0] != '\0' ? name : "another rank's signal");
  }
  if (catches) { /* once for each process */
    bppsa_interrupt_catch(interrupt);
  }
  const bppsa_status status = bppsa_train(&run->train, run->model, run->dataset, run->device, callbacks, &run->result);
  if (catches) {
    bppsa_interrupt_release(interrupt);
  }
  return status;
}

/* Takes all steps; --iterations 0 asks for none. */
static bppsa_status take_steps(bppsa_train_show *show) {
  bppsa_train_callbacks callbacks = bppsa_train_show_callbacks(show);
  bppsa_train_run *run = show->run;
  callbacks.progress = show_progress;
  if (run->train.iterations == 0 && run->train.epochs == 0) {
    run->result.last = (bppsa_train_record){.loss = (double)NAN, .accuracy = (double)NAN};
    return callbacks.started(callbacks.context, &(bppsa_train_start){.notice = ""});
  }
  bppsa_train_run_set_fields(run);
  char *header = NULL;
  BPPSA_TRY(run->train.log_path == NULL ? BPPSA_OK : bppsa_train_show_header(show, &header));
  run->train.log_header = header;
  const bppsa_status status = train_interruptible(((screen *)show->context)->cli->interrupt, run, &callbacks);
  bppsa_free(header);
  bppsa_progress_clear(&((screen *)show->context)->line);
  return status;
}

/* Ranks that share layers or execute a schedule get no note: they run no scan, and --chunks means something else. */
static void note_larger(const bppsa_cli *cli, const bppsa_train_run *run) {
  if (bppsa_ranks_first(run->on.comm) && run->schedule.split == NULL && run->layers.split == NULL) {
    const bppsa_gradient_method method = bppsa_rank_network_method(&run->network, &run->config, &run->on, run->model);
    bppsa_setup_note_scan(cli, &method);
    bppsa_setup_note_forward(cli, bppsa_forward_plan_of(run->model));
    bppsa_setup_note_backward(cli, &run->config.method, bppsa_backward_plan_of(run->model));
  }
}

static bppsa_status train(bppsa_cli *cli, bppsa_train_show *show) {
  BPPSA_TRY(setup(cli, show->run));
  note_larger(cli, show->run);
  const bppsa_status taken = take_steps(show);
  const bool first = bppsa_ranks_first(show->run->on.comm);
  if (taken != BPPSA_OK) {
    return first ? bppsa_train_run_rescue(show->run, taken, show->saved) : taken;
  }
  BPPSA_TRY(bppsa_train_run_end_trace(show->run));
  if (!first) {
    return BPPSA_OK;
  }
  BPPSA_TRY(finish(cli, show));
  return bppsa_train_run_stopped(show->run, show->saved, bppsa_interrupt_name(cli->interrupt));
}

static bppsa_status train_rank(bppsa_cli *cli, bppsa_comm *comm) {
  bppsa_train_run run = {.train = bppsa_train_config_default(),
                         .on = {.comm = comm, .nccl = bppsa_ranks_over_nccl(cli)},
                         .trace_path = bppsa_cli_value(cli, BPPSA_OPTION_TRACE)->text};
  bppsa_provenance_input inputs[INPUTS];
  screen shown = {cli, bppsa_progress_start(cli->to.err)};
  bppsa_train_show show = {.run = &run,
                           .json = cli->to.json,
                           .provenance = provenance(cli, inputs),
                           .print = print_now,
                           .note = note,
                           .context = &shown};
  show.saved = bppsa_cli_value(cli, BPPSA_OPTION_SAVE_WEIGHTS)->text;
  const bppsa_status status = train(cli, &show);
  bppsa_train_show_free(&show);
  bppsa_train_run_free(&run);
  return status;
}

static bppsa_status run_train(bppsa_cli *cli) {
  return bppsa_ranks_run(cli, train_rank);
}

#define SIGNAL_NOTES                                                                                                             \
  "Ctrl-C or SIGTERM ends the run after its step: the summary, --save-weights and --log are written as far as it came, and "     \
  "the exit code is 1. A second one kills it.\n"

static const char cnn_notes[] =
    SIGNAL_NOTES "A mask keeps weights at 0 (bppsa prune makes one): they are 0 from the first step on, and the "
                 "scan's patterns leave them out.\n"
                 "Sparse scans know linear, blelloch and auto, which takes the number of up-levels with the "
                 "fewest FLOPs on the critical path.\n";

#define TRAIN(id, name, what, words, says, takes)                                                                                \
  const bppsa_command bppsa_command_train_##id = {.verb = "train",                                                               \
                                                  .object = (name),                                                              \
                                                  .summary = "Trains " what,                                                     \
                                                  .example = "train " words,                                                     \
                                                  .notes = (says),                                                               \
                                                  .uses = (takes),                                                               \
                                                  .run = run_train}
#define CELL(id, words, functions, rate, sweep)                                                                                  \
  TRAIN(id, #id, words " by sequential BP or by the scan", #id " --seq-len 100 --samples 3200 --epochs 3", SIGNAL_NOTES,         \
        uses_##id);
#include "networks/cells.inc"
#define IMAGES(id, words, shape, levels)                                                                                         \
  TRAIN(id, #id, words " by sequential BP or by the sparse scan", #id shape " --data cifar10:cifar --lr 0.01 --epochs 3",        \
        cnn_notes, uses_cnn);
#include "networks/image_networks.inc"
TRAIN(file, BPPSA_NETWORK_FILE, "a network of a file of operators (docs/networks.md)",
      "net.json --data cifar10:cifar --lr 0.01 --epochs 3", cnn_notes, uses_cnn);
