/* `bppsa figures`: the options, and the summary of the files that were written (figures/figures.h). */
#include "figures/figures.h"

#include "bppsa_version.h"
#include "cli/setup.h"
#include "core/measure/residual.h"
#include "terminal/interrupt.h"

static const bppsa_option_use uses[] = {
    {.option = BPPSA_OPTION_OUT,
     .required = true,
     .metavar = "DIR",
     .path = BPPSA_PATH_FOLDER,
     .help = "the directory of the files, made when missing"},
    BPPSA_USE(RESULTS),
    BPPSA_USE(MODEL),
    BPPSA_USE(CNN),
    {.option = BPPSA_OPTION_DATA,
     .fallback = "",
     .help = "what figure 13 trains on: npy:X,Y, irmas:DIR or instruments:DIR; with --cnn figure 6"},
    BPPSA_USE(SET),
    BPPSA_USE(PADDING),
    {.option = BPPSA_OPTION_VALIDATION, .fallback = "0.15", .help = "of figure 13: fraction of the samples held out"},
    {.option = BPPSA_OPTION_SEQ_LEN, .help = "one point instead of the sweep; of figure 7 too [1000]"},
    {.option = BPPSA_OPTION_BATCH, .help = "one point instead of the sweep; of figure 7 too"},
    {.option = BPPSA_OPTION_HIDDEN, .help = "one point instead of the sweep; of figure 7 too"},
    {.option = BPPSA_OPTION_ITERATIONS, .help = "of the training for figure 7 or 13 [2000, quick 200]"},
    BPPSA_USE(QUICK),
    BPPSA_USE(REPEATS),
    BPPSA_USE(MEMORY_LIMIT),
    {.option = BPPSA_OPTION_SEED, .help = "of weights, data and seed gradients"},
    BPPSA_USE(THREADS),
    {.option = BPPSA_OPTION_RESUME,
     .help = "go on where an interrupted run into the same directory stopped",
     .instead = "--out names the directory of the run to go on with"},
    BPPSA_USES_END};

static const char notes[] =
    "Writes table4.csv, table5.csv; figure1, figure3, figure7 and figure8 as .csv, .svg and .png (with "
    "the .gp scripts that drew them);\n"
    "results.json, what bench rnn measured; index.html, one page with everything beside the paper's "
    "numbers. gnuplot draws figures 7 and 8\n"
    "and all PNG files; without it they are left out and a line says so.\n"
    "schedules.html: the papers' timelines and tables of schedules, computed, with their .svg and .csv files.\n"
    "oracle.html: ParaDL's strategies, projected, beside what its text publishes.\n"
    "With --model gru, or --results of bench gru: table3.csv, table6.csv, figure9 and a page of their own; figure13 with "
    "--data.\n"
    "With lstm: lstm_lengths, lstm_batches, lstm_growth, lstm_sensitivity and lstm_loss. With --results of bench ranks: "
    "ranks_time "
    "and\nranks_batch; of bench forward: forward_path and forward_steps (bench/scripts/forward.py writes all their rows); of "
    "bench/scripts/spectrain.py:\nprediction, staleness, adam; of bench/scripts/out_of_order.py: out_of_order.\n"
    "What is measured is kept in DIR as it goes: results.json after every point, figure7.json (figure13.json) after every repeat "
    "of the "
    "training;\n"
    "Ctrl-C ends after the point, a second one at once, and --resume with the same options goes on; without it a run is "
    "refused where an\n"
    "interrupted one's measurements are (\"finished\": false), and replaces a finished run's files.\n"
    "With --cnn: table1.csv, figure5, figure6 and figure10 and networks.html; figure 6 trains on synthetic images in DIR/cifar "
    "without --data.\n";

/* ---- the configuration ---- */

/* Does the option change what is measured? The options of this list do not. --threads is in it because the number of threads that
 * the run has is recorded below. */
static bool is_measured(bppsa_option option) {
  static const bppsa_option others[] = {BPPSA_OPTION_OUT,  BPPSA_OPTION_RESUME, BPPSA_OPTION_RESULTS,
                                        BPPSA_OPTION_JSON, BPPSA_OPTION_HELP,   BPPSA_OPTION_THREADS};
  for (size_t i = 0; i < sizeof others / sizeof others[0]; ++i) {
    if (option == others[i]) {
      return false;
    }
  }
  return true;
}

static json_t *value_json(bppsa_option_kind kind, const bppsa_option_value *value) {
  return kind == BPPSA_FLAG                            ? json_boolean(value->given)
         : !value->present                             ? json_null()
         : kind == BPPSA_INTEGER || kind == BPPSA_SIZE ? json_integer(value->integer)
         : kind == BPPSA_REAL                          ? bppsa_json_real(value->real)
                                                       : json_string(value->text);
}

/* Everything that decides what is measured: the options, the program's version, the machine, and the number of threads that the
 * run has. NULL when out of memory. */
static json_t *make_configuration(const bppsa_cli *cli, const bppsa_device *device) {
  json_t *made = json_object();
  bool ok = made != NULL && bppsa_json_put_text(made, "version", BPPSA_VERSION);
  ok = ok && bppsa_json_put_text(made, "commit", BPPSA_COMMIT);
  ok = ok && bppsa_json_put_text(made, "hardware", bppsa_device_get_hardware(device));
  ok = ok && bppsa_json_put_integer(made, "--threads", bppsa_device_get_threads(device));
  for (const bppsa_option_use *use = cli->command->uses; ok && use->option != BPPSA_OPTION_COUNT; ++use) {
    const bppsa_option_info *info = bppsa_option_of(use);
    ok = !is_measured(use->option) || bppsa_json_put(made, info->name, value_json(info->kind, bppsa_cli_value(cli, use->option)));
  }
  return bppsa_json_finish(made, ok);
}

/* ---- from options to a request ---- */

/* Returns the number of an option that was given, otherwise 0. */
static int64_t given(const bppsa_cli *cli, bppsa_option option) {
  const bppsa_option_value *value = bppsa_cli_value(cli, option);
  return value->given ? value->integer : 0;
}

static bool flag(const bppsa_cli *cli, bppsa_option option) {
  return bppsa_cli_value(cli, option)->given;
}

/* Opens the data that the run trains on. A run that draws results reads no data unless --data is given. --set and --padding have
 * no meaning for images. */
static bppsa_status setup_data(const bppsa_cli *cli, bppsa_figures_data *data) {
  data->spec = bppsa_cli_value(cli, BPPSA_OPTION_DATA)->text;
  data->set = bppsa_cli_value(cli, BPPSA_OPTION_SET)->choice;
  data->padding = bppsa_cli_value(cli, BPPSA_OPTION_PADDING)->choice == 1 ? BPPSA_PADDING_REFLECT : BPPSA_PADDING_CONSTANT;
  data->validation = bppsa_cli_value(cli, BPPSA_OPTION_VALIDATION)->real;
  const bool unread = flag(cli, BPPSA_OPTION_CNN) || (flag(cli, BPPSA_OPTION_RESULTS) && data->spec == NULL);
  return unread ? BPPSA_OK : bppsa_setup_check_set(cli, data->spec != NULL ? data->spec : "bitstream");
}

static bool is_stopped(void *interrupt) {
  return bppsa_interrupt_pending(interrupt);
}

static const char *stop_name(void *interrupt) {
  return bppsa_interrupt_name(interrupt);
}

/* Refuses options that the run has no use for. */
static bppsa_status check_used(const bppsa_cli *cli) {
  static const bppsa_option_use of_sequences[] = {BPPSA_USE(RESULTS),      BPPSA_USE(MODEL),      BPPSA_USE(SET),
                                                  BPPSA_USE(PADDING),      BPPSA_USE(SEQ_LEN),    BPPSA_USE(BATCH),
                                                  BPPSA_USE(HIDDEN),       BPPSA_USE(ITERATIONS), BPPSA_USE(REPEATS),
                                                  BPPSA_USE(MEMORY_LIMIT), BPPSA_USE(COUNT)};
  static const bppsa_option_use of_rows[] = {BPPSA_USE(REPEATS), BPPSA_USE(MEMORY_LIMIT), BPPSA_USE(COUNT)};
  if (flag(cli, BPPSA_OPTION_CNN)) {
    return bppsa_setup_refuse(cli, of_sequences, "beside --cnn, whose figures are of images, expected one of the two", "");
  }
  return flag(cli, BPPSA_OPTION_RESULTS)
             ? bppsa_setup_refuse(cli, of_rows, "beside --results, which are measured already, expected one of the two", "")
             : BPPSA_OK;
}

static bppsa_status setup(const bppsa_cli *cli, bppsa_figures_request *request) {
  BPPSA_TRY(check_used(cli));
  const bool quick = flag(cli, BPPSA_OPTION_QUICK);
  const bppsa_option_value *results = bppsa_cli_value(cli, BPPSA_OPTION_RESULTS),
                           *iterations = bppsa_cli_value(cli, BPPSA_OPTION_ITERATIONS);
  *request = (bppsa_figures_request){.to = cli->to,
                                     .directory = bppsa_cli_value(cli, BPPSA_OPTION_OUT)->text,
                                     .results = results->given ? results->text : NULL,
                                     .kind = bppsa_setup_kind(cli),
                                     .kind_given = flag(cli, BPPSA_OPTION_MODEL),
                                     .cnn = flag(cli, BPPSA_OPTION_CNN),
                                     .quick = quick,
                                     .resume = flag(cli, BPPSA_OPTION_RESUME),
                                     .seq_len = given(cli, BPPSA_OPTION_SEQ_LEN),
                                     .batch = given(cli, BPPSA_OPTION_BATCH),
                                     .hidden = given(cli, BPPSA_OPTION_HIDDEN),
                                     .iterations = iterations->given ? iterations->integer
                                                   : quick           ? 200
                                                                     : 2000,
                                     .repeats = given(cli, BPPSA_OPTION_REPEATS),
                                     .memory_limit = given(cli, BPPSA_OPTION_MEMORY_LIMIT),
                                     .seed = (uint64_t)bppsa_cli_value(cli, BPPSA_OPTION_SEED)->integer,
                                     .stop = is_stopped,
                                     .stop_name = stop_name,
                                     .stop_context = cli->interrupt};
  return setup_data(cli, &request->data);
}

/* ---- the summary ---- */

static json_t *files_json(const char *directory, const bppsa_figures_result *result) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "out", directory);
  ok = ok && bppsa_json_put_bool(object, "gnuplot", result->gnuplot);
  ok = ok && bppsa_json_put(object, "files", json_incref(result->files));
  return bppsa_json_finish(object, ok);
}

/* Prints which method wins, how many files were written, the path of the page, and which files are missing because gnuplot is not
 * installed. */
static bppsa_status print_files(const bppsa_output *to, const char *directory, const bppsa_figures_result *result) {
  BPPSA_TRY(result->verdict.size > 0 ? bppsa_output_print(to, "%s\n\n", result->verdict.text) : BPPSA_OK);
  BPPSA_TRY(bppsa_output_print(to, "%zu files in %s; begin with %s/%s\n", json_array_size(result->files), directory, directory,
                               result->page));
  return result->gnuplot
             ? BPPSA_OK
             : bppsa_output_print(to, "gnuplot is not installed (package gnuplot-nox): figures that are plotted are CSV "
                                      "only, and there are no PNG files of them\n");
}

/* ---- the command ---- */

static bppsa_status make(const bppsa_figures_request *request) {
  bppsa_figures_result result = {0};
  BPPSA_TRY(bppsa_figures_run(request, &result));
  bppsa_status status = request->to.json ? bppsa_output_json(&request->to, files_json(request->directory, &result))
                                         : print_files(&request->to, request->directory, &result);
  status = status == BPPSA_OK ? bppsa_bench_rows_status(&result.measured, BPPSA_RESIDUAL_BOUND) : status;
  bppsa_figures_result_free(&result);
  return status;
}

static bppsa_status run(bppsa_cli *cli) {
  bppsa_figures_request request;
  bppsa_device *device = NULL;
  BPPSA_TRY(setup(cli, &request));
  BPPSA_TRY(bppsa_setup_device(cli, &device));
  json_t *configuration = make_configuration(cli, device);
  request.device = device;
  request.configuration = configuration;
  bppsa_status status =
      configuration != NULL ? BPPSA_OK : bppsa_fail(BPPSA_ERR_MEMORY, "figures: out of memory, expected room for the results");
  if (status == BPPSA_OK) {
    bppsa_interrupt_catch(cli->interrupt);
    status = make(&request);
    bppsa_interrupt_release(cli->interrupt);
  }
  json_decref(configuration);
  bppsa_device_destroy(device);
  return status;
}

const bppsa_command bppsa_command_figures = {
    .verb = "figures",
    .summary = "Regenerates the tables and figures of training RNNs, GRUs and LSTMs, beside the paper's numbers",
    .example = "figures --quick --out figures",
    .notes = notes,
    .uses = uses,
    .run = run};
