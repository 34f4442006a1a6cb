/* A cell that the library does not know, with two gates a and b and no diagonal:
 *
 *     h_t = p_t + q_t,   p_t = tanh(x W_iaᵀ + b_ia + b_ha + h_{t-1} W_haᵀ)
 *                        q_t = tanh(x W_ibᵀ + b_ib + b_hb + h_{t-1} W_hbᵀ)
 *     Jᵀ_t = W_haᵀ diag(1 - p_t²) + W_hbᵀ diag(1 - q_t²)
 *
 * It has only float64, and only the CPU. */
#ifndef BPPSA_TESTS_SUPPORT_INVENTED_CELL_H
#define BPPSA_TESTS_SUPPORT_INVENTED_CELL_H

#include <math.h>

#include "recurrent/recurrent.h"

/* Returns the row of sample b of the block, step t, in an array of `vectors` H-vectors for each sample. */
static inline double *two_tanh_row(const bppsa_cell_block *c, const void *base, int64_t t, int64_t b, int64_t vectors) {
  return (double *)base + (t * c->batch + c->first + b) * vectors * c->hidden;
}

static void two_tanh_forward(const bppsa_cell_block *c) {
  const int64_t h = c->hidden;
  for (int64_t at = 0; at < c->steps * c->samples; ++at) {
    const int64_t t = 1 + at / c->samples, b = at % c->samples;
    const double *before = two_tanh_row(c, c->h, t - 1, b, 1), *pre = two_tanh_row(c, c->pre, t - 1, b, 2);
    double *state = two_tanh_row(c, c->h, t, b, 1), *kept = two_tanh_row(c, c->saved, t - 1, b, 2);
    for (int64_t i = 0; i < 2 * h; ++i) {
      double sum = pre[i];
      for (int64_t j = 0; j < h; ++j) {
        sum += ((const double *)c->w_hh_t)[j * c->w_row_t + i] * before[j];
      }
      kept[i] = tanh(sum);
    }
    for (int64_t i = 0; i < h; ++i) {
      state[i] = kept[i] + kept[h + i];
    }
  }
}

/* δ_t */
static inline void two_tanh_delta(const bppsa_cell_block *c, int64_t t, int64_t b) {
  const double *kept = two_tanh_row(c, c->saved, t - 1, b, 2), *g = two_tanh_row(c, c->g, t, b, 1);
  double *delta = two_tanh_row(c, c->delta_x, t - 1, b, 2);
  for (int64_t i = 0; i < 2 * c->hidden; ++i) {
    delta[i] = (1 - kept[i] * kept[i]) * g[i % c->hidden];
  }
}

static void two_tanh_backward(const bppsa_cell_block *c) {
  for (int64_t t = c->steps; t >= 1; --t) {
    for (int64_t b = 0; b < c->samples; ++b) {
      two_tanh_delta(c, t, b);
      if (t == 1 && !c->input) {
        continue;
      }
      const double *delta = two_tanh_row(c, c->delta_x, t - 1, b, 2);
      double *before = two_tanh_row(c, c->g, t - 1, b, 1);
      for (int64_t j = 0; j < c->hidden; ++j) {
        double sum = c->injected ? before[j] : 0;
        for (int64_t i = 0; i < 2 * c->hidden; ++i) {
          sum += ((const double *)c->w_hh)[i * c->w_row + j] * delta[i];
        }
        before[j] = sum;
      }
    }
  }
}

static void two_tanh_coefficients(const bppsa_cell_block *c) {
  for (int64_t at = 0; at < c->steps * c->samples; ++at) {
    const int64_t t = 1 + at / c->samples, b = at % c->samples;
    const double *kept = two_tanh_row(c, c->saved, t - 1, b, 2);
    for (int64_t i = 0; i < 2 * c->hidden; ++i) {
      two_tanh_row(c, c->columns[i / c->hidden], t - 1, b, 1)[i % c->hidden] = 1 - kept[i] * kept[i];
    }
  }
}

static void two_tanh_deltas(const bppsa_cell_block *c) {
  for (int64_t at = 0; at < c->steps * c->samples; ++at) {
    two_tanh_delta(c, 1 + at / c->samples, at % c->samples);
  }
}

static const bppsa_cell two_tanh = {
    .name = "sum",
    .gates = 2,
    .matrices = 2,
    .saved = 2,
    .forward = {[BPPSA_F64] = two_tanh_forward},
    .backward = {[BPPSA_F64] = two_tanh_backward},
    .coefficients = {[BPPSA_F64] = two_tanh_coefficients},
    .deltas = {[BPPSA_F64] = two_tanh_deltas},
};

#endif
