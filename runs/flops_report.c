/* Counts of a sparse scan as JSON, as text and as a picture. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "core/base/decimal.h"
#include "networks/planner.h"
#include "runs/flops.h"
#include "runs/plan_draw.h"
#include "scan/plan_json.h"

/* Names the source of the weights that decide what is counted. */
static const char *weights_name(const bppsa_flops *net) {
  const char *path = net->request.weights;
  return path != NULL ? path : net->pruned || net->request.values ? "random" : "all";
}

static const char *pattern_name(const bppsa_flops *f) {
  return f->request.values ? "value" : "guaranteed";
}

/* Returns the share of weights that --prune, a mask or a file leaves out; biases do not count. */
static double pruned_share(const bppsa_flops *f) {
  int64_t all = 0, gone = 0;
  for (int64_t i = 0; i <= f->count; ++i) {
    all += f->layers[i].weights;
    gone += f->layers[i].weights - f->layers[i].kept;
  }
  return (double)gone / (double)all; /* the head has weights */
}

/* Returns the most expensive step on the critical path, or NULL if no step is on it. */
static const bppsa_scan_step *dominant_step(const bppsa_flops *net) {
  const bppsa_scan_step *most = NULL;
  for (int64_t i = 0; i < net->step_count; ++i) {
    const bppsa_scan_step *step = &net->steps[i];
    most = step->critical && (most == NULL || step->flops > most->flops) ? step : most;
  }
  return most;
}

const char *bppsa_flops_dominant(const bppsa_flops *net, char *text, size_t size) {
  const bppsa_scan_totals *t = &net->totals;
  const bppsa_scan_step *most = dominant_step(net);
  char left[BPPSA_RANGE_TEXT], right[BPPSA_RANGE_TEXT];
  if (most == NULL) {
    snprintf(text, size, "no step");
    return text;
  }
  const bool mm = most->level->op == BPPSA_OP_MM;
  bppsa_plan_operands(net->names, net->count, most, left, right);
  bppsa_print(text, size,
              mm ? "[%s]·[%s]: %.3g FLOP, %.0f %% of the critical path" : "[%s]·%s: %.3g FLOP, %.0f %% of the critical path",
              left, mm ? right : "g", (double)most->flops,
              t->critical_flops > 0 ? 100 * (double)most->flops / (double)t->critical_flops : 0);
  return text;
}

/* Returns the operator's size and number of entries as a pattern without arrays. */
static bppsa_csr counted_pattern(const bppsa_flops *net, int64_t i) {
  const bppsa_flops_operator *o = &net->operators[i];
  return (bppsa_csr){.rows = o->rows, .cols = o->cols, .nnz = llround(o->nnz)};
}

/* Are weights or entries left out, so that BP with all of them has more FLOPs? */
static bool is_thinned(const bppsa_flops *net) {
  return net->pruned || net->request.values;
}

static bool is_chain(const bppsa_flops *net) {
  return bppsa_scan_plan_is_chain(net->plan);
}

/* Divides the scan's most expensive step by BP's, over the same patterns and with all weights. */
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

/* Says in a sentence what follows from the counts: how the critical path and its largest step compare with BP's, and whether
 * these patterns are known before a run. */
const char *bppsa_flops_conclusion(const bppsa_flops *net, char *text, size_t size) {
  const double same = bppsa_work_over(&net->work, &net->bp).critical;
  const double whole = bppsa_work_over(&net->work, &net->unpruned.work).critical;
  double step[2];
  char ratio[4][BPPSA_RATIO_TEXT], flops[BPPSA_SI_TEXT], beside[120] = "", steps[120] = "";
  step_ratios(net, &step[0], &step[1]);
  if (is_thinned(net)) {
    snprintf(beside, sizeof beside, ", %s times those of BP with all weights (%s)", bppsa_work_ratio(whole, ratio[0]),
             bppsa_text_si(net->unpruned.work.critical, "", flops, sizeof flops));
    snprintf(steps, sizeof steps, ", %s times with all weights", bppsa_work_ratio(step[1], ratio[1]));
  }
  const char *known = net->request.values ? "these patterns are known after the forward pass only, no plan made ahead has them"
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
  const bppsa_scan_method *scan = &bppsa_scan_plan_config(net->automatic)->method;
  bool ok = object != NULL && bppsa_json_put_integer(object, "up_levels", scan->up_levels) && bppsa_scan_method_put(object, scan);
  ok = ok && bppsa_json_put_integer(object, "critical_flops", net->automatic_flops);
  return bppsa_json_finish(object, ok);
}

static bool put_ratios(json_t *object, const bppsa_flops *net) {
  const bppsa_work_ratios same = bppsa_work_over(&net->work, &net->bp), whole = bppsa_work_over(&net->work, &net->unpruned.work);
  return bppsa_work_json(object, "bp", &same) && bppsa_work_json(object, "unpruned_bp", &whole);
}

static json_t *steps_json(const bppsa_flops *net) {
  json_t *array = json_array();
  bool ok = array != NULL;
  for (int64_t i = 0; ok && i < net->step_count; ++i) {
    ok = json_array_append_new(array, bppsa_plan_step_json(net->plan, &net->steps[i])) == 0;
  }
  return bppsa_json_finish(array, ok);
}

static bool put_mask(json_t *object, const bppsa_flops *net) {
  const char *mask = net->request.mask;
  return mask != NULL ? bppsa_json_put_text(object, "mask", mask) : bppsa_json_put(object, "mask", json_null());
}

bool bppsa_flops_put_weights(json_t *object, const bppsa_flops *net) {
  const bppsa_flops_request *r = &net->request;
  bool ok = bppsa_json_put_text(object, "method", bppsa_prune_method_name(r->method));
  char structure[BPPSA_STRUCTURE_TEXT];
  ok = ok && bppsa_json_put_text(object, "structure", bppsa_prune_structure_text(r->structure, structure));
  ok = ok && bppsa_json_put_text(object, "weights", weights_name(net));
  ok = ok && bppsa_json_put_integer(object, "seed", (int64_t)r->seed);
  ok = ok && bppsa_json_put_real(object, "prune", r->prune);
  ok = ok && bppsa_json_put_real(object, "pruned_fraction", pruned_share(net));
  return ok && put_mask(object, net);
}

static bool put_request(json_t *object, const bppsa_flops *net) {
  const bppsa_flops_request *r = &net->request;
  const bppsa_scan_config *config = bppsa_scan_plan_config(net->plan);
  bool ok = bppsa_json_put_text(object, "network", r->network);
  ok = ok && bppsa_json_put_integer(object, "elements", net->count + 1);
  ok = ok && bppsa_scan_method_put(object, &config->method);
  ok = ok && bppsa_json_put_integer(object, "up_levels", config->method.up_levels);
  ok = ok && bppsa_json_put_text(object, "pattern", pattern_name(net));
  ok = ok && bppsa_json_put_integer(object, "samples", net->samples);
  ok = ok && bppsa_flops_put_weights(object, net);
  ok = ok && bppsa_json_put_text(object, "dtype", bppsa_dtype_name(config->dtype));
  return ok && bppsa_json_put_integer(object, "batch", config->batch);
}

/* Are counts estimated from rows drawn at random? */
static bool is_estimated(const bppsa_flops *net) {
  return net->totals.flops_error > 0;
}

/* Puts whether totals are estimated, with the standard errors of the scan's FLOPs and of its critical path; 0: exact. */
static bool put_errors(json_t *object, const bppsa_flops *net) {
  return bppsa_json_put_bool(object, "estimated", is_estimated(net)) &&
         bppsa_json_put_real(object, "flops_standard_error", net->totals.flops_error) &&
         bppsa_json_put_real(object, "critical_flops_standard_error", net->totals.critical_error);
}

json_t *bppsa_flops_json(const bppsa_flops *net) {
  char dominant[BPPSA_FLOPS_DOMINANT], conclusion[BPPSA_FLOPS_CONCLUSION];
  double step[2];
  step_ratios(net, &step[0], &step[1]);
  json_t *object = json_object();
  bool ok = object != NULL && put_request(object, net);
  ok = ok && bppsa_json_put(object, "operators", operators_json(net));
  ok = ok && bppsa_json_put(object, "levels", bppsa_plan_levels_json(net->plan));
  ok = ok && bppsa_json_put(object, "steps", steps_json(net));
  ok = ok && bppsa_json_put(object, "totals", bppsa_plan_totals_json(&net->totals)) && put_errors(object, net);
  ok = ok && bppsa_json_put_integer(object, "baseline_flops", net->totals.bp_flops);
  ok = ok && bppsa_json_put_integer(object, "unpruned_baseline_flops", llround(net->unpruned.work.gradients));
  ok = ok && bppsa_json_put_integer(object, "weight_flops", llround(net->work.besides));
  ok = ok && put_ratios(object, net);
  ok = ok && bppsa_json_put_real(object, "largest_step_of_bp", step[0]);
  ok = ok && bppsa_json_put_real(object, "largest_step_of_unpruned_bp", step[1]);
  ok = ok && bppsa_json_put_text(object, "dominant", bppsa_flops_dominant(net, dominant, sizeof dominant));
  ok = ok && bppsa_json_put_text(object, "conclusion", bppsa_flops_conclusion(net, conclusion, sizeof conclusion));
  ok = ok && bppsa_json_put(object, "automatic", automatic_json(net));
  ok = ok && bppsa_layer_table_put(object, net);
  return bppsa_json_finish(object, ok);
}

json_t *bppsa_flops_plan_json(const bppsa_flops *net) {
  const bppsa_scan_config *config = bppsa_scan_plan_config(net->plan);
  const bppsa_gradient_method method = bppsa_scan_plan_method(net->plan);
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "model", net->request.network);
  ok = ok && bppsa_json_put_integer(object, "elements", net->count + 1);
  ok = ok && bppsa_gradient_method_put(object, &method);
  ok = ok && bppsa_json_put_integer(object, "batch", config->batch);
  ok = ok && bppsa_json_put_text(object, "dtype", bppsa_dtype_name(config->dtype));
  ok = ok && bppsa_json_put_bool(object, "pruned", net->pruned);
  ok = ok && put_mask(object, net);
  ok = ok && bppsa_json_put(object, "levels", bppsa_plan_levels_json(net->plan));
  ok = ok && bppsa_json_put(object, "steps", steps_json(net));
  ok = ok && bppsa_json_put(object, "totals", bppsa_plan_totals_json(&net->totals)) && put_errors(object, net);
  ok = ok && put_ratios(object, net);
  return bppsa_json_finish(object, ok);
}

/* ---- for people ---- */

/* " +- 1.5 %", the standard error of an estimate; "" where a count is exact. */
#define ERROR_TEXT 40
static const char *error_text(double flops, double error, char text[ERROR_TEXT]) {
  text[0] = 0;
  if (error > 0) {
    bppsa_print(text, ERROR_TEXT, " +- %.2g %%", flops > 0 ? 100 * error / flops : 0);
  }
  return text;
}

static void add_operators(const bppsa_flops *net, bppsa_text *text) {
  char csr[BPPSA_SI_TEXT], flops[BPPSA_SI_TEXT];
  const bppsa_scan_config *config = bppsa_scan_plan_config(net->plan);
  bppsa_text_add(text, "  operator      rows      cols         nnz  sparsity   CSR         BP FLOP\n");
  for (int64_t i = 0; i < net->count; ++i) {
    const bppsa_csr counted = counted_pattern(net, i), *c = &counted;
    const bool unused = i == 0 && !config->input; /* J_1ᵀ only serves the input's gradient */
    bppsa_text_add(text, "  %-8s%10" PRId64 "%10" PRId64 "%12" PRId64 "  %8.6f  %-10s  %s\n", net->names[i], c->rows, c->cols,
                   c->nnz, bppsa_csr_sparsity(c), bppsa_text_si((double)bppsa_csr_bytes(c, config->dtype), "B", csr, sizeof csr),
                   unused ? "-" : bppsa_text_si((double)net->operators[i].bp_flops, "", flops, sizeof flops));
  }
}

static void add_steps(const bppsa_flops *net, bppsa_text *text) {
  char left[BPPSA_RANGE_TEXT], right[BPPSA_RANGE_TEXT], shape[80], nnz[BPPSA_SI_TEXT], flops[BPPSA_SI_TEXT], error[ERROR_TEXT];
  bppsa_text_add(text, "\n level  phase   op    m x k x n                nnz       FLOP      product\n");
  for (int64_t i = 0; i < net->step_count; ++i) {
    const bppsa_scan_step step = net->steps[i];
    bppsa_plan_operands(net->names, net->count, &step, left, right);
    snprintf(shape, sizeof shape, "%" PRId64 " x %" PRId64 " x %" PRId64, step.m, step.k, step.n);
    bppsa_text_add(text, " %5d  %-6s  %-4s  %-23s  %-8s  %-8s%s  [%s]·[%s]%s\n", (int)step.level->level,
                   bppsa_scan_phase_name(step.level->phase), step.copy ? "copy" : bppsa_scan_op_name(step.level->op), shape,
                   bppsa_text_si((double)step.nnz, "", nnz, sizeof nnz),
                   bppsa_text_si((double)step.flops, "", flops, sizeof flops),
                   error_text((double)step.flops, step.flops_error, error), left, right,
                   step.level->dead ? "  dead, never run"
                   : step.critical  ? "  critical"
                                    : "");
  }
}

/* Writes "2 up-levels", or that the plan is no scan. */
static const char *levels_text(const bppsa_flops *net, char *text, size_t size) {
  if (is_chain(net)) {
    snprintf(text, size, "a chain of %" PRId64 ", no scan", net->totals.critical_steps);
  } else {
    snprintf(text, size, "%" PRId64 " up-levels", bppsa_scan_plan_config(net->plan)->method.up_levels);
  }
  return text;
}

static void add_totals(const bppsa_flops *net, bppsa_text *text) {
  const bppsa_scan_totals *t = &net->totals;
  char mm[BPPSA_SI_TEXT], mv[BPPSA_SI_TEXT], critical[BPPSA_SI_TEXT], all_error[ERROR_TEXT], critical_error[ERROR_TEXT];
  bppsa_text_add(text,
                 "\n  products           %" PRId64 " mat-mat (%" PRId64 " dead), %" PRId64 " mat-vec\n"
                 "  FLOPs              %s mat-mat, %s mat-vec%s\n"
                 "  critical path      %" PRId64 " products, %s%s\n",
                 t->mm, t->dead, t->mv, bppsa_text_si((double)t->mm_flops, "", mm, sizeof mm),
                 bppsa_text_si((double)t->mv_flops, "", mv, sizeof mv),
                 error_text((double)t->mm_flops + (double)t->mv_flops, t->flops_error, all_error), t->critical_steps,
                 bppsa_text_si((double)t->critical_flops, "FLOP", critical, sizeof critical),
                 error_text((double)t->critical_flops, t->critical_error, critical_error));
  if (is_estimated(net)) {
    bppsa_text_add(text, "  +-                 standard errors of counts that are estimated from rows drawn at random\n");
  }
}

/* Adds how many times as many FLOPs as this BP the scan and its critical path have. */
static void add_ratios(const char *beside, const bppsa_work *work, const bppsa_work *bp, bppsa_text *text) {
  const bppsa_work_ratios ratios = bppsa_work_over(work, bp);
  char words[BPPSA_WORK_TEXT], flops[BPPSA_SI_TEXT], critical[BPPSA_RATIO_TEXT];
  bppsa_text_add(text, "  %-17s  %s; the scan has %s,\n                     its critical path %s times\n", beside,
                 bppsa_text_si(bp->gradients, "FLOP", flops, sizeof flops),
                 bppsa_work_text(&ratios, "layers", words, sizeof words), bppsa_work_ratio(ratios.critical, critical));
}

static void add_held(const bppsa_flops *net, bppsa_text *text) {
  char bytes[BPPSA_SI_TEXT];
  bppsa_text_add(text, "  products held      %s for a batch of %" PRId64 "\n",
                 bppsa_text_si((double)net->totals.workspace_bytes, "B", bytes, sizeof bytes),
                 bppsa_scan_plan_config(net->plan)->batch);
}

void bppsa_flops_add_weights(const bppsa_flops *net, bppsa_text *text) {
  const bppsa_flops_request *r = &net->request;
  const bool structured = r->prune > 0 && r->structure.kind != BPPSA_STRUCTURE_ELEMENT;
  char structure[BPPSA_STRUCTURE_TEXT];
  bppsa_text_add(text, "weights: %s%s%s, %.4g %% pruned%s%s%s%s", weights_name(net), r->mask != NULL ? ", mask: " : "",
                 r->mask != NULL ? r->mask : "", 100 * pruned_share(net), r->prune > 0 ? ", " : "",
                 r->prune > 0 ? bppsa_prune_method_name(r->method) : "", structured ? ", structure " : "",
                 structured ? bppsa_prune_structure_text(r->structure, structure) : "");
}

static void add_title(const bppsa_flops *net, bppsa_text *text) {
  char levels[64];
  bppsa_text_add(text, "%s, %s patterns, ", net->request.network, pattern_name(net));
  bppsa_flops_add_weights(net, text);
  bppsa_text_add(text, ", %s; FLOPs a sample%s\n\n", levels_text(net, levels, sizeof levels),
                 net->samples > 1 ? ", the mean" : "");
}

void bppsa_flops_text(const bppsa_flops *net, bppsa_text *text) {
  char dominant[BPPSA_FLOPS_DOMINANT], conclusion[BPPSA_FLOPS_CONCLUSION], flops[BPPSA_SI_TEXT];
  const int64_t levels = bppsa_scan_plan_config(net->automatic)->method.up_levels;
  add_title(net, text);
  add_operators(net, text);
  add_steps(net, text);
  add_totals(net, text);
  add_ratios(is_thinned(net) ? "BP, same patterns" : "BP", &net->work, &net->bp, text);
  if (is_thinned(net)) {
    add_ratios("BP, all weights", &net->work, &net->unpruned.work, text);
  }
  add_held(net, text);
  bppsa_text_add(text, "  dominating step    %s\n  conclusion         %s\n", bppsa_flops_dominant(net, dominant, sizeof dominant),
                 bppsa_flops_conclusion(net, conclusion, sizeof conclusion));
  bppsa_text_add(text, "  auto would take    %" PRId64 " up-levels%s: %s on the critical path\n", levels,
                 levels == 0 ? " (no scan)" : "", bppsa_text_si((double)net->automatic_flops, "FLOP", flops, sizeof flops));
}

void bppsa_flops_plan_text(const bppsa_flops *net, bppsa_text *text) {
  const bppsa_chosen chosen = net->request.scan.algorithm == BPPSA_SCAN_AUTO ? BPPSA_CHOSEN_BY_ESTIMATE : BPPSA_CHOSEN_BY_OPTION;
  const bppsa_scan_config *config = bppsa_scan_plan_config(net->plan);
  char words[BPPSA_CHOSEN_TEXT];
  bppsa_text_add(text, "%s: %s, %" PRId64 " elements, %s weights, B %" PRId64 ", %s; FLOPs a sample\n", net->request.network,
                 bppsa_chosen_plan_text(chosen, net->plan, words, sizeof words), net->count + 1, net->pruned ? "some" : "all",
                 config->batch, bppsa_dtype_name(config->dtype));
  add_steps(net, text);
  add_totals(net, text);
  add_held(net, text);
}

/* ---- the picture ---- */

bppsa_status bppsa_flops_draw(const bppsa_flops *net, bppsa_text *drawing) {
  return bppsa_plan_draw(&(bppsa_plan_picture){.plan = net->plan, .names = net->names, .steps = net->steps}, drawing);
}
