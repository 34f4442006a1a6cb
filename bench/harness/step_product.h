/* The time of a product of two steps' transposed Jacobians of a recurrent network: what scans over its steps pay more than BP. */
#ifndef BPPSA_BENCH_HARNESS_STEP_PRODUCT_H
#define BPPSA_BENCH_HARNESS_STEP_PRODUCT_H

#include "models/network.h"

/* Seconds of one product for one sample: what the backward pass of a chunked scan takes longer than that of a linear one, over its
 * products. Both passes are verified against each other first. config->batch samples at once, on the device's threads; `passes` of
 * each are timed. ERR_ARGUMENT: no recurrent network; ERR_NUMERIC: the passes differ; ERR_MEMORY. */
bppsa_status bppsa_step_product_measure(const bppsa_network *network, const bppsa_network_config *config,
                                        const bppsa_device *device, uint64_t seed, int64_t passes, double *seconds);

#endif
