/* A problem of a recurrent network, and its gradients as the textbook has them, in float64. The program that includes it has
 * defined `cell`. */
#ifndef BPPSA_TESTS_SUPPORT_CELL_PROBLEM_H
#define BPPSA_TESTS_SUPPORT_CELL_PROBLEM_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "tests/support/cell_reference.h"
#include "tests/support/support.h"

enum { MOST_LAYERS = 3, TENSORS = 4 * MOST_LAYERS + 2 };

/* A problem in float64. Parameters in the model's order; labels [rows]. */
typedef struct {
  bppsa_recurrent_config c;
  int64_t count, sizes[TENSORS];
  double *w[TENSORS], *dw[TENSORS], *magnitude[TENSORS]; /* magnitude: Σ |terms| of dw */
  double *x, *dx, *h0, *dh0;
  int64_t *labels;
} problem;

static int64_t in_of(const bppsa_recurrent_config *c, int64_t l) {
  return l == 0 ? c->input : c->hidden;
}

/* Numbers in a state. */
static int64_t state_of(const bppsa_recurrent_config *c) {
  return (cell.pair ? 2 : 1) * c->hidden;
}

/* From one row to the next of a layer's inputs, which are the states of the layer below. */
static int64_t input_row(const bppsa_recurrent_config *c, int64_t l) {
  return l == 0 ? c->input : state_of(c);
}

static double *zeros(int64_t count) {
  double *to = bppsa_calloc(count, sizeof *to);
  assert_non_null(to);
  return to;
}

/* W_ih x + b_ih and W_hh h + b_hh of one sample and step, each [G·H]. */
static void pre_activations(const problem *p, int64_t l, const double *x, const double *h, double *px, double *ph) {
  const int64_t I = in_of(&p->c, l), H = p->c.hidden;
  double *const *w = p->w + 4 * l;
  for (int64_t j = 0; j < cell.gates * H; ++j) {
    px[j] = w[2][j];
    ph[j] = w[3][j];
    for (int64_t k = 0; k < I; ++k) {
      px[j] += w[0][j * I + k] * x[k];
    }
    for (int64_t k = 0; k < H; ++k) {
      ph[j] += w[1][j * H + k] * h[k];
    }
  }
}

/* h [L][T+1][B][S], logits: forward, one scalar at a time. Returns the mean cross-entropy. */
static double reference_forward(const problem *p, double *h, double *probabilities) {
  const bppsa_recurrent_config *c = &p->c;
  const int64_t T = c->seq_len, B = c->batch, H = c->hidden, C = c->classes, S = state_of(c);
  for (int64_t l = 0; l < c->layers; ++l) {
    const int64_t I = input_row(c, l);
    double *hl = h + l * (T + 1) * B * S;
    const double *in = l == 0 ? p->x : h + (l - 1) * (T + 1) * B * S + B * S;
    memcpy(hl, p->h0 + l * B * S, (size_t)(B * S) * sizeof *hl);
    double *px = zeros(2 * cell.gates * H), *ph = px + cell.gates * H;
    for (int64_t row = 0; row < T * B; ++row) {
      pre_activations(p, l, in + row * I, hl + row * S, px, ph);
      cell.forward(c, px, ph, hl + row * S, hl + (B + row) * S);
    }
    bppsa_free(px);
  }
  const double *top = h + (c->layers - 1) * (T + 1) * B * S, *const *head = (const double *const *)p->w + 4 * c->layers;
  const int64_t rows = c->loss_all ? T * B : B;
  double loss = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const double *hr = top + ((c->loss_all ? B : T * B) + r) * S;
    double *pr = probabilities + r * C, most = -INFINITY, sum = 0;
    for (int64_t k = 0; k < C; ++k) {
      pr[k] = head[1][k];
      for (int64_t j = 0; j < H; ++j) {
        pr[k] += head[0][k * H + j] * hr[j];
      }
      most = pr[k] > most ? pr[k] : most;
    }
    for (int64_t k = 0; k < C; ++k) {
      sum += exp(pr[k] - most);
    }
    loss += (log(sum) + most - pr[p->labels[r]]) / (double)rows;
    for (int64_t k = 0; k < C; ++k) {
      pr[k] = (exp(pr[k] - most) / sum - (k == p->labels[r])) / (double)rows; /* the seed */
    }
  }
  return loss;
}

/* dw[tensor][index] += term */
static void accumulate(problem *p, int64_t tensor, int64_t index, double term) {
  p->dw[tensor][index] += term;
  p->magnitude[tensor][index] += fabs(term);
}

static void reference_backward(problem *p, const double *h, const double *seed) {
  const bppsa_recurrent_config *c = &p->c;
  const int64_t T = c->seq_len, B = c->batch, H = c->hidden, C = c->classes, L = c->layers, S = state_of(c);
  const int64_t G = cell.gates * H;
  double *g = zeros((T + 1) * B * S), *down = zeros((T + 1) * B * S), *px = zeros(4 * G + S), *ph = px + G;
  double *dx = ph + G, *dh = dx + G, *carried = dh + G;
  const double *top = h + (L - 1) * (T + 1) * B * S;
  const int64_t from = c->loss_all ? 1 : T;
  for (int64_t t = from; t <= T; ++t) {
    for (int64_t b = 0; b < B; ++b) {
      const double *s = seed + ((t - from) * B + b) * C, *hr = top + (t * B + b) * S;
      for (int64_t k = 0; k < C; ++k) {
        accumulate(p, 4 * L + 1, k, s[k]);
        for (int64_t j = 0; j < H; ++j) {
          accumulate(p, 4 * L, k * H + j, s[k] * hr[j]);
          g[(t * B + b) * S + j] += s[k] * p->w[4 * L][k * H + j];
        }
      }
    }
  }
  for (int64_t l = L - 1; l >= 0; --l) {
    const int64_t I = in_of(c, l), R = input_row(c, l);
    const double *hl = h + l * (T + 1) * B * S, *in = l == 0 ? p->x : h + (l - 1) * (T + 1) * B * S + B * S;
    double *const *w = p->w + 4 * l, *din = l == 0 ? p->dx : down + B * S;
    memset(down, 0, (size_t)((T + 1) * B * S) * sizeof *down);
    for (int64_t t = T; t >= 1; --t) {
      for (int64_t b = 0; b < B; ++b) {
        const int64_t row = (t - 1) * B + b;
        const double *gt = g + (t * B + b) * S, *ht = hl + (t * B + b) * S, *before = hl + row * S;
        pre_activations(p, l, in + row * R, before, px, ph);
        cell.backward(c, px, ph, before, ht, gt, dx, dh, carried);
        for (int64_t j = 0; j < S; ++j) {
          g[row * S + j] += carried[j];
        }
        for (int64_t j = 0; j < G; ++j) {
          accumulate(p, 4 * l + 2, j, dx[j]);
          accumulate(p, 4 * l + 3, j, dh[j]);
          for (int64_t k = 0; k < I; ++k) {
            accumulate(p, 4 * l, j * I + k, dx[j] * in[row * R + k]);
            din[row * R + k] += dx[j] * w[0][j * I + k];
          }
          for (int64_t k = 0; k < H; ++k) {
            accumulate(p, 4 * l + 1, j * H + k, dh[j] * before[k]);
            g[row * S + k] += dh[j] * w[1][j * H + k];
          }
        }
      }
    }
    memcpy(p->dh0 + l * B * S, g, (size_t)(B * S) * sizeof *g);
    double *swap = g;
    g = down;
    down = swap;
  }
  bppsa_free(g);
  bppsa_free(down);
  bppsa_free(px);
}

static double *hidden_states(const problem *p) {
  return zeros(p->c.layers * (p->c.seq_len + 1) * p->c.batch * state_of(&p->c));
}

static int64_t logit_count(const bppsa_recurrent_config *c) {
  return (c->loss_all ? c->seq_len : 1) * c->batch * c->classes;
}

/* Returns the loss. */
static double reference(problem *p) {
  double *h = hidden_states(p), *seed = zeros(logit_count(&p->c));
  const double loss = reference_forward(p, h, seed);
  reference_backward(p, h, seed);
  bppsa_free(h);
  bppsa_free(seed);
  return loss;
}

/* Random weights in PyTorch's default range, or orthogonal W_hh; everything rounded to the dtype. */
static problem make_problem(const bppsa_recurrent_config *config, bool orthogonal_hh, uint64_t seed) {
  problem p = {.c = *config, .count = 4 * config->layers + 2};
  const int64_t H = config->hidden, rows = config->seq_len * config->batch;
  for (int64_t i = 0; i < p.count; ++i) {
    const int64_t l = i / 4, which = l == config->layers ? 4 + i % 4 : i % 4;
    const int64_t G = cell.gates * H, sizes[] = {G * in_of(config, l), G * H, G, G, config->classes * H, config->classes};
    p.sizes[i] = sizes[which];
    p.w[i] = uniform(seed + (uint64_t)i, sizes[which], 1 / sqrt((double)H));
    for (int64_t gate = 0; which == 1 && orthogonal_hh && gate < cell.gates; ++gate) {
      double *block = orthogonal(seed + (uint64_t)(i + 100 * gate), H, 1);
      memcpy(p.w[i] + gate * H * H, block, (size_t)(H * H) * sizeof *block);
      bppsa_free(block);
    }
    p.dw[i] = zeros(sizes[which]);
    p.magnitude[i] = zeros(sizes[which]);
    bppsa_free(rounded(config->dtype, p.w[i], sizes[which]));
  }
  p.x = uniform(seed + 50, rows * config->input, 1);
  bppsa_free(rounded(config->dtype, p.x, rows * config->input));
  p.dx = zeros(rows * config->input);
  const int64_t states = config->layers * config->batch * state_of(config);
  p.h0 = uniform(seed + 51, states, 0.5);
  bppsa_free(rounded(config->dtype, p.h0, states));
  p.dh0 = zeros(states);
  const int64_t labels = config->loss_all ? rows : config->batch;
  p.labels = bppsa_calloc(labels, sizeof *p.labels);
  assert_non_null(p.labels);
  for (int64_t i = 0; i < labels; ++i) {
    p.labels[i] = (int64_t)((seed + (uint64_t)(i * i + 3 * i)) % (uint64_t)config->classes);
  }
  return p;
}

static void free_problem(problem *p) {
  for (int64_t i = 0; i < p->count; ++i) {
    bppsa_free(p->w[i]);
    bppsa_free(p->dw[i]);
    bppsa_free(p->magnitude[i]);
  }
  bppsa_free(p->x);
  bppsa_free(p->dx);
  bppsa_free(p->h0);
  bppsa_free(p->dh0);
  bppsa_free(p->labels);
}

#endif
