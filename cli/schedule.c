/* `bppsa schedule`: makes, validates, simulates, draws and compares schedules. */

#include <inttypes.h>
#include <string.h>

#include "cli/setup.h"
#include "core/alloc.h"
#include "core/file.h"
#include "schedule/compare.h"
#include "schedule/report.h"
#include "schedule/timed.h"

enum { MOST_SCHEMES = 64, COMPARED = 1024 };

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

/* Sets what depends on the scheme: the window and the elements. For an unknown name the message suggests one. */
static bppsa_status take_scheme(const bppsa_cli *cli, const char *id, bppsa_schedule_config *c) {
  const bppsa_schedule_scheme *scheme = bppsa_schedule_find(id);
  if (scheme == NULL) {
    int64_t count = 0;
    const bppsa_schedule_scheme *schemes = bppsa_schedule_schemes(&count);
    const char *ids[MOST_SCHEMES] = {NULL};
    char hint[96];
    for (int64_t i = 0; i < count && i + 1 < MOST_SCHEMES; ++i) {
      ids[i] = schemes[i].id;
    }
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "schedule: unknown scheme '%s', expected one that bppsa schedule --list names%s", id,
                      bppsa_suggestion(id, ids, hint, sizeof hint));
  }
  const bppsa_option_value *window = bppsa_cli_value(cli, BPPSA_OPTION_WINDOW);
  const bool parallel = scheme->data_parallel && strcmp(id, "multi-stream") != 0;
  c->window = window->given ? (bppsa_schedule_window)window->choice
              : parallel    ? BPPSA_WINDOW_BACKWARD_FORWARD
                            : BPPSA_WINDOW_ITERATION;
  if (given(cli, BPPSA_OPTION_ELEMENTS) || !scheme->scan) {
    c->elements = given(cli, BPPSA_OPTION_ELEMENTS) ? integer(cli, BPPSA_OPTION_ELEMENTS) : c->elements;
  } else {
    c->elements = c->stages * c->width * 16 + 1;
  }
  return BPPSA_OK;
}

/* The command line and its file of costs, from which every schedule is made. */
typedef struct {
  bppsa_schedule_config config;
  const char *costs; /* the file's path, or NULL */
  double *arrays[BPPSA_SCHEDULE_COST_ARRAYS];
} request;

static void free_request(request *r) {
  for (int i = 0; i < BPPSA_SCHEDULE_COST_ARRAYS; ++i) {
    bppsa_free(r->arrays[i]);
  }
}

static bppsa_status take_request(const bppsa_cli *cli, request *r) {
  *r = (request){.config = bppsa_schedule_config_default()};
  BPPSA_TRY(take_options(cli, &r->config));
  if (given(cli, BPPSA_OPTION_COSTS)) {
    r->costs = bppsa_cli_value(cli, BPPSA_OPTION_COSTS)->text;
    const bppsa_status status = bppsa_schedule_costs_load(r->costs, &r->config, r->arrays);
    if (status != BPPSA_OK) {
      free_request(r);
      return bppsa_fail_prefix(bppsa_input_status(status), "--costs");
    }
  }
  return BPPSA_OK;
}

/* Makes one schedule. layers: of the model; 0: the scheme's own default. */
static bppsa_status make_one(const bppsa_cli *cli, const char *id, const request *r, int64_t layers, bppsa_timed *timed) {
  bppsa_schedule_config config = r->config;
  bppsa_schedule *list = NULL;
  config.layers = config.layers > 0 ? config.layers : layers;
  BPPSA_TRY(take_scheme(cli, id, &config));
  if (r->costs != NULL) {
    const bppsa_status status = bppsa_schedule_check_rows(id, &config);
    if (status != BPPSA_OK) {
      return bppsa_fail_prefix(status, "--costs: %s", r->costs);
    }
  }
  BPPSA_TRY(bppsa_schedule_create(id, &config, &list));
  return bppsa_timed_create(list, timed);
}

static bppsa_status make(const bppsa_cli *cli, const char *id, bppsa_timed *timed) {
  request r;
  BPPSA_TRY(take_request(cli, &r));
  const bppsa_status status = make_one(cli, id, &r, 0, timed);
  free_request(&r);
  return status;
}

/* ---- the three ways to be called ---- */

static bppsa_status list_schemes(bppsa_cli *cli, bppsa_text *shown) {
  return cli->to.json ? bppsa_json_render(bppsa_schedule_list_json(), &shown->text) : bppsa_schedule_list_text(shown);
}

static bppsa_status no_memory(void) {
  return bppsa_fail(BPPSA_ERR_MEMORY, "JSON document: out of memory, expected room for the results");
}

/* The schemes of --compare: their names, and the results of each. */
typedef struct {
  char text[COMPARED];
  const char *ids[COMPARED / 2];
  bppsa_schedule_summary rows[COMPARED / 2];
  int64_t count;
  json_t *documents;
} comparison;

static bppsa_status split_names(const char *list, comparison *c) {
  char *rest = c->text;
  if (strlen(list) >= sizeof c->text) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--compare: %zu characters, expected fewer than %d", strlen(list), COMPARED);
  }
  strcpy(c->text, list);
  for (char *id = strtok_r(c->text, ",", &rest); id != NULL; id = strtok_r(NULL, ",", &rest)) {
    c->ids[c->count++] = id;
  }
  return c->count > 0 ? BPPSA_OK : bppsa_fail(BPPSA_ERR_ARGUMENT, "--compare: '%s', expected schemes with commas between", list);
}

/* Returns the layers of one model for all schemes: the largest of their defaults. Schemes of scans have elements instead. */
static int64_t common_layers(const request *r, const comparison *c) {
  int64_t layers = 0;
  for (int64_t i = 0; i < c->count; ++i) {
    const bppsa_schedule_scheme *scheme = bppsa_schedule_find(c->ids[i]);
    if (scheme != NULL && !scheme->scan) {
      const int64_t own = bppsa_schedule_layers(scheme, &r->config);
      layers = own > layers ? own : layers;
    }
  }
  return layers;
}

static bppsa_status compare_one(const bppsa_cli *cli, const request *r, int64_t layers, int64_t i, comparison *c) {
  bppsa_timed timed;
  BPPSA_TRY(make_one(cli, c->ids[i], r, layers, &timed));
  c->rows[i] = bppsa_schedule_summarise(&timed);
  const bool kept = !cli->to.json || json_array_append_new(c->documents, bppsa_timed_json(&timed, false)) == 0;
  bppsa_timed_free(&timed);
  return kept ? BPPSA_OK : no_memory();
}

/* Adds to every document the names of the settings in which the schemes differ. */
static bppsa_status render_documents(comparison *c, bppsa_text *shown) {
  bool ok = true;
  for (int64_t i = 0; i < c->count && ok; ++i) {
    ok = bppsa_json_put(json_array_get(c->documents, (size_t)i), "differs", bppsa_schedule_differences(c->rows, c->count));
  }
  json_t *documents = bppsa_json_finish(c->documents, ok);
  c->documents = NULL;
  return bppsa_json_render(documents, &shown->text);
}

static bppsa_status compare_all(bppsa_cli *cli, const request *r, comparison *c, bppsa_text *shown) {
  const int64_t layers = common_layers(r, c);
  if (cli->to.json) {
    c->documents = json_array();
    BPPSA_TRY(c->documents != NULL ? BPPSA_OK : no_memory());
  }
  for (int64_t i = 0; i < c->count; ++i) {
    BPPSA_TRY(compare_one(cli, r, layers, i, c));
  }
  if (cli->to.json) {
    return render_documents(c, shown);
  }
  bppsa_schedule_table(c->rows, c->count, shown);
  return bppsa_text_check(shown);
}

static bppsa_status compare(bppsa_cli *cli, const char *list, bppsa_text *shown) {
  comparison c = {.count = 0};
  request r;
  BPPSA_TRY(split_names(list, &c));
  BPPSA_TRY(take_request(cli, &r));
  const bppsa_status status = compare_all(cli, &r, &c, shown);
  json_decref(c.documents);
  free_request(&r);
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
  bppsa_schedule *list = NULL;
  for (const bppsa_option_use *use = uses; use->option != BPPSA_OPTION_COUNT; ++use) {
    const bppsa_option_info *info = bppsa_option_get(use->option);
    const bool output =
        info->group == BPPSA_GROUP_OUTPUT || (info->group == BPPSA_GROUP_FILES && use->option != BPPSA_OPTION_COSTS);
    if (!output && given(cli, use->option)) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: given beside --load, expected in the file's first row", info->name);
    }
  }
  const bppsa_status read = bppsa_schedule_csv_load(path, &list);
  if (read != BPPSA_OK) {
    return bppsa_fail_prefix(bppsa_input_status(read), "--load");
  }
  const bppsa_status status = bppsa_timed_create(list, timed);
  return status == BPPSA_OK ? BPPSA_OK : bppsa_fail_prefix(status, "--load: %s", path);
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
