/* The LSTM by its textbook equations, for tests. */
#ifndef BPPSA_TESTS_SUPPORT_LSTM_REFERENCE_H
#define BPPSA_TESTS_SUPPORT_LSTM_REFERENCE_H

#include <math.h>

#include "lstm/lstm.h"
#include "tests/support/cell_reference.h"

/* Computes i, f, g and o of lstm/lstm.h. */
static void lstm_gates_of(int64_t hidden, int64_t j, const double *px, const double *ph, double gates[4]) {
  for (int64_t q = 0; q < 4; ++q) {
    const double z = px[q * hidden + j] + ph[q * hidden + j];
    gates[q] = q == 2 ? tanh(z) : 1 / (1 + exp(-z));
  }
}

static void lstm_step(const bppsa_recurrent_config *c, const double *px, const double *ph, const double *before, double *state) {
  for (int64_t j = 0; j < c->hidden; ++j) {
    double s[4];
    lstm_gates_of(c->hidden, j, px, ph, s);
    state[c->hidden + j] = s[1] * before[c->hidden + j] + s[0] * s[2];
    state[j] = s[3] * tanh(state[c->hidden + j]);
  }
}

static void lstm_step_back(const bppsa_recurrent_config *c, const double *px, const double *ph, const double *before,
                           const double *state, const double *g, double *dx, double *dh, double *carried) {
  const int64_t hidden = c->hidden;
  for (int64_t j = 0; j < hidden; ++j) {
    double s[4];
    lstm_gates_of(hidden, j, px, ph, s);
    const double out = tanh(state[hidden + j]), dc = g[hidden + j] + g[j] * s[3] * (1 - out * out);
    dx[j] = dc * s[2] * s[0] * (1 - s[0]);
    dx[hidden + j] = dc * before[hidden + j] * s[1] * (1 - s[1]);
    dx[2 * hidden + j] = dc * s[0] * (1 - s[2] * s[2]);
    dx[3 * hidden + j] = g[j] * out * s[3] * (1 - s[3]);
    for (int64_t q = 0; q < 4; ++q) {
      dh[q * hidden + j] = dx[q * hidden + j];
    }
    carried[j] = 0;
    carried[hidden + j] = dc * s[1];
  }
}

/* Initialises the cell_reference of an LSTM. */
#define LSTM_REFERENCE                                                                                                           \
  { .gates = BPPSA_LSTM_GATES, .pair = true, .cell = &bppsa_lstm_cell, .forward = lstm_step, .backward = lstm_step_back }

#endif
