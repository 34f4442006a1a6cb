/* The GRU by its textbook equations, for tests. */
#ifndef BPPSA_TESTS_SUPPORT_GRU_REFERENCE_H
#define BPPSA_TESTS_SUPPORT_GRU_REFERENCE_H

#include <math.h>

#include "gru/gru.h"
#include "tests/support/cell_reference.h"

/* Computes r, z, m and n of gru/gru.h. */
static void gru_gates_of(int64_t hidden, int64_t j, const double *px, const double *ph, double gates[4]) {
  gates[0] = 1 / (1 + exp(-(px[j] + ph[j])));
  gates[1] = 1 / (1 + exp(-(px[hidden + j] + ph[hidden + j])));
  gates[2] = ph[2 * hidden + j];
  gates[3] = tanh(px[2 * hidden + j] + gates[0] * gates[2]);
}

static void gru_step(const bppsa_recurrent_config *c, const double *px, const double *ph, const double *before, double *h) {
  for (int64_t j = 0; j < c->hidden; ++j) {
    double s[4];
    gru_gates_of(c->hidden, j, px, ph, s);
    h[j] = (1 - s[1]) * s[3] + s[1] * before[j];
  }
}

static void gru_step_back(const bppsa_recurrent_config *c, const double *px, const double *ph, const double *before,
                          const double *h, const double *g, double *dx, double *dh, double *carried) {
  const int64_t hidden = c->hidden;
  (void)h;
  for (int64_t j = 0; j < hidden; ++j) {
    double s[4];
    gru_gates_of(hidden, j, px, ph, s);
    const double r = s[0], z = s[1], m = s[2], n = s[3];
    const double dn = g[j] * (1 - z) * (1 - n * n), dr = dn * m * r * (1 - r), dz = g[j] * (before[j] - n) * z * (1 - z);
    dx[j] = dh[j] = dr;
    dx[hidden + j] = dh[hidden + j] = dz;
    dx[2 * hidden + j] = dn;
    dh[2 * hidden + j] = dn * r;
    carried[j] = g[j] * z;
  }
}

/* Initialises the cell_reference of a GRU. */
#define GRU_REFERENCE                                                                                                            \
  { .gates = BPPSA_GRU_GATES, .cell = &bppsa_gru_cell, .forward = gru_step, .backward = gru_step_back }

#endif
