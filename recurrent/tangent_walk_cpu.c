/* The walk with time of a pass along a direction, the linearised recurrence
 *
 *     s_t = J_t s_{t-1} + q_t          s_t = ḣ_t, or of a pair (ḣ_t, ċ_t)
 *
 * over products of all steps: step by step with the cell's own function, or by a scan whose elements are the layer's Jacobians in
 * the order of time (bppsa_scan_operands.forward).
 *
 * Every unit of a cell is a function of its own gates. So q_t, what the products of step t give without the state in front of
 * it, is Σ_g (∂s/∂gate g) ∘ product_g. With a gradient of ones the cell's deltas are these derivatives: of h, and in a
 * second call of c. Samples that begin anew in front of a step are cut from the state there; where their state has a tangent of
 * its own, the cell computes these steps. */
#include "core/compute/flush.h"
#include "core/compute/pool.h"
#include "recurrent/tangent_cpu.h"

#define EACH_REAL "recurrent/tangent_walk.inc"
#include "core/base/each_real.inc"

static void *at(const recurrent_network *n, const void *base, int64_t reals) {
  return bppsa_recurrent_offset(n, base, reals);
}

void bppsa_tangent_unit(const recurrent_network *n, int64_t half) {
  const int64_t hidden = n->config.hidden, size = bppsa_recurrent_state_size(n);
  const bppsa_view first = bppsa_view_make(n->g, n->config.dtype, 1, &size);
  for (int64_t i = 0; i < size; ++i) {
    bppsa_view_set(&first, i, i / hidden == half ? 1 : 0);
  }
  for (int64_t r = 1; r < n->batch + bppsa_ragged_rows(n); ++r) {
    layers_put_row(n, n->g, size, at(n, n->g, r * size));
  }
}

typedef struct {
  const recurrent_network *n;
  const void *x[2], *y[2]; /* the second ones where the cell splits, otherwise NULL */
  int64_t half;
  void *sum;
} dots;

static void dot_some(const void *context, int32_t worker, int64_t first, int64_t end) {
  const dots *d = context;
  const recurrent_network *n = d->n;
  const int64_t hidden = n->config.hidden, gates = tangent_gates(n), size = bppsa_recurrent_state_size(n);
  const unsigned mode = bppsa_flush_begin();
  (void)worker;
  for (int k = 0; k < 2 && d->x[k] != NULL; ++k) {
    const void *x = at(n, d->x[k], first * gates), *y = at(n, d->y[k], first * gates);
    void *sum = at(n, d->sum, first * size + d->half * hidden);
    if (n->config.dtype == BPPSA_F32) {
      dot_gates_f32(end - first, n->cell->gates, hidden, x, y, size, sum);
    } else {
      dot_gates_f64(end - first, n->cell->gates, hidden, x, y, size, sum);
    }
  }
  bppsa_flush_end(mode);
}

void bppsa_tangent_dot(const recurrent_network *n, const void *x, const void *y, const void *x_h, const void *y_h, int64_t half,
                       void *sum) {
  const int64_t rows = bppsa_ragged_rows(n);
  const dots all = {n, {x, x_h}, {y, y_h}, half, at(n, sum, n->batch * bppsa_recurrent_state_size(n))};
  const double numbers = (x_h != NULL ? 2.0 : 1.0) * (double)(rows * tangent_gates(n));
  bppsa_parallel_for(n->threads, rows, bppsa_loop_work(2 * numbers, 2 * numbers * (double)layers_size_of(n)), dot_some, &all);
}

void bppsa_tangent_add_carried(const recurrent_network *n, const void *front, int64_t part, const void *tangents, int64_t half,
                               void *sum) {
  const int64_t hidden = n->config.hidden, size = bppsa_recurrent_state_size(n);
  for (int64_t k = 0; k < bppsa_ragged_stretches(n); ++k) {
    const recurrent_stretch s = bppsa_ragged_stretch(n, k);
    const int64_t rows = s.steps * s.samples;
    const void *x = at(n, front, (n->batch - s.samples + s.row) * size + part * hidden), *y = at(n, tangents, s.row * hidden);
    void *to = at(n, sum, (n->batch + s.row) * size + half * hidden);
    if (n->config.dtype == BPPSA_F32) {
      add_scaled_f32(rows, hidden, size, x, y, to);
    } else {
      add_scaled_f64(rows, hidden, size, x, y, to);
    }
  }
}

/* Adds rows of steps in a->g to those of h and c, or writes them there. */
static void take_rows(const recurrent_network *n, const tangent_arrays *a, const tangent_direction *d, int64_t row, int64_t rows,
                      bool added) {
  const int64_t hidden = n->config.hidden, size = bppsa_recurrent_state_size(n), first = n->batch + row;
  const void *from = at(n, a->g, first * size);
  void *h = at(n, d->h, first * hidden), *c = at(n, d->c, first * hidden);
  if (!added) {
    memset(h, 0, (size_t)(rows * hidden * layers_size_of(n)));
    if (c != NULL) {
      memset(c, 0, (size_t)(rows * hidden * layers_size_of(n)));
    }
  }
  if (n->config.dtype == BPPSA_F32) {
    add_states_f32(rows, hidden, size, from, h, c);
  } else {
    add_states_f64(rows, hidden, size, from, h, c);
  }
}

static void sweep(const recurrent_network *n, const tangent_arrays *a, const tangent_direction *d, const recurrent_stretch *s) {
  const layers_tangent tangent = bppsa_tangent_window(n, a, d, s->row);
  const layers_window w = {.first = s->first, .row = s->row, .steps = s->steps, .samples = s->samples, .tangent = &tangent};
  bppsa_layers_sweep(n, n->cell->tangent, 0, &w, false);
}

static recurrent_stretch step_of(const recurrent_stretch *s, int64_t t) {
  return (recurrent_stretch){.first = s->first + t, .steps = 1, .samples = s->samples, .row = s->row + t * s->samples};
}

static void walk_steps(const recurrent_network *n, const tangent_arrays *a, const tangent_direction *d, bool added) {
  for (int64_t k = 0; k < bppsa_ragged_stretches(n); ++k) {
    const recurrent_stretch s = bppsa_ragged_stretch(n, k);
    if (!added) {
      sweep(n, a, d, &s);
    }
    for (int64_t t = 0; added && t < s.steps; ++t) {
      const recurrent_stretch step = step_of(&s, t);
      sweep(n, a, d, &step);
      take_rows(n, a, d, step.row, step.samples, true);
    }
  }
}

/* ---- by a scan ---- */

/* Adds Σ_g (∂s/∂gate g) ∘ product_g to the rows of all steps in a->g. */
static void add_products(const recurrent_network *n, const tangent_arrays *a, const tangent_direction *d) {
  const int64_t size = bppsa_recurrent_state_size(n), gates = tangent_gates(n);
  for (int64_t half = 0; half < (n->cell->pair ? 2 : 1); ++half) {
    bppsa_tangent_unit(n, half);
    for (int64_t k = 0; k < bppsa_ragged_stretches(n); ++k) {
      const recurrent_stretch s = bppsa_ragged_stretch(n, k);
      layers_window w = {.first = s.first,
                         .row = s.row,
                         .steps = s.steps,
                         .samples = s.samples,
                         .pre = at(n, n->pre, s.row * gates),
                         .g = at(n, n->g, (n->batch - s.samples + s.row) * size)};
      w.delta_h = n->cell->split ? at(n, n->delta_h, s.row * gates) : w.pre;
      bppsa_layers_sweep(n, n->cell->deltas, 0, &w, false);
    }
    const bool split = n->cell->split;
    bppsa_tangent_dot(n, n->pre, d->product_x, split ? n->delta_h : NULL, split ? d->product_h : NULL, half, a->g);
  }
}

/* Copies the row of h and of c of a sample, which counts from all states, to a->g. */
static void put_state(const recurrent_network *n, const tangent_arrays *a, const tangent_direction *d, int64_t row) {
  const int64_t hidden = n->config.hidden, size = bppsa_recurrent_state_size(n);
  layers_put_row(n, at(n, d->h, row * hidden), hidden, at(n, a->g, row * size));
  if (n->cell->pair) {
    layers_put_row(n, at(n, d->c, row * hidden), hidden, at(n, a->g, row * size + hidden));
  }
}

/* Computes the steps in front of which samples begin anew from a state that has a tangent, and writes their rows to a->g. */
static void begin_anew(const recurrent_network *n, const tangent_arrays *a, const tangent_direction *d) {
  const int64_t hidden = n->config.hidden;
  for (int64_t k = 0; k < bppsa_ragged_stretches(n); ++k) {
    const recurrent_stretch s = bppsa_ragged_stretch(n, k);
    for (int64_t t = 0; t < s.steps; ++t) {
      const recurrent_stretch step = step_of(&s, t);
      const int64_t place = n->batch - s.samples, front = (place + step.row) * hidden;
      const size_t bytes = (size_t)(s.samples * hidden * layers_size_of(n));
      if (!n->resets.any[step.first]) {
        continue;
      }
      if (step.first > 0) {
        memset(at(n, d->h, front), 0, bytes);
        memset(n->cell->pair ? at(n, d->c, front) : at(n, d->h, front), 0, bytes);
      }
      sweep(n, a, d, &step);
      for (int64_t i = 0; i < s.samples; ++i) {
        if (bppsa_resets_at(n, 0, step.first, place + i)) {
          put_state(n, a, d, n->batch + step.row + i);
        }
      }
    }
  }
}

static bppsa_status walk_scan(recurrent_network *n, tangent_arrays *a, const tangent_direction *d, bool added) {
  const int64_t hidden = n->config.hidden, size = bppsa_recurrent_state_size(n), rows = bppsa_ragged_rows(n);
  const void *weights[BPPSA_CELL_MATRICES];
  if (!added) {
    memset(a->g, 0, (size_t)((n->batch + rows) * size * layers_size_of(n)));
  }
  for (int64_t b = 0; b < n->batch; ++b) {
    put_state(n, a, d, b);
  }
  add_products(n, a, d);
  if (n->resets.active && d->along.reset_state != NULL) {
    begin_anew(n, a, d);
  }
  bppsa_layers_scan_factors(n, 0);
  for (int64_t k = 0; k < n->cell->matrices; ++k) {
    weights[k] = at(n, n->w_hh_t, k * hidden);
  }
  if (n->ragged.active) {
    bppsa_ragged_spread(n, size, a->g);
  }
  const bppsa_scan_operands operands = {.batch = n->batch,
                                        .weights = weights,
                                        .weight_row = bppsa_dtype_padded(n->config.dtype, tangent_gates(n)),
                                        .columns = (const void *const *)n->columns,
                                        .diagonal = n->diagonal,
                                        .cuts = bppsa_resets_mask(n, 0, 0),
                                        .injected = at(n, a->g, n->batch * size),
                                        .gradients = a->g,
                                        .forward = true};
  BPPSA_TRY(a->scan->execute(a->scan, &operands));
  if (n->ragged.active) {
    bppsa_ragged_gather(n, size, a->g);
  }
  take_rows(n, a, d, 0, rows, false);
  return BPPSA_OK;
}

bppsa_status bppsa_tangent_walk(recurrent_network *n, tangent_arrays *a, const tangent_direction *d, bool added) {
  if (a->scan != NULL) {
    return walk_scan(n, a, d, added);
  }
  walk_steps(n, a, d, added);
  return BPPSA_OK;
}
