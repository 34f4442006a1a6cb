/* The update on a GPU: one launch if a block holds all parameters, otherwise two. */
#include "core/compute/check.cuh"
#include "train/blocks.h"
#include "train/optimizer_internal.h"
#include "train/optimizer_kernels.cuh"

namespace {

/* The fewest parameters in a block that sums squares, and in a block that updates; the most blocks. */
enum { SUMMED = 8 * UPDATE_THREADS, UPDATED = 4 * UPDATE_THREADS, MOST_BLOCKS = 1024 };

/* Parameters in a block that sums squares. */
int64_t stretch_of(int64_t reals) {
  const int64_t size = (reals + UPDATE_BLOCKS - 1) / UPDATE_BLOCKS;
  return size < SUMMED ? (int64_t)SUMMED : size;
}

template <typename real>
void launch(cudaStream_t stream, const bppsa_update_arena *arena, const update_rule &rule, const bppsa_step_factors *factors,
            bppsa_gpu_result *result) {
  const update_reals<real> a = {
      arena->reals, (real *)arena->values, (const real *)arena->gradients, (real *)arena->slots[0], (real *)arena->slots[1],
      arena->fixed};
  const int64_t size = stretch_of(a.count), blocks = (a.count + size - 1) / size;
  const int64_t wide = bppsa_min((a.count + UPDATED - 1) / UPDATED, MOST_BLOCKS);
  const size_t shared = UPDATE_THREADS / UPDATE_WARP * sizeof(double);
  update_squares *sums = blocks > 1 ? (update_squares *)arena->scratch : NULL;
  if (blocks > 1) {
    BPPSA_LAUNCH(bppsa_update_squares<real>, (unsigned)blocks, UPDATE_THREADS, shared, stream, a.count, size, a.gradients, sums,
                 result);
  }
  BPPSA_LAUNCH(bppsa_update_apply<real>, blocks > 1 ? (unsigned)wide : 1u, UPDATE_THREADS, shared, stream, a, rule, sums, blocks,
               factors, result);
}

} // namespace

extern "C" int64_t bppsa_update_scratch(void) {
  return UPDATE_BLOCKS * (int64_t)sizeof(update_squares);
}

extern "C" bppsa_status bppsa_update_queue(const bppsa_device *device, const bppsa_update_arena *arena, double clip_norm,
                                           const bppsa_step_factors *factors, bppsa_gpu_result *result) {
  const bppsa_optimizer_config *c = arena->config;
  const update_rule rule = {bppsa_optimizer_get(c->kind)->moments, c->momentum, c->beta1, c->beta2, c->epsilon,
                            bppsa_optimizer_added_decay(c),        clip_norm};
  const cudaStream_t stream = (cudaStream_t)bppsa_device_get_stream(device);
  BPPSA_TRY(bppsa_cuda_check(cudaSetDevice(bppsa_device_get_index(device)), "update"));
  if (arena->dtype == BPPSA_F32) {
    launch<float>(stream, arena, rule, factors, result);
  } else {
    launch<double>(stream, arena, rule, factors, result);
  }
  return bppsa_cuda_check(cudaGetLastError(), "update: launch");
}
