/* `bppsa bench`: the options of the benchmarks, and what they ask for (bench/cases/case.h).
 *
 * (The file is long because half of it is the tables of options, one for each of fifteen benchmarks.) */
#include <inttypes.h>
#include <string.h>

#include "bench/harness/cold.h"
#include "cli/bench.h"
#include "cli/ranks.h"
#include "cli/setup.h"
#include "jacobian/network_ops.h"
#include "oracle/oracle.h"

/* The options with which every list here ends. */
#define RESULT_USES {.option = BPPSA_OPTION_OUT, .metavar = "F.json", .help = "where the JSON document goes too"}, BPPSA_USES_END

/* The numbers of the rows whose backward pass is speculative BP. */
#define SPECULATIVE_USES                                                                                                         \
  {.option = BPPSA_OPTION_BACKWARD_CHUNKS, .help = "of the rows of speculative BP"}, BPPSA_USE(BACKWARD_WARM_UP),                \
      BPPSA_USE(BACKWARD_TOLERANCE)

/* The options of recurrent networks; `only` adds the options of one cell. */
#define RECURRENT_USES(only)                                                                                                     \
  {                                                                                                                              \
    BPPSA_USE(LAYERS), BPPSA_USE(HIDDEN),                                                                                        \
        only{.option = BPPSA_OPTION_LOSS, .help = "gradients enter at the last or at every step"},                               \
        {.option = BPPSA_OPTION_INIT, .fallback = "", .help = "[both]"},                                                         \
        {.option = BPPSA_OPTION_WEIGHTS, .help = "one network instead of --init, at one point"}, BPPSA_USE(DATA),                \
        BPPSA_USE(SET), BPPSA_USE(PADDING),                                                                                      \
        {.option = BPPSA_OPTION_SEQ_LEN, .help = "one point instead of the sweep [1000, npy the files']"},                       \
        {.option = BPPSA_OPTION_INPUT,                                                                                           \
         .meaning = &bppsa_meaning_input_size,                                                                                   \
         .help = "features of a step, of noise of variance 1; one point [bitstream, of 1]"},                                     \
        BPPSA_USE(BATCH), BPPSA_USE(RESET_RATE), {.option = BPPSA_OPTION_UP_LEVELS, .help = "of the rows of blelloch [all]"},    \
        {.option = BPPSA_OPTION_CHUNKS, .help = "of the rows of chunked [from T]"}, BPPSA_FORWARD_USES, SPECULATIVE_USES,        \
        BPPSA_USE(RECOMPUTE_EVERY), BPPSA_USE(QUICK), BPPSA_USE(RIVALS), BPPSA_USE(EARLIER), BPPSA_USE(CUDNN_DTYPE),             \
        BPPSA_USE(INPUT_GRADIENT), BPPSA_USE(COLD), BPPSA_USE(REFERENCES), BPPSA_USE(SAVE_REFERENCES), BPPSA_USE(REPEATS),       \
        BPPSA_USE(TIME_LIMIT), BPPSA_USE(MEMORY_LIMIT),                                                                          \
        {.option = BPPSA_OPTION_SEED, .help = "of weights, data and seed gradients"}, BPPSA_USE(DEVICE), BPPSA_USE(DTYPE),       \
        BPPSA_USE(THREADS), RESULT_USES                                                                                          \
  }
#define CELL(id, words, functions, rate, sweep)                                                                                  \
  static const bppsa_option_use uses_##id[] = RECURRENT_USES(BPPSA_OPTIONS_##functions);
#include "networks/cells.inc"

static const bppsa_option_use uses_crossover[] = {
    BPPSA_USE(MODEL),
    BPPSA_USE(LAYERS),
    {.option = BPPSA_OPTION_HIDDEN, .help = "of the map T x B"},
    BPPSA_USE(NONLINEARITY),
    {.option = BPPSA_OPTION_LOSS, .help = "gradients enter at the last or at every step"},
    BPPSA_USE(INIT),
    {.option = BPPSA_OPTION_BATCH, .help = "of the map T x H"},
    {.option = BPPSA_OPTION_UP_LEVELS, .help = "of blelloch [all]"},
    {.option = BPPSA_OPTION_CHUNKS, .help = "of chunked [from T]"},
    {.option = BPPSA_OPTION_SEQ_LEN, .help = "the largest T of the maps [10000, quick 1000]"},
    BPPSA_USE(QUICK),
    BPPSA_USE(REPEATS),
    BPPSA_USE(TIME_LIMIT),
    BPPSA_USE(WORKERS),
    BPPSA_USE(MEMORY_LIMIT),
    {.option = BPPSA_OPTION_SEED, .help = "of weights, data and seed gradients"},
    BPPSA_USE(DEVICE),
    BPPSA_USE(DTYPE),
    BPPSA_USE(THREADS),
    RESULT_USES};

#define CNN_USES(batch, fraction)                                                                                                \
  {                                                                                                                              \
    {.option = BPPSA_OPTION_PRUNE, .fallback = (fraction)}, BPPSA_USE(METHOD),                                                   \
        {.option = BPPSA_OPTION_QUICK, .help = "a tenth of the time"}, BPPSA_USE(REPEATS),                                       \
        {.option = BPPSA_OPTION_TIME_LIMIT, .help = "begin no further method after that time; those left out are named [none]"}, \
        {.option = BPPSA_OPTION_BATCH, .fallback = (batch), .help = "samples"},                                                  \
        {.option = BPPSA_OPTION_SEED, .help = "of weights, images and the logits' gradient"}, BPPSA_USE(DEVICE),                 \
        BPPSA_USE(THREADS),                                                                                                      \
        {.option = BPPSA_OPTION_MEMORY_LIMIT,                                                                                    \
         .help = "of all held products; what needs more is left out [1/2 of available memory]"},                                 \
        RESULT_USES                                                                                                              \
  }
static const bppsa_option_use uses_lenet5[] = CNN_USES("256", "0"), uses_vgg11[] = CNN_USES("1", "0.97");

static const bppsa_option_use uses_jacobian[] = {
    {.option = BPPSA_OPTION_QUICK, .help = "a tenth of the time"},
    BPPSA_USE(REPEATS),
    {.option = BPPSA_OPTION_SEED, .help = "of inputs and weights"},
    BPPSA_USE(DEVICE),
    BPPSA_USE(THREADS),
    {.option = BPPSA_OPTION_MEMORY_LIMIT,
     .help = "leave operators out that take more, csr's second pattern included [3/4 of available memory]"},
    RESULT_USES};

static const bppsa_option_use uses_product[] = {
    {.option = BPPSA_OPTION_QUICK, .help = "a tenth of the time"},
    BPPSA_USE(REPEATS),
    {.option = BPPSA_OPTION_SEED, .help = "of values and masks"},
    BPPSA_USE(LEFT),
    BPPSA_USE(RIGHT),
    {.option = BPPSA_OPTION_UP_LEVELS, .help = "VGG-11's scan with so many, 3 % of the weights: its products are the cases"},
    BPPSA_USE(DEVICE),
    BPPSA_USE(THREADS),
    {.option = BPPSA_OPTION_MEMORY_LIMIT, .help = "leave kinds out whose plan alone needs more [1/4 of available memory]"},
    RESULT_USES};

static const bppsa_option_use uses_scan[] = {
    {.option = BPPSA_OPTION_QUICK, .help = "a tenth of the time"},
    BPPSA_USE(REPEATS),
    {.option = BPPSA_OPTION_BATCH, .fallback = "1", .help = "samples"},
    {.option = BPPSA_OPTION_SEED, .help = "of values and of the seed gradient"},
    BPPSA_USE(DEVICE),
    BPPSA_USE(THREADS),
    {.option = BPPSA_OPTION_MEMORY_LIMIT, .help = "of all methods' held products, and of their plans [1/2 of available memory]"},
    RESULT_USES};

static const bppsa_option_use uses_threads[] = {
    BPPSA_USE(HIDDEN),
    {.option = BPPSA_OPTION_SEQ_LEN, .fallback = "1000"},
    BPPSA_USE(BATCH),
    BPPSA_USE(NEIGHBOURS),
    {.option = BPPSA_OPTION_QUICK, .help = "a tenth of the time"},
    {.option = BPPSA_OPTION_REPEATS, .help = "timed passes of every row [as the time budget allows, at least 3]"},
    {.option = BPPSA_OPTION_SEED, .help = "of the weights and the inputs"},
    {.option = BPPSA_OPTION_THREADS, .help = "of the rows beside those of one thread"},
    RESULT_USES};

static const bppsa_option_use uses_mfcc[] = {
    {.option = BPPSA_OPTION_SET, .fallback = "", .help = "one set instead of all three"},
    BPPSA_USE(PADDING),
    {.option = BPPSA_OPTION_QUICK, .help = "a tenth of the time"},
    BPPSA_USE(REPEATS),
    {.option = BPPSA_OPTION_SEED, .help = "of the sound: the left channel of the file that data instruments writes first"},
    RESULT_USES};

static const bppsa_option_use uses_forward[] = {
    BPPSA_USE(MODEL),
    {.option = BPPSA_OPTION_WEIGHTS, .help = "one row of this network, whose T is --seq-len"},
    {.option = BPPSA_OPTION_HIDDEN, .fallback = "", .help = "[20, 64 and 200]"},
    {.option = BPPSA_OPTION_SEQ_LEN, .help = "[1000, 10000 and 30000; quick and --weights 1000]"},
    {.option = BPPSA_OPTION_BATCH, .fallback = "", .help = "[1 and 16; quick and --weights 1]"},
    BPPSA_FORWARD_USES,
    BPPSA_USE(QUICK),
    BPPSA_USE(RIVALS),
    BPPSA_USE(EARLIER),
    BPPSA_USE(REPEATS),
    BPPSA_USE(TIME_LIMIT),
    {.option = BPPSA_OPTION_SEED, .help = "of weights and data"},
    BPPSA_USE(DEVICE),
    {.option = BPPSA_OPTION_DTYPE, .fallback = ""},
    BPPSA_USE(THREADS),
    RESULT_USES};

static const bppsa_option_use uses_step[] = {
    BPPSA_USE(MODEL),
    BPPSA_USE(LAYERS),
    BPPSA_USE(HIDDEN),
    BPPSA_USE(NONLINEARITY),
    {.option = BPPSA_OPTION_LOSS, .help = "the cross-entropy of the last or of every step"},
    {.option = BPPSA_OPTION_INIT, .fallback = "", .help = "[both]"},
    {.option = BPPSA_OPTION_WEIGHTS, .help = "one network instead of --init"},
    BPPSA_USE(DATA),
    BPPSA_USE(SET),
    BPPSA_USE(PADDING),
    {.option = BPPSA_OPTION_SEQ_LEN, .help = "[1000, npy the files']"},
    BPPSA_USE(BATCH),
    {.option = BPPSA_OPTION_CHUNKS, .help = "of the rows with the scan chunked [from T]"},
    BPPSA_USE(FORWARD_CHUNKS),
    BPPSA_USE(WARM_UP),
    BPPSA_USE(TOLERANCE),
    SPECULATIVE_USES,
    {.option = BPPSA_OPTION_COMPARE, .help = "these methods alone, of the program and of --rivals [all]"},
    {.option = BPPSA_OPTION_QUICK, .help = "a tenth of the time"},
    BPPSA_USE(RIVALS),
    BPPSA_USE(EARLIER),
    BPPSA_USE(REPEATS),
    BPPSA_USE(TIME_LIMIT),
    {.option = BPPSA_OPTION_SEED, .help = "of weights and data"},
    BPPSA_USE(DEVICE),
    BPPSA_USE(DTYPE),
    BPPSA_USE(THREADS),
    RESULT_USES};

static const bppsa_option_use uses_ranks[] = {
    {.option = BPPSA_OPTION_MODEL, .fallback = "gru", .help = "the recurrent network, beside LeNet-5"},
    BPPSA_USE(LAYERS),
    BPPSA_USE(HIDDEN),
    {.option = BPPSA_OPTION_LOSS, .help = "gradients enter at the last or at every step"},
    {.option = BPPSA_OPTION_INIT, .fallback = "orthogonal"},
    {.option = BPPSA_OPTION_SEQ_LEN, .fallback = "259"},
    {.option = BPPSA_OPTION_INPUT,
     .meaning = &bppsa_meaning_input_size,
     .fallback = "38",
     .help = "features of a step, of noise of variance 1"},
    {.option = BPPSA_OPTION_BATCH, .fallback = "256", .help = "samples, of both networks"},
    {.option = BPPSA_OPTION_RANKS,
     .fallback = "8",
     .help = "1, 2, 4, .. and P ranks; under mpirun P is the number of its processes"},
    {.option = BPPSA_OPTION_SPLIT, .fallback = "", .help = "time or batch: rows of this share alone [both]"},
    BPPSA_FORWARD_USES,
    {.option = BPPSA_OPTION_MICRO_BATCHES, .meaning = &bppsa_meaning_rank_micro_batches},
    BPPSA_USE(TRANSPORT),
    BPPSA_USE(TIMEOUT),
    {.option = BPPSA_OPTION_QUICK, .help = "a tenth of the time"},
    BPPSA_USE(REPEATS),
    {.option = BPPSA_OPTION_SEED, .help = "of weights, data and seed gradients"},
    BPPSA_USE(DEVICE),
    BPPSA_USE(DTYPE),
    {.option = BPPSA_OPTION_THREADS, .help = "of a rank [the processors divided by P]"},
    RESULT_USES};

static const bppsa_option_use uses_oracle[] = {
    {.option = BPPSA_OPTION_MODEL,
     .meaning = &bppsa_meaning_any_model,
     .fallback = "lenet5",
     .help = "what trains: lenet5, vgg11 or a network's FILE.json"},
    {.option = BPPSA_OPTION_BATCH, .fallback = "64", .help = "samples of an iteration, of all ranks"},
    {.option = BPPSA_OPTION_COMPARE, .metavar = "S,S", .help = "these strategies alone [all that the ranks can execute]"},
    {.option = BPPSA_OPTION_RANKS, .fallback = "2", .help = "P ranks; under mpirun P is the number of its processes"},
    BPPSA_USE(MICRO_BATCHES),
    BPPSA_USE(TRANSPORT),
    BPPSA_USE(TIMEOUT),
    {.option = BPPSA_OPTION_QUICK, .help = "three turns"},
    {.option = BPPSA_OPTION_REPEATS, .help = "turns of ten iterations [10]"},
    {.option = BPPSA_OPTION_SEED, .help = "of weights and noise"},
    {.option = BPPSA_OPTION_THREADS, .help = "of a rank [the processors divided by P]"},
    RESULT_USES};

static const bppsa_option_use uses_schedule[] = {
    {.option = BPPSA_OPTION_MODEL,
     .meaning = &bppsa_meaning_any_model,
     .fallback = "gru",
     .help = "what trains: rnn, gru, lenet5, .. or a network's FILE.json"},
    {.option = BPPSA_OPTION_LAYERS,
     .fallback = "8",
     .help = "recurrent layers; each is a layer of the chain, and the head is one"},
    {.option = BPPSA_OPTION_HIDDEN, .fallback = "32"},
    {.option = BPPSA_OPTION_LOSS, .help = "gradients enter at the last or at every step"},
    {.option = BPPSA_OPTION_SEQ_LEN, .fallback = "50"},
    {.option = BPPSA_OPTION_INPUT, .meaning = &bppsa_meaning_input_size, .fallback = "8", .help = "features of a step"},
    {.option = BPPSA_OPTION_BATCH, .fallback = "64", .help = "samples of an iteration, of all schemes"},
    {.option = BPPSA_OPTION_COMPARE, .help = "these schemes alone [all of schedule --list that have micro-batches]"},
    {.option = BPPSA_OPTION_RANKS, .fallback = "2", .help = "P ranks; under mpirun P is the number of its processes"},
    BPPSA_USE(STAGES),
    BPPSA_USE(MICRO_BATCHES),
    BPPSA_USE_AS(CHUNKS, stage_chunks),
    BPPSA_SCHEDULE_USES,
    {.option = BPPSA_OPTION_ITERATIONS, .fallback = "1", .help = "of a list; pipelines run them without a flush where they can"},
    BPPSA_USE(TRANSPORT),
    BPPSA_USE(TIMEOUT),
    {.option = BPPSA_OPTION_QUICK, .help = "fewer runs behind the costs"},
    {.option = BPPSA_OPTION_REPEATS, .fallback = "5", .help = "timed passes of every scheme"},
    {.option = BPPSA_OPTION_SEED, .help = "of weights and noise"},
    BPPSA_USE(DTYPE),
    {.option = BPPSA_OPTION_THREADS, .help = "of a rank [the processors divided by P]"},
    BPPSA_USE(SAVE_COSTS),
    {.option = BPPSA_OPTION_TRACE, .help = "predicted and measured timelines, for Perfetto or chrome://tracing"},
    {.option = BPPSA_OPTION_SVG, .help = "predicted and measured timelines, one below the other"},
    RESULT_USES};

/* ---- from options to settings ---- */

/* Gives the weights to a model of one step before anything is timed. This refuses wrong weights, and notes once what is done to
 * them. */
static bppsa_status try_weights(const bppsa_cli *cli, const bppsa_network *network, const bppsa_network_config *config,
                                const bppsa_safetensors *file) {
  bppsa_network_config one = *config;
  bppsa_device *device = NULL;
  bppsa_model *model = NULL;
  one.batch = one.steps.seq_len = 1;
  one.method.backward = BPPSA_BACKWARD_BP;
  one.steps.forward = bppsa_forward_method_default();
  BPPSA_TRY(bppsa_device_create("cpu", 1, &device));
  bppsa_status status = bppsa_network_create(network, &one, device, &model);
  status = status == BPPSA_OK ? bppsa_setup_model(cli, network, file, model) : status;
  bppsa_model_destroy(model);
  bppsa_device_destroy(device);
  return status;
}

/* Takes the network of --weights. Its layers must have biases and one direction, as in all methods and rivals. */
static bppsa_status take_weights(const bppsa_cli *cli, bppsa_network *network, bppsa_network_config *config,
                                 bppsa_bench_settings *asked) {
  const char *path = bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS)->text, *slash = strrchr(path, '/');
  const bppsa_option_value *input = bppsa_cli_value(cli, BPPSA_OPTION_INPUT);
  bppsa_safetensors *file = NULL;
  if (bppsa_cli_value(cli, BPPSA_OPTION_INIT)->given) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--weights: given beside --init, expected one of them");
  }
  BPPSA_TRY(bppsa_setup_weights(cli, network, config, &file));
  asked->weights = file;
  asked->weights_name = path;
  asked->point.weights = slash != NULL ? slash + 1 : path;
  if (config->steps.no_bias || config->steps.bidirectional) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--weights: %s: layers %s, expected layers with biases, in one direction", path,
                      config->steps.no_bias ? "without biases" : "in both directions");
  }
  BPPSA_TRY(try_weights(cli, network, config, file));
  return !input->given || input->integer == config->input
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "--input: %" PRId64 ", expected the %" PRId64 " of %s", input->integer,
                          config->input, path);
}

static bppsa_status setup_config(const bppsa_cli *cli, bppsa_bench_point *point) {
  const bppsa_network network = {.kind = bppsa_setup_kind(cli)};
  bppsa_network_config config = bppsa_network_config_default(&network);
  BPPSA_TRY(bppsa_setup_config(cli, BPPSA_RUNS_ALL, &config));
  point->kind = network.kind;
  point->config = bppsa_network_recurrent_config(&config);
  return BPPSA_OK;
}

/* Do the weights take as many features as the data have? */
static bppsa_status check_features(const bppsa_bench_point *point, int64_t of_weights) {
  return point->weights == NULL || point->config.input == of_weights
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "--weights: %s takes %" PRId64 " features, --data has %" PRId64, point->weights,
                          of_weights, point->config.input);
}

/* Takes the shape of --data, or noise with --input features. */
static bppsa_status setup_data(const bppsa_cli *cli, bppsa_bench_point *point) {
  const bppsa_option_value *data = bppsa_cli_value(cli, BPPSA_OPTION_DATA), *input = bppsa_cli_value(cli, BPPSA_OPTION_INPUT);
  point->data = data->present ? data->text : "bitstream";
  point->set = bppsa_cli_value(cli, BPPSA_OPTION_SET)->choice;
  point->padding = bppsa_cli_value(cli, BPPSA_OPTION_PADDING)->choice == 1 ? BPPSA_PADDING_REFLECT : BPPSA_PADDING_CONSTANT;
  BPPSA_TRY(bppsa_setup_check_set(cli, point->data));
  BPPSA_TRY(bppsa_setup_check_input(input, point->data));
  const int64_t of_weights = point->config.input;
  if (input->given || (point->weights != NULL && !data->given && of_weights > 1)) {
    point->config.input = input->given ? input->integer : of_weights;
    point->data = NULL;
    return BPPSA_OK;
  }
  if (strcmp(point->data, "bitstream") == 0) {
    point->config.input = 1;
    return check_features(point, of_weights);
  }
  bppsa_dataset *dataset = NULL;
  BPPSA_TRY(bppsa_setup_dataset_of(cli, point->data, NULL, point->config.loss_all, &dataset));
  point->config.input = dataset->input;
  point->config.classes = dataset->classes;
  point->config.seq_len = dataset->seq_len;
  bppsa_dataset_destroy(dataset);
  return check_features(point, of_weights);
}

bppsa_status bppsa_setup_bench(const bppsa_cli *cli, bppsa_bench_settings *asked) {
  const bppsa_option_value *init = bppsa_cli_value(cli, BPPSA_OPTION_INIT), *weights = bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS);
  bppsa_network network = {.kind = bppsa_setup_kind(cli), .name = bppsa_setup_kind(cli)->name};
  bppsa_network_config config = bppsa_network_config_default(&network);
  bppsa_bench_point *point = &asked->point;
  BPPSA_TRY(bppsa_setup_config(cli, BPPSA_RUNS_ALL, &config));
  BPPSA_TRY(weights->given ? take_weights(cli, &network, &config, asked) : BPPSA_OK);
  point->kind = network.kind;
  point->config = bppsa_network_recurrent_config(&config);
  point->init = init->choice == 1 ? BPPSA_INIT_ORTHOGONAL : BPPSA_INIT_DEFAULT;
  point->seed = asked->request.seed;
  BPPSA_TRY(setup_data(cli, point));
  asked->one_point = bppsa_cli_value(cli, BPPSA_OPTION_SEQ_LEN)->given || bppsa_cli_value(cli, BPPSA_OPTION_BATCH)->given ||
                     bppsa_cli_value(cli, BPPSA_OPTION_HIDDEN)->given || point->data == NULL ||
                     strcmp(point->data, "bitstream") != 0;
  asked->one_point = asked->one_point || weights->given;
  asked->both_inits = !init->given && !weights->given;
  asked->rivals = bppsa_cli_value(cli, BPPSA_OPTION_RIVALS)->text;
  return BPPSA_OK;
}

/* Refuses --nonlinearity beside a network whose cell has one function. */
static bppsa_status check_nonlinearity(const bppsa_cli *cli, const bppsa_network_kind *kind) {
  return !bppsa_cli_value(cli, BPPSA_OPTION_NONLINEARITY)->given || kind->cell->relu
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "--nonlinearity: given beside --model %s, expected --model %s", kind->name,
                          bppsa_network_kind_with_relu());
}

static bppsa_status setup_step(const bppsa_cli *cli, bppsa_bench_settings *asked) {
  BPPSA_TRY(bppsa_setup_bench(cli, asked));
  bppsa_setup_note_steps(cli, asked->point.config.seq_len);
  BPPSA_TRY(check_nonlinearity(cli, asked->point.kind));
  asked->methods = bppsa_cli_value(cli, BPPSA_OPTION_COMPARE)->text;
  return asked->point.data != NULL
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "--weights: %s takes %" PRId64 " features, expected --data with as many",
                          asked->point.weights, asked->point.config.input);
}

/* Reads --cudnn-dtype, --input-gradient and --cold of bench rnn, gru and lstm. */
static bppsa_status setup_forms(const bppsa_cli *cli, bppsa_bench_settings *asked) {
  const bppsa_device *device = asked->request.device;
  bppsa_recurrent_config *config = &asked->point.config;
  asked->cudnn_bf16 = bppsa_cli_value(cli, BPPSA_OPTION_CUDNN_DTYPE)->given;
  if (asked->cudnn_bf16 && (bppsa_device_get_kind(device) != BPPSA_CUDA || config->dtype != BPPSA_F32)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--cudnn-dtype: given beside --device %s and --dtype %s, expected a GPU and f32",
                      bppsa_device_get_name(device), bppsa_dtype_name(config->dtype));
  }
  config->input_gradients = bppsa_cli_value(cli, BPPSA_OPTION_INPUT_GRADIENT)->given;
  if (!bppsa_cli_value(cli, BPPSA_OPTION_COLD)->given) {
    return BPPSA_OK;
  }
  if (asked->rivals != NULL) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--cold: given beside --rivals, whose program makes its passes itself, expected one of "
                                          "them");
  }
  return bppsa_fail_prefix(bppsa_cold_cache(device, &asked->cold), "--cold");
}

/* Reads --references and --save-references. Beside --save-references nothing is timed. */
static bppsa_status setup_references(const bppsa_cli *cli, bppsa_bench_settings *asked) {
  static const bppsa_option of_timing[] = {
      BPPSA_OPTION_REFERENCES,     BPPSA_OPTION_RIVALS,          BPPSA_OPTION_EARLIER,          BPPSA_OPTION_CUDNN_DTYPE,
      BPPSA_OPTION_COLD,           BPPSA_OPTION_REPEATS,         BPPSA_OPTION_FORWARD,          BPPSA_OPTION_WARM_UP,
      BPPSA_OPTION_FORWARD_CHUNKS, BPPSA_OPTION_TOLERANCE,       BPPSA_OPTION_TIME_LIMIT,       BPPSA_OPTION_CHUNKS,
      BPPSA_OPTION_UP_LEVELS,      BPPSA_OPTION_BACKWARD_CHUNKS, BPPSA_OPTION_BACKWARD_WARM_UP, BPPSA_OPTION_BACKWARD_TOLERANCE};
  asked->references = bppsa_cli_value(cli, BPPSA_OPTION_REFERENCES)->text;
  asked->save_references = bppsa_cli_value(cli, BPPSA_OPTION_SAVE_REFERENCES)->text;
  for (size_t i = 0; asked->save_references != NULL && i < sizeof of_timing / sizeof of_timing[0]; ++i) {
    if (bppsa_cli_given(cli, of_timing[i])) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: given beside --save-references, which times nothing, expected one of them",
                        bppsa_option_get(of_timing[i])->name);
    }
  }
  return BPPSA_OK;
}

/* Reads --reset-rate. References of files have no masks. */
static bppsa_status setup_resets(const bppsa_cli *cli, bppsa_bench_settings *asked) {
  const bppsa_option_value *rate = bppsa_cli_value(cli, BPPSA_OPTION_RESET_RATE);
  if (rate->given && (asked->references != NULL || asked->save_references != NULL)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--reset-rate: given beside %s, whose file has no masks, expected one of them",
                      asked->references != NULL ? "--references" : "--save-references");
  }
  asked->reset_rate = rate->given ? rate->real : 0;
  return BPPSA_OK;
}

static bppsa_status setup_layers(const bppsa_cli *cli, bppsa_bench_settings *asked) {
  BPPSA_TRY(setup_references(cli, asked));
  BPPSA_TRY(setup_resets(cli, asked));
  BPPSA_TRY(bppsa_setup_bench(cli, asked));
  if (asked->one_point) { /* the rows of a sweep show the numbers that they use */
    bppsa_setup_note_steps(cli, asked->point.config.seq_len);
  }
  return setup_forms(cli, asked);
}

static bppsa_status setup_crossover(const bppsa_cli *cli, bppsa_bench_settings *asked) {
  const bppsa_option_value *longest = bppsa_cli_value(cli, BPPSA_OPTION_SEQ_LEN),
                           *workers = bppsa_cli_value(cli, BPPSA_OPTION_WORKERS);
  BPPSA_TRY(bppsa_setup_bench(cli, asked));
  BPPSA_TRY(check_nonlinearity(cli, asked->point.kind));
  asked->longest = longest->given ? longest->integer : 0;
  if (longest->given) {
    bppsa_setup_note_steps(cli, asked->longest);
  }
  asked->workers = workers->given ? workers->integer : 0;
  return BPPSA_OK;
}

static bppsa_status setup_product(const bppsa_cli *cli, bppsa_bench_settings *asked) {
  const bppsa_option_value *left = bppsa_cli_value(cli, BPPSA_OPTION_LEFT), *right = bppsa_cli_value(cli, BPPSA_OPTION_RIGHT),
                           *up_levels = bppsa_cli_value(cli, BPPSA_OPTION_UP_LEVELS);
  if (left->present != right->present) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: given without %s, expected both factors", left->present ? "--left" : "--right",
                      left->present ? "--right" : "--left");
  }
  if (left->present && up_levels->present) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--up-levels: given with --left and --right, expected a scan's products or the files'");
  }
  asked->left = left->text;
  asked->right = right->text;
  asked->of_scan = up_levels->present;
  asked->scan = (bppsa_scan_method){BPPSA_SCAN_BLELLOCH, up_levels->integer, 0};
  if (asked->of_scan) {
    bppsa_named_op ops[BPPSA_NETWORK_OPS];
    int64_t count;
    BPPSA_TRY(bppsa_network_table("vgg11", ops, &count));
    bppsa_setup_note_steps(cli, count);
  }
  return BPPSA_OK;
}

static bppsa_status setup_threads(const bppsa_cli *cli, bppsa_bench_settings *asked) {
  const bppsa_option_value *neighbours = bppsa_cli_value(cli, BPPSA_OPTION_NEIGHBOURS);
  asked->neighbours = neighbours->present ? neighbours->integer : -1;
  return setup_config(cli, &asked->point);
}

static bppsa_status setup_forward(const bppsa_cli *cli, bppsa_bench_settings *asked) {
  const bppsa_option_value *length = bppsa_cli_value(cli, BPPSA_OPTION_SEQ_LEN),
                           *weights = bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS);
  bppsa_network network = {.kind = bppsa_setup_kind(cli), .name = bppsa_setup_kind(cli)->name};
  bppsa_network_config config = bppsa_network_config_default(&network);
  asked->longest = length->given ? length->integer : 0;
  asked->hidden = bppsa_cli_value(cli, BPPSA_OPTION_HIDDEN)->integer;
  asked->batch = bppsa_cli_value(cli, BPPSA_OPTION_BATCH)->integer;
  asked->rivals = bppsa_cli_value(cli, BPPSA_OPTION_RIVALS)->text;
  BPPSA_TRY(bppsa_setup_config(cli, BPPSA_RUNS_ONE, &config));
  if (weights->given) {
    bppsa_safetensors *file = NULL;
    BPPSA_TRY(bppsa_setup_weights(cli, &network, &config, &file));
    asked->weights = file;
    asked->weights_name = weights->text;
    BPPSA_TRY(try_weights(cli, &network, &config, file));
  }
  asked->point.kind = network.kind;
  asked->point.config = bppsa_network_recurrent_config(&config);
  if (length->given) {
    bppsa_setup_note_steps(cli, asked->longest);
  }
  return BPPSA_OK;
}

static bppsa_status setup_ranks(const bppsa_cli *cli, bppsa_bench_settings *asked) {
  const bppsa_option_value *split = bppsa_cli_value(cli, BPPSA_OPTION_SPLIT);
  BPPSA_TRY(setup_config(cli, &asked->point));
  asked->point.config.input = bppsa_cli_value(cli, BPPSA_OPTION_INPUT)->integer;
  asked->point.init = bppsa_cli_value(cli, BPPSA_OPTION_INIT)->choice == 1 ? BPPSA_INIT_ORTHOGONAL : BPPSA_INIT_DEFAULT;
  asked->micro_batches = bppsa_cli_value(cli, BPPSA_OPTION_MICRO_BATCHES)->integer;
  asked->nccl = bppsa_ranks_over_nccl(cli);
  if (bppsa_ranks_first(asked->comm)) {
    bppsa_setup_note_steps(cli, asked->point.config.seq_len);
  }
  asked->shares = !split->given                      ? BPPSA_BENCH_SHARES_BOTH
                  : strcmp(split->text, "time") == 0 ? BPPSA_BENCH_SHARES_TIME
                                                     : BPPSA_BENCH_SHARES_BATCH;
  if (asked->shares == BPPSA_BENCH_SHARES_BATCH && strcmp(split->text, "batch") != 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--split: '%s', expected time or batch", split->text);
  }
  if (asked->shares == BPPSA_BENCH_SHARES_BATCH && bppsa_cli_given(cli, BPPSA_OPTION_MICRO_BATCHES)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--micro-batches: given beside --split batch, which has none, expected --split time");
  }
  return asked->micro_batches <= asked->point.config.batch
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "--micro-batches: %" PRId64 ", expected at most the %" PRId64 " samples of a batch",
                          asked->micro_batches, asked->point.config.batch);
}

/* Reads the network's sizes. Networks of images have fixed sizes. */
static bppsa_status setup_chain(const bppsa_cli *cli, bppsa_bench_settings *asked) {
  static const bppsa_option of_steps[] = {BPPSA_OPTION_LAYERS, BPPSA_OPTION_HIDDEN, BPPSA_OPTION_LOSS, BPPSA_OPTION_SEQ_LEN,
                                          BPPSA_OPTION_INPUT};
  const bppsa_network_config fixed = bppsa_network_config_default(asked->network);
  asked->network_config = fixed;
  BPPSA_TRY(bppsa_setup_config(cli, BPPSA_RUNS_ALL, &asked->network_config));
  if (asked->network->kind->family->steps) {
    asked->network_config.input = bppsa_cli_value(cli, BPPSA_OPTION_INPUT)->integer;
    return BPPSA_OK;
  }
  asked->network_config.steps = fixed.steps;
  for (size_t i = 0; i < sizeof of_steps / sizeof of_steps[0]; ++i) {
    if (bppsa_cli_value(cli, of_steps[i])->given) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: given beside --model %s, expected a recurrent network",
                        bppsa_option_get(of_steps[i])->name, asked->network->name);
    }
  }
  return BPPSA_OK;
}

static bppsa_status setup_schedule(const bppsa_cli *cli, bppsa_bench_settings *asked) {
  bppsa_schedule_config *c = &asked->schedule;
  BPPSA_TRY(setup_chain(cli, asked));
  *c = bppsa_schedule_config_default();
  c->stages = 0;
  BPPSA_TRY(bppsa_scheme_options(cli, bppsa_cli_value(cli, BPPSA_OPTION_COMPARE)->text, c));
  BPPSA_TRY(bppsa_rank_schedule_stages(bppsa_comm_size(asked->comm), c));
  c->skip_first_input_grad = true;
  asked->batch = asked->network_config.batch;
  asked->schemes = bppsa_cli_value(cli, BPPSA_OPTION_COMPARE)->text;
  asked->cut = bppsa_cli_value(cli, BPPSA_OPTION_CUT)->text;
  asked->trace = bppsa_cli_value(cli, BPPSA_OPTION_TRACE)->text;
  asked->svg = bppsa_cli_value(cli, BPPSA_OPTION_SVG)->text;
  asked->save_costs = bppsa_cli_value(cli, BPPSA_OPTION_SAVE_COSTS)->text;
  return asked->batch % c->micro_batches == 0
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "--batch: %" PRId64 " samples for %" PRId64 " micro-batches, expected a multiple",
                          asked->batch, c->micro_batches);
}

static bppsa_status setup_mfcc(const bppsa_cli *cli, bppsa_bench_settings *asked) {
  const bppsa_option_value *set = bppsa_cli_value(cli, BPPSA_OPTION_SET), *padding = bppsa_cli_value(cli, BPPSA_OPTION_PADDING);
  asked->set = set->given ? set->choice : -1;
  asked->padding = padding->choice == 1 ? BPPSA_PADDING_REFLECT : BPPSA_PADDING_CONSTANT;
  return BPPSA_OK;
}

static bppsa_status setup_batch(const bppsa_cli *cli, bppsa_bench_settings *asked) {
  asked->batch = bppsa_cli_value(cli, BPPSA_OPTION_BATCH)->integer;
  return BPPSA_OK;
}

static bppsa_status setup_oracle(const bppsa_cli *cli, bppsa_bench_settings *asked) {
  asked->model = bppsa_cli_value(cli, BPPSA_OPTION_MODEL)->text;
  asked->schemes = bppsa_cli_value(cli, BPPSA_OPTION_COMPARE)->text;
  asked->schedule.micro_batches = bppsa_cli_value(cli, BPPSA_OPTION_MICRO_BATCHES)->integer;
  BPPSA_TRY(bppsa_cli_given(cli, BPPSA_OPTION_MICRO_BATCHES) ? bppsa_oracle_check_option(asked->schemes, "--micro-batches")
                                                             : BPPSA_OK);
  BPPSA_TRY(setup_batch(cli, asked));
  return bppsa_oracle_settings_complete(asked);
}

static bppsa_status setup_network(const bppsa_cli *cli, bppsa_bench_settings *asked) {
  BPPSA_TRY(bppsa_setup_check_method(cli));
  asked->prune = bppsa_cli_value(cli, BPPSA_OPTION_PRUNE)->real;
  asked->prune_method = (bppsa_prune_method)bppsa_cli_value(cli, BPPSA_OPTION_METHOD)->choice;
  return setup_batch(cli, asked);
}

/* ---- the commands ---- */

/* The functions that turn options of single benchmarks into settings. A benchmark without such options has no row. */
static const struct {
  const char *name;
  bppsa_status (*setup)(const bppsa_cli *cli, bppsa_bench_settings *asked);
} benchmarks[] = {
#define CELL(id, words, functions, rate, sweep) {#id, setup_layers},
#include "networks/cells.inc"
    {"crossover", setup_crossover}, {"lenet5", setup_network},  {"vgg11", setup_network},     {"product", setup_product},
    {"scan", setup_batch},          {"threads", setup_threads}, {"mfcc", setup_mfcc},         {"forward", setup_forward},
    {"step", setup_step},           {"ranks", setup_ranks},     {"schedule", setup_schedule}, {"oracle", setup_oracle}};

bppsa_bench_request bppsa_setup_request(const bppsa_cli *cli, const bppsa_device *device) {
  const bppsa_option_value *out = bppsa_cli_value(cli, BPPSA_OPTION_OUT);
  return (bppsa_bench_request){.to = cli->to,
                               .path = out->given ? out->text : NULL,
                               .device = device,
                               .quick = bppsa_cli_value(cli, BPPSA_OPTION_QUICK)->given,
                               .repeats = bppsa_cli_value(cli, BPPSA_OPTION_REPEATS)->integer,
                               .earlier = bppsa_cli_value(cli, BPPSA_OPTION_EARLIER)->text,
                               .time_limit_s = bppsa_cli_value(cli, BPPSA_OPTION_TIME_LIMIT)->integer,
                               .memory_limit = bppsa_cli_value(cli, BPPSA_OPTION_MEMORY_LIMIT)->integer,
                               .seed = (uint64_t)bppsa_cli_value(cli, BPPSA_OPTION_SEED)->integer};
}

/* Reads the settings. On ranks, one rank reports what is wrong. */
static bppsa_status setup(const bppsa_cli *cli, bppsa_network *network, bppsa_bench_settings *asked) {
  const char *name = cli->command->object;
  const bppsa_option_value *model = bppsa_cli_value(cli, BPPSA_OPTION_MODEL);
  bppsa_status status = BPPSA_OK;
  if (model->meaning == &bppsa_meaning_any_model) {
    status = bppsa_network_open(model->text, NULL, network);
    status = status == BPPSA_OK ? BPPSA_OK : bppsa_fail_prefix(bppsa_input_status(status), "--model");
  } else if (bppsa_network_kind_find(name) != NULL) {
    status = bppsa_network_open(name, NULL, network);
  }
  asked->network = network;
  for (size_t i = 0; status == BPPSA_OK && i < sizeof benchmarks / sizeof benchmarks[0]; ++i) {
    status = strcmp(benchmarks[i].name, name) == 0 ? benchmarks[i].setup(cli, asked) : BPPSA_OK;
  }
  return asked->comm != NULL ? bppsa_job_agree(asked->comm, status) : status;
}

static bppsa_status run_case(const bppsa_cli *cli, const bppsa_device *device, bppsa_comm *comm) {
  const bppsa_bench_case *kind = bppsa_bench_case_find(cli->command->object);
  bppsa_bench_settings asked = {.request = bppsa_setup_request(cli, device), .comm = comm};
  bppsa_network network = {0};
  bppsa_status status = setup(cli, &network, &asked);
  kind = asked.save_references != NULL ? &bppsa_bench_case_references : kind;
  if (status == BPPSA_OK) {
    status = bppsa_ranks_first(comm) ? bppsa_bench_drive(kind, &asked.request, &asked) : kind->serve(&asked.request, &asked);
  }
  bppsa_safetensors_destroy(asked.weights);
  bppsa_network_close(&network);
  return status;
}

static bppsa_status run_here(bppsa_cli *cli, bppsa_comm *comm) {
  bppsa_device *device = NULL;
  const bool one_thread = bppsa_bench_case_find(cli->command->object)->one_thread;
  BPPSA_TRY(one_thread ? bppsa_device_create("cpu", 1, &device) : bppsa_setup_device(cli, &device));
  const bppsa_status status = run_case(cli, device, comm);
  bppsa_device_destroy(device);
  return status;
}

static bppsa_status run(bppsa_cli *cli) {
  return bppsa_bench_case_find(cli->command->object)->serve != NULL ? bppsa_ranks_run(cli, run_here) : run_here(cli, NULL);
}

#define BENCH(id, text, list, options, what)                                                                                     \
  const bppsa_command bppsa_command_bench_##id = {.verb = "bench",                                                               \
                                                  .object = #id,                                                                 \
                                                  .summary = (what),                                                             \
                                                  .example = "bench " #id " --quick" options,                                    \
                                                  .notes = bppsa_bench_notes_##text,                                             \
                                                  .uses = uses_##list,                                                           \
                                                  .run = run}
#define CELL(id, words, functions, rate, sweep)                                                                                  \
  BENCH(id, id, id, "", "Verifies and times forward, BP and every scan algorithm of " words);
#include "networks/cells.inc"
BENCH(crossover, crossover, crossover, " --workers 1000", "Maps where the scan beats sequential BP, here and for P workers");
BENCH(lenet5, cnn, lenet5, "", "Verifies and times LeNet-5: forward, BP and every sparse scan");
BENCH(vgg11, cnn, vgg11, "", "Verifies and times the pruned VGG-11: forward, BP and sparse scans");
BENCH(jacobian, jacobian, jacobian, "", "Verifies and times the generation of sparse Jacobians");
BENCH(product, product, product, "", "Verifies and times planned products of sparse Jacobians");
BENCH(scan, scan, scan, "", "Verifies and times the sparse scan of LeNet-5's operators");
BENCH(threads, threads, threads, "", "Times a training step on one thread and on several, quiet and beside busy programs");
BENCH(mfcc, mfcc, mfcc, "", "Verifies and times MFCC features of one channel on one thread");
BENCH(forward, forward, forward, "", "Verifies and times forward passes in parallel over time beside sequential ones");
BENCH(step, step, step, "", "Verifies and times whole training steps beside those of other libraries");
BENCH(ranks, ranks, ranks, "", "Verifies and times gradients on 1, 2, 4 .. ranks by every method, beside a model");
BENCH(oracle, oracle, oracle, "", "Holds the oracle's projections against training steps of every strategy");
BENCH(schedule, schedule, schedule, "",
      "Verifies and times every scheme that trains on ranks, beside what the simulator predicts");
