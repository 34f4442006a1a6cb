/* `bppsa plan MODEL`: the scan plan of a model, as a table, as JSON, as a drawing. */
#include <inttypes.h>

#include "cli/plan_draw.h"
#include "cli/plan_json.h"
#include "cli/setup.h"
#include "cli/work.h"
#include "core/alloc.h"
#include "core/file.h"

/* What both kinds of network take; `only` is what one of them takes besides. */
#define USES(only)                                                                                                               \
  {                                                                                                                              \
    {.option = BPPSA_OPTION_LAYERS}, {.option = BPPSA_OPTION_HIDDEN}, only{.option = BPPSA_OPTION_LOSS},                         \
        {.option = BPPSA_OPTION_SEQ_LEN, .fallback = "1000"}, {.option = BPPSA_OPTION_BATCH},                                    \
        {.option = BPPSA_OPTION_ALGORITHM}, {.option = BPPSA_OPTION_UP_LEVELS}, {.option = BPPSA_OPTION_CHUNKS},                 \
        {.option = BPPSA_OPTION_INPUT_GRAD}, {.option = BPPSA_OPTION_DTYPE},                                                     \
        {.option = BPPSA_OPTION_DEVICE, .help = "what auto chooses for; it need not be there"}, {.option = BPPSA_OPTION_SVG},    \
        {.option = BPPSA_OPTION_JSON}, {.option = BPPSA_OPTION_HELP}, {                                                          \
      .option = BPPSA_OPTION_COUNT                                                                                               \
    }                                                                                                                            \
  }
#define RNN_ONLY {.option = BPPSA_OPTION_NONLINEARITY},
static const bppsa_option_use uses_rnn[] = USES(RNN_ONLY), uses_gru[] = USES();

/* ---- JSON ---- */

json_t *bppsa_plan_step_json(const bppsa_scan_plan *plan, const bppsa_scan_step *step) {
  char left[BPPSA_OPERAND_TEXT], right[BPPSA_OPERAND_TEXT], out[BPPSA_OPERAND_TEXT];
  const bppsa_scan_level *level = step->level;
  bppsa_scan_step_text(plan, step, left, right, out);
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_integer(object, "id", step->id);
  ok = ok && bppsa_json_put_integer(object, "level", level->level);
  ok = ok && bppsa_json_put_text(object, "phase", bppsa_scan_phase_name(level->phase));
  ok = ok && bppsa_json_put_text(object, "op", step->copy ? "copy" : bppsa_scan_op_name(level->op));
  ok = ok && bppsa_json_put_bool(object, "affine", bppsa_scan_plan_config(plan)->affine);
  ok = ok && bppsa_json_put_bool(object, "dead", level->dead);
  ok = ok && bppsa_json_put_text(object, "left", left);
  ok = ok && bppsa_json_put_text(object, "right", right);
  ok = ok && bppsa_json_put_text(object, "out", out);
  ok = ok && bppsa_json_put_integer(object, "m", step->m);
  ok = ok && bppsa_json_put_integer(object, "k", step->k);
  ok = ok && bppsa_json_put_integer(object, "n", step->n);
  ok = ok && bppsa_json_put_integer(object, "nnz", step->nnz);
  ok = ok && bppsa_json_put_integer(object, "flops", step->flops);
  if (step->product != NULL) {
    const bppsa_product_info *info = bppsa_product_get_info(step->product);
    ok = ok && bppsa_json_put_text(object, "kind", bppsa_product_kind_name(info->kind));
    ok = ok && bppsa_json_put_integer(object, "pair_flops", info->pair_flops);
    ok = ok && bppsa_json_put_integer(object, "executed_flops", info->executed_flops);
  }
  ok = ok && bppsa_json_put_integer(object, "bytes", step->bytes);
  ok = ok && bppsa_json_put_bool(object, "critical", step->critical);
  return bppsa_json_finish(object, ok);
}

json_t *bppsa_plan_steps_json(const bppsa_scan_plan *plan) {
  json_t *steps = json_array();
  bool ok = steps != NULL;
  bppsa_scan_iterator iterator = {0};
  bppsa_scan_step step;
  while (ok && bppsa_scan_plan_next(plan, &iterator, &step)) {
    ok = json_array_append_new(steps, bppsa_plan_step_json(plan, &step)) == 0;
  }
  return bppsa_json_finish(steps, ok);
}

json_t *bppsa_plan_levels_json(const bppsa_scan_plan *plan) {
  int64_t count = 0;
  const int64_t *counts = bppsa_scan_plan_levels(plan, &count);
  json_t *levels = json_array();
  bool ok = levels != NULL;
  for (int64_t i = 0; ok && i < count; ++i) {
    ok = json_array_append_new(levels, json_integer(counts[i])) == 0;
  }
  return bppsa_json_finish(levels, ok);
}

json_t *bppsa_plan_totals_json(const bppsa_scan_totals *totals) {
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_integer(object, "mm", totals->mm);
  ok = ok && bppsa_json_put_integer(object, "mv", totals->mv);
  ok = ok && bppsa_json_put_integer(object, "dead_steps", totals->dead);
  ok = ok && bppsa_json_put_integer(object, "mm_flops", totals->mm_flops);
  ok = ok && bppsa_json_put_integer(object, "mv_flops", totals->mv_flops);
  ok = ok && bppsa_json_put_integer(object, "critical_flops", totals->critical_flops);
  ok = ok && bppsa_json_put_integer(object, "critical_steps", totals->critical_steps);
  ok = ok && bppsa_json_put_integer(object, "bp_flops", totals->bp_flops);
  ok = ok && bppsa_json_put_integer(object, "bp_critical_flops", totals->bp_critical_flops);
  ok = ok && bppsa_json_put_integer(object, "workspace_bytes", totals->workspace_bytes);
  if (totals->executed_flops > 0) {
    ok = ok && bppsa_json_put_integer(object, "executed_flops", totals->executed_flops);
  }
  return bppsa_json_finish(object, ok);
}

/* A layer's plan over BP of that layer. */
static bppsa_work_ratios layer_ratios(const bppsa_network_kind *kind, const bppsa_recurrent_config *config,
                                      const bppsa_scan_plan *plan, int64_t layer) {
  const bppsa_scan_totals *totals = bppsa_scan_plan_totals(plan);
  const double besides = bppsa_network_flops_besides(kind, config, layer);
  const bppsa_work work = bppsa_work_of_scan(totals, besides), bp = bppsa_work_of_bp(totals, besides);
  return bppsa_work_over(&work, &bp);
}

static json_t *layers_json(const bppsa_network_kind *kind, const bppsa_recurrent_config *config, bppsa_scan_plan *const *plans) {
  json_t *layers = json_array();
  bool ok = layers != NULL;
  for (int64_t i = 0; ok && i < config->layers; ++i) {
    json_t *layer = json_object();
    const bppsa_work_ratios ratios = layer_ratios(kind, config, plans[i], i);
    bool filled = layer != NULL && bppsa_json_put_integer(layer, "layer", i);
    const bppsa_gradient_method method = bppsa_scan_plan_method(plans[i]);
    filled = filled && bppsa_gradient_method_put(layer, &method);
    filled = filled && bppsa_json_put_bool(layer, "affine", bppsa_scan_plan_config(plans[i])->affine);
    filled = filled && bppsa_json_put(layer, "totals", bppsa_plan_totals_json(bppsa_scan_plan_totals(plans[i])));
    filled = filled && bppsa_work_json(layer, "bp", &ratios);
    ok = json_array_append_new(layers, bppsa_json_finish(layer, filled)) == 0;
  }
  return bppsa_json_finish(layers, ok);
}

/* Seconds of all layers' scans by the cost model. */
static double predicted_seconds(bppsa_scan_plan *const *plans, int64_t count) {
  double seconds = 0;
  for (int64_t i = 0; i < count; ++i) {
    seconds += bppsa_scan_plan_seconds(plans[i]);
  }
  return seconds;
}

/* The top layer in full, the others as totals. */
static json_t *plan_json(const bppsa_network_kind *kind, const bppsa_recurrent_config *config, bppsa_scan_plan *const *plans) {
  const bppsa_scan_plan *plan = plans[config->layers - 1];
  const bppsa_scan_totals *totals = bppsa_scan_plan_totals(plan);
  const bppsa_gradient_method method = bppsa_scan_plan_method(plan);
  const bppsa_work_ratios ratios = layer_ratios(kind, config, plan, config->layers - 1);
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "model", kind->name);
  ok = ok && bppsa_json_put_integer(object, "elements", bppsa_scan_plan_config(plan)->jacobians + 1);
  ok = ok && bppsa_setup_method_json(object, &method, bppsa_planner_chooser(config));
  ok = ok && bppsa_json_put_real(object, "predicted_s", predicted_seconds(plans, config->layers));
  ok = ok && bppsa_json_put_integer(object, "seq_len", config->seq_len);
  ok = ok && bppsa_json_put_integer(object, "batch", config->batch);
  ok = ok && bppsa_json_put_integer(object, "hidden", config->hidden);
  ok = ok && bppsa_json_put_text(object, "dtype", bppsa_dtype_name(config->dtype));
  ok = ok && bppsa_json_put_integer(object, "layer", config->layers - 1);
  ok = ok && bppsa_json_put(object, "levels", bppsa_plan_levels_json(plan));
  if (totals->mm + totals->mv <= BPPSA_PLAN_STEPS) {
    ok = ok && bppsa_json_put(object, "steps", bppsa_plan_steps_json(plan));
  }
  ok = ok && bppsa_json_put(object, "totals", bppsa_plan_totals_json(bppsa_scan_plan_totals(plan)));
  ok = ok && bppsa_work_json(object, "bp", &ratios);
  ok = ok && bppsa_json_put(object, "layer_plans", layers_json(kind, config, plans));
  return bppsa_json_finish(object, ok);
}

/* ---- for people ---- */

/* A line per level record; all products of one record have the same shape and cost. */
static bppsa_status print_records(bppsa_cli *cli, const bppsa_scan_plan *plan) {
  int64_t count = 0;
  const bppsa_scan_level *records = bppsa_scan_plan_records(plan, &count);
  BPPSA_TRY(bppsa_cli_print(cli, "\n level  phase   op  products        in a row  m x k x n           FLOPs each  remark\n"));
  for (int64_t i = 0; i < count; ++i) {
    bppsa_scan_iterator iterator = {.record = i};
    bppsa_scan_step step;
    char shape[96], flops[BPPSA_SI_TEXT];
    bppsa_scan_plan_next(plan, &iterator, &step);
    snprintf(shape, sizeof shape, "%" PRId64 " x %" PRId64 " x %" PRId64, step.m, step.k, step.n);
    const char *remark = records[i].dead ? "dead, never run" : records[i].critical >= 0 ? "critical" : "";
    BPPSA_TRY(bppsa_cli_print(cli, " %5d  %-6s  %-2s  %-14" PRId64 "  %-8" PRId64 "  %-18s  %-10s  %s\n", (int)records[i].level,
                              bppsa_scan_phase_name(records[i].phase), bppsa_scan_op_name(records[i].op),
                              records[i].count * records[i].length + records[i].longer,
                              records[i].length + (records[i].longer > 0), shape,
                              bppsa_cli_si((double)step.flops, "", flops, sizeof flops), remark));
  }
  return BPPSA_OK;
}

static bppsa_status print_layer(bppsa_cli *cli, const bppsa_recurrent_config *config, const bppsa_scan_plan *plan,
                                int64_t layer) {
  const bppsa_scan_totals *t = bppsa_scan_plan_totals(plan);
  const bppsa_scan_config *scan = bppsa_scan_plan_config(plan);
  char text[BPPSA_SETUP_METHOD_TEXT], mm[BPPSA_SI_TEXT], mv[BPPSA_SI_TEXT], critical[BPPSA_SI_TEXT], bytes[BPPSA_SI_TEXT];
  BPPSA_TRY(bppsa_cli_print(cli, "%sLayer %" PRId64 ": %s, %" PRId64 " elements%s\n", layer == config->layers - 1 ? "" : "\n",
                            layer, bppsa_setup_plan(bppsa_planner_chooser(config), plan, text, sizeof text), scan->jacobians + 1,
                            scan->affine ? ", affine (a gradient enters at every step)" : ""));
  BPPSA_TRY(print_records(cli, plan));
  return bppsa_cli_print(cli,
                         "\n  products           %" PRId64 " mat-mat (%" PRId64 " dead), %" PRId64 " mat-vec\n"
                         "  FLOPs a sample     %s mat-mat, %s mat-vec\n"
                         "  critical path      %" PRId64 " products, %s a sample\n"
                         "  products held      %s for a batch of %" PRId64 "\n",
                         t->mm, t->dead, t->mv, bppsa_cli_si((double)t->mm_flops, "", mm, sizeof mm),
                         bppsa_cli_si((double)t->mv_flops, "", mv, sizeof mv), t->critical_steps,
                         bppsa_cli_si((double)t->critical_flops, "FLOP", critical, sizeof critical),
                         bppsa_cli_si((double)t->workspace_bytes, "B", bytes, sizeof bytes), config->batch);
}

/* What the top layer's plan costs and buys against BP: n - 1 mat-vecs, one after the other. */
static bppsa_status print_sentence(bppsa_cli *cli, const bppsa_recurrent_config *config, const bppsa_scan_plan *plan) {
  const bppsa_scan_totals *t = bppsa_scan_plan_totals(plan);
  const int64_t jacobians = bppsa_scan_plan_config(plan)->jacobians, chain = jacobians > 1 ? jacobians - 1 : 0;
  const bppsa_work_ratios ratios = layer_ratios(bppsa_network_kind_of(cli), config, plan, config->layers - 1);
  char text[BPPSA_WORK_TEXT];
  if (bppsa_scan_plan_is_chain(plan)) {
    return bppsa_cli_print(cli,
                           "\nThis is the recurrence itself: %" PRId64
                           " mat-vecs, each waiting for the one before. A processor runs it by the cell's own sweep,\n"
                           "which is sequential BP.\n",
                           chain);
  }
  return bppsa_cli_print(cli,
                         "\nWith workers enough for every level the top layer's gradient is %" PRId64
                         " products deep instead of %" PRId64 ",\nfor %s.\n",
                         t->critical_steps, chain, bppsa_work_text(&ratios, "steps", text, sizeof text));
}

static bppsa_status print_plans(bppsa_cli *cli, const bppsa_recurrent_config *config, bppsa_scan_plan *const *plans) {
  BPPSA_TRY(bppsa_cli_print(cli, "%s: T %" PRId64 ", B %" PRId64 ", H %" PRId64 ", layers %" PRId64 ", loss %s, %s\n\n",
                            cli->command->object, config->seq_len, config->batch, config->hidden, config->layers,
                            bppsa_loss_name(config->loss_all), bppsa_dtype_name(config->dtype)));
  for (int64_t layer = config->layers - 1; layer >= 0; --layer) { /* as they run */
    BPPSA_TRY(print_layer(cli, config, plans[layer], layer));
  }
  return print_sentence(cli, config, plans[config->layers - 1]);
}

static bppsa_status make_plans(const bppsa_network_kind *kind, const bppsa_recurrent_config *asked, bppsa_device_kind device,
                               bppsa_scan_plan **plans) {
  bppsa_recurrent_config chosen, *config = &chosen;
  BPPSA_TRY(bppsa_network_choose(kind, asked, device, &chosen));
  for (int64_t layer = 0; layer < config->layers; ++layer) {
    bppsa_scan_config scan = bppsa_network_scan(kind, config, layer);
    scan.device = device;
    BPPSA_TRY(bppsa_scan_plan_create(&scan, &plans[layer]));
  }
  return BPPSA_OK;
}

/* Everything that needs memory comes before the drawing's file and before what is printed. The drawing is of the top layer. */
static bppsa_status show(bppsa_cli *cli, const bppsa_recurrent_config *config, bppsa_scan_plan *const *plans, bppsa_text *drawing,
                         char **document) {
  const bppsa_option_value *svg = bppsa_cli_value(cli, BPPSA_OPTION_SVG);
  if (cli->json) {
    bppsa_json_start();
    BPPSA_TRY(bppsa_cli_render(plan_json(bppsa_network_kind_of(cli), config, plans), document));
  }
  if (svg->given) {
    const bppsa_status drawn = bppsa_plan_draw(&(bppsa_plan_picture){.plan = plans[config->layers - 1]}, drawing);
    BPPSA_TRY(drawn == BPPSA_OK ? BPPSA_OK : bppsa_fail_prefix(drawn, "--svg"));
    BPPSA_TRY(bppsa_file_write(svg->text, drawing->text, drawing->size));
  }
  return cli->json ? bppsa_cli_print_document(cli, *document) : print_plans(cli, config, plans);
}

static bppsa_status run(bppsa_cli *cli) {
  bppsa_recurrent_config config = bppsa_recurrent_config_default();
  bppsa_text drawing = {0};
  char *document = NULL;
  bppsa_device_kind device;
  int32_t index;
  config.method.backward = BPPSA_BACKWARD_SCAN; /* the plan of a scan is what this command shows */
  BPPSA_TRY(bppsa_setup_config(cli, &config));
  BPPSA_TRY(bppsa_device_parse(bppsa_cli_value(cli, BPPSA_OPTION_DEVICE)->text, &device, &index));
  BPPSA_TRY(bppsa_cli_check_output(cli, BPPSA_OPTION_SVG));
  config.input_gradients = bppsa_cli_value(cli, BPPSA_OPTION_INPUT_GRAD)->given;
  bppsa_scan_plan **plans = bppsa_calloc(config.layers, sizeof *plans);
  if (plans == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_status status = make_plans(bppsa_network_kind_of(cli), &config, device, plans);
  if (status == BPPSA_OK) {
    status = show(cli, &config, plans, &drawing, &document);
  }
  bppsa_text_free(&drawing);
  bppsa_free(document);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    bppsa_scan_plan_destroy(plans[layer]);
  }
  bppsa_free(plans);
  return status;
}

const bppsa_command bppsa_command_plan_rnn = {.verb = "plan",
                                              .object = "rnn",
                                              .summary = "Shows the scan plan: levels, products, FLOPs, critical path",
                                              .example = "plan rnn --seq-len 1000 --algorithm blelloch",
                                              .uses = uses_rnn,
                                              .run = run};

const bppsa_command bppsa_command_plan_gru = {.verb = "plan",
                                              .object = "gru",
                                              .summary = "Shows the scan plan: levels, products, FLOPs, critical path",
                                              .example = "plan gru --seq-len 1000 --algorithm blelloch",
                                              .uses = uses_gru,
                                              .run = run};
