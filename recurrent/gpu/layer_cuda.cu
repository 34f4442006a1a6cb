/* Stateless passes of a layer on a GPU (recurrent/layer.h): what a pass has of its own. A pass allocates nothing and waits for
 * nothing, so that it can be recorded. */
#include <string.h>

#include "core/compute/memory.h"
#include "recurrent/gpu/layers.cuh"

static_assert(sizeof(recurrent_gpu) <= RECURRENT_PASS_BYTES, "the part of a pass fits into its room");

bppsa_status bppsa_gpu_pass_keep(recurrent_network *n) {
  recurrent_gpu *gpu = n->gpu;
  if (!bppsa_gpu_back_runs(n)) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_cuda_alloc_staging(gpu->index, bppsa_gpu_back_vectors(n), &gpu->vectors));
  bppsa_gpu_back_draw(n, gpu->vectors);
  return BPPSA_OK;
}

void bppsa_gpu_pass_copy(recurrent_network *n, const bppsa_device *device, void *room) {
  memcpy(room, n->gpu, sizeof *n->gpu);
  n->gpu = (recurrent_gpu *)room;
  if (device != NULL) {
    n->gpu->device = n->base.device = device;
    n->gpu->stream = (cudaStream_t)bppsa_device_get_stream(device);
  }
}

bppsa_status bppsa_gpu_pass_begin(recurrent_network *n) {
  const recurrent_gpu *gpu = n->gpu;
  const bppsa_device *device = gpu->device;
  if (bppsa_recurrent_serves(n, RECURRENT_FORWARD)) {
    return gpu->speculate.report != NULL ? bppsa_memory_queue_clear(device, gpu->speculate.report, sizeof(speculate_report))
                                         : BPPSA_OK;
  }
  if (gpu->back.report != NULL) {
    BPPSA_TRY(bppsa_memory_queue_put(device, gpu->back.probes, gpu->vectors, bppsa_gpu_back_vectors(n)));
    BPPSA_TRY(bppsa_memory_queue_clear(device, gpu->back.report, sizeof(back_report)));
  }
  BPPSA_TRY(bppsa_memory_queue_clear(device, gpu->counted, sizeof(unsigned long long)));
  BPPSA_TRY(bppsa_memory_queue_clear(device, gpu->redone, sizeof(unsigned long long)));
  return bppsa_gpu_sequences_begin(n); /* a forward pass does it by itself */
}
