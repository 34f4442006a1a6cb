/* `bppsa bench rnn` and `bppsa bench gru`: every method over the sweeps of tables 4 and 5, or of table 6, or at one point. */
#include <inttypes.h>
#include <string.h>

#include "cli/bench_queued.h"
#include "cli/machine.h"
#include "cli/setup.h"
#include "core/alloc.h"
#include "core/memory.h"

/* What both kinds of network take; `only` is what one of them takes besides. */
#define USES(only)                                                                                                               \
  {                                                                                                                              \
    {.option = BPPSA_OPTION_LAYERS}, {.option = BPPSA_OPTION_HIDDEN},                                                            \
        only{.option = BPPSA_OPTION_LOSS, .help = "gradients enter at the last or at every step"},                               \
        {.option = BPPSA_OPTION_INIT, .fallback = "", .help = "[the sweep: both; one point: default]"},                          \
        {.option = BPPSA_OPTION_DATA}, {.option = BPPSA_OPTION_SET}, {.option = BPPSA_OPTION_PADDING},                           \
        {.option = BPPSA_OPTION_SEQ_LEN, .help = "one point instead of the sweep [1000, npy the files']"},                       \
        {.option = BPPSA_OPTION_INPUT_SIZE, .help = "features of a step, of noise of variance 1; one point [bitstream, of 1]"},  \
        {.option = BPPSA_OPTION_BATCH}, {.option = BPPSA_OPTION_UP_LEVELS, .help = "of the rows of blelloch [all]"},             \
        {.option = BPPSA_OPTION_CHUNKS, .help = "of the rows of chunked [from T]"}, {.option = BPPSA_OPTION_QUICK},              \
        {.option = BPPSA_OPTION_REPEATS}, {.option = BPPSA_OPTION_TIME_LIMIT}, {.option = BPPSA_OPTION_MEMORY_LIMIT},            \
        {.option = BPPSA_OPTION_SEED, .help = "of weights, data and seed gradients"}, {.option = BPPSA_OPTION_DEVICE},           \
        {.option = BPPSA_OPTION_DTYPE}, {.option = BPPSA_OPTION_THREADS},                                                        \
        {.option = BPPSA_OPTION_OUT, .metavar = "F.json", .help = "where the JSON document goes too"},                           \
        {.option = BPPSA_OPTION_JSON}, {.option = BPPSA_OPTION_HELP}, {                                                          \
      .option = BPPSA_OPTION_COUNT                                                                                               \
    }                                                                                                                            \
  }
#define RNN_ONLY {.option = BPPSA_OPTION_NONLINEARITY},
static const bppsa_option_use uses_rnn[] = USES(RNN_ONLY), uses_gru[] = USES();

#define SWEEP_RNN                                                                                                                \
  "Without --seq-len, --batch, --hidden and --input: T = 10 .. 30000 at B = 16 and B = 2 .. 256 at T = 1000, H = 20.\n"
#define SWEEP_GRU                                                                                                                \
  "Without --seq-len, --batch, --hidden and --input: the shapes of IRMAS's sets S (T 259, I 38), M (517, 24) and L (1034, 12), " \
  "noise of "                                                                                                                    \
  "variance 1,\nat B = 16, 32 and 64, H = 20.\n"
#define NOTES(sweep)                                                                                                             \
  sweep                                                                                                                          \
                                                                                                                                 \
      "Every method's gradients are checked first, against sequential BP in float64 on the same weights and inputs: the "        \
      "residual "                                                                                                                \
      "is the\n"                                                                                                                 \
      "largest of |g - ref| / (|ref| eps sqrt(T)) over the parameters (below the normal numbers: absolute). 30 or more marks "   \
      "the "                                                                                                                     \
      "row and exits 1.\n"                                                                                                       \
      "Then a warm-up, and rounds in which each method makes one forward and one backward pass, one method after the other.\n"   \
      "  forward   without head and loss         2 T B G H (I + H) FLOP a layer (G gates: 1, GRU 3)\n"                           \
      "  backward  with the weights' gradients,  the plan's products over the batch + 2 T B G H (I + H), + 2 T B G H H to a "    \
      "layer "                                                                                                                   \
      "below\n"                                                                                                                  \
      "            without the input's\n"                                                                                        \
      "  bytes     the least that has to move: x and h; the plan's operands and results; x, h and g for the weights' "           \
      "gradients\n"                                                                                                              \
      "linear is the recurrence itself, run by the cell's own backward sweep: it is bp under another "                           \
      "name.\n" BPPSA_BENCH_QUEUED_NOTE                                                                                          \
      "Every method is measured both ways there (_graph), and so are cuDNN's algorithms (cudnn_), of which those that refuse "   \
      "the shape are\n"                                                                                                          \
      "listed with its words. cudnn_standard_tf32's residuals are in units of TF32. floor is the larger of FLOP over measured "  \
      "multiply-adds\n"                                                                                                          \
      "and bytes over a measured copy.\n"                                                                                        \
      "redone: held products of a pass that cancellation made useless; their steps were run one by one.\n"
static const char notes_rnn[] = NOTES(SWEEP_RNN), notes_gru[] = NOTES(SWEEP_GRU);

static const int64_t seq_lens[] = {10, 30, 100, 300, 1000, 3000, 10000, 30000}, batches[] = {2, 4, 8, 16, 32, 64, 128, 256};
static const int64_t quick_seq_lens[] = {10, 100, 1000, 3000}, quick_batches[] = {2, 16, 64};

#define COUNT(array) ((int64_t)(sizeof(array) / sizeof(array)[0]))

const bppsa_bench_sweep *bppsa_bench_get_sweep(bool quick) {
  static const bppsa_bench_sweep full = {seq_lens, batches, COUNT(seq_lens), COUNT(batches), 1000, 16};
  static const bppsa_bench_sweep small = {quick_seq_lens, quick_batches, COUNT(quick_seq_lens), COUNT(quick_batches), 1000, 16};
  return quick ? &small : &full;
}

/* ---- from the options ---- */

/* --up-levels and --chunks describe rows of their own here and exclude nothing. */
static bppsa_status setup_config(const bppsa_cli *cli, bppsa_recurrent_config *config) {
  bppsa_cli without = *cli;
  without.values[BPPSA_OPTION_UP_LEVELS] = without.values[BPPSA_OPTION_CHUNKS] = (bppsa_option_value){.given = false};
  BPPSA_TRY(bppsa_setup_config(&without, config));
  const bppsa_option_value *up_levels = bppsa_cli_value(cli, BPPSA_OPTION_UP_LEVELS),
                           *chunks = bppsa_cli_value(cli, BPPSA_OPTION_CHUNKS);
  config->method.scan.up_levels = up_levels->given ? up_levels->integer : -1;
  config->method.scan.chunks = chunks->given ? chunks->integer : 0;
  return BPPSA_OK;
}

bool bppsa_bench_out_of_time(const bppsa_bench_limits *limits, bppsa_bench_tally *tally) {
  const bool over = limits->deadline > 0 && tally->measured > 0 && bppsa_now() >= limits->deadline;
  tally->left_out += over;
  return over;
}

bppsa_status bppsa_bench_report_left_out(bppsa_cli *cli, const bppsa_bench_tally *tally, json_t *document) {
  if (!bppsa_cli_value(cli, BPPSA_OPTION_TIME_LIMIT)->given) {
    return BPPSA_OK;
  }
  if (!bppsa_json_put_integer(document, "points_left_out", tally->left_out)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "bench: out of memory, expected room for the results");
  }
  return cli->json || tally->left_out == 0
             ? BPPSA_OK
             : bppsa_cli_print(cli, "\n%" PRId64 " points left out: --time-limit was over\n", tally->left_out);
}

/* 3/4 of what is available where the network runs. */
static bppsa_status limit_memory(const bppsa_device *device, int64_t *bytes) {
  int64_t available = bppsa_machine_memory();
  if (bppsa_device_get_kind(device) == BPPSA_CUDA) {
    BPPSA_TRY(bppsa_memory_available(device, &available));
  }
  *bytes = available / 4 * 3;
  return BPPSA_OK;
}

bppsa_status bppsa_bench_setup(const bppsa_cli *cli, const bppsa_device *device, bppsa_bench_point *point,
                               bppsa_bench_limits *limits) {
  const bppsa_option_value *data = bppsa_cli_value(cli, BPPSA_OPTION_DATA),
                           *input = bppsa_cli_value(cli, BPPSA_OPTION_INPUT_SIZE),
                           *limit = bppsa_cli_value(cli, BPPSA_OPTION_MEMORY_LIMIT);
  point->kind = bppsa_network_kind_of(cli);
  BPPSA_TRY(setup_config(cli, &point->config));
  point->init = bppsa_cli_value(cli, BPPSA_OPTION_INIT)->choice == 1 ? BPPSA_INIT_ORTHOGONAL : BPPSA_INIT_DEFAULT;
  point->seed = (uint64_t)bppsa_cli_value(cli, BPPSA_OPTION_SEED)->integer;
  point->data = data->present ? data->text : "bitstream";
  point->set = bppsa_cli_value(cli, BPPSA_OPTION_SET)->choice;
  point->padding = bppsa_cli_value(cli, BPPSA_OPTION_PADDING)->choice == 1 ? BPPSA_PADDING_REFLECT : BPPSA_PADDING_CONSTANT;
  BPPSA_TRY(bppsa_setup_check_set(cli, point->data));
  BPPSA_TRY(bppsa_setup_check_input(input, point->data));
  limits->repeats = bppsa_cli_value(cli, BPPSA_OPTION_REPEATS)->integer; /* 0 when not given */
  limits->budget_s = bppsa_cli_value(cli, BPPSA_OPTION_QUICK)->given ? 0.4 : 2;
  const bppsa_option_value *seconds = bppsa_cli_value(cli, BPPSA_OPTION_TIME_LIMIT);
  limits->deadline = seconds->given ? bppsa_now() + (double)seconds->integer : 0;
  limits->memory_limit = limit->integer;
  BPPSA_TRY(limit->given ? BPPSA_OK : limit_memory(device, &limits->memory_limit));
  if (input->given) {
    point->config.input = input->integer;
    point->data = NULL;
    return BPPSA_OK;
  }
  if (strcmp(point->data, "bitstream") == 0) {
    return BPPSA_OK;
  }
  bppsa_dataset *dataset = NULL; /* its shape alone */
  BPPSA_TRY(bppsa_setup_dataset(cli, NULL, point->config.loss_all, NULL, &dataset));
  point->config.input = dataset->input;
  point->config.classes = dataset->classes;
  point->config.seq_len = dataset->seq_len;
  bppsa_dataset_destroy(dataset);
  return BPPSA_OK;
}

static bool is_single(const bppsa_cli *cli, const bppsa_bench_point *point) {
  return bppsa_cli_value(cli, BPPSA_OPTION_SEQ_LEN)->given || bppsa_cli_value(cli, BPPSA_OPTION_BATCH)->given ||
         bppsa_cli_value(cli, BPPSA_OPTION_HIDDEN)->given || point->data == NULL || strcmp(point->data, "bitstream") != 0;
}

/* ---- the sweep ---- */

typedef struct {
  bppsa_cli *cli;
  const bppsa_device *device;
  const bppsa_bench_hooks *hooks;
  json_t *rows;
  bppsa_bench_tally *tally;
  bppsa_bench_limits limits;
  bool both; /* inits */
  int64_t done, all;
} sweep_run;

static bppsa_status run_point(sweep_run *run, bppsa_bench_point point, bppsa_init init) {
  char label[120];
  bppsa_bench_result result;
  point.init = init;
  if (bppsa_bench_tally_rows(run->tally, &point, run->rows)) { /* by an earlier run */
    ++run->done;
    return BPPSA_OK;
  }
  if (bppsa_bench_out_of_time(&run->limits, run->tally)) {
    return BPPSA_OK;
  }
  snprintf(label, sizeof label, "point %" PRId64 " of %" PRId64 ", T %" PRId64 ", B %" PRId64 ", H %" PRId64, run->done + 1,
           run->all, point.config.seq_len, point.config.batch, point.config.hidden);
  run->limits.label = label;
  const bppsa_status status = bppsa_bench_measure(&point, &run->limits, run->device, &result);
  bppsa_progress_clear(run->limits.line);
  BPPSA_TRY(status);
  ++run->done;
  bppsa_bench_tally_add(run->tally, &result);
  if (!bppsa_bench_append(run->rows, &point, &result)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "bench: out of memory, expected room for the results");
  }
  BPPSA_TRY(run->hooks->show != NULL ? run->hooks->show(run->cli, &point, &result) : BPPSA_OK);
  return run->hooks->after != NULL ? run->hooks->after(run->hooks->context, run->done, run->all) : BPPSA_OK;
}

static bppsa_status run_inits(sweep_run *run, bppsa_bench_point point, int64_t seq_len, int64_t batch) {
  point.config.seq_len = seq_len;
  point.config.batch = batch;
  if (!run->both) {
    return run_point(run, point, point.init);
  }
  BPPSA_TRY(run_point(run, point, BPPSA_INIT_DEFAULT));
  return run_point(run, point, BPPSA_INIT_ORTHOGONAL);
}

static bool is_in(int64_t value, int64_t count, const int64_t *values) {
  for (int64_t i = 0; i < count; ++i) {
    if (values[i] == value) {
      return true;
    }
  }
  return false;
}

/* Table 6: the shapes of the features of IRMAS's three sets. */
static bppsa_status run_sets(sweep_run *run, bppsa_bench_point point, bool quick) {
  static const struct { int64_t seq_len, input; } sets[] = {{259, 38}, {517, 24}, {1034, 12}};
  static const int64_t set_batches[] = {16, 32, 64};
  const int64_t count = quick ? 1 : COUNT(set_batches);
  run->all = COUNT(sets) * count * (run->both ? 2 : 1);
  point.data = NULL;
  for (int64_t i = 0; i < COUNT(sets); ++i) {
    for (int64_t k = 0; k < count; ++k) {
      point.config.input = sets[i].input;
      BPPSA_TRY(run_inits(run, point, sets[i].seq_len, set_batches[k]));
    }
  }
  return BPPSA_OK;
}

static bppsa_status run_sweep(sweep_run *run, const bppsa_bench_point *point, const bppsa_bench_sweep *sweep) {
  const bool common = is_in(sweep->seq_len, sweep->seq_len_count, sweep->seq_lens) &&
                      is_in(sweep->batch, sweep->batch_count, sweep->batches); /* measured once */
  run->all = (sweep->seq_len_count + sweep->batch_count - common) * (run->both ? 2 : 1);
  for (int64_t i = 0; i < sweep->seq_len_count; ++i) {
    BPPSA_TRY(run_inits(run, *point, sweep->seq_lens[i], sweep->batch));
  }
  for (int64_t i = 0; i < sweep->batch_count; ++i) {
    if (!common || sweep->batches[i] != sweep->batch) {
      BPPSA_TRY(run_inits(run, *point, sweep->seq_len, sweep->batches[i]));
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_bench_run(bppsa_cli *cli, const bppsa_device *device, const bppsa_bench_hooks *hooks, json_t *rows,
                             bppsa_bench_tally *tally) {
  bppsa_progress_line line = bppsa_progress_start(cli->err);
  bppsa_bench_point point = {.config = bppsa_recurrent_config_default()};
  sweep_run run = {.cli = cli, .device = device, .hooks = hooks, .rows = rows, .tally = tally};
  BPPSA_TRY(bppsa_bench_setup(cli, device, &point, &run.limits));
  run.limits.line = &line;
  point.rivals = true;
  const bool single = is_single(cli, &point);
  run.both = !single && !bppsa_cli_value(cli, BPPSA_OPTION_INIT)->given;
  run.all = 1;
  const bool quick = bppsa_cli_value(cli, BPPSA_OPTION_QUICK)->given;
  if (single) {
    BPPSA_TRY(run_inits(&run, point, point.config.seq_len, point.config.batch));
  } else {
    BPPSA_TRY(strcmp(point.kind->name, "gru") == 0 ? run_sets(&run, point, quick)
                                                   : run_sweep(&run, &point, bppsa_bench_get_sweep(quick)));
  }
  const bppsa_status verdict = bppsa_bench_verdict(tally, run.limits.memory_limit);
  return tally->measured == 0 ? verdict : BPPSA_OK; /* failed rows are shown before they are an error */
}

/* ---- the command ---- */

static bppsa_status print_head(bppsa_cli *cli, const bppsa_device *device) {
  char vector[BPPSA_VECTOR_TEXT], date[BPPSA_DATE_TEXT];
  return bppsa_cli_print(
      cli,
      "%s on %s, %d thread%s, %s, %s\n"
      "forward without head and loss; backward with the weights' gradients, without the input's; x bp below 1 is faster\n",
      cli->command->object, bppsa_device_get_hardware(device), bppsa_device_get_threads(device),
      bppsa_device_get_threads(device) == 1 ? "" : "s", bppsa_machine_vector(vector, sizeof vector),
      bppsa_machine_date(date, sizeof date));
}

static bppsa_status measure(bppsa_cli *cli, const bppsa_device *device, json_t *document) {
  bppsa_bench_tally tally = {0};
  bppsa_bench_point point = {.config = bppsa_recurrent_config_default()};
  bppsa_bench_limits limits;
  json_t *rows = json_object_get(document, "rows");
  if (!cli->json) {
    BPPSA_TRY(bppsa_bench_setup(cli, device, &point, &limits)); /* a wrong request prints nothing */
    BPPSA_TRY(print_head(cli, device));
  }
  const bppsa_bench_hooks hooks = {.show = cli->json ? NULL : bppsa_bench_show_table};
  BPPSA_TRY(bppsa_bench_run(cli, device, &hooks, rows, &tally));
  const bool one_shape = strcmp(cli->command->object, "rnn") == 0; /* the GRU's sets differ in more than T */
  json_t *growth = one_shape ? bppsa_bench_growth(rows, bppsa_bench_get_sweep(false)->batch) : json_array();
  if (!bppsa_json_put(document, "growth", growth)) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "bench: out of memory, expected room for the results");
  }
  if (!cli->json) {
    BPPSA_TRY(bppsa_bench_show_growth(cli, growth));
  }
  BPPSA_TRY(bppsa_bench_report_left_out(cli, &tally, document));
  BPPSA_TRY(bppsa_bench_finish(cli, json_incref(document)));
  return bppsa_bench_verdict(&tally, 0);
}

static bppsa_status run(bppsa_cli *cli) {
  bppsa_device *device = NULL;
  BPPSA_TRY(bppsa_cli_check_output(cli, BPPSA_OPTION_OUT));
  BPPSA_TRY(bppsa_setup_device(cli, &device));
  bppsa_json_start();
  json_t *document = bppsa_bench_document(cli->command->object, device);
  const bool ok = document != NULL && bppsa_json_put(document, "rows", json_array());
  const bppsa_status status =
      ok ? measure(cli, device, document) : bppsa_fail(BPPSA_ERR_MEMORY, "bench: out of memory, expected room for the results");
  json_decref(document);
  bppsa_device_destroy(device);
  return status;
}

const bppsa_command bppsa_command_bench_rnn = {.verb = "bench",
                                               .object = "rnn",
                                               .summary = "Verifies and times forward, BP and every scan algorithm of an RNN",
                                               .example = "bench rnn --quick",
                                               .notes = notes_rnn,
                                               .uses = uses_rnn,
                                               .run = run};

const bppsa_command bppsa_command_bench_gru = {.verb = "bench",
                                               .object = "gru",
                                               .summary = "Verifies and times forward, BP and every scan algorithm of a GRU",
                                               .example = "bench gru --quick",
                                               .notes = notes_gru,
                                               .uses = uses_gru,
                                               .run = run};
