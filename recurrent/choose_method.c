/* Resolves `auto` for a recurrent network: one method for all its layers, by the cost models of scans (scan/cost.c) and of
 * speculative BP (backward_cost.c). BP computes the linear scan and costs the same, so backward = AUTO prefers BP, which needs no
 * plan. Speculative BP must have something as fast to fall back to. */
#include <math.h>

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

/* The linear scan takes BP's time. */
static bppsa_status cost_of_bp(const bppsa_recurrent_config *config, const bppsa_cell *cell, bppsa_device_kind device,
                               double *seconds) {
  bppsa_recurrent_config bp = *config;
  int64_t held;
  bp.method.scan = bppsa_scan_method_of(BPPSA_SCAN_LINEAR);
  return cost(&bp, cell, device, seconds, &held);
}

static const double close_to = 1.02; /* times as long is nearly as fast */

/* Can the scan stand in for a pass that the GPU itself gives up? The layer's own kernels run it in chunks. */
static bool may_stand_in(const bppsa_scan_config *scan) {
  return scan->device != BPPSA_CPU && bppsa_scan_fusion_of(scan) == BPPSA_FUSION_CHUNKS;
}

/* The fastest chunked scan that can stand in, or the one with method->scan_chunks. *chunks 1: there is none that fits. */
static bppsa_status find_scan(const bppsa_recurrent_config *config, const bppsa_cell *cell, bppsa_device_kind device,
                              int64_t asked, int64_t *chunks, double *best) {
  bppsa_recurrent_config tried = *config;
  bppsa_scan_config open = bppsa_recurrent_scan_config(config, cell, 0), scan;
  bool more = true;
  *chunks = 1;
  *best = INFINITY;
  open.device = device;
  for (int64_t i = 0; more; ++i) {
    double seconds;
    int64_t held;
    if (asked > 0) {
      scan = open;
      scan.method = (bppsa_scan_method){.algorithm = BPPSA_SCAN_CHUNKED, .chunks = asked};
    }
    more = asked > 0 ? i == 0 : bppsa_scan_candidate(&open, i, &scan);
    if (!more || !may_stand_in(&scan)) {
      continue;
    }
    tried.method.scan = bppsa_scan_method_clamp(&scan.method, config->seq_len);
    BPPSA_TRY(cost(&tried, cell, device, &seconds, &held));
    const bool fits = asked > 0 || config->memory_limit == 0 || held <= config->memory_limit;
    if (fits && tried.method.scan.chunks > 1 && seconds < *best) {
      *best = seconds;
      *chunks = tried.method.scan.chunks;
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_recurrent_find_fallback(const bppsa_recurrent_config *config, const bppsa_cell *cell, bppsa_device_kind device,
                                           bppsa_backward_method *method) {
  BPPSA_REQUIRE(config != NULL && cell != NULL && method != NULL);
  double bp = 1, scan = INFINITY;
  int64_t chunks = 1;
  if (device != BPPSA_CPU && method->scan_chunks != 1) {
    BPPSA_TRY(cost_of_bp(config, cell, device, &bp));
    BPPSA_TRY(find_scan(config, cell, device, method->scan_chunks, &chunks, &scan));
  }
  const bool scans = chunks > 1 && (method->scan_chunks > 1 || close_to * scan < bp);
  method->scan_chunks = scans ? chunks : 1;
  method->scan_time = scans ? scan / bp : 1;
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
  bppsa_backward_method method = config->speculation;
  BPPSA_TRY(whole ? bppsa_recurrent_find_fallback(config, cell, device, &method) : BPPSA_OK);
  const bppsa_status status = whole ? bppsa_backward_plan_make(&method, &shape, &made) : BPPSA_OK;
  BPPSA_TRY(status == BPPSA_ERR_UNSUPPORTED ? BPPSA_OK : status);
  *plan = made;
  return BPPSA_OK;
}

/* Speculative BP, where it is a candidate. On a GPU its cost is predicted (backward_cost.c). */
static bppsa_status find_speculation(const bppsa_recurrent_config *config, const bppsa_cell *cell, bppsa_device_kind device,
                                     bppsa_recurrent_candidate *candidate, bool *found) {
  bppsa_backward_plan plan;
  bppsa_backward_method method = config->speculation;
  BPPSA_TRY(bppsa_recurrent_plan_speculation(config, cell, device, &plan));
  *found = plan.speculative;
  if (!plan.speculative) {
    return BPPSA_OK;
  }
  const bppsa_forward_shape shape = bppsa_recurrent_forward_shape(config, cell, device, 0);
  const bppsa_backward_cost model = bppsa_backward_model(&shape, &plan);
  const bppsa_backward_expected expected = bppsa_backward_expect(&shape, &plan);
  bppsa_recurrent_candidate made = {.method.backward = BPPSA_BACKWARD_SPECULATIVE};
  double bp;
  BPPSA_TRY(cost_of_bp(config, cell, device, &bp));
  BPPSA_TRY(bppsa_recurrent_find_fallback(config, cell, device, &method));
  made.seconds = bp * bppsa_backward_time(&model, expected.path, expected.work);
  made.fallback = bp * method.scan_time;
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
  if (config->recompute > 0 && any && index > 0) { /* BP, the first one: a scan would wait for every segment */
    *found = false;
    return BPPSA_OK;
  }
  if (bppsa_scan_candidate(&asked, index, &scan)) {
    const bool bp = any && bppsa_scan_algorithm_is_bp(scan.method.algorithm);
    bppsa_recurrent_candidate made = {.method = {.backward = bp ? BPPSA_BACKWARD_BP : BPPSA_BACKWARD_SCAN, .scan = scan.method}};
    tried.method = made.method;
    BPPSA_TRY(cost(&tried, cell, device, &made.seconds, &made.held));
    made.seconds *= any ? 1 : (double)bppsa_recurrent_segments(config);
    made.fallback = made.seconds;
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
  bppsa_recurrent_config best = *config;
  bppsa_recurrent_candidate c;
  double best_seconds = 0;
  bool more = bppsa_gradient_method_open(&config->method);
  for (int64_t index = 0; more; ++index) {
    BPPSA_TRY(bppsa_recurrent_find_candidate(config, cell, device, index, &c, &more));
    const bool speculates = more && c.method.backward == BPPSA_BACKWARD_SPECULATIVE;
    if (more && (index == 0 || ((speculates ? BPPSA_BACKWARD_WORTH : 1) * c.seconds < best_seconds &&
                                (!speculates || c.fallback < close_to * best_seconds) &&
                                (config->memory_limit == 0 || c.held <= config->memory_limit)))) {
      best.method = (bppsa_gradient_method){c.method.backward, speculates ? config->method.scan : c.method.scan};
      best.speculation.exact_inputs = config->speculation.exact_inputs || speculates;
      best_seconds = c.seconds;
    }
  }
  *chosen = best;
  return BPPSA_OK;
}
