/* Stands in for layers_cuda.cu in a build without CUDA, in which no network is on a GPU. */
#include "recurrent/recurrent_internal.h"

static bppsa_status create(recurrent_network *n, const bppsa_device *device) {
  (void)n, (void)device;
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "network on a GPU: this build has no CUDA; use device cpu");
}

static void destroy(recurrent_network *n) {
  (void)n;
}

/* Creation fails, so nothing else is called. */
const recurrent_backend bppsa_recurrent_cuda = {.create = create, .destroy = destroy};
