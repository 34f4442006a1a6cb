/* Windows of time of recurrent networks on the CPU, and the cells' passes over them.
 *
 * Sequential passes go window by window, so that what one pass writes is still in a cache when the next one reads it:
 * pre-activations in the forward pass; gradients, deltas and the weight gradients' parts in the backward pass. One thread takes a
 * run of steps that fits the first-level cache; several take as many as fit the second-level cache, and share them. Windows do
 * not change a bit. */
#include <string.h>

#include "core/compute/flush.h"
#include "core/compute/matmul.h"
#include "core/compute/pool.h"
#include "recurrent/layers_cpu.h"

bool bppsa_layers_want_first(const recurrent_network *n) {
  const bool learns = n->config.reset_state && n->resets.active;
  return !n->recompute.later && (n->config.input_gradients || n->config.ends.after != NULL || bppsa_back_is_part(n) || learns);
}

layers_window bppsa_layers_whole(const recurrent_network *n) {
  return (layers_window){.steps = n->config.seq_len,
                         .samples = n->batch,
                         .pre = n->pre,
                         .delta_h = n->cell->split ? n->delta_h : n->pre,
                         .g = n->g,
                         .input = bppsa_layers_want_first(n)};
}

/* Rows of a run, if steps could be cut. */
static int64_t run_rows_wanted(const recurrent_network *n) {
  enum { BYTES = 1 << 15, LEAST_ROWS = 48, WIDE_ROWS = 256 };
  const int64_t row = ((n->cell->split ? 2 : 1) * n->cell->gates + 2) * n->config.hidden * layers_size_of(n),
                fitting = BYTES / row, least = layers_in_panels(n) ? WIDE_ROWS : LEAST_ROWS;
  return fitting > least ? fitting : least;
}

int64_t bppsa_layers_run_rows(const recurrent_network *n) {
  const int64_t units = run_rows_wanted(n) / n->batch;
  return (units > 1 ? units : 1) * n->batch;
}

int64_t bppsa_layers_most_run_rows(const recurrent_network *n) {
  const int64_t wanted = run_rows_wanted(n);
  return n->config.batch > wanted ? n->config.batch : wanted;
}

int64_t bppsa_layers_window_steps(const recurrent_network *n) {
  enum { BYTES = 1 << 18, LEAST_ROWS = 1024 };
  if (n->threads == 1 && layers_in_panels(n)) {
    return n->batch < BPPSA_PANEL_ROWS ? BPPSA_PANEL_ROWS / n->batch : 1;
  }
  if (n->threads == 1 && bppsa_layers_run_rows(n) < LEAST_ROWS) {
    return bppsa_layers_run_rows(n) / n->batch;
  }
  const int64_t fitting = BYTES / (n->cell->gates * n->config.hidden * layers_size_of(n)),
                rows = fitting > LEAST_ROWS ? fitting : LEAST_ROWS;
  return (rows + n->batch - 1) / n->batch;
}

/* Gives a block what a pass along a direction reads and writes. states: of the window's first row among those of all steps. */
static void give_tangents(const recurrent_network *n, const layers_tangent *t, int64_t states, bppsa_cell_block *block) {
  block->product_x = t->product_x;
  block->product_h = t->product_h;
  block->h_tangent = t->copied ? t->copies[0] : bppsa_recurrent_offset(n, t->h, states);
  block->c_tangent = t->copied ? t->copies[1] : bppsa_recurrent_offset(n, t->c, states);
  block->carried = t->carried;
}

/* A block of samples without the scan's arrays. */
static bppsa_cell_block block_of(const recurrent_network *n, int64_t l, const layers_window *w, int64_t first, int64_t samples) {
  const recurrent_layer *layer = &n->layers[l];
  const int64_t passed = w->row * n->config.hidden, states = passed + (n->batch - w->samples) * n->config.hidden;
  bppsa_cell_block block = {.steps = w->steps,
                            .batch = w->samples,
                            .hidden = n->config.hidden,
                            .first = first,
                            .samples = samples,
                            .nonlinearity = n->config.nonlinearity,
                            .w_hh = n->w_hh,
                            .w_hh_t = n->w_hh_t,
                            .w_row = bppsa_dtype_padded(n->config.dtype, n->config.hidden),
                            .w_row_t = bppsa_dtype_padded(n->config.dtype, n->cell->gates * n->config.hidden),
                            .threads = 1,
                            .pre = w->pre,
                            .h = w->h != NULL ? w->h : bppsa_recurrent_offset(n, layer->h, states),
                            .c = w->h != NULL ? w->c : bppsa_recurrent_offset(n, layer->c, states), /* NULL stays NULL */
                            .saved = bppsa_recurrent_offset(n, layer->saved, passed * n->cell->saved),
                            .g = w->g,
                            .input = w->input,
                            .delta_x = w->pre,
                            .delta_h = w->delta_h,
                            .columns = n->columns,
                            .diagonal = n->diagonal};
  bppsa_recurrent_give_biases(n, l, &block);
  if (w->tangent != NULL) {
    give_tangents(n, w->tangent, states, &block);
  }
  return block;
}

void bppsa_layers_cell_block(const recurrent_network *n, bppsa_cell_fn function, int64_t l, const layers_window *w,
                             void *const *columns, void *diagonal) {
  bppsa_cell_block block = block_of(n, l, w, 0, w->samples);
  block.columns = columns;
  block.diagonal = diagonal;
  const unsigned mode = bppsa_flush_begin();
  function(&block);
  bppsa_flush_end(mode);
}

layers_stops bppsa_layers_stops_of(const recurrent_network *n, bppsa_cell_fn const functions[2]) {
  return !n->resets.active                                                         ? LAYERS_NO_STOP
         : functions == n->cell->forward                                           ? LAYERS_FORWARD
         : functions == n->cell->backward                                          ? LAYERS_BACKWARD
         : functions == n->cell->deltas                                            ? LAYERS_DELTAS
         : functions == n->cell->tangent || functions == n->cell->tangent_backward ? LAYERS_TANGENT
                                                                                   : LAYERS_NO_STOP;
}

/* One pass over a window. Samples are shared in units; a thread with several units computes as many of them at once as a single
 * thread would. With panels the units are as large as a product takes at once, and where that makes too few of them for all
 * threads, the threads share every step of every unit instead. */
typedef struct {
  const recurrent_network *n;
  bppsa_cell_fn function;
  int64_t layer, unit, most; /* unit, most: numbers of samples */
  const layers_window *w;
  bool injected;
  const void *panels;
  int32_t threads; /* that share a step */
  layers_stops stops;
} sweep_pass;

/* Calls the cell's function for a window, or a part of it, in a block of samples. */
static void sweep_window(const sweep_pass *p, const layers_window *w, int64_t first, int64_t samples) {
  bppsa_cell_block block = block_of(p->n, p->layer, w, first, samples);
  block.injected = p->injected;
  block.panels = p->panels;
  block.threads = p->threads;
  p->function(&block);
}

/* May the pass write to the states? Another thread may read a tape at the same time. */
static bool in_place(const sweep_pass *p) {
  return p->stops == LAYERS_FORWARD || !p->n->config.tape;
}

/* Copies the block's tangents of the states in front of the step and behind it, with that of the reset state for samples that begin
 * anew; or, `back`, those behind the step to their place. */
static void move_tangents(const recurrent_network *n, const recurrent_reset_step *s, const layers_tangent *t, bool back) {
  const int64_t hidden = n->config.hidden, row = s->row + n->batch - s->samples + s->first;
  const size_t bytes = (size_t)(hidden * layers_size_of(n));
  const uint8_t *mask = bppsa_resets_mask(n, s->layer, s->step) + n->batch - s->samples + s->first;
  void *const arrays[] = {t->h, t->c};
  for (int64_t half = 0; half < (n->cell->pair ? 2 : 1); ++half) {
    for (int64_t k = back ? 1 : 0; k < 2; ++k) {
      void *all = bppsa_recurrent_offset(n, arrays[half], (row + k * s->samples) * hidden),
           *copy = bppsa_recurrent_offset(n, t->copies[half], (k * s->samples + s->first) * hidden);
      memcpy(back ? all : copy, back ? copy : all, (size_t)s->count * bytes);
    }
    for (int64_t i = 0; !back && i < s->count; ++i) {
      if (mask[i]) {
        layers_put_row(n, bppsa_recurrent_offset(n, t->reset_state, half * hidden), hidden,
                       bppsa_recurrent_offset(n, t->copies[half], (s->first + i) * hidden));
      }
    }
  }
}

/* Calls the cell's function for some steps of the window, in a block of samples. reset: the first of them resets some of the
 * samples. No other one does, and where the states must not be written there is no other one. */
static void sweep_piece(const sweep_pass *p, int64_t at, int64_t steps, bool reset, int64_t first, int64_t samples) {
  const recurrent_network *n = p->n;
  const int64_t rows = at * p->w->samples, deltas = n->cell->gates * n->config.hidden;
  layers_window w = *p->w;
  layers_tangent tangent;
  w.first += at;
  w.row += rows;
  w.steps = steps;
  w.pre = bppsa_recurrent_offset(n, w.pre, rows * deltas);
  w.delta_h = bppsa_recurrent_offset(n, w.delta_h, rows * deltas);
  w.g = bppsa_recurrent_offset(n, w.g, rows * bppsa_recurrent_state_size(n));
  w.input = at > 0 || w.input;
  if (w.tangent != NULL) {
    tangent = *w.tangent;
    tangent.product_x = bppsa_recurrent_offset(n, tangent.product_x, rows * deltas);
    tangent.product_h = bppsa_recurrent_offset(n, tangent.product_h, rows * deltas);
    tangent.carried = bppsa_recurrent_offset(n, tangent.carried, rows * bppsa_recurrent_state_size(n));
    tangent.copied = reset;
    w.tangent = &tangent;
  }
  const recurrent_reset_step s = {.layer = p->layer,
                                  .step = n->config.part.first + w.first,
                                  .row = w.row,
                                  .samples = w.samples,
                                  .first = first,
                                  .count = samples,
                                  .in_place = in_place(p),
                                  .injected = p->injected,
                                  .g = p->stops == LAYERS_BACKWARD && w.input ? w.g : NULL};
  if (reset) {
    bppsa_resets_begin(n, &s);
    w.h = s.in_place ? NULL : n->resets.h;
    w.c = s.in_place ? NULL : n->resets.c;
  }
  if (reset && p->stops == LAYERS_TANGENT) {
    move_tangents(n, &s, w.tangent, false);
  }
  sweep_window(p, &w, first, samples);
  if (reset) {
    bppsa_resets_end(n, &s);
  }
  if (reset && p->function == n->cell->tangent[n->config.dtype == BPPSA_F64]) { /* which writes them */
    move_tangents(n, &s, w.tangent, true);
  }
}

/* Goes through the window in time. A step that resets samples of the block begins a piece. In a pass along a direction it is a
 * piece by itself. */
static void sweep_forward(const sweep_pass *p, int64_t first, int64_t samples) {
  const recurrent_network *n = p->n;
  const int64_t begin = n->config.part.first + p->w->first, steps = p->w->steps, place = n->batch - p->w->samples + first;
  int64_t next = bppsa_resets_find(n, p->layer, begin, begin + steps, place, samples, false) - begin;
  for (int64_t at = 0; at < steps;) {
    const bool reset = at == next;
    next = reset ? bppsa_resets_find(n, p->layer, begin + at + 1, begin + steps, place, samples, false) - begin : next;
    const int64_t end = reset && p->stops == LAYERS_TANGENT ? at + 1 : next > at ? next : steps;
    sweep_piece(p, at, end - at, reset, first, samples);
    at = end;
  }
}

/* Goes through the window against time. A piece ends with a step that resets samples of the block, which is computed alone where
 * the states must not be written. */
static void sweep_backward(const sweep_pass *p, int64_t first, int64_t samples) {
  const recurrent_network *n = p->n;
  const int64_t begin = n->config.part.first + p->w->first, steps = p->w->steps, place = n->batch - p->w->samples + first;
  for (int64_t end = steps; end > 0;) {
    const int64_t found = bppsa_resets_find(n, p->layer, begin, begin + end, place, samples, true) - begin;
    const bool reset = found >= 0 && (in_place(p) || found == end - 1);
    const int64_t at = reset ? found : found >= 0 ? found + 1 : 0;
    sweep_piece(p, at, end - at, reset, first, samples);
    end = at;
  }
}

static void sweep_units(const void *context, int32_t worker, int64_t first, int64_t end) {
  const sweep_pass *p = context;
  const int64_t to = end * p->unit < p->w->samples ? end * p->unit : p->w->samples;
  const unsigned mode = bppsa_flush_begin();
  (void)worker;
  for (int64_t from = first * p->unit; from < to; from += p->most) {
    const int64_t samples = to - from < p->most ? to - from : p->most;
    if (p->stops == LAYERS_NO_STOP) {
      sweep_window(p, p->w, from, samples);
    } else {
      const bool with_time = p->stops == LAYERS_FORWARD || p->stops == LAYERS_TANGENT;
      (with_time ? sweep_forward : sweep_backward)(p, from, samples);
    }
  }
  bppsa_flush_end(mode);
}

/* Units for a layer whose weights are in panels. */
static void share_panels(sweep_pass *pass) {
  pass->panels = pass->n->panels;
  if (!layers_wide(pass->n)) {
    return;
  }
  const int32_t threads = pass->n->threads;
  const int64_t units = (pass->w->samples + BPPSA_PANEL_ROWS - 1) / BPPSA_PANEL_ROWS;
  pass->threads = units < threads ? threads : 1;
  pass->most = BPPSA_PANEL_ROWS;
  pass->unit = pass->threads > 1 ? units * BPPSA_PANEL_ROWS : BPPSA_PANEL_ROWS;
}

void bppsa_layers_sweep(const recurrent_network *n, bppsa_cell_fn const functions[2], int64_t l, const layers_window *w,
                        bool injected) {
  const int64_t batch = w->samples, hidden = n->config.hidden, columns = n->cell->gates * hidden;
  sweep_pass pass = {.n = n,
                     .function = functions[n->config.dtype == BPPSA_F64],
                     .layer = l,
                     .unit = bppsa_sample_block(batch, n->threads, columns, hidden),
                     .most = bppsa_sample_block(batch, 1, columns, hidden),
                     .w = w,
                     .injected = injected,
                     .stops = bppsa_layers_stops_of(n, functions)};
  if (layers_in_panels(n) && (functions == n->cell->forward || functions == n->cell->backward || functions == n->cell->tangent)) {
    share_panels(&pass);
  }
  if (functions == n->cell->tangent_backward) { /* has no product, whose blocks are larger */
    pass.unit = (batch + n->threads - 1) / n->threads;
    pass.most = batch;
  }
  bppsa_parallel_for(n->threads, (batch + pass.unit - 1) / pass.unit,
                     bppsa_loop_work(2 * (double)(w->steps * batch) * (double)columns * (double)hidden, 0), sweep_units, &pass);
}
