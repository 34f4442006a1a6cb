/* Random configurations of speculative BP: campaign_backward SEED COUNT.
 *
 * Prints a JSON object a configuration, the seed and what was found. Gradients must be BP's bits, or their error at most LIMIT
 * times BP's own. Errors are those of certificates (recurrent/certify.h), so that what the forward pass rounds does not hide what
 * the backward pass does. BP's own is the largest of ORDERS passes, each with another order of the units and another factor of the
 * seed, and at least half a rounding of the largest entry. In f64 the error is the difference from BP, and BP's own the largest
 * difference from it of other orders, or the error of those in f32 less 29 bits. Where gradients of BP are not finite, those that
 * are not must be the same ones, and the others are compared with those of BP, and BP in other orders likewise.
 *
 * Where an input or a seed of a sample is NaN, infinite or 1e30, the gradients of the other samples' inputs must be BP's, as they
 * are without it.
 *
 * Exit status 1: a configuration for which that does not hold. LIMIT is twice what is asked for; bench/scripts/backward_random.py
 * lists those above 2. */
#include <stdio.h>
#include <stdlib.h>

#include "gru/gru.h"
#include "lstm/lstm.h"
#include "recurrent/certify.h"
#include "rnn/rnn.h"
#include "tests/recurrent/passes.h"
#include "tests/support/dice.h"

static const bppsa_cell *const cells[] = {&bppsa_rnn_cell, &bppsa_gru_cell, &bppsa_lstm_cell};

enum { ORDERS = 8, LIMIT = 4, MOST_HIDDEN = 64, MOST_BATCH = 16 };

typedef struct {
  const bppsa_cell *cell;
  bppsa_recurrent_config config;
  double scale; /* of W_hh */
  int64_t lengths[MOST_BATCH];
  int64_t order[MOST_HIDDEN]; /* of the units */
  double factor;              /* of the seed */
  int64_t wild;               /* sample with the wild number; -1: none */
  bool in_seed;               /* it is in the seed, otherwise in x */
  double number;
} problem;

/* A pass, and what was found. */
typedef struct {
  run r;
  bppsa_backward_stats stats;
  double error; /* of the certificate */
} pass;

/* Where number i of a parameter stands when units are in another order. */
static int64_t moved(const problem *p, const bppsa_parameter *parameter, int64_t i) {
  const int64_t hidden = p->config.hidden, columns = parameter->value.ndim == 2 ? parameter->value.shape[1] : 1;
  const bool head = strstr(parameter->name, "linear.") != NULL, first = strstr(parameter->name, "weight_ih_l0") != NULL;
  int64_t row = i / columns, column = i % columns;
  row = head ? row : row / hidden * hidden + p->order[row % hidden];
  if (parameter->value.ndim == 2 && !first) {
    column = column / hidden * hidden + p->order[column % hidden];
  }
  return row * columns + column;
}

/* Places the problem's number in a view [T][b][width], or [b][width]. */
static void make_wild(const problem *p, bppsa_view *view) {
  const int64_t width = view->shape[view->ndim - 1], steps = view->ndim == 3 ? view->shape[0] : 1,
                step = view->ndim == 3 ? p->lengths[p->wild] / 2 : 0;
  bppsa_view_set(view, ((step < steps ? step : 0) * p->config.batch + p->wild) * width + width / 2, p->number);
}

/* The caller closes r. */
static pass pass_of(const problem *p, bppsa_backward backward, bool wild) {
  bppsa_recurrent_config c = p->config;
  c.method.backward = BPPSA_BACKWARD_BP;
  run weights = open_run(p->cell, &c, c.batch, 1);
  c.method.backward = backward;
  pass found = {.r = open_run(p->cell, &c, c.batch, 1)};
  for (int64_t i = 0; i < found.r.model->parameter_count; ++i) {
    const bppsa_parameter *from = &weights.model->parameters[i];
    const double scale = strstr(from->name, "weight_hh") != NULL ? p->scale : 1;
    for (int64_t j = 0; j < bppsa_view_count(&from->value); ++j) {
      bppsa_view_set(&found.r.model->parameters[i].value, moved(p, from, j), scale * bppsa_view_get(&from->value, j));
    }
  }
  close_run(&weights);
  bppsa_view_scale(&found.r.seed, p->factor);
  if (wild && p->wild >= 0) {
    make_wild(p, p->in_seed ? &found.r.seed : &found.r.x);
  }
  bppsa_certificate certificate;
  assert_int_equal(bppsa_model_forward(found.r.model, &found.r.x, NULL, &(bppsa_spans){.lengths = c.lengths ? p->lengths : NULL},
                                       &found.r.logits),
                   BPPSA_OK);
  assert_int_equal(found.r.model->ops->backward(found.r.model, &found.r.seed), BPPSA_OK);
  assert_int_equal(bppsa_certify(found.r.model, &certificate), BPPSA_OK);
  assert_int_equal(bppsa_backward_stats_of(found.r.model, &found.stats), BPPSA_OK);
  found.error = certificate.error;
  return found;
}

/* max |a - b| / max |b| of any parameter where b is finite, a in the problem's order and times its factor. Infinite if a is not
 * finite in the same places. */
static double difference(const problem *p, const bppsa_model *a, const bppsa_model *b) {
  double worst = 0;
  for (int64_t i = 0; i < b->parameter_count; ++i) {
    const bppsa_view *view = &b->parameters[i].gradient;
    double error = 0, largest = 0;
    for (int64_t j = 0; j < bppsa_view_count(view); ++j) {
      const double of_b = bppsa_view_get(view, j),
                   of_a = bppsa_view_get(&a->parameters[i].gradient, moved(p, &b->parameters[i], j));
      if (isfinite(of_a) != isfinite(of_b)) {
        return (double)INFINITY;
      }
      error = isfinite(of_b) ? fmax(error, fabs(of_a / p->factor - of_b)) : error;
      largest = isfinite(of_b) ? fmax(largest, fabs(of_b)) : largest;
    }
    worst = error > 0 ? fmax(worst, error / largest) : worst;
  }
  return worst;
}

static void draw_order(problem *p, int order, dice *d) {
  for (int64_t u = 0; u < p->config.hidden; ++u) {
    const int64_t at = roll(d, 0, u);
    p->order[u] = p->order[at];
    p->order[at] = u;
  }
  p->factor = 1 + (double)order / 16;
}

/* BP's own error. finite: BP's gradients are. */
static double own_error(problem p, const pass *bp, bool finite, dice *d) {
  const bool f64 = p.config.dtype == BPPSA_F64;
  double worst = f64 ? 0x1p-53 : finite ? fmax(bp->error, 0x1p-24) : 0x1p-24;
  for (int order = 1; order < ORDERS; ++order) {
    draw_order(&p, order, d);
    pass other = pass_of(&p, BPPSA_BACKWARD_BP, true);
    const double error = finite && !f64 ? other.error : difference(&p, other.r.model, bp->r.model);
    worst = isfinite(error) ? fmax(worst, error) : worst;
    close_run(&other.r);
  }
  if (f64) { /* these differences have the forward pass's rounding; the backward pass's is as large as in f32, but for bits */
    p.config.dtype = BPPSA_F32;
    for (int order = 0; order < ORDERS; ++order) {
      draw_order(&p, order, d);
      pass other = pass_of(&p, BPPSA_BACKWARD_BP, true);
      worst = isfinite(other.error) ? fmax(worst, other.error * 0x1p-29) : worst;
      close_run(&other.r);
    }
  }
  return worst;
}

static bool same_bits(const bppsa_model *a, const bppsa_model *b) {
  for (int64_t i = 0; i < b->parameter_count; ++i) {
    const bppsa_view *view = &b->parameters[i].gradient;
    if (memcmp(a->parameters[i].gradient.data, view->data, bppsa_view_bytes(view)) != 0) {
      return false;
    }
  }
  return true;
}

/* The largest error of the other samples' gradients of x, relative to the largest of each sample. */
static double error_of_others(const problem *p, const pass *found, const pass *bp) {
  const int64_t batch = p->config.batch, input = p->config.input;
  bppsa_view dx, expected;
  assert_int_equal(found->r.model->ops->input_gradients(found->r.model, &dx, NULL), BPPSA_OK);
  assert_int_equal(bp->r.model->ops->input_gradients(bp->r.model, &expected, NULL), BPPSA_OK);
  double worst = 0;
  for (int64_t b = 0; b < batch; ++b) {
    double error = 0, largest = 0;
    for (int64_t i = 0; b != p->wild && i < p->config.seq_len * input; ++i) {
      const int64_t at = (i / input * batch + b) * input + i % input;
      const double of = bppsa_view_get(&expected, at), is = bppsa_view_get(&dx, at);
      error = !isfinite(of) ? error : isfinite(is) ? fmax(error, fabs(is - of)) : (double)INFINITY;
      largest = isfinite(of) ? fmax(largest, fabs(of)) : largest;
    }
    worst = error > 0 ? fmax(worst, error / largest) : worst;
  }
  return worst;
}

/* Are the other samples' gradients as good as where nothing is wild? */
static bool others_unharmed(const problem *p, const pass *found) {
  const double rounding = p->config.dtype == BPPSA_F32 ? 1e-4 : 1e-12;
  pass bp = pass_of(p, BPPSA_BACKWARD_BP, false), calm = pass_of(p, BPPSA_BACKWARD_SPECULATIVE, false);
  const bool ok = error_of_others(p, found, &bp) <= rounding + 2 * error_of_others(p, &calm, &bp);
  close_run(&bp.r);
  close_run(&calm.r);
  return ok;
}

static problem draw_problem(dice *d) {
  static const double wild[] = {NAN, INFINITY, 1e30};
  problem p = {.cell = cells[roll(d, 0, 2)], .config = bppsa_recurrent_config_default(), .factor = 1, .wild = -1};
  bppsa_recurrent_config *c = &p.config;
  c->seq_len = roll(d, 0, 19) == 0 ? roll(d, 300, 2000) : roll(d, 2, 300);
  c->batch = roll(d, 0, 19) == 0 ? MOST_BATCH : roll(d, 1, 4);
  c->hidden = roll(d, 0, 9) == 0 ? roll(d, 25, MOST_HIDDEN) : roll(d, 1, 24);
  c->input = roll(d, 1, 4);
  c->classes = roll(d, 1, 5);
  c->layers = roll(d, 1, 3);
  c->bidirectional = roll(d, 0, 3) == 0;
  c->loss_all = roll(d, 0, 1) == 1;
  c->lengths = roll(d, 0, 3) == 0;
  c->no_bias = roll(d, 0, 7) == 0;
  c->input_gradients = true;
  c->dtype = roll(d, 0, 3) == 0 ? BPPSA_F64 : BPPSA_F32;
  c->nonlinearity = p.cell->relu && roll(d, 0, 2) == 0 ? BPPSA_NONLINEARITY_RELU : BPPSA_NONLINEARITY_TANH;
  c->speculation.chunks = roll(d, 2, 20);
  c->speculation.warm_up = roll(d, -1, 60);
  p.scale = pow(10, (double)roll(d, -10, 10) / 10);
  for (int64_t b = 0; b < c->batch; ++b) {
    p.lengths[b] = c->lengths ? roll(d, 1, c->seq_len) : c->seq_len;
  }
  for (int64_t u = 0; u < c->hidden; ++u) {
    p.order[u] = u;
  }
  if (roll(d, 0, 3) == 0) {
    p.wild = roll(d, 0, c->batch - 1);
    p.in_seed = roll(d, 0, 1) == 1;
    p.number = wild[roll(d, 0, 2)];
  }
  return p;
}

/* Returns whether what must hold does. */
static bool check(uint64_t seed) {
  dice d = {.seed = seed};
  const problem p = draw_problem(&d);
  const bppsa_recurrent_config *c = &p.config;
  pass found = pass_of(&p, BPPSA_BACKWARD_SPECULATIVE, true), bp = pass_of(&p, BPPSA_BACKWARD_BP, true);
  const bool same = same_bits(found.r.model, bp.r.model), finite = isfinite(bp.error),
             unharmed = p.wild < 0 || others_unharmed(&p, &found);
  const double own = same ? 0 : own_error(p, &bp, finite, &d), error = same     ? 0
                                                                       : finite ? found.error
                                                                                : difference(&p, found.r.model, bp.r.model);
  printf(
      "{\"seed\":%llu,\"cell\":\"%s\",\"nonlinearity\":\"%s\",\"dtype\":\"%s\",\"seq_len\":%lld,\"batch\":%lld,\"hidden\":%lld,"
      "\"layers\":%lld,\"directions\":%d,\"loss\":\"%s\",\"lengths\":%s,\"scale\":%.3g,\"wild\":%s,\"speculated\":%s,"
      "\"given_up\":%s,\"rounds\":%lld,\"path\":%lld,\"possible\":%lld,\"same_bits\":%s,"
      "\"others_unharmed\":%s",
      (unsigned long long)seed, p.cell->name, bppsa_nonlinearity_name(c->nonlinearity), bppsa_dtype_name(c->dtype),
      (long long)c->seq_len, (long long)c->batch, (long long)c->hidden, (long long)c->layers, c->bidirectional ? 2 : 1,
      c->loss_all ? "all" : "last", c->lengths ? "true" : "false", p.scale, p.wild >= 0 ? "true" : "false",
      found.stats.speculated ? "true" : "false", found.stats.given_up ? "true" : "false", (long long)found.stats.rounds,
      (long long)found.stats.path, (long long)found.stats.possible, same ? "true" : "false", unharmed ? "true" : "false");
  if (isfinite(found.stats.perturbation)) {
    printf(",\"perturbation\":%.3g", found.stats.perturbation);
  }
  if (!same && isfinite(error)) {
    printf(",\"error\":%.4g,\"own\":%.4g,\"ratio\":%.4g", error, own, error / own);
  }
  printf("}\n");
  close_run(&found.r);
  close_run(&bp.r);
  return unharmed && (same || error <= LIMIT * own);
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "campaign_backward: expected SEED COUNT\n");
    return 2;
  }
  const uint64_t first = strtoull(argv[1], NULL, 10), count = strtoull(argv[2], NULL, 10);
  bool ok = true;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    ok = check(seed) && ok;
    fflush(stdout);
  }
  return ok ? 0 : 1;
}
