/* Without CUDA no batch is made on a GPU. */
#include "train/data/dataset_internal.h"

bppsa_status bppsa_bitstream_queue(const bppsa_dataset *dataset, const bppsa_device *device, uint64_t seed, int64_t count,
                                   const int64_t *indices, const bppsa_view *x, int64_t *labels) {
  (void)dataset, (void)device, (void)seed, (void)count, (void)indices, (void)x, (void)labels;
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "batch on a GPU: this build has no CUDA; use device cpu");
}
