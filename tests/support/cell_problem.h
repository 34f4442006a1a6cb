/* A problem for a recurrent network, and its textbook gradients in float64. A program that includes this has defined `cell`. */
#ifndef BPPSA_TESTS_SUPPORT_CELL_PROBLEM_H
#define BPPSA_TESTS_SUPPORT_CELL_PROBLEM_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "tests/support/cell_reference.h"
#include "tests/support/support.h"

enum { MOST_LAYERS = 3, TENSORS = 4 * 2 * MOST_LAYERS + 2 };

/* A problem in float64. Tensors have the model's order; biases are 0 if the model has none. In a layer of two directions the
 * reverse direction's tensors follow the forward one's; "a sweep" is one direction of a layer. labels [rows] */
typedef struct {
  bppsa_recurrent_config c;
  int64_t *lengths; /* steps of each sample, [B]; NULL: T. After a sample's end x is NaN */
  int64_t count, sizes[TENSORS];
  double *w[TENSORS], *dw[TENSORS], *magnitude[TENSORS]; /* magnitude: Σ |terms| of dw */
  double *x, *dx, *h0, *dh0;
  int64_t *labels;
} problem;

static int64_t directions_of(const bppsa_recurrent_config *c) {
  return c->bidirectional ? 2 : 1;
}

static int64_t sweeps_of(const bppsa_recurrent_config *c) {
  return c->layers * directions_of(c);
}

/* Counts the numbers in a layer's output at one step. */
static int64_t width_of(const bppsa_recurrent_config *c) {
  return c->hidden * directions_of(c);
}

static int64_t in_of(const bppsa_recurrent_config *c, int64_t layer) {
  return layer == 0 ? c->input : width_of(c);
}

/* Counts the numbers in a state. */
static int64_t state_of(const bppsa_recurrent_config *c) {
  return (cell.pair ? 2 : 1) * c->hidden;
}

static int64_t length_of(const problem *p, int64_t sample) {
  return p->lengths != NULL ? p->lengths[sample] : p->c.seq_len;
}

/* Returns the row, in T·B, of the k-th step that a sweep computes for a sample; k counts from 1. */
static int64_t row_of(const problem *p, bool reverse, int64_t k, int64_t sample) {
  return (reverse ? length_of(p, sample) - k : k - 1) * p->c.batch + sample;
}

static double *zeros(int64_t count) {
  double *to = bppsa_calloc(count, sizeof *to);
  assert_non_null(to);
  return to;
}

/* Computes W_ih x + b_ih and W_hh h + b_hh for one sample and step, each [G·H]. */
static void pre_activations(const problem *p, int64_t sweep, const double *x, const double *h, double *px, double *ph) {
  const int64_t I = in_of(&p->c, sweep / directions_of(&p->c)), H = p->c.hidden;
  double *const *w = p->w + 4 * sweep;
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

/* The states of a problem: h [L·D][T+1][B][S] holds those of each sweep in its own order; in [L+1][T·B][D·H] holds each
 * layer's inputs after the first, and the last layer's outputs, in the order of time. */
typedef struct {
  double *h, *in;
} reference_states;

static reference_states make_states(const problem *p) {
  const bppsa_recurrent_config *c = &p->c;
  return (reference_states){zeros(sweeps_of(c) * (c->seq_len + 1) * c->batch * state_of(c)),
                            zeros((c->layers + 1) * c->seq_len * c->batch * width_of(c))};
}

static void free_states(reference_states *s) {
  bppsa_free(s->h);
  bppsa_free(s->in);
}

static const double *input_of(const problem *p, const reference_states *s, int64_t layer) {
  return layer == 0 ? p->x : s->in + layer * p->c.seq_len * p->c.batch * width_of(&p->c);
}

static void forward_sweep(const problem *p, int64_t sweep, reference_states *s) {
  const bppsa_recurrent_config *c = &p->c;
  const int64_t T = c->seq_len, B = c->batch, H = c->hidden, S = state_of(c), D = directions_of(c);
  const int64_t l = sweep / D, I = in_of(c, l);
  const double *in = input_of(p, s, l);
  double *h = s->h + sweep * (T + 1) * B * S, *out = s->in + (l + 1) * T * B * D * H, *px = zeros(2 * cell.gates * H);
  memcpy(h, p->h0 + sweep * B * S, (size_t)(B * S) * sizeof *h);
  for (int64_t k = 1; k <= T; ++k) {
    for (int64_t b = 0; b < B; ++b) {
      if (k <= length_of(p, b)) {
        const int64_t row = row_of(p, sweep % D != 0, k, b);
        double *state = h + (k * B + b) * S;
        pre_activations(p, sweep, in + row * I, state - B * S, px, px + cell.gates * H);
        cell.forward(c, px, px + cell.gates * H, state - B * S, state);
        memcpy(out + (row * D + sweep % D) * H, state, (size_t)H * sizeof *out);
      }
    }
  }
  bppsa_free(px);
}

/* Counts the rows of logits: [T·B] or [B]. */
static int64_t logit_rows(const bppsa_recurrent_config *c) {
  return (c->loss_all ? c->seq_len : 1) * c->batch;
}

static int64_t logit_count(const bppsa_recurrent_config *c) {
  return logit_rows(c) * c->classes;
}

/* Does the row count in the loss? Rows after a sample's end do not. */
static bool row_counts(const problem *p, int64_t row) {
  return !p->c.loss_all || row / p->c.batch < length_of(p, row % p->c.batch);
}

static int64_t counted_rows(const problem *p) {
  int64_t rows = 0;
  for (int64_t r = 0; r < logit_rows(&p->c); ++r) {
    rows += row_counts(p, r);
  }
  return rows;
}

/* Finds the part [H] of the top layer's output that direction d gives a row of logits: at that step, or the sweep's last state. */
static const double *top_of(const problem *p, const reference_states *s, int64_t row, int64_t d) {
  const bppsa_recurrent_config *c = &p->c;
  const int64_t T = c->seq_len, B = c->batch, D = directions_of(c);
  return c->loss_all ? s->in + (c->layers * T * B + row) * width_of(c) + d * c->hidden
                     : s->h + (((c->layers - 1) * D + d) * (T + 1) + length_of(p, row)) * B * state_of(c) + row * state_of(c);
}

/* Turns a row of logits into the seed of a mean cross-entropy over `rows` rows, and returns its loss. 1 - p of the label is
 * summed from the other probabilities, because a difference would cancel for p near 1. */
static double to_seed(double *row, int64_t classes, int64_t label, int64_t rows) {
  double most = -INFINITY, others = 0;
  for (int64_t k = 0; k < classes; ++k) {
    most = fmax(most, row[k]);
  }
  for (int64_t k = 0; k < classes; ++k) {
    others += k == label ? 0 : exp(row[k] - most);
  }
  const double own = exp(row[label] - most), sum = others + own, loss = own == 1 ? log1p(others) : log(sum) + most - row[label];
  for (int64_t k = 0; k < classes; ++k) {
    row[k] = (k == label ? -others : exp(row[k] - most)) / sum / (double)rows;
  }
  return loss / (double)rows;
}

/* Makes the forward pass, one scalar at a time. Returns the mean cross-entropy; seed [rows][C] is its gradient. */
static double reference_forward(const problem *p, reference_states *s, double *seed) {
  const bppsa_recurrent_config *c = &p->c;
  const int64_t H = c->hidden, C = c->classes, W = width_of(c), sweeps = sweeps_of(c), rows = counted_rows(p);
  for (int64_t sweep = 0; sweep < sweeps; ++sweep) {
    forward_sweep(p, sweep, s);
  }
  double *const *head = p->w + 4 * sweeps, loss = 0;
  for (int64_t r = 0; r < logit_rows(c); ++r) {
    double *row = seed + r * C;
    if (!row_counts(p, r)) {
      continue;
    }
    for (int64_t k = 0; k < C; ++k) {
      row[k] = head[1][k];
      for (int64_t j = 0; j < W; ++j) {
        row[k] += head[0][k * W + j] * top_of(p, s, r, j / H)[j % H];
      }
    }
    loss += to_seed(row, C, p->labels[r], rows);
  }
  return loss;
}

/* dw[tensor][index] += term */
static void accumulate(problem *p, int64_t tensor, int64_t index, double term) {
  p->dw[tensor][index] += term;
  p->magnitude[tensor][index] += fabs(term);
}

/* Adds the gradients of the head; down [rows][D·H] receives the gradients of its inputs. */
static void backward_head(problem *p, const reference_states *s, const double *seed, double *down) {
  const bppsa_recurrent_config *c = &p->c;
  const int64_t H = c->hidden, C = c->classes, W = width_of(c), head = 4 * sweeps_of(c);
  for (int64_t r = 0; r < logit_rows(c); ++r) {
    for (int64_t k = 0; k < C && row_counts(p, r); ++k) {
      accumulate(p, head + 1, k, seed[r * C + k]);
      for (int64_t j = 0; j < W; ++j) {
        accumulate(p, head, k * W + j, seed[r * C + k] * top_of(p, s, r, j / H)[j % H]);
        down[r * W + j] += seed[r * C + k] * p->w[head][k * W + j];
      }
    }
  }
}

/* out [T·B][D·H]: gradients of the layer's outputs; last [B][D·H]: those of its last states, or NULL; din: the gradients of
 * its inputs are added to it. */
static void backward_sweep(problem *p, const reference_states *s, int64_t sweep, const double *out, const double *last,
                           double *din) {
  const bppsa_recurrent_config *c = &p->c;
  const int64_t T = c->seq_len, B = c->batch, H = c->hidden, S = state_of(c), D = directions_of(c), G = cell.gates * H;
  const int64_t l = sweep / D, I = in_of(c, l), d = sweep % D;
  const double *h = s->h + sweep * (T + 1) * B * S, *in = input_of(p, s, l);
  double *const *w = p->w + 4 * sweep, *g = zeros((T + 1) * B * S), *px = zeros(4 * G + S), *ph = px + G;
  double *dx = ph + G, *dh = dx + G, *carried = dh + G;
  for (int64_t k = T; k >= 1; --k) {
    for (int64_t b = 0; b < B; ++b) {
      if (k > length_of(p, b)) {
        continue;
      }
      const int64_t row = row_of(p, d != 0, k, b);
      double *gt = g + (k * B + b) * S, *down = gt - B * S;
      const double *state = h + (k * B + b) * S, *before = state - B * S;
      for (int64_t j = 0; j < H; ++j) {
        gt[j] += out[(row * D + d) * H + j] + (last != NULL && k == length_of(p, b) ? last[(b * D + d) * H + j] : 0);
      }
      pre_activations(p, sweep, in + row * I, before, px, ph);
      cell.backward(c, px, ph, before, state, gt, dx, dh, carried);
      for (int64_t j = 0; j < S; ++j) {
        down[j] += carried[j];
      }
      for (int64_t j = 0; j < G; ++j) {
        accumulate(p, 4 * sweep + 2, j, dx[j]);
        accumulate(p, 4 * sweep + 3, j, dh[j]);
        for (int64_t i = 0; i < I; ++i) {
          accumulate(p, 4 * sweep, j * I + i, dx[j] * in[row * I + i]);
          din[row * I + i] += dx[j] * w[0][j * I + i];
        }
        for (int64_t i = 0; i < H; ++i) {
          accumulate(p, 4 * sweep + 1, j * H + i, dh[j] * before[i]);
          down[i] += dh[j] * w[1][j * H + i];
        }
      }
    }
  }
  memcpy(p->dh0 + sweep * B * S, g, (size_t)(B * S) * sizeof *g);
  bppsa_free(g);
  bppsa_free(px);
}

static void reference_backward(problem *p, const reference_states *s, const double *seed) {
  const bppsa_recurrent_config *c = &p->c;
  const int64_t rows = c->seq_len * c->batch, D = directions_of(c), W = width_of(c);
  double *out = zeros(rows * W), *last = c->loss_all ? NULL : zeros(c->batch * W);
  backward_head(p, s, seed, c->loss_all ? out : last);
  for (int64_t l = c->layers - 1; l >= 0; --l) {
    double *din = l == 0 ? p->dx : zeros(rows * W);
    for (int64_t d = 0; d < D; ++d) {
      backward_sweep(p, s, l * D + d, out, l == c->layers - 1 ? last : NULL, din);
    }
    bppsa_free(out);
    out = din;
  }
  bppsa_free(last);
}

/* Computes all gradients of the problem and returns the loss. */
static double reference(problem *p) {
  reference_states states = make_states(p);
  double *seed = zeros(logit_count(&p->c));
  const double loss = reference_forward(p, &states, seed);
  reference_backward(p, &states, seed);
  free_states(&states);
  bppsa_free(seed);
  return loss;
}

/* Makes random weights in PyTorch's default range, or an orthogonal W_hh; rounds everything to the dtype. */
static problem make_problem(const bppsa_recurrent_config *config, bool orthogonal_hh, uint64_t seed) {
  const int64_t H = config->hidden, rows = config->seq_len * config->batch, sweeps = sweeps_of(config), W = width_of(config);
  problem p = {.c = *config, .count = 4 * sweeps + 2};
  for (int64_t i = 0; i < p.count; ++i) {
    const int64_t sweep = i / 4, which = sweep == sweeps ? 4 + i % 4 : i % 4, G = cell.gates * H;
    const int64_t sizes[] = {G * in_of(config, sweep / directions_of(config)), G * H, G, G, config->classes * W, config->classes};
    p.sizes[i] = sizes[which];
    p.w[i] = uniform(seed + (uint64_t)i, sizes[which], 1 / sqrt((double)H));
    for (int64_t gate = 0; which == 1 && orthogonal_hh && gate < cell.gates; ++gate) {
      double *block = orthogonal(seed + (uint64_t)(i + 100 * gate), H, 1);
      memcpy(p.w[i] + gate * H * H, block, (size_t)(H * H) * sizeof *block);
      bppsa_free(block);
    }
    if (config->no_bias && (which == 2 || which == 3)) {
      memset(p.w[i], 0, (size_t)sizes[which] * sizeof *p.w[i]);
    }
    p.dw[i] = zeros(sizes[which]);
    p.magnitude[i] = zeros(sizes[which]);
    bppsa_free(rounded(config->dtype, p.w[i], sizes[which]));
  }
  p.x = uniform(seed + 50, rows * config->input, 1);
  bppsa_free(rounded(config->dtype, p.x, rows * config->input));
  p.dx = zeros(rows * config->input);
  const int64_t states = sweeps * config->batch * state_of(config);
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

/* Gives the samples lengths, [B]. */
static inline void set_lengths(problem *p, const int64_t *lengths) {
  const bppsa_recurrent_config *c = &p->c;
  p->lengths = bppsa_calloc(c->batch, sizeof *p->lengths);
  assert_non_null(p->lengths);
  memcpy(p->lengths, lengths, (size_t)c->batch * sizeof *lengths);
  for (int64_t row = 0; row < c->seq_len * c->batch; ++row) {
    for (int64_t i = 0; i < c->input && row / c->batch >= lengths[row % c->batch]; ++i) {
      p->x[row * c->input + i] = NAN;
    }
  }
}

/* Is the tensor a parameter of the model? */
static bool has_tensor(const problem *p, int64_t tensor) {
  return !p->c.no_bias || tensor >= p->count - 2 || tensor % 4 < 2;
}

/* Finds the tensor that is the model's parameter i; `count` if there is none. */
static inline int64_t tensor_of_parameter(const problem *p, int64_t i) {
  int64_t tensor = 0;
  while (tensor < p->count && (!has_tensor(p, tensor) || i-- > 0)) {
    ++tensor;
  }
  return tensor;
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
  bppsa_free(p->lengths);
}

#endif
