/* The model of `bench ranks`: what a forward and a backward pass on p ranks should take, from what one rank takes alone and from
 * the messages of the transport, alpha + beta bytes each. docs/time-ranks.md derives it. */
#ifndef BPPSA_BENCH_CASES_RANKS_MODEL_H
#define BPPSA_BENCH_CASES_RANKS_MODEL_H

#include "cnn/network.h"
#include "oracle/collective.h"
#include "scan/method.h"

/* What was measured of a network on one rank, and its sizes. A time is 0 if it was not measured; the model then predicts none. */
typedef struct {
  double forward_s, backward_s; /* sequential BP, the whole batch, without communicators */
  double parallel_s;            /* a forward pass in parallel over time, of one rank; NaN: there is none */
  double path;                  /* its dependent steps, divided by those of the sequential pass */
  double phases;                /* number of its phases in all layers; ranks exchange results between two phases */
  double scan_s;                /* how much longer the linear scan over Jacobians takes than BP */
  double product_s;             /* a product of two transposed Jacobians of the whole batch, of one layer */
  double recurrence;            /* fraction of the backward pass in which a step waits for the step behind it */
  bppsa_link link, collective;  /* a message; a broadcast, for every doubling of the ranks */
  double at_once;               /* ranks that compute at the same time: processors over threads of a rank */
  int64_t steps, layers, batch, micro_batches;
  double vector_bytes, product_bytes, weight_bytes; /* V, M of docs/time-ranks.md; all parameters */
  int64_t parameters;                               /* tensors, each of which is a message in data parallelism */
  bool injected;                                    /* gradients enter at every step: a = 1 in docs/time-ranks.md */
  const bppsa_cnn_network *network;                 /* its gradients become complete layer by layer; NULL: all at once */
} bppsa_ranks_costs;

/* Seconds of a recurrent network along time on p ranks by BP or by a scan, behind a sequential forward pass or a `parallel` one.
 * NaN: a method that the model does not know, or one rank that scans all steps by itself. */
double bppsa_ranks_model_time(const bppsa_ranks_costs *costs, const bppsa_gradient_method *method, bool parallel, int64_t p);

/* Seconds of data parallelism on p ranks by a scheme of schedule/: "wait-free", "priority", "reverse-first-k" with k = reverse.
 * blocks: those of the batch, one after the other on a rank. ERR_* of bppsa_schedule_create and _simulate. */
bppsa_status bppsa_ranks_model_batch(const bppsa_ranks_costs *costs, const char *scheme, int64_t reverse, int64_t p,
                                     int64_t blocks, double *seconds);

#endif
