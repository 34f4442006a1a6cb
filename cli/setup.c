#include "cli/setup.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/alloc.h"
#include "terminal/machine.h"
#include "terminal/progress.h"
#include "train/data/bitstream.h"
#include "train/data/lengths.h"
#include "train/data/loss_weights.h"
#include "train/data/resets.h"

/* ---- networks ---- */

const bppsa_network_kind *bppsa_setup_kind(const bppsa_cli *cli) {
  const char *object = cli->command->object;
  const bppsa_network_kind *kind = object != NULL ? bppsa_network_kind_find(object) : NULL;
  const bppsa_option_value *model = bppsa_cli_value(cli, BPPSA_OPTION_MODEL);
  const bool named = model->meaning == bppsa_option_get(BPPSA_OPTION_MODEL); /* other commands take any model, or none */
  return kind != NULL ? kind : bppsa_network_kind_find(named ? model->text : "rnn");
}

bppsa_status bppsa_setup_in_shape(const bppsa_cli *cli, int64_t in[3]) {
  const bppsa_option_value *value = bppsa_cli_value(cli, BPPSA_OPTION_IN_SHAPE);
  int64_t shape[3] = {1, 1, 1};
  int count;
  if (!value->present) {
    return BPPSA_OK;
  }
  if (!bppsa_text_numbers(value->text, 3, shape, &count) || shape[0] < 1) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: '%s', expected %s", value->meaning->name, value->text, value->meaning->expected);
  }
  memcpy(in, shape, sizeof shape);
  return BPPSA_OK;
}

/* Reads --weight-gradients. Only BP on a GPU has a second stream. */
static bppsa_status read_order(const bppsa_cli *cli, bppsa_weight_gradients *gradients) {
  const bppsa_option_value *order = bppsa_cli_value(cli, BPPSA_OPTION_WEIGHT_GRADIENTS),
                           *backward = bppsa_cli_value(cli, BPPSA_OPTION_BACKWARD),
                           *device = bppsa_cli_value(cli, BPPSA_OPTION_DEVICE);
  if (!order->present || order->choice == 0) {
    return BPPSA_OK;
  }
  if (strcmp(backward->text, "bp") != 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--weight-gradients: %s beside --backward %s, expected --backward bp", order->text,
                      backward->text);
  }
  if (strncmp(device->text, "cuda", 4) != 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--weight-gradients: %s beside --device %s, expected --device cuda", order->text,
                      device->text);
  }
  *gradients = BPPSA_WEIGHT_GRADIENTS_SECOND_STREAM;
  return BPPSA_OK;
}

bppsa_status bppsa_setup_network(const bppsa_cli *cli, bppsa_network *network) {
  const bppsa_network_kind *kind = bppsa_setup_kind(cli);
  const bool file = strcmp(kind->name, BPPSA_NETWORK_FILE) == 0;
  bppsa_network opened = {0};
  BPPSA_TRY(bppsa_network_open(file ? cli->object : kind->name, bppsa_cli_value(cli, BPPSA_OPTION_MASK)->text, &opened));
  bppsa_status status = read_order(cli, &opened.weight_gradients);
  int64_t in[3] = {0};
  status = status == BPPSA_OK ? bppsa_setup_in_shape(cli, in) : status;
  status = status == BPPSA_OK && in[0] != 0 ? bppsa_network_reshape(&opened, in) : status;
  if (status != BPPSA_OK) {
    bppsa_network_close(&opened);
    return status;
  }
  *network = opened;
  return BPPSA_OK;
}

bool bppsa_setup_stage_chunks(const bppsa_cli *cli) {
  const char *split = bppsa_cli_value(cli, BPPSA_OPTION_SPLIT)->text;
  return bppsa_cli_value(cli, BPPSA_OPTION_CHUNKS)->meaning == &bppsa_meaning_stage_chunks ||
         (split != NULL && strcmp(split, "interleaved") == 0);
}

/* Is an option of the scan given, and does it mean the scan? */
static bool scan_given(const bppsa_cli *cli, bppsa_option option) {
  return bppsa_cli_value(cli, option)->given && !(option == BPPSA_OPTION_CHUNKS && bppsa_setup_stage_chunks(cli));
}

/* Reads one of --up-levels and --chunks. The option implies its algorithm and contradicts any other. *number receives its value. */
static bppsa_status take_number(const bppsa_cli *cli, bppsa_option option, bppsa_scan_algorithm implied, bppsa_scan_method *scan,
                                int64_t *number) {
  const bppsa_option_value *value = bppsa_cli_value(cli, option), *algorithm = bppsa_cli_value(cli, BPPSA_OPTION_ALGORITHM);
  const char *name = bppsa_scan_algorithm_name(implied);
  if (scan_given(cli, option) && algorithm->given && scan->algorithm != implied) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: given beside --algorithm %s, expected --algorithm %s",
                      bppsa_option_get(option)->name, algorithm->text, name);
  }
  if (scan_given(cli, option)) {
    scan->algorithm = implied;
    *number = value->integer;
  }
  return BPPSA_OK;
}

static const bppsa_option of_scan[] = {BPPSA_OPTION_ALGORITHM, BPPSA_OPTION_UP_LEVELS, BPPSA_OPTION_CHUNKS};

/* Is any option of the scan given? */
static bool any_scan_given(const bppsa_cli *cli) {
  size_t i = 0;
  while (i < sizeof of_scan / sizeof of_scan[0] && !scan_given(cli, of_scan[i])) {
    ++i;
  }
  return i < sizeof of_scan / sizeof of_scan[0];
}

/* Options of the scan imply --backward scan, and contradict any other. */
static bppsa_status imply_scan(const bppsa_cli *cli, bppsa_gradient_method *method) {
  const bppsa_option_value *backward = bppsa_cli_value(cli, BPPSA_OPTION_BACKWARD);
  for (size_t i = 0; i < sizeof of_scan / sizeof of_scan[0]; ++i) {
    if (!scan_given(cli, of_scan[i])) {
      continue;
    }
    if (backward->given && method->backward != BPPSA_BACKWARD_SCAN) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: an option of the scan beside --backward %s, expected --backward scan",
                        bppsa_option_get(of_scan[i])->name, backward->text);
    }
    method->backward = BPPSA_BACKWARD_SCAN;
  }
  return BPPSA_OK;
}

/* Reads --backward, --algorithm, --up-levels and --chunks. For options that the command does not take, *method is unchanged. */
static bppsa_status setup_gradients(const bppsa_cli *cli, bppsa_gradient_method *method) {
  const bppsa_option_value *backward = bppsa_cli_value(cli, BPPSA_OPTION_BACKWARD),
                           *algorithm = bppsa_cli_value(cli, BPPSA_OPTION_ALGORITHM);
  bppsa_gradient_method found = *method;
  if (backward->present) {
    BPPSA_TRY(bppsa_gradient_method_parse(backward->text, &found));
  }
  BPPSA_TRY(imply_scan(cli, &found));
  if (scan_given(cli, BPPSA_OPTION_UP_LEVELS) && scan_given(cli, BPPSA_OPTION_CHUNKS)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--chunks: given beside --up-levels, expected only one of the two");
  }
  if (algorithm->present) {
    BPPSA_TRY(bppsa_scan_method_parse(algorithm->text, &found.scan));
  }
  BPPSA_TRY(take_number(cli, BPPSA_OPTION_UP_LEVELS, BPPSA_SCAN_BLELLOCH, &found.scan, &found.scan.up_levels));
  BPPSA_TRY(take_number(cli, BPPSA_OPTION_CHUNKS, BPPSA_SCAN_CHUNKED, &found.scan, &found.scan.chunks));
  *method = found;
  return BPPSA_OK;
}

/* Reads the numbers of --backward-chunks, --backward-warm-up and --backward-tolerance. Options that the command does not take leave
 * them unchanged. */
static void setup_speculative_numbers(const bppsa_cli *cli, bppsa_backward_method *numbers) {
  const bppsa_option_value *chunks = bppsa_cli_value(cli, BPPSA_OPTION_BACKWARD_CHUNKS),
                           *warm_up = bppsa_cli_value(cli, BPPSA_OPTION_BACKWARD_WARM_UP),
                           *tolerance = bppsa_cli_value(cli, BPPSA_OPTION_BACKWARD_TOLERANCE);
  numbers->chunks = chunks->given ? chunks->integer : numbers->chunks;
  numbers->warm_up = warm_up->given ? warm_up->integer : numbers->warm_up;
  numbers->tolerance = tolerance->given ? tolerance->real : numbers->tolerance;
}

/* Reads --input-gradients, which has no effect on BP and scans: their gradients of x and h0 are exact. */
static bppsa_status setup_input_gradients(const bppsa_cli *cli, const bppsa_gradient_method *method,
                                          bppsa_backward_method *numbers) {
  const bppsa_option_value *exact = bppsa_cli_value(cli, BPPSA_OPTION_INPUT_GRADIENTS);
  if (exact->given && (method->backward == BPPSA_BACKWARD_BP || method->backward == BPPSA_BACKWARD_SCAN)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "--input-gradients: given beside %s, whose gradients are exact, expected --backward speculative or auto",
                      method->backward == BPPSA_BACKWARD_BP ? "BP" : "a scan");
  }
  numbers->exact_inputs = exact->present && strcmp(exact->text, "exact") == 0;
  return BPPSA_OK;
}

/* Reads --backward-chunks, --backward-warm-up and --backward-tolerance, which imply a speculative pass and contradict any other. */
static bppsa_status setup_speculation(const bppsa_cli *cli, bppsa_gradient_method *method, bppsa_backward_method *numbers) {
  static const bppsa_option options[] = {BPPSA_OPTION_BACKWARD_CHUNKS, BPPSA_OPTION_BACKWARD_WARM_UP,
                                         BPPSA_OPTION_BACKWARD_TOLERANCE};
  const bppsa_option_value *backward = bppsa_cli_value(cli, BPPSA_OPTION_BACKWARD);
  for (size_t i = 0; i < sizeof options / sizeof *options; ++i) {
    if (!bppsa_cli_value(cli, options[i])->given) {
      continue;
    }
    if ((backward->given || any_scan_given(cli)) && method->backward != BPPSA_BACKWARD_SPECULATIVE) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT,
                        "%s: an option of speculative BP beside --backward %s, expected --backward speculative",
                        bppsa_option_get(options[i])->name, bppsa_backward_name(method->backward));
    }
    method->backward = BPPSA_BACKWARD_SPECULATIVE;
  }
  setup_speculative_numbers(cli, numbers);
  return setup_input_gradients(cli, method, numbers);
}

/* Reads --up-levels and --chunks of a command that runs all algorithms. */
static void setup_numbers(const bppsa_cli *cli, bppsa_scan_method *scan) {
  const bppsa_option_value *up_levels = bppsa_cli_value(cli, BPPSA_OPTION_UP_LEVELS);
  scan->up_levels = up_levels->given ? up_levels->integer : -1;
  scan->chunks = scan_given(cli, BPPSA_OPTION_CHUNKS) ? bppsa_cli_value(cli, BPPSA_OPTION_CHUNKS)->integer : 0;
}

/* Reads --forward, --forward-chunks, --warm-up and --tolerance. Beside --forward the last three imply a speculative pass and
 * contradict a sequential one. For options that the command does not take, *method is unchanged. */
static bppsa_status setup_forward(const bppsa_cli *cli, bppsa_forward_method *method) {
  static const bppsa_option numbers[] = {BPPSA_OPTION_FORWARD_CHUNKS, BPPSA_OPTION_WARM_UP, BPPSA_OPTION_TOLERANCE};
  const bppsa_option_value *kind = bppsa_cli_value(cli, BPPSA_OPTION_FORWARD), *chunks = bppsa_cli_value(cli, numbers[0]),
                           *warm_up = bppsa_cli_value(cli, numbers[1]), *tolerance = bppsa_cli_value(cli, numbers[2]);
  BPPSA_TRY(kind->present ? bppsa_forward_parse(kind->text, &method->kind) : BPPSA_OK);
  for (size_t i = 0; kind->present && i < sizeof numbers / sizeof numbers[0]; ++i) {
    if (bppsa_cli_value(cli, numbers[i])->given && method->kind == BPPSA_FORWARD_SEQUENTIAL) {
      if (kind->given) {
        return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: given beside --forward %s, expected --forward speculative or auto",
                          bppsa_option_get(numbers[i])->name, kind->text);
      }
      method->kind = BPPSA_FORWARD_SPECULATIVE;
    }
  }
  method->chunks = chunks->given ? chunks->integer : method->chunks;
  method->warm_up = warm_up->given ? warm_up->integer : method->warm_up;
  method->tolerance = tolerance->given ? tolerance->real : method->tolerance;
  return BPPSA_OK;
}

/* Does --loss offer the losses of training, with those of real targets among them? */
static bool trains_by_loss(const bppsa_cli *cli) {
  return bppsa_cli_value(cli, BPPSA_OPTION_LOSS)->meaning == &bppsa_meaning_train_loss;
}

/* Reads --recompute-every, which implies BP where nothing else is asked for. */
static bppsa_status setup_recompute(const bppsa_cli *cli, bppsa_gradient_method *method, int64_t *recompute) {
  const bppsa_option_value *value = bppsa_cli_value(cli, BPPSA_OPTION_RECOMPUTE_EVERY);
  if (!value->given) {
    return BPPSA_OK;
  }
  if (method->backward == BPPSA_BACKWARD_SCAN && !bppsa_cli_given(cli, BPPSA_OPTION_BACKWARD) && !any_scan_given(cli)) {
    method->backward = BPPSA_BACKWARD_BP;
  }
  *recompute = value->integer;
  return method->backward != BPPSA_BACKWARD_SPECULATIVE
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT,
                          "--recompute-every: given beside speculative BP, expected --backward bp, scan or auto");
}

bppsa_status bppsa_setup_config(const bppsa_cli *cli, bppsa_runs runs, bppsa_network_config *config) {
  const struct {
    bppsa_option option;
    int64_t *field;
  } integers[] = {{BPPSA_OPTION_LAYERS, &config->steps.layers},
                  {BPPSA_OPTION_HIDDEN, &config->steps.hidden},
                  {BPPSA_OPTION_SEQ_LEN, &config->steps.seq_len},
                  {BPPSA_OPTION_BATCH, &config->batch}};
  for (size_t i = 0; i < sizeof integers / sizeof integers[0]; ++i) {
    const bppsa_option_value *value = bppsa_cli_value(cli, integers[i].option);
    if (value->present) {
      *integers[i].field = value->integer;
    }
  }
  const bppsa_option_value *nonlinearity = bppsa_cli_value(cli, BPPSA_OPTION_NONLINEARITY);
  if (nonlinearity->present) {
    config->steps.nonlinearity = strcmp(nonlinearity->text, "relu") == 0 ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
  }
  config->steps.dropout = bppsa_cli_value(cli, BPPSA_OPTION_DROPOUT)->real; /* 0 where the command does not take it */
  const bppsa_option_value *norm = bppsa_cli_value(cli, BPPSA_OPTION_BATCH_NORM);
  config->batch_statistics = norm->present && strcmp(norm->text, "batch") == 0;
  config->steps.no_bias = bppsa_cli_value(cli, BPPSA_OPTION_NO_BIAS)->given; /* weights may say otherwise */
  config->steps.bidirectional = bppsa_cli_value(cli, BPPSA_OPTION_BIDIRECTIONAL)->given;
  const bppsa_option_value *reset_state = bppsa_cli_value(cli, BPPSA_OPTION_RESET_STATE);
  config->steps.reset_state = reset_state->present && strcmp(reset_state->text, "learned") == 0;
  const bppsa_option_value *loss = bppsa_cli_value(cli, BPPSA_OPTION_LOSS);
  if (loss->present) {
    config->loss_all = bppsa_objective_all(loss->text);
  }
  if (config->loss_all && trains_by_loss(cli) && !bppsa_setup_kind(cli)->family->steps) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--loss: %s, a loss of every step, expected last, mse or bce for images", loss->text);
  }
  const bppsa_option_value *dtype = bppsa_cli_value(cli, BPPSA_OPTION_DTYPE);
  if (dtype->present) {
    BPPSA_TRY(bppsa_dtype_parse(dtype->text, &config->dtype));
  }
  BPPSA_TRY(setup_forward(cli, &config->steps.forward));
  config->steps.lengths = bppsa_cli_value(cli, BPPSA_OPTION_LENGTHS)->given;
  config->steps.resets = bppsa_cli_value(cli, BPPSA_OPTION_RESETS)->given;
  if (config->steps.lengths && config->steps.forward.kind == BPPSA_FORWARD_AUTO && !bppsa_cli_given(cli, BPPSA_OPTION_PACK)) {
    config->steps.forward = bppsa_forward_method_default(); /* samples of their own lengths take a sequential pass */
  }
  if (runs == BPPSA_RUNS_ALL) {
    setup_numbers(cli, &config->method.scan);
    setup_speculative_numbers(cli, &config->steps.speculation);
    const bppsa_option_value *recompute = bppsa_cli_value(cli, BPPSA_OPTION_RECOMPUTE_EVERY);
    config->steps.recompute = recompute->given ? recompute->integer : 0;
    return BPPSA_OK;
  }
  BPPSA_TRY(setup_gradients(cli, &config->method));
  BPPSA_TRY(setup_speculation(cli, &config->method, &config->steps.speculation));
  return setup_recompute(cli, &config->method, &config->steps.recompute);
}

static void show_plan(void *context, const char *what) {
  bppsa_progress_show(context, "measuring: %s", what);
}

int64_t bppsa_setup_memory(const bppsa_device *device) {
  bppsa_cuda_report report = {0};
  if (bppsa_device_get_kind(device) == BPPSA_CPU) {
    return bppsa_machine_memory();
  }
  bppsa_cuda_probe(&report);
  return report.memory;
}

void bppsa_setup_limit(const bppsa_cli *cli, const bppsa_device *device, bppsa_network_config *config) {
  const int64_t asked = bppsa_cli_value(cli, BPPSA_OPTION_MEMORY_LIMIT)->integer;
  config->memory_limit = asked > 0 ? asked : bppsa_setup_memory(device) / 4 * 3;
}

bppsa_status bppsa_setup_choose(const bppsa_cli *cli, const bppsa_network *network, const bppsa_device *device,
                                bppsa_network_config *config, bppsa_chosen *chosen) {
  bppsa_progress_line line = bppsa_progress_start(cli->to.err);
  const bppsa_planner_request request = {.measure = strcmp(bppsa_cli_value(cli, BPPSA_OPTION_PLAN)->text, "measure") == 0,
                                         .memory_limit = bppsa_cli_value(cli, BPPSA_OPTION_MEMORY_LIMIT)->integer,
                                         .show = show_plan,
                                         .context = &line};
  char note[BPPSA_PLANNER_NOTE];
  const bppsa_status status = bppsa_planner_choose(&request, network, device, config, chosen, note);
  bppsa_progress_clear(&line);
  if (status == BPPSA_OK && note[0] != '\0') {
    bppsa_output_note(&cli->to, "%s", note);
  }
  return status;
}

/* ---- weights ---- */

/* Returns the text of an option that is on the command line, otherwise NULL. */
static const char *given_text(const bppsa_cli *cli, bppsa_option option) {
  return bppsa_cli_value(cli, option)->given ? bppsa_cli_value(cli, option)->text : NULL;
}

static int64_t given_integer(const bppsa_cli *cli, bppsa_option option) {
  return bppsa_cli_value(cli, option)->given ? bppsa_cli_value(cli, option)->integer : 0;
}

static bppsa_weights_request weights_request(const bppsa_cli *cli) {
  return (bppsa_weights_request){.path = bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->text,
                                 .prefix = given_text(cli, BPPSA_OPTION_PREFIX),
                                 .propose_prefix = bppsa_options_take(cli->command->uses, BPPSA_OPTION_PREFIX),
                                 .layers = given_integer(cli, BPPSA_OPTION_LAYERS),
                                 .hidden = given_integer(cli, BPPSA_OPTION_HIDDEN),
                                 .nonlinearity = given_text(cli, BPPSA_OPTION_NONLINEARITY),
                                 .reset_state = given_text(cli, BPPSA_OPTION_RESET_STATE),
                                 .loss_given = bppsa_cli_given(cli, BPPSA_OPTION_LOSS),
                                 .trains = bppsa_options_take(cli->command->uses, BPPSA_OPTION_SAVE_WEIGHTS)};
}

bppsa_status bppsa_setup_weights(const bppsa_cli *cli, bppsa_network *network, bppsa_network_config *config,
                                 bppsa_safetensors **file) {
  bppsa_weights_request request = weights_request(cli);
  bppsa_dtype dtype;
  if (bppsa_cli_value(cli, BPPSA_OPTION_DTYPE)->given) {
    BPPSA_TRY(bppsa_dtype_parse(bppsa_cli_value(cli, BPPSA_OPTION_DTYPE)->text, &dtype));
    request.dtype = &dtype;
  }
  return bppsa_weights_load(&request, network, config, file);
}

void bppsa_setup_note_weights(const bppsa_cli *cli, const char *note) {
  if (note[0] != '\0') {
    bppsa_output_note(&cli->to, "%s: %s", bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->text, note);
  }
}

bppsa_status bppsa_setup_model(const bppsa_cli *cli, const bppsa_network *network, const bppsa_safetensors *file,
                               bppsa_model *model) {
  const bppsa_weights_request request = weights_request(cli);
  char note[BPPSA_WEIGHTS_NOTE];
  BPPSA_TRY(bppsa_weights_set(&request, network, file, model, note));
  bppsa_setup_note_weights(cli, note);
  return BPPSA_OK;
}

bppsa_status bppsa_setup_objective(const bppsa_cli *cli, const bppsa_safetensors *file, bppsa_objective *objective) {
  const bppsa_option_value *loss = bppsa_cli_value(cli, BPPSA_OPTION_LOSS);
  const bppsa_option_value *ignored = bppsa_cli_value(cli, BPPSA_OPTION_IGNORE_LABEL);
  const char *kept = file != NULL && !loss->given ? bppsa_safetensors_metadata(file, "loss") : NULL;
  return bppsa_objective_make(kept != NULL ? kept : loss->text, ignored->given ? &ignored->integer : NULL, objective);
}

/* ---- device and data ---- */

bppsa_status bppsa_setup_device(const bppsa_cli *cli, bppsa_device **device) {
  const bppsa_option_value *name = bppsa_cli_value(cli, BPPSA_OPTION_DEVICE);
  const bppsa_status status =
      bppsa_device_create(name->present ? name->text : "cpu", bppsa_cli_value(cli, BPPSA_OPTION_THREADS)->integer, device);
  return name->given && status != BPPSA_OK ? bppsa_fail_prefix(status, "--device") : status;
}

bool bppsa_is_audio(const char *spec) {
  return strncmp(spec, "irmas:", 6) == 0 || strncmp(spec, "instruments:", 12) == 0;
}

static void show_reading(void *context, int64_t done, int64_t total) {
  bppsa_progress_line *line = context;
  if (bppsa_progress_due(line)) {
    bppsa_progress_show(line, "%" PRId64 " of %" PRId64 " files read", done, total);
  }
}

bppsa_status bppsa_setup_check_set(const bppsa_cli *cli, const char *spec) {
  const bppsa_option_value *set = bppsa_cli_value(cli, BPPSA_OPTION_SET), *padding = bppsa_cli_value(cli, BPPSA_OPTION_PADDING);
  return (!set->given && !padding->given) || bppsa_is_audio(spec)
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: given beside --data %s, expected --data irmas:DIR or instruments:DIR",
                          set->given ? "--set" : "--padding", spec);
}

bppsa_status bppsa_setup_check_input(const bppsa_option_value *input, const char *spec) {
  return !input->given || strcmp(spec, "bitstream") == 0
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT,
                          "--input: given beside --data %s, whose files say how wide steps are, expected --data "
                          "bitstream",
                          spec);
}

/* Opens a data set by the options of the command line. `asked` gives what they do not say. */
static bppsa_status create_dataset(const bppsa_cli *cli, const char *spec, const bppsa_device *device,
                                   const bppsa_dataset_options *asked, bppsa_dataset **dataset) {
  const bppsa_option_value *set = bppsa_cli_value(cli, BPPSA_OPTION_SET), *padding = bppsa_cli_value(cli, BPPSA_OPTION_PADDING);
  const bppsa_option_value *input = bppsa_cli_value(cli, BPPSA_OPTION_INPUT);
  BPPSA_TRY(bppsa_setup_check_set(cli, spec));
  BPPSA_TRY(bppsa_setup_check_input(input, spec));
  bppsa_progress_line line = bppsa_progress_start(cli->to.err);
  const bppsa_dataset_audio audio = {.set = &bppsa_mfcc_sets[set->choice],
                                     .padding = padding->choice == 1 ? BPPSA_PADDING_REFLECT : BPPSA_PADDING_CONSTANT,
                                     .device = device,
                                     .progress = show_reading,
                                     .context = &line};
  bppsa_dataset_options options = *asked;
  options.samples = bppsa_cli_value(cli, BPPSA_OPTION_SAMPLES)->integer; /* 0: not given */
  options.seq_len = bppsa_cli_value(cli, BPPSA_OPTION_SEQ_LEN)->integer;
  options.input = input->given ? input->integer : asked->input;
  options.seed = (uint64_t)bppsa_cli_value(cli, BPPSA_OPTION_SEED)->integer;
  options.audio = &audio;
  const char *lengths = bppsa_cli_value(cli, BPPSA_OPTION_LENGTHS)->text,
             *resets = bppsa_cli_value(cli, BPPSA_OPTION_RESETS)->text,
             *weights = bppsa_cli_value(cli, BPPSA_OPTION_LOSS_WEIGHTS)->text;
  bppsa_status status = bppsa_dataset_create(spec, &options, dataset);
  bppsa_progress_clear(&line);
  status = status == BPPSA_OK && lengths != NULL ? bppsa_dataset_load_lengths(*dataset, lengths) : status;
  status = status == BPPSA_OK && resets != NULL ? bppsa_dataset_load_resets(*dataset, resets) : status;
  return bppsa_input_status(status == BPPSA_OK && weights != NULL ? bppsa_dataset_load_loss_weights(*dataset, weights) : status);
}

bppsa_status bppsa_setup_dataset_of(const bppsa_cli *cli, const char *spec, const bppsa_device *device, bool loss_all,
                                    bppsa_dataset **dataset) {
  return create_dataset(cli, spec, device, &(bppsa_dataset_options){.labels_per_step = loss_all}, dataset);
}

bppsa_status bppsa_setup_dataset(const bppsa_cli *cli, const bppsa_device *device, const bppsa_network_config *config,
                                 const bppsa_objective *objective, bppsa_dataset **dataset) {
  const char *spec = bppsa_cli_value(cli, BPPSA_OPTION_DATA)->text, *weights = bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->text;
  bppsa_dataset_options options = {.labels_per_step = config->loss_all, .objective = *objective};
  if (weights != NULL && strcmp(spec, "bitstream") == 0) {
    options.input = config->input;
    options.classes = config->classes < BPPSA_BITSTREAM_CLASSES ? config->classes : BPPSA_BITSTREAM_CLASSES;
  }
  return create_dataset(cli, spec, device, &options, dataset);
}

bppsa_status bppsa_setup_pack(const bppsa_cli *cli, const bppsa_network *network, const bppsa_device *device, const char *kept,
                              bool ranks, double *validation, bppsa_network_config *config, bppsa_dataset **dataset,
                              bppsa_pack_times *times) {
  const bppsa_option_value *pack = bppsa_cli_value(cli, BPPSA_OPTION_PACK);
  if (!pack->given) {
    return BPPSA_OK;
  }
  bppsa_pack_request request = {.automatic = strcmp(pack->text, "auto") == 0,
                                .kept = kept,
                                .weights = bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->text,
                                .backward = bppsa_options_take(cli->command->uses, BPPSA_OPTION_SAVE_WEIGHTS),
                                .batch = config->batch};
  bppsa_option_value number = {.integer = 0};
  if (!request.automatic && bppsa_option_parse(BPPSA_OPTION_SAMPLES, pack->text, &number) != BPPSA_OK) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--pack: '%s', expected %s", pack->text, bppsa_option_get(BPPSA_OPTION_PACK)->expected);
  }
  request.steps = number.integer;
  if (request.automatic && ranks) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--pack: auto beside ranks, which may measure different times, expected --pack T");
  }
  return bppsa_input_status(bppsa_pack_run(&request, network, device, validation, config, dataset, times));
}

bppsa_status bppsa_setup_streams(const bppsa_cli *cli, bool ranks, const bppsa_network_config *config, bppsa_dataset *dataset) {
  const char *split = bppsa_cli_value(cli, BPPSA_OPTION_SPLIT)->text;
  if (!bppsa_cli_given(cli, BPPSA_OPTION_STATEFUL)) {
    return BPPSA_OK;
  }
  if (config->steps.bidirectional) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "--stateful: given beside --bidirectional, whose reverse direction has no past, expected one direction");
  }
  if (ranks && strncmp(split, "batch", 5) != 0 && strncmp(split, "time", 4) != 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "--stateful: given beside --split %s, where passes begin with states of 0, expected --split batch, time or "
                      "both",
                      split);
  }
  dataset->streams = true;
  return BPPSA_OK;
}

bppsa_status bppsa_setup_windows(const bppsa_cli *cli, bool ranks, bppsa_network_config *config, bppsa_dataset *dataset) {
  const int64_t windows = bppsa_cli_value(cli, BPPSA_OPTION_BPTT)->integer;
  const char *split = bppsa_cli_value(cli, BPPSA_OPTION_SPLIT)->text;
  const bool along = ranks && (strncmp(split, "batch", 5) != 0 || strstr(split, "time") != NULL),
             whole = along || config->steps.forward.kind == BPPSA_FORWARD_SPECULATIVE; /* their samples have one length */
  const char *beside =
      dataset->packing != NULL ? "--pack, whose rows begin anew, expected --lengths alone"
      : whole && dataset->lengths != NULL
          ? "--lengths and a pass whose samples have one length, expected --forward sequential, and no --split time"
      : whole && config->steps.reset_state
          ? "--reset-state learned and a pass whose samples have one length, in which an epoch's first rows begin "
            "anew with 0, expected --forward sequential, and no --split time"
          : NULL;
  if (bppsa_cli_given(cli, BPPSA_OPTION_BPTT) && !dataset->streams) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--bptt: given without --stateful, expected --stateful too");
  }
  if (windows <= 1) {
    return BPPSA_OK;
  }
  if (beside != NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--bptt: %" PRId64 " given beside %s", windows, beside);
  }
  int64_t steps = 0;
  if (!bppsa_mul(windows, dataset->seq_len, &steps) || steps > BPPSA_MAX_SAMPLES) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT,
                      "--bptt: %" PRId64 " batches of %" PRId64 " steps, expected at most %" PRId64 " steps in all", windows,
                      dataset->seq_len, (int64_t)BPPSA_MAX_SAMPLES);
  }
  if (!whole) { /* passes of several lengths are sequential */
    config->steps.forward = bppsa_forward_method_default();
  }
  dataset->windows = windows;
  dataset->whole_rows = whole;
  return BPPSA_OK;
}

void bppsa_setup_note_classes(const bppsa_cli *cli, const bppsa_dataset *dataset) {
  if (strcmp(dataset->ops->name, "bitstream") == 0 && dataset->classes < BPPSA_BITSTREAM_CLASSES) {
    bppsa_output_note(&cli->to, "%s: weights for %" PRId64 " classes: the data are the bitstream's first %" PRId64 " of %d",
                      bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->text, dataset->classes, dataset->classes,
                      BPPSA_BITSTREAM_CLASSES);
  }
}

/* ---- what is shown ---- */

bppsa_status bppsa_setup_show(const bppsa_cli *cli, const bppsa_text *shown) {
  if (cli->to.json) {
    return bppsa_output_document(&cli->to, shown->text);
  }
  bppsa_output_make_lines_printable(shown->text);
  return bppsa_output_print(&cli->to, "%s", shown->text);
}

bppsa_status bppsa_setup_finish(const bppsa_cli *cli, bppsa_status status, bppsa_text *shown) {
  status = status == BPPSA_OK ? bppsa_setup_show(cli, shown) : status;
  bppsa_text_free(shown);
  return status;
}
