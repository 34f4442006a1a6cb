/* Resolves `auto` for a recurrent network: one method for all its layers, by the cost models of scans (scan/cost.c) and of
 * speculative BP (backward_cost.c). BP computes the linear scan and costs the same, so backward = AUTO prefers BP, which needs no
 * plan. */
#include "core/base/alloc.h"
#include "recurrent/recurrent.h"

/* Predicts seconds, and bytes of held products, for all layers. */
static bppsa_status cost(const bppsa_recurrent_config *config, const bppsa_cell *cell, bppsa_device_kind device, double *seconds,
                         int64_t *held) {
  *seconds = 0;
  *held = 0;
  for (int64_t layer = config->layers > 1 ? config->layers - 2 : 0; layer < config->layers; ++layer) {
    /* all layers below the top are alike, and both directions */
    const int64_t times = (layer + 1 < config->layers ? config->layers - 1 : 1) * (config->bidirectional ? 2 : 1);
    bppsa_scan_config scan = bppsa_recurrent_scan_config(config, cell, layer);
    bppsa_scan_plan *plan = NULL;
    scan.device = device;
    BPPSA_TRY(bppsa_scan_plan_create(&scan, &plan));
    *seconds += (double)times * bppsa_scan_plan_seconds(plan);
    int64_t part;
    const bool fits =
        bppsa_mul(times, bppsa_scan_plan_totals(plan)->workspace_bytes, &part) && !__builtin_add_overflow(*held, part, held);
    bppsa_scan_plan_destroy(plan);
    if (!fits) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "network: the held products of %lld layers do not fit in 64 bits",
                        (long long)config->layers);
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_recurrent_plan_speculation(const bppsa_recurrent_config *config, const bppsa_cell *cell,
                                              bppsa_device_kind device, bppsa_backward_plan *plan) {
  BPPSA_REQUIRE(config != NULL && cell != NULL && plan != NULL);
  const bppsa_forward_shape shape =
      bppsa_recurrent_forward_shape(config, cell, device, device == BPPSA_CPU ? 0 : BPPSA_FORWARD_MULTIPROCESSORS);
  const bool whole = config->factory.create == NULL && config->part.seq_len == 0 && config->ends.before == NULL &&
                     config->ends.after == NULL && (config->loss_all || !config->input_gradients);
  bppsa_backward_plan made = {.chunks = 1};
  const bppsa_status status = whole ? bppsa_backward_plan_make(&config->speculation, &shape, &made) : BPPSA_OK;
  BPPSA_TRY(status == BPPSA_ERR_UNSUPPORTED ? BPPSA_OK : status);
  *plan = made;
  return BPPSA_OK;
}

/* Speculative BP, where it is a candidate. On a GPU its cost is predicted (backward_cost.c). */
static bppsa_status find_speculation(const bppsa_recurrent_config *config, const bppsa_cell *cell, bppsa_device_kind device,
                                     bppsa_recurrent_candidate *candidate, bool *found) {
  bppsa_backward_plan plan;
  BPPSA_TRY(bppsa_recurrent_plan_speculation(config, cell, device, &plan));
  *found = plan.speculative;
  if (!plan.speculative) {
    return BPPSA_OK;
  }
  const bppsa_forward_shape shape = bppsa_recurrent_forward_shape(config, cell, device, 0);
  const bppsa_backward_cost model = bppsa_backward_model(&shape, &plan);
  const bppsa_backward_expected expected = bppsa_backward_expect(&shape, &plan);
  bppsa_recurrent_config bp = *config;
  bppsa_recurrent_candidate made = {.method.backward = BPPSA_BACKWARD_SPECULATIVE};
  bp.method.scan = bppsa_scan_method_of(BPPSA_SCAN_LINEAR);
  BPPSA_TRY(cost(&bp, cell, device, &made.seconds, &made.held));
  made.seconds *= bppsa_backward_time(&model, expected.path, expected.work);
  made.held = 0;
  *candidate = made;
  return BPPSA_OK;
}

bppsa_status bppsa_recurrent_find_candidate(const bppsa_recurrent_config *config, const bppsa_cell *cell,
                                            bppsa_device_kind device, int64_t index, bppsa_recurrent_candidate *candidate,
                                            bool *found) {
  BPPSA_REQUIRE(config != NULL && cell != NULL && candidate != NULL && found != NULL && index >= 0);
  const bool any = config->method.backward == BPPSA_BACKWARD_AUTO && config->factory.create == NULL; /* otherwise a scan */
  bppsa_recurrent_config tried = *config;
  bppsa_scan_config asked = bppsa_recurrent_scan_config(config, cell, 0), scan;
  asked.device = device;
  if (bppsa_scan_candidate(&asked, index, &scan)) {
    const bool bp = any && bppsa_scan_algorithm_is_bp(scan.method.algorithm);
    bppsa_recurrent_candidate made = {.method = {.backward = bp ? BPPSA_BACKWARD_BP : BPPSA_BACKWARD_SCAN, .scan = scan.method}};
    tried.method = made.method;
    BPPSA_TRY(cost(&tried, cell, device, &made.seconds, &made.held));
    *candidate = made;
    *found = true;
    return BPPSA_OK;
  }
  *found = false;
  return any && (index == 0 || bppsa_scan_candidate(&asked, index - 1, &scan))
             ? find_speculation(config, cell, device, candidate, found)
             : BPPSA_OK;
}

bppsa_status bppsa_recurrent_choose(const bppsa_recurrent_config *config, const bppsa_cell *cell, bppsa_device_kind device,
                                    bppsa_recurrent_config *chosen) {
  BPPSA_REQUIRE(config != NULL && cell != NULL && chosen != NULL);
  const double close =
      1.02; /* passes of networks that mend too much are BP after the first few, so BP must be as fast as a scan */
  bppsa_recurrent_config best = *config;
  bppsa_recurrent_candidate c;
  double best_seconds = 0, first_seconds = 0; /* the first candidate is BP, where speculation is one */
  bool more = bppsa_gradient_method_open(&config->method);
  for (int64_t index = 0; more; ++index) {
    BPPSA_TRY(bppsa_recurrent_find_candidate(config, cell, device, index, &c, &more));
    const bool speculates = more && c.method.backward == BPPSA_BACKWARD_SPECULATIVE;
    first_seconds = index == 0 && more ? c.seconds : first_seconds;
    if (more && (index == 0 || ((speculates ? BPPSA_BACKWARD_WORTH : 1) * c.seconds < best_seconds &&
                                (!speculates || first_seconds < close * best_seconds) &&
                                (config->memory_limit == 0 || c.held <= config->memory_limit)))) {
      best.method = (bppsa_gradient_method){c.method.backward, speculates ? config->method.scan : c.method.scan};
      best.speculation.exact_inputs = config->speculation.exact_inputs || speculates;
      best_seconds = c.seconds;
    }
  }
  *chosen = best;
  return BPPSA_OK;
}
