/* Resolves `auto` for a recurrent network: one method for all its layers, by the cost model. BP computes the linear scan and costs
 * the same, so backward = AUTO prefers BP, which needs no plan. */
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

bppsa_status bppsa_recurrent_choose(const bppsa_recurrent_config *config, const bppsa_cell *cell, bppsa_device_kind device,
                                    bppsa_recurrent_config *chosen) {
  BPPSA_REQUIRE(config != NULL && cell != NULL && chosen != NULL);
  bppsa_recurrent_config best = *config, tried = *config;
  bppsa_scan_config candidate = bppsa_recurrent_scan_config(config, cell, 0);
  candidate.device = device;
  const bppsa_scan_config asked = candidate;
  double best_seconds = 0;
  const bool any = config->method.backward == BPPSA_BACKWARD_AUTO && config->factory.create == NULL; /* otherwise a scan */
  const bool open = bppsa_gradient_method_open(&config->method);
  for (int64_t index = 0; open && bppsa_scan_candidate(&asked, index, &candidate); ++index) {
    double seconds;
    int64_t held;
    tried.method.backward =
        any && bppsa_scan_algorithm_is_bp(candidate.method.algorithm) ? BPPSA_BACKWARD_BP : BPPSA_BACKWARD_SCAN;
    tried.method.scan = candidate.method;
    BPPSA_TRY(cost(&tried, cell, device, &seconds, &held));
    if (index == 0 || (seconds < best_seconds && (config->memory_limit == 0 || held <= config->memory_limit))) {
      best = tried;
      best_seconds = seconds;
    }
  }
  *chosen = best;
  return BPPSA_OK;
}
