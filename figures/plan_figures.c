/* Figures 1 and 3: plans of Blelloch's scan. */
#include <inttypes.h>

#include "figures/figure_data.h"
#include "jacobian/jacobian.h"
#include "jacobian/network_ops.h"
#include "runs/plan_draw.h"

static void plan_csv(const bppsa_scan_plan *plan, bppsa_text *text) {
  bppsa_scan_iterator iterator = {0};
  bppsa_scan_step step;
  bppsa_text_add(text, "id,level,phase,op,left,right,out,flops,critical,dead\n");
  while (bppsa_scan_plan_next(plan, &iterator, &step)) {
    char operands[3][BPPSA_OPERAND_TEXT];
    bppsa_scan_step_text(plan, &step, operands[0], operands[1], operands[2]);
    bppsa_text_add(text, "%" PRId64 ",%d,%s,%s,%s,%s,%s,%" PRId64 ",%d,%d\n", step.id, (int)step.level->level,
                   bppsa_scan_phase_name(step.level->phase), bppsa_scan_op_name(step.level->op), operands[0], operands[1],
                   operands[2], step.flops, step.critical, step.level->dead);
  }
}

/* Draws a plan. patterns: the patterns of a network's `count` operators, or NULL. */
static bppsa_status draw_plan(const char *name, int64_t count, const bppsa_csr *const *patterns, const bppsa_device *device,
                              bppsa_figure_content *made) {
  char png[64];
  bppsa_scan_config config = bppsa_scan_config_default();
  bppsa_scan_plan *plan = NULL;
  config.jacobians = count;
  config.element = patterns != NULL ? BPPSA_ELEMENT_CSR : BPPSA_ELEMENT_RECURRENT;
  config.method = (bppsa_scan_method){BPPSA_SCAN_BLELLOCH, -1, 0};
  config.dim = patterns != NULL ? 0 : 20;
  config.patterns = patterns;
  config.planner = patterns != NULL ? device : NULL;
  config.symbolic = patterns != NULL;
  snprintf(png, sizeof png, "%s.png", name);
  BPPSA_TRY(bppsa_scan_plan_create(&config, &plan));
  bppsa_status status = bppsa_plan_draw(&(bppsa_plan_picture){.plan = plan}, &made->svg);
  status = status == BPPSA_OK ? bppsa_plan_draw(&(bppsa_plan_picture){.plan = plan, .png = png}, &made->script) : status;
  plan_csv(plan, &made->csv);
  bppsa_scan_plan_destroy(plan);
  return status;
}

static bppsa_status draw_network(const char *name, const char *network, const bppsa_device *device, bppsa_figure_content *made) {
  bppsa_named_op ops[BPPSA_NETWORK_OPS];
  bppsa_jacobian *jacobians[BPPSA_NETWORK_OPS] = {NULL};
  const bppsa_csr *patterns[BPPSA_NETWORK_OPS];
  int64_t count = 0;
  bppsa_status status = bppsa_network_table(network, ops, &count);
  for (int64_t t = 0; status == BPPSA_OK && t < count; ++t) {
    status = bppsa_jacobian_create(&ops[t].op, NULL, true, device, &jacobians[t]);
    patterns[t] = status == BPPSA_OK ? bppsa_jacobian_pattern(jacobians[t]) : NULL;
  }
  status = status == BPPSA_OK ? draw_plan(name, count, patterns, device, made) : status;
  for (int64_t t = 0; t < count; ++t) {
    bppsa_jacobian_destroy(jacobians[t]);
  }
  return status;
}

bppsa_status bppsa_make_plan(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  const bppsa_plan_source *source = figure->of;
  const bppsa_device *device = f->request->device;
  return source->network != NULL ? draw_network(figure->name, source->network, device, made)
                                 : draw_plan(figure->name, source->jacobians, NULL, device, made);
}
