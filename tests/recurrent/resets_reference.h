/* Recurrent networks whose samples have lengths and begin anew, by the textbook's equations: a loop over samples, layers and steps
 * in float64, which shares nothing with the library but the parameters. */
#ifndef BPPSA_TESTS_RECURRENT_RESETS_REFERENCE_H
#define BPPSA_TESTS_RECURRENT_RESETS_REFERENCE_H

#include "tests/recurrent/passes.h"
#include "tests/support/cell_reference.h"

/* What the textbook has for a run, in the shapes of the library's arrays. Rows behind a sample's end are 0. Behind the gradients
 * of all parameters are the sums of the terms' sizes. */
typedef struct {
  double *logits, *dx, *dh0, **gradients;
} textbook;

/* One sample. Arrays of a side (a direction of a layer) are in the order in which it walks, the others in the order of time. */
typedef struct {
  const cell_reference *cell;
  const run *r;
  const uint8_t *resets;                             /* [T][b]; NULL: none */
  int64_t sample, steps, sides, hidden, size, gates; /* size: of a state; gates: G·H */
  double *states;                                    /* [side][T + 1][S] */
  double *in, *of_in; /* [layer + 1][T][W]: what a layer reads, and at last the outputs; their gradients */
} sample_run;

static inline int64_t widest(const sample_run *s) {
  const int64_t outputs = s->sides * s->hidden;
  return outputs > s->r->config.input ? outputs : s->r->config.input;
}

static inline double *row_of(const sample_run *s, double *rows, int64_t layer, int64_t t) {
  return rows + (layer * s->r->config.seq_len + t) * widest(s);
}

static inline double *state_of(const sample_run *s, int64_t side, int64_t k) {
  return s->states + (side * (s->r->config.seq_len + 1) + k) * s->size;
}

static inline int64_t width_of(const sample_run *s, int64_t layer) {
  return layer == 0 ? s->r->config.input : s->sides * s->hidden;
}

static inline int64_t time_of(const sample_run *s, int64_t side, int64_t k) {
  return side % s->sides == 0 ? k : s->steps - 1 - k;
}

/* Does the sample begin anew in front of step k of the side's walk? A cut lies between two steps of time. */
static inline bool is_anew(const sample_run *s, int64_t side, int64_t k) {
  const int64_t t = time_of(s, side, k), cut = side % s->sides == 0 ? t : t + 1;
  return s->resets != NULL && cut < s->steps && s->resets[cut * s->r->x.shape[1] + s->sample] != 0;
}

/* Parameter `which` of a side; -1: a bias that the network does not have. A reset state is in front of them. */
static inline int64_t parameter_of(const sample_run *s, int64_t side, int64_t which) {
  const int64_t of_side = s->r->config.no_bias ? 2 : 4;
  return which >= of_side ? -1 : s->r->config.reset_state + side * of_side + which;
}

static inline double number(const sample_run *s, int64_t parameter, int64_t i) {
  return parameter < 0 ? 0 : bppsa_view_get(&s->r->model->parameters[parameter].value, i);
}

/* to [out] = W in + b */
static inline void affine(const sample_run *s, int64_t w, int64_t b, int64_t out, int64_t width, const double *in, double *to) {
  for (int64_t j = 0; j < out; ++j) {
    to[j] = number(s, b, j);
    for (int64_t k = 0; k < width; ++k) {
      to[j] += number(s, w, j * width + k) * in[k];
    }
  }
}

static inline void add_term(const sample_run *s, double **gradients, int64_t parameter, int64_t i, double term) {
  gradients[parameter][i] += term;
  gradients[s->r->model->parameter_count + parameter][i] += fabs(term);
}

/* dW += d inᵀ, db += d, din += Wᵀ d */
static inline void affine_back(const sample_run *s, int64_t w, int64_t b, int64_t out, int64_t width, const double *in,
                               const double *d, double **gradients, double *din) {
  for (int64_t j = 0; j < out; ++j) {
    for (int64_t k = 0; k < width; ++k) {
      add_term(s, gradients, w, j * width + k, d[j] * in[k]);
      din[k] += number(s, w, j * width + k) * d[j];
    }
    if (b >= 0) {
      add_term(s, gradients, b, j, d[j]);
    }
  }
}

/* The state from which step k begins, and both sums of its gates. */
static inline void enter_step(const sample_run *s, int64_t side, int64_t k, double *before, double *px, double *ph) {
  const int64_t layer = side / s->sides;
  for (int64_t i = 0; i < s->size; ++i) {
    before[i] = !is_anew(s, side, k) ? state_of(s, side, k)[i] : s->r->config.reset_state ? number(s, 0, side * s->size + i) : 0;
  }
  affine(s, parameter_of(s, side, 0), parameter_of(s, side, 2), s->gates, width_of(s, layer),
         row_of(s, s->in, layer, time_of(s, side, k)), px);
  affine(s, parameter_of(s, side, 1), parameter_of(s, side, 3), s->gates, s->hidden, before, ph);
}

static inline void walk(const sample_run *s, int64_t side, double *scratch) {
  double *px = scratch, *ph = px + s->gates, *before = ph + s->gates;
  for (int64_t i = 0; i < s->size; ++i) {
    state_of(s, side, 0)[i] = bppsa_view_get(&s->r->h0, (side * s->r->x.shape[1] + s->sample) * s->size + i);
  }
  for (int64_t k = 0; k < s->steps; ++k) {
    double *h = state_of(s, side, k + 1);
    enter_step(s, side, k, before, px, ph);
    s->cell->forward(&s->r->config, px, ph, before, h);
    memcpy(row_of(s, s->in, side / s->sides + 1, time_of(s, side, k)) + side % s->sides * s->hidden, h,
           (size_t)s->hidden * sizeof *h);
  }
}

/* g [S]: the gradient of the last state on entry, that of h0 on return. */
static inline void walk_back(const sample_run *s, int64_t side, double *g, double **gradients, double *scratch) {
  double *px = scratch, *ph = px + s->gates, *before = ph + s->gates, *dx = before + s->size, *dh = dx + s->gates,
         *carried = dh + s->gates;
  for (int64_t k = s->steps - 1; k >= 0; --k) {
    const int64_t t = time_of(s, side, k), layer = side / s->sides;
    for (int64_t i = 0; i < s->hidden; ++i) {
      g[i] += row_of(s, s->of_in, layer + 1, t)[side % s->sides * s->hidden + i];
    }
    enter_step(s, side, k, before, px, ph);
    memset(carried, 0, (size_t)s->size * sizeof *carried);
    s->cell->backward(&s->r->config, px, ph, before, state_of(s, side, k + 1), g, dx, dh, carried);
    memcpy(g, carried, (size_t)s->size * sizeof *g);
    affine_back(s, parameter_of(s, side, 0), parameter_of(s, side, 2), s->gates, width_of(s, layer), row_of(s, s->in, layer, t),
                dx, gradients, row_of(s, s->of_in, layer, t));
    affine_back(s, parameter_of(s, side, 1), parameter_of(s, side, 3), s->gates, s->hidden, before, dh, gradients, g);
    for (int64_t i = 0; is_anew(s, side, k) && i < s->size; ++i) {
      if (s->r->config.reset_state) {
        add_term(s, gradients, 0, side * s->size + i, g[i]);
      }
      g[i] = 0;
    }
  }
}

/* The head at one row of outputs, and its gradients. */
static inline void head(const sample_run *s, int64_t t, const double *row, double *of_row, textbook *e) {
  const run *r = s->r;
  const int64_t outputs = outputs_of(&r->config), width = s->sides * s->hidden, at = (t * r->x.shape[1] + s->sample) * outputs,
                w = r->model->parameter_count - 2;
  double *seed = bppsa_calloc(outputs, sizeof *seed);
  for (int64_t i = 0; i < outputs; ++i) {
    seed[i] = bppsa_view_get(&r->seed, at + i);
  }
  if (r->config.no_head) {
    memcpy(e->logits + at, row, (size_t)width * sizeof *row);
    memcpy(of_row, seed, (size_t)width * sizeof *row);
  } else {
    affine(s, w, w + 1, outputs, width, row, e->logits + at);
    affine_back(s, w, w + 1, outputs, width, row, seed, e->gradients, of_row);
  }
  bppsa_free(seed);
}

static inline void back_from_rows(sample_run *s, textbook *e, const double *of_ends, double *scratch) {
  const int64_t layers = s->r->config.layers, all = layers * s->sides, batch = s->r->x.shape[1];
  double *g = bppsa_calloc(s->size, sizeof *g);
  for (int64_t side = all - 1; side >= 0; --side) {
    memset(g, 0, (size_t)s->size * sizeof *g);
    if (side / s->sides + 1 == layers) {
      memcpy(g, of_ends + side % s->sides * s->hidden, (size_t)s->hidden * sizeof *g);
    }
    walk_back(s, side, g, e->gradients, scratch);
    memcpy(e->dh0 + (side * batch + s->sample) * s->size, g, (size_t)s->size * sizeof *g);
  }
  bppsa_free(g);
  for (int64_t t = 0; t < s->steps; ++t) {
    memcpy(e->dx + (t * batch + s->sample) * s->r->config.input, row_of(s, s->of_in, 0, t),
           (size_t)s->r->config.input * sizeof(double));
  }
}

static inline void compute_sample(sample_run *s, textbook *e) {
  const run *r = s->r;
  const int64_t T = r->config.seq_len, layers = r->config.layers, all = layers * s->sides, width = s->sides * s->hidden,
                rows = (layers + 1) * T * widest(s);
  double *memory = bppsa_calloc(all * (T + 1) * s->size + 2 * rows + 4 * s->gates + 2 * s->size + 2 * width, sizeof *memory);
  s->states = memory;
  s->in = s->states + all * (T + 1) * s->size;
  s->of_in = s->in + rows;
  double *scratch = s->of_in + rows, *ends = scratch + 4 * s->gates + 2 * s->size, *of_ends = ends + width;
  for (int64_t t = 0; t < s->steps; ++t) {
    for (int64_t i = 0; i < r->config.input; ++i) {
      row_of(s, s->in, 0, t)[i] = bppsa_view_get(&r->x, (t * r->x.shape[1] + s->sample) * r->config.input + i);
    }
  }
  for (int64_t side = 0; side < all; ++side) {
    walk(s, side, scratch);
  }
  for (int64_t d = 0; d < s->sides; ++d) {
    memcpy(ends + d * s->hidden, state_of(s, all - s->sides + d, s->steps), (size_t)s->hidden * sizeof *ends);
  }
  for (int64_t t = 0; r->config.loss_all && t < s->steps; ++t) {
    head(s, t, row_of(s, s->in, layers, t), row_of(s, s->of_in, layers, t), e);
  }
  if (!r->config.loss_all) {
    head(s, 0, ends, of_ends, e);
  }
  back_from_rows(s, e, of_ends, scratch);
  bppsa_free(memory);
}

static inline double *zeros_like(const bppsa_view *view) {
  double *made = bppsa_calloc(bppsa_view_count(view), sizeof *made);
  assert_non_null(made);
  return made;
}

/* The textbook's results for the inputs of a run that has been computed. resets [T][b] and lengths [b] or NULL. */
static inline textbook compute_textbook(const cell_reference *cell, const run *r, const int64_t *lengths, const uint8_t *resets) {
  textbook e = {.logits = zeros_like(&r->logits),
                .dx = zeros_like(&r->dx),
                .dh0 = zeros_like(&r->dh0),
                .gradients = bppsa_calloc(2 * r->model->parameter_count, sizeof *e.gradients)};
  for (int64_t p = 0; p < 2 * r->model->parameter_count; ++p) {
    e.gradients[p] = zeros_like(&r->model->parameters[p % r->model->parameter_count].value);
  }
  for (int64_t b = 0; b < r->x.shape[1]; ++b) {
    sample_run s = {.cell = cell,
                    .r = r,
                    .resets = resets,
                    .sample = b,
                    .steps = lengths != NULL ? lengths[b] : r->config.seq_len,
                    .sides = r->config.bidirectional ? 2 : 1,
                    .hidden = r->config.hidden,
                    .size = r->h0.shape[2],
                    .gates = cell->gates * r->config.hidden};
    compute_sample(&s, &e);
  }
  return e;
}

static inline void free_textbook(textbook *e, const run *r) {
  for (int64_t p = 0; p < 2 * r->model->parameter_count; ++p) {
    bppsa_free(e->gradients[p]);
  }
  bppsa_free(e->gradients);
  bppsa_free(e->logits);
  bppsa_free(e->dx);
  bppsa_free(e->dh0);
}

/* The residual of a parameter's gradient. With H = 1 it may be a single number in which everything cancels, so that it is compared
 * with the sum of its terms' sizes. */
static inline double parameter_residual(const run *r, const textbook *e, int64_t parameter) {
  const int64_t sizes = r->config.hidden == 1 ? r->model->parameter_count : 0;
  const bppsa_view *found = &r->model->parameters[parameter].gradient;
  return residual_of_sum(r->config.dtype, found->data, e->gradients[parameter], e->gradients[sizes + parameter],
                         bppsa_view_count(found), sqrt((double)r->config.seq_len));
}

/* The largest residual of the logits and of all gradients; *what: whose it is. */
static inline double largest_residual(const run *r, const textbook *e, const char **what) {
  const double k = sqrt((double)r->config.seq_len);
  const struct {
    const char *name;
    const bppsa_view *found;
    const double *expected;
  } rows[] = {{"logits", &r->logits, e->logits}, {"gradient of x", &r->dx, e->dx}, {"gradient of h0", &r->dh0, e->dh0}};
  double most = 0;
  for (int64_t i = 0; i < 3 + r->model->parameter_count; ++i) {
    const bppsa_parameter *p = i < 3 ? NULL : &r->model->parameters[i - 3];
    const double of = p != NULL
                          ? parameter_residual(r, e, i - 3)
                          : residual(r->config.dtype, rows[i].found->data, rows[i].expected, bppsa_view_count(rows[i].found), k);
    if (!(of <= most)) {
      most = of;
      *what = i < 3 ? rows[i].name : p->name;
    }
  }
  return most;
}

#endif
