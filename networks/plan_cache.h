/* The cache of measured plans: one JSON file, plans.json in the cache's directory (networks/cache_directory.h), which may be
 * deleted at any time: {"format":1,"plans":[{"key", a method (scan/method.h), "forward" or "speculation", "median_s"}]}, at most
 * 1000 plans, the latest last. "forward" is the text of a plan, which bppsa_forward_plan_read (recurrent/parallel_forward.h) reads;
 * "speculation" likewise (recurrent/parallel_backward.h), of which only the cost is read. */
#ifndef BPPSA_NETWORKS_PLAN_CACHE_H
#define BPPSA_NETWORKS_PLAN_CACHE_H

#include "recurrent/parallel_backward.h"
#include "scan/method.h"

/* Returns true and sets *method if the file has a plan under the key. A file that cannot be used counts as empty. */
bool bppsa_plan_cache_find(const char *key, bppsa_gradient_method *method);
/* Stores a method under the key. ERR_*: the file could not be written. */
bppsa_status bppsa_plan_cache_store(const char *key, const bppsa_gradient_method *method, double median_s);
/* The same two functions for the forward pass: they keep its kind and its bounds, and chunks and rounds that are open. */
bool bppsa_plan_cache_find_forward(const char *key, bppsa_forward_method *method);
bppsa_status bppsa_plan_cache_store_forward(const char *key, const bppsa_forward_plan *plan, double median_s);
/* Likewise of speculative BP: they keep its cost. */
bool bppsa_plan_cache_find_speculation(const char *key, bppsa_backward_method *method);
bppsa_status bppsa_plan_cache_store_speculation(const char *key, const bppsa_backward_plan *plan, double median_s);

#endif
