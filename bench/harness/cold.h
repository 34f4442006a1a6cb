/* Makes caches cold: memory twice as large as the largest cache is written from end to end, so that the next pass finds none of its
 * inputs, weights, states and workspace in a cache. Inputs that take turns would not do: weights and states would stay warm, and a
 * recorded graph reads its inputs at one address. */
#ifndef BPPSA_BENCH_HARNESS_COLD_H
#define BPPSA_BENCH_HARNESS_COLD_H

#include "core/compute/device.h"

typedef struct {
  int64_t cache;  /* bytes of the device's largest cache; 0: caches stay as they are, and the functions do nothing */
  int64_t copies; /* how many copies of the inputs take twice as much as the cache */
  int64_t bytes;  /* bytes of these copies */
  int64_t sweeps; /* how often they were written */
  const bppsa_device *device;
  void *memory;
} bppsa_cold;

/* Bytes of a device's largest cache: a GPU's L2, a processor's last level. ERR_UNSUPPORTED: the system does not say. */
bppsa_status bppsa_cold_cache(const bppsa_device *device, int64_t *bytes);

/* Plans the memory for a cache of `cache` bytes and inputs of `inputs` bytes; allocates nothing. */
bppsa_cold bppsa_cold_plan(const bppsa_device *device, int64_t cache, int64_t inputs);
/* Allocates the memory. ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_cold_create(bppsa_cold *cold);
void bppsa_cold_destroy(bppsa_cold *cold); /* legal without memory */
/* Writes the whole memory: a GPU in its queue, a processor by all threads of the device. ERR_CUDA. */
bppsa_status bppsa_cold_sweep(bppsa_cold *cold);

#endif
