/* `bppsa schedule`: makes, validates, simulates, draws and compares schedules. */

#include <stddef.h>

#include "cli/ranks.h"
#include "cli/setup.h"
#include "schedule/compare.h"
#include "schedule/schedule_report.h"
#include "schedule/timed.h"

#define COST_USES                                                                                                                \
  BPPSA_USE_AS(FORWARD, forward_cost), BPPSA_USE_AS(INPUT_GRAD, input_grad_cost), BPPSA_USE(WEIGHT_GRAD_COST),                   \
      BPPSA_USE(STEP_COST), BPPSA_USE(SYNC_COST), BPPSA_USE(MESSAGE_SIZE), BPPSA_USE(GRADIENT_SIZE), BPPSA_USE(PRODUCT_COST),    \
      BPPSA_USE(APPLY_COST), BPPSA_USE(ALPHA), BPPSA_USE(BETA), BPPSA_USE(CONTENTION), BPPSA_USE(ISSUE_OVERHEAD),                \
      BPPSA_USE(PRECOMPILED), BPPSA_USE(MEMORY_CAP), BPPSA_USE(COSTS), BPPSA_USE(LOAD)
#define SHAPE_USES                                                                                                               \
  BPPSA_USE(MICRO_BATCHES), BPPSA_USE_AS(LAYERS, model_layers), BPPSA_USE_AS(CHUNKS, stage_chunks), BPPSA_SCHEDULE_USES,         \
      BPPSA_USE(ELEMENTS), BPPSA_USE(SKIP_FIRST_INPUT_GRAD), BPPSA_USE(WINDOW)
static const bppsa_option_use uses[] = {{.option = BPPSA_OPTION_SCHEME, .operand = true},
                                        {.option = BPPSA_OPTION_STAGES, .fallback = "4"},
                                        SHAPE_USES,
                                        {.option = BPPSA_OPTION_ITERATIONS, .fallback = "1", .help = "one behind the other"},
                                        COST_USES,
                                        {.option = BPPSA_OPTION_SVG, .help = "a timeline: workers down, time across"},
                                        BPPSA_USE(TRACE),
                                        BPPSA_USE(CSV),
                                        BPPSA_USE(LIST),
                                        BPPSA_USE(COMPARE),
                                        BPPSA_USES_END};

static const char notes[] =
    "bppsa schedule --list names the schemes. Time is in the unit of the costs; M_a are the activations of one micro-batch on "
    "one stage,\n"
    "M_theta the weights of one stage. --compare gives all schemes one model: --layers, or the most that one of them takes by "
    "itself, and "
    "the same costs\na layer. An option that the scheme, or all compared ones, would ignore is refused; --list says which take "
    "it.\n";

/* ---- a schedule ---- */

/* Options that are members of a configuration. The kind of an option gives the type of the member. */
#define MEMBER(name, member)                                                                                                     \
  { BPPSA_USE(name), offsetof(bppsa_schedule_config, member) }
#define MEMBER_AS(name, meaning, member)                                                                                         \
  { BPPSA_USE_AS(name, meaning), offsetof(bppsa_schedule_config, member) }
#define COST(name, kind) MEMBER(name, uniform[BPPSA_COST_##kind])
#define COST_AS(name, meaning, kind) MEMBER_AS(name, meaning, uniform[BPPSA_COST_##kind])
#define SHAPE                                                                                                                    \
  MEMBER(STAGES, stages), MEMBER(MICRO_BATCHES, micro_batches), MEMBER_AS(LAYERS, model_layers, layers), MEMBER(WIDTH, width),   \
      MEMBER(REPLICAS, replicas), MEMBER(CHUNKS, chunks), MEMBER_AS(CHUNKS, stage_chunks, chunks),                               \
      MEMBER(ITERATIONS, iterations), MEMBER(REVERSE_K, reverse), MEMBER(ELEMENTS, elements),                                    \
      MEMBER(SKIP_FIRST_INPUT_GRAD, skip_first_input_grad), MEMBER(RECOMPUTE, recompute), MEMBER(SYNC, sync),                    \
      MEMBER(WINDOW, window)
#define MACHINE                                                                                                                  \
  MEMBER(ALPHA, alpha), MEMBER(BETA, beta), MEMBER(ISSUE_OVERHEAD, issue_overhead), MEMBER(MEMORY_CAP, memory_cap),              \
      MEMBER(PRECOMPILED, precompiled), MEMBER(CONTENTION, contention)
#define COSTS                                                                                                                    \
  COST_AS(FORWARD, forward_cost, FORWARD), COST_AS(INPUT_GRAD, input_grad_cost, INPUT_GRAD),                                     \
      COST(WEIGHT_GRAD_COST, WEIGHT_GRAD), COST(STEP_COST, STEP), COST(SYNC_COST, SYNC), COST(MESSAGE_SIZE, MESSAGE),            \
      COST(GRADIENT_SIZE, GRADIENT), COST(PRODUCT_COST, PRODUCT), COST(APPLY_COST, APPLY)
static const struct {
  bppsa_option_use use;
  size_t offset;
} members[] = {SHAPE, MACHINE, COSTS};

bppsa_status bppsa_scheme_options(const bppsa_cli *cli, const char *schemes, bppsa_schedule_config *c) {
  for (const bppsa_option_use *use = cli->command->uses; schemes != NULL && use->option != BPPSA_OPTION_COUNT; ++use) {
    const char *name = bppsa_option_get(use->option)->name;
    if (bppsa_cli_given(cli, use->option) && use->meaning != &bppsa_meaning_train_iterations) { /* train counts its steps by it */
      BPPSA_TRY(bppsa_schedule_check_option(schemes, name + 2, bppsa_cli_value(cli, use->option)->integer));
    }
  }
  for (size_t i = 0; i < sizeof members / sizeof members[0]; ++i) {
    const bppsa_option_value *value = bppsa_cli_value(cli, members[i].use.option);
    const bppsa_option_info *info = bppsa_option_of(&members[i].use);
    void *to = (char *)c + members[i].offset;
    if (value->meaning != info) { /* it is absent, or means something else to the command */
      continue;
    }
    if (info->kind == BPPSA_INTEGER) {
      *(int64_t *)to = value->integer;
    } else if (info->kind == BPPSA_REAL) {
      *(double *)to = value->real;
    } else if (info->kind == BPPSA_CHOICE) {
      *(int *)to = value->choice;
    } else {
      *(bool *)to = true;
    }
  }
  const bool doubling = bppsa_cli_given(cli, BPPSA_OPTION_DOUBLING), halving = bppsa_cli_given(cli, BPPSA_OPTION_HALVING);
  if (doubling && halving) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--halving: given beside --doubling, expected one of the two");
  }
  c->scale = doubling ? BPPSA_SCALE_DOUBLING : halving ? BPPSA_SCALE_HALVING : BPPSA_SCALE_DIRECT;
  c->split = bppsa_cli_given(cli, BPPSA_OPTION_SPLIT_BACKWARD)
                 ? (bppsa_schedule_split)(BPPSA_SPLIT_WI + bppsa_cli_value(cli, BPPSA_OPTION_SPLIT_BACKWARD)->choice)
                 : BPPSA_SPLIT_NONE;
  return BPPSA_OK;
}

/* Reads the command line and its file of costs. */
static bppsa_status take_request(const bppsa_cli *cli, const char *schemes, bppsa_schedule_request *r) {
  *r = bppsa_schedule_request_default();
  BPPSA_TRY(bppsa_scheme_options(cli, schemes, &r->config));
  r->sets_window = bppsa_cli_given(cli, BPPSA_OPTION_WINDOW);
  r->sets_elements = bppsa_cli_given(cli, BPPSA_OPTION_ELEMENTS);
  BPPSA_TRY(bppsa_cli_given(cli, BPPSA_OPTION_CUT) ? bppsa_schedule_request_cut(r, bppsa_cli_value(cli, BPPSA_OPTION_CUT)->text)
                                                   : BPPSA_OK);
  return bppsa_cli_given(cli, BPPSA_OPTION_COSTS)
             ? bppsa_schedule_request_costs(r, bppsa_cli_value(cli, BPPSA_OPTION_COSTS)->text)
             : BPPSA_OK;
}

static bppsa_status make(const bppsa_cli *cli, const char *id, bppsa_timed *timed) {
  bppsa_schedule_request r;
  BPPSA_TRY(take_request(cli, id, &r));
  const bppsa_status status = bppsa_schedule_request_make(&r, id, 0, timed);
  bppsa_schedule_request_free(&r);
  return status;
}

/* ---- the three ways to be called ---- */

static bppsa_status list_schemes(const bppsa_cli *cli, bppsa_text *shown) {
  BPPSA_TRY(bppsa_setup_alone(cli, BPPSA_OPTION_LIST));
  return cli->to.json ? bppsa_json_render(bppsa_schedule_list_json(), &shown->text) : bppsa_schedule_list_text(shown);
}

static bppsa_status compare(const bppsa_cli *cli, const char *names, bppsa_text *shown) {
  static const bppsa_option_use of_one[] = {BPPSA_USE(SCHEME), BPPSA_USE(LOAD), BPPSA_USE(SVG),
                                            BPPSA_USE(TRACE),  BPPSA_USE(CSV),  BPPSA_USE(COUNT)};
  bppsa_schedule_request r;
  BPPSA_TRY(
      bppsa_setup_refuse(cli, of_one, "beside --compare, which writes a table and no schedule, expected one of the two", ""));
  BPPSA_TRY(take_request(cli, names, &r));
  const bppsa_status status = bppsa_schedule_compare(&r, names, cli->to.json, shown);
  bppsa_schedule_request_free(&r);
  return status;
}

/* Loads a schedule. The file is complete, so options that make schedules are refused. */
static bppsa_status load(const bppsa_cli *cli, const char *path, bppsa_timed *timed) {
  for (const bppsa_option_use *use = uses; use->option != BPPSA_OPTION_COUNT; ++use) {
    const bppsa_option_info *info = bppsa_option_of(use);
    const bool output =
        info->group == BPPSA_GROUP_OUTPUT || (info->group == BPPSA_GROUP_FILES && use->option != BPPSA_OPTION_COSTS);
    if (!output && bppsa_cli_given(cli, use->option)) {
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
  const bppsa_timed_files files = {.svg = bppsa_cli_value(cli, BPPSA_OPTION_SVG)->text,
                                   .trace = bppsa_cli_value(cli, BPPSA_OPTION_TRACE)->text,
                                   .csv = bppsa_cli_value(cli, BPPSA_OPTION_CSV)->text};
  status = status == BPPSA_OK ? bppsa_timed_write(&timed, &files) : status;
  bppsa_timed_free(&timed);
  return status;
}

static bppsa_status run(bppsa_cli *cli) {
  const bppsa_option_value *compared = bppsa_cli_value(cli, BPPSA_OPTION_COMPARE);
  bppsa_text shown = {0};
  bppsa_status status = bppsa_cli_given(cli, BPPSA_OPTION_LIST) ? list_schemes(cli, &shown)
                        : compared->given                       ? compare(cli, compared->text, &shown)
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
