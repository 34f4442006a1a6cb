/* `bppsa schedule`: makes, validates, simulates, draws and compares schedules. */

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/command.h"
#include "core/alloc.h"
#include "core/file.h"
#include "schedule/compare.h"
#include "schedule/timed.h"

enum { MOST_ROWS = 32, MOST_SCHEMES = 64, COMPARED = 1024 };

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
    "the same costs\na layer. Schemes that put I and W in an order of their own pay no heed to --split-backward.\n";

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

/* What depends on the scheme: the window, the elements; a name nobody has is met with a suggestion. */
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

/* The command line and its file of costs: what every scheme is made from. */
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
      return bppsa_fail_prefix(bppsa_cli_input(status), "--costs");
    }
  }
  return BPPSA_OK;
}

/* layers: of the model; 0: what the scheme takes by itself. */
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

/* ---- for people ---- */

static bppsa_status print_worker(bppsa_cli *cli, const bppsa_timed *timed, int64_t w) {
  const bppsa_schedule_worker *worker = &timed->times.worker[w];
  const double makespan = timed->times.makespan;
  return bppsa_cli_print(cli, " %6" PRId64 "  %-12.6g  %5.1f %%  %-17.6g  %.6g\n", w, worker->busy,
                         makespan > 0 ? 100 * worker->busy / makespan : 0, worker->peak_activations, worker->weight_versions);
}

static bppsa_status print_timed(bppsa_cli *cli, const bppsa_timed *timed) {
  const bppsa_schedule *list = timed->list;
  int64_t forward = 0, backward = 0;
  double model = NAN;
  BPPSA_TRY(bppsa_schedule_model(list, &model, &forward, &backward));
  BPPSA_TRY(bppsa_cli_print(cli, "%s: D %" PRId64 ", N %" PRId64 ", %" PRId64 " workers, %" PRId64 " operations, valid\n\n",
                            list->scheme->id, list->config.stages, list->config.micro_batches, list->workers, list->count));
  BPPSA_TRY(bppsa_cli_print(cli, "  makespan      %.10g%s\n  bubble ratio  %.6g\n", timed->times.makespan,
                            list->config.window == BPPSA_WINDOW_ITERATION
                                ? ""
                                : ", from the start of the backward pass to the end of the next forward pass",
                            timed->times.bubble_ratio));
  if (strcmp(list->scheme->id, "reverse-first-k") == 0) {
    BPPSA_TRY(bppsa_cli_print(cli, "  k             %" PRId64 "\n", list->config.reverse));
  }
  if (!isnan(model)) {
    BPPSA_TRY(bppsa_cli_print(cli, "  model         %.6g (C_f %" PRId64 ", C_b %" PRId64 ")\n", model, forward, backward));
  }
  BPPSA_TRY(bppsa_cli_print(cli, "\n worker  busy                  activations, M_a  weights, M_theta\n"));
  for (int64_t w = 0; w < list->workers; ++w) {
    if (list->workers <= MOST_ROWS || w < MOST_ROWS / 2 || w >= list->workers - MOST_ROWS / 2) {
      BPPSA_TRY(print_worker(cli, timed, w));
    } else if (w == MOST_ROWS / 2) {
      BPPSA_TRY(bppsa_cli_print(cli, "    ...\n"));
    }
  }
  return list->advice_text[0] != '\0' ? bppsa_cli_print(cli, "\nNote: %s.\n", list->advice_text) : BPPSA_OK;
}

/* ---- the three ways to be called ---- */

static bppsa_status no_memory(void) {
  return bppsa_fail(BPPSA_ERR_MEMORY, "JSON document: out of memory, expected room for the results");
}

static bppsa_status list_schemes(bppsa_cli *cli) {
  int64_t count = 0;
  const bppsa_schedule_scheme *schemes = bppsa_schedule_schemes(&count);
  json_t *array = cli->json ? json_array() : NULL;
  bool ok = array != NULL;
  for (int64_t i = 0; i < count; ++i) {
    if (cli->json) {
      json_t *object = json_object();
      bool made = object != NULL && bppsa_json_put_text(object, "id", schemes[i].id) &&
                  bppsa_json_put_text(object, "summary", schemes[i].summary);
      made = made && bppsa_json_put_text(object, "paper", schemes[i].paper);
      object = bppsa_json_finish(object, made);
      ok = ok && json_array_append_new(array, object) == 0;
    } else {
      BPPSA_TRY(bppsa_cli_print(cli, "%-16s %-68s %s\n", schemes[i].id, schemes[i].summary, schemes[i].paper));
    }
  }
  return cli->json ? bppsa_cli_print_json(cli, bppsa_json_finish(array, ok)) : BPPSA_OK;
}

/* Schemes side by side: their names, and what is kept of each. */
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

/* One model for all of them: the most layers that one takes by itself. Scans have elements instead. */
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
  const bool kept = !cli->json || json_array_append_new(c->documents, bppsa_timed_json(&timed, false)) == 0;
  bppsa_timed_free(&timed);
  return kept ? BPPSA_OK : no_memory();
}

/* Every document names what is not the same for all. */
static bppsa_status print_documents(bppsa_cli *cli, comparison *c) {
  bool ok = true;
  for (int64_t i = 0; i < c->count && ok; ++i) {
    ok = bppsa_json_put(json_array_get(c->documents, (size_t)i), "differs", bppsa_schedule_differences(c->rows, c->count));
  }
  json_t *documents = bppsa_json_finish(c->documents, ok);
  c->documents = NULL;
  return bppsa_cli_print_json(cli, documents);
}

static bppsa_status print_comparison(bppsa_cli *cli, const comparison *c) {
  bppsa_text text = {0};
  bppsa_schedule_table(c->rows, c->count, &text);
  bppsa_status status = bppsa_text_check(&text);
  status = status == BPPSA_OK ? bppsa_cli_print(cli, "%s", text.text) : status;
  bppsa_text_free(&text);
  return status;
}

static bppsa_status compare_all(bppsa_cli *cli, const request *r, comparison *c) {
  const int64_t layers = common_layers(r, c);
  if (cli->json) {
    c->documents = json_array();
    BPPSA_TRY(c->documents != NULL ? BPPSA_OK : no_memory());
  }
  for (int64_t i = 0; i < c->count; ++i) { /* all rows before anything is printed: a wrong request prints nothing */
    BPPSA_TRY(compare_one(cli, r, layers, i, c));
  }
  return cli->json ? print_documents(cli, c) : print_comparison(cli, c);
}

static bppsa_status compare(bppsa_cli *cli, const char *list) {
  comparison c = {.count = 0};
  request r;
  BPPSA_TRY(split_names(list, &c));
  BPPSA_TRY(take_request(cli, &r));
  const bppsa_status status = compare_all(cli, &r, &c);
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
  for (int i = 0; i < 3 && status == BPPSA_OK; ++i) { /* all texts first: what cannot be made leaves no file behind */
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

static bppsa_status show(bppsa_cli *cli, const bppsa_timed *timed) {
  char *document = NULL;
  if (cli->json) {
    BPPSA_TRY(bppsa_cli_render(bppsa_timed_json(timed, true), &document));
  }
  bppsa_status status = write_files(cli, timed);
  if (status == BPPSA_OK) {
    status = cli->json ? bppsa_cli_print_document(cli, document) : print_timed(cli, timed);
  }
  bppsa_free(document);
  return status;
}

/* A loaded schedule brings everything with it. */
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
    return bppsa_fail_prefix(bppsa_cli_input(read), "--load");
  }
  const bppsa_status status = bppsa_timed_create(list, timed);
  return status == BPPSA_OK ? BPPSA_OK : bppsa_fail_prefix(status, "--load: %s", path);
}

static bppsa_status check_files(const bppsa_cli *cli) {
  static const bppsa_option files[] = {BPPSA_OPTION_SVG, BPPSA_OPTION_TRACE, BPPSA_OPTION_CSV};
  for (int i = 0; i < 3; ++i) {
    BPPSA_TRY(bppsa_cli_check_output(cli, files[i]));
    for (int k = i + 1; k < 3; ++k) {
      BPPSA_TRY(bppsa_cli_check_distinct(cli, files[i], files[k]));
    }
  }
  return BPPSA_OK;
}

static bppsa_status run(bppsa_cli *cli) {
  const bppsa_option_value *scheme = bppsa_cli_value(cli, BPPSA_OPTION_SCHEME), *loaded = bppsa_cli_value(cli, BPPSA_OPTION_LOAD),
                           *compared = bppsa_cli_value(cli, BPPSA_OPTION_COMPARE);
  bppsa_json_start();
  if (given(cli, BPPSA_OPTION_LIST)) {
    return list_schemes(cli);
  }
  if (compared->given) {
    return compare(cli, compared->text);
  }
  if (!scheme->given && !loaded->given) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "schedule: scheme missing, expected one that bppsa schedule --list names");
  }
  bppsa_timed timed;
  BPPSA_TRY(check_files(cli));
  BPPSA_TRY(loaded->given ? load(cli, loaded->text, &timed) : make(cli, scheme->text, &timed));
  const bppsa_status status = show(cli, &timed);
  bppsa_timed_free(&timed);
  return status;
}

const bppsa_command bppsa_command_schedule = {
    .verb = "schedule",
    .summary = "Validates, simulates, draws and compares pipeline, data-parallel and scan schedules",
    .example = "schedule chimera --stages 4 --micro-batches 4 --svg chimera.svg",
    .notes = notes,
    .uses = uses,
    .run = run};
