/* The derivative of the backward pass on a CPU (recurrent/tangent_cpu.c says what is computed): one walk behind the other, each
 * through all steps, by BP or by the layer's scan. tangent_runs_cpu.c takes both walks run by run. */
#include "core/compute/flush.h"
#include "core/compute/pool.h"
#include "recurrent/tangent_cpu.h"

static void *at(const recurrent_network *n, const void *base, int64_t reals) {
  return bppsa_recurrent_offset(n, base, reals);
}

void bppsa_tangent_of_steps(const recurrent_network *n, const layers_tangent *t, const recurrent_stretch *s, const void *g) {
  const layers_window w = {.first = s->first,
                           .row = s->row,
                           .steps = s->steps,
                           .samples = s->samples,
                           .g = at(n, g, tangent_front_row(n, s) * bppsa_recurrent_state_size(n)),
                           .tangent = t};
  bppsa_layers_sweep(n, n->cell->tangent_backward, 0, &w, false);
}

void bppsa_tangent_of_deltas(const recurrent_network *n, const tangent_arrays *a, const tangent_direction *d, void *carried) {
  const int64_t size = bppsa_recurrent_state_size(n);
  memset(carried, 0, (size_t)((n->batch + bppsa_ragged_rows(n)) * size * layers_size_of(n)));
  for (int64_t k = 0; k < bppsa_ragged_stretches(n); ++k) {
    const recurrent_stretch s = bppsa_ragged_stretch(n, k);
    layers_tangent tangent = bppsa_tangent_window(n, a, d, s.row);
    tangent.carried = at(n, carried, tangent_front_row(n, &s) * size);
    bppsa_tangent_of_steps(n, &tangent, &s, n->g);
  }
}

typedef struct {
  void *rows;  /* of q */
  double *sum; /* [S] */
} stopped;

static void stop_row(const recurrent_network *n, void *context, int64_t row) {
  const stopped *s = context;
  const int64_t size = bppsa_recurrent_state_size(n);
  void *q = at(n, s->rows, row * size);
  const bppsa_view view = bppsa_view_make(q, n->config.dtype, 1, &size);
  for (int64_t i = 0; i < size; ++i) {
    s->sum[i] += bppsa_view_get(&view, i);
  }
  layers_put_row(n, NULL, size, q);
}

void bppsa_tangent_carry(const recurrent_network *n, const tangent_arrays *a, const recurrent_stretch *s, const void *delta_h,
                         void *rows) {
  const bppsa_linear l = layers_linear(n, s->steps * s->samples, tangent_gates(n), n->config.hidden);
  stopped stop = {rows, a->of_reset};
  if (a->d.along.w_hh != NULL) {
    bppsa_linear_add(&l, delta_h, a->d.along.w_hh, rows, bppsa_recurrent_state_size(n));
  }
  bppsa_tangent_each_reset(n, s, true, stop_row, &stop);
}

/* Does the second walk multiply κ_h by W_hh, together with its own deltas? A scan has its own elements, and cannot. */
static bool walks_with_curves(const recurrent_network *n) {
  return n->layers[0].scan == NULL;
}

/* Completes q of all steps, in a->g: what goes through W_hh before the second walk, and what goes nowhere. delta_h: of the first
 * walk. */
static void complete_carried(const recurrent_network *n, const tangent_arrays *a, const void *delta_h) {
  const int64_t size = bppsa_recurrent_state_size(n), gates = tangent_gates(n);
  const void *w_hh = bppsa_recurrent_parameter(n, 0, W_HH)->value.data;
  for (int64_t i = 0; i < size; ++i) {
    a->of_reset[i] = 0;
  }
  for (int64_t k = 0; k < bppsa_ragged_stretches(n); ++k) {
    const recurrent_stretch s = bppsa_ragged_stretch(n, k);
    const bppsa_linear l = layers_linear(n, s.steps * s.samples, gates, n->config.hidden);
    void *rows = at(n, a->g, tangent_front_row(n, &s) * size);
    if (!walks_with_curves(n)) {
      bppsa_linear_add(&l, at(n, n->cell->split ? a->d.product_h : a->d.product_x, s.row * gates), w_hh, rows, size);
    }
    bppsa_tangent_carry(n, a, &s, at(n, delta_h, s.row * gates), rows);
  }
}

bppsa_linear bppsa_tangent_sums(const recurrent_network *n, int64_t in) {
  bppsa_linear l = layers_linear(n, bppsa_ragged_rows(n), in, tangent_gates(n));
  l.run = bppsa_layers_run_rows(n); /* as where the sums go by runs, so that bits do not depend on the number of threads */
  return l;
}

/* Sums deltaᵀ x over all rows, in parts, and delta if `bias`. */
static void sum_rows(const recurrent_network *n, int64_t in, const void *delta, const void *x, bool bias, void *sums) {
  const bppsa_linear l = bppsa_tangent_sums(n, in);
  bppsa_linear_sum_parts(&l, 0, bppsa_linear_cut_rows(&l).parts, delta, x, bias ? 0 : l.out, sums);
}

tangent_wanted bppsa_tangent_wants(const recurrent_network *n, const tangent_arrays *a, const bppsa_layer_gradients *to) {
  const bool own = tangent_bias_apart(n), bias = to->b_ih != NULL || (to->b_hh != NULL && !own),
             own_bias = to->b_hh != NULL && own;
  return (tangent_wanted){.x = to->w_ih != NULL || bias,
                          .h = to->w_hh != NULL || own_bias,
                          .bias = bias,
                          .own_bias = own_bias,
                          .first_x = to->w_ih != NULL && a->d.along.x != NULL,
                          .first_h = to->w_hh != NULL};
}

static const void *delta_h_of(const recurrent_network *n) {
  return n->cell->split ? n->delta_h : n->pre;
}

/* Where the rows of the input's derivatives are computed. */
static void *rows_of_x(const recurrent_network *n, const bppsa_layer_gradients *to) {
  return to->x != NULL && n->ragged.active ? n->ragged.packed : to->x;
}

/* One walk of BP or of the layer's scan: the deltas and the gradients of all states, packed. */
static bppsa_status walk(recurrent_network *n) {
  BPPSA_TRY(bppsa_layers_sweep_back(n, 0));
  if (n->ragged.active && n->layers[0].scan != NULL) {
    bppsa_ragged_gather(n, bppsa_recurrent_state_size(n), n->g);
  }
  return BPPSA_OK;
}

/* BP once more, whose deltas are added to κ in product_x and product_h. */
static void walk_with_curves(recurrent_network *n, const tangent_arrays *a) {
  const int64_t size = bppsa_recurrent_state_size(n), gates = tangent_gates(n);
  bppsa_layers_prepare_back(n, 0);
  for (int64_t k = bppsa_ragged_stretches(n) - 1; k >= 0; --k) {
    const recurrent_stretch s = bppsa_ragged_stretch(n, k);
    const layers_tangent sums = bppsa_tangent_window(n, a, &a->d, s.row);
    layers_window w = {.first = s.first,
                       .row = s.row,
                       .steps = s.steps,
                       .samples = s.samples,
                       .pre = at(n, n->pre, s.row * gates),
                       .g = at(n, n->g, tangent_front_row(n, &s) * size),
                       .input = k > 0 || bppsa_layers_want_first(n),
                       .tangent = &sums};
    w.delta_h = n->cell->split ? at(n, n->delta_h, s.row * gates) : w.pre;
    bppsa_layers_sweep(n, n->cell->backward, 0, &w, bppsa_recurrent_injected(n, 0));
  }
}

bppsa_status bppsa_tangent_first_walk(recurrent_network *n, tangent_arrays *a, const bppsa_layer_gradients *to) {
  if (bppsa_tangent_goes_by_runs(n, n->layers[0].scan != NULL)) {
    void *const g = n->g; /* u_t waits for u̇_t */
    n->g = a->g;
    a->g = g;
    return BPPSA_OK;
  }
  const int64_t rows = bppsa_ragged_rows(n), hidden = n->config.hidden, gates = tangent_gates(n);
  const bppsa_layer_tangents *along = &a->d.along;
  const void *before = a->fronts = bppsa_tangent_before_all(n, n->layers[0].h, bppsa_reset_state_of(n, 0), n->before);
  bppsa_reset_state_begin(n);
  BPPSA_TRY(walk(n));
  bppsa_tangent_prepare_products(n, a);
  const void *before_tangent = n->cell->tangents_suffice ? bppsa_tangent_before_all(n, a->d.h, along->reset_state, a->d.before)
                                                         : bppsa_tangent_whole_products(n, a, &a->d, before);
  bppsa_tangent_of_deltas(n, a, &a->d, a->g); /* and ė ∘ g in a->g */
  complete_carried(n, a, delta_h_of(n));
  const tangent_wanted wanted = bppsa_tangent_wants(n, a, to);
  if (wanted.first_x) {
    sum_rows(n, n->config.input, n->pre, along->x, false, n->sums);
  }
  if (wanted.first_h) {
    sum_rows(n, hidden, delta_h_of(n), before_tangent, false, n->hidden_sums);
  }
  bppsa_tangent_finish_first(n, a, &wanted, n->sums, n->hidden_sums);
  if (to->x != NULL && along->w_ih != NULL) {
    const bppsa_linear l = layers_linear(n, rows, n->config.input, gates);
    bppsa_linear_input_gradient(&l, n->pre, along->w_ih, rows_of_x(n, to));
  }
  return BPPSA_OK;
}

typedef struct {
  const recurrent_network *n;
  const void *from;
  void *to;
} addition;

static void add_some(const void *context, int32_t worker, int64_t first, int64_t end) {
  const addition *s = context;
  const unsigned mode = bppsa_flush_begin();
  (void)worker;
  bppsa_back_add(s->n, end - first, at(s->n, s->from, first), at(s->n, s->to, first));
  bppsa_flush_end(mode);
}

/* to += from */
static void add(const recurrent_network *n, int64_t count, const void *from, void *to) {
  const addition sum = {n, from, to};
  bppsa_parallel_for(n->threads, count, bppsa_loop_work((double)count, 3.0 * (double)(count * layers_size_of(n))), add_some,
                     &sum);
}

void bppsa_tangent_finish_first(const recurrent_network *n, const tangent_arrays *a, const tangent_wanted *wanted, void *sums,
                                void *hidden_sums) {
  const bppsa_linear of_x = bppsa_tangent_sums(n, n->config.input), of_h = bppsa_tangent_sums(n, n->config.hidden);
  if (wanted->first_x) {
    bppsa_linear_finish(&of_x, a->of_w_ih, NULL, sums);
  }
  if (wanted->first_h) {
    bppsa_linear_finish(&of_h, a->of_w_hh, NULL, hidden_sums);
  }
}

void bppsa_tangent_finish_weights(const recurrent_network *n, const tangent_arrays *a, const tangent_wanted *wanted,
                                  const bppsa_layer_gradients *to) {
  const int64_t gates = tangent_gates(n);
  const bppsa_linear of_x = bppsa_tangent_sums(n, n->config.input), of_h = bppsa_tangent_sums(n, n->config.hidden);
  void *b_ih = to->b_ih != NULL ? to->b_ih : a->of_bias;
  if (wanted->x) {
    bppsa_linear_finish(&of_x, to->w_ih != NULL ? to->w_ih : a->of_w_ih, wanted->bias ? b_ih : NULL, n->sums);
    add(n, wanted->first_x ? gates * of_x.in : 0, a->of_w_ih, to->w_ih);
  }
  if (to->b_hh != NULL && !wanted->own_bias) {
    memcpy(to->b_hh, b_ih, (size_t)(gates * layers_size_of(n)));
  }
  if (wanted->h) {
    void *w_hh = to->w_hh != NULL ? to->w_hh : a->own_hh; /* room that is not needed any more */
    bppsa_linear_finish(&of_h, w_hh, wanted->own_bias ? to->b_hh : NULL, n->hidden_sums);
    add(n, wanted->first_h ? gates * of_h.in : 0, a->of_w_hh, to->w_hh);
  }
}

/* The derivatives of the gradients of h0 and c0: the first rows of n->g, sorted by length. */
static void copy_first(const recurrent_network *n, const bppsa_layer_gradients *to) {
  const int64_t hidden = n->config.hidden, size = bppsa_recurrent_state_size(n);
  void *const halves[] = {to->h0, to->c0};
  for (int64_t half = 0; half < 2; ++half) {
    for (int64_t place = 0; halves[half] != NULL && place < n->batch; ++place) {
      layers_put_row(n, at(n, n->g, place * size + half * hidden), hidden,
                     at(n, halves[half], bppsa_ragged_sample(n, place) * hidden));
    }
  }
}

bppsa_status bppsa_tangent_second_walk(recurrent_network *n, tangent_arrays *a, const bppsa_layer_gradients *to) {
  if (bppsa_tangent_goes_by_runs(n, n->layers[0].scan != NULL)) {
    bppsa_tangent_runs(n, a, to);
    copy_first(n, to);
    return BPPSA_OK;
  }
  const int64_t rows = bppsa_ragged_rows(n), gates = tangent_gates(n), size = bppsa_recurrent_state_size(n);
  add(n, (n->batch + rows) * size, a->g, n->g);
  bppsa_reset_state_begin(n);
  if (walks_with_curves(n)) {
    walk_with_curves(n, a);
  } else {
    BPPSA_TRY(walk(n));
    add(n, rows * gates, n->pre, a->d.product_x);
    add(n, n->cell->split ? rows * gates : 0, n->delta_h, a->d.product_h);
  }
  bppsa_reset_state_finish(n, 0);
  const tangent_wanted wanted = bppsa_tangent_wants(n, a, to);
  if (wanted.x) {
    sum_rows(n, n->config.input, a->d.product_x, bppsa_layers_input_of(n, 0), wanted.bias, n->sums);
  }
  if (wanted.h) {
    sum_rows(n, n->config.hidden, n->cell->split ? a->d.product_h : a->d.product_x, a->fronts, wanted.own_bias, n->hidden_sums);
  }
  bppsa_tangent_finish_weights(n, a, &wanted, to);
  const bppsa_view *reset = n->config.reset_state ? &n->base.parameters[0].gradient : NULL;
  for (int64_t i = 0; reset != NULL && i < size; ++i) {
    bppsa_view_set(reset, i, bppsa_view_get(reset, i) + a->of_reset[i]);
  }
  if (to->x != NULL) {
    const bppsa_linear back = layers_linear(n, rows, n->config.input, gates), add_back = layers_linear(n, rows, gates, back.in);
    const void *w_ih = bppsa_recurrent_parameter(n, 0, W_IH)->value.data;
    void *x = rows_of_x(n, to);
    if (a->d.along.w_ih != NULL) {
      bppsa_linear_add(&add_back, a->d.product_x, w_ih, x, back.in);
    } else {
      bppsa_linear_input_gradient(&back, a->d.product_x, w_ih, x);
    }
    if (n->ragged.active) {
      bppsa_ragged_unpack(n, x, back.in, to->x);
    }
  }
  bppsa_layers_clear_cuts(n, 0);
  copy_first(n, to);
  return BPPSA_OK;
}
