/* The candidates of `auto`, and the choice among them. */
#include "core/compute/memory.h"
#include "scan/algorithm_internal.h"
#include "scan/plan_internal.h"

bool bppsa_scan_candidate_to_measure(const bppsa_scan_config *config, int32_t threads, int64_t index,
                                     bppsa_scan_config *candidate) {
  const bppsa_scan_contest contest = {config->jacobians, config->device, threads};
  bppsa_scan_method method;
  if (!bppsa_scan_algorithm_candidate(&contest, config->element == BPPSA_ELEMENT_CSR, index, &method)) {
    return false;
  }
  *candidate = *config;
  candidate->method = method;
  return true;
}

bool bppsa_scan_candidate(const bppsa_scan_config *config, int64_t index, bppsa_scan_config *candidate) {
  return bppsa_scan_candidate_to_measure(config, 0, index, candidate);
}

/* Makes the plan of the candidate that is fastest by the cost model; of equally fast ones, of the first. */
static bppsa_status create_auto(const bppsa_scan_config *config, bppsa_scan_plan **out) {
  bppsa_scan_plan *best = NULL;
  bppsa_scan_config candidate;
  for (int64_t index = 0; bppsa_scan_candidate(config, index, &candidate); ++index) {
    bppsa_scan_plan *plan = NULL;
    const bppsa_status status = bppsa_scan_create_fixed(&candidate, &plan);
    if (status != BPPSA_OK) {
      bppsa_scan_plan_destroy(best);
      return status;
    }
    if (best == NULL || bppsa_scan_plan_seconds(plan) < bppsa_scan_plan_seconds(best)) {
      bppsa_scan_plan *worse = best;
      best = plan;
      plan = worse;
    }
    bppsa_scan_plan_destroy(plan);
  }
  *out = best;
  return BPPSA_OK;
}

/* A lower bound on the FLOPs of the critical path of plans with more up-levels: the FLOPs of this plan's up-levels. */
static int64_t up_flops(const bppsa_scan_plan *plan) {
  bppsa_scan_iterator it = {0};
  bppsa_scan_step step;
  int64_t flops = 0;
  while (bppsa_scan_plan_next(plan, &it, &step)) {
    flops += step.critical && step.level->phase == BPPSA_PHASE_UP ? step.flops : 0;
  }
  return flops;
}

/* The memory limit for plans with products; 0: none. On a GPU it is also at most the free memory of that GPU: a plan that needs
 * more is skipped before memory is allocated, like one that exceeds the caller's limit. Running out of host memory remains an
 * error. */
static bppsa_status limit_of(const bppsa_scan_config *config, int64_t *limit) {
  int64_t available = 0;
  *limit = config->memory_limit;
  if (config->symbolic || bppsa_device_get_kind(config->planner) == BPPSA_CPU) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_memory_available(config->planner, &available));
  available = available > 0 ? available : 1;
  *limit = *limit > 0 && *limit < available ? *limit : available;
  return BPPSA_OK;
}

/* Makes the plan of candidate `index` of a sparse chain, counted only or executable. */
static bool csr_candidate(const bppsa_scan_config *config, int64_t index, bool symbolic, int64_t limit,
                          bppsa_scan_config *candidate) {
  const bool found = bppsa_scan_candidate(config, index, candidate);
  if (found) {
    candidate->symbolic = symbolic;
    candidate->memory_limit = limit;
  }
  return found;
}

/* For sparse chains. Counts the FLOPs of the critical path of every candidate, that is with every number of up-levels, and takes
 * the best that fits into memory. A plan with more levels has all products of one with fewer, so the search ends at the first
 * that does not fit, or whose up-levels alone have more FLOPs than the best. */
static bppsa_status create_auto_csr(const bppsa_scan_config *config, bppsa_scan_plan **out) {
  enum { MOST = 64 };
  int64_t flops[MOST], count = 0, least = INT64_MAX, limit = 0;
  bool hopeless = false;
  bppsa_scan_config candidate;
  BPPSA_TRY(limit_of(config, &limit));
  bppsa_status status = BPPSA_OK;
  for (; status == BPPSA_OK && !hopeless && count < MOST && csr_candidate(config, count, true, limit, &candidate); ++count) {
    bppsa_scan_plan *plan = NULL;
    status = bppsa_scan_create_fixed(&candidate, &plan);
    flops[count] = status == BPPSA_OK ? plan->totals.critical_flops : INT64_MAX;
    least = flops[count] < least ? flops[count] : least;
    hopeless = status == BPPSA_OK && up_flops(plan) > least;
    bppsa_scan_plan_destroy(plan);
  }
  if (status != BPPSA_OK && (status != BPPSA_ERR_ARGUMENT || count == 1)) {
    return status;
  }
  for (;;) {
    int64_t best = 0;
    for (int64_t l = 1; l < count; ++l) {
      best = flops[l] < flops[best] ? l : best;
    }
    /* If even the last candidate fails, the error is about the caller's own limit. */
    (void)csr_candidate(config, best, config->symbolic, best == 0 ? config->memory_limit : limit, &candidate);
    status = bppsa_scan_create_fixed(&candidate, out);
    const bool too_large = status == BPPSA_ERR_ARGUMENT && limit > 0;
    if (status == BPPSA_OK) {
      (*out)->config.memory_limit = config->memory_limit;
    }
    if (best == 0 || (!too_large && status != BPPSA_ERR_UNSUPPORTED)) {
      return status;
    }
    flops[best] = INT64_MAX; /* this candidate fails: its indices do not fit, or a GPU does not have so many blocks */
  }
}

bppsa_status bppsa_scan_create_auto(const bppsa_scan_config *config, bppsa_scan_plan **plan) {
  return config->element == BPPSA_ELEMENT_CSR ? create_auto_csr(config, plan) : create_auto(config, plan);
}
