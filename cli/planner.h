/* How a command computes its gradients: --plan and --memory-limit.
 *
 * `--plan estimate` leaves `auto` to the cost model (bppsa_recurrent_choose, cnn/choose.h), whose choice depends on the device
 * and the network alone. `--plan measure` times the backward pass of BP and of every scan on this machine, with this number of
 * threads, and keeps the result in a cache file, so that the next run of the same network here need not measure again.
 */
#ifndef BPPSA_CLI_PLANNER_H
#define BPPSA_CLI_PLANNER_H

#include "cli/network.h"

#define BPPSA_REFUSE_HELP "refuse a network that needs more; 1024's multiples as 500K, 64M, 2G [3/4 of available memory]"

/* Who chose the algorithm. */
typedef enum {
  BPPSA_CHOSEN_BY_OPTION = 0,
  BPPSA_CHOSEN_BY_ESTIMATE,
  BPPSA_CHOSEN_BY_MEASUREMENT,
  BPPSA_CHOSEN_BY_CACHE,
  BPPSA_CHOSEN_BY_CHECKPOINT,
  BPPSA_CHOSEN_COUNT
} bppsa_chosen;

const char *bppsa_chosen_name(bppsa_chosen chosen); /* "option", "estimate", "measurement", "cache", "checkpoint" */

/* Who chooses in a configuration as the options have it: ESTIMATE where it says AUTO, OPTION otherwise. */
bppsa_chosen bppsa_planner_chooser(const bppsa_recurrent_config *config);

/* Puts the memory limit (3/4 of what is available where none is given) and, with --plan measure and `auto`, the fastest
 * algorithm into the configuration, whose sizes are final. *chosen: who chose so far (a checkpoint's choice stays), and who did
 * then. ERR_ARGUMENT: --plan measure where the algorithm is given. */
bppsa_status bppsa_planner_choose(const bppsa_cli *cli, const bppsa_network *network, const bppsa_device *device,
                                  bppsa_recurrent_config *config, bppsa_chosen *chosen);

/* ---- the cache of measurements (plan_cache.c) ----
 *
 * One JSON file, $XDG_CACHE_HOME/bppsa/plans.json or ~/.cache/bppsa/plans.json, which may be deleted at any time:
 * {"format":1,"plans":[{"key", a method (scan/method.h), "median_s"}]}, the latest last, at most 1000. */

/* True and *method where the key is known. A file that cannot be used is as good as none. */
bool bppsa_plan_cache_find(const char *key, bppsa_gradient_method *method);
/* ERR_*: the choice could not be kept. */
bppsa_status bppsa_plan_cache_store(const char *key, const bppsa_gradient_method *method, double median_s);

#endif
