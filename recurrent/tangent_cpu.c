/* Derivatives of a layer's passes along a direction, on a CPU: the tangents of the states, and the derivative of the backward pass
 * (Hessian-vector products, double backward). Pearlmutter, "Fast exact multiplication by the Hessian", Neural Computation 6, 1994.
 *
 * A dot stands for the derivative along the direction (ẋ, ḣ_0, ċ_0, Ẇ_ih, Ẇ_hh, ḃ, ṡ), where s is the state from which
 * samples begin anew. The states' tangents follow the linearised recurrence
 *
 *     product_x_t = ẋ_t W_ihᵀ + x_t Ẇ_ihᵀ + ḃ_ih             all steps of a window at once
 *     product_h_t = h_{t-1} Ẇ_hhᵀ + ḃ_hh + ḣ_{t-1} W_hhᵀ     likewise, but for the last term
 *     ḣ_t = the cell's linear function of product_x_t, product_h_t and ḣ_{t-1}; of a pair also ċ_t
 *
 * The backward pass is g_{t-1} = J_tᵀ g_t + u_{t-1}, with deltas δ_t, which are linear in g_t. So its derivative is the same
 * walk once more, with other numbers entering at each step:
 *
 *     ġ_{t-1} = J_tᵀ ġ_t + q_{t-1} + u̇_{t-1}
 *     q_{t-1} = J̇_tᵀ g_t = κ_h,t W_hh + δ_h,t Ẇ_hh + ė_t ∘ g_t
 *     δ̇_t = κ_t + δ_t(ġ_t)
 *
 * where κ_t is the derivative of δ_t for the same g_t. Of the gradients the derivatives are
 *
 *     W_ih: Σ δ̇_x,tᵀ x_t + δ_x,tᵀ ẋ_t       W_hh: Σ δ̇_h,tᵀ h_{t-1} + δ_h,tᵀ ḣ_{t-1}
 *     x_t: δ̇_x,t W_ih + δ_x,t Ẇ_ih          b: Σ δ̇_t          h_0, c_0: ġ_0
 *
 * κ and q need no recurrence: they are products over all steps. Both walks are the layer's own, by BP or by its scan. A layer
 * whose backward pass is speculative walks by BP, because the chunks of a speculative pass do not keep the gradients of all states.
 *
 * Where a sample begins anew in front of step t, s and ṡ stand for h_{t-1} and ḣ_{t-1}; q_{t-1} is then a part of the
 * derivative of s's gradient and goes nowhere else.
 *
 * With P the FLOPs of the product with W_hh in a forward pass, tangents take 2 P, one of them step by step, and the derivative of
 * the backward pass 8 P, two of them step by step, where forward and backward together take 3 P. Each takes about as many products
 * with W_ih. Terms whose tangents are NULL are left out. */
#include "recurrent/tangent_cpu.h"

#include "core/compute/flush.h"
#include "core/compute/pool.h"

/* ---- sizes ---- */

/* Does b_hh have its own sum? Otherwise it enters that of x W_ihᵀ. */
static bool bias_apart(const recurrent_network *n) {
  return n->cell->split && n->cell->separate_bias;
}

typedef struct {
  bool wanted;
  int64_t steps, rows, width;
  void **array;
} tangent_array;

static bppsa_status visit_all(const recurrent_network *n, const tangent_array *arrays, size_t count, bppsa_recurrent_visit visit,
                              int64_t *bytes) {
  for (size_t i = 0; i < count; ++i) {
    if (arrays[i].wanted) {
      BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, arrays[i].steps, arrays[i].rows, arrays[i].width, arrays[i].array, bytes));
    }
  }
  return BPPSA_OK;
}

/* steps: so many of products. all: the tangents in front of all steps are needed. */
static bppsa_status visit_direction(const recurrent_network *n, int64_t steps, bool all, tangent_direction *d,
                                    bppsa_recurrent_visit visit, int64_t *bytes) {
  const bppsa_recurrent_config *c = &n->config;
  const int64_t gates = tangent_gates(n);
  const bool pair = n->cell->pair;
  const tangent_array arrays[] = {{true, steps, c->batch, gates, &d->product_x},
                                  {n->cell->split, steps, c->batch, gates, &d->product_h},
                                  {true, 1, c->input, gates, &d->w_ih},
                                  {true, 1, c->hidden, gates, &d->w_hh},
                                  {true, 1, 2, gates, &d->bias},
                                  {c->lengths, c->seq_len, c->batch, c->input, &d->packed_x},
                                  {c->lengths, c->seq_len + 1, c->batch, c->hidden, &d->packed_h},
                                  {c->lengths && pair, c->seq_len + 1, c->batch, c->hidden, &d->packed_c},
                                  {all && (c->resets || c->lengths), c->seq_len, c->batch, c->hidden, &d->before}};
  return visit_all(n, arrays, sizeof arrays / sizeof *arrays, visit, bytes);
}

static bppsa_status visit_pass(const recurrent_network *n, tangent_kind kind, bool scans, tangent_arrays *a,
                               bppsa_recurrent_visit visit, int64_t *bytes) {
  const bppsa_recurrent_config *c = &n->config;
  const int64_t hidden = c->hidden, gates = tangent_gates(n), steps = c->seq_len, state = bppsa_recurrent_state_size(n);
  const bool pair = n->cell->pair, lengths = c->lengths, resets = c->resets;
  const bool gradients = kind == TANGENT_GRADIENTS, twice = kind == TANGENT_TWICE, all = gradients || twice || scans;
  const int64_t window = bppsa_layers_window_steps(n), some = all || window > steps ? steps : window;
  const tangent_array arrays[] = {{true, 1, hidden, gates, &a->own_hh},
                                  {resets, 2, c->batch, hidden, &a->copies[0]},
                                  {resets && pair, 2, c->batch, hidden, &a->copies[1]},
                                  {resets && kind == TANGENT_STATES, some, c->batch, hidden, &a->before},
                                  {all, steps + 1, c->batch, state, &a->g},
                                  {gradients, 1, gates, c->input, &a->of_w_ih},
                                  {gradients, 1, gates, hidden, &a->of_w_hh},
                                  {gradients, 1, gates, 1, &a->of_bias},
                                  {twice && pair, steps, c->batch, gates, &a->spare},
                                  {twice, steps + 1, c->batch, state, &a->carried},
                                  {twice && pair && (resets || lengths), steps, c->batch, hidden, &a->before_cells},
                                  {twice && lengths, steps + 1, c->batch, hidden, &a->packed_h},
                                  {twice && lengths && pair, steps + 1, c->batch, hidden, &a->packed_c}};
  BPPSA_TRY(visit_direction(n, some, gradients || twice, &a->d, visit, bytes));
  BPPSA_TRY(twice ? visit_direction(n, steps, true, &a->e, visit, bytes) : BPPSA_OK);
  BPPSA_TRY(visit_all(n, arrays, sizeof arrays / sizeof *arrays, visit, bytes));
  return gradients ? visit((void **)&a->of_reset, state * (int64_t)sizeof(double), bytes) : BPPSA_OK;
}

/* ---- rows ---- */

static void *at(const recurrent_network *n, const void *base, int64_t reals) {
  return bppsa_recurrent_offset(n, base, reals);
}

/* The row of the states in front of a stretch's first step. */
static int64_t front_row(const recurrent_network *n, const recurrent_stretch *s) {
  return n->batch - s->samples + s->row;
}

/* Steps first .. first + steps - 1 of a stretch. */
static recurrent_stretch part_of(const recurrent_stretch *s, int64_t first, int64_t steps) {
  return (recurrent_stretch){
      .first = s->first + first, .steps = steps, .samples = s->samples, .row = s->row + first * s->samples};
}

/* Calls `visit` for each sample that begins anew in front of a step of the stretch, step 0 too if `zeroth`. row: the number of the
 * step's row of the sample among the stretch's rows. */
typedef void (*reset_visit)(const recurrent_network *n, void *context, int64_t row);
static void each_reset(const recurrent_network *n, const recurrent_stretch *s, bool zeroth, reset_visit visit, void *context) {
  for (int64_t t = 0; n->resets.active && t < s->steps; ++t) {
    const int64_t step = s->first + t;
    for (int64_t i = 0; n->resets.any[step] && (step > 0 || zeroth) && i < s->samples; ++i) {
      if (bppsa_resets_at(n, 0, step, n->batch - s->samples + i)) {
        visit(n, context, t * s->samples + i);
      }
    }
  }
}

typedef struct {
  const void *by; /* [H] or NULL */
  void *rows;
} replaced;

static void replace_row(const recurrent_network *n, void *context, int64_t row) {
  const replaced *r = context;
  layers_put_row(n, r->by, n->config.hidden, at(n, r->rows, row * n->config.hidden));
}

/* The states [H] in front of the steps of a stretch: rows of `states`, or a copy in `room` where samples begin anew. by: the state
 * from which they do. */
static const void *before_steps(const recurrent_network *n, const recurrent_stretch *s, const void *states, const void *by,
                                void *room) {
  const int64_t hidden = n->config.hidden;
  const void *rows = at(n, states, front_row(n, s) * hidden);
  if (!n->resets.active || bppsa_resets_find(n, 0, s->first, s->first + s->steps, n->batch - s->samples, s->samples, false) < 0) {
    return rows;
  }
  memcpy(room, rows, (size_t)(s->steps * s->samples * hidden * layers_size_of(n)));
  replaced r = {by, room};
  each_reset(n, s, false, replace_row, &r);
  return room;
}

/* ---- the tangents of the products ---- */

static void transpose(const recurrent_network *n, int64_t in, const void *w, void *wt) {
  const bppsa_linear l = layers_linear(n, 0, in, tangent_gates(n));
  if (w != NULL) {
    bppsa_linear_transpose(&l, w, wt, l.out);
  }
}

void bppsa_tangent_prepare(recurrent_network *n, tangent_direction *d) {
  const int64_t gates = tangent_gates(n), all = 2 * gates;
  const bppsa_view bias = bppsa_view_make(d->bias, n->config.dtype, 1, &all);
  transpose(n, n->config.input, d->along.w_ih, d->w_ih);
  transpose(n, n->config.hidden, d->along.w_hh, d->w_hh);
  for (int64_t i = 0; i < gates; ++i) {
    const void *const given[] = {d->along.b_ih, d->along.b_hh};
    double of[2];
    for (int k = 0; k < 2; ++k) {
      const bppsa_view view = bppsa_view_make((void *)(uintptr_t)given[k], n->config.dtype, 1, &gates);
      of[k] = given[k] != NULL ? bppsa_view_get(&view, i) : 0;
    }
    bppsa_view_set(&bias, i, of[0] + (bias_apart(n) ? 0 : of[1]));
    bppsa_view_set(&bias, gates + i, bias_apart(n) ? of[1] : 0);
  }
}

void bppsa_tangent_prepare_own(recurrent_network *n, const tangent_arrays *a) {
  bppsa_layers_prepare_forward(n, 0, layers_in_panels(n)); /* the cell's function reads panels, */
  if (a->scan != NULL && layers_in_panels(n)) {
    bppsa_layers_prepare_forward(n, 0, false); /* and a scan rows */
  }
  bppsa_layers_prepare_input(n, 0, false);
  transpose(n, n->config.hidden, bppsa_recurrent_parameter(n, 0, W_HH)->value.data, a->own_hh);
}

/* Writes the same row to many rows. */
static void fill_rows(const recurrent_network *n, const void *row, int64_t rows, int64_t width, void *to) {
  for (int64_t r = 0; r < rows; ++r) {
    layers_put_row(n, row, width, at(n, to, r * width));
  }
}

/* y = x wt + bias, or bias where x or wt is NULL. */
static void begin_product(const recurrent_network *n, int64_t rows, int64_t in, const void *x, const void *wt, const void *bias,
                          void *y) {
  const bppsa_linear l = layers_linear(n, rows, in, tangent_gates(n));
  if (x != NULL && wt != NULL) {
    bppsa_linear_forward(&l, x, wt, bias, y);
  } else {
    fill_rows(n, bias, rows, l.out, y);
  }
}

void bppsa_tangent_add_product(const recurrent_network *n, int64_t rows, int64_t in, const void *x, const void *wt, void *y) {
  const bppsa_linear l = layers_linear(n, rows, in, tangent_gates(n));
  if (x != NULL && wt != NULL) {
    bppsa_linear_add(&l, x, wt, y, l.out);
  }
}

void bppsa_tangent_products(const recurrent_network *n, const tangent_direction *d, const recurrent_stretch *s,
                            const void *before, void *product_x, void *product_h) {
  const int64_t rows = s->steps * s->samples, input = n->config.input, hidden = n->config.hidden;
  const void *x = at(n, bppsa_layers_input_of(n, 0), s->row * input), *of_hh = d->along.w_hh != NULL ? d->w_hh : NULL;
  begin_product(n, rows, input, at(n, d->along.x, s->row * input), n->w_t, d->bias, product_x);
  bppsa_tangent_add_product(n, rows, input, x, d->along.w_ih != NULL ? d->w_ih : NULL, product_x);
  if (n->cell->split) {
    begin_product(n, rows, hidden, before, of_hh, at(n, d->bias, tangent_gates(n)), product_h);
  } else {
    bppsa_tangent_add_product(n, rows, hidden, before, of_hh, product_x);
  }
}

const void *bppsa_tangent_whole_products(const recurrent_network *n, const tangent_arrays *a, tangent_direction *d,
                                         const void *before) {
  const int64_t rows = bppsa_ragged_rows(n);
  const recurrent_stretch whole = {.steps = 1, .samples = rows};
  const void *tangents = bppsa_tangent_before_all(n, d->h, d->along.reset_state, d->before);
  void *product_h = n->cell->split ? d->product_h : d->product_x;
  bppsa_tangent_products(n, d, &whole, before, d->product_x, product_h);
  bppsa_tangent_add_product(n, rows, n->config.hidden, tangents, a->own_hh, product_h);
  return tangents;
}

layers_tangent bppsa_tangent_window(const recurrent_network *n, const tangent_arrays *a, const tangent_direction *d,
                                    int64_t row) {
  const int64_t first = row * tangent_gates(n);
  layers_tangent t = {.product_x = at(n, d->product_x, first), .h = d->h, .c = d->c, .reset_state = d->along.reset_state};
  t.product_h = n->cell->split ? at(n, d->product_h, first) : t.product_x;
  t.copies[0] = a->copies[0];
  t.copies[1] = a->copies[1];
  return t;
}

/* ---- the states' tangents ---- */

/* The tangents of the states in front of the first step. */
static void begin_states(const recurrent_network *n, const tangent_direction *d) {
  const int64_t hidden = n->config.hidden;
  const void *const given[] = {d->along.h0, d->along.c0};
  void *const to[] = {d->h, d->c};
  for (int64_t half = 0; half < (n->cell->pair ? 2 : 1); ++half) {
    for (int64_t place = 0; place < n->batch; ++place) {
      const void *from = bppsa_resets_at(n, 0, 0, place) ? at(n, d->along.reset_state, half * hidden)
                                                         : at(n, given[half], bppsa_ragged_sample(n, place) * hidden);
      layers_put_row(n, from, hidden, at(n, to[half], place * hidden));
    }
  }
}

static bppsa_status walk_forward(recurrent_network *n, tangent_arrays *a) {
  const bool scans = a->scan != NULL;
  tangent_direction *d = &a->d;
  begin_states(n, d);
  bppsa_tangent_prepare_own(n, a);
  bppsa_tangent_prepare(n, d);
  for (int64_t k = 0; k < bppsa_ragged_stretches(n); ++k) {
    const recurrent_stretch s = bppsa_ragged_stretch(n, k);
    const int64_t steps = scans ? s.steps : bppsa_layers_window_steps(n);
    for (int64_t first = 0; first < s.steps; first += steps) {
      const recurrent_stretch part = part_of(&s, first, s.steps - first < steps ? s.steps - first : steps);
      const void *before = before_steps(n, &part, n->layers[0].h, bppsa_reset_state_of(n, 0), a->before);
      const layers_tangent tangent = bppsa_tangent_window(n, a, d, scans ? part.row : 0);
      bppsa_tangent_products(n, d, &part, before, tangent.product_x, tangent.product_h);
      const layers_window w = {
          .first = part.first, .row = part.row, .steps = part.steps, .samples = part.samples, .tangent = &tangent};
      if (!scans) {
        bppsa_layers_sweep(n, n->cell->tangent, 0, &w, false);
      }
    }
  }
  return scans ? bppsa_tangent_walk(n, a, d, false) : BPPSA_OK;
}

/* ---- the derivative of the backward pass ---- */

const void *bppsa_tangent_before_all(const recurrent_network *n, const void *states, const void *by, void *room) {
  if (!bppsa_ragged_packed(n)) {
    const recurrent_stretch all = bppsa_ragged_stretch(n, 0);
    return before_steps(n, &all, states, by, room);
  }
  bppsa_ragged_shift(n, states, n->config.hidden, room);
  for (int64_t k = 0; k < bppsa_ragged_stretches(n); ++k) {
    const recurrent_stretch s = bppsa_ragged_stretch(n, k);
    replaced r = {by, at(n, room, s.row * n->config.hidden)};
    each_reset(n, &s, false, replace_row, &r);
  }
  return room;
}

void bppsa_tangent_of_deltas(const recurrent_network *n, const tangent_arrays *a, const tangent_direction *d, void *carried) {
  const int64_t size = bppsa_recurrent_state_size(n);
  memset(carried, 0, (size_t)((n->batch + bppsa_ragged_rows(n)) * size * layers_size_of(n)));
  for (int64_t k = 0; k < bppsa_ragged_stretches(n); ++k) {
    const recurrent_stretch s = bppsa_ragged_stretch(n, k);
    layers_tangent tangent = bppsa_tangent_window(n, a, d, s.row);
    tangent.carried = at(n, carried, front_row(n, &s) * size);
    const layers_window w = {.first = s.first,
                             .row = s.row,
                             .steps = s.steps,
                             .samples = s.samples,
                             .g = at(n, n->g, front_row(n, &s) * size),
                             .tangent = &tangent};
    bppsa_layers_sweep(n, n->cell->tangent_backward, 0, &w, false);
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

/* Completes q of all steps, in a->g: what goes through W_hh, and what goes nowhere. delta_h: of the first walk. */
static void complete_carried(const recurrent_network *n, const tangent_arrays *a, const void *delta_h) {
  const int64_t size = bppsa_recurrent_state_size(n), gates = tangent_gates(n);
  const void *w_hh = bppsa_recurrent_parameter(n, 0, W_HH)->value.data;
  for (int64_t i = 0; i < size; ++i) {
    a->of_reset[i] = 0;
  }
  for (int64_t k = 0; k < bppsa_ragged_stretches(n); ++k) {
    const recurrent_stretch s = bppsa_ragged_stretch(n, k);
    const bppsa_linear l = layers_linear(n, s.steps * s.samples, gates, n->config.hidden);
    void *rows = at(n, a->g, front_row(n, &s) * size);
    bppsa_linear_add(&l, at(n, n->cell->split ? a->d.product_h : a->d.product_x, s.row * gates), w_hh, rows, size);
    if (a->d.along.w_hh != NULL) {
      bppsa_linear_add(&l, at(n, delta_h, s.row * gates), a->d.along.w_hh, rows, size);
    }
    stopped stop = {rows, a->of_reset};
    each_reset(n, &s, true, stop_row, &stop);
  }
}

/* dw [G·H][in] = Σ deltaᵀ x over all rows, and db; NULL: not wanted. */
static void sum_rows(const recurrent_network *n, int64_t in, const void *delta, const void *x, void *dw, void *db, void *sums) {
  const bppsa_linear l = layers_linear(n, bppsa_ragged_rows(n), in, tangent_gates(n));
  bppsa_linear_weight_gradient(&l, delta, x, dw, db, sums);
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

static bppsa_status first_walk(recurrent_network *n, tangent_arrays *a, const bppsa_layer_gradients *to) {
  const int64_t rows = bppsa_ragged_rows(n), hidden = n->config.hidden, gates = tangent_gates(n);
  const bppsa_layer_tangents *along = &a->d.along;
  const void *before = a->fronts = bppsa_tangent_before_all(n, n->layers[0].h, bppsa_reset_state_of(n, 0), n->before);
  bppsa_reset_state_begin(n);
  BPPSA_TRY(walk(n));
  bppsa_layers_prepare_input(n, 0, false);
  transpose(n, hidden, bppsa_recurrent_parameter(n, 0, W_HH)->value.data, a->own_hh);
  bppsa_tangent_prepare(n, &a->d);
  const void *before_tangent = bppsa_tangent_whole_products(n, a, &a->d, before);
  bppsa_tangent_of_deltas(n, a, &a->d, a->g); /* and ė ∘ g in a->g */
  complete_carried(n, a, delta_h_of(n));
  if (to->w_ih != NULL && along->x != NULL) {
    sum_rows(n, n->config.input, n->pre, along->x, a->of_w_ih, NULL, n->sums);
  }
  if (to->w_hh != NULL) {
    sum_rows(n, hidden, delta_h_of(n), before_tangent, a->of_w_hh, NULL, n->hidden_sums);
  }
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

/* The derivatives of the weight gradients from the complete δ̇, in product_x and product_h. */
static void finish_weights(recurrent_network *n, tangent_arrays *a, const bppsa_layer_gradients *to) {
  const int64_t hidden = n->config.hidden, input = n->config.input, gates = tangent_gates(n);
  const bool own = bias_apart(n);
  void *b_ih = to->b_ih != NULL ? to->b_ih : a->of_bias;
  const bool biases = to->b_ih != NULL || (to->b_hh != NULL && !own);
  if (to->w_ih != NULL || biases) {
    const bool second = to->w_ih != NULL && a->d.along.x != NULL;
    sum_rows(n, input, a->d.product_x, bppsa_layers_input_of(n, 0), to->w_ih != NULL ? to->w_ih : a->of_w_ih,
             biases ? b_ih : NULL, n->sums);
    add(n, second ? gates * input : 0, a->of_w_ih, to->w_ih);
  }
  if (to->b_hh != NULL && !own) {
    memcpy(to->b_hh, b_ih, (size_t)(gates * layers_size_of(n)));
  }
  if (to->w_hh != NULL || (to->b_hh != NULL && own)) {
    void *w_hh = to->w_hh != NULL ? to->w_hh : a->own_hh; /* room that is not needed any more */
    sum_rows(n, hidden, n->cell->split ? a->d.product_h : a->d.product_x, a->fronts, w_hh, own ? to->b_hh : NULL, n->hidden_sums);
    add(n, to->w_hh != NULL ? gates * hidden : 0, a->of_w_hh, to->w_hh);
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

static bppsa_status second_walk(recurrent_network *n, tangent_arrays *a, const bppsa_layer_gradients *to) {
  const int64_t rows = bppsa_ragged_rows(n), gates = tangent_gates(n), size = bppsa_recurrent_state_size(n);
  add(n, (n->batch + rows) * size, a->g, n->g);
  bppsa_reset_state_begin(n);
  BPPSA_TRY(walk(n));
  bppsa_reset_state_finish(n, 0);
  add(n, rows * gates, n->pre, a->d.product_x);
  if (n->cell->split) {
    add(n, rows * gates, n->delta_h, a->d.product_h);
  }
  finish_weights(n, a, to);
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

/* ---- inputs ---- */

/* Packs x of a direction where samples have lengths. */
static void pack_direction(const recurrent_network *n, tangent_direction *d) {
  if (n->ragged.active && d->along.x != NULL) {
    bppsa_ragged_pack(n, d->along.x, n->config.input, d->packed_x);
    d->along.x = d->packed_x;
  }
}

static bppsa_status begin_pass(recurrent_network *n, tangent_arrays *a) {
  if (n->ragged.active) {
    bppsa_ragged_pack(n, n->x, n->config.input, n->ragged.x);
  }
  pack_direction(n, &a->d);
  pack_direction(n, &a->e);
  return BPPSA_OK;
}

const struct recurrent_tangents bppsa_tangents_cpu = {.visit = visit_pass,
                                                      .begin = begin_pass,
                                                      .forward = walk_forward,
                                                      .first_walk = first_walk,
                                                      .second_walk = second_walk,
                                                      .twice = bppsa_tangent_twice};
