/* The cache of measured plans: one JSON file, plans.json in the cache's directory (networks/cache_directory.h), which may be
 * deleted at any time: {"format":1,"plans":[{"key", a method (scan/method.h) or "forward", "median_s"}]}, the latest last, at most
 * 1000. "forward" is the text of a plan (recurrent/parallel_forward.h), of which kind and most_work count. */
#ifndef BPPSA_NETWORKS_PLAN_CACHE_H
#define BPPSA_NETWORKS_PLAN_CACHE_H

#include "recurrent/parallel_forward.h"
#include "scan/method.h"

/* True and *method where the key is known. A file that cannot be used counts as empty. */
bool bppsa_plan_cache_find(const char *key, bppsa_gradient_method *method);
/* Keeps a choice. ERR_*: it could not be written. */
bppsa_status bppsa_plan_cache_store(const char *key, const bppsa_gradient_method *method, double median_s);
/* The same for how states are computed: kind and most_work. */
bool bppsa_plan_cache_find_forward(const char *key, bppsa_forward_method *method);
bppsa_status bppsa_plan_cache_store_forward(const char *key, const bppsa_forward_plan *plan, double median_s);

#endif
