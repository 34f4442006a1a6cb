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
 * κ and q need no recurrence: they are products over all steps. Both walks are the layer's own, by BP or by its scan. By BP the
 * second one multiplies κ_h,t + δ_h,t(ġ_t) by W_hh at once. A layer whose backward pass is speculative walks by linear scans of
 * its chunks at once (recurrent/speculate_scan.h), because its own passes do not keep the gradients of all states.
 *
 * Where a sample begins anew in front of step t, s and ṡ stand for h_{t-1} and ḣ_{t-1}; q_{t-1} is then a part of the
 * derivative of s's gradient and goes nowhere else.
 *
 * With P the FLOPs of the product with W_hh in a forward pass, tangents take 2 P, one of them step by step, and the derivative of
 * the backward pass 7 P by BP, of a cell whose curvature follows from the states' tangents alone 5 P, two of them step by step,
 * where forward and backward together take 3 P. A scan takes 1 P more beside its own products. Each takes about as many products
 * with W_ih. Terms whose tangents are NULL are left out. */
#include "recurrent/tangent_cpu.h"

#include "core/compute/flush.h"
#include "core/compute/pool.h"

/* ---- sizes ---- */

bool bppsa_tangent_goes_by_runs(const recurrent_network *n, bool scans) {
  const bppsa_recurrent_config *c = &n->config;
  const int64_t run = bppsa_layers_run_rows(n);
  const bppsa_linear of_hh = {c->dtype, 1, c->seq_len * c->batch, c->hidden, tangent_gates(n), c->batch, run, 0};
  return n->threads == 1 && !scans && !c->lengths && !c->reset_state && run < bppsa_linear_cut_rows(&of_hh).length;
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

/* steps: so many of products at once. fronts: the tangents in front of these steps are needed as rows. */
static bppsa_status visit_direction(const recurrent_network *n, int64_t steps, bool fronts, tangent_direction *d,
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
                                  {fronts && (c->resets || c->lengths), steps, c->batch, c->hidden, &d->before}};
  return visit_all(n, arrays, sizeof arrays / sizeof *arrays, visit, bytes);
}

static bppsa_status visit_pass(const recurrent_network *n, tangent_kind kind, bool scans, tangent_arrays *a,
                               bppsa_recurrent_visit visit, int64_t *bytes) {
  const bppsa_recurrent_config *c = &n->config;
  const int64_t hidden = c->hidden, gates = tangent_gates(n), steps = c->seq_len, state = bppsa_recurrent_state_size(n);
  const bool pair = n->cell->pair, lengths = c->lengths, resets = c->resets;
  const bool gradients = kind == TANGENT_GRADIENTS, twice = kind == TANGENT_TWICE;
  const bool runs = gradients && bppsa_tangent_goes_by_runs(n, scans), all = (gradients && !runs) || twice || scans;
  const int64_t window = runs ? bppsa_layers_run_rows(n) / c->batch : bppsa_layers_window_steps(n),
                some = all || window > steps ? steps : window;
  const tangent_array arrays[] = {{true, 1, hidden, gates, &a->own_hh},
                                  {resets, 2, c->batch, hidden, &a->copies[0]},
                                  {resets && pair, 2, c->batch, hidden, &a->copies[1]},
                                  {resets && (kind == TANGENT_STATES || runs), some, c->batch, hidden, &a->before},
                                  {all || runs, steps + 1, c->batch, state, &a->g},
                                  {gradients, 1, gates, c->input, &a->of_w_ih},
                                  {gradients, 1, gates, hidden, &a->of_w_hh},
                                  {gradients, 1, gates, 1, &a->of_bias},
                                  {twice && pair, steps, c->batch, gates, &a->spare},
                                  {twice || runs, some + 1, c->batch, state, &a->carried},
                                  {twice && pair && (resets || lengths), steps, c->batch, hidden, &a->before_cells},
                                  {twice && lengths, steps + 1, c->batch, hidden, &a->packed_h},
                                  {twice && lengths && pair, steps + 1, c->batch, hidden, &a->packed_c}};
  BPPSA_TRY(visit_direction(n, some, gradients || twice, &a->d, visit, bytes));
  BPPSA_TRY(twice ? visit_direction(n, steps, true, &a->e, visit, bytes) : BPPSA_OK);
  BPPSA_TRY(visit_all(n, arrays, sizeof arrays / sizeof *arrays, visit, bytes));
  BPPSA_TRY(runs ? visit(&a->sums, bppsa_layers_sums_bytes(n, false), bytes) : BPPSA_OK);
  BPPSA_TRY(runs ? visit(&a->hidden_sums, bppsa_layers_sums_bytes(n, true), bytes) : BPPSA_OK);
  return gradients ? visit((void **)&a->of_reset, state * (int64_t)sizeof(double), bytes) : BPPSA_OK;
}

/* ---- rows ---- */

static void *at(const recurrent_network *n, const void *base, int64_t reals) {
  return bppsa_recurrent_offset(n, base, reals);
}

/* Steps first .. first + steps - 1 of a stretch. */
static recurrent_stretch part_of(const recurrent_stretch *s, int64_t first, int64_t steps) {
  return (recurrent_stretch){
      .first = s->first + first, .steps = steps, .samples = s->samples, .row = s->row + first * s->samples};
}

void bppsa_tangent_each_reset(const recurrent_network *n, const recurrent_stretch *s, bool zeroth, tangent_reset_visit visit,
                              void *context) {
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

const void *bppsa_tangent_before_steps(const recurrent_network *n, const recurrent_stretch *s, const void *states, const void *by,
                                       void *room) {
  const int64_t hidden = n->config.hidden;
  const void *rows = at(n, states, tangent_front_row(n, s) * hidden);
  if (!n->resets.active || bppsa_resets_find(n, 0, s->first, s->first + s->steps, n->batch - s->samples, s->samples, false) < 0) {
    return rows;
  }
  memcpy(room, rows, (size_t)(s->steps * s->samples * hidden * layers_size_of(n)));
  replaced r = {by, room};
  bppsa_tangent_each_reset(n, s, false, replace_row, &r);
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
    bppsa_view_set(&bias, i, of[0] + (tangent_bias_apart(n) ? 0 : of[1]));
    bppsa_view_set(&bias, gates + i, tangent_bias_apart(n) ? of[1] : 0);
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

void bppsa_tangent_prepare_products(recurrent_network *n, tangent_arrays *a) {
  bppsa_layers_prepare_input(n, 0, false);
  transpose(n, n->config.hidden, bppsa_recurrent_parameter(n, 0, W_HH)->value.data, a->own_hh);
  bppsa_tangent_prepare(n, &a->d);
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
      const void *before = bppsa_tangent_before_steps(n, &part, n->layers[0].h, bppsa_reset_state_of(n, 0), a->before);
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

/* ---- the states in front of all steps ---- */

const void *bppsa_tangent_before_all(const recurrent_network *n, const void *states, const void *by, void *room) {
  if (!bppsa_ragged_packed(n)) {
    const recurrent_stretch all = bppsa_ragged_stretch(n, 0);
    return bppsa_tangent_before_steps(n, &all, states, by, room);
  }
  bppsa_ragged_shift(n, states, n->config.hidden, room);
  for (int64_t k = 0; k < bppsa_ragged_stretches(n); ++k) {
    const recurrent_stretch s = bppsa_ragged_stretch(n, k);
    replaced r = {by, at(n, room, s.row * n->config.hidden)};
    bppsa_tangent_each_reset(n, &s, false, replace_row, &r);
  }
  return room;
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
                                                      .first_walk = bppsa_tangent_first_walk,
                                                      .second_walk = bppsa_tangent_second_walk,
                                                      .twice = bppsa_tangent_twice};
