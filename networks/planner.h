/* Chooses how a network computes its gradients where the user leaves this open, and how much memory it may take.
 *
 * By estimate, `auto` is left to the cost model (bppsa_recurrent_choose, cnn/choose.h), whose choice depends on the device and the
 * network alone. By measurement, the backward pass of BP, of speculative BP and of every scan is timed on this machine, with this
 * number of threads, once its gradients have been held against those of the first candidate; a candidate whose gradients are wrong
 * is not chosen. Where speculative BP is, both times also say when it is to pause (recurrent/parallel_backward.h).
 * A forward pass that is left open is chosen in the same way, step by step or in chunks: the states of a network of default weights
 * are compared, and both times give the work up to which chunks pay, for networks that forget less (recurrent/parallel_forward.h).
 * The result is kept (networks/plan_cache.h), so that the next run of the same network on this machine need not measure again.
 */
#ifndef BPPSA_NETWORKS_PLANNER_H
#define BPPSA_NETWORKS_PLANNER_H

#include "comm/comm.h"
#include "networks/named_network.h"

/* Where the choice of the method comes from. */
typedef enum {
  BPPSA_CHOSEN_BY_OPTION = 0,
  BPPSA_CHOSEN_BY_ESTIMATE,
  BPPSA_CHOSEN_BY_MEASUREMENT,
  BPPSA_CHOSEN_BY_CACHE,
  BPPSA_CHOSEN_BY_CHECKPOINT,
  BPPSA_CHOSEN_COUNT
} bppsa_chosen;

const char *bppsa_chosen_name(bppsa_chosen chosen); /* Returns "option", "estimate", "measurement", "cache" or "checkpoint". */
/* Says where the choice comes from before the planner runs: ESTIMATE where the configuration says AUTO, OPTION otherwise. */
bppsa_chosen bppsa_chosen_of(const bppsa_gradient_method *method);

/* Writes the method and where the choice comes from: "scan, chunked (45 chunks), chosen by estimate". Returns text. */
const char *bppsa_chosen_method_text(bppsa_chosen chosen, const bppsa_gradient_method *method, char *text, size_t size);
/* Writes the same for a plan; "a chain of 9, no scan" where it has no scan. Returns text. */
const char *bppsa_chosen_plan_text(bppsa_chosen chosen, const bppsa_scan_plan *plan, char *text, size_t size);
#define BPPSA_CHOSEN_TEXT (BPPSA_METHOD_TEXT + 32)
/* Adds the same to a JSON object: the method's members, "auto" (whether the choice was left open) and "chosen" (where it comes
 * from). */
bool bppsa_chosen_method_json(json_t *object, const bppsa_gradient_method *method, bppsa_chosen chosen);

/* Gives rank 0's method to every rank, because ranks that measure may choose different ones. Collective. ERR_COMM. */
bppsa_status bppsa_chosen_share(bppsa_comm *comm, bppsa_gradient_method *method, bppsa_chosen *chosen);

typedef struct {
  bool measure;         /* time the candidates where the method is left open */
  int64_t memory_limit; /* bytes, as the user asked, which is part of a kept plan's key; 0: no limit was asked for */
  void (*show)(void *context, const char *what); /* called with a candidate's words before it is timed; may be NULL */
  void *context;
} bppsa_planner_request;

#define BPPSA_PLANNER_NOTE 600

/* Measures if the request says so, and puts the fastest algorithm and the faster forward pass into the configuration, whose sizes
 * and memory limit are final. *chosen says where the choice of the algorithm comes from, before and after the call; a
 * checkpoint's choice stays. note has BPPSA_PLANNER_NOTE bytes: "", or which candidate had wrong gradients, or why a measured
 * choice could not be kept; neither stops the run. ERR_ARGUMENT: a measurement is asked for although the algorithm is given, and
 * the forward pass is not left open. */
bppsa_status bppsa_planner_choose(const bppsa_planner_request *request, const bppsa_network *network, const bppsa_device *device,
                                  bppsa_network_config *config, bppsa_chosen *chosen, char *note);

#endif
