/* What the two files of `bench forward` share: its passes (bench_forward.c) and its rivals (forward_rivals.c). */
#ifndef BPPSA_BENCH_CASES_BENCH_FORWARD_H
#define BPPSA_BENCH_CASES_BENCH_FORWARD_H

#include "bench/cases/case.h"
#include "core/compute/device_buffer.h"

typedef enum { BPPSA_PASS_SEQUENTIAL, BPPSA_PASS_SPECULATIVE, BPPSA_PASSES } bppsa_pass_kind;

typedef struct bppsa_forward_session bppsa_forward_session;

/* A pass with its own rows: one of the project's passes, which has a model, a method of --rivals, or an algorithm of cuDNN. */
typedef struct {
  bppsa_forward_session *s;
  bppsa_pass_kind kind; /* BPPSA_PASSES if it is a rival */
  bppsa_model *model;
  const char *guest;
  bppsa_cudnn_network *rival;
  bppsa_forward_stats stats; /* of the first pass */
  double worst, error;       /* the largest residual; the largest difference from float64 */
  double failing_s, mean_s;  /* NAN: not measured */
} bppsa_forward_entry;

struct bppsa_forward_session {
  bppsa_bench *bench;
  bppsa_recurrent_config config;
  const char *init;
  bppsa_buffer x;    /* [T,B,I] */
  bppsa_buffer in;   /* the same, in the memory of the device that runs the passes */
  bppsa_buffer zero; /* zeros in the shape of `in`; on a GPU */
  double *reference; /* [T·B·H]: the top layer's states in float64 */
  double moves;      /* the largest difference of such a state when every weight moves by one rounding of the network's type */
  double reordered;  /* the largest error of the sequential pass with its units in other orders */
  bppsa_forward_entry entries[BPPSA_PASSES];
  bppsa_guest *guest;     /* the program of --rivals; NULL: none */
  bppsa_outlook *outlook; /* predicts from earlier points how rivals will do */
  bppsa_forward_entry guests[BPPSA_GUEST_METHODS];
  bppsa_forward_entry rivals[BPPSA_CUDNN_ALGORITHMS];
};

/* max |h_t - f(h_{t-1}, x_t)| of the first layer, whose states are [T·B·H], on the host. cells: c of pairs, whose differences are
 * relative to max(1, |c_t|); otherwise NULL. ERR_* of models. */
bppsa_status bppsa_forward_find_residual(const bppsa_forward_session *s, const double *h, const double *cells, double *worst);

/* Enters the algorithms of cuDNN on a GPU, queued and recorded, then the methods of --rivals. Refused ones are left out, by name.
 * ERR_* of these. */
bppsa_status bppsa_forward_enter_rivals(bppsa_forward_session *s);
void bppsa_forward_end_rivals(bppsa_forward_session *s); /* frees the point's rivals */

#endif
