/* Measures how much longer scans over the steps of a recurrent network take than BP: for a step, and for a product of two steps'
 * transposed Jacobians. */
#ifndef BPPSA_CALIBRATE_STEP_PRODUCT_H
#define BPPSA_CALIBRATE_STEP_PRODUCT_H

#include "networks/named_network.h"
#include "oracle/spread.h"

/* Seconds for one sample, 0 or more. */
typedef struct {
  double scan_s;    /* how much longer a linear scan's backward pass takes than BP's, one layer */
  double product_s; /* how much longer a chunked scan's takes than a linear scan's, one product */
  /* The differences of opposite ends of the passes' spreads (core/measure/rounds.h). */
  bppsa_oracle_spread scan_spread, product_spread;
} bppsa_step_cost;

/* The passes of both scans are verified against BP first. config->batch samples at once, on the device's threads; `passes` of each
 * are timed. ERR_ARGUMENT: no recurrent network; ERR_NUMERIC: the passes differ; ERR_MEMORY. */
bppsa_status bppsa_step_product_measure(const bppsa_network *network, const bppsa_network_config *config,
                                        const bppsa_device *device, uint64_t seed, int64_t passes, bppsa_step_cost *cost);

#endif
