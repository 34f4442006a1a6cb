/* Backward passes of recurrent layers on the CPU: BP and scans, and the weight gradients behind them. */
#include <string.h>

#include "core/compute/pool.h"
#include "recurrent/layers_cpu.h"

/* ---- scans of samples of their own lengths: arrays of the scan are [T][b], all others packed ---- */

typedef struct {
  const recurrent_network *n;
  bppsa_cell_fn function;
  int64_t layer, step, row; /* of a stretch: the first step, from 0, and its row */
  int64_t samples;
  layers_stops stops;
} step_pass;

/* Calls a cell's function for single steps of a stretch, so that it finds the rows of the step alone. */
static void sweep_step(const void *context, int32_t worker, int64_t first, int64_t end) {
  const step_pass *p = context;
  const recurrent_network *n = p->n;
  const int64_t hidden = n->config.hidden, size = bppsa_recurrent_state_size(n), deltas = n->cell->gates * hidden;
  (void)worker;
  for (int64_t t = first; t < end; ++t) {
    const int64_t row = p->row + t * p->samples, spread = (p->step + t) * n->batch + n->batch - p->samples;
    void *columns[BPPSA_CELL_MATRICES + 1];
    for (int64_t k = 0; k < n->cell->matrices + n->cell->pair; ++k) {
      columns[k] = bppsa_recurrent_offset(n, n->columns[k], spread * hidden);
    }
    layers_window w = {.row = row, .steps = 1, .samples = p->samples, .pre = bppsa_recurrent_offset(n, n->pre, row * deltas)};
    w.delta_h = n->cell->split ? bppsa_recurrent_offset(n, n->delta_h, row * deltas) : w.pre;
    w.g = bppsa_recurrent_offset(n, n->g, (spread + n->batch - p->samples) * size); /* the step's own is one step behind */
    const recurrent_reset_step s = {
        .layer = p->layer, .step = n->config.part.first + p->step + t, .row = row, .samples = p->samples, .count = p->samples};
    if (p->stops == LAYERS_DELTAS) {
      bppsa_resets_begin(n, &s);
      w.h = n->resets.h;
      w.c = n->resets.c;
    }
    bppsa_layers_cell_block(n, p->function, p->layer, &w, columns, bppsa_recurrent_offset(n, n->diagonal, spread * hidden));
  }
}

static void sweep_steps(const recurrent_network *n, bppsa_cell_fn const functions[2], int64_t l) {
  const bppsa_cell_fn function = functions[n->config.dtype == BPPSA_F64];
  const double row = 8 * (double)(n->cell->gates * n->config.hidden);
  for (int64_t k = 0; k < bppsa_ragged_stretches(n); ++k) {
    const recurrent_stretch s = bppsa_ragged_stretch(n, k);
    const step_pass pass = {n, function, l, s.first, s.row, s.samples, bppsa_layers_stops_of(n, functions)};
    const int32_t threads = pass.stops == LAYERS_DELTAS ? 1 : n->threads; /* all steps use the same copies */
    bppsa_parallel_for(threads, s.steps, bppsa_loop_work(row * (double)(s.steps * s.samples), 0), sweep_step, &pass);
  }
}

/* Writes the factors of the Jacobians, with 0 behind a sample's end. */
static void spread_columns(const recurrent_network *n, int64_t l) {
  for (int64_t k = 0; k < n->cell->matrices + n->cell->pair; ++k) {
    bppsa_ragged_clear(n, n->config.hidden, n->columns[k]);
  }
  if (n->cell->diagonal) {
    bppsa_ragged_clear(n, n->config.hidden, n->diagonal);
  }
  sweep_steps(n, n->cell->coefficients, l);
}

void bppsa_layers_scan_factors(recurrent_network *n, int64_t l) {
  const layers_window all = bppsa_layers_whole(n);
  if (n->ragged.active) {
    spread_columns(n, l);
  } else {
    bppsa_layers_sweep(n, n->cell->coefficients, l, &all, false);
  }
}

/* Computes the gradients of all states and the deltas by a scan. The scan reads and writes the arrays of `whole`. These may have
 * more steps in front of n's own steps; there the Jacobians and gradients are 0. cuts: which samples begin anew, for all steps. */
static bppsa_status scan_states(recurrent_network *n, int64_t l, const recurrent_network *whole, const uint8_t *cuts) {
  const void *weights[BPPSA_CELL_MATRICES];
  const int64_t hidden = n->config.hidden, row = bppsa_dtype_padded(n->config.dtype, hidden);
  bppsa_layers_pad_weights(n, l);
  for (int64_t k = 0; k < n->cell->matrices; ++k) {
    weights[k] = bppsa_recurrent_offset(n, n->w_hh, k * hidden * row);
  }
  const layers_window all = bppsa_layers_whole(n);
  bppsa_layers_scan_factors(n, l);
  if (n->ragged.active) {
    bppsa_ragged_spread(n, bppsa_recurrent_state_size(n), n->g);
  }
  const bppsa_scan_operands operands = {.batch = n->batch,
                                        .weights = weights,
                                        .weight_row = row,
                                        .columns = (const void *const *)whole->columns,
                                        .diagonal = whole->diagonal,
                                        .cuts = cuts,
                                        .injected = bppsa_recurrent_injected(n, l) ? whole->g : NULL,
                                        .gradients = whole->g};
  BPPSA_TRY(n->layers[l].scan->execute(n->layers[l].scan, &operands));
  if (n->ragged.active) {
    sweep_steps(n, n->cell->deltas, l);
  } else {
    bppsa_layers_sweep(n, n->cell->deltas, l, &all, false);
  }
  return BPPSA_OK;
}

static bppsa_status scan_layer(recurrent_network *n, int64_t l) {
  BPPSA_TRY(scan_states(n, l, n, bppsa_resets_mask(n, l, n->config.part.first)));
  bppsa_reset_state_carry(n, l);
  return BPPSA_OK;
}

/* Sequential BP through all steps, from the last stretch to the first. */
static void sweep_back(const recurrent_network *n, int64_t l) {
  const int64_t size = bppsa_recurrent_state_size(n), deltas = n->cell->gates * n->config.hidden;
  for (int64_t k = bppsa_ragged_stretches(n) - 1; k >= 0; --k) {
    const recurrent_stretch s = bppsa_ragged_stretch(n, k);
    layers_window w = {.first = s.first,
                       .row = s.row,
                       .steps = s.steps,
                       .samples = s.samples,
                       .pre = bppsa_recurrent_offset(n, n->pre, s.row * deltas)};
    w.delta_h = n->cell->split ? bppsa_recurrent_offset(n, n->delta_h, s.row * deltas) : w.pre;
    w.g = bppsa_recurrent_offset(n, n->g, (s.row + n->batch - s.samples) * size);
    w.input = k > 0 || bppsa_layers_want_first(n);
    bppsa_layers_sweep(n, n->cell->backward, l, &w, bppsa_recurrent_injected(n, l));
  }
}

bppsa_status bppsa_layers_sweep_back(recurrent_network *n, int64_t l) {
  if (n->layers[l].scan != NULL) {
    return scan_layer(n, l);
  }
  bppsa_layers_prepare_back(n, l);
  sweep_back(n, l);
  return BPPSA_OK;
}

/* The two products behind a layer's weight gradients: with its input, and with the states from which its steps began. */
typedef struct {
  bppsa_linear from_x, from_h;
  const void *x;
} layer_products;

static layer_products products_of(const recurrent_network *n, int64_t l) {
  /* others add to the workspace by themselves, and several threads of theirs at once */
  const bool plain = !n->back.stats.speculated && !bppsa_back_is_part(n);
  const int64_t hidden = n->config.hidden, rows = bppsa_ragged_rows(n), out = n->cell->gates * hidden;
  layer_products p = {layers_linear(n, rows, n->layers[l].input, out), layers_linear(n, rows, hidden, out),
                      bppsa_layers_input_of(n, l)};
  p.from_x.run = p.from_h.run = bppsa_layers_run_rows(n);
  p.from_x.panels = p.from_h.panels = plain ? bppsa_layers_run_panels(n) : NULL;
  p.from_x.dw = plain ? bppsa_recurrent_parameter(n, l, W_IH)->gradient.data : NULL;
  p.from_h.dw = plain ? bppsa_recurrent_parameter(n, l, W_HH)->gradient.data : NULL;
  return p;
}

/* For outputs before this one the bias gradient of b_hh equals that of b_ih, because both biases enter the same sum, or sums with
 * the same gradient. */
static int64_t shared_bias(const recurrent_network *n) {
  return (n->cell->split && n->cell->separate_bias ? n->cell->split_from : n->cell->gates) * n->config.hidden;
}

/* Returns the states from which some steps of whole samples began, until end_steps: the rows of h, in which samples that begin anew
 * have the state from which they do; of a tape, which must not be written, a copy. */
static const void *begin_steps(const recurrent_network *n, int64_t l, int64_t first, int64_t steps) {
  const recurrent_stretch s = {.first = first, .steps = steps, .samples = n->batch};
  const int64_t hidden = n->config.hidden, begin = n->config.part.first + first;
  void *h = bppsa_recurrent_offset(n, n->layers[l].h, first * n->batch * hidden);
  if (!n->resets.active || bppsa_resets_find(n, l, begin, begin + steps, 0, n->batch, false) < 0) {
    return h;
  }
  if (!n->config.tape) {
    bppsa_resets_exchange_rows(n, l, &s, h, n->before, false);
    return h;
  }
  memcpy(n->before, h, (size_t)(steps * n->batch * hidden * layers_size_of(n)));
  bppsa_resets_begin_rows(n, l, &s, n->before);
  return n->before;
}

static void end_steps(const recurrent_network *n, int64_t l, int64_t first, int64_t steps) {
  const recurrent_stretch s = {.first = first, .steps = steps, .samples = n->batch};
  if (!n->config.tape) {
    void *h = bppsa_recurrent_offset(n, n->layers[l].h, first * n->batch * n->config.hidden);
    bppsa_resets_exchange_rows(n, l, &s, h, n->before, true);
  }
}

/* Returns a copy of these states of all steps, without gaps, of the present batch. */
static const void *copy_before(const recurrent_network *n, int64_t l) {
  const int64_t hidden = n->config.hidden;
  bppsa_ragged_shift(n, n->layers[l].h, hidden, n->before);
  for (int64_t k = 0; k < bppsa_ragged_stretches(n); ++k) {
    const recurrent_stretch s = bppsa_ragged_stretch(n, k);
    bppsa_resets_begin_rows(n, l, &s, bppsa_recurrent_offset(n, n->before, s.row * hidden));
  }
  return n->before;
}

/* Sums `count` parts of both products from part `first` on. The window's deltas begin where that part does, and so does h, the
 * states from which its steps began. */
static void sum_parts(const recurrent_network *n, int64_t l, int64_t first, int64_t count, const layers_window *w,
                      const void *h) {
  const layer_products p = products_of(n, l);
  bppsa_linear_sum_parts(&p.from_x, first, count, w->pre, bppsa_recurrent_offset(n, p.x, w->row * p.from_x.in), 0, n->sums);
  bppsa_linear_sum_parts(&p.from_h, first, count, w->delta_h, h, shared_bias(n), n->hidden_sums);
}

/* Sums all parts, from the deltas of all steps. */
static void sum_all(const recurrent_network *n, int64_t l) {
  const layers_window all = bppsa_layers_whole(n);
  const layer_products p = products_of(n, l);
  const int64_t parts = bppsa_linear_cut_rows(&p.from_h).parts;
  if (n->ragged.active) {
    sum_parts(n, l, 0, parts, &all, copy_before(n, l));
    return;
  }
  sum_parts(n, l, 0, parts, &all, begin_steps(n, l, 0, n->config.seq_len));
  end_steps(n, l, 0, n->config.seq_len);
}

void bppsa_layers_finish(const recurrent_network *n, int64_t l) {
  const layer_products p = products_of(n, l);
  const bppsa_view *b_ih = &bppsa_recurrent_parameter(n, l, B_IH)->gradient,
                   *b_hh = &bppsa_recurrent_parameter(n, l, B_HH)->gradient;
  bppsa_linear_finish(&p.from_x, bppsa_recurrent_parameter(n, l, W_IH)->gradient.data, b_ih->data, n->sums);
  bppsa_linear_finish(&p.from_h, bppsa_recurrent_parameter(n, l, W_HH)->gradient.data, n->cell->split ? b_hh->data : NULL,
                      n->hidden_sums);
  memcpy(b_hh->data, b_ih->data, (size_t)(shared_bias(n) * layers_size_of(n)));
}

/* Does BP compute the input's gradient window by window, while the deltas are in a cache? */
static bool gives_x(const recurrent_network *n, int64_t l) {
  return n->dx != NULL && bppsa_recurrent_level(n, l) == 0 && !layers_have_sides(n) && !n->ragged.active;
}

static void give_x(const recurrent_network *n, int64_t l, const layers_window *w) {
  if (gives_x(n, l)) {
    bppsa_layers_multiply_deltas(n, l, w->steps * n->batch, w->pre, bppsa_recurrent_offset(n, n->dx, w->row * n->config.input));
  }
}

/* Writes dL/dh_t in front of each of the window's steps to the rows of g there; in front of the first step of all it is 0. */
static void put_seeds(const recurrent_network *n, int64_t first, int64_t steps) {
  const int64_t hidden = n->config.hidden, size = bppsa_recurrent_state_size(n), batch = n->batch;
  for (int64_t t = 0; t < steps; ++t) {
    const void *from = first + t > 0 ? bppsa_recurrent_offset(n, n->seed, (first + t - 1) * batch * hidden) : NULL;
    void *to = bppsa_recurrent_offset(n, n->g, t * batch * size);
    if (size == hidden) {
      layers_put_row(n, from, batch * hidden, to);
      continue;
    }
    for (int64_t b = 0; b < batch; ++b) {
      layers_put_row(n, bppsa_recurrent_offset(n, from, b * hidden), hidden, bppsa_recurrent_offset(n, to, b * size));
      layers_put_row(n, NULL, size - hidden, bppsa_recurrent_offset(n, to, b * size + hidden));
    }
  }
}

/* Returns the memory of one window of sequential BP, which goes from the last window to the first. Only arrays that are read later
 * are kept: deltas if `keeps` or if a layer below needs them, gradients of the states if some are injected, but for a seed that
 * windows take; otherwise all windows use the same memory. g_0 always has the same place. seed: g behind the window. */
static layers_window bp_window(const recurrent_network *n, int64_t l, int64_t first, int64_t steps, const void *seed,
                               bool keeps) {
  const int64_t state = n->batch * bppsa_recurrent_state_size(n), deltas = n->batch * n->cell->gates * n->config.hidden;
  const bool injected = bppsa_recurrent_injected(n, l);
  layers_window w = bppsa_layers_whole(n);
  w.first = first;
  w.row = first * n->batch;
  w.steps = steps;
  w.input = first > 0 || bppsa_layers_want_first(n);
  if (bppsa_recurrent_level(n, l) > 0 || keeps) {
    w.pre = bppsa_recurrent_offset(n, n->pre, first * deltas);
    w.delta_h = n->cell->split ? n->delta_h : w.pre;
  }
  if (injected && !n->seeds_windows) {
    w.g = bppsa_recurrent_offset(n, n->g, first * state);
  } else {
    memmove(bppsa_recurrent_offset(n, n->g, steps * state), seed, (size_t)(state * layers_size_of(n)));
  }
  if (n->seeds_windows) {
    put_seeds(n, first, steps);
  }
  bppsa_layers_sweep(n, n->cell->backward, l, &w, injected);
  return w;
}

/* Runs BP on one thread, run by run: the weight gradients of a run are summed while it is in the first-level cache. */
static void bp_runs(const recurrent_network *n, int64_t l, bppsa_linear_cut cut) {
  const layer_products p = products_of(n, l);
  const int64_t run = p.from_h.run, rows = p.from_h.rows;
  const void *seed = bppsa_layers_end_of_g(n, n->batch, bppsa_recurrent_state_size(n));
  for (int64_t part = cut.parts - 1; part >= 0; --part) {
    const int64_t start = part * cut.length, size = rows - start < cut.length ? rows - start : cut.length;
    for (int64_t r = (size - 1) / run * run; r >= 0; r -= run) {
      const int64_t count = size - r < run ? size - r : run, at = start + r;
      const layers_window w = bp_window(n, l, at / n->batch, count / n->batch, seed, layers_have_sides(n));
      seed = n->g;
      bppsa_linear_sum_run(&p.from_x, part, size, r, count, w.pre, bppsa_recurrent_offset(n, p.x, at * p.from_x.in), 0, n->sums);
      bppsa_linear_sum_run(&p.from_h, part, size, r, count, w.delta_h, begin_steps(n, l, w.first, w.steps), shared_bias(n),
                           n->hidden_sums);
      end_steps(n, l, w.first, w.steps);
      give_x(n, l, &w);
    }
  }
}

int64_t bppsa_layers_run_end(const recurrent_network *n, int64_t first, int64_t steps) {
  const layer_products p = products_of(n, 0);
  const bppsa_linear_cut cut = bppsa_linear_cut_rows(&p.from_h);
  if (steps >= n->config.seq_len - first) {
    return n->config.seq_len;
  }
  const int64_t run = p.from_h.run, least = (first + steps) * n->batch, start = (least - 1) / cut.length * cut.length,
                runs = (least - start + run - 1) / run * run, end = start + (runs < cut.length ? runs : cut.length);
  return end < p.from_h.rows ? end / n->batch : n->config.seq_len;
}

/* Computes the gradients and deltas of all steps of a segment v by a scan, which has the steps of the longest one. */
static bppsa_status scan_segment(const recurrent_network *n, recurrent_network *v, int64_t l, int64_t own_steps) {
  const int64_t hidden = n->config.hidden, batch = n->batch, more = bppsa_recompute_steps(n) - v->config.seq_len,
                matrices = n->cell->matrices + n->cell->pair;
  const size_t rows = (size_t)(more * batch), row = (size_t)(hidden * layers_size_of(n));
  const uint8_t *mask = bppsa_resets_mask(v, l, v->config.part.first);
  void *columns[BPPSA_CELL_MATRICES + 1];
  recurrent_network scanned = *v;
  for (int64_t k = 0; k < matrices; ++k) {
    memset(n->columns[k], 0, rows * row);
    columns[k] = bppsa_recurrent_offset(n, n->columns[k], more * batch * hidden);
  }
  if (n->cell->diagonal) {
    memset(n->diagonal, 0, rows * row);
  }
  memset(n->g, 0, rows * (size_t)(bppsa_recurrent_state_size(n) * layers_size_of(n)));
  if (mask != NULL) {
    memset(n->recompute.cuts, 0, rows);
    memcpy(n->recompute.cuts + rows, mask, (size_t)(v->config.seq_len * batch));
  }
  scanned.columns = columns;
  scanned.diagonal = bppsa_recurrent_offset(n, n->diagonal, more * batch * hidden);
  BPPSA_TRY(scan_states(&scanned, l, n, mask != NULL ? n->recompute.cuts : NULL));
  scanned.config.seq_len = own_steps; /* the step behind them has been carried with the next segment */
  bppsa_reset_state_carry(&scanned, l);
  return BPPSA_OK;
}

/* The memory of some steps of a segment that a scan has computed. */
static layers_window scanned_window(const recurrent_network *v, int64_t first, int64_t steps) {
  const int64_t deltas = first * v->batch * v->cell->gates * v->config.hidden;
  layers_window w = bppsa_layers_whole(v);
  w.first = first;
  w.steps = steps;
  w.pre = bppsa_recurrent_offset(v, w.pre, deltas);
  w.delta_h = bppsa_recurrent_offset(v, w.delta_h, deltas);
  return w;
}

/* Computes what stands behind the weight gradients of a segment's steps: by a scan all of it, by BP that of the step that the next
 * segment has too. */
static bppsa_status enter_segment(const recurrent_network *n, recurrent_network *v, int64_t l, const void *behind,
                                  int64_t own_steps) {
  const int64_t size = bppsa_recurrent_state_size(n), batch = n->batch;
  void *end = bppsa_layers_end_of_g(v, batch, size);
  if (behind != NULL) {
    memcpy(end, behind, (size_t)(batch * size * layers_size_of(n)));
  }
  if (n->layers[l].scan != NULL) {
    return scan_segment(n, v, l, own_steps);
  }
  bppsa_layers_prepare_back(v, l);
  if (behind != NULL) {
    (void)bp_window(v, l, own_steps, 1, behind, n->config.input_gradients);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_layers_segment(const recurrent_network *n, recurrent_network *v, int64_t l, const void *behind,
                                  const void **end) {
  const bool scans = n->layers[l].scan != NULL;
  const layer_products p = products_of(n, l);
  const bppsa_linear_cut cut = bppsa_linear_cut_rows(&p.from_h);
  const int64_t size = bppsa_recurrent_state_size(n), first = v->config.part.first, batch = n->batch,
                last = v->config.seq_len - (behind != NULL);
  const void *seed = behind != NULL ? v->g : bppsa_layers_end_of_g(v, batch, size), *x = bppsa_layers_input_of(v, l);
  BPPSA_TRY(enter_segment(n, v, l, behind, last));
  for (int64_t row = (first + last) * batch; row > first * batch;) { /* run by run, from the last to the first */
    const int64_t part = (row - 1) / cut.length, start = part * cut.length, left = p.from_h.rows - start,
                  rows = left < cut.length ? left : cut.length, r = (row - 1 - start) / p.from_h.run * p.from_h.run,
                  count = row - start - r, step = (start + r) / batch - first;
    const layers_window w =
        scans ? scanned_window(v, step, count / batch) : bp_window(v, l, step, count / batch, seed, n->config.input_gradients);
    seed = v->g;
    bppsa_linear_sum_run(&p.from_x, part, rows, r, count, w.pre, bppsa_recurrent_offset(n, x, step * batch * p.from_x.in), 0,
                         n->sums);
    bppsa_linear_sum_run(&p.from_h, part, rows, r, count, w.delta_h, begin_steps(v, l, w.first, w.steps), shared_bias(n),
                         n->hidden_sums);
    end_steps(v, l, w.first, w.steps);
    row -= count;
  }
  *end = bppsa_recurrent_offset(n, v->g, batch * size);
  return BPPSA_OK;
}

/* Runs BP on several threads, which share windows of whole parts. */
static void bp_parts(const recurrent_network *n, int64_t l, bppsa_linear_cut cut) {
  const int64_t all = n->config.seq_len, part = cut.length / n->batch, fitting = bppsa_layers_window_steps(n) / part,
                parts = fitting > 1 ? fitting : 1;
  const void *seed = bppsa_layers_end_of_g(n, n->batch, bppsa_recurrent_state_size(n));
  for (int64_t first = (cut.parts - 1) / parts * parts; first >= 0; first -= parts) {
    const int64_t count = cut.parts - first < parts ? cut.parts - first : parts, end = (first + count) * part;
    const layers_window w = bp_window(n, l, first * part, (end < all ? end : all) - first * part, seed, layers_have_sides(n));
    seed = n->g;
    sum_parts(n, l, first, count, &w, begin_steps(n, l, w.first, w.steps));
    end_steps(n, l, w.first, w.steps);
    give_x(n, l, &w);
  }
}

/* Sequential BP with the parts of the weight gradients, and the input's gradient where it is not left to others (gives_x). */
static void bp_layer(const recurrent_network *n, int64_t l) {
  if (n->ragged.active) {
    bppsa_layers_prepare_back(n, l);
    sweep_back(n, l);
    sum_all(n, l);
    return;
  }
  if (gives_x(n, l)) {
    bppsa_layers_prepare_input_gradient(n, l);
  }
  const layer_products p = products_of(n, l);
  const bppsa_linear_cut cut = bppsa_linear_cut_rows(&p.from_h); /* from_x has the same cut */
  bppsa_layers_prepare_back(n, l);
  (n->threads == 1 && p.from_h.run < cut.length ? bp_runs : bp_parts)(n, l, cut);
}

void bppsa_recurrent_clear_sums(recurrent_network *n, int64_t l, bool differences) {
  const layer_products p = products_of(n, l);
  memset(differences ? n->back.sums : n->sums, 0, (size_t)bppsa_linear_workspace(&p.from_x));
  memset(differences ? n->back.hidden_sums : n->hidden_sums, 0, (size_t)bppsa_linear_workspace(&p.from_h));
}

/* Adds a product of some rows to a part. apart: NULL, or memory for the sums of these rows alone, which are added as a whole. */
static void add_product(const recurrent_network *n, const bppsa_linear *l, int64_t part, int64_t rows, const void *delta,
                        const void *from, int64_t bias_from, void *sums, void *apart) {
  const int64_t weights = l->out * l->in, size = weights + l->out;
  if (apart == NULL) {
    bppsa_linear_sum_run(l, part, rows + 1, 0, rows, delta, from, bias_from, sums); /* these are not the part's first rows */
    return;
  }
  void *to = bppsa_recurrent_offset(n, sums, part * size);
  bppsa_linear_sum_run(l, 0, rows, 0, rows, delta, from, bias_from, apart);
  bppsa_back_add(n, weights, apart, to);
  bppsa_back_add(n, l->out - bias_from, bppsa_recurrent_offset(n, apart, weights + bias_from),
                 bppsa_recurrent_offset(n, to, weights + bias_from));
}

void bppsa_recurrent_sum_rows(const recurrent_network *n, int64_t l, bool differences, int64_t part, int64_t rows,
                              const void *delta_x, const void *x, const void *delta_h, const void *h, void *apart) {
  layer_products p = products_of(n, l);
  p.from_x.threads = p.from_h.threads = 1; /* several threads walk */
  add_product(n, &p.from_x, part, rows, delta_x, x, 0, differences ? n->back.sums : n->sums, apart);
  add_product(n, &p.from_h, part, rows, delta_h, h, shared_bias(n), differences ? n->back.hidden_sums : n->hidden_sums, apart);
}

void bppsa_recurrent_join_sums(recurrent_network *n, int64_t l) {
  const layer_products p = products_of(n, l);
  bppsa_back_add(n, bppsa_linear_workspace(&p.from_x) / layers_size_of(n), n->back.sums, n->sums);
  bppsa_back_add(n, bppsa_linear_workspace(&p.from_h) / layers_size_of(n), n->back.hidden_sums, n->hidden_sums);
}

/* False: the layer is left to BP. Weight gradients are summed while deltas are in a cache, unless BLAS is to compute them. */
static bool speculative_layer(recurrent_network *n, int64_t l) {
  const layer_products p = products_of(n, l);
  const bppsa_linear_cut cut = bppsa_linear_cut_rows(&p.from_h);
  const bool sums = p.from_h.run <= p.from_h.rows;
  bppsa_layers_pad_weights(n, l);
  if (sums) {
    bppsa_recurrent_clear_sums(n, l, false);
  }
  if (!bppsa_back_layer(n, l, bppsa_layers_input_of(n, l), sums ? cut.parts : 0)) {
    bppsa_back_given_up(n);
    bppsa_reset_state_begin(n);
    return false;
  }
  if (!sums) {
    sum_all(n, l);
  }
  return true;
}

/* A layer of a part of a sequence, whose deltas are kept. */
static bppsa_status part_layer(recurrent_network *n, int64_t l) {
  const layer_products of = products_of(n, l);
  bppsa_layers_pad_weights(n, l);
  BPPSA_TRY(bppsa_back_part_layer(n, l, of.x));
  bppsa_reset_state_finish(n, l);
  const void *before = begin_steps(n, l, 0, n->config.seq_len);
  const recurrent_products p = {of.from_x, of.from_h, of.x, before, n->pre, bppsa_layers_whole(n).delta_h, shared_bias(n)};
  const bppsa_status status = bppsa_back_sum_layer(n, l, &p);
  end_steps(n, l, 0, n->config.seq_len);
  return status;
}

void bppsa_layers_clear_cuts(recurrent_network *n, int64_t l) {
  const int64_t size = bppsa_recurrent_state_size(n);
  for (int64_t b = 0; n->resets.active && b < n->batch; ++b) {
    if (bppsa_resets_at(n, l, n->config.part.first, b)) {
      memset(bppsa_recurrent_offset(n, n->g, b * size), 0, (size_t)(size * layers_size_of(n)));
    }
  }
}

/* What follows from g_0 in n->g: the gradient of the initial state. */
static void give_first(recurrent_network *n, int64_t l) {
  const bppsa_recurrent_config *c = &n->config;
  const int64_t size = bppsa_recurrent_state_size(n);
  if (c->part.first == 0) { /* elsewhere this step is one of many, and has been treated as such */
    bppsa_layers_clear_cuts(n, l);
  }
  for (int64_t b = 0; c->input_gradients && n->dh0 != NULL && b < n->batch; ++b) {
    memcpy(bppsa_recurrent_offset(n, n->dh0, l * n->batch * size + bppsa_ragged_sample(n, b) * size),
           bppsa_recurrent_offset(n, n->g, b * size), (size_t)(size * layers_size_of(n)));
  }
}

/* The same, and what follows from delta_x in n->pre: the gradient of x. */
bppsa_status bppsa_layers_give_inputs(recurrent_network *n, int64_t l) {
  give_first(n, l);
  if (n->dx == NULL || bppsa_recurrent_level(n, l) > 0) {
    return BPPSA_OK;
  }
  void *dx = n->ragged.active ? n->ragged.packed : n->dx;
  BPPSA_TRY(layers_have_sides(n) ? bppsa_sides_add(n, l, dx) : bppsa_layers_input_gradient(n, l, dx));
  if (n->ragged.active && l == 0) {
    bppsa_ragged_unpack(n, dx, n->config.input, n->dx);
  }
  return BPPSA_OK;
}

bppsa_status bppsa_layers_backward(recurrent_network *n, int64_t l) {
  bool given = false;
  bppsa_reset_state_begin(n);
  if (bppsa_back_is_part(n)) {
    BPPSA_TRY(part_layer(n, l));
  } else if (n->layers[l].scan != NULL) {
    BPPSA_TRY(scan_layer(n, l));
    sum_all(n, l);
  } else if (!n->back.stats.speculated || !speculative_layer(n, l)) {
    bp_layer(n, l);
    given = gives_x(n, l);
  }
  if (!bppsa_back_is_part(n)) {
    bppsa_layers_finish(n, l);
    bppsa_reset_state_finish(n, l);
  }
  if (given) {
    give_first(n, l);
    return BPPSA_OK;
  }
  return bppsa_layers_give_inputs(n, l);
}
