/* Recurrent networks on the CPU: passes in windows of time, and the memory for them.
 *
 * (The file is long because forward pass, backward pass and weight gradients go through the same windows, and the memory's size
 * follows from all three.) */
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/blas.h"
#include "core/compute/flush.h"
#include "core/compute/pool.h"
#include "recurrent/recurrent_internal.h"

static int64_t size_of(const recurrent_network *n) {
  return (int64_t)bppsa_dtype_size(n->config.dtype);
}

static bppsa_linear linear(const recurrent_network *n, int64_t rows, int64_t in, int64_t out) {
  return (bppsa_linear){n->config.dtype, n->threads, rows, in, out, .unit = n->batch};
}

static const bppsa_parameter *parameter(const recurrent_network *n, int64_t layer, int64_t which) {
  return bppsa_recurrent_parameter(n, layer, which);
}

/* ---- time in windows ----
 *
 * Sequential passes go window by window, so that what one pass writes is still in a cache when the next one reads it:
 * pre-activations in the forward pass; gradients, deltas and the weight gradients' parts in the backward pass. One thread takes a
 * run of steps that fits the first-level cache; several take as many as fit the second-level cache, and share them. Windows do
 * not change a bit. */

/* Some steps of the samples that run (ragged.c). */
typedef struct {
  int64_t first, row, steps, samples; /* first: step of the layer's walk, from 0; row: its, among those of all steps */
  void *pre, *delta_h;                /* at the first step */
  void *g;                            /* in front of the first step */
  bool input;                         /* the gradient of the states in front of the first step is wanted */
  void *h, *c;                        /* the states in front of the first step, if they are not the layer's */
} window;

/* Is g_0 wanted? */
static bool wants_first(const recurrent_network *n) {
  return n->config.input_gradients || n->config.ends.after != NULL || bppsa_back_is_part(n);
}

static window whole(const recurrent_network *n) {
  return (window){.steps = n->config.seq_len,
                  .samples = n->batch,
                  .pre = n->pre,
                  .delta_h = n->cell->split ? n->delta_h : n->pre,
                  .g = n->g,
                  .input = wants_first(n)};
}

/* Rows of a run, in whole steps: so many that deltas, states and gradients fit, and enough for the products. */
static int64_t run_rows(const recurrent_network *n) {
  enum { BYTES = 1 << 15, LEAST_ROWS = 48 };
  const int64_t row = ((n->cell->split ? 2 : 1) * n->cell->gates + 2) * n->config.hidden * size_of(n), fitting = BYTES / row;
  const int64_t units = (fitting > LEAST_ROWS ? fitting : LEAST_ROWS) / n->batch;
  return (units > 1 ? units : 1) * n->batch;
}

/* Steps of a window: one run, or 256 KiB of pre-activations and enough rows to share among threads. */
static int64_t window_steps(const recurrent_network *n) {
  enum { BYTES = 1 << 18, LEAST_ROWS = 1024 };
  if (n->threads == 1 && run_rows(n) < LEAST_ROWS) {
    return run_rows(n) / n->batch;
  }
  const int64_t fitting = BYTES / (n->cell->gates * n->config.hidden * size_of(n)),
                rows = fitting > LEAST_ROWS ? fitting : LEAST_ROWS;
  return (rows + n->batch - 1) / n->batch;
}

/* Calls a cell's function for one block of samples; columns and diagonal begin at the first step. */
static void cell_block(const recurrent_network *n, bppsa_cell_fn function, int64_t l, const window *w, bool injected,
                       int64_t first, int64_t samples, void *const *columns, void *diagonal) {
  const recurrent_layer *layer = &n->layers[l];
  const int64_t passed = w->row * n->config.hidden, states = passed + (n->batch - w->samples) * n->config.hidden;
  bppsa_cell_block arrays = {.steps = w->steps,
                             .batch = w->samples,
                             .hidden = n->config.hidden,
                             .first = first,
                             .samples = samples,
                             .nonlinearity = n->config.nonlinearity,
                             .w_hh = n->w_hh,
                             .w_hh_t = n->w_hh_t,
                             .w_row = bppsa_dtype_padded(n->config.dtype, n->config.hidden),
                             .w_row_t = bppsa_dtype_padded(n->config.dtype, n->cell->gates * n->config.hidden),
                             .pre = w->pre,
                             .h = w->h != NULL ? w->h : bppsa_recurrent_offset(n, layer->h, states),
                             .c = w->h != NULL ? w->c : bppsa_recurrent_offset(n, layer->c, states), /* NULL stays NULL */
                             .saved = bppsa_recurrent_offset(n, layer->saved, passed * n->cell->saved),
                             .g = w->g,
                             .injected = injected,
                             .input = w->input,
                             .delta_x = w->pre,
                             .delta_h = w->delta_h,
                             .columns = columns,
                             .diagonal = diagonal};
  bppsa_recurrent_give_biases(n, l, &arrays);
  const unsigned mode = bppsa_flush_begin();
  function(&arrays);
  bppsa_flush_end(mode);
}

/* Where a pass stops for samples that begin anew. The factors of Jacobians need no stop, because a scan does not read those of
 * such steps; deltas need one for the states, but go on with the gradients that a scan has found. */
typedef enum { NONE, FORWARD, BACKWARD, DELTAS } reset_cuts;

static reset_cuts cuts_of(const recurrent_network *n, bppsa_cell_fn const functions[2]) {
  return !n->resets.active                ? NONE
         : functions == n->cell->forward  ? FORWARD
         : functions == n->cell->backward ? BACKWARD
         : functions == n->cell->deltas   ? DELTAS
                                          : NONE;
}

/* One pass over a window. Samples are shared in units; a thread with several units computes as many of them at once as a single
 * thread would. */
typedef struct {
  const recurrent_network *n;
  bppsa_cell_fn function;
  int64_t layer, unit, most; /* unit, most: numbers of samples */
  const window *w;
  bool injected;
  reset_cuts cuts;
} sweep_pass;

/* Calls the cell's function for some steps of the window, in a block of samples. reset: it is one step that resets some of them. */
static void sweep_piece(const sweep_pass *p, int64_t at, int64_t steps, bool reset, int64_t first, int64_t samples) {
  const recurrent_network *n = p->n;
  const int64_t rows = at * p->w->samples, deltas = n->cell->gates * n->config.hidden;
  window w = *p->w;
  w.first += at;
  w.row += rows;
  w.steps = steps;
  w.pre = bppsa_recurrent_offset(n, w.pre, rows * deltas);
  w.delta_h = bppsa_recurrent_offset(n, w.delta_h, rows * deltas);
  w.g = bppsa_recurrent_offset(n, w.g, rows * bppsa_recurrent_state_size(n));
  w.input = at > 0 || w.input;
  const recurrent_reset_step s = {.layer = p->layer,
                                  .step = w.first,
                                  .row = w.row,
                                  .samples = w.samples,
                                  .first = first,
                                  .count = samples,
                                  .forward = p->cuts == FORWARD,
                                  .injected = p->injected,
                                  .g = p->cuts == BACKWARD && w.input ? w.g : NULL};
  if (reset) {
    bppsa_resets_begin(n, &s);
    w.h = n->resets.h;
    w.c = n->resets.c;
  }
  cell_block(n, p->function, p->layer, &w, p->injected, first, samples, n->columns, n->diagonal);
  if (reset) {
    bppsa_resets_end(n, &s);
  }
}

/* Goes through the window in the order of the pass. A step that resets samples of the block is computed by itself. */
static void sweep_block(const sweep_pass *p, int64_t first, int64_t samples) {
  const recurrent_network *n = p->n;
  const int64_t begin = p->w->first, steps = p->w->steps, place = n->batch - p->w->samples + first;
  const bool forward = p->cuts == FORWARD;
  int64_t low = 0, high = steps; /* steps that are left */
  while (low < high) {
    const int64_t found = bppsa_resets_find(n, p->layer, begin + low, begin + high, place, samples, !forward) - begin;
    const bool reset = found >= 0 && found == (forward ? low : high - 1);
    int64_t at = low, end = high;
    if (found >= 0 && forward) {
      end = reset ? found + 1 : found;
    } else if (found >= 0) {
      at = reset ? found : found + 1;
    }
    sweep_piece(p, at, end - at, reset, first, samples);
    low = forward ? end : low;
    high = forward ? high : at;
  }
}

static void sweep_units(const void *context, int32_t worker, int64_t first, int64_t end) {
  const sweep_pass *p = context;
  const int64_t to = end * p->unit < p->w->samples ? end * p->unit : p->w->samples;
  (void)worker;
  for (int64_t from = first * p->unit; from < to; from += p->most) {
    const int64_t samples = to - from < p->most ? to - from : p->most;
    if (p->cuts == NONE) {
      cell_block(p->n, p->function, p->layer, p->w, p->injected, from, samples, p->n->columns, p->n->diagonal);
    } else {
      sweep_block(p, from, samples);
    }
  }
}

/* Calls a cell's function for all samples. */
static void sweep(const recurrent_network *n, bppsa_cell_fn const functions[2], int64_t l, const window *w, bool injected) {
  const int64_t batch = w->samples, hidden = n->config.hidden, columns = n->cell->gates * hidden;
  const sweep_pass pass = {.n = n,
                           .function = functions[n->config.dtype == BPPSA_F64],
                           .layer = l,
                           .unit = bppsa_sample_block(batch, n->threads, columns, hidden),
                           .most = bppsa_sample_block(batch, 1, columns, hidden),
                           .w = w,
                           .injected = injected,
                           .cuts = cuts_of(n, functions)};
  bppsa_parallel_for(n->threads, (batch + pass.unit - 1) / pass.unit,
                     bppsa_loop_work(2 * (double)(w->steps * batch) * (double)columns * (double)hidden, 0), sweep_units, &pass);
}

/* ---- forward ---- */

/* Prepares W_ihᵀ, W_hhᵀ and the biases of the layer for its forward pass. */
static void prepare_weights(recurrent_network *n, int64_t l) {
  const int64_t hidden = n->config.hidden, out = n->cell->gates * hidden;
  bppsa_recurrent_cut_biases(n, l);
  const bppsa_linear from_x = linear(n, 0, n->layers[l].input, out), from_h = linear(n, 0, hidden, out);
  bppsa_linear_transpose(&from_h, parameter(n, l, W_HH)->value.data, n->w_hh_t, bppsa_dtype_padded(n->config.dtype, out));
  bppsa_linear_transpose(&from_x, parameter(n, l, W_IH)->value.data, n->w_t, out);
}

/* Copies rows of the states of a network with a tape to its output. */
static void copy_output(const recurrent_network *n, int64_t row, int64_t rows) {
  const int64_t hidden = n->config.hidden;
  if (n->output != NULL) {
    memcpy(bppsa_recurrent_offset(n, n->output, row * hidden),
           bppsa_recurrent_offset(n, n->layers[0].h, (n->batch + row) * hidden), (size_t)(rows * hidden * size_of(n)));
  }
}

/* pre = x W_ihᵀ + b_ih (+ b_hh), then the cell, window by window. */
static void forward_layer(recurrent_network *n, int64_t l, const void *x) {
  const int64_t steps = window_steps(n), input = n->layers[l].input;
  prepare_weights(n, l);
  window w = whole(n);
  for (int64_t k = 0; k < bppsa_ragged_stretches(n); ++k) {
    const recurrent_stretch s = bppsa_ragged_stretch(n, k);
    w.samples = s.samples;
    for (int64_t first = 0; first < s.steps; first += steps) {
      w.first = s.first + first;
      w.row = s.row + first * s.samples;
      w.steps = s.steps - first < steps ? s.steps - first : steps;
      const bppsa_linear from_x = linear(n, w.steps * s.samples, input, n->cell->gates * n->config.hidden);
      bppsa_linear_forward(&from_x, bppsa_recurrent_offset(n, x, w.row * input), n->w_t, n->bias, w.pre);
      sweep(n, n->cell->forward, l, &w, false);
      copy_output(n, w.row, w.steps * s.samples);
    }
  }
}

/* Sets the state of layer l in front of the first step: from h0 [L][b][S], or zeros. */
static void begin_layer(const recurrent_network *n, int64_t l, const void *h0) {
  const recurrent_layer *layer = &n->layers[l];
  const int64_t hidden = n->config.hidden, size = bppsa_recurrent_state_size(n);
  const size_t half = (size_t)(hidden * size_of(n));
  for (int64_t b = 0; b < n->batch; ++b) {
    const bool anew = bppsa_resets_at(n, l, 0, b);
    const void *from = anew ? NULL : bppsa_recurrent_offset(n, h0, (l * n->batch + bppsa_ragged_sample(n, b)) * size);
    void *const to[] = {bppsa_recurrent_offset(n, layer->h, b * hidden), bppsa_recurrent_offset(n, layer->c, b * hidden)};
    for (int64_t part = 0; part * hidden < size; ++part) {
      if (from != NULL) {
        memcpy(to[part], bppsa_recurrent_offset(n, from, part * hidden), half);
      } else {
        memset(to[part], 0, half);
      }
    }
  }
}

static bool has_sides(const recurrent_network *n) {
  return n->config.bidirectional;
}

/* The layer's input in the present batch: its rows without gaps. */
static const void *input_of(const recurrent_network *n, int64_t l) {
  if (bppsa_recurrent_drops(n, l) || (has_sides(n) && l > 0)) {
    return n->layers[l].below;
  }
  return l > 0              ? bppsa_recurrent_offset(n, n->layers[l - 1].h, n->batch * n->config.hidden)
         : n->ragged.active ? n->ragged.x
                            : n->x;
}

static bppsa_status forward(recurrent_network *n, const void *h0) {
  const bppsa_recurrent_config *c = &n->config;
  const bool speculates = bppsa_forward_begin(n);
  if (n->ragged.active) {
    bppsa_ragged_pack(n, n->x, c->input, n->ragged.x);
  }
  for (int64_t l = 0; l < bppsa_recurrent_layers(c); ++l) {
    begin_layer(n, l, h0);
    if (has_sides(n)) {
      BPPSA_TRY(bppsa_sides_enter(n, l));
    } else if (bppsa_recurrent_drops(n, l)) {
      BPPSA_TRY(
          bppsa_recurrent_drop(n, l, bppsa_recurrent_offset(n, n->layers[l - 1].h, n->batch * c->hidden), n->layers[l].below));
    }
    if (speculates) {
      prepare_weights(n, l);
      BPPSA_TRY(bppsa_forward_layer(n, l, input_of(n, l)));
      copy_output(n, 0, c->seq_len * n->batch);
    } else {
      forward_layer(n, l, input_of(n, l));
    }
  }
  if (has_sides(n)) {
    BPPSA_TRY(bppsa_sides_leave(n));
  } else if (n->ragged.active) {
    BPPSA_TRY(bppsa_ragged_gather_ends(n, input_of(n, c->layers), c->hidden, c->hidden, n->ragged.ends, c->hidden));
  }
  bppsa_forward_end(n);
  return BPPSA_OK;
}

/* The linear head, and the states that it reads. */
static bppsa_linear head_of(const recurrent_network *n, const void **h) {
  const bppsa_recurrent_config *c = &n->config;
  int64_t first;
  int64_t rows = bppsa_recurrent_head_rows(n, &first);
  *h = bppsa_recurrent_offset(n, n->layers[c->layers - 1].h, first);
  if (n->ragged.active) {
    rows = c->loss_all ? n->ragged.rows : n->batch;
    *h = c->loss_all ? input_of(n, c->layers) : n->ragged.ends;
  }
  *h = has_sides(n) ? n->sides.top : *h;
  return linear(n, rows, bppsa_recurrent_outputs(c), c->classes);
}

/* The head's parameters. */
static const bppsa_parameter *head_parameter(const recurrent_network *n, int64_t which) {
  return parameter(n, bppsa_recurrent_layers(&n->config), which);
}

static bppsa_status logits(recurrent_network *n) {
  const void *h;
  const bppsa_linear head = head_of(n, &h);
  bppsa_linear_transpose(&head, head_parameter(n, 0)->value.data, n->w_t, head.out);
  const bool packed = n->ragged.active && n->config.loss_all;
  void *logits = packed ? n->ragged.packed : n->logits;
  bppsa_linear_forward(&head, h, n->w_t, head_parameter(n, 1)->value.data, logits);
  if (packed) {
    bppsa_ragged_unpack(n, logits, n->config.classes, n->logits);
  }
  return BPPSA_OK;
}

/* ---- backward ---- */

/* The end of g, `rows` rows of so many numbers each. */
static void *end_of_g(const recurrent_network *n, int64_t rows, int64_t width) {
  return bppsa_recurrent_offset(n, n->g, (n->batch + bppsa_ragged_rows(n)) * bppsa_recurrent_state_size(n) - rows * width);
}

/* Turns the gradients of h in the last `rows` rows, which stand without gaps at the end of g, into gradients of states, with u_0 =
 * 0. For a pair each row moves to its place further in front, and 0 for c follows it; it never overwrites a row that has not
 * moved. */
static void spread_gradients(const recurrent_network *n, int64_t rows) {
  const int64_t hidden = n->config.hidden, size = bppsa_recurrent_state_size(n);
  memset(n->g, 0, (size_t)(n->batch * size * size_of(n)));
  for (int64_t r = rows; size > hidden && r > 0; --r) {
    char *to = end_of_g(n, r, size);
    memmove(to, end_of_g(n, r, hidden), (size_t)(hidden * size_of(n)));
    memset(to + hidden * size_of(n), 0, (size_t)((size - hidden) * size_of(n)));
  }
}

/* Makes g the gradient of the last states alone, [b][H]; where gradients are injected, that of all other states is 0. */
static void seed_ends(recurrent_network *n, const void *ends) {
  const int64_t hidden = n->config.hidden, size = bppsa_recurrent_state_size(n);
  if (bppsa_recurrent_injected(n, bppsa_recurrent_layers(&n->config) - 1)) {
    memset(n->g, 0, (size_t)((n->batch + bppsa_ragged_rows(n)) * size * size_of(n)));
  }
  if (n->ragged.active) {
    bppsa_ragged_scatter_ends(n, ends, hidden, size, hidden, bppsa_recurrent_offset(n, n->g, n->batch * size));
  } else {
    memmove(end_of_g(n, n->batch, hidden), ends, (size_t)(n->batch * hidden * size_of(n)));
    spread_gradients(n, n->batch);
  }
}

static bppsa_status enter_side(recurrent_network *n, int64_t l) {
  const int64_t rows = bppsa_ragged_rows(n), hidden = n->config.hidden;
  const bool ends = bppsa_sides_ends(n, l);
  BPPSA_TRY(bppsa_sides_split(n, l, ends ? n->sides.part : end_of_g(n, rows, hidden), hidden));
  if (ends) {
    seed_ends(n, n->sides.part);
  } else {
    spread_gradients(n, rows);
  }
  return BPPSA_OK;
}

/* The gradient of the outputs of every step, or of the last states, where the head's products read it. */
static const void *head_seed(const recurrent_network *n) {
  return n->ragged.active && n->config.loss_all ? n->ragged.packed : n->seed;
}

static bppsa_status seed(recurrent_network *n) {
  const bppsa_recurrent_config *c = &n->config;
  const void *h;
  const bppsa_linear head = head_of(n, &h);
  const void *weight = head_parameter(n, 0)->value.data;
  if (n->ragged.active && c->loss_all) {
    bppsa_ragged_pack(n, n->seed, c->classes, n->ragged.packed);
  }
  /* where seed_ends clears g, the products wait elsewhere: in a network that takes lengths */
  const bool apart = !c->loss_all && bppsa_recurrent_injected(n, c->layers - 1);
  void *ends = has_sides(n) ? n->sides.above : apart ? n->ragged.packed : end_of_g(n, head.rows, c->hidden);
  bppsa_linear_input_gradient(&head, head_seed(n), weight, ends);
  if (has_sides(n)) {
    return enter_side(n, bppsa_recurrent_layers(c) - 1);
  }
  if (c->loss_all) {
    spread_gradients(n, head.rows);
  } else {
    seed_ends(n, ends);
  }
  return BPPSA_OK;
}

static bppsa_status seed_layers(recurrent_network *n, const void *seed) {
  const int64_t hidden = n->config.hidden, rows = bppsa_ragged_rows(n), outputs = bppsa_recurrent_outputs(&n->config);
  if (has_sides(n)) {
    if (n->config.loss_all) {
      bppsa_ragged_pack(n, seed, outputs, n->sides.above);
    } else {
      memcpy(n->sides.above, seed, (size_t)(n->batch * outputs * size_of(n)));
    }
    return enter_side(n, bppsa_recurrent_layers(&n->config) - 1);
  }
  if (!n->config.loss_all) {
    seed_ends(n, seed);
    return BPPSA_OK;
  }
  bppsa_ragged_pack(n, seed, hidden, end_of_g(n, rows, hidden));
  spread_gradients(n, rows);
  return BPPSA_OK;
}

static bppsa_status input_gradient(recurrent_network *n, int64_t l, void *rows) {
  const bppsa_linear project = linear(n, bppsa_ragged_rows(n), n->layers[l].input, n->cell->gates * n->config.hidden);
  bppsa_linear_input_gradient(&project, n->pre, parameter(n, l, W_IH)->value.data, rows);
  return BPPSA_OK;
}

static bppsa_status pass_down(recurrent_network *n, int64_t l) {
  if (has_sides(n)) {
    return bppsa_sides_pass_down(n, l);
  }
  const int64_t rows = bppsa_ragged_rows(n);
  void *gradients = end_of_g(n, rows, n->config.hidden);
  BPPSA_TRY(input_gradient(n, l, gradients));
  if (bppsa_recurrent_drops(n, l)) {
    BPPSA_TRY(bppsa_recurrent_drop(n, l, gradients, gradients));
  }
  spread_gradients(n, rows);
  return BPPSA_OK;
}

/* Copies W_hh of the layer with padded rows for its backward pass; a cell's sweep and a scan read the same copy. */
static void pad_weights(const recurrent_network *n, int64_t l) {
  const int64_t hidden = n->config.hidden, row = bppsa_dtype_padded(n->config.dtype, hidden);
  const void *w_hh = parameter(n, l, W_HH)->value.data;
  for (int64_t r = 0; r < n->cell->gates * hidden; ++r) {
    memcpy(bppsa_recurrent_offset(n, n->w_hh, r * row), bppsa_recurrent_offset(n, w_hh, r * hidden),
           (size_t)(hidden * size_of(n)));
  }
}

/* ---- scans of samples of their own lengths: arrays of the scan are [T][b], all others packed ---- */

typedef struct {
  const recurrent_network *n;
  bppsa_cell_fn function;
  int64_t layer, step, row; /* of a stretch: the first step, from 0, and its row */
  int64_t samples;
  reset_cuts cuts;
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
    window w = {.row = row, .steps = 1, .samples = p->samples, .pre = bppsa_recurrent_offset(n, n->pre, row * deltas)};
    w.delta_h = n->cell->split ? bppsa_recurrent_offset(n, n->delta_h, row * deltas) : w.pre;
    w.g = bppsa_recurrent_offset(n, n->g, (spread + n->batch - p->samples) * size); /* the step's own is one step behind */
    const recurrent_reset_step s = {
        .layer = p->layer, .step = p->step + t, .row = row, .samples = p->samples, .count = p->samples};
    if (p->cuts == DELTAS) {
      bppsa_resets_begin(n, &s);
      w.h = n->resets.h;
      w.c = n->resets.c;
    }
    cell_block(n, p->function, p->layer, &w, false, 0, p->samples, columns,
               bppsa_recurrent_offset(n, n->diagonal, spread * hidden));
  }
}

static void sweep_steps(const recurrent_network *n, bppsa_cell_fn const functions[2], int64_t l) {
  const bppsa_cell_fn function = functions[n->config.dtype == BPPSA_F64];
  const double row = 8 * (double)(n->cell->gates * n->config.hidden);
  for (int64_t k = 0; k < bppsa_ragged_stretches(n); ++k) {
    const recurrent_stretch s = bppsa_ragged_stretch(n, k);
    const step_pass pass = {n, function, l, s.first, s.row, s.samples, cuts_of(n, functions)};
    bppsa_parallel_for(pass.cuts == DELTAS ? 1 : n->threads /* all steps use the same copies */, s.steps,
                       bppsa_loop_work(row * (double)(s.steps * s.samples), 0), sweep_step, &pass);
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

static bppsa_status scan_layer(recurrent_network *n, int64_t l) {
  const void *weights[BPPSA_CELL_MATRICES];
  const int64_t hidden = n->config.hidden, row = bppsa_dtype_padded(n->config.dtype, hidden);
  pad_weights(n, l);
  for (int64_t k = 0; k < n->cell->matrices; ++k) {
    weights[k] = bppsa_recurrent_offset(n, n->w_hh, k * hidden * row);
  }
  const window all = whole(n);
  if (n->ragged.active) {
    spread_columns(n, l);
    bppsa_ragged_spread(n, bppsa_recurrent_state_size(n), n->g);
  } else {
    sweep(n, n->cell->coefficients, l, &all, false);
  }
  const bppsa_scan_operands operands = {.batch = n->batch,
                                        .weights = weights,
                                        .weight_row = row,
                                        .columns = (const void *const *)n->columns,
                                        .diagonal = n->diagonal,
                                        .injected = bppsa_recurrent_injected(n, l) ? n->g : NULL,
                                        .cuts = bppsa_resets_mask(n, l),
                                        .gradients = n->g};
  BPPSA_TRY(n->layers[l].scan->execute(n->layers[l].scan, &operands));
  if (n->ragged.active) {
    sweep_steps(n, n->cell->deltas, l);
  } else {
    sweep(n, n->cell->deltas, l, &all, false);
  }
  return BPPSA_OK;
}

/* Sequential BP through all steps, from the last stretch to the first. */
static void sweep_back(const recurrent_network *n, int64_t l) {
  const int64_t size = bppsa_recurrent_state_size(n), deltas = n->cell->gates * n->config.hidden;
  for (int64_t k = bppsa_ragged_stretches(n) - 1; k >= 0; --k) {
    const recurrent_stretch s = bppsa_ragged_stretch(n, k);
    window w = {.first = s.first,
                .row = s.row,
                .steps = s.steps,
                .samples = s.samples,
                .pre = bppsa_recurrent_offset(n, n->pre, s.row * deltas)};
    w.delta_h = n->cell->split ? bppsa_recurrent_offset(n, n->delta_h, s.row * deltas) : w.pre;
    w.g = bppsa_recurrent_offset(n, n->g, (s.row + n->batch - s.samples) * size);
    w.input = k > 0 || wants_first(n);
    sweep(n, n->cell->backward, l, &w, bppsa_recurrent_injected(n, l));
  }
}

static bppsa_status layer_backward(recurrent_network *n, int64_t l) {
  if (n->layers[l].scan != NULL) {
    return scan_layer(n, l);
  }
  pad_weights(n, l);
  sweep_back(n, l);
  return BPPSA_OK;
}

static bppsa_status head_gradients(recurrent_network *n) {
  const void *h;
  const bppsa_linear head = head_of(n, &h);
  if (bppsa_back_is_part(n)) {
    const recurrent_products p = {.from_x = head, .x = h, .delta_x = n->seed};
    return bppsa_back_sum_layer(n, n->config.layers, &p);
  }
  bppsa_linear_weight_gradient(&head, head_seed(n), h, head_parameter(n, 0)->gradient.data, head_parameter(n, 1)->gradient.data,
                               n->sums);
  return BPPSA_OK;
}

/* The two products behind a layer's weight gradients: with its input, and with the states from which its steps began. */
typedef struct {
  bppsa_linear from_x, from_h;
  const void *x;
} layer_products;

static layer_products products_of(const recurrent_network *n, int64_t l) {
  const int64_t hidden = n->config.hidden, rows = bppsa_ragged_rows(n), out = n->cell->gates * hidden;
  layer_products p = {linear(n, rows, n->layers[l].input, out), linear(n, rows, hidden, out), input_of(n, l)};
  p.from_x.run = p.from_h.run = run_rows(n);
  return p;
}

/* For outputs before this one the bias gradient of b_hh equals that of b_ih, because both biases enter the same sum, or sums with
 * the same gradient. */
static int64_t shared_bias(const recurrent_network *n) {
  return (n->cell->split && n->cell->separate_bias ? n->cell->split_from : n->cell->gates) * n->config.hidden;
}

/* Sums `count` parts of both products from part `first` on. The window's deltas begin where that part does, and so does h, the
 * states from which its steps began. */
static void sum_parts(const recurrent_network *n, int64_t l, int64_t first, int64_t count, const window *w, const void *h) {
  const layer_products p = products_of(n, l);
  bppsa_linear_sum_parts(&p.from_x, first, count, w->pre, bppsa_recurrent_offset(n, p.x, w->row * p.from_x.in), 0, n->sums);
  bppsa_linear_sum_parts(&p.from_h, first, count, w->delta_h, h, shared_bias(n), n->hidden_sums);
}

/* Returns the states from which some steps of whole samples began: the rows of h, or where a sample begins anew a copy with
 * zeros. */
static const void *before_steps(const recurrent_network *n, int64_t l, int64_t first, int64_t steps) {
  const recurrent_stretch s = {.first = first, .steps = steps, .samples = n->batch};
  const int64_t hidden = n->config.hidden;
  const void *h = bppsa_recurrent_offset(n, n->layers[l].h, first * n->batch * hidden);
  if (!n->resets.active || bppsa_resets_find(n, l, first, first + steps, 0, n->batch, false) < 0) {
    return h;
  }
  memcpy(n->before, h, (size_t)(steps * n->batch * hidden * size_of(n)));
  bppsa_resets_clear(n, l, &s, hidden, n->before);
  return n->before;
}

/* The same of all steps of the present batch. */
static const void *before_all(const recurrent_network *n, int64_t l) {
  const int64_t hidden = n->config.hidden;
  if (!n->ragged.active) {
    return before_steps(n, l, 0, n->config.seq_len);
  }
  bppsa_ragged_shift(n, n->layers[l].h, hidden, n->before);
  for (int64_t k = 0; k < bppsa_ragged_stretches(n); ++k) {
    const recurrent_stretch s = bppsa_ragged_stretch(n, k);
    bppsa_resets_clear(n, l, &s, hidden, bppsa_recurrent_offset(n, n->before, s.row * hidden));
  }
  return n->before;
}

/* Sums all parts, from the deltas of all steps. */
static void sum_all(const recurrent_network *n, int64_t l) {
  const window all = whole(n);
  const layer_products p = products_of(n, l);
  sum_parts(n, l, 0, bppsa_linear_cut_rows(&p.from_h).parts, &all, before_all(n, l));
}

static void finish_layer(const recurrent_network *n, int64_t l) {
  const layer_products p = products_of(n, l);
  const bppsa_view *b_ih = &parameter(n, l, B_IH)->gradient, *b_hh = &parameter(n, l, B_HH)->gradient;
  bppsa_linear_finish(&p.from_x, parameter(n, l, W_IH)->gradient.data, b_ih->data, n->sums);
  bppsa_linear_finish(&p.from_h, parameter(n, l, W_HH)->gradient.data, n->cell->split ? b_hh->data : NULL, n->hidden_sums);
  memcpy(b_hh->data, b_ih->data, (size_t)(shared_bias(n) * size_of(n)));
}

/* Returns the memory of one window of sequential BP, which goes from the last window to the first. Only arrays that are read later
 * are kept: deltas if a layer below or the input's gradient needs them, gradients of the states if some are injected; otherwise
 * all windows use the same memory. g_0 always has the same place. seed: g behind the window. */
static window bp_window(const recurrent_network *n, int64_t l, int64_t first, int64_t steps, const void *seed) {
  const int64_t state = n->batch * bppsa_recurrent_state_size(n), deltas = n->batch * n->cell->gates * n->config.hidden;
  const bool injected = bppsa_recurrent_injected(n, l);
  window w = whole(n);
  w.first = first;
  w.row = first * n->batch;
  w.steps = steps;
  w.input = first > 0 || wants_first(n);
  if (bppsa_recurrent_level(n, l) > 0 || n->config.input_gradients) {
    w.pre = bppsa_recurrent_offset(n, n->pre, first * deltas);
    w.delta_h = n->cell->split ? n->delta_h : w.pre;
  }
  if (injected) {
    w.g = bppsa_recurrent_offset(n, n->g, first * state);
  } else {
    memmove(bppsa_recurrent_offset(n, n->g, steps * state), seed, (size_t)(state * size_of(n)));
  }
  sweep(n, n->cell->backward, l, &w, injected);
  return w;
}

/* Runs BP on one thread, run by run: the weight gradients of a run are summed while it is in the first-level cache. */
static void bp_runs(const recurrent_network *n, int64_t l, bppsa_linear_cut cut) {
  const layer_products p = products_of(n, l);
  const int64_t run = p.from_h.run, rows = p.from_h.rows;
  const void *seed = end_of_g(n, n->batch, bppsa_recurrent_state_size(n));
  for (int64_t part = cut.parts - 1; part >= 0; --part) {
    const int64_t start = part * cut.length, size = rows - start < cut.length ? rows - start : cut.length;
    for (int64_t r = (size - 1) / run * run; r >= 0; r -= run) {
      const int64_t count = size - r < run ? size - r : run, at = start + r;
      const window w = bp_window(n, l, at / n->batch, count / n->batch, seed);
      seed = n->g;
      bppsa_linear_sum_run(&p.from_x, part, size, r, count, w.pre, bppsa_recurrent_offset(n, p.x, at * p.from_x.in), 0, n->sums);
      bppsa_linear_sum_run(&p.from_h, part, size, r, count, w.delta_h, before_steps(n, l, w.first, w.steps), shared_bias(n),
                           n->hidden_sums);
    }
  }
}

/* Runs BP on several threads, which share windows of whole parts. */
static void bp_parts(const recurrent_network *n, int64_t l, bppsa_linear_cut cut) {
  const int64_t all = n->config.seq_len, part = cut.length / n->batch, fitting = window_steps(n) / part,
                parts = fitting > 1 ? fitting : 1;
  const void *seed = end_of_g(n, n->batch, bppsa_recurrent_state_size(n));
  for (int64_t first = (cut.parts - 1) / parts * parts; first >= 0; first -= parts) {
    const int64_t count = cut.parts - first < parts ? cut.parts - first : parts, end = (first + count) * part;
    const window w = bp_window(n, l, first * part, (end < all ? end : all) - first * part, seed);
    seed = n->g;
    sum_parts(n, l, first, count, &w, before_steps(n, l, w.first, w.steps));
  }
}

/* Sequential BP with the parts of the weight gradients. */
static void bp_layer(const recurrent_network *n, int64_t l) {
  if (n->ragged.active) {
    pad_weights(n, l);
    sweep_back(n, l);
    sum_all(n, l);
    return;
  }
  const layer_products p = products_of(n, l);
  const bppsa_linear_cut cut = bppsa_linear_cut_rows(&p.from_h); /* from_x has the same cut */
  pad_weights(n, l);
  (n->threads == 1 && p.from_h.run < cut.length ? bp_runs : bp_parts)(n, l, cut);
}

void bppsa_recurrent_clear_sums(recurrent_network *n, int64_t l, bool differences) {
  const layer_products p = products_of(n, l);
  memset(differences ? n->back.sums : n->sums, 0, (size_t)bppsa_linear_workspace(&p.from_x));
  memset(differences ? n->back.hidden_sums : n->hidden_sums, 0, (size_t)bppsa_linear_workspace(&p.from_h));
}

void bppsa_recurrent_sum_rows(const recurrent_network *n, int64_t l, bool differences, int64_t part, int64_t rows,
                              const void *delta_x, const void *x, const void *delta_h, const void *h) {
  const layer_products p = products_of(n, l);
  const int64_t begun = rows + 1; /* these are not the part's first rows */
  bppsa_linear_sum_run(&p.from_x, part, begun, 0, rows, delta_x, x, 0, differences ? n->back.sums : n->sums);
  bppsa_linear_sum_run(&p.from_h, part, begun, 0, rows, delta_h, h, shared_bias(n),
                       differences ? n->back.hidden_sums : n->hidden_sums);
}

void bppsa_recurrent_join_sums(recurrent_network *n, int64_t l) {
  const layer_products p = products_of(n, l);
  bppsa_back_add(n, bppsa_linear_workspace(&p.from_x) / size_of(n), n->back.sums, n->sums);
  bppsa_back_add(n, bppsa_linear_workspace(&p.from_h) / size_of(n), n->back.hidden_sums, n->hidden_sums);
}

/* False: the layer is left to BP. Weight gradients are summed while deltas are in a cache, unless BLAS is to compute them. */
static bool speculative_layer(recurrent_network *n, int64_t l) {
  const layer_products p = products_of(n, l);
  const bppsa_linear_cut cut = bppsa_linear_cut_rows(&p.from_h);
  const bool sums = p.from_h.run <= p.from_h.rows;
  pad_weights(n, l);
  if (sums) {
    bppsa_recurrent_clear_sums(n, l, false);
  }
  if (!bppsa_back_layer(n, l, input_of(n, l), sums ? cut.parts : 0)) {
    bppsa_back_given_up(n);
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
  const recurrent_products p = {of.from_x, of.from_h, of.x, n->layers[l].h, n->pre, whole(n).delta_h, shared_bias(n)};
  pad_weights(n, l);
  BPPSA_TRY(bppsa_back_part_layer(n, l, of.x));
  return bppsa_back_sum_layer(n, l, &p);
}

static bppsa_status backward_layer(recurrent_network *n, int64_t l) {
  const bppsa_recurrent_config *c = &n->config;
  const int64_t size = bppsa_recurrent_state_size(n);
  if (bppsa_back_is_part(n)) {
    BPPSA_TRY(part_layer(n, l));
  } else if (n->layers[l].scan != NULL) {
    BPPSA_TRY(scan_layer(n, l));
    sum_all(n, l);
  } else if (!n->back.stats.speculated || !speculative_layer(n, l)) {
    bp_layer(n, l);
  }
  if (!bppsa_back_is_part(n)) {
    finish_layer(n, l);
  }
  if (c->input_gradients) {
    for (int64_t b = 0; b < n->batch; ++b) {
      void *to = bppsa_recurrent_offset(n, n->dh0, l * n->batch * size + bppsa_ragged_sample(n, b) * size);
      if (bppsa_resets_at(n, l, 0, b)) {
        memset(to, 0, (size_t)(size * size_of(n)));
      } else {
        memcpy(to, bppsa_recurrent_offset(n, n->g, b * size), (size_t)(size * size_of(n)));
      }
    }
  }
  if (c->input_gradients && bppsa_recurrent_level(n, l) == 0) {
    void *dx = n->ragged.active ? n->ragged.packed : n->dx;
    BPPSA_TRY(has_sides(n) ? bppsa_sides_add(n, l, dx) : input_gradient(n, l, dx));
    if (n->ragged.active && l == 0) {
      bppsa_ragged_unpack(n, dx, c->input, n->dx);
    }
  }
  return BPPSA_OK;
}

static bppsa_status count(recurrent_network *n, int64_t *redone) {
  (void)n;
  *redone = 0; /* scan executors count by themselves */
  return BPPSA_OK;
}

/* ---- creation ---- */

static bppsa_status create(recurrent_network *n, const bppsa_device *device) {
  (void)n, (void)device;
  return BPPSA_OK;
}

/* Does a scan executor run the layer? The cell's sweep runs a linear scan, which is sequential BP, unless the caller provides the
 * executor. */
static bool runs_scan(const recurrent_network *n, const bppsa_scan_plan *plan) {
  return plan != NULL &&
         (!bppsa_scan_algorithm_is_bp(bppsa_scan_plan_config(plan)->method.algorithm) || n->config.factory.create != NULL);
}

static bppsa_status look(recurrent_network *n) {
  (void)n; /* passes are over when they return, and n->forward is what they read and write */
  return BPPSA_OK;
}

/* Bytes of the weight gradients' parts: of W_hh (`hidden`), or of W_ih and W_lin, which share them. -1: they do not fit in 64
 * bits. */
static int64_t sums_bytes(const recurrent_network *n, bool hidden) {
  const bppsa_recurrent_config *c = &n->config;
  const int64_t rows = c->seq_len * c->batch, out = n->cell->gates * c->hidden;
  const int64_t unit = c->lengths ? 1 : c->batch; /* single rows make the most parts, where batches have fewer rows */
  const int64_t outputs = bppsa_recurrent_outputs(c);
  const bppsa_linear from_h = {c->dtype, 1, rows, c->hidden, out, unit, 0, 0};
  const bppsa_linear uses[] = {{c->dtype, 1, rows, c->input, out, unit, 0, 0},
                               {c->dtype, 1, rows, outputs, out, unit, 0, 0},
                               {c->dtype, 1, c->loss_all ? rows : c->batch, outputs, c->classes, unit, 0, 0}};
  int64_t most = 0;
  for (size_t i = 0; !hidden && i < sizeof uses / sizeof *uses; ++i) {
    const int64_t bytes = bppsa_linear_workspace(&uses[i]);
    most = bytes < 0 || most < 0 ? -1 : bytes > most ? bytes : most;
  }
  return hidden ? bppsa_linear_workspace(&from_h) : most;
}

static bppsa_status visit_arrays(recurrent_network *n, bool scans, bppsa_recurrent_visit visit, int64_t *bytes) {
  const bppsa_recurrent_config *c = &n->config;
  const bppsa_cell *cell = n->cell;
  const int64_t steps = c->seq_len, batch = c->batch, hidden = c->hidden, gates = cell->gates * hidden;
  const int64_t outputs = bppsa_recurrent_outputs(c), widest = c->input > outputs ? c->input : outputs,
                most = gates > c->classes ? gates : c->classes;
  const int64_t state = bppsa_recurrent_state_size(n), sums = sums_bytes(n, false), hidden_sums = sums_bytes(n, true);
  if (sums < 0 || hidden_sums < 0) {
    return bppsa_fail(BPPSA_ERR_MEMORY, "%s: the weight gradients' partial sums do not fit in 64 bits", cell->name);
  }
  for (int64_t l = 0; l < bppsa_recurrent_layers(c); ++l) {
    BPPSA_TRY(c->tape ? BPPSA_OK : bppsa_recurrent_visit_tape(n, l, visit, bytes));
    if (l > 0 && (c->dropout > 0 || c->bidirectional)) {
      BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, steps, batch, n->layers[l].input, &n->layers[l].below, bytes));
    }
  }
  for (int64_t k = 0; scans && k < cell->matrices + cell->pair; ++k) {
    BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, steps, batch, hidden, &n->columns[k], bytes));
  }
  const struct {
    bool wanted;
    int64_t steps, rows, width;
    void **array;
  } arrays[] = {{true, steps, batch, gates, &n->pre},
                {true, steps + 1, batch, state, &n->g},
                {true, c->loss_all ? steps : 1, batch, n->base.classes, &n->logits},
                {true, 1, 4, gates, &n->bias},
                {true, 1, widest, most, &n->w_t},
                {true, 1, gates, bppsa_dtype_padded(c->dtype, hidden), &n->w_hh},
                {true, 1, hidden, bppsa_dtype_padded(c->dtype, gates), &n->w_hh_t},
                {cell->split, steps, batch, gates, &n->delta_h},
                {c->lengths || c->resets, steps, batch, hidden, &n->before},
                {scans && cell->diagonal, steps, batch, hidden, &n->diagonal},
                {c->input_gradients, steps, batch, c->input, &n->dx},
                {c->input_gradients, bppsa_recurrent_layers(c), batch, state, &n->dh0}};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; ++i) {
    if (arrays[i].wanted) {
      BPPSA_TRY(bppsa_recurrent_visit_array(n, visit, arrays[i].steps, arrays[i].rows, arrays[i].width, arrays[i].array, bytes));
    }
  }
  BPPSA_TRY(bppsa_forward_visit_host(n, visit, bytes));
  BPPSA_TRY(bppsa_forward_visit_states(n, visit, bytes));
  BPPSA_TRY(bppsa_back_visit(n, visit, bytes));
  BPPSA_TRY(bppsa_ragged_visit(n, visit, bytes));
  BPPSA_TRY(bppsa_resets_visit(n, visit, bytes));
  BPPSA_TRY(bppsa_sides_visit(n, visit, bytes));
  if (n->back.plan.speculative && !bppsa_back_is_part(n)) {
    BPPSA_TRY(visit(&n->back.sums, sums, bytes));
    BPPSA_TRY(visit(&n->back.hidden_sums, hidden_sums, bytes));
  }
  BPPSA_TRY(visit(&n->sums, sums, bytes));
  return visit(&n->hidden_sums, hidden_sums, bytes);
}

bppsa_status bppsa_recurrent_allocate_array(void **array, int64_t size, int64_t *bytes) {
  *bytes += size;
  *array = bppsa_calloc(size, 1);
  return *array == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
}

static bppsa_status allocate(recurrent_network *n, bool scans) {
  int64_t bytes = 0;
  return visit_arrays(n, scans, bppsa_recurrent_allocate_array, &bytes);
}

static void destroy(recurrent_network *n) {
  for (int64_t l = 0; n->layers != NULL && l < bppsa_recurrent_layers(&n->config); ++l) {
    void *const tape[] = {n->layers[l].h, n->layers[l].c, n->layers[l].saved};
    for (size_t i = 0; !n->config.tape && i < sizeof tape / sizeof *tape; ++i) {
      bppsa_free(tape[i]);
    }
    bppsa_free(n->layers[l].below);
  }
  for (int64_t k = 0; n->columns != NULL && k < n->cell->matrices + n->cell->pair; ++k) {
    bppsa_free(n->columns[k]);
  }
  bppsa_forward_free(n);
  bppsa_back_free(n);
  bppsa_ragged_free(n);
  bppsa_resets_free(n);
  bppsa_sides_free(n);
  void *const own[] = {n->pre,         n->delta_h, n->g,   n->diagonal, n->logits, n->before, n->sums,
                       n->hidden_sums, n->dx,      n->dh0, n->bias,     n->w_t,    n->w_hh_t, n->w_hh};
  for (size_t i = 0; i < sizeof own / sizeof *own; ++i) {
    bppsa_free(own[i]);
  }
}

const recurrent_backend bppsa_recurrent_cpu = {.create = create,
                                               .runs_scan = runs_scan,
                                               .choose = bppsa_forward_choose,
                                               .visit = visit_arrays,
                                               .allocate = allocate,
                                               .check_cell = bppsa_recurrent_check_entries,
                                               .destroy = destroy,
                                               .forward = forward,
                                               .logits = logits,
                                               .seed = seed,
                                               .seed_layers = seed_layers,
                                               .head_gradients = head_gradients,
                                               .layer_backward = layer_backward,
                                               .backward = backward_layer,
                                               .pass_down = pass_down,
                                               .input_gradient = input_gradient,
                                               .enter_side = enter_side,
                                               .move = bppsa_sides_move,
                                               .gather_ends = bppsa_ragged_gather_ends,
                                               .drop = bppsa_recurrent_drop,
                                               .count = count,
                                               .look = look,
                                               .tell = look};
