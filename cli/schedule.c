/* `bppsa schedule`: makes, validates, simulates, draws and compares schedules. */

#include "cli/setup.h"
#include "core/file.h"
#include "schedule/compare.h"
#include "schedule/report.h"
#include "schedule/timed.h"

static const bppsa_option_use uses[] = {
    {.option = BPPSA_OPTION_SCHEME, .operand = true},
    {.option = BPPSA_OPTION_STAGES},
    {.option = BPPSA_OPTION_MICRO_BATCHES},
    {.option = BPPSA_OPTION_MODEL_LAYERS},
    {.option = BPPSA_OPTION_WIDTH},
    {.option = BPPSA_OPTION_REPLICAS},
    {.option = BPPSA_OPTION_CHUNKS, .fallback = "2", .metavar = "V", .help = "stages a worker holds, of interleaved"},
    {.option = BPPSA_OPTION_ITERATIONS, .fallback = "1", .help = "one behind the other"},
    {.option = BPPSA_OPTION_REVERSE_K},
    {.option = BPPSA_OPTION_ELEMENTS},
    {.option = BPPSA_OPTION_SPLIT_BACKWARD},
    {.option = BPPSA_OPTION_SKIP_FIRST_INPUT_GRAD},
    {.option = BPPSA_OPTION_RECOMPUTE},
    {.option = BPPSA_OPTION_SYNC},
    {.option = BPPSA_OPTION_DOUBLING},
    {.option = BPPSA_OPTION_HALVING},
    {.option = BPPSA_OPTION_WINDOW},
    {.option = BPPSA_OPTION_FORWARD_COST},
    {.option = BPPSA_OPTION_INPUT_GRAD_COST},
    {.option = BPPSA_OPTION_WEIGHT_GRAD_COST},
    {.option = BPPSA_OPTION_STEP_COST},
    {.option = BPPSA_OPTION_SYNC_COST},
    {.option = BPPSA_OPTION_MESSAGE_SIZE},
    {.option = BPPSA_OPTION_GRADIENT_SIZE},
    {.option = BPPSA_OPTION_PRODUCT_COST},
    {.option = BPPSA_OPTION_APPLY_COST},
    {.option = BPPSA_OPTION_ALPHA},
    {.option = BPPSA_OPTION_BETA},
    {.option = BPPSA_OPTION_CONTENTION},
    {.option = BPPSA_OPTION_ISSUE_OVERHEAD},
    {.option = BPPSA_OPTION_PRECOMPILED},
    {.option = BPPSA_OPTION_MEMORY_CAP},
    {.option = BPPSA_OPTION_COSTS},
    {.option = BPPSA_OPTION_LOAD},
    {.option = BPPSA_OPTION_SVG, .help = "a timeline: workers down, time across"},
    {.option = BPPSA_OPTION_TRACE},
    {.option = BPPSA_OPTION_CSV},
    {.option = BPPSA_OPTION_LIST},
    {.option = BPPSA_OPTION_COMPARE},
    {.option = BPPSA_OPTION_JSON},
    {.option = BPPSA_OPTION_HELP},
    {.option = BPPSA_OPTION_COUNT}};

static const char notes[] =
    "bppsa schedule --list names the schemes. Time is in the unit of the costs; M_a are the activations of one micro-batch on "
    "one stage,\n"
    "M_theta the weights of one stage. --compare gives all schemes one model: --layers, or the most that one of them takes by "
    "itself, and "
    "the same costs\na layer. Schemes that order I and W themselves ignore --split-backward.\n";

/* ---- a schedule ---- */

static int64_t integer(const bppsa_cli *cli, bppsa_option option) {
  return bppsa_cli_value(cli, option)->integer;
}

static double real(const bppsa_cli *cli, bppsa_option option) {
  return bppsa_cli_value(cli, option)->real;
}

static bool given(const bppsa_cli *cli, bppsa_option option) {
  return bppsa_cli_value(cli, option)->given;
}

static void take_costs(const bppsa_cli *cli, bppsa_schedule_config *c) {
  static const struct {
    bppsa_schedule_cost cost;
    bppsa_option option;
  } costs[] = {{BPPSA_COST_FORWARD, BPPSA_OPTION_FORWARD_COST},
               {BPPSA_COST_INPUT_GRAD, BPPSA_OPTION_INPUT_GRAD_COST},
               {BPPSA_COST_WEIGHT_GRAD, BPPSA_OPTION_WEIGHT_GRAD_COST},
               {BPPSA_COST_STEP, BPPSA_OPTION_STEP_COST},
               {BPPSA_COST_SYNC, BPPSA_OPTION_SYNC_COST},
               {BPPSA_COST_MESSAGE, BPPSA_OPTION_MESSAGE_SIZE},
               {BPPSA_COST_GRADIENT, BPPSA_OPTION_GRADIENT_SIZE},
               {BPPSA_COST_PRODUCT, BPPSA_OPTION_PRODUCT_COST},
               {BPPSA_COST_APPLY, BPPSA_OPTION_APPLY_COST}};
  for (size_t i = 0; i < sizeof costs / sizeof costs[0]; ++i) {
    if (bppsa_cli_value(cli, costs[i].option)->present) {
      c->uniform[costs[i].cost] = real(cli, costs[i].option);
    }
  }
}

static bppsa_status take_options(const bppsa_cli *cli, bppsa_schedule_config *c) {
  if (given(cli, BPPSA_OPTION_DOUBLING) && given(cli, BPPSA_OPTION_HALVING)) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--halving: given beside --doubling, expected one of the two");
  }
  c->stages = integer(cli, BPPSA_OPTION_STAGES);
  c->micro_batches = integer(cli, BPPSA_OPTION_MICRO_BATCHES);
  c->layers = given(cli, BPPSA_OPTION_MODEL_LAYERS) ? integer(cli, BPPSA_OPTION_MODEL_LAYERS) : 0;
  c->width = integer(cli, BPPSA_OPTION_WIDTH);
  c->replicas = integer(cli, BPPSA_OPTION_REPLICAS);
  c->chunks = integer(cli, BPPSA_OPTION_CHUNKS);
  c->iterations = integer(cli, BPPSA_OPTION_ITERATIONS);
  c->reverse = given(cli, BPPSA_OPTION_REVERSE_K) ? integer(cli, BPPSA_OPTION_REVERSE_K) : -1;
  c->split = given(cli, BPPSA_OPTION_SPLIT_BACKWARD)
                 ? (bppsa_schedule_split)(BPPSA_SPLIT_WI + bppsa_cli_value(cli, BPPSA_OPTION_SPLIT_BACKWARD)->choice)
                 : BPPSA_SPLIT_NONE;
  c->sync = (bppsa_schedule_sync)bppsa_cli_value(cli, BPPSA_OPTION_SYNC)->choice;
  c->scale = given(cli, BPPSA_OPTION_DOUBLING)  ? BPPSA_SCALE_DOUBLING
             : given(cli, BPPSA_OPTION_HALVING) ? BPPSA_SCALE_HALVING
                                                : BPPSA_SCALE_DIRECT;
  c->skip_first_input_grad = given(cli, BPPSA_OPTION_SKIP_FIRST_INPUT_GRAD);
  c->recompute = given(cli, BPPSA_OPTION_RECOMPUTE);
  c->alpha = real(cli, BPPSA_OPTION_ALPHA);
  c->beta = real(cli, BPPSA_OPTION_BETA);
  c->contention = (bppsa_schedule_contention)bppsa_cli_value(cli, BPPSA_OPTION_CONTENTION)->choice;
  c->issue_overhead = real(cli, BPPSA_OPTION_ISSUE_OVERHEAD);
  c->precompiled = given(cli, BPPSA_OPTION_PRECOMPILED);
  c->memory_cap = given(cli, BPPSA_OPTION_MEMORY_CAP) ? real(cli, BPPSA_OPTION_MEMORY_CAP) : 0;
  take_costs(cli, c);
  return BPPSA_OK;
}

/* The command line and its file of costs. */
static bppsa_status take_request(const bppsa_cli *cli, bppsa_schedule_request *r) {
  *r = bppsa_schedule_request_default();
  BPPSA_TRY(take_options(cli, &r->config));
  r->sets_window = given(cli, BPPSA_OPTION_WINDOW);
  r->sets_elements = given(cli, BPPSA_OPTION_ELEMENTS);
  r->config.window = (bppsa_schedule_window)bppsa_cli_value(cli, BPPSA_OPTION_WINDOW)->choice;
  r->config.elements = r->sets_elements ? integer(cli, BPPSA_OPTION_ELEMENTS) : r->config.elements;
  return given(cli, BPPSA_OPTION_COSTS) ? bppsa_schedule_request_costs(r, bppsa_cli_value(cli, BPPSA_OPTION_COSTS)->text)
                                        : BPPSA_OK;
}

static bppsa_status make(const bppsa_cli *cli, const char *id, bppsa_timed *timed) {
  bppsa_schedule_request r;
  BPPSA_TRY(take_request(cli, &r));
  const bppsa_status status = bppsa_schedule_request_make(&r, id, 0, timed);
  bppsa_schedule_request_free(&r);
  return status;
}

/* ---- the three ways to be called ---- */

static bppsa_status list_schemes(bppsa_cli *cli, bppsa_text *shown) {
  return cli->to.json ? bppsa_json_render(bppsa_schedule_list_json(), &shown->text) : bppsa_schedule_list_text(shown);
}

static bppsa_status compare(const bppsa_cli *cli, const char *names, bppsa_text *shown) {
  bppsa_schedule_request r;
  BPPSA_TRY(take_request(cli, &r));
  const bppsa_status status = bppsa_schedule_compare(&r, names, cli->to.json, shown);
  bppsa_schedule_request_free(&r);
  return status;
}

typedef bppsa_status (*writer)(const bppsa_timed *timed, bppsa_text *text);

static bppsa_status write_files(const bppsa_cli *cli, const bppsa_timed *timed) {
  static const struct {
    bppsa_option option;
    writer write;
  } files[] = {{BPPSA_OPTION_SVG, bppsa_schedule_draw},
               {BPPSA_OPTION_TRACE, bppsa_schedule_trace},
               {BPPSA_OPTION_CSV, bppsa_schedule_csv_write}};
  bppsa_text texts[3] = {{0}};
  bppsa_status status = BPPSA_OK;
  for (int i = 0; i < 3 && status == BPPSA_OK; ++i) { /* all texts are made first, so that a failure leaves no file behind */
    status = given(cli, files[i].option) ? files[i].write(timed, &texts[i]) : BPPSA_OK;
    status = status == BPPSA_ERR_ARGUMENT ? bppsa_fail_prefix(status, "%s", bppsa_option_get(files[i].option)->name) : status;
  }
  for (int i = 0; i < 3 && status == BPPSA_OK; ++i) {
    const bppsa_option_value *path = bppsa_cli_value(cli, files[i].option);
    status = path->given ? bppsa_file_write(path->text, texts[i].text, texts[i].size) : BPPSA_OK;
  }
  for (int i = 0; i < 3; ++i) {
    bppsa_text_free(&texts[i]);
  }
  return status;
}

/* Loads a schedule. The file is complete, so options that make schedules are refused. */
static bppsa_status load(const bppsa_cli *cli, const char *path, bppsa_timed *timed) {
  for (const bppsa_option_use *use = uses; use->option != BPPSA_OPTION_COUNT; ++use) {
    const bppsa_option_info *info = bppsa_option_get(use->option);
    const bool output =
        info->group == BPPSA_GROUP_OUTPUT || (info->group == BPPSA_GROUP_FILES && use->option != BPPSA_OPTION_COSTS);
    if (!output && given(cli, use->option)) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: given beside --load, expected in the file's first row", info->name);
    }
  }
  return bppsa_schedule_load(path, timed);
}

/* Makes one schedule, renders it, then writes its files. */
static bppsa_status show_one(bppsa_cli *cli, bppsa_text *shown) {
  const bppsa_option_value *scheme = bppsa_cli_value(cli, BPPSA_OPTION_SCHEME), *loaded = bppsa_cli_value(cli, BPPSA_OPTION_LOAD);
  bppsa_timed timed;
  if (!scheme->given && !loaded->given) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "schedule: scheme missing, expected one that bppsa schedule --list names");
  }
  BPPSA_TRY(loaded->given ? load(cli, loaded->text, &timed) : make(cli, scheme->text, &timed));
  bppsa_status status =
      cli->to.json ? bppsa_json_render(bppsa_timed_json(&timed, true), &shown->text) : bppsa_timed_text(&timed, shown);
  status = status == BPPSA_OK ? write_files(cli, &timed) : status;
  bppsa_timed_free(&timed);
  return status;
}

static bppsa_status run(bppsa_cli *cli) {
  const bppsa_option_value *compared = bppsa_cli_value(cli, BPPSA_OPTION_COMPARE);
  bppsa_text shown = {0};
  bppsa_status status = given(cli, BPPSA_OPTION_LIST) ? list_schemes(cli, &shown)
                        : compared->given             ? compare(cli, compared->text, &shown)
                                                      : show_one(cli, &shown);
  status = status == BPPSA_OK ? bppsa_setup_show(cli, &shown) : status;
  bppsa_text_free(&shown);
  return status;
}

const bppsa_command bppsa_command_schedule = {
    .verb = "schedule",
    .summary = "Validates, simulates, draws and compares pipeline, data-parallel and scan schedules",
    .example = "schedule chimera --stages 4 --micro-batches 4 --svg chimera.svg",
    .notes = notes,
    .uses = uses,
    .run = run};
