/* The cache of measured plans: one JSON file, $XDG_CACHE_HOME/bppsa/plans.json or ~/.cache/bppsa/plans.json, which may be deleted
 * at any time: {"format":1,"plans":[{"key", a method (scan/method.h), "median_s"}]}, the latest last, at most 1000. */
#ifndef BPPSA_MODELS_PLAN_CACHE_H
#define BPPSA_MODELS_PLAN_CACHE_H

#include "scan/method.h"

/* True and *method where the key is known. A file that cannot be used counts as empty. */
bool bppsa_plan_cache_find(const char *key, bppsa_gradient_method *method);
/* Keeps a choice. ERR_*: it could not be written. */
bppsa_status bppsa_plan_cache_store(const char *key, const bppsa_gradient_method *method, double median_s);

#endif
