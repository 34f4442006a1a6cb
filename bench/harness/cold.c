#include "bench/harness/cold.h"

#include <inttypes.h>
#include <math.h>
#include <unistd.h>

#include "core/compute/memory.h"
#include "core/compute/pool.h"

enum { LINE = 64, PIECE = 1 << 16 }; /* bytes */

bppsa_status bppsa_cold_cache(const bppsa_device *device, int64_t *bytes) {
  static const int levels[] = {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE};
  if (bppsa_device_get_kind(device) == BPPSA_CUDA) {
    return bppsa_memory_cache(device, bytes);
  }
  for (size_t i = 0; i < sizeof levels / sizeof levels[0]; ++i) {
    const int64_t size = sysconf(levels[i]);
    if (size > 0) {
      *bytes = size;
      return BPPSA_OK;
    }
  }
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "cache: the system does not say how large this processor's caches are");
}

bppsa_cold bppsa_cold_plan(const bppsa_device *device, int64_t cache, int64_t inputs) {
  const int64_t copies = cache > 0 ? (2 * cache + inputs - 1) / inputs : 0;
  return (bppsa_cold){.cache = cache, .copies = copies, .bytes = copies * inputs, .device = device};
}

bppsa_status bppsa_cold_create(bppsa_cold *cold) {
  if (cold->cache == 0) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_memory_alloc(cold->device, cold->bytes, &cold->memory));
  return bppsa_memory_clear(cold->device, cold->memory, cold->bytes);
}

void bppsa_cold_destroy(bppsa_cold *cold) {
  bppsa_memory_free(cold->device, cold->memory);
  cold->memory = NULL;
}

/* Reads and writes a number of each line, because a fill of many bytes may pass a processor's caches by. */
static void touch(const void *context, int32_t worker, int64_t first, int64_t end) {
  const bppsa_cold *cold = context;
  volatile unsigned char *bytes = cold->memory;
  (void)worker;
  for (int64_t i = first * PIECE; i < end * PIECE && i < cold->bytes; i += LINE) {
    ++bytes[i];
  }
}

bppsa_status bppsa_cold_sweep(bppsa_cold *cold) {
  if (cold->memory == NULL) {
    return BPPSA_OK;
  }
  ++cold->sweeps;
  if (bppsa_device_get_kind(cold->device) == BPPSA_CUDA) {
    return bppsa_memory_queue_clear(cold->device, cold->memory, cold->bytes);
  }
  bppsa_parallel_for(bppsa_device_get_threads(cold->device), (cold->bytes + PIECE - 1) / PIECE, INFINITY, touch, cold);
  return BPPSA_OK;
}
