#include "runs/layer_plans.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/base/alloc.h"
#include "scan/plan_json.h"
#include "scan/work.h"
#include "train/objective.h"

static bppsa_status make_scans(const bppsa_recurrent_config *config, bppsa_layer_plans *plans) {
  bppsa_recurrent_config linear = *config;
  const bool scans = config->method.backward == BPPSA_BACKWARD_SCAN;
  linear.method.scan = scans ? config->method.scan : bppsa_scan_method_of(BPPSA_SCAN_LINEAR);
  for (int64_t layer = 0; layer < config->layers; ++layer) {
    bppsa_scan_config scan = bppsa_network_scan(plans->kind, &linear, layer);
    scan.device = plans->device;
    BPPSA_TRY(bppsa_scan_plan_create(&scan, &plans->plans[layer]));
  }
  return BPPSA_OK;
}

/* Counts what recompute saves. */
static bppsa_status count_bytes(const bppsa_recurrent_config *config, bppsa_layer_plans *plans) {
  bppsa_recurrent_config all = *config;
  bppsa_device *device = NULL;
  if (config->recompute == 0) {
    return BPPSA_OK;
  }
  if (plans->device != BPPSA_CPU) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "--recompute-every: on a GPU, expected --device cpu");
  }
  all.method.backward = BPPSA_BACKWARD_BP;
  all.recompute = 0;
  BPPSA_TRY(bppsa_device_create("cpu", 1, &device));
  bppsa_status status = bppsa_recurrent_count(config, plans->kind->cell, device, &plans->bytes);
  status = status == BPPSA_OK ? bppsa_recurrent_count(&all, plans->kind->cell, device, &plans->bytes_kept) : status;
  bppsa_device_destroy(device);
  return status;
}

static bppsa_status make(const bppsa_recurrent_config *config, bppsa_layer_plans *plans) {
  const bppsa_forward_shape shape = bppsa_recurrent_forward_shape(config, plans->kind->cell, plans->device,
                                                                  plans->device == BPPSA_CPU ? 0 : BPPSA_FORWARD_MULTIPROCESSORS);
  bppsa_recurrent_config chosen;
  BPPSA_TRY(count_bytes(config, plans));
  BPPSA_TRY(bppsa_network_choose(plans->kind, config, plans->device, &chosen));
  BPPSA_TRY(make_scans(&chosen, plans));
  BPPSA_TRY(bppsa_backward_report_make(plans->kind, config, &chosen, plans->device, &plans->backward));
  return bppsa_forward_plan_make(&config->forward, &shape, &plans->forward);
}

bppsa_status bppsa_layer_plans_make(const bppsa_network_kind *kind, const bppsa_recurrent_config *config,
                                    bppsa_device_kind device, const bppsa_rank_split *split, bppsa_layer_plans *plans) {
  if (config->bidirectional && split != NULL && split->time > 1) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "--bidirectional: given beside ranks that share time, expected --split batch");
  }
  if (config->method.backward == BPPSA_BACKWARD_SPECULATIVE && split != NULL && split->time > 0) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--backward: speculative beside --ranks, expected auto, bp or scan, or no ranks");
  }
  bppsa_layer_plans made = {
      .kind = kind, .config = *config, .device = device, .plans = bppsa_calloc(config->layers, sizeof *made.plans)};
  if (split != NULL && split->time > 0) {
    made.split = *split;
    if (config->method.backward == BPPSA_BACKWARD_AUTO) {
      made.config.speculation.chunks = 1; /* speculative BP is none of its candidates on ranks */
    }
  }
  const bppsa_status status = made.plans == NULL ? BPPSA_ERR_MEMORY : make(&made.config, &made);
  if (status != BPPSA_OK) {
    bppsa_layer_plans_free(&made);
    return status;
  }
  *plans = made;
  return BPPSA_OK;
}

void bppsa_layer_plans_free(bppsa_layer_plans *plans) {
  for (int64_t layer = 0; plans->plans != NULL && layer < plans->config.layers; ++layer) {
    bppsa_scan_plan_destroy(plans->plans[layer]);
  }
  bppsa_free(plans->plans);
  bppsa_backward_report_free(&plans->backward);
  *plans = (bppsa_layer_plans){0};
}

/* How often a pass goes through the plan of a layer: with recompute a scan does so in each segment. */
static double segments_of(const bppsa_recurrent_config *config) {
  return config->method.backward == BPPSA_BACKWARD_SCAN ? (double)bppsa_recurrent_segments(config) : 1;
}

/* Compares the work of a layer's plan with that of BP of the same layer. */
static bppsa_work_ratios layer_ratios(const bppsa_network_kind *kind, const bppsa_recurrent_config *config,
                                      const bppsa_scan_plan *plan, int64_t layer) {
  const bppsa_scan_totals *totals = bppsa_scan_plan_totals(plan);
  const double besides = bppsa_network_flops_besides(kind, config, layer) / segments_of(config);
  const bppsa_work work = bppsa_work_of_scan(totals, besides), bp = bppsa_work_of_bp(totals, besides);
  return bppsa_work_over(&work, &bp);
}

/* The method of a layer's plan; BP's plan is that of a linear scan. */
static bppsa_gradient_method method_of(const bppsa_layer_plans *plans, int64_t layer) {
  return plans->backward.method.backward == BPPSA_BACKWARD_BP ? plans->backward.method
                                                              : bppsa_scan_plan_method(plans->plans[layer]);
}

static json_t *layers_json(const bppsa_layer_plans *all) {
  const bppsa_recurrent_config *config = &all->config;
  bppsa_scan_plan *const *plans = all->plans;
  json_t *layers = json_array();
  bool ok = layers != NULL;
  for (int64_t i = 0; ok && i < config->layers; ++i) {
    json_t *layer = json_object();
    const bppsa_work_ratios ratios = layer_ratios(all->kind, config, plans[i], i);
    bool filled = layer != NULL && bppsa_json_put_integer(layer, "layer", i);
    const bppsa_gradient_method method = method_of(all, i);
    filled = filled && bppsa_gradient_method_put(layer, &method);
    filled = filled && bppsa_json_put_bool(layer, "affine", bppsa_scan_plan_config(plans[i])->affine);
    filled = filled && bppsa_json_put(layer, "totals", bppsa_plan_totals_json(bppsa_scan_plan_totals(plans[i])));
    filled = filled && bppsa_work_json(layer, "bp", &ratios);
    ok = json_array_append_new(layers, bppsa_json_finish(layer, filled)) == 0;
  }
  return bppsa_json_finish(layers, ok);
}

/* Returns the seconds that the cost model expects the scans of all layers to take, in all directions. */
static double predicted_seconds(const bppsa_layer_plans *plans) {
  double seconds = 0;
  for (int64_t i = 0; i < plans->config.layers; ++i) {
    seconds += segments_of(&plans->config) * bppsa_scan_plan_seconds(plans->plans[i]);
  }
  return (plans->config.bidirectional ? 2 : 1) * seconds;
}

/* Says how the ranks share the work that the top layer's plan does at once. */
static bppsa_rank_plan rank_plan(const bppsa_layer_plans *plans) {
  const bppsa_gradient_method method = bppsa_scan_plan_method(plans->plans[plans->config.layers - 1]);
  return (bppsa_rank_plan){.config = plans->config, .algorithm = method.scan.algorithm, .split = plans->split};
}

/* ---- JSON ---- */

static json_t *scans_json(const bppsa_layer_plans *plans) {
  const bppsa_recurrent_config *config = &plans->config;
  const bppsa_scan_plan *plan = plans->plans[config->layers - 1];
  const bppsa_scan_totals *totals = bppsa_scan_plan_totals(plan);
  const bppsa_gradient_method method = method_of(plans, config->layers - 1);
  const bppsa_work_ratios ratios = layer_ratios(plans->kind, config, plan, config->layers - 1);
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "model", plans->kind->name);
  ok = ok && bppsa_json_put_integer(object, "elements", bppsa_scan_plan_config(plan)->jacobians + 1);
  ok = ok && bppsa_chosen_method_json(object, &method, bppsa_chosen_of(&config->method));
  ok = ok && bppsa_json_put_real(object, "predicted_s", predicted_seconds(plans));
  ok = ok && bppsa_json_put_integer(object, "seq_len", config->seq_len);
  ok = ok && bppsa_json_put_integer(object, "batch", config->batch);
  ok = ok && bppsa_json_put_integer(object, "hidden", config->hidden);
  ok = ok && (!config->bidirectional || bppsa_json_put(object, "bidirectional", json_true()));
  ok = ok && bppsa_json_put_text(object, "dtype", bppsa_dtype_name(config->dtype));
  ok = ok && bppsa_json_put_integer(object, "layer", config->layers - 1);
  ok = ok && bppsa_json_put(object, "levels", bppsa_plan_levels_json(plan));
  if (totals->mm + totals->mv <= BPPSA_PLAN_STEPS) {
    ok = ok && bppsa_json_put(object, "steps", bppsa_plan_steps_json(plan));
  }
  ok = ok && bppsa_json_put(object, "totals", bppsa_plan_totals_json(totals));
  ok = ok && bppsa_work_json(object, "bp", &ratios);
  ok = ok && bppsa_json_put(object, "layer_plans", layers_json(plans));
  if (config->recompute > 0) {
    ok = ok && bppsa_json_put_integer(object, "recompute", config->recompute) &&
         bppsa_json_put_integer(object, "segments", bppsa_recurrent_segments(config)) &&
         bppsa_json_put_integer(object, "network_bytes", plans->bytes) &&
         bppsa_json_put_integer(object, "network_bytes_kept", plans->bytes_kept);
  }
  if (plans->split.time > 0) {
    const bppsa_rank_plan ranks = rank_plan(plans);
    ok = ok && bppsa_json_put(object, "ranks", bppsa_rank_plan_json(&ranks));
  }
  if (plans->backward.candidate_count > 0) {
    ok = ok && bppsa_json_put(object, "candidates", bppsa_candidates_json(&plans->backward));
  }
  return bppsa_json_finish(object, ok);
}

json_t *bppsa_layer_plans_json(const bppsa_layer_plans *plans) {
  const bool speculates = plans->backward.method.backward == BPPSA_BACKWARD_SPECULATIVE;
  json_t *object = speculates ? bppsa_backward_report_json(&plans->backward) : scans_json(plans);
  bool ok = object != NULL;
  if (plans->config.forward.kind != BPPSA_FORWARD_SEQUENTIAL) {
    ok = ok && bppsa_json_put(object, "forward", bppsa_forward_plan_json(&plans->forward));
  }
  return bppsa_json_finish(object, ok);
}

/* ---- for people ---- */

/* Describes the forward pass, which is the same for every layer. */
static void add_forward(const bppsa_layer_plans *plans, bppsa_text *text) {
  const bppsa_forward_plan *p = &plans->forward;
  const int64_t steps = plans->config.seq_len, longest = (steps + p->chunks - 1) / p->chunks;
  char words[BPPSA_FORWARD_TEXT];
  bppsa_text_add(text, "Forward: %s\n", bppsa_forward_plan_text(p, words, sizeof words));
  if (p->speculative) {
    bppsa_text_add(text,
                   "\n  chunks             %" PRId64 " of up to %" PRId64 " steps\n"
                   "  path               %" PRId64 " steps where nothing is mended, of %" PRId64 "\n"
                   "  work               %.2f of the sequential pass\n"
                   "  residual           at most %.3g\n",
                   p->chunks, longest, longest + p->warm_up + 1, steps,
                   1 + (double)(p->warm_up + 1) * (double)(p->chunks - 1) / (double)steps,
                   p->accept > p->stop ? p->accept : p->stop);
  }
  bppsa_text_add(text, "\n");
}

/* Adds a line for every level record; all products of one record have the same shape and cost. */
static void add_records(const bppsa_scan_plan *plan, bppsa_text *text) {
  int64_t count = 0;
  const bppsa_scan_level *records = bppsa_scan_plan_records(plan, &count);
  bppsa_text_add(text, "\n level  phase   op  products        in a row  m x k x n           FLOPs each  remark\n");
  for (int64_t i = 0; i < count; ++i) {
    bppsa_scan_iterator iterator = {.record = i};
    bppsa_scan_step step;
    char shape[96], flops[BPPSA_SI_TEXT];
    bppsa_scan_plan_next(plan, &iterator, &step);
    snprintf(shape, sizeof shape, "%" PRId64 " x %" PRId64 " x %" PRId64, step.m, step.k, step.n);
    const char *remark = records[i].dead ? "dead, never run" : records[i].critical >= 0 ? "critical" : "";
    bppsa_text_add(text, " %5d  %-6s  %-2s  %-14" PRId64 "  %-8" PRId64 "  %-18s  %-10s  %s\n", (int)records[i].level,
                   bppsa_scan_phase_name(records[i].phase), bppsa_scan_op_name(records[i].op),
                   records[i].count * records[i].length + records[i].longer, records[i].length + (records[i].longer > 0), shape,
                   bppsa_text_si((double)step.flops, "", flops, sizeof flops), remark);
  }
}

static void add_layer(const bppsa_recurrent_config *config, const bppsa_scan_plan *plan, int64_t layer, bppsa_text *text) {
  const bppsa_scan_totals *t = bppsa_scan_plan_totals(plan);
  const bppsa_scan_config *scan = bppsa_scan_plan_config(plan);
  char method[BPPSA_CHOSEN_TEXT], mm[BPPSA_SI_TEXT], mv[BPPSA_SI_TEXT], critical[BPPSA_SI_TEXT], bytes[BPPSA_SI_TEXT];
  bppsa_text_add(text, "%sLayer %" PRId64 ": %s, %" PRId64 " elements%s\n", layer == config->layers - 1 ? "" : "\n", layer,
                 bppsa_chosen_plan_text(bppsa_chosen_of(&config->method), plan, method, sizeof method), scan->jacobians + 1,
                 scan->affine ? ", affine (a gradient enters at every step)" : "");
  add_records(plan, text);
  bppsa_text_add(text,
                 "\n  products           %" PRId64 " mat-mat (%" PRId64 " dead), %" PRId64 " mat-vec\n"
                 "  FLOPs a sample     %s mat-mat, %s mat-vec\n"
                 "  critical path      %" PRId64 " products, %s a sample\n"
                 "  products held      %s for a batch of %" PRId64 "\n",
                 t->mm, t->dead, t->mv, bppsa_text_si((double)t->mm_flops, "", mm, sizeof mm),
                 bppsa_text_si((double)t->mv_flops, "", mv, sizeof mv), t->critical_steps,
                 bppsa_text_si((double)t->critical_flops, "FLOP", critical, sizeof critical),
                 bppsa_text_si((double)t->workspace_bytes, "B", bytes, sizeof bytes), config->batch);
}

/* Compares the top layer's plan with BP, which does n - 1 mat-vecs one after the other: its FLOPs and its shorter critical path. */
static void add_sentence(const bppsa_layer_plans *plans, bppsa_text *text) {
  const bppsa_scan_plan *plan = plans->plans[plans->config.layers - 1];
  const int64_t jacobians = bppsa_scan_plan_config(plan)->jacobians, chain = jacobians > 1 ? jacobians - 1 : 0;
  const bppsa_work_ratios ratios = layer_ratios(plans->kind, &plans->config, plan, plans->config.layers - 1);
  char words[BPPSA_WORK_TEXT];
  if (bppsa_scan_plan_is_chain(plan)) {
    bppsa_text_add(text,
                   "\nThis is the recurrence itself: %" PRId64
                   " mat-vecs, each waiting for the one before. A processor runs it by the cell's own sweep,\n"
                   "which is sequential BP.\n",
                   chain);
    return;
  }
  bppsa_text_add(text,
                 "\nWith workers enough for every level the top layer's gradient is %" PRId64 " products deep instead of %" PRId64
                 ",\nfor %s.\n",
                 bppsa_scan_plan_totals(plan)->critical_steps, chain, bppsa_work_text(&ratios, "steps", words, sizeof words));
}

void bppsa_layer_plans_text(const bppsa_layer_plans *plans, bppsa_text *text) {
  const bppsa_recurrent_config *config = &plans->config;
  bppsa_text_add(text, "%s: T %" PRId64 ", B %" PRId64 ", H %" PRId64 ", layers %" PRId64 "%s, loss %s, %s\n\n",
                 plans->kind->name, config->seq_len, config->batch, config->hidden, config->layers,
                 config->bidirectional ? " (each twice: the reverse directions have the same plans)" : "",
                 bppsa_objective_loss(NULL, config->loss_all), bppsa_dtype_name(config->dtype));
  if (config->forward.kind != BPPSA_FORWARD_SEQUENTIAL) {
    add_forward(plans, text);
  }
  if (config->recompute > 0) {
    char bytes[BPPSA_SI_TEXT], kept[BPPSA_SI_TEXT];
    bppsa_text_add(text, "Memory: the network takes %s with the states of every %" PRId64 "th step, %s with all of them\n\n",
                   bppsa_text_si((double)plans->bytes, "B", bytes, sizeof bytes), config->recompute,
                   bppsa_text_si((double)plans->bytes_kept, "B", kept, sizeof kept));
    if (config->method.backward == BPPSA_BACKWARD_SCAN) {
      bppsa_text_add(text,
                     "The scan goes through up to %" PRId64 " segments, one after the other; what follows is one of them.\n\n",
                     bppsa_recurrent_segments(config));
    }
  }
  if (plans->backward.candidate_count > 0) {
    bppsa_candidates_text(&plans->backward, text);
  }
  if (plans->backward.method.backward == BPPSA_BACKWARD_SPECULATIVE) {
    bppsa_backward_report_text(&plans->backward, text);
    return;
  }
  for (int64_t layer = config->layers - 1; layer >= 0; --layer) {
    add_layer(config, plans->plans[layer], layer, text);
  }
  add_sentence(plans, text);
  if (plans->split.time > 0) {
    const bppsa_rank_plan ranks = rank_plan(plans);
    bppsa_rank_plan_text(&ranks, text);
  }
}
