/* A point being measured: inputs, reference and those who take part. */
#ifndef BPPSA_CLI_BENCH_SESSION_H
#define BPPSA_CLI_BENCH_SESSION_H

#include "cli/bench_contest.h"

enum { BPPSA_HEAD_PARAMETERS = 2 }; /* of a recurrent model, its last ones: they get no gradient from the layers alone */

typedef struct {
  const bppsa_bench_point *point;
  const bppsa_bench_limits *limits;
  const bppsa_device *device, *host; /* host: where the reference is computed; the same unless the device is a GPU */
  bppsa_bench_result *result;
  bppsa_dataset *data;
  int64_t *indices;
  void *x, *x64, *seed, *seed64;
  double *gradients; /* of the layers' parameters, one behind the other */
  double *logits;
  bppsa_model *holder;            /* the parameters of cuDNN's networks, in host memory */
  void *device_x, *device_seed;   /* GPU */
  int plain[BPPSA_BENCH_METHODS]; /* contestants, or -1 */
  bppsa_contest contest;
} bppsa_bench_session;

static inline bool bppsa_bench_on_gpu(const bppsa_bench_session *s) {
  return bppsa_device_get_kind(s->device) == BPPSA_CUDA;
}

/* Adds every method whose row is to be measured, verified: the project's, and on a GPU their graphs. A method that the device has
 * no kernels for and a capture that is refused are rows that say so. ERR_*. */
bppsa_status bppsa_bench_add_methods(bppsa_bench_session *s);
/* On a GPU: cuDNN's algorithms and their graphs, likewise; those that refuse the shape are rows with cuDNN's words. ERR_*. */
bppsa_status bppsa_bench_add_rivals(bppsa_bench_session *s);

#endif
