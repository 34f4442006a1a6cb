/* `bppsa oracle`: projects time and memory of parallel training strategies. */
#include <string.h>

#include "cli/setup.h"
#include "cli/this_machine.h"
#include "core/base/alloc.h"
#include "core/files/file.h"
#include "oracle/oracle.h"

static const bppsa_option_use uses[] = {
    {.option = BPPSA_OPTION_MODEL, .meaning = &bppsa_meaning_any_model, .operand = true},
    {.option = BPPSA_OPTION_SYSTEM, .operand = true},
    BPPSA_USE(STRATEGY),
    BPPSA_USE(PROCESSORS),
    {.option = BPPSA_OPTION_BATCH,
     .fallback = "32",
     .help = "samples of a mini-batch, for each processor or (--scaling) for all"},
    {.option = BPPSA_OPTION_SAMPLES, .fallback = "", .help = "of an epoch [the model's]"},
    BPPSA_USE(SCALING),
    {.option = BPPSA_OPTION_MICRO_BATCHES, .fallback = "", .metavar = "S", .help = "of pipelines [4 a stage]"},
    {.option = BPPSA_OPTION_CHUNKS, .meaning = &bppsa_meaning_stage_chunks},
    BPPSA_USE(GROUP_SIZE),
    BPPSA_USE(COLLECTIVE),
    {.option = BPPSA_OPTION_DTYPE, .help = "of activations and weights"},
    BPPSA_USE(PLOT),
    BPPSA_USE(SAVE_MODEL),
    BPPSA_USE(SAVE_SYSTEM),
    {.option = BPPSA_OPTION_LIST, .help = "names of models, systems and strategies"},
    BPPSA_USES_END};

static const char notes[] =
    "Times are of an epoch. They are projections: a layer's time is measured where the model's file says so, otherwise it\n"
    "follows from its FLOPs. Speed-ups are over serial, one processor with mini-batches of --batch. this-machine is measured\n"
    "when it is first asked for, which takes seconds, and kept in ~/.cache/bppsa; bppsa calibrate measures longer. filter,\n"
    "channel and time-* keep --batch samples for all processors whatever --scaling says.\n";

static void query_of(const bppsa_cli *cli, const bppsa_oracle_model *model, const bppsa_oracle_system *system,
                     bppsa_oracle_query *query) {
  const bppsa_option_value *samples = bppsa_cli_value(cli, BPPSA_OPTION_SAMPLES);
  *query = bppsa_oracle_query_default(model, system);
  query->batch = bppsa_cli_value(cli, BPPSA_OPTION_BATCH)->integer;
  query->samples = samples->given ? samples->integer : query->samples;
  query->strong = bppsa_cli_value(cli, BPPSA_OPTION_SCALING)->choice == 1;
  query->micro_batches = bppsa_cli_value(cli, BPPSA_OPTION_MICRO_BATCHES)->integer;
  query->chunks = bppsa_cli_value(cli, BPPSA_OPTION_CHUNKS)->integer;
  query->group = bppsa_cli_value(cli, BPPSA_OPTION_GROUP_SIZE)->integer;
  query->collective = (bppsa_collective)bppsa_cli_value(cli, BPPSA_OPTION_COLLECTIVE)->choice;
  query->item_bytes = bppsa_cli_value(cli, BPPSA_OPTION_DTYPE)->choice == 0 ? 4 : 8;
}

static bppsa_status save(const bppsa_option_value *path, json_t *document) {
  char *text = NULL;
  if (!path->given) {
    json_decref(document);
    return BPPSA_OK;
  }
  bppsa_text file = {0};
  BPPSA_TRY(bppsa_json_render(document, &text));
  bppsa_text_add(&file, "%s\n", text);
  bppsa_free(text);
  bppsa_status status = bppsa_text_check(&file);
  status = status == BPPSA_OK ? bppsa_file_write(path->text, file.text, file.size) : status;
  bppsa_text_free(&file);
  return status;
}

static bppsa_status write_files(const bppsa_cli *cli, const bppsa_oracle_query *query, const bppsa_oracle_rows *rows) {
  const bppsa_option_value *plot = bppsa_cli_value(cli, BPPSA_OPTION_PLOT);
  bppsa_text drawing = {0};
  BPPSA_TRY(save(bppsa_cli_value(cli, BPPSA_OPTION_SAVE_MODEL), bppsa_oracle_model_json(query->model)));
  BPPSA_TRY(save(bppsa_cli_value(cli, BPPSA_OPTION_SAVE_SYSTEM), bppsa_oracle_system_json(query->system)));
  if (!plot->given) {
    return BPPSA_OK;
  }
  bppsa_status status = bppsa_oracle_draw(query, rows, &drawing);
  status = status == BPPSA_OK ? bppsa_file_write(plot->text, drawing.text, drawing.size) : status;
  bppsa_text_free(&drawing);
  return status;
}

/* Notes where a pipeline has fewer micro-batches than were asked for, because each needs at least one sample. */
static void note_micro_batches(const bppsa_cli *cli, const bppsa_oracle_query *query, const bppsa_oracle_rows *rows) {
  for (int64_t i = 0; i < rows->count; ++i) {
    const int64_t used = rows->rows[i].micro_batches;
    if (used < query->micro_batches && used == rows->rows[i].mini_batch) {
      bppsa_setup_note_larger(cli, BPPSA_OPTION_MICRO_BATCHES, query->micro_batches, used);
      return;
    }
  }
}

static bppsa_status ask(const bppsa_cli *cli, const bppsa_oracle_model *model, const bppsa_oracle_system *system,
                        bppsa_text *shown) {
  const char *strategy = bppsa_cli_value(cli, BPPSA_OPTION_STRATEGY)->text;
  bppsa_oracle_query query;
  bppsa_oracle_rows rows;
  const bool all = strcmp(strategy, "all") == 0;
  int64_t first = 1, last = 1;
  query_of(cli, model, system, &query);
  for (const bppsa_option_use *use = uses; use->option != BPPSA_OPTION_COUNT; ++use) {
    BPPSA_TRY(bppsa_cli_given(cli, use->option)
                  ? bppsa_oracle_check_option(all ? NULL : strategy, bppsa_option_get(use->option)->name)
                  : BPPSA_OK);
  }
  BPPSA_TRY(bppsa_oracle_processors_parse(bppsa_cli_value(cli, BPPSA_OPTION_PROCESSORS)->text, system, &first, &last));
  BPPSA_TRY(bppsa_oracle_ask(&query, all ? NULL : strategy, first, last, &rows));
  note_micro_batches(cli, &query, &rows);
  bppsa_status status = cli->to.json ? bppsa_json_render(bppsa_oracle_rows_json(&query, &rows), &shown->text)
                                     : bppsa_oracle_text_table(&query, &rows, shown);
  status = status == BPPSA_OK ? write_files(cli, &query, &rows) : status;
  bppsa_oracle_rows_free(&rows);
  return status;
}

static bppsa_status list(const bppsa_cli *cli, bppsa_text *shown) {
  BPPSA_TRY(bppsa_setup_alone(cli, BPPSA_OPTION_LIST));
  return bppsa_oracle_list(cli->to.json, shown);
}

/* Refuses a --plot that does not end in .svg, because the plot is always SVG. */
static bppsa_status check_plot(const bppsa_option_value *plot) {
  const size_t length = plot->given ? strlen(plot->text) : 0;
  return !plot->given || (length > 4 && strcmp(plot->text + length - 4, ".svg") == 0)
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "--plot: '%s', expected a path that ends in .svg", plot->text);
}

static bppsa_status open_and_ask(const bppsa_cli *cli, bppsa_text *shown) {
  const bppsa_option_value *name = bppsa_cli_value(cli, BPPSA_OPTION_MODEL), *place = bppsa_cli_value(cli, BPPSA_OPTION_SYSTEM);
  bppsa_oracle_model model;
  bppsa_oracle_system system;
  if (!name->given || !place->given) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "oracle: %s missing, expected a name of bppsa oracle --list, or a file .json",
                      name->given ? "system" : "model");
  }
  BPPSA_TRY(check_plot(bppsa_cli_value(cli, BPPSA_OPTION_PLOT)));
  const bool here = strcmp(place->text, BPPSA_ORACLE_THIS_MACHINE) == 0;
  BPPSA_TRY(here ? BPPSA_OK : bppsa_oracle_system_open(place->text, &system));
  BPPSA_TRY(bppsa_oracle_model_open(name->text, &model));
  bppsa_status status = here ? bppsa_this_machine_open(cli, &model, &system) : bppsa_oracle_system_times(place->text, &model);
  status = status == BPPSA_OK ? ask(cli, &model, &system, shown) : status;
  bppsa_oracle_model_free(&model);
  return status;
}

static bppsa_status run(bppsa_cli *cli) {
  bppsa_text shown = {0};
  bppsa_status status = bppsa_cli_given(cli, BPPSA_OPTION_LIST) ? list(cli, &shown) : open_and_ask(cli, &shown);
  status = status == BPPSA_OK ? bppsa_setup_show(cli, &shown) : status;
  bppsa_text_free(&shown);
  return status;
}

const bppsa_command bppsa_command_oracle = {.verb = "oracle",
                                            .summary = "Projects time and memory of parallel training strategies on a system",
                                            .example = "oracle resnet50 paradl-v100 --processors 4..1024",
                                            .notes = notes,
                                            .uses = uses,
                                            .run = run};
