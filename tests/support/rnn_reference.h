/* The RNN by its textbook equations, for tests. */
#ifndef BPPSA_TESTS_SUPPORT_RNN_REFERENCE_H
#define BPPSA_TESTS_SUPPORT_RNN_REFERENCE_H

#include <math.h>

#include "rnn/rnn.h"
#include "tests/support/cell_reference.h"

static void rnn_step(const bppsa_recurrent_config *c, const double *px, const double *ph, const double *before, double *h) {
  (void)before;
  for (int64_t j = 0; j < c->hidden; ++j) {
    const double sum = px[j] + ph[j];
    h[j] = c->nonlinearity == BPPSA_NONLINEARITY_TANH ? tanh(sum) : sum > 0 ? sum : 0;
  }
}

static void rnn_step_back(const bppsa_recurrent_config *c, const double *px, const double *ph, const double *before,
                          const double *h, const double *g, double *dx, double *dh, double *carried) {
  (void)px;
  (void)ph;
  (void)before;
  for (int64_t j = 0; j < c->hidden; ++j) {
    dx[j] = dh[j] = g[j] * (c->nonlinearity == BPPSA_NONLINEARITY_TANH ? 1 - h[j] * h[j] : h[j] > 0);
    carried[j] = 0;
  }
}

/* Initialises the cell_reference of an RNN. */
#define RNN_REFERENCE                                                                                                            \
  { .gates = 1, .relu = true, .cell = &bppsa_rnn_cell, .forward = rnn_step, .backward = rnn_step_back }

#endif
