/* The derivative of the backward pass by BP on one thread, run by run from the last steps to the first. Both walks take a run
 * before the next one, so that what they share stays in a cache: deltas, products and curvatures, whose arrays hold one run
 * alone. recurrent/tangent_cpu.c says what is computed; where scans or several threads walk, it computes one walk behind the
 * other, with the same bits. */
#include "recurrent/tangent_cpu.h"

static void *at(const recurrent_network *n, const void *base, int64_t reals) {
  return bppsa_recurrent_offset(n, base, reals);
}

/* A run, and where its rows are among those of all steps. */
typedef struct {
  recurrent_network *n;
  tangent_arrays *a;
  const bppsa_layer_gradients *to;
  tangent_wanted wanted;
  recurrent_stretch s;
  int64_t part, part_rows, row; /* of the weight gradients' sums; row: the run's first in the part */
} run;

/* BP through the run, in g. sums: to whose products the deltas are added; NULL: they stand in n->pre and n->delta_h alone. */
static void walk(const run *r, void *g, bool first, const layers_tangent *sums) {
  const recurrent_network *n = r->n;
  const layers_window w = {.first = r->s.first,
                           .row = r->s.row,
                           .steps = r->s.steps,
                           .samples = r->s.samples,
                           .pre = n->pre,
                           .delta_h = n->cell->split ? n->delta_h : n->pre,
                           .g = at(n, g, r->s.row * bppsa_recurrent_state_size(n)),
                           .input = r->s.first > 0 || first,
                           .tangent = sums};
  bppsa_layers_sweep(n, n->cell->backward, 0, &w, true);
}

static void sum(const run *r, int64_t in, const void *delta, const void *x, bool bias, void *sums) {
  const bppsa_linear l = bppsa_tangent_sums(r->n, in);
  bppsa_linear_sum_run(&l, r->part, r->part_rows, r->row, r->s.steps * r->s.samples, delta, x, bias ? 0 : l.out, sums);
}

/* What follows from the first deltas: q of the run, which is added to the tangents of g, and parts of the results. fronts: the
 * states in front of the steps; tangents: theirs. */
static void use_first(const run *r, const void *fronts, const void *tangents, const layers_tangent *t) {
  const recurrent_network *n = r->n;
  const tangent_arrays *a = r->a;
  const int64_t rows = r->s.steps * r->s.samples, size = bppsa_recurrent_state_size(n), hidden = n->config.hidden;
  const void *delta_h = n->cell->split ? n->delta_h : n->pre, *x = a->d.along.x;
  if (!n->cell->tangents_suffice) {
    bppsa_tangent_products(n, &a->d, &r->s, fronts, t->product_x, t->product_h);
    bppsa_tangent_add_product(n, rows, hidden, tangents, a->own_hh, t->product_h);
  }
  memset(t->carried, 0, (size_t)(rows * size * layers_size_of(n)));
  bppsa_tangent_of_steps(n, t, &r->s, a->g);
  bppsa_tangent_carry(n, a, &r->s, delta_h, t->carried);
  bppsa_back_add(n, rows * size, t->carried, at(n, n->g, r->s.row * size));
  if (r->wanted.first_x) {
    sum(r, n->config.input, n->pre, at(n, x, r->s.row * n->config.input), false, a->sums);
  }
  if (r->wanted.first_h) {
    sum(r, hidden, delta_h, tangents, false, a->hidden_sums);
  }
  if (r->to->x != NULL && a->d.along.w_ih != NULL) {
    const bppsa_linear l = layers_linear(n, rows, n->config.input, tangent_gates(n));
    bppsa_linear_input_gradient(&l, n->pre, a->d.along.w_ih, at(n, r->to->x, r->s.row * l.in));
  }
}

/* What follows from the complete deltas. */
static void use_second(const run *r, const void *fronts, const layers_tangent *t) {
  const recurrent_network *n = r->n;
  const int64_t rows = r->s.steps * r->s.samples, input = n->config.input, gates = tangent_gates(n);
  if (r->wanted.x) {
    sum(r, input, t->product_x, at(n, bppsa_layers_input_of(n, 0), r->s.row * input), r->wanted.bias, n->sums);
  }
  if (r->wanted.h) {
    sum(r, n->config.hidden, t->product_h, fronts, r->wanted.own_bias, n->hidden_sums);
  }
  if (r->to->x != NULL) {
    const bppsa_linear back = layers_linear(n, rows, input, gates), added = layers_linear(n, rows, gates, input);
    const void *w_ih = bppsa_recurrent_parameter(n, 0, W_IH)->value.data;
    void *x = at(n, r->to->x, r->s.row * input);
    if (r->a->d.along.w_ih != NULL) {
      bppsa_linear_add(&added, t->product_x, w_ih, x, input);
    } else {
      bppsa_linear_input_gradient(&back, t->product_x, w_ih, x);
    }
  }
}

static void go_through(const run *r) {
  const recurrent_network *n = r->n;
  tangent_arrays *a = r->a;
  const void *fronts = bppsa_tangent_before_steps(n, &r->s, n->layers[0].h, NULL, a->before),
             *tangents = bppsa_tangent_before_steps(n, &r->s, a->d.h, NULL, a->d.before);
  layers_tangent t = bppsa_tangent_window(n, a, &a->d, 0);
  t.carried = a->carried;
  walk(r, a->g, false, NULL);
  use_first(r, fronts, tangents, &t);
  walk(r, n->g, bppsa_layers_want_first(n), &t);
  use_second(r, fronts, &t);
}

void bppsa_tangent_runs(recurrent_network *n, tangent_arrays *a, const bppsa_layer_gradients *to) {
  const bppsa_linear of_h = bppsa_tangent_sums(n, n->config.hidden);
  const bppsa_linear_cut cut = bppsa_linear_cut_rows(&of_h); /* that of x is the same */
  run r = {.n = n, .a = a, .to = to, .wanted = bppsa_tangent_wants(n, a, to)};
  memset(a->of_reset, 0, (size_t)bppsa_recurrent_state_size(n) * sizeof(double)); /* what is summed here goes nowhere */
  bppsa_layers_prepare_back(n, 0);
  bppsa_tangent_prepare_products(n, a);
  for (r.part = cut.parts - 1; r.part >= 0; --r.part) {
    const int64_t first = r.part * cut.length, left = of_h.rows - first;
    r.part_rows = left < cut.length ? left : cut.length;
    for (r.row = (r.part_rows - 1) / of_h.run * of_h.run; r.row >= 0; r.row -= of_h.run) {
      const int64_t rows = r.part_rows - r.row < of_h.run ? r.part_rows - r.row : of_h.run;
      r.s = (recurrent_stretch){
          .first = (first + r.row) / n->batch, .steps = rows / n->batch, .samples = n->batch, .row = first + r.row};
      go_through(&r);
    }
  }
  bppsa_tangent_finish_first(n, a, &r.wanted, a->sums, a->hidden_sums);
  bppsa_tangent_finish_weights(n, a, &r.wanted, to);
  bppsa_layers_clear_cuts(n, 0);
}
