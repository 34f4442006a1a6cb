/* One point while it is measured: its inputs, the reference and the contestants. */
#ifndef BPPSA_BENCH_CASES_RNN_SESSION_H
#define BPPSA_BENCH_CASES_RNN_SESSION_H

#include "bench/cases/rnn_contest.h"

typedef struct bppsa_bench_session bppsa_bench_session;

/* What a contestant's verification needs. */
typedef struct {
  bppsa_bench_session *session;
  int index;   /* of the contestant */
  double unit; /* of its residuals, in rounding errors of the dtype */
} bppsa_bench_entry;

struct bppsa_bench_session {
  const bppsa_bench_point *point;
  const bppsa_bench_limits *limits;
  const bppsa_device *device, *host; /* host: computes the reference; the same as device unless that is a GPU */
  bppsa_bench_result *result;
  bppsa_dataset *data;
  int64_t *indices;
  void *x, *x64, *seed, *seed64;
  double *gradients; /* the reference's, of the layers' parameters one after the other */
  double *logits;
  bppsa_model *holder;            /* has the parameters of cuDNN's networks in host memory */
  void *device_x, *device_seed;   /* GPU */
  int plain[BPPSA_BENCH_METHODS]; /* contestants, or -1 */
  bppsa_contest contest;
  bppsa_bench_entry entries[BPPSA_BENCH_ROWS]; /* of the contestants */
};

static inline bool bppsa_bench_on_gpu(const bppsa_bench_session *s) {
  return bppsa_device_get_kind(s->device) == BPPSA_CUDA;
}

/* Verifies and adds the project's methods whose rows are to be measured, and on a GPU their graphs. The row says so where the
 * device has no kernels for a method, or refuses to record it. ERR_*. */
bppsa_status bppsa_bench_add_methods(bppsa_bench_session *s);
/* On a GPU: the same for cuDNN's algorithms and their graphs. An algorithm that refuses the shape has a row with cuDNN's reason.
 * ERR_*. */
bppsa_status bppsa_bench_add_rivals(bppsa_bench_session *s);

#endif
