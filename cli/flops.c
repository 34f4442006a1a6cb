/* `bppsa flops NETWORK`: what every step of the sparse scan costs (BPPSA §4.3, figure 10).
 *
 * Operators count as the paper has them: products 2 FLOP a matching pair; the BP baseline 2·nnz where there are weights, rows + nnz for
 * ReLUs, rows + columns for pools. flops_count.c has the patterns.
 */
#include "cli/flops.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/plan_json.h"

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
    {.option = BPPSA_OPTION_MEMORY_LIMIT, .help = "of held products: auto takes fewer levels, a given number is refused"},
    {.option = BPPSA_OPTION_JSON},
    {.option = BPPSA_OPTION_HELP},
    {.option = BPPSA_OPTION_COUNT}};

static const char notes[] = "Three kinds of patterns. Without --prune and --weights every weight counts, by the operators' "
                            "structure alone. With them, weights "
                            "that\n"
                            "are pruned or 0 are left out: these patterns are guaranteed, whatever the input, and execution uses "
                            "them. --pattern value leaves out "
                            "what\n"
                            "dead ReLUs and pools drop at real inputs too, as the published figure does; nothing could be "
                            "planned with those ahead of time.\n";

enum { NAME_TEXT = 200, CONCLUSION_TEXT = 320 };

static const char *pattern_name(const bppsa_flops *f) {
  return f->values ? "value" : "guaranteed";
}

/* a[first:last] by the names of its operators, "relu5·conv6": element i is the transposed Jacobian of operator n - i + 1. */
static void range_name(const bppsa_flops *net, int64_t first, int64_t last, char *text, size_t size) {
  size_t used = 0;
  text[0] = '\0';
  for (int64_t i = last; i >= first && used < size; --i) {
    used +=
        (size_t)snprintf(text + used, size - used, "%s%s", i == last ? "" : "·", net->network.layers.layers[net->count - i].name);
  }
}

/* The most expensive step on the critical path, in words. */
static void dominant_text(const bppsa_flops *net, char *text, size_t size) {
  const bppsa_scan_totals *t = &net->totals;
  bppsa_scan_step most = {.flops = -1};
  for (int64_t i = 0; i < net->step_count; ++i) {
    most = net->steps[i].critical && net->steps[i].flops > most.flops ? net->steps[i] : most;
  }
  char left[NAME_TEXT], right[NAME_TEXT] = "g";
  if (most.flops < 0) {
    snprintf(text, size, "no step");
    return;
  }
  const bool mm = most.level->op == BPPSA_OP_MM;
  range_name(net, mm ? most.split : most.first, most.last, left, sizeof left);
  if (mm) {
    range_name(net, most.first, most.split - 1, right, sizeof right);
  }
  snprintf(text, size,
           mm ? "[%s]·[%s]: %.3g FLOP, %.0f %% of the critical path" : "[%s]·%s: %.3g FLOP, %.0f %% of the critical path", left,
           right, (double)most.flops, t->critical_flops > 0 ? 100 * (double)most.flops / (double)t->critical_flops : 0);
}

/* The operator's size and number of entries, as counted. */
static bppsa_csr counted_pattern(const bppsa_flops *net, int64_t i) {
  const bppsa_flops_operator *o = &net->operators[i];
  return (bppsa_csr){.rows = o->rows, .cols = o->cols, .nnz = llround(o->nnz)};
}

/* What the count supports: the critical path beside BP, and whether a plan made ahead can have it. */
static const char *conclusion_text(const bppsa_flops *net, char *text, size_t size) {
  const double critical = (double)net->totals.critical_flops, own = (double)bppsa_flops_baseline_sum(net);
  const double whole = (double)net->unpruned;
  snprintf(text, size, "the critical path has %.3g times the FLOPs of BP here and %.3g times those of unpruned BP (%.3g): %s; %s",
           own > 0 ? critical / own : 0, whole > 0 ? critical / whole : 0, whole,
           critical < whole ? "below it, as figure 10 has it" : "above it, against figure 10",
           net->values ? "these patterns are known after the forward pass only, no plan made ahead has them"
                       : "these patterns hold for any input, a plan made ahead executes them");
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
    filled = filled && bppsa_json_put_integer(object, "baseline_flops", bppsa_flops_baseline(net, i));
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

json_t *bppsa_flops_steps_json(const bppsa_flops *net) {
  json_t *array = json_array();
  bool ok = array != NULL;
  for (int64_t i = 0; ok && i < net->step_count; ++i) {
    ok = json_array_append_new(array, bppsa_plan_step_json(net->plan, &net->steps[i])) == 0;
  }
  return bppsa_json_finish(array, ok);
}

/* Where the weights come from that decide what is counted. */
static const char *weights_name(const bppsa_cli *cli, const bppsa_flops *net) {
  const bppsa_option_value *path = bppsa_cli_value(cli, BPPSA_OPTION_WEIGHTS);
  return path->given ? path->text : net->pruned || net->values ? "random" : "all";
}

static json_t *flops_json(const bppsa_cli *cli, const bppsa_flops *net) {
  char dominant[3 * NAME_TEXT], conclusion[CONCLUSION_TEXT];
  const bppsa_scan_config *config = bppsa_scan_plan_config(net->plan);
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
  ok = ok && bppsa_json_put_text(object, "dtype", bppsa_dtype_name(config->dtype));
  ok = ok && bppsa_json_put_integer(object, "batch", config->batch);
  ok = ok && bppsa_json_put(object, "operators", operators_json(net));
  ok = ok && bppsa_json_put(object, "levels", bppsa_plan_levels_json(net->plan));
  ok = ok && bppsa_json_put(object, "steps", bppsa_flops_steps_json(net));
  ok = ok && bppsa_json_put(object, "totals", bppsa_plan_totals_json(&net->totals));
  ok = ok && bppsa_json_put_integer(object, "baseline_flops", bppsa_flops_baseline_sum(net));
  ok = ok && bppsa_json_put_integer(object, "unpruned_baseline_flops", net->unpruned);
  ok = ok && bppsa_json_put_text(object, "dominant", dominant);
  ok = ok && bppsa_json_put_text(object, "conclusion", conclusion_text(net, conclusion, sizeof conclusion));
  ok = ok && bppsa_json_put(object, "auto", automatic_json(net));
  return bppsa_json_finish(object, ok);
}

/* ---- for people ---- */

static bppsa_status print_operators(bppsa_cli *cli, const bppsa_flops *net) {
  char csr[BPPSA_SI_TEXT], flops[BPPSA_SI_TEXT];
  BPPSA_TRY(bppsa_cli_print(cli, "  operator      rows      cols         nnz  sparsity   CSR         BP FLOP\n"));
  for (int64_t i = 0; i < net->count; ++i) {
    const bppsa_csr counted = counted_pattern(net, i), *c = &counted;
    BPPSA_TRY(
        bppsa_cli_print(cli, "  %-8s%10" PRId64 "%10" PRId64 "%12" PRId64 "  %8.6f  %-10s  %s\n",
                        net->network.layers.layers[i].name, c->rows, c->cols, c->nnz, bppsa_csr_sparsity(c),
                        bppsa_cli_si((double)bppsa_csr_bytes(c, bppsa_scan_plan_config(net->plan)->dtype), "B", csr, sizeof csr),
                        bppsa_cli_si((double)bppsa_flops_baseline(net, i), "", flops, sizeof flops)));
  }
  return BPPSA_OK;
}

bppsa_status bppsa_flops_print_steps(bppsa_cli *cli, const bppsa_flops *net) {
  char left[NAME_TEXT], right[NAME_TEXT], shape[80], nnz[BPPSA_SI_TEXT], flops[BPPSA_SI_TEXT];
  BPPSA_TRY(bppsa_cli_print(cli, "\n level  phase   op    m x k x n                nnz       FLOP      product\n"));
  for (int64_t i = 0; i < net->step_count; ++i) {
    const bppsa_scan_step step = net->steps[i];
    const bool mm = step.level->op == BPPSA_OP_MM;
    range_name(net, mm ? step.split : step.first, step.last, left, sizeof left);
    snprintf(right, sizeof right, "g%" PRId64, net->count - step.first + 1);
    if (mm) {
      range_name(net, step.first, step.split - 1, right, sizeof right);
    }
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

static bppsa_status print_network(bppsa_cli *cli, const bppsa_flops *net) {
  const bppsa_scan_totals *t = &net->totals;
  char dominant[3 * NAME_TEXT], text[6][BPPSA_SI_TEXT];
  dominant_text(net, dominant, sizeof dominant);
  BPPSA_TRY(bppsa_cli_print(cli, "%s, %s patterns, weights: %s, %.4g %% pruned%s%s, %" PRId64 " up-levels; FLOPs a sample%s\n\n",
                            cli->object, pattern_name(net), weights_name(cli, net),
                            100 * bppsa_cli_value(cli, BPPSA_OPTION_PRUNE)->real, net->pruned ? ", " : "",
                            net->pruned ? bppsa_cli_value(cli, BPPSA_OPTION_METHOD)->text : "",
                            bppsa_scan_plan_config(net->plan)->method.up_levels, net->samples > 1 ? ", the mean" : ""));
  BPPSA_TRY(print_operators(cli, net));
  BPPSA_TRY(bppsa_flops_print_steps(cli, net));
  const double mm = (double)t->mm_flops, mv = (double)t->mv_flops, critical = (double)t->critical_flops;
  const double sum = (double)bppsa_flops_baseline_sum(net);
  BPPSA_TRY(bppsa_cli_print(cli,
                            "\n  products           %" PRId64 " mat-mat (%" PRId64 " dead), %" PRId64 " mat-vec\n"
                            "  FLOPs              %s mat-mat, %s mat-vec; BP %s\n"
                            "  critical path      %" PRId64 " products, %s, %.3g times BP\n"
                            "  products held      %s for a batch of %" PRId64 "\n"
                            "  dominating step    %s\n",
                            t->mm, t->dead, t->mv, bppsa_cli_si(mm, "", text[0], sizeof text[0]),
                            bppsa_cli_si(mv, "", text[1], sizeof text[1]), bppsa_cli_si(sum, "", text[2], sizeof text[2]),
                            t->critical_steps, bppsa_cli_si(critical, "FLOP", text[3], sizeof text[3]), critical / sum,
                            bppsa_cli_si((double)t->workspace_bytes, "B", text[4], sizeof text[4]),
                            bppsa_scan_plan_config(net->plan)->batch, dominant));
  char conclusion[CONCLUSION_TEXT];
  BPPSA_TRY(bppsa_cli_print(cli, "  conclusion         %s\n", conclusion_text(net, conclusion, sizeof conclusion)));
  return net->automatic == NULL ? BPPSA_OK
                                : bppsa_cli_print(cli, "  auto would take    %" PRId64 " up-levels: %s on the critical path\n",
                                                  bppsa_scan_plan_config(net->automatic)->method.up_levels,
                                                  bppsa_cli_si((double)bppsa_scan_plan_totals(net->automatic)->critical_flops,
                                                               "FLOP", text[5], sizeof text[5]));
}

/* ---- the command ---- */

static bppsa_status run(bppsa_cli *cli) {
  bppsa_flops flops = {0};
  bppsa_status status = bppsa_flops_count(cli, &flops);
  if (status == BPPSA_OK) {
    bppsa_json_start();
    status = cli->json ? bppsa_cli_print_json(cli, flops_json(cli, &flops)) : print_network(cli, &flops);
  }
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
