#include "cli/setup.h"

#include <inttypes.h>
#include <string.h>

#include "cli/progress.h"
#include "core/alloc.h"

const char *bppsa_nonlinearity_name(bppsa_nonlinearity nonlinearity) {
  return nonlinearity == BPPSA_NONLINEARITY_RELU ? "relu" : "tanh";
}

const char *bppsa_loss_name(bool loss_all) {
  return loss_all ? "all" : "last";
}

/* One of --up-levels and --chunks: its algorithm is implied, another one given beside it contradicts. *number: where its value
 * belongs. */
static bppsa_status take_number(const bppsa_cli *cli, bppsa_option option, bppsa_scan_algorithm implied, bppsa_scan_method *scan,
                                int64_t *number) {
  const bppsa_option_value *value = bppsa_cli_value(cli, option), *algorithm = bppsa_cli_value(cli, BPPSA_OPTION_ALGORITHM);
  const char *name = bppsa_scan_algorithm_name(implied);
  if (value->given && algorithm->given && scan->algorithm != implied) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: given beside --algorithm %s, expected --algorithm %s",
                      bppsa_option_get(option)->name, algorithm->text, name);
  }
  if (value->given) {
    scan->algorithm = implied;
    *number = value->integer;
  }
  return BPPSA_OK;
}

/* An option of the scan means the scan; beside another --backward it contradicts. */
static bppsa_status imply_scan(const bppsa_cli *cli, bppsa_gradient_method *method) {
  static const bppsa_option of_scan[] = {BPPSA_OPTION_ALGORITHM, BPPSA_OPTION_UP_LEVELS, BPPSA_OPTION_CHUNKS};
  const bppsa_option_value *backward = bppsa_cli_value(cli, BPPSA_OPTION_BACKWARD);
  for (size_t i = 0; i < sizeof of_scan / sizeof of_scan[0]; ++i) {
    if (!bppsa_cli_value(cli, of_scan[i])->given) {
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

/* --backward, --algorithm, --up-levels and --chunks; those the command does not take keep what *method says. */
static bppsa_status setup_gradients(const bppsa_cli *cli, bppsa_gradient_method *method) {
  const bppsa_option_value *backward = bppsa_cli_value(cli, BPPSA_OPTION_BACKWARD),
                           *algorithm = bppsa_cli_value(cli, BPPSA_OPTION_ALGORITHM);
  bppsa_gradient_method found = *method;
  if (backward->present) {
    BPPSA_TRY(bppsa_gradient_method_parse(backward->text, &found));
  }
  BPPSA_TRY(imply_scan(cli, &found));
  if (bppsa_cli_value(cli, BPPSA_OPTION_UP_LEVELS)->given && bppsa_cli_value(cli, BPPSA_OPTION_CHUNKS)->given) {
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

bppsa_status bppsa_setup_config(const bppsa_cli *cli, bppsa_recurrent_config *config) {
  const struct {
    bppsa_option option;
    int64_t *field;
  } integers[] = {{BPPSA_OPTION_LAYERS, &config->layers},
                  {BPPSA_OPTION_HIDDEN, &config->hidden},
                  {BPPSA_OPTION_SEQ_LEN, &config->seq_len},
                  {BPPSA_OPTION_BATCH, &config->batch}};
  for (size_t i = 0; i < sizeof integers / sizeof integers[0]; ++i) {
    const bppsa_option_value *value = bppsa_cli_value(cli, integers[i].option);
    if (value->present) {
      *integers[i].field = value->integer;
    }
  }
  const bppsa_option_value *nonlinearity = bppsa_cli_value(cli, BPPSA_OPTION_NONLINEARITY);
  if (nonlinearity->present) {
    config->nonlinearity = strcmp(nonlinearity->text, "relu") == 0 ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
  }
  const bppsa_option_value *loss = bppsa_cli_value(cli, BPPSA_OPTION_LOSS);
  const bppsa_option_value *train_loss = bppsa_cli_value(cli, BPPSA_OPTION_TRAIN_LOSS);
  if (loss->present || train_loss->present) {
    config->loss_all = bppsa_objective_all(loss->present ? loss->text : train_loss->text);
  }
  if (config->loss_all && train_loss->present && bppsa_network_kind_of(cli)->convolutional) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--loss: %s, a loss of every step, expected last or mse for images", train_loss->text);
  }
  const bppsa_option_value *dtype = bppsa_cli_value(cli, BPPSA_OPTION_DTYPE);
  if (dtype->present) {
    BPPSA_TRY(bppsa_dtype_parse(dtype->text, &config->dtype));
  }
  return setup_gradients(cli, &config->method);
}

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

bppsa_status bppsa_setup_dataset_of(const bppsa_cli *cli, const char *spec, const bppsa_device *device, bool loss_all,
                                    const bppsa_objective *objective, bppsa_dataset **dataset) {
  const bppsa_option_value *set = bppsa_cli_value(cli, BPPSA_OPTION_SET), *padding = bppsa_cli_value(cli, BPPSA_OPTION_PADDING);
  const bppsa_option_value *input = bppsa_cli_value(cli, BPPSA_OPTION_INPUT_SIZE);
  BPPSA_TRY(bppsa_setup_check_set(cli, spec));
  BPPSA_TRY(bppsa_setup_check_input(input, spec));
  bppsa_progress_line line = bppsa_progress_start(cli->err);
  const bppsa_dataset_audio audio = {.set = &bppsa_mfcc_sets[set->choice],
                                     .padding = padding->choice == 1 ? BPPSA_PADDING_REFLECT : BPPSA_PADDING_CONSTANT,
                                     .device = device,
                                     .progress = show_reading,
                                     .context = &line};
  const bppsa_dataset_options options = {.samples = bppsa_cli_value(cli, BPPSA_OPTION_SAMPLES)->integer, /* 0 where not given */
                                         .seq_len = bppsa_cli_value(cli, BPPSA_OPTION_SEQ_LEN)->integer,
                                         .input = bppsa_cli_value(cli, BPPSA_OPTION_INPUT_SIZE)->integer,
                                         .seed = (uint64_t)bppsa_cli_value(cli, BPPSA_OPTION_SEED)->integer,
                                         .labels_per_step = loss_all,
                                         .real_targets = objective != NULL && objective->mse,
                                         .ignores = objective != NULL && objective->ignores,
                                         .ignored = objective != NULL ? objective->ignored : 0,
                                         .audio = &audio};
  const bppsa_status status = bppsa_dataset_create(spec, &options, dataset);
  bppsa_progress_clear(&line);
  return bppsa_cli_input(status);
}

bppsa_status bppsa_setup_dataset(const bppsa_cli *cli, const bppsa_device *device, bool loss_all,
                                 const bppsa_objective *objective, bppsa_dataset **dataset) {
  return bppsa_setup_dataset_of(cli, bppsa_cli_value(cli, BPPSA_OPTION_DATA)->text, device, loss_all, objective, dataset);
}

/* Any other text the data set refuses, or knows no file. */
bppsa_status bppsa_setup_check_data(const bppsa_cli *cli, bppsa_option output) {
  const char *spec = bppsa_cli_value(cli, BPPSA_OPTION_DATA)->text, *comma = strchr(spec, ',');
  char x[4096];
  if (strncmp(spec, "npy:", 4) != 0 || comma == NULL || (size_t)(comma - spec) >= sizeof x) {
    return BPPSA_OK;
  }
  snprintf(x, sizeof x, "%.*s", (int)(comma - spec) - 4, spec + 4);
  BPPSA_TRY(bppsa_cli_check_other(cli, x, "--data", output));
  return bppsa_cli_check_other(cli, comma + 1, "--data", output);
}

static bppsa_status match_images(const bppsa_network *network, const bppsa_dataset *dataset) {
  const int64_t *in = network->layers.in, *image = dataset->image;
  char found[BPPSA_SHAPE_TEXT], expected[BPPSA_SHAPE_TEXT], guess[BPPSA_SHAPE_TEXT];
  return in[0] == image[0] && in[1] == image[1] && in[2] == image[2]
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_SHAPE, "%s: images of %s, expected %s, the network's input [C, H, W]%s", dataset->ops->name,
                          bppsa_shape_text(3, image, found, sizeof found), bppsa_shape_text(3, in, expected, sizeof expected),
                          bppsa_shape_guess("[C, H, W]", 3, image, in, guess, sizeof guess));
}

bppsa_status bppsa_setup_match(const char *path, const bppsa_network *network, const bppsa_recurrent_config *config,
                               const bppsa_dataset *dataset) {
  const bool images = dataset->image[0] > 0, convolutional = network->kind->convolutional;
  if (images != convolutional) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: %s, expected %s for %s", dataset->ops->name, images ? "images" : "sequences",
                      images ? "sequences" : "images", network->kind->name);
  }
  if (convolutional) {
    BPPSA_TRY(match_images(network, dataset));
  } else if (path != NULL && config->input != dataset->input) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: weights for input size %" PRId64 ", expected %" PRId64 " as in the data%s", path,
                      config->input, dataset->input,
                      config->input == dataset->seq_len ? ", which are [N, T, I], but look like [N, I, T]" : "");
  }
  if ((path != NULL || convolutional) && dataset->real_targets && config->classes != dataset->classes) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: weights for %" PRId64 " outputs, expected %" PRId64 ", the data's targets",
                      path != NULL ? path : network->kind->name, config->classes, dataset->classes);
  }
  if ((path != NULL || convolutional) && config->classes < dataset->classes) {
    return bppsa_fail(BPPSA_ERR_SHAPE, "%s: weights for %" PRId64 " classes, expected at least %" PRId64 " as in the data",
                      path != NULL ? path : network->kind->name, config->classes, dataset->classes);
  }
  return BPPSA_OK;
}

const char *bppsa_setup_method(bppsa_chosen chosen, const bppsa_gradient_method *method, char *text, size_t size) {
  bppsa_gradient_method_words(method, text, size);
  const size_t used = strlen(text);
  if (chosen != BPPSA_CHOSEN_BY_OPTION) {
    snprintf(text + used, size - used, ", chosen by %s", bppsa_chosen_name(chosen));
  }
  return text;
}

const char *bppsa_setup_plan(bppsa_chosen chosen, const bppsa_scan_plan *plan, char *text, size_t size) {
  const bppsa_gradient_method method = bppsa_scan_plan_method(plan);
  const int64_t chain = bppsa_scan_plan_totals(plan)->critical_steps;
  if (!bppsa_scan_plan_is_chain(plan)) {
    return bppsa_setup_method(chosen, &method, text, size);
  }
  snprintf(text, size, "a chain of %" PRId64 ", no scan%s%s", chain, chosen != BPPSA_CHOSEN_BY_OPTION ? ", chosen by " : "",
           chosen != BPPSA_CHOSEN_BY_OPTION ? bppsa_chosen_name(chosen) : "");
  return text;
}

bool bppsa_setup_method_json(json_t *object, const bppsa_gradient_method *method, bppsa_chosen chosen) {
  return bppsa_gradient_method_put(object, method) && bppsa_json_put_bool(object, "auto", chosen != BPPSA_CHOSEN_BY_OPTION) &&
         bppsa_json_put_text(object, "chosen", bppsa_chosen_name(chosen));
}

bppsa_status bppsa_setup_fail_nonfinite(bppsa_model *model, const char *what) {
  bppsa_nonfinite where;
  if (!model->ops->find_nonfinite(model, &where)) {
    where = (bppsa_nonfinite){.what = what, .layer = -1, .step = -1, .sample = -1};
  }
  char place[120] = "";
  size_t used = 0;
  const struct {
    const char *what;
    int64_t value;
  } parts[] = {{"layer", where.layer}, {"step", where.step}, {"sample", where.sample}};
  for (size_t i = 0; i < 3; ++i) {
    if (parts[i].value >= 0) {
      used += (size_t)snprintf(place + used, sizeof place - used, "%s%s %" PRId64, used == 0 ? " at " : ", ", parts[i].what,
                               parts[i].value);
    }
  }
  return bppsa_fail(BPPSA_ERR_NUMERIC, "%s%s%s%s: not finite, expected finite values", where.what, where.name != NULL ? " " : "",
                    where.name != NULL ? where.name : "", place);
}
