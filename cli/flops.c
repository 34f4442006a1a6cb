/* `bppsa flops NETWORK`: what every step of the sparse scan costs, counted from patterns that are known ahead of any input (BPPSA §4.3, figure 10).
 *
 * Operators count as the paper has them: products 2 FLOP a matching pair; the BP baseline 2·nnz where there are weights, rows + nnz for
 * ReLUs, rows + columns for pools. Patterns are those of the operators' structure: nothing of a Jacobian's size is made.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/plan_json.h"
#include "cli/setup.h"
#include "core/alloc.h"
#include "jacobian/jacobian.h"
#include "jacobian/network.h"

static const bppsa_option_use uses[] = {
    {.option = BPPSA_OPTION_PRUNE},
    {.option = BPPSA_OPTION_FLOPS_PATTERN},
    {.option = BPPSA_OPTION_LEVELS},
    {.option = BPPSA_OPTION_INPUT_GRAD, .help = "list the step to the input's gradient too"},
    {.option = BPPSA_OPTION_BATCH, .fallback = "1", .help = "samples whose products are held"},
    {.option = BPPSA_OPTION_DTYPE},
    {.option = BPPSA_OPTION_MEMORY_LIMIT, .help = "of held products: auto takes fewer levels, a given number is refused"},
    {.option = BPPSA_OPTION_JSON},
    {.option = BPPSA_OPTION_HELP},
    {.option = BPPSA_OPTION_COUNT}};

enum { NAME_TEXT = 200 };

typedef struct {
  bppsa_device *device;
  int64_t count;
  bppsa_named_op ops[BPPSA_NETWORK_OPS];
  bppsa_jacobian *jacobians[BPPSA_NETWORK_OPS];
  const bppsa_csr *patterns[BPPSA_NETWORK_OPS];
  bppsa_scan_plan *plan;      /* as asked */
  bppsa_scan_plan *automatic; /* what auto would choose; NULL: nothing fits */
} network;

static int64_t baseline(const network *net, int64_t i) {
  const bppsa_csr *c = net->patterns[i];
  return bppsa_op_baseline_flops(&net->ops[i].op, c->rows, c->cols, c->nnz);
}

static int64_t baseline_sum(const network *net) {
  int64_t sum = 0;
  for (int64_t i = 0; i < net->count; ++i) {
    sum += baseline(net, i);
  }
  return sum;
}

/* a[first:last] by the names of its operators, "relu5·conv6": element i is the transposed Jacobian of operator n - i + 1. */
static void range_name(const network *net, int64_t first, int64_t last, char *text, size_t size) {
  size_t used = 0;
  text[0] = '\0';
  for (int64_t i = last; i >= first && used < size; --i) {
    used += (size_t)snprintf(text + used, size - used, "%s%s", i == last ? "" : "·", net->ops[net->count - i].name);
  }
}

/* The most expensive step on the critical path, in words. */
static void dominant_text(const network *net, char *text, size_t size) {
  const bppsa_scan_totals *t = bppsa_scan_plan_totals(net->plan);
  bppsa_scan_iterator it = {0};
  bppsa_scan_step step, most = {.flops = -1};
  while (bppsa_scan_plan_next(net->plan, &it, &step)) {
    most = step.critical && step.flops > most.flops ? step : most;
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

/* ---- JSON ---- */

static json_t *operators_json(const network *net) {
  json_t *array = json_array();
  bool ok = array != NULL;
  for (int64_t i = 0; ok && i < net->count; ++i) {
    const bppsa_csr *c = net->patterns[i];
    json_t *object = json_object();
    bool filled = object != NULL && bppsa_json_put_text(object, "name", net->ops[i].name);
    filled = filled && bppsa_json_put_integer(object, "rows", c->rows);
    filled = filled && bppsa_json_put_integer(object, "cols", c->cols);
    filled = filled && bppsa_json_put_integer(object, "nnz", c->nnz);
    filled = filled && bppsa_json_put_real(object, "sparsity", bppsa_csr_sparsity(c));
    filled = filled && bppsa_json_put_integer(object, "csr_bytes", bppsa_csr_bytes(c, bppsa_scan_plan_config(net->plan)->dtype));
    filled = filled && bppsa_json_put_integer(object, "baseline_flops", baseline(net, i));
    ok = json_array_append_new(array, bppsa_json_finish(object, filled)) == 0;
  }
  return bppsa_json_finish(array, ok);
}

static json_t *automatic_json(const network *net) {
  json_t *object = json_object();
  bool ok = object != NULL;
  if (net->automatic != NULL) {
    ok = ok && bppsa_json_put_integer(object, "up_levels", bppsa_scan_plan_config(net->automatic)->up_levels);
    ok = ok && bppsa_json_put_integer(object, "critical_flops", bppsa_scan_plan_totals(net->automatic)->critical_flops);
  }
  return bppsa_json_finish(object, ok);
}

static json_t *flops_json(const bppsa_cli *cli, const network *net) {
  char dominant[3 * NAME_TEXT];
  const bppsa_scan_config *config = bppsa_scan_plan_config(net->plan);
  dominant_text(net, dominant, sizeof dominant);
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "network", cli->command->object);
  ok = ok && bppsa_json_put_integer(object, "elements", net->count + 1);
  ok = ok && bppsa_json_put_text(object, "algorithm", bppsa_scan_algorithm_name(config->algorithm));
  ok = ok && bppsa_json_put_integer(object, "up_levels", config->up_levels);
  ok = ok && bppsa_json_put_text(object, "pattern", bppsa_cli_value(cli, BPPSA_OPTION_FLOPS_PATTERN)->text);
  ok = ok && bppsa_json_put_real(object, "prune", bppsa_cli_value(cli, BPPSA_OPTION_PRUNE)->real);
  ok = ok && bppsa_json_put_text(object, "dtype", bppsa_dtype_name(config->dtype));
  ok = ok && bppsa_json_put_integer(object, "batch", config->batch);
  ok = ok && bppsa_json_put(object, "operators", operators_json(net));
  ok = ok && bppsa_json_put(object, "levels", bppsa_plan_levels_json(net->plan));
  ok = ok && bppsa_json_put(object, "steps", bppsa_plan_steps_json(net->plan));
  ok = ok && bppsa_json_put(object, "totals", bppsa_plan_totals_json(net->plan));
  ok = ok && bppsa_json_put_integer(object, "baseline_flops", baseline_sum(net));
  ok = ok && bppsa_json_put_text(object, "dominant", dominant);
  ok = ok && bppsa_json_put(object, "auto", automatic_json(net));
  return bppsa_json_finish(object, ok);
}

/* ---- for people ---- */

static bppsa_status print_operators(bppsa_cli *cli, const network *net) {
  char csr[BPPSA_SI_TEXT], flops[BPPSA_SI_TEXT];
  BPPSA_TRY(bppsa_cli_print(cli, "  operator      rows      cols         nnz  sparsity   CSR         BP FLOP\n"));
  for (int64_t i = 0; i < net->count; ++i) {
    const bppsa_csr *c = net->patterns[i];
    BPPSA_TRY(
        bppsa_cli_print(cli, "  %-8s%10" PRId64 "%10" PRId64 "%12" PRId64 "  %8.6f  %-10s  %s\n", net->ops[i].name, c->rows,
                        c->cols, c->nnz, bppsa_csr_sparsity(c),
                        bppsa_cli_si((double)bppsa_csr_bytes(c, bppsa_scan_plan_config(net->plan)->dtype), "B", csr, sizeof csr),
                        bppsa_cli_si((double)baseline(net, i), "", flops, sizeof flops)));
  }
  return BPPSA_OK;
}

static bppsa_status print_steps(bppsa_cli *cli, const network *net) {
  bppsa_scan_iterator it = {0};
  bppsa_scan_step step;
  char left[NAME_TEXT], right[NAME_TEXT], shape[80], nnz[BPPSA_SI_TEXT], flops[BPPSA_SI_TEXT];
  BPPSA_TRY(bppsa_cli_print(cli, "\n level  phase   op    m x k x n                nnz       FLOP      product\n"));
  while (bppsa_scan_plan_next(net->plan, &it, &step)) {
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

static bppsa_status print_network(bppsa_cli *cli, const network *net) {
  const bppsa_scan_totals *t = bppsa_scan_plan_totals(net->plan);
  char dominant[3 * NAME_TEXT], text[6][BPPSA_SI_TEXT];
  dominant_text(net, dominant, sizeof dominant);
  BPPSA_TRY(bppsa_cli_print(cli, "%s, guaranteed patterns, %" PRId64 " up-levels; FLOPs a sample\n\n", cli->command->object,
                            bppsa_scan_plan_config(net->plan)->up_levels));
  BPPSA_TRY(print_operators(cli, net));
  BPPSA_TRY(print_steps(cli, net));
  const double mm = (double)t->mm_flops, mv = (double)t->mv_flops, critical = (double)t->critical_flops;
  const double sum = (double)baseline_sum(net);
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
  return net->automatic == NULL ? BPPSA_OK
                                : bppsa_cli_print(cli, "  auto would take    %" PRId64 " up-levels: %s on the critical path\n",
                                                  bppsa_scan_plan_config(net->automatic)->up_levels,
                                                  bppsa_cli_si((double)bppsa_scan_plan_totals(net->automatic)->critical_flops,
                                                               "FLOP", text[5], sizeof text[5]));
}

/* ---- the command ---- */

static bppsa_status parse_levels(const bppsa_cli *cli, bppsa_scan_config *config) {
  const bppsa_option_value *value = bppsa_cli_value(cli, BPPSA_OPTION_LEVELS);
  bppsa_option_value number;
  if (strcmp(value->text, "auto") == 0) {
    config->algorithm = BPPSA_SCAN_AUTO;
    return BPPSA_OK;
  }
  if (bppsa_option_parse(BPPSA_OPTION_UP_LEVELS, value->text, &number) != BPPSA_OK) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--up-levels: '%s', expected %s", value->text,
                      bppsa_option_get(BPPSA_OPTION_LEVELS)->expected);
  }
  config->algorithm = BPPSA_SCAN_BLELLOCH;
  config->up_levels = number.integer;
  return BPPSA_OK;
}

static bppsa_status make_plans(const bppsa_cli *cli, network *net) {
  bppsa_scan_config config = bppsa_scan_config_default();
  BPPSA_TRY(parse_levels(cli, &config));
  BPPSA_TRY(bppsa_network_table(cli->command->object, net->ops, &net->count));
  BPPSA_TRY(bppsa_device_create("cpu", 1, &net->device));
  for (int64_t i = 0; i < net->count; ++i) {
    BPPSA_TRY(bppsa_jacobian_create(&net->ops[i].op, NULL, true, net->device, &net->jacobians[i]));
    net->patterns[i] = bppsa_jacobian_pattern(net->jacobians[i]);
  }
  config.element = BPPSA_ELEMENT_CSR;
  config.jacobians = net->count;
  config.patterns = net->patterns;
  config.planner = net->device;
  config.symbolic = true;
  config.input = bppsa_cli_value(cli, BPPSA_OPTION_INPUT_GRAD)->given;
  config.batch = bppsa_cli_value(cli, BPPSA_OPTION_BATCH)->integer;
  config.memory_limit = bppsa_cli_value(cli, BPPSA_OPTION_MEMORY_LIMIT)->integer;
  BPPSA_TRY(bppsa_dtype_parse(bppsa_cli_value(cli, BPPSA_OPTION_DTYPE)->text, &config.dtype));
  BPPSA_TRY(bppsa_scan_plan_create(&config, &net->plan));
  config.algorithm = BPPSA_SCAN_AUTO;
  return bppsa_scan_plan_create(&config, &net->automatic);
}

static bppsa_status run(bppsa_cli *cli) {
  network net = {0};
  bppsa_status status = make_plans(cli, &net);
  if (status == BPPSA_OK) {
    bppsa_json_start();
    status = cli->json ? bppsa_cli_print_json(cli, flops_json(cli, &net)) : print_network(cli, &net);
  }
  bppsa_scan_plan_destroy(net.plan);
  bppsa_scan_plan_destroy(net.automatic);
  for (int64_t i = 0; i < net.count; ++i) {
    bppsa_jacobian_destroy(net.jacobians[i]);
  }
  bppsa_device_destroy(net.device);
  return status;
}

const bppsa_command bppsa_command_flops_vgg11 = {.verb = "flops",
                                                 .object = "vgg11",
                                                 .summary = "Counts the FLOPs of every step of VGG-11's sparse scan",
                                                 .example = "flops vgg11 --up-levels 2",
                                                 .uses = uses,
                                                 .run = run};

const bppsa_command bppsa_command_flops_lenet5 = {.verb = "flops",
                                                  .object = "lenet5",
                                                  .summary = "Counts the FLOPs of every step of LeNet-5's sparse scan",
                                                  .example = "flops lenet5 --up-levels 2",
                                                  .uses = uses,
                                                  .run = run};
