#include "scan/plan_json.h"

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
  ok = ok && (step->flops_error == 0 || bppsa_json_put_real(object, "flops_standard_error", step->flops_error));
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
