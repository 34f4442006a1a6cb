/* `bppsa flops NETWORK`: what every step of the sparse scan costs (BPPSA §4.3, figure 10).
 *
 * Products count 2 FLOPs a matching pair, and BP beside them 2 an entry of every pattern it applies: the same work by the same rule
 * (scan/work.h). flops_count.c has the patterns.
 */
#include "cli/flops.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/plan_draw.h"
#include "cli/plan_json.h"
#include "cli/work.h"
#include "core/alloc.h"
#include "core/file.h"

static const bppsa_option_use uses[] = {
    {.option = BPPSA_OPTION_PRUNE},
    {.option = BPPSA_OPTION_METHOD, .help = "of pruning, see bppsa prune"},
    {.option = BPPSA_OPTION_SEED, .help = "of the weights, PyTorch's initialisation, and of an image where none is given"},
    {.option = BPPSA_OPTION_FLOPS_PATTERN},
    {.option = BPPSA_OPTION_LEVELS},
    {.option = BPPSA_OPTION_INPUT_GRAD, .help = "list the step to the input's gradient too"},
    {.option = BPPSA_OPTION_BATCH, .fallback = "1", .help = "samples whose products are held"},
    {.option = BPPSA_OPTION_DTYPE},
    {.option = BPPSA_OPTION_WEIGHTS, .help = "weights instead of random ones; those that are 0 are left out"},
    {.option = BPPSA_OPTION_INPUT, .help = "images [B,C,H,W] whose values are counted, the mean over them"},
    {.option = BPPSA_OPTION_LABELS, .help = "int64 labels [B]: the seed is dense whatever they are"},
    {.option = BPPSA_OPTION_MEMORY_LIMIT,
     .help = "of patterns, and of held products: auto takes fewer levels, a given number is refused"},
    {.option = BPPSA_OPTION_MASK, .metavar = "M.safetensors", .help = BPPSA_FLOPS_MASK_HELP},
    {.option = BPPSA_OPTION_SVG},
    {.option = BPPSA_OPTION_JSON},
    {.option = BPPSA_OPTION_HELP},
    {.option = BPPSA_OPTION_COUNT}};

static const char notes[] =
    "Three kinds of patterns. Without --prune and --weights every weight counts, by the operators' "
    "structure alone. With them, weights "
    "that\n"
    "are pruned or 0 are left out: these patterns are guaranteed, whatever the input, and execution uses "
    "them. --pattern value leaves out "
    "what\n"
    "dead ReLUs and pools drop at real inputs too, as the published figure does; nothing could be "
    "planned with those ahead of time.\n"
    "BP beside the scan computes the same gradients: between layers, of the input with --input-grad only, over the "
    "same patterns or\n"
    "with all weights. 2 FLOPs an entry it applies, 2 a matching pair of a product: 0 up-levels are 1.00 times "
    "BP. docs/flops.md has\n"
    "the derivation.\n";

enum { DOMINANT_TEXT = 2 * BPPSA_RANGE_TEXT + 80, CONCLUSION_TEXT = 720 };

static const char *pattern_name(const bppsa_flops *f) {
  return f->values ? "value" : "guaranteed";
}

/* The most expensive step on the critical path; NULL: there is none. */
static const bppsa_scan_step *dominant_step(const bppsa_flops *net) {
  const bppsa_scan_step *most = NULL;
  for (int64_t i = 0; i < net->step_count; ++i) {
    const bppsa_scan_step *step = &net->steps[i];
    most = step->critical && (most == NULL || step->flops > most->flops) ? step : most;
  }
  return most;
}

/* The same in words. */
static void dominant_text(const bppsa_flops *net, char *text, size_t size) {
  const bppsa_scan_totals *t = &net->totals;
  const bppsa_scan_step *most = dominant_step(net);
  char left[BPPSA_RANGE_TEXT], right[BPPSA_RANGE_TEXT];
  if (most == NULL) {
    snprintf(text, size, "no step");
    return;
  }
  const bool mm = most->level->op == BPPSA_OP_MM;
  bppsa_plan_operands(net->names, net->count, most, left, right);
  snprintf(text, size,
           mm ? "[%s]·[%s]: %.3g FLOP, %.0f %% of the critical path" : "[%s]·%s: %.3g FLOP, %.0f %% of the critical path", left,
           mm ? right : "g", (double)most->flops,
           t->critical_flops > 0 ? 100 * (double)most->flops / (double)t->critical_flops : 0);
}

/* The operator's size and number of entries, as counted. */
static bppsa_csr counted_pattern(const bppsa_flops *net, int64_t i) {
  const bppsa_flops_operator *o = &net->operators[i];
  return (bppsa_csr){.rows = o->rows, .cols = o->cols, .nnz = llround(o->nnz)};
}

/* Are some weights or entries left out, so that BP with all of them is another BP? */
static bool is_thinned(const bppsa_flops *net) {
  return net->pruned || net->values;
}

static bool is_chain(const bppsa_flops *net) {
  return bppsa_scan_plan_is_chain(net->plan);
}

/* FLOPs of the scan's most expensive step on the critical path over those of BP's: of the same patterns, and with all weights. */
static void step_ratios(const bppsa_flops *net, double *same, double *unpruned) {
  const bppsa_scan_step *most = dominant_step(net);
  const int64_t flops = most == NULL ? 0 : most->flops, whole = net->unpruned.largest;
  int64_t largest = 0;
  for (int64_t i = 1; i < net->count; ++i) {
    largest = net->operators[i].bp_flops > largest ? net->operators[i].bp_flops : largest;
  }
  *same = flops == largest ? 1 : (double)flops / (double)largest;
  *unpruned = flops == whole ? 1 : (double)flops / (double)whole;
}

/* What the counts support, and no more: the critical path and its largest step beside BP's, and whether a plan made ahead can
 * have them. */
static const char *conclusion_text(const bppsa_flops *net, char *text, size_t size) {
  const double same = bppsa_work_over(&net->work, &net->bp).critical;
  const double whole = bppsa_work_over(&net->work, &net->unpruned.work).critical;
  double step[2];
  char ratio[4][BPPSA_RATIO_TEXT], flops[BPPSA_SI_TEXT], beside[120] = "", steps[120] = "";
  step_ratios(net, &step[0], &step[1]);
  if (is_thinned(net)) {
    snprintf(beside, sizeof beside, ", %s times those of BP with all weights (%s)", bppsa_work_ratio(whole, ratio[0]),
             bppsa_cli_si(net->unpruned.work.critical, "", flops, sizeof flops));
    snprintf(steps, sizeof steps, ", %s times with all weights", bppsa_work_ratio(step[1], ratio[1]));
  }
  const char *known = net->values ? "these patterns are known after the forward pass only, no plan made ahead has them"
                                  : "these patterns hold for any input, a plan made ahead executes them";
  bppsa_work_ratio(same, ratio[2]);
  if (is_chain(net)) {
    snprintf(text, size,
             "a chain of %" PRId64 ", no scan: this is BP's recurrence, %s times the FLOPs of BP over the same patterns%s; %s",
             net->totals.critical_steps, ratio[2], beside, known);
    return text;
  }
  snprintf(
      text, size,
      "the critical path has %s times the FLOPs of BP over the same patterns%s: %s; the largest step has %s times the FLOPs of "
      "BP's largest%s, which is what figure 10 compares; %s",
      ratio[2], beside,
      same < 1 ? "given a worker for every product the scan is shorter than BP over these patterns"
               : "BP over these patterns is no longer, however many workers there are",
      bppsa_work_ratio(step[0], ratio[3]), steps, known);
  return text;
}

/* ---- JSON ---- */

static json_t *operators_json(const bppsa_flops *net) {
  json_t *array = json_array();
  bool ok = array != NULL;
  for (int64_t i = 0; ok && i < net->count; ++i) {
    const bppsa_csr counted = counted_pattern(net, i), *c = &counted;
    json_t *object = json_object();
    bool filled = object != NULL && bppsa_json_put_text(object, "name", net->network.layers.layers[i].name);
    filled = filled && bppsa_json_put_integer(object, "rows", c->rows);
    filled = filled && bppsa_json_put_integer(object, "cols", c->cols);
    filled = filled && bppsa_json_put_integer(object, "nnz", c->nnz);
    filled = filled && bppsa_json_put_real(object, "sparsity", bppsa_csr_sparsity(c));
    filled = filled && bppsa_json_put_integer(object, "csr_bytes", bppsa_csr_bytes(c, bppsa_scan_plan_config(net->plan)->dtype));
    filled = filled && bppsa_json_put_integer(object, "baseline_flops", net->operators[i].bp_flops);
    ok = json_array_append_new(array, bppsa_json_finish(object, filled)) == 0;
  }
  return bppsa_json_finish(array, ok);
}

static json_t *automatic_json(const bppsa_flops *net) {
  json_t *object = json_object();
  bool ok = object != NULL;
  if (net->automatic != NULL) {
    ok = ok && bppsa_json_put_integer(object, "up_levels", bppsa_scan_plan_config(net->automatic)->method.up_levels);
    ok = ok && bppsa_json_put_integer(object, "critical_flops", bppsa_scan_plan_totals(net->automatic)->critical_flops);
  }
  return bppsa_json_finish(object, ok);
}

bool bppsa_flops_ratios_json(json_t *object, const bppsa_flops *net) {
  const bppsa_work_ratios same = bppsa_work_over(&net->work, &net->bp), whole = bppsa_work_over(&net->work, &net->unpruned.work);
  return bppsa_work_json(object, "bp", &same) && bppsa_work_json(object, "unpruned_bp", &whole);
}

json_t *bppsa_flops_steps_json(const bppsa_flops *net) {
  json_t *array = json_array();
  bool ok = array != NULL;
  for (int64_t i = 0; ok && i < net->step_count; ++i) {
    ok = json_array_append_new(array, bppsa_plan_step_json(net->plan, &net->steps[i])) == 0;
  }
  return bppsa_json_finish(array, ok);
}

bool bppsa_flops_mask_json(const bppsa_cli *cli, json_t *object) {
  const bppsa_option_value *mask = bppsa_cli_value(cli, BPPSA_OPTION_MASK);
  return mask->given ? bppsa_json_put_text(object, "mask", mask->text) : bppsa_json_put(object, "mask", json_null());
}

/* Where the weights come from that decide what is counted. */
static const char *weights_name(const bppsa_cli *cli, const bppsa_flops *net) {
  const bppsa_option_value *path = bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS);
  return path->given ? path->text : net->pruned || net->values ? "random" : "all";
}

static json_t *flops_json(const bppsa_cli *cli, const bppsa_flops *net) {
  char dominant[DOMINANT_TEXT], conclusion[CONCLUSION_TEXT];
  const bppsa_scan_config *config = bppsa_scan_plan_config(net->plan);
  double step[2];
  step_ratios(net, &step[0], &step[1]);
  dominant_text(net, dominant, sizeof dominant);
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "network", cli->object);
  ok = ok && bppsa_json_put_integer(object, "elements", net->count + 1);
  ok = ok && bppsa_json_put_text(object, "algorithm", bppsa_scan_algorithm_name(config->method.algorithm));
  ok = ok && bppsa_json_put_integer(object, "up_levels", config->method.up_levels);
  ok = ok && bppsa_json_put_text(object, "pattern", pattern_name(net));
  ok = ok && bppsa_json_put_integer(object, "samples", net->samples);
  ok = ok && bppsa_json_put_text(object, "method", bppsa_cli_value(cli, BPPSA_OPTION_METHOD)->text);
  ok = ok && bppsa_json_put_text(object, "weights", weights_name(cli, net));
  ok = ok && bppsa_json_put_integer(object, "seed", bppsa_cli_value(cli, BPPSA_OPTION_SEED)->integer);
  ok = ok && bppsa_json_put_real(object, "prune", bppsa_cli_value(cli, BPPSA_OPTION_PRUNE)->real);
  ok = ok && bppsa_flops_mask_json(cli, object);
  ok = ok && bppsa_json_put_text(object, "dtype", bppsa_dtype_name(config->dtype));
  ok = ok && bppsa_json_put_integer(object, "batch", config->batch);
  ok = ok && bppsa_json_put(object, "operators", operators_json(net));
  ok = ok && bppsa_json_put(object, "levels", bppsa_plan_levels_json(net->plan));
  ok = ok && bppsa_json_put(object, "steps", bppsa_flops_steps_json(net));
  ok = ok && bppsa_json_put(object, "totals", bppsa_plan_totals_json(&net->totals));
  ok = ok && bppsa_json_put_integer(object, "baseline_flops", net->totals.bp_flops);
  ok = ok && bppsa_json_put_integer(object, "unpruned_baseline_flops", llround(net->unpruned.work.gradients));
  ok = ok && bppsa_json_put_integer(object, "weight_flops", llround(net->work.besides));
  ok = ok && bppsa_flops_ratios_json(object, net);
  ok = ok && bppsa_json_put_real(object, "largest_step_of_bp", step[0]);
  ok = ok && bppsa_json_put_real(object, "largest_step_of_unpruned_bp", step[1]);
  ok = ok && bppsa_json_put_text(object, "dominant", dominant);
  ok = ok && bppsa_json_put_text(object, "conclusion", conclusion_text(net, conclusion, sizeof conclusion));
  ok = ok && bppsa_json_put(object, "automatic", automatic_json(net));
  return bppsa_json_finish(object, ok);
}

/* ---- for people ---- */

static bppsa_status print_operators(bppsa_cli *cli, const bppsa_flops *net) {
  char csr[BPPSA_SI_TEXT], flops[BPPSA_SI_TEXT];
  BPPSA_TRY(bppsa_cli_print(cli, "  operator      rows      cols         nnz  sparsity   CSR         BP FLOP\n"));
  for (int64_t i = 0; i < net->count; ++i) {
    const bppsa_csr counted = counted_pattern(net, i), *c = &counted;
    const bool unused = i == 0 && !bppsa_scan_plan_config(net->plan)->input; /* J_1ᵀ gives the input's gradient alone */
    BPPSA_TRY(
        bppsa_cli_print(cli, "  %-8s%10" PRId64 "%10" PRId64 "%12" PRId64 "  %8.6f  %-10s  %s\n",
                        net->network.layers.layers[i].name, c->rows, c->cols, c->nnz, bppsa_csr_sparsity(c),
                        bppsa_cli_si((double)bppsa_csr_bytes(c, bppsa_scan_plan_config(net->plan)->dtype), "B", csr, sizeof csr),
                        unused ? "-" : bppsa_cli_si((double)net->operators[i].bp_flops, "", flops, sizeof flops)));
  }
  return BPPSA_OK;
}

bppsa_status bppsa_flops_print_steps(bppsa_cli *cli, const bppsa_flops *net) {
  char left[BPPSA_RANGE_TEXT], right[BPPSA_RANGE_TEXT], shape[80], nnz[BPPSA_SI_TEXT], flops[BPPSA_SI_TEXT];
  BPPSA_TRY(bppsa_cli_print(cli, "\n level  phase   op    m x k x n                nnz       FLOP      product\n"));
  for (int64_t i = 0; i < net->step_count; ++i) {
    const bppsa_scan_step step = net->steps[i];
    bppsa_plan_operands(net->names, net->count, &step, left, right);
    snprintf(shape, sizeof shape, "%" PRId64 " x %" PRId64 " x %" PRId64, step.m, step.k, step.n);
    BPPSA_TRY(bppsa_cli_print(cli, " %5d  %-6s  %-4s  %-23s  %-8s  %-8s  [%s]·[%s]%s\n", (int)step.level->level,
                              bppsa_scan_phase_name(step.level->phase), step.copy ? "copy" : bppsa_scan_op_name(step.level->op),
                              shape, bppsa_cli_si((double)step.nnz, "", nnz, sizeof nnz),
                              bppsa_cli_si((double)step.flops, "", flops, sizeof flops), left, right,
                              step.level->dead ? "  dead, never run"
                              : step.critical  ? "  critical"
                                               : ""));
  }
  return BPPSA_OK;
}

/* "2 up-levels", or that there is no scan. */
static const char *levels_text(const bppsa_flops *net, char *text, size_t size) {
  if (is_chain(net)) {
    snprintf(text, size, "a chain of %" PRId64 ", no scan", net->totals.critical_steps);
  } else {
    snprintf(text, size, "%" PRId64 " up-levels", bppsa_scan_plan_config(net->plan)->method.up_levels);
  }
  return text;
}

/* All of the scan and its critical path, over BP of the same patterns or with all weights. */
static bppsa_status print_ratios(bppsa_cli *cli, const char *beside, const bppsa_work *work, const bppsa_work *bp) {
  const bppsa_work_ratios ratios = bppsa_work_over(work, bp);
  char text[BPPSA_WORK_TEXT], flops[BPPSA_SI_TEXT], critical[BPPSA_RATIO_TEXT];
  return bppsa_cli_print(cli, "  %-17s  %s; the scan has %s,\n                     its critical path %s times\n", beside,
                         bppsa_cli_si(bp->gradients, "FLOP", flops, sizeof flops),
                         bppsa_work_text(&ratios, "layers", text, sizeof text), bppsa_work_ratio(ratios.critical, critical));
}

static bppsa_status print_totals(bppsa_cli *cli, const bppsa_flops *net) {
  const bppsa_scan_totals *t = &net->totals;
  char text[4][BPPSA_SI_TEXT];
  BPPSA_TRY(bppsa_cli_print(cli,
                            "\n  products           %" PRId64 " mat-mat (%" PRId64 " dead), %" PRId64 " mat-vec\n"
                            "  FLOPs              %s mat-mat, %s mat-vec\n"
                            "  critical path      %" PRId64 " products, %s\n",
                            t->mm, t->dead, t->mv, bppsa_cli_si((double)t->mm_flops, "", text[0], sizeof text[0]),
                            bppsa_cli_si((double)t->mv_flops, "", text[1], sizeof text[1]), t->critical_steps,
                            bppsa_cli_si((double)t->critical_flops, "FLOP", text[2], sizeof text[2])));
  BPPSA_TRY(print_ratios(cli, is_thinned(net) ? "BP, same patterns" : "BP", &net->work, &net->bp));
  if (is_thinned(net)) {
    BPPSA_TRY(print_ratios(cli, "BP, all weights", &net->work, &net->unpruned.work));
  }
  return bppsa_cli_print(cli, "  products held      %s for a batch of %" PRId64 "\n",
                         bppsa_cli_si((double)t->workspace_bytes, "B", text[3], sizeof text[3]),
                         bppsa_scan_plan_config(net->plan)->batch);
}

static bppsa_status print_network(bppsa_cli *cli, const bppsa_flops *net) {
  char dominant[DOMINANT_TEXT], conclusion[CONCLUSION_TEXT], levels[64], text[BPPSA_SI_TEXT];
  const bppsa_option_value *mask = bppsa_cli_value(cli, BPPSA_OPTION_MASK);
  const double pruned = bppsa_cli_value(cli, BPPSA_OPTION_PRUNE)->real;
  dominant_text(net, dominant, sizeof dominant);
  BPPSA_TRY(bppsa_cli_print(cli, "%s, %s patterns, weights: %s%s%s, %.4g %% pruned%s%s, %s; FLOPs a sample%s\n\n", cli->object,
                            pattern_name(net), weights_name(cli, net), mask->given ? ", mask: " : "",
                            mask->given ? mask->text : "", 100 * pruned, pruned > 0 ? ", " : "",
                            pruned > 0 ? bppsa_cli_value(cli, BPPSA_OPTION_METHOD)->text : "",
                            levels_text(net, levels, sizeof levels), net->samples > 1 ? ", the mean" : ""));
  BPPSA_TRY(print_operators(cli, net));
  BPPSA_TRY(bppsa_flops_print_steps(cli, net));
  BPPSA_TRY(print_totals(cli, net));
  BPPSA_TRY(bppsa_cli_print(cli, "  dominating step    %s\n  conclusion         %s\n", dominant,
                            conclusion_text(net, conclusion, sizeof conclusion)));
  return net->automatic == NULL
             ? BPPSA_OK
             : bppsa_cli_print(
                   cli, "  auto would take    %" PRId64 " up-levels%s: %s on the critical path\n",
                   bppsa_scan_plan_config(net->automatic)->method.up_levels,
                   bppsa_scan_plan_config(net->automatic)->method.up_levels == 0 ? " (no scan)" : "",
                   bppsa_cli_si((double)bppsa_scan_plan_totals(net->automatic)->critical_flops, "FLOP", text, sizeof text));
}

/* ---- the command ---- */

bppsa_status bppsa_flops_draw(const bppsa_cli *cli, const bppsa_flops *net) {
  const bppsa_option_value *svg = bppsa_cli_value(cli, BPPSA_OPTION_SVG);
  const bppsa_plan_picture picture = {.plan = net->plan, .names = net->names, .steps = net->steps};
  bppsa_text drawing = {0};
  if (!svg->given) {
    return BPPSA_OK;
  }
  bppsa_status status = bppsa_plan_draw(&picture, &drawing);
  status = status == BPPSA_OK ? bppsa_file_write(svg->text, drawing.text, drawing.size) : bppsa_fail_prefix(status, "--svg");
  bppsa_text_free(&drawing);
  return status;
}

bppsa_status bppsa_flops_check_paths(const bppsa_cli *cli) {
  static const bppsa_option read[] = {BPPSA_OPTION_WEIGHTS, BPPSA_OPTION_MASK, BPPSA_OPTION_INPUT, BPPSA_OPTION_LABELS};
  BPPSA_TRY(bppsa_cli_check_output(cli, BPPSA_OPTION_SVG));
  for (size_t i = 0; i < sizeof read / sizeof read[0]; ++i) {
    BPPSA_TRY(bppsa_cli_check_distinct(cli, read[i], BPPSA_OPTION_SVG));
  }
  return BPPSA_OK;
}

/* Everything that needs memory comes before the drawing's file and before what is printed. */
static bppsa_status show(bppsa_cli *cli, const bppsa_flops *flops, char **document) {
  if (cli->json) {
    bppsa_json_start();
    BPPSA_TRY(bppsa_cli_render(flops_json(cli, flops), document));
  }
  BPPSA_TRY(bppsa_flops_draw(cli, flops));
  return cli->json ? bppsa_cli_print_document(cli, *document) : print_network(cli, flops);
}

static bppsa_status run(bppsa_cli *cli) {
  bppsa_flops flops = {0};
  char *document = NULL;
  BPPSA_TRY(bppsa_flops_check_paths(cli));
  bppsa_status status = bppsa_flops_count(cli, &flops);
  status = status == BPPSA_OK ? show(cli, &flops, &document) : status;
  bppsa_free(document);
  bppsa_flops_free(&flops);
  return status;
}

const bppsa_command bppsa_command_flops_vgg11 = {.verb = "flops",
                                                 .object = "vgg11",
                                                 .summary = "Counts the FLOPs of every step of VGG-11's sparse scan",
                                                 .example = "flops vgg11 --prune 0.97 --up-levels 2",
                                                 .notes = notes,
                                                 .uses = uses,
                                                 .run = run};

const bppsa_command bppsa_command_flops_lenet5 = {.verb = "flops",
                                                  .object = "lenet5",
                                                  .summary = "Counts the FLOPs of every step of LeNet-5's sparse scan",
                                                  .example = "flops lenet5 --up-levels 2",
                                                  .notes = notes,
                                                  .uses = uses,
                                                  .run = run};

const bppsa_command bppsa_command_flops_file = {.verb = "flops",
                                                .object = BPPSA_FILE_OBJECT,
                                                .summary = "Counts the FLOPs of every step of a network file's sparse scan",
                                                .example = "flops net.json --prune 0.9 --up-levels auto",
                                                .notes = notes,
                                                .uses = uses,
                                                .run = run};
